"""What makes a machine ready: the engine, the images, the kernelspec, and whoever looks whether all is there.

- `engine_setup`: Is there an engine, and which commands bring one?
- `command_steps`: Commands that end, and what people are told while something takes long.
- `build_lock`: One build at a time.
- `image_kinds`: The kinds of images and roots, and Debian's packages of each.
- `image_build`: Building the images.
- `install`: The kernelspec.
- `image_kernelspec`: What an image says of one of its kernels, for the kernelspec.
- `browser_wall`: Whether the Jupyter Server of this environment sends it, and switching it on.
- `doctor`: What a session needs of this machine, row by row, with remedies.
- `walls`: Which engine and runtime is for whom, what each enforces, and which of them are here.
- `matrix`: Which engines serve on this machine, what stops the others, and what each lacks.
- `reference_pages`: The pages of all settings and of all codes; codes also for a terminal.
"""
