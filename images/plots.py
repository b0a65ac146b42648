"""Plots that carry all they need: each output is one HTML document that works without a network and without its page.

Plots that have glyphs for what they say, too, and tables that are read with what is there. A module of the image,
`sandbox_plots`, which every kernel's start calls.
"""

import re
import sys
from functools import lru_cache
from importlib.abc import Loader, MetaPathFinder
from importlib.util import find_spec

LIBRARY = 100_000
"""Characters; a longer script is packed here, as the host would pack it: a figure is small in the pipe, too."""
SIGNS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%,()*+-;.=/?@^_`{|}~"
"""As in the host's `policy/frame_libraries.py`: those of base 85, but that none needs an escape."""
_SIGNS = bytes.maketrans(b"&<>", b",./")
_SCRIPT = re.compile('<script(?: type="text/javascript")?>')


@lru_cache(maxsize=8)
def packed(code):
    """Return the name of a script and what it is in the host's form; each library of a session is packed once."""
    import hashlib
    import zlib
    from base64 import b85encode

    raw = code.encode()
    deflate = zlib.compressobj(7, zlib.DEFLATED, -15)
    data = deflate.compress(raw) + deflate.flush()
    text = b85encode(data, pad=True).translate(_SIGNS).decode()
    return f"{hashlib.sha256(text.encode()).hexdigest()}:{len(raw)}:{len(data)}", text


def late(html):
    """Return HTML whose libraries are packed, and whose scripts run after them: the host's frame has them do so."""
    pieces, place = [], 0
    while tag := _SCRIPT.search(html, place):
        end = html.index("</script>", tag.end())
        name, code = "", html[tag.end() : end]
        if len(code) > LIBRARY:
            name, code = packed(code)
            name = f' data-packed="{name}"'
        first = "" if pieces else f"<script>{_script('unpack.js')}</script>"
        pieces += [html[place : tag.start()], first, f'<script type="text/later"{name}>', code]
        place = end
    return "".join(pieces) + html[place:]


def _script(name):
    """Return a script that lies beside this module."""
    from pathlib import Path

    return Path(__file__).with_name(f"sandbox_{name}").read_text(encoding="utf-8")


def _shows_no_outlines(figure):
    """Return whether a map has areas of its own alone."""
    geos = [value for key, value in figure.get("layout", {}).items() if key.startswith("geo")]
    return (
        bool(geos)
        and all(geo.get("visible") is False for geo in geos)
        and not any("locations" in trace and "geojson" not in trace for trace in figure.get("data", ()))
    )


def _plotly(module):
    from plotly.io import to_html
    from plotly.io._base_renderers import MimetypeRenderer

    class SelfContained(MimetypeRenderer):
        def to_mimebundle(self, figure):
            scripts = ["plotly_without_outlines.js"] if _shows_no_outlines(figure) else []
            scripts = [_script(name) for name in (*scripts, "plotly_failures.js")]
            html = to_html(figure, include_mathjax=False, full_html=False, default_height="525px")
            return {"text/html": late("".join(f"<script>{script}</script>" for script in scripts) + html)}

    module.renderers["sandbox"] = SelfContained()
    module.renderers.default = "sandbox"


def _plotly_widget(module):
    from plotly.io import renderers

    said = (
        "<div><small>[plotly] A FigureWidget is shown as it is now. Later changes need another display.</small></div>"
    )

    def shown(self, include=None, exclude=None, **options):
        bundle = renderers["sandbox"].to_mimebundle(self.to_dict())
        return {"text/html": bundle["text/html"] + said, "text/plain": repr(self)}

    module.BaseFigureWidget._repr_mimebundle_ = shown


def _altair(module):
    from altair.utils.html import spec_to_html

    def show(spec, **metadata):
        versions = {
            "vega_version": module.VEGA_VERSION,
            "vegaembed_version": module.VEGAEMBED_VERSION,
            "vegalite_version": module.VEGALITE_VERSION,
        }
        html = spec_to_html(spec, mode="vega-lite", template="inline", output_div="vis", **versions)
        height = spec.get("height")
        # Vega gives the chart its size only when it draws; the frame around it has to know before. 300 is its default.
        room = (height if isinstance(height, int | float) else 300) + 80
        html += f"<style>#vis{{min-height:{room:.0f}px}}</style>"
        return {"text/html": html}

    module.renderers.register("sandbox", show)
    module.renderers.enable("sandbox")


def _bokeh(module):
    from bokeh.io.notebook import show_app
    from bokeh.io.state import curstate

    def load(resources=None, verbose=False, hide_banner=True, load_timeout=5000):
        pass

    def show(model, state=None, notebook_handle=False):
        from bokeh.embed import file_html
        from bokeh.resources import INLINE
        from IPython.display import publish_display_data

        html = late(file_html(model, INLINE, suppress_callback_warning=True))
        publish_display_data({"text/html": html, "text/plain": repr(model)})

    module.install_notebook_hook("jupyter", load, show, show_app, overwrite=True)
    curstate().output_notebook("jupyter")


_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans Arabic", "Noto Sans Devanagari", "Hind Siliguri", "Noto Sans Tamil"),
    *("Noto Sans Telugu", "Noto Sans Thai", "Noto Sans Khmer"),
)
"""Asked one after another for glyphs that a text's own font lacks."""


def _matplotlib(module):
    """Have each text fall back on the image's fonts, whatever its own is.

    A list in `font.family` would do that for plots without a theme alone, for themes name fonts of their own; and it
    would say of each bold title that these have no bold.
    """
    find, names = module.FontManager._find_fonts_by_props, {font.name for font in module.fontManager.ttflist}
    others = module.FontProperties(family=[name for name in _FONTS if name in names])

    def find_with_others(self, prop, fontext="ttf", *more, **options):
        found = find(self, prop, fontext, *more, **options)
        return found if fontext != "ttf" else list(dict.fromkeys([*found, *find(self, others)]))

    if names.intersection(_FONTS):
        module.FontManager._find_fonts_by_props = find_with_others


def _pandas(module):
    """Read OpenDocument tables with what is there: odfpy, which pandas takes by itself, has no wheel."""
    if find_spec("odf") is None:
        module.cf.set_option("io.excel.ods.reader", "calamine")


def _psutil(module):
    from sandbox_measures import fit

    fit(module)


_SETUP = {
    "plotly.io._renderers": _plotly,
    "plotly.basewidget": _plotly_widget,
    "altair.vegalite.v6.display": _altair,
    "bokeh.io": _bokeh,
    "matplotlib.font_manager": _matplotlib,
    "pandas.core.config_init": _pandas,
    "psutil": _psutil,
}


class _After(Loader):
    def __init__(self, loader, setup):
        self.loader, self.setup = loader, setup

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        try:
            self.setup(module)
        except Exception as error:  # another version of the library: its own way of showing is better than none
            print(f"{module.__name__} keeps its own renderer: {error!r}", file=sys.stderr)


class _Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        setup = _SETUP.pop(name, None)
        spec = find_spec(name) if setup else None
        if spec is not None and spec.loader is not None:
            spec.loader = _After(spec.loader, setup)
        return spec


def prepare():
    """Have each library set up when it is imported. The names of this module stay out of the cells' own."""
    sys.meta_path.insert(0, _Finder())
