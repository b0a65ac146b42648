"""Streams with escapes, cut anywhere, on two streams of two cells: nothing but colours, and no row above the first."""

from __future__ import annotations

from collections.abc import Iterator

from sandbox_kernel.policy import terminal

from .. import judge
from ..judge import require
from ..words import HONEST, TERMINAL


def run(data: bytes) -> None:
    """The first byte says how the rest is cut, the second where it goes."""
    step, route, text = data[:1] or b"\0", data[1:2] or b"\0", data[2:].decode("utf-8", "surrogateescape")
    text = "".join(char if not "\udc80" <= char <= "\udcff" else chr(ord(char) - 0xDC00) for char in text)  # C1 too
    once = terminal.clean(text)
    judge.terminal(once)
    require(terminal.clean(once) == once or terminal.clean(text) == once, text)
    require(terminal.is_plain(once) or "\x1b[" in once, text)
    screen = terminal.Screen()
    shown = {"a": "", "b": ""}
    size = step[0] or len(text) or 1
    for number, start in enumerate(range(0, len(text), size)):
        stream = "stderr" if route[0] & 1 and number & 1 else "stdout"
        cell = "b" if route[0] & 2 and start > len(text) // 2 else "a"
        piece = screen.feed(stream, cell, text[start : start + size])
        judge.terminal(piece, up=True)
        shown[cell] += piece
    for whole in shown.values():
        judge.terminal(whole, up=True)
        judge.rows(whole)
        require(len(whole) <= len(text) + 8 * len(text.split("\x1b")), "more came out than went in")


def seeds() -> Iterator[bytes]:
    texts = [*TERMINAL, *HONEST, "a\nb\n\x1b[2A", "\n" * 5 + "\x1b[9A" + "x\x1b[A" * 9, "".join(TERMINAL)]
    for text in texts:
        for head in (b"\0\0", b"\1\0", b"\3\1", b"\2\3"):
            yield head + text.encode("utf-8", "surrogatepass")
