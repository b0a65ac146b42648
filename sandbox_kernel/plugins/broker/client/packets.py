"""What is said between a caller and a broker: one JSON object a packet, of bounded size. Pure.

A request has a number, which its answer repeats. What the broker says unasked has none. A file descriptor comes with
one answer only: the pipe, with "started" and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from ....config.sources import LIMITS_OF_A_SANDBOX
from ....core import json_memory
from ....core.codes import Note
from ....core.errors import (
    ConfigurationError,
    EngineError,
    EngineUnavailable,
    ImageMissing,
    QuotaExceeded,
    SandboxError,
)
from ....core.model import (
    DATA_NAME,
    MAX_ATTACHED,
    AgentOptions,
    Attached,
    Inside,
    Limits,
    ProcessSample,
    SandboxSample,
    SandboxSpec,
)
from ....core.version import __version__
from ... import index
from ..codes import BrokerCode

MAX_BYTES = 192 << 10
"""Of a packet. The system takes about 200 KiB in one piece."""
MAX_LEVELS = 300
"""Of what is nested in a packet: more than a message of Jupyter may have, and less than Python's own limit."""
VERSION = 9

KEEP = b'"op": "keep"'
"""By which a broker knows an owner's note of a session on its way to the sandbox, where it never arrives."""
MAX_NOTE = 32 << 10
MAX_SESSION = 8 << 10
PLAIN = {"received": ""}
"""What is to be known of a pipe of the broker's own."""
MAX_LIFETIME = 30 * 86400.0
MAX_SECONDS = 1e9
NAME = re.compile(r"[0-9a-f]{32}")
_NAME_OF_DATA = re.compile(DATA_NAME)
MAX_METADATA, MAX_KEY, MAX_VALUE = 32, 64, 256
MAX_METADATA_BYTES = 8 << 10
MAX_SETTINGS = 24 << 10
MAX_PREPARED = 16 << 10
ERRORS: Mapping[str, type[SandboxError]] = {
    one.__name__: one for one in (EngineError, EngineUnavailable, ImageMissing, ConfigurationError)
}
TEXT = 2000
MAX_OF_A_LIST = 1000


def packed(said: Mapping[str, Any]) -> bytes:
    """Return a packet. Raises `EngineError` for one that is too large."""
    data = json.dumps(said, separators=(",", ":")).encode()
    if len(data) > MAX_BYTES:
        raise EngineError(
            BrokerCode.BROKER_IMPROPER, limit=f"{MAX_BYTES} bytes of a request", value=f"{len(data)} bytes"
        )
    return data


def unpacked(data: bytes) -> dict[str, Any]:
    """Return what a packet says. Raises ValueError for what is no JSON object."""
    try:
        said = json.loads(data)
    except RecursionError as error:
        raise ValueError("a packet is nested too deeply") from error
    if not isinstance(said, dict):
        raise ValueError("a packet is no object")  # noqa: TRY004 (what came is no argument of ours)
    if data.count(b"[") + data.count(b"{") > MAX_LEVELS and json_memory.is_deep(said, MAX_LEVELS):
        raise ValueError("a packet is nested too deeply")
    return said


def digest(spec: SandboxSpec) -> str:
    """Return what tells one agent from another: a broker of another version makes another one of the same request."""
    return hashlib.sha256("\0".join((__version__, *spec.command, "")).encode() + spec.program).hexdigest()


def request(spec: SandboxSpec) -> dict[str, Any]:
    """Return what a request for a sandbox begins with, whatever it asks for."""
    return {"protocol": VERSION, "agent": digest(spec)}


def sample(said: Mapping[str, Any]) -> SandboxSample:
    """Return what a broker says of a sandbox's processes; what is not of its type is unknown."""
    refused, seconds, programs, memory = (said.get(name) for name in SandboxSample._fields)
    try:
        known = None if programs is None else tuple(_process(*each) for each in _list(programs))
    except (TypeError, ValueError):
        known = None
    return SandboxSample(
        refused if type(refused) is int else None,
        seconds if isinstance(seconds, int | float) else None,
        known,
        memory if type(memory) is int else None,
    )


def _process(identity: Any, name: Any, seconds: Any, files: Any) -> ProcessSample:
    if type(seconds) not in {int, float}:
        raise ValueError("that is no number of seconds")
    return ProcessSample(text(identity), text(name), float(seconds), tuple(map(text, _list(files))))


# --- what a caller asks for -----------------------------------------------------------------------------------------


def asked(spec: SandboxSpec) -> dict[str, Any]:
    """Return how a sandbox is asked for: names and numbers, of which the broker makes a spec of its own."""
    options = spec.made_of or AgentOptions()
    inside = options.inside
    return {
        "image": spec.image,
        "runtime": spec.runtime,
        "limits": {name: getattr(spec.limits, name) for name in LIMITS_OF_A_SANDBOX},
        "limits_kept": spec.limits_kept,
        "charts": options.charts,
        "home": options.home,
        "zone": options.zone,
        "kernel": options.kernel,
        "watch": options.watch,
        "variables": [list(pair) for pair in options.variables],
        "attached": [[one.kind, one.name, one.source, one.writable] for one in spec.attached],
        "inside": None
        if inside is None
        else {
            "environment": [list(pair) for pair in inside.environment.items()],
            "lines": list(inside.lines),
        },
    }


def limits(said: Mapping[str, Any]) -> Limits:
    """Return limits of which those of a sandbox are given. Raises ValueError, and `ConfigurationError`."""
    if set(said) != set(LIMITS_OF_A_SANDBOX):
        raise ValueError("the limits are not those of a sandbox")
    if said["scratch"] not in {"memory", "disk"}:
        raise ValueError("that is no place for scratch")
    for name, value in said.items():
        if name == "scratch":
            continue
        whole = type(value) is int and value < 1 << 53
        if not whole and not (name == "cpus" and type(value) is float and 0 < value < 1 << 20):
            raise ValueError(f"{name} is no number")
    return Limits(**said)


def options(said: Mapping[str, Any]) -> AgentOptions:
    """Return the agent's options. Raises LookupError, TypeError or ValueError for what is improper."""
    inside = said["inside"]
    return AgentOptions(
        variables=_pairs(said["variables"]),
        charts=_flag(said["charts"]),
        home=_flag(said["home"]),
        zone=None if said["zone"] is None else text(said["zone"]),
        kernel=text(said["kernel"]),
        watch=_flag(said["watch"]),
        inside=None
        if inside is None
        else Inside(
            environment=dict(_pairs(inside["environment"])),
            lines=tuple(text(line, MAX_BYTES) for line in _list(inside["lines"])),
        ),
    )


def attached(said: Any) -> tuple[Attached, ...]:
    """Return what a sandbox is to have of the host's, by name. Raises ValueError, and TypeError for what is no list."""
    found: dict[str, Attached] = {}
    for kind, name, source, writable in _list(said):
        if kind not in ("dataset", "volume") or not _NAME_OF_DATA.fullmatch(text(name)):
            raise ValueError("that is no name of a dataset or a volume")
        if (text(source) and kind == "volume") or (_flag(writable) and kind == "dataset"):
            raise ValueError("a dataset is read, and a volume has no path")
        one = Attached(kind=kind, name=name, source=source, writable=writable)
        if found.setdefault(one.path.lower(), one) is not one:
            raise ValueError("one name twice")
    if any(sum(one.kind == kind for one in found.values()) > MAX_ATTACHED for kind in ("dataset", "volume")):
        raise ValueError("too many names")
    return tuple(sorted(found.values(), key=lambda one: one.path))


def _pairs(said: Any) -> tuple[tuple[str, str], ...]:
    return tuple((text(name), text(value, MAX_BYTES)) for name, value in _list(said))


def _list(said: Any) -> list[Any]:
    if not isinstance(said, list) or len(said) > MAX_OF_A_LIST:
        raise ValueError("no list")
    return said


def _flag(said: Any) -> bool:
    if type(said) is not bool:
        raise ValueError("neither true nor false")
    return said


def text(said: Any, most: int = 4096) -> str:
    """Return text of at most so many bytes, as a packet has them. Raises ValueError, also for what is no Unicode."""
    if not isinstance(said, str) or len(said) > most or size(said) > most or "\0" in said:
        raise ValueError("no text")
    said.encode()  # half of a pair is found here, and not where something is made of it
    return said


def size(said: object) -> int:
    """Return the bytes that something takes within a packet, where a character can take twelve of them."""
    return len(json.dumps(said, separators=(",", ":"))) - 2 * isinstance(said, str)


# --- sandboxes that are kept ----------------------------------------------------------------------------------------


def note(said: Mapping[str, Any]) -> bytes | None:
    """Return what is noted for the next owner, as the agent is told things; None for what is too long."""
    data = b"{" + KEEP + b", " + json.dumps(said).encode()[1:]
    return data if len(data) <= MAX_NOTE and size(said.get("session", {})) <= MAX_SESSION else None


def seconds(said: Any) -> float:
    """Return a time that is more than none, and that a clock can be set to. Raises ValueError."""
    if type(said) not in {int, float} or not 0 < said < MAX_SECONDS:
        raise ValueError("that is no time")
    return float(said)


def prepared(said: Any) -> dict[str, dict[str, Any]]:
    """Return what plugins have inside, by their names. Raises ValueError for what is not proper, or too much."""
    if not isinstance(said, Mapping) or not all(isinstance(one, Mapping) for one in said.values()):
        raise ValueError("what is prepared is not said by plugin")
    if size(said) > MAX_PREPARED:
        raise ValueError(f"what is prepared takes more than {MAX_PREPARED} bytes")
    return {str(name): dict(one) for name, one in said.items()}


def metadata(said: Any) -> dict[str, str]:
    """Return texts to find a sandbox by. Raises ValueError for what is not plain, or too much."""
    if not isinstance(said, Mapping) or len(said) > MAX_METADATA:
        raise ValueError(f"metadata is a mapping of at most {MAX_METADATA} texts to texts")
    for key, value in said.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ValueError("metadata is a mapping of text to text")  # noqa: TRY004 (what came is no argument of ours)
        if not 0 < len(key) <= MAX_KEY or len(value) > MAX_VALUE:
            raise ValueError(f"a text of metadata is too long: {MAX_KEY} and {MAX_VALUE} characters are the limits")
        if not (key + value).isprintable():
            raise ValueError("metadata has a character that cannot be shown")
    found = dict(said)
    if len(json.dumps(found)) > MAX_METADATA_BYTES:
        raise ValueError(f"metadata is longer than {MAX_METADATA_BYTES} bytes of JSON")
    return found


# --- errors as data -------------------------------------------------------------------------------------------------


def refusal(error: SandboxError) -> dict[str, Any]:
    """Return an error as data."""
    parts = {"limit": error.limit, "value": error.value, "setting": error.setting}
    said: dict[str, Any] = {name: str(value)[:TEXT] for name, value in parts.items() if value is not None}
    if isinstance(error, QuotaExceeded):
        said["set_by"] = error.set_by[:TEXT]
    return said | {"error": error.name, "code": error.code.code, "message": error.message[:TEXT]}


def raised(said: object) -> SandboxError:
    """Return the error that a broker told of; what cannot be read is one of the broker's."""
    parts = said if isinstance(said, Mapping) else {}
    values = {name: value for name, value in parts.items() if isinstance(value, str)}
    try:
        code = index.code(values["code"])
    except KeyError:
        return EngineError(BrokerCode.BROKER_IMPROPER, "the broker refused, and did not say properly why")
    note = Note(code, values.get("message", code.text))
    limit, value, setting = (values.get(name) for name in ("limit", "value", "setting"))
    if values.get("error") == QuotaExceeded.__name__:
        set_by = values.get("set_by", "the broker")
        return QuotaExceeded(note, set_by=set_by, limit=limit, value=value, setting=setting)
    return ERRORS.get(values.get("error", ""), EngineError)(note, limit=limit, value=value, setting=setting)
