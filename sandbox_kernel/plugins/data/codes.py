"""The codes of data: what the record of reads says besides what was read. Imports code only."""

from __future__ import annotations

from enum import unique

from ...core.codes import Code


@unique
class DataCode(Code):
    """What the record of reads could not see or hold, if there are datasets and an audit (docs/record.md)."""

    READS_NOT_SEEN = (
        "notice",
        "what the sandbox reads of its datasets is not recorded: this machine does not show it",
        "Use Docker or bubblewrap on this machine as root.",
    )
    READS_LOST = (
        "notice",
        "more files of datasets were opened than are recorded",
        "Divide the cell, if the record has to name them all.",
    )
