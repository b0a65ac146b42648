"""Signatures are those of Jupyter, a message passes once, and what is remembered of it is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jupyter_client.session import Session

from sandbox_kernel.core.codes import MessageCode
from sandbox_kernel.core.errors import ConfigurationError, ProtocolError
from sandbox_kernel.kernel import front_sockets
from sandbox_kernel.kernel.front_sockets import DELIMITER, Signatures

KEY = b"secret"
BODY = [b"{}", b"{}", b"{}", b'{"code": "1 + 1"}']


def message(*buffers: bytes, key: bytes = KEY, body: list[bytes] = BODY) -> list[bytes]:
    """Return a request as jupyter_client signs it."""
    return [b"me", DELIMITER, Session(key=key).sign(body), *body, *buffers]


@given(st.lists(st.binary(max_size=50), min_size=4, max_size=4), st.sampled_from(["hmac-sha256", "hmac-md5"]))
def test_signatures_are_those_of_jupyter(body: list[bytes], scheme: str) -> None:
    assert Signatures(KEY, scheme).sign(body) == Session(key=KEY, signature_scheme=scheme).sign(body)


def test_a_signed_request_passes_with_its_buffers() -> None:
    assert Signatures(KEY).verified(message(b"one", b"two")) == (b"me", [*BODY, b"one", b"two"])


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        (message(key=b"another key"), MessageCode.WRONG_SIGNATURE),
        ([b"me", DELIMITER, b"", *BODY], MessageCode.WRONG_SIGNATURE),
        ([b"me", DELIMITER, "é".encode(), *BODY], MessageCode.WRONG_SIGNATURE),
        ([*message()[:-1], b'{"code": "2 + 2"}'], MessageCode.WRONG_SIGNATURE),
        (message()[:-1], MessageCode.NOT_A_REQUEST),
        ([b"me", DELIMITER], MessageCode.NOT_A_REQUEST),
        ([b"me"], MessageCode.NOT_A_REQUEST),
        ([], MessageCode.NOT_A_REQUEST),
        (message()[1:], MessageCode.NOT_A_REQUEST),
        ([b"another", *message()], MessageCode.NOT_A_REQUEST),
    ],
)
def test_what_is_not_signed_with_the_key_is_refused(parts: list[bytes], code: MessageCode) -> None:
    with pytest.raises(ProtocolError) as caught:
        Signatures(KEY).verified(parts)
    assert caught.value.code is code


def test_a_message_that_came_before_is_refused() -> None:
    one = Signatures(KEY)
    one.verified(message())
    with pytest.raises(ProtocolError) as caught:
        one.verified(message(b"with a buffer that it had not"))
    assert caught.value.code is MessageCode.SENT_TWICE


def test_what_is_remembered_is_bounded_and_only_of_those_who_have_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_sockets, "REMEMBERED", 3)
    one, bodies = Signatures(KEY), [[b"{}", b"{}", b"{}", b"%d" % number] for number in range(4)]
    for body in bodies[:3]:
        one.verified(message(body=body))
    for number in range(10):
        with pytest.raises(ProtocolError):
            one.verified([b"me", DELIMITER, b"%064d" % number, *BODY])
    with pytest.raises(ProtocolError) as caught:  # strangers did not push it out
        one.verified(message(body=bodies[0]))
    assert caught.value.code is MessageCode.SENT_TWICE
    one.verified(message(body=bodies[3]))
    assert one.verified(message(body=bodies[0]))[1] == bodies[0]  # the oldest is forgotten


def test_without_a_key_everybody_may_send() -> None:
    one = Signatures(b"")
    assert one.sign(BODY) == b""
    for _ in range(2):
        assert one.verified([b"me", DELIMITER, b"", *BODY]) == (b"me", BODY)


@pytest.mark.parametrize("scheme", ["", "sha256", "hmac-", "hmac-rot13", "hmac-shake_128", "cmac-sha256"])
def test_a_scheme_that_is_none_is_an_error(scheme: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Signatures(KEY, scheme)
    assert caught.value.setting == "signature_scheme"
