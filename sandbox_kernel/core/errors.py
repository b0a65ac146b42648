"""One small tree of errors; each says its code, whose fault it is, the limit, the value reached and what to mend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from .codes import Code, EndCode, FileCode, MessageCode, Note, Survived, UsageCode

MAX_SAID = 2000
"""Characters of what a command said last, in the text of an error."""
MAX_FINDINGS_SAID = 30
"""Of one cell that is refused."""

Fault = Literal["user code", "policy", "platform", "configuration"]


class SandboxError(Exception):
    """The root of every error this package raises on purpose.

    `fault` tells a caller what to do: repair the code, ask for less, repair the machine, or change a setting.
    """

    fault: ClassVar[Fault] = "platform"
    words: ClassVar[tuple[str, str]] = ("Limit", "Reached")
    """What stands before `limit` and `value`."""
    usual: ClassVar[Code] = EndCode.PLATFORM_FAILED
    """The code of those that are raised with words of their own."""

    def __init__(
        self,
        message: str | Code | Note,
        words: str | None = None,
        *,
        limit: str | None = None,
        value: str | None = None,
        setting: str | None = None,
        kept: Survived | None = None,
        because: str | None = None,
    ) -> None:
        """Keep the parts of the message, so that a report can name them one by one.

        Args:
            message: A code, one with its text filled in, or (in tests) words alone for the class's usual code.
            words: The message in place of the code's own text.
            limit: The limit, for people, with its unit: "2.0 GiB", "3 s".
            value: What was reached, in the same form.
            setting: The name of the setting to change.
            kept: What is left.
            because: Why more is lost than one would think.
        """
        if isinstance(message, str):
            message = Note(self.usual, message)
        elif isinstance(message, Code):
            message = message.note() if words is None else Note(message, words)
        super().__init__(message.text)
        self.code = message.code
        self.message = message.text
        self.limit = limit
        self.value = value
        self.setting = setting
        self.kept = kept
        self.because = because

    def leaves(self, kept: Survived, because: str | None = None) -> None:
        """Note what is left, once that is known."""
        self.kept, self.because = kept, because

    @property
    def survived(self) -> str | None:
        """What is left, in words for people."""
        return None if self.kept is None else self.kept.sentence(self.because)

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

    usual = EndCode.CELL_TIMEOUT


class OutOfMemory(CellError):
    """The container reached its memory limit and the system ended a process in it."""

    usual = EndCode.OUT_OF_MEMORY


class OutputLimit(CellError):
    """The cell sent more output than `output_limit` allows."""

    usual = EndCode.OUTPUT_TOO_LARGE


class KernelDied(CellError):
    """The kernel process ended; a new one runs in the same container."""

    usual = EndCode.KERNEL_DIED


class ReplyLost(CellError):
    """The kernel goes on, but its reply did not come or cannot be read: how the cell ended is not known."""

    usual = EndCode.REPLY_UNREADABLE


class CellInterrupted(CellError):
    """An interrupt met the kernel outside the cell's code and was not answered, or the kernel has no error for it."""

    usual = EndCode.CELL_INTERRUPTED

    @property
    def name(self) -> str:
        return KeyboardInterrupt.__name__


class CommandError(SandboxError):
    """A command could not be started, is not there any more, or is not properly told of."""

    fault = "user code"
    usual = EndCode.COMMAND_GONE


class CommandExitException(CommandError):
    """A command ended with another exit code than 0; `stdout` and `stderr` are what it had said."""

    usual = EndCode.COMMAND_FAILED

    def __init__(self, exit_code: int, stdout: str | None, stderr: str | None, error: str | None = None) -> None:
        words = f"the command ended with the exit code {exit_code}"
        said = (error or stderr or "").strip()[-MAX_SAID:]
        super().__init__(self.usual, f"{words}\n{said}" if said else words)
        self.exit_code, self.stdout, self.stderr, self.error = exit_code, stdout, stderr, error


class SandboxDied(CellError):
    """The container is gone, with its files."""

    fault = "platform"
    usual = EndCode.SANDBOX_DIED


class ScreenBlocked(CellError):
    """A policy refused the code before it ran; it never reached the sandbox.

    `findings` are what the rules found, each as a person reads it.
    """

    fault = "policy"
    usual = EndCode.SCREEN_BLOCKED

    def __init__(
        self,
        findings: Sequence[str] = (),
        *,
        score: int = 0,
        threshold: int = 0,
        kept: Survived | None = None,
        why: str = "",
    ) -> None:
        """`why` says why a person did not let it through, if one was to be asked."""
        limit, value = f"a score of {threshold}", f"a score of {score}"
        words = f"{EndCode.SCREEN_BLOCKED.text}; {why}" if why else None
        super().__init__(EndCode.SCREEN_BLOCKED, words, limit=limit, value=value, setting="screen", kept=kept)
        self.findings = tuple(findings)

    def lines(self) -> list[str]:
        return [*super().lines(), *self.findings[:MAX_FINDINGS_SAID]]


class BehaviourBlocked(CellError):
    """The monitor ended the code for what it did; its code says which rule."""

    fault = "policy"
    usual = EndCode.BEHAVIOUR_BLOCKED


# --- the platform ---------------------------------------------------------------------------------------------------


class EngineError(SandboxError):
    """The container engine refused a request or failed at it."""

    usual = EndCode.ENGINE_FAILED


class EngineUnavailable(EngineError):
    """The container engine cannot be reached."""

    usual = EndCode.ENGINE_UNAVAILABLE


class ImageMissing(EngineError):
    """The engine has no image of that name."""

    fault = "configuration"
    usual = EndCode.IMAGE_MISSING


class AbilityMissing(EngineError):
    """The engine cannot pause a sandbox, write it down or fork it; its code says which."""

    fault = "configuration"
    usual = EndCode.ENGINE_CANNOT_PAUSE


class AttestationFailed(EngineError):
    """The sandbox is not what was asked for; it is refused before a cell runs in it.

    `differences` holds one sentence for each protection that is missing.
    """

    usual = EndCode.ATTESTATION_FAILED

    def __init__(self, differences: tuple[str, ...]) -> None:
        super().__init__("the sandbox is refused, because it lacks a protection: " + "; ".join(differences))
        self.differences = differences


class QuotaExceeded(EngineError):
    """A broker makes no sandbox for this user: a limit that somebody set for it is reached.

    `set_by` is who set it: a file and its table, or the broker itself.
    """

    fault = "policy"
    usual = EndCode.QUOTA_EXCEEDED

    def __init__(
        self, message: str | Code | Note, words: str | None = None, *, set_by: str = "the broker", **parts: Any
    ) -> None:
        super().__init__(message, words, **parts)
        self.set_by = set_by

    def lines(self) -> list[str]:
        return [*super().lines(), f"Set by: {self.set_by}."]


class WireError(SandboxError):
    """Bytes from the container are not frames of our wire."""

    fault = "user code"
    usual = EndCode.NOT_FRAMES


class ProtocolError(SandboxError):
    """A message is not one that may pass; it is dropped."""

    fault = "user code"
    usual = MessageCode.IMPROPER


class AnswerError(SandboxError, ValueError):
    """An answer of a sandbox to this program is not what it should be, or would become too much here."""

    fault = "user code"
    usual = EndCode.ANSWER_UNREADABLE


class FileRefused(SandboxError):
    """A file may not enter or leave the sandbox; it is always said why, by a code."""

    fault = "policy"

    def __init__(self, why: Code | Note, **parts: Any) -> None:
        super().__init__(why, **parts)

    def about(self, words: str) -> FileRefused:
        """Return the same refusal with other words, such as the name of the file before them."""
        note = Note(self.code, words)
        return type(self)(note, limit=self.limit, value=self.value, setting=self.setting)


class FileNotThere(FileRefused):
    """There is no such file in the sandbox."""

    usual = FileCode.MISSING


class ConfigurationError(SandboxError):
    """A setting has a value that cannot work."""

    fault = "configuration"
    usual = EndCode.WRONG_SETTING
    words = ("Allowed", "Given")


def wrong_argument(name: str, why: str) -> ConfigurationError:
    """Return the error for an argument of a call."""
    return ConfigurationError(UsageCode.WRONG_ARGUMENT, why, setting=name)


class SandboxClosed(SandboxError):
    """A sandbox was used after its end, or outside of the event loop or process that it belongs to."""

    fault = "configuration"
    usual = EndCode.SANDBOX_CLOSED


class SandboxPaused(SandboxError):
    """A sandbox was used while it is paused, or cannot be paused now; it is as it was."""

    fault = "configuration"
    usual = EndCode.SANDBOX_PAUSED


class CallCancelled(SandboxError):
    """No caller waits for the cell any more, so it is ended."""

    fault = "configuration"
    usual = EndCode.CALL_CANCELLED


class CallbackFailed(SandboxError):
    """A callback of `run_code` raised an exception, which is the cause of this one.

    The cell ran to its end all the same: `execution` is what it brought.
    """

    fault = "configuration"
    usual = EndCode.CALLBACK_FAILED

    def __init__(self, message: str, execution: object) -> None:
        super().__init__(message)
        self.execution = execution
