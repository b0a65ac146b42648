"""The parts of the MCP server that need no sandbox: what an answer holds, what is kept, and what may be listened on."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys

import orjson
import pytest

from sandbox_kernel.cli import main
from sandbox_kernel.config.sources import from_keywords
from sandbox_kernel.core.codes import Survived
from sandbox_kernel.core.errors import CellTimeout, OutOfMemory, SandboxDied
from sandbox_kernel.core.model import Settings
from sandbox_kernel.core.package_files import brought
from sandbox_kernel.plugins import index
from sandbox_kernel.plugins.mcp import output_store
from sandbox_kernel.plugins.mcp import server as catalogue
from sandbox_kernel.plugins.mcp.answer_writer import AnswerLimits, Writer, error_text, plain, short_traceback, shorten
from sandbox_kernel.plugins.mcp.clients import McpClient, RefusedCall, ServerLimits
from sandbox_kernel.plugins.mcp.output_store import OutputStore, file_address, parse
from sandbox_kernel.plugins.mcp.tool_functions import DownloadFile, _as_text
from sandbox_kernel.sdk.client import AsyncSandbox
from sandbox_kernel.sdk.execution import Execution, ExecutionError, Logs, Result


def blocks_of(execution: Execution, limits: AnswerLimits | None = None) -> list[dict[str, object]]:
    made = Writer(OutputStore("main"), limits or AnswerLimits()).execution(execution)
    return [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in made]


# --- answers ---------------------------------------------------------------------------------------------------------


def test_a_progress_bar_is_shown_in_its_last_state_and_without_colours() -> None:
    assert plain("\r  0%\r 50%\r100%\n\x1b[31mred\x1b[0m\r\n") == "100%\nred\n"


def test_a_shortened_text_says_how_much_is_left_out() -> None:
    shown, left = shorten("a" * 600 + "b" * 600, 300)
    assert left == 900
    assert shown.startswith("a" * 200 + "\n[... 900 characters are left out ...]\n")
    assert shown.endswith("b" * 100)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (CellTimeout("too long", limit="3 s", kept=Survived.VARIABLES_AND_FILES), ["3 s", "smaller steps"]),
        (OutOfMemory("too much", kept=Survived.FILES), ["All variables and imports are gone", "chunks"]),
        (SandboxDied("it was killed", kept=Survived.NOTHING), ["all files are gone", "upload files again"]),
    ],
)
def test_the_text_of_a_limit_says_what_is_left_and_what_to_do(error: Exception, words: list[str]) -> None:
    text = error_text(ExecutionError.of(error))  # type: ignore[arg-type]
    assert text.startswith(f"Error: {type(error).__name__}: ")
    assert all(word in text for word in words), text


def test_a_cell_cannot_fake_what_the_sandbox_says_of_a_limit() -> None:
    """An exception that is only called OutOfMemory takes nothing away."""
    text = error_text(ExecutionError(name="OutOfMemory", value="x", traceback="OutOfMemory: x"))
    assert "gone" not in text


def test_a_long_traceback_keeps_its_beginning_and_its_end() -> None:
    lines = short_traceback("\n".join(f"line {number}" for number in range(1000))).splitlines()
    assert len(lines) <= 31
    assert (lines[0], lines[-1]) == ("line 0", "line 999")


@pytest.mark.slow
def test_the_largest_answer_is_within_its_limit_and_the_error_is_still_in_it() -> None:
    picture = base64.b64encode(os.urandom(150_000)).decode()
    wide = Result({"text/plain": '\u2028"\x07ä' * 20_000})
    execution = Execution(
        logs=Logs(['"\n' * 2_000_000], ["ä" * 2_000_000]),
        results=[Result({"image/png": picture, "text/plain": "<Figure size 1x1 with 1 Axes>"}), wide] * 80,
        error=ExecutionError(name="ValueError", value="\n" * 1_000_000, traceback="x\n" * 100_000),
    )
    blocks = blocks_of(execution, AnswerLimits(answer_bytes=950_000))
    assert len(orjson.dumps(blocks)) < 1_048_576
    kinds = [block["type"] for block in blocks]
    assert kinds.count("image") >= 2
    assert any(str(block.get("text", "")).startswith("Error: ValueError") for block in blocks)
    assert any("more displays are left out" in str(block.get("text", "")) for block in blocks)


@pytest.mark.parametrize(
    "text",
    [
        "<pandas.io.formats.style.Styler at 0x7fde977ec980>",
        "<__main__.f.<locals>.T at 0x7feb640a7b0>",
        "<IPython.core.display.HTML object>",
        "<a.B object at 0x7f>",
    ],
)
def test_what_has_no_text_but_a_page_is_shown_as_the_page(text: str) -> None:
    (block,) = blocks_of(Execution(results=[Result({"text/plain": text, "text/html": "<b>the table</b>"})]))
    assert block["text"] == "<b>the table</b>"


def test_text_in_angle_brackets_is_text() -> None:
    (block,) = blocks_of(Execution(results=[Result({"text/plain": "<b> at 7", "text/html": "<b>the table</b>"})]))
    assert block["text"] == "<b> at 7"


def test_markup_that_shows_pictures_is_its_text_and_the_pictures() -> None:
    """A model that reads base64 has its context full, and has seen nothing."""
    png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
    page = f'<p><img src="data:image/png;base64,{png}"></p>'
    text, *images = blocks_of(Execution(results=[Result({"text/plain": "# x\n![p](p.png)", "text/html": page * 2})]))
    assert text["text"] == "# x\n![p](p.png)"
    assert [(image["type"], image["data"]) for image in images] == [("image", png)] * 2
    film = f"<video src='data:video/mp4;base64,{png}'></video>"
    link, *_ = blocks_of(
        Execution(results=[Result({"text/plain": "<IPython.core.display.HTML object>", "text/html": film})])
    )
    assert link["type"] == "resource_link"


def test_a_part_that_cuts_a_character_is_still_text() -> None:
    data = "Größe ✓".encode()
    for begin in range(len(data)):
        for end in range(begin + 1, len(data) + 1):
            given = DownloadFile(path="x", offset=begin, length=end - begin)
            assert _as_text(data[begin:end], given) is not None
    assert _as_text(b"\xff\xfe", DownloadFile(path="x")) is None
    assert _as_text(b"a\xffb", DownloadFile(path="x", offset=1)) is None


def test_every_link_of_an_answer_leads_somewhere() -> None:
    place = OutputStore("main")
    long = Result({"text/plain": "x" * 30_000})
    made = Writer(place, AnswerLimits()).execution(Execution(logs=Logs(["y" * 40_000]), results=[long] * 99))
    links = [block.uri for block in made if block.type == "resource_link"]
    assert len(links) > 10
    for link in links:
        address = parse(link)
        assert address is not None
        assert place.get(address.name) is not None


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_the_oldest_outputs_go_when_there_are_too_many_or_they_are_too_large() -> None:
    place = OutputStore("main")
    for _ in range(output_store.KEPT + 10):
        place.put("x", "text/plain", ".txt")
    assert len(place.all()) == output_store.KEPT
    assert place.get("1.txt") is None
    for _ in range(4):
        place.put(b"x" * output_store.OUTPUT_BYTES, "image/png", ".png")
    assert sum(output.size for output in place.all()) <= output_store.KEPT_BYTES
    place.put("y" * (output_store.OUTPUT_BYTES + 5), "text/plain", ".txt")
    assert place.all()[-1].size < output_store.OUTPUT_BYTES + 100
    assert "cut after" in str(place.all()[-1].data)[-40:]


def test_an_address_names_a_session_and_what_is_in_it() -> None:
    for path in ("a.csv", "b/ä ö?#%25.txt", "../x"):
        address = parse(file_address("main", path))
        assert address is not None
        assert (address.session, address.kind, address.name) == ("main", "files", path)
    part = parse("sandbox://s-1/files/a?offset=5&length=7")
    assert part is not None
    assert (part.offset, part.length) == (5, 7)
    for wrong in (
        "file:///etc/passwd", "sandbox://", "sandbox://main", "sandbox://main/files/", "sandbox:///files/a",
        "sandbox://../files/a", "sandbox://main/other/a", "sandbox://main/files/a?offset=-1", "sandbox://main/files/a#b",
        "sandbox://main/files/a?x=1", "sandbox://main/files/a?offset=" + "9" * 40, "sandbox://main/files/" + "a" * 9000,
    ):  # fmt: skip
        assert parse(wrong) is None, wrong


# --- what a model is told --------------------------------------------------------------------------------------------


def test_the_descriptions_give_the_limits_of_the_settings() -> None:
    settings = from_keywords(memory="3G", cell_timeout=77, cpus=1.5, idle_timeout="20m", scratch_size="600M")
    tools = {
        handler.tool.name: handler.tool for handler in catalogue.handlers(settings, ServerLimits(text_characters=4321))
    }
    said = tools["run_code"].description or ""
    for word in ("3.0 GiB", "77 seconds", "1.5 processors", "20 min", "600.0 MiB", "4,321", "No network", "/mnt/data"):
        assert word in said, word
    assert all((tool.description or "")[-1] == "." for tool in tools.values())


def test_the_description_names_the_packages_of_the_default_image_and_of_no_other() -> None:
    listed = [line for line in (brought("images") / "data.in").read_text().splitlines() if line[:1].isalpha()]
    limits = ServerLimits()
    said = catalogue.handlers(Settings(), limits)[0].tool.description or ""
    fonts = {name for name in listed if name.startswith(("noto-", "fontpkg-"))}  # which no model imports
    assert {name for name in listed if name not in said} == fonts
    assert fonts
    assert "numpy, pandas" not in (catalogue.handlers(Settings(image="mine"), limits)[0].tool.description or "")


# --- the command -----------------------------------------------------------------------------------------------------


def command_line(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    code = f"import sys\n{before}\nfrom sandbox_kernel.cli import main\nsys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", code, "mcp", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        input="",
    )


def test_a_missing_package_is_said_with_the_extra_that_brings_it() -> None:
    done = command_line(before="sys.modules['mcp'] = None")
    assert done.returncode == 2
    assert "pip install 'mcp>=2'" in done.stderr
    assert "Traceback" not in done.stderr


WRONG = {
    "--memory lots": "memory",
    "--http --host 0.0.0.0": "--allow-remote",
    "--http --downloads FOLDER": "replace each other's files",
    "--sessions 0": "1 to 1000",
    "--away-timeout soon": "away-timeout",
    "--text-limit 5": "1,000",
    "--tokn-file x": "tokn_file",
}
EACH_BY_ITSELF = """
import contextlib, io, json, sys
from sandbox_kernel.cli import main
for line in sys.argv[1:]:
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            code = main(["mcp", *line.split()])
        except SystemExit as end:
            code = end.code
    print(json.dumps([code, said.getvalue()]))
"""


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """What the command made of each line: its exit code, and what it said. One process, for its start takes longest."""
    lines = [line.replace("FOLDER", str(tmp_path_factory.mktemp("downloads"))) for line in WRONG]
    command = [sys.executable, "-c", EACH_BY_ITSELF, *lines]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=60, stdin=subprocess.DEVNULL)
    ends = [tuple(json.loads(line)) for line in done.stdout.splitlines()]
    return dict(zip(WRONG, ends, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_argument_is_one_clear_sentence(line: str, refused: dict[str, tuple[int, str]]) -> None:
    code, said = refused[line]
    assert code == 2, said
    assert WRONG[line] in " ".join(said.split())
    assert "Traceback" not in said


async def test_a_session_has_one_sandbox_and_leaves_none_if_it_is_ended_while_that_starts() -> None:
    """Whoever lists files meanwhile waits for it: once, that made another one, which nobody ended."""
    may, begun, given_up = asyncio.Event(), [], []

    async def make(name: str) -> AsyncSandbox:
        begun.append(name)
        try:
            await may.wait()
        except asyncio.CancelledError:
            given_up.append(name)
            raise
        return AsyncSandbox(Settings())

    client = McpClient(ServerLimits(), make)

    async def use(name: str, *, make: bool = True) -> AsyncSandbox:
        async with client.use(name, make=make) as (session, _):
            return session.sandbox

    using = asyncio.create_task(use("main"))
    await asyncio.sleep(0)  # the session is there
    looking = asyncio.create_task(use("main", make=False))
    await asyncio.sleep(0)  # it has begun
    await client.end("main")
    for one in (using, looking):
        with pytest.raises(RefusedCall, match="ended while it started"):
            await one
    assert begun == given_up == ["main"]
    waiting = [asyncio.create_task(use("other")), asyncio.create_task(use("other"))]
    await asyncio.sleep(0)
    waiting[0].cancel()  # which takes nothing from the other call
    may.set()
    assert isinstance(await waiting[1], AsyncSandbox)  # the control
    await client.leave()
    assert begun == ["main", "other"]
    with pytest.raises(RefusedCall, match="closed"):
        await use("third")


def test_over_http_it_says_that_the_plugin_serve_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(index, "is_here", lambda name: name != "serve")
    assert main(["mcp", "--http"]) == 2
    assert "the plugin serve is not a part of this installation" in capsys.readouterr().err
