"""The models of ipywidgets as the policy uses them: what a message may say of each, and what refers to what.

The view is a property of the model here: what draws a value is what it was filtered for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...policy.verdict import RefusedError, named
from .codes import WidgetCode
from .trait_table import MODELS, RULES, SHORT

NAMES = tuple(f"_{part}_{what}" for part in ("model", "view") for what in ("name", "module", "module_version"))
"""What says which class a model and its view are. It is the same from the opening of a comm to its end."""
EVERYWHERE = {"_view_count": "int?"}

SERIES = 8
"""The major version of ipywidgets whose models are in the table."""
_VERSION = re.compile(r"[\^~]?([0-9]{1,3})(?:\.[0-9]{1,3}){0,2}")


@dataclass(frozen=True, slots=True)
class Model:
    """One class of ipywidgets: what its messages must say of it, and the rule of each trait."""

    name: str
    module: str
    major: str
    view_module: str
    view_name: str | None
    traits: Mapping[str, str]

    @property
    def shown(self) -> bool:
        """Whether it is a widget with a place on the page: no style, layout or link."""
        return "_dom_classes" in self.traits

    def named_by(self, state: Mapping[str, Any]) -> bool:
        """Return whether a state says nothing of its class but what is true: it may say less, or no view."""
        allowed: dict[str, tuple[str | None, ...]] = {"_model_name": (self.name,), "_model_module": (self.module,)}
        allowed |= {"_view_name": (self.view_name, None), "_view_module": (self.view_module, None)}
        for key, values in allowed.items():
            if key in state and state[key] not in values:
                return False
        return all(
            self.version(state[key]) or (key[1] == "v" and state[key] in (None, ""))
            for key in ("_model_module_version", "_view_module_version")
            if key in state
        )

    def version(self, value: object) -> bool:
        match = _VERSION.fullmatch(value) if isinstance(value, str) else None
        return match is not None and match[1] == self.major


@cache
def models() -> Mapping[str, Model]:
    """Return the table as it is used, made when the first widget is seen."""
    usual = {trait: rule for rule, traits in RULES.items() for trait in traits.split()}
    found = {}
    for name, entry in MODELS.items():
        module, major, view, *words = entry.split()
        traits = {}
        for word in " ".join(SHORT.get(word, word) for word in words).split():
            trait, _, rule = word.partition("=")
            traits[trait] = rule or usual[trait]
        view_module, _, view_name = view.partition("/")
        found[name] = Model(
            name,
            f"@jupyter-widgets/{module}",
            major,
            f"@jupyter-widgets/{view_module if view_name else module}",
            view_name or None,
            {**EVERYWHERE, **traits},
        )
    return found


def referred(value: Any, opened: Mapping[str, str]) -> str | None:
    """Return the comm id of the open model that a value refers to, None if it refers to none."""
    if not isinstance(value, str) or not value.startswith("IPY_MODEL_"):
        return None
    comm_id = value.removeprefix("IPY_MODEL_")
    return comm_id if comm_id in opened else None


def carried(end: Any, opened: Mapping[str, str]) -> str | None:
    """Return what kind of value a link would copy from or to a widget's trait, None if none that may be copied.

    A link copies in the browser, past this filter: from what a Text holds into what an HTML shows, for one.
    """
    found = referred(end[0], opened) if isinstance(end, (list, tuple)) and len(end) == 2 else None
    if found is None or not isinstance(end[1], str):
        return None
    rule = models()[opened[found]].traits.get(end[1], "").removesuffix("?")
    return {"int": "number", "number": "number", "bool": "bool", "numbers:2": "two", "ints:2": "two"}.get(rule)


def model_of(state: Mapping[str, Any]) -> Model | None:
    """Return the class that a first state names, None if it is none of ipywidgets as the table knows it."""
    name = state.get("_model_name")
    model = models().get(name) if isinstance(name, str) else None
    needed = ("_model_module", "_model_module_version")
    return model if model and all(key in state for key in needed) and model.named_by(state) else None


PACKAGES = {
    "jupyter-matplotlib": "ipympl",
    "jupyter-leaflet": "ipyleaflet",
    "jupyterlab-plotly": "plotly (FigureWidget)",
    "plotlywidget": "plotly (FigureWidget)",
    "jupyter-threejs": "pythreejs",
    "jupyter-vuetify": "ipyvuetify",
    "jupyter-vue": "ipyvue",
    "nglview-js-widgets": "nglview",
    "@bokeh/jupyter_bokeh": "jupyter_bokeh",
    "@jupyter-widgets/jupyterlab-sidecar": "sidecar",
}
"""Python packages whose widgets come from a module of another name."""


def package_of(state: Any) -> str | None:
    """Return the package of a widget that is none of ipywidgets, if its first state names it."""
    module = state.get("_model_module") if isinstance(state, dict) else None
    if not isinstance(module, str):
        return None
    if module == "anywidget" and "FigureWidget" in str(state.get("_anywidget_id", ""))[:200]:
        return PACKAGES["plotlywidget"]
    return PACKAGES.get(module, named(module))


def stranger(state: Any) -> RefusedError:
    """Say why a widget is not one of ipywidgets."""
    names = state if isinstance(state, dict) else {}
    name, module = names.get("_model_name"), names.get("_model_module")
    model = models().get(name) if isinstance(name, str) else None
    if model is None or module != model.module:
        return RefusedError(WidgetCode.WIDGET_OF_OTHERS, module=named(module))
    if not model.version(names.get("_model_module_version")):
        return RefusedError(WidgetCode.WIDGET_VERSION, series=SERIES)
    return RefusedError(WidgetCode.WIDGET_VIEW, model=model.name)
