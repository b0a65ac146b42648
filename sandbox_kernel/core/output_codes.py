"""The codes of the output policy: what is taken out of a message, and which does not pass. Imports code only."""

from __future__ import annotations

from enum import unique

from .code import Code

_DATA = "Show it as text, HTML, a PNG or JPEG image, or a plotly, bokeh, altair or vega chart."
_TRUSTED = "Nothing, unless the code is your own: outputs = trusted lets everything pass."
_OFFLINE = "Put what is needed into the output itself (plotly: include_plotlyjs=True; images: as data), or into a file."
_SMALLER = "Show less, or write it to a file and fetch that."
_FIGURE = "Save the figure with fewer points or dots per inch, or as PNG."
_WIDGETS = "Use the widgets that ipywidgets brings; others would be programs in your browser."
_FORGED = "Look at what the code does: no library is known that sends this."
_SESSION = "Restart the kernel."


@unique
class OutputCode(Code):
    """What was removed from an output, or dropped as a whole."""

    # --- MIME bundles ---
    NO_BUNDLE = "violation", "removed an output that is not a MIME bundle", _FORGED
    MANY_TYPES = "violation", "removed {count} representations: at most {most} of one output", _SMALLER
    NO_TYPE_SHOWN = "notice", "removed {types}: no representation may be shown", _DATA
    TYPE_NOT_SHOWN = "notice", "removed {type}: not a type that is shown", _DATA
    JAVASCRIPT = "violation", "removed application/javascript: scripts may not run in your browser", _TRUSTED
    JSON_NOT_PLAIN = "notice", "removed application/json: {why}", "Show numbers that are finite, and less of them."
    CHART_IMPROPER = "notice", "removed the data of a chart: they are not what a chart may hold", _SMALLER
    MARKUP_TOO_LARGE = "notice", "removed {type}: too much markup to look at", _SMALLER
    LATEX_AS_TEXT = (
        "notice",
        "showed LaTeX as text: only formulas of ordinary macros are typeset",
        "Use the macros of amsmath, without definitions of your own.",
    )
    MARKDOWN_AS_TEXT = "notice", "showed Markdown as text: too much of it to check", _SMALLER

    # --- images ---
    NO_SUCH_IMAGE = "notice", "removed {type}: the data are not such an image", "Send the image under its own type."
    IMAGE_PIXELS = "notice", "removed {type}: {millions} million pixels, at most 100 million", _FIGURE
    IMAGE_IN_HTML = "notice", "removed an image: it is not an image, or is too large for a browser", _FIGURE
    SVG_REFUSED = "notice", "removed image/svg+xml: {why}", _FIGURE
    SVG_PART = "notice", "left out a part of an SVG: shapes, text and colours are drawn", _FIGURE

    # --- HTML ---
    HTML_AS_TEXT = "notice", "showed HTML as text: {why}", _SMALLER
    SCRIPT_FROM_NETWORK = "notice", "removed a script from a network: outputs load nothing", _OFFLINE
    MAP_FROM_NETWORK = (
        "notice",
        "a map is not shown: its program and its tiles come from a network, and outputs load nothing",
        "Save it (m.save('map.html')) and open the file on your machine, or plot the shapes with matplotlib or plotly.",
    )
    HTML_TAG = "violation", "removed <{tag}>: not allowed in a page's own markup", _TRUSTED
    HTML_HANDLER = "violation", "removed {attribute}=: may act in your browser", _TRUSTED
    HTML_LINK = "violation", "removed a link: only http, https and mailto may be followed", "Link to http or https."
    HTML_SOURCE = "violation", "removed the source of <{tag}>: outputs load nothing from a network", _OFFLINE
    PICTURE_NOT_THERE = (
        "notice",
        "removed a picture: {name} is not among the sandbox's files, or is no picture of at most 8 MB",
        "Give its path below /mnt/data, or relative to the working folder, and save it before it is shown.",
    )
    FILE_NOT_THERE = (
        "notice",
        "removed the source of <{tag}>: {name} is a file in the sandbox, which a page cannot load",
        "Put the data into the output (Audio and Video of IPython.display with embed=True).",
    )
    LINK_TO_FILE = (
        "notice",
        "removed a link to {name}: a page cannot open what is in the sandbox",
        "Fetch the file: with the panel Sandbox files, from the folder of downloads, or by the files of the SDK.",
    )
    HTML_STYLE = "violation", "removed <style>: it cannot be confined to this output", "Use simple selectors and rules."
    CSS = "violation", "removed CSS: it may load something or leave its place", "Use colours, sizes and borders only."

    # --- displays and messages ---
    IMPROPER_DISPLAY_ID = "notice", "removed an improper display id", "Use a short text as display_id."
    DISPLAY_NOT_OPEN = (
        "notice",
        "dropped an update of a display that is not open",
        "Display it again: a restart forgets displays.",
    )
    NO_STREAM = "violation", "dropped a stream that is neither stdout nor stderr", _FORGED
    MESSAGE_NOT_SHOWN = "violation", "dropped {type}: not a type that is shown", _FORGED
    NOT_PLAIN = "violation", "dropped {type}: {why}", _FORGED
    TOO_DEEP = "violation", "dropped: nested too deep", _FORGED
    PAYLOAD = "violation", "dropped a payload, {source}: a cell may not act in your front end", _TRUSTED
    EXIT_PAYLOAD = (
        "notice",
        "dropped a payload, ask_exit: a cell may not act in your front end",
        "Shut the kernel down in the front end; exit() in a cell has no meaning here.",
    )
    COMPLETIONS = "notice", "dropped completions that hide what they insert", "Type it."
    DEBUGGER_ITEMS = (
        "notice",
        "left out {count} items of the debugger's answer: its panel draws at most {most}",
        "Look at a part of the value, such as value[:100], in a watch expression or a cell.",
    )
    MORE_REMOVED = "violation", "removed more than is listed", "Look at what the code shows: one output held it all."

    # --- widgets: which may be there ---
    WIDGET_OF_OTHERS = (
        "notice",
        "dropped a widget of {module}: only those of ipywidgets may run in your browser",
        _WIDGETS,
    )
    WIDGET_VERSION = (
        "notice",
        "dropped a widget of another version: only those of ipywidgets {series} may run in your browser",
        "Install the ipywidgets of that series into the image.",
    )
    WIDGET_VIEW = "violation", "dropped a widget ({model}) with the view of another class", _FORGED
    WIDGET_NOT_SHOWN = "notice", "removed a widget: its model is not one that may run in your browser", _WIDGETS
    WIDGET_OF_PACKAGE = (
        "notice",
        "removed a widget of {package}: only those of ipywidgets may run in your browser",
        _WIDGETS,
    )
    WIDGET_INACTIVE = "notice", "dropped a widget: no active content in this mode", "Set outputs = safe."
    COMM_INACTIVE = "notice", "dropped a comm message: no active content in this mode", "Set outputs = safe."
    MANY_COMMS = "notice", "dropped a widget: {most} comms are open", "Close widgets that are not shown any more."
    MANY_WIDGETS = "violation", "dropped a widget: {most} were opened in this session; restart it for more", _SESSION
    COMM_NOT_OPEN = (
        "notice",
        "dropped a message on a comm that is not open",
        "Run the cell that makes the widget.",
    )
    COMM_END_NOT_OPEN = "notice", "dropped the end of a comm that is not open", "Nothing: it has ended already."
    COMM_WITHOUT_ID = "violation", "dropped a comm without a proper id", _FORGED
    COMM_TARGET = "violation", "dropped a comm to {target}: not one that may reach your browser", _WIDGETS
    COMM_ID_IN_USE = "violation", "dropped a comm whose id is in use", _FORGED
    WIDGET_ID_REUSED = "violation", "dropped a widget whose id was another widget's", _FORGED

    # --- widgets: what they may say ---
    WIDGET_MESSAGE = "violation", "dropped a widget message of an unknown kind", _FORGED
    WIDGET_FOCUS = (
        "notice",
        "dropped a widget's request for the keyboard focus: it would receive what you type elsewhere",
        "Click on the widget.",
    )
    WIDGET_OWN_MESSAGE = (
        "violation",
        "dropped a widget's own message: it has no meaning for the widgets that may run",
        _WIDGETS,
    )
    WIDGET_CONTROL = "violation", "dropped a widget control message of an unknown kind", _FORGED
    WIDGET_OTHER_CLASS = "violation", "dropped a widget update that names another class", _FORGED
    WIDGET_BUFFERS = "violation", "dropped a widget update with improper buffer paths", _FORGED
    WIDGET_LINK = (
        "violation",
        "dropped a link between widgets that would copy markup in your browser",
        "Link traits of one kind, or use observe() in Python.",
    )
    TRAIT_UNKNOWN = "notice", "removed {trait} of a widget: {model} has no such trait", _WIDGETS
    TRAIT_NAMELESS = "violation", "removed a trait without a proper name of a widget: {model} has none", _FORGED
    TRAIT_UNFIT = "violation", "removed {trait} of a widget ({model}): {why}", "Give the trait a value of its type."
    WIDGET_BYTES = "violation", "removed bytes of a widget: {model} has no place for them", _FORGED
    WIDGET_COSTLY = (
        "notice",
        "removed {part} of a widget ({model}): its cell would show more than a browser page can handle",
        "Show it in a cell of its own, in fewer places, or smaller.",
    )
    WIDGETS_IN_WIDGET = (
        "violation",
        "removed widgets in a widget: too many, or too deep in each other",
        "Show fewer at once.",
    )
    WIDGET_ENTRIES = "notice", "removed entries of a widget's list: at most {most}", _SMALLER
    WIDGET_DESCRIPTION_HTML = (
        "notice",
        "removed description_allow_html: descriptions are text",
        "Write the description as text.",
    )
    WIDGET_MEDIA_FORMAT = (
        "violation",
        "removed a widget's media format: outputs load nothing from a network",
        _OFFLINE,
    )
    WIDGET_MEDIA = (
        "violation",
        "removed the bytes of a widget: not audio or video in a format that is played",
        "Use WAV, MP3, Ogg, FLAC, MP4 or WebM.",
    )
    WIDGET_IMAGE_PIXELS = (
        "violation",
        "removed a widget's image: {millions} million pixels, at most 100 million",
        _FIGURE,
    )
    WIDGET_IMAGE = "violation", "removed a widget's image: not a PNG, JPEG, GIF, WebP, BMP or SVG", _FIGURE
    WIDGET_SVG = "violation", "removed a widget's image: not an SVG, or one that may keep your browser busy", _FIGURE
