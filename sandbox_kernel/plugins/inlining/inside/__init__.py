"""What each kernel has for its outputs. Shipped as source, on the standard library and IPython.

- `output_inlining`: What an output names and cannot load becomes part of it; in the kernel.
"""
