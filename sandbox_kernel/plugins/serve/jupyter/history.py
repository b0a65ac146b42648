"""The cells that ran in a sandbox, whoever asked for them, as a notebook: bounded, with what the policy let pass."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ....core import json_memory
from ....core.model import Message
from ....policy import protocol
from ...api import SessionRequest

MAX_CELLS = 500
MAX_BYTES = 4 << 20
"""Of memory for all cells of a sandbox; the oldest make room."""
MAX_CELL_BYTES = 1 << 20
PIECE_BYTES = 100
"""What a piece of text costs beside its characters."""
MAX_PLACES = 100
"""Outputs that one update of a display replaces: the newest of its name."""
CUT = "[what came after this is not in this notebook: it keeps {0:,} bytes of a cell]\n"


@dataclass(slots=True)
class _Cell:
    code: str
    count: int
    caller: str
    begun: datetime
    bytes: int
    outputs: list[dict[str, Any]] = field(default_factory=list)
    clears: bool = False
    """Whether its next output replaces those before it."""
    is_cut: bool = False


class History:
    def __init__(self) -> None:
        self._cells: OrderedDict[str, _Cell] = OrderedDict()
        self._displays: dict[str, dict[int, tuple[_Cell, dict[str, Any]]]] = {}
        """Outputs by the names of their displays, and by what tells one from another."""
        self._bytes = self._left_out = 0

    def take(self, message: Message, request: SessionRequest) -> None:
        """Note what was published of a cell."""
        if message.type == "execute_input":
            code = str(message.content.get("code", ""))
            cell = _Cell(
                code if len(code) <= MAX_CELL_BYTES else CUT.format(MAX_CELL_BYTES),
                int(message.content.get("execution_count") or 0),
                request.caller,
                datetime.now(UTC),
                0,
            )
            if (old := self._cells.pop(request.id, None)) is not None:  # an id of a cell that is long forgotten
                self._forget(old)
            self._cells[request.id] = cell
            self._grow(cell, json_memory.kept(protocol.dumps(cell.code)) + PIECE_BYTES)
        elif (known := self._cells.get(request.id)) is not None:
            match message.type:
                case "clear_output":
                    known.clears = True
                    if not message.content.get("wait"):
                        self._clear(known)
                case "stream" | "error" | "display_data" | "execute_result":
                    if known.clears:
                        self._clear(known)
                    self._add(known, message.type, message.content)
                case "update_display_data":
                    self._update(message.content)

    def _forget(self, cell: _Cell) -> None:
        self._bytes -= cell.bytes
        self._undisplay(cell)

    def _undisplay(self, cell: _Cell) -> None:
        for one in cell.outputs:
            name = _display(one["content"]) if "content" in one else None
            if name is not None and (places := self._displays.get(name)) is not None:
                places.pop(id(one), None)
                if not places:
                    del self._displays[name]

    def _clear(self, cell: _Cell) -> None:
        self._undisplay(cell)
        self._grow(cell, -sum(one["bytes"] for one in cell.outputs))
        cell.outputs, cell.clears, cell.is_cut = [], False, False

    def _add(self, cell: _Cell, kind: str, content: Mapping[str, Any]) -> None:
        if cell.is_cut:
            return
        size = PIECE_BYTES + json_memory.kept(protocol.dumps(content))
        if cell.bytes + size > MAX_CELL_BYTES:
            cell.is_cut = True
            kind, content = "stream", {"name": "stderr", "text": CUT.format(MAX_CELL_BYTES)}
            size = PIECE_BYTES
        last = cell.outputs[-1] if cell.outputs else None
        if kind == "stream" and last is not None and last["kind"] == kind and last["name"] == content["name"]:
            last["text"].append(content["text"])
            last["bytes"] += size
        elif kind == "stream":
            cell.outputs.append({"kind": kind, "bytes": size, "name": content["name"], "text": [content["text"]]})
        else:
            one = {"kind": kind, "bytes": size, "content": content}
            cell.outputs.append(one)
            if (name := _display(content)) is not None:
                places = self._displays.setdefault(name, {})
                places[id(one)] = cell, one
                if len(places) > MAX_PLACES:
                    del places[next(iter(places))]
        self._grow(cell, size)

    def _update(self, content: Mapping[str, Any]) -> None:
        """Replace a display in each cell that has it."""
        name, size = _display(content), PIECE_BYTES + json_memory.kept(protocol.dumps(content))
        for cell, one in self._displays.get(name, {}).values() if name is not None else ():
            more = size - one["bytes"]
            if cell.bytes + more <= MAX_CELL_BYTES:
                one["content"] = {**one["content"], "data": content["data"], "metadata": content["metadata"]}
                one["bytes"] = size
                cell.bytes += more
                self._bytes += more
        self._make_room()

    def _grow(self, cell: _Cell, size: int) -> None:
        cell.bytes += size
        self._bytes += size
        self._make_room()

    def _make_room(self) -> None:
        while len(self._cells) > MAX_CELLS or (self._bytes > MAX_BYTES and len(self._cells) > 1):
            _, old = self._cells.popitem(last=False)
            self._forget(old)
            self._left_out += 1

    def notebook(self, title: str, language: str) -> dict[str, Any]:
        """Return it in the format of notebooks, version 4.5."""
        cells: list[dict[str, Any]] = []
        head = f"{self._left_out} earlier cells are not in this notebook.\n" if self._left_out else ""
        if head:
            cells.append({"cell_type": "markdown", "id": "left-out", "metadata": {}, "source": head})
        cells += [_code_cell(number, cell) for number, cell in enumerate(self._cells.values(), 1)]
        return {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {
                "kernelspec": {"name": "python3", "display_name": title, "language": language},
                "language_info": {"name": language},
                "sandbox": {"name": title},
            },
            "cells": cells,
        }


def _display(content: Mapping[str, Any]) -> str | None:
    transient = content.get("transient")
    name = transient.get("display_id") if isinstance(transient, Mapping) else None
    return name if isinstance(name, str) else None


def _code_cell(number: int, cell: _Cell) -> dict[str, Any]:
    wire, _, who = cell.caller.partition(" ")
    return {
        "cell_type": "code",
        "id": f"cell-{number}",
        "metadata": {"sandbox": {"wire": wire, "who": who, "started": cell.begun.isoformat()}},
        "execution_count": cell.count or None,
        "source": cell.code,
        "outputs": [_as_output(one) for one in cell.outputs],
    }


def _as_output(one: Mapping[str, Any]) -> dict[str, Any]:
    kind = one["kind"]
    if kind == "stream":
        return {"output_type": kind, "name": one["name"], "text": "".join(one["text"])}
    content = one["content"]
    if kind == "error":
        return {"output_type": kind, **{name: content[name] for name in ("ename", "evalue", "traceback")}}
    found = {"output_type": kind, "data": content["data"], "metadata": content.get("metadata") or {}}
    if kind == "execute_result":
        found["execution_count"] = content.get("execution_count")
    return found
