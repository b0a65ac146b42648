"""The codes of the record: what is wrong with an audit, a receipt or their key. Imports code only."""

from __future__ import annotations

from enum import unique

from ...core.codes import Code

_COMPARE = "Compare with a copy stored elsewhere, and check who can write to the file."
_KEY = "Give the right key."
_NOTHING = "Nothing, if a process was killed there."
_FILE = "Name a file of your own with mode 600, or one that does not exist yet: it is created."
_AGAIN = "Look at its report, change the code, and run it again."


@unique
class RecordCode(Code):
    """What is wrong with an audit or a receipt, and what a verified one tells besides (docs/record.md)."""

    # --- an audit that is not as it was written ---
    LINE_CHANGED = "violation", "a line is not as it was written", _COMPARE
    LINE_FOREIGN = "violation", "a line was not written by the record", _COMPARE
    LINES_MISSING = "violation", "lines are missing", _COMPARE
    LINE_REPEATED = "violation", "a line is there twice", _COMPARE
    LINE_MOVED = "violation", "a line is in another place than it was written in", _COMPARE
    BEGINNING_CUT = "violation", "the beginning of the file is missing", _COMPARE
    EARLIER_MISSING = (
        "violation",
        "the lines before are in no file that was given",
        "Give the older files too, or their last line by --head.",
    )
    END_CUT = "violation", "lines at the end are missing", _COMPARE
    HEAD_DIFFERS = "violation", "the line that is known from elsewhere differs", _COMPARE
    ANCHOR_WRONG = "violation", "the signature of an anchor is not that of the key", _COMPARE
    NOT_SIGNED = "violation", "no anchor has a good signature, so nothing is proven", _KEY
    KEY_NOT_GIVEN = "violation", "lines were sealed with another key", _KEY
    AUDIT_ALTERED = "violation", "the file had been altered before a session continued it", _COMPARE
    AUDIT_UNREADABLE = "failure", "the audit cannot be read", "Name the file that the setting `audit` names."

    # --- accidents of an audit ---
    LINE_TORN = "notice", "a line was cut off while it was written, and the next one says so", _NOTHING
    END_TORN = "notice", "the last line is incomplete: cut off while it was written, or added", _NOTHING
    LINES_LOST = "notice", "lines could not be written, and their number is given", "Check the host's disk."
    NOT_ENDED = "notice", "a session has no end: it runs, or was killed", _NOTHING
    EARLIER_ELSEWHERE = "notice", "the lines before are elsewhere, up to a known one", "Nothing."
    SET_ASIDE = "notice", "the file's content had no seal, and was set aside", _COMPARE

    # --- keys ---
    KEY_UNFIT = "failure", "the key of the audit cannot be used", _FILE
    KEY_READABLE = "failure", "others than its owner can read or write it", _FILE
    KEY_OF_OTHERS = "failure", "it belongs to another user", _FILE
    KEY_MALFORMED = "failure", "it holds no key of an audit", _FILE

    # --- receipts ---
    RECEIPT_UNSIGNED = "failure", "a receipt cannot be signed", "Install the extra that is named."
    RECEIPT_MALFORMED = "violation", "it is not a receipt of a run", "Name the file that `run --receipt` wrote."
    SIGNATURE_WRONG = "violation", "the signature is not that of the key", _KEY
    RUN_NOT_FINE = "violation", "the run did not end well", _AGAIN
    RUN_TOO_RISKY = "violation", "the run has a higher score than the policy takes", _AGAIN
    RUN_TOO_OLD = "violation", "the run is older than the policy takes", _AGAIN
    RUN_NOT_SCREENED = "violation", "the code of the run was not screened", "Run it with `--screen warn` or `block`."
    RUN_OVERRIDDEN = "violation", "a comment allowed a finding, and the policy does not take it", _AGAIN
    RUN_OF_OTHER_CODE = "violation", "the code that was run is not that of the commit", _AGAIN
    OUTPUT_DIFFERS = "violation", "a file is not the one that the receipt names", "Compare with the run's own files."
