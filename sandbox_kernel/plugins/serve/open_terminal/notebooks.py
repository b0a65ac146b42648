"""Open Terminal's wire: notebooks of a user, whose cells run one by one, each notebook in a kernel of its own."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.responses import Response

from ....core.codes import UsageCode
from ....sdk.execution import Execution
from ..requests import Refusal, answer, object_of, while_there
from .bodies import PathBody, RunCell
from .user import UserRequest, missing

MAX_NOTEBOOKS = 8
"""Of one user."""
MAX_BYTES = 16 << 20
MAX_MEMORY = 160 << 20
"""Bytes that a notebook may cost once it is parsed: the sandbox wrote it."""


@dataclass(slots=True, eq=False)
class Notebook:
    id: str
    path: str
    kernel: str
    context: Any = None
    busy: bool = False

    def about(self) -> dict[str, Any]:
        status = "busy" if self.busy else "ready"
        return {"id": self.id, "path": self.path, "kernel": self.kernel, "status": status}


async def _content(asked: UserRequest, path: str) -> dict[str, Any]:
    """Return a notebook. Raises `Refusal` for what is none."""
    content, size = await asked.sandbox.files.read_part(path, 0, MAX_BYTES)
    found = object_of(bytes(content), MAX_MEMORY) if size <= MAX_BYTES else None
    cells = None if found is None else found.get("cells")
    if found is None or not isinstance(cells, list) or not all(isinstance(one, dict) for one in cells):
        raise Refusal(400, UsageCode.WRONG_ARGUMENT, "Invalid notebook")
    return found


async def create(asked: UserRequest, body: PathBody) -> Response:
    """Start a kernel for a notebook."""
    path = asked.path(body.path)
    if not await asked.is_file(path):
        raise missing("Notebook")
    if len(asked.box.notebooks) >= MAX_NOTEBOOKS:
        raise Refusal(429, UsageCode.WRONG_ARGUMENT, f"You have {MAX_NOTEBOOKS} notebooks, which is the limit. End one")
    metadata = (await _content(asked, path)).get("metadata")
    spec = metadata.get("kernelspec") if isinstance(metadata, dict) else None
    kernel = spec.get("name") if isinstance(spec, dict) else None
    kernel = kernel if isinstance(kernel, str) and kernel else "python3"
    notebook = Notebook(secrets.token_hex(8), path, kernel)
    asked.box.notebooks[notebook.id] = notebook
    try:
        notebook.context = await asked.sandbox.create_context(kernel)
    except BaseException:
        del asked.box.notebooks[notebook.id]
        raise
    return answer({"id": notebook.id, "kernel": kernel, "status": "ready"})


def _known(asked: UserRequest) -> Notebook:
    found = asked.box.notebooks.get(asked.request.path_params["session_id"])
    if not isinstance(found, Notebook) or found.context is None:
        raise missing("Session")
    return found


async def show(asked: UserRequest) -> Response:
    """Say how a notebook is."""
    return answer(_known(asked).about())


async def remove(asked: UserRequest) -> Response:
    """End the kernel of a notebook."""
    notebook = _known(asked)
    del asked.box.notebooks[notebook.id]
    await asked.sandbox.remove_context(notebook.context)
    return answer({"status": "stopped"})


async def execute(asked: UserRequest, body: RunCell) -> Response:
    """Run a cell, and write its outputs into the notebook."""
    notebook, index = _known(asked), body.cell_index
    if notebook.busy:
        raise Refusal(409, UsageCode.WRONG_ARGUMENT, "Cell already executing")
    notebook.busy = True
    asked.box.lease.calls += 1
    try:
        found = await _content(asked, notebook.path)
        cells = found["cells"]
        if not 0 <= index < len(cells):
            words = f"cell_index {index} out of range (0..{len(cells) - 1})"
            raise Refusal(400, UsageCode.WRONG_ARGUMENT, words)
        cell = cells[index]
        if body.source is not None:
            cell["source"] = body.source
        given = cell.get("source", "")
        code = "".join(map(str, given)) if isinstance(given, list) else str(given)
        done = await while_there(asked.request, asked.sandbox.run_code(code, context=notebook.context))
        cell["outputs"], cell["execution_count"] = outputs(done), done.execution_count
        await asked.sandbox.files.write(notebook.path, orjson.dumps(found, option=orjson.OPT_INDENT_2))
    finally:
        notebook.busy = False
        asked.box.lease.calls -= 1
    status = "ok" if done.ok else "error"
    return answer({"status": status, "execution_count": done.execution_count, "outputs": cell["outputs"]})


def outputs(done: Execution) -> list[dict[str, Any]]:
    """Return what a cell brought as a notebook has it."""
    found: list[dict[str, Any]] = []
    for name, pieces in (("stdout", done.logs.stdout), ("stderr", done.logs.stderr)):
        if pieces:
            found.append({"output_type": "stream", "name": name, "text": "".join(pieces)})
    for result in done.results:
        row: dict[str, Any] = {"data": dict(result.data), "metadata": dict(result.metadata)}
        if result.is_main_result:
            row |= {"output_type": "execute_result", "execution_count": done.execution_count}
        else:
            row["output_type"] = "display_data"
        found.append(row)
    if (error := done.error) is not None:
        trace = error.traceback.splitlines()
        found.append({"output_type": "error", "ename": error.name, "evalue": error.value, "traceback": trace})
    return found


ROUTES = (
    ("POST", "/notebooks", create),
    ("POST", "/notebooks/{session_id}/execute", execute),
    ("GET", "/notebooks/{session_id}", show),
    ("DELETE", "/notebooks/{session_id}", remove),
)
