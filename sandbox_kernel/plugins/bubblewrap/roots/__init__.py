"""Making the roots that sandboxes without images start from.

- `root_layout`: What of this machine a root can be made from, and where everything lies in it.
- `root_generations`: The folders of roots, of which a new one takes the place of the one before.
- `root_steps`: Steps that any root is made by.
- `build`: A root of this machine's Python, its libraries, and a lock's packages.
- `exported_root`: A root that is an image's file system.
- `debian_root`: A root of Debian's packages, for a kind that needs more than this machine's Python.
"""
