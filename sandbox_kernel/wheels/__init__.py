"""Wheels, for images and for sandboxes: which ones are wanted, which fit, and how they come. pip does the work.

- `requirements`: Requirements of a user's, read by us: names, versions, hashes, and wheels in files.
- `pip_process`: pip as a process: options, variables, bounds.
- `resolver`: Which versions of which packages.
- `image_wheels`: Wheels for an image, fetched on the host.
"""
