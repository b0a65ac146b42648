"""Values go into requests to their hosts and nowhere else, and no answer brings one back."""

from __future__ import annotations

import base64
import gzip
import zlib
from typing import Literal
from urllib.parse import quote

import pytest

from sandbox_kernel.plugins.network.codes import SecretCode
from sandbox_kernel.plugins.network.interfaces import RequestHead, ResponseHead
from sandbox_kernel.plugins.network.policy import RefusedConnection
from sandbox_kernel.plugins.network.secret_scrubber import STEP_BYTES
from sandbox_kernel.plugins.network.secrets import Secrets, Substitution

from .hosts import HOST, KEY, Source

ODD = 'p/q+r&s<t>"u"%25;x=y'
"""A value that an address cannot hold as it is."""


def secrets_of(*sources: Source, **values: str) -> Secrets:
    return Secrets.load(sources or [Source()], environment={"GIVEN": KEY, **values})


def asked(
    path: bytes = b"/",
    *headers: tuple[bytes, bytes],
    method: str = "GET",
    host: str = HOST,
    port: int = 443,
    scheme: Literal["http", "https"] = "https",
) -> RequestHead:
    return RequestHead(method, scheme, host, port, path, headers)


def exchange(secrets: Secrets, head: RequestHead) -> Substitution:
    found = secrets.exchange(head)
    assert isinstance(found, Substitution)
    return found


def sent(secrets: Secrets, head: RequestHead) -> RequestHead:
    return exchange(secrets, head).request(head)


def answered(status: int, *headers: tuple[bytes, bytes], reason: bytes = b"OK") -> ResponseHead:
    return ResponseHead(status, reason, headers)


def standing(secrets: Secrets, name: str = "API_KEY") -> bytes:
    return secrets.environment()[name].encode()


# --- requests ------------------------------------------------------------------------------------------------------


def test_the_value_stands_in_headers_where_the_placeholder_stood() -> None:
    secrets = secrets_of()
    own = standing(secrets)
    head = sent(secrets, asked(b"/", (b"Authorization", b"Bearer " + own), (b"X-Two", own + b"," + own)))
    assert head.values(b"authorization") == [b"Bearer " + KEY.encode()]
    assert head.values(b"x-two") == [f"{KEY},{KEY}".encode()]


def test_the_value_stands_in_the_address_as_an_address_has_it() -> None:
    secrets = secrets_of(GIVEN=ODD)
    head = sent(secrets, asked(b"/v1/" + standing(secrets) + b"?key=" + standing(secrets) + b"&x=1"))
    written = quote(ODD, safe="").encode()
    assert head.path == b"/v1/" + written + b"?key=" + written + b"&x=1"


@pytest.mark.parametrize("form", [b"Basic ", b"basic  "])
def test_the_value_stands_in_the_password_of_basic(form: bytes) -> None:
    secrets = secrets_of()
    words = base64.b64encode(b"someone:" + standing(secrets))
    (value,) = sent(secrets, asked(b"/", (b"Authorization", form + words))).values(b"authorization")
    assert base64.b64decode(value.split()[1]) == b"someone:" + KEY.encode()


@pytest.mark.parametrize("value", [b"Basic", b"Basic !", b"Basic YQ=", b"Basic c29tZW9uZTpwYXNz", b"Basic a"])
def test_other_words_of_basic_stay_as_they_are(value: bytes) -> None:
    assert sent(secrets_of(), asked(b"/", (b"Authorization", value))).values(b"authorization") == [value]


def test_a_header_of_the_setting_is_added_where_it_is_missing() -> None:
    secrets = secrets_of(Source(header="Authorization: Bearer {}"))
    assert sent(secrets, asked()).values(b"authorization") == [f"Bearer {KEY}".encode()]


def test_a_header_that_the_cell_sets_itself_is_left_to_it() -> None:
    secrets = secrets_of(Source(header="Authorization: Bearer {}"))
    given = (b"authorization", b"Bearer of-its-own")
    assert sent(secrets, asked(b"/", given)).values(b"authorization") == [b"Bearer of-its-own"]


def test_a_value_with_a_header_goes_into_that_header_and_nowhere_else() -> None:
    """Otherwise a cell could have it put into an address, which stands in logs and which a host may call."""
    secrets = secrets_of(Source(header="Authorization: Bearer {}"), Source(name="OTHER", place="SECOND"), SECOND=ODD)
    own, other = standing(secrets), standing(secrets, "OTHER")
    words = base64.b64encode(b"someone:" + own)
    head = sent(secrets, asked(b"/?url=" + own, (b"X-Url", own), (b"Cookie", own + other), (b"X", b"Basic " + words)))
    assert head.path == b"/?url=" + own
    assert head.values(b"x-url") == [own]
    assert head.values(b"cookie") == [own + ODD.encode()]
    assert head.values(b"x") == [b"Basic " + words]
    assert head.values(b"authorization") == [f"Bearer {KEY}".encode()]


@pytest.mark.parametrize("form", [b"Bearer %s", b"token %s", b"%s"])
def test_a_client_writes_the_header_of_a_value_as_it_likes(form: bytes) -> None:
    secrets = secrets_of(Source(header="Authorization: Bearer {}"))
    head = sent(secrets, asked(b"/", (b"authorization", form % standing(secrets))))
    assert head.values(b"authorization") == [form % KEY.encode()]


@pytest.mark.parametrize("name", [b"Digest", b"Content-Digest", b"Repr-Digest", b"Content-MD5"])
def test_a_digest_of_what_held_a_value_is_left_out(name: bytes) -> None:
    """A cell that knows all but the value could try its guesses against it."""
    shown = exchange(secrets_of(), asked())
    shown.request(asked())
    assert shown.response(answered(200, (name, b"sha-256=x"), (b"X", b"y"))).headers == ((b"X", b"y"),)


@pytest.mark.parametrize("name", [b"Accept_Encoding", b"If_Range", b"Want-Repr-Digest", b"Request-Range"])
def test_what_a_server_takes_for_such_a_header_is_left_out(name: bytes) -> None:
    assert sent(secrets_of(), asked(b"/", (name, b"x"))).headers == ((b"Accept-Encoding", b"identity"),)


def test_what_asks_for_a_part_or_another_form_is_left_out() -> None:
    headers = [(b"Range", b"bytes=0-9"), (b"If-Range", b"x"), (b"A-IM", b"feed"), (b"Accept-Encoding", b"br, zstd")]
    head = sent(secrets_of(), asked(b"/", *headers, (b"Accept", b"*/*")))
    assert head.headers == ((b"Accept", b"*/*"), (b"Accept-Encoding", b"identity"))


@pytest.mark.parametrize("method", ["TRACE", "track", "DEBUG"])
def test_a_method_that_echoes_is_refused(method: str) -> None:
    with pytest.raises(RefusedConnection) as raised:
        sent(secrets_of(), asked(method=method))
    assert raised.value.code is SecretCode.SECRET_METHOD


@pytest.mark.parametrize("port", [80, 443, 8080])
def test_plain_http_to_the_host_of_a_secret_is_refused(port: int) -> None:
    secrets = secrets_of()
    with pytest.raises(RefusedConnection) as raised:
        sent(secrets, asked(scheme="http", port=port))
    assert raised.value.code is SecretCode.SECRET_NEEDS_TLS


@pytest.mark.parametrize(("host", "port"), [("other.example.test", 443), ("a." + HOST, 443), (HOST, 8443)])
def test_nobody_looks_at_requests_to_other_hosts(host: str, port: int) -> None:
    secrets = secrets_of()
    assert not secrets.looks_into(host, port)
    assert secrets.exchange(asked(host=host, port=port)) is None


def test_a_secret_of_another_host_stays_a_placeholder() -> None:
    secrets = secrets_of(Source(), Source(name="OTHER", place="SECOND", hosts=("b.example.test",)), SECOND="b" + KEY)
    both = standing(secrets) + b" " + standing(secrets, "OTHER")
    there = sent(secrets, asked(b"/", (b"X", both), host="b.example.test"))
    assert there.values(b"x") == [standing(secrets) + b" b" + KEY.encode()]


# --- answers -------------------------------------------------------------------------------------------------------


def through(secrets: Secrets, head: ResponseHead, body: bytes, *, method: str = "GET") -> tuple[ResponseHead, bytes]:
    """Return what the cell gets of an answer whose body comes in pieces of 100 bytes."""
    looker = exchange(secrets, asked(method=method))
    looker.request(asked(method=method))
    head = looker.response(head)
    filtered = looker.body()
    pieces = [piece for at in range(0, len(body), 100) for piece in filtered.feed(body[at : at + 100])]
    return head, b"".join(pieces) + filtered.finish()


def test_an_answer_has_the_placeholder_wherever_the_value_was() -> None:
    secrets = secrets_of()
    own, key = standing(secrets), KEY.encode()
    head = answered(401, (b"X-Echo", b"Bearer " + key), (key, b"1"), reason=b"No " + key)
    head, body = through(secrets, head, b'{"key": "' + key + b'"}')
    assert head == answered(401, (b"X-Echo", b"Bearer " + own), (own, b"1"), reason=b"No " + own)
    assert body == b'{"key": "' + own + b'"}'


def test_a_redirect_carries_nothing() -> None:
    """The client follows it with what it has: a placeholder, to a host where that is worth nothing."""
    secrets = secrets_of(GIVEN=ODD)
    place = f"https://other.example.test/?key={quote(ODD, safe='')}&again={quote(quote(ODD, safe=''))}".encode()
    head, _ = through(secrets, answered(302, (b"Location", place)), b"")
    (value,) = head.values(b"location")
    assert value.startswith(b"https://other.example.test/?key=***")
    assert quote(ODD, safe="").encode() not in value
    assert secrets.exchange(asked(host="other.example.test")) is None


def test_values_of_all_hosts_are_taken_out_of_each_answer() -> None:
    other = Source(name="OTHER", place="SECOND", hosts=("b.example.test",))
    secrets = secrets_of(Source(), other, SECOND="xoxb-903271-abcDEF")
    _, body = through(secrets, answered(200), b"xoxb-903271-abcDEF")
    assert body == standing(secrets, "OTHER")


def packed(data: bytes, coding: str) -> bytes:
    if coding == "deflate without zlib":
        packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        return packer.compress(data) + packer.flush()
    if coding == "two files of gzip":
        return gzip.compress(data[:50]) + gzip.compress(data[50:])
    return gzip.compress(data) if coding.endswith("gzip") else zlib.compress(data)


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "two files of gzip", "deflate", "deflate without zlib"])
def test_a_packed_answer_is_unpacked_and_looked_through(coding: str) -> None:
    """Hosts do pack although they are asked not to."""
    secrets = secrets_of()
    text = b"-" * 40 + KEY.encode() + b"." * 5000
    named = {"two files of gzip": b"gzip", "deflate without zlib": b"deflate"}.get(coding, coding.encode())
    head = answered(200, (b"Content-Encoding", named), (b"Content-MD5", b"x"), (b"ETag", b'"1"'))
    head, body = through(secrets, head, packed(text, coding))
    assert body == text.replace(KEY.encode(), standing(secrets))
    assert head.headers == ((b"ETag", b'"1"'),)


@pytest.mark.parametrize("more", [0, 1, 2, 100, 258, 300])
@pytest.mark.parametrize("coding", ["gzip", "deflate", "deflate without zlib"])
def test_a_packed_answer_is_whole_also_where_its_end_brings_more_than_one_step(coding: str, more: int) -> None:
    looker = exchange(secrets_of(), asked())
    looker.request(asked())
    looker.response(answered(200, (b"Content-Encoding", coding.split(maxsplit=1)[0].encode())))
    body, text = looker.body(), b"." * (STEP_BYTES + more)
    assert b"".join([*body.feed(packed(text, coding)), body.finish()]) == text


def test_control_a_packed_value_is_not_seen_without_unpacking() -> None:
    secrets = secrets_of()
    data = gzip.compress(b"<" + KEY.encode() + b"> and other words" * 20)
    _, body = through(secrets, answered(200), data)
    assert KEY.encode() in gzip.decompress(body)


@pytest.mark.parametrize("coding", [b"br", b"zstd", b"compress", b"gzip, gzip", b"gzip, br", b"aws-chunked", b"\xff"])
def test_a_coding_that_cannot_be_looked_through_is_refused(coding: bytes) -> None:
    with pytest.raises(RefusedConnection) as raised:
        through(secrets_of(), answered(200, (b"Content-Encoding", coding)), b"")
    assert raised.value.code is SecretCode.SECRET_CODING_UNKNOWN


def test_codings_in_several_headers_count_together() -> None:
    gzipped = (b"Content-Encoding", b"gzip")
    with pytest.raises(RefusedConnection) as raised:
        through(secrets_of(), answered(200, gzipped, gzipped), b"")
    assert raised.value.code is SecretCode.SECRET_CODING_UNKNOWN
    through(secrets_of(), answered(200, (b"Content-Encoding", b"identity")), b"")


@pytest.mark.parametrize(
    "body", [b"no gzip at all", gzip.compress(b"x" * 999)[:-9], b"\x1f"], ids=["none of it", "cut", "one byte"]
)
def test_a_body_that_is_not_in_its_coding_is_refused(body: bytes) -> None:
    with pytest.raises(RefusedConnection) as raised:
        through(secrets_of(), answered(200, (b"Content-Encoding", b"gzip")), body)
    assert raised.value.code is SecretCode.SECRET_CODING_BROKEN


@pytest.mark.parametrize("status", [206, 226])
def test_an_answer_in_parts_is_refused(status: int) -> None:
    """A value that is cut over two of them would pass."""
    with pytest.raises(RefusedConnection) as raised:
        through(secrets_of(), answered(status), b"")
    assert raised.value.code is SecretCode.SECRET_ANSWER_IN_PARTS


def test_control_two_parts_hold_a_value_that_neither_shows() -> None:
    secrets, key = secrets_of(), KEY.encode()
    parts = [through(secrets, answered(200), part)[1] for part in (b"." * 500 + key[:14], key[14:] + b"." * 500)]
    assert key in b"".join(parts)


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 304), ("GET", 204)])
def test_an_answer_without_a_body_keeps_what_it_says_of_one(method: str, status: int) -> None:
    head, body = through(secrets_of(), answered(status, (b"Content-Encoding", b"br")), b"", method=method)
    assert (head.values(b"content-encoding"), body) == ([b"br"], b"")
