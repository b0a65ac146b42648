"""Data: folders of the host that sandboxes may read, and volumes that outlive them. Off unless the host's side asks.

Engines ask for it by `sandbox_kernel.engines.attachment`, and mount it.

- `plugin`: What this plugin adds.
- `attached`: What a sandbox has of the host's by an exception: its datasets and disks, opened while it starts.
- `dataset_folder`: A dataset's folder, opened with the rights of the user whose sandbox it is for.
- `disk_images`: Disks of a fixed size, which vanish with their last user.
- `volumes`: Disks with a name that outlive sandboxes, and who may use each just now.
- `file_watch`: What the machine's own kernel says of the files that a sandbox opens below its datasets.
- `diagnosis`: What a session would miss of its datasets and volumes, for the doctor.
- `reads`: The record of reads: which cell opened which file of a dataset.
- `codes`: What goes wrong with datasets and volumes, and what the record of reads misses.
- `settings`: How datasets and volumes are written.
- `volume_command`: The command `volumes`.
"""
