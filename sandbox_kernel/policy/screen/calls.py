"""What is known of the result of a call, and what the rules leave alone for what it is given. Nothing is run."""

from __future__ import annotations

import re

from ...core.screen_codes import ScreenCode
from . import fold, places, sinks, sizes
from .call import Call
from .desk import Desk
from .meanings import PLAIN_COMMAND, SPECIAL, is_all, narrowed
from .value import DATA, DECODED, FILE, MADE, MISSING, NETWORK, SECRET, SYSTEM, UNKNOWN, Value, constant

_FETCHED = re.compile(
    r"(requests|urllib|urllib2|urllib3|httpx|aiohttp|http\.client|wget|socket|websocket|ftplib|telnetlib|pycurl|paramiko)\b"
)


_RECEIVES = frozenset({"recv", "recvfrom", "recv_into", "read_until", "recv_bytes"})


_DATA = re.compile(
    r"(pandas|polars|dask\.dataframe|geopandas)\.read_\w+|numpy\.(load|loadtxt|genfromtxt)|sklearn\.datasets\.\w+"
)


def is_harmless(desk: Desk, call: Call, code: str) -> bool:
    """Return whether what a rule finds in a call is nothing, for what the call is given."""
    name = call.name or ""
    if code == ScreenCode.PROCESS_SHELL.code:
        command = call.argument(0, "command", "cmd").shown
        if command is not None and PLAIN_COMMAND.match(command):
            desk.notes.add(ScreenCode.PROCESS_PROGRAM, call.line, command)
            return True
    elif code == ScreenCode.DYNAMIC_EXECUTION.code:
        first = call.argument(0, "source", "expression")
        return name in ("builtins.exec", "builtins.eval") and first.known and not first.built
    elif code == ScreenCode.DYNAMIC_IMPORT.code:
        return name == "importlib.reload"
    elif code == ScreenCode.UNSAFE_LOAD.code and name.startswith("yaml."):
        loader = call.argument(1, "Loader").ref or ""
        return "Safe" in loader or "Base" in loader
    elif code == ScreenCode.PERSIST_HOOK.code and name == "signal.signal":
        return True
    return False


def result(desk: Desk, call: Call) -> Value:
    """Return what is known of a call's result, and note what it means."""
    name = call.name
    if name is not None and (special := _SPECIAL.get(name)) is not None:
        found = special(desk, call)
        if found is not None:
            return found
    if call.method is not None and call.receiver.known:
        if call.method in sizes.GROWS:
            sizes.look(desk, name or "", call)
        return _of_constant(call)
    sizes.look(desk, name or "", call)
    sinks.look(desk, name or "", call.method, call, call.line)
    if call.method == "unlink" and desk.loops and is_all(desk):
        desk.notes.add(ScreenCode.FILE_DELETE_MANY, call.line, "unlink")
    if call.method == "endswith" and call.args:
        narrowed(desk, call.args[0])
    if name is not None and name in fold.FUNCTIONS and not call.keywords and all(arg.known for arg in call.args):
        found_const = fold.call(name, [arg.const for arg in call.args])
        if found_const is not MISSING:
            taints = call.given | ({DECODED} if name in fold.DECODERS else frozenset())
            if name in fold.DECODERS and DECODED in call.given and any(arg.built for arg in call.args):
                desk.notes.add(ScreenCode.NESTED_DECODERS, call.line, name)
            return constant(found_const, taints=taints)
    path = places.of_call(desk, call)
    return _unknown(desk, call) if path is None else path


def _of_constant(call: Call) -> Value:
    taints = call.receiver.taints | call.given
    if call.method in ("format", "join") and not all(arg.known for arg in call.args):
        shown = call.receiver.shown or ""
        said = call.args[0].text if call.args and call.method == "join" else None
        return Value(text=said or shown, taints=taints)
    if all(arg.known for arg in call.args) and not call.keywords:
        found = fold.method(call.receiver.const, call.method or "", [arg.const for arg in call.args])
        if found is not MISSING:
            return constant(found, built=call.receiver.built or isinstance(found, str | bytes), taints=taints)
    return Value(taints=taints)


def _unknown(desk: Desk, call: Call) -> Value:
    """Return where a result of which nothing else is known came from."""
    name, taints = call.name or "", call.receiver.taints | call.taints
    if name.startswith("def:"):
        return Value(ref=f"{name}()", taints=taints | (call.given & {NETWORK, SECRET, SYSTEM, DECODED}))
    if _FETCHED.match(name) and not name.startswith(("urllib.parse", "socket.gethost", "socket.getaddr")):
        taints |= {NETWORK}
    if call.method in _RECEIVES:
        taints |= {NETWORK}
    if name in fold.DECODERS or call.method == "decrypt":
        taints |= {DECODED}
        if DECODED in call.given:
            desk.notes.add(ScreenCode.NESTED_DECODERS, call.line, name)
    if _DATA.fullmatch(name):
        taints |= {DATA}
        path = call.argument(0, "filepath_or_buffer", "path", "io").shown
        if path is not None and "://" not in path:
            desk.state.read(path)
    if name.startswith("platform.") or name in ("socket.gethostname", "getpass.getuser", "os.uname"):
        taints |= {SYSTEM}
    kept = call.given & {SECRET, DECODED, NETWORK, FILE, DATA, SYSTEM, MADE}
    if call.name is None:
        return Value(taints=taints | kept) if taints or kept else UNKNOWN
    text = call.args[0].shown if name == "pathlib.Path" and call.args else call.receiver.text
    return Value(ref=f"{name}()" if len(name) < 200 else None, text=text, taints=taints | kept)


def _map(desk: Desk, call: Call) -> Value | None:
    if call.args and call.args[0].ref in ("os.remove", "os.unlink", "pathlib.Path.unlink") and is_all(desk):
        desk.notes.add(ScreenCode.FILE_DELETE_MANY, call.line, call.args[0].ref)
    if (
        len(call.args) != 2
        or call.args[0].ref not in fold.FUNCTIONS
        or not isinstance(call.args[1].const, list | str | bytes)
    ):
        if len(call.args) == 2 and (name := call.args[0].ref) is not None and isinstance(call.args[1].const, list):
            for item in call.args[1].const[:20]:
                result(
                    desk, call._replace(name=name, receiver=UNKNOWN, args=[Value(const=item)], keywords={}, method=None)
                )
        return None
    found = [fold.call(call.args[0].ref, [item]) for item in call.args[1].const[: fold.MOST_ITEMS]]
    return Value(const=found, built=True) if MISSING not in found else None


def _partial(desk: Desk, call: Call) -> Value | None:
    target = call.argument(0)
    if target.ref is None:
        return UNKNOWN
    result(desk, call._replace(name=target.ref, args=call.args[1:], method=None, receiver=UNKNOWN))
    return Value(ref=target.ref)


_SPECIAL = SPECIAL | {"builtins.map": _map, "functools.partial": _partial}
