"""The connections that cells open, carried over the pipe: what network, tools and packages are served by.

- `plugin`: What this plugin adds.
- `cell_streams`: One stream, and all streams of a container, each served by the session's service.

Package: `inside` (the listener and the relay, in the sandbox).
"""
