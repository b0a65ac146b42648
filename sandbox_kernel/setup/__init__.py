"""What makes a machine ready: the engine, the images and the kernelspec.

- `engine_setup`: Is there an engine, and which commands bring one?
- `command_steps`: Commands that end, and what people are told while something takes long.
- `build_lock`: One build at a time.
- `image_kinds`: The kinds of images and roots, and Debian's packages of each.
- `image_build`: Building the images.
- `install`: The kernelspec.
- `image_kernelspec`: What an image says of one of its kernels, for the kernelspec.
- `self_test`: A cell in a session of its own, for those who look at an image or a machine.
- `reference_pages`: The pages of all settings and of all codes; codes also for a terminal.
"""
