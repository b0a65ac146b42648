"""The second wall, in the browser: what a Jupyter Server sends with the pages that show notebooks.

- `plugin`: What this plugin adds.
- `extension`: The extension of Jupyter Server that sends it, and says which kernels are started.
- `server_configuration`: Whether the Jupyter Server of this environment has it, and switching it on.
"""
