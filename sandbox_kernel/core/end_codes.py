"""The codes of ends: what stops a cell, a kernel, a sandbox or a call. Imports code only.

Each error of `errors.py` has one of these; where it can mean several things, the place that raises it says which.
"""

from __future__ import annotations

from enum import unique

from .code import Code

_TIME = "Do the work in smaller steps, or raise cell_timeout."
_MEMORY = "Load less at a time: fewer columns or rows, smaller types, chunks; or raise memory."
_LESS = "Print or display less, or write it to a file in /mnt/data; or raise the setting."
_AGAIN = "Run it again: the next cell finds a new sandbox."
_CODE = "Look at what the code does to its process."
_FORGED = "Look at what the code does: it writes to what the sandbox speaks through."
_ENGINE = "Run `sandbox-kernel doctor`."
_OWNER = "Use a sandbox within its `with` block, its loop and its process."


@unique
class EndCode(Code):
    """Why something ended, or could not begin."""

    # --- limits of a cell ---
    CELL_TIMEOUT = "limit", "the cell ran longer than its time limit and was stopped", _TIME
    REQUEST_TIMEOUT = "limit", "a request ran longer than its time limit and was stopped", _TIME
    COMMAND_TIMEOUT = "limit", "the command ran longer than its time limit and was ended", _TIME
    CELL_WAITED_TOO_LONG = "limit", "the cell waited too long for a person", "Answer sooner, or raise idle_timeout."
    OUT_OF_MEMORY = "limit", "the cell used more memory than the sandbox has", _MEMORY
    OUTPUT_TOO_LARGE = "limit", "the {who} sent too much output", _LESS
    TOO_MANY_MESSAGES = "limit", "the {who} sent too many messages", _LESS
    MESSAGE_TOO_LARGE = "limit", "one message is larger than the limit", _LESS
    MESSAGE_TOO_HEAVY = "limit", "the cell sent a message that is not taken in: {why}", _LESS
    OUTPUT_TOO_SLOW = "limit", "the cell's output takes too long to check", "Show simpler or smaller output."
    REPLY_TOO_LARGE = "limit", "the reply is too large", "Ask for less at once."
    ANSWER_TOO_LARGE = (
        "limit",
        "an answer of the sandbox would become too much in this process",
        "Answer with less at once, with text, or with a file in /mnt/data.",
    )
    ANSWER_UNREADABLE = "violation", "an answer of the sandbox cannot be read: {why}", _FORGED

    # --- kernels ---
    KERNEL_DIED = "failure", "the kernel ended", _CODE
    KERNEL_RESTARTED = "notice", "the kernel was restarted", "Run again the cells that later ones need."
    KERNEL_NO_REPLY = "failure", "the kernel sent no reply", _CODE
    CELL_INTERRUPTED = "notice", "the cell was interrupted", "Nothing: somebody asked for it."
    CELL_NOT_RUN = "notice", "the cell was interrupted before it ran", "Run it again."
    NO_KERNEL_STARTS = (
        "failure",
        "no kernel starts in image {image!r}: {why}",
        "Run `sandbox-kernel build --force`.",
    )

    # --- sandboxes ---
    SANDBOX_DIED = "failure", "the sandbox ended", _AGAIN
    OUT_OF_PROCESSES = (
        "limit",
        "the sandbox ended when it had no room for one more process or thread",
        "Start fewer of them at once, or raise pids; on gVisor its own threads count, too.",
    )
    SANDBOX_NOT_RUNNING = "failure", "no sandbox is running", _AGAIN
    SANDBOX_IDLE = "limit", "the sandbox was idle and was ended", "Upload files again, or raise idle_timeout."
    SANDBOX_ENDED_BY_OWNER = "notice", "the sandbox was ended by its owner", "Nothing: somebody asked for it."
    SANDBOX_PAUSED = "failure", "the sandbox is paused", "Call resume() first."
    NOT_PAUSED = "failure", "the sandbox cannot be paused now: {why}", "Try again in a moment."
    SANDBOX_SILENT = "failure", "the sandbox did not answer", _AGAIN
    START_TOO_SLOW = (
        "limit",
        "{what} was not ready in time",
        "Check what keeps the machine busy, or raise start_timeout.",
    )
    NOT_FRAMES = "violation", "the sandbox sent bytes that are not frames", _FORGED
    INTRODUCED_TWICE = "violation", "the sandbox introduced itself twice", _FORGED
    PARKED_AND_SPOKE = "violation", "the sandbox sent more after it was parked", _FORGED
    NOT_READING = "limit", "the sandbox does not read what it is sent", _AGAIN
    NO_REPORT = "failure", "the sandbox did not report as it should", _ENGINE
    NO_INTRODUCTION = "failure", "the kernel did not say what it is", _AGAIN
    WRITE_CUT_SHORT = "failure", "the sandbox ended while the file was written", "Write the file again."
    SHUTTING_DOWN = "notice", "the kernel is being shut down", "Nothing: somebody asked for it."
    PIPE_GONE = "failure", "the pipe into the sandbox is gone", _AGAIN
    NOT_ATTESTED = "violation", "the sandbox did not attest itself before its first kernel was ready", _FORGED
    REQUEST_REFUSED = (
        "limit",
        "the request is refused: its id was used before, or too many requests are waiting",
        "Wait for the requests that are under way.",
    )
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
    ENGINE_NOT_FOUND = "failure", "there is no container engine there", "Start it, or name its socket."
    ENGINE_FORBIDDEN = (
        "failure",
        "this user has no permission to use the container engine",
        "Join the group of its socket.",
    )
    ENGINE_SILENT = "limit", "the container engine does not answer in time", _ENGINE
    ENGINE_LOST = "failure", "the connection to the container engine was lost", _ENGINE
    ENGINE_UNKNOWN_ANSWER = "failure", "the container engine gave an unknown answer", _ENGINE
    ENGINE_TOO_OLD = "failure", "the container engine is too old", "Use Docker 20.10 or later."
    ENGINE_LACKS_RUNTIME = "failure", "the engine has no such runtime", "Add it to the engine, or change runtime."
    ENGINE_LACKS_PROTECTION = (
        "failure",
        "the engine does not support all protections",
        "Use Docker Engine 20.10 or later, or bubblewrap, which needs no daemon.",
    )
    ENGINE_LACKS_USERS = (
        "failure",
        "the engine has no user id for the sandbox",
        "Use a Docker that root runs without userns-remap, or bubblewrap, which needs no root.",
    )
    ENGINE_CANNOT_PAUSE = (
        "failure",
        "this engine cannot pause a sandbox",
        "Use an engine that can: Docker, bubblewrap with a cgroup, qemu; or let the sandbox end, and keep its files.",
    )
    ENGINE_CANNOT_SNAPSHOT = (
        "failure",
        "this engine cannot take a snapshot of a sandbox, nor begin from one or fork it",
        "Use engine = qemu, whose sandboxes are machines of their own; or keep files, and run the code again.",
    )
    ENGINE_NOT_SET_UP = (
        "failure",
        "an engine, or what it needs, cannot be set up",
        "Follow the message, and run it again.",
    )
    CONTAINER_BEING_REMOVED = "notice", "the container is being removed", "Nothing: somebody asked for it."
    CONTAINER_NOT_REMOVED = "limit", "the engine did not remove the container in time", "Run `sandbox-kernel reap`."
    CONTAINER_NOT_ADOPTED = "failure", "no container can be adopted from this state", _AGAIN
    IMAGE_NOT_BUILT = "failure", "the image cannot be built", "Follow the message, and run it again."
    WHEELS_NOT_FETCHED = "failure", "the packages of an image cannot be downloaded", "Read pip's messages."
    IMAGE_MISSING = "failure", "the engine has no image of that name", "Run `sandbox-kernel build`."
    ATTESTATION_FAILED = "failure", "the sandbox does not have all of its protections; no cell ran in it", _ENGINE

    # --- a broker ---
    DETACHED_NOT_THERE = (
        "failure",
        "this user has no detached sandbox of that id",
        "Make a new one: it ended, or its broker did, or it is not this user's.",
    )
    DETACHED_TAKEN = "notice", "another process took the sandbox over", "Nothing: its user asked for it."
    DETACHED_LEFT = (
        "notice",
        "this process left the sandbox, where the cell goes on",
        "Connect to it, and ask for what the cell brought.",
    )
    LIFETIME_OVER = (
        "limit",
        "the sandbox has reached the end of its lifetime",
        "Make a new one that lasts longer.",
    )
    NOBODY_READ = (
        "limit",
        "the sandbox sent too many messages while nobody was there to read them",
        "Look at what the code sends besides its output.",
    )
    BROKER_ENDED = "failure", "the broker ended, and what it kept with it", "Start `sandbox-kernel broker` again."
    QUOTA_EXCEEDED = "limit", "this user has as many sandboxes of the broker's as it may", "End one of them, or wait."

    # --- callers and policies ---
    WRONG_SETTING = "failure", "a setting has a value that cannot work", "Change the setting that is named."
    SANDBOX_CLOSED = "failure", "a sandbox was used after its end, or outside of its loop or process", _OWNER
    SANDBOX_KILLED = "failure", "the sandbox was killed: make a new one", "Make a new one."
    COMMAND_FAILED = "failure", "the command ended with the exit code {code}", "Read its stderr."
    COMMAND_NOT_STARTED = "failure", "the command could not be started: {why}", "Look at cwd, and at the limits."
    COMMAND_GONE = "failure", "there is no such command: it ended, or its kernel did", "Start it again."
    COMMAND_UNANSWERED = (
        "violation",
        "the sandbox gave no proper answer about a command",
        "Look at what the code does: the sandbox's own answer was not in order.",
    )
    SANDBOX_NOT_HERE = "failure", "no sandbox of this process that is open has the id {id!r}", _OWNER
    SANDBOX_DROPPED = "failure", "the sandbox of these files has ended: nothing refers to it any more", _OWNER
    SANDBOX_OF_ANOTHER_PROCESS = (
        "failure",
        "the sandbox belongs to the process that made it, and this is a fork of it",
        _OWNER,
    )
    SANDBOX_OF_ANOTHER_LOOP = (
        "failure",
        "the sandbox belongs to another event loop: the one it was started on",
        _OWNER,
    )
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
    CALL_CANCELLED = (
        "notice",
        "the call was cancelled, so the cell was ended",
        "Nothing: the caller asked for it.",
    )
    CALLBACK_FAILED = "failure", "a callback of the caller's raised an exception", "Fix the callback."
    SCREEN_BLOCKED = "violation", "a policy refused the code before it ran", "Change the code."
    BEHAVIOUR_BLOCKED = "violation", "the monitor ended the code for what it did", "Look at what the code does."
    PLATFORM_FAILED = "failure", "the sandbox failed", _ENGINE
