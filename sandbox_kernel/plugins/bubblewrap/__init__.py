"""bubblewrap: sandboxes of the machine's own namespaces, for an ordinary user, without a daemon and without images.

- `root_lookup`: What a sandbox without images has for its file system.
- `arguments`: A sandbox's protections in bubblewrap's words; pure, with snapshot tests.
- `discovery`: Where bubblewrap is.
- `users`: A user of its own for each sandbox of an ordinary user's, where there are subordinate ids.
- `engine_errors`: What bubblewrap and the machine refuse, as errors of ours.
- `process_labels`: What is seen of sandboxes from outside: which there are, and whose.
- `reaper`: A process that outlives the owner, and ends each sandbox whose pipe has no owner.
- `private_mounts`: Disks of one sandbox, mounted where no other process sees them.
- `scratch_folder`: Scratch of an ordinary user who accepts less than a disk: a folder, how full it is, and its end.
- `cgroups`: A cgroup for each sandbox, where this process may make one; it limits and freezes.
- `launch`: Starting one sandbox, behind a gate that opens when its limits stand.
- `ahead`: The beginning of a sandbox, which needs no event loop.
- `watch`: Looks at what a sandbox without a cgroup, or with a folder for a disk, uses: the weaker form of its limits.
- `inspection`: What the machine says of a sandbox, compared with what it was asked for.
- `container`: One running sandbox: its pipe, and why it ended.
- `engine`: The bubblewrap engine: start, adopt, list, reap, and what it needs of the machine.
- `interface`: What others may use of all this.
- `wall_texts`: What its walls stop, need, cost and enforce.
- `plugin`: The engine as others know it: by its name.
"""
