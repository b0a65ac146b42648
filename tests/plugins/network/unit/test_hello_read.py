"""The first word of TLS, as OpenSSL's server reads the same bytes: it reads no other name than the one that we do."""

from __future__ import annotations

import contextlib
import ssl
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.plugins.network.client_hello import HelloReader
from sandbox_kernel.plugins.network.policy import RefusedConnection
from tests.support.examples import examples
from tests.support.tls_words import extension, record

pytestmark = [
    pytest.mark.slow,
    # Python cannot hand over a name that is not ASCII, and says so where nobody can catch it; no host has such a name.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NAMES = [
    b"api.example.test",
    b"evil.test",
    b"API.example.test",
    b"api.example.test\0.evil.test",
    b"api.example.test.",
    b"",
]
NOTHING = object()
SERVER = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def by_openssl(hello: bytes) -> object:
    """Return the name that a server of OpenSSL's reads: None if there is none, NOTHING if it gets no further."""
    read: list[object] = []
    SERVER.sni_callback = lambda connection, name, _: read.append(name)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    incoming.write(hello)
    with contextlib.suppress(ssl.SSLError):
        SERVER.wrap_bio(incoming, outgoing, server_side=True).do_handshake()
    return read[0] if read else NOTHING


def by_us(hello: bytes) -> object:
    """Return the same of ours; NOTHING if it is refused, or not complete."""
    try:
        found = HelloReader().feed(hello)
    except RefusedConnection:
        return NOTHING
    return NOTHING if found is None or found.hides else found.server_name


def parts(server_name: str) -> tuple[bytes, list[bytes]]:
    """Return what OpenSSL's client says before its extensions, and these."""
    context = ssl.create_default_context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=server_name).do_handshake()
    body = outgoing.read()[9:]
    at = 2 + 32
    at += 1 + body[at]
    at += 2 + int.from_bytes(body[at : at + 2], "big")
    at += 1 + body[at]
    head, rest, found = body[:at], body[at + 2 :], []
    while rest:
        size = 4 + int.from_bytes(rest[2:4], "big")
        found.append(rest[:size])
        rest = rest[size:]
    return head, found


HEAD, EXTENSIONS = parts("api.example.test")


def one(name: bytes, kind: int = 0) -> bytes:
    return bytes([kind]) + struct.pack("!H", len(name)) + name


def of_names(names: list[bytes], tail: bytes, off: int) -> bytes:
    listed = b"".join(names)
    return extension(0, struct.pack("!H", max(0, len(listed) + off)) + listed + tail)


SERVER_NAMES = st.builds(
    of_names,
    st.lists(st.builds(one, st.sampled_from(NAMES), st.sampled_from([0, 0, 0, 1])), max_size=3),
    st.sampled_from([b"", b"", b"\0"]),
    st.sampled_from([0, 0, 0, 1, -1]),
)


@st.composite
def hellos(draw: st.DrawFn) -> bytes:
    """A client's hello with other server names, in another order, in other pieces, and with other bytes in it."""
    extensions = draw(st.permutations(EXTENSIONS)) if draw(st.booleans()) else list(EXTENSIONS)
    if draw(st.booleans()):
        extensions = [each for each in extensions if each[:2] != b"\0\0"]
    for each in draw(st.lists(SERVER_NAMES, max_size=2)):
        extensions.insert(draw(st.integers(0, len(extensions))), each)
    listed = b"".join(extensions)
    body = bytearray(HEAD + struct.pack("!H", len(listed)) + listed + draw(st.sampled_from([b"", b"", b"", b"\0"])))
    for at, byte in draw(st.lists(st.tuples(st.integers(0, len(body) - 1), st.integers(0, 127)), max_size=3)):
        body[at] = byte
    message = b"\1" + len(body).to_bytes(3, "big") + body
    size = draw(st.sampled_from([len(message), len(message), 1000, 100, 20]))
    return b"".join(record(message[at : at + size]) for at in range(0, len(message), size))


def test_control_openssl_tells_the_name_that_it_reads() -> None:
    message = HEAD + struct.pack("!H", sum(map(len, EXTENSIONS))) + b"".join(EXTENSIONS)
    hello = record(b"\1" + len(message).to_bytes(3, "big") + message)
    assert by_openssl(hello) == by_us(hello) == "api.example.test"
    evil = hello.replace(b"api.example.test", b"evil.example.com")
    assert by_openssl(evil) == by_us(evil) == "evil.example.com"


@examples(400)
@given(hellos())
def test_a_server_reads_no_other_name_than_we_do(hello: bytes) -> None:
    """What one of both refuses leads nowhere."""
    ours, theirs = by_us(hello), by_openssl(hello)
    assert ours is NOTHING or theirs is NOTHING or ours == theirs
