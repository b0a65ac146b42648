"""Widgets of ipywidgets work; nothing else comes through a comm."""

from __future__ import annotations

import dataclasses
import gc
import tracemalloc
from collections.abc import Iterable
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from sandbox_kernel.core.codes import OutputCode
from sandbox_kernel.core.model import Message
from sandbox_kernel.plugins.widgets import comms
from sandbox_kernel.plugins.widgets.codes import WidgetCode
from sandbox_kernel.policy import output_policy
from sandbox_kernel.policy.budget import MAX_COMMS
from sandbox_kernel.policy.output_policy import OutputPolicy
from sandbox_kernel.policy.slow_text import MAX_MARKS
from tests.support.cases import each
from tests.support.policy.check import faults
from tests.support.policy.messages import CELL, display, filtered, message, model, update
from tests.support.policy.widget_spec import NAMES, default, registered

VIEW = "application/vnd.jupyter.widget-view+json"


def opened(*models: Message, mode: Any = "safe") -> OutputPolicy:
    policy = OutputPolicy(mode)
    for one in models:
        assert policy.apply(one).message is not None
    return policy


def state_of(policy: OutputPolicy, sent: Message) -> dict[str, Any]:
    verdict = policy.apply(sent)
    assert verdict.message is not None
    return dict(verdict.message.content["data"]["state"])


def entry_of(name: str) -> dict[str, Any]:
    """Return what the states of all widgets say of one of a class."""
    known = next(cls for cls in registered() if default(cls, "_model_name") == name)
    return {key: default(known, f"_{key}") for key in ("model_name", "model_module", "model_module_version")}


def states_of(policy: OutputPolicy, states: dict[str, Any]) -> dict[str, Any]:
    """Return what a front end that connects again is told of all widgets."""
    policy.observe(message("comm_open", {"comm_id": "ask", "target_name": "jupyter.widget.control"}, channel="shell"))
    data = {"method": "update_states", "states": states, "buffer_paths": []}
    verdict = policy.apply(message("comm_msg", {"comm_id": "ask", "data": data}))
    assert verdict.message is not None
    return dict(verdict.message.content["data"]["states"])


def view(model_id: str) -> dict[str, Any]:
    return {"application/vnd.jupyter.widget-view+json": {"model_id": model_id, "version_major": 2, "version_minor": 0}}


def test_a_slider_is_opened_shown_moved_and_closed_unchanged() -> None:
    policy = opened(model("l", "LayoutModel"))
    slider = model(
        "s", "IntSliderModel", value=3, min=0, max=10, description="$x_1$", layout="IPY_MODEL_l", readout_format="d"
    )
    move = update("s", value=4)
    gone = message("comm_close", {"comm_id": "s", "data": {}})
    for sent in (slider, display(view("s")), move, gone):
        verdict = policy.apply(sent)
        assert verdict.message is sent
        assert verdict.reasons == ()
    assert policy.apply(move).message is None


def test_binary_values_keep_their_buffers() -> None:
    policy = opened(model("i", "ImageModel", format="png"))
    data = {"method": "update", "state": {}, "buffer_paths": [["value"]]}
    sent = message("comm_msg", {"comm_id": "i", "data": data}, buffers=(b"\x89PNG\r\n\x1a\n",))
    assert policy.apply(sent).message is sent


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("AnyModel", "anywidget"),
        ("FigureModel", "jupyterlab-plotly"),
        ("LeafletMapModel", "jupyter-leaflet"),
        ("XModel", "http://evil.test/x.js"),
        ("XModel", "@jupyter-widgets/base/../../evil"),
        ("XModel", "@Jupyter-Widgets/base"),
        ("XModel", "__proto__"),
        ("constructor", "@jupyter-widgets/base"),
        ("ManagerBase", "@jupyter-widgets/base"),
        ("", "@jupyter-widgets/base"),
    ],
)
def test_another_module_is_not_loaded(name: str, module: str) -> None:
    policy = OutputPolicy("safe")
    verdict = policy.apply(model("c", name, module, _esm="export default {render(){}}"))
    assert verdict.message is None
    assert "only those of ipywidgets" in verdict.reasons[0]
    data, _ = filtered({"text/plain": "Widget()", **view("c")}, policy)
    assert set(data) == {"text/plain"}


@pytest.mark.parametrize("key", ["_view_module", "_model_module", "_view_name", "_view_module_version"])
def test_a_view_of_another_module_is_not_loaded_at_the_start_or_later(key: str) -> None:
    assert OutputPolicy("safe").apply(model("c", "ButtonModel", **{key: "http://evil.test/x.js"})).message is None
    policy = opened(model("c", "ButtonModel"))
    assert policy.apply(update("c", **{key: "http://evil.test/x.js"})).message is None


@pytest.mark.parametrize(
    ("name", "view"),
    [
        ("LabelModel", "HTMLView"),
        ("TextModel", "HTMLMathView"),
        ("LabelModel", "ImageView"),
        ("LabelModel", "VideoView"),
        ("HTMLModel", "HTMLMathView"),
        ("LabelModel", ["HTMLView"]),
        ("LabelModel", {"toString": "HTMLView"}),
        ("LabelModel", "labelview"),
        ("LinkModel", "HTMLView"),
        ("LayoutModel", "HTMLView"),
    ],
)
def test_a_model_is_drawn_by_its_own_view_only(name: str, view: Any) -> None:
    """What a Label holds is not filtered as markup, so it must not be drawn as markup: at the start, later, again."""
    evil = {"value": "<img src=x onerror=x>", "format": "url", "_view_name": view}
    assert OutputPolicy("safe").apply(model("c", name, **evil)).message is None
    policy = opened(model("c", name) if name != "LinkModel" else model("c", "LabelModel"))
    for method in ("update", "echo_update"):
        data: dict[str, Any] = {"method": method, "state": evil, "buffer_paths": []}
        assert policy.apply(message("comm_msg", {"comm_id": "c", "data": data})).message is None
    assert states_of(policy, {"c": entry_of(name) | {"state": evil}}) == {}


@pytest.mark.parametrize("version", ["1.5.0", "3.0.0", "*", "", None, ["2.0.0"], "2.0.0 || 1", ">=1"])
def test_a_model_of_another_version_is_not_loaded(version: Any) -> None:
    assert OutputPolicy("safe").apply(model("c", "HTMLModel", _model_module_version=version)).message is None
    assert OutputPolicy("safe").apply(model("c", "HTMLModel", _model_module_version="^2.0.0")).message is not None


@pytest.mark.parametrize("target", ["x", "", None, "jupyter.widget ", "jupyter.widget.version", ["jupyter.widget"]])
def test_another_target_is_not_opened(target: Any) -> None:
    sent = message("comm_open", {"comm_id": "c", "target_name": target, "data": {}})
    assert OutputPolicy("safe").apply(sent).message is None


def test_a_module_for_the_target_is_not_loaded() -> None:
    good = model("c", "ButtonModel")
    sent = message("comm_open", {**good.content, "target_module": "http://evil.test/x.js"})
    assert OutputPolicy("safe").apply(sent).message is None


def test_an_id_in_use_is_not_opened_again_as_another_class() -> None:
    policy = opened(model("c", "TextModel", value="<img src=x onerror=x>"))
    assert policy.apply(model("c", "HTMLModel")).message is None


def kept_by_a_notebook(messages: Iterable[Message], policy: OutputPolicy) -> dict[str, dict[str, Any]]:
    """Return the states that nbclient puts into a notebook, with what the policy lets pass of these messages."""
    client = NotebookClient(nbformat.v4.new_notebook(), store_widget_state=True)
    for sent in messages:
        passed = policy.apply(sent).message
        if passed is not None and passed.type != "comm_close":
            client.handle_comm_msg([], {"msg_type": passed.type, "content": passed.content, "buffers": []}, 0)
    return client.widget_state


AS_TEXT = model("c", "TextModel", value="<img src=x onerror=x>")


def test_an_id_is_of_one_class_also_when_its_widget_is_closed() -> None:
    """A notebook has one state for an id: of a Text's value and an HTML's class, it would be drawn as markup."""
    close = message("comm_close", {"comm_id": "c", "data": {}})
    both = [AS_TEXT, close, model("c", "HTMLModel")]
    assert kept_by_a_notebook(both, OutputPolicy("safe"))["c"]["_model_name"] == "TextModel"
    control = kept_by_a_notebook(both, OutputPolicy("trusted"))["c"]
    assert (control["_model_name"], control["value"]) == ("HTMLModel", "<img src=x onerror=x>")
    policy = opened(AS_TEXT)
    assert policy.apply(close).message is not None
    assert policy.apply(AS_TEXT).message is not None
    for count in range(2000):
        policy.apply(model(f"x{count}", "ButtonModel"))
        policy.apply(message("comm_close", {"comm_id": f"x{count}", "data": {}}))
    policy.apply(close)
    assert policy.apply(model("c", "HTMLModel")).message is None


def test_an_id_is_of_one_class_also_for_the_next_kernel_of_a_session() -> None:
    """A cell may end its kernel, and whoever keeps the notebook's widgets goes on."""
    policy = opened(AS_TEXT)
    after = OutputPolicy("safe", before=policy)
    assert after.apply(model("c", "HTMLModel")).message is None
    assert after.apply(AS_TEXT).message is not None
    assert OutputPolicy("safe", before=after).apply(model("c", "HTMLMathModel")).message is None


def test_ids_of_closed_widgets_take_a_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comms, "MAX_PAST", 3)
    policy = OutputPolicy("safe")
    for name in "abc":
        assert policy.apply(model(name, "ButtonModel")).message is not None
        assert policy.apply(message("comm_close", {"comm_id": name, "data": {}})).message is not None
    refused = policy.apply(model("d", "ButtonModel"))
    assert refused.message is None
    assert "3 were opened" in refused.reasons[0]
    assert policy.apply(model("a", "ButtonModel")).message is not None


def live(rounds: int, kept: list[Any] | None = None) -> int:
    """Return the bytes that a policy grows by while widgets go on for so many rounds, after as many before."""
    policy = opened(model("w", "HTMLMathModel"), model("box", "BoxModel"), model("out", "OutputModel"))

    def go_on(first: int) -> None:
        for number in range(first, first + rounds):
            parent, name = {"msg_id": f"cell {number}"}, f"w{number}"
            for sent in (
                model(name, "IntSliderModel", value=number),
                update("w", value=f"<b>{number}</b>" * 20, **{f"unknown_{number}": 1}),
                update("box", children=[f"IPY_MODEL_{name}", "IPY_MODEL_w"]),
                update("out", msg_id=f"cell {number}", outputs=[]),
                display(
                    {VIEW: {"model_id": name, "version_major": 2, "version_minor": 0}}, transient={"display_id": name}
                ),
                message("clear_output", {"wait": False}),
                message("comm_msg", {"comm_id": f"never {number}", "data": {"method": "update", "state": {}}}),
                message("comm_close", {"comm_id": name, "data": {}}),
            ):
                verdict = policy.apply(dataclasses.replace(sent, parent=parent))
                if kept is not None:
                    kept.append(verdict)

    go_on(0)
    tracemalloc.start()
    try:
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        go_on(rounds)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_widgets_that_live_for_long_take_a_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round is in the name of another cell, with another widget, display, trait and unknown comm.

    What stays of a round is the hash of an id and its class, 130 bytes, of no more than `MAX_PAST` widgets. The
    control: who keeps what passes grows with it.
    """
    monkeypatch.setattr(output_policy, "MAX_DISPLAYS", 50)
    assert live(400) < 400 * 256
    kept: list[Any] = []
    assert live(400, kept) > 1_000_000
    refused = [note.code for verdict in kept for note in verdict.notes]
    assert refused.count(WidgetCode.TRAIT_UNKNOWN) == refused.count(OutputCode.COMM_NOT_OPEN) == 800


def test_the_number_of_comms_is_bounded() -> None:
    policy = opened(*(model(f"c{number}", "LayoutModel") for number in range(MAX_COMMS)))
    verdict = policy.apply(model("one-more", "ButtonModel"))
    assert verdict.message is None
    assert str(MAX_COMMS) in verdict.reasons[0]


def test_strict_has_no_widgets() -> None:
    policy = OutputPolicy("strict")
    assert policy.apply(model("c", "ButtonModel")).message is None
    data, _ = filtered({"text/plain": "Button()", **view("c")}, policy)
    assert data["text/plain"].startswith("Button()\n[sandbox_kernel: removed a widget")


@pytest.mark.parametrize(
    "path", [["__proto__", "x"], ["constructor", "prototype", "x"], [], [-1], [True], [1.5], [["x"]], "x", [None]]
)
def test_buffer_paths_cannot_leave_the_state(path: Any) -> None:
    good = model("c", "ImageModel")
    data = {**good.content["data"], "buffer_paths": [path]}
    assert OutputPolicy("safe").apply(message("comm_open", {**good.content, "data": data})).message is None


def test_poisonous_keys_are_taken_out_of_a_state() -> None:
    poison: Any = {"__proto__": {"x": 1}, "constructor": {"prototype": {}}}
    state = state_of(OutputPolicy("safe"), model("c", "ButtonModel", disabled=True, **poison))
    assert set(state) == {*NAMES, "disabled"}
    output = {"output_type": "display_data", "data": {"application/json": {"constructor": 1, "b": 2}}, "metadata": {}}
    state = state_of(OutputPolicy("safe"), model("c", "OutputModel", outputs=[output]))
    assert state["outputs"][0]["data"] == {"application/json": {"b": 2}}


@each(
    ("name", "key", "value", "kept"),
    [
        ("HTMLModel", "value", "<img src=x onerror=x><b>y</b>", "<img><b>y</b>"),
        ("HTMLMathModel", "value", r"$\href{javascript:x}{y}$", r"<span>$</span><span>\</span>href{javascript:x}{y}<span>$</span>"),  # noqa: E501
        ("LabelModel", "value", r"$\href{javascript:x}{y}$ <b>", "\uff04\\\u2060href{javascript:x}{y}\uff04 <b>"),
        ("TextModel", "value", r"<b>\href", r"<b>\href"),
        ("ButtonModel", "description", r"$\style{x}{y}$", "\uff04\\\u2060style{x}{y}\uff04"),
        ("IntSliderModel", "description_allow_html", True, False),
        ("ButtonModel", "icon", "check", "check"),
        ("ButtonModel", "icon", "x\" onclick=\"y", ""),
        ("ButtonModel", "_dom_classes", ["widget-interact", "jp-Dialog", 1], ["widget-interact"]),
        ("ImageModel", "format", "url", "png"),
        ("VideoModel", "format", "URL", "png"),
        ("AudioModel", "format", "url", "png"),
        ("ImageModel", "format", "jpeg", "jpeg"),
        ("ToggleButtonsModel", "icons", ["x lm-Menu", "check", "spinner fa-spin"], ["", "check", "spinner fa-spin"]),
        ("ButtonStyleModel", "button_color", "var(--jp-brand-color1)", "var(--jp-brand-color1)"),
        ("TextareaModel", "rows", 10**9, 1000),
        ("LayoutModel", "width", "50%", "50%"),
        ("LayoutModel", "border_top", "1px solid red", "1px solid red"),
        ("LayoutModel", "grid_template_areas", '"a b" "c d"', '"a b" "c d"'),
        ("LayoutModel", "width", "url(http://evil.test)", None),
        ("LayoutModel", "margin", "-900px 0 0 0", None),
        ("ButtonStyleModel", "button_color", "lightgreen", "lightgreen"),
        ("ButtonStyleModel", "button_color", "url(http://evil.test)", None),
        ("SliderStyleModel", "description_width", "initial", "initial"),
        ("OutputModel", "msg_id", CELL, CELL),
        ("OutputModel", "msg_id", "another-cell", ""),
    ],
)  # fmt: skip
def test_a_value_is_what_its_view_can_bear(name: str, key: str, value: Any, kept: Any) -> None:
    assert state_of(OutputPolicy("safe"), model("c", name, **{key: value}))[key] == kept
    policy = opened(model("c", name))
    assert state_of(policy, update("c", **{key: value}))[key] == kept


def test_pieces_of_a_stream_inside_an_output_widget_are_filtered_as_the_one_text_that_is_drawn() -> None:
    """A front end joins them: 10,000 pieces with 64 accents each were 640,000 on one letter."""
    pieces: list[dict[str, Any]]
    pieces = [{"output_type": "stream", "name": "stdout", "text": "\u0301" * 64} for _ in range(500)]
    pieces[1:1] = [{"output_type": "stream", "name": ["odd"], "text": ["\u0301", None, "\u0301" * 63]}]
    other = {"output_type": "stream", "name": "stderr", "text": "a"}
    kept = state_of(OutputPolicy("safe"), model("c", "OutputModel", outputs=[*pieces, other, "x", other]))["outputs"]
    assert kept == [
        {"output_type": "stream", "name": "stdout", "text": "\u0301" * MAX_MARKS},
        {"output_type": "stream", "name": "stderr", "text": "aa"},
    ]


def test_outputs_inside_an_output_widget_are_filtered_as_outputs_are() -> None:
    outputs = [
        {
            "output_type": "display_data",
            "data": {"text/html": "<img src=x onerror=x>", "application/javascript": "x"},
            "metadata": {},
        },
        {"output_type": "stream", "name": "stdout", "text": "a\x1b]0;t\x07"},
        {"output_type": "error", "ename": "E", "evalue": "\x9b", "traceback": []},
        {
            "output_type": "execute_result",
            "data": {"text/html": "<script>x</script>"},
            "metadata": {},
            "execution_count": 1,
        },
        {"output_type": "display_data", "data": view("nested"), "metadata": {}},
        {"output_type": "x", "data": {"text/html": "<script>"}},
        "x",
    ]
    kept = state_of(OutputPolicy("safe"), model("c", "OutputModel", outputs=outputs))["outputs"]
    assert [output["output_type"] for output in kept] == [
        "display_data",
        "stream",
        "error",
        "execute_result",
        "display_data",
        "stream",
    ]
    assert faults(kept[0]["data"]["text/html"]) == faults(kept[3]["data"]["text/html"]) == []
    assert kept[1]["text"] == "a"
    assert kept[2]["evalue"] == ""
    assert set(kept[4]["data"]) == {"text/plain"}


@pytest.mark.parametrize(
    ("source", "target", "passes"),
    [
        (("slider", "value"), ("other", "value"), True),
        (("slider", "max"), ("other", "min"), True),
        (("text", "value"), ("html", "value"), False),
        (("text", "value"), ("label", "value"), False),
        (("slider", "value"), ("html", "value"), False),
        (("slider", "value"), ("other", "_view_module"), False),
        (("slider", "value"), ("other", "description_allow_html"), False),
        (("slider", "value"), ("unknown", "value"), False),
    ],
)
def test_a_link_in_the_browser_copies_numbers_only(source: Any, target: Any, passes: bool) -> None:
    """What a Text holds is harmless there, and would be markup in an HTML."""
    policy = opened(
        model("slider", "IntSliderModel"),
        model("other", "FloatSliderModel"),
        model("text", "TextModel", value="<img src=x onerror=x>"),
        model("html", "HTMLModel"),
        model("label", "LabelModel"),
    )
    ends = {"source": [f"IPY_MODEL_{source[0]}", source[1]], "target": [f"IPY_MODEL_{target[0]}", target[1]]}
    for name in ("LinkModel", "DirectionalLinkModel"):
        assert (policy.apply(model(name, name, **ends)).message is not None) is passes


def test_a_widgets_own_messages_do_nothing_but_give_up_the_focus() -> None:
    policy = opened(model("c", "ButtonModel"))
    focus = message("comm_msg", {"comm_id": "c", "data": {"method": "custom", "content": {"do": "focus"}}})
    blur = message("comm_msg", {"comm_id": "c", "data": {"method": "custom", "content": {"do": "blur"}}})
    other = message("comm_msg", {"comm_id": "c", "data": {"method": "custom", "content": {"event": "x", "code": "y"}}})
    assert policy.apply(focus).message is None
    assert policy.apply(blur).message is blur
    assert policy.apply(other).message is None
    assert policy.apply(message("comm_msg", {"comm_id": "c", "data": {"method": "request_state"}})).message is None


def test_the_states_of_all_widgets_are_filtered_when_a_front_end_connects_anew() -> None:
    policy = opened(model("c", "HTMLModel"))
    entry = entry_of("HTMLModel")
    states = {
        "c": {**entry, "state": {"value": "<img src=x onerror=x>", "description": ["<b>"]}},
        "unknown": {**entry, "state": {}},
    }
    assert states_of(policy, states) == {"c": {**entry, "state": {"value": "<img>"}}}
    for key in entry:
        assert states_of(policy, {"c": states["c"] | {key: ["x"]}}) == {}


def test_the_bytes_of_all_widgets_go_with_their_states() -> None:
    """A widget that is left out takes its bytes with it: a front end counts them off."""
    policy = opened(model("i", "ImageModel"), model("h", "HTMLModel"), model("j", "ImageModel"))
    policy.observe(message("comm_open", {"comm_id": "ask", "target_name": "jupyter.widget.control"}, channel="shell"))
    states = {name: entry_of(kind) | {"state": {}} for name, kind in (("i", "ImageModel"), ("h", "HTMLModel"))}
    states["j"] = entry_of("ImageModel") | {"state": {"_view_name": "HTMLView"}}
    paths = [[name, "state", "value"] for name in ("h", "j", "i")]
    data = {"method": "update_states", "states": states, "buffer_paths": paths}
    sent = message("comm_msg", {"comm_id": "ask", "data": data}, buffers=(b"<img onerror=x>", b"2", b"\xff\xd8\xff"))
    passed = policy.apply(sent).message
    assert passed is not None
    assert set(passed.content["data"]["states"]) == {"h", "i"}
    assert (passed.content["data"]["buffer_paths"], passed.buffers) == ([["i", "state", "value"]], (b"\xff\xd8\xff",))


@pytest.mark.parametrize("target", ["my.extension", "hv-extension-comm", "jupyter.widget.version", ""])
def test_a_comm_that_something_else_in_the_front_end_opened_is_not_answered(target: str) -> None:
    """It would take a cell's words for its own kernel's, and what it does with them is not known here."""
    policy = OutputPolicy("safe")
    answer = message("comm_msg", {"comm_id": "c", "data": {"x": [1]}})
    policy.observe(message("comm_open", {"comm_id": "c", "target_name": target}, channel="shell"))
    assert policy.apply(answer).message is None


def test_a_widget_that_the_front_end_made_is_filtered_as_its_class_until_it_is_closed() -> None:
    policy = OutputPolicy("safe")
    policy.observe(dataclasses.replace(model("c", "HTMLModel"), channel="shell"))
    assert state_of(policy, update("c", value="<img src=x onerror=x>")) == {"value": "<img>"}
    policy.observe(message("comm_close", {"comm_id": "c"}, channel="shell"))
    assert policy.apply(update("c", value="x")).message is None
    stranger = message("comm_open", {"comm_id": "d", "target_name": "jupyter.widget", "data": {}}, channel="shell")
    policy.observe(stranger)
    assert policy.apply(update("d", value="<img src=x onerror=x>")).message is None


ODD_IDS = [
    "",
    "</script><script>x",
    "a b",
    "a\n",
    "__proto__",
    "constructor",
    "prototype",
    "a'b",
    "é",
    "x" * 201,
    "-a",
    "$a$",
]


@each("comm_id", ODD_IDS)
def test_an_id_that_is_more_than_a_name_opens_no_widget(comm_id: str) -> None:
    """Exports write it between script tags, and front ends make it the key of an object."""
    policy = OutputPolicy("safe")
    assert policy.apply(model(comm_id, "LabelModel")).message is None
    data, _ = filtered({VIEW: {"model_id": comm_id, "version_major": 2, "version_minor": 0}, "text/plain": "x"}, policy)
    assert VIEW not in data


@pytest.mark.parametrize("comm_id", ["0a6f2e6e4e9a4c6cbb1d3c1f0b8a4b43", "0a6f2e6e-4e9a-4c6c-bb1d-3c1f0b8a4b43", "a"])
def test_control_the_ids_of_ipywidgets_open_one(comm_id: str) -> None:
    policy = OutputPolicy("safe")
    assert policy.apply(model(comm_id, "LabelModel")).message is not None
    data, _ = filtered({VIEW: {"model_id": comm_id, "version_major": 2, "version_minor": 0}}, policy)
    assert VIEW in data


@pytest.mark.parametrize(
    ("module", "more", "package"),
    [
        ("jupyter-matplotlib", {}, "ipympl"),
        ("jupyter-leaflet", {}, "ipyleaflet"),
        ("anywidget", {"_anywidget_id": "my.Counter"}, "anywidget"),
        ("anywidget", {"_anywidget_id": "plotly.basewidget.FigureWidget"}, "plotly (FigureWidget)"),
        ('x"><script>', {}, "something without a proper name"),
        (["x"], {}, None),
    ],
)
def test_a_widget_that_is_not_shown_is_said_by_its_package(
    module: Any, more: dict[str, Any], package: str | None
) -> None:
    policy = OutputPolicy("safe")
    state = {"_model_module": module, "_model_name": "SomeModel", "_model_module_version": "1.0.0", **more}
    content = {"comm_id": "c1", "target_name": "jupyter.widget", "data": {"state": state, "buffer_paths": []}}
    assert policy.apply(message("comm_open", content)).message is None
    data, verdict = filtered({"text/plain": "Some()", **view("c1")}, policy)
    said = f"removed a widget of {package}: only those" if package else "removed a widget: its model may not run"
    assert verdict.reasons[0].startswith(said)
    assert data.keys() == {"text/plain"}
