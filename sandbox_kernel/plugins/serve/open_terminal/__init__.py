"""Open Terminal's wire, which Open WebUI speaks: files, commands, shells and notebooks of one sandbox.

- `wire`: Its routes.
- `user`: Whose sandbox a request is for, and where a path leads.
- `bodies`: What its requests carry.
- `files`: Files of a user's sandbox.
- `commands`: Commands that run beside each other.
- `sockets`: Shells with a terminal, each for one WebSocket.
- `notebooks`: Notebooks, whose cells run one by one.
- `page`: The page from which Open WebUI makes the tools of its models.
"""
