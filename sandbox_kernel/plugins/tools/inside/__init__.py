"""What a kernel has of its caller's tools. Shipped as source, on the standard library alone.

- `sandbox_tools`: The module of that name, whose functions call the host.
"""
