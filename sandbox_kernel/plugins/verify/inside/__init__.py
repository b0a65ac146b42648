"""What runs inside a sandbox that is verified: attacks, each of which returns something only if it got out.

Shipped as source, on the standard library and an old Python. The host imports them for their table, and runs none.

- `kit`: The table of attacks, the calls that they need, and what runs them one after the other.
- `agent`: Attacks on the agent, whose user the cells share.
- `network`: Ways to a network, and to the sockets of the host.
- `kernel`: Interfaces of the kernel: namespaces, mounts, other processes, keyrings, programs in it.
- `rights`: Rights, identity, devices, clocks, names, priorities.
- `files`: Files of the host and of the system, and what /proc and /sys tell.
- `limits`: Taking more than one's share.
"""
