"""The page of all settings, docs/settings.md, from the table that checks them.

A test compares the page with what this returns.
"""

from __future__ import annotations

from ..config.table import GROUPS, Setting

HEAD = """\
# Settings

One table for all doors. The same names and forms are

- arguments of `sandbox-kernel install`, which writes them into the kernel's entry in the picker, and of `doctor`, `run`
  and `mcp`: `--cell-timeout 10m`;
- lines of `jupyter_sandbox_kernel_config.py` in `~/.jupyter`: `c.SandboxKernel.cell_timeout = "10m"`;
- keywords in Python: `Sandbox(cell_timeout="10m")`, or a number of seconds or bytes.

Arguments and keywords win over the file, and the file over the defaults. Neither a notebook, nor an environment
variable, nor the request that starts a kernel can change a setting. `sandbox-kernel settings` shows the values that a
kernel on this machine would start with, and where each comes from. A value that cannot work is an error that names the
setting and what it takes.

A setting that is a list takes commas, or its flag more than once. A secret is a table in the file and in Python:
`{"API_KEY": {"env": "VARIABLE", "hosts": ["api.example.org"], "header": "Authorization: Bearer {}"}}`, with `"file"` in
place of `"env"` for a path.

Sizes count in 1024, whether written `2G`, `2GB` or `2GiB`; a number without a unit is in bytes. Times are seconds,
unless they end in `m` or `h`.
"""

FOOT = """\

This page is what `sandbox-kernel settings --markdown` prints.
"""


def page() -> str:
    """Return the page as Markdown."""
    return HEAD + "".join(f"\n## {title}\n\n{_table(group)}" for title, group in GROUPS.items()) + FOOT


def _table(group: tuple[Setting, ...]) -> str:
    lines = ["| Setting | Flag | Default | Takes | Meaning |", "| --- | --- | --- | --- | --- |"]
    for one in group:
        cells = (f"`{one.name}`", f"`{one.flag}`", one.default_for_people, one.form.words, one.help)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
