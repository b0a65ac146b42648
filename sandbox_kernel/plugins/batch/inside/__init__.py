"""What runs in the kernel of a sandbox whose run is compared with others: the standard library and Python 3.9 only.

- `witness`: Notes what Python asks the system for.
"""
