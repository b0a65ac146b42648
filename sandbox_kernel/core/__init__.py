"""What every room may use: errors, values, and where the package lies.

- `errors`: The tree of errors; each says whose fault it is, the limit, the value, what is left and the setting to
  change.
- `code`: What a refusal is as a value: a code, a severity and words for people; and what survived.
- `codes`: The table of all codes, of the seven parts that follow.
- `output_codes`: What the output policy removes.
- `message_codes`: Which messages of a sandbox do not pass.
- `file_codes`: Which files do not enter or leave.
- `finding`: What the screen says of a cell: its findings, which of them were allowed, and a score.
- `end_codes`: What stops a cell, a kernel, a sandbox or a call.
- `hint_codes`: What an ordinary failure of a cell has to do with its sandbox.
- `snapshot_codes`: Why a snapshot is not taken, or not begun from.
- `usage_codes`: What was asked for and cannot be: settings, arguments, notebooks, packages and places.
- `model`: Frozen values that the parts hand to each other, with units in their names.
- `tasks`: Background tasks with an owner: held while they run, heard of when they fail, and ended together.
- `descriptors`: Open files from one process to another, whatever cells of the same user have on their way.
- `allowance`: What one answer of a sandbox may make this process build.
- `weight`: What a piece of JSON will cost in memory, found before it is parsed.
- `extras`: How the packages of an extra are installed.
- `zone`: The time zone of this machine.
- `version`: The version of the package.
- `resources`: Where the package lies, and what it brings along besides code.
"""
