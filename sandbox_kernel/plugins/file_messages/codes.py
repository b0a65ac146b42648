"""Why a file message was refused."""

from __future__ import annotations

from enum import unique

from ...core.codes import Code

_AGAIN = "Run it again: the next cell gets a new sandbox."
_ASKED = "Nothing: somebody asked for it."
_FEWER = "Write fewer or smaller files, or raise the setting."
_FILES = "Send what docs/jupyter-server.md says."
_SEND_LESS = "Send less at once, and read the replies. message_limit bounds a request."


@unique
class FileMessageCode(Code):
    """Why a request of a front end about files was refused (docs/jupyter-server.md)."""

    FILE_REQUEST_IMPROPER = "violation", "a field of a file message is not proper", _FILES
    FILE_VERSION_UNKNOWN = "violation", "this version of the file messages is unknown", _FILES
    FILE_REQUESTS_WAIT = "limit", "too many file requests are waiting", _SEND_LESS
    REPLIES_NOT_READ = "limit", "the replies are not read", _SEND_LESS
    CHUNK_TOO_LARGE = "limit", "the chunk is too large", _SEND_LESS
    CHUNK_MISPLACED = "violation", "the chunk does not follow the one before it", _FILES
    FILE_LENGTH_WRONG = "violation", "the file does not have its announced length", _FILES
    MANY_WRITES = "limit", "too many files are being written", _FEWER
    NO_WRITE = (
        "notice",
        "no such upload is under way: it ended, failed, or was silent for too long",
        "Begin the write again.",
    )
    WRITE_CUT_SHORT = "failure", "the sandbox ended while the file was written", _AGAIN
    SHUTTING_DOWN = "notice", "the kernel is being shut down", _ASKED
