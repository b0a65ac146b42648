"""What the server speaks as a page of OpenAPI 3.1, at `/openapi.json`: made from the routes themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any

from starlette.routing import BaseRoute, Route

from ... import __version__
from ..mcp.schemas import plain_schema
from .bodies import Query
from .guard import Guarded
from .metrics import wire_of

Schema = dict[str, Any]
_TEXT: Schema = {"type": "string"}


def _object(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


_CONVERTER = re.compile(r":[a-z]+}")
"""What Starlette adds to the name of a part of a path."""
_UPLOADS = re.compile(r"/files|/librechat/v1/upload(?:/batch)?")
SCHEMES: dict[str, Schema] = {
    "token": {"type": "http", "scheme": "bearer", "description": "The token of a line of the token file"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The same"},
    "access": {"type": "apiKey", "in": "header", "name": "X-Access-Token", "description": "For files of one sandbox"},
    "traffic": {
        "type": "apiKey",
        "in": "header",
        "name": "E2B-Traffic-Access-Token",
        "description": "For cells of one sandbox",
    },
}
_ERROR = _object("message", "code", message=_TEXT, code={"type": ["integer", "string"]}, error=_TEXT)
_ERRORS = {"open-terminal": _object(detail={}, message=_TEXT, error=_TEXT)}
"""Of a wire whose own form is another: what its token opens has `detail`, and the rest is as everywhere."""
_OF_SANDBOX = [
    {"name": name, "in": "header", "required": True, "schema": _TEXT} for name in ("E2b-Sandbox-Id", "E2b-Sandbox-Port")
]


def page(routes: Iterable[BaseRoute]) -> Schema:
    """Return the page of those routes that a token opens."""
    paths: dict[str, Schema] = {}
    for route in routes:
        if isinstance(route, Route) and isinstance(route.endpoint, Guarded):
            for method in sorted((route.methods or set()) - {"HEAD"}):
                path = _CONVERTER.sub("}", route.path)
                paths.setdefault(path, {})[method.lower()] = _operation(method, path, route.endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "sandbox-kernel serve", "version": __version__},
        "paths": paths,
        "components": {"securitySchemes": SCHEMES, "schemas": {"Error": _ERROR}},
    }


def _operation(method: str, path: str, guarded: Guarded) -> Schema:
    wire = wire_of(path)
    in_sandbox = guarded.scheme in {"access", "traffic"}
    found: Schema = {
        "summary": (inspect.getdoc(guarded.handler) or "").partition("\n")[0],
        "tags": [wire],
        **operation(path, guarded.handler),
        "security": [{guarded.scheme: []}] if in_sandbox else [{"token": []}, {"key": []}],
        "responses": {
            "2XX": {"description": "As the wire has it"},
            "default": {
                "description": "Refused",
                "content": {"application/json": {"schema": _ERRORS.get(wire, _ERROR)}},
            },
        },
    }
    if in_sandbox:
        found["parameters"] += _OF_SANDBOX
    if _UPLOADS.fullmatch(path) and method == "POST":
        found["requestBody"] = {"content": {"multipart/form-data": {"schema": {"type": "object"}}}}
    elif method in {"POST", "PUT", "PATCH"}:
        found.setdefault("requestBody", {"content": {"application/json": {"schema": {"type": "object"}}}})
    return found


def operation(path: str, handler: Any) -> Schema:
    """Return what a handler takes: of its path, of the rest of its address, and its body."""
    parameters: list[Schema] = [
        {"name": name, "in": "path", "required": True, "description": name.replace("_", " "), "schema": _TEXT}
        for name in re.findall(r"{(\w+)", path)
    ]
    found: Schema = {"parameters": parameters}
    for kind in getattr(handler, "takes", ()):
        schema, media = plain_schema(kind), handler.media
        if issubclass(kind, Query):
            for name, one in schema["properties"].items():
                row = {"name": name, "in": "query", "required": name in schema.get("required", ())}
                parameters.append({**row, "description": one.pop("description", ""), "schema": one})
            continue
        if media != "application/json":  # objects of this schema, each in an envelope
            schema = {"type": "string", "format": "binary"}
        found["requestBody"] = {"required": "required" in schema, "content": {media: {"schema": schema}}}
    return found
