"""What a trait of a widget may hold: one rule for each, and the type is checked before anything else.

A rule returns what may pass, or raises `UnfitError`: the trait is then left out. What a front end's view does with a
value decides its rule: puts it into the page as text or as markup, typesets it, makes it a class, address or style.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...core.codes import OutputCode
from .. import slow_text
from ..allowance import of_formulas, of_text
from ..verdict import Notes
from .known_models import carried, models, referred

MAX_LIST = 10_000
"""Entries of one list: options of a menu, children of a box. Each becomes an element of the page."""
MAX_ROWS = 1000
"""Lines that a field may be high."""

_DOM_CLASS = re.compile(r"widget-[\w-]{1,40}|mod-[\w-]{1,20}|jupyter-widgets|jupyter-button", re.ASCII)
_ICON = re.compile(r"[a-z0-9 -]{0,80}")
_GLYPH = re.compile(r"(?:[a-z0-9-]{1,40}(?: fa-[a-z0-9-]{1,40}){0,3})?")
_SIZE = re.compile(r"(?:[0-9]{1,5}(?:\.[0-9]{1,6})?(?:px|%|em)?)?")
_COLOR = re.compile(r"#[0-9a-f]{3,8}|[a-z]{3,24}|(?:rgb|hsl)a?\([0-9a-z%.,/ ]{1,60}\)", re.IGNORECASE)
_VARIABLE = re.compile(r"var\(--[\w-]{1,60}(?:,\s*(?:" + _COLOR.pattern + r")\s*)?\)", re.ASCII | re.IGNORECASE)
_FORMATS = re.compile(r"png|jpe?g|gif|webp|bmp|svg\+xml|mp4|webm|ogg|ogv|mp3|mpeg|wav|flac|m4a|aac", re.IGNORECASE)
_NUMBER_FORMAT = re.compile(r"(?:[^\n]?[<>=^])?[-+( ]?[$#]?0?[0-9]{0,2},?(?:\.[0-9]{1,2})?~?[A-Za-z%]?", re.ASCII)
"""That of d3-format, without a width or a precision that takes the memory of a tab."""
_DATES = {
    "date": ("year", "month", "date"),
    "time": ("hours", "minutes", "seconds", "milliseconds"),
    "datetime": ("year", "month", "date", "hours", "minutes", "seconds", "milliseconds"),
}
_FILE = {"name": str, "type": str, "size": int, "last_modified": int}


class UnfitError(ValueError):
    """The value is of another type than its trait, or names what may not be named."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a rule may ask about the session and the message."""

    opened: Mapping[str, str]
    """Comm id of each model that was let through -> its class."""
    parent: str
    """Id of the request that the message belongs to."""
    outputs: Callable[[list[Any], Notes], list[Any]]
    """The filter of what stands in an Output widget."""
    notes: Notes


def check(rule: str, value: Any, setting: Setting) -> Any:
    """Return what of `value` may pass. Raises `UnfitError`."""
    word, _, argument = rule.removesuffix("?").partition(":")
    if value is None:
        if rule.endswith("?") or word in ("css", "ref", "style"):
            return None
        raise UnfitError("it is empty")
    return _RULES[word](value, argument, setting)


# --- the rules --------------------------------------------------------------------------------------------------------


def _bool(value: Any, argument: str, setting: Setting) -> Any:
    if not isinstance(value, bool):
        raise UnfitError("it is no boolean")
    return value


def _int(value: Any, argument: str, setting: Setting) -> Any:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UnfitError("it is no integer")
    return value


def _number(value: Any, argument: str, setting: Setting) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UnfitError("it is no number")
    if argument:
        least, _, most = argument.partition("..")
        return max(float(least), min(value, float(most)))
    return value


def _text(value: Any, argument: str, setting: Setting) -> str:
    if not isinstance(value, str):
        raise UnfitError("it is no text")
    setting.notes.work += of_text(len(value)) + slow_text.scripts(value)
    return slow_text.bounded(value)


def _list(value: Any, argument: str, setting: Setting, each: Callable[[Any, str, Setting], Any]) -> Any:
    """Check a list of things of one kind; a number in the rule says how many there must be, or for text, may be."""
    if not isinstance(value, (list, tuple)):
        raise UnfitError("it is no list")
    limit = int(argument or MAX_LIST)
    if len(value) > limit:
        setting.notes.add(OutputCode.WIDGET_ENTRIES, most=limit)
        value = value[:limit]
    setting.notes.work += len(value)
    kept = [each(one, "", setting) for one in value]
    return value if list(value) == kept else kept


def _exactly(each: Callable[[Any, str, Setting], Any]) -> Callable[[Any, str, Setting], Any]:
    def rule(value: Any, argument: str, setting: Setting) -> Any:
        if argument and (not isinstance(value, (list, tuple)) or len(value) != int(argument)):
            raise UnfitError(f"it is no list of {argument}")
        return _list(value, argument, setting, each)

    return rule


def _enum(value: Any, argument: str, setting: Setting) -> str:
    if _text(value, argument, setting) not in argument.split("|") or "dense" in value:
        raise UnfitError("it is none of the words that it may be")
    return str(value)


def _css(value: Any, argument: str, setting: Setting) -> str | None:
    from .. import css

    text = _text(value, argument, setting)
    if _is_color(text) if argument.endswith("color") else css.allowed_in_widgets(argument, text):
        return text
    setting.notes.add(OutputCode.CSS)
    return None


def _color(value: Any, argument: str, setting: Setting) -> str:
    text = _text(value, argument, setting)
    if not _is_color(text):
        raise UnfitError("it is no colour")
    return text


def _is_color(text: str) -> bool:
    return bool(_COLOR.fullmatch(text) or _VARIABLE.fullmatch(text))


def _math(value: Any, argument: str, setting: Setting) -> str:
    from .. import tex

    text = tex.clean(_text(value, argument, setting), left := of_formulas())
    setting.notes.work += left.work
    return text


def _markup(value: Any, argument: str, setting: Setting) -> str:
    from .. import html

    return html.sanitise(_text(value, argument, setting), setting.notes)


def _never(value: Any, argument: str, setting: Setting) -> bool:
    if value is not False:
        setting.notes.add(OutputCode.WIDGET_DESCRIPTION_HTML)
    return False


def _icon(value: Any, argument: str, setting: Setting) -> str:
    return value if _ICON.fullmatch(_text(value, argument, setting)) else ""


def _glyph(value: Any, argument: str, setting: Setting) -> str:
    return value if _GLYPH.fullmatch(_text(value, argument, setting)) else ""


def _glyphs(value: Any, argument: str, setting: Setting) -> Any:
    return _list(value, argument, setting, _glyph)


def _texts(value: Any, argument: str, setting: Setting) -> Any:
    return _list(value, argument, setting, _text)


def _colors(value: Any, argument: str, setting: Setting) -> Any:
    return _list(value, argument, setting, _color)


def _tag(value: Any, argument: str, setting: Setting) -> Any:
    return slow_text.bounded(value) if isinstance(value, str) else _number(value, argument, setting)


def _tags(value: Any, argument: str, setting: Setting) -> Any:
    return _list(value, argument, setting, _tag)


def _classes(value: Any, argument: str, setting: Setting) -> Any:
    if not isinstance(value, (list, tuple)):
        raise UnfitError("it is no list")
    kept = [one for one in value[:MAX_LIST] if isinstance(one, str) and _DOM_CLASS.fullmatch(one)]
    return value if list(value) == kept else kept


def _size(value: Any, argument: str, setting: Setting) -> str:
    if not _SIZE.fullmatch(_text(value, argument, setting)):
        raise UnfitError("it is no length")
    return str(value)


def _rows(value: Any, argument: str, setting: Setting) -> int:
    return max(0, min(int(_int(value, argument, setting)), MAX_ROWS))


def _media(value: Any, argument: str, setting: Setting) -> str:
    if _FORMATS.fullmatch(_text(value, argument, setting)):
        return str(value)
    setting.notes.add(OutputCode.WIDGET_MEDIA_FORMAT)
    return "png"


def _number_format(value: Any, argument: str, setting: Setting) -> str:
    if not _NUMBER_FORMAT.fullmatch(_text(value, argument, setting)):
        raise UnfitError("it is no format of numbers")
    return str(value)


def _step(value: Any, argument: str, setting: Setting) -> Any:
    return value if isinstance(value, str) and value == "any" else _number(value, argument, setting)


def _of(kind: str) -> Callable[[Any, str, Setting], Any]:
    def rule(value: Any, argument: str, setting: Setting) -> Any:
        if not isinstance(value, dict) or value.keys() != set(_DATES[kind]):
            raise UnfitError(f"it is no {kind}")
        for one in value.values():
            _number(one, argument, setting)
        return value

    return rule


def _ref(value: Any, argument: str, setting: Setting) -> str:
    found = referred(value, setting.opened)
    if found is None or not _fits(setting.opened[found], argument):
        raise UnfitError("it refers to no widget of its kind")
    return str(value)


def _fits(model: str, kinds: str) -> bool:
    return model in kinds.split("|") if kinds else models()[model].shown


def _style(value: Any, argument: str, setting: Setting) -> str:
    found = referred(value, setting.opened)
    if found is None or not setting.opened[found].endswith("StyleModel"):
        raise UnfitError("it refers to no style")
    return str(value)


def _refs(value: Any, argument: str, setting: Setting) -> Any:
    """Keep those that are there: one widget of another package in a box must not take the box away."""
    if not isinstance(value, (list, tuple)):
        raise UnfitError("it is no list")
    kept = []
    for one in value[:MAX_LIST]:
        found = referred(one, setting.opened)
        if found is not None and _fits(setting.opened[found], argument):
            kept.append(one)
    if len(kept) < len(value):
        setting.notes.add(OutputCode.WIDGET_NOT_SHOWN)
    return value if len(kept) == len(value) else kept


def _link(value: Any, argument: str, setting: Setting) -> Any:
    """One end of a link: what it may carry is compared where both are known."""
    if not isinstance(value, (list, tuple)) or len(value) != 2 or not isinstance(value[1], str):
        raise UnfitError("it is no widget with a trait")
    if carried(value, setting.opened) is None:
        raise UnfitError("it is no number")
    return value


def _msg_id(value: Any, argument: str, setting: Setting) -> str:
    """An Output widget takes over the output of the message it names: only ever that of its own cell."""
    return value if _text(value, argument, setting) in ("", setting.parent) else ""


def _outputs(value: Any, argument: str, setting: Setting) -> Any:
    if not isinstance(value, (list, tuple)):
        raise UnfitError("it is no list")
    if len(value) > MAX_LIST:
        setting.notes.add(OutputCode.WIDGET_ENTRIES, most=MAX_LIST)
    kept = setting.outputs(list(value[:MAX_LIST]), setting.notes)
    return value if list(value) == kept else kept


def _files(value: Any, argument: str, setting: Setting) -> Any:
    if not isinstance(value, (list, tuple)) or len(value) > MAX_LIST:
        raise UnfitError("it is no list of files")
    for entry in value:
        if not isinstance(entry, dict) or entry.keys() != _FILE.keys():
            raise UnfitError("it is no list of files")
        for key, kind in _FILE.items():
            if isinstance(entry[key], bool) or not isinstance(entry[key], kind):
                raise UnfitError("it is no list of files")
    return value


def _buffer(value: Any, argument: str, setting: Setting) -> Any:
    raise UnfitError("it comes as bytes only")


_RULES: Mapping[str, Callable[[Any, str, Setting], Any]] = {
    "bool": _bool,
    "buffer": _buffer,
    "classes": _classes,
    "color": _color,
    "colors": _colors,
    "css": _css,
    "date": _of("date"),
    "datetime": _of("datetime"),
    "enum": _enum,
    "files": _files,
    "glyphs": _glyphs,
    "icon": _icon,
    "int": _int,
    "ints": _exactly(_int),
    "link": _link,
    "markup": _markup,
    "math": _math,
    "media": _media,
    "msg_id": _msg_id,
    "never": _never,
    "number": _number,
    "number_format": _number_format,
    "numbers": _exactly(_number),
    "outputs": _outputs,
    "ref": _ref,
    "refs": _refs,
    "rows": _rows,
    "size": _size,
    "step": _step,
    "style": _style,
    "tags": _tags,
    "text": _text,
    "texts": _texts,
    "time": _of("time"),
}
