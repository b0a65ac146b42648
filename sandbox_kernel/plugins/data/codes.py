"""The codes of data: of datasets, volumes and their archives, and of the record of reads. Imports code only."""

from __future__ import annotations

from enum import unique

from ...core.codes import Code


@unique
class DataCode(Code):
    """What goes wrong with data (docs/large-data.md), and what the record of reads misses (docs/record.md)."""

    DATASET_NOT_OPENED = (
        "failure",
        "the dataset {name} cannot be given to a sandbox",
        "Name a folder that this user and others may read.",
    )
    VOLUMES_UNUSABLE = (
        "failure",
        "no volumes can be used here",
        "Use a broker that root runs; a folder that is named here has to be writable, and its user's alone.",
    )
    VOLUME_NOT_HERE = (
        "failure",
        "there is no volume {name}",
        "Make it with `sandbox-kernel volumes create NAME`, or ask for it with rw.",
    )
    VOLUME_NOT_OPENED = (
        "failure",
        "the volume {name} cannot be given to a sandbox",
        "Look at it with `sandbox-kernel volumes ls`.",
    )
    VOLUME_NOT_MADE = (
        "failure",
        "the volume {name} cannot be made",
        "Make a smaller one: `sandbox-kernel volumes create NAME --size 1G`.",
    )
    VOLUME_EXISTS = "failure", "there is a volume {name}, and letters count in either case", "Choose another name."
    VOLUME_IN_USE = (
        "failure",
        "the volume {name} is in use: one sandbox at a time writes to it, or many read it",
        "End the other sandbox, or wait for its end.",
    )
    VOLUME_QUOTA = (
        "limit",
        "the volume {name} is more than this user may have",
        "Remove another one with `sandbox-kernel volumes rm NAME`, or make a smaller one.",
    )
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
