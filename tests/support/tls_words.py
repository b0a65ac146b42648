"""First words of TLS, put together by hand: proper ones, and such as no library would say."""

from __future__ import annotations

import struct


def record(payload: bytes, kind: int = 22) -> bytes:
    return struct.pack("!BHH", kind, 0x0301, len(payload)) + payload


def extension(kind: int, content: bytes) -> bytes:
    return struct.pack("!HH", kind, len(content)) + content


def server_name(name: str) -> bytes:
    raw = name.encode()
    return extension(0, struct.pack("!HBH", len(raw) + 3, 0, len(raw)) + raw)


def hello_of(*extensions: bytes, tail: bytes = b"", session: bytes = b"") -> bytes:
    """Return the message with its header, and without a record."""
    all_of_them = b"".join(extensions)
    body = b"\x03\x03" + bytes(32) + bytes([len(session)]) + session + b"\0\x02\xc0\x2b" + b"\x01\0"
    body += struct.pack("!H", len(all_of_them)) + all_of_them + tail
    return b"\x01" + len(body).to_bytes(3, "big") + body


def client_hello(*extensions: bytes, tail: bytes = b"", session: bytes = b"") -> bytes:
    return record(hello_of(*extensions, tail=tail, session=session))
