"""The codes of the output policy: what is taken out of a message, and which does not pass. Imports code only."""

from __future__ import annotations

from enum import unique

from .code import Code

_FORGED = "No library sends this: look at what the code does."
_SMALLER = "Show less, or write it to a file."
_DATA = "Show it as text, HTML, a PNG or JPEG image, or a plotly, bokeh, altair or vega chart."
_TRUSTED = "Nothing. For code of your own, outputs = trusted lets everything pass."
_FIGURE = "Save the figure with fewer points or dots per inch, or as PNG."
_OFFLINE = "Put the data into the output (plotly: include_plotlyjs=True; Audio and Video: embed=True), or into a file."
_STYLE = "Use simple selectors, colours, sizes and borders only."
_REMAKE = "Run the cell that makes it again."
_WIDGETS = "Use the widgets of ipywidgets. Others would be programs in your browser."
_SAFE = "Set outputs = safe."
_CLOSE = "Close unused widgets, or restart the kernel."
_TRAIT = "Give the trait a value of its type."


@unique
class OutputCode(Code):
    """What was removed from an output, or dropped as a whole."""

    # --- MIME bundles ---
    NO_BUNDLE = "violation", "removed an output that is no MIME bundle", _FORGED
    MANY_TYPES = "violation", "removed {count} representations: at most {most} of one output", _SMALLER
    NO_TYPE_SHOWN = "notice", "removed {types}: no representation may be shown", _DATA
    TYPE_NOT_SHOWN = "notice", "removed {type}: not a type that is shown", _DATA
    JAVASCRIPT = "violation", "removed application/javascript: scripts may not run in your browser", _TRUSTED
    JSON_NOT_PLAIN = "notice", "removed application/json: {why}", _SMALLER
    CHART_IMPROPER = "notice", "removed a chart's data: not what a chart may hold", _SMALLER
    MARKUP_TOO_LARGE = "notice", "removed {type}: too much markup to check", _SMALLER
    LATEX_AS_TEXT = (
        "notice",
        "showed LaTeX as text: only ordinary macros are typeset",
        "Use the macros of amsmath, without definitions of your own.",
    )
    MARKDOWN_AS_TEXT = "notice", "showed Markdown as text: too much to check", _SMALLER

    # --- images ---
    NO_SUCH_IMAGE = "notice", "removed {type}: the data are not such an image", _DATA
    IMAGE_PIXELS = "notice", "removed {type}: {millions} million pixels, at most 100 million", _FIGURE
    IMAGE_IN_HTML = "notice", "removed an image: not one, or too large for a browser", _FIGURE
    SVG_REFUSED = "notice", "removed image/svg+xml: {why}", _FIGURE
    SVG_PART = "notice", "left out a part of an SVG: shapes, text and colours are drawn", _FIGURE

    # --- HTML ---
    HTML_AS_TEXT = "notice", "showed HTML as text: {why}", _SMALLER
    SCRIPT_FROM_NETWORK = "notice", "removed a script from a network: outputs load nothing", _OFFLINE
    MAP_FROM_NETWORK = (
        "notice",
        "a map is not shown: it loads its program and tiles from a network",
        "Save it (m.save('map.html')) and open the file on your machine, or plot with matplotlib or plotly.",
    )
    HTML_TAG = "violation", "removed <{tag}>: not allowed in a page's own markup", _TRUSTED
    HTML_HANDLER = "violation", "removed {attribute}=: may act in your browser", _TRUSTED
    HTML_LINK = (
        "violation",
        "removed a link: only http, https and mailto may be followed",
        "Link to http, https or mailto.",
    )
    HTML_SOURCE = "violation", "removed the source of <{tag}>: outputs load nothing from a network", _OFFLINE
    PICTURE_NOT_THERE = (
        "notice",
        "removed a picture: {name} is not in the sandbox, or no picture of at most 8 MB",
        "Save the picture first, below /mnt/data.",
    )
    FILE_NOT_THERE = (
        "notice",
        "removed the source of <{tag}>: {name} is in the sandbox, where a page loads nothing",
        _OFFLINE,
    )
    LINK_TO_FILE = (
        "notice",
        "removed a link to {name}: a page cannot open files of the sandbox",
        "Fetch the file: panel Sandbox files, downloads folder, or the SDK.",
    )
    HTML_STYLE = "violation", "removed <style>: it cannot be confined to this output", _STYLE
    CSS = "violation", "removed CSS: it may load something or leave its place", _STYLE

    # --- displays and messages ---
    IMPROPER_DISPLAY_ID = "notice", "removed an improper display id", "Use a short text."
    DISPLAY_NOT_OPEN = "notice", "dropped an update of a display that is not open", _REMAKE
    NO_STREAM = "violation", "dropped a stream other than stdout and stderr", _FORGED
    MESSAGE_NOT_SHOWN = "violation", "dropped {type}: not a type that is shown", _FORGED
    NOT_PLAIN = "violation", "dropped {type}: {why}", _FORGED
    TOO_DEEP = "violation", "dropped: nested too deep", _FORGED
    PAYLOAD = "violation", "dropped a payload, {source}: a cell may not act in your front end", _TRUSTED
    EXIT_PAYLOAD = "notice", "dropped a payload, ask_exit: shut the kernel down in the front end", _TRUSTED
    COMPLETIONS = "notice", "dropped completions that hide what they insert", "Type it."
    DEBUGGER_ITEMS = "notice", "left out {count} items of the debugger's answer: at most {most} are drawn", _SMALLER
    MORE_REMOVED = "violation", "removed more than is listed", _FORGED

    # --- widgets: which may be there ---
    WIDGET_OF_OTHERS = "notice", "dropped a widget of {module}: only those of ipywidgets may run", _WIDGETS
    WIDGET_VERSION = (
        "notice",
        "dropped a widget of another version: only those of ipywidgets {series} may run",
        "Install the ipywidgets of that series into the image.",
    )
    WIDGET_VIEW = "violation", "dropped a widget ({model}) with another class's view", _FORGED
    WIDGET_NOT_SHOWN = "notice", "removed a widget: its model may not run in your browser", _WIDGETS
    WIDGET_OF_PACKAGE = "notice", "removed a widget of {package}: only those of ipywidgets may run", _WIDGETS
    WIDGET_INACTIVE = "notice", "dropped a widget: no active content in this mode", _SAFE
    COMM_INACTIVE = "notice", "dropped a comm message: no active content in this mode", _SAFE
    MANY_COMMS = "notice", "dropped a widget: {most} comms are open", _CLOSE
    MANY_WIDGETS = "violation", "dropped a widget: {most} were opened in this session", _CLOSE
    COMM_NOT_OPEN = "notice", "dropped a message on a comm that is not open", _REMAKE
    COMM_END_NOT_OPEN = "notice", "dropped the end of a comm that is not open", _REMAKE
    COMM_WITHOUT_ID = "violation", "dropped a comm without a proper id", _FORGED
    COMM_TARGET = "violation", "dropped a comm to {target}: it may not reach your browser", _WIDGETS
    COMM_ID_IN_USE = "violation", "dropped a comm whose id is in use", _FORGED
    WIDGET_ID_REUSED = "violation", "dropped a widget with another widget's id", _FORGED

    # --- widgets: what they may say ---
    WIDGET_MESSAGE = "violation", "dropped an unknown widget message", _FORGED
    WIDGET_FOCUS = (
        "notice",
        "dropped a widget's request for the focus: it would receive what you type elsewhere",
        "Click on the widget.",
    )
    WIDGET_OWN_MESSAGE = "violation", "dropped a widget's own message: allowed widgets have none", _WIDGETS
    WIDGET_CONTROL = "violation", "dropped an unknown widget control message", _FORGED
    WIDGET_OTHER_CLASS = "violation", "dropped a widget update that names another class", _FORGED
    WIDGET_BUFFERS = "violation", "dropped a widget update with improper buffer paths", _FORGED
    WIDGET_LINK = (
        "violation",
        "dropped a link between widgets that would copy markup",
        "Link traits of one kind, or use observe() in Python.",
    )
    TRAIT_UNKNOWN = "notice", "removed {trait} of a widget: {model} has no such trait", _WIDGETS
    TRAIT_NAMELESS = "violation", "removed a trait without a proper name: {model} has none", _FORGED
    TRAIT_UNFIT = "violation", "removed {trait} of a widget ({model}): {why}", _TRAIT
    WIDGET_BYTES = "violation", "removed bytes of a widget: {model} has no place for them", _FORGED
    WIDGET_COSTLY = "notice", "removed {part} of a widget ({model}): too much for a browser page", _SMALLER
    WIDGETS_IN_WIDGET = "violation", "removed widgets in a widget: too many, or too deep", _SMALLER
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
