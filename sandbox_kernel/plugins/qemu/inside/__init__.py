"""What runs in a machine beside the agent, and in a kernel that is a copy.

Shipped as source, on the standard library alone.

- `confinement`: The sandbox around the agent, built again from what the host says.
- `guest`: The first process: it hears the host, starts the agent in that sandbox, and carries the bytes.
- `gate`: Where the kernel of a machine that is saved waits until a copy is claimed.
- `reseed`: What a kernel draws again whose cells ran before it was copied; in the kernel.
"""
