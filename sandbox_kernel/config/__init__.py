"""Settings: where they come from, how each is written, and what it may be.

- `forms`: How one value is read and checked.
- `setting`: One setting.
- `table`: The table of all settings, in groups.
- `presets`: Values of several settings by what a sandbox is for.
- `sources`: Where the settings come from, and the choice of the engine.
"""
