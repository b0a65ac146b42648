"""Comms: the widget protocol for the widgets of ipywidgets itself, each state checked key by key; no other channel.

Imports the filters beside it. A comm names a JavaScript module and feeds it; only `@jupyter-widgets/base`, `controls`
and `output` may be named. What their views do with a string decides how that string is treated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from . import css, html, terminal, tex
from .budget import MAX_COMMS
from .mime import Bundles
from .plain import POISON, plain
from .verdict import Notes, RefusedError, named

TARGET, CONTROL = "jupyter.widget", "jupyter.widget.control"

_MODULES = ("@jupyter-widgets/base", "@jupyter-widgets/controls", "@jupyter-widgets/output")
_CLASS = re.compile(r"[A-Z][A-Za-z0-9]{1,60}(?:Model|View)")
_VERSION = re.compile(r"[\^~]?[0-9]{1,3}(?:\.[0-9]{1,3}){0,2}|\*")
_DOM_CLASS = re.compile(r"widget-[\w-]{1,40}|mod-[\w-]{1,20}")
_ICON = re.compile(r"[a-z0-9 -]{0,80}")
_FORMATS = re.compile(r"png|jpe?g|gif|webp|bmp|svg\+xml|mp4|webm|ogg|ogv|mp3|mpeg|wav|flac|m4a|aac", re.IGNORECASE)
_METHODS = ("update", "echo_update", "custom", "update_states")

_MARKUP = frozenset(("HTMLModel", "HTMLMathModel"))
_TYPESET = frozenset(("LabelModel",))
_CSS = re.compile(r"(?:Layout|Style)Model\Z")
_LINKS = frozenset(("LinkModel", "DirectionalLinkModel"))
_LINKABLE = re.compile(
    r"(?:(?:Bounded)?(?:Int|Float)\w*|Checkbox|ToggleButton|Valid|Play|Select|SelectMultiple|Dropdown|RadioButtons"
    r"|ToggleButtons|Selection\w*Slider|Tab|Accordion|Stack)Model"
)
_LINKED_TRAITS = ("value", "min", "max", "step", "disabled", "index", "selected_index")
"""A link copies a value in the browser, past this filter: from what a Text holds into what an HTML shows, for one."""


class Widgets:
    """The open comms of a session."""

    def __init__(self, bundles: Bundles, *, allowed: bool) -> None:
        self._bundles = bundles
        self._allowed = allowed
        self._models: dict[str, str] = {}
        """Comm id of each widget model that was let through -> class of the model."""
        self._front: dict[str, str] = {}
        """Comm id -> target of the comms that the front end opened itself."""

    def model_shown(self, comm_id: str) -> bool:
        return comm_id in self._models

    def is_open(self, comm_id: str) -> bool:
        return comm_id in self._models or comm_id in self._front

    def front_opens(self, comm_id: str, target: str) -> None:
        """Note that the front end opens a comm: it expects answers."""
        if len(self._front) < MAX_COMMS:
            self._front[comm_id] = target

    def front_closes(self, comm_id: str) -> None:
        self._front.pop(comm_id, None)
        self._models.pop(comm_id, None)

    def open(self, content: Mapping[str, Any], parent: str, notes: Notes) -> Mapping[str, Any]:
        comm_id, target = content.get("comm_id"), content.get("target_name")
        if not isinstance(comm_id, str) or not comm_id or len(comm_id) > 200:
            raise RefusedError("dropped a comm without a proper id")
        if target != TARGET or content.get("target_module"):
            raise RefusedError(f"dropped a comm to {named(target)}: not one that may reach your browser")
        if not self._allowed:
            raise RefusedError("dropped a widget: no active content in this mode")
        if self.is_open(comm_id):
            raise RefusedError("dropped a comm whose id is in use")
        if len(self._models) >= MAX_COMMS:
            raise RefusedError(f"dropped a widget: {MAX_COMMS} comms are open")
        data = content.get("data")
        state = data.get("state") if isinstance(data, dict) else None
        model = state.get("_model_name") if isinstance(state, dict) else None
        if not isinstance(data, dict) or not isinstance(state, dict) or not self._names_allowed(state):
            module = state.get("_model_module") if isinstance(state, dict) else None
            raise RefusedError(f"dropped a widget of {named(module)}: only those of ipywidgets may run in your browser")
        checked = self._data(data, str(model), parent, notes)
        self._models[comm_id] = str(model)
        module = {"target_module": None} if "target_module" in content else {}
        return {"comm_id": comm_id, "target_name": TARGET, "data": checked, **module}

    def message(self, content: Mapping[str, Any], parent: str, notes: Notes) -> Mapping[str, Any]:
        comm_id, data = content.get("comm_id"), content.get("data")
        if not isinstance(comm_id, str) or not self.is_open(comm_id):
            raise RefusedError("dropped a message on a comm that is not open")
        if (target := self._front.get(comm_id)) is not None:
            if not self._allowed:
                raise RefusedError("dropped a comm message: no active content in this mode")
            if target == CONTROL:
                return self._control(comm_id, data, parent, notes)
            if target != TARGET:  # the front end asked for this conversation: it knows what to make of the answers
                return {"comm_id": comm_id, "data": plain(data)}
        if not isinstance(data, dict) or data.get("method") not in _METHODS:
            raise RefusedError("dropped a widget message of an unknown kind")
        if data["method"] == "custom":
            detail = data.get("content")
            if isinstance(detail, dict) and detail.get("do") in ("focus", "blur"):
                return {"comm_id": comm_id, "data": {"method": "custom", "content": {"do": detail["do"]}}}
            raise RefusedError("dropped a widget's own message: it has no meaning for the widgets that may run")
        checked = self._data(data, self._models.get(comm_id, ""), parent, notes)
        return {"comm_id": comm_id, "data": checked}

    def close(self, content: Mapping[str, Any]) -> Mapping[str, Any]:
        comm_id = content.get("comm_id")
        if not isinstance(comm_id, str) or not self.is_open(comm_id):
            raise RefusedError("dropped the end of a comm that is not open")
        self.front_closes(comm_id)
        return {"comm_id": comm_id, "data": {}}

    # --- one model's state ------------------------------------------------------------------------------------------

    def _names_allowed(self, state: Mapping[str, Any]) -> bool:
        """Return whether every class and module named in a state is one of ipywidgets."""
        for key in ("_model_module", "_view_module"):
            if state.get(key) is not None and state[key] not in _MODULES:
                return False
        for key in ("_model_name", "_view_name"):
            if state.get(key) is not None and not (isinstance(state[key], str) and _CLASS.fullmatch(state[key])):
                return False
        for key in ("_model_module_version", "_view_module_version"):
            if state.get(key) is not None and not (isinstance(state[key], str) and _VERSION.fullmatch(state[key])):
                return False
        return "_model_module" not in state or ("_model_name" in state and state["_model_module"] in _MODULES)

    def _data(self, data: Mapping[str, Any], model: str, parent: str, notes: Notes) -> dict[str, Any]:
        state = data.get("state")
        if not isinstance(state, dict) or not self._names_allowed(state):
            raise RefusedError("dropped a widget update that names another class")
        result: dict[str, Any] = {"state": self._state(state, model, parent, notes)}
        if isinstance(data.get("method"), str):
            result["method"] = data["method"]
        if isinstance(data.get("echo"), list):
            result["echo"] = [key for key in data["echo"] if isinstance(key, str)]
        paths = data.get("buffer_paths")
        if paths is not None:
            if not _paths_allowed(paths):
                raise RefusedError("dropped a widget update with improper buffer paths")
            result["buffer_paths"] = paths
        return result

    def _state(self, state: Mapping[str, Any], model: str, parent: str, notes: Notes) -> dict[str, Any]:
        state = plain(state)
        if model in _LINKS and not all(self._linkable(state.get(end)) for end in ("source", "target") if end in state):
            raise RefusedError("dropped a link between widgets that would copy markup in your browser")
        return {key: self._value(key, value, model, parent, notes) for key, value in state.items()}

    def _linkable(self, end: Any) -> bool:
        if not (isinstance(end, list) and len(end) == 2 and isinstance(end[0], str) and end[1] in _LINKED_TRAITS):
            return False
        name = self._models.get(end[0].removeprefix("IPY_MODEL_"), "")
        return bool(_LINKABLE.fullmatch(name))

    def _value(self, key: str, value: Any, model: str, parent: str, notes: Notes) -> Any:
        """Return what the value of one trait may be; what the view makes of it decides."""
        if key == "outputs":
            return (
                [self._output(output, notes) for output in value if isinstance(output, dict)]
                if isinstance(value, (list, tuple))
                else []
            )
        if key == "msg_id":
            # An Output widget takes over the output of the message it names: only ever that of its own cell.
            return value if value in ("", parent) else ""
        if key == "description_allow_html" and value:
            notes.add("removed description_allow_html: descriptions are text")
            return False
        if key == "_dom_classes":
            return (
                [one for one in value if isinstance(one, str) and _DOM_CLASS.fullmatch(one)]
                if isinstance(value, list)
                else []
            )
        if not isinstance(value, str):
            return value
        if key == "value" and model in _MARKUP:
            return html.sanitise(value, notes)
        if key in ("description", "description_tooltip") or (key == "value" and model in _TYPESET):
            return tex.clean(value)
        if key == "icon":
            return value if _ICON.fullmatch(value) else ""
        if key == "format" and model in ("ImageModel", "VideoModel", "AudioModel"):
            if _FORMATS.fullmatch(value):
                return value
            notes.add("removed a widget's media format: outputs load nothing from a network")
            return "png"
        if _CSS.search(model) and not key.startswith("_"):
            if css.allowed(key.replace("_", "-"), value):
                return value
            notes.add("removed CSS: it may load something or leave its place")
            return None
        return value

    def _output(self, output: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
        """Filter one output inside an Output widget, as it would be on its own."""
        kind = output.get("output_type")
        if kind == "stream":
            name = output.get("name")
            text = output.get("text")
            text = "".join(part for part in text if isinstance(part, str)) if isinstance(text, list) else text
            return {
                "output_type": kind,
                "name": name if name in ("stdout", "stderr") else "stdout",
                "text": terminal.clean(text) if isinstance(text, str) else "",
            }
        if kind == "error":
            return {"output_type": kind, **error(output)}
        if kind not in ("display_data", "execute_result"):
            return {"output_type": "stream", "name": "stderr", "text": ""}
        data, metadata = self._bundles.apply(output.get("data"), output.get("metadata"), notes)
        result: dict[str, Any] = {"output_type": kind, "data": data, "metadata": metadata}
        if kind == "execute_result":
            count = output.get("execution_count")
            result["execution_count"] = count if isinstance(count, int) else None
        return result

    def _control(self, comm_id: str, data: Any, parent: str, notes: Notes) -> Mapping[str, Any]:
        """Filter the states of all widgets, which a front end asks for when it connects anew."""
        if (
            not isinstance(data, dict)
            or data.get("method") != "update_states"
            or not isinstance(data.get("states"), dict)
        ):
            raise RefusedError("dropped a widget control message of an unknown kind")
        states: dict[str, Any] = {}
        places: dict[Any, None] = {}
        for model_id, entry in data["states"].items():
            state = entry.get("state") if isinstance(entry, dict) else None
            known = self._models.get(model_id)
            if known is None or not isinstance(state, dict) or not self._names_allowed(state):
                continue
            checked = self._state(state, known, parent, notes)
            if entry.get("model_name") == known and entry.get("model_module") in _MODULES:
                version = entry.get("model_module_version")
                states[model_id] = {
                    "model_name": known,
                    "model_module": entry["model_module"],
                    "model_module_version": version
                    if isinstance(version, str) and _VERSION.fullmatch(version)
                    else "*",
                    "state": checked,
                }
                places[model_id] = None
        paths = data.get("buffer_paths", [])
        if not _paths_allowed(paths) or any(not path or path[0] not in places for path in paths):
            raise RefusedError("dropped widget states with improper buffer paths")
        return {"comm_id": comm_id, "data": {"method": "update_states", "states": states, "buffer_paths": paths}}


def error(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return name, value and traceback of an error as text for a terminal."""
    traceback = content.get("traceback")
    lines = traceback if isinstance(traceback, list) else []
    return {
        "ename": terminal.clean(str(content.get("ename", ""))),
        "evalue": terminal.clean(str(content.get("evalue", ""))),
        "traceback": [terminal.clean(line) for line in lines if isinstance(line, str)],
    }


def _paths_allowed(paths: Any) -> bool:
    """Return whether paths only lead into the state itself: a front end follows them without looking."""
    return isinstance(paths, list) and all(
        isinstance(path, list)
        and 0 < len(path) <= 64
        and all(
            (isinstance(step, str) and step not in POISON)
            or (isinstance(step, int) and not isinstance(step, bool) and 0 <= step < 1_000_000)
            for step in path
        )
        for path in paths
    )
