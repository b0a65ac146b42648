"""`screen --hook`: answers the hook that a coding agent runs before a tool, in the form that this agent reads.

Nothing of the tool is run. Where nothing is found, Claude Code and VS Code get no decision: "allow" would spare the
question that they have for the user. What is not understood is not let pass.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...core.codes import UsageCode
from ...core.errors import ConfigurationError
from ...files.host_paths import fetch
from .file_parts import screened
from .rule_index import RuleIndex
from .screen import CellScreen
from .settings import ScreenSettings

if TYPE_CHECKING:
    from .judges import Judges

REFUSED = 2
"""The exit code that all these agents take for a refusal. At any other one but 0, they go on."""
MAX_REASONS = 5
MAX_SECONDS = 10
"""An agent waits for its hooks 30 seconds or longer, and goes on then."""
_PRE_TOOL_USE = "PreToolUse"
"""The event of Claude Code and of VS Code's agents."""
_OF_CURSOR = {"preToolUse": "deny", "beforeShellExecution": "ask", "beforeMCPExecution": "ask"}
"""The events of Cursor, and what asks the user there. `preToolUse` takes "ask", and goes on without asking."""
_COMMAND = "command"
_CODE, _EDITED = "code", "filePath"
"""VS Code's edit of a file has both; `code` beside a path of another name is for a server's tool, which runs it."""
_CELLS = ("new_source", "newCode", _CODE)
_CONTENTS = ("content", "contents")
_EDITS = ("new_string", "newString", _CODE)
_PATCH = "input"
_PATHS = ("file_path", _EDITED, "notebook_path", "path")
_LISTS = ("edits", "replacements")
_PYTHON, _SHELL, _NOTEBOOK = "cell", "commands.sh", "cells.ipynb"
"""Names by which a text is read as what it is."""
_FILE_OF_A_PATCH = re.compile(r"\*\*\* (?:Add|Update) File: (.+)|\*\*\* Move to: (.+)")
_SHELL_FILES = (".sh", ".bash", ".zsh", ".ksh")
_PYTHON_FILES = (".py", ".pyw", ".pyi", ".ipy")


class TooSlowError(Exception):
    """An answer took more than `MAX_SECONDS`. No `OSError`, which others catch."""


def _too_slow(*_: object) -> None:
    raise TooSlowError(f"it took more than {MAX_SECONDS} seconds")


def hook(
    settings_now: Callable[[], ScreenSettings],
    index_of: Callable[[ScreenSettings], RuleIndex],
    judges_of: Callable[[ScreenSettings], Judges | None],
) -> int:
    """Answer the hook whose JSON comes on stdin; return the exit code."""
    event, denies = "", True
    before = signal.signal(signal.SIGALRM, _too_slow)
    signal.alarm(MAX_SECONDS)
    try:
        settings = settings_now()
        denies = settings.screen == "block"
        call = _object(_read(fetch("-"), "stdin"), "stdin")
        event = _event(call)
        screen = CellScreen.of(settings, index_of(settings))
        why = _findings(_input(call, event), screen, settings.screen_threshold, judges_of(settings))
    except Exception as error:  # whatever it is, the agent would go on
        why = str(error) if isinstance(error, ConfigurationError) else f"the screen failed: {error!r}"
        if not event:
            print(f"sandbox-kernel: {_shown(why)}", file=sys.stderr)
            return REFUSED
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    print(json.dumps(_answer(event, _shown(why), denies=denies)))
    return 0


def _shown(why: str) -> str:
    if not why:
        return ""
    from ...policy.safe_text import ours  # most calls have no use for it, and an agent waits

    return ours(why)


def _answer(event: str, why: str, *, denies: bool) -> dict[str, Any]:
    why = f"sandbox-kernel screen: {why}" if why else ""
    if event in _OF_CURSOR:
        if not why:
            return {"permission": "allow"}
        return {"permission": "deny" if denies else _OF_CURSOR[event], "user_message": why, "agent_message": why}
    if not why:
        return {}
    decision = {"permissionDecision": "deny" if denies else "ask", "permissionDecisionReason": why}
    return {"hookSpecificOutput": {"hookEventName": event, **decision}}


def _findings(given: Mapping[str, Any], screen: CellScreen, threshold: int, judges: Judges | None) -> str:
    """Return why a tool is not let pass, empty if it is."""
    reasons: list[str] = []
    for name, text in _texts(given, ""):
        for part in screened(name, text, screen=screen, judges=judges):
            if part.screened.score >= threshold:
                counted = sorted(part.screened.counted, key=lambda one: -one.weight)
                reasons += [one.sentence() for one in counted]
    more = len(reasons) - MAX_REASONS
    return "; ".join(reasons[:MAX_REASONS]) + (f"; and {more} more" if more > 0 else "")


# --- what an agent sends ---------------------------------------------------------------------------------------------


def _wrong(words: str) -> ConfigurationError:
    return ConfigurationError(UsageCode.WRONG_ARGUMENT, f"what the agent sent is no hook before a tool: {words}")


def _read(data: bytes | str, what: str) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise _wrong(f"{what} is no JSON") from None


def _object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(f"{what} is no object")
    return value


def _event(call: Mapping[str, Any]) -> str:
    event = call.get("hook_event_name", call.get("hookEventName"))
    known = (_PRE_TOOL_USE, *_OF_CURSOR)
    if not isinstance(event, str) or event not in known:
        raise _wrong(f"hook_event_name is {event!r}, and none of {', '.join(known)}")
    return event


def _input(call: Mapping[str, Any], event: str) -> Mapping[str, Any]:
    """Return what a tool is given."""
    if event == "beforeShellExecution":
        return {"command": call.get("command")}
    given = call.get("tool_input")
    return _object(_read(given, "tool_input") if isinstance(given, str) else given, "tool_input")


def _texts(given: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Yield what a tool would run or write, with a name that says how it is read."""
    path = next((_text(name, given[name]) for name in _PATHS if name in given), path)
    is_cell = path.lower().endswith(".ipynb") or not path
    for name, value in given.items():
        if name == _COMMAND:
            yield _SHELL, _text(name, value)
        elif name in _CELLS and (is_cell or (name == _CODE and _EDITED not in given)):
            if "markdown" not in (given.get("cell_type"), given.get("language")):
                yield _PYTHON, _text(name, value)
        elif path and (name in _CONTENTS or name in _EDITS):
            yield from _of_file(path, _text(name, value), whole=name in _CONTENTS)
        elif name == _PATCH and isinstance(value, str) and "*** Begin Patch" in value:
            yield from _of_patch(value)
        elif name in _LISTS:
            for one in value if isinstance(value, list) else [value]:
                yield from _texts(_object(one, f"a part of {name}"), path)


def _text(name: str, value: object) -> str:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return shlex.join(value) if name == _COMMAND else "".join(value)
    if not isinstance(value, str):
        raise _wrong(f"{name} is no text")
    return value


def _of_file(path: str, text: str, *, whole: bool) -> Iterator[tuple[str, str]]:
    """Yield what is written to a file, if it is one that the screen reads: by its name, or by its first line."""
    path = path.lower()
    begin = text[:100].partition("\n")[0] if text.startswith("#!") else ""
    if path.endswith(".ipynb"):
        yield (_NOTEBOOK if whole else _PYTHON), text
    elif path.endswith(_PYTHON_FILES) or "python" in begin:
        yield _PYTHON, text
    elif path.endswith(_SHELL_FILES) or begin:
        yield _SHELL, text


def _of_patch(text: str) -> Iterator[tuple[str, str]]:
    """Yield the lines that a patch adds to each file."""
    added: dict[str, list[str]] = {}
    path = ""
    for line in text.split("\n"):
        if (match := _FILE_OF_A_PATCH.fullmatch(line.strip())) is not None:  # as those read it who apply it
            path = match[1] or match[2]
        elif line.startswith("+"):
            added.setdefault(path, []).append(line[1:])
    for name, lines in added.items():
        yield from _of_file(name, "\n".join(lines), whole=False)
