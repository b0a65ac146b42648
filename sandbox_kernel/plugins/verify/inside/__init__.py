"""Attacks that run inside a sandbox: each returns something only if it got out.

Shipped as source, on the standard library and an old Python. The host imports them for their table, and runs none.

- `kit`: The table of attacks, the calls that they need, and what runs them one after the other.
- `on_agent`: Attacks on the agent, whose user the cells share.
- `on_network`: Ways to a network, and to the sockets of the host.
- `on_kernel`: Interfaces of the kernel: namespaces, mounts, other processes, keyrings, programs in it.
- `on_rights`: Rights, identity, devices, clocks, names, priorities.
- `on_files`: Files of the host and of the system, and what /proc and /sys tell.
- `on_limits`: Taking more than one's share.
- `criteria`: No attacks: what other products are asked, harmless where nothing protects.
"""
