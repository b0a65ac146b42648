"""Documents through the policy and then through a renderer; what is found is told apart, made small and kept."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from sandbox_kernel.policy.output_policy import OutputPolicy
from tests.support.policy.messages import message

from . import exports
from .chromium import LostError, Page
from .documents import Document, document, number_of

RENDERERS = ("lab", "vscode", "nbconvert", "nbconvert-classic")
MODES = ("safe", "strict")
BATCH = 200
Filter = Callable[[Document], "dict[str, Any] | None"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A document that a renderer makes something bad of, although it went through the policy."""

    renderer: str
    mode: str
    document: Document
    faults: tuple[str, ...]


@dataclass(slots=True)
class Tally:
    """How far a hunt has come."""

    renderer: str
    documents: int = 0
    outputs: int = 0
    dropped: int = 0
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)

    @property
    def per_minute(self) -> int:
        return round(60 * self.documents / self.seconds) if self.seconds else 0


def filtered(given: Document, mode: str) -> dict[str, Any] | None:
    """Return the outputs that are left of a document, each type of a bundle for itself; None if nothing passes.

    Each front end shows the one type that it likes best, and a person may choose another.
    """
    verdict = OutputPolicy(mode).apply(message(given.kind, given.content))
    if verdict.message is None:
        return None
    content = verdict.message.content
    outputs: list[dict[str, Any]] = []
    if given.kind == "stream":
        outputs = [{"type": content["name"], "value": content["text"], "metadata": {}}]
    elif given.kind == "error":
        outputs = [{"type": "error", "value": "\n".join(content["traceback"]), "metadata": {}}]
    else:
        for name, value in content["data"].items():
            if name == "application/json":
                continue  # front ends show it as a tree of texts, exports not at all
            text = "".join(value) if isinstance(value, list) and all(isinstance(one, str) for one in value) else value
            if isinstance(text, str):
                outputs.append({"type": name, "value": text, "metadata": content["metadata"]})
    return {"number": given.number, "outputs": outputs}


def judged(page: Page, renderer: str, shown: Sequence[dict[str, Any]]) -> dict[int, list[str]]:
    """Render and judge what was filtered; raises `LostError` if the page does not come back."""
    if not renderer.startswith("nbconvert"):
        return page.render(renderer, shown)
    template = "classic" if renderer.endswith("classic") else "lab"
    began = time.monotonic()
    html = exports.export(shown, template)
    took = time.monotonic() - began
    faults, defined = page.open(html, [one["number"] for one in shown])
    if took > 2 + 0.05 * len(shown):
        faults.setdefault(0, []).append(f"its export took {took:.1f} s")
    for name in sorted(set(defined) - _known(page, template)):
        faults.setdefault(number_of(name), []).append(f"defined: {name}")
    return faults


_KNOWN: dict[str, set[str]] = {}


def _known(page: Page, template: str) -> set[str]:
    """Return the macros of a MathJax that has met nothing but harmless formulas."""
    if template not in _KNOWN:
        html = exports.export(
            [{"number": 1, "outputs": [{"type": "text/latex", "value": r"$\alpha$", "metadata": {}}]}], template
        )
        _KNOWN[template] = set(page.open(html, [1])[1])
    return _KNOWN[template]


def search(page: Page, renderer: str, mode: str, shown: Sequence[dict[str, Any]]) -> Iterator[tuple[int, list[str]]]:
    """Yield the numbers of all documents with faults; halves what hangs or cannot be told apart."""
    try:
        faults = judged(page, renderer, shown)
    except LostError as error:
        faults = {0: [str(error)]}
        if len(shown) == 1:  # who came before may have taken the page away
            with suppress(LostError):
                faults = judged(page, renderer, shown)
    mine = {one["number"] for one in shown}
    unclear = [what for number, found in faults.items() if number not in mine for what in found]
    if unclear and len(shown) == 1:
        faults = {shown[0]["number"]: [what for found in faults.values() for what in found]}
    elif unclear:
        clear = {number for number in faults if number in mine}
        for number in sorted(clear):
            yield number, faults[number]
        rest = [one for one in shown if one["number"] not in clear]
        middle = (len(rest) + 1) // 2
        for half in (rest[:middle], rest[middle:]):
            if half:
                yield from search(page, renderer, mode, half)
        return
    for number in sorted(faults):
        yield number, faults[number]


def hunt(
    page: Page, renderer: str, modes: Sequence[str], documents: Sequence[Document], tally: Tally
) -> Iterator[Finding]:
    """Put documents through the policy and a renderer, and yield what is found."""
    for mode in modes:
        began = time.monotonic()
        shown = [one for one in (filtered(given, mode) for given in documents) if one is not None]
        by_number = {given.number: given for given in documents}
        tally.documents += len(documents)
        tally.dropped += len(documents) - len(shown)
        tally.outputs += sum(len(one["outputs"]) for one in shown)
        found = list(search(page, renderer, mode, shown)) if shown else []
        tally.seconds += time.monotonic() - began
        for number, faults in found:
            finding = Finding(renderer, mode, by_number[number], tuple(faults))
            tally.findings.append(finding)
            yield finding


def seen(page: Page, renderer: str, mode: str, given: Document) -> tuple[str, ...]:
    """Return what is wrong with one document."""
    shown = filtered(given, mode)
    if shown is None:
        return ()
    return tuple(what for _, faults in search(page, renderer, mode, [shown]) for what in faults)


def batches(seed: int, count: int, start: int = 0) -> Iterator[list[Document]]:
    for first in range(start, start + count, BATCH):
        yield [document(seed, number + 1) for number in range(first, min(first + BATCH, start + count))]


def kind_of(faults: Sequence[str]) -> str:
    """Return the first fault without what differs from document to document."""
    return re.sub(r"[0-9]+", "N", faults[0].partition(": ")[0])[:60]


# --- making small ----------------------------------------------------------------------------------------------------


def texts(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    if isinstance(content, str):
        yield path, content
    elif isinstance(content, dict):
        for key, value in content.items():
            yield from texts(value, (*path, key))
    elif isinstance(content, list):
        for key, value in enumerate(content):
            yield from texts(value, (*path, key))


def with_text(content: Any, path: tuple[Any, ...], text: str) -> Any:
    if not path:
        return text
    copy = json.loads(json.dumps(content))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = text
    return copy


def small(page: Page, finding: Finding, rounds: int = 400) -> Finding:
    """Return a finding of the same kind with as little text as can be found in so many renderings."""
    kinds = {kind_of([fault]) for fault in finding.faults}

    def still(given: Document) -> tuple[str, ...]:
        found = seen(page, finding.renderer, finding.mode, given)
        return found if {kind_of([fault]) for fault in found} & kinds else ()

    for path, _ in list(texts(finding.document.content)):
        step = 10**9
        while rounds > 0:
            text = dict(texts(finding.document.content))[path]
            step = min(step, max(1, len(text) // 2))
            for at in range(0, len(text), step):
                shorter = text[:at] + text[at + step :]
                rounds -= 1
                given = replace(finding.document, content=with_text(finding.document.content, path, shorter))
                if rounds > 0 and (faults := still(given)):
                    finding = replace(finding, document=given, faults=faults)
                    break
            else:
                if step == 1:
                    break
                step //= 2
    return finding
