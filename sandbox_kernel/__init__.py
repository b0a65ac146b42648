"""A Jupyter kernel whose cells run in a hardened container: safe to hand to a language model.

Importing the package is free of side effects and imports nothing else, because the kernel's start-up
time begins here.
"""

__version__ = "0.1.0"
