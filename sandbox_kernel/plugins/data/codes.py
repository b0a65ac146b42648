"""The codes of data: of archives of volumes, and of the record of reads. Imports code only."""

from __future__ import annotations

from enum import unique

from ...core.codes import Code


@unique
class DataCode(Code):
    """What goes wrong with volumes (docs/large-data.md), and what the record of reads misses (docs/record.md)."""

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
    VOLUME_NOT_EXPORTED = (
        "failure",
        "the volume {name} cannot be written to an archive",
        "Copy what is wanted in a sandbox with the volume.",
    )
    VOLUME_NOT_IMPORTED = (
        "failure",
        "the archive cannot be put into the volume {name}, which is not made",
        "Name a tar archive, and a --size that it fits into.",
    )
    VOLUME_HALF_FILLED = (
        "failure",
        "what was put into a new volume could not be removed, and is left as {name}",
        "End what uses it, and `sandbox-kernel volumes rm NAME --yes`.",
    )
    VOLUME_NOT_EMPTY = (
        "failure",
        "the volume {name} has content, and is gone for good once it is removed",
        "To remove it with its content: `sandbox-kernel volumes rm NAME --yes`.",
    )
