"""Libraries in frames are packed, and come once where a notebook's cells can share them."""

from __future__ import annotations

import html
import random
import re
from typing import Any

import pytest

from sandbox_kernel.policy import frame, frame_libraries
from sandbox_kernel.policy.frame_libraries import MAX_CELLS, MAX_CODE, MAX_LIBRARIES, CellRun, Libraries, Packer
from sandbox_kernel.policy.output_policy import OutputPolicy
from tests.support.policy.check import faults
from tests.support.policy.messages import filtered, message

LIBRARY = "function draw(what){document.body.append(what)} /* much of it */\n" * 3000
FIGURE = f'<div id="a"></div><script id="b">{LIBRARY}</script><script>draw("x & y")</script>'
PACKED = Packer().pack(LIBRARY)
NAME = re.compile(r"data-packed=(?:&amp;quot;|\")([0-9a-f]{64}):")


def inner(shown: str) -> str:
    return html.unescape(html.unescape(shown))


def shown(policy: OutputPolicy, place: CellRun | None, **content: Any) -> str:
    sent = message("display_data", {"data": {"text/html": FIGURE}, "metadata": {}, "transient": {}} | content)
    passed = policy.apply(sent, place).message
    assert passed is not None
    page: str = passed.content["data"]["text/html"]
    return page


def brings(policy: OutputPolicy, place: CellRun | None, **content: Any) -> bool:
    """Return whether the figure of a cell brings its library; it is packed either way."""
    page = shown(policy, place, **content)
    assert faults(page) == []
    assert NAME.search(page)
    return PACKED is not None and PACKED.text in page


def test_a_figure_is_a_fraction_of_its_library_and_needs_no_hash_of_a_script() -> None:
    assert PACKED is not None
    page = shown(OutputPolicy("safe"), None)
    assert len(page) < len(LIBRARY) / 5
    assert faults(page) == []
    assert LIBRARY not in inner(page)
    assert f'<script type="text/later" data-packed="{PACKED.name}" id="b">{PACKED.text}</script>' in inner(page)
    assert '<script type="text/later">draw("x & y")</script>' in inner(page)
    assert frame.RUNNER_HASH in page
    assert len(re.findall("sha256-", page)) == 5  # the guard's and the runner's in both, the watch's in the outer


def test_what_is_packed_passes_once_more_as_it_is() -> None:
    for place in (None, CellRun("a", "1"), CellRun("b", "2")):
        policy = OutputPolicy("safe")
        policy.apply(message("display_data", {"data": {"text/html": FIGURE}, "metadata": {}}), CellRun("c", "0"))
        once = shown(policy, place)
        again, verdict = filtered({"text/html": once})
        assert (again["text/html"], verdict.reasons) == (once, ())


def test_strict_has_no_frame_and_so_nothing_packed() -> None:
    data, _ = filtered({"text/html": FIGURE}, OutputPolicy("strict"))
    assert "<iframe" not in data["text/html"]


def test_the_next_cell_does_without_and_the_same_one_run_again_brings_it_along() -> None:
    policy = OutputPolicy("safe")
    assert brings(policy, CellRun("a", "1"))
    assert not brings(policy, CellRun("a", "1")), "the second figure of the same run"
    assert not brings(policy, CellRun("b", "2"))
    assert brings(policy, CellRun("b", "3")), "a cell that runs again gets what it needs, whatever became of the first"
    assert not brings(policy, CellRun("c", "4"))
    assert not brings(policy, CellRun("a", "5")), "its own output is replaced, but another brought it since"
    assert brings(policy, CellRun("a", "6"))


def test_each_notebook_of_a_client_that_names_no_cell_has_it_once() -> None:
    policy = OutputPolicy("safe")
    got = [brings(policy, CellRun(cell, cell, notebook=cell[0])) for cell in ("a1", "a2", "a2", "a3", "b1", "b2", "a4")]
    assert got == [True, False, False, False, True, False, True]
    assert brings(policy, CellRun("x", "1")), "another front end has a notebook of its own"


def test_all_cells_run_again_have_it_once() -> None:
    policy = OutputPolicy("safe")
    for turn in range(3):
        runs = [brings(policy, CellRun(cell, f"{cell}{turn}")) for cell in "abcde"]
        assert runs == [True, False, False, False, False]


def test_it_comes_again_where_what_had_it_is_gone() -> None:
    policy = OutputPolicy("safe")
    assert brings(policy, CellRun("a", "1"))
    assert brings(policy, CellRun("b", "2", gone=("a",))), "the cell was deleted"
    policy.apply(message("clear_output", {"wait": True}), CellRun("b", "2"))
    assert brings(policy, CellRun("b", "2")), "the output was cleared"
    policy = policy.renewed()
    assert brings(policy, CellRun("c", "3")), "another kernel, perhaps of another notebook"


def test_what_is_no_place_of_a_notebook_always_brings_it() -> None:
    policy = OutputPolicy("safe")
    assert brings(policy, None)
    assert brings(policy, None)
    updatable = {"transient": {"display_id": "x"}}
    assert brings(policy, CellRun("a", "1"), **updatable), "it may be replaced at any time"
    assert brings(policy, CellRun("b", "2"))
    assert brings(policy, CellRun("c", "3"), **updatable)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_libraries, "MAX_KEPT", 200_000)
    libraries = Libraries()
    for number in range(2 * MAX_CELLS):
        libraries.leaves_out(f"{number % (2 * MAX_LIBRARIES)}", CellRun(f"cell {number}", "1"))
    assert (len(libraries.cells), len(libraries.held)) == (MAX_CELLS, MAX_LIBRARIES)
    packer = Packer()
    for number in range(9):
        packer.pack("".join(random.Random(number).choices("abcdefgh", k=110_000)))
    assert 100_000 < packer.size <= 200_000


def test_what_gets_no_smaller_is_shared_all_the_same() -> None:
    noise = "".join(random.Random(1).choices(frame_libraries.SIGNS, k=110_000))
    made = Packer().pack(noise)
    assert len(noise) < len(made.text) < len(noise) * 1.05
    page = inner(frame.wrap(f"<script>{noise}</script>", lambda name: name == made.name))
    assert f'<script type="text/later" data-packed="{made.name}"></script>' in page


def test_a_library_that_came_packed_is_shared_by_its_hash_and_control_none_with_another_name() -> None:
    """An image packs what its figures bring. A cell can write the same, so the hash is looked at."""
    assert PACKED is not None
    asked: list[str] = []

    def leaves_out(name: str) -> bool:
        asked.append(name)
        return True

    def tag(name: str, text: str) -> str:
        return f'<script type="text/later" data-packed="{name}">{text}</script><script type="text/later">1</script>'

    source = tag(PACKED.name, PACKED.text)
    once = frame.wrap(source, leaves_out)
    assert asked == [PACKED.name]
    assert tag(PACKED.name, "") in inner(once)
    assert filtered({"text/html": once})[0]["text/html"] == once
    assert tag(PACKED.name, PACKED.text) in inner(frame.wrap(source, lambda name: False))
    asked.clear()
    forged = PACKED.text.replace("A", "B")
    for other in (
        tag(PACKED.name, forged),
        tag(PACKED.name, ""),
        tag("0" * 64 + ":1:1", PACKED.text),
        tag(PACKED.name + ":1", PACKED.text),
        source.replace("data-packed", "data-other"),
    ):
        page = frame.wrap(other, leaves_out)
        assert (asked, faults(page)) == ([], [])
        assert other in inner(page)


def test_what_is_too_much_stays_as_it_is() -> None:
    large = "x" * (MAX_CODE + 1)
    assert f'<script type="text/later">{large}</script>' in inner(frame.wrap(f"<script>{large}</script>"))


def test_whatever_the_tags_say_the_frame_is_the_same_once_more() -> None:
    """Marks that a cell writes itself name nothing but a script of its own."""
    for tag in (
        f'<script type="text/later" data-packed="{"0" * 64}:1:1">{LIBRARY}</script>',
        f'<script type="text/later" data-packed="{"0" * 64}:1:1"></script><script>1</script>',
        f"<script {'a' * 299}>{LIBRARY}</script>",
        f"<script type=module>{LIBRARY}</script>",
        f"<script src=x>{LIBRARY}</script>",
        f"<div title='<script>{LIBRARY}</script>'>x</div>",
        f"<!--<script>{LIBRARY}</script>--><script>1</script>",
        f"<script>1</script><script type='text/later'>{LIBRARY}</script>",
    ):
        page = frame.wrap(tag)
        assert faults(page) == []
        again, _ = filtered({"text/html": page})
        assert again["text/html"] == page, tag[:100]
