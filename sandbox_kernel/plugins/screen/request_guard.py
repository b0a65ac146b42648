"""What the screen says of a request before it goes into the sandbox: let it pass, warn, ask, or block it.

The rules are imported with the first request that is looked at. Knows no container and no socket.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...core.codes import Code, EndCode, Survived
from ...core.errors import ScreenBlocked
from ...core.events import ABSENT, SessionEvent
from ...core.model import Message, Settings
from ..api import Question, Review, SessionHandle, SessionService
from .settings import ScreenSettings

if TYPE_CHECKING:
    from ...core.screen_findings import Finding, Screened
    from .judges import Judges
    from .screen import CellScreen

MAX_EXPRESSIONS = 100
"""Of one request; one with more is not let through where the screen blocks."""
MAX_NOTED = 50
"""CellFindings of one cell that the audit lists."""
MAX_ASKED = 10
"""Findings that a question lists; the gravest come first."""
_RUNS = {"evaluate": "expression", "setExpression": "value", "setVariable": "value"}
"""Questions of a debugger that run code, and where it stands."""


class CellScreened(SessionEvent):
    """A cell was looked at before it ran, and something was found."""

    name = "screen"
    code: Code | None
    blocked: bool
    score: int
    findings: list[dict[str, Any]]
    allowed: list[dict[str, Any]]
    answer: str = ABSENT
    """Of the person who was asked: yes, or why it is none."""
    judges: list[dict[str, Any]] = ABSENT
    """What judges of the operator's say of it; their words are not ours."""


class ScreenGuard(SessionService):
    """The screen of one session: a `CellGuard`."""

    def __init__(self, settings: Settings, session: SessionHandle) -> None:
        self._settings = settings.of(ScreenSettings)
        self._emit = session.emit
        self._made: CellScreen | None = None
        self._judges: Judges | None = None
        if self._settings.screen_judges or self._settings.screen_command:
            from .judges import Judges

            self._judges = Judges(self._settings)

    @property
    def _screen(self) -> CellScreen:
        if self._made is None:
            from .operator_rules import changes
            from .rule_index import RuleIndex
            from .screen import CellScreen

            text = self._settings.screen_rules
            index = None if text is None else RuleIndex(changes(text))
            self._made = CellScreen.of(self._settings, index)
        return self._made

    def kernel_gone(self) -> None:
        """Forget the names of a kernel that is gone."""
        if self._made is not None:
            self._made.forget()

    def preview(self, code: str) -> Screened:
        """Return what would be found in a cell that ran next."""
        return self._screen.look(code, runs=False)

    def review(self, request: Message, reads: str | None = None) -> Review:
        """Return what is found in a request, and the error that ends it; nothing where no code would run.

        A cell magic above what is read in place of the request's code is ours, and no line of the caller's.
        """
        if self._settings.screen == "off":
            return Review()
        code, expressions = _code_of(request) if reads is None else (reads, ())
        if code is None:
            return Review()
        found = self._screen.look(code, expressions[:MAX_EXPRESSIONS], runs=False)
        if reads is not None and reads.startswith("%%"):
            found = found.without_first(1)
        many = len(expressions) > MAX_EXPRESSIONS
        is_blocked = self._settings.screen == "block" and self._is_grave(found, many=many)
        judged = "\n".join((code, *expressions[:MAX_EXPRESSIONS]))
        if self._judges is None or is_blocked or not judged.strip():
            return self._said(code, found, many=many)
        return Review(later=partial(self._judged, self._judges, code, judged, found, many=many))

    async def _judged(self, judges: Judges, code: str, judged: str, found: Screened, *, many: bool) -> Review:
        """Ask the judges about a cell, and say what comes of all that is known of it."""
        opinions = await judges.ask(judged, found)
        found = self._screen.with_opinions(code, found, opinions)
        return self._said(code, found, many=many, opinions=[one.to_json() for one in opinions])

    def _is_grave(self, found: Screened, *, many: bool) -> bool:
        return self._settings.screen != "warn" and (many or found.score >= self._settings.screen_threshold)

    def _said(self, code: str, found: Screened, *, many: bool, opinions: Sequence[Mapping[str, Any]] = ()) -> Review:
        grave = self._is_grave(found, many=many)
        if grave and self._settings.screen == "ask":
            text = _question(found, self._settings.screen_threshold, many=many)
            return Review(found.findings, question=Question(text, partial(self._decide, code, found, opinions)))
        if not grave:
            self._screen.ran(code)
        if found.findings or many or opinions:
            self._note(found, opinions, blocked=grave)
        if grave:
            return Review(found.findings, self._error(found))
        return Review(found.findings, warning=_warning(found.findings))

    def _decide(
        self, code: str, found: Screened, opinions: Sequence[Mapping[str, Any]], why: str | None
    ) -> ScreenBlocked | None:
        """Take a person's answer: None for a yes, or why it is none."""
        self._note(found, opinions, blocked=why is not None, answer=why or "yes")
        if why is not None:
            return self._error(found, why)
        self._screen.ran(code)
        return None

    def _error(self, found: Screened, why: str = "") -> ScreenBlocked:
        return ScreenBlocked(
            [one.sentence() for one in found.counted],
            score=found.score,
            threshold=self._settings.screen_threshold,
            kept=Survived.VARIABLES_AND_FILES,
            why=why,
        )

    def _note(
        self, found: Screened, opinions: Sequence[Mapping[str, Any]], *, blocked: bool, answer: str = ABSENT
    ) -> None:
        self._emit(
            CellScreened(
                code=EndCode.SCREEN_BLOCKED if blocked else None,
                blocked=blocked,
                score=found.score,
                findings=[{"code": one.code, "line": one.line} for one in found.counted[:MAX_NOTED]],
                allowed=[_allowed(one) for one in found.findings if one.allowed],
                answer=answer,
                judges=[dict(one) for one in opinions] if opinions else ABSENT,
            )
        )


def _allowed(one: Finding) -> dict[str, Any]:
    """Return what allowed a finding, with its owner and its end where it has them."""
    named = {name: value for name, value in (("by", one.by), ("until", one.until)) if value is not None}
    return {"code": one.code, "line": one.line, "reason": one.allowed, **named}


def _question(found: Screened, threshold: int, *, many: bool) -> str:
    """Return what a person is asked; the details of findings come from the code, and are short and printable."""
    counted = sorted(found.counted, key=lambda one: -one.weight)
    more = [f"  and {len(counted) - MAX_ASKED} more"] if len(counted) > MAX_ASKED else []
    more += [f"  it comes with more than {MAX_EXPRESSIONS} expressions, which are not all read"] if many else []
    lines = [f"  {one.sentence()}" for one in counted[:MAX_ASKED]]
    head = f"[sandbox_kernel] This cell has not run. The screen gives it {found.score} points (threshold: {threshold}):"
    return "\n".join([head, *lines, *more])


def _warning(findings: tuple[Finding, ...]) -> str | None:
    """Return the one line that a person is told, None if nothing counts."""
    counted = sorted((one for one in findings if one.allowed is None), key=lambda one: -one.weight)
    if not counted:
        return None
    first, more = counted[0], len(counted) - 1
    codes = ", ".join(one.code for one in counted[1:4])
    rest = f"; and {more} more: {codes}{' …' if more > 3 else ''}" if more else ""
    return f"screen: {first.sentence()}{rest}"


def _code_of(message: Message) -> tuple[str | None, tuple[str, ...]]:
    """Return the code that a request would run, and the expressions that come with it."""
    content = message.content
    if message.type == "execute_request":
        expressions = content.get("user_expressions")
        given = expressions.values() if isinstance(expressions, Mapping) else ()
        return str(content.get("code", "")), tuple(str(one) for one in given)
    if message.type == "debug_request":
        arguments: Any = content.get("arguments")
        place = _RUNS.get(str(content.get("command")))
        if isinstance(arguments, Mapping) and place is not None:
            return str(arguments.get(place, "")), ()
        if isinstance(arguments, Mapping) and isinstance(points := arguments.get("breakpoints"), list):
            texts = [
                str(one.get(name, ""))
                for one in points
                if isinstance(one, Mapping)
                for name in ("condition", "logMessage")
            ]
            return "", tuple(text for text in texts if text)
    return None, ()
