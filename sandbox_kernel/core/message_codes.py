"""The codes of messages out of a sandbox that do not pass: forged, broken, or too late. Imports code only."""

from __future__ import annotations

from enum import unique

from .code import Code

_FORGED = "No real kernel sends this: look at what the code does."
_NOTHING = "Nothing: real kernels do this too."
_PROTOCOL = "Send what the protocol says."
_LESS = "Send less at once, and read the replies. message_limit bounds a request."
_FILES = "Send what docs/jupyter-server.md says."


@unique
class MessageCode(Code):
    """Why a message was not passed on."""

    # --- whose it is, and when it comes ---
    UNKNOWN_PARENT = "violation", "unknown parent", _FORGED
    NOT_SENT_YET = "notice", "its request was not sent yet", _NOTHING
    OUT_OF_TURN = "notice", "out of turn", _NOTHING
    STATUS_OUT_OF_TURN = "notice", "a status out of turn", _NOTHING
    CELL_HAS_ENDED = "notice", "its cell has ended", "Join threads before the cell ends."
    OTHER_REPLY = "violation", "not the reply to its request", _FORGED
    SECOND_REPLY = "violation", "a second reply", _FORGED
    INPUT_NOT_ALLOWED = "violation", "input was not allowed", "Ask for input() where the front end can ask a person."
    NOBODYS_OVERSIZED = "violation", "a message that is too large and belongs to no request", _FORGED
    NO_KERNEL_READY = "violation", "no kernel is ready", _FORGED
    AGENT_UNASKED = "violation", "an answer of the agent without a question", _FORGED

    # --- its form ---
    IMPROPER = "violation", "a message is not allowed", _PROTOCOL
    NOT_A_CHANNEL = "violation", "frame kind {kind} is not a channel", _FORGED
    FEW_PARTS = "violation", "a message has {count} parts, at least 4 are needed", _FORGED
    HEADER_TOO_LARGE = "violation", "a header or metadata larger than {most} bytes", _FORGED
    NOT_JSON = "violation", "not JSON: {why}", _FORGED
    NO_OBJECT = "violation", "a part of the message is not a JSON object", _FORGED
    KEY_IMPROPER = "violation", "a key is too long, or given twice", _FORGED
    NO_ID = "violation", "{field} must be a string of 1 to {most} characters", _FORGED
    FIELD_IMPROPER = "violation", "{type} has no proper {field!r}", _FORGED
    WELCOME = "notice", "iopub_welcome may not be published", _NOTHING
    NOT_PUBLISHED = "violation", "{type} may not be published", _FORGED
    NOT_ON_STDIN = "violation", "{type} may not be sent on stdin", _FORGED
    NOT_A_REPLY = "violation", "{type} is not a reply and may not be sent on {channel}", _FORGED
    NOT_TAKEN_IN = "violation", "not taken in: {why}", _LESS
    REPLY_REFUSED = "violation", "the reply was refused by the output policy", _FORGED

    # --- requests of front ends ---
    NOT_A_REQUEST = "violation", "not a request: {why}", _PROTOCOL
    WRONG_CHANNEL = "violation", "{type} is not taken on {channel}", _PROTOCOL
    WRONG_SIGNATURE = "violation", "the signature is wrong", "Use the key of the kernel's connection file."
    FILE_REQUEST_IMPROPER = "violation", "a field of a file message is not proper", _FILES
    FILE_VERSION_UNKNOWN = "violation", "this version of the file messages is unknown", _FILES
    FILE_REQUESTS_WAIT = "limit", "too many file requests are waiting", _LESS
    REPLIES_NOT_READ = "limit", "the replies are not read", _LESS
    CHUNK_TOO_LARGE = "limit", "the chunk is too large", _LESS
    CHUNK_MISPLACED = "violation", "the chunk does not follow the one before it", _FILES
    FILE_LENGTH_WRONG = "violation", "the file does not have its announced length", _FILES
    SENT_TWICE = "violation", "the message came before", _PROTOCOL
    REQUEST_TOO_LARGE = "limit", "the request is too large", _LESS
    REQUEST_NOT_SENT = "violation", "the request cannot be sent: {why}", _PROTOCOL
