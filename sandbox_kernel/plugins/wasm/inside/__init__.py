"""What runs in a guest, as a part of the image.

- `kernel`: Jupyter's messages, and a real IPython shell.
- `integers`: Integers of 64 bits where those of numpy and pandas have 32.
"""
