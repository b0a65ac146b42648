"""What a kernel has for connections. Shipped as source, on the standard library alone.

- `sandbox_certificates`: The file of the certificates that cells trust.
"""
