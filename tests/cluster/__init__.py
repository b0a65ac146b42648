"""A real Kubernetes cluster of one machine, built from source: `python -m tests.cluster up`.

Everything listens on a bridge and in network namespaces of its own, and nothing in there has a route to elsewhere.

- `build`: The programs, by the Go module proxy and the compiler; cached by what they are made of.
- `configuration`: Certificates, tokens and the files that the programs read.
- `network`: The bridge, and a network namespace for each node.
- `programs`: Processes that outlive the command that started them, found again by their pid files.
- `control_plane`: etcd, the API server, the controller manager and the scheduler.
- `nodes`: containerd, the kubelet, the service proxy and what enforces network policies, for each node.
- `__main__`: The commands.
"""
