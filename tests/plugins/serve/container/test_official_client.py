"""The official client of E2B, as it comes from PyPI, against a real server."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.config.sources import from_keywords
from sandbox_kernel.engines.abilities import Ability, abilities_of
from sandbox_kernel.engines.select import make_engine
from tests.plugins.serve.container.conftest import TOKENS
from tests.plugins.serve.container.server import NamesOfLoopback, Server
from tests.support.kernels import ENGINE, eventually

e2b = pytest.importorskip("e2b_code_interpreter", reason="make recipes has it")
e2b_package = pytest.importorskip("e2b", reason="make recipes has it")
httpx = pytest.importorskip("httpx", reason="make recipes has it")
errors = pytest.importorskip("e2b.exceptions", reason="make recipes has it")

PAUSES = pytest.mark.skipif(
    Ability.PAUSE not in abilities_of(make_engine(from_keywords(engine=ENGINE))),
    reason="its sandboxes cannot pause",
)


@pytest.fixture(scope="module")
def served(named_server: tuple[Server, Path]) -> Iterator[tuple[Server, dict[str, str]]]:
    """Give a server with a domain, and how it is found by it.

    The client reads SSL_CERT_FILE when its first connection of the process is made.
    """
    one, certificates = named_server
    proxy, patch = NamesOfLoopback(), pytest.MonkeyPatch()
    for name in ("E2B_API_URL", "E2B_SANDBOX_URL", "E2B_DOMAIN"):
        patch.delenv(name, raising=False)
    patch.setenv("SSL_CERT_FILE", str(certificates / "ca-bundle.pem"))
    domain = f"sandbox.localhost:{one.url.rpartition(':')[2]}"
    yield one, {"domain": domain, "proxy": proxy.url, "api_key": TOKENS["ann"]}
    patch.undo()
    proxy.close()


@pytest.fixture(scope="module", params=["headers", "names"])
def where(request: pytest.FixtureRequest, served: tuple[Server, dict[str, str]]) -> dict[str, str]:
    """Give how the client finds the server: by two addresses and headers, or by a domain alone."""
    server, by_names = served
    by_headers = {"api_url": server.url, "sandbox_url": server.url, "api_key": TOKENS["ann"]}
    return by_headers if request.param == "headers" else by_names


@pytest.fixture(scope="module")
def box(where: dict[str, str]) -> Iterator[Any]:
    made = e2b.Sandbox.create(timeout=120, metadata={"job": "a b"}, envs={"X": "1"}, **where)
    yield made
    made.kill()


def test_run_code(box: Any) -> None:
    heard: list[str] = []
    code = "import os, sys\nprint('out')\nprint('err', file=sys.stderr)\nos.environ['X'] + 'é'"
    execution = box.run_code(code, on_stdout=lambda message: heard.append(message.line))
    assert (execution.text, execution.logs.stdout, execution.logs.stderr) == ("1é", ["out\n"], ["err\n"])
    assert heard == ["out\n"]
    assert box.run_code("1/0").error.name == "ZeroDivisionError"
    assert box.run_code("os.environ['Q'] + os.getcwd()", envs={"Q": "q"}).text == "q/home/user"


def test_contexts(box: Any) -> None:
    context = box.create_code_context(cwd="/home/user")
    assert (context.language, context.cwd) == ("python", "/home/user")
    box.run_code("y = 5", context=context)
    assert box.run_code("y", context=context).text == "5"
    assert box.run_code("y").error.name == "NameError"
    listed = box.list_code_contexts()
    assert [one.id for one in (listed[0], listed[-1])] == [box.sandbox_id, context.id]
    [bash] = [one for one in listed if one.language == "bash"]
    assert "".join(box.run_code("echo $HOME", context=bash).logs.stdout) == "/home/user\n"
    box.restart_code_context(context)
    assert box.run_code("y", context=context).error.name == "NameError"
    box.remove_code_context(context)
    with pytest.raises(errors.NotFoundException):
        box.run_code("1", context=context)
    with pytest.raises(errors.SandboxException, match="klingon"):
        box.run_code("1", language="klingon")


def test_files(box: Any) -> None:
    assert box.files.write("/home/user/d/a.txt", "text").path == "/home/user/d/a.txt"
    box.files.write("b.bin", b"\0\1")
    box.files.write("c.bin", io.BytesIO(b"z" * 3_000_000))
    box.files.write("g.txt", "packed", gzip=True)
    many = [{"path": "m1", "data": "1"}, {"path": "m/2", "data": b"2"}]
    assert [one.path for one in box.files.write_files(many)] == ["/home/user/m1", "/home/user/m/2"]
    assert box.files.read("d/a.txt") == "text"
    assert box.files.read("/home/user/b.bin", format="bytes") == b"\0\1"
    assert sum(map(len, box.files.read("c.bin", format="stream"))) == 3_000_000
    assert (box.files.read("g.txt"), box.files.read("m/2")) == ("packed", "2")
    assert box.run_code("open('d/a.txt').read()").text == "text"
    with pytest.raises(errors.FileNotFoundException):
        box.files.read("nonesuch")
    with pytest.raises(errors.InvalidArgumentException):
        box.files.write("../../etc/passwd", "x")


def test_metadata_of_files(box: Any) -> None:
    noted = {"author": "ann", "source": "a b"}
    assert box.files.write("n/m.txt", "1", metadata=noted).metadata == noted
    assert box.files.write("n/o.txt", io.BytesIO(b"1"), metadata=noted).metadata == noted
    assert [one.metadata for one in box.files.list("n")] == [noted, noted]
    assert box.files.rename("n", "k").metadata is None
    assert box.files.get_info("k/m.txt").metadata == noted
    assert box.files.write("k/m.txt", "2").metadata is None
    assert box.files.get_info("k/m.txt").metadata is None
    box.files.remove("k/o.txt")
    box.run_code("open('k/o.txt', 'w').close()")
    assert box.files.get_info("k/o.txt").metadata is None


def test_signed_addresses(box: Any) -> None:
    form = {"file": ("ignored", b"signed")}
    with httpx.Client(proxy=box.connection_config.proxy) as client:
        assert client.post(box.upload_url("s.txt", use_signature_expiration=60), files=form).status_code == 200
        assert client.get(box.download_url("s.txt")).content == b"signed"
        assert client.get(box.download_url("s.txt", use_signature_expiration=-60)).status_code == 401


def test_folders(box: Any) -> None:
    assert (box.files.make_dir("f/g"), box.files.make_dir("/home/user/f/g")) == (True, False)
    box.files.write("f/a.txt", "0123456789")
    assert [(one.path, one.type.value) for one in box.files.list("f")] == [
        ("/home/user/f/a.txt", "file"),
        ("/home/user/f/g", "dir"),
    ]
    assert [box.files.exists(path) for path in ("f/a.txt", "f/none", "/home/user")] == [True, False, True]
    info = box.files.get_info("f/a.txt")
    assert (info.name, info.size, info.owner) == ("a.txt", 10, "user")
    assert box.files.rename("f/a.txt", "f/b.txt").path == "/home/user/f/b.txt"
    with pytest.raises(errors.FileNotFoundException):
        box.files.get_info("f/a.txt")
    with pytest.raises(errors.InvalidArgumentException, match="root"):
        box.files.list("f", user="root")
    box.files.remove("f")
    box.files.remove("f")
    assert box.files.exists("f") is False


def test_watching(box: Any) -> None:
    box.files.make_dir("w")
    watcher = box.files.watch_dir("w")
    box.files.write("w/new", "1")
    found = [(one.name, one.type.value) for one in watcher.get_new_events()]
    assert found == [("new", "create"), ("new", "chmod"), ("new", "write")]  # E2B gives such a file its owner
    assert watcher.get_new_events() == []
    watcher.stop()
    watcher = box.files.watch_dir("w", include_entry=True)
    box.run_code("import os; os.remove('w/new')")
    eventually(lambda: "new" in [one.name for one in watcher.get_new_events()], 10, "what a cell removes is seen")
    watcher.stop()


def test_commands(box: Any) -> None:
    heard: list[str] = []
    done = box.commands.run("echo hi; echo err >&2; echo $A", envs={"A": "é"}, on_stdout=heard.append)
    assert (done.stdout, done.stderr, done.exit_code, "".join(heard)) == ("hi\né\n", "err\n", 0, "hi\né\n")
    with pytest.raises(e2b_package.CommandExitException) as failed:
        box.commands.run("exit 3")
    assert failed.value.exit_code == 3
    with pytest.raises(errors.TimeoutException):
        box.commands.run("sleep 30", timeout=1)
    with pytest.raises(errors.InvalidArgumentException, match="root"):
        box.commands.run("true", user="root")


def test_commands_beside_the_cells(box: Any) -> None:
    handle = box.commands.run("read x; echo got $x; cat", background=True, stdin=True)
    assert handle.pid in [one.pid for one in box.commands.list()]
    handle.send_stdin("one\n")
    box.commands.stream_input(handle.pid, [b"two\n", "three\n"])
    handle.close_stdin()
    assert handle.wait().stdout == "got one\ntwo\nthree\n"
    handle = box.commands.run("sleep 50", background=True)
    assert (handle.kill(), box.commands.kill(handle.pid)) == (True, False)
    handle = box.commands.run("sleep 1; echo end", background=True)
    handle.disconnect()
    assert box.commands.connect(handle.pid).wait().stdout == "end\n"
    with pytest.raises(errors.NotFoundException):
        box.commands.connect(99_999)


def test_a_shell(box: Any) -> None:
    shell = box.pty.create(e2b_package.PtySize(24, 80))
    box.pty.resize(shell.pid, e2b_package.PtySize(30, 100))
    box.pty.send_stdin(shell.pid, b"stty size; exit\n")
    said: list[bytes] = []
    shell.wait(on_pty=said.append)
    assert b"30 100" in b"".join(said)


def test_what_it_is_and_how_long(box: Any, where: dict[str, str]) -> None:
    info = box.get_info()
    assert (info.sandbox_id, info.metadata, info.template_id) == (box.sandbox_id, {"job": "a b"}, "code-interpreter-v1")
    assert box.get_metrics()[0].mem_total == info.memory_mb << 20
    for job, count in (("a b", 1), ("other", 0)):
        query = e2b.SandboxQuery(metadata={"job": job})
        assert len(e2b.Sandbox.list(query=query, **where).next_items()) == count
    box.set_timeout(300)
    assert (box.get_info().end_at - info.end_at).total_seconds() > 100
    assert e2b.Sandbox.connect(box.sandbox_id, **where).run_code("40 + 2").text == "42"


@PAUSES
def test_pause(box: Any) -> None:
    box.run_code("kept = 43")
    assert box.pause() is True
    assert box.is_running() is False
    assert box.connect().run_code("kept").text == "43"


def test_a_call_that_takes_too_long_is_interrupted(box: Any) -> None:
    with pytest.raises(errors.TimeoutException):
        box.run_code("runs = globals().get('runs', 0) + 1\nimport time; time.sleep(60)", timeout=2)
    assert box.run_code("runs").text == "1"


def test_the_end(where: dict[str, str]) -> None:
    box = e2b.Sandbox.create(timeout=60, **where)
    assert box.is_running() is True
    assert (box.kill(), box.kill(), box.is_running()) == (True, False, False)
    with pytest.raises(errors.TimeoutException):
        box.run_code("1")


@PAUSES
def test_a_sandbox_is_paused_when_its_time_is_up(where: dict[str, str]) -> None:
    box = e2b.Sandbox.create(timeout=60, lifecycle={"on_timeout": "pause"}, **where)
    assert box.get_info().lifecycle == {"on_timeout": "pause", "auto_resume": False}
    box.run_code("kept = 43")
    box.set_timeout(0)
    eventually(lambda: box.get_info().state == "paused", 10, "its time is up")
    assert box.is_running() is False
    begun = datetime.now(UTC)
    assert box.connect(timeout=100).run_code("kept").text == "43"
    left = (box.get_info().end_at - begun).total_seconds()
    assert 99 < left < 110
    box.kill()


def test_what_is_refused(where: dict[str, str]) -> None:
    for asked, words in (
        ({"template": "nonesuch"}, "nonesuch"),
        ({"lifecycle": {"on_timeout": {"action": "pause", "mode": "filesystem"}}}, "autoPauseMemory"),
        ({"lifecycle": {"on_timeout": "pause", "auto_resume": True}}, "autoResume"),
    ):
        with pytest.raises(errors.SandboxException, match=words):
            e2b.Sandbox.create(**asked, **where)
    # Clients say this of each sandbox, so it asks for nothing.
    box = e2b.Sandbox.create(timeout=60, allow_internet_access=True, **where)
    for call in (box.create_snapshot, box.fork):
        with pytest.raises(errors.SandboxException, match=r"400: .*Setting to change: engine"):
            call()
    with pytest.raises(errors.SandboxException, match="allowOut"):
        box.update_network({"allow_out": ["example.org"]})
    assert box.list_snapshots().next_items() == []
    assert e2b.Sandbox.delete_snapshot("nonesuch", **where) is False
    box.kill()
    with pytest.raises(errors.AuthenticationException):
        e2b.Sandbox.create(**{**where, "api_key": "e2b_" + "0" * 40})


async def test_the_awaited_client(where: dict[str, str]) -> None:
    box = await e2b.AsyncSandbox.create(timeout=60, **where)
    assert (await box.run_code("6 * 7")).text == "42"
    await box.files.write("a", "b")
    assert await box.files.read("a") == "b"
    assert [one.name for one in await box.files.list("")] == ["a"]
    assert (await box.commands.run("cat a")).stdout == "b"
    assert await box.kill() is True
