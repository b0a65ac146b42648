"""The version of this package, which engines, images and reports name."""

__version__ = "0.1.0"
