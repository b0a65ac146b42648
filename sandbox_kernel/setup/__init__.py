"""What makes a machine ready: the engine, the images, the kernelspec, and whoever looks whether all is there.

- `machine`: Is there an engine, and which commands bring one?
- `requirements`: A user's requirements file, read by us: names, versions, hashes, and wheels in files.
- `wheels`: Wheels for an image, fetched on the host.
- `image`: Building the images.
- `install`: The kernelspec.
- `browser_wall`: Whether the Jupyter Server of this environment sends it, and switching it on.
- `way_out`: What the settings of the network name, and whether it is there.
- `doctor`: What a session needs of this machine, row by row, with remedies.
- `reference`: The page of all settings.
- `codes_page`: The page of all codes, and the same for a terminal.
"""
