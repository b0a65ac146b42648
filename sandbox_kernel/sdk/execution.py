"""What `run_code` brings back, in the shape people know from hosted code interpreters, and how it is put together.

Values, and one recorder from Jupyter messages to them. Everything in here has passed the output policy of the session,
so with `outputs` at `safe` or `strict` it may be shown in a browser. In every mode it may be printed: no text, of
whatever type, holds anything but colours that a terminal would obey.

Public: plugins may import it.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..core.behaviour import Behaviour
from ..core.codes import Survived
from ..core.errors import Fault, SandboxError
from ..core.model import Message
from ..policy.json_check import count
from ..policy.line_ends import markup
from ..policy.safe_text import PrintedStream, plain, tree
from .output_text import InJson, OutputMessage
from .result import Result, short
from .values import CellUsage, NetworkDenial

if TYPE_CHECKING:
    from ..core.screen_findings import Finding

__all__ = ["Event", "Execution", "ExecutionError", "ExecutionRecorder", "Logs", "Result"]


@dataclass(frozen=True, slots=True)
class Logs(InJson):
    """What a cell printed, in the pieces in which it came."""

    stdout: list[str] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Logs(stdout={short(''.join(self.stdout))}, stderr={short(''.join(self.stderr))})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionError(InJson):
    """Why a cell did not succeed: its own exception, or the limit that ended it."""

    name: str
    """The type of the exception; `CellTimeout`, `OutOfMemory`, `OutputLimit`, `KernelDied`, `ReplyLost` or
    `SandboxDied` if it was ended from outside."""
    value: str
    """Its text, with limit, figure and remedy in words."""
    traceback: str = ""
    """Plain text, without colours."""
    fault: Fault = "user code"
    from_sandbox: bool = False
    """Whether the host ended the cell. A cell can raise an exception of any name; this it cannot set."""
    limit: str | None = None
    reached: str | None = None
    survived: str | None = None
    """What is left, in words; None for an exception of the code's own, which takes nothing away."""
    kept: Survived | None = None
    """The same for programs: "variables-and-files", "variables-before-cell", "files" or "nothing"."""
    code: str | None = None
    """Why the host ended the cell, as docs/codes.md lists it; None for an exception of the code's own."""
    setting: str | None = None
    """The setting to change."""

    @classmethod
    def of(cls, error: SandboxError, traceback: str = "") -> ExecutionError:
        return cls(
            name=error.name,
            value=str(error),
            traceback=traceback or f"{error.name}: {error}",
            fault=error.fault,
            from_sandbox=True,
            limit=error.limit,
            reached=error.value,
            survived=error.survived,
            kept=error.kept,
            code=error.code.code,
            setting=error.setting,
        )

    def __str__(self) -> str:
        return f"{self.name}: {self.value}"

    def __repr__(self) -> str:
        return f"ExecutionError({short(str(self), 200)})"


@dataclass(slots=True, kw_only=True)
class Execution(InJson):
    """What one cell brought."""

    code: str = ""
    results: list[Result] = field(default_factory=list)
    logs: Logs = field(default_factory=Logs)
    error: ExecutionError | None = None
    execution_count: int | None = None
    seconds: float = 0.0
    """From the moment the kernel was given the cell to its end."""
    usage: CellUsage = field(default_factory=CellUsage)
    denied: list[NetworkDenial] = field(default_factory=list)
    """What its connections were denied; the first 100."""
    findings: list[Finding] = field(default_factory=list)
    """What the screen found in its code before it ran, if the setting `screen` is on."""
    behaviour: Behaviour = field(default_factory=Behaviour)
    """What it did that matters, with one score: what was found, refused, met and noticed."""

    @property
    def text(self) -> str | None:
        """The value of the last expression as text, None if there was none."""
        return next((result.text for result in self.results if result.is_main_result), None)

    @property
    def ok(self) -> bool:
        return self.error is None

    def to_dict(self) -> dict[str, Any]:
        """Return it as values of JSON."""
        return {"text": self.text, **asdict(self), "behaviour": self.behaviour.to_json()}

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        parts = [_pre("".join(self.logs.stdout)), _pre("".join(self.logs.stderr), "background:#fdd;color:#000")]
        parts += [f"<div>{_html_of(result)}</div>" for result in self.results]
        if self.error is not None:
            parts.append(_pre(self.error.traceback or str(self.error), "color:#b00"))
        return {"text/plain": repr(self), "text/html": "".join(parts) or _pre("(no output)")}

    def __repr__(self) -> str:
        shown: list[str] = [f"text={short(self.text)}"] if self.text is not None else []
        if len(self.results) > (self.text is not None):
            shown.append(f"results={self.results!r}")
        shown += [
            f"{name}={short(''.join(pieces))}"
            for name, pieces in (("stdout", self.logs.stdout), ("stderr", self.logs.stderr))
            if pieces
        ]
        if self.error is not None:
            shown.append(f"error={self.error!r}")
        return f"Execution({', '.join([*shown, f'{self.seconds:.2f} s'])})"


Event = tuple[str, Any]
"""The name of a callback (`stdout`, `stderr`, `result`, `error`, `message`) and what it is called with."""


class ExecutionRecorder:
    """Turns the messages of one cell into its `Execution`, and says which callbacks each concerns."""

    def __init__(self, code: str) -> None:
        self._execution = Execution(code=code)
        self._stream = PrintedStream()
        self._clear = False
        self._updates: dict[str | None, tuple[int, Mapping[str, Any]]] = {}
        """The newest update of each display, and how many results there were then: those are what it is for.

        Looked up once at the end, as a cell may send as many updates as displays.
        """

    @property
    def execution(self) -> Execution:
        """What there is now, every update included."""
        updates, self._updates = self._updates, {}
        for number, result in enumerate(self._execution.results if updates else ()):
            before, content = updates.get(result.display_id, (0, {}))
            if number < before:
                self._execution.results[number] = Result(
                    _read(content["data"]), tree(content["metadata"]), result.is_main_result, result.display_id
                )
        return self._execution

    def take(self, message: Message, verdict: SandboxError | None) -> Iterator[Event]:
        """Take in one message that may be shown; `verdict` is why the host ends the cell, if it does."""
        execution, content = self._execution, message.content
        if message.type in {"stream", "display_data", "execute_result", "error"} and self._clear:
            self._forget()
        match message.type:
            case "stream":
                name = "stderr" if content["name"] == "stderr" else "stdout"
                text = self._stream.feed(name, str(content["text"]))
                getattr(execution.logs, name).append(text)
                yield name, OutputMessage.of(text, error=name == "stderr")
            case "display_data" | "execute_result":
                result = Result(
                    data=_read(content["data"]),
                    metadata=tree(content["metadata"]),
                    is_main_result=message.type == "execute_result",
                    display_id=_display_id(content),
                )
                execution.results.append(result)
                yield "result", result
            case "update_display_data":
                self._update(content)
            case "clear_output":
                self._clear = True
                if not content.get("wait"):
                    self._forget()
            case "execute_input":
                execution.execution_count = content["execution_count"]
            case "error":
                yield from self._fail(content, verdict)
            case "execute_reply":
                yield from self._reply(content, verdict)

    def _update(self, content: Mapping[str, Any]) -> None:
        """Replace what an open display of this cell shows; those of earlier cells belong to their executions."""
        if (display_id := _display_id(content)) is not None:
            self._updates[display_id] = len(self._execution.results), content

    def _forget(self) -> None:
        """Do what `clear_output` asks a front end for."""
        self._clear = False
        self._updates.clear()
        self._execution.results.clear()
        self._execution.logs.stdout.clear()
        self._execution.logs.stderr.clear()

    def _reply(self, content: Mapping[str, Any], verdict: SandboxError | None) -> Iterator[Event]:
        if self._execution.execution_count is None:
            self._execution.execution_count = count(content.get("execution_count")) or None
        if self._execution.error is None and content["status"] == "error":
            yield from self._fail(content, verdict)
        elif content["status"] == "aborted":
            yield from self._fail({"ename": "Aborted", "evalue": "an earlier cell failed"}, verdict)

    def _fail(self, content: Mapping[str, Any], verdict: SandboxError | None) -> Iterator[Event]:
        if self._execution.error is not None:
            return
        lines = content.get("traceback")
        traceback = plain("\n".join(map(str, lines)) if isinstance(lines, (list, tuple)) else "")
        if verdict is not None:
            error = ExecutionError.of(verdict, traceback)
        else:
            name, value = plain(str(content.get("ename", "Error"))), plain(str(content.get("evalue", "")))
            error = ExecutionError(name=name, value=value, traceback=traceback)
        self._execution.error = error
        yield "error", error


def _display_id(content: Mapping[str, Any]) -> str | None:
    transient = content.get("transient")
    display_id = transient.get("display_id") if isinstance(transient, Mapping) else None
    return display_id if isinstance(display_id, str) else None


def _read(data: Any) -> dict[str, Any]:
    """Return a bundle for readers: its text is that of its Markdown, if the kernel gave the kind of an object alone."""
    bundle: dict[str, Any] = tree(data)
    source = bundle.get("text/markdown")
    if isinstance(source, str):
        from ..policy import markdown  # where there is some: its parts are a tenth of what a start would import

        if markdown.stands_for(bundle.get("text/plain")):
            bundle["text/plain"] = markdown.readable(source)
    return bundle


def _html_of(result: Result) -> str:
    if result.html is not None:
        return result.html
    for kind in ("image/png", "image/jpeg", "image/gif", "image/webp"):
        if isinstance(result.data.get(kind), str):
            return f'<img src="data:{kind};base64,{html.escape(result.data[kind])}">'
    return _pre(next((text for text in (result.markdown, result.latex, result.text) if text), ""))


def _pre(text: str, style: str = "") -> str:
    return markup(f'<pre style="{style}">{html.escape(plain(text))}</pre>') if text else ""
