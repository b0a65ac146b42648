"""The pages docs/settings.md and docs/codes.md, from the tables of settings and of codes; codes also for a terminal.

A test compares the pages with what this returns.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Mapping

from ..config.presets import PRESETS
from ..config.setting import Setting
from ..config.table import groups
from ..core.codes import Code, Survived
from ..core.remedies import wrapped

SETTINGS_HEAD = """\
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

PRESETS_HEAD = """\

## Presets

`--preset untrusted`, or `Sandbox(preset="untrusted")`, sets several values by what a sandbox is for. Each of them is a
choice that fits many, and no rule. A value that is given beside it counts in its place:
`--preset untrusted --memory 512M`. Beside a value of a config file, the stricter of both counts, so that a preset
loosens nothing that an operator has set.
"""

SETTINGS_FOOT = """\

`sandbox-kernel settings --markdown` prints this page.
"""


def settings_page() -> str:
    """Return docs/settings.md."""
    return (
        SETTINGS_HEAD
        + PRESETS_HEAD
        + "".join(map(_preset, PRESETS))
        + "".join(f"\n## {title}\n\n{_table(group)}" for title, group in groups().items())
        + SETTINGS_FOOT
    )


def _preset(name: str) -> str:
    lines = [f"\n`{name}` is for {PRESETS[name].need}:\n"]
    lines += [f"- `{setting}` {value}: {why}." for setting, (value, why) in PRESETS[name].values.items()]
    return "\n".join(lines) + "\n"


def _table(group: tuple[Setting, ...]) -> str:
    lines = ["| Setting | Default | Takes | Meaning |", "| --- | --- | --- | --- |"]
    for one in group:
        name = f"`{one.name}`" + (f" (`{one.flag}`)" if one.singular else "")
        takes = re.sub(r"^(a size|a time) \(.*?\)", r"\1", one.form.words)  # the head of the page shows the forms
        cells = (name, one.default_for_people, takes, one.help)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


Tables = Mapping[str, type[Code]]

CODES_HEAD = """\
# Codes

Every refusal, removal and end has a code. Programs decide by the code, which never changes its meaning. A text may
change. Codes are in

- `code` of `policy_events` and `error`, and `why` of `exit`, in the report of a batch run;
- `code` of a line of the audit, and of an error of the file messages;
- `error.code` of an execution in Python and of an answer over MCP, `error.code.code` of a `SandboxError`;
- `sandbox-kernel/code` in `_meta` of a refused call over MCP, `code` in `data` of an error of that protocol;
- `code` of `StepFailed` in smolagents.

The severity says what it means for a run (`--fail-on-policy`). **violation**: it could have acted, loaded, leaked or
forged something. **limit**: something was used up. **notice**: honest code does so too. **failure**: a kernel, a
sandbox, the machine or a setting failed. A refused file of an upload folder is always a notice.

What to do is in bold, above its codes, with their severity; a code of another severity says so. The host fills in the
words in braces. After an end, `kept` says what is left:

| Kept | Meaning |
| --- | --- |
"""

CODES_FOOT = """\

`sandbox-kernel codes --markdown` prints this page.
"""

_ABOUT = {
    "Outputs": "What the output policy removes from a message of the kernel, and which messages it drops.",
    "Messages": "Messages of a sandbox that the host does not pass on, and requests that it refuses.",
    "Files": "Files that do not enter or leave the sandbox, and what the host's disk refuses.",
    "Network": "Why a connection or a request of a cell is refused.",
    "Secrets": "Why a request to the host of a secret is not made, or its answer not passed on.",
    "Tools": "How the call of a caller's tool ended, or why it was not made (docs/tools.md).",
    "Usage": "Settings, arguments, notebooks, packages or paths with which nothing can start.",
    "Ends": "What ends a cell, a kernel, a sandbox or a call, or prevents its start.",
}
WIDTH = 110


def codes_as_rows(tables: Tables) -> list[dict[str, str]]:
    """Return every code with its part of the table, its severity, what it means and what to do."""
    return [
        {"code": one.code, "part": part.lower(), "severity": one.severity, "means": one.text, "do": one.remedy}
        for part, codes in tables.items()
        for one in codes
    ]


def codes_page(tables: Tables) -> str:
    """Return docs/codes.md."""
    kept = "".join(f"| `{one}` | {one.sentence()} |\n" for one in Survived)
    parts = (f"\n## {part}\n\n{_about(part, codes)}\n\n{_list(codes)}" for part, codes in tables.items())
    return CODES_HEAD + kept + "".join(parts) + CODES_FOOT


def codes_as_text(tables: Tables) -> str:
    """Return all codes for a terminal: the parts, in each what to do, and below that its codes."""
    found = []
    for part, codes in tables.items():
        found += ["", wrapped(f"{part.upper()}. {_about(part, codes)}", WIDTH)]
        for head, members in _groups(codes):
            found += [_filled(head, 2), *(_filled(member, 4) for member in members)]
    return "\n".join(found[1:])


def _filled(text: str, indent: int) -> str:
    return wrapped(text, WIDTH, first=" " * indent, rest=" " * (indent + 4))


def _about(part: str, codes: type[Code]) -> str:
    return _ABOUT.get(part) or inspect.cleandoc(codes.__doc__ or "")


def _groups(codes: type[Code], head: str = "{}", code: str = "{}") -> list[tuple[str, list[str]]]:
    """Return each remedy, with the most frequent severity of its codes, and a line for each of them."""
    groups: dict[str, list[Code]] = {}
    for one in codes:
        groups.setdefault(one.remedy, []).append(one)
    found = []
    for remedy, members in groups.items():
        [(usual, _)] = Counter(one.severity for one in members).most_common(1)
        lines = [_line(one, code, "" if one.severity == usual else f" ({one.severity})") for one in members]
        found.append((f"{head.format(remedy)} ({usual})", lines))
    return found


def _line(one: Code, code: str, severity: str) -> str:
    """Return a code with what happened: the first sentence, without the words that all codes of a part begin with."""
    text = re.sub(r"^(it|removed|dropped) ", "", one.text)
    return f"{code.format(one.code)}{severity}: {re.split('[.] (?=[A-Z{])', text)[0]}"


def _list(codes: type[Code]) -> str:
    """Return the codes of one part as Markdown."""
    groups = _groups(codes, "**{}**", "`{}`")
    return "\n".join(f"{_plain(head)}\n\n" + "".join(f"- {_plain(one)}\n" for one in found) for head, found in groups)


def _plain(text: str) -> str:
    return text.replace("<", "&lt;")
