"""A real Kubernetes cluster of one machine, built from source: `python -m tests.cluster up`.

Everything listens on a link and in network namespaces of its own, and nothing in there has a route to elsewhere.
Another cluster runs beside the first with `--number 2`.

- `build`: The programs, by the Go module proxy and the compiler; cached by what they are made of.
- `configuration`: Certificates, tokens and the files that the programs read.
- `network`: A network namespace for each node, and one with the bridge between them.
- `kernel_settings`: What a kubelet changes of the machine's kernel, and how it was.
- `programs`: Processes that outlive the command that started them, found again by their pid files.
- `control_plane`: etcd, the API server, the controller manager and the scheduler.
- `nodes`: containerd, the kubelet, the service proxy and what enforces network policies, for each node.
- `__main__`: The commands.
"""
