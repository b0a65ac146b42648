"""E2B's wire as it is, against a real server with real sandboxes."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from sandbox_kernel.core.codes import EndCode
from tests.plugins.serve.container.conftest import TOKENS, options
from tests.plugins.serve.container.server import Server
from tests.support.authority import Authority
from tests.support.kernels import containers_of
from tests.support.patience import until, within


@asynccontextmanager
async def sandbox(server: Server, **asked: Any) -> AsyncIterator[tuple[httpx2.AsyncClient, dict[str, Any]]]:
    """Give a client with the tokens of a new sandbox, and what the server said of it."""
    async with httpx2.AsyncClient(base_url=server.url, headers={"X-API-Key": TOKENS["ann"]}, timeout=30) as client:
        made = await client.post("/v2/sandboxes", json={"templateID": "base", **asked})
        assert made.status_code == 201, made.text
        said = made.json()
        client.headers.update(
            {
                "E2b-Sandbox-Id": said["sandboxID"],
                "E2b-Sandbox-Port": "49999",
                "E2B-Traffic-Access-Token": said["trafficAccessToken"],
                "X-Access-Token": said["envdAccessToken"],
            }
        )
        try:
            yield client, said
        finally:
            await client.delete(f"/sandboxes/{said['sandboxID']}")


async def run(client: httpx2.AsyncClient, code: str, **more: Any) -> list[dict[str, Any]]:
    answer = await client.post("/execute", json={"code": code, **more})
    assert answer.status_code == 200, answer.text
    lines = [json.loads(line) for line in answer.text.splitlines()]
    return [line for line in lines if line["type"] != "keepalive"]


async def test_a_cell_s_output_comes_as_lines(server: Server) -> None:
    async with sandbox(server, envVars={"A": "a"}) as (client, _):
        lines = await run(client, "import os, sys\nprint('out')\nprint('err', file=sys.stderr)\nos.environ['A'] + 'b'")
        kinds = {line["type"]: line for line in lines}
        assert kinds["stdout"]["text"] == "out\n"
        assert kinds["stderr"]["text"] == "err\n"
        assert kinds["result"] == {"type": "result", "is_main_result": True, "text": "ab"}
        assert kinds["number_of_executions"]["execution_count"] == 1
        [error, _] = await run(client, "1/0")
        assert (error["type"], error["name"], error["value"]) == ("error", "ZeroDivisionError", "division by zero")
        assert "1/0" in error["traceback"]


OCTETS = {"Content-Type": "application/octet-stream", "E2b-Sandbox-Port": "49983"}


async def texts(client: httpx2.AsyncClient, code: str, **more: Any) -> list[str]:
    return [line["text"] for line in await run(client, code, **more) if line["type"] in {"result", "stdout"}]


async def test_cells_and_commands_begin_in_the_folder_of_e2b_s_user(server: Server) -> None:
    async with sandbox(server) as (client, _):
        shown = "import getpass, os, pathlib\n"
        shown += "print(os.getcwd(), pathlib.Path.cwd(), os.path.expanduser('~'), getpass.getuser())"
        assert await texts(client, shown) == ["/home/user /home/user /home/user user\n"]
        moved = "os.makedirs('d')\nos.chdir('/mnt/data/d')\na = os.getcwd()\nos.chdir('/tmp')\n[a, os.getcwd()]"
        assert await texts(client, moved) == ["['/home/user/d', '/tmp']"]
        assert "".join(await texts(client, "pwd; cd ~; pwd", language="bash")) == "/home/user\n/home/user\n"
        for cwd, said in ((None, "/home/user"), ("d", "/home/user/d"), ("/tmp", "/tmp")):
            process = {"cmd": "/bin/bash", "args": ["-l", "-c", "pwd; echo $HOME $USER"], "cwd": cwd}
            pieces = [one async for one in streamed(client, "process.Process/Start", process=process)]
            data = [one["event"]["data"] for one in pieces if "data" in one.get("event", {})]
            out = b"".join(base64.b64decode(one["stdout"]) for one in data)
            assert out.decode() == f"{said}\n/home/user user\n"


async def said_by(client: httpx2.AsyncClient, line: str, **more: Any) -> str:
    process = {"cmd": "/bin/bash", "args": ["-l", "-c", line], **more}
    pieces = [one async for one in streamed(client, "process.Process/Start", process=process)]
    data = [one["event"]["data"] for one in pieces if "data" in one.get("event", {})]
    return b"".join(base64.b64decode(one.get("stdout") or one["stderr"]) for one in data).decode()


async def test_programs_find_in_the_home_folder_what_was_uploaded(server: Server) -> None:
    """They do not follow a link that they are given as a folder: it is one."""
    async with sandbox(server) as (client, _):
        await client.post("/files", params={"path": "d/a.csv"}, content=b"1,2\n", headers=OCTETS)
        assert (await said_by(client, "ls -A /home/user", cwd="/")).split() == ["d"]
        found = "/home/user\n/home/user/d\n/home/user/d/a.csv\n"
        assert await said_by(client, "find /home/user", cwd="/") == found
        assert (await said_by(client, "tar -C /home/user -c . | tar t")).split() == ["./", "./d/", "./d/a.csv"]
        assert (await said_by(client, "du -a /home/user | wc -l")) == "3\n"
        assert await said_by(client, "stat -c '%F %a %n' /home/user /home/user/d /home/user/d/a.csv") == (
            "directory 755 /home/user\ndirectory 755 /home/user/d\nregular file 644 /home/user/d/a.csv\n"
        )
        assert await said_by(client, "umask; cat /mnt/data/d/a.csv") == "0022\n1,2\n"
        assert await texts(client, "import os; os.path.realpath('/mnt/data')") == ["/home/user"]


async def test_files_beside_the_home_folder_and_links_are_what_they_are(server: Server) -> None:
    async with sandbox(server) as (client, _):

        async def read(path: str) -> httpx2.Response:
            return await client.get("/files", params={"path": path}, headers={"E2b-Sandbox-Port": "49983"})

        made = await client.post("/files", params={"path": "/tmp/d/a.txt"}, content=b"text", headers=OCTETS)
        assert made.json() == [{"name": "a.txt", "type": "file", "path": "/tmp/d/a.txt"}]
        line = "cd /tmp/d && ln -s a.txt file && ln -s /etc folder && ln -s none nowhere && mkfifo fifo"
        await said_by(client, line)
        listed = await call(client, "filesystem.Filesystem/ListDir", path="/tmp/d")
        assert {one["name"]: (one["type"], one.get("symlinkTarget")) for one in listed["entries"]} == {
            "a.txt": ("FILE_TYPE_FILE", None),
            "file": ("FILE_TYPE_FILE", "/tmp/d/a.txt"),
            "folder": ("FILE_TYPE_DIRECTORY", "/etc"),
            "nowhere": ("FILE_TYPE_SYMLINK", "/tmp/d/none"),
            "fifo": ("FILE_TYPE_UNSPECIFIED", None),
        }
        for path, content in (("/tmp/d/file", b"text"), ("/etc/hostname", b"sandbox\n")):
            assert (await read(path)).content == content
        status = await read("/proc/self/status")
        assert (status.status_code, status.content[:5]) == (200, b"Name:")
        for path, code in (("/dev/zero", 400), ("/tmp/d/fifo", 400), ("/proc/kmsg", 400), ("/etc/none", 404)):
            assert (await read(path)).status_code == code
        refused = await client.post("/files", params={"path": "/etc/x"}, content=b"text", headers=OCTETS)
        assert refused.status_code == 400


async def test_a_file_that_is_sent_has_the_events_that_e2b_s_has(server: Server) -> None:
    async with sandbox(server) as (client, _):
        await call(client, "filesystem.Filesystem/MakeDir", path="w")
        watcher = (await call(client, "filesystem.Filesystem/CreateWatcher", path="w"))["watcherId"]

        async def events() -> list[str]:
            found = await call(client, "filesystem.Filesystem/GetWatcherEvents", watcherId=watcher)
            return [f"{one['name']} {one['type'].removeprefix('EVENT_TYPE_')}" for one in found["events"]]

        for content, said in ((b"a", ["a CREATE", "a CHMOD", "a WRITE"]), (b"more", ["a WRITE"])):
            await client.post("/files", params={"path": "w/a"}, content=content, headers=OCTETS)
            assert await events() == said
        await said_by(client, "echo b > w/b")
        assert await events() == ["b CREATE", "b WRITE"]


async def test_a_client_that_goes_interrupts_its_cell(server: Server) -> None:
    async with sandbox(server) as (client, _):
        code = "import time\ntry:\n    print('begun', flush=True)\n    time.sleep(100)\nfinally:\n    ended = True"
        async with client.stream("POST", "/execute", json={"code": code}) as answer:
            assert json.loads(await anext(answer.aiter_lines()))["text"] == "begun\n"
        async with within(20):
            [result, _] = await run(client, "ended")
        assert result["text"] == "True"


async def test_a_sandbox_that_is_killed_cuts_its_cell_and_is_not_found(server: Server) -> None:
    async with sandbox(server) as (client, said):
        code = "import time\nprint('begun', flush=True)\ntime.sleep(100)"
        async with within(20), client.stream("POST", "/execute", json={"code": code}) as answer:
            lines = answer.aiter_lines()
            assert json.loads(await anext(lines))["text"] == "begun\n"
            assert (await client.delete(f"/sandboxes/{said['sandboxID']}")).status_code == 204
            with pytest.raises(httpx2.RemoteProtocolError):
                [line async for line in lines]
        assert (await client.post("/execute", json={"code": "1"})).status_code == 502
        assert (await client.get(f"/sandboxes/{said['sandboxID']}")).status_code == 404


async def test_a_sandbox_whose_kernel_starts_again_is_there_meanwhile(server: Server) -> None:
    async with sandbox(server) as (client, said):
        [error] = [line for line in await run(client, "import os; os._exit(1)") if line["type"] == "error"]
        assert error["name"] == "KernelDied"
        next_cell = asyncio.create_task(run(client, "'new'"))
        while not next_cell.done():
            health = await client.get("/health", headers={"E2b-Sandbox-Port": "49983"})
            assert health.status_code == 204
            shown = await client.get(f"/sandboxes/{said['sandboxID']}")
            assert (shown.status_code, shown.json()["state"]) == (200, "running")
            assert len((await client.get("/sandboxes")).json()) == 1
        assert (await next_cell)[0]["text"] == "new"
        assert await texts(client, "import os; os.getcwd()") == ["/home/user"]


async def test_the_time_of_a_sandbox_is_made_longer_by_connect_and_set_by_timeout(server: Server) -> None:
    async with sandbox(server, timeout=100) as (client, said):
        path = f"/sandboxes/{said['sandboxID']}"

        async def left() -> float:
            found = (await client.get(path)).json()
            started, ends = (datetime.fromisoformat(found[name]) for name in ("startedAt", "endAt"))
            return (ends - started).total_seconds()

        assert 99 <= await left() <= 130, "its start comes first"
        for path_of in ("", "/v2"):
            again = await client.post(f"{path_of}{path}/connect", json={"timeout": 10})
            assert (again.status_code, again.json()) == (200, said)
        assert 99 <= await left() <= 130, "its start comes first"
        await client.post(f"{path}/connect", json={"timeout": 500})
        assert 499 <= await left() <= 530
        assert (await client.post(f"{path}/timeout", json={"timeout": 50})).status_code == 204
        assert 49 <= await left() <= 80
        assert (await client.post(f"{path}/timeout", json={"timeout": 0})).status_code == 204
        assert (await client.get(path)).status_code == 404


async def call(client: httpx2.AsyncClient, name: str, **body: Any) -> dict[str, Any]:
    """Return what a call answers that is no stream."""
    answer = await client.post(f"/{name}", json=body, headers={"E2b-Sandbox-Port": "49983"})
    found: dict[str, Any] = answer.json()
    return found


async def streamed(client: httpx2.AsyncClient, name: str, **body: Any) -> AsyncIterator[dict[str, Any]]:
    """Yield the pieces of a stream, and then what its end says."""
    content = json.dumps(body).encode()
    headers = {"E2b-Sandbox-Port": "49983", "Content-Type": "application/connect+json"}
    sent = b"\0" + len(content).to_bytes(4) + content
    held = b""
    async with client.stream("POST", f"/{name}", content=sent, headers=headers) as answer:
        async for piece in answer.aiter_bytes():
            held += piece
            while len(held) >= 5 and len(held) >= 5 + (size := int.from_bytes(held[1:5])):
                yield json.loads(held[5 : 5 + size])
                held = held[5 + size :]
    assert held == b""


async def test_folders_are_made_listed_moved_and_removed(server: Server) -> None:
    async with sandbox(server) as (client, _):
        made = await call(client, "filesystem.Filesystem/MakeDir", path="/home/user/d/e")
        assert (made["entry"]["path"], made["entry"]["type"]) == ("/home/user/d/e", "FILE_TYPE_DIRECTORY")
        assert (await call(client, "filesystem.Filesystem/MakeDir", path="d/e"))["code"] == "already_exists"
        await run(client, "open('d/a', 'w').write('four')")
        listed = await call(client, "filesystem.Filesystem/ListDir", path="d")
        assert [(one["name"], one["size"]) for one in listed["entries"] if one["name"] == "a"] == [("a", "4")]
        noted = {"X-Metadata-Author": "ann", "E2b-Sandbox-Port": "49983"}
        form = {"file": ("d/a", b"five!")}
        assert (await client.post("/files", files=form, headers=noted)).json()[0]["metadata"] == {"author": "ann"}
        moved = await call(client, "filesystem.Filesystem/Move", source="d/a", destination="f")
        assert (moved["entry"]["path"], moved["entry"]["metadata"]) == ("/home/user/f", {"author": "ann"})
        await client.post("/files", files={"file": ("f", b"")}, headers={"E2b-Sandbox-Port": "49983"})
        assert "metadata" not in (await call(client, "filesystem.Filesystem/Stat", path="f"))["entry"]
        assert (await call(client, "filesystem.Filesystem/Stat", path="d/a"))["code"] == "not_found"
        assert await call(client, "filesystem.Filesystem/Remove", path="d") == {}
        assert [one["name"] for one in (await call(client, "filesystem.Filesystem/ListDir", path=""))["entries"]] == [
            "f"
        ]


async def test_a_download_that_was_cut_off_goes_on_at_its_place(server: Server) -> None:
    content = os.urandom((2 << 20) + 5)
    async with sandbox(server) as (client, _):
        port = {"E2b-Sandbox-Port": "49983"}
        kind = {**port, "Content-Type": "application/octet-stream"}
        await client.post("/files?path=a", content=content, headers=kind)
        whole = await client.get("/files?path=a", headers=port)
        assert (whole.status_code, whole.headers["Content-Length"]) == (200, str(len(content)))
        assert (whole.content == content, whole.headers["Accept-Ranges"]) == (True, "bytes")
        tag = whole.headers["ETag"]
        for asked, begin, end in (
            ("bytes=5-", 5, len(content)),
            ("bytes=0-0", 0, 1),
            ("bytes=1048570-1048580", 1048570, 1048581),
            ("bytes=-7", len(content) - 7, len(content)),
            (f"bytes=7-{1 << 50}", 7, len(content)),
        ):
            part = await client.get("/files?path=a", headers={**port, "Range": asked, "If-Range": tag})
            said = f"bytes {begin}-{end - 1}/{len(content)}"
            assert (part.status_code, part.headers["Content-Range"]) == (206, said), asked
            assert part.content == content[begin:end], asked
        for asked in ("bytes=-", "bytes=0-1,3-4", "lines=1-2", "bytes=a-"):
            answer = await client.get("/files?path=a", headers={**port, "Range": asked})
            assert (answer.status_code, answer.content == content) == (200, True), asked
        beyond = await client.get("/files?path=a", headers={**port, "Range": f"bytes={len(content)}-"})
        assert (beyond.status_code, beyond.headers["Content-Range"]) == (416, f"bytes */{len(content)}")
        await client.post("/files?path=a", content=content[::-1], headers=kind)
        other = await client.get("/files?path=a", headers={**port, "Range": "bytes=5-", "If-Range": tag})
        assert (other.status_code, other.content == content[::-1]) == (200, True)


async def test_a_command_is_followed_to_its_end_and_one_without_a_client_goes_on(server: Server) -> None:
    async with sandbox(server) as (client, _):
        start: dict[str, Any] = {
            "process": {"cmd": "/bin/bash", "args": ["-l", "-c", "echo hi; exit 3"]},
            "stdin": False,
        }
        [begun, said, ended, last] = [one async for one in streamed(client, "process.Process/Start", **start)]
        assert begun["event"]["start"]["pid"] > 0
        assert said == {"event": {"data": {"stdout": "aGkK"}}}
        assert (ended["event"]["end"]["exitCode"], last) == (3, {})
        start["process"]["args"][-1] = "while ! test -e go; do sleep 0.05; done; echo went on > gone"
        pieces = streamed(client, "process.Process/Start", **start)
        pid = (await anext(pieces))["event"]["start"]["pid"]
        await pieces.aclose()  # type: ignore[attr-defined]
        running = await call(client, "process.Process/List")
        assert [one["pid"] for one in running["processes"]] == [pid]
        await run(client, "open('go', 'w').close()")
        async with within(20):
            while (await call(client, "process.Process/List"))["processes"]:
                pass
        [result, _] = await run(client, "open('gone').read().strip()")
        assert result["text"] == "went on"


async def test_a_tenant_runs_nothing_in_another_s_sandbox(server: Server) -> None:
    key = {"X-API-Key": TOKENS["bob"]}
    async with sandbox(server) as (_, said), httpx2.AsyncClient(base_url=server.url, headers=key) as other:
        path = f"/sandboxes/{said['sandboxID']}"
        for method, end in (("GET", ""), ("DELETE", ""), ("POST", "/connect"), ("POST", "/pause")):
            assert (await other.request(method, path + end)).status_code == 404
        assert (await other.get("/sandboxes")).json() == []


async def test_sandboxes_made_at_once_stay_within_the_limit(server: Server) -> None:
    async with httpx2.AsyncClient(base_url=server.url, headers={"X-API-Key": TOKENS["bob"]}, timeout=60) as client:
        body = {"templateID": "base", "timeout": 60}
        made = await asyncio.gather(*(client.post("/sandboxes", json=body) for _ in range(5)))
        assert sorted(one.status_code for one in made) == [201, 201, 201, 429, 429]
        for one in (await client.get("/sandboxes")).json():
            assert (await client.delete(f"/sandboxes/{one['sandboxID']}")).status_code == 204


def test_what_is_printed_has_the_address_and_not_the_token(server: Server) -> None:
    said = "".join(server.said)
    assert not any(token in said for token in TOKENS.values())
    command = server.said[2].partition(": ")[2]
    command += "\necho $E2B_API_URL $E2B_SANDBOX_URL $E2B_API_KEY"
    shown = subprocess.check_output(["bash", "-c", command], text=True)
    assert shown.split() == [server.url, server.url, TOKENS["ann"]]


async def test_a_stream_that_ends_with_its_sandbox_is_no_line_of_the_log(server: Server) -> None:
    """It is cut, as clients of E2B expect it, and the web server takes that for a fault."""
    before = list(server.log)
    async with sandbox(server) as (client, said):

        async def until_killed() -> None:
            process = {"cmd": "/bin/bash", "args": ["-l", "-c", "echo begun; sleep 100"]}
            async for piece in streamed(client, "process.Process/Start", process=process):
                if "data" in piece.get("event", {}):
                    key = {"X-API-Key": TOKENS["ann"]}
                    async with httpx2.AsyncClient(base_url=server.url, headers=key) as other:
                        assert (await other.delete(f"/sandboxes/{said['sandboxID']}")).status_code == 204

        with pytest.raises(httpx2.RemoteProtocolError):
            await until_killed()
    assert server.log == before


def test_the_end_of_the_server_ends_all_sandboxes(tmp_path: Path) -> None:
    server = Server("--token-file", str(tmp_path / "tokens"), "--memory", "512M")
    try:
        key = {"X-API-Key": (tmp_path / "tokens").read_text().split()[1]}
        made = httpx2.post(f"{server.url}/sandboxes", json={"templateID": "base"}, headers=key, timeout=30)
        assert made.status_code == 201
        assert len(containers_of(server.process.pid)) == 1
    finally:
        code = server.close()
    assert (code, [line for line in server.log if not line.startswith("for clients of ")]) == (0, [])


async def test_tokens_come_and_go_while_sandboxes_live(tmp_path: Path) -> None:
    path = tmp_path / "tokens"

    def write(*names: str, more: str = "") -> None:
        new = tmp_path / "new"
        new.write_text("".join(f"{name} {TOKENS[name]}\n" for name in names) + more)
        new.chmod(0o600)
        new.replace(path)

    async def logged(words: str) -> None:
        await until(lambda: any(words in line for line in server.log), 20)

    write("ann")
    server = Server("--token-file", str(path), "--memory", "512M")
    try:
        bob = {"X-API-Key": TOKENS["bob"]}
        async with sandbox(server) as (client, said), httpx2.AsyncClient(base_url=server.url, headers=bob) as other:
            assert await texts(client, "x = 5; x") == ["5"]
            assert (await other.get("/sandboxes")).status_code == 401
            write("ann", "bob")
            await logged("new: bob")
            assert (await other.get("/sandboxes")).status_code == 200
            write("ann", "bob", more="no line of a name and a token\n")
            await logged("the tokens stay as they were")
            assert (await other.get("/sandboxes")).status_code == 200
            write("bob")
            await logged("gone: ann")
            assert (await client.get("/sandboxes")).status_code == 401
            answer = await client.post("/execute", json={"code": "x"})
            assert answer.status_code == 401, "the tokens of a sandbox are its tenant's too"
            assert len(await asyncio.to_thread(containers_of, server.process.pid)) == 1, "it lives"
            write("bob", "ann")
            await logged("new: ann")
            assert await texts(client, "x") == ["5"]
            assert (await client.get(f"/sandboxes/{said['sandboxID']}")).status_code == 200
    finally:
        await asyncio.to_thread(server.close)


def test_over_tls_as_over_http(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    chain = str(authority.chain("127.0.0.1"))  # the key and the certificate
    tls = ("--tls-cert", chain, "--tls-key", chain)
    with closing(Server("--token-file", str(tmp_path / "tokens"), *tls)) as server:
        with httpx2.Client(verify=authority.client(), base_url=server.url) as client:
            assert server.url.startswith("https://127.0.0.1:")
            assert client.get("/healthz").json() == {"status": "ok"}
            assert client.get("/sandboxes").status_code == 401
            key_of = {"X-API-Key": (tmp_path / "tokens").read_text().split()[1]}
            assert client.get("/sandboxes", headers=key_of).json() == []
        with pytest.raises(httpx2.TransportError):
            httpx2.get(server.url.replace("https", "http") + "/healthz")


def test_by_names_with_certificates_of_its_own(tmp_path: Path) -> None:
    with closing(Server("--token-file", str(tmp_path / "tokens"), "--domain")) as server:
        port = server.url.rpartition(":")[2]
        command = server.said[2].partition(": ")[2] + "\necho $E2B_DOMAIN $NODE_EXTRA_CA_CERTS $SSL_CERT_FILE"
        domain, *files = subprocess.check_output(["bash", "-c", command], text=True).split()
        assert domain == f"sandbox.localhost:{port}"
        for file in files:
            with httpx2.Client(verify=ssl.create_default_context(cafile=file), base_url=server.url) as client:
                for name, status in (("api", 200), ("sandbox", 200), ("49999-x", 404), ("x", 421)):
                    host = "sandbox.localhost" if name == "sandbox" else f"{name}.sandbox.localhost"
                    named = {"sni_hostname": host}
                    answer = client.get("/healthz", headers={"Host": f"{host}:{port}"}, extensions=named)
                    assert answer.status_code == status, host
            trusting = ssl.create_default_context(cafile=file)
            with httpx2.Client(verify=trusting) as other, pytest.raises(httpx2.ConnectError, match="certificate"):
                other.get(f"{server.url}/healthz", extensions={"sni_hostname": "example.org"})


def test_a_sandbox_that_does_not_start_says_why(tmp_path: Path) -> None:
    """It is 502 for a sandbox that was there, which clients take for one whose time was up."""
    image, box = "sandbox-kernel-test-serve:no-kernel", f"sandbox-kernel-test-serve-{os.getpid()}"
    removing = "rm -r $(python3 -c 'import ipykernel; print(ipykernel.__path__[0])')"
    made = ["docker", "run", f"--name={box}", "--network=none", "--user=0", "sandbox-kernel:base", "sh", "-c", removing]
    subprocess.run(made, check=True, capture_output=True)
    subprocess.run(["docker", "commit", box, image], check=True, capture_output=True)
    subprocess.run(["docker", "rm", box], check=True, capture_output=True)
    try:
        with closing(Server(*options(tmp_path), "--image", image)) as server:
            key = {"X-API-Key": TOKENS["ann"]}
            refused = httpx2.post(f"{server.url}/sandboxes", json={"templateID": "base"}, headers=key, timeout=60)
        assert refused.status_code == 503
        assert refused.json()["error"] == EndCode.NO_KERNEL_STARTS.code
        assert "ipykernel" in refused.json()["message"]
    finally:
        subprocess.run(["docker", "rmi", image], check=True, capture_output=True)
