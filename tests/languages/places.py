"""What the tests of other languages need, which takes minutes to build: make test-languages."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

from sandbox_kernel.plugins.bubblewrap.discovery import bubblewrap_program

asked_for = pytest.mark.skipif(
    os.environ.get("SANDBOX_KERNEL_LANGUAGES") != "1",
    reason="they take images of their own: make test-languages",
)
ENGINES = ("docker", "bubblewrap")


def engine_is_here(engine: str) -> None:
    """Skip a test if this machine cannot run an engine's sandboxes."""
    if engine == "bubblewrap" and bubblewrap_program() is None:
        pytest.skip("there is no bwrap on this machine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """How a language says what every test asks for."""

    image: str
    kernel: str
    value: tuple[str, str]
    """An expression, and its text."""
    output: str
    """Writes `hello, world`."""
    error: tuple[str, str, str, str]
    """What raises, and what name, text and traceback have of it."""
    busy: str
    """A loop without an end."""
    memory: str
    """Takes more memory than there is."""
    flood: str
    """Writes much more than a million bytes."""
    death: str
    """Ends the kernel's process."""
    assign: str
    recall: tuple[str, str]
    """An expression of what `assign` set, and its text."""
    read: str
    """Writes what the file in.txt has."""
    write: str
    """Writes `made` into the file out.txt."""
    html: str
    """Shows the HTML in place of `%s`, a text without single quotes."""
    network: str
    """Tries to reach an address beyond the loopback of the sandbox, and raises."""


R = Language(
    image="sandbox-kernel:r",
    kernel="ir",
    value=("1 + 1", "[1] 2"),
    output="cat('hello, world\\n')",
    error=(
        "f <- function() g(); g <- function() stop('too deep'); f()",
        "ERROR",
        "Error in g(): too deep",
        "1. g()",
    ),
    busy="while (TRUE) {}",
    memory="x <- list(); while (TRUE) x[[length(x) + 1]] <- rnorm(1e6)",
    flood="for (i in 1:20000) cat(strrep('x', 1000), '\\n')",
    death="tools::pskill(Sys.getpid(), 9)",
    assign="kept <- 41",
    recall=("kept + 1", "[1] 42"),
    read="cat(readLines('in.txt'))",
    write="writeLines('made', 'out.txt', sep='')",
    html="IRdisplay::display_html('%s')",
    network="url('http://192.0.2.1/', 'r', timeout = 5)",
)
DENO = Language(
    image="sandbox-kernel:deno",
    kernel="deno",
    value=("const two: number = 1 + 1; two", "2"),
    output="console.log('hello, world')",
    error=("function f() { throw new TypeError('too deep') }; f()", "TypeError", "too deep", "at f ("),
    busy="while (true) {}",
    memory="const all: Uint8Array[] = []; while (true) all.push(new Uint8Array(1 << 24).fill(1))",
    flood="while (true) console.log('x'.repeat(1000))",
    death="Deno.exit(3)",
    assign="globalThis.kept = 41; 0",
    recall=("kept + 1", "42"),
    read="console.log(Deno.readTextFileSync('in.txt'))",
    write="Deno.writeTextFileSync('out.txt', 'made')",
    html="await Deno.jupyter.display({'text/html': '%s'}, {raw: true})",
    network="await fetch('http://192.0.2.1/')",
)
LANGUAGES = {"r": R, "deno": DENO}
