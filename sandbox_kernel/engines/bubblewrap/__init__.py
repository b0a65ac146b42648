"""bubblewrap: sandboxes of the machine's own namespaces, for an ordinary user, without a daemon and without images.

- `roots`: What a sandbox without images has for its file system.
- `arguments`: A sandbox's protections in bubblewrap's words; pure, with snapshot tests.
- `discovery`: Where bubblewrap is.
- `users`: A user of its own for each sandbox of an ordinary user's, where there are subordinate ids.
- `errors`: What bubblewrap and the machine refuse, as errors of ours.
- `conditions`: What it needs of the machine, tried, with a remedy for each.
- `finding`: What is seen of sandboxes from outside: which there are, and whose.
- `warden`: A process that outlives the owner, and ends each sandbox of which nobody has the pipe.
- `launch`: Starting one sandbox, behind a gate that opens when its limits stand.
- `ahead`: The beginning of a sandbox, which needs no event loop.
- `watch`: Looks at what a sandbox without a cgroup uses: the weaker form of its limits.
- `witness`: What the machine says of a sandbox, compared with what it was asked for.
- `standing`: A sandbox that stands still, by its cgroup.
- `container`: One running sandbox: its pipe, and why it ended.
- `engine`: The bubblewrap engine: start, adopt, list, reap.
"""
