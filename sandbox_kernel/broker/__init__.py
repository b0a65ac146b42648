"""The daemon that owns an engine: it knows its callers, keeps sandboxes ready, and hands out pipes.

- `order`: What a caller asks for, read against a table, and the spec that is made of it.
- `ceilings`: What a user may have, and who says so; the operator's file.
- `tally`: Who has how many sandboxes, and what was refused.
- `pool`: Sandboxes that are ready before anybody asks.
- `warm`: One of them, from its start to its claim.
- `spare`: What the machine has to spare for it.
- `lent`: A sandbox whose pipe a caller has: its end, and whose it is.
- `caller`: One connection: a few bounded requests, each answered once.
- `answers`: What callers may ask besides a sandbox.
- `metrics`: Figures for the operator, in Prometheus's text form.
- `daemon`: The sockets, and the daemon from its start to its end.
- `command`: `sandbox-kernel broker`.
"""
