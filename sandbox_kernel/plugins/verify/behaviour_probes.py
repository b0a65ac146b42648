"""What hostile cells do to the host's side: outputs that they show, and ends that they bring about.

The verdicts rest on the host's own word: the messages that a front end would get, an error that says it came from the
host, the engine's list, this machine's processes. Each cell that is to be ended ends by itself after a while, so that a
missing limit is a finding and not a wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from html.parser import HTMLParser
from typing import Any

from ...core.codes import EndCode
from ...core.errors import SandboxError
from ...core.helper_processes import environment_of_helpers
from ...core.model import MIB, Message, Settings
from ...engines.attested_start import attestations
from ...engines.inspectable import Inspectable
from ...sdk.client import AsyncSandbox
from ...sdk.execution import Execution
from . import probe_cells
from .attack_program import cell, heard, table
from .host_inspection import HIDDEN, PROC, members
from .probes import BY_CODE, Word
from .verdicts import ProbeFinding, ProbeVerdict, decided, failed, not_applicable, of_attacks

# --- outputs ----------------------------------------------------------------------------------------------------------

NOWHERE = "192.0.2.1"
FORGED = "forged-by-a-cell"
_HTML = (
    '<img src=x onerror="alert(1)"><a href="javascript:alert(1)">x</a><script>alert(1)</script>'
    '<svg onload="alert(1)"></svg><iframe src="javascript:alert(1)"></iframe>'
)
_LOADS = (
    f'<img src="http://{NOWHERE}/a"><link rel="stylesheet" href="http://{NOWHERE}/b">'
    f'<style>@import url("http://{NOWHERE}/c");</style><div style="background:url(http://{NOWHERE}/d)">x</div>'
    f'<iframe src="http://{NOWHERE}/e"></iframe><video poster="http://{NOWHERE}/f"></video>'
)
_BUNDLES: tuple[dict[str, str], ...] = (
    {"application/javascript": "alert(1)"},
    {"text/html": _HTML},
    {"text/markdown": "[x](javascript:alert(1)) <svg onload=alert(1)></svg> <script>alert(1)</script>"},
    {"image/svg+xml": '<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(1)</script></svg>'},
    {"text/html": _LOADS},
    {"text/markdown": f"![x](http://{NOWHERE}/g)"},
)
OUTPUTS_CELL = f"""
from IPython.display import publish_display_data
for _bundle in {_BUNDLES!r}:
    publish_display_data({{"text/plain": "shown", **_bundle}})
print("\\x1b]0;owned\\x07\\x1b]52;c;b3duZWQ=\\x07\\x1b[6n\\x1b[2J\\x9b2J shown")
_shell = get_ipython()
_shell.payload_manager.write_payload({{"source": "set_next_input", "text": "owned()", "replace": False}})
_kernel = _shell.kernel
for _type in ("stream", "execute_reply", "shutdown_reply", "kernel_info_reply", "{FORGED}"):
    for _parent in (_kernel.get_parent(), {{"header": {{**_kernel.get_parent()["header"], "msg_id": "{FORGED}"}}}}):
        _text = "{FORGED}" if _parent["header"]["msg_id"] == "{FORGED}" else ""
        _content = {{"name": "stdout", "text": _text, "status": "ok"}}
        _kernel.session.send(_kernel.iopub_socket, _kernel.session.msg(_type, _content, parent=_parent))
print("shown")
"""
"""Shows all of it."""

_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_OF_PUBLISHING = {
    *("status", "stream", "display_data", "update_display_data", "execute_result", "execute_input", "error"),
    *("clear_output", "comm_open", "comm_msg", "comm_close"),
}
"""What a kernel publishes while a cell runs."""
_LOADING = {"src", "srcset", "poster", "data", "background", "style", "xlink:href"}
OUTPUTS_TRUSTED = "outputs is trusted: whatever a cell shows is passed on as it came"


def of_outputs(messages: Sequence[Message], outputs: str) -> Iterator[ProbeFinding]:
    """Judge the messages of `OUTPUTS_CELL`; `outputs` is the mode of the output policy."""
    codes = ("output-script", "output-load", "output-terminal", "output-payload")
    shown = [message for message in messages if message.type in {"stream", "display_data"}]
    if not any("shown" in json.dumps(message.content, default=str) for message in shown):
        for code in (*codes, "output-forged"):
            yield failed(code, "the cell showed nothing")
        return
    yield _forged(messages)
    if outputs == "trusted":
        for code in codes:
            yield not_applicable(code, OUTPUTS_TRUSTED)
        return
    scripts, loads = [], []
    for data in [message.content["data"] for message in messages if message.type == "display_data"]:
        if "application/javascript" in data:
            scripts.append("application/javascript")
        for kind, value in data.items():
            if isinstance(value, str) and kind.startswith(("text/html", "text/markdown", "image/svg")):
                page = _Page(value)
                scripts += [f"{what} in {kind}" for what in page.scripts]
                loads += [f"{what} in {kind}" for what in page.loads]
    yield _none("output-script", scripts, "none is left outside of a frame without an origin")
    yield _none("output-load", loads, "none is left, and frames may load nothing")
    texts = [str(message.content["text"]) for message in messages if message.type == "stream"]
    found = sorted({f"{ord(one):#04x}" for text in texts for one in _CONTROLS.findall(_COLOURS.sub("", text))})
    yield _none("output-terminal", found, "none is left")
    payloads = [
        str(payload.get("source", "?")) if isinstance(payload, dict) else "?"
        for message in messages
        for payload in message.content.get("payload", ())
    ]
    yield _none("output-payload", payloads, "the reply has none")


def _none(code: str, found: Sequence[str], otherwise: str) -> ProbeFinding:
    return decided(code, not found, f"passed: {', '.join(dict.fromkeys(found))}"[:400] if found else otherwise)


def _forged(messages: Sequence[Message]) -> ProbeFinding:
    passed = [message for message in messages if message.channel == "iopub" and message.type not in _OF_PUBLISHING]
    # The host names the type of what it left out, in a line of its own.
    streams = [message for message in messages if message.type == "stream"]
    spoken = [message for message in streams if FORGED in str(message.content["text"]).splitlines()]
    if passed or spoken:
        kinds = ", ".join(dict.fromkeys(message.type for message in [*passed, *spoken]))
        return decided("output-forged", False, f"passed: {kinds}")
    return decided("output-forged", True, "each message that passed has a type of the table, and belongs to its cell")


class _Page(HTMLParser):
    """What acts or loads in a piece of HTML, frames with a document of their own looked at as frames."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.loads: list[str] = []
        self._style = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values: dict[str, str] = {name: value or "" for name, value in attrs}
        self._style = tag == "style"
        if tag == "script":
            self.scripts.append("a script")
        self.scripts += [name for name in values if name.startswith("on")]
        self.scripts += [name for name, value in values.items() if _acts(value)]
        if tag == "iframe":
            self._frame(values)
        self.loads += [f"{tag} {name}" for name, value in values.items() if name in _LOADING and NOWHERE in value]
        if tag == "link" and NOWHERE in values.get("href", ""):
            self.loads.append("link href")

    def _frame(self, values: dict[str, Any]) -> None:
        inner, sandbox = values.get("srcdoc", ""), values.get("sandbox")
        if sandbox is None or "allow-same-origin" in sandbox:
            self.scripts.append("a frame with an origin")
        if inner and "default-src 'none'" not in inner:
            self.loads.append("a frame without a policy")

    def handle_endtag(self, tag: str) -> None:
        self._style = False

    def handle_data(self, data: str) -> None:
        if self._style and NOWHERE in data:
            self.loads.append("a style")


def _acts(value: str) -> bool:
    return re.sub(r"[\x00-\x20]", "", value).lower().startswith(("javascript:", "vbscript:", "data:text/html"))


# --- ends: of sandboxes that are fresh and small ----------------------------------------------------------------------

CELL_SECONDS = 1.5
"""The limit of the cell that never ends."""
BY_ITSELF_SECONDS = 25.0
"""When it ends by itself after all."""
OWNER_SECONDS = 30.0
LEFT_SECONDS = 10.0
"""How long what ends may take to be gone."""


def of_end(code: str, execution: Execution, wanted: EndCode) -> ProbeFinding:
    """Judge a cell that the host was to end for a reason."""
    error = execution.error
    if error is None:
        return decided(code, False, "the cell ended by itself, and well")
    ended = f"{error.name} after {execution.seconds:.1f} s"
    if not error.from_sandbox:
        return decided(code, False, f"the cell ended by itself: {ended}")
    return decided(code, error.code == wanted.code, f"the host ended it: {ended}")


def of_processes(execution: Execution, *, gvisor: bool) -> ProbeFinding:
    """Judge a cell that started processes without end."""
    code = "limit-processes"
    error, name = execution.error, "processes_without_end"
    said = heard("".join(execution.logs.stdout), [name])
    if gvisor and error is not None and error.code == EndCode.OUT_OF_MEMORY.code:
        why = "gVisor's processes are none of the host's, which does not count them: they ended at the limit of memory"
        return not_applicable(code, why)
    probe = BY_CODE[code]._replace(attacks=(name,))
    return of_attacks(probe, table(), said, gvisor=False)


async def flood_kill_and_memory(sandbox: AsyncSandbox, wanted: set[str]) -> list[ProbeFinding]:
    """Flood the host, kill the kernel, and use up the memory, in this order."""
    limits, found = sandbox.settings.limits, []
    if "end-output" in wanted:
        execution = await sandbox.run_code(probe_cells.FLOOD.format(lines=limits.output_limit * 4 // 65536))
        found.append(of_end("end-output", execution, EndCode.OUTPUT_TOO_LARGE))
    if "end-kernel" in wanted:
        execution = await sandbox.run_code(probe_cells.KILL)
        killed = of_end("end-kernel", execution, EndCode.KERNEL_DIED)
        after = await sandbox.run_code("6 * 7")
        more = "the next cell ran" if after.text == "42" else f"the next cell did not run: {after.error}"
        fine = killed.verdict is ProbeVerdict.PASS and after.text == "42"
        found.append(decided("end-kernel", fine, f"{killed.happened}; {more}"))
    if "limit-memory" in wanted:
        execution = await sandbox.run_code(probe_cells.MEMORY.format(size=limits.memory + 64 * MIB))
        found.append(of_end("limit-memory", execution, EndCode.OUT_OF_MEMORY))
    return found


async def busy_and_many(
    sandbox: AsyncSandbox,
    wanted: set[str],
    marker: str,
    planted: asyncio.Event,
    *,
    gvisor: bool,
    more: Mapping[str, object],
) -> list[ProbeFinding]:
    """Look for what another sandbox has left, run without end, and start processes without end, in this order.

    `more` is what attacks are given besides: how long one may take, where that is not the usual time.
    """
    found = []
    if "plant-next" in wanted:
        await sandbox.start()
        await planted.wait()
        execution = await sandbox.run_code(probe_cells.LOOK.format(marker=marker))
        there = ", ".join("".join(execution.logs.stdout).split())[:200]
        looked = execution.error is None
        text = f"found in {there}" if there else "nothing of it was there" if looked else f"{execution.error}"
        found.append(decided("plant-next", looked and not there, text, Word.SANDBOX))
    if "end-time" in wanted:
        execution = await sandbox.run_code(probe_cells.BUSY.format(seconds=BY_ITSELF_SECONDS), timeout=CELL_SECONDS)
        found.append(of_end("end-time", execution, EndCode.CELL_TIMEOUT))
    if "limit-processes" in wanted:
        given = {**more, "limits": asdict(sandbox.settings.limits)}
        execution = await sandbox.run_code(cell(["processes_without_end"], given))
        found.append(of_processes(execution, gvisor=gvisor))
    return found


async def attested(settings: Settings, engine: Inspectable) -> list[ProbeFinding]:
    """Compare a sandbox with what was asked for, and with what was not."""
    lines, other = await attestations(settings, engine)
    wrong = [line.sentence for line in lines if not line.ok]
    seen = [line.name for line in other if not line.ok]
    text = "; ".join(wrong)[:400] if wrong else f"all {len(lines)} comparisons hold"
    others = f"{len(seen)} differences seen: {', '.join(seen)[:200]}" if seen else "no difference was seen"
    return [
        decided("technology-attested", not wrong, text),
        decided("technology-attestation-sees", bool(seen), others),
    ]


async def orphaned(settings: Settings, engine: Inspectable) -> ProbeFinding:
    """Have a process own a sandbox, kill it with SIGKILL, and see what becomes of the sandbox."""
    given = {
        "engine": engine.address,
        "runtime": settings.runtime,
        "image": settings.image,
        "limits_kept": settings.limits_kept,
        "limits": asdict(settings.limits),
    }
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", probe_cells.OWNER),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd="/",
        env=environment_of_helpers(),
    )
    try:
        async with asyncio.timeout(settings.limits.start_timeout + OWNER_SECONDS):
            if owner.stdin is None or owner.stdout is None:
                return failed("end-owner", "no pipe to a process of its own")
            owner.stdin.write(json.dumps(given).encode() + b"\n")
            await owner.stdin.drain()
            session = (await owner.stdout.readline()).decode().strip()
    except TimeoutError:
        session = ""
    finally:
        with contextlib.suppress(ProcessLookupError):
            owner.kill()
        await owner.wait()
    if not session:
        return failed("end-owner", "the owner could not start its sandbox")
    began = time.monotonic()
    left = await _left(engine, {session})
    text = f"its owner was killed; {'it is still there' if left else 'it was gone'} after"
    return decided("end-owner", not left, f"{text} {time.monotonic() - began:.1f} s")


async def remains(engine: Inspectable, sessions: set[str], containers: set[str]) -> list[ProbeFinding]:
    """Look for what is left of sandboxes that have ended: in the engine's list, and among this machine's processes."""
    left = await _left(engine, sessions)
    text = f"{len(left)} of {len(sessions)} are left" if left else f"none of {len(sessions)} is left"
    running = [pid for container in containers for pid in members(container, await engine.shown(container))]
    processes = f"{len(running)} are left" if running else f"none of {len(containers)} sandboxes' is left"
    code = "end-processes"
    seen = decided(code, not running, processes) if PROC.is_dir() else not_applicable(code, HIDDEN)
    return [decided("end-containers", not left, text), seen]


async def _left(engine: Inspectable, sessions: set[str]) -> list[str]:
    """Return the containers that sessions still have after they had time to go."""
    until = time.monotonic() + LEFT_SECONDS
    while True:
        left = [row.container for row in await engine.list() if row.session in sessions]
        if not left or time.monotonic() > until:
            return left
        await asyncio.sleep(0.1)


def reason(error: SandboxError | TimeoutError) -> str:
    return f"it could not be tried: {error}"[:400]
