"""Why a kernel cannot join a shared sandbox, as codes."""

from __future__ import annotations

from ...core.codes import Code

_END = "End the kernels that share it, or give this one another name: engine shared:///NAME."


class SharedCode(Code):
    """Why a kernel cannot join a shared sandbox."""

    SHARED_OTHER_SETTINGS = "failure", "the shared sandbox {name!r} has other settings than this kernel", _END
    SHARED_SERVES_NOTHING = (
        "failure",
        "a shared sandbox has nothing that the settings of one kernel alone ask for",
        "Leave out network, secrets, packages, tools and monitor, or use another engine.",
    )
    SHARED_NOT_STARTED = "failure", "the owner of the shared sandbox {name!r} does not answer: {why}", _END
