"""What runs inside the container: process 1, and what it needs.

The host sends these modules along with every start, and imports none of them but `wire` and `flow`. They use the
standard library and each other, and are written for Python 3.9 and later.

- `prepared`: Bytecode of these sources, where an image has it.
- `wire`: Frames: encoding, and a decoder that refuses a length before it makes room for it. Shipped into the
  container.
- `kernel_messages`: A kernel's messages: taken, cut where they are large, and which of them may wait.
- `process`: The agent's own process: pipes that never block, memory that is kept for a while.
- `syscall_filters`: Filters around all that the agent starts: the host's list, and what keeps cells off the agent.
- `agent_report`: What the sandbox sees of itself.
- `file_requests`: Files of scratch, one bounded step a request.
- `kernel`: One kernel process.
- `kernelspecs`: The kernels that an image has besides its Python.
- `flow`: The frames of streams, and the rules by which both ends check them. Imported by the host, as `wire` is.
- `zmtp`: The protocol of ZeroMQ's sockets, as the agent speaks it to its kernel: one connection a channel.
- `agent`: Process 1: one loop between the kernel's sockets and the pipe.
- `kernel_launcher`: A kernel's program: ipykernel, with its lines of a start run as Python, and interrupts that meet
cells alone.
- `start`: What comes before: the filters, and the kernel as early as can be.
"""
