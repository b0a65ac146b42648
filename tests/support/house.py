"""`make house`: how large the house is, and how long the ways of a cell and of a spec through it are.

Everything is counted from the sources as they lie there, and by running them without a container: `1` as a cell through
the requests of a session, with a scripted kernel, and a spec up to what Docker is asked for.
"""

from __future__ import annotations

import ast
import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

from tests.support import ROOT

PACKAGE = ROOT / "sandbox_kernel"
PLUGINS = PACKAGE / "plugins"
ONCE = 1
"""A warm-up before what is counted: imports and caches are no steps of a cell."""


def sources(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def classes(paths: Iterable[Path]) -> Counter[str]:
    """Return how many classes there are of each name."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in paths)
    return Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def words(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").split()) for path in paths)


class Walk:
    """The calls of functions of the package while it is open."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.calls = self.changes = 0
        self._last = ""

    def __enter__(self) -> Walk:
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _seen(self, frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event != "call" or not path.startswith(str(PACKAGE)):
            return
        self.calls += 1
        self.files.add(path)
        self.changes += path != self._last
        self._last = path

    def __str__(self) -> str:
        return f"{len(self.files)} files, {self.calls} calls, {self.changes} changes of file"


def walked(once: Callable[[], object]) -> Walk:
    """Return the walk of something that was done before."""
    for _ in range(ONCE):
        once()
    with Walk() as walk:
        once()
    return walk


async def cell() -> Walk:
    """Return the walk of the cell `1` through the requests of a session, from its request to its idle."""
    from tests.unit.session.requests.test_scheduler import Bench

    bench = Bench()

    def once() -> None:
        request = bench.submit(content={"code": "1"})
        bench.status("busy", request)
        bench.say("execute_input", {"code": "1", "execution_count": 1}, request)
        shown = {"data": {"text/plain": "1"}, "metadata": {}, "execution_count": 1}
        bench.say("execute_result", shown, request, plain=True)
        replied = {"status": "ok", "execution_count": 1, "user_expressions": {}, "payload": []}
        bench.say("execute_reply", replied, request, "shell", plain=True)
        bench.status("idle", request)

    try:
        return walked(once)
    finally:
        await bench.requests.close()


def spec() -> Walk:
    """Return the walk of a spec up to the body of Docker's request."""
    from sandbox_kernel.core.model import Settings
    from sandbox_kernel.engines.docker.ahead import creation
    from sandbox_kernel.engines.shipping import new_spec

    made = new_spec(Settings())

    def once() -> None:
        creation(made)[1].close()

    return walked(once)


def table() -> list[tuple[str, str]]:
    """Return the figures, each with its name before it."""
    package, tests = sources(PACKAGE), sources(ROOT / "tests")
    nucleus = [path for path in package if PLUGINS not in path.parents]
    twice = {name: count for name, count in classes(package).items() if count > 1}
    most = ", ".join(f"{name} {count}" for name, count in Counter(twice).most_common(4))
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    return [
        ("lines of the nucleus", f"{lines(nucleus):,}"),
        ("lines of the package", f"{lines(package):,}"),
        ("lines of the tests", f"{lines(tests):,}"),
        ("modules of the package", f"{len(package):,}"),
        ("names that several classes have", f"{len(twice)} ({most})"),
        ("words of the documents", f"{words(pages):,}"),
        ("cell `1` through the requests", str(asyncio.run(cell()))),
        ("a spec up to Docker's request", str(spec())),
    ]


def main() -> None:
    for name, figure in table():
        print(f"{name:<34}{figure}")


if __name__ == "__main__":
    main()
