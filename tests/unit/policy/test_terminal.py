"""Text from a cell shows, and does nothing else, in a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbconvert.filters.ansi import ansi2html

from sandbox_kernel.core.model import OutputMode
from sandbox_kernel.policy import terminal
from sandbox_kernel.policy.cell_errors import error
from sandbox_kernel.policy.output_policy import MAX_PROMPT_LINES, OutputPolicy
from tests.support.cases import each
from tests.support.policy.messages import message


def printed(*texts: str, policy: OutputPolicy | None = None, parent: str = "c", stream: str = "stdout") -> str:
    policy = policy or OutputPolicy("safe")
    shown = []
    for text in texts:
        verdict = policy.apply(message("stream", {"name": stream, "text": text}, parent=parent))
        assert verdict.message is not None
        shown.append(verdict.message.content["text"])
    return "".join(shown)


@pytest.mark.parametrize(
    "text",
    [
        "plain\tand\nlines\r\n",
        "\r 50%|█████     | 1/2 [00:01<00:01]",
        "a\b \b",
        "\x1b[31mred\x1b[0m \x1b[1;38;5;208mbold\x1b[m \x1b[38:2::1:2:3mtrue colour\x1b[0m",
        "\x1b[2K\rline",
        "\x1b[K",
        "ünïcödé 日本 🎉\n",
        "",
    ],
)
def test_honest_text_passes_unchanged(text: str) -> None:
    """Unchanged means the very same message."""
    sent = message("stream", {"name": "stdout", "text": text})
    assert OutputPolicy("safe").apply(sent).message is sent or terminal.clean(text) == text == printed(text)


@each(
    ("text", "shown"),
    [
        ("a\x1b]0;title\x07b", "ab"),
        ("a\x1b]2;title\x1b\\b", "ab"),
        ("a\x1b]52;c;ZXZpbA==\x07b", "ab"),
        ("a\x1b]8;;http://evil.test\x1b\\text\x1b]8;;\x1b\\b", "atextb"),
        ("a\x1b]1337;File=inline=1:AAAA\x07b", "ab"),
        ("a\x1bPq#0;2\x1b\\b", "ab"),
        ("a\x1b_Gi=1\x1b\\b", "ab"),
        ("a\x1b^private\x1b\\b", "ab"),
        ("a\x1bXstring\x1b\\b", "ab"),
        ("a\x1b[2J\x1b[H\x1b[1;1fb", "ab"),
        ("a\x1b[5Bb\x1b[5Cc\x1b[5Dd\x1b[3Ge", "abcde"),
        ("a\x1b[?1049hb\x1b[?25lc", "abc"),
        ("a\x1b[6nb\x1b[cc\x1b[>0qd", "abcd"),
        ("a\x1b[20tb\x1b[21tc", "abc"),
        ("a\x1bcb\x1b7c\x1b8d\x1b=e", "abcde"),
        ("a\x1b(0b\x1b#8c", "abc"),
        ("a\x9b31mb\x9d0;t\x07c\x90x\x9cd", "a31mb0;tcxd"),
        ("a\x07\x00\x0b\x0c\x0e\x7fb", "ab"),
        ("a\x1b[31\x1b[0mb", "a31\x1b[0mb"),
        ("a\x1b\x1b]0;x\x07b", "ab"),
        ("a\x1b]never closed\nb", "anever closed\nb"),
        ("a\x1b[" + "1" * 1000 + "mb", "a" + "1" * 1000 + "mb"),
        ("a\udc9bb\ud800c", "abc"),
    ],
)
def test_a_sequence_that_does_something_is_gone(text: str, shown: str) -> None:
    assert printed(text) == shown
    assert terminal.clean(text) == shown


def test_a_colour_cut_by_two_messages_is_kept_whole() -> None:
    assert printed("a\x1b[3", "1mred") == "a\x1b[31mred"


@each("cut", range(1, 12))
def test_a_title_cut_by_two_messages_is_never_put_together(cut: int) -> None:
    text = "a\x1b]0;title\x07b"
    assert "\x1b" not in printed(text[:cut], text[cut:])


def test_a_held_sequence_belongs_to_its_stream_and_its_cell() -> None:
    policy = OutputPolicy("safe")
    assert printed("a\x1b", policy=policy) == "a"
    assert printed("[31mb", policy=policy, stream="stderr") == "[31mb"
    assert printed("[31mc", policy=policy, parent="another") == "[31mc"


def test_the_cursor_goes_up_over_lines_of_its_own_cell_only() -> None:
    policy = OutputPolicy("safe")
    assert printed("one\ntwo\n\x1b[A\x1b[A", policy=policy) == "one\ntwo\n\x1b[A\x1b[A"
    assert printed("\x1b[A\x1b[3Ax", policy=policy) == "x"
    assert printed("\n\n\x1b[9Ay", policy=policy) == "\n\n\x1b[2Ay"
    assert printed("\x1b[A", policy=policy, parent="the next cell") == ""


@pytest.mark.parametrize("name", ["stdin", "", None, 1, ["stdout"]])
def test_only_two_streams_exist(name: object) -> None:
    assert OutputPolicy("safe").apply(message("stream", {"name": name, "text": "x"})).message is None


def test_errors_and_prompts_are_text_too() -> None:
    policy = OutputPolicy("safe")
    bad = "x\x1b]0;t\x07\x1b[31my\x1b[A"
    verdict = policy.apply(message("error", {"ename": bad, "evalue": bad, "traceback": [bad, 1, None]}))
    assert verdict.message is not None
    assert verdict.message.content == {"ename": "x\x1b[31my", "evalue": "x\x1b[31my", "traceback": ["x\x1b[31my"]}
    verdict = policy.apply(message("input_request", {"prompt": bad, "password": "yes"}, channel="stdin"))
    assert verdict.message is not None
    assert verdict.message.content == {"prompt": "x\x1b[31my", "password": False}


def prompted(prompt: object, mode: OutputMode = "safe") -> str:
    verdict = OutputPolicy(mode).apply(message("input_request", {"prompt": prompt, "password": False}, channel="stdin"))
    assert verdict.message is not None
    return str(verdict.message.content["prompt"])


TURNS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("mode", ["safe", "strict"])
def test_a_prompt_does_not_turn_the_answer_behind_it(turn: str, mode: OutputMode) -> None:
    """Every sign that lasts until another one ends it goes, so none can last over what a person writes.

    Marks that end with themselves stay. The control: the same text that a cell prints, behind which nobody writes.
    """
    assert prompted(f"\u05e9\u05dd\u200f {turn}name? ", mode) == "\u05e9\u05dd\u200f name? "
    assert printed(f"{turn}name? ", policy=OutputPolicy(mode)) == f"{turn}name? "


def test_a_prompt_of_many_lines_keeps_those_before_the_answer() -> None:
    """Each end of line counts, whatever it was written as. The control: a menu of as many lines as may be."""
    for end in ("\n", "\r", "\r\n", "\u2028", "\u2029"):
        lines = prompted(end * 5_000 + "name? ").split("\n")
        assert (len(lines), lines[-1]) == (MAX_PROMPT_LINES, "name? ")
    menu = "\n".join(map(str, range(MAX_PROMPT_LINES)))
    assert prompted(menu) == menu


HALF = ["38", "48", "038", "0;38", "1;48", "38;5;1;38", "38;2;1;2;3;48", ";38"]
WHOLE = ["38;5;38", "1;38;2;1;2;48", "0;38;5;10;48;5;48;1", "38:2::1:2:3", "01;31", "", ";", "58;5;3"]


@pytest.mark.parametrize("colour", HALF)
def test_half_a_colour_does_not_pass(colour: str) -> None:
    """The export of a whole notebook fails at one, in the real converter: that is the control."""
    with pytest.raises(IndexError):
        ansi2html(f"\x1b[{colour}mx")
    assert terminal.clean(f"\x1b[{colour}mx") == "x"
    assert terminal.Screen().feed("stdout", "a", f"\x1b[{colour}mx") == "x"


@pytest.mark.parametrize("colour", WHOLE)
def test_a_whole_colour_passes(colour: str) -> None:
    assert terminal.clean(f"\x1b[{colour}mx") == f"\x1b[{colour}mx"


@given(st.lists(st.sampled_from(["", "0", "1", "2", "5", "38", "48", "038", "255", "999", "38:5:1"]), max_size=12))
def test_no_row_of_numbers_fails_in_the_export(numbers: list[str]) -> None:
    ansi2html(terminal.clean(f"\x1b[{';'.join(numbers)}mx"))


def test_calls_within_packages_are_left_out_where_a_file_or_a_network_is_missing() -> None:
    """The cell's own lines stay, and so does everything of other exceptions."""
    head, cell, last = "FileNotFoundError  Traceback", "\x1b[36mCell In[1]\x1b[39m, line 2\npd.read_csv('a')", "the end"
    own = "File \x1b[32m/mnt/data/own.py:2\x1b[39m, in f()"
    library = "File \x1b[32m/usr/local/lib/python3.13/dist-packages/pandas/io.py:1\x1b[0m, in read_csv()"
    frozen = "File <frozen codecs>:1, in open()"
    lines = [head, cell, library, frozen, own, library, last]
    told = error({"ename": "FileNotFoundError", "evalue": "[Errno 2] No such file", "traceback": lines})["traceback"]
    short = [head, cell, "[2 calls within packages left out]", own, "[1 call within packages left out]", last]
    assert told == short
    assert error({"ename": "FileNotFoundError", "evalue": "", "traceback": told})["traceback"] == short
    assert error({"ename": "ValueError", "evalue": "", "traceback": lines})["traceback"] == lines
    network = {"ename": "ConnectionError", "evalue": "Temporary failure in name resolution", "traceback": [library]}
    assert error(network)["traceback"] == ["[1 call within packages left out]"]
