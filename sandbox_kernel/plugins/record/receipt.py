"""A receipt: a statement about a run that its key has signed, in forms that other tools read.

The statement is an in-toto Statement (v1), of which the outputs are the subjects; the signature is a DSSE envelope with
Ed25519. What is read here may have been written by anybody.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.errors import ConfigurationError
from ...core.remedies import install_words
from .codes import RecordCode
from .keys import RecordKey, signed_by

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:sandbox-kernel:run-receipt:1"
MAX_BYTES = 32 << 20
"""Of a receipt that is read."""
MAX_SIGNATURES = 16


def encoded(kind: str, payload: bytes) -> bytes:
    """Return what a signature is made over: DSSE's pre-authentication encoding."""
    name = kind.encode()
    return b"DSSEv1 %d %b %d %b" % (len(name), name, len(payload), payload)


def require_signer(key: RecordKey) -> str:
    """Return the public half of a key. Raises `ConfigurationError` where nothing can be signed."""
    if key.public is None:
        words = f"a receipt is signed by cryptography, which is not installed: {install_words('secrets')}"
        raise ConfigurationError(RecordCode.RECEIPT_UNSIGNED, words, setting="--receipt")
    return key.public


def make(subjects: Sequence[tuple[str, str]], predicate: Mapping[str, Any], key: RecordKey) -> str:
    """Return an envelope as JSON: `subjects` are names and SHA-256 in hexadecimal. Raises `ConfigurationError`."""
    public = require_signer(key)
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": sha256}} for name, sha256 in subjects],
        "predicateType": PREDICATE_TYPE,
        "predicate": dict(predicate),
    }
    payload = json.dumps(statement, allow_nan=False, separators=(",", ":"), sort_keys=True).encode("ascii")
    signature = key.sign(encoded(PAYLOAD_TYPE, payload)) or b""
    envelope = {
        "payloadType": PAYLOAD_TYPE,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": public, "sig": base64.b64encode(signature).decode()}],
    }
    return json.dumps(envelope, indent=2) + "\n"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a receipt says. Nothing of it counts unless it `is_signed_by` somebody who is believed."""

    payload: bytes
    signatures: tuple[bytes, ...]
    subjects: tuple[tuple[str, str], ...]
    predicate: Mapping[str, Any]

    def is_signed_by(self, public: str) -> bool:
        return any(signed_by(public, encoded(PAYLOAD_TYPE, self.payload), one) for one in self.signatures)

    @property
    def head(self) -> str | None:
        """The line of the audit with which the run ended."""
        audit = self.predicate.get("audit")
        head = audit.get("head") if isinstance(audit, dict) else None
        return head if isinstance(head, str) else None


def read(data: bytes) -> Receipt:
    """Return what an envelope holds. Raises ValueError for what is no receipt of a run."""
    if len(data) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES} bytes")
    try:
        envelope = json.loads(data)
        if envelope["payloadType"] != PAYLOAD_TYPE:
            raise ValueError("its payload is no statement of in-toto")
        payload = base64.b64decode(envelope["payload"], validate=True)
        signatures = tuple(
            base64.b64decode(one["sig"], validate=True) for one in envelope["signatures"][:MAX_SIGNATURES]
        )
        statement = json.loads(payload)
        if statement["_type"] != STATEMENT_TYPE or statement["predicateType"] != PREDICATE_TYPE:
            raise ValueError("it states something else than a run")
        subjects = tuple((str(one["name"]), str(one["digest"]["sha256"])) for one in statement["subject"])
        predicate = statement["predicate"]
    except (KeyError, TypeError, IndexError, binascii.Error, RecursionError, UnicodeError) as error:
        raise ValueError(f"it has not the form of one: {type(error).__name__}") from None
    if not isinstance(predicate, dict):
        raise ValueError("it says nothing of a run")  # noqa: TRY004 (of a file, not of a program)
    return Receipt(payload, signatures, subjects, predicate)
