"""The daemon that owns an engine: it knows its callers, keeps sandboxes ready, and hands out pipes.

Its callers' side is in `client/`.

- `settings`: How many sandboxes are kept ready, and what they have imported.
- `codes`: Why a broker gives no sandbox.
- `create_request`: What a caller asks for, read against a table, and the spec that is made of it.
- `user_accounts`: Which account of the machine the user id of a process stands for.
- `ceilings`: What a user may have, and who says so; the operator's file.
- `user_volumes`: The volumes of each user, apart from others' and within the ceilings.
- `usage_counters`: Who has how many sandboxes, and what was refused.
- `pool`: Sandboxes that are ready before anybody asks.
- `detached_sandbox`: A sandbox whose pipe the broker keeps, so that it outlives whoever uses it.
- `detached_registry`: Who may have such a one, and for how long.
- `start_slots`: Starts at once, for which users take turns.
- `owner_states`: Whose a sandbox is from one owner to the next, and what may follow what.
- `lease`: A sandbox whose pipe a caller has: its end, and whose it is.
- `caller_connection`: One connection: a few bounded requests, each answered once.
- `prometheus_metrics`: Figures for the operator, in Prometheus's text form.
- `daemon`: The sockets, and the daemon from its start to its end.
- `command`: `sandbox-kernel broker`.
- `detached`: A sandbox that outlives its caller: what a caller leaves with the broker, and how the next one goes on.
- `plugin`: What this plugin adds: the command `broker`, and the engine that asks one.
"""
