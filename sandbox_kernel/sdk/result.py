"""One result of a cell: a value in the representations that the output policy passed.

A value without I/O. The names are those that people know from hosted code interpreters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..policy import chart_data
from .charts import Chart
from .output_text import JsonText

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
_NAMES = {kind: name for name, kind in _FORMATS.items()} | {_PDF: "pdf", chart_data.TYPE: "chart"}


@dataclass(frozen=True, slots=True)
class Result:
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
        """Base64 text."""
        return self._text("png")

    @property
    def jpeg(self) -> str | None:
        """Base64 text."""
        return self._text("jpeg")

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
        return Chart.parse(self.data.get(chart_data.TYPE))

    @property
    def extra(self) -> Mapping[str, Any]:
        """The representations that have no name here, by MIME type."""
        return {kind: value for kind, value in self.data.items() if kind not in _NAMES}

    def formats(self) -> list[str]:
        """Return what this result has, by these names; a type without a name is given in full."""
        known = [name for kind, name in _NAMES.items() if kind in self.data]
        return known + [kind for kind in self.data if kind not in _NAMES]

    def to_dict(self) -> dict[str, Any]:
        """Return it as values of JSON."""
        return asdict(self)

    def to_json(self) -> JsonText:
        """Return it as JSON."""
        return JsonText.of(self.to_dict())

    def __getitem__(self, name: str) -> Any:
        """Return an attribute by its name, as in `result["png"]`. Raises KeyError for what is none."""
        if name in _FORMATS or name in {"pdf", "chart", "data", "extra", "is_main_result"}:
            return getattr(self, name)
        raise KeyError(name)

    def _text(self, name: str) -> str | None:
        value = self.data.get(_FORMATS[name])
        return value if isinstance(value, str) else None

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        # A widget's model lives in another page, if anywhere, and no page shows a chart's data.
        left_out = {_WIDGET, chart_data.TYPE}
        return {kind: value for kind, value in self.data.items() if kind not in left_out}, dict(self.metadata)

    def __repr__(self) -> str:
        text = f", text={short(self.text)}" if self.text is not None else ""
        return f"Result({', '.join(self.formats())}{text})"


def short(text: str | None, limit: int = 60) -> str:
    """Return the beginning of a text as a literal, for `repr`."""
    text = text or ""
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")
