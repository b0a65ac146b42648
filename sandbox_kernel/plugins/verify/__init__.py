"""Tries to get out of a sandbox of this machine as it is set up, and says what it found.

- `plugin`: What this plugin adds: the command `verify`.
- `probes`: The table: what is tried, by which attacks, and what is to stop it.
- `probe_cells`: Cells that lay something out or try something by themselves.
- `verdicts`: A verdict for each probe, and on whose word it rests.
- `host_inspection`: What this machine's kernel says of a sandbox, and what is made of that.
- `behaviour_probes`: Hostile outputs and what of them came through; sandboxes that are brought to their ends.
- `examination`: One examination from start to end.
- `examination_report`: The table, the JSON and the page.
"""
