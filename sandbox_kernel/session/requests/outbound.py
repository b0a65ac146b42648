"""What goes to the front ends of a session: the kernel's messages that the policy passes, and the host's own.

Everything leaves with a parent header that the host itself received. Knows no clock, no container and no socket.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from ...core import json_memory
from ...core.codes import Code, EndCode, MessageCode, Note, OutputCode
from ...core.errors import OutputLimit, ProtocolError, SandboxError
from ...core.model import Message, format_bytes
from ...core.tasks import log_defect
from ...policy import OutputPolicy, Verdict
from ...policy.budget import MAX_REPLY
from ...policy.frame_libraries import Place
from .. import protocol
from .queue import PendingRequest, RequestQueue, parent_of

MAX_NOTED = 10_000
"""Lines of the audit about what a session's code sends: it must not fill the disk of the host."""
MAX_CELL_ID = 1000
"""Characters; VS Code's name the file."""
EXITS = frozenset(("exit", "exit()", "quit", "quit()"))
"""What a person writes to leave a console; IPython knows no others."""
OUTPUTS = frozenset({"stream", "display_data", "execute_result", "error"})
"""What a cell shows: a person is told what is missing of it."""
MAX_NOTICES = 100
"""What waits to be said on stderr of the next cell."""

Notes = list[str]
Emit = Callable[..., None]


class Front(Protocol):
    """The front ends."""

    def deliver(self, message: Message, client: bytes | None) -> None:
        """Send a message to one client, or publish it to all. Its header holds a type only."""

    def drain(self) -> None:
        """Submit the requests that have arrived but were not read yet."""


class Outbound:
    """See the module; one for a session's whole life."""

    def __init__(self, front: Front, policy: OutputPolicy, emit: Emit) -> None:
        self.front = front
        self._joined: list[Front] = []
        self.policy = policy
        self.emit = emit
        self.notices: Notes = []
        """Said once, on stderr of the next cell."""
        self._own_words = OutputPolicy(policy.mode, policy.message_bytes)
        """For what the host writes itself, which may come while another thread looks at a large message."""
        self._noted = 0

    def forget_kernel(self) -> None:
        """Forget the displays and comms of a kernel that is gone."""
        self.policy = self.policy.renewed()

    def join(self, front: Front) -> None:
        """Deliver to a further front end as well, whose `deliver` must not raise."""
        self._joined.append(front)

    def _deliver(self, message: Message, client: bytes | None) -> None:
        self.front.deliver(message, client)
        for one in tuple(self._joined):
            one.deliver(message, client)

    # --- what a kernel said ---

    def judge(self, message: Message, request: PendingRequest | None) -> Verdict:
        """Apply the output policy. May run in another thread, for one message at a time."""
        asked = request.message.content if request is not None else None
        return _verdict(self.policy, replace(message, parent=parent_of(request)), _place(request), asked)

    def allowed(
        self, message: Message, request: PendingRequest | None, verdict: Verdict | None = None
    ) -> Message | None:
        """Return a message as it may pass, None if it may not; `verdict` is what `judge` said of it before."""
        verdict = verdict or self.judge(message, request)
        for note in verdict.notes:
            self.emit("policy", type=message.type, code=note.code.code, reason=note.text)
        passed = verdict.message
        return replace(passed, work=verdict.work) if passed is not None and verdict.work else passed

    def publish(self, message: Message, request: PendingRequest | None, verdict: Verdict | None = None) -> Note | None:
        """Publish what the policy passes; return why an output is missing, which a person would look for."""
        verdict = verdict or self.judge(message, request)
        if (allowed := self.allowed(message, request, verdict)) is None:
            return verdict.notes[0] if message.type in OUTPUTS and verdict.notes else None
        return self._send(allowed)

    def kept(
        self, message: Message, requests: RequestQueue, request: PendingRequest, size: int, verdict: Verdict | None
    ) -> Message:
        """Return a reply as it will be delivered: filtered now, so that nothing else is kept until its idle comes."""
        allowed = self.allowed(message, request, verdict)
        if allowed is None:
            return self.ours(request, ProtocolError(MessageCode.REPLY_REFUSED))
        # A small one costs a bounded multiple of what it came as; of a large one, what is left of it counts.
        try:
            request.hold(32 * size if size < json_memory.SMALL else json_memory.kept(protocol.dumps(allowed.content)))
        except ProtocolError as error:
            return self.ours(request, error)
        if requests.held_bytes > MAX_REPLY:
            request.hold(0)
            limit, value = f"{format_bytes(MAX_REPLY)} of memory", f"{format_bytes(size)} as it came"
            return self.ours(request, OutputLimit(EndCode.REPLY_TOO_LARGE, limit=limit, value=value))
        content = allowed.content
        if _leaves(request) and content.get("status") == "ok":
            content = {**content, "payload": [*content.get("payload", ()), {"source": "ask_exit", "keepkernel": False}]}
        return replace(allowed, header={"msg_type": message.type}, content=content)

    def ask(self, question: Message, request: PendingRequest) -> None:
        """Ask the client of a cell for its input, with a question that was `allowed`."""
        self._deliver(question, request.client)

    def observe(self, message: Message) -> None:
        """Note what a front end said of a comm, which decides what a kernel may say of it."""
        self.policy.observe(message)

    def dropped(self, why: Code | Note, kind: str) -> None:
        """Write a line of the audit about a message that did not pass."""
        self.noted("dropped", why, kind)

    def noted(self, event: str, why: Code | Note, kind: str) -> None:
        """Write a line of the audit about a message."""
        note = why.note() if isinstance(why, Code) else why
        fields = {"code": note.code.code, "reason": note.text, "type": kind}
        self._noted += 1
        if self._noted < MAX_NOTED:
            self.emit(event, **fields)
        elif self._noted == MAX_NOTED:
            self.emit("dropped", **fields, last="no more of this is written in this session")

    def leave_out(self, why: Note, kind: str, request: PendingRequest) -> None:
        """Say in a cell that one of its outputs is missing."""
        self.tell(f"left out {kind or 'a message'}: {why.text}", request)

    # --- what the host says ---

    def status(self, state: str, request: PendingRequest) -> None:
        header, content = {"msg_type": "status"}, {"execution_state": state}
        self._deliver(Message(channel="iopub", header=header, parent=parent_of(request), content=content), None)

    def input(self, request: PendingRequest) -> None:
        """Publish what is being run: the code as it was asked for, whatever the kernel says that it runs."""
        content = {"code": request.message.content.get("code", ""), "execution_count": request.execution_count}
        self._say("execute_input", content, request)

    def error(self, request: PendingRequest, error: SandboxError) -> None:
        self._say("error", error_content(request, error), request)

    def failure(self, request: PendingRequest, content: Mapping[str, object]) -> None:
        """Publish the error that a filtered reply has."""
        self._say("error", {key: content[key] for key in ("ename", "evalue", "traceback")}, request)

    def notice(self, *notices: str) -> None:
        """Have something said on stderr of the next cell."""
        self.notices.extend(notices[: max(0, MAX_NOTICES - len(self.notices))])

    def say_notices(self, request: PendingRequest) -> None:
        if request.is_heard and self.notices:
            text = "".join(f"[sandbox_kernel] {notice}\n" for notice in dict.fromkeys(self.notices[:20]))
            self.notices.clear()
            self._say("stream", {"name": "stderr", "text": text}, request)

    def tell(self, line: str, request: PendingRequest) -> None:
        """Say a line on stderr of a cell, now."""
        self._say("stream", {"name": "stderr", "text": f"[sandbox_kernel] {line}\n"}, request)

    def reply(self, request: PendingRequest, reply: Message) -> None:
        """Deliver a reply that has been filtered, or one that says why it cannot be sent."""
        try:
            self._deliver(reply, request.client)
        except ProtocolError as error:
            self.dropped(Note(error.code, str(error)), reply.type)
            self._deliver(self.ours(request, error), request.client)

    def abort(self, request: PendingRequest) -> None:
        """Say from busy to idle that a cell does not run, since one before it failed."""
        self.status("busy", request)
        content = {"status": "aborted", "execution_count": 0, "user_expressions": {}, "payload": []}
        header = {"msg_type": "execute_reply"}
        self.reply(request, Message(channel="shell", header=header, parent=parent_of(request), content=content))
        self.status("idle", request)

    def ours(self, request: PendingRequest, error: SandboxError) -> Message:
        """Return the reply that the host writes in place of the kernel's, as it may be delivered."""
        reply = replace(error_reply(request, error), parent=parent_of(request))
        allowed = self._own(reply)
        return allowed if allowed is not None else replace(reply, content=_plain(error))

    def _say(self, kind: str, content: dict[str, object], request: PendingRequest) -> None:
        message = Message(channel="iopub", header={"msg_type": kind}, parent=parent_of(request), content=content)
        if (allowed := self._own(message)) is not None:
            self._send(allowed)

    def _own(self, message: Message) -> Message | None:
        """Return what the host writes as it may pass: words of the code are in it. None if it may not.

        A defect of ours loses these words and nothing else: the end of a cell is still reported.
        """
        try:
            return _verdict(self._own_words, message).message
        except Exception as defect:
            log_defect("the policy for what the host says", defect)
            self.dropped(EndCode.DEFECT.note(what=repr(defect)[:200]), message.type)
            return None

    def _send(self, message: Message) -> Note | None:
        """Publish a message; return why that cannot be."""
        try:
            self._deliver(message, None)
        except ProtocolError as error:
            why = Note(error.code, str(error))
            self.dropped(why, message.type)
            return why
        return None


def _place(request: PendingRequest | None) -> Place | None:
    """Return the cell of a notebook that a request runs, as JupyterLab and VS Code say it, or its batch."""
    if request is None or not request.is_execute:
        return None
    if request.batch is not None:
        return Place(request.id, request.id, notebook=request.batch)
    cell, gone = request.message.metadata.get("cellId"), request.message.metadata.get("deletedCells")
    if not isinstance(cell, str) or not 0 < len(cell) <= MAX_CELL_ID:
        return None
    gone = gone[:MAX_NOTICES] if isinstance(gone, list) else ()
    return Place(cell, request.id, tuple(one for one in gone if isinstance(one, str)))


def _verdict(
    policy: OutputPolicy, message: Message, place: Place | None = None, asked: Mapping[str, Any] | None = None
) -> Verdict:
    try:
        return policy.apply(message, place, asked)
    except RecursionError:
        return Verdict(None, (OutputCode.TOO_DEEP.note(),))


def _plain(error: SandboxError) -> dict[str, object]:
    """Return the content of an error with none but our own words in it."""
    return {"status": "error", "ename": error.name, "evalue": error.code.text, "traceback": []}


def error_content(request: PendingRequest, error: SandboxError) -> dict[str, object]:
    """Return the content of an error that the host writes, behind what the kernel itself said of it."""
    first, *rest = error.lines()
    return {
        "ename": error.name,
        "evalue": str(error),
        "traceback": [*request.traceback, f"\x1b[0;31m{error.name}\x1b[0m: {first}", *rest],
    }


def error_reply(request: PendingRequest, error: SandboxError) -> Message:
    """Return the reply that the host writes in place of the kernel's."""
    content = {"status": "error", **error_content(request, error)}
    if request.is_execute:
        content |= {"execution_count": request.execution_count, "user_expressions": {}, "payload": []}
    kind = request.reply_type or "error_reply"
    return Message(channel=request.message.channel, header={"msg_type": kind}, content=content)


def _leaves(request: PendingRequest) -> bool:
    """Return whether a person wrote what ends a console, and nothing else.

    Of a kernel's own wish to end a front end nothing passes: this is of the request, which no cell can write.
    """
    content = request.message.content
    return content.get("allow_stdin") is True and str(content.get("code", "")).strip() in EXITS
