"""One small tree of errors; each says whose fault it is, the limit, the value reached and the setting to change.

Imports nothing of this package: every other module may raise these.
"""

from __future__ import annotations

from typing import ClassVar, Literal

Fault = Literal["user code", "policy", "platform", "configuration"]


class SandboxError(Exception):
    """The root of every error this package raises on purpose.

    `fault` tells a caller what to do: repair the code, ask for less, repair the machine, or change a setting.
    """

    fault: ClassVar[Fault] = "platform"
    words: ClassVar[tuple[str, str]] = ("Limit", "Reached")
    """What stands before `limit` and `value`."""

    def __init__(
        self,
        message: str,
        *,
        limit: str | None = None,
        value: str | None = None,
        setting: str | None = None,
        survived: str | None = None,
    ) -> None:
        """Keep the parts of the message, so that a report can name them one by one.

        `limit` and `value` are for people and carry their units ("2.0 GiB", "3 s"); `setting` is the name of the
        trait to change; `survived` says what is left ("variables and files", "files", "nothing").
        """
        super().__init__(message)
        self.message = message
        self.limit = limit
        self.value = value
        self.setting = setting
        self.survived = survived

    @property
    def name(self) -> str:
        """The name a notebook shows as the error's `ename`."""
        return type(self).__name__

    def lines(self) -> list[str]:
        """Return what there is to say, in lines: what happened, the limit, what is left, what to change."""
        limit, value = self.words
        figures = [f"{word}: {figure}." for word, figure in ((limit, self.limit), (value, self.value)) if figure]
        return [
            self.message.rstrip(".") + ".",
            *([" ".join(figures)] if figures else []),
            *([f"Kept: {self.survived}."] if self.survived is not None else []),
            *([f"Setting to change: {self.setting}."] if self.setting is not None else []),
        ]

    def __str__(self) -> str:
        return " ".join(self.lines())


# --- how a cell can end, other than by its own doing ---------------------------------------------------------------


class CellError(SandboxError):
    """A cell was ended from outside."""

    fault: ClassVar[Fault] = "user code"


class CellTimeout(CellError):
    """The cell ran longer than `cell_timeout`."""


class OutOfMemory(CellError):
    """The container reached its memory limit and the system ended a process in it."""


class OutputLimit(CellError):
    """The cell sent more output than `output_limit` allows."""


class KernelDied(CellError):
    """The kernel process ended; a new one runs in the same container."""


class CellInterrupted(CellError):
    """An interrupt met the kernel outside the cell's own code, and the kernel forgot to answer."""

    @property
    def name(self) -> str:
        return KeyboardInterrupt.__name__


class SandboxDied(CellError):
    """The container is gone, with its files."""

    fault = "platform"


class ScreenBlocked(CellError):
    """A policy refused the code before it ran."""

    fault = "policy"


# --- the platform ---------------------------------------------------------------------------------------------------


class EngineError(SandboxError):
    """The container engine refused a request or failed at it."""


class EngineUnavailable(EngineError):
    """The container engine cannot be reached."""


class ImageMissing(EngineError):
    """The engine has no image of that name."""

    fault = "configuration"


class AttestationFailed(EngineError):
    """The sandbox is not what was asked for; it is refused before a cell runs in it.

    `differences` holds one sentence for each protection that is missing.
    """

    def __init__(self, differences: tuple[str, ...]) -> None:
        super().__init__("the sandbox is refused, because it lacks a protection: " + "; ".join(differences))
        self.differences = differences


class WireError(SandboxError):
    """Bytes from the container are not frames of our wire."""

    fault = "user code"


class ProtocolError(SandboxError):
    """A message is not one that may pass; it is dropped."""

    fault = "user code"


class FileRefused(SandboxError):
    """A file may not enter or leave the sandbox."""

    fault = "policy"


class ConfigurationError(SandboxError):
    """A setting has a value that cannot work."""

    fault = "configuration"
    words = ("Allowed", "Given")


# --- the caller of the SDK -------------------------------------------------------------------------------------------


class SandboxClosed(SandboxError):
    """A sandbox was used after its end, or outside of the event loop or process that it belongs to."""

    fault = "configuration"


class CallCancelled(SandboxError):
    """Nobody waits for the cell any more, so it is ended."""

    fault = "configuration"


class CallbackFailed(SandboxError):
    """A callback of `run_code` raised an exception, which is the cause of this one.

    The cell ran to its end all the same: `execution` is what it brought.
    """

    fault = "configuration"

    def __init__(self, message: str, execution: object) -> None:
        super().__init__(message)
        self.execution = execution
