"""All codes as rows, as lines for a terminal, and as the page docs/codes.md, from the tables that the code names.

The caller gives the tables by their titles: those of `core.codes`, and those of plugins.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Mapping

from ..core.codes import Code, Survived

Tables = Mapping[str, type[Code]]

HEAD = """\
# Codes

Whatever is refused, removed, dropped or ended has a code. Programs decide by it, and texts are for people: a text may
be worded better some day, and a code keeps its meaning. The codes stand in

- `code` of `policy_events` and of `error`, and `why` of `exit`, in the report of a batch run;
- `code` of the lines of the audit, and of each error of the file messages;
- `error.code` of an execution in Python and of an answer over MCP, `error.code.code` of a `SandboxError`;
- `sandbox-kernel/code` in `_meta` of a call over MCP that is refused, `code` in `data` of an error of that protocol;
- `error_code` of AutoGen's result, `code` of `StepFailed` in smolagents, the artifact of a LangChain tool.

The severity says what it means for a run (`--fail-on-policy`). **violation**: it could have acted, loaded, leaked or
forged something. **limit**: something was used up. **notice**: honest code does so too. **failure**: a kernel, a
sandbox, the machine or a setting did not do what it should. A refused file of an upload folder is always a notice, as
the code has no part in it. Words in braces are filled in where it happens.

In each part, what to do is in bold, above the codes that it is for.

What is left after a cell was ended is `kept`:

| Kept | Meaning |
| --- | --- |
"""

FOOT = """\

This page is what `sandbox-kernel codes --markdown` prints.
"""

_ABOUT = {
    "Outputs": "What the output policy takes out of a message of the kernel, and which message does not pass at all.",
    "Messages": "What a sandbox sends and the host does not pass on; and requests that cannot go in.",
    "Files": "Which files do not enter or leave the sandbox, and what the host's disk refuses.",
    "Network": "Why a connection or a request of a cell is not let out.",
    "Secrets": "Why a request to the host of a secret is not made, or its answer not passed on.",
    "Tools": "How the call of a caller's tool ended, or why it was not made (docs/tools.md).",
    "Snapshots": "Why a snapshot of a sandbox is not taken, or not begun from.",
    "Usage": "Why nothing could be begun as it was asked for: settings, arguments, notebooks, packages, places.",
    "Hints": "What an ordinary failure of a cell has to do with its sandbox; each entry point says it in its words.",
    "Ends": "What ends a cell, a kernel, a sandbox or a call, or keeps it from beginning.",
}
WIDTH = 96


def rows(tables: Tables) -> list[dict[str, str]]:
    """Return every code with its part of the table, its severity, what it means and what to do."""
    return [
        {"code": one.code, "part": part.lower(), "severity": one.severity, "means": one.text, "do": one.remedy}
        for part, codes in tables.items()
        for one in codes
    ]


def page(tables: Tables) -> str:
    """Return the page as Markdown."""
    kept = "".join(f"| `{one}` | {one.sentence()} |\n" for one in Survived)
    parts = (f"\n## {part}\n\n{_about(part, codes)}\n\n{_list(codes)}" for part, codes in tables.items())
    return HEAD + kept + "".join(parts) + FOOT


def lines(tables: Tables) -> str:
    """Return all codes for a terminal."""
    found = []
    for row in rows(tables):
        found.append(f"{row['code']}  ({row['severity']})")
        found += [textwrap.indent(textwrap.fill(row[what], WIDTH), "    ") for what in ("means", "do")]
    return "\n".join(found)


def _about(part: str, codes: type[Code]) -> str:
    return _ABOUT.get(part) or inspect.cleandoc(codes.__doc__ or "")


def _list(codes: type[Code]) -> str:
    """Return the codes of one part below what to do about them, so that each remedy is said once."""
    found: dict[str, list[str]] = {}
    for one in codes:
        found.setdefault(one.remedy, []).append(f"- `{one.code}` ({one.severity}): {_plain(one.text)}\n")
    return "\n".join(f"**{_plain(remedy)}**\n\n{''.join(rows)}" for remedy, rows in found.items())


def _plain(text: str) -> str:
    return text.replace("<", "&lt;")
