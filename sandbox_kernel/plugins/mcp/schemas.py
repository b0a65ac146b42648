"""The schema of a model of pydantic, said as plainly as it can be: not every host and client knows more."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


def plain_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return a schema without references, titles that repeat names, and `anyOf` for what may be left out."""
    schema = model.model_json_schema()
    return {"properties": {}, **_plain(schema, schema.get("$defs", {}))}


def _plain(value: Any, named: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_plain(one, named) for one in value]
    if not isinstance(value, dict):
        return value
    kinds = [one for one in value.get("anyOf", ()) if one != {"type": "null"}]
    for more in (*kinds, *([named[value["$ref"].rpartition("/")[2]]] if "$ref" in value else [])):
        value = {**more, **{name: one for name, one in value.items() if name not in {"anyOf", "$ref", "default"}}}
    return {name: _plain(one, named) for name, one in value.items() if name not in {"title", "$defs"}}
