"""Parts that can be left out: each folder here is one plugin, and nothing outside of it imports it.

- `api`: What a plugin says of itself, ours or that of another package.
- `index`: The one list of our plugins, and how those of other packages are found.
"""
