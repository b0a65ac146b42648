"""Packages of a user's own, for images, roots and sandboxes: which are wanted, and in which versions.

- `plugin`: What this plugin adds.
- `requirements`: Requirements of a user's, read by us: names, versions, hashes, and wheels in files.
- `resolver`: Which versions of which packages.
- `codes`: Its codes.
- `own_wheels`: The wheels for an image or a root.
"""
