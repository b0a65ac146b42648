"""The bytes that go with a widget's state: where a front end may put them, and what an image among them may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.codes import OutputCode
from .. import media, raster
from ..json_check import POISON
from ..verdict import Notes, RefusedError
from .known_models import Model

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
        notes.add(OutputCode.WIDGET_MEDIA)
        return None
    return value


def picture(value: Any, notes: Notes) -> Any:
    """Return the bytes of an image as they may pass: an SVG is written anew, None if that cannot be.

    No other image begins as XML does, whatever its format is said to be.
    """
    start = bytes(value[:256])
    if (pixels := raster.claimed(bytes(value))) is not None and pixels > raster.MAX_PIXELS:
        notes.add(OutputCode.WIDGET_IMAGE_PIXELS, millions=pixels // 1_000_000)
        return None
    if pixels is not None or not start:
        notes.work += raster.work(pixels or 0)
        return value
    if not (start.startswith(_WIDE) or start.translate(None, b"\0\xef\xbb\xbf \t\r\n").startswith(b"<")):
        notes.add(OutputCode.WIDGET_IMAGE)
        return None
    from .. import svg  # with the first of them, for a start takes in none

    try:
        left = svg.Allowance()
        image, _ = svg.clean(bytes(value).decode("utf-8"), left)
    except ValueError:
        notes.add(OutputCode.WIDGET_SVG)
        return None
    notes.work += left.work
    return image.encode()


def placed_at(paths: Any, buffers: Sequence[Any]) -> Placed:
    """Return each buffer with its path. A front end follows paths without looking: they are plain, and one for each."""
    paths = [] if paths is None else paths
    if not isinstance(paths, list) or len(paths) != len(buffers) or not all(map(_is_path, paths)):
        raise RefusedError(OutputCode.WIDGET_BUFFERS)
    seen = [tuple(path) for path in paths]
    if len(set(seen)) != len(seen):
        raise RefusedError(OutputCode.WIDGET_BUFFERS)
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
