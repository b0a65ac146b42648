"""The codes of messages out of a sandbox that do not pass: forged, broken, or too late. Imports code only."""

from __future__ import annotations

from enum import unique

from .code import Code

_FORGED = "Look at what the code does: a real kernel sends no such thing."
_NOTHING = "Nothing: real kernels do this too."


@unique
class MessageCode(Code):
    """Why a message was not passed on."""

    # --- whose it is, and when it comes ---
    UNKNOWN_PARENT = "violation", "unknown parent", _FORGED
    NOT_SENT_YET = "notice", "its request was not sent yet", _NOTHING
    OUT_OF_TURN = "notice", "out of turn", _NOTHING
    STATUS_OUT_OF_TURN = "notice", "out of turn", "Nothing: a kernel tells its state when it likes."
    CELL_HAS_ENDED = "notice", "its cell has ended", "Join threads before the cell ends."
    OTHER_REPLY = "violation", "not the reply to its request", _FORGED
    SECOND_REPLY = "violation", "a second reply", _FORGED
    INPUT_NOT_ALLOWED = "violation", "input was not allowed", "Ask for input() where the front end can ask a person."
    NOBODYS_OVERSIZED = "violation", "a message that belongs to no request and is too large", _FORGED
    NO_KERNEL_READY = "violation", "no kernel is ready", _FORGED
    AGENT_UNASKED = "violation", "an answer of the agent that nobody asked for", _FORGED

    # --- its form ---
    IMPROPER = "violation", "a message is not allowed", "Send what the protocol says."
    NOT_A_CHANNEL = "violation", "frame kind {kind} is not a channel", _FORGED
    FEW_PARTS = "violation", "a message has {count} parts, at least 4 are needed", _FORGED
    HEADER_TOO_LARGE = "violation", "a header or the metadata of a message is larger than {most} bytes", _FORGED
    NOT_JSON = "violation", "not JSON: {why}", _FORGED
    NO_OBJECT = "violation", "a part of the message is not a JSON object", _FORGED
    KEY_IMPROPER = "violation", "a key is as long as a text, or is given twice", _FORGED
    NO_ID = "violation", "{field} must be a string of 1 to {most} characters", _FORGED
    FIELD_IMPROPER = "violation", "{type} has no proper {field!r}", _FORGED
    WELCOME = "notice", "iopub_welcome may not be published", _NOTHING
    NOT_PUBLISHED = "violation", "{type} may not be published", _FORGED
    NOT_ON_STDIN = "violation", "{type} may not be sent on stdin", _FORGED
    NOT_A_REPLY = "violation", "{type} is not a reply and may not be sent on {channel}", _FORGED
    NOT_TAKEN_IN = "violation", "not taken in: {why}", "Send less at once."
    REPLY_REFUSED = "violation", "the reply was refused by the output policy", _FORGED

    # --- requests of front ends ---
    NOT_A_REQUEST = "violation", "not a request: {why}", "Send what the protocol says."
    WRONG_CHANNEL = "violation", "{type} is not taken on {channel}", "Send it on another channel, as the protocol says."
    WRONG_SIGNATURE = "violation", "not signed with the key of the connection file", "Use the kernel's connection file."
    FILE_REQUEST_IMPROPER = (
        "violation",
        "a field of a file message is not proper",
        "Send what docs/jupyter-server.md says.",
    )
    FILE_VERSION_UNKNOWN = "violation", "this version of the file messages is not known", "Ask kernel_info for it."
    FILE_REQUESTS_WAIT = "limit", "too many file requests are waiting", "Wait for replies."
    REPLIES_NOT_READ = "limit", "the replies are not read", "Read the replies."
    CHUNK_TOO_LARGE = "limit", "the chunk is too large", "Send smaller chunks."
    CHUNK_MISPLACED = "violation", "the chunk does not follow the one before it", "Begin the write again."
    FILE_LENGTH_WRONG = "violation", "the file is not as long as it was said to be", "Begin the write again."
    SENT_TWICE = "violation", "the message came before", "Send it under an id of its own."
    REQUEST_TOO_LARGE = "limit", "the request is too large", "Send less at once, or raise message_limit."
    REQUEST_NOT_SENT = "violation", "the request cannot be sent: {why}", "Send what the protocol says."
