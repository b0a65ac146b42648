"""The words of the help: groups of commands, examples, exit codes, and where settings come from.

All of it is data and how it is laid out; the parser says what there is. The tests parse every example.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from ..config.sources import CONFIG_NAME
from ..config.table import GROUPS as SETTING_GROUPS
from ..config.table import Setting

WIDTH = 100
"""Columns at most, as in a terminal beside an editor."""

GROUPS: dict[str, tuple[str, ...]] = {
    "Getting ready": ("setup", "build", "install", "uninstall", "doctor"),
    "Running code without a front end": ("run", "screen", "mcp"),
    "What was recorded": ("audit", "receipt"),
    "Looking after it": ("verify", "broker", "ps", "reap", "settings", "codes", "completion"),
}

EXAMPLES: dict[str, dict[str, str]] = {
    "setup": {
        "sandbox-kernel setup": "engine, image and kernel as far as they are missing, then a check of the whole",
        "sandbox-kernel setup --gvisor --runtime runsc": "cells run in gVisor, which is installed first",
    },
    "build": {
        "sandbox-kernel build": "the image that cells run in by default",
        "sandbox-kernel build --requirements requirements.txt --tag sandbox-kernel:mine": "with packages of yours",
        "sandbox-kernel build --engine bubblewrap": "without Docker and without root, beside this machine's Python",
        "sandbox-kernel build --engine bubblewrap --from-image sandbox-kernel:data": "with the files of an image",
    },
    "install": {
        "sandbox-kernel install --user": "for all Python environments of yours",
        "sandbox-kernel install --user --name sandbox-8g --display-name 'Python 3 (8 GB)' --memory 8G": (
            "one more entry in the kernel picker, with settings of its own"
        ),
    },
    "uninstall": {
        "sandbox-kernel uninstall": "the kernel that setup made, wherever front ends find it",
        "sandbox-kernel uninstall --user --name sandbox-8g": "one of yours",
    },
    "doctor": {
        "sandbox-kernel doctor": "what is wrong, and how to repair it",
        "sandbox-kernel doctor --json --runtime runsc": "a variant, for a program",
        "sandbox-kernel doctor --walls": "which engine and runtime for whom, and which are here",
    },
    "verify": {
        "sandbox-kernel verify --runtime runsc": "what stops what on this machine, with gVisor",
        "sandbox-kernel verify --name sandbox-python --format html > verify.html": "a kernel's settings; a page",
    },
    "run": {
        "sandbox-kernel run analysis.ipynb --input sales.csv --output results": "a notebook and its data",
        "sandbox-kernel run analysis.ipynb -p region north --report report.json": "with a parameter and a report",
        "sandbox-kernel run script.py --cell-timeout 30 --quiet": "a script, which has half a minute",
    },
    "screen": {
        "sandbox-kernel screen analysis.ipynb": "what it would do, cell by cell, without running it",
        "sandbox-kernel screen --format sarif notebooks/report.ipynb > screen.sarif": "for a code host",
    },
    "mcp": {
        "sandbox-kernel mcp": "over stdin and stdout, for a host on this machine that starts it",
        "sandbox-kernel mcp --http --token-file mcp-token --memory 1G": "over HTTP, with tokens from a file",
    },
    "audit": {
        "sandbox-kernel audit verify audit.jsonl": "whether it is as it was written, and how much of that is proven",
        "sandbox-kernel audit show audit.jsonl --event cell --last 20": "the last cells, for people",
        "sandbox-kernel audit public-key": "what others need, who are to verify and must not be able to write",
    },
    "receipt": {
        "sandbox-kernel receipt verify receipt.json --output results": "whether these are the files of that run",
        "sandbox-kernel receipt verify receipt.json --audit-file audit.jsonl": "whether the audit still has that run",
    },
    "broker": {
        "sandbox-kernel broker": "for this user: the next session with engine = broker is ready at once",
        "sandbox-kernel broker --pool 2 --preload numpy,polars": "two ready, with what cells import first",
        "sandbox-kernel broker --for-all --check": "whether the operator's file is in order",
    },
    "ps": {"sandbox-kernel ps": "session, owner, age, memory, kernel and notebook of each"},
    "reap": {"sandbox-kernel reap": "what a lost owner left; the living are left alone"},
    "settings": {
        "sandbox-kernel settings": "every value, and whether it is a default, of a file or an argument",
        "sandbox-kernel settings --json": "the same for a program",
    },
    "codes": {
        "sandbox-kernel codes": "why a thing can be refused, removed or ended, and what to do",
        "sandbox-kernel codes --json": "the same for a program",
    },
    "completion": {
        "sandbox-kernel completion bash > ~/.local/share/bash-completion/completions/sandbox-kernel": "for bash",
        "sandbox-kernel completion zsh > ~/.zfunc/_sandbox-kernel": "for zsh, with ~/.zfunc in fpath",
        "sandbox-kernel completion fish > ~/.config/fish/completions/sandbox-kernel.fish": "for fish",
    },
}
FIRST_STEPS = ("setup", "run", "doctor")
"""The commands of which the first page shows an example."""

EXIT_CODES = {
    "0": "fine",
    "1": "something was found wrong",
    "2": "a wrong argument or setting",
    "3": "the container engine fails",
    "130": "ended by Ctrl-C",
}
RUN_HAS_MORE = "`run` has more of them: see its help"

SOURCES = (
    "An argument wins over the config files, and these over the defaults. The files are "
    f"{CONFIG_NAME}.py and .json in Jupyter's config folders, such as ~/.jupyter, with lines such as "
    "c.SandboxKernel.memory = '2G'. No environment variable, notebook or request of a front end changes a setting. "
    "`sandbox-kernel settings` shows what applies here, and from where."
)


def first_page(summaries: Mapping[str, str]) -> str:
    """Return the help of the whole program, from a line for each command."""
    width = max(map(len, summaries)) + 2
    parts = ["usage: sandbox-kernel COMMAND [OPTIONS]\n", "A Jupyter kernel whose cells run in a hardened container.\n"]
    for title, names in GROUPS.items():
        parts.append(f"{title}:\n" + "".join(_row(name, summaries[name], width) for name in names))
    parts.append("sandbox-kernel COMMAND --help explains one of them, --version says which program this is.\n")
    parts.append(_examples(dict(next(iter(EXAMPLES[name].items())) for name in FIRST_STEPS)))
    parts += [f"settings:\n{_paragraph(SOURCES)}", _exit_codes(EXIT_CODES) + _paragraph(RUN_HAS_MORE)]
    return "\n".join(parts)


def below(
    command: str, *, settings: bool, shown: tuple[str, ...] = (), exit_codes: Mapping[str, str] = EXIT_CODES
) -> str:
    """Return what stands below the options of a command; `shown` are the settings that it explains, if not all."""
    parts = [_examples(EXAMPLES[command]), _exit_codes(exit_codes)]
    if settings:
        parts.append(f"settings:\n{_paragraph(SOURCES)}")
        for title, group in SETTING_GROUPS.items():
            explained = [setting for setting in group if not shown or setting.name in shown]
            parts += [f"{title}:\n" + "".join(map(_setting, explained))] if explained else []
    return "\n".join(parts)


def _examples(examples: Mapping[str, str]) -> str:
    return "examples:\n" + "".join(f"  {line}\n{_paragraph(what, 8)}" for line, what in examples.items())


def _exit_codes(codes: Mapping[str, str]) -> str:
    width = max(map(len, codes)) + 2
    return "exit codes:\n" + "".join(_row(code, what, width) for code, what in codes.items())


def _setting(setting: Setting) -> str:
    return f"  {setting.flag} {setting.metavar}\n" + _paragraph(
        f"{setting.help} (default: {setting.default_for_people})", 8
    )


def _row(name: str, text: str, width: int) -> str:
    return (
        textwrap.fill(
            text, WIDTH, initial_indent=f"  {name:{width}}", subsequent_indent=" " * (width + 2), break_on_hyphens=False
        )
        + "\n"
    )


def _paragraph(text: str, indent: int = 2) -> str:
    spaces = " " * indent
    return textwrap.fill(text, WIDTH, initial_indent=spaces, subsequent_indent=spaces, break_on_hyphens=False) + "\n"
