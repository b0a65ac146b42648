"""An entry point: a session in the caller's own process, with and without `await`.

- `output_text`: Text that is more than text: what a cell printed, and JSON.
- `result`: One result of a cell.
- `execution`: What `run_code` brings back, and how it is put together from messages.
- `callbacks`: The functions that a caller gives along: plain or async, and none can lose a cell.
- `lifetimes`: What ends a container: its time, and an owner that goes without a word.
- `keywords`: The settings as keywords, written by `make settings`.
- `values`: What callers give and get besides executions and files.
- `environment_variables`: Variables of the environment, for a sandbox or for one call.
- `options`: What a caller opens a sandbox with.
- `cell_request`: One call of `run_code` as a request of a session.
- `sandbox_paths`: Paths of a sandbox, as callers write them.
- `folder_entries`: What lies in a folder, and what changes in it.
- `file_copies`: How far a copy of a file is, and the hash of what was copied.
- `files`: Files and folders of a sandbox, for callers.
- `ownership`: Whose a sandbox is: this process's, or one of a keeper, which outlives its caller.
- `bare_session`: The session of a sandbox whose own kernel nobody hears.
- `instance`: One sandbox as its parts see it: its session, and whether it may be used.
- `snapshots`: What a plugin is asked that writes sandboxes down.
- `client`: `AsyncSandbox`: a session on the caller's event loop, and its parts.
- `event_loop_thread`: The event loop of all blocking sandboxes, in one thread.
- `blocking_base`: What differs without `await`, by hand.
- `blocking`: `Sandbox`: the same without `await`, written by `make blocking`.
"""
