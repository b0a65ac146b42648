"""A door: a session in the caller's own process, with and without `await`.

- `execution`: What `run_code` brings back, and how it is put together from messages.
- `callbacks`: The functions that a caller gives along: plain or async, and none can lose a cell.
- `lifetimes`: What ends a container when its owner goes without a word.
- `starts`: Turns for starts on one event loop.
- `values`: What callers give and get besides executions and files.
- `cell`: One call of `run_code` as a request of a session.
- `network`: The way out of its cells, if the settings ask for one.
- `files`: Files of a sandbox, for callers.
- `client`: `AsyncSandbox`: a session on the caller's event loop.
- `errands`: Cells of this package's own, which do something for a caller.
- `background`: The event loop of all blocking sandboxes, in one thread.
- `blocking`: `Sandbox`: the same without `await`.
"""
