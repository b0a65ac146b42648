"""What a kernel has for commands. Shipped as source with the first of them, on the standard library.

- `shell_commands`: Commands beside the cells; in the kernel.
"""
