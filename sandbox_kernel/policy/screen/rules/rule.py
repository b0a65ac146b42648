"""What a rule is: a code, how much it weighs, and what it looks for. Imports codes only.

A family of rules is a module beside this one, with nothing but a tuple of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from ....core.screen_codes import ScreenCode


class Weight(IntEnum):
    """How grave one finding is, in points. What a cell has adds up, to 100 at most."""

    LOW = 20
    MEDIUM = 40
    HIGH = 60
    CRITICAL = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row of a family. Names are dotted, as the library has them, whatever a cell calls them; `a.b.*` is all below.

    What is made by a call has `()` behind its name: the method of a socket is `socket.socket().connect`.
    """

    code: ScreenCode
    weight: Weight
    cwe: int | None = None
    """The number of the weakness in the Common Weakness Enumeration."""
    names: tuple[str, ...] = ()
    """Found wherever they are mentioned."""
    calls: tuple[str, ...] = ()
    """Found where they are called."""
    methods: tuple[str, ...] = ()
    """Found where they are called on something of which nothing is known."""
    attributes: tuple[str, ...] = ()
    """Found wherever they are asked for, whatever has them; `def name` is a function that is defined."""
    endless: tuple[str, ...] = ()
    """Found where they are called in a loop without an end."""
    flows: tuple[tuple[str, str], ...] = ()
    """Patterns of a called name, and of a name in the same expression, or that its names were assigned from."""
    imports: tuple[str, ...] = ()
    """Modules, found where they are imported."""
    text: tuple[str, ...] = ()
    """Patterns, found in texts of the code, however these are composed, and in commands of a shell."""
    shell: tuple[str, ...] = ()
    """Patterns of one simple command of a shell: its words, without quotes, with one space between."""
    script: tuple[str, ...] = ()
    """Patterns of all that a shell is given at once: pipes, redirections, loops."""


def words(text: str) -> tuple[str, ...]:
    """Return what stands in `text`, split at spaces."""
    return tuple(text.split())


FETCHED = (
    r"\b(requests|urllib|urllib2|urllib3|httpx|aiohttp|http\.client|wget|socket|websocket|ftplib|telnetlib|pycurl|paramiko)"
    r"\.(?!parse\b|gethost|getaddr|AF_|SOCK_)\w|\.recv(from)?\b"
)
"""A name that something was fetched with."""
DECODED = (
    r"\b((base64|binascii|zlib|gzip|bz2|lzma|marshal|quopri|uu|cryptography\.fernet)\.|codecs\.decode\b|urllib\.parse\.unquote\b|"
    r"pickle\.loads\b|bytes\.fromhex\b)"
)
"""A name that something was decoded with."""
RUNS_COMMANDS = r"os\.(system|popen|exec\w+|spawn\w+)|subprocess\.\w+|pty\.spawn|get_ipython\(\)\.(system|getoutput)"
RUNS_CODE = r"builtins\.(exec|eval|compile)|get_ipython\(\)\.run_cell"
SENDS = (
    r"(requests|httpx|requests\.(Session|session)\(\)|httpx\.(Client|AsyncClient)\(\)|aiohttp\.ClientSession\(\))\.(post|put|patch|request)|"
    r"urllib\.request\.(urlopen|Request)|urllib3\.PoolManager\(\)\.request|http\.client\.HTTPS?Connection\(\)\.request|"
    r"ftplib\.FTP(_TLS)?\(\)\.(storbinary|storlines)|.*\.(sendall|sendto|send|sendmail|send_message|upload_file|put_object|upload_fileobj|upload_blob)|\.post"
)
"""Calls that send what they are given."""
