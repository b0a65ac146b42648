"""What the server speaks as a page of OpenAPI 3.1, at `/openapi.json`: made from the routes themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any

from starlette.routing import BaseRoute, Route

from ... import __version__
from .guard import Guarded
from .metrics import wire_of

Schema = dict[str, Any]
_TEXT: Schema = {"type": "string"}
_YES: Schema = {"type": "boolean"}
_TEXTS: Schema = {"type": "object", "additionalProperties": _TEXT}
_SECONDS: Schema = {"type": "number", "minimum": 0, "description": "up to the operator's limit"}
_COUNT: Schema = {"type": "integer", "minimum": 1}


def _object(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


_CREATE = _object(
    "templateID", templateID=_TEXT, timeout=_SECONDS, metadata=_TEXTS, envVars=_TEXTS, secure=_YES,
    allow_internet_access=_YES, network={"type": "object"}, autoPause=_YES,
)  # fmt: skip
_PATH = _object("path", path=_TEXT)
_PROCESS = _object("process", process={"type": "object"})
BODIES: dict[str, Schema] = {
    "/sandboxes": _CREATE,
    "/v2/sandboxes": _CREATE,
    "/sandboxes/{sandbox_id}/connect": _object("timeout", timeout=_SECONDS),
    "/v2/sandboxes/{sandbox_id}/connect": _object("timeout", timeout=_SECONDS),
    "/sandboxes/{sandbox_id}/timeout": _object("timeout", timeout=_SECONDS),
    "/sandboxes/{sandbox_id}/refreshes": _object(duration=_SECONDS),
    "/sandboxes/{sandbox_id}/snapshots": _object(name=_TEXT, memory=_YES),
    "/sandboxes/{sandbox_id}/fork": _object(count=_COUNT, timeout=_SECONDS),
    "/execute": _object("code", code=_TEXT, context_id=_TEXT, language=_TEXT, env_vars=_TEXTS),
    "/contexts": _object(language=_TEXT, cwd=_TEXT),
    "/filesystem.Filesystem/Move": _object("source", "destination", source=_TEXT, destination=_TEXT),
    "/filesystem.Filesystem/ListDir": _object("path", path=_TEXT, depth=_COUNT),
    "/process.Process/Start": _object(
        "process",
        process=_object("cmd", cmd=_TEXT, args={"type": "array", "items": _TEXT}, envs=_TEXTS, cwd=_TEXT),
        stdin=_YES,
    ),
    "/jupyter/api/kernels": _object(name=_TEXT),
    "/librechat/v1/exec": _object("code", "lang", code=_TEXT, lang=_TEXT, session_id=_TEXT),
}
"""Fields of bodies that are JSON; other bodies are objects of any fields."""
_OF_PREFIX = {"/filesystem.Filesystem/": _PATH, "/process.Process/": _PROCESS}
_CONVERTER = re.compile(r":[a-z]+}")
"""What Starlette adds to the name of a part of a path."""
_STREAMS = re.compile(r"/(?:process\.Process/(?:Start|Connect|StreamInput)|filesystem\.Filesystem/WatchDir)")
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
    parameters: list[Schema] = [
        {"name": name, "in": "path", "required": True, "schema": _TEXT} for name in re.findall(r"{(\w+)", path)
    ]
    wire = wire_of(path)
    in_sandbox = guarded.scheme in {"access", "traffic"}
    found: Schema = {
        "summary": (inspect.getdoc(guarded.handler) or "").partition("\n")[0],
        "tags": [wire],
        "parameters": parameters + (_OF_SANDBOX if in_sandbox else []),
        "security": [{guarded.scheme: []}] if in_sandbox else [{"token": []}, {"key": []}],
        "responses": {
            "2XX": {"description": "As the wire has it"},
            "default": {
                "description": "Refused",
                "content": {"application/json": {"schema": _ERRORS.get(wire, _ERROR)}},
            },
        },
    }
    if method in {"POST", "PUT", "PATCH"}:
        found["requestBody"] = {"content": _body(path)}
    return found


def _body(path: str) -> Schema:
    if _UPLOADS.fullmatch(path):
        return {"multipart/form-data": {"schema": {"type": "object"}}}
    if _STREAMS.fullmatch(path):
        return {"application/connect+json": {"schema": {"type": "string", "format": "binary"}}}
    of_prefix = (schema for prefix, schema in _OF_PREFIX.items() if path.startswith(prefix))
    return {"application/json": {"schema": BODIES.get(path) or next(of_prefix, {"type": "object"})}}
