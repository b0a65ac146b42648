"""What real libraries send passes, and looks as it did. The samples were recorded from a stock kernel (honest.json).

Library code is left out of the samples of plotly, altair and bokeh, and folium's addresses are replaced.
"""

from __future__ import annotations

import base64
import html
import json
import warnings
from collections import Counter
from typing import Any

import html5lib
import pytest

from sandbox_kernel.policy.output_policy import OutputPolicy
from sandbox_kernel.policy.verdict import Verdict
from tests.support import ROOT
from tests.support.policy.check import faults
from tests.support.policy.messages import filtered, message

SAMPLES: dict[str, list[dict[str, Any]]] = json.loads((ROOT / "tests/support/policy/honest.json").read_text())

UNCHANGED = ["mpl", "latex", "tqdm", "tqdmn", "error", "slider", "widgets", "progress", "json", "update"]
MARKUP = ["pandas", "multi", "styler", "sticky", "audio", "rich", "code"]
PROGRAMS = ["plotly", "altair", "bokeh"]

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
"""In place of the bytes that were sent, which the samples leave out: an image."""


def passed(name: str) -> list[tuple[Any, Verdict]]:
    policy = OutputPolicy("safe")
    results = []
    for sample in SAMPLES[name]:
        buffers = (PIXEL,) * sample["buffers"]
        sent = message(
            sample["type"], sample["content"], metadata=sample["metadata"], buffers=buffers, parent=sample["parent"]
        )
        results.append((sent, policy.apply(sent)))
    return results


def looks(source: str) -> tuple[str, Counter[str]]:
    """Return the text a person reads, and how often each element stands there with its style."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = html5lib.parseFragment(source, namespaceHTMLElements=False)
    elements: Counter[str] = Counter()
    text = []
    for element in tree.iter():
        if isinstance(element.tag, str) and element.tag not in {"DOCUMENT_FRAGMENT", "style", "div"}:
            elements[f"{element.tag} {sorted((k, v) for k, v in element.attrib.items() if k in KEPT)}"] += 1
        if element.tag != "style":
            text.append(element.text or "")
        text.append(element.tail or "")
    return " ".join("".join(text).split()), elements


KEPT = ("class", "colspan", "rowspan", "border", "id", "src", "controls", "start", "halign")


@pytest.mark.parametrize("name", UNCHANGED)
def test_output_that_needs_no_change_is_the_same_message(name: str) -> None:
    for sent, verdict in passed(name):
        assert verdict.message is sent
        assert verdict.reasons == ()


@pytest.mark.parametrize("name", MARKUP)
def test_markup_looks_as_it_did(name: str) -> None:
    (sent, verdict), *_ = passed(name)
    assert verdict.reasons == ()
    assert verdict.message is not None
    before, after = sent.content["data"]["text/html"], verdict.message.content["data"]["text/html"]
    if "x<y" in before:  # pandas' Styler does not escape by itself: a browser reads an element there
        before = before.replace("x<y</td>", "x</td>")
    assert looks(after) == looks(before)
    assert faults(after, frames=False) == []


def test_the_style_sheet_of_a_styler_keeps_every_rule() -> None:
    (sent, verdict), *_ = passed("styler")
    assert verdict.message is not None
    after = verdict.message.content["data"]["text/html"]
    assert after.count("{") == sent.content["data"]["text/html"].count("{")
    assert "linear-gradient(90deg, #d65f5f 50.0%, transparent 50.0%)" in after


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_whole_in_a_frame(name: str) -> None:
    (sent, verdict), *_ = passed(name)
    assert verdict.reasons == ()
    assert verdict.message is not None
    after = verdict.message.content["data"]["text/html"]
    assert faults(after) == []
    inner = html.unescape(html.unescape(after))
    assert inner.count("sha256-") > 0
    script = sent.content["data"]["text/html"].rpartition("</script>")[0].rpartition(">")[2]
    assert html.unescape(script).strip() in html.unescape(inner)


@pytest.mark.parametrize(
    "source",
    [
        '<p title="a onerror=b">x</p>',
        "<p title='&lt;img src=x onerror=f()&gt;'>x</p>",
        '<a title="see href=notes.txt" href="https://a.test">x</a>',
        '<p><img alt="as src=x.png" width="9"></p>',
    ],
)
def test_words_in_the_value_of_an_attribute_are_no_attributes(source: str) -> None:
    """Nothing goes, so nothing is said, and the same output is not filtered to another one the second time."""
    data, verdict = filtered({"text/html": source})
    assert verdict.reasons == ()
    again, _ = filtered(data)
    assert again == data


def test_control_an_attribute_behind_such_a_value_is_said() -> None:
    source = "<img alt=\"a title\"onerror=f() title='b onload=c' src=plot.png>"
    reasons = filtered({"text/html": source})[1].reasons
    assert any("onerror=" in reason for reason in reasons)
    assert any("plot.png" in reason for reason in reasons)
    assert not any("onload" in reason for reason in reasons)


def test_a_map_says_in_its_place_that_it_needs_a_network() -> None:
    (_, verdict), *_ = passed("folium")
    said = "a map is not shown: it loads its program and tiles from a network"
    assert verdict.reasons == (said,)
    assert verdict.message is not None
    assert verdict.message.content["data"]["text/html"] == (
        f"<div><small>[sandbox_kernel: {said}; setting: outputs]</small></div>"
    )


def test_another_program_whose_script_is_not_loaded_says_so_below_what_it_shows() -> None:
    data, verdict = filtered({"text/html": "<p>text</p><script src='https://cdn.test/x.js'></script>"})
    assert verdict.reasons == ("removed a script from a network: outputs load nothing",)
    assert faults(data["text/html"]) == []
    assert data["text/html"].startswith("<iframe ")


@pytest.mark.parametrize("name", ["svg", "svgd"])
def test_an_svg_is_shown_as_an_image(name: str) -> None:
    (_, verdict), *_ = passed(name)
    assert verdict.message is not None
    assert verdict.message.content["data"]["text/html"].startswith('<img src="data:image/svg+xml;base64,')
    assert verdict.reasons == ()


@pytest.mark.parametrize(
    "source",
    [
        "The model has converged.",
        "We see three things: cost, time and (some) risk; all grow, don't they?\n\nA second paragraph\nof two lines.",
        "Für größere Längen gilt: ja!",
    ],
)
def test_markdown_that_is_only_words_is_left_alone(source: str) -> None:
    data, verdict = filtered({"text/plain": "x", "text/markdown": source})
    assert data == {"text/plain": "x", "text/markdown": source}
    assert verdict.reasons == ()


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        (
            "# Title\n\n**bold** and *it*, `code`, $a_1 + b_2$\n\n- a\n- b\n\n|a|b|\n|-|-|\n|1|2|",
            "<h1>Title</h1>\n<p><strong>bold</strong> and <em>it</em>, <code>code</code>, <span>$a_1 + b_2$</span>"
            "</p>\n<ul>\n<li>a</li>\n<li>b</li>\n</ul>\n<table>\n<thead>\n<tr>\n<th>a</th>\n<th>b</th>\n</tr>\n</thead>\n"
            "<tbody>\n<tr>\n<td>1</td>\n<td>2</td>\n</tr>\n</tbody>\n</table>\n",
        ),
        (
            "[a link](https://example.org/x?y=1)",
            '<p><a href="https://example.org/x?y=1" target="_blank" rel="noopener noreferrer">a link</a></p>\n',
        ),
        ("```python\nx = [1][0]\n```", "<pre><code>x = [1][0]\n</code></pre>\n"),
        ("a > b, c", "<p>a &gt; b, c</p>\n"),
        ("$$\n\\frac{a}{b}\n- c\n$$\n", "<p>$$\n\\frac{a}{b}\n- c\n$$</p>\n"),
        ("so \\\\(x_1\\\\) is", "<p>so <span>\\(x_1\\)</span> is</p>\n"),
    ],
)
def test_markdown_is_parsed_on_the_host(source: str, shown: str) -> None:
    """No front end gets Markdown to parse that any parser could read something in."""
    data, verdict = filtered({"text/plain": "x", "text/markdown": source})
    assert data == {"text/plain": "x", "text/html": shown}
    assert verdict.reasons == ()


def test_markdown_with_markup_becomes_html_and_keeps_its_formulas() -> None:
    source = "# T\n<span style='color:red'>r</span> $a_1*b_2*c$ `$x<y$` \\$5 and \\$6\n\n$$\nx < y_1 _z_\n$$"
    data, verdict = filtered({"text/plain": "x", "text/markdown": source})
    assert verdict.reasons == ()
    for part in (
        "<h1>T</h1>",
        'style="color:red"',
        "$a_1*b_2*c$",
        "<code>$x&lt;y$</code>",
        "<span>$</span>5 and <span>$</span>6",
        "x &lt; y_1 _z_",
    ):
        assert part in data["text/html"]


PANDAS = """<div>
<style scoped>
    .dataframe tbody tr th:only-of-type {
        vertical-align: middle;
    }

    .dataframe thead th {
        text-align: right;
    }
</style>
<table border="1" class="dataframe">
  <thead>
    <tr style="text-align: right;">
      <th>b</th>
    </tr>
  </thead>
  <tbody>
    <tr>
      <td>x&lt;y</td>
    </tr>
  </tbody>
</table>
</div>"""
POLARS = """<div><style>
.dataframe > thead > tr,
.dataframe > tbody > tr {
  text-align: right;
  white-space: pre-wrap;
}
</style>
<small>shape: (1, 1)</small><table border="1" class="dataframe"><tbody><tr><td>1</td></tr></tbody></table></div>"""
SAME = (PANDAS, POLARS, '<b style="color: red; font-weight: bold">x</b>', '<p style="text-align:center">x</p>')


@pytest.mark.parametrize("source", SAME, ids=["pandas", "polars", "colour", "aligned"])
def test_what_is_harmless_as_it_stands_leaves_as_it_came(source: str) -> None:
    """Nbval compares stored outputs, by each character."""
    data, verdict = filtered({"text/html": source})
    assert (data["text/html"], verdict.reasons) == (source, ())


@pytest.mark.parametrize(
    "source",
    [
        PANDAS.replace(".dataframe thead th", ".dataframe, body"),
        PANDAS.replace("text-align: right;\n    }", "margin-top: 9px;\n    }"),
        PANDAS.replace("<table border", "# x <table border"),
        PANDAS.replace("x&lt;y", "<script>1</script>x").replace("<script>1</script>", "<i onclick=x>y</i>"),
        PANDAS.replace('text-align: right;">', 'position: sticky; top: 5px">'),
        '<b style="color: red; position: sticky">x</b>',
        '<b style="line-height: 0">x</b>',
        '<b style="text-decoration: underline 900px red">x</b>',
        '<b style="margin: 9px">x</b>',
    ],
)
def test_control_what_reaches_others_or_paints_over_them_is_confined(source: str) -> None:
    data, _ = filtered({"text/html": source})
    assert data["text/html"].startswith('<div class="sandbox-output-')
