"""Why a cell met something that it would not have met outside."""

from __future__ import annotations

from enum import unique

from ...core.codes import Code

_BRING = "Bring the file in as the hint says."
_WRITE = "Write to a folder below /mnt/data."
_IMAGE = (
    "Build an image with the packages: `sandbox-kernel build --requirements FILE`; or let cells install them, with the "
    "setting `packages`."
)
_CHANGE = "Change the code as the hint says."
_NETWORK = "See the setting network, and docs/network.md."
_USE_LESS = "Use less, or raise the setting."


@unique
class HintCode(Code):
    """How an ordinary failure of a cell has to do with its sandbox."""

    # `{bring}` says how a file comes in, `{packages}` how a package does: each entry point has its own words for both.

    # --- files ---
    FILE_NOT_HERE = (
        "notice",
        "cells see the files of the sandbox, in /mnt/data, and no files of the computer that runs it. {bring}",
        _BRING,
    )
    DATASET_NOT_READABLE = (
        "notice",
        "cells have a user of their own, who sees of a dataset what others may read (docs/large-data.md).",
        "On the host: `chmod -R o+rX FOLDER`, or leave it as it is.",
    )
    FILE_BESIDE = "notice", "{name} lies beside the notebook, where cells do not see it. {bring}", _BRING
    FILE_IN_UPLOADS = (
        "notice",
        "the files of the folder {uploads} are in the working folder itself: leave `{uploads}/` out of the name.",
        _BRING,
    )
    FOLDER_NOT_HERE = (
        "notice",
        "the sandbox has no such folder. Create it below /mnt/data first, with os.makedirs.",
        _WRITE,
    )
    READ_ONLY = (
        "notice",
        "the system folders and datasets of the sandbox are read-only. Cells can write to /mnt/data, their working "
        "folder, and to /tmp.",
        _WRITE,
    )

    # --- packages and programs ---
    MODULE_NOT_HERE = (
        "notice",
        "the sandbox has no module with this name. A package has to be part of the image. {full}{packages} A module of "
        "your own is brought in like any file. {bring}",
        _IMAGE,
    )
    VARIABLE_NOT_HANDED_OVER = (
        "notice",
        "get_variable and set_variable of jupyter_kernel_client work with pickles, which could run code on the "
        "client's computer. Print the value as JSON instead, or write it to a file and fetch that.",
        _CHANGE,
    )
    SUBMODULE_NOT_HERE = (
        "notice",
        "the package is installed, but this part of it is missing: the code, or the pickled data, needs another "
        "version. {packages}",
        _IMAGE,
    )
    NO_INSTALLING = (
        "notice",
        "a cell cannot install packages. Those of the image are installed already. {full}{packages}",
        _IMAGE,
    )
    NO_FETCHING = (
        "notice",
        "the sandbox has no network, so a cell cannot download anything. The setting network opens single hosts, "
        'such as network = ["api.example.org"]. Or download it yourself. {bring}',
        _NETWORK,
    )
    PROGRAM_NOT_HERE = (
        "notice",
        "the sandbox has no such program. {full}Programs, like packages, are part of the image.",
        _IMAGE,
    )
    LOCALE_NOT_HERE = (
        "notice",
        "the image has one locale, C.UTF-8. Use format, strftime and str.casefold, or an image with Debian's package "
        "locales.",
        _CHANGE,
    )
    FIGURE_WIDGET = (
        "notice",
        "a sandbox does not show FigureWidget. plotly.graph_objects.Figure is shown, with pan and zoom.",
        _CHANGE,
    )

    # --- limits and the network ---
    STORAGE_FULL = (
        "notice",
        "a folder of the sandbox is full. Limits: {scratch} in /mnt/data (scratch_size), {tmp} in /tmp (tmp_size), "
        "{shm} in /dev/shm (shm_size). scratch = disk makes /mnt/data larger than memory (docs/large-data.md).",
        _USE_LESS,
    )
    VOLUME_OR_STORAGE_FULL = (
        "notice",
        "a folder of the sandbox is full. Limits: {scratch} in /mnt/data (scratch_size), {tmp} in /tmp (tmp_size), "
        "{shm} in /dev/shm (shm_size); in /mnt/volumes, the size that each volume was made with (docs/large-data.md).",
        "Use less, raise the setting, or make a larger volume: `sandbox-kernel volumes create NAME --size 1G`.",
    )
    MEMORY_SHORT = (
        "notice",
        "this needs more memory than the sandbox has. Limit: {memory}, files included. Setting to change: memory. "
        "What reads in pieces needs less (docs/large-data.md).",
        _USE_LESS,
    )
    PROCESSES_SHORT = (
        "notice",
        "the sandbox cannot run more processes and threads at the same time. Limit: {pids}. Setting to change: pids.",
        _USE_LESS,
    )
    FILES_SHORT = (
        "notice",
        "a process cannot open more files. Limit: {files}. Setting to change: open_files.",
        _USE_LESS,
    )
    NO_NETWORK = (
        "notice",
        'the sandbox has no network. The setting network opens single hosts, such as network = ["api.example.org"]. '
        "Or download the file yourself. {bring}",
        _NETWORK,
    )
    PAST_THE_WAY_OUT = (
        "notice",
        "this connection did not use the proxy, and the sandbox has no other network. Libraries find the proxy in "
        "HTTP_PROXY and HTTPS_PROXY; aiohttp needs trust_env=True. Only HTTP and TLS can use it. Setting: network.",
        _NETWORK,
    )
