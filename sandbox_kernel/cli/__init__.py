"""`sandbox-kernel`: setting up, running, looking after and checking from a shell.

- `commands`: What each command does, and prints.
- `ps_command`: Which sandboxes run, what each is for, and what it uses.
- `snapshot_commands`: Which snapshots there are; and one removed.
- `manual`: The words of the help: groups of commands, examples, exit codes, and where settings come from.
- `pages`: A parser that shows the pages of help.
- `arguments`: The parser of all commands: their names, their options, and which take settings.
- `completion`: Scripts that complete commands, options and values in bash, zsh and fish.
- `program`: One run of the program, from its arguments to its exit code.
"""

from .program import main

__all__ = ["main"]
