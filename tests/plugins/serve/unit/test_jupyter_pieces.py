"""Messages that are larger than a client takes: they come in pieces, smaller, or as a file, and never too large."""

from __future__ import annotations

import base64
import os
from typing import Any

import orjson
import pytest

from sandbox_kernel.core.codes import FileCode
from sandbox_kernel.core.errors import FileRefused
from sandbox_kernel.core.model import Message
from sandbox_kernel.plugins.serve.jupyter.messages import Outgoing
from sandbox_kernel.plugins.serve.jupyter.pieces import fits, limit_of, pieces

LIMIT = limit_of("Python/3.12 websockets/16.0") or 0
PICTURE = base64.b64encode(os.urandom(1 << 20)).decode()


def outgoing(kind: str, content: dict[str, Any], channel: Any = "iopub", **more: Any) -> Outgoing:
    header = {"msg_id": "m_1", "msg_type": kind, "session": "s"}
    given: dict[str, Any] = {"parent": {"msg_id": "p", "msg_type": "execute_request"}, "metadata": {}} | more
    return Outgoing(Message(channel=channel, header=header, content=content, **given))


class Kept(dict[str, bytes]):
    async def keep(self, path: str, content: bytes) -> None:
        self[path] = content


async def sent(message: Outgoing, kept: Kept | None = None, limit: int = LIMIT) -> list[dict[str, Any]]:
    """Return the contents of what comes in place of a message, of which each fits in both forms."""
    assert not fits(message, limit)
    assert len(message.in_parts) > limit  # the control: its client would close over it
    found = await pieces(message, limit, (kept if kept is not None else Kept()).keep)
    for one in found:
        for data in (one.in_json, one.in_parts):
            assert len(data.encode() if isinstance(data, str) else data) <= limit
        assert orjson.loads(one.in_json)["parent_header"]["msg_id"] == "p"
    assert len({orjson.loads(one.in_json)["msg_id"] for one in found}) == len(found)
    return [{"type": one.type, **orjson.loads(one.content)} for one in found]


def test_what_a_client_takes_follows_from_its_library() -> None:
    assert LIMIT == 1 << 20
    for agent in ("", "Mozilla/5.0", "python-requests/2"):
        assert limit_of(agent) is None
    assert fits(outgoing("stream", {"name": "stdout", "text": "x" * (1 << 25)}), None)


@pytest.mark.parametrize("text", ["x" * 3_000_000, "é" * 800_000, '\0\x1b\n"\\' * 400_000, "😀" * 500_000])
async def test_text_comes_in_pieces(text: str) -> None:
    found = await sent(outgoing("stream", {"name": "stderr", "text": text}))
    assert "".join(one["text"] for one in found) == text
    assert {(one["type"], one["name"]) for one in found} == {("stream", "stderr")}


@pytest.mark.parametrize("kind", ["display_data", "execute_result", "update_display_data"])
async def test_a_picture_that_is_too_large_is_a_file(kind: str) -> None:
    kept = Kept()
    message = outgoing(
        kind, {"data": {"image/png": PICTURE, "text/plain": "<Figure>"}, "metadata": {}, "transient": {}}
    )
    (found,) = await sent(message, kept)
    ((path, content),) = kept.items()
    assert content == base64.b64decode(PICTURE)
    assert path.endswith(".png")
    assert found["type"] == kind
    assert found["data"].keys() == {"text/plain"}
    assert found["data"]["text/plain"].startswith("<Figure>\n[image/png of 1.3 MiB is not shown")
    assert path in found["data"]["text/plain"]


async def test_of_several_forms_those_that_fit_come() -> None:
    kept = Kept()
    data = {"text/html": "<p>" * 500_000, "image/png": PICTURE[:4000], "text/plain": "a figure"}
    (found,) = await sent(outgoing("display_data", {"data": data, "metadata": {}}), kept)
    assert found["data"] == {"image/png": PICTURE[:4000], "text/plain": "a figure"}
    assert kept == {}  # it is the same output
    del data["image/png"]
    (found,) = await sent(outgoing("display_data", {"data": data, "metadata": {}}), kept)
    assert list(kept.values()) == [data["text/html"].encode()]
    assert ".html]" in found["data"]["text/plain"]


async def test_a_file_that_cannot_be_kept_is_said() -> None:
    async def keep(path: str, content: bytes) -> None:
        raise FileRefused(FileCode.SCRATCH_FULL)

    (found,) = await pieces(outgoing("display_data", {"data": {"image/png": PICTURE}}), LIMIT, keep)
    assert "could not be kept" in orjson.loads(found.content)["data"]["text/plain"]


async def test_a_long_error_keeps_its_ends() -> None:
    content = {
        "ename": "ValueError",
        "evalue": "v" * 2_000_000,
        "traceback": ["begin" + "x" * 2_000_000, "\0" * 999_999 + "end"],
    }
    for kind, channel, more in (("error", "iopub", {}), ("execute_reply", "shell", {"status": "error"})):
        (found,) = await sent(outgoing(kind, content | more, channel))
        assert found["ename"] == "ValueError"
        assert found["traceback"][0].startswith("begin")
        assert found["traceback"][-1].endswith("end")
        assert "are left out" in found["traceback"][1]


async def test_whatever_else_is_too_large_is_said() -> None:
    large = {"x": "y" * 2_000_000}
    (found,) = await sent(outgoing("comm_msg", {"comm_id": "c", "data": large}))
    assert (found["type"], found["name"]) == ("stream", "stderr")
    assert "a message (comm_msg) of 1.9 MiB is left out" in found["text"]
    (found,) = await sent(outgoing("history_reply", {"status": "ok", "history": [large]}, "shell"))
    assert (found["type"], found["status"], found["ename"]) == ("history_reply", "error", "output-too-large")
    (found,) = await sent(outgoing("comm_msg", {"comm_id": "c", "data": {}}, buffers=(bytes(2_000_000),)))
    assert found["type"] == "stream"
