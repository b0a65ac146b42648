"""What runs in a machine beside the agent. Shipped as source, on the standard library alone.

- `confinement`: The sandbox around the agent, built again from what the host says.
- `guest`: The first process: it hears the host, starts the agent in that sandbox, and carries the bytes.
- `gate`: Where the kernel of a machine that is saved waits until a copy is claimed.
"""
