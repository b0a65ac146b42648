"""Data: folders of the host that sandboxes may read, and volumes that outlive them. Off unless the host's side asks.

What is opened and mounted is the engines' (`sandbox_kernel.engines.attached`).

- `plugin`: What this plugin adds.
- `diagnosis`: What a session would miss of its datasets and volumes, for the doctor.
- `reads`: The record of reads: which cell opened which file of a dataset.
- `codes`: What goes wrong with archives of volumes, and what the record of reads misses.
- `settings`: How datasets and volumes are written.
- `volume_command`: The command `volumes`.
"""
