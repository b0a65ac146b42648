"""What a session needs of this machine, looked at: the command `doctor`, and the end of `setup`.

- `plugin`: What this plugin adds.
- `doctor`: What is needed, row by row, with remedies.
- `walls`: Which engine and runtime is for whom, what each enforces, and which of them are here.
- `matrix`: Which engines serve on this machine, what stops the others, and what each lacks.
"""
