"""What a trait of a widget may hold: one rule for each, and the type is checked before anything else.

A rule returns what may pass, or raises `UnfitError`: the trait is then left out. What a front end's view does with a
value decides its rule: puts it into the page as text or as markup, typesets it, makes it a class, address or style.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...core.codes import OutputCode
from ...policy import slow_text
from ...policy.allowance import of_formulas, of_text
from ...policy.verdict import Notes
from .codes import WidgetCode
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
class TraitContext:
    """What a rule may ask about the session and the message."""

    opened: Mapping[str, str]
    """Comm id of each model that was let through -> its class."""
    parent: str
    """Id of the request that the message belongs to."""
    outputs: Callable[[list[Any], Notes], list[Any]]
    """The filter of what stands in an Output widget."""
    notes: Notes


def check(rule: str, value: Any, setting: TraitContext) -> Any:
    """Return what of `value` may pass. Raises `UnfitError`."""
    word, _, argument = rule.removesuffix("?").partition(":")
    if value is None:
        if rule.endswith("?") or word in ("css", "ref", "style"):
            return None
        raise UnfitError("it is empty")
    return _RULES[word](value, argument, setting)


# --- the rules --------------------------------------------------------------------------------------------------------

_Rule = Callable[[Any, str, TraitContext], Any]


def _typed(kind: type, what: str) -> _Rule:
    """Return a rule for values of one type, of which no other type is one: true is no integer."""

    def rule(value: Any, argument: str, setting: TraitContext) -> Any:
        if type(value) is not kind:
            raise UnfitError(f"it is no {what}")
        return value

    return rule


_bool, _int = _typed(bool, "boolean"), _typed(int, "integer")


def _number(value: Any, argument: str, setting: TraitContext) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UnfitError("it is no number")
    if argument:
        least, _, most = argument.partition("..")
        return max(float(least), min(value, float(most)))
    return value


def _text(value: Any, argument: str, setting: TraitContext) -> str:
    if not isinstance(value, str):
        raise UnfitError("it is no text")
    setting.notes.work += of_text(len(value)) + slow_text.scripts(value)
    return slow_text.bounded(value)


def _form(pattern: re.Pattern[str], what: str = "") -> _Rule:
    """Return a rule for texts of a form; another one is refused as none of `what`, or becomes an empty one."""

    def rule(value: Any, argument: str, setting: TraitContext) -> str:
        text = _text(value, argument, setting)
        if pattern.fullmatch(text):
            return str(value)
        if what:
            raise UnfitError(f"it is no {what}")
        return ""

    return rule


_glyph = _form(_GLYPH)


def _list(value: Any, argument: str, setting: TraitContext, each: _Rule, *, exactly: bool = False) -> Any:
    """Check a list of things of one kind; a number in the rule says how many there may be, or `exactly` are."""
    if exactly and argument and (not isinstance(value, (list, tuple)) or len(value) != int(argument)):
        raise UnfitError(f"it is no list of {argument}")
    if not isinstance(value, (list, tuple)):
        raise UnfitError("it is no list")
    limit = int(argument or MAX_LIST)
    if len(value) > limit:
        setting.notes.add(WidgetCode.WIDGET_ENTRIES, most=limit)
        value = value[:limit]
    setting.notes.work += len(value)
    kept = [each(one, "", setting) for one in value]
    return value if list(value) == kept else kept


def _enum(value: Any, argument: str, setting: TraitContext) -> str:
    if _text(value, argument, setting) not in argument.split("|") or "dense" in value:
        raise UnfitError("it is none of the words that it may be")
    return str(value)


def _css(value: Any, argument: str, setting: TraitContext) -> str | None:
    from ...policy import css

    text = _text(value, argument, setting)
    if _is_color(text) if argument.endswith("color") else css.allowed_in_widgets(argument, text):
        return text
    setting.notes.add(OutputCode.CSS)
    return None


def _color(value: Any, argument: str, setting: TraitContext) -> str:
    text = _text(value, argument, setting)
    if not _is_color(text):
        raise UnfitError("it is no colour")
    return text


def _is_color(text: str) -> bool:
    return bool(_COLOR.fullmatch(text) or _VARIABLE.fullmatch(text))


def _math(value: Any, argument: str, setting: TraitContext) -> str:
    from ...policy import tex

    text = tex.clean(_text(value, argument, setting), left := of_formulas())
    setting.notes.work += left.work
    return text


def _markup(value: Any, argument: str, setting: TraitContext) -> str:
    from ...policy import html

    return html.sanitise(_text(value, argument, setting), setting.notes)


def _never(value: Any, argument: str, setting: TraitContext) -> bool:
    if value is not False:
        setting.notes.add(WidgetCode.WIDGET_DESCRIPTION_HTML)
    return False


def _tag(value: Any, argument: str, setting: TraitContext) -> Any:
    return slow_text.bounded(value) if isinstance(value, str) else _number(value, argument, setting)


def _classes(value: Any, argument: str, setting: TraitContext) -> Any:
    if not isinstance(value, (list, tuple)):
        raise UnfitError("it is no list")
    kept = [one for one in value[:MAX_LIST] if isinstance(one, str) and _DOM_CLASS.fullmatch(one)]
    return value if list(value) == kept else kept


def _rows(value: Any, argument: str, setting: TraitContext) -> int:
    return max(0, min(int(_int(value, argument, setting)), MAX_ROWS))


def _media(value: Any, argument: str, setting: TraitContext) -> str:
    if _FORMATS.fullmatch(_text(value, argument, setting)):
        return str(value)
    setting.notes.add(WidgetCode.WIDGET_MEDIA_FORMAT)
    return "png"


def _step(value: Any, argument: str, setting: TraitContext) -> Any:
    return value if isinstance(value, str) and value == "any" else _number(value, argument, setting)


def _moment(value: Any, argument: str, setting: TraitContext, kind: str) -> Any:
    if not isinstance(value, dict) or value.keys() != set(_DATES[kind]):
        raise UnfitError(f"it is no {kind}")
    for one in value.values():
        _number(one, argument, setting)
    return value


def _ref(value: Any, argument: str, setting: TraitContext) -> str:
    found = referred(value, setting.opened)
    if found is None or not _fits(setting.opened[found], argument):
        raise UnfitError("it refers to no widget of its kind")
    return str(value)


def _fits(model: str, kinds: str) -> bool:
    return model in kinds.split("|") if kinds else models()[model].shown


def _style(value: Any, argument: str, setting: TraitContext) -> str:
    found = referred(value, setting.opened)
    if found is None or not setting.opened[found].endswith("StyleModel"):
        raise UnfitError("it refers to no style")
    return str(value)


def _refs(value: Any, argument: str, setting: TraitContext) -> Any:
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


def _link(value: Any, argument: str, setting: TraitContext) -> Any:
    """One end of a link: what it may carry is compared where both are known."""
    if not isinstance(value, (list, tuple)) or len(value) != 2 or not isinstance(value[1], str):
        raise UnfitError("it is no widget with a trait")
    if carried(value, setting.opened) is None:
        raise UnfitError("it is no number")
    return value


def _msg_id(value: Any, argument: str, setting: TraitContext) -> str:
    """An Output widget takes over the output of the message it names: only ever that of its own cell."""
    return value if _text(value, argument, setting) in ("", setting.parent) else ""


def _outputs(value: Any, argument: str, setting: TraitContext) -> Any:
    if not isinstance(value, (list, tuple)):
        raise UnfitError("it is no list")
    if len(value) > MAX_LIST:
        setting.notes.add(WidgetCode.WIDGET_ENTRIES, most=MAX_LIST)
    kept = setting.outputs(list(value[:MAX_LIST]), setting.notes)
    return value if list(value) == kept else kept


def _files(value: Any, argument: str, setting: TraitContext) -> Any:
    if not isinstance(value, (list, tuple)) or len(value) > MAX_LIST:
        raise UnfitError("it is no list of files")
    for entry in value:
        if not isinstance(entry, dict) or entry.keys() != _FILE.keys():
            raise UnfitError("it is no list of files")
        for key, kind in _FILE.items():
            if isinstance(entry[key], bool) or not isinstance(entry[key], kind):
                raise UnfitError("it is no list of files")
    return value


def _buffer(value: Any, argument: str, setting: TraitContext) -> Any:
    raise UnfitError("it comes as bytes only")


_RULES: Mapping[str, _Rule] = {
    "bool": _bool,
    "buffer": _buffer,
    "classes": _classes,
    "color": _color,
    "colors": partial(_list, each=_color),
    "css": _css,
    "date": partial(_moment, kind="date"),
    "datetime": partial(_moment, kind="datetime"),
    "enum": _enum,
    "files": _files,
    "glyphs": partial(_list, each=_glyph),
    "icon": _form(_ICON),
    "int": _int,
    "ints": partial(_list, each=_int, exactly=True),
    "link": _link,
    "markup": _markup,
    "math": _math,
    "media": _media,
    "msg_id": _msg_id,
    "never": _never,
    "number": _number,
    "number_format": _form(_NUMBER_FORMAT, "format of numbers"),
    "numbers": partial(_list, each=_number, exactly=True),
    "outputs": _outputs,
    "ref": _ref,
    "refs": _refs,
    "rows": _rows,
    "size": _form(_SIZE, "length"),
    "step": _step,
    "style": _style,
    "tags": partial(_list, each=_tag),
    "text": _text,
    "texts": partial(_list, each=_text),
    "time": partial(_moment, kind="time"),
}
