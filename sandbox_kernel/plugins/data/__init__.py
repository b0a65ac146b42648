"""Data: folders of the host that sandboxes may read, and volumes that outlive them. Off unless the host's side asks.

What is opened and mounted is the engines' (`sandbox_kernel.engines.attached`).

- `plugin`: What this plugin adds.
- `settings`: How datasets and volumes are written.
"""
