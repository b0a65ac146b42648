"""Calls with a meaning of their own: what imports, executes, opens, deletes, moves, walks, or asks a shell."""

from __future__ import annotations

import re
from collections.abc import Callable

from ...core.screen_codes import ScreenCode
from . import paths, places, sinks, sizes
from .call import _NAMED_SECRET, Call, canonical, imported, named, opened, patched
from .desk import Desk
from .value import DECODED, FILE, FOUND, FOUND_FILE, NETWORK, SYSTEM, UNKNOWN, UNKNOWN_PART, Value

_SHELLS = frozenset(
    {
        "os.system",
        "os.popen",
        "subprocess.getoutput",
        "subprocess.getstatusoutput",
        "asyncio.create_subprocess_shell",
        "commands.getoutput",
        "get_ipython().system",
        "get_ipython().getoutput",
        "get_ipython().system_raw",
        "get_ipython().system_piped",
        "nt.system",
        "IPython.utils.process.system",
        "pty.spawn",
        "pexpect.run",
        "pexpect.spawn",
    }
)


PLAIN_COMMAND = re.compile(
    r"^\s*(ls|pwd|echo|cat|head|tail|wc|mkdir|cp|mv|unzip|tar|gunzip|pip3?|python3? -m pip|conda|git|nvidia-smi|"
    r"which|clear|cls|date|sort|uniq|cut|grep|jupyter|ffmpeg|dot|wget|curl|apt|apt-get|pdflatex|make|touch|du|df|free|file|tree|nvcc|kaggle|gdown|java|R|Rscript)\b"
)


_ALL = "walks all"
"""The flag of a cell that goes through all files, or all data, of a folder."""
_NARROW = "narrows"
"""The flag of one that takes those alone whose names end as no data does."""


def is_all(desk: Desk) -> bool:
    """Return whether what is read now is about all files, or all data, of a folder."""
    return _ALL in desk.flags and _NARROW not in desk.flags


def narrowed(desk: Desk, endings: Value) -> None:
    """Note which endings of names are asked for."""
    wanted = endings.const if isinstance(endings.const, list | tuple) else [endings.const]
    if all(isinstance(one, str) and one.startswith(".") and not paths.is_all(f"*{one}") for one in wanted):
        desk.flags.add(_NARROW)


def _getattr(desk: Desk, call: Call) -> Value | None:
    owner, name = call.argument(0), call.argument(1)
    if owner.ref is None and not name.built:
        if name.shown is not None:
            for row in desk.notes.book.of_attribute(name.shown):
                desk.notes.row(row, call.line, name.shown)
        return UNKNOWN
    shown = name.shown if name.known else None
    plain = owner.ref is not None and shown is not None and _is_plain(desk, owner.ref, shown)
    risky = name.built and (
        (owner.ref is not None and not plain) or (shown is not None and bool(list(desk.notes.book.of_attribute(shown))))
    )
    return named(desk, owner.ref or "?", shown, call.line, hidden=risky)


_FOR_DATA = frozenset(
    (
        "numpy",
        "pandas",
        "polars",
        "scipy",
        "sklearn",
        "statsmodels",
        "matplotlib",
        "seaborn",
        "plotly",
        "torch",
        "tensorflow",
    )
)


def _is_plain(desk: Desk, owner: str, name: str) -> bool:
    """Return whether a name of a package for data, put together or not, is one of its own that no rule knows."""
    full = f"{owner}.{name}"
    return (
        owner.partition(".")[0] in _FOR_DATA
        and canonical(full) == full
        and not any(True for _ in desk.notes.book.of(full, called=True))
        and not any(True for _ in desk.notes.book.of_attribute(name))
    )


def _setattr(desk: Desk, call: Call) -> Value | None:
    patched(desk, call.argument(0), call.argument(1).shown or "", call.argument(2), call.line)
    return UNKNOWN


def _import(desk: Desk, call: Call) -> Value | None:
    name = call.argument(0, "name")
    if name.shown is None or not name.known:
        desk.notes.add(ScreenCode.DYNAMIC_IMPORT, call.line, call.name or "")
        return UNKNOWN
    imported(desk, name.shown, call.line)
    if name.built:
        desk.notes.add(ScreenCode.HIDDEN_NAME, call.line, name.shown)
    top = (
        name.shown
        if call.name != "builtins.__import__" or "fromlist" in call.keywords
        else name.shown.partition(".")[0]
    )
    return Value(ref=canonical(f"{top}.")[:-1] if "." not in top else top)


def _execute(desk: Desk, call: Call) -> Value | None:
    code = call.argument(0, "source", "expression", "object")
    taints = code.taints
    if NETWORK in taints:
        desk.notes.add(ScreenCode.PROCESS_DOWNLOAD_RUN, call.line, call.name or "")
    if DECODED in taints:
        desk.notes.add(ScreenCode.HIDDEN_EXECUTION, call.line, call.name or "")
    if code.ref == "builtins.compile()" and not taints:
        return UNKNOWN
    text = code.shown
    if text is not None:
        desk.python(text, call.line)
    elif call.name == "builtins.compile":
        return Value(ref="builtins.compile()", taints=taints)
    return Value(ref="builtins.compile()", taints=taints) if call.name == "builtins.compile" else UNKNOWN


def _open(desk: Desk, call: Call) -> Value | None:
    path = call.argument(0, "file", "filename")
    mode = call.argument(1, "mode").shown or "r"
    taints = frozenset((FILE,))
    if (shown := path.shown) is not None:
        taints |= opened(desk, shown, mode, call.line)
    if any(sign in mode for sign in "wax+"):
        desk.flags.add("writes")
        if path.ref == FOUND_FILE and "w" in mode:
            desk.notes.add(ScreenCode.DATA_OVERWRITE, call.line, "what a search found")
        if (path.ref or "").endswith(".__file__"):
            desk.notes.add(ScreenCode.PERSIST_PACKAGE, call.line, path.ref or "")
    sinks.look(desk, "builtins.open", None, call, call.line)
    return Value(ref="builtins.open()", text=shown, taints=taints)


def _delete(desk: Desk, call: Call, *, whole: bool = False) -> Value | None:
    path = call.argument(0, "path").shown if call.method not in ("unlink", "rmdir") else call.receiver.text
    desk.flags.add("deletes")
    if path is not None:
        code = paths.deleted(path, whole=whole)
        desk.notes.add(code, call.line, path)
        if path in desk.state.inputs:
            desk.notes.add(ScreenCode.DATA_DELETE_INPUTS, call.line, path)
    if desk.loops and is_all(desk) and (path is None or (UNKNOWN_PART in path and not paths.is_made(path))):
        desk.notes.add(ScreenCode.FILE_DELETE_MANY, call.line, call.name or "")
    elif whole and path is None:
        desk.notes.add(ScreenCode.FILE_DELETE, call.line, call.name or "")
    return UNKNOWN


def _delete_all(desk: Desk, call: Call) -> Value | None:
    return _delete(desk, call, whole=True)


def _moved(desk: Desk, call: Call) -> Value | None:
    first, second = call.argument(0, "src").shown, call.argument(1, "dst").shown
    if call.receiver.ref == "pathlib.Path()":
        first, second = call.receiver.text, call.argument(0).shown
    if first is not None and paths.is_system(first):
        moves = call.name not in ("shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.copytree", "os.symlink")
        desk.notes.add(ScreenCode.FILE_DELETE_SYSTEM if moves else ScreenCode.FILE_READ_SYSTEM, call.line, first)
    if second is not None and (code := paths.written(second)) is not None:
        desk.notes.add(code, call.line, second)
    return UNKNOWN


def _archived(desk: Desk, call: Call) -> Value | None:
    path = call.argument(2, "root_dir").shown
    if path is not None and (paths.searched(path) or paths.is_system(path)):
        desk.notes.add(ScreenCode.FILE_ARCHIVE, call.line, path)
    return UNKNOWN


def _walked(desk: Desk, call: Call) -> Value | None:
    path = call.argument(0, "top", "path", "pathname").shown
    if call.receiver.ref == "pathlib.Path()":
        path = call.receiver.text
    desk.flags.add("walks")
    if call.method not in ("glob", "iglob", "rglob") or paths.is_all(call.argument(0, "pathname", "pattern").shown):
        desk.flags.add(_ALL)
    if path is not None and paths.searched(path):
        desk.notes.add(ScreenCode.FILE_SEARCH, call.line, path)
    # Of a list of another folder's files, the names alone lead to files of the working folder.
    elsewhere = call.name == "os.listdir" and bool(call.args) and path != "."
    return Value(ref=f"{call.name}()", taints=call.given if elsewhere else call.given | {FOUND})


def _shelled(desk: Desk, call: Call) -> Value | None:
    command = call.argument(0, "command", "cmd")
    sinks.look(desk, call.name or "", call.method, call, call.line)
    sizes.look(desk, call.name or "", call)
    if isinstance(command.const, list) and all(isinstance(word, str) for word in command.const):
        desk.shell.words(command.const, call.line)
    elif (text := command.shown) is not None:
        desk.shell.read(text, call.line)
    return Value(ref=f"{call.name}()", taints=frozenset((SYSTEM,)))


def listed(desk: Desk, call: Call) -> Value | None:
    """Read the command of `subprocess.run` and its like: a list of words, or a text for a shell."""
    first = call.argument(0, "args", "cmd", "file")
    shell = call.keywords.get("shell")
    through = shell is not None and (not shell.known or bool(shell.const))
    if (through and not (first.shown is not None and PLAIN_COMMAND.match(first.shown))) or (
        not first.known and first.text is None
    ):
        desk.notes.add(ScreenCode.PROCESS_SHELL, call.line, call.name or "")
    if "start_new_session" in call.keywords or "preexec_fn" in call.keywords or "creationflags" in call.keywords:
        desk.notes.add(ScreenCode.PROCESS_BACKGROUND, call.line, call.name or "")
    if (call.name or "").startswith("os.") and len(call.args) > 1:
        words = [word.shown for word in call.args if word.shown is not None]
        return _given(desk, call, Value(const=words))
    return _given(desk, call, first)


def _given(desk: Desk, call: Call, first: Value) -> Value:
    sinks.look(desk, call.name or "", call.method, call, call.line)
    sizes.look(desk, call.name or "", call)
    if isinstance(first.const, list):
        desk.shell.words([str(word) for word in first.const], call.line)
        desk.notes.text(" ".join(map(str, first.const)), call.line)
    elif (text := first.shown) is not None:
        desk.shell.read(text, call.line)
    return Value(ref=f"{call.name}()", taints=frozenset((SYSTEM,)))


def _environment(desk: Desk, call: Call) -> Value | None:
    key = call.argument(0, "key").shown
    if key is not None and _NAMED_SECRET.search(key):
        desk.notes.add(ScreenCode.CREDENTIAL_VARIABLE, call.line, key)
    return places.HOME if key in places.HOMES else UNKNOWN


def _ranged(desk: Desk, call: Call) -> Value | None:
    count = sizes.ranged(call.args)
    if count is None:
        return Value(ref="builtins.range()")
    return None if count <= 1024 else Value(ref=f"range:{count}")


def _slice(desk: Desk, call: Call) -> Value | None:
    return Value(ref=f"vars:{call.args[0].ref}") if call.args and call.args[0].ref else Value(ref="builtins.vars()")


def _getter(desk: Desk, call: Call) -> Value | None:
    name = call.argument(0)
    return Value(ref=f"getter:{name.shown}", built=name.built) if name.shown is not None else None


def _endless(desk: Desk, call: Call) -> Value | None:
    return Value(ref="endless") if call.name != "builtins.iter" or len(call.args) == 2 else UNKNOWN


_SUBPROCESS = "run call Popen check_output check_call"
_OS = "execl execle execlp execv execve execvp execvpe spawnl spawnlp spawnv spawnve spawnvp posix_spawn posix_spawnp"
Meaning = Callable[[Desk, Call], Value | None]


def _same(meaning: Meaning, *names: str) -> dict[str, Meaning]:
    """Return a row for each of the names: a prefix, and words behind it."""
    found: dict[str, Meaning] = {}
    for group in names:
        prefix, _, rest = group.partition(" ")
        found |= {f"{prefix}{word}": meaning for word in rest.split()}
    return found


SPECIAL: dict[str, Meaning] = {
    "builtins.getattr": _getattr,
    "builtins.setattr": _setattr,
    "inspect.getattr_static": _getattr,
    "builtins.__import__": _import,
    "importlib.import_module": _import,
    "importlib.__import__": _import,
    "builtins.open": _open,
    "builtins.range": _ranged,
    "builtins.vars": _slice,
    "builtins.iter": _endless,
    "operator.attrgetter": _getter,
    "operator.methodcaller": _getter,
    "send2trash.send2trash": _delete,
    "shutil.make_archive": _archived,
    **_same(_execute, "builtins. exec eval compile", "get_ipython(). run_cell ex ev"),
    **_same(_delete, "os. remove unlink rmdir", "pathlib.Path(). unlink rmdir"),
    **_same(_delete_all, "shutil. rmtree", "os. removedirs"),
    **_same(_moved, "os. rename replace renames symlink link", "pathlib.Path(). rename replace"),
    **_same(_moved, "shutil. move copy copy2 copyfile copytree"),
    **_same(_walked, "os. walk listdir scandir fwalk", "glob. glob iglob", "pathlib.Path(). rglob glob iterdir"),
    **dict.fromkeys(_SHELLS, _shelled),
    **_same(_environment, "os. getenv", "os.environ. get pop setdefault"),
    **_same(_endless, "itertools. count cycle repeat"),
    **_same(listed, f"subprocess. {_SUBPROCESS}", "asyncio. create_subprocess_exec", f"os. {_OS}"),
}
