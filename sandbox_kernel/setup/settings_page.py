"""The page of all settings, docs/settings.md, from the table that checks them.

A test compares the page with what this returns.
"""

from __future__ import annotations

import re

from ..config.setting import Setting
from ..config.table import GROUPS

HEAD = """\
# Settings

The names and values are the same everywhere:

- as arguments of `sandbox-kernel install`, which writes them into the kernel's entry in the picker, and of `doctor`,
  `run` and `mcp`: `--cell-timeout 10m`;
- as lines of `jupyter_sandbox_kernel_config.py` in `~/.jupyter`: `c.SandboxKernel.cell_timeout = "10m"`;
- as keywords in Python: `Sandbox(cell_timeout="10m")`, or a number of seconds or bytes.

A flag is the setting's name with hyphens, unless its row shows another one. Arguments and keywords take precedence over
the file, and the file over the defaults. A notebook, an environment variable or the request that starts a kernel cannot
change a setting. `sandbox-kernel settings` shows the values that a kernel on this machine would start with, and where
each comes from.

Separate the items of a list with commas, or repeat the flag. A secret is a table in the file and in Python:
`{"API_KEY": {"env": "VARIABLE", "hosts": ["api.example.org"], "header": "Authorization: Bearer {}"}}`. Replace `"env"`
by `"file"` for a path.

Sizes are `512M` or `2G` (also `2GB`, `2GiB`), in multiples of 1024; a number without a unit is in bytes. Times are
`90` (seconds), `10m` or `2h`.
"""

FOOT = """\

`sandbox-kernel settings --markdown` prints this page.
"""


def page() -> str:
    """Return the page as Markdown."""
    return HEAD + "".join(f"\n## {title}\n\n{_table(group)}" for title, group in GROUPS.items()) + FOOT


def _table(group: tuple[Setting, ...]) -> str:
    lines = ["| Setting | Default | Takes | Meaning |", "| --- | --- | --- | --- |"]
    for one in group:
        name = f"`{one.name}`" + (f" (`{one.flag}`)" if one.singular else "")
        takes = re.sub(r"^(a size|a time) \(.*?\)", r"\1", one.form.words)  # the head of the page shows the forms
        cells = (name, one.default_for_people, takes, one.help)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
