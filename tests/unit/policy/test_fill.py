"""What single outputs cost a browser fills the page of their cell: costly ones do not add up, honest ones all fit."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import struct
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandbox_kernel.core.errors import SandboxError
from sandbox_kernel.core.events import OutputRemoved, SessionEvent
from sandbox_kernel.core.model import Message, Settings
from sandbox_kernel.policy import svg, tex
from sandbox_kernel.policy.allowance import of_formulas
from sandbox_kernel.policy.display_budget import MAX_ERRORS
from sandbox_kernel.policy.output_policy import OutputPolicy
from sandbox_kernel.session.requests.host_words import place_of
from sandbox_kernel.session.requests.queue import PendingRequest, RequestQueue
from sandbox_kernel.session.requests.request_states import RequestEvent
from sandbox_kernel.session.serving import large_outputs
from sandbox_kernel.session.serving.large_outputs import Overflow
from tests.support import ROOT
from tests.support.cases import each
from tests.support.policy.messages import CELL, filtered, message, model, update

VIEW = "application/vnd.jupyter.widget-view+json"
FORMULA = f"${'x' * 290}$"
COSTLY: dict[str, dict[str, Any]] = {
    "formulas": {"text/html": "<p>" + f"{FORMULA} " * 40 + "</p>"},
    "latex": {"text/latex": "$$" + "x" * 9_900 + "$$"},
    "SVG": {
        "image/svg+xml": "<svg xmlns='http://www.w3.org/2000/svg' width='2000' height='4000'>"
        + "<rect width='2000' height='4000' opacity='.9'/>" * 450
        + "</svg>"
    },
    "text": {"text/html": "<p>" + "ab " * 160_000 + "</p>"},
    "Markdown": {"text/markdown": "# a\n\n" + f"{FORMULA}\n\n" * 40},
}


def picture(pixels: int) -> str:
    """Return the head of a PNG, in base64, that claims so many pixels."""
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">IIBBBBB", 1000, pixels // 1000, 8, 2, 0, 0, 0)
    return base64.b64encode(head).decode()


COSTLY["PNG"] = {"image/png": picture(90_000_000)}
COSTLY["PNGs of a page"] = {"text/html": f'<img src="data:image/png;base64,{picture(15_000_000)}">' * 6}


class Tab:
    """What a front end gets of a session: the real policy, its way out and pages; nothing writes files."""

    def __init__(self) -> None:
        self.shown: list[Message] = []
        self.noted: list[str] = []
        """Codes of what the policy removed."""
        self.requests: dict[str, PendingRequest] = {}
        requests = SimpleNamespace(queue=SimpleNamespace(find=self.requests.get), call_after_cells=lambda ask: None)
        session = SimpleNamespace(settings=Settings(), ask=self._ask, emit=self._emit, requests=requests)
        self.overflow = Overflow(cast("Any", session), self.shown.append)
        self._policy = OutputPolicy("safe")

    def send(self, *messages: Message) -> int:
        """Return how many of the messages reach the page."""
        return asyncio.run(self._send(messages))

    async def _send(self, messages: Iterable[Message]) -> int:
        passed = 0
        for sent in messages:
            name = str(sent.parent["msg_id"])
            if name not in self.requests:
                header = {"msg_id": name, "msg_type": "comm_msg" if name.startswith("comm") else "execute_request"}
                asked = Message(channel="shell", header=header, content={"allow_stdin": True})
                self.requests[name] = PendingRequest(asked, b"", "shell")
            before = len(self.shown)
            self._publish(sent, self.requests[name])
            passed += any(one.type == sent.type for one in self.shown[before:])
        return passed

    def _publish(self, sent: Message, request: PendingRequest) -> None:
        asked = request.message
        verdict = self._policy.apply(replace(sent, parent=dict(asked.header)), place_of(request), asked.content)
        self.noted += [note.code.code for note in verdict.notes]
        if verdict.message is not None:
            self.overflow.publish(replace(verdict.message, work=verdict.work))

    def _emit(self, event: SessionEvent) -> None:
        if isinstance(event, OutputRemoved):
            self.noted.append(event.code.code)

    async def _ask(self, *of: Any, **more: Any) -> Any:
        raise SandboxError("no sandbox")


def shows(data: dict[str, Any], name: str | None = None, kind: str = "display_data", parent: str = CELL) -> Message:
    transient = {} if name is None else {"display_id": name}
    return message(kind, {"data": data, "metadata": {}, "transient": transient}, parent=parent)


def changes(data: dict[str, Any], name: str, parent: str = CELL) -> Message:
    return shows(data, name, "update_display_data", parent)


def views(comm_id: str, parent: str = CELL) -> Message:
    return shows({VIEW: {"model_id": comm_id, "version_major": 2, "version_minor": 0}}, parent=parent)


@each("name", COSTLY)
def test_a_costly_output_passes_by_itself(name: str) -> None:
    """The control: what is left out below is not left out for its own sake."""
    data, verdict = filtered(COSTLY[name])
    assert verdict.reasons == ()
    assert 5_000 < verdict.work < 60_000
    assert Tab().send(shows(COSTLY[name])) == 1
    assert data


@pytest.mark.slow
@each("name", COSTLY)
def test_costly_displays_fill_the_page(name: str) -> None:
    """Thirty of each keep a tab for half a minute to two."""
    tab = Tab()
    assert 1 <= tab.send(*[shows(COSTLY[name])] * 30) <= (6 if "PNG" not in name else 9)
    assert "The rest goes into a file" in str(tab.shown)


def test_streams_between_them_change_nothing() -> None:
    tab = Tab()
    text = message("stream", {"name": "stdout", "text": "x\n"})
    assert tab.send(*[shows(COSTLY["formulas"]), text] * 50) <= 8


@pytest.mark.slow
@each("name", ["formulas", "SVG", "text"])
def test_updates_fill_the_page_by_what_they_show(name: str) -> None:
    tab = Tab()
    small = {"text/html": "<b>x</b>"}
    assert tab.send(*[shows(small, f"d{n}") for n in range(50)]) == 50
    assert 1 <= tab.send(*[changes(COSTLY[name], f"d{n}") for n in range(50)]) <= 6
    assert tab.send(changes(small, "d40")) == 1


def test_an_update_counts_for_each_display_of_its_id_in_every_cell() -> None:
    for spread in (lambda n: CELL, lambda n: f"cell-{n % 2}"):
        tab = Tab()
        small = {"text/html": "<b>x</b>"}
        assert tab.send(*[shows(small, "d", parent=spread(n)) for n in range(50)]) == 50
        assert tab.send(changes(COSTLY["formulas"], "d", "another")) == 0
        assert tab.send(shows(COSTLY["formulas"], "d", parent="one more")) == 0
        assert tab.send(changes({"text/html": "<i>y</i>"}, "d", "another")) == 1


def test_what_is_updated_or_cleared_is_not_on_the_page() -> None:
    tab = Tab()
    for n in range(10):
        assert tab.send(shows(COSTLY["text"], f"d{n}"), changes({"text/html": "<b>x</b>"}, f"d{n}")) == 2
    tab = Tab()
    for _ in range(10):
        assert tab.send(shows(COSTLY["text"]), message("clear_output", {"wait": True})) == 2


@pytest.mark.slow
@each("name", ["formulas", "SVG"])
def test_drawing_anew_has_an_end_too(name: str) -> None:
    tab = Tab()
    again = [changes(COSTLY[name], "d"), changes({"text/html": "<b>x</b>"}, "d")]
    assert tab.send(shows(COSTLY[name], "d"), *again * 60) < 100
    tab = Tab()
    assert tab.send(*[shows(COSTLY[name]), message("clear_output", {"wait": True})] * 60) < 110


def test_control_a_table_that_is_drawn_anew_for_long_stays() -> None:
    tab = Tab()
    table = {"text/html": "<table>" + ("<tr>" + "<td>1.25</td>" * 10 + "</tr>") * 60 + "</table>"}
    assert tab.send(shows(table, "d"), *[changes(table, "d")] * 300) == 301


# --- widgets ----------------------------------------------------------------------------------------------------------

MARKUP = COSTLY["formulas"]["text/html"]
WIDGETS: dict[str, Callable[[str], Message]] = {
    "HTMLMath": lambda name: model(name, "HTMLMathModel", value=MARKUP),
    "HTML": lambda name: model(name, "HTMLModel", value=COSTLY["text"]["text/html"]),
    "Label": lambda name: model(name, "LabelModel", value=f"{FORMULA} " * 40),
    "Output": lambda name: model(
        name, "OutputModel", outputs=[{"output_type": "display_data", "data": COSTLY["formulas"], "metadata": {}}]
    ),
}


def on_page(tab: Tab) -> int:
    return sum(one.type == "display_data" and VIEW in one.content["data"] for one in tab.shown)


@pytest.mark.slow
@each("name", WIDGETS)
def test_costly_widgets_fill_the_page(name: str) -> None:
    tab = Tab()
    for n in range(20):
        tab.send(WIDGETS[name](f"w{n}"), views(f"w{n}"))
    assert 1 <= on_page(tab) <= 3


@each("name", WIDGETS)
def test_a_costly_widget_counts_in_each_place(name: str) -> None:
    tab = Tab()
    tab.send(WIDGETS[name]("w"), *[views("w")] * 50)
    assert 1 <= on_page(tab) <= 3
    boxed = Tab()
    boxed.send(WIDGETS[name]("w"), model("box", "BoxModel", children=["IPY_MODEL_w"] * 50), *[views("box")] * 9)
    opened = [one.content["data"]["state"] for one in boxed.shown if one.type == "comm_open"]
    assert [state["children"] for state in opened if "children" in state] == [[]]


def test_a_widget_that_becomes_costly_where_it_is_shown_often_keeps_what_it_had() -> None:
    tab = Tab()
    tab.send(model("w", "HTMLMathModel", value="x"), *[views("w")] * 50, update("w", value=MARKUP))
    assert on_page(tab) == 50
    assert tab.shown[-1].content["data"]["state"] == {}
    assert tab.noted == ["widget-costly"]
    alone = Tab()
    alone.send(model("w", "HTMLMathModel", value="x"), views("w"), update("w", value=MARKUP))
    assert "x" * 290 in alone.shown[-1].content["data"]["state"]["value"]


def test_pictures_of_widgets_count_by_their_pixels() -> None:
    tab = Tab()
    for n in range(30):
        raw = base64.b64decode(picture(90_000_000))
        opened = model(f"i{n}", "ImageModel", format="png")
        content = {**opened.content, "data": {**opened.content["data"], "buffer_paths": [["value"]]}}
        tab.send(replace(opened, content=content, buffers=(raw,)), views(f"i{n}"))
    assert 1 <= on_page(tab) <= 9


def test_control_a_hundred_photos_and_a_picture_that_is_drawn_anew_for_long_stay() -> None:
    tab = Tab()
    assert tab.send(*[shows({"image/png": picture(6_000_000)})] * 100) == 100
    tab = Tab()
    plot = {"image/png": picture(300_000)}
    assert tab.send(shows(plot, "d"), *[changes(plot, "d")] * 1000) == 1001


def test_updates_of_widgets_are_refunded_and_have_an_end() -> None:
    tab = Tab()
    tab.send(model("w", "HTMLMathModel", value="x"), views("w"))
    assert tab.send(*[update("w", value=MARKUP), update("w", value="x")] * 60) < 100
    assert tab.send(update("w", value="the end")) == 1


def ticks(tab: Tab, number: int, *sent: Message) -> int:
    """Return how many of the messages reach the page if each answers another message of a widget in the front end."""
    passed = 0
    for n in range(number):
        parent = {"msg_id": f"comm-{n}"}
        status = replace(message("status", {"execution_state": "busy"}), parent=parent)
        idle = replace(status, content={"execution_state": "idle"})
        passed += tab.send(status, *[replace(one, parent=parent) for one in sent], idle) - 2
    return passed


TICKS = {
    "updates": (update("w", value=MARKUP), update("w", value="x")),
    "displays": (shows(COSTLY["formulas"]),),
    "lines": (message("stream", {"name": "stdout", "text": "x\n" * 1_000}),),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TICKS)
def test_answers_to_widgets_share_a_page(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Play widget, or an Output widget that tells what it took over, has a front end ask for minutes by itself.

    Whatever is no cell has no page of its own, so no number of requests makes more of it. The control: with a page for
    each, as cells have, all reach the tab.
    """
    tab = Tab()
    tab.send(model("w", "HTMLMathModel", value="x"), views("w"))
    assert ticks(tab, 100, *TICKS[name]) < 100 * len(TICKS[name]) * 3 // 4
    assert sum("This page takes" in str(one.content) for one in tab.shown) <= 1
    assert len(tab.overflow._cells) <= 2  # noqa: SLF001
    assert tab.send(update("w", value="the end")) == 1
    monkeypatch.setattr(large_outputs, "SHARED_SECONDS", 0.0)
    tab = Tab()
    tab.send(model("w", "HTMLMathModel", value="x"), views("w"))
    assert ticks(tab, 100, *TICKS[name]) == 100 * len(TICKS[name])


@pytest.mark.slow
def test_control_a_slider_that_redraws_a_plot_and_a_table_for_long_goes_on() -> None:
    tab = Tab()
    tab.send(model("w", "HTMLMathModel", value="x"), views("w"))
    table = "<table>" + "<tr><td>1</td><td>2</td></tr>" * 60 + "</table>"
    outputs = [{"output_type": "display_data", "data": {"text/html": table}, "metadata": {}}]
    plot = shows({"image/png": picture(300_000)})
    assert ticks(tab, 600, message("clear_output", {"wait": True}), plot, update("w", value="y")) == 1800
    tab.send(model("out", "OutputModel"), views("out"))
    assert ticks(tab, 600, update("out", outputs=outputs)) == 600


@pytest.mark.slow
def test_threads_of_cells_long_gone_share_a_page() -> None:
    """A page is remembered for some cells only: when it is forgotten, its cell does not begin with an empty one."""
    tab = Tab()
    text = message("stream", {"name": "stdout", "text": "x\n" * 6_000})
    for n in range(300):
        name = {"msg_id": f"cell {n}"}
        tab.send(replace(text, parent=name), replace(message("status", {"execution_state": "idle"}), parent=name))
        for event in (RequestEvent.TAKE, RequestEvent.SEND, RequestEvent.START, RequestEvent.END):
            RequestQueue().advance(tab.requests[f"cell {n}"], event)
    tab.shown.clear()
    for n in range(300):
        tab.send(replace(text, parent={"msg_id": f"cell {n}"}))
    lines = sum(str(one.content.get("text")).count("\n") for one in tab.shown)
    assert 400_000 < lines < 420_000, "100 cells had 4,000 lines left, and the others one page of 10,000"
    assert len(tab.overflow._cells) <= large_outputs.MAX_CELLS + 1  # noqa: SLF001


def test_control_cells_that_were_never_run_are_all_told_why() -> None:
    tab = Tab()
    for n in range(300):
        name = {"msg_id": f"cell {n}"}
        header = {**name, "msg_type": "execute_request"}
        request = PendingRequest(Message(channel="shell", header=header), b"", "shell", finished=True)
        tab.requests[f"cell {n}"] = request
        told = replace(message("error", {"ename": "a", "evalue": "b", "traceback": ["c\n" * 50]}), parent=name)
        assert tab.send(told) == 1


def test_what_an_output_widget_takes_over_counts_in_each_of_its_views() -> None:
    tab = Tab()
    tab.send(model("out", "OutputModel"), *[views("out")] * 50, update("out", msg_id=CELL))
    tab.send(*[shows(COSTLY["formulas"])] * 5)
    assert not any("x" * 290 in str(one.content) for one in tab.shown)


@pytest.mark.slow
def test_control_hundreds_of_sliders_and_a_log_stay() -> None:
    tab = Tab()
    for n in range(300):
        tab.send(model(f"s{n}", "IntSliderModel", value=n, description=f"$x_{{{n}}}$"), views(f"s{n}"))
    assert on_page(tab) == 300
    outputs = [{"output_type": "stream", "name": "stdout", "text": "a line of a log\n" * 5000}]
    tab.send(model("log", "OutputModel", outputs=outputs), views("log", "another"))
    assert on_page(tab) == 301
    assert tab.send(*[update("s1", value=n) for n in range(1000)]) == 1000


# --- errors -----------------------------------------------------------------------------------------------------------


def fails(name: str = "ValueError", value: str = "x", lines: Iterable[str] = ()) -> Message:
    return message("error", {"ename": name, "evalue": value, "traceback": list(lines)})


@pytest.mark.parametrize(
    "error", [fails(value="v " * 200_000), fails(lines=["z " * 200_000]), fails(lines=["\n"] * 5000)]
)
def test_errors_fill_a_page_by_their_texts(error: Message) -> None:
    tab = Tab()
    assert tab.send(*[error] * 30, fails("CellTimeout", lines=["the host's own word"])) == 31
    shown = [one.content for one in tab.shown if one.type == "error"]
    texts = ["\n".join(content["traceback"]) + content["evalue"] for content in shown]
    assert sum(map(len, texts[1:])) < 1_400_000
    assert sum(text.count("\n") for text in texts[1:]) < 14_000
    assert texts[-1] == "the host's own wordx"


def test_control_short_errors_are_shown() -> None:
    assert Tab().send(*[fails(lines=["Traceback", "ValueError: x"])] * 50) == 50
    assert MAX_ERRORS > 50


def test_the_name_of_an_exception_is_bounded() -> None:
    policy = OutputPolicy("safe")
    long, honest = "E" * 1_800_000, "SomeVeryLongNameOfAnException" * 10
    sent = policy.apply(fails(long)).message
    assert sent is not None
    assert len(sent.content["ename"]) < 400
    assert sent.content["ename"].endswith("... [sandbox_kernel: 1,800,000 characters]")
    assert policy.apply(sent).message is sent
    kept = policy.apply(fails(honest, "the whole reason " * 100)).message
    assert kept is not None
    assert kept.content["ename"] == honest
    assert kept.content["evalue"] == "the whole reason " * 100
    reply = replace(message("execute_reply", {"status": "error", "ename": long, "evalue": ""}), channel="shell")
    answered = policy.apply(reply).message
    assert answered is not None
    assert len(answered.content["ename"]) < 400


# --- what honest notebooks show ---------------------------------------------------------------------------------------


def figure(points: int) -> str:
    """Return an SVG as matplotlib writes it: a line, and a marker at each of its points."""
    places = [(57 + n * 357 / points, 170 + 100 * math.sin(n) * math.cos(n / 7)) for n in range(points)]
    line = "M " + " L ".join(f"{x:.6f} {y:.6f}" for x, y in places)
    used = "".join(f'<use xlink:href="#m" x="{x:.6f}" y="{y:.6f}" style="fill:#1f77b4"/>' for x, y in places)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="460pt"'
        ' height="345pt" viewBox="0 0 460 345"><path d="M 0 345 L 460 345 L 460 0 L 0 0 z" style="fill:#ffffff"/>'
        '<defs><path id="m" d="M 0 3 C 0.8 3'
        ' 1.5 2.6 2.1 2.1 C 2.6 1.5 3 0.7 3 0 C 3 -0.7 2.6 -1.5 2.1 -2.1 C 1.5 -2.6 0.7 -3 0 -3 z"/></defs>'
        f'<g clip-path="url(#c)"><path d="{line}" style="fill:none;stroke:#1f77b4;stroke-width:1.5"/>{used}</g>'
        '<clipPath id="c"><rect x="57" y="41" width="357" height="266"/></clipPath></svg>'
    )


LECTURE = (
    r"$$\int_{-\infty}^{\infty} e^{-x^2/2}\,dx = \sqrt{2\pi}$$",
    r"$$\begin{pmatrix} a & b \\ c & d\end{pmatrix}\begin{pmatrix} x \\ y\end{pmatrix}"
    r" = \begin{pmatrix} p \\ q\end{pmatrix}$$",
    r"$\nabla\times\mathbf{E} = -\frac{\partial \mathbf{B}}{\partial t}$",
)


@pytest.mark.slow
def test_control_what_an_honest_cell_shows_fits() -> None:
    drawing = figure(1000)
    assert svg.clean(drawing)[1] is False
    assert Tab().send(*[shows({"image/svg+xml": drawing})] * 10) == 10
    assert tex.is_latex(LECTURE[1], of_formulas())
    assert Tab().send(*[shows({"text/latex": LECTURE[n % 3]}) for n in range(300)]) == 300
    table = "<table>" + ("<tr>" + "<td>12.345</td>" * 20 + "</tr>") * 2000 + "</table>"
    assert Tab().send(shows({"text/html": table}), shows({"text/html": table}), shows({"text/plain": "x"})) >= 2


def test_control_all_recorded_outputs_fit_into_one_cell_of_each_library() -> None:
    samples = json.loads((ROOT / "tests/support/policy/honest.json").read_text())
    for name, sent in samples.items():
        if any(one["buffers"] for one in sent):
            continue
        tab = Tab()
        tab.send(*[message(one["type"], one["content"], metadata=one["metadata"], parent=CELL) for one in sent])
        assert "The rest goes into a file" not in str(tab.shown), name
        assert "too much for a browser page" not in str(tab.shown), name
