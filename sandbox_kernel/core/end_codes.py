"""The codes of ends: what stops a cell, a kernel, a sandbox or a call. Imports code only.

Each error of `errors.py` has one of these; where it can mean several things, the place that raises it says which.
"""

from __future__ import annotations

from enum import unique

from .code import Code

_TIME = "Do the work in smaller steps, or raise cell_timeout."
_IDLE = "Answer sooner, or raise idle_timeout."
_MEMORY = "Load less at a time (fewer columns, smaller types, chunks), or raise memory."
_LESS = "Print or display less, or write it to a file in /mnt/data; or raise the setting."
_FORGED = "Look at what the code does: it writes to the sandbox's own pipe."
_CODE = "Look at what the code does."
_AGAIN = "Run it again: the next cell gets a new sandbox."
_ASKED = "Nothing: somebody asked for it."
_BUILD = "Run `sandbox-kernel build --force`."
_WAIT = "Try again in a moment."
_ENGINE = "Run `sandbox-kernel doctor`."
_SOCKET = "Start it, name its socket, or join the socket's group."
_DOCKER = "Use Docker Engine 20.10 or later, as root and without userns-remap, or bubblewrap."
_FOLLOW = "Follow the message, and run it again."
_NEW = "Make a new one."
_OWNER = "Use a sandbox within its `with` block, its loop and its process."


@unique
class EndCode(Code):
    """Why something ended, or could not begin."""

    # --- limits of a cell ---
    CELL_TIMEOUT = "limit", "the cell ran longer than its time limit and was stopped", _TIME
    REQUEST_TIMEOUT = "limit", "a request ran longer than its time limit and was stopped", _TIME
    COMMAND_TIMEOUT = "limit", "the command ran longer than its time limit and was ended", _TIME
    CELL_WAITED_TOO_LONG = "limit", "the cell waited too long for a person", _IDLE
    OUT_OF_MEMORY = "limit", "the cell used more memory than the sandbox has", _MEMORY
    OUTPUT_TOO_LARGE = "limit", "the {who} sent too much output", _LESS
    TOO_MANY_MESSAGES = "limit", "the {who} sent too many messages", _LESS
    MESSAGE_TOO_LARGE = "limit", "one message is larger than the limit", _LESS
    MESSAGE_TOO_HEAVY = "limit", "the cell sent a message that is not taken in: {why}", _LESS
    OUTPUT_TOO_SLOW = "limit", "the cell's output takes too long to check", _LESS
    REPLY_TOO_LARGE = "limit", "the reply is too large", _LESS
    ANSWER_TOO_LARGE = "limit", "an answer of the sandbox would take too much memory", _LESS
    ANSWER_UNREADABLE = "violation", "an answer of the sandbox cannot be read: {why}", _FORGED

    # --- kernels ---
    KERNEL_DIED = "failure", "the kernel ended", _CODE
    KERNEL_RESTARTED = "notice", "the kernel was restarted", _AGAIN
    KERNEL_NO_REPLY = "failure", "the kernel sent no reply", _CODE
    CELL_INTERRUPTED = "notice", "the cell was interrupted", _ASKED
    CELL_NOT_RUN = "notice", "the cell was interrupted before it ran", _AGAIN
    NO_KERNEL_STARTS = "failure", "no kernel starts in image {image!r}: {why}", _BUILD

    # --- sandboxes ---
    SANDBOX_DIED = "failure", "the sandbox ended", _AGAIN
    OUT_OF_PROCESSES = (
        "limit",
        "the sandbox ended for lack of processes or threads",
        "Start fewer at once, or raise pids. On gVisor its own threads count, too.",
    )
    SANDBOX_NOT_RUNNING = "failure", "no sandbox is running", _AGAIN
    SANDBOX_IDLE = "limit", "the sandbox was idle and was ended", _IDLE
    SANDBOX_ENDED_BY_OWNER = "notice", "the sandbox was ended by its owner", _ASKED
    SANDBOX_PAUSED = "failure", "the sandbox is paused", "Call resume() first."
    NOT_PAUSED = "failure", "the sandbox cannot be paused now: {why}", _WAIT
    SANDBOX_SILENT = "failure", "the sandbox did not answer", _AGAIN
    START_TOO_SLOW = (
        "limit",
        "{what} was not ready in time",
        "Check what keeps the machine busy, or raise start_timeout.",
    )
    NOT_FRAMES = "violation", "the sandbox sent bytes that are not frames", _FORGED
    INTRODUCED_TWICE = "violation", "the sandbox introduced itself twice", _FORGED
    PARKED_AND_SPOKE = "violation", "the sandbox sent more after it was parked", _FORGED
    NOT_READING = "limit", "the sandbox does not read its input", _AGAIN
    NO_REPORT = "failure", "the sandbox did not report as it should", _ENGINE
    NO_INTRODUCTION = "failure", "the kernel did not say what it is", _AGAIN
    WRITE_CUT_SHORT = "failure", "the sandbox ended while the file was written", _AGAIN
    SHUTTING_DOWN = "notice", "the kernel is being shut down", _ASKED
    PIPE_GONE = "failure", "the pipe into the sandbox is gone", _AGAIN
    NOT_ATTESTED = "violation", "the sandbox did not attest itself before its first kernel was ready", _FORGED
    REQUEST_REFUSED = "limit", "the request is refused: its id was used before, or too many requests are waiting", _WAIT
    DEFECT = (
        "failure",
        "sandbox_kernel failed on something that the sandbox sent: {what}",
        "Report it, with the kernel's log.",
    )

    # --- the machine ---
    ENGINE_FAILED = "failure", "the container engine refused a request or failed at it", _ENGINE
    ENGINE_UNAVAILABLE = "failure", "the container engine cannot be reached", _ENGINE
    ENGINE_STOPPED = "failure", "the container engine stopped: {why}", _ENGINE
    CONTAINER_GONE = "failure", "the container is gone", _AGAIN
    ENGINE_NOT_FOUND = "failure", "there is no container engine there", _SOCKET
    ENGINE_FORBIDDEN = "failure", "this user has no permission to use the container engine", _SOCKET
    ENGINE_SILENT = "limit", "the container engine does not answer in time", _ENGINE
    ENGINE_LOST = "failure", "the connection to the container engine was lost", _ENGINE
    ENGINE_UNKNOWN_ANSWER = "failure", "the container engine gave an unknown answer", _ENGINE
    ENGINE_TOO_OLD = "failure", "the container engine is too old", _DOCKER
    ENGINE_LACKS_RUNTIME = "failure", "the engine has no such runtime", "Add it to the engine, or change runtime."
    ENGINE_LACKS_PROTECTION = "failure", "the engine does not support all protections", _DOCKER
    ENGINE_LACKS_USERS = "failure", "the engine has no user id for the sandbox", _DOCKER
    ENGINE_CANNOT_PAUSE = (
        "failure",
        "this engine cannot pause a sandbox",
        "Use Docker, bubblewrap with a cgroup, or qemu; or keep the files and end it.",
    )
    ENGINE_CANNOT_SNAPSHOT = (
        "failure",
        "this engine cannot save, fork or restore a sandbox",
        "Use engine = qemu; or keep files, and run the code again.",
    )
    ENGINE_NOT_SET_UP = "failure", "an engine, or what it needs, cannot be set up", _FOLLOW
    CONTAINER_BEING_REMOVED = "notice", "the container is being removed", _ASKED
    CONTAINER_NOT_REMOVED = "limit", "the engine did not remove the container in time", "Run `sandbox-kernel reap`."
    CONTAINER_NOT_ADOPTED = "failure", "no container can be adopted from this state", _AGAIN
    IMAGE_NOT_BUILT = "failure", "the image cannot be built", _FOLLOW
    WHEELS_NOT_FETCHED = "failure", "the packages of an image cannot be downloaded", _FOLLOW
    IMAGE_MISSING = "failure", "the engine has no image of that name", _BUILD
    ATTESTATION_FAILED = "failure", "the sandbox does not have all of its protections; no cell ran in it", _ENGINE

    # --- a broker ---
    DETACHED_NOT_THERE = "failure", "this user has no detached sandbox of that id", _NEW
    DETACHED_TAKEN = "notice", "another process took the sandbox over", _ASKED
    DETACHED_LEFT = (
        "notice",
        "this process left the sandbox, where the cell goes on",
        "Connect to it again to get the rest.",
    )
    LIFETIME_OVER = "limit", "the sandbox has reached the end of its lifetime", _NEW
    NOBODY_READ = "limit", "the sandbox sent too many messages while no owner read them", _LESS
    BROKER_ENDED = (
        "failure",
        "the broker ended, and its detached sandboxes with it",
        "Start `sandbox-kernel broker` again.",
    )
    QUOTA_EXCEEDED = "limit", "this user has reached the broker's sandbox limit", "End one of them, or wait."

    # --- callers and policies ---
    WRONG_SETTING = "failure", "a setting has a value that cannot work", "Change the setting that is named."
    SANDBOX_CLOSED = "failure", "a sandbox was used after its end, or outside of its loop or process", _OWNER
    SANDBOX_KILLED = "failure", "the sandbox was killed: make a new one", _NEW
    COMMAND_FAILED = "failure", "the command ended with the exit code {code}", "Read its stderr."
    COMMAND_NOT_STARTED = "failure", "the command could not be started: {why}", "Check cwd, and the limits."
    COMMAND_GONE = "failure", "there is no such command: it ended, or its kernel did", _AGAIN
    COMMAND_UNANSWERED = "violation", "the sandbox gave no proper answer about a command", _FORGED
    SANDBOX_NOT_HERE = "failure", "this process has no open sandbox with the id {id!r}", _OWNER
    SANDBOX_DROPPED = "failure", "the sandbox of these files has ended: nothing refers to it any more", _OWNER
    SANDBOX_OF_ANOTHER_PROCESS = (
        "failure",
        "the sandbox belongs to the process that made it, and this is a fork of it",
        _OWNER,
    )
    SANDBOX_OF_ANOTHER_LOOP = "failure", "the sandbox belongs to another event loop", _OWNER
    LOOP_CLOSED = "failure", "the sandbox ended with its event loop, which was closed", _OWNER
    LOOP_STOPPED = (
        "failure",
        "the sandbox belongs to an event loop that does not run, so it cannot be ended there",
        _OWNER,
    )
    WOULD_WAIT_FOR_ITSELF = (
        "failure",
        "a blocking call would wait for itself here: use AsyncSandbox in async functions",
        _OWNER,
    )
    CALL_CANCELLED = "notice", "the call was cancelled, so the cell was ended", _ASKED
    CALLBACK_FAILED = "failure", "a callback of the caller's raised an exception", "Fix the callback."
    SCREEN_BLOCKED = "violation", "a policy refused the code before it ran", _CODE
    BEHAVIOUR_BLOCKED = "violation", "the monitor ended the code for what it did", _CODE
    PLATFORM_FAILED = "failure", "the sandbox failed", _ENGINE
