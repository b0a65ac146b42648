"""Container engines: the one seam between a session and the machine it runs on.

- `base`: The seam: `Engine`, `Container`, `Handover`.
- `seccomp`: The system calls that a cell may make; all others fail.
- `seccomp_program`: The same rules as a program for the kernel, for engines that take no rules.
- `inspectable`: What an engine says of itself, its sandboxes and its images: values of ours.
- `hardening`: From a spec to the protections of a sandbox, in values of ours.
- `attestation`: Is the container what was asked for? Two witnesses against the spec.
- `attested_start`: A real start, for those who look whether a machine does what it should.
- `owner_process`: Whose container it is: a process, told apart from a later one with its number.
- `container_reaper`: A process that outlives the owner of containers, and ends those that do not end with it.
- `limit_watch`: Hears from the machine's own kernel that a container reached one of its limits.
- `neighbours`: What sandboxes of one machine share that no wall closes, as the machine says it; core scheduling.
- `process_sample`: What the machine's own kernel says of a sandbox's processes: a bounded sample.
- `image_names`: Images and roots that this project builds, and the command that makes one.
- `abilities`: What an engine can do with a sandbox that runs (pause, save, fork), and the seam of those that can.
- `socket_memory`: What TCP and UDP hold in the cgroup of a sandbox, limited.
- `pipe`: The byte pipe of an attached container, which can be given to another process.
- `demultiplexer`: Stdout and stderr on one socket, as Docker and Podman write them, and taken apart again.
- `attachment`: The seam of what is mounted into a sandbox besides its own folders; a plugin knows what that is.
- `usage_watch`: A look at what a sandbox without a cgroup uses.
- `user_ids`: The user ids that sandboxes have.
- `preparations`: What plugins prepare for a session: what goes into its sandboxes, and what serves them.
- `shipping`: A sandbox to ask an engine for; the modules of `container` as its program.
- `broker_sockets`: Where a broker listens.
- `wall`: How an engine closes in, for people.
- `select`: The engines by their names, and which one the settings name.
"""
