"""The table of widgets, made from the installed ipywidgets: `python -m tests.support.policy.widget_spec` writes it.

What a trait is comes from ipywidgets; what a string may be comes from `STRINGS` here, which was read off the views:
what each does with it. A string without an entry stops the generator, so a new trait is looked at before it passes.
"""

from __future__ import annotations

import math
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import traitlets
from ipywidgets import Widget
from ipywidgets.widgets import trait_types, widget_link
from ipywidgets.widgets.trait_types import InstanceDict, NumberFormat, TypedTuple
from ipywidgets.widgets.widget import _registry
from ipywidgets.widgets.widget_media import _Media
from ipywidgets.widgets.widget_style import Style

from tests.support import ROOT

TABLE = ROOT / "sandbox_kernel/plugins/widgets/trait_table.py"

NAMES = frozenset(f"_{part}_{what}" for part in ("model", "view") for what in ("name", "module", "module_version"))
EVERYWHERE = ("_view_count",)

STRINGS = {
    "description": "math",  # text of a node that is then typeset, of a button without
    "placeholder": "text", "tooltip": "text", "error": "text", "accept": "text", "mapping": "text", "name": "text",
    "readout": "text",
    "icon": "icon",  # each word becomes a class with `fa-` before it
    "icons": "glyphs",  # becomes part of `class` as it is
    "format": "media",  # the end of a media type; `url` makes the value an address
    "height": "size", "width": "size",  # attributes of <img> and <video>
    "titles": "texts", "tooltips": "texts", "options": "texts", "_options_labels": "texts",
    "_dom_classes": "classes",
    "msg_id": "msg_id", "outputs": "outputs",
    "value": "text",
}  # fmt: skip
SPECIAL = {
    ("HTMLModel", "value"): "markup",  # innerHTML
    ("HTMLMathModel", "value"): "markup",  # innerHTML, then typeset
    ("LabelModel", "value"): "math",
    ("FileUploadModel", "value"): "files",
    # A view looks for each of its buttons among all of them: time grows with the square.
    ("RadioButtonsModel", "_options_labels"): "texts:1000",
    ("ToggleButtonsModel", "_options_labels"): "texts:1000",
    ("DatePickerModel", "step"): "step",
    ("TimePickerModel", "step"): "step",
    ("TimeModel", "step"): "step",
}
STYLES = {
    "bar_color": "background-color", "button_color": "background-color", "handle_color": "background-color",
    "button_width": "width", "description_width": "width", "text_color": "color", "background": "background",
    "font_family": "font-family", "font_size": "font-size", "font_style": "font-style",
    "font_variant": "font-variant", "font_weight": "font-weight", "text_decoration": "text-decoration",
}  # fmt: skip
"""Traits of the style models -> the property that the view sets, from `styleProperties` of their sources."""
ALSO = {"description_allow_html": "never", "allowed_tags": "tags"}


def registered() -> Iterator[type[Widget]]:
    """Yield every class that ipywidgets registers and that can be made."""
    for versions in _registry._registry.values():
        for models in versions.values():
            for views in models.values():
                for modules in views.values():
                    for names in modules.values():
                        yield from (cls for cls in names.values() if cls is not _Media)


def default(cls: type[Widget], name: str) -> Any:
    return cls.class_traits()[name].default_value


@cache
def own_names() -> dict[str, dict[str, Any]]:
    """Return what each model's messages say of its class."""
    found = {default(cls, "_model_name"): {key: default(cls, key) for key in sorted(NAMES)} for cls in registered()}
    assert len(found) > 60
    return found


def rule(cls: type[Widget], name: str, trait: Any) -> str:
    """Return the rule of one trait: a word, what it is bounded by, and `?` if it may be null."""
    model = default(cls, "_model_name")
    null = "?" if trait.allow_none else ""
    if (model, name) in SPECIAL:
        return SPECIAL[model, name]
    if name in ALSO:
        return ALSO[name]
    if name == "rows":
        return "rows" + null
    if isinstance(trait, traitlets.Float) and trait.min > -math.inf and trait.max < math.inf:
        return f"number:{trait.min:g}..{trait.max:g}{null}"
    if isinstance(trait, traitlets.Enum):
        return "enum:" + "|".join(trait.values) + null  # type: ignore[arg-type]
    if model == "LayoutModel" and isinstance(trait, traitlets.Unicode):
        return f"css:{name.replace('_', '-')}"
    if model.endswith("StyleModel"):
        return f"css:{STYLES[name]}"
    if isinstance(trait, (InstanceDict, TypedTuple)) and (found := _references(trait)):
        return found
    if isinstance(trait, widget_link.WidgetTraitTuple):
        return "link"
    for kinds, word in (
        (traitlets.Bool, "bool"),
        (traitlets.Int, "int"),
        (traitlets.Float, "number"),
        (trait_types.Datetime, "datetime"),
        (trait_types.Date, "date"),
        (trait_types.Time, "time"),
        (trait_types.Color, "color"),
        (NumberFormat, "number_format"),
        (trait_types.ByteMemoryView, "buffer"),
    ):
        if isinstance(trait, kinds):
            return word + null
    if isinstance(trait, traitlets.Tuple) and name in ("index", "value") and not isinstance(trait, TypedTuple):
        return "ints:2" if name == "index" else "numbers:2"
    if isinstance(trait, traitlets.Container):
        inner = {"Int": "ints", "CInt": "ints", "CFloat": "numbers", "Color": "colors"}.get(_inside(trait))
        if inner:
            return inner
        if model == "TagsInputModel" and name == "value":
            return "texts:1000"
    return STRINGS[name] + (null if isinstance(trait, traitlets.Unicode) else "")


def _inside(trait: Any) -> str:
    return type(getattr(trait, "_trait", None)).__name__


def _references(trait: Any) -> str | None:
    inner = trait if isinstance(trait, InstanceDict) else getattr(trait, "_trait", None)
    if not isinstance(inner, traitlets.Instance):
        return None
    inner._resolve_classes()
    klass = inner.klass
    if not (isinstance(klass, type) and issubclass(klass, Widget)):
        return None
    if issubclass(klass, Style):
        return "style"
    many = "refs" if isinstance(trait, TypedTuple) else "ref"
    if klass is Widget:
        return many
    names = sorted({default(cls, "_model_name") for cls in registered() if issubclass(cls, klass)})
    return f"{many}:{'|'.join(names)}"


SHORT = {
    "DOM": ("_dom_classes", "layout", "tabbable", "tooltip"),
    "LABELLED": ("description", "description_allow_html", "style"),
}
"""Traits that come together, and what stands for them."""
HEAD = '''
"""What ipywidgets is made of: its models, their modules and views, and what each trait may hold. Imports nothing.

Generated by tests/support/policy/widget_spec.py from ipywidgets itself; a test compares. Rules: `trait_rules`.
"""
'''


def table() -> str:
    """Return the module's source."""
    models: dict[str, tuple[str, str, dict[str, str]]] = {}
    for cls in registered():
        found = cls.class_traits(sync=True)
        module, major, view_major = (
            default(cls, name).removeprefix("@jupyter-widgets/").partition(".")[0]
            for name in ("_model_module", "_model_module_version", "_view_module_version")
        )
        assert view_major in ("", major), cls
        view = default(cls, "_view_name")
        path = f"{default(cls, '_view_module').removeprefix('@jupyter-widgets/')}/{view}" if view else ""
        traits = {name: rule(cls, name, found[name]) for name in sorted(found) if name not in {*NAMES, *EVERYWHERE}}
        models[default(cls, "_model_name")] = (f"{module} {major}", path, traits)
    counts = Counter(one for _, _, traits in models.values() for one in traits.items())
    usual = {
        name: max(sorted(word for key, word in counts if key == name), key=lambda word, name=name: counts[name, word])  # type: ignore[misc]
        for name, _ in counts
    }
    lines = [HEAD.strip(), "", "RULES = {"]
    for word in sorted(set(usual.values())):
        lines += _entry(word, sorted(name for name in usual if usual[name] == word))
    lines += ["}", '"""Rule -> the traits that it is for, where a model names no other."""', "", "SHORT = {"]
    for word, names in SHORT.items():
        lines += _entry(word, list(names))
    lines += ["}", '"""Traits that come together."""', "", "MODELS = {"]
    for name, (module, path, traits) in sorted(models.items()):
        words = [key if word == usual[key] else f"{key}={word}" for key, word in traits.items()]
        for short, names in SHORT.items():
            if all(traits.get(key) == usual[key] for key in names):
                words = [short, *(word for word in words if word not in names)]
        lines += _entry(name, [f"{module} {path or '-'}", *words])
    lines += [
        "}",
        '"""Model -> its module, its major version, module and name of its only view, its traits."""',
    ]
    return "\n".join([*lines, ""])


def _entry(key: str, words: list[str]) -> list[str]:
    """Return lines of a dictionary: a key and a text of words."""
    line = f'    "{key}": "{" ".join(words)}",'
    if len(line) <= 120:
        return [line]
    text = " ".join(words)
    pieces = textwrap.wrap(text, 110 if len(text) <= 110 else 105, break_long_words=False, break_on_hyphens=False)
    ends = [" "] * (len(pieces) - 1) + [""]
    return [f'    "{key}": (', *(f'        "{piece}{end}"' for piece, end in zip(pieces, ends, strict=True)), "    ),"]


if __name__ == "__main__":
    TABLE.write_text(table())
    subprocess.run([sys.executable, "-m", "ruff", "format", "-q", str(TABLE)], check=True)
