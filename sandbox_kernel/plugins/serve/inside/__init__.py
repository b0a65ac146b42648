"""What runs in a sandbox for this plugin. Shipped as source, on the standard library alone.

- `file_search`: Looks for files by their names and contents, and packs them.
"""
