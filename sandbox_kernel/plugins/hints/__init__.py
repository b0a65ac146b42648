"""What an ordinary failure of a cell has to do with the sandbox, in one line below it.

- `plugin`: What this plugin adds.
- `hints`: Which hint an exception, an output or a line of a cell gets.
- `codes`: Its codes.
"""
