"""An entry point: the kernel process that a front end starts.

- `pipe_holder`: A process that holds the pipe for the seconds between two kernel processes of a restart.
- `handover`: A container parked by one kernel process and taken by the next one.
- `heap`: Memory that large messages took, kept for the next one.
- `peer_check`: Who may connect to the kernel's sockets: this user's processes, judged before their first frame.
- `kept_ports`: The sockets on which clients knock, open from one kernel process to the next.
- `fork_server`: A process that has loaded what kernels load, and forks itself into each of them.
- `front_sockets`: The five ZMQ sockets: binding, reading from asyncio, and signatures, of which none counts twice.
- `file_messages`: Files of scratch over the control channel, chunk by chunk.
- `large_outputs`: What a page does not bear: a file of scratch, and its end shown.
- `head_start`: The first container, asked for before anything else is imported.
- `kernel_info`: What a kernel says of itself and of its sandbox: language, limits, state.
- `server`: A kernel towards its clients, for each transport: what it answers itself, and what goes to its session.
- `proxy`: The kernel process that a front end starts, and the requests that it holds back until outputs can be heard.
"""
