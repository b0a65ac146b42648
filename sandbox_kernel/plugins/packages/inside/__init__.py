"""What a kernel has for packages. Shipped as source, on the standard library alone.

- `sandbox_packages`: What is there, the unpacking of wheels, and `%pip`.
"""
