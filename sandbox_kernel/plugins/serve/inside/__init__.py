"""What runs in a sandbox for this plugin. Shipped as source, on the standard library alone.

- `saved_figures`: Shows no figure that a cell saved as a file.
- `file_search`: Looks for files by their names and contents, and packs them.
"""
