"""A door: a session in the caller's own process, with and without `await`.

- `said`: Text that is more than text: what a cell printed, and JSON.
- `charts`: What a figure shows, as values.
- `result`: One result of a cell.
- `execution`: What `run_code` brings back, and how it is put together from messages.
- `callbacks`: The functions that a caller gives along: plain or async, and none can lose a cell.
- `lifetimes`: What ends a container when its owner goes without a word.
- `starts`: Turns for starts on one event loop.
- `values`: What callers give and get besides executions and files.
- `variables`: Variables of the environment, for a sandbox or for one call.
- `opening`: What a caller opens a sandbox with.
- `cell`: One call of `run_code` as a request of a session.
- `network`: The way out of its cells, if the settings ask for one.
- `paths`: Paths of a sandbox, as callers write them.
- `entries`: What lies in a folder, and what changes in it.
- `folders`: Folders of a sandbox, for callers.
- `files`: Files of a sandbox, for callers.
- `following`: One command, followed from the host.
- `input`: Input of a command that comes piece by piece.
- `commands`: Commands of a sandbox, and shells with a terminal.
- `identity`: What a sandbox is, how long it lasts, and which there are in this process.
- `hosted`: The names that hosted interpreters have for our errors.
- `client`: `AsyncSandbox`: a session on the caller's event loop.
- `errands`: Cells of this package's own, which do something for a caller.
- `background`: The event loop of all blocking sandboxes, in one thread.
- `blocking_commands`: Commands without `await`.
- `blocking_files`: Files without `await`.
- `blocking`: `Sandbox`: the same without `await`.
"""
