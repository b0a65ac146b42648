"""Where something goes that came from elsewhere: what is sent out, run, or loaded after it came in or was read.

Decides by where the arguments of a call came from, never by what they are.
"""

from __future__ import annotations

import re
from typing import Protocol

from ...core.screen_codes import ScreenCode
from . import paths
from .desk import Desk
from .rules.rule import words
from .value import DATA, DECODED, FILE, FOUND_FILE, NETWORK, SECRET, SYSTEM, Value

_SENDS = re.compile(
    r"(requests|httpx|requests\.(Session|session)\(\)|httpx\.(Client|AsyncClient)\(\)|aiohttp\.ClientSession\(\))\.(post|put|patch|request)|"
    r"urllib\.request\.(urlopen|Request)|urllib3\.PoolManager\(\)\.request|http\.client\.HTTPS?Connection\(\)\.request|"
    r"socket\.socket\(\)\.(send|sendall|sendto)|socket\.create_connection\(\)\.(send|sendall)|smtplib\.SMTP(_SSL)?\(\)\.(sendmail|send_message)|"
    r"ftplib\.FTP(_TLS)?\(\)\.(storbinary|storlines)|websocket\.\S*\.send|boto3\..*\.(upload_file|put_object|upload_fileobj)|paramiko\..*\.put"
)
_GETS = re.compile(
    r"(requests|httpx|requests\.(Session|session)\(\))\.(get|head)|urllib\.request\.urlopen|socket\.gethostbyname|dns\.resolver\.\S+|socket\.getaddrinfo"
)
_SEND_METHODS = frozenset(
    words("sendall sendto send sendmail send_message post upload_file put_object storbinary upload_fileobj upload_blob")
)
_RUNS = re.compile(
    r"os\.(system|popen|exec\w+|spawn\w+)|subprocess\.\w+|pty\.spawn|get_ipython\(\)\.(system|getoutput|run_cell)"
)
_LOADS = re.compile(
    r"(pickle|_pickle|dill|cloudpickle|marshal|jsonpickle|joblib|torch|shelve)\.(loads?|decode|open)|yaml\.(unsafe_)?load"
)
_TO_FILES = re.compile(
    r"(pandas|polars)\..*\.(to_csv|to_parquet|to_excel|to_json|to_pickle|to_feather|write_csv|write_parquet)"
)
_WRITES = frozenset(
    words("to_csv to_parquet to_excel to_json to_pickle to_feather savefig write_text write_bytes save")
)
_ENCRYPTS = re.compile(
    r"cryptography\.fernet\.Fernet(\(\)\.encrypt)?|Crypto(dome)?\.Cipher\.\w+\.new|pyAesCrypt\.\w+|cryptography\.hazmat\.primitives\.ciphers\.Cipher|nacl\.secret\.SecretBox"
)
_CONNECTS = frozenset({"connect", "connect_ex", "create_connection", "open_connection"})
_HASHES = re.compile(r"hashlib\.(sha256|sha3_256|blake2b|scrypt|new|md5|sha1|sha512)")


class Given(Protocol):
    """A call, as far as it matters here."""

    @property
    def args(self) -> list[Value]: ...
    @property
    def keywords(self) -> dict[str, Value]: ...
    @property
    def given(self) -> frozenset[str]: ...
    @property
    def receiver(self) -> Value: ...
    def argument(self, at: int, *names: str) -> Value: ...


def look(desk: Desk, name: str, method: str | None, call: Given, line: int) -> None:
    """Note what a call does with what came from elsewhere."""
    given = call.given
    if given:
        _look_at_origins(desk, name, method, given, line)
    if name.startswith("socket."):
        desk.flags.add("socket")
    if name == "os.dup2" or method == "dup2":
        desk.flags.add("dup2")
    if _ENCRYPTS.fullmatch(name) or (method in ("encrypt", "encrypt_file") and not name.startswith("def:")):
        desk.flags.add("encrypts")
    if desk.loops and _HASHES.match(name):
        desk.flags.add("hashes")
        if _HASHES.fullmatch(name) and (call.argument(0, "string").ref or "").startswith("hashlib."):
            desk.notes.add(ScreenCode.MINER_LOOP, line, "a hash of a hash")
    if method in _CONNECTS and desk.loops and (name.startswith("socket.") or "socket" in desk.flags):
        if desk.times == float("inf"):
            desk.notes.add(ScreenCode.PROCESS_BACKGROUND, line, name or method)
        else:
            desk.notes.add(ScreenCode.NETWORK_SCAN, line, name or method)
    if method in ("extractall", "extract") or name == "shutil.unpack_archive":
        _unpacked(desk, method, call, line)
    if (method in _WRITES or _TO_FILES.fullmatch(name)) and (first := call.argument(0, "path_or_buf", "path", "fname")):
        path = call.receiver.text if method in ("write_text", "write_bytes") else first.shown
        _written(desk, path, line)
        if FOUND_FILE in (call.receiver.ref, first.ref):
            desk.notes.add(ScreenCode.DATA_OVERWRITE, line, "what a search found")
    if method in ("read_text", "read_bytes", "open") and call.receiver.ref == "pathlib.Path()" and call.receiver.text:
        mode = (call.args[0].shown or "") if call.args and method == "open" else "r"
        code = (
            paths.written(call.receiver.text)
            if any(sign in mode for sign in "wax+")
            else paths.read(call.receiver.text)
        )
        if code is not None:
            desk.notes.add(code, line, call.receiver.text)


def _written(desk: Desk, path: str | None, line: int) -> None:
    if path is None or "://" in path:
        return
    if (code := paths.written(path)) is not None:
        desk.notes.add(code, line, path)
    if path in desk.state.inputs:
        desk.notes.add(ScreenCode.DATA_OVERWRITE, line, path)


def _unpacked(desk: Desk, method: str | None, call: Given, line: int) -> None:
    """Note where an archive's files go, and that its own paths may say where."""
    into = call.argument(0 if method == "extractall" else 1, "path", "extract_dir").shown
    if into is not None and (code := paths.written(into)) is not None:
        desk.notes.add(code, line, into)
    if call.argument(9, "filter").shown == "fully_trusted":
        desk.notes.add(ScreenCode.FILE_TRAVERSAL, line, "fully_trusted")


def _look_at_origins(desk: Desk, name: str, method: str | None, given: frozenset[str], line: int) -> None:
    sends = _SENDS.fullmatch(name) is not None or (method in _SEND_METHODS and not _GETS.fullmatch(name))
    if sends or _GETS.fullmatch(name):
        if given & {SECRET, SYSTEM}:
            grave = SECRET in given or sends
            desk.notes.add(
                ScreenCode.NETWORK_SEND_SECRET if grave else ScreenCode.NETWORK_SEND, line, name or method or ""
            )
        elif sends and given & {FILE, DATA}:
            desk.notes.add(ScreenCode.NETWORK_SEND_FILE, line, name or method or "")
    if _RUNS.fullmatch(name):
        if NETWORK in given:
            desk.notes.add(ScreenCode.PROCESS_UNKNOWN_TEXT, line, name)
        if DECODED in given:
            desk.notes.add(ScreenCode.HIDDEN_EXECUTION, line, name)
    if _LOADS.fullmatch(name) and given & {NETWORK, DECODED}:
        desk.notes.add(ScreenCode.UNSAFE_LOAD_FORGED, line, name)


def together(desk: Desk) -> None:
    """Note what only tells together, at the end of a cell."""
    flags, notes = desk.flags, desk.notes
    if "dup2" in flags and "socket" in flags:
        notes.add(ScreenCode.PROCESS_REVERSE_SHELL, 1, "socket, dup2")
    if "encrypts" in flags and "walks" in flags and flags & {"writes", "deletes"}:
        notes.add(ScreenCode.FILE_ENCRYPT, 1)
    if "hashes" in flags and "nonce" in flags:
        notes.add(ScreenCode.MINER_LOOP, 1, "nonce")
