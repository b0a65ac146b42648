"""All commands that messages of the package name, found in its sources: who adds one adds what shows that it works."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterator
from functools import cache

from tests.support import ROOT
from tests.support.sources import tree_of

PACKAGE = ROOT / "sandbox_kernel"
VERBS = {
    "sandbox-kernel": r"[a-z]+(?:\{\})*(?: \S+)*",
    "pip": r"(?:install|wheel) \S.*",
    "(?:apt-get|dnf|zypper)": r"install .*",
    "sysctl": r"-w .*",
    "systemctl": r"(?:--user )?(?:enable --now|(?:re)?start) .*",
    "systemd-run": r"--.*",
    "(?:usermod|chmod|e2fsck)": r"(?:-|\d).*",
    "jupyter": r"(?:server|labextension) .*",
    "unset": r"[A-Z_]+",
}
COMMAND = re.compile("|".join(f"(?:sudo )?{program} {verb}" for program, verb in VERBS.items()))
HELP = re.compile(r"(?:cli/help_text|cli/program|config/table|setup/reference_pages|plugins/\w+/settings)\.py")
"""What explains commands: tests/container/test_cli.py holds the examples, and the pages have tests of their own."""
ELSEWHERE = re.compile(r"(?:container|plugins/screen|plugins/\w+/inside)/|setup/image_build\.py")
"""What runs in a sandbox, reads the code of cells or builds an image: no message to a person who has the machine."""
BETWEEN = re.compile(r"`([^`\n]+)`")
LOOSE = re.compile(
    r"(?<![\w.-])(?:sandbox-kernel (?:setup|build|install|doctor|ps|reap|snapshots|settings|codes|broker|volumes|mcp)"
    r"\b(?!:)|(?:apt-get|dnf|(?<!%)pip) install \S|sysctl (?:-w )?[a-z]+\.|systemctl (?:--user )?(?:start|enable)"
    r"|chmod [-0-7]|usermod -|sudo (?!\{))"
)
MADE_BY = {
    "as_root": "{}",
    "own_as_root": "sandbox-kernel {}",
    "of_system": "`apt-get install --no-install-recommends {}`",
    "shlex.join": "{}",
}
"""Functions that return a command, and what they make of their argument."""


def printed_commands(text: str) -> list[str]:
    """Return the commands in what was printed, as a person copies them."""
    return [one for one in BETWEEN.findall(text) if COMMAND.fullmatch(one)]


def only(text: str, *, beginning: str = "") -> str:
    """Return the one command that was printed."""
    [command] = [one for one in dict.fromkeys(printed_commands(text)) if one.startswith(beginning)]
    return command


def in_shell(command: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a person does, in an environment with `more`."""
    words = ["bash", "-c", command]
    return subprocess.run(words, env=os.environ | more, capture_output=True, text=True, check=False, timeout=120)


def _rendered(node: ast.AST) -> str | None:
    """Return a text with `{}` for what is filled in; None for what is no text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(_rendered(part) or "{}" for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return _rendered(node.value) or "{}"
    if isinstance(node, ast.List):
        return " ".join(_rendered(word) or "{}" for word in node.elts)
    if isinstance(node, ast.Call) and (form := MADE_BY.get(ast.unparse(node.func))) is not None:
        return form.replace("{}", _rendered(node.args[0]) or "{}")
    return None


def _texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield each text of a module that is no docstring, and no example of a command's page."""
    passed: set[ast.AST] = set()
    for node in ast.walk(tree):
        if node in passed:
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            passed.add(node.value)
        elif isinstance(node, ast.keyword) and node.arg == "examples":
            passed.update(ast.walk(node))
        elif isinstance(node, ast.expr) and not isinstance(node, ast.List) and (text := _rendered(node)) is not None:
            passed.update(ast.walk(node))
            yield node.lineno, text


@cache
def found() -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return the commands, each with its places; and the texts in which one stands without backticks."""
    commands: dict[str, list[str]] = {}
    loose: dict[str, str] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        if HELP.fullmatch(name) or ELSEWHERE.match(name):
            continue
        for line, text in _texts(tree_of(path)):
            whole = COMMAND.fullmatch(text) is not None
            for one in [text] if whole else printed_commands(text):
                commands.setdefault(one, []).append(f"{name}:{line}")
            if not whole and "\n" not in text and LOOSE.search(BETWEEN.sub("", text)):
                loose[f"{name}:{line}"] = text
    return commands, loose
