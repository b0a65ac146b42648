"""Why a widget was dropped, or a part of one removed."""

from __future__ import annotations

from enum import unique

from ...core.codes import Code

_NO_LIBRARY = "No library sends this: look at what the code does."
_SMALLER = "Show less, or write it to a file."
_FIGURE = "Save the figure with fewer points or dots per inch, or as PNG."
_OFFLINE = "Put the data into the output (plotly: include_plotlyjs=True; Audio and Video: embed=True), or into a file."
_WIDGETS = "Use the widgets of ipywidgets. Others would be programs in your browser."
_SAFE = "Set outputs = safe."
_CLOSE = "Close unused widgets, or restart the kernel."
_TRAIT = "Give the trait a value of its type."


@unique
class WidgetCode(Code):
    """Why a widget was dropped, or a part of one removed (docs/outputs.md)."""

    # --- which may be there ---
    WIDGET_OF_OTHERS = "notice", "dropped a widget of {module}: only those of ipywidgets may run", _WIDGETS
    WIDGET_VERSION = (
        "notice",
        "dropped a widget of another version: only those of ipywidgets {series} may run",
        "Install the ipywidgets of that series into the image.",
    )
    WIDGET_VIEW = "violation", "dropped a widget ({model}) with another class's view", _NO_LIBRARY
    WIDGET_INACTIVE = "notice", "dropped a widget: no active content in this mode", _SAFE
    COMM_INACTIVE = "notice", "dropped a comm message: no active content in this mode", _SAFE
    MANY_COMMS = "notice", "dropped a widget: {most} comms are open", _CLOSE
    MANY_WIDGETS = "violation", "dropped a widget: {most} were opened in this session", _CLOSE
    COMM_ID_IN_USE = "violation", "dropped a comm whose id is in use", _NO_LIBRARY
    WIDGET_ID_REUSED = "violation", "dropped a widget with another widget's id", _NO_LIBRARY

    # --- what they may say ---
    WIDGET_MESSAGE = "violation", "dropped an unknown widget message", _NO_LIBRARY
    WIDGET_FOCUS = (
        "notice",
        "dropped a widget's request for the focus: it would receive what you type elsewhere",
        "Click on the widget.",
    )
    WIDGET_OWN_MESSAGE = "violation", "dropped a widget's own message: allowed widgets have none", _WIDGETS
    WIDGET_CONTROL = "violation", "dropped an unknown widget control message", _NO_LIBRARY
    WIDGET_OTHER_CLASS = "violation", "dropped a widget update that names another class", _NO_LIBRARY
    WIDGET_BUFFERS = "violation", "dropped a widget update with improper buffer paths", _NO_LIBRARY
    WIDGET_LINK = (
        "violation",
        "dropped a link between widgets that would copy markup",
        "Link traits of one kind, or use observe() in Python.",
    )
    TRAIT_UNKNOWN = "notice", "removed {trait} of a widget: {model} has no such trait", _WIDGETS
    TRAIT_NAMELESS = "violation", "removed a trait without a proper name: {model} has none", _NO_LIBRARY
    TRAIT_UNFIT = "violation", "removed {trait} of a widget ({model}): {why}", _TRAIT
    WIDGET_BYTES = "violation", "removed bytes of a widget: {model} has no place for them", _NO_LIBRARY
    WIDGET_COSTLY = "notice", "removed {part} of a widget ({model}): too much for a browser page", _SMALLER
    WIDGET_ENTRIES = "notice", "removed entries of a widget's list: at most {most}", _SMALLER
    WIDGET_DESCRIPTION_HTML = "notice", "removed description_allow_html: descriptions are text", _TRAIT
    WIDGET_MEDIA_FORMAT = "violation", "removed a widget's media format: outputs load nothing from a network", _OFFLINE
    WIDGET_MEDIA = (
        "violation",
        "removed a widget's bytes: not audio or video that is played",
        "Use WAV, MP3, Ogg, FLAC, MP4 or WebM.",
    )
    WIDGET_IMAGE_PIXELS = (
        "violation",
        "removed a widget's image: {millions} million pixels, at most 100 million",
        _FIGURE,
    )
    WIDGET_IMAGE = "violation", "removed a widget's image: not a PNG, JPEG, GIF, WebP, BMP or SVG", _FIGURE
    WIDGET_SVG = "violation", "removed a widget's image: not an SVG, or too costly for your browser", _FIGURE
