"""An entry point: a session in the caller's own process, with and without `await`.

- `messages`: Text that is more than text: what a cell printed, and JSON.
- `charts`: What a figure shows, as values.
- `result`: One result of a cell.
- `execution`: What `run_code` brings back, and how it is put together from messages.
- `callbacks`: The functions that a caller gives along: plain or async, and none can lose a cell.
- `lifetimes`: What ends a container: its time, and an owner that goes without a word.
- `keywords`: The settings as keywords, written by `make settings`.
- `values`: What callers give and get besides executions and files.
- `variables`: Variables of the environment, for a sandbox or for one call.
- `options`: What a caller opens a sandbox with.
- `cell`: One call of `run_code` as a request of a session.
- `paths`: Paths of a sandbox, as callers write them.
- `entries`: What lies in a folder, and what changes in it.
- `folders`: Folders of a sandbox, for callers.
- `files`: Files of a sandbox, for callers.
- `following`: One command, followed from the host.
- `input`: Input of a command that comes piece by piece.
- `commands`: Commands of a sandbox, and shells with a terminal.
- `paginators`: Lists of sandboxes, some at a time.
- `keeper`: Who keeps sandboxes that outlive their caller.
- `ownership`: Whose a sandbox is, and with what it ends.
- `instance`: One sandbox as its parts see it: its session, and whether it may be used.
- `snapshotting`: A sandbox that is written down, and others that go on from there.
- `client`: `AsyncSandbox`: a session on the caller's event loop, and its parts.
- `internal_cells`: Cells of this package's own, which do something for a caller.
- `background`: The event loop of all blocking sandboxes, in one thread.
- `blocking`: `Sandbox`: the same without `await`.
"""
