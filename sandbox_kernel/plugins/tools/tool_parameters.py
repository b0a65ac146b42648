"""Parameters of tools, as cells see them: of a signature, or of a JSON schema. Pure."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .tool_types import shown


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter, as it is shown to cells."""

    name: str
    type: str = ""
    optional: bool = False
    default: Any = inspect.Parameter.empty
    """A value of JSON; it is shown, and never sent."""
    kind: str = "POSITIONAL_OR_KEYWORD"


def shown_annotation(annotation: Any) -> str:
    return "" if annotation is inspect.Parameter.empty else shown(annotation)


def parameter_of(one: inspect.Parameter) -> Parameter:
    optional = one.default is not inspect.Parameter.empty
    default = one.default
    try:
        json.dumps(default, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        default = inspect.Parameter.empty  # it has one, which is the host's affair
    return Parameter(one.name, shown_annotation(one.annotation), optional, default, one.kind.name)


_JSON_TYPES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "null": "None",
}


def of_schema(name: str, described: Any, *, optional: bool) -> Parameter:
    described = described if isinstance(described, Mapping) else {}
    kinds = described.get("type", [one.get("type") for one in described.get("anyOf", []) if isinstance(one, Mapping)])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    text = " | ".join(_JSON_TYPES[one] for one in kinds if isinstance(one, str) and one in _JSON_TYPES)
    default = described.get("default", inspect.Parameter.empty) if optional else inspect.Parameter.empty
    return Parameter(name, text, optional, default)
