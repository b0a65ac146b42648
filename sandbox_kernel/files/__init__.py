"""The host's disk: folders, names, and all that moves between them and scratch.

- `file_rules`: Rules for names and sizes of files that enter and leave.
- `path_walk`: A way through the host's folders, one name at a time, on which nearly no link is followed.
- `host_paths`: Every path that somebody names: opened by one rule, kept as a handle, written whole.
- `folder_policy`: Which folders a cell may fill: ones where no program runs, loads or obeys what it finds.
- `host_tree`: The only code that opens a file beneath a host folder: one name at a time, never through a link.
- `scratch_files`: Single files of scratch, by asking the agent chunk by chunk and believing nothing.
- `folder_sync`: The folders of uploads and downloads, kept in step with scratch around each cell.
- `notebook_files`: Whether a file that a cell asked for lies beside the notebook.
"""
