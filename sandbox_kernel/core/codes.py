"""All codes: what a refusal is as a value, and the table of each kind.

A code has a severity and words for people. Exit codes, reports, audits and adapters decide by the code; only the last
step to a person uses the words. `docs/codes.md` and `sandbox-kernel codes` are made of the tables. Plugins have their
own.
"""

from __future__ import annotations

from enum import Enum, StrEnum, unique
from functools import cache
from typing import Any, Literal, NamedTuple

Severity = Literal["violation", "limit", "notice", "failure"]
"""violation: it could have acted, loaded, leaked or forged. limit: something was used up. notice: honest code does so.
failure: a kernel, a sandbox, the machine or a setting did not do what it should; no refusal has this one."""


class Code(Enum):
    """The root of the tables: a member is a row. What is called `TOO_LARGE` here is `too-large` to programs.

    A code never changes its meaning, and none is given to another thing later.
    """

    severity: Severity
    text: str
    """The message; names in braces are filled in where it happens."""
    remedy: str
    """What a person can do about it."""

    def __init__(self, severity: Severity, text: str, remedy: str) -> None:
        self.severity = severity
        self.text = text
        self.remedy = remedy

    @property
    def code(self) -> str:
        return self.name.lower().replace("_", "-")

    def note(self, **details: Any) -> Note:
        """Return this code with its text filled in."""
        return Note(self, self.text.format_map(details))

    def __str__(self) -> str:
        return self.code


class Note(NamedTuple):
    """One thing that was refused, removed or ended: why, for programs and for people."""

    code: Code
    text: str
    """May hold names that came from the container."""

    def __str__(self) -> str:
        return self.text


class Survived(StrEnum):
    """What is left of a session's work after one of its cells was ended."""

    VARIABLES_AND_FILES = "variables-and-files"
    BEFORE_CELL = "variables-before-cell"
    FILES = "files"
    NOTHING = "nothing"

    def sentence(self, why: str | None = None) -> str:
        """Return it as a person reads it, with `why` more is lost than one would think."""
        return _LEFT[self] + (f": {why}" if why else "")


_LEFT = {
    Survived.VARIABLES_AND_FILES: "variables and files",
    Survived.BEFORE_CELL: "files, and the variables as they were before the cell",
    Survived.FILES: "files, but no variables",
    Survived.NOTHING: "nothing",
}


_NO_LIBRARY = "No library sends this: look at what the code does."
_SMALLER = "Show less, or write it to a file."
_DATA = "Show it as text, HTML, a PNG or JPEG image, or a plotly, bokeh, altair or vega chart."
_TRUSTED = "Nothing. For code of your own, outputs = trusted lets everything pass."
_FIGURE = "Save the figure with fewer points or dots per inch, or as PNG."
_OFFLINE = "Put the data into the output (plotly: include_plotlyjs=True; Audio and Video: embed=True), or into a file."
_STYLE = "Use simple selectors, colours, sizes and borders only."
_REMAKE = "Run the cell that makes it again."
_WIDGETS = "Use the widgets of ipywidgets. Others would be programs in your browser."


@unique
class OutputCode(Code):
    """What was removed from an output, or dropped as a whole."""

    # --- MIME bundles ---
    NO_BUNDLE = "violation", "removed an output that is no MIME bundle", _NO_LIBRARY
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
    NO_STREAM = "notice", "dropped a stream other than stdout and stderr", "Write to one of these."
    MESSAGE_NOT_SHOWN = "violation", "dropped {type}: not a type that is shown", _NO_LIBRARY
    NOT_PLAIN = "notice", "dropped {type}: {why}", _SMALLER
    TOO_DEEP = "notice", "dropped: nested too deep", _SMALLER
    PAYLOAD = "violation", "dropped a payload, {source}: a cell may not act in your front end", _TRUSTED
    EXIT_PAYLOAD = "notice", "dropped a payload, ask_exit: shut the kernel down in the front end", _TRUSTED
    COMPLETIONS = "notice", "dropped completions that hide what they insert", "Type it."
    COMPLETION_RANGE = "notice", "dropped completions that replace more than the word at the cursor", "Type it."
    HISTORY_HIDDEN = "notice", "dropped inputs of the history that read otherwise than they are", "Type it."
    COMMS_LISTED = "notice", "dropped {count} comms of a list: no proper id or target, or over {most}", _NO_LIBRARY
    SUBSHELL_IMPROPER = "notice", "dropped a subshell without a proper id", _NO_LIBRARY
    DEBUGGER_ITEMS = "notice", "left out {count} items of the debugger's answer: at most {most} are drawn", _SMALLER
    MORE_REMOVED = "violation", "removed more than is listed", _NO_LIBRARY

    # --- widgets, and other comms ---
    WIDGET_NOT_SHOWN = "notice", "removed a widget: its model may not run in your browser", _WIDGETS
    WIDGET_OF_PACKAGE = "notice", "removed a widget of {package}: only those of ipywidgets may run", _WIDGETS
    COMM_NOT_OPEN = "notice", "dropped a message on a comm that is not open", _REMAKE
    COMM_END_NOT_OPEN = "notice", "dropped the end of a comm that is not open", _REMAKE
    COMM_WITHOUT_ID = "violation", "dropped a comm without a proper id", _NO_LIBRARY
    COMM_TARGET = "violation", "dropped a comm to {target}: it may not reach your browser", _WIDGETS
    WIDGETS_IN_WIDGET = "violation", "removed widgets in a widget: too many, or too deep", _SMALLER


_FORM = "Send it as Jupyter's messaging protocol describes it."
_NO_KERNEL = "No real kernel sends this: look at what the code does."
_NOTHING = "Nothing: real kernels do this too."
_PROTOCOL = "Send what the protocol says."
_SEND_LESS = "Send less at once, and read the replies. message_limit bounds a request."
_FILES = "Send what docs/jupyter-server.md says."


@unique
class MessageCode(Code):
    """Why a message was not passed on."""

    # --- what no kernel sends ---
    UNKNOWN_PARENT = "violation", "unknown parent", _NO_KERNEL
    OTHER_REPLY = "violation", "not the reply to its request", _NO_KERNEL
    SECOND_REPLY = "violation", "a second reply", _NO_KERNEL
    NO_KERNEL_READY = "violation", "no kernel is ready", _NO_KERNEL
    AGENT_UNASKED = "violation", "an answer of the agent without a question", _NO_KERNEL
    IMPROPER = "violation", "a message is not allowed", _PROTOCOL
    NOT_A_CHANNEL = "violation", "frame kind {kind} is not a channel", _NO_KERNEL
    FEW_PARTS = "violation", "a message has {count} parts, at least 4 are needed", _NO_KERNEL
    NO_OBJECT = "violation", "a part of the message is not a JSON object", _NO_KERNEL
    NO_ID = "violation", "{field} must be a string of 1 to {most} characters", _NO_KERNEL
    NOT_ON_STDIN = "violation", "{type} may not be sent on stdin", _NO_KERNEL
    NOT_A_REPLY = "violation", "{type} is not a reply and may not be sent on {channel}", _NO_KERNEL
    REPLY_REFUSED = "violation", "the reply was refused by the output policy", _NO_KERNEL

    # --- what an honest kernel may send: none of it acts, and the cell says what is missing ---
    NOT_SENT_YET = "notice", "its request was not sent yet", _NOTHING
    OUT_OF_TURN = "notice", "out of turn", _NOTHING
    STATUS_OUT_OF_TURN = "notice", "a status out of turn", _NOTHING
    WELCOME = "notice", "iopub_welcome may not be published", _NOTHING
    CELL_HAS_ENDED = "notice", "its cell has ended", "Join threads before the cell ends."
    INPUT_NOT_ALLOWED = "notice", "input was not allowed", "Ask for input() where the front end can ask a person."
    NOBODYS_OVERSIZED = "notice", "a message that is too large and belongs to no request", _SEND_LESS
    NOT_TAKEN_IN = "notice", "not taken in: {why}", _SEND_LESS
    HEADER_TOO_LARGE = "notice", "a header or metadata larger than {most} bytes", _SEND_LESS
    MENDED = "notice", "it was no proper JSON, and was read as front ends read that", _NOTHING
    NOT_JSON = "notice", "not JSON: {why}", _FORM
    KEY_IMPROPER = "notice", "a key is too long, or given twice", _FORM
    FIELD_IMPROPER = "notice", "{type} has no proper {field!r}", _FORM
    NOT_PUBLISHED = "notice", "{type} may not be published", _FORM

    # --- requests of front ends ---
    NOT_A_REQUEST = "violation", "not a request: {why}", _PROTOCOL
    WRONG_CHANNEL = "violation", "{type} is not taken on {channel}", _PROTOCOL
    WRONG_SIGNATURE = "violation", "the signature is wrong", "Use the key of the kernel's connection file."
    SENT_TWICE = "violation", "the message came before", _PROTOCOL
    REQUEST_TOO_LARGE = "limit", "the request is too large", _SEND_LESS
    REQUEST_NOT_SENT = "violation", "the request cannot be sent: {why}", _PROTOCOL


_RENAME = "Give the file a plain name."
_SHALLOW = "Use fewer nested folders."
_COPY = "Copy the folder with a command: one step moves nothing between file systems."
_PATH = "Give a path relative to /mnt/data."
_FETCH = "Fetch it by its name (`sandbox.files.download`), if it is meant."
_REGULAR = "Use regular files, each with one name."
_LATER = "Run another cell: what is left follows."
_DOWNLOADS = "Use a folder for downloads and for nothing else."
_FEWER = "Write fewer or smaller files, or raise the setting."
_SOURCE = "Copy it again from where it should come from."
_IN_PIECES = 'Read it in pieces, with read(path, "stream"), or copy it with download.'
_SCRATCH = "Remove files from /mnt/data, or raise scratch_size."
_DISK = "Check the folder, its disk and its permissions."
_OTHER_FOLDER = "Name another folder or file."
_TAKEN = "Remove what is there, or use another name."
_LOOK = "Check the files in /mnt/data and their permissions."
_AGENT = "The sandbox's own answer was wrong: look at what the code does."


@unique
class FileCode(Code):
    """Why a file was not copied, written or read.

    The severity is that of a file on its way out, which a cell made. On its way in it is a file of the host's, of which
    the code knows nothing: a report calls each of these a notice.
    """

    # --- names ---
    NAME_NOT_UTF8 = "violation", "its name is not UTF-8", _RENAME
    NAME_UNREADABLE = "violation", "its name contains {what}", _RENAME
    NAME_INVISIBLE_MARK = "violation", "its name contains an invisible mark where nothing needs it", _RENAME
    NAME_BACKSLASH = "violation", "its name contains a backslash", _RENAME
    NAME_REPLACED = (
        "notice",
        "a name that stands for the file's own one, which is no text, or has characters that nobody sees",
        _RENAME,
    )
    NAME_EMPTY = "violation", "its name, or a part of its path, is empty", _RENAME
    NAME_TOO_LONG = "limit", "its name is too long", _RENAME
    NAME_HYPHEN = "violation", "its name begins with a hyphen, like an option of a command", _RENAME
    NAME_SPACES = "violation", "its name begins or ends with a space, or ends with a dot", _RENAME
    NAME_OF_DEVICE = "violation", "its name is that of a device on Windows", _RENAME
    NAME_SHORT_FORM = "violation", "its name is the short form of another name on Windows", _RENAME
    NAME_OF_ANOTHER = "violation", "on other systems its name is that of {other}", _RENAME
    NAME_IMPROPER = "violation", "{name!r} is no name of a file", _RENAME
    NAME_NOT_HELD = "violation", "scratch cannot hold a file of that name", _RENAME
    PATH_TOO_LONG = "limit", "its path is too long", _RENAME
    PATH_TOO_DEEP = "limit", "it lies too deep", _SHALLOW
    PATH_DEEPER = "violation", "it lies too deep", _SHALLOW
    PATH_ABSOLUTE = "violation", "its path is absolute", _PATH
    PATH_DOTS = "violation", "its path contains {part!r}", _PATH
    PATH_NONE = "violation", "that is no path", _PATH

    # --- what is left alone unless somebody asks for it ---
    HIDDEN = "notice", "it is hidden, or in a hidden folder", _FETCH
    HIDDEN_WHEN_READ = "notice", "it is hidden once its name is normalised", _FETCH
    CACHE = "notice", "it is a cache of Python's, and programs act upon it by themselves", _FETCH
    ACTED_UPON = "violation", "programs act upon files of its name by themselves", _FETCH

    # --- what is no plain file, or another one by now ---
    NOT_A_FILE = "violation", "it is {what}", _REGULAR
    LINK_INSIDE = "violation", "it is a link, lies behind one, or is no regular file", _REGULAR
    HARD_LINK = "violation", "it has another name elsewhere (a hard link); make a copy of it", _REGULAR
    CHANGED = "notice", "it changed while it was {done}", _LATER
    HASH_DIFFERS = "violation", "its SHA-256 is not the one that it should have", _SOURCE
    BEING_CHANGED = "notice", "it is being changed; it follows when it is complete", _LATER
    NOT_THE_KNOWN_ONE = "violation", "the sandbox did not write the host's file of that name", _DOWNLOADS

    # --- limits ---
    TOO_LARGE = "limit", "it is too large", _FEWER
    LARGER_THAN_MEMORY = (
        "limit",
        "it is too large to be returned at once; read it as a stream, or download it",
        _IN_PIECES,
    )
    SCRATCH_FULL = "violation", "scratch is full", _SCRATCH
    OTHER_FOLDER_FULL = "violation", "the folder of the sandbox that it goes to is full", _SCRATCH
    ENDLESS = "limit", "it is made while it is read, and has no end within 1 MiB", _REGULAR
    OTHER_FILE_SYSTEM = "violation", "the other path is on another file system of the sandbox", _COPY
    SCRATCH_ENTRIES = "limit", "scratch has too many entries", _SCRATCH
    FOLDER_ENTRIES = "limit", "it holds too many entries; the rest is left out", _FEWER
    FOLDER_FILES = "limit", "the folder holds too many files", _FEWER
    FOLDER_BYTES = "limit", "the folder is too large as a whole", _FEWER
    SESSION_FILES = "limit", "the session has put too many files out", _FEWER
    SESSION_BYTES = "limit", "the session's files are too large together", _FEWER
    TIME_UP = "limit", "time is up; {count} files are left for the next cell", _LATER

    # --- the folders and files of the host ---
    FOLDER_UNREADABLE = "violation", "the folder cannot be read", _DISK
    FOLDER_SILENT = "limit", "the host's folder does not answer", _DISK
    FOLDER_NOT_OPENED = "violation", "the host's folder cannot be opened: {why}", _OTHER_FOLDER
    FOLDER_MISSING = "notice", "the host's folder is not there", _DISK
    FOLDER_UNFIT = "violation", "the host's folder {why}", _DOWNLOADS
    FOLDER_EXPECTED = "violation", "{name!r} is {what} and no folder", _OTHER_FOLDER
    FOLDER_NOT_FILE = "violation", "it is a folder", _OTHER_FOLDER
    LINK_NOT_FOLLOWED = "violation", "{name!r} is a link, which is not followed; name its target", _OTHER_FOLDER
    NAME_TAKEN = "violation", "{where} {what} of that name", _TAKEN
    PATH_TAKEN = "violation", "on its path, the host has {what} in place of a folder", _TAKEN
    OTHER_USER = "violation", "it belongs to another user", _OTHER_FOLDER
    NOT_APPENDED = "violation", "it holds something else already", _OTHER_FOLDER
    HOST_FAILED = "violation", "the host could not open, read or write it: {why}", _DISK

    # --- single files of scratch ---
    MISSING = "violation", "there is no such file", _LOOK
    IS_FOLDER = "violation", "there is a folder of that name", _TAKEN
    NOT_FOLDER = "violation", "a part of its path is a file", _TAKEN
    NOT_EMPTY = "violation", "the folder is not empty", _TAKEN
    DENIED = "violation", "the sandbox may not touch it", _LOOK
    NOT_TEXT = "notice", "it is not UTF-8 text; read it as bytes", "Read it as bytes."
    NO_DESCRIPTION = "violation", "the sandbox gave no proper description of it", _AGENT
    NO_ANSWER = "violation", "the sandbox gave no proper answer", _AGENT
    NOT_DONE = "violation", "the sandbox could not do it", _AGENT


_TIME = "Do the work in smaller steps, or raise cell_timeout."
_IDLE = "Answer sooner, or raise idle_timeout."
_MEMORY = "Load less at a time (fewer columns, smaller types, chunks; docs/large-data.md), or raise memory."
_LESS = "Print or display less, or write it to a file in /mnt/data; or raise the setting."
_PIPE = "Look at what the code does: it writes to the sandbox's own pipe."
_CODE = "Look at what the code does."
_AGAIN = "Run it again: the next cell gets a new sandbox."
_ASKED = "Nothing: somebody asked for it."
_BUILD = (
    "See what it said last. An image needs Python 3.9 or newer and ipykernel: `sandbox-kernel doctor --image IMAGE`."
)
_MISSING = "Run the command that the message names."
_WAIT = "Try again in a moment."
_ENGINE = "Run `sandbox-kernel doctor`."
_SOCKET = "Start it, name its socket, or join the socket's group."
_DOCKER = "Use Docker Engine 20.10 or later, Podman 4 or later, or bubblewrap."
_FOLLOW = "Follow the message, and run it again."
_NEW_SANDBOX = "Make a new one."
_OWNER = "Use a sandbox within its `with` block, its loop and its process."


@unique
class EndCode(Code):
    """Why something ended, or could not begin.

    Each error of `errors.py` has one of these; where it can mean several things, the place that raises it says which.
    """

    # --- limits of a cell ---
    CELL_TIMEOUT = "limit", "the cell ran longer than its time limit and was stopped", _TIME
    CELL_OUT_OF_FUEL = "limit", "the cell computed more than its fuel is for and was stopped", "Do less, or raise fuel."
    REQUEST_TIMEOUT = "limit", "a request ran longer than its time limit and was stopped", _TIME
    CELL_WAITED_TOO_LONG = "limit", "the cell waited too long for a person", _IDLE
    OUT_OF_MEMORY = "limit", "the cell used more memory than the sandbox has", _MEMORY
    OUT_OF_SCRATCH = (
        "limit",
        "the sandbox put more into its working folder than that may have: {why}",
        "Write less, or give it a larger scratch_size. A disk, which is full and no more, takes root or engine = qemu.",
    )
    OUTPUT_TOO_LARGE = "limit", "the {who} sent too much output", _LESS
    TOO_MANY_MESSAGES = "limit", "the {who} sent too many messages", _LESS
    MESSAGE_TOO_LARGE = "limit", "one message is larger than the limit", _LESS
    MESSAGE_TOO_HEAVY = "limit", "the cell sent a message that is not taken in: {why}", _LESS
    OUTPUT_TOO_SLOW = "limit", "the cell's output takes too long to check", _LESS
    REPLY_TOO_LARGE = "limit", "the reply is too large", _LESS
    ANSWER_TOO_LARGE = "limit", "an answer of the sandbox would take too much memory", _LESS
    ANSWER_UNREADABLE = "violation", "an answer of the sandbox cannot be read: {why}", _PIPE

    # --- kernels ---
    KERNEL_DIED = "failure", "the kernel ended", _CODE
    CONTEXT_DIED = "failure", "the context ended", _CODE
    KERNEL_RESTARTED = "notice", "the kernel was restarted", _AGAIN
    REPLY_UNREADABLE = "failure", "the kernel's reply cannot be used: {why}", _CODE
    KERNEL_NO_REPLY = "failure", "the kernel sent no reply", _CODE
    CELL_INTERRUPTED = "notice", "the cell was interrupted", _ASKED
    CELL_NOT_RUN = "notice", "the cell was interrupted before it ran", _AGAIN
    NO_KERNEL_STARTS = "failure", "no kernel starts in image {image!r}: {why}", _BUILD
    NO_TIME_ZONE = (
        "failure",
        "the image {image!r} has no time zone {zone!r}, so that clocks in cells would show UTC",
        "Correct time_zone (none is UTC), or add Debian's packages tzdata and tzdata-legacy to the image.",
    )
    NO_KERNELSPEC = (
        "failure",
        "the image {image!r} has no kernel {kernel!r}{why}; besides python3 it has {has}",
        "Choose one of these, or build an image that has it (docs/languages.md).",
    )

    # --- sandboxes ---
    SANDBOX_DIED = "failure", "the sandbox ended", _AGAIN
    OUT_OF_PROCESSES = (
        "limit",
        "the sandbox ended for lack of processes or threads",
        "Start fewer at once, or raise pids. On gVisor its own threads count, too.",
    )
    SANDBOX_NOT_RUNNING = "failure", "no sandbox is running", _AGAIN
    SANDBOX_IDLE = "limit", "the sandbox was idle and was ended", _IDLE
    SANDBOX_ENDED_BY_OWNER = "notice", "the sandbox was ended by its owner", _ASKED
    SANDBOX_PAUSED = "failure", "the sandbox is paused", "Call resume() first."
    NOT_PAUSED = "failure", "the sandbox cannot be paused now: {why}", _WAIT
    SANDBOX_SILENT = "failure", "the sandbox did not answer", _AGAIN
    START_TOO_SLOW = (
        "limit",
        "{what} was not ready in time",
        "Check what keeps the machine busy, or raise start_timeout.",
    )
    NOT_FRAMES = "violation", "the sandbox sent bytes that are not frames", _PIPE
    INTRODUCED_TWICE = "violation", "the sandbox introduced itself twice", _PIPE
    PARKED_AND_SPOKE = "violation", "the sandbox sent more after it was parked", _PIPE
    NOT_READING = "limit", "the sandbox does not read its input", _AGAIN
    NO_REPORT = "failure", "the sandbox did not report as it should", _ENGINE
    NO_INTRODUCTION = "failure", "the kernel did not say what it is", _AGAIN
    PIPE_GONE = "failure", "the pipe into the sandbox is gone", _AGAIN
    NOT_ATTESTED = "violation", "the sandbox did not attest itself before its first kernel was ready", _PIPE
    REQUEST_REFUSED = "limit", "the request is refused: one with its id has not ended, or too many are waiting", _WAIT
    DEFECT = (
        "failure",
        "sandbox_kernel failed on something that the sandbox sent: {what}",
        "Report it, with the kernel's log.",
    )

    # --- the machine ---
    ENGINE_FAILED = "failure", "the container engine refused a request or failed at it", _ENGINE
    ENGINE_UNAVAILABLE = "failure", "the container engine cannot be reached", _ENGINE
    ENGINE_STOPPED = "failure", "the container engine stopped: {why}", _ENGINE
    CONTAINER_GONE = "failure", "the container is gone", _AGAIN
    ENGINE_NOT_FOUND = "failure", "there is no container engine there", _SOCKET
    ENGINE_FORBIDDEN = "failure", "this user has no permission to use the container engine", _SOCKET
    ENGINE_SILENT = "limit", "the container engine does not answer in time", _ENGINE
    ENGINE_LOST = "failure", "the connection to the container engine was lost", _ENGINE
    ENGINE_UNKNOWN_ANSWER = "failure", "the container engine gave an unknown answer", _ENGINE
    ENGINE_TOO_OLD = "failure", "the container engine is too old", _DOCKER
    ENGINE_LACKS_RUNTIME = "failure", "the engine has no such runtime", "Add it to the engine, or change runtime."
    ENGINE_LACKS_PROTECTION = "failure", "the engine does not support all protections", _DOCKER
    ENGINE_LACKS_USERS = "failure", "the engine has no user id for the sandbox", _DOCKER
    ENGINE_CANNOT_PAUSE = (
        "failure",
        "this engine cannot pause a sandbox",
        "Use Docker, Podman or bubblewrap with a cgroup, or qemu; or keep the files and end it.",
    )
    ENGINE_CANNOT_SNAPSHOT = (
        "failure",
        "this engine cannot save, fork or restore a sandbox",
        "Use engine = qemu or wasm; or keep files, and run the code again.",
    )
    CHECKPOINT_MISSING = "failure", "there is no such checkpoint", "Take one with %checkpoint, or set undo = on."
    CHECKPOINT_NAME_UNFIT = (
        "failure",
        "the checkpoint's name is not valid",
        "Use letters, digits, '.', '-' and '_', at most 64, and begin with a letter or digit.",
    )
    CHECKPOINT_BUSY = "failure", "a cell runs, so there is no checkpoint now", "Wait until what runs has ended."
    ENGINE_LACKS_DATA = (
        "failure",
        "this engine gives no sandbox {what}",
        "Use Docker or bubblewrap, or leave the setting out.",
    )
    FOLDER_NOT_MOUNTED = (
        "failure",
        "the engine cannot mount {what}",
        "Name a folder on a local disk, which a container has from the machine at the same path (docs/large-data.md).",
    )
    DISK_NOT_MADE = (
        "failure",
        "no disk can be made for the sandbox",
        "Use a broker that root runs, engine = qemu, or scratch = memory; with bubblewrap, limits = best-effort.",
    )
    ENGINE_NOT_SET_UP = "failure", "an engine, or what it needs, cannot be set up", _FOLLOW
    CONTAINER_BEING_REMOVED = "notice", "the container is being removed", _ASKED
    CONTAINER_NOT_REMOVED = "limit", "the engine did not remove the container in time", "Run `sandbox-kernel reap`."
    CONTAINER_NOT_ADOPTED = "failure", "no container can be adopted from this state", _AGAIN
    IMAGE_NOT_BUILT = "failure", "the image cannot be built", _FOLLOW
    WHEELS_NOT_FETCHED = "failure", "the packages of an image cannot be downloaded", _FOLLOW
    IMAGE_MISSING = "failure", "the engine has no image of that name", _MISSING
    ATTESTATION_FAILED = "failure", "the sandbox does not have all of its protections; no cell ran in it", _ENGINE

    # --- a broker ---
    DETACHED_NOT_THERE = "failure", "this user has no detached sandbox of that id", _NEW_SANDBOX
    DETACHED_TAKEN = "notice", "another process took the sandbox over", _ASKED
    DETACHED_LEFT = (
        "notice",
        "this process left the sandbox, where the cell goes on",
        "Connect to it again to get the rest.",
    )
    LIFETIME_OVER = "limit", "the sandbox has reached the end of its lifetime", _NEW_SANDBOX
    NOBODY_READ = "limit", "the sandbox sent too many messages while no owner read them", _LESS
    BROKER_ENDED = (
        "failure",
        "the broker ended, and its detached sandboxes with it",
        "Start it again: `sandbox-kernel broker`.",
    )
    QUOTA_EXCEEDED = "limit", "this user has reached the broker's sandbox limit", "End one of them, or wait."

    # --- callers and policies ---
    WRONG_SETTING = "failure", "a setting has a value that cannot work", "Change the setting that is named."
    SANDBOX_CLOSED = "failure", "a sandbox was used after its end, or outside of its loop or process", _OWNER
    SANDBOX_KILLED = "failure", "the sandbox was killed: make a new one", _NEW_SANDBOX
    COMMAND_FAILED = "failure", "the command ended with the exit code {code}", "Read its stderr."
    COMMAND_GONE = "failure", "there is no such command: it ended, or its kernel did", _AGAIN
    SANDBOX_NOT_HERE = "failure", "this process has no open sandbox with the id {id!r}", _OWNER
    SANDBOX_DROPPED = "failure", "the sandbox of these files has ended: nothing refers to it any more", _OWNER
    SANDBOX_OF_ANOTHER_PROCESS = (
        "failure",
        "the sandbox belongs to the process that made it, and this is a fork of it",
        _OWNER,
    )
    SANDBOX_OF_ANOTHER_LOOP = "failure", "the sandbox belongs to another event loop", _OWNER
    LOOP_CLOSED = "failure", "the sandbox ended with its event loop, which was closed", _OWNER
    LOOP_STOPPED = (
        "failure",
        "the sandbox belongs to an event loop that does not run, so it cannot be ended there",
        _OWNER,
    )
    WOULD_WAIT_FOR_ITSELF = (
        "failure",
        "a blocking call would wait for itself here: use AsyncSandbox in async functions",
        _OWNER,
    )
    CALL_CANCELLED = "notice", "the call was cancelled, so the cell was ended", _ASKED
    CALLBACK_FAILED = "failure", "a callback of the caller's raised an exception", "Fix the callback."
    SCREEN_BLOCKED = "violation", "a policy refused the code before it ran", _CODE
    BEHAVIOUR_BLOCKED = "violation", "the monitor ended the code for what it did", _CODE
    PLATFORM_FAILED = "failure", "the sandbox failed", _ENGINE


_HELP = "Run the command with --help, or see the call's documentation."
_OTHER_PLACE = "Name another file or folder."
_INSTALL = "Install all of sandbox-kernel again."


@unique
class UsageCode(Code):
    """Why nothing could be begun as it was asked for.

    `EndCode.WRONG_SETTING` is for the value of one setting; these are for the rest.
    """

    # --- settings and arguments ---
    UNKNOWN_SETTING = "failure", "there is no such setting", "Run `sandbox-kernel settings`."
    WRONG_ARGUMENT = "failure", "an argument has a wrong value", _HELP
    NOT_DETACHED = "failure", "only a detached sandbox outlives its caller", "Make it with detached=True."
    NOT_TOGETHER = "failure", "two settings or arguments do not go together", _HELP
    NOT_ON_THIS_MACHINE = (
        "failure",
        "a setting cannot work on this machine",
        "Change the setting, or install it all the same: `sandbox-kernel install --force`.",
    )
    CONFIG_FILE_FAILED = "failure", "a config file cannot be read", "Fix the file that is named."
    MEMORY_TOO_SMALL = (
        "failure",
        "the folders in memory could fill too much of it",
        "Raise memory, or lower scratch_size.",
    )

    PYTHON_ALONE = (
        "failure",
        "{what} is for Python alone, and the kernel is {kernel}",
        "Leave it out, or use kernel python3.",
    )
    NO_ENVS_OF_A_CALL = (
        "failure",
        "the kernel {kernel} takes no variables for one call",
        "Give envs to the sandbox, or set the variables in the cell.",
    )
    SANDBOX_IN_TOOL = (
        "failure",
        "a tool cannot use the sandbox whose cell waits for it",
        "Use another sandbox in it, or return what the cell needs.",
    )

    # --- what a run takes and makes ---
    NOTEBOOK_UNREADABLE = "failure", "the notebook or script cannot be read", _OTHER_PLACE
    NOTEBOOK_TOO_LARGE = "limit", "the notebook or script is too large", "Split it."
    NOT_A_NOTEBOOK = "failure", "it is no notebook or script that the kernel can run", _OTHER_PLACE
    PLACE_UNFIT = "failure", "a file cannot be written there", _OTHER_PLACE

    # --- packages and installations ---
    PACKAGE_MISSING = "failure", "this needs packages that are not installed", "Install the extra that is named."
    PLUGIN_MISSING = "failure", "this installation lacks a plugin", _INSTALL
    PLUGIN_UNUSABLE = "failure", "a plugin of another package cannot be used", "Update or uninstall that package."
    INSTALLATION_UNFIT = "failure", "this installation cannot be used", _INSTALL
    KERNELSPEC_NOT_WRITTEN = "failure", "the kernelspec cannot be written", "Choose --user or --sys-prefix."

    # --- a server that others reach ---
    ADDRESS_UNUSABLE = "failure", "the server cannot listen there", "Choose another host or port."


_SHARE = "A machine for each person; runtime = runsc or engine = qemu make it harder and close nothing of it."


@unique
class NeighbourCode(Code):
    """What sandboxes of one machine share, that no wall between them closes. `doctor` and `verify` say it."""

    SMT_ON = (
        "notice",
        "on: two programs are on one core at a time, and share its caches and units",
        "Switch it off (`nosmt`), or core_scheduling = on, or a cpuset of whole cores for each person.",
    )
    NO_CORE_SCHEDULING = (
        "notice",
        "this kernel has no core scheduling",
        "Where SMT is on: a kernel from 5.14 on with CONFIG_SCHED_CORE.",
    )
    CPU_VULNERABLE = (
        "notice",
        "open to what may read others' memory: {names}",
        "Update the kernel and the microcode, and start it without mitigations=off; in a virtual machine, its host's.",
    )
    SAME_PAGES_MERGED = (
        "notice",
        "equal pages of memory are merged (KSM): a write's time tells whether another program has the same page",
        "As root: `echo 2 > /sys/kernel/mm/ksm/run`.",
    )
    PAGE_CACHE_SHARED = (
        "notice",
        "shared by all sandboxes of an image, a root or a dataset: a read's time tells if somebody has read a file",
        _SHARE,
    )
    MEMORY_BALLOON = (
        "notice",
        "{driver}: a hypervisor may take memory from this machine, which then has less than it says",
        "Count on less memory, or have the host reserve it.",
    )


@unique
class ActivityCode(Code):
    """What code does that is no harm by itself, and stands in a report of behaviour (docs/behaviour.md)."""

    PROGRAM_STARTED = "notice", "a program was started", "Nothing: it runs in the sandbox, too."


TABLE: dict[str, type[Code]] = {
    "Outputs": OutputCode,
    "Messages": MessageCode,
    "Files": FileCode,
    "Ends": EndCode,
    "Usage": UsageCode,
    "Neighbours": NeighbourCode,
    "Activity": ActivityCode,
}
"""The parts, by the titles that people read. Plugins have tables of their own."""


@cache
def find(code: str) -> Code:
    """Return the row of a code. Raises KeyError for an unknown code."""
    return {one.code: one for part in TABLE.values() for one in part}[code]
