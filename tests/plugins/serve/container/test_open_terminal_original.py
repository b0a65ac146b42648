"""Open Terminal as it comes from PyPI, beside our wire: its routes, its page, and the fields of its answers."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from sandbox_kernel.plugins.serve.open_terminal import sockets as open_terminal_sockets
from sandbox_kernel.plugins.serve.open_terminal import wire as open_terminal
from sandbox_kernel.plugins.serve.open_terminal.page import page
from tests.plugins.serve.container.conftest import TOKENS
from tests.plugins.serve.container.server import Server

pytest.importorskip("open_terminal", reason="make recipes has it")
KEY = "a key of the original"
PAGES = {"/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json"}
CELL: dict[str, Any] = {
    "cell_type": "code",
    "source": "1 + 1",
    "metadata": {},
    "outputs": [],
    "execution_count": None,
    "id": "a",
}
NOTEBOOK = {"cells": [CELL], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


@pytest.fixture
def original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return its application, whose home is a folder of the test."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OPEN_TERMINAL_API_KEY", KEY)
    monkeypatch.setenv("OPEN_TERMINAL_LOG_DIR", str(tmp_path / ".logs"))
    monkeypatch.chdir(tmp_path)
    return importlib.import_module("open_terminal.main").app


def routes_of(table: Any, prefix: str = "") -> set[tuple[str, str]]:
    """Return the methods and paths of an application of FastAPI, with the routers that it includes."""
    found: set[tuple[str, str]] = set()
    for route in table:
        if (inner := getattr(route, "original_router", None)) is not None:
            found |= routes_of(inner.routes)
        elif (path := getattr(route, "path", None)) is not None and path not in PAGES:
            found |= {(method, prefix + path) for method in getattr(route, "methods", None) or ("WEBSOCKET",)}
    return found


def test_each_route_of_the_original_is_here(original: Any) -> None:
    ours = {(method, path) for method, path, _ in open_terminal.ROUTES}
    ours |= {("GET", path) for path, _ in open_terminal.PUBLIC} - {("GET", path) for path in PAGES}
    ours.add(("WEBSOCKET", open_terminal_sockets.SOCKET))
    theirs = routes_of(original.routes)
    source = inspect.getsource(importlib.import_module("open_terminal.utils.notebooks"))
    for method, path in re.findall(r'@router\.(\w+)\(\s*"([^"]*)"', source):
        theirs.add((method.upper(), f"/notebooks{path}"))
    theirs = {(method, path) for method, path in theirs if not (method == "HEAD" and "proxy" not in path)}
    assert len(theirs) > 40
    assert ours == theirs


def parts(operation: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    """Return what a client needs of an operation."""
    given = {one["name"]: (one["in"], one.get("required", False)) for one in operation.get("parameters", [])}
    body: dict[str, Any] = operation.get("requestBody", {})
    schema = body.get("content", {}).get("application/json", {}).get("schema", {})
    if "$ref" in schema:
        schema = whole["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    properties, required = set(schema.get("properties", {})), set(schema.get("required", []))
    return {"id": operation["operationId"], "given": given, "body": properties, "required": required}


def test_the_tools_that_open_webui_makes_of_the_page_are_the_same(original: Any) -> None:
    theirs, ours = original.openapi(), page("1")
    assert ours["info"]["title"] == theirs["info"]["title"]
    for whole in (theirs, ours):
        assert len(whole["paths"]) > 10
    described = [
        {
            (path, method): parts(operation, whole)
            for path, one in whole["paths"].items()
            for method, operation in one.items()
        }
        for whole in (theirs, ours)
    ]
    assert described[0] == described[1]


def shape(value: Any) -> Any:
    """Return which fields a value of JSON has."""
    if isinstance(value, dict):
        return {name: shape(one) for name, one in value.items()}
    return [shape(value[0])] if isinstance(value, list) and value else None


async def answers(client: httpx2.AsyncClient) -> dict[str, Any]:
    """Ask all that there is, and return how each is answered."""
    found: dict[str, Any] = {}

    async def ask(name: str, method: str, path: str, **given: Any) -> Any:
        answer = await client.request(method, path, **given)
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        said = answer.json() if is_json else None
        found[name] = (answer.status_code, shape(said) if answer.is_success else None)
        return said

    home = (await ask("cwd", "GET", "/files/cwd"))["home"]
    await ask("health", "GET", "/health")
    await ask("config", "GET", "/api/config")
    await ask("system", "GET", "/system")
    await ask("write", "POST", "/files/write", json={"path": "d/a.py", "content": "a\nb\n"})
    await ask("list", "GET", "/files/list?directory=d")
    await ask("list nothing", "GET", "/files/list?directory=none")
    await ask("go", "POST", "/files/cwd", json={"path": f"{home}/d"})
    await ask("read", "GET", "/files/read?path=a.py&start_line=2&end_line=null")
    await ask("read nothing", "GET", "/files/read?path=none")
    await ask("display", "GET", "/files/display?path=a.py")
    await ask("view", "GET", f"/files/view?path={home}/d/a.py")
    await ask("serve", "GET", f"/files/serve{home}/d/a.py")
    chunk = {"target": "a", "replacement": "c"}
    await ask("replace", "POST", "/files/replace", json={"path": "a.py", "replacements": [chunk]})
    await ask("replace nothing", "POST", "/files/replace", json={"path": "a.py", "replacements": [chunk]})
    await ask("grep", "GET", "/files/grep?query=b")
    await ask("grep files", "GET", "/files/grep?query=b&match_per_line=false")
    await ask("grep wrong", "GET", "/files/grep?query=(")
    await ask("glob", "GET", "/files/glob?pattern=*.py")
    await ask("search", "GET", "/files/search?query=a")
    await ask("matches", "GET", "/files/matches?query=b")
    await ask("mkdir", "POST", "/files/mkdir", json={"path": f"{home}/x/y"})
    move = {"source": f"{home}/d/a.py", "destination": f"{home}/d/b.py"}
    await ask("move", "POST", "/files/move", json=move)
    await ask("move nothing", "POST", "/files/move", json=move)
    await ask("move onto", "POST", "/files/move", json={"source": f"{home}/x", "destination": f"{home}/d/b.py"})
    await ask("upload", "POST", f"/files/upload?directory={home}/x", files={"file": ("u.bin", b"\xff")})
    await ask("read bytes", "GET", f"/files/read?path={home}/x/u.bin")
    await ask("archive", "POST", "/files/archive", json={"paths": [f"{home}/d"]})
    await ask("delete", "DELETE", f"/files/delete?path={home}/x")
    await ask("delete nothing", "DELETE", f"/files/delete?path={home}/x")
    await ask("skills", "GET", "/skills")
    await ask("no skill", "GET", "/skills/read?name=x")
    await ask("execute", "POST", "/execute?wait=20", json={"command": "echo out"})
    begun = await ask("begin", "POST", "/execute", json={"command": "cat"})
    await ask("list commands", "GET", "/execute")
    await ask("status", "GET", f"/execute/{begun['id']}/status?wait=0.1")
    await ask("input", "POST", f"/execute/{begun['id']}/input", json={"input": "x\\n"})
    await ask("kill", "DELETE", f"/execute/{begun['id']}")
    await ask("gone", "GET", f"/execute/{begun['id']}/status")
    await ask("no shell", "GET", "/api/terminals/user/output")
    made = await ask("terminal", "POST", "/api/terminals")
    await ask("terminals", "GET", "/api/terminals")
    await ask("one terminal", "GET", f"/api/terminals/{made['id']}")
    await ask("end of it", "DELETE", f"/api/terminals/{made['id']}")
    await ask("no terminal", "GET", f"/api/terminals/{made['id']}")
    await ask("notebook", "POST", "/files/write", json={"path": f"{home}/n.ipynb", "content": json.dumps(NOTEBOOK)})
    session = (await ask("session", "POST", "/notebooks", json={"path": f"{home}/n.ipynb"}))["id"]
    await ask("cell", "POST", f"/notebooks/{session}/execute", json={"cell_index": 0})
    await ask("cell that fails", "POST", f"/notebooks/{session}/execute", json={"cell_index": 0, "source": "1/0"})
    await ask("no cell", "POST", f"/notebooks/{session}/execute", json={"cell_index": 7})
    await ask("session now", "GET", f"/notebooks/{session}")
    await ask("session's end", "DELETE", f"/notebooks/{session}")
    await ask("no session", "GET", f"/notebooks/{session}")
    return found


async def test_answers_have_the_same_fields(original: Any, server: Server) -> None:
    headers = {"X-User-Id": "u", "X-Session-Id": "c"}

    async def asked(base: str, key: str, **given: Any) -> dict[str, Any]:
        said = {**headers, "Authorization": f"Bearer {key}"}
        async with httpx2.AsyncClient(base_url=base, headers=said, timeout=120, **given) as client:
            return await answers(client)

    theirs = await asked("http://localhost", KEY, transport=httpx2.ASGITransport(original))
    ours = await asked(f"{server.url}/open-terminal", TOKENS["ann"])
    assert len(ours) > 50
    del ours["list"][1]["complete"]  # ours alone: whether a list of files is whole (docs/files.md)
    assert {name: (one, theirs[name]) for name, one in ours.items() if one != theirs[name]} == {}
