"""MIME bundles: each type has one rule, and a type without a rule does not pass.

A rule returns the value that may pass, or None, having said why in the notes. Rules for markup are loaded with the
first of it: a start takes in none, and they are a tenth of what it would import.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ..core.codes import OutputCode
from ..plugins import index
from . import line_ends, raster, terminal
from .allowance import ExcessError, of_formulas, of_images
from .frame_libraries import Packer
from .json_check import NotPlainError, plain, values
from .raster import MAGIC
from .verdict import Notes, named

MAX_TYPES = 32
MAX_EXPANDED = 1_000
"""Values of JSON that a front end may be asked to show unfolded: each is an element, and 40,000 take ten seconds."""

JSON = "application/json"
_BETTER = frozenset(("text/html", "text/markdown", "image/png", "image/jpeg", "image/svg+xml"))
"""What front ends show rather than LaTeX."""
_SAID = re.compile(r"<div><small>\[sandbox_kernel: [^<]{1,2000}\]</small></div>\Z")
"""What looks like a note of ours, at the end of HTML. It may be anybody's: it is filtered by itself, as any HTML is."""
_ALTERNATIVES = re.compile(
    r"application/vnd\.(?:plotly|vega|vegalite|bokehjs_exec|bokehjs_load|holoviews_exec|holoviews_load)\b[\w.+-]*"
)
"""Specifications for a program in the page: they load URLs and hold expressions. The same output's HTML has it all."""


@dataclass(frozen=True, slots=True)
class Bundles:
    """The rules for MIME bundles of one session.

    `frames` allows programs in a frame, `model_shown` says whether a widget model was let through.
    """

    frames: bool
    model_shown: Callable[[str], bool] = field(default=lambda model_id: False)
    package: Callable[[str], str | None] = field(default=lambda model_id: None)
    """Names the package of a widget model that was not let through, if that is known."""
    leaves_out: Callable[[str], bool] | None = None
    """Says whether a library may stay away, which the page has already."""
    packer: Packer = field(default_factory=Packer)

    def apply(
        self, data: Any, metadata: Any, notes: Notes, *, line: bool = True
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return a bundle and its metadata as they may pass; with `line`, the output says what was removed."""
        if not isinstance(data, dict):
            notes.add(OutputCode.NO_BUNDLE)
            data = {}
        before = Notes()
        kept: dict[str, Any] = {}
        for name, value in list(data.items())[:MAX_TYPES]:
            self._one(name, value, kept, before, data)
        if len(data) > MAX_TYPES:
            before.add(OutputCode.MANY_TYPES, count=len(data) - MAX_TYPES, most=MAX_TYPES)
        if data and not kept and not before:
            before.add(OutputCode.NO_TYPE_SHOWN, types=", ".join(named(name) for name in list(data)[:3]))
        for note in before:
            notes.take(note)
        notes.work += before.work
        if before and line:
            _say(kept, before.line())
        same = len(kept) == len(data) and all(name in kept and kept[name] == data[name] for name in data)
        return (data if same else kept), _folded(_metadata(metadata, kept), kept)

    def _html(self, value: str, notes: Notes) -> str:
        from . import html

        said = _SAID.search(value)
        kept = html.render(
            value[: said.start()] if said else value,
            notes,
            frames=self.frames,
            leaves_out=self.leaves_out,
            packer=self.packer,
        )
        return kept + html.sanitise(said[0], notes) if said else kept

    def _one(self, name: str, value: Any, kept: dict[str, Any], notes: Notes, data: Mapping[str, Any]) -> None:
        if isinstance(value, list) and value and all(isinstance(item, str) for item in value) and name[:5] != "appli":
            value = "".join(value)  # the multi-line strings of notebook files
        if name == "text/plain" and isinstance(value, str):
            kept[name] = terminal.clean(value)
        elif name == "text/latex" and isinstance(value, str):
            from . import tex

            if tex.is_latex(value := tex.as_meant(value), left := of_formulas()):
                kept[name] = value
                notes.work += left.work
            elif not _BETTER & data.keys():
                notes.add(OutputCode.LATEX_AS_TEXT)
                _as_text(value, kept)
        elif name == "text/html" and isinstance(value, str):
            kept[name] = self._html(value, notes)
        elif name == "text/markdown" and isinstance(value, str):
            from . import markdown

            if markdown.is_text(value):
                kept[name] = value
                notes.work += markdown.elements(value)
            elif "text/html" not in kept:
                kept["text/html"] = markdown.render(value, notes)
                _as_text(value, kept)
        elif name in MAGIC and isinstance(value, str):
            if (pixels := raster.pixels(value, name)) is None:
                notes.add(OutputCode.NO_SUCH_IMAGE, type=name)
            elif pixels > raster.MAX_PIXELS:
                notes.add(OutputCode.IMAGE_PIXELS, type=name, millions=pixels // 1_000_000)
            else:
                kept[name] = value
                notes.work += raster.work(pixels)
        elif name == "image/svg+xml" and isinstance(value, str):
            if "text/html" not in kept:
                self._svg(value, kept, notes)
        elif name == JSON:
            try:
                kept[name] = _texts(plain(value))
            except NotPlainError as error:
                notes.add(OutputCode.JSON_NOT_PLAIN, why=error.why)
        elif name == index.CHART and (rule := index.rule_of(name)) is not None:
            if (chart := rule(value)) is not None:
                kept[name] = chart
            else:
                notes.add(OutputCode.CHART_IMPROPER)
        elif name == "application/vnd.jupyter.widget-view+json":
            self._widget(name, value, kept, notes)
        elif isinstance(name, str) and _ALTERNATIVES.fullmatch(name):
            return
        elif name == "application/javascript":
            notes.add(OutputCode.JAVASCRIPT)
        else:
            notes.add(OutputCode.TYPE_NOT_SHOWN, type=named(name))

    def _svg(self, value: str, kept: dict[str, Any], notes: Notes) -> None:
        from . import svg

        try:
            image, missed = svg.clean(value, left := of_images())
        except (svg.ImproperSVG, ExcessError) as error:
            notes.add(OutputCode.SVG_REFUSED, why=error)
            return
        if missed:
            notes.add(OutputCode.SVG_PART)
        notes.work += left.work
        kept["text/html"] = f'<img src="{svg.address(image)}">'

    def _widget(self, name: str, value: Any, kept: dict[str, Any], notes: Notes) -> None:
        model = value.get("model_id") if isinstance(value, dict) else None
        if isinstance(model, str) and self.model_shown(model):
            kept[name] = (
                value
                if value.keys() == {"model_id", "version_major", "version_minor"}
                and value["version_major"] == 2
                and value["version_minor"] in (0, 1)
                else {"version_major": 2, "version_minor": 0, "model_id": model}
            )
        elif isinstance(model, str) and (package := self.package(model)):
            notes.add(OutputCode.WIDGET_OF_PACKAGE, package=package)
        else:
            notes.add(OutputCode.WIDGET_NOT_SHOWN)


def _as_text(value: str, kept: dict[str, Any]) -> None:
    """Keep the source for readers of text, if the kernel gave them no more than the name of an object."""
    from . import markdown

    if markdown.stands_for(kept.get("text/plain")):
        kept["text/plain"] = terminal.clean(line_ends.ended(markdown.readable(value)))


def _texts(value: Any) -> Any:
    """Return JSON whose strings are texts without power over a terminal; the same object if they are."""
    # All in one, as nothing that matters goes over the end of a line: a table has hundreds of thousands.
    texts = list(line_ends.strings(value))
    whole = "\n".join(texts)
    clean = terminal.clean(whole)
    if clean == whole:
        return value
    lines = iter(clean.split("\n"))
    return _with(value, {text: "\n".join(islice(lines, text.count("\n") + 1)) for text in texts})


def _with(value: Any, cleaned: Mapping[str, str]) -> Any:
    """Return JSON with each string as it is when clean; what has none that changes is the very same object."""
    if isinstance(value, str):
        return cleaned[value]
    if isinstance(value, dict):
        kept = {cleaned[key]: _with(item, cleaned) for key, item in value.items()}
        return value if len(kept) == len(value) and all(kept.get(key, kept) is value[key] for key in value) else kept
    if isinstance(value, (list, tuple)):
        items = [_with(item, cleaned) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    return value


def _say(kept: dict[str, Any], line: str) -> None:
    """Put the line where the front end looks: it shows HTML rather than Markdown rather than text."""
    from . import html

    if "text/markdown" in kept and "text/html" not in kept:
        # Words only, and the line is more.
        kept["text/html"] = line_ends.markup(f"<p>{html.escape(kept.pop('text/markdown'))}</p>")
    if "text/html" in kept:
        said = line_ends.markup(f"<div><small>{html.escape(line)}</small></div>")
        kept["text/html"] = kept["text/html"].removesuffix(said) + said
    else:
        text = kept.get("text/plain")
        if not isinstance(text, str) or line not in text:
            kept["text/plain"] = f"{text}\n{line}" if text and not text.startswith("<") else line


_SIZE = re.compile(r"[0-9]{1,5}(?:\.[0-9]{1,4})?(?:px|%)?", re.ASCII)
_ROOT = re.compile(r"[\w .-]{0,64}")
MAX_SIZE = 100_000
"""CSS pixels."""


def _is_size(value: Any) -> bool:
    """Return whether a width or height is a number: exports of notebooks write it into a tag without quotes."""
    if isinstance(value, str):
        return _SIZE.fullmatch(value) is not None
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= MAX_SIZE


_SCALARS: dict[str, Callable[[Any], bool]] = {
    "width": _is_size,
    "height": _is_size,
    "needs_background": lambda value: value in ("light", "dark"),
    "unconfined": lambda value: isinstance(value, bool),
    "root": lambda value: isinstance(value, str) and _ROOT.fullmatch(value) is not None,
    "expanded": lambda value: isinstance(value, bool),
}


def _folded(metadata: Mapping[str, Any], kept: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata of a bundle without the wish to see all of a large JSON at once."""
    wishes = metadata.get(JSON)
    if not (isinstance(wishes, dict) and wishes.get("expanded")) or values(kept[JSON], MAX_EXPANDED) <= MAX_EXPANDED:
        return metadata
    return {**metadata, JSON: {key: value for key, value in wishes.items() if key != "expanded"}}


def _metadata(metadata: Any, kept: Mapping[str, Any]) -> Mapping[str, Any]:
    """Sizes only, for types that are there: `isolated` and `trusted` are ways around what is decided here."""
    if not isinstance(metadata, dict) or not metadata:
        return metadata if isinstance(metadata, dict) else {}
    result: dict[str, Any] = {}
    for name, value in list(metadata.items())[:MAX_TYPES]:
        if name in _SCALARS and _SCALARS[name](value):
            result[name] = value
        elif name in kept and isinstance(value, dict):
            result[name] = {key: value[key] for key in value if key in _SCALARS and _SCALARS[key](value[key])}
    return metadata if result == metadata else result
