"""`sandbox-kernel`: setting up, running, looking after and checking from a shell.

- `subcommands`: What each command does, and prints.
- `help_text`: The words of the help: groups of commands, examples, exit codes, and where settings come from.
- `help_parser`: A parser that shows the pages of help.
- `program`: The parser of all commands, and one run of the program up to its exit code.
- `completion`: Scripts that complete commands, options and values in bash, zsh and fish.
"""

from .program import main

__all__ = ["main"]
