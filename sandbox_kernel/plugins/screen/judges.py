"""Who is asked about cells besides the rules: functions and programs of the operator's, each in a process of its own.

They run on the host with the operator's rights, and read hostile code: each answer is bounded in time and size, and is
taken for the words of somebody else. A function's process stays and serves all sessions of this process; a program is
started for each cell. Neither sees the variables or the folder of this process.
"""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...core.codes import Code
from ...core.helper_processes import environment_of_helpers
from ...core.screen_findings import MAX_SCORE, WEIGHTS, Screened
from .cell_findings import printable_line
from .codes import ScreenCode
from .settings import ScreenSettings

MAX_CODE = 1 << 20
"""Characters of code that a judge is asked about."""
MAX_ANSWER = 1 << 16
"""Bytes of an answer."""
MAX_REASON = 200
MAX_KEPT = 1000
"""Answers about earlier cells that a session keeps."""
LOAD_SECONDS = 60.0
"""How long the process of a function may take to import it, such as a model; the first cell waits for that."""
MAX_ASKED = 2
"""Cells that judges are asked about at a time, by all sessions of this process."""


class JudgeFailedError(Exception):
    """A judge gave no answer; `str` says why, and may have its words."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """What one judge says of a cell."""

    judge: str
    weight: int
    """Points; of one that failed, what that counts for."""
    words: str
    """The judge's own, or why there are none: one printable line."""
    code: Code = ScreenCode.SECOND_OPINION
    seconds: float = 0.0
    """How long it took; 0 if it had said so before."""

    @property
    def sentence(self) -> str:
        if self.code is ScreenCode.JUDGE_FAILED:
            return f"{self.judge} was asked, and gave no answer: {self.words}"
        return f"{self.judge} gives it {self.weight} points, and says: {self.words!r}"

    def to_json(self) -> dict[str, Any]:
        """Return it as the record has it."""
        failed = self.code is ScreenCode.JUDGE_FAILED
        said = {"failed": self.words} if failed else {"score": self.weight, "says": self.words}
        return {"judge": self.judge, **said, "seconds": round(self.seconds, 3)}


class Judges:
    """The judges of one session, and what they have said in it."""

    def __init__(self, settings: ScreenSettings) -> None:
        self._seconds = settings.screen_judge_seconds
        self._of_failure = MAX_SCORE if settings.screen_judge_fails == "block" else WEIGHTS["low"]
        self._judges = [function_judge(name) for name in settings.screen_judges]
        if settings.screen_command:
            self._judges.append(Judge(settings.screen_command[0], settings.screen_command))
        self._kept: OrderedDict[bytes, Opinion] = OrderedDict()

    async def ask(self, code: str, found: Screened) -> list[Opinion]:
        """Return what each judge says, asked in another thread; all of it within a bound."""
        most = LOAD_SECONDS + len(self._judges) * (LOAD_SECONDS + self._seconds)
        asked = asyncio.get_running_loop().run_in_executor(_threads(), self.opinions, code, found)
        try:
            return await asyncio.wait_for(asked, most)
        except TimeoutError:  # it waits behind others' cells, or for a thread that does
            return [self._failed(one, "it is asked about too many cells of others") for one in self._judges]

    def opinions(self, code: str, found: Screened) -> list[Opinion]:
        """Return what each judge says; waits for it."""
        findings = [one.to_json() for one in found.findings]
        question = json.dumps({"version": 1, "code": code, "score": found.score, "findings": findings}).encode()
        return [self._opinion(judge, question, len(code)) for judge in self._judges]

    def _opinion(self, judge: Judge, question: bytes, size: int) -> Opinion:
        key = hashlib.sha256(judge.name.encode() + b"\0" + question).digest()
        if (kept := self._kept.get(key)) is not None:
            with suppress(KeyError):  # another thread may forget it just now
                self._kept.move_to_end(key)
            return kept
        begun = time.monotonic()
        try:
            if size > MAX_CODE:
                raise JudgeFailedError(f"the cell has more than {MAX_CODE} characters")
            score, reason = _read(judge.ask(question, self._seconds))
        except (JudgeFailedError, OSError) as error:
            return self._failed(judge, str(error), time.monotonic() - begun)
        opinion = Opinion(judge.name, score, reason)
        self._kept[key] = opinion
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return Opinion(judge.name, score, reason, seconds=time.monotonic() - begun)

    def _failed(self, judge: Judge, why: str, seconds: float = 0.0) -> Opinion:
        words = printable_line(why, MAX_REASON)
        return Opinion(judge.name, self._of_failure, words, ScreenCode.JUDGE_FAILED, seconds)


def _read(answer: bytes) -> tuple[int, str]:
    """Return the points and the reason of an answer, which may hold anything. Raises `JudgeFailedError`."""
    try:
        said = json.loads(answer)
        if isinstance(said, dict) and "error" in said:
            raise JudgeFailedError(str(said["error"]))
        score, reason = said["score"], said.get("reason", "")
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= MAX_SCORE:
            raise JudgeFailedError(f"its score is {score!r}, and no number from 0 to {MAX_SCORE}")
        return round(score), printable_line(str(reason), MAX_REASON)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise JudgeFailedError(f"it answered {answer[:80]!r}, which is no object of JSON with a score") from None


class Judge:
    """One judge: a program that is started for each cell, or one that `stays` and answers line by line."""

    def __init__(self, name: str, arguments: Sequence[str], *, stays: bool = False) -> None:
        self.name = name
        self._arguments = arguments
        self._stays = stays
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def ask(self, question: bytes, seconds: float) -> bytes:
        """Return its answer. Raises `JudgeFailedError` and `OSError`."""
        if not self._lock.acquire(timeout=LOAD_SECONDS + seconds):
            raise JudgeFailedError("it is busy with cells of others")
        try:
            process, done = self._started(), False
            try:
                answer = self._exchanged(process, question + b"\n", seconds)
                done = self._stays
            finally:
                if not done:
                    self.end()
            return answer
        finally:
            self._lock.release()

    def _started(self) -> subprocess.Popen[bytes]:
        """Return its process; one that stays has said that it is ready."""
        if self._process is not None:
            return self._process
        self._process = process = subprocess.Popen(
            self._arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=environment_of_helpers(),
            start_new_session=True,
            bufsize=0,
        )
        if self._stays:
            try:
                ready = self._exchanged(process, b"", LOAD_SECONDS)
                if ready.strip() != b"{}":
                    _read(ready)
            except BaseException:
                self.end()
                raise
        return process

    def _exchanged(self, process: subprocess.Popen[bytes], question: bytes, seconds: float) -> bytes:
        """Write a question and return the answer: a line of one that stays, else all until it ends."""
        assert process.stdin is not None  # noqa: S101 (for the type)
        assert process.stdout is not None  # noqa: S101 (as well)
        until, rest, answer = time.monotonic() + seconds, memoryview(question), bytearray()
        to, of = process.stdin.fileno(), process.stdout.fileno()
        ways = select.poll()
        ways.register(of, select.POLLIN)
        if question:
            os.set_blocking(to, False)
            ways.register(to, select.POLLOUT)
        while True:
            ready = dict(ways.poll(max(0.0, until - time.monotonic()) * 1000))
            if not ready:
                raise JudgeFailedError(f"it took longer than {seconds:g} s")
            if to in ready:
                try:
                    rest = rest[os.write(to, rest) :]
                except BrokenPipeError:  # it may answer without having read all
                    rest = rest[:0]
                if not rest:
                    ways.unregister(to)
                    if not self._stays:
                        process.stdin.close()
            if of not in ready:
                continue
            data = os.read(of, MAX_ANSWER)
            answer += data
            if len(answer) > MAX_ANSWER:
                raise JudgeFailedError(f"its answer has more than {MAX_ANSWER} bytes")
            if self._stays and not data:
                raise JudgeFailedError("its process has ended")
            if self._stays and data.endswith(b"\n"):
                return bytes(answer)
            if not data:
                return self._ended(process, bytes(answer), until)

    def _ended(self, process: subprocess.Popen[bytes], answer: bytes, until: float) -> bytes:
        try:
            code = process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise JudgeFailedError("it did not end in time") from None
        if code:
            raise JudgeFailedError(f"it ended with {code}")
        return answer

    def end(self) -> None:
        """End its process with all that this has started."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


@cache
def function_judge(name: str) -> Judge:
    """Return the judge that a function is, the same for all sessions of this process."""
    judge = Judge(name, (sys.executable, "-I", "-m", f"{__package__}.judge_process", name), stays=True)
    atexit.register(judge.end)
    return judge


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_ASKED, thread_name_prefix="sandbox-judges")
