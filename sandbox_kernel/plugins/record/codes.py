"""The codes of the record: what is wrong with an audit, a receipt or their key. Imports code only."""

from __future__ import annotations

from enum import unique

from ...core.code import Code

_COMPARE = "Compare with a copy that was kept elsewhere, and ask who can write to the file."
_KEY = "See docs/record.md on the key."
_EARLIER = "Give the older files as well, or their last line, if you have it from elsewhere, by --head."
_NOTHING = "Nothing, if a process was killed there."


@unique
class RecordCode(Code):
    """What is wrong with an audit or a receipt, and what a verified one tells besides (docs/record.md)."""

    # --- an audit that is not as it was written ---
    LINE_CHANGED = "violation", "a line is not as it was written", _COMPARE
    LINE_FOREIGN = "violation", "a line was not written by the record", _COMPARE
    LINES_MISSING = "violation", "lines are missing", _COMPARE
    LINE_REPEATED = "violation", "a line stands there again", _COMPARE
    LINE_MOVED = "violation", "a line stands in another place than it was written in", _COMPARE
    BEGINNING_CUT = "violation", "the beginning of the file is missing", _COMPARE
    EARLIER_MISSING = "violation", "the lines before are in no file that was given", _EARLIER
    END_CUT = "violation", "lines at the end are missing", _COMPARE
    HEAD_DIFFERS = "violation", "the line that is known from elsewhere is another one here", _COMPARE
    ANCHOR_WRONG = "violation", "the signature of an anchor is not that of the key", _COMPARE
    NOT_SIGNED = "violation", "no anchor has a good signature, so that nothing is proven", "Give the key itself."
    KEY_NOT_GIVEN = "violation", "lines were sealed with another key", "Give the key whose id the file names."
    AUDIT_ALTERED = "violation", "the file had been altered when a session went on with it", _COMPARE
    AUDIT_UNREADABLE = "failure", "the audit cannot be read", "Name the file that the setting `audit` names."

    # --- what happens to an audit without anybody's fault, and is said ---
    LINE_TORN = "notice", "a line was broken off while it was written, and the next one says so", _NOTHING
    END_TORN = "notice", "the last line is incomplete: broken off while it was written, or added", _NOTHING
    LINES_LOST = "notice", "lines could not be written, and their number is said", "See to the host's disk."
    NOT_ENDED = "notice", "a session began and has no end: it runs, or was killed", _NOTHING
    EARLIER_ELSEWHERE = "notice", "the lines before are elsewhere, up to one that is known", "Nothing."
    SET_ASIDE = "notice", "what was in the file had no seal, and was set aside", "Look at the file that is named."

    # --- keys ---
    KEY_UNFIT = "failure", "the key of the audit cannot be used", _KEY
    KEY_READABLE = "failure", "others than its owner can read or write it", "chmod 600, or name another file."
    KEY_OF_OTHERS = "failure", "it belongs to another user", "Name a file of your own."
    KEY_MALFORMED = "failure", "it holds no key of an audit", "Name a file that is not there yet: it is made."

    # --- receipts ---
    RECEIPT_UNSIGNED = "failure", "a receipt cannot be signed", "Install the extra that is named."
    RECEIPT_MALFORMED = "violation", "it is not a receipt of a run", "Name the file that `run --receipt` wrote."
    SIGNATURE_WRONG = "violation", "the signature is not that of the key", "Give the key of the account that ran it."
    OUTPUT_DIFFERS = "violation", "a file is not the one that the receipt names", "Compare with the run's own files."
