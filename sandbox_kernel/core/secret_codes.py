"""The codes of secrets: why a request to the host of one, or its answer, is not passed on. Imports code only."""

from __future__ import annotations

from enum import unique

from .code import Code

_HOST = "See what the host sends: what cannot be looked through may hold the secret."


@unique
class SecretCode(Code):
    """Why an exchange with the host of a secret was refused."""

    SECRET_NEEDS_TLS = (
        "violation",
        "{host} is the host of a secret, and plain HTTP to it can be read and changed on its way",
        "Write https:// in place of http://.",
    )
    SECRET_METHOD = (
        "violation",
        "the method {method} has {host} send back what it was sent, with the secret in it",
        "Use another method.",
    )
    SECRET_ANSWER_IN_PARTS = (
        "violation",
        "{host} answered with a part of something (status {status}), in which a secret may be cut in two",
        "Ask for the whole.",
    )
    SECRET_CODING_UNKNOWN = (
        "violation",
        "{host} answered in the coding {coding}, which is not looked through for its secret",
        "Ask for another form; the host was asked for none of these.",
    )
    SECRET_CODING_BROKEN = "violation", "what {host} answered is not in the coding that it names", _HOST
    SECRET_CODING_EXPANDS = "limit", "what {host} answered grows more than {limit} times when it is unpacked", _HOST
    SECRET_ANSWER_DENSE = (
        "limit",
        "an answer with more codings in each other than the {limit} that are read, or too dense, may hold a secret",
        _HOST,
    )
    SECRET_CELL_TLS = (
        "notice",
        "the client in the cell did not take up TLS with the sandbox for {host}: {why}",
        "Let the client trust the certificates in the file that SSL_CERT_FILE names.",
    )
    SECRET_HOST_TLS = (
        "violation",
        "{host} could not show that it is the host of the secret: {why}",
        "See to its certificate, and to the certificates that this machine trusts.",
    )
    SECRET_TLS_SLOW = "limit", "TLS with {who} took longer than {limit} s", "Try again."
