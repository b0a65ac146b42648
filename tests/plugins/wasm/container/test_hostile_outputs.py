"""All hostile outputs of the corpus, out of a guest's own kernel: the fuzzers' judge finds none of them harmful."""

from __future__ import annotations

from typing import Literal

import pytest

from fuzz import judge
from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.core.model import Message, Settings
from sandbox_kernel.plugins.wasm.engine import WasmEngine
from sandbox_kernel.plugins.wasm.image import COMMAND, find
from sandbox_kernel.session.session import Session
from tests.support import corpus
from tests.support.fronts import Front

pytestmark = pytest.mark.xdist_group("wasm")
PRELUDE = """
import ipywidgets as w
from IPython.display import display
ip, VIEW = get_ipython(), "application/vnd.jupyter.widget-view+json"
def send(kind, content, parent=None, metadata=None):
    ip.kernel.publish(kind, content, metadata=metadata)
def show(data):
    send("display_data", dict(data=data, metadata={}, transient={}))
"""


def judged(messages: list[Message], mode: str) -> list[str]:
    """Return why messages that passed are harmful."""
    models: dict[str, str] = {}
    found = []
    for one in messages:
        try:
            if one.type == "comm_open":
                models[one.content["comm_id"]] = str(one.content["data"]["state"].get("_model_name"))
            judge.message(one, mode=mode, models=models)
        except (judge.Unsafe, LookupError, TypeError, AttributeError) as error:
            found.append(f"{one.type}: {error!r}")
    return found


async def passed(outputs: Literal["safe", "trusted"]) -> tuple[list[Message], int]:
    """Return what a front end gets of all of them, and how many of their cells ended well."""
    pytest.importorskip("wasmtime", reason="the extra wasm is not installed: `make test-wasm` installs it")
    try:
        find("sandbox-kernel:data")
    except EngineError as error:
        pytest.skip(f"{error.message}; `make test-wasm` runs `{COMMAND}`")
    front = Front()
    front.session = Session(Settings(engine="wasm", outputs=outputs), WasmEngine(), front)
    try:
        assert (await front.run(PRELUDE, 60))["status"] == "ok"
        chosen = list(corpus.attacks(1))
        ended = [(await front.run(one.code, 60))["status"] for one in chosen]
    finally:
        await front.session.close()
    kinds = ("display_data", "execute_result", "update_display_data", "stream", "error", "comm_open", "comm_msg")
    return [one for one in front.delivered if one.type in kinds], ended.count("ok")


async def test_none_that_passes_is_harmful() -> None:
    messages, ended = await passed("safe")
    assert ended > 200
    assert judged(messages, "safe") == []


async def test_control_they_are_harmful_if_they_are_trusted() -> None:
    messages, _ = await passed("trusted")
    assert len(judged(messages, "safe")) > 100
