"""The table is what ipywidgets says of itself; honest widgets pass it whole, and nothing of another type passes."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import comm
import ipywidgets
import orjson
import pytest
from comm.base_comm import BaseComm

from sandbox_kernel.core.model import Message
from sandbox_kernel.plugins.widgets.known_models import NAMES, models
from sandbox_kernel.policy.output_policy import OutputPolicy
from tests.support.cases import each, some
from tests.support.policy.check import faults
from tests.support.policy.messages import CELL, message, model
from tests.support.policy.widget_spec import TABLE, default, registered, table

EVIL = "<img src=x onerror=x>"
HOSTILE: list[Any] = [
    EVIL, "javascript:x", "http://evil.test/x", "url(http://evil.test)", "x lm-Menu jp-Dialog", "position:fixed",
    r"$\href{javascript:x}{y}$", "IPY_MODEL_html", "IPY_MODEL_unknown", "url", "__proto__",
    [EVIL], [[EVIL]], [{"toString": EVIL}], {"toString": EVIL}, {"0": EVIL, "length": 1}, {"length": EVIL},
    ["url(http://evil.test)"], ["x lm-Menu"], [r"$\href{javascript:x}{y}$"], [None], None, True, 7, 1e308, [7, EVIL],
    ["IPY_MODEL_html", "value"], ["IPY_MODEL_html"], {"year": EVIL, "month": 1, "date": 1},
]  # fmt: skip
FREE = {"text", "texts", "tags", "texts:1000"}
"""Rules of what a view shows as text: any text at all may stand there."""
PLAIN = type("Plain", (ipywidgets.widgets.widget.LoggingHasTraits,), {})()
"""An object that traits are checked for, if it is none of a class's own."""
CLASSES = sorted(registered(), key=lambda cls: cls.__name__)


class Recorded(BaseComm):
    """A comm whose messages are kept, as they go over the wire."""

    sent: list[Message] = []  # noqa: RUF012 (emptied by the one who listens)

    def publish_msg(
        self,
        msg_type: str,
        data: Any = None,
        metadata: Any = None,
        buffers: Any = None,
        **keys: Any,
    ) -> None:
        content = orjson.loads(orjson.dumps({"data": data or {}, "comm_id": self.comm_id, **keys}))
        pieces = tuple(bytes(one) for one in buffers or ())
        self.sent.append(message(msg_type, content, metadata=metadata, buffers=pieces))


@contextmanager
def listening() -> Iterator[list[Message]]:
    """Give ipywidgets comms whose messages are kept."""
    before, comm.create_comm = comm.create_comm, Recorded
    Recorded.sent = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield Recorded.sent
    finally:
        ipywidgets.Widget.close_all()
        comm.create_comm = before


def pass_all(sent: list[Message]) -> None:
    policy = OutputPolicy("safe")
    for one in sent:
        verdict = policy.apply(one)
        assert verdict.reasons == ()
        assert verdict.message is one, (one.content, verdict.message and verdict.message.content)


def test_formulas_of_an_html_widget_stay_formulas() -> None:
    """Each gets an element of its own, so that none meets markup or another."""
    policy = OutputPolicy("safe")
    with listening() as sent:
        ipywidgets.HTMLMath(value=r"Some math: $x^2$ and $$\frac{x+1}{x-1}$$")
        opened = [passed for one in sent if (passed := policy.apply(one).message) is not None]
    state = opened[-1].content["data"]["state"]
    assert state["_model_name"] == "HTMLMathModel"
    assert state["value"] == r"Some math: <span>$x^2$</span> and <span>$$\frac{x+1}{x-1}$$</span>"


def test_the_table_is_made_from_the_installed_ipywidgets() -> None:
    assert TABLE.read_text(encoding="utf-8") == table(), "cd tests && python -m policy.widget_spec"


@each("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_widget_passes_with_its_defaults_unchanged(cls: type[ipywidgets.Widget]) -> None:
    needs = {"options": [("a", 1), ("b", 2)]} if "_options_labels" in cls.class_trait_names(sync=True) else {}
    with listening() as sent:
        if "source" in cls.class_trait_names():
            cls((ipywidgets.IntSlider(), "value"), (ipywidgets.IntText(), "value"))
        else:
            cls(**needs)
        pass_all(sent)
        assert sent[-1].content["data"]["state"]["_model_name"] == default(cls, "_model_name")


def selections() -> Iterator[Any]:
    w = ipywidgets
    yield w.Dropdown(options=["a <b>", r"\alpha $x$", "ü"], value="ü", description="Pick:", tooltip="one <of> them")
    yield w.ToggleButtons(options=["a", "b"], icons=["check", "times"], tooltips=["x", "y"], button_style="success")
    yield w.SelectMultiple(options=list(range(200)), value=(1, 5), rows=10)
    yield w.SelectionRangeSlider(options=["a", "b", "c"], index=(0, 2))
    yield w.Combobox(options=["x", "y"], placeholder="Choose", ensure_option=True)
    yield w.RadioButtons(options=["x", "y"], orientation="horizontal")


def numbers() -> Iterator[Any]:
    w = ipywidgets
    yield w.FloatLogSlider(value=10, base=10, min=-10, max=10, step=0.2, readout_format=".2e", orientation="vertical")
    yield w.IntRangeSlider(value=[5, 7], min=0, max=10, readout_format="+,d", style={"handle_color": "lightblue"})
    yield w.FloatSlider(readout_format="$,.2f", description=r"\(\int_0^t f\)")
    yield w.FloatProgress(value=0.4, max=1.0, bar_style="info", style={"bar_color": "#ffff00"})
    yield w.BoundedFloatText(value=7.5, min=0, max=10.0, step=None)
    yield w.Play(value=50, interval=500, show_repeat=False, playing=True)
    yield w.FloatsInput(value=[1.3, 4.56], format=".2f", tag_style="info")
    yield w.IntsInput(value=[1, 4], min=0, max=10, format="$,d")
    yield w.Valid(value=True, description="Valid!", readout="Bad <value>")


def texts() -> Iterator[Any]:
    w = ipywidgets
    yield w.Text(value=EVIL, placeholder="Type <something>", description="String:", continuous_update=False)
    yield w.Textarea(value="a\n" * 5000, rows=20)
    yield w.HTML(value="Hello <b>World</b> <i>x</i>", description="HTML <b>")
    yield w.Label(value=r"The $m$ in $E=mc^2$", style={"font_weight": "bold", "background": "#eee"})
    yield w.TagsInput(value=["pizza", "<b>"], allowed_tags=["pizza", "fries", "<b>"], allow_duplicates=False)
    yield w.ColorsInput(value=["red", "#2f6d30", "rgb(1, 2, 3)"])
    yield w.ColorPicker(concise=True, value="#ff00ff80", description="Pick")


def media() -> Iterator[Any]:
    w = ipywidgets
    yield w.Image(value=b"\x89PNG\r\n\x1a\n", format="png", width=300, height="40%")
    yield w.Video(value=b"\0\0\0\x18ftypmp42", format="mp4", autoplay=False, width="320")
    yield w.Audio(value=b"\xff\xfb\x90\x44", format="mpeg", loop=True)
    upload = w.FileUpload(accept=".txt,image/*", multiple=True, icon="upload")
    when = datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC)
    file = {"name": "<a>.txt", "type": "text/plain", "size": 2, "last_modified": when}
    upload.value = [{**file, "content": memoryview(b"ab")}, {**file, "content": memoryview(b"cd")}]
    yield upload


def dates() -> Iterator[Any]:
    w = ipywidgets
    when = datetime.datetime(2024, 5, 1, 12, 30, 1, 500, tzinfo=datetime.UTC)
    yield w.DatePicker(value=when.date(), min=when.date(), step=7)
    yield w.TimePicker(value=when.time(), step="any")
    yield w.TimePicker(value=when.time(), step=0.5)
    yield w.DatetimePicker(value=when)
    yield w.NaiveDatetimePicker(value=when.replace(tzinfo=None), max=when.replace(tzinfo=None))


def containers() -> Iterator[Any]:
    w = ipywidgets
    layout = w.Layout(
        border="2px solid #aabbcc", width="50%", height="calc(100% - 10px)", margin="0 0 4px 10px", padding="1em",
        display="flex", flex_flow="row wrap", align_items="stretch", justify_content="space-between", overflow="auto",
        grid_template_columns="repeat(3, minmax(100px, 1fr)) 2fr", grid_template_rows="auto 80px auto",
        grid_gap="5px 10px", grid_area="header", order="-1", flex="1 1 0%", min_width="0", max_height="80vh",
        object_fit="contain", object_position="50% 50%", visibility="visible",
        grid_template_areas='\n"header header"\n"main ."\n',
    )  # fmt: skip
    yield w.GridBox([w.Button(description=str(i), icon="spinner spin", layout=layout) for i in range(4)])
    yield w.Tab([w.Text(), w.Output()], titles=["a <b>", "b"], selected_index=1)
    yield w.Accordion([w.IntSlider()], titles=["x"], selected_index=None)
    yield w.Stack([w.Button(), w.IntSlider()], selected_index=0)
    yield w.AppLayout(header=w.Button(), left_sidebar=w.Button(), center=w.Button(), footer=w.Button())
    yield w.TwoByTwoLayout(top_left=w.Button(), bottom_right=w.Button(), merge=False)
    grid = w.GridspecLayout(4, 3, height="300px")
    for i in range(4):
        for j in range(3):
            grid[i, j] = w.Button(layout=w.Layout(width="auto", height="auto"))
    yield grid
    yield w.interactive(lambda a, b, c: None, a=True, b=(0.0, 1.0), c=["x", "y"])
    play, slider = w.Play(), w.IntSlider()
    w.jslink((play, "value"), (slider, "value"))
    w.jsdlink((w.Dropdown(options=["a", "b"]), "index"), (w.Stack([play]), "selected_index"))
    w.jslink((w.Checkbox(), "value"), (slider, "disabled"))
    w.jslink((w.IntRangeSlider(), "value"), (w.FloatRangeSlider(), "value"))
    yield slider


@pytest.mark.parametrize("make", [selections, numbers, texts, media, dates, containers], ids=lambda one: one.__name__)
def test_widgets_in_use_pass_unchanged(make: Callable[[], Iterator[Any]]) -> None:
    with listening() as sent:
        made = list(make())
        assert made
        for one in made:
            one.tooltip = "changed <later>"
            one.layout.width = "40px"
            one.add_class("widget-interact")
        pass_all(sent)


def test_a_progress_bar_of_tqdm_passes_unchanged() -> None:
    from tqdm.notebook import tqdm_notebook

    with listening() as sent:
        for _ in tqdm_notebook(range(3), desc="run x", colour="green", display=False):
            pass
        bar = tqdm_notebook(total=None, display=False)
        bar.update(5)
        bar.close()
        pass_all(sent)
        assert len(sent) > 20


SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><rect width='9' height='9'/>%s</svg>"
BOMB = b"<g id='a0'><rect/></g>" + b"".join(
    b"<g id='a%d'>%s</g>" % (i, b"<use href='#a%d'/>" % (i - 1) * 10) for i in range(1, 10)
)


@pytest.mark.parametrize(
    ("value", "passes"),
    [
        (SVG % b"", True),
        (SVG % BOMB, False),
        (b"\xef\xbb\xbf \n" + SVG % BOMB, False),
        ((SVG % BOMB).decode().encode("utf-16"), False),
        ((SVG % BOMB).decode().encode("utf-16-be"), False),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1" + SVG % BOMB, True),
    ],
)
def test_an_svg_in_an_image_widget_is_written_anew(value: bytes, passes: bool) -> None:
    """Its format may be said before or after its bytes, so the bytes are looked at."""
    policy = OutputPolicy("safe")
    policy.apply(model("i", "ImageModel", format="svg+xml"))
    data = {"method": "update", "state": {}, "buffer_paths": [["value"]]}
    sent = policy.apply(message("comm_msg", {"comm_id": "i", "data": data}, buffers=(value,))).message
    assert sent is not None
    assert bool(sent.buffers) is passes
    assert all(b"<rect" in one for one in sent.buffers if one.startswith(b"<"))


def test_a_widget_of_another_package_in_a_box_takes_only_itself_away() -> None:
    policy = OutputPolicy("safe")
    policy.apply(model("a", "ButtonModel"))
    verdict = policy.apply(model("box", "VBoxModel", children=["IPY_MODEL_figure", "IPY_MODEL_a"]))
    assert verdict.message is not None
    assert verdict.message.content["data"]["state"]["children"] == ["IPY_MODEL_a"]


# --- nothing else -----------------------------------------------------------------------------------------------------


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


@pytest.mark.parametrize("name", some(sorted(models()), of=2))
def test_no_trait_takes_a_value_of_another_type_or_kind(name: str) -> None:
    """Every trait of every class with every hostile value, at the opening and in an update."""
    cls = next(cls for cls in registered() if default(cls, "_model_name") == name)
    foreign = {"_esm", "onclick", "style_", "innerHTML", "src", "el", "comm", "attributes", "widget_manager"}
    passed = 0
    for trait in [*sorted(set(models()[name].traits)), *sorted(foreign)]:
        policy = OutputPolicy("safe")
        policy.apply(model("html", "HTMLModel"))
        policy.apply(model("d", name))
        for number, value in enumerate(HOSTILE):
            opening = policy.apply(model(f"c{number}", name, **{trait: value})).message
            data = {"method": "update", "state": {trait: value}, "buffer_paths": []}
            later = policy.apply(message("comm_msg", {"comm_id": "d", "data": data})).message
            for sent in (opening, later):
                if sent is None:
                    continue
                state = sent.content["data"]["state"]
                if trait not in state:
                    continue
                passed += 1
                judge(cls, trait, value, state[trait])
    assert passed > 10 or name in ("LinkModel", "DirectionalLinkModel")


def judge(cls: type[ipywidgets.Widget], trait: str, value: Any, kept: Any) -> None:
    """Require that what passed is what ipywidgets itself would take for this trait, and names nothing hostile."""
    rule = models()[default(cls, "_model_name")].traits[trait]
    word = rule.partition(":")[0].removesuffix("?")
    if rule in {"css:background-color", "css:color"}:
        word = "color"
    if word in ("ref", "refs", "style", "link", "date", "time", "datetime", "files", "outputs", "buffer"):
        # IPY_MODEL_html is there, and may lie in a box; nothing else may be named.
        nothing = [{"output_type": "stream", "name": "stderr", "text": ""}]
        assert kept in (None, [], nothing) or (rule == "refs" and set(kept) == {"IPY_MODEL_html"}), (trait, kept)
        return
    if kept is None:
        assert cls.class_traits()[trait].allow_none or rule.startswith("css")
    elif word not in ("color", "colors"):
        cls.class_traits()[trait].validate(PLAIN, tuple(kept) if isinstance(kept, list) else kept)
    for one in strings(kept):
        if word == "markup":
            assert faults(one, frames=False) == []
        elif rule.removesuffix("?") not in FREE:
            bad = {"math": (r"\href",), "css": ("evil.test", "fixed", "<")}.get(word, ("<", "evil", "lm-", ":", "\\"))
            assert not any(part in one for part in bad), (trait, value, kept)


@pytest.mark.slow
@each("name", sorted(models()))
def test_bytes_go_only_where_a_view_expects_them(name: str) -> None:
    """A front end puts them at their path without looking; an HTML's value would be an object with a text."""
    for trait in sorted({*models()[name].traits, "x", *NAMES}):
        for path in ([trait], [trait, 0], [trait, "a"], [trait, 0, "content"]):
            policy = OutputPolicy("safe")
            policy.apply(model("c", name))
            data = {"method": "update", "state": {}, "buffer_paths": [path]}
            passed = policy.apply(
                message(
                    "comm_msg", {"comm_id": "c", "data": data}, buffers=(b"OggS" if name[0] in "AV" else b"GIF89a",)
                )
            ).message
            if passed is not None and passed.buffers:
                assert name in ("ImageModel", "VideoModel", "AudioModel")
                assert passed.content["data"]["buffer_paths"] == [["value"]]
    both = {"method": "update", "state": {"value": "x"}, "buffer_paths": [["value"]]}
    for buffers in ((), (b"a", b"b")):
        policy = OutputPolicy("safe")
        policy.apply(model("c", name))
        assert policy.apply(message("comm_msg", {"comm_id": "c", "data": both}, buffers=buffers)).message is None


# --- how much a page bears --------------------------------------------------------------------------------------------


def doubling(levels: int) -> OutputPolicy:
    policy = OutputPolicy("safe")
    policy.apply(model("b0", "ButtonModel"))
    for level in range(levels):
        policy.apply(model(f"b{level + 1}", "HBoxModel", children=[f"IPY_MODEL_b{level}"] * 10))
    return policy


def kept_children(policy: OutputPolicy, comm_id: str, children: list[str]) -> list[str]:
    data = {"method": "update", "state": {"children": [f"IPY_MODEL_{one}" for one in children]}, "buffer_paths": []}
    sent = policy.apply(message("comm_msg", {"comm_id": comm_id, "data": data})).message
    assert sent is not None
    return [one.removeprefix("IPY_MODEL_") for one in sent.content["data"]["state"]["children"]]


def test_boxes_that_double_or_hold_themselves_are_emptied() -> None:
    policy = doubling(3)
    assert kept_children(policy, "b3", ["b2"] * 8) == ["b2"] * 8
    assert kept_children(policy, "b3", ["b3"]) == []
    assert kept_children(policy, "b1", ["b2"]) == [] or kept_children(policy, "b2", ["b1"]) == []
    policy = doubling(3)
    policy.apply(model("b4", "HBoxModel"))
    assert kept_children(policy, "b4", ["b3"] * 8) == ["b3"] * 8
    assert kept_children(policy, "b4", ["b3"] * 10) == []
    chain = OutputPolicy("safe")
    chain.apply(model("c0", "ButtonModel"))
    deep = [chain.apply(model(f"c{i}", "BoxModel", children=[f"IPY_MODEL_c{i - 1}"])).message for i in range(1, 60)]
    emptied = [sent for sent in deep if sent is not None and not sent.content["data"]["state"]["children"]]
    assert len(emptied) == 1


VIEW = "application/vnd.jupyter.widget-view+json"


def shown(policy: OutputPolicy, model_id: str, kind: str = "display_data", **more: Any) -> bool:
    data = {"text/plain": "x", VIEW: {"model_id": model_id, "version_major": 2, "version_minor": 0}}
    sent = policy.apply(message(kind, {"data": data, "metadata": {}, "transient": {}, **more})).message
    return sent is not None and VIEW in sent.content["data"]


def test_an_output_widget_does_not_come_to_lie_in_itself() -> None:
    """By what it takes over from its cell, by what stands in it, by an update of a display in it."""
    policy = OutputPolicy("safe")
    policy.apply(model("out", "OutputModel", msg_id=CELL))
    policy.apply(model("box", "BoxModel", children=["IPY_MODEL_out"]))
    policy.apply(model("b", "ButtonModel"))
    assert not shown(policy, "out")
    assert not shown(policy, "box")
    assert shown(policy, "b", transient={"display_id": "d"})
    data = {"method": "update", "state": {"msg_id": ""}}
    assert policy.apply(message("comm_msg", {"comm_id": "out", "data": data})).message is not None
    assert not shown(policy, "box", "update_display_data", transient={"display_id": "d"})
    assert shown(policy, "box")
    inside = [{"output_type": "display_data", "data": {VIEW: {"model_id": "box"}}, "metadata": {}}]
    data = {"method": "update", "state": {"outputs": inside}}
    sent = policy.apply(message("comm_msg", {"comm_id": "out", "data": data})).message
    assert sent is not None
    assert sent.content["data"]["state"]["outputs"] == []


def test_what_an_output_widget_shows_anew_each_time_is_not_counted_for_ever() -> None:
    policy = doubling(3)
    policy.apply(model("out", "OutputModel", msg_id=CELL))
    for _ in range(30):
        assert shown(policy, "b3")
        policy.apply(message("clear_output", {"wait": True}))
    assert [shown(policy, "b3") for _ in range(12)].count(True) == 9
