"""QEMU: a machine of its own for each session, with a kernel of its own under the code; emulated.

QEMU itself is a program in a sandbox of bubblewrap's, so what holds it, ends it and limits it is all there already.
What runs in the machine beside the agent is in `inside/`. `snapshots/` is what callers have of the one ability that no
other engine has.

- `plugin`: What this plugin adds: the engine `qemu`, and snapshots.
- `codes`: What makes the state of a machine of no use, and why a snapshot is refused.
- `settings`: How much room snapshots have, and how long a paused machine keeps its memory.
- `build_format`: The form of what machines start from.
- `build`: Making it.
- `artifacts`: Where QEMU is, and what was built for a root: a kernel, the first files in memory, a disk.
- `hardware`: The machine's devices and features in QEMU's words, each with why it is there; pure.
- `profile`: What QEMU has of the host's: its protections and system calls, with which bubblewrap starts it.
- `line_protocol`: A channel of lines of JSON, bounded: the machine's words, and QEMU's own monitor.
- `qmp`: QEMU's monitor, which only the host reaches: standing still, and writing a machine's state down.
- `saved_states`: The states that machines start from, as files.
- `state_capture`: Taking such a state, here or in a process of its own, which outlives the one that wanted it.
- `__main__`: That process.
- `running_config`: What a machine was made of.
- `launch_plan`: Starting QEMU, as often as a machine is.
- `hibernation`: A paused machine that gives its memory back, and goes on where it was.
- `container`: One running machine: its pipe, and why it ended.
- `engine`: The engine: start, adopt, list, reap.
"""
