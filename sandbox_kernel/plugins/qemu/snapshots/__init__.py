"""Snapshots: sandboxes that are written down with all that they have in memory, and others that go on from there.

The SDK asks for them by `sandbox_kernel.sdk.snapshots`. Nothing here knows QEMU: what can be written down, and what
goes on from that, is what `engines.abilities` says.

- `store_parts`: What a folder of snapshots holds, looked at without believing it.
- `store`: The snapshots of one user: taken whole, and believed in nothing.
- `facts`: What the host writes down beside a snapshot, and what must fit.
- `copies`: What the SDK asks: a sandbox that is written down, and others that go on from there.
- `snapshot_command`: The command `snapshots`, and what `doctor` and `reap` do about them.
"""
