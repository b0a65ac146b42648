"""What every room may use: errors, values, and where the package lies. Imports nothing of the package.

- `errors`: The tree of errors; each says whose fault it is, the limit, the value, what is left and the setting to
  change.
- `model`: Frozen values that the parts hand to each other, with units in their names.
- `texts`: JSON that is mostly long texts, parsed without a copy of the whole.
- `tasks`: Background tasks with an owner: held while they run, heard of when they fail, and ended together.
- `weight`: What a piece of JSON will cost in memory, found before it is parsed.
- `resources`: Where the package lies, and what it brings along besides code.
"""
