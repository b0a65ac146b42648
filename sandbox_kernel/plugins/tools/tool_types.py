"""Types of a signature, and whether values of JSON are of them. Pure; the standard library's typing, and no other.

What a type is not known for is refused when the tool is offered, and not when it is called. A model of pydantic, which
whoever names one has installed, checks for itself.
"""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any, str], Any]
"""Takes a value of JSON and where it stands; returns it as the type has it. Raises `MismatchError`."""
MAX_DEPTH = 20
"""Of types within types."""
MAX_SHOWN = 60
_PLACES = re.compile(r"('(?:[^'\\]|\\.)*')|(?:[\w<>]+\.)+(?=\w)")
"""Modules before names; what stands in a Literal is left as it is."""

_PLAIN: dict[object, tuple[str, tuple[type, ...]]] = {
    str: ("text", (str,)),
    bool: ("true or false", (bool,)),
    type(None): ("null", (type(None),)),
    None: ("null", (type(None),)),
}
_LISTS = (list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


class MismatchError(ValueError):
    """A value is not of its type; says where, and what was wanted."""


class UnfitTypeError(TypeError):
    """A type has no values of JSON, or is not known here."""


def checker(wanted: Any, depth: int = 0) -> Check:
    """Return what checks values of a type. Raises `UnfitTypeError`."""
    if depth > MAX_DEPTH:
        raise UnfitTypeError("it is nested too deep, or in itself")
    if wanted is Any or wanted is object:
        return lambda value, where: value
    if (plain := _PLAIN.get(wanted) if isinstance(wanted, collections.abc.Hashable) else None) is not None:
        return _plain(*plain)
    if wanted is int:
        return _integer
    if wanted is float:
        return _number
    if isinstance(wanted, typing.TypeAliasType) if hasattr(typing, "TypeAliasType") else False:
        return checker(wanted.__value__, depth + 1)
    if isinstance(wanted, typing.NewType):
        return checker(wanted.__supertype__, depth + 1)
    origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is typing.Annotated or origin in (typing.Required, typing.NotRequired):
        return checker(inner[0], depth + 1)
    if origin in (typing.Union, types.UnionType):
        return _any_of([checker(one, depth + 1) for one in inner], shown(wanted))
    if origin is typing.Literal:
        return _one_of(inner)
    if wanted in _LISTS or origin in _LISTS:
        return _list(checker(inner[0], depth + 1) if inner else None)
    if wanted is tuple or origin is tuple:
        return _tuple(inner, depth)
    if wanted in _MAPPINGS or origin in _MAPPINGS:
        if inner and inner[0] is not str:
            raise UnfitTypeError(f"{shown(wanted)} is no JSON: keys are text")
        return _mapping(checker(inner[1], depth + 1) if inner else None)
    if typing.is_typeddict(wanted):
        return _typed_dict(wanted, depth)
    if isinstance(wanted, type) and dataclasses.is_dataclass(wanted):
        return _dataclass(wanted, depth)
    if isinstance(wanted, type) and hasattr(wanted, "model_validate"):
        return _model(wanted)
    more = "; bytes go as text, in base64 for instance" if wanted in (bytes, bytearray) else ""
    raise UnfitTypeError(f"{shown(wanted)} is no type of JSON{more}")


def shown(wanted: object) -> str:
    """Return a type as it is written."""
    if isinstance(wanted, type) and not isinstance(wanted, types.GenericAlias):
        return wanted.__name__ if wanted is not type(None) else "None"
    return _PLACES.sub(lambda found: found[1] or "", str(wanted))


def plain(value: object) -> Any:
    """Return a value with dataclasses and models, wherever they are, as dictionaries; for `json.dumps(default=...)`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is no JSON")


def _wrong(where: str, wanted: str, value: object) -> MismatchError:
    text = repr(value)
    text = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
    return MismatchError(f"{where} is {text}, and must be {wanted}")


def _plain(name: str, kinds: tuple[type, ...]) -> Check:
    def check(value: Any, where: str) -> Any:
        if not isinstance(value, kinds):
            raise _wrong(where, name, value)
        return value

    return check


def _integer(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(where, "a whole number", value)
    return value


def _number(value: Any, where: str) -> float:
    with contextlib.suppress(OverflowError):
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    raise _wrong(where, "a number", value)


def _any_of(checks: list[Check], name: str) -> Check:
    def check(value: Any, where: str) -> Any:
        for one in checks:
            try:
                return one(value, where)
            except MismatchError:
                continue
        raise _wrong(where, name, value)

    return check


def _one_of(values: tuple[Any, ...]) -> Check:
    if not all(isinstance(one, (str, int, bool, type(None))) for one in values):
        raise UnfitTypeError("a Literal has text, whole numbers, true, false and null")

    def check(value: Any, where: str) -> Any:
        for one in values:
            if type(one) is type(value) and one == value:
                return one
        raise _wrong(where, "one of " + ", ".join(map(repr, values)), value)

    return check


def _list(inner: Check | None) -> Check:
    def check(value: Any, where: str) -> Any:
        if not isinstance(value, list):
            raise _wrong(where, "a list", value)
        return value if inner is None else [inner(one, f"{where}[{at}]") for at, one in enumerate(value)]

    return check


def _tuple(inner: tuple[Any, ...], depth: int) -> Check:
    if len(inner) == 2 and inner[1] is Ellipsis:
        same = _list(checker(inner[0], depth + 1))
        return lambda value, where: tuple(same(value, where))
    checks = [checker(one, depth + 1) for one in inner]

    def check(value: Any, where: str) -> Any:
        if not isinstance(value, list) or (inner and len(value) != len(checks)):
            raise _wrong(where, f"a list of {len(checks)}" if inner else "a list", value)
        each = zip(checks, value, strict=True) if inner else ((None, one) for one in value)
        return tuple(one if test is None else test(one, f"{where}[{at}]") for at, (test, one) in enumerate(each))

    return check


def _mapping(inner: Check | None) -> Check:
    def check(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise _wrong(where, "an object", value)
        return value if inner is None else {name: inner(one, f"{where}[{name!r}]") for name, one in value.items()}

    return check


def _fields(checks: Mapping[str, Check], needed: frozenset[str], name: str) -> Check:
    def check(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise _wrong(where, f"an object ({name})", value)
        if missing := sorted(needed - value.keys()):
            raise MismatchError(f"{where} lacks {', '.join(missing)}")
        if unknown := sorted(value.keys() - checks.keys()):
            raise MismatchError(f"{where} has {unknown[0][:MAX_SHOWN]!r}, which {name} does not have")
        return {key: checks[key](one, f"{where}.{key}") for key, one in value.items()}

    return check


def _typed_dict(wanted: Any, depth: int) -> Check:
    hints = typing.get_type_hints(wanted)
    checks = {name: checker(hint, depth + 1) for name, hint in hints.items()}
    return _fields(checks, frozenset(wanted.__required_keys__), wanted.__name__)


def _dataclass(wanted: Any, depth: int) -> Check:
    hints = typing.get_type_hints(wanted)
    fields = [field for field in dataclasses.fields(wanted) if field.init]
    checks = {field.name: checker(hints[field.name], depth + 1) for field in fields}
    unset = dataclasses.MISSING
    needed = frozenset(one.name for one in fields if one.default is unset and one.default_factory is unset)
    check = _fields(checks, needed, wanted.__name__)
    return lambda value, where: wanted(**check(value, where))


def _model(wanted: Any) -> Check:
    def check(value: Any, where: str) -> Any:
        try:
            return wanted.model_validate(value)
        except ValueError as invalid:
            said = " ".join(str(invalid).split())
            raise MismatchError(f"{where} is no {wanted.__name__}: {said[:300]}") from None

    return check
