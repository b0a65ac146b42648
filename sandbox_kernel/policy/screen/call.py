"""One call as values, the usual names of what has several, and what a name means that is given as a text.

Pure; notes what it means for the rules.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ...core.screen_codes import ScreenCode
from . import paths
from .desk import Desk
from .rules.rule import words
from .value import SECRET, SYSTEM, UNKNOWN, Value, join

_DATA_FILE = re.compile(r"(?i)\.(csv|tsv|parquet|xlsx?|json|db|sqlite3?|pkl|h5|feather|txt|npy|npz|dta|sav|jsonl)$")
_SAME = {
    "posix": "os",
    "_io.open": "builtins.open",
    "io.open": "builtins.open",
    "codecs.open": "builtins.open",
    "os.path.os": "os",
    "builtins.__builtins__": "builtins",
    "builtins.input.__self__": "builtins",
    "builtins.print.__self__": "builtins",
    "six.moves.builtins": "builtins",
    "urllib3.PoolManager().request": "urllib3.PoolManager().request",
    "os.environ.environ": "os.environ",
}


MOST_NAME = 1000
"""Characters of a module's name that are looked at: each of its dots ends a name that a rule may know."""
_OWN_MODULES = re.compile(r"\.(os|sys|subprocess|socket|builtins|shutil|importlib|pty|ctypes)$")
"""A module that another one has imported, such as `glob.os`."""


_NAMED_SECRET = re.compile(r"(?i)(secret|token|passw|passwd|api_?key|private_?key|credential|access_?key|_pwd\b|auth)")


_STANDARD = frozenset(
    words(
        "os sys builtins subprocess socket ssl json pickle importlib io time datetime random logging "
        "threading hashlib hmac shutil pathlib re math getpass urllib.request http.client requests pandas "
        "numpy sklearn torch"
    )
)


_ASSIGNABLE = frozenset(
    words(
        "stdout stderr stdin path argv ps1 ps2 _create_default_https_context tracebacklimit "
        "dont_write_bytecode last_traceback displayhook seed"
    )
)


_CORE = frozenset(("os", "sys", "builtins", "subprocess", "socket", "io"))


class Call(NamedTuple):
    """One call: what is called, on what, with what."""

    name: str | None
    receiver: Value
    method: str | None
    args: list[Value]
    keywords: dict[str, Value]
    line: int
    taints: frozenset[str]

    def argument(self, at: int, *names: str) -> Value:
        """Return an argument by its place or by one of its names."""
        return next(
            (self.keywords[name] for name in names if name in self.keywords),
            self.args[at] if len(self.args) > at else UNKNOWN,
        )

    @property
    def given(self) -> frozenset[str]:
        """Where all of its arguments came from."""
        return join(*self.args, *self.keywords.values())


def canonical(ref: str) -> str:
    """Return the usual name of what has several."""
    head, dot, rest = ref.partition(".")
    if head in ("posix", "nt", "posixpath", "ntpath") and dot:
        ref = f"{'os' if head in ('posix', 'nt') else 'os.path'}.{rest}"
    if (match := _OWN_MODULES.search(ref)) is not None and not ref.startswith(("pandas.io.", "test.")):
        return match[1]
    if ref.endswith(".__call__"):
        return ref[: -len(".__call__")]
    return _SAME.get(ref, ref)


def member(desk: Desk, owner: Value, index: Value, line: int) -> Value:
    """Return what a key gives: of `globals()`, `sys.modules`, the environment, a `__dict__`."""
    ref, key = owner.ref or "", index.shown
    if ref in ("os.environ", "os.environb"):
        if key is not None and _NAMED_SECRET.search(key):
            desk.notes.add(ScreenCode.CREDENTIAL_VARIABLE, line, key)
        return Value(text="~") if key in ("HOME", "USERPROFILE") else UNKNOWN
    if ref in ("builtins.globals()", "builtins.locals()", "builtins.vars()", "sys.modules"):
        if key is not None and index.built:
            desk.notes.add(ScreenCode.HIDDEN_NAME, line, key)
        return named(desk, "", key, line) if key is not None else UNKNOWN
    if ref.endswith(".__dict__") or ref == "builtins":
        return named(desk, ref.removesuffix(".__dict__"), key, line, hidden=index.built)
    if ref.startswith("vars:"):
        return named(desk, ref[5:], key, line, hidden=index.built)
    return Value(ref=f"{ref}[]", taints=owner.taints) if len(ref) < 200 else Value(taints=owner.taints)


def named(desk: Desk, owner: str, key: str | None, line: int, *, hidden: bool = False) -> Value:
    """Return what has a name that is given as a text, and note it as if it stood there."""
    if key is None or len(key) > 200:
        if owner in ("os", "subprocess", "builtins", "sys", "importlib", "ctypes", "shutil", "socket"):
            desk.notes.add(ScreenCode.DYNAMIC_ATTRIBUTE, line, owner)
        return UNKNOWN
    if hidden:
        desk.notes.add(ScreenCode.HIDDEN_NAME, line, key)
    found = desk.name(key) if not owner else Value(ref=canonical(f"{owner}.{key}"))
    rows = desk.notes.book.of(found.ref, called=True) if found.ref is not None else ()
    for row in (*rows, *desk.notes.book.of_attribute(key)):
        desk.notes.row(row, line, found.ref or key)
    if rows and owner:
        desk.notes.add(ScreenCode.DYNAMIC_ATTRIBUTE, line, found.ref or "")
    return found


def patched(desk: Desk, owner: Value, name: str, value: Value, line: int) -> None:
    """Note that an attribute of a module is replaced."""
    ref = owner.ref or ""
    if ref in ("sys.modules", "builtins.globals()"):
        if ref == "sys.modules":
            desk.notes.add(ScreenCode.PERSIST_PATCH, line, f"sys.modules[{name}]")
        return
    ref = ref.removesuffix(".__dict__")
    full = f"{ref}.{name}"
    if full == "ssl._create_default_https_context":
        desk.notes.add(ScreenCode.NETWORK_UNVERIFIED, line, full)
    elif ref in _STANDARD and name not in _ASSIGNABLE and (value.ref is not None or (ref in _CORE and not value.known)):
        desk.notes.add(ScreenCode.PERSIST_PATCH, line, full)
    for row in desk.notes.book.of(full, called=False):
        desk.notes.row(row, line, full)


def imported(desk: Desk, module: str, line: int) -> None:
    """Note that a module is imported."""
    short = module[:MOST_NAME]
    for row in desk.notes.book.of_import(short):
        desk.notes.row(row, line, short)


def opened(desk: Desk, path: str, mode: str, line: int) -> frozenset[str]:
    """Note what it means to open a path; return where what is read of it comes from."""
    writes = any(sign in mode for sign in "wax+")
    code = paths.written(path) if writes else paths.read(path)
    if code is not None:
        desk.notes.add(code, line, path)
    if writes and path.endswith((".pth", "sitecustomize.py", "usercustomize.py")):
        desk.notes.add(ScreenCode.PERSIST_STARTUP, line, path)
    if writes and "w" in mode and path in desk.state.inputs:
        desk.notes.add(ScreenCode.DATA_OVERWRITE, line, path)
    if not writes and _DATA_FILE.search(path):
        desk.state.read(path)
    if not writes and any(
        pattern.search(path) for pattern, row in desk.notes.book.text if row.code.startswith("credential-")
    ):
        return frozenset((SECRET,))
    return frozenset((SYSTEM,)) if code is ScreenCode.FILE_READ_SYSTEM else frozenset()
