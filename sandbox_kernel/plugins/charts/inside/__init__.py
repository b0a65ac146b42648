"""What a kernel has for charts. Shipped as source, on the standard library and IPython.

- `figure_data`: What a matplotlib figure shows, as data; in the kernel, where the SDK's caller asked for it.
"""
