"""Comms: the widget protocol for the widgets of ipywidgets itself, each state checked trait by trait; no other channel.

A comm names a JavaScript module and feeds it. Which classes there are, which view draws which model and what each trait
may hold stands in a table that is made from ipywidgets (`trait_table`): what is not in it does not pass, at the
opening, in an update, in an echo and in the states that a front end asks for again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from ...core.codes import OutputCode
from ...policy import media, raster, terminal
from ...policy.allowance import of_images, of_text
from ...policy.budget import MAX_COMMS
from ...policy.cell_errors import error
from ...policy.comms import CONTROL, TARGET, VIEW, Sent
from ...policy.json_check import POISON, count, is_id, plain
from ...policy.mime import Bundles
from ...policy.verdict import Notes, RefusedError, named
from .codes import WidgetCode
from .known_models import NAMES, Model, carried, model_of, models, package_of, referred, stranger
from .trait_rules import TraitContext, UnfitError, check
from .views import VIEW as WORK_OF_A_VIEW
from .views import Views

Placed = list[tuple[list[Any], Any]]
"""Buffers, each with the path at which a front end puts it into the state."""

_WIDE = (b"\xff\xfe", b"\xfe\xff")
"""How XML of two bytes for each character begins."""


def takes(model: Model, path: list[Any], kept: Mapping[str, Any]) -> bool:
    """Return whether a buffer may be put at a path: as a media's value, or as the content of a file of a list."""
    rule = model.traits.get(path[0]) if path and isinstance(path[0], str) else None
    if rule == "buffer":
        return len(path) == 1
    files = kept.get(path[0], ()) if rule == "files" else ()
    return len(path) == 3 and path[2] == "content" and isinstance(path[1], int) and 0 <= path[1] < len(files)


def shown(model: Model, value: Any, notes: Notes) -> Any:
    """Return the bytes of an image, a sound or a film as they may pass, None if they may not."""
    if model.name == "ImageModel":
        return picture(value, notes)
    if model.name in ("AudioModel", "VideoModel") and len(value) and not media.is_played(bytes(value)):
        notes.add(WidgetCode.WIDGET_MEDIA)
        return None
    return value


def picture(value: Any, notes: Notes) -> Any:
    """Return the bytes of an image as they may pass: an SVG is rebuilt, None if that cannot be done.

    No other image begins as XML does, whatever format it declares.
    """
    start = bytes(value[:256])
    if (pixels := raster.claimed(bytes(value))) is not None and pixels > raster.MAX_PIXELS:
        notes.add(WidgetCode.WIDGET_IMAGE_PIXELS, millions=pixels // 1_000_000)
        return None
    if pixels is not None or not start:
        notes.work += raster.work(pixels or 0)
        return value
    if not (start.startswith(_WIDE) or start.translate(None, b"\0\xef\xbb\xbf \t\r\n").startswith(b"<")):
        notes.add(WidgetCode.WIDGET_IMAGE)
        return None
    from ...policy import svg  # with the first of them, for a start takes in none

    try:
        image, _ = svg.clean(bytes(value).decode("utf-8"), left := of_images())
    except ValueError:
        notes.add(WidgetCode.WIDGET_SVG)
        return None
    notes.work += left.work
    return image.encode()


def placed_at(paths: Any, buffers: Sequence[Any]) -> Placed:
    """Return each buffer with its path. A front end follows paths without looking: they are plain, and one for each."""
    paths = [] if paths is None else paths
    if not isinstance(paths, list) or len(paths) != len(buffers) or not all(map(_is_path, paths)):
        raise RefusedError(WidgetCode.WIDGET_BUFFERS)
    seen = [tuple(path) for path in paths]
    if len(set(seen)) != len(seen):
        raise RefusedError(WidgetCode.WIDGET_BUFFERS)
    return list(zip(paths, buffers, strict=True))


def _is_path(path: Any) -> bool:
    return (
        isinstance(path, list)
        and 0 < len(path) <= 8
        and all(
            (isinstance(step, str) and step not in POISON)
            or (isinstance(step, int) and not isinstance(step, bool) and 0 <= step < 1_000_000)
            for step in path
        )
    )


MAX_STRANGERS = 1_000
"""Models of other packages that are remembered by name."""
MAX_PAST = 100_000
"""Widgets of a session, closed ones too. Their ids take 10 MB."""

_BYTES, _TAKEN = "bytes of it", "what it took over"
"""No trait has such a name."""
_METHODS = ("update", "echo_update", "custom")
_LINKS = frozenset(("LinkModel", "DirectionalLinkModel"))


class Widgets:
    """The open comms of a kernel, a `policy.comms.Comms`."""

    def __init__(self, bundles: Bundles, *, allowed: bool, past: dict[int, str]) -> None:
        self._bundles = bundles
        self._allowed = allowed
        self._models: dict[str, str] = {}
        """Comm id of each widget model that was let through -> class of the model."""
        self.past = past
        """Hash of each comm id that a model ever had -> its class, of this kernel and those before it.

        A program that saves a notebook's widgets merges the states of one id: a closed one's text, drawn as markup.
        """
        self._controls: dict[str, None] = {}
        """Ids of the comms over which a front end asks for the states of all widgets."""
        self._ends: dict[str, dict[str, Any]] = {}
        """Comm id of each link -> its ends."""
        self._views = Views()
        self.strangers: dict[str, str] = {}
        """Models that were not let through, and the package that each is of."""
        self._taking: dict[str, str] = {}
        """Comm id of each Output widget -> the request whose displays it takes over."""
        self.took_over = False
        """Whether an Output widget ever took over what a cell shows: it tells the kernel all of that."""
        self._updatable: set[str] = set()
        """Output widgets that took over a display with an id: an update of that is shown in them."""

    def model_shown(self, model_id: str) -> bool:
        return model_id in self._models

    def displayed(self, model_id: str, parent: str, *, new: bool, again: bool) -> bool:
        """Return whether a display of `parent` may show a widget, and note in which Output widgets it comes to lie.

        `new` says that it is a display and not an update of one, `again` that it has an id.
        """
        if model_id not in self._models:
            return False
        takers = self._takers(parent, new=new)
        if new and again:
            self._updatable.update(takers)
        if takers:
            return self._views.add(takers, "taken", model_id)
        return self._views.show(parent, model_id, new=new)

    def takes_over(self, parent: str, work: int, *, new: bool) -> int | None:
        """Note that Output widgets take over what a cell displays, and return what that costs in all their views.

        None, and nothing is noted, if they would come to more than a page bears.
        """
        weight = work // WORK_OF_A_VIEW
        takers = self._takers(parent, new=new) if weight else []
        for taker in takers:
            if not self._views.weigh(taker, _TAKEN, self._views.weighed(taker, _TAKEN) + weight):
                return None
        return work * max(1, sum(map(self._views.times, takers)))

    def _takers(self, parent: str, *, new: bool) -> list[str]:
        return [one for one, taken in self._taking.items() if taken == parent] if new else list(self._updatable)

    def work(self, model_id: str) -> int:
        """Return the elements of a page that a widget with all in it counts as."""
        return WORK_OF_A_VIEW * self._views.weight(model_id)

    def cleared(self, parent: str) -> None:
        """Note that a cell clears its output, and so that of the Output widgets which take it over."""
        self._views.clear(parent)
        for taker, taken in self._taking.items():
            if taken == parent:
                self._views.empty(taker, "taken")
                self._views.weigh(taker, _TAKEN, 0)

    def is_open(self, comm_id: str) -> bool:
        return comm_id in self._models or comm_id in self._controls

    def front_opens(self, comm_id: str, target: str, data: Any) -> None:
        """Note that the front end opens a comm: for all states, or as a widget that a script of its own makes.

        No other comm of a front end is answered: whatever listens there takes for its own kernel's word what a cell
        wrote, and what it does with it is not known here.
        """
        if target == CONTROL:
            while len(self._controls) >= MAX_COMMS:
                del self._controls[next(iter(self._controls))]
            self._controls[comm_id] = None
        elif target == TARGET and len(self._models) < MAX_COMMS and not self.is_open(comm_id):
            state = data.get("state") if isinstance(data, dict) else None
            model = model_of(state) if isinstance(state, dict) else None
            if model and self.past.setdefault(hash(comm_id), model.name) == model.name:
                self._models[comm_id] = model.name

    def closed(self, comm_id: str) -> None:
        """Note that a comm is closed, by whom ever."""
        self._controls.pop(comm_id, None)
        self._models.pop(comm_id, None)
        self._ends.pop(comm_id, None)
        self._taking.pop(comm_id, None)
        self._updatable.discard(comm_id)
        self._views.forget(comm_id)

    def open(self, content: Mapping[str, Any], buffers: Sequence[Any], parent: str, notes: Notes) -> Sent:
        comm_id, target = content.get("comm_id"), content.get("target_name")
        if not isinstance(comm_id, str) or not is_id(comm_id):
            raise RefusedError(OutputCode.COMM_WITHOUT_ID)
        if target != TARGET or content.get("target_module"):
            raise RefusedError(OutputCode.COMM_TARGET, target=named(target))
        if not self._allowed:
            raise RefusedError(WidgetCode.WIDGET_INACTIVE)
        if self.is_open(comm_id):
            raise RefusedError(WidgetCode.COMM_ID_IN_USE)
        if len(self._models) >= MAX_COMMS:
            raise RefusedError(WidgetCode.MANY_COMMS, most=MAX_COMMS)
        data = content.get("data")
        state = data.get("state") if isinstance(data, dict) else None
        if not isinstance(data, dict) or not isinstance(state, dict) or not (model := model_of(state)):
            if (package := package_of(state)) is not None and len(self.strangers) < MAX_STRANGERS:
                self.strangers[comm_id] = package
            raise stranger(state)
        if self.past.get(hash(comm_id), model.name) != model.name:
            raise RefusedError(WidgetCode.WIDGET_ID_REUSED)
        if len(self.past) >= MAX_PAST and hash(comm_id) not in self.past:
            raise RefusedError(WidgetCode.MANY_WIDGETS, most=MAX_PAST)
        self._models[comm_id] = self.past[hash(comm_id)] = model.name
        try:
            checked, kept = self._data(data, buffers, comm_id, parent, notes)
        except RefusedError:
            self.closed(comm_id)
            raise
        module = {"target_module": None} if "target_module" in content else {}
        return Sent({"comm_id": comm_id, "target_name": TARGET, "data": checked, **module}, kept)

    def message(self, content: Mapping[str, Any], buffers: Sequence[Any], parent: str, notes: Notes) -> Sent:
        comm_id, data = content.get("comm_id"), content.get("data")
        if not isinstance(comm_id, str) or not self.is_open(comm_id):
            raise RefusedError(OutputCode.COMM_NOT_OPEN)
        if not self._allowed:
            raise RefusedError(WidgetCode.COMM_INACTIVE)
        if comm_id in self._controls:
            return self._control(comm_id, data, buffers, parent, notes)
        if not isinstance(data, dict) or data.get("method") not in _METHODS:
            raise RefusedError(WidgetCode.WIDGET_MESSAGE)
        if data["method"] == "custom":
            detail = data.get("content")
            if isinstance(detail, dict) and detail.get("do") == "blur":
                return Sent({"comm_id": comm_id, "data": {"method": "custom", "content": {"do": "blur"}}})
            if isinstance(detail, dict) and detail.get("do") == "focus":
                raise RefusedError(WidgetCode.WIDGET_FOCUS)
            raise RefusedError(WidgetCode.WIDGET_OWN_MESSAGE)
        checked, kept = self._data(data, buffers, comm_id, parent, notes)
        return Sent({"comm_id": comm_id, "data": checked}, kept)

    def close(self, content: Mapping[str, Any]) -> Sent:
        comm_id = content.get("comm_id")
        if not isinstance(comm_id, str) or not self.is_open(comm_id):
            raise RefusedError(OutputCode.COMM_END_NOT_OPEN)
        self.closed(comm_id)
        return Sent({"comm_id": comm_id, "data": {}})

    # --- one model's state ------------------------------------------------------------------------------------------

    def _data(
        self, data: Mapping[str, Any], buffers: Sequence[Any], comm_id: str, parent: str, notes: Notes
    ) -> tuple[dict[str, Any], tuple[Any, ...]]:
        placed = placed_at(data.get("buffer_paths"), buffers)
        state = data.get("state")
        checked, kept = self._state(comm_id, state, placed, parent, notes)
        result: dict[str, Any] = {"state": checked}
        if data.get("method") in ("update", "echo_update"):
            result["method"] = data["method"]
        if data.get("buffer_paths") is not None:
            result["buffer_paths"] = [path for path, _ in kept]
        return result, tuple(buffer for _, buffer in kept)

    def _state(
        self, comm_id: str, state: Any, placed: Placed, parent: str, notes: Notes
    ) -> tuple[dict[str, Any], Placed]:
        """Return what may pass of a model's state and of the buffers that belong into it."""
        model = models()[self._models[comm_id]]
        if not isinstance(state, dict) or not model.named_by(state):
            raise RefusedError(WidgetCode.WIDGET_OTHER_CLASS)
        setting = TraitContext(self._models, parent, self._outputs, notes)
        before = notes.work
        kept: dict[str, Any] = {}
        for key, value in plain(state).items():
            if key in NAMES:
                kept[key] = value
            elif (rule := model.traits.get(key)) is None:
                if (name := named(key)) == key:
                    notes.add(WidgetCode.TRAIT_UNKNOWN, trait=name, model=model.name)
                else:
                    notes.add(WidgetCode.TRAIT_NAMELESS, model=model.name)
            else:
                try:
                    start = notes.work
                    found = check(rule, value, setting)
                    if self._views.weigh(comm_id, key, (notes.work - start) // WORK_OF_A_VIEW):
                        kept[key] = found
                    else:
                        notes.work = start  # what is left out is not drawn
                        notes.add(WidgetCode.WIDGET_COSTLY, part=named(key), model=model.name)
                except UnfitError as error:
                    notes.add(WidgetCode.TRAIT_UNFIT, trait=named(key), model=model.name, why=error)
        if model.name in _LINKS:
            self._link(comm_id, state, kept)
        self._take_in(comm_id, kept, parent, notes)
        bytes_kept = [one for one in placed if takes(model, one[0], kept)]
        if len(bytes_kept) < len(placed):
            notes.add(WidgetCode.WIDGET_BYTES, model=model.name)
        start = notes.work
        seen = [(path, one) for path, raw in bytes_kept if (one := shown(model, raw, notes)) is not None]
        if seen and not self._views.weigh(comm_id, _BYTES, (notes.work - start) // WORK_OF_A_VIEW):
            notes.work = start
            notes.add(WidgetCode.WIDGET_COSTLY, part="bytes", model=model.name)
            seen = []
        # Each view draws it again.
        if notes.work - before >= WORK_OF_A_VIEW:
            notes.work = before + (notes.work - before) * max(1, self._views.times(comm_id))
        return kept, seen

    def _link(self, comm_id: str, state: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
        """Require that a link's ends are of one kind: it copies in the browser, past this filter."""
        ends = {end: kept.get(end) for end in ("source", "target") if end in state}
        known = self._ends.get(comm_id, {}) | ends
        kinds = {carried(end, self._models) for end in known.values()}
        if None in kinds or len(kinds) > 1:
            raise RefusedError(WidgetCode.WIDGET_LINK)
        self._ends[comm_id] = known

    def _take_in(self, comm_id: str, kept: dict[str, Any], parent: str, notes: Notes) -> None:
        """Note what is shown in a widget, and take out what would be more than a page can bear."""
        for key in [key for key in kept if key in ("children", "axes", "buttons", "outputs")]:
            inside = _views_in(kept[key]) if key == "outputs" else [referred(one, self._models) for one in kept[key]]
            if not self._views.put(comm_id, key, (one for one in inside if one is not None)):
                notes.add(OutputCode.WIDGETS_IN_WIDGET)
                kept[key] = []
                self._views.empty(comm_id, key)
            if key == "outputs":
                self._views.empty(comm_id, "taken")
                self._views.weigh(comm_id, _TAKEN, 0)
        if "msg_id" in kept:
            self._taking[comm_id] = kept["msg_id"] and parent
            self.took_over = self.took_over or bool(kept["msg_id"])

    def _outputs(self, outputs: list[Any], notes: Notes) -> list[Any]:
        return [self._output(output, notes) for output in _joined(outputs)]

    def _output(self, output: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
        """Filter one output inside an Output widget, as it would be on its own."""
        kind = output.get("output_type")
        if (name := _stream(output)) is not None:
            text = _text(output)
            notes.work += of_text(len(text))
            return {"output_type": kind, "name": name, "text": terminal.clean(text)}
        if kind == "error":
            shown_error = error(output)
            notes.work += of_text(sum(map(len, (*shown_error["traceback"], shown_error["evalue"]))))
            return {"output_type": kind, **shown_error}
        if kind not in ("display_data", "execute_result"):
            return {"output_type": "stream", "name": "stderr", "text": ""}
        data, metadata = self._bundles.apply(output.get("data"), output.get("metadata"), notes)
        result: dict[str, Any] = {"output_type": kind, "data": data, "metadata": metadata}
        if kind == "execute_result":
            result["execution_count"] = count(output.get("execution_count"))
        return result

    def _control(self, comm_id: str, data: Any, buffers: Sequence[Any], parent: str, notes: Notes) -> Sent:
        """Filter the states of all widgets, which a front end asks for when it reconnects."""
        if (
            not isinstance(data, dict)
            or data.get("method") != "update_states"
            or not isinstance(data.get("states"), dict)
        ):
            raise RefusedError(WidgetCode.WIDGET_CONTROL)
        placed = placed_at(data.get("buffer_paths", []), buffers)
        states: dict[str, Any] = {}
        kept: Placed = []
        for model_id, entry in data["states"].items():
            if model_id not in self._models or not isinstance(entry, dict):
                continue
            model = models()[self._models[model_id]]
            names = {f"_{key}": entry.get(key) for key in ("model_name", "model_module", "model_module_version")}
            if not model.named_by(names):
                continue
            own = [(path[2:], buffer) for path, buffer in placed if path[:2] == [model_id, "state"]]
            try:
                state, there = self._state(model_id, entry.get("state"), own, parent, notes)
            except RefusedError as refused:
                notes.take(refused.note)
                continue
            states[model_id] = {**{key[1:]: value for key, value in names.items()}, "state": state}
            kept += [([model_id, "state", *path], buffer) for path, buffer in there]
        paths = [path for path, _ in kept]
        content = {"comm_id": comm_id, "data": {"method": "update_states", "states": states, "buffer_paths": paths}}
        return Sent(content, tuple(buffer for _, buffer in kept))


def _joined(outputs: list[Any]) -> Iterator[Mapping[str, Any]]:
    """Yield outputs in which the pieces of a stream that follow each other are one: a front end draws them as one."""
    for name, group in groupby((one for one in outputs if isinstance(one, dict)), _stream):
        pieces = list(group)
        if name is None or len(pieces) == 1:
            yield from pieces
        else:
            yield {"output_type": "stream", "name": name, "text": [_text(piece) for piece in pieces]}


def _stream(output: Mapping[str, Any]) -> str | None:
    """Return the stream that an output is of, None for an output of another kind."""
    if output.get("output_type") != "stream":
        return None
    return "stderr" if output.get("name") == "stderr" else "stdout"


def _text(output: Mapping[str, Any]) -> str:
    text = output.get("text")
    lines = text if isinstance(text, list) else [text]
    return "".join(line for line in lines if isinstance(line, str))


def _views_in(outputs: list[Any]) -> list[str | None]:
    bundles = [output.get("data") for output in outputs]
    views = [bundle.get(VIEW) for bundle in bundles if isinstance(bundle, dict)]
    return [view.get("model_id") for view in views if isinstance(view, dict)]
