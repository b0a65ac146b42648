"""What runs in a guest, as a part of the image.

- `kernel`: Jupyter's messages, and a real IPython shell.
"""
