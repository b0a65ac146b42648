"""How much of a cell's text goes onto a page: what stays there is counted, and nothing gets past."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.policy import slow_text
from sandbox_kernel.policy.display_budget import MAX_ERRORS, OVERWRITTEN, TAIL_CHARS, TAIL_LINES, Page, is_long, tail_of


def put(page: Page, *texts: str, name: str = "stdout") -> tuple[str, str]:
    pairs = [page.stream(name, text) for text in texts]
    return "".join(shown for shown, _ in pairs), "".join(rest for _, rest in pairs)


def test_lines_up_to_the_limit_are_shown_and_the_rest_is_kept() -> None:
    page = Page(100, 10_000)
    text = "".join(f"{n}\n" for n in range(1000))
    shown, rest = put(page, text)
    assert shown + rest == text
    assert shown.count("\n") == 99
    assert page.full
    assert page.stream("stderr", "more") == ("", "more")


def test_characters_up_to_the_limit_are_shown_also_without_a_line_s_end() -> None:
    page = Page(100, 10_000)
    shown, rest = put(page, *["x" * 3000] * 4)
    assert (len(shown), len(rest)) == (10_000, 2000)


def test_what_fits_is_passed_on_as_the_very_same_text() -> None:
    page = Page(100, 10_000)
    text = "a line\n" * 50
    shown, rest = page.stream("stdout", text)
    assert shown is text
    assert not rest


def test_a_bar_that_is_drawn_over_itself_is_one_line() -> None:
    """tqdm, for a long time: whatever it wrote, a line of a hundred characters is there."""
    page = Page(100, 10_000)
    for n in range(OVERWRITTEN * 90):
        assert page.stream("stderr", f"\r{n:100}") == (f"\r{n:100}", "")
    assert not page.full


def test_control_the_same_bar_on_lines_of_its_own_fills_the_page() -> None:
    page = Page(100, 10_000)
    for n in range(OVERWRITTEN * 90):
        page.stream("stderr", f"\n{n:100}")
    assert page.full


def test_drawing_over_has_an_end_too() -> None:
    page = Page(100, 10_000)
    shown, rest = put(page, *[f"\r{'x' * 100}"] * 100_000)
    assert len(shown) <= (OVERWRITTEN + 1) * 10_000
    assert page.full
    assert rest


@pytest.mark.parametrize("text", ["\r" + "x" * 50_000, "x" * 9000 + "\r" + "y" * 50_000, "\r".join(["x" * 6000] * 9)])
def test_a_return_hides_no_long_line(text: str) -> None:
    page = Page(100, 10_000)
    shown, rest = put(page, text, text)
    assert max(map(len, shown.split("\r"))) <= 10_000
    assert shown + rest == text + text


def test_taking_turns_between_streams_fills_the_page() -> None:
    """Each turn is an output of its own there, however short."""
    page = Page(100, 10_000)
    turns = sum(bool(page.stream(name, "x")[0]) for _ in range(1000) for name in ("stdout", "stderr"))
    assert turns == 100


def test_displays_fill_the_page_and_stand_between_streams() -> None:
    page = Page(100, 10_000)
    assert sum(page.display({}) for _ in range(1000)) == 9
    mixed = Page(100, 10_000)
    for _ in range(100):
        mixed.display({})
        mixed.stream("stdout", "x")
    assert mixed.full


def test_what_a_cell_clears_is_not_on_the_page() -> None:
    """A loop that shows its state and clears it goes on for long, and not for ever."""
    page = Page(100, 10_000)
    rounds = 0
    while put(page, "a line of text\n" * 50)[1] == "":
        page.clear()
        rounds += 1
        assert rounds < 10_000
    assert 50 < rounds < 100


def test_a_colour_is_not_cut_in_two() -> None:
    page = Page(100, 1000)
    text = "\x1b[31m*" * 1000
    shown, rest = put(page, text)
    assert shown + rest == text
    assert re.fullmatch(r"(?:\x1b\[31m\*)*(?:\x1b\[31m)?", shown)


def test_errors_have_an_end_and_the_first_is_shown_on_a_full_page() -> None:
    page = Page(100, 1000)
    put(page, "x" * 5000)
    assert page.full
    assert sum(page.error() for _ in range(1000)) == MAX_ERRORS


def test_a_long_text_loses_its_middle() -> None:
    page = Page(100, 10_000)
    text = "first\n" + "x" * 50_000 + "\nlast"
    short = page.shortened(text)
    assert short is not None
    assert short.startswith("first\n")
    assert short.endswith("x\nlast")
    assert len(short) < 10_000
    assert "characters are left out here" in short
    assert page.shortened("x" * 10_000) is None
    many = page.shortened("line\n" * 500)
    assert many is not None
    assert many.count("\n") < 150
    lines = page.traceback(["first"] + ["x" * 80] * 1000 + ["ValueError: the reason"])
    assert lines is not None
    assert lines[0] == "first"
    assert lines[-1] == "ValueError: the reason"
    assert page.traceback(["a", "b"]) is None


def test_the_tail_begins_with_a_line() -> None:
    text = "".join(f"{n:010}\n" for n in range(100_000))
    tail = tail_of(text)
    assert tail == "".join(f"{n:010}\n" for n in range(100_000 - TAIL_LINES, 100_000))
    assert len(tail_of("x" * 100_000)) == TAIL_CHARS
    assert tail_of("short") == "short"


PIECES = st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.text("ab\r\n\x1b[3m", max_size=40)), max_size=60)


def on_page(text: str) -> tuple[int, int]:
    """Count the lines and characters that stay of one output, in the plainest way."""
    lines = text.split("\n")
    return len(lines) - 1, sum(max(map(len, line.split("\r"))) for line in lines)


@given(PIECES)
def test_whatever_is_sent_in_whatever_pieces_the_page_stays_small_and_nothing_is_lost(
    pieces: list[tuple[str, str]],
) -> None:
    page = Page(10, 100)
    outputs: list[list[str]] = []
    last = ""
    for name, text in pieces:
        shown, rest = page.stream(name, text)
        assert shown + rest == text
        if shown:
            if name != last:
                outputs.append([])
                last = name
            outputs[-1].append(shown)
    counts = [on_page("".join(output)) for output in outputs]
    assert sum(lines for lines, _ in counts) <= 10
    assert sum(chars for _, chars in counts) <= 100


def test_displays_count_by_what_they_show() -> None:
    """A table of 40,000 cells is borne once; thirty of them keep a tab for a minute, and none is too large."""
    table = {"data": {"text/html": "<table>" + "<tr><td>x</td></tr>" * 20_000 + "</table>", "text/plain": "x"}}
    page = Page(10_000, 1 << 20)
    assert [page.display(table) for _ in range(4)] == [True, True, False, False]
    tree = {"data": {"application/json": list(range(900))}, "metadata": {"application/json": {"expanded": True}}}
    page = Page(10_000, 1 << 20)
    assert sum(page.display(tree) for _ in range(100)) == 12
    text = {"data": {"text/plain": "x" * 200_000}}
    page = Page(10_000, 1 << 20)
    assert sum(page.display(text) for _ in range(100)) == 6
    small = {"data": {"text/html": "<b>x</b>", "text/plain": "x"}}
    page = Page(10_000, 1 << 20)
    assert sum(page.display(small) for _ in range(2000)) == 999
    frame = {"data": {"text/html": "<iframe srcdoc='" + "<b>" * 40_000 + "'></iframe>"}}
    page = Page(10_000, 1 << 20)
    assert sum(page.display(frame) for _ in range(20)) == 20


CHART = "application/vnd.sandbox-kernel.chart+json"


@pytest.mark.parametrize("beside", [{CHART: {}}, {"text/html": "<b>x</b>"}, {"image/png": ""}, {"text/latex": "$x$"}])
def test_a_text_counts_whatever_is_beside_it(beside: dict[str, Any]) -> None:
    """No stock front end draws a type of ours: it shows the text. Sixty such displays had 593,940 lines."""
    page = Page(10_000, 1 << 20)
    assert sum(page.display({"data": {"text/plain": "x\n" * 9_899, **beside}}) for _ in range(60)) == 2
    page = Page(10_000, 1 << 20)
    assert sum(page.display({"data": {"text/plain": "x" * 200_000, **beside}}) for _ in range(60)) == 6


LINKS = ["www.a.b ", "https://a.b ", "abc://x ", 'data:xyz"', "\x1b[31mx" * 5]
"""JupyterLab makes an element of each. 120,000 links held the page for 12 s."""


@pytest.mark.slow
@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("each", [None, 1, 3, 7, 1000])
def test_links_and_colours_fill_a_page(link: str, each: int | None) -> None:
    page, text = Page(1_000, 1 << 20), link * 2_000
    pieces = [text] if each is None else [text[start : start + each] for start in range(0, len(text), each)]
    shown, rest = put(page, *pieces)
    assert shown + rest == text
    assert shown.count(link) <= 1_002
    assert page.full


@pytest.mark.parametrize("link", LINKS)
def test_a_display_of_links_fills_a_page_and_is_shortened(link: str) -> None:
    page = Page(1_000, 1 << 20)
    assert sum(page.display({"data": {"text/plain": link * 600}}) for _ in range(10)) == 2
    short = page.shortened(link * 2_000)
    assert short is not None
    assert short.count(link) <= 1_000
    assert page.shortened(link * 900) is None


def test_an_error_has_no_more_links_than_a_page() -> None:
    """In errors JupyterLab makes a link of each path, too."""
    page = Page(1_000, 1 << 20)
    short = page.traceback(["/a " * 100_000])
    assert short is not None
    assert "".join(short).count("/a") <= 2_000
    assert page.traceback([f'File "/mnt/data/x{n}.py", line 3' for n in range(900)]) is None


def test_control_a_link_in_each_line_is_no_more_than_its_line() -> None:
    page = Page(1_000, 1 << 20)
    text = "10:31 GET https://a.test/page \x1b[32m200\x1b[0m\n" * 990
    assert put(page, text) == (text, "")
    assert not page.full


def test_control_a_coloured_bar_with_a_link_that_is_drawn_over_is_one_line() -> None:
    page = Page(100, 10_000)
    for n in range(OVERWRITTEN * 80):
        text = f"\r\x1b[1m{n:4}\x1b[0m \x1b[32m====\x1b[0m\x1b[37m----\x1b[0m https://a.test www.b.test"
        assert page.stream("stderr", text) == (text, "")
    assert not page.full


def test_changes_of_direction_fill_a_page() -> None:
    """200,000 letters, of which each second goes from right to left, keep a tab for half a minute."""
    page = Page(10_000, 1 << 20)
    text = "1\u05d0" * 200_000
    shown, rest = put(page, *[text[start : start + 5000] for start in range(0, len(text), 5000)])
    assert shown + rest == text
    assert len(shown) <= 2 * slow_text.MAX_TURNS + 1
    assert page.full
    short = Page(10_000, 1 << 20).shortened(text)
    assert short is not None
    assert slow_text.turns(short) <= 2 * slow_text.MAX_TURNS
    honest = "\u05e9\u05dc\u05d5\u05dd 1234 abc\n" * 6000
    assert put(Page(10_000, 1 << 20), honest) == (honest, "")


def test_changes_of_script_fill_a_page() -> None:
    """A million letters, each of another script than the one before, keep a tab busy for half a minute."""
    text = "a\u4e00\u0e01\u0416\u1f00" * 40_000
    for pieces in ([text], [text[start : start + 5000] for start in range(0, len(text), 5000)]):
        page = Page(10_000, 1 << 20)
        shown, rest = put(page, *pieces)
        assert shown + rest == text
        assert slow_text.scripts(shown) <= slow_text.MAX_SCRIPTS
        assert page.full
    short = Page(10_000, 1 << 20).shortened(text)
    assert short is not None
    assert slow_text.scripts(short) <= slow_text.MAX_SCRIPTS
    assert is_long([text], 1 << 20)
    for honest in (
        "\u5b57 abc 1\n" * 9_000,
        "\u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440\n" * 9_000,
        "Ti\u1ebfng Vi\u1ec7t\n" * 9_000,
        "Tie\u0302\u0301ng Vie\u0323\u0302t s\u0336t\u0336r\u0336u\u0336c\u0336k\u0336\n" * 9_000,
    ):
        assert put(Page(10_000, 1 << 20), honest) == (honest, "")
        assert not is_long([honest], 1 << 20)


def test_a_json_is_long_by_its_texts() -> None:
    assert is_long({"a": ["x" * 600, {"b" * 600: 1}]}, 1000)
    assert not is_long({"a": ["x" * 300, {"b" * 300: 1}]}, 1000)
    assert is_long(["1\u05d0" * 30_000], 1 << 20)
    assert not is_long(list(range(100_000)), 1000)
