"""The notebook of a sandbox: the cells of all wires, within its bounds."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import nbformat

from sandbox_kernel.core.call_context import caller
from sandbox_kernel.core.model import Message
from sandbox_kernel.plugins.serve.jupyter import history as jupyter_history
from sandbox_kernel.plugins.serve.jupyter.history import History
from sandbox_kernel.plugins.serve.jupyter.rest import title
from sandbox_kernel.session.requests.queue import PendingRequest


def cell(number: int, who: str = "e2b ann") -> PendingRequest:
    token = caller.set(who)
    header = {"msg_id": f"cell-{number}", "msg_type": "execute_request"}
    found = PendingRequest(Message(channel="shell", header=header), b"", "shell")
    caller.reset(token)
    return found


def say(history: History, request: PendingRequest, kind: str, **content: Any) -> None:
    history.take(Message(channel="iopub", header={"msg_type": kind}, content=content), request)


def begin(history: History, number: int, code: str = "x", who: str = "e2b ann") -> PendingRequest:
    request = cell(number, who)
    say(history, request, "execute_input", code=code, execution_count=number)
    return request


def cells(history: History) -> list[dict[str, Any]]:
    document = history.notebook("a chat", "python")
    nbformat.validate(document)
    found: list[dict[str, Any]] = document["cells"]
    return found


def test_each_kind_of_output_is_there_with_who_asked() -> None:
    history = History()
    one, two = begin(history, 1, "first"), begin(history, 2, "second", "jupyter ann/alice b")
    for text in ("a", "b"):
        say(history, one, "stream", name="stdout", text=text)
    say(history, one, "stream", name="stderr", text="c")
    say(history, one, "display_data", data={"text/plain": "old"}, metadata={}, transient={"display_id": "d"})
    say(history, two, "update_display_data", data={"text/plain": "new"}, metadata={}, transient={"display_id": "d"})
    say(history, two, "execute_result", data={"text/plain": "4"}, metadata={}, execution_count=2)
    say(history, two, "error", ename="E", evalue="v", traceback=["t"])
    first, second = cells(history)
    assert (first["source"], first["execution_count"]) == ("first", 1)
    assert [one.get("text") or one["data"] for one in first["outputs"]] == ["ab", "c", {"text/plain": "new"}]
    assert [one["output_type"] for one in second["outputs"]] == ["execute_result", "error"]
    about = second["metadata"]["sandbox"]
    assert (about["wire"], about["who"]) == ("jupyter", "ann/alice b")


def test_what_a_cell_clears_is_not_there() -> None:
    history = History()
    one = begin(history, 1)
    say(history, one, "stream", name="stdout", text="a")
    say(history, one, "clear_output", wait=True)
    assert [output["text"] for output in cells(history)[0]["outputs"]] == ["a"]
    say(history, one, "stream", name="stdout", text="b")
    assert [output["text"] for output in cells(history)[0]["outputs"]] == ["b"]
    say(history, one, "clear_output", wait=False)
    assert cells(history)[0]["outputs"] == []


def test_the_oldest_cells_make_room() -> None:
    history = History()
    for number in range(1, jupyter_history.MAX_CELLS + 3):
        begin(history, number)
    head, *rest = cells(history)
    assert (head["cell_type"], head["source"]) == ("markdown", "2 earlier cells are not in this notebook.\n")
    assert [one["execution_count"] for one in (rest[0], rest[-1])] == [3, jupyter_history.MAX_CELLS + 2]


def test_bytes_are_bounded_of_a_cell_and_of_all() -> None:
    history = History()
    for number in range(1, 10):
        one = begin(history, number)
        for _ in range(100):
            say(history, one, "stream", name="stdout", text="x" * 50_000)
        say(history, one, "display_data", data={"text/plain": "y" * 2_000_000}, metadata={}, transient={})
    found = cells(history)
    assert [one["cell_type"] for one in found] == ["markdown"] + ["code"] * (len(found) - 1)
    size = sum(len(output["text"]) for one in found[1:] for output in one["outputs"])
    assert jupyter_history.MAX_BYTES // 2 < size <= jupyter_history.MAX_BYTES
    assert "what came after this" in found[-1]["outputs"][-1]["text"]
    begin(history, 10, "z" * (2 << 20))
    assert "what came after this" in cells(history)[-1]["source"]


def test_a_name_of_any_length_costs_little() -> None:
    class Long(str):
        __slots__ = ()

        def __iter__(self) -> Iterator[str]:
            raise AssertionError("all of it is looked at")

    lease: Any = SimpleNamespace(sandbox=SimpleNamespace(metadata={"name": Long("a\n" * 100)}))
    assert title(lease) == "a" * 60


def test_an_update_looks_at_the_displays_of_its_name_alone() -> None:
    history = History()
    data: dict[str, Any] = {"metadata": {}, "transient": {"display_id": "d"}}
    first, second = begin(history, 1), begin(history, 2)
    for request in (first, second):
        for _ in range(60):
            say(history, request, "display_data", data={"text/plain": "old"}, **data)
            say(history, request, "display_data", data={"text/plain": "x"}, metadata={}, transient={"display_id": "e"})
    say(history, second, "update_display_data", data={"text/plain": "new"}, **data)
    shown = [[one["data"]["text/plain"] for one in each["outputs"]].count("new") for each in cells(history)]
    assert shown == [jupyter_history.MAX_PLACES - 60, 60]
    say(history, second, "clear_output", wait=False)
    say(history, second, "update_display_data", data={"text/plain": "newer"}, **data)
    assert [one["data"]["text/plain"] for one in cells(history)[0]["outputs"]].count("newer") == 40
    for number in range(3, 4 + jupyter_history.MAX_CELLS):
        begin(history, number)
    assert history._displays == {}  # noqa: SLF001 (what is forgotten is not kept here)
