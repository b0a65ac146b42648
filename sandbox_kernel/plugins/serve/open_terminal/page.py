"""Open Terminal's wire: the page from which Open WebUI makes the tools of its models."""

from __future__ import annotations

import inspect
from typing import Any

from ..bodies import reading
from ..openapi import operation
from . import commands, files, sockets

TOOLS = {
    files.every: "list_files",
    files.read: "read_file",
    files.display: "display_file",
    files.write: "write_file",
    files.replace: "replace_file_content",
    files.grep: "grep_search",
    files.matches: "match_files",
    files.search: "search_files",
    files.glob: "glob_search",
    commands.every: "list_processes",
    commands.start: "run_command",
    commands.status: "get_process_status",
    commands.send: "send_process_input",
    commands.kill: "kill_process",
    sockets.read: "read_user_terminal",
    sockets.type_in: "send_user_terminal_input",
}
"""What a model may call, by the names that it knows. What it is told of each is the docstring."""


def page(version: str) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for method, path, work in (*files.ROUTES, *commands.ROUTES, *sockets.ROUTES):
        if (name := TOOLS.get(work)) is not None:
            paths.setdefault(path, {})[method.lower()] = {
                "operationId": name,
                "summary": name.replace("_", " ").capitalize(),
                "description": " ".join((inspect.getdoc(work) or "").split()),
                **operation(path, reading(work)),
                "responses": {"200": {"description": "Done", "content": {"application/json": {"schema": {}}}}},
                "security": [{"HTTPBearer": []}],
            }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Open Terminal", "description": "A sandbox for each user.", "version": version},
        "paths": paths,
        "components": {"securitySchemes": {"HTTPBearer": {"type": "http", "scheme": "bearer"}}},
    }
