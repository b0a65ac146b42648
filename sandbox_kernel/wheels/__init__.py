"""Wheels, for images and for sandboxes: which ones fit, and how they come. pip does the work.

- `pip_process`: pip as a process: options, variables, bounds.
- `image_wheels`: Wheels for an image, fetched on the host.
"""
