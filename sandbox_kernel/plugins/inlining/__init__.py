"""Pictures and pages of the sandbox within the outputs that name them. Without it, an output has their names alone.

- `plugin`: What this plugin adds.

Package: `inside` (what puts them in, in each kernel).
"""
