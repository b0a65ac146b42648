"""Tries to get out of a sandbox of this machine as it is set up, and says what it found.

The attacks are in `inside/`: a program that any image with Python can run, which the tests of attacks run as well.

- `plugin`: What this plugin adds: the command `verify`.
- `probes`: The table: what is tried, by which attacks, and what is to stop it.
- `attack_program`: The attacks' sources for the sandbox, their table for the host, and what they say.
- `differences`: Where gVisor ends an attack otherwise, and why that is no way out.
- `canaries`: What lies ready on the host, and whether the sandbox came there.
- `probe_cells`: Cells that lay something out or try something by themselves.
- `verdicts`: A verdict for each probe, and on whose word it rests.
- `host_inspection`: What this machine's kernel says of a sandbox, and what is made of that.
- `behaviour_probes`: Hostile outputs and what of them came through; sandboxes that are brought to their ends.
- `examination`: One examination from start to end.
- `examination_report`: The table, the JSON and the page.
- `against`: Other products that run Python, compared by seven criteria.
"""
