"""What a model is told before it calls anything: what stays, what the limits are, and what is not there.

The figures are those of the settings. Imports model and clients; the image's recipe is read where it is the default.
"""

from __future__ import annotations

import re

from ...config.sources import SETTINGS
from ...core.model import SCRATCH, Limits, Settings, format_bytes
from ...core.package_files import brought
from ...engines import attachment
from ...engines.image_names import FULL
from ...files.file_rules import FileLimits
from .clients import ServerLimits

CALL_BYTES = 32 << 20
"""What one call may carry of a file, decoded."""
PART_BYTES = 8 << 20
"""What one call may bring back of a file when a part is asked for."""
INLINE_BYTES = 64 << 10
"""A file that is given back as a whole without being asked for in parts."""

DOWNLOAD_FILE = (
    "Return a file from /mnt/data of a session. Images come back as images, text as text, anything else as base64. "
    f"A file over {format_bytes(INLINE_BYTES)} comes back as a link to a resource, which holds all of it, unless "
    f"`length` asks for a part (at most {PART_BYTES} bytes). To know what is in a large file, read it with run_code."
)
LIST_FILES = "List the files in /mnt/data of a session, with those in the folders below it."
LIST_SESSIONS = "List your sessions. Those of other clients are not visible."
INTERRUPT = "Raise KeyboardInterrupt in the code that runs in a session. Variables and files are kept."
RESET = "Start Python again in a session: its variables are lost, its files in /mnt/data are kept."
END_SESSION = "End a session. Its variables and files are lost: download what is needed before."


def instructions(settings: Settings, limits: ServerLimits) -> str:
    """Return the server's word on itself."""
    return (
        f"Runs Python in sandboxes {_where(settings)}. A session keeps its variables, imports and files between calls "
        f"until it is ended, is unused for {_time(settings.limits.idle_timeout)}, or an answer says that they are "
        "gone. Use run_code for computing, upload_file to bring data in, download_file to take results out."
    )


def run_code(settings: Settings, limits: ServerLimits) -> str:
    at_most = settings.limits
    return "\n".join(
        (
            "Run Python code in a sandbox, as Jupyter runs a cell, and return what it printed and displayed.",
            "",
            "- State: variables, imports and files stay between the calls of one session, until an answer says that "
            "they are gone. The value of the last expression is shown. Top-level `await`, `%magics` and `!commands` "
            "work; input() does not.",
            f"- Files: the working folder is {SCRATCH}; what upload_file brought is there, and what is written there "
            f"can be taken with download_file. It holds {format_bytes(at_most.scratch_size)}{_disk(at_most)} and ends "
            f"with the session. {_data(settings)}",
            *_network(settings),
            f"- Packages: {packages(settings)}",
            "- Images: matplotlib and seaborn figures come back as images; show them with plt.show(). Prefer them to "
            "plotly, altair and bokeh, whose charts come back as HTML for a person's browser.",
            f"- Limits: {_limits(at_most)} What goes over one ends with an error that says what is left.",
            f"- Text over {limits.text_characters:,} characters is cut; all of it is a resource. Print summaries.",
            f"- An error in the code comes back as text with its traceback. A session that is not used for "
            f"{_time(at_most.idle_timeout)} ends.",
        )
    )


def upload_file(settings: Settings) -> str:
    largest = min(FileLimits.of(settings.limits).file_bytes, settings.limits.scratch_size)
    return (
        f"Write a file into {SCRATCH} of a session, from text or from base64. An existing file is replaced. "
        f"One call carries at most {format_bytes(CALL_BYTES)}; a larger file, up to "
        f"{format_bytes(largest)}, comes in parts: each with the "
        "`offset` at which it starts and `final` false for all but the last. The file appears with its last part."
    )


def install_packages(settings: Settings) -> str:
    """Return what the tool says that brings packages into a session."""
    return (
        f"Bring packages into a session that runs; they can be imported at once. Allowed: {_allowed(settings)}, and "
        "what these need. Wheels only. What is installed already keeps its version."
    )


def _allowed(settings: Settings) -> str:
    packages = settings.get("packages", ())
    return "all of the index" if "*" in packages else ", ".join(packages)


def packages(settings: Settings) -> str:
    """Return what can be imported, as far as the image is known, and what can be added."""
    installs = settings.get("packages", ())
    more = f"`%pip install` adds {_allowed(settings)}, and nothing else" if installs else "nothing else can be"
    if settings.image not in {SETTINGS["image"].default, FULL}:
        added = f" {more}." if installs else ""
        return f"those of a custom image; `importlib.metadata.distributions()` lists them.{added}"
    kinds = ["data"] if settings.image != FULL else ["data", "full"]
    try:
        lines = [line for kind in kinds for line in (brought("images") / f"{kind}.in").read_text("utf-8").splitlines()]
    except OSError:
        return f"the usual ones for data analysis; {more}."
    names = [match[0] for line in lines if (match := re.match(r"(?!noto-|fontpkg-)[a-z][a-z0-9-]*", line))]
    return f"{', '.join(names)} and Python's standard library are installed; {more}."


def _where(settings: Settings) -> str:
    return "without a network" if settings.reach is None else f"that reach nothing but {settings.reach}"


def _disk(limits: Limits) -> str:
    return " on a disk, which is no part of the memory," if limits.scratch == "disk" else ""


def _data(settings: Settings) -> str:
    places = attachment.told(settings)
    return f"Data is at {', '.join(places)}." if places else "Nothing of any other computer is there."


def _network(settings: Settings) -> list[str]:
    if settings.reach is None:
        rest = "." if settings.get("packages", ()) else ", and `pip install` does not work."
        return [f"- No network: nothing can be downloaded, no address can be reached{rest}"]
    lines = [
        f"- Network: {settings.reach}, and nothing else, over HTTP and HTTPS through a proxy that is set up already: "
        "requests, httpx, urllib and pandas use it, aiohttp with trust_env=True. Whatever else is asked for is "
        "answered with 403 and the reason; asking again does not help."
    ]
    if secrets := settings.get("secrets", ()):
        names = ", ".join(secret.name for secret in secrets)
        lines.append(
            f"- Secrets: the environment has placeholders in {names}. Use them as the real ones, in headers or in the "
            "address: they are exchanged on the way to the hosts that they are for. They are of no use elsewhere."
        )
    return lines


def _limits(limits: Limits) -> str:
    files = " and files together" if limits.scratch == "memory" else ""
    return (
        f"{_time(limits.cell_timeout)} a call, {format_bytes(limits.memory)} of memory for variables{files}, "
        f"{limits.cpus:g} processors, {limits.pids} processes and threads, "
        f"{format_bytes(limits.output_limit)} of output a call."
    )


def _time(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    if not minutes or (rest and minutes < 5):
        return f"{seconds:g} seconds"
    return f"{minutes:g} min" if not rest else f"{minutes:g} min {rest:g} s"
