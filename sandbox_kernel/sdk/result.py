"""One result of a cell: a value in the representations that the output policy passed.

A value without I/O. The names are those that people know from hosted code interpreters.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..plugins.index import CHART
from ..policy.raster import MAGIC, image_type
from .output_text import InJson

if TYPE_CHECKING:
    from .. import Chart

_WIDGET = "application/vnd.jupyter.widget-view+json"
_FORMATS = {
    "text": "text/plain",
    "html": "text/html",
    "markdown": "text/markdown",
    "svg": "image/svg+xml",
    "png": "image/png",
    "jpeg": "image/jpeg",
    "latex": "text/latex",
    "json": "application/json",
    "javascript": "application/javascript",
}
"""The names people use, in the order in which `Result.formats` gives them."""
_PDF = "application/pdf"
MAX_PICTURES = 100
"""Of one result: what its markup shows."""
_SHOWN = re.compile(r"(?:\ssrc=[\"']?|\][(:]\s{0,9}<?)data:image/\w{3,4};base64,([A-Za-z0-9+/\s]{4,}={0,2})")
"""A picture in HTML or in Markdown."""
_NAMES = {kind: name for name, kind in _FORMATS.items()} | {_PDF: "pdf", CHART: "chart"}


@dataclass(frozen=True, slots=True)
class Result(InJson):
    """One thing that a cell displayed, or its last expression: a value in one or more representations."""

    data: Mapping[str, Any]
    """Representations by MIME type, as Jupyter has them: images are base64 text, JSON is decoded."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    is_main_result: bool = False
    """Whether it is the value of the cell's last expression; everything else was displayed."""
    display_id: str | None = None

    @property
    def text(self) -> str | None:
        return self._text("text")

    @property
    def html(self) -> str | None:
        """A table, or in a frame of its own what is a program (plotly, altair, bokeh)."""
        return self._text("html")

    @property
    def markdown(self) -> str | None:
        return self._text("markdown")

    @property
    def svg(self) -> str | None:
        """None unless `outputs` is `trusted`: the other modes turn a drawing into an image in `html`."""
        return self._text("svg")

    @property
    def png(self) -> str | None:
        """Base64 text; the first picture of that type, if it is HTML or Markdown that shows some."""
        return self._picture("image/png")

    @property
    def jpeg(self) -> str | None:
        """Base64 text; the first picture of that type, if it is HTML or Markdown that shows some."""
        return self._picture("image/jpeg")

    @property
    def pictures(self) -> list[tuple[str, str]]:
        """Each picture as its MIME type and base64 text: the result itself, or what its HTML or Markdown shows."""
        own = ((kind, self.data[kind]) for kind in MAGIC if isinstance(self.data.get(kind), str))
        return list(islice(own, 1)) or list(islice(self._shown(), MAX_PICTURES))

    @property
    def is_picture(self) -> bool:
        """Whether it is a picture itself, whose text is no more than its name."""
        return any(isinstance(self.data.get(kind), str) for kind in MAGIC)

    @property
    def latex(self) -> str | None:
        return self._text("latex")

    @property
    def json(self) -> Any:
        return self.data.get(_FORMATS["json"])

    @property
    def javascript(self) -> str | None:
        """None unless `outputs` is `trusted`."""
        return self._text("javascript")

    @property
    def pdf(self) -> str | None:
        """None unless `outputs` is `trusted`: no other mode passes documents."""
        value = self.data.get(_PDF)
        return value if isinstance(value, str) else None

    @property
    def chart(self) -> Chart | None:
        """What a matplotlib figure shows, as data: a `LineChart`, `BarChart`, ... None for everything else.

        The code in the sandbox wrote it, as it wrote the picture: it is proper, and need not be what the picture shows.
        """
        if CHART not in self.data:
            return None
        from .. import Chart  # of the plugin that let it pass

        return Chart.parse(self.data[CHART])

    @property
    def extra(self) -> Mapping[str, Any]:
        """The representations that have no name here, by MIME type."""
        return {kind: value for kind, value in self.data.items() if kind not in _NAMES}

    def formats(self) -> list[str]:
        """Return what this result has, by these names; a type without a name is given in full."""
        shown = {kind for kind, _ in self.pictures}
        known = [name for kind, name in _NAMES.items() if kind in self.data or kind in shown]
        return known + [kind for kind in self.data if kind not in _NAMES]

    def __getitem__(self, name: str) -> Any:
        """Return an attribute by its name, as in `result["png"]`. Raises KeyError for another name."""
        if name in _FORMATS or name in {"pdf", "chart", "data", "extra", "is_main_result"}:
            return getattr(self, name)
        raise KeyError(name)

    def _text(self, name: str) -> str | None:
        value = self.data.get(_FORMATS[name])
        return value if isinstance(value, str) else None

    def _picture(self, kind: str) -> str | None:
        own = self.data.get(kind)
        return own if isinstance(own, str) else dict(reversed(self.pictures)).get(kind)

    def _shown(self) -> Iterator[tuple[str, str]]:
        markup = self.html or self.markdown or ""
        for found in _SHOWN.finditer(markup if " srcdoc=" not in markup else ""):  # that of a frame is its program's
            data = "".join(found[1].split())
            kind = image_type(base64.b64decode(data[:32])) if len(data) % 4 == 0 else None
            if kind is not None:
                yield kind, data

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        # A widget's model lives in another page, if anywhere, and no page shows a chart's data.
        left_out = {_WIDGET, CHART}
        return {kind: value for kind, value in self.data.items() if kind not in left_out}, dict(self.metadata)

    def __repr__(self) -> str:
        text = f", text={short(self.text)}" if self.text is not None else ""
        return f"Result({', '.join(self.formats())}{text})"


def short(text: str | None, limit: int = 60) -> str:
    """Return the beginning of a text as a literal, for `repr`."""
    text = text or ""
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")
