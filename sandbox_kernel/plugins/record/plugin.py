"""What this plugin adds: audits of sessions, signed receipts of runs, the commands `audit`, `receipt` and `gate`."""

from __future__ import annotations

import argparse

from ...core.model import Settings
from ..api import Command, Plugin, SessionHandle, SessionService, Sign
from .codes import RecordCode
from .settings import RecordSettings


def _audit_options(parser: argparse.ArgumentParser) -> None:
    from . import command

    command.add_audit_options(parser)


def _receipt_options(parser: argparse.ArgumentParser) -> None:
    from . import command

    command.add_receipt_options(parser)


def audit(options: argparse.Namespace) -> int:
    """Verify an audit, show it or what was read of datasets, or print the public key of this account's audit.

    Verifying finds lines that were changed, removed, repeated, moved or cut off, and says what is proven.
    """
    from . import command

    return command.audit(options)


def receipt(options: argparse.Namespace) -> int:
    """Verify a receipt of a run: its signature, and the files and the audit that it names.

    Any program that reads in-toto statements in DSSE envelopes can verify the signature as well.
    """
    from . import command

    return command.receipt(options)


def _gate_options(parser: argparse.ArgumentParser) -> None:
    from .gate import add_options

    add_options(parser)


def gate(options: argparse.Namespace) -> int:
    """Decide by a policy whether a run may be deployed: its signed receipt, age, score, overrides and commit.

    What the policy does not mention is refused.
    """
    from .gate import gate as decide

    return decide(options)


def service(settings: Settings, session: SessionHandle) -> SessionService:
    """Return the record of one session."""
    from .audit import Record

    return Record(settings, session)


def sign(settings: Settings) -> Sign:
    """Return what signs a receipt with the key of the audit. Raises `ConfigurationError` if that key cannot."""
    from . import receipt
    from .keys import open_key

    key = open_key(settings.of(RecordSettings).audit_key)
    receipt.require_signer(key)
    return lambda subjects, predicate: receipt.make(list(subjects), dict(predicate), key)


GATE_EXIT_CODES = {
    "0": "the run passes the gate",
    "1": "the policy refuses the run",
    "2": "a wrong argument or policy",
    "3": "it is no receipt, or nobody whom the policy believes has signed it",
}
PLUGIN = Plugin(
    name="record",
    page="docs/record.md",
    codes={"Record": RecordCode},
    service=service,
    sign=sign,
    commands=(
        Command(
            name="receipt",
            run=receipt,
            add_options=_receipt_options,
            settings=False,
            group="Records",
            examples={
                "sandbox-kernel receipt verify receipt.json --output results": "check the files of the run",
                "sandbox-kernel receipt verify receipt.json --audit-file audit.jsonl": (
                    "check that the audit contains the run"
                ),
            },
        ),
        Command(
            name="gate",
            run=gate,
            add_options=_gate_options,
            settings=False,
            exit_codes=GATE_EXIT_CODES,
            group="Records",
            examples={
                "sandbox-kernel gate --receipt receipt.json --policy gate.toml --commit HEAD": "before a deployment",
            },
        ),
        Command(
            name="audit",
            run=audit,
            add_options=_audit_options,
            settings=False,
            group="Records",
            examples={
                "sandbox-kernel audit verify audit.jsonl": "find changes, and say what is proven",
                "sandbox-kernel audit show audit.jsonl --event cell --last 20": "the last 20 cells, in a readable form",
                "sandbox-kernel audit reads audit.jsonl": "which cell opened which file of a dataset",
                "sandbox-kernel audit public-key": "the key for people who verify but must not write",
            },
        ),
    ),
)
