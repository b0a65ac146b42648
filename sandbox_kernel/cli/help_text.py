"""The words of the help: groups of commands, examples, exit codes, and where settings come from.

All of it is data and how it is laid out; the parser says what there is. The tests parse every example.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from ..config.setting import Setting
from ..config.sources import CONFIG_NAME
from ..config.table import groups

WIDTH = 100
"""Columns at most, as in a terminal beside an editor."""

GROUPS: dict[str, tuple[str, ...]] = {
    "Getting ready": ("setup", "build", "install", "uninstall"),
    "Running code without a front end": (),
    "Records": (),
    "Checking and maintaining": ("ps", "reap", "settings", "codes", "docs", "completion"),
}

EXAMPLES: dict[str, dict[str, str]] = {
    "setup": {
        "sandbox-kernel setup": "set up what is missing of engine, image and kernel, then check everything",
        "sandbox-kernel setup --gvisor --runtime runsc": "install gVisor first, and run cells in it",
    },
    "build": {
        "sandbox-kernel build": "the image that cells run in by default",
        "sandbox-kernel build --requirements requirements.txt --tag sandbox-kernel:mine": "an image with more packages",
        "sandbox-kernel build --kind r": "an image with R, for a kernel with --image sandbox-kernel:r --kernel ir",
        "sandbox-kernel build --engine bubblewrap": "without Docker and root, with this machine's Python",
        "sandbox-kernel build --engine bubblewrap --from-image sandbox-kernel:data": "with the files of an image",
    },
    "install": {
        "sandbox-kernel install --user": "for all your Python environments",
        "sandbox-kernel install --user --name sandbox-8g --display-name 'Python 3 (8 GB)' --memory 8G": (
            "one more entry in the kernel picker, with its own settings"
        ),
    },
    "uninstall": {
        "sandbox-kernel uninstall": "the kernel that setup installed",
        "sandbox-kernel uninstall --user --name sandbox-8g": "a kernel with a name",
    },
    "ps": {"sandbox-kernel ps": "session, owner, age, memory, kernel and notebook of each"},
    "reap": {
        "sandbox-kernel reap": "remove what a lost owner left behind; running sandboxes stay",
        "sandbox-kernel reap --follow --engine kubernetes": "go on, and delete pods within a second of their end",
    },
    "settings": {
        "sandbox-kernel settings": "every value, and its source: default, file or argument",
        "sandbox-kernel settings --json": "the same for a program",
    },
    "codes": {
        "sandbox-kernel codes": "all reasons for a refusal, a removal or an end, and what to do",
        "sandbox-kernel codes --json": "the same for a program",
    },
    "docs": {
        "sandbox-kernel docs": "all pages, as they came with this installation",
        "sandbox-kernel docs large-data": "the page that an error names as docs/large-data.md",
    },
    "completion": {
        "sandbox-kernel completion bash > ~/.local/share/bash-completion/completions/sandbox-kernel": "for bash",
        "sandbox-kernel completion zsh > ~/.zfunc/_sandbox-kernel": "for zsh, with ~/.zfunc in fpath",
        "sandbox-kernel completion fish > ~/.config/fish/completions/sandbox-kernel.fish": "for fish",
    },
}
"""Of the commands that are always there. A plugin brings its own."""
FIRST_STEPS = ("setup", "run", "doctor")
"""The commands of which the first page shows an example."""

FINE, WRONG, USAGE, PLATFORM, INTERRUPTED = 0, 1, 2, 3, 130
"""Exit codes. A plugin's command may have others."""
EXIT_CODES = {
    "0": "success",
    "1": "a check found a problem",
    "2": "a wrong argument or setting",
    "3": "the container engine failed",
    "130": "stopped by Ctrl-C",
}
SOME_HAVE_MORE = "Some commands have more exit codes: see their help"

SOURCES = (
    "Arguments take precedence over config files, and config files over the defaults. The files are "
    f"{CONFIG_NAME}.py and .json in Jupyter's config folders, such as ~/.jupyter, with lines such as "
    "c.SandboxKernel.memory = '2G'. Environment variables, notebooks and requests of front ends cannot change a "
    "setting. `sandbox-kernel settings` shows the values that apply here, and where each comes from."
)


def group_of(command: str) -> str:
    """Return the title below which the help lists a command. Raises KeyError for one without."""
    return {name: title for title, names in GROUPS.items() for name in names}[command]


def more(page: str, extra: str | None) -> str:
    """Return where people read about a command, and which extra has the packages that it needs."""
    needs = "" if extra is None else f", and the packages of the extra [{extra}]"
    return f"more:\n{_paragraph(page + needs)}"


def first_page(
    groups: Mapping[str, Sequence[str]], summaries: Mapping[str, str], first: Mapping[str, Mapping[str, str]]
) -> str:
    """Return the help of the whole program: a line for each command, and an example of the `first` ones."""
    width = max(map(len, summaries)) + 2
    parts = ["usage: sandbox-kernel COMMAND [OPTIONS]\n", "A Jupyter kernel whose cells run in a hardened container.\n"]
    for title, names in groups.items():
        parts.append(f"{title}:\n" + "".join(_row(name, summaries[name], width) for name in names))
    parts.append("`sandbox-kernel COMMAND --help` explains a command. `--version` shows the version.\n")
    parts.append(_examples(dict(next(iter(examples.items())) for examples in first.values())))
    parts += [f"settings:\n{_paragraph(SOURCES)}", _exit_codes(EXIT_CODES) + _paragraph(SOME_HAVE_MORE)]
    return "\n".join(parts)


def below(
    examples: Mapping[str, str],
    *,
    settings: bool,
    shown: tuple[str, ...] = (),
    exit_codes: Mapping[str, str] = EXIT_CODES,
    more: str = "",
) -> str:
    """Return what stands below the options of a command; `shown` are the settings that it explains, if not all."""
    parts = [_examples(examples), _exit_codes(exit_codes), *([more] if more else [])]
    if settings:
        parts.append(f"settings:\n{_paragraph(SOURCES)}")
        for title, group in groups().items():
            explained = [setting for setting in group if not shown or setting.name in shown]
            parts += [f"{title}:\n" + "".join(map(_setting, explained))] if explained else []
    return "\n".join(parts)


def _examples(examples: Mapping[str, str]) -> str:
    return "examples:\n" + "".join(f"  {line}\n{_paragraph(what, 8)}" for line, what in examples.items())


def _exit_codes(codes: Mapping[str, str]) -> str:
    width = max(map(len, codes)) + 2
    return "exit codes:\n" + "".join(_row(code, what, width) for code, what in codes.items())


def _setting(setting: Setting) -> str:
    return f"  {setting.flag} {setting.form.metavar}\n" + _paragraph(
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
