"""Commands of a sandbox, and shells with a terminal, beside its cells. Without it, `Sandbox.commands` is an error.

- `plugin`: What this plugin adds.
- `codes`: Why a command did not run, or was ended.
- `running_command`: One command, followed from the host, and its input.
- `commands`: Commands of a sandbox, and shells with a terminal.
- `blocking_commands_base`: What differs without `await`, by hand.
- `blocking_commands`: The same without `await`, written by `make blocking`.

Package: `inside` (what starts them, in the kernel).
"""
