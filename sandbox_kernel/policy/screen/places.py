"""Paths that functions put together: parts that are joined, a home folder by its name, what a loop finds in a folder.

What a path means is said elsewhere. Nothing is looked up on a disk.
"""

from __future__ import annotations

from .call import Call
from .desk import Desk
from .value import FOUND, FOUND_FILE, MADE, MISSING, UNKNOWN_PART, Value, composed, constant

_PATH = "pathlib.Path()"
FOLDERS = {
    "pathlib.Path.home": Value(ref=_PATH, text="~"),
    "site.getsitepackages": Value(const=["/site-packages"]),
    "site.getusersitepackages": Value(const="/site-packages"),
    "sysconfig.get_path": Value(text="/site-packages"),
    "IPython.paths.get_ipython_dir": Value(text="~/.ipython"),
    "IPython.get_ipython_dir": Value(text="~/.ipython"),
    "jupyter_core.paths.jupyter_config_dir": Value(text="~/.jupyter"),
    "jupyter_core.paths.jupyter_runtime_dir": Value(text="~/.local/share/jupyter/runtime"),
}
"""Where the result of a call leads, by a name that the rules for paths know."""
HOMES = frozenset(("HOME", "USERPROFILE"))
HOME = Value(text="~")

_SAME = frozenset(
    f"os.{name}" for name in ("fspath", *(f"path.{name}" for name in ("expanduser", "abspath", "realpath", "normpath")))
) | {"builtins.str"}
"""What gives a path back as another spelling of it."""
_SAME_METHODS = frozenset(("expanduser", "resolve", "absolute", "as_posix"))
_KEEPS_ITEMS = frozenset(("builtins.sorted", "builtins.list", "builtins.reversed", "builtins.set"))


def of_call(desk: Desk, call: Call) -> Value | None:
    """Return the path that a call gives, None if it is no such call or nothing of it is known."""
    name = call.name or ""
    if name in FOLDERS:
        return FOLDERS[name]
    if name == "os.path.join":
        return _joined(desk, call, list(call.args), None)
    if name == "os.path.dirname":
        return _folder_of_a_module(call)
    if name in _SAME and len(call.args) == 1 and not call.keywords:
        return _again(call.args[0])
    if name == "pathlib.Path":
        if len(call.args) > 1:
            return _joined(desk, call, list(call.args), _PATH)
        return (found := _folder_of_a_module(call)) and found._replace(ref=_PATH)
    if call.receiver.ref == _PATH:
        if call.method == "joinpath":
            return _joined(desk, call, [call.receiver, *call.args], _PATH)
        if call.method in _SAME_METHODS:
            return call.receiver
    if (name in _KEEPS_ITEMS or name.endswith(".tqdm")) and call.args and FOUND in call.args[0].taints:
        return Value(ref=f"{name}()", taints=call.args[0].taints)
    return None


def item(items: Value) -> Value:
    """Return what is known of one of several values."""
    return Value(ref=FOUND_FILE if FOUND in items.taints else None, taints=items.taints)


def _again(path: Value) -> Value | None:
    if path.known:
        return path if isinstance(path.const, str) else None
    if path.text is None and path.ref != FOUND_FILE:
        return None
    return Value(ref=path.ref if path.ref == FOUND_FILE else None, text=path.text, taints=path.taints)


def _joined(desk: Desk, call: Call, parts: list[Value], ref: str | None) -> Value | None:
    if len(parts) == 2 and parts[0].ref == f"{FOUND_FILE}[0]" and parts[1].ref == FOUND_FILE:
        return parts[1]  # a folder of os.walk, and a file of it
    shown = [part.shown for part in parts]
    if call.keywords or not any(shown):
        return None
    from_root = max((at for at, one in enumerate(shown) if one is not None and one.startswith("/")), default=0)
    text = composed(((one or UNKNOWN_PART).rstrip("/") or "/" for one in shown[from_root:]), between="/")
    text = text.replace("//", "/")
    taints = call.receiver.taints | call.given
    exact = ref is None and all(part.const is not MISSING for part in parts)
    desk.notes.text(text, call.line)
    return constant(text, taints=taints) if exact else Value(ref=ref, text=text, taints=taints - {MADE})


def _folder_of_a_module(call: Call) -> Value | None:
    """Return where an imported module lies; where the cell's own file lies is not known."""
    ref = call.args[0].ref if len(call.args) == 1 else None
    return Value(text="/site-packages/{}") if ref is not None and ref.endswith(".__file__") else None
