"""What may enter and leave scratch, by name and size: pure rules, never a refusal without its reason.

What is downloaded is hostile content in a place of the user's choice. Names that a tool acts upon by itself, in a
folder that a person merely opens or works beside (hidden files such as .git or .envrc, `__pycache__`, .pth, .desktop,
conftest.py, Makefile, package.json, ...), are therefore not copied, and no file is made executable; but a cell can
still write a `pandas.py`, and replace any other file of the folder. So `downloads` should be a folder of its own, not
one from which trusted code runs. A name is also what a person reads: what shows as nothing, or as a separator, is
refused.

Public: plugins may import it.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from dataclasses import dataclass
from pathlib import PurePosixPath

from ..core.codes import EndCode, FileCode
from ..core.errors import ConfigurationError, FileRefused
from ..core.model import GIB, MIB, Limits, format_bytes
from ..core.model import printable as printable  # noqa: PLC0414 (for those who know it from here)

MAX_COMPONENT_BYTES = 255
MAX_PATH_BYTES = 1024
MAX_DEPTH = 16
CHUNK_BYTES = MIB
"""What is read, sent or written in one step."""
WHOLE_BYTES = 256 * MIB
"""What a call returns as one piece of memory, at most; twice of it is held while that is put together."""
SLOWEST = 8 * MIB
"""Bytes a second that a folder's files move at least. Slower ones wait for the next cell, and do not hold this one."""

_UNREADABLE = (
    ("a control character", re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")),
    ("a text direction mark", re.compile(r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")),
    (
        "an invisible mark",
        re.compile(
            r"[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u2065\u206a-\u206f\u2800\u3164\ufeff\uffa0"
            r"\ufff0-\ufffc\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]"
        ),
    ),
    (
        "a lookalike of a separator",
        re.compile(
            r"[\u1735\u2041\u2044\u2215\u2216\u2571\u2572\u27cb\u27cd\u29f5\u29f8\u29f9\u31d3\u31d4\ufe68\uff0f\uff3c"
            r"\U0001d20f\U0001d23a\U0001d23b]"
        ),
    ),
    ("a character without a meaning", re.compile(r"[\ue000-\uf8ff\ufdd0-\ufdef\ufffe\uffff\U000f0000-\U0010ffff]")),
)
_JOINERS = re.compile(r"[\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Marks that are seen only in what stands beside them; without them, Persian and many emoji cannot be written."""
_VIRAMA = 9
"""The combining class of the marks that kill a vowel, after which Indic scripts need a joiner (RFC 5892, A.1, A.2)."""

_ACTED_UPON = re.compile(
    r"__pycache__|(site|user)customize(\..*)?|.*\.(_?pth|pyc|egg-link|desktop|lnk|url|scf)|desktop\.ini|autorun\.inf"
    r"|thumbs\.db",
    re.IGNORECASE | re.DOTALL,
)
"""In both directions: no honest data have such names."""

_ACTED_UPON_OUTSIDE = re.compile(
    # Python and its tools, which look for these in the folder that they are started in, or in all beneath it
    r"conftest\.py[cdo]?|setup\.(py|cfg)|pyproject\.toml|tox\.(ini|toml)|pytest\.(ini|toml)|noxfile\.py|dodo\.py|fabfile(\.py)?"
    r"|tasks\.py|manage\.py|pipfile|uv\.toml|mypy\.ini|ruff\.toml|pylintrc|profile_default|.*\.(dist|egg)-info"
    r"|(ipython|jupyter)[a-z_]*_config(\.d|\.py|\.json)"
    # build tools and runners
    r"|(gnu|bsd)?makefile(\..*)?|.*\.mk|cmakelists\.txt|meson\.build|sconstruct|sconscript|wscript|\.?justfile|taskfile\.ya?ml"
    r"|(build|settings|init)\.gradle(\.kts)?|pom\.xml|build\.(rs|xml|zig)|cargo\.toml|go\.(mod|work)|.*\.(cabal|nimble|gemspec)"
    r"|gemfile|rakefile|brewfile|procfile|vagrantfile|jenkinsfile|guardfile|workspace(\.bazel)?|build\.bazel|module\.bazel"
    r"|(docker|container)file(\..*)?|(docker-)?compose(\..*)?\.ya?ml|(flake|shell|default)\.nix|devcontainer\.json|mise\.toml"
    # programs for notebooks, figures and papers, and services in Python, which read these where they are started:
    # nbconvert takes the folders `lab`, `base`, ... of the current one for its templates, and those are programs
    r"|.*\.(j2|jinja2?|tplx?)|conf\.(json|py)|matplotlibrc|latexmkrc|jupytext(\.(toml|ya?ml|json|py)|config)|quarto\.ya?ml"
    r"|_(quarto|config|netrc|vimrc|gvimrc|exrc)(\.ya?ml)?|(gunicorn\.conf|celeryconfig|wsgi)\.py|(scrapy|ansible|airflow)\.cfg"
    r"|(mkdocs|snakefile|dvc)(\.ya?ml)?|nextflow\.config|(hatch|pdm|poetry|pixi|rye)\.toml"
    # JavaScript
    r"|package\.json|node_modules|deno\.jsonc?|bunfig\.toml|(grunt|gulp)file(\..*)?|tsconfig(\..*)?\.json|yarn\.config\..*"
    r"|[a-z]+\.(config|conf|setup)\.[cm]?[jt]s"
    # what a desktop or an editor opens with the folder
    r"|.*\.(code-workspace|sublime-project|theme|library-ms|search-ms|searchconnector-ms|settingcontent-ms|website|webloc"
    r"|inetloc|fileloc|appref-ms|application|command|terminal|workflow|app|pif|scr|hta)|folder\.htt",
    re.IGNORECASE | re.DOTALL,
)
_OF_A_TEMPLATE = re.compile(
    r"(^|/)(base|basic|classic|lab|latex|reveal|webpdf)/static/(.*/)?[^/]*\.(css|js|html?|svg)$", re.DOTALL
)
"""What nbconvert puts into a page as it is, if it is started in the folder above."""
_DEVICE = re.compile(
    r"(con|prn|aux|nul|conin\$|conout\$|clock\$|(com|lpt)[0-9\u00b9\u00b2\u00b3])\s*(\..*)?", re.I | re.S
)
_SHORT = re.compile(r"[^.]{1,6}~[0-9](\.[^.]{0,3})?")
"""What Windows may take for another file of a longer name: GIT~1 is .git."""


_DEFAULTS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """What one direction may move. Sizes in bytes, times in seconds."""

    file_bytes: int = _DEFAULTS.scratch_size
    total_bytes: int = max(_DEFAULTS.scratch_size, GIB)
    """Of an upload folder; of all that a session has in its download folder."""
    files: int = _DEFAULTS.folder_files
    """Of an upload folder; of all that a session has in its download folder."""
    seconds: float = 60.0
    """One synchronisation, besides the time that its bytes take at `SLOWEST`; what is left follows with the next."""

    @classmethod
    def of(cls, limits: Limits) -> FileLimits:
        """Return those that a session was given.

        What scratch holds is no wall for honest files: no larger one goes in, and none was made there. It still is a
        bound for a sandbox that lies, which could otherwise fill the host's disk with one file without an end.
        """
        return cls(
            file_bytes=limits.file_limit or limits.scratch_size,
            total_bytes=limits.folder_limit or max(limits.scratch_size, GIB),
            files=limits.folder_files,
        )

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if getattr(self, name) <= 0:
                raise ConfigurationError(
                    EndCode.WRONG_SETTING, f"{name} must be positive, not {getattr(self, name)}", setting=name
                )


def check_name(path: str) -> PurePosixPath:
    """Return `path` as the relative path of a file. Raises `FileRefused` with the reason if it is not a plain one."""
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise FileRefused(FileCode.NAME_NOT_UTF8) from None
    if size > MAX_PATH_BYTES:
        raise FileRefused(FileCode.PATH_TOO_LONG, limit=f"{MAX_PATH_BYTES} bytes", value=f"{size} bytes")
    for what, pattern in _UNREADABLE:
        if pattern.search(path):
            raise FileRefused(FileCode.NAME_UNREADABLE.note(what=what))
    _check_joiners(path)
    if "\\" in path:  # a plain character here, but a separator where the folder may be opened next
        raise FileRefused(FileCode.NAME_BACKSLASH)
    if path.startswith("/"):
        raise FileRefused(FileCode.PATH_ABSOLUTE)
    parts = path.split("/")
    if len(parts) > MAX_DEPTH:
        raise FileRefused(FileCode.PATH_TOO_DEEP, limit=f"{MAX_DEPTH} levels", value=f"{len(parts)} levels")
    for part in parts:
        length = len(part.encode())
        if not part:
            raise FileRefused(FileCode.NAME_EMPTY)
        if part in {".", ".."}:
            raise FileRefused(FileCode.PATH_DOTS.note(part=part))
        if length > MAX_COMPONENT_BYTES:
            raise FileRefused(FileCode.NAME_TOO_LONG, limit=f"{MAX_COMPONENT_BYTES} bytes", value=f"{length} bytes")
    return PurePosixPath(path)


def check_place(path: str) -> str:
    """Return the path of a file of the sandbox: relative to scratch, or whole and elsewhere. Raises `FileRefused`."""
    if path != "/":
        check_name(path.removeprefix("/"))
    return path


_OF_CHARACTERS = frozenset((
    FileCode.NAME_NOT_UTF8, FileCode.NAME_UNREADABLE, FileCode.NAME_INVISIBLE_MARK, FileCode.NAME_BACKSLASH,
))  # fmt: skip
"""Refusals of a name for what is in it, and of nothing else."""
_REPLACED = re.compile("|".join((*(one.pattern for _, one in _UNREADABLE), _JOINERS.pattern, r"[\\\ud800-\udfff]")))
MAX_SUFFIX = 17
"""Characters of a suffix that a name keeps, with its dot."""
_STAND_IN = re.compile(r"[^/]*~[0-9a-f]{8}(\.[^./]{0,16})?")


def safe_name(path: str) -> str:
    """Return `path`, or one that stands for it where a name in it has characters that are refused.

    The agent finds what stands there by the digest in it (`container/file_requests`). Raises `FileRefused` for what is
    no plain path besides.
    """
    try:
        check_name(path)
    except FileRefused as error:
        if error.code not in _OF_CHARACTERS:
            raise
        path = "/".join(map(_safe, path.split("/")))
        check_name(path)
    return path


def _safe(part: str) -> str:
    """Return a name without the characters that are refused, with a digest of what it was, and its suffix."""
    try:
        check_name(part)
    except FileRefused as error:
        if error.code in _OF_CHARACTERS:
            clean = _REPLACED.sub("_", part)
            dot = clean.rfind(".")
            end = dot if dot > 0 and len(clean) - dot <= MAX_SUFFIX else len(clean)
            digest = zlib.crc32(part.encode(errors="backslashreplace"))
            return f"{clean[:end].encode()[:200].decode(errors='ignore')}~{digest:08x}{clean[end:]}"
    return part


def stands_in(path: str) -> bool:
    """Return whether a path looks like one of `safe_name`'s that stands for another one."""
    return any(map(_STAND_IN.fullmatch, path.split("/")))


def safe_place(path: str) -> str:
    """Return what `safe_name` does of a path that may be a whole one elsewhere in the sandbox."""
    root = "/" if path.startswith("/") else ""
    return path if path == "/" else root + safe_name(path.removeprefix("/"))


def check_copied_name(path: str) -> PurePosixPath:
    """Return `path` if it may be copied without being asked for by name. Raises `FileRefused`.

    Hidden files hold what no one sees: keys and histories on the way in, hooks and settings of tools on the way out.
    """
    checked = check_name(path)
    for part in checked.parts:
        if part.startswith("."):
            raise FileRefused(FileCode.HIDDEN)
        if _ACTED_UPON.fullmatch(part):
            raise _acted_upon(checked)
    return checked


def check_downloaded_name(path: str) -> PurePosixPath:
    """Return `path` if a cell may have a file of that name copied out. Raises `FileRefused`.

    A name is judged as the tools and file systems read it where the folder may be opened next: on Windows and macOS, in
    any case and normal form.
    """
    checked = check_copied_name(path)
    for part in checked.parts:
        if part.startswith("-"):
            raise FileRefused(FileCode.NAME_HYPHEN)
        read = unicodedata.normalize("NFKC", part).casefold()
        if "/" in read or "\\" in read:
            raise FileRefused(FileCode.NAME_UNREADABLE.note(what="a lookalike of a separator"))
        if read.startswith((".", "-")) or not read.strip():
            raise FileRefused(FileCode.HIDDEN_WHEN_READ)
        if read[-1] in ". " or read[0] == " ":
            raise FileRefused(FileCode.NAME_SPACES)
        if _DEVICE.fullmatch(read):
            raise FileRefused(FileCode.NAME_OF_DEVICE)
        if _SHORT.fullmatch(read):
            raise FileRefused(FileCode.NAME_SHORT_FORM)
        if _ACTED_UPON.fullmatch(read) or _ACTED_UPON_OUTSIDE.fullmatch(read):
            raise _acted_upon(checked)
    if _OF_A_TEMPLATE.search(checked.as_posix().casefold()):
        raise _acted_upon(checked)
    return checked


def folded(path: str) -> str:
    """Return what two names have in common that are one on Windows or macOS."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _check_joiners(path: str) -> None:
    """Raise `FileRefused` for a joiner or a selector where nothing beside it shows it."""
    for match in _JOINERS.finditer(path):
        before, mark, after = path[: match.start()][-1:], match[0], path[match.end() :][:1]
        if mark in "\u200c\u200d":
            shown = bool(before) and bool(after) and _joins(before, mark, after)
        elif mark <= "\ufe0f":  # of emoji, and of keycaps such as 1\ufe0f\u20e3
            shown = _is_symbol(before) or (before != "" and before in "#*0123456789" and after == "\u20e3")
        else:
            shown = bool(before) and unicodedata.name(before, "").startswith("CJK ")
        if not shown:
            raise FileRefused(FileCode.NAME_INVISIBLE_MARK)


def _joins(before: str, mark: str, after: str) -> bool:
    if unicodedata.combining(before) == _VIRAMA:
        return True
    if mark == "\u200d" and _is_symbol(before) and _is_symbol(after):
        return True
    # Arabic letters, with their vowel signs, and no other script
    return unicodedata.bidirectional(before) in {"AL", "NSM"} and unicodedata.bidirectional(after) == "AL"


def _is_symbol(char: str) -> bool:
    return char != "" and (char == "\ufe0f" or unicodedata.category(char) in {"So", "Sk", "Sm"}) and char > "\x7f"


HABITS = frozenset((FileCode.HIDDEN, FileCode.HIDDEN_WHEN_READ, FileCode.CACHE))
"""Refusals of what honest tools leave behind."""


def _acted_upon(path: PurePosixPath) -> FileRefused:
    return FileRefused(FileCode.CACHE if "__pycache__" in path.parts else FileCode.ACTED_UPON)


def check_size(size: int, limit: int) -> None:
    """Raise `FileRefused` if `size` bytes are more than `limit`."""
    if size > limit:
        limits, reached = format_bytes(limit), format_bytes(size)
        raise FileRefused(FileCode.TOO_LARGE, limit=limits, value=reached, setting="file_limit or scratch_size")


def check_whole(size: int) -> None:
    """Raise `FileRefused` if `size` bytes are more than a call returns at once."""
    if size > WHOLE_BYTES:
        limit, value = format_bytes(WHOLE_BYTES), format_bytes(size)
        raise FileRefused(FileCode.LARGER_THAN_MEMORY, limit=limit, value=value)
