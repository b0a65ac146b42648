"""Every route of the server with no token, a wrong one, and that of somebody else; and bodies, hosts and origins.

The sandboxes are stand-ins: nothing here starts one.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from sandbox_kernel.core.model import Settings
from sandbox_kernel.plugins.serve.application import application
from sandbox_kernel.plugins.serve.e2b import cells as e2b_cells
from sandbox_kernel.plugins.serve.e2b import control as e2b_control
from sandbox_kernel.plugins.serve.e2b import files as e2b_files
from sandbox_kernel.plugins.serve.e2b import folders as e2b_folders
from sandbox_kernel.plugins.serve.e2b import processes as e2b_processes
from sandbox_kernel.plugins.serve.jupyter import rest as jupyter_rest
from sandbox_kernel.plugins.serve.requests import MAX_JSON, Refusal
from sandbox_kernel.plugins.serve.tenants import MAX_UPLOADS, Lease
from sandbox_kernel.plugins.serve.token_file import Tokens
from sandbox_kernel.plugins.serve.web_server import Names
from sandbox_kernel.sdk.folder_entries import FilesystemEvent, FilesystemEventType
from tests.plugins.serve.stand_ins import MINE, THEIRS, Served, StandIn, cells_of, files_of
from tests.support.cases import each

CONTROL = [(method, path.replace("{sandbox_id}", "s1")) for method, path, _ in e2b_control.ROUTES]
KERNELS = [(method, "/jupyter" + path.replace("{kernel_id}", "s1")) for method, path, _ in jupyter_rest.ROUTES]
CELLS = [(method, path.replace("{context_id}", "c1")) for method, path, _ in e2b_cells.ROUTES]
CALLS = [(method, path) for method, path, _ in (*e2b_folders.ROUTES, *e2b_processes.ROUTES)]
AGENT = [*((method, path) for method, path, _ in e2b_files.ROUTES), *CALLS]


@pytest.fixture
def served() -> Served:
    return Served()


def test_the_lists_of_routes_are_not_empty() -> None:
    assert (len(CONTROL), len(CELLS), len(AGENT)) == (18, 5, 20)


@each(("method", "path"), [row for row in [*CONTROL, *KERNELS] if "s1" in row[1]])
async def test_a_sandbox_of_another_tenant_is_not_there(served: Served, method: str, path: str) -> None:
    """It is told as one that nobody has. Who opens a route at all is `test_guard`."""
    answer = await served.ask(method, path, headers={"X-API-Key": THEIRS})
    assert (answer.status_code, answer.json()["error"]) == (404, "no-such-sandbox")
    unknown = await served.ask(method, path.replace("s1", "s9"), headers={"X-API-Key": THEIRS})
    assert unknown.text.replace("s9", "s1") == answer.text


async def test_control_a_tenant_sees_its_own_sandbox_and_no_other(served: Served) -> None:
    for key, own in ((MINE, "s1"), (THEIRS, "s2")):
        assert (await served.ask("GET", f"/sandboxes/{own}", headers={"X-API-Key": key})).status_code == 200
        for path in ("/sandboxes", "/v2/sandboxes"):
            for headers in ({"X-API-Key": key}, {"Authorization": f"Bearer {key}"}):
                listed = (await served.ask("GET", path, headers=headers)).json()
                assert [one["sandboxID"] for one in listed] == [own]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), CELLS + AGENT)
async def test_in_a_sandbox_its_own_token_opens_and_no_other(served: Served, method: str, path: str) -> None:
    mine, theirs = served.mine, served.theirs
    own, name = (cells_of, "E2B-Traffic-Access-Token") if (method, path) in CELLS else (files_of, "X-Access-Token")
    missing = {key: value for key, value in own(mine).items() if key != name}
    assert (await served.ask(method, path, headers=missing)).status_code == 401
    assert (await served.ask(method, path, headers={**missing, "X-API-Key": MINE})).status_code == 401
    swapped = mine.access_token if (method, path) in CELLS else mine.traffic_token
    refused = [own(theirs, "s1"), own(mine, "s2"), own(mine, "s9")]
    refused += [{**missing, name: token} for token in ("", "wrong", MINE, swapped)]
    for headers in refused:
        answer = await served.ask(method, path, headers=headers)
        assert (answer.status_code, answer.json()["message"]) == (502, "The sandbox was not found"), headers


async def test_control_the_own_tokens_of_a_sandbox_open_it(served: Served) -> None:
    assert (await served.ask("GET", "/health", headers=files_of(served.mine))).status_code == 204
    assert (await served.ask("GET", "/contexts", headers=cells_of(served.mine))).json() == []


@pytest.mark.parametrize("name", ["E2b-Sandbox-Id", "E2b-Sandbox-Port", "X-Access-Token"])
async def test_a_header_that_is_there_twice_is_refused(served: Served, name: str) -> None:
    headers = files_of(served.mine)
    twice = [*headers.items(), (name, files_of(served.theirs)[name])]
    answer = await served.ask("GET", "/health", headers=twice)
    assert (answer.status_code, answer.json()["error"]) == (400, "request-improper")


async def test_another_port_of_a_sandbox_is_not_open(served: Served) -> None:
    for port in ("49999", "80", ""):
        headers = {**files_of(served.mine), "E2b-Sandbox-Port": port}
        answer = await served.ask("GET", "/health", headers=headers)
        assert (answer.status_code, answer.json()["error"]) == (502, "port-not-served")


@pytest.mark.parametrize("state", ["paused", "ended"])
async def test_a_sandbox_that_does_not_run_is_not_found_in_it(served: Served, state: str) -> None:
    stand_in: Any = served.mine.sandbox
    stand_in.state, stand_in.is_paused = state, state == "paused"
    answer = await served.ask("GET", "/health", headers=files_of(served.mine))
    assert (answer.status_code, answer.json()["error"]) == (502, "no-such-sandbox")


async def test_a_sandbox_whose_kernel_starts_again_is_found_and_runs(served: Served) -> None:
    stand_in: Any = served.mine.sandbox
    stand_in.state = "not running"
    assert (await served.ask("GET", "/health", headers=files_of(served.mine))).status_code == 204
    key = {"X-API-Key": MINE}
    assert (await served.ask("GET", "/sandboxes/s1", headers=key)).json()["state"] == "running"
    for asked, count in (("running", 1), ("running,paused", 1), ("paused", 0)):
        assert len((await served.ask("GET", f"/v2/sandboxes?state={asked}", headers=key)).json()) == count


async def test_everybody_may_ask_whether_the_server_runs_and_for_nothing_else(served: Served) -> None:
    assert (await served.ask("GET", "/healthz")).json() == {"status": "ok"}
    assert (await served.ask("GET", "/healthz", url="http://evil.example")).status_code == 421
    for method, path in (("POST", "/"), ("GET", "/docs"), ("PUT", "/sandboxes"), ("GET", "/sandboxes/s1/logs")):
        answer = await served.ask(method, path, headers={"X-API-Key": MINE})
        assert answer.status_code in {404, 405}
        assert answer.json()["code"] == answer.status_code


# --- bodies ---


async def pieces(count: int, size: int = 1 << 20) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield bytes(size)


async def test_a_part_named_file_is_the_file_where_the_address_has_its_path(served: Served) -> None:
    """As a browser sends text that it appends to a form. The control is a form whose address has none."""
    body = b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\ntext of a file\r\n--b--\r\n'
    headers = files_of(served.mine, **{"Content-Type": "multipart/form-data; boundary=b"})
    answer = await served.ask("POST", "/files?path=a.txt", headers=headers, content=body)
    assert written(served) == [b"text of a file"], answer.text
    answer = await served.ask("POST", "/files", headers=headers, content=body)
    assert answer.status_code == 400
    answer = await served.ask("POST", "/files?path=a.txt", headers=headers, content=body.replace(b'"file"', b'"other"'))
    assert answer.status_code == 400
    assert len(written(served)) == 1


def written(served: Served) -> list[bytes]:
    """Return what was written into the sandbox of `mine`."""
    found: list[bytes] = served.mine.sandbox.written  # type: ignore[attr-defined]
    return found


async def test_a_body_of_json_is_bounded_with_and_without_its_length(served: Served) -> None:
    for body in (bytes(MAX_JSON + 1), pieces(5)):
        answer = await served.ask("POST", "/sandboxes", headers={"X-API-Key": MINE}, content=body)
        assert (answer.status_code, answer.json()["error"]) == (413, "body-too-large")


async def test_a_small_body_that_would_cost_much_memory_is_refused_before_it_is_parsed(served: Served) -> None:
    for filling in (b"{},", b"[],", b"7,", b'"",'):
        body = b'{"timeout":[' + filling * (MAX_JSON // len(filling) - 10) + b"7]}"
        assert len(body) < MAX_JSON
        answer = await served.ask("POST", "/sandboxes", headers={"X-API-Key": MINE}, content=body)
        assert (answer.status_code, answer.json()["error"]) == (413, "body-too-large")
        assert "memory" in answer.json()["message"]
    headers = files_of(served.mine, **{"Content-Type": "application/connect+json"})
    answer = await served.ask("POST", "/process.Process/Start", headers=headers, content=enveloped(body))
    assert ending(answer)["error"]["code"] == "resource_exhausted"


@pytest.mark.parametrize("letter", ["a", "é", "\U0001f600", "\\ud83d\\ude00", "\\n"])
async def test_control_a_body_that_is_one_long_text_is_parsed(served: Served, letter: str) -> None:
    text = f'{{"templateID":"{letter * (MAX_JSON // len(letter.encode()) - 30)}"}}'
    answer = await served.ask("POST", "/sandboxes", headers={"X-API-Key": MINE}, content=text.encode())
    assert (answer.status_code, answer.json()["error"]) == (404, "template-unknown")


@pytest.mark.parametrize("body", [b"{", b"[]", b"7", b"\xff", b"[" * 100_000])
async def test_a_body_that_is_no_object_is_refused(served: Served, body: bytes) -> None:
    answer = await served.ask("POST", "/sandboxes", headers={"X-API-Key": MINE}, content=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "request-improper")


def bounded(served: Served, size: int) -> StandIn:
    from dataclasses import replace

    stand_in: Any = served.mine.sandbox
    stand_in.settings = Settings(limits=replace(Settings().limits, file_limit=size))
    return stand_in


async def test_a_file_is_bounded_in_each_form_in_which_it_comes(served: Served) -> None:
    stand_in = bounded(served, 1 << 20)
    binary = {"Content-Type": "application/octet-stream"}
    packed = {**binary, "Content-Encoding": "gzip"}
    bomb = gzip.compress(bytes(8 << 20))
    for headers, body, status, error in (
        (binary, bytes((1 << 20) + 1), 413, "body-too-large"),
        (binary, pieces(2), 413, "body-too-large"),
        (packed, bomb, 400, "too-large"),
    ):
        answer = await served.ask("POST", "/files?path=a", headers=files_of(served.mine, **headers), content=body)
        assert (answer.status_code, answer.json()["error"]) == (status, error)
    form = {"file": ("a", bytes(3 << 20))}
    answer = await served.ask("POST", "/files?path=a", headers=files_of(served.mine), files=form)
    assert (answer.status_code, answer.json()["error"]) == (413, "body-too-large")
    assert stand_in.written == []


async def test_files_of_one_tenant_wait_for_each_other_and_not_for_another_s(served: Served) -> None:
    for _ in range(MAX_UPLOADS):
        await served.mine.tenant.uploads.acquire()
    content = {"Content-Type": "application/octet-stream"}

    def send(lease: Lease) -> asyncio.Task[httpx2.Response]:
        headers = files_of(lease, **content)
        return asyncio.create_task(served.ask("POST", "/files?path=a", headers=headers, content=b"one"))

    waiting, other = send(served.mine), send(served.theirs)
    assert (await other).status_code == 200
    assert not waiting.done()
    served.mine.tenant.uploads.release()
    assert (await waiting).status_code == 200


async def test_control_files_within_the_bounds_come_in_each_form(served: Served) -> None:
    stand_in = bounded(served, 1 << 20)
    for encoding, body in (("identity", b"one"), ("gzip", gzip.compress(b"one"))):
        headers = {"Content-Type": "application/octet-stream", "Content-Encoding": encoding}
        answer = await served.ask("POST", "/files?path=d/a", headers=files_of(served.mine, **headers), content=body)
        assert answer.json() == [{"name": "a", "type": "file", "path": "/home/user/d/a"}]
    form = [("file", ("x", b"two")), ("file", ("y/z", b"three"))]
    answer = await served.ask("POST", "/files", headers=files_of(served.mine), files=form)
    assert [one["path"] for one in answer.json()] == ["/home/user/x", "/home/user/y/z"]
    assert stand_in.written == [b"one", b"one", b"two", b"three"]


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, b"x"),
        ({"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"}, b"x"),
        (
            {"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"},
            gzip.compress(b"x" * 99, mtime=0)[:-9],
        ),
        ({"Content-Type": "application/octet-stream", "Content-Encoding": "br"}, b"x"),
        ({"Content-Type": "multipart/form-data"}, b"x"),
        ({"Content-Type": "multipart/form-data; boundary=b"}, b"x"),
        ({"Content-Type": "multipart/form-data; boundary=b"}, b"--b--\r\n"),
        ({"Content-Type": "multipart/form-data; boundary=b"}, b"--b\r\nX: " + b"x" * 100_000),
        ({"Content-Type": "multipart/form-data; boundary=b"}, b"--b\r\n" + b"X: x\r\n" * 1000 + b"\r\n"),
        (
            {"Content-Type": "multipart/form-data; boundary=b"},
            b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\nx',
        ),
    ],
)
async def test_a_file_in_no_proper_form_is_refused(served: Served, headers: dict[str, str], body: bytes) -> None:
    answer = await served.ask("POST", "/files?path=a", headers=files_of(served.mine, **headers), content=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "request-improper")


# --- addresses that are signed ---


def signed(lease: Lease, path: str, operation: str, user: str = "", expiration: int | None = None) -> dict[str, str]:
    """Sign an address as the official client does."""
    late = {} if expiration is None else {"signature_expiration": str(expiration)}
    text = ":".join([path, operation, user, lease.access_token, *late.values()])
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
    return {"path": path, "signature": f"v1_{digest}", **({"username": user} if user else {}), **late}


async def write_signed(served: Served, params: Any) -> int:
    content = {"Content-Type": "application/octet-stream"}
    return (await served.ask("POST", "/files", params=params, content=b"one", headers=content)).status_code


async def test_control_a_signed_address_takes_its_file(served: Served) -> None:
    stand_in = bounded(served, 1 << 20)
    soon = int(time.time()) + 60
    for params in (signed(served.mine, "a", "write"), signed(served.mine, "a", "write", "user", soon)):
        assert await write_signed(served, params) == 200
    assert stand_in.written == [b"one", b"one"]
    other: Any = served.theirs.sandbox
    assert other.written == []


async def test_a_signature_opens_what_it_was_made_for_and_nothing_else(served: Served) -> None:
    now = int(time.time())
    good = signed(served.mine, "a", "write", "", now + 60)
    wrong: list[Any] = [
        {**good, "path": "b"},
        {**good, "username": "user"},
        {**good, "signature_expiration": str(now + 6000)},
        {**good, "signature_expiration": ""},
        {**good, "signature": good["signature"][:-1]},
        {**good, "signature": ""},
        {**good, "signature": "\u00e4"},
        [*good.items(), ("path", "b")],
        [*good.items(), ("signature", "x")],
        {name: value for name, value in good.items() if name != "signature_expiration"},
        signed(served.mine, "a", "read", "", now + 60),
        signed(served.mine, "a", "write", "", now - 2),
    ]
    for params in wrong:
        assert await write_signed(served, params) == 401, params
    assert (await served.ask("GET", "/files", params=good)).status_code == 401
    for method, path in (("POST", "/filesystem.Filesystem/Stat"), ("GET", "/sandboxes")):
        assert (await served.ask(method, path, params=good)).status_code in {400, 401}
    stand_in: Any = served.mine.sandbox
    stand_in.state = "ended"
    assert await write_signed(served, good) == 401
    assert stand_in.written == []


# --- what is not offered ---


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({"autoPause": True, "autoPauseMemory": False}, "autoPauseMemory"),
        ({"autoResume": {"enabled": True}}, "autoResume"),
        ({"mcp": {"a": {}}}, "mcp"),
        ({"iam": {"tokens": {"a": 1}}}, "iam"),
        ({"volumeMounts": [{"name": "v", "path": "/v"}]}, "volumeMounts"),
        ({"network": {"allowOut": ["example.org"]}}, "allowOut"),
        ({"network": {"allowPublicTraffic": True, "maskRequestHost": "a"}}, "maskRequestHost"),
        ({"network": {"rules": {"a": []}}}, "rules"),
    ],
)
async def test_what_is_not_offered_is_refused_by_its_name(served: Served, asked: dict[str, Any], name: str) -> None:
    answer = await served.ask(
        "POST", "/v2/sandboxes", headers={"X-API-Key": MINE}, json={"templateID": "base", **asked}
    )
    assert (answer.status_code, answer.json()["error"]) == (400, "not-offered")
    assert name in answer.json()["message"]


@pytest.mark.parametrize("value", ["false", "", 0, 1, [], {}])
async def test_whether_there_is_a_network_is_said_clearly(served: Served, value: object) -> None:
    body = {"templateID": "base", "allow_internet_access": value}
    answer = await served.ask("POST", "/v2/sandboxes", headers={"X-API-Key": MINE}, json=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "wrong-argument")


async def test_an_image_is_a_template_of_the_operator_s_and_nothing_else(served: Served) -> None:
    for name in ("sandbox-kernel:data", "", "nonesuch"):
        answer = await served.ask("POST", "/v2/sandboxes", headers={"X-API-Key": MINE}, json={"templateID": name})
        assert (answer.status_code, answer.json()["error"]) == (404, "template-unknown")


async def test_a_lifetime_over_the_operator_s_limit_is_refused(served: Served) -> None:
    for seconds in (86401, -1, True, "9", 1e300):
        body = {"templateID": "base", "timeout": seconds}
        answer = await served.ask("POST", "/v2/sandboxes", headers={"X-API-Key": MINE}, json=body)
        assert (answer.status_code, answer.json()["error"]) == (400, "wrong-argument")


async def test_a_tenant_has_so_many_sandboxes_and_so_do_all_together() -> None:
    for served in (Served(sandboxes_per_tenant=1), Served(sandboxes=2)):
        answer = await served.ask("POST", "/sandboxes", headers={"X-API-Key": MINE}, json={"templateID": "base"})
        assert (answer.status_code, answer.headers["should-retry"]) == (429, "false")
        assert answer.json()["error"] == "sandboxes-of-tenant"


async def test_the_requests_of_one_tenant_leave_room_for_another_s() -> None:
    served = Served(requests_per_tenant=3)
    served.mine.tenant.requests = 3
    for headers, path in (({"X-API-Key": MINE}, "/sandboxes"), (files_of(served.mine), "/health")):
        answer = await served.ask("GET", path, headers=headers)
        assert (answer.status_code, answer.json()["error"]) == (429, "requests-of-tenant")
    assert (await served.ask("GET", "/sandboxes", headers={"X-API-Key": THEIRS})).status_code == 200
    assert (await served.ask("GET", "/health", headers=files_of(served.theirs))).status_code == 204
    assert served.theirs.tenant.requests == 0


# --- calls of folders and commands ---


def enveloped(*pieces: bytes, flags: int = 0) -> bytes:
    return b"".join(bytes([flags]) + len(piece).to_bytes(4) + piece for piece in pieces)


def ending(answer: httpx2.Response) -> dict[str, Any]:
    """Return how a stream ended that had nothing before its end."""
    assert (answer.status_code, answer.content[0]) == (200, 2)
    assert int.from_bytes(answer.content[1:5]) == len(answer.content) - 5
    found: dict[str, Any] = json.loads(answer.content[5:])
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), CALLS)
async def test_a_call_whose_body_is_of_another_type_is_refused(served: Served, method: str, path: str) -> None:
    """A form of a page is sent without a question; JSON is not."""
    for kind in ("text/plain", "application/proto", "application/x-www-form-urlencoded", ""):
        headers = files_of(served.mine, **({"Content-Type": kind} if kind else {}))
        answer = await served.ask(method, path, headers=headers, content=b"{}")
        said = answer.json() if answer.status_code != 200 else ending(answer)["error"]
        assert (said["code"], "The body of this call is" in said["message"]) == ("invalid_argument", True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"\0\0\0\0",
        enveloped(b"{}")[:-1],
        enveloped(b"{}") + b"x",
        enveloped(b"{}", b"{}"),
        enveloped(b"[]"),
        enveloped(b"{"),
        enveloped(b"{}", flags=1),
        enveloped(b"{}", flags=2),
    ],
)
@pytest.mark.parametrize(
    "call", ["/process.Process/Start", "/process.Process/Connect", "/filesystem.Filesystem/WatchDir"]
)
async def test_a_stream_that_is_not_one_object_is_refused(served: Served, call: str, body: bytes) -> None:
    headers = files_of(served.mine, **{"Content-Type": "application/connect+json"})
    answer = await served.ask("POST", call, headers=headers, content=body)
    assert ending(answer)["error"]["code"] == "invalid_argument"
    assert served.mine.calls == 0


async def test_an_object_of_a_stream_is_bounded(served: Served) -> None:
    headers = files_of(served.mine, **{"Content-Type": "application/connect+json"})
    for call in ("/process.Process/Start", "/process.Process/StreamInput"):
        for body in (b"\0\xff\xff\xff\xff", enveloped(bytes(MAX_JSON + 1))):
            answer = await served.ask("POST", call, headers=headers, content=body)
            assert ending(answer)["error"]["code"] in {"resource_exhausted", "invalid_argument"}


async def test_control_and_refusals_of_one_call(served: Served) -> None:
    async def said(call: str, body: dict[str, Any], **headers: str) -> tuple[int, dict[str, Any]]:
        answer = await served.ask("POST", call, headers=files_of(served.mine, **headers), json=body)
        return answer.status_code, answer.json()

    status, entry = await said("/filesystem.Filesystem/Stat", {"path": "/home/user"})
    assert (status, entry["entry"]["path"]) == (200, "/home/user")
    for path in ("//etc/passwd", "../x", "/home/user/../../etc"):
        status, error = await said("/filesystem.Filesystem/Stat", {"path": path})
        assert (status, error["code"]) == (400, "invalid_argument")
    assert served.mine.tenant.figures.refused.total() == 3
    for name in ("Basic x", "Basic /w=="):
        status, error = await said("/filesystem.Filesystem/Stat", {"path": "/home/user"}, Authorization=name)
        assert (status, error["code"]) == (400, "invalid_argument")
    status, error = await said("/process.Process/SendSignal", {"process": {"pid": 1}, "signal": "SIGNAL_SIGTERM"})
    assert (status, error["code"]) == (501, "unimplemented")
    processes: list[Any] = [{}, {"pid": "1"}, {"pid": True}, {"tag": "x"}, []]
    for process in processes:
        status, error = await said("/process.Process/CloseStdin", {"process": process})
        assert (status, error["code"]) == (400, "invalid_argument")


async def test_a_sandbox_has_so_many_calls_and_so_many_watchers(served: Served) -> None:
    served.mine.calls = served.tenants.limits.calls_per_sandbox
    headers = files_of(served.mine, **{"Content-Type": "application/connect+json"})
    body = enveloped(b'{"process": {"cmd": "true"}}')
    answer = await served.ask("POST", "/process.Process/Start", headers=headers, content=body)
    assert ending(answer)["error"]["code"] == "resource_exhausted"
    answer = await served.ask("POST", "/execute", headers=cells_of(served.mine), json={"code": "1"})
    assert (answer.status_code, answer.json()["error"]) == (429, "calls-of-sandbox")
    served.mine.watchers.update({str(number): None for number in range(e2b_folders.MAX_WATCHERS)})
    answer = await served.ask(
        "POST", "/filesystem.Filesystem/CreateWatcher", headers=files_of(served.mine), json={"path": "d"}
    )
    assert answer.json()["code"] == "resource_exhausted"


async def test_tokens_of_two_users_open_nothing(served: Served) -> None:
    both = {"X-API-Key": MINE, "Authorization": f"Bearer {THEIRS}"}
    assert (await served.ask("GET", "/sandboxes", headers=both)).status_code == 400
    there = f"/jupyter/api/kernels?token={MINE}"
    assert (await served.ask("GET", there, headers={"Authorization": f"token {THEIRS}"})).status_code == 400
    for other in (MINE, "of another server"):  # which a client of E2B may send along
        right = {"X-API-Key": MINE, "Authorization": f"Bearer {other}"}
        assert (await served.ask("GET", "/sandboxes", headers=right)).status_code == 200
    assert (await served.ask("GET", "/sandboxes", headers={**both, "X-API-Key": "wrong"})).status_code == 401


async def test_watchers_of_a_sandbox_keep_so_much_together_and_say_what_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(e2b_folders, "MAX_WATCHED", 100_000)
    event = FilesystemEvent("n" * 200, FilesystemEventType.CREATE)
    beside: dict[str, e2b_folders.Watcher] = {}

    class Watching:
        def __init__(self, kept: int = 0) -> None:
            self.kept = kept
            self.events = [event] * 20

        async def look(self) -> list[FilesystemEvent]:
            return self.events

        def forget(self) -> None:
            self.kept = 0

    def add(name: str, watching: Watching) -> e2b_folders.Watcher:
        beside[name] = e2b_folders.Watcher(watching, beside)  # type: ignore[arg-type]
        return beside[name]

    looked = [Watching(), Watching()]
    one, other = add("a", looked[0]), add("b", looked[1])
    for _ in range(50):
        for watcher in (one, other):
            await watcher._look()  # noqa: SLF001 (as its task does)
    for watching in looked:
        watching.events = []
    for watcher in (one, other):
        with pytest.raises(Refusal, match="dropped"):
            await watcher.taken()
    events = [len(await watcher.taken()) for watcher in (one, other)]
    assert 200 < sum(events) < 250, events
    assert min(events) > 80
    looked[0].events = [event] * 20
    assert await one.taken() == [event] * 20  # control: who asks misses nothing
    large = add("c", Watching(kept=100_001))
    with pytest.raises(Refusal, match="100,000 bytes"):
        await large.taken()
    assert large._watching.kept == 0  # noqa: SLF001


# --- figures ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def watched() -> Served:
    one = Served()
    tokens = Tokens([("mine", MINE), ("theirs", THEIRS), ("metrics", OPERATOR)])
    one.app = application(one.tenants, tokens, Names())
    return one


OPERATOR = "e2b_" + "c" * 40


async def figures(served: Served, token: str) -> dict[str, float]:
    answer = await served.ask("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200
    rows = (line.rpartition(" ") for line in answer.text.splitlines() if not line.startswith("#"))
    return {name.removeprefix("sandbox_kernel_serve_"): float(value) for name, _, value in rows}


async def test_the_operator_sees_the_figures_of_all(watched: Served) -> None:
    assert (await watched.ask("GET", "/sandboxes/none", headers={"X-API-Key": MINE})).status_code == 404
    assert (await watched.ask("GET", "/sandboxes", headers={"X-API-Key": "wrong"})).status_code == 401
    found = await figures(watched, OPERATOR)
    assert found['sandboxes{tenant="mine",state="running"}'] == found['sandboxes{tenant="theirs",state="running"}'] == 1
    assert found['refusals_total{tenant="mine",code="no-such-sandbox"}'] == 1
    assert found['requests_total{tenant="mine",wire="e2b"}'] == 1
    assert found["strangers_total"] == 1
    assert not [name for name in found if 'tenant="metrics"' in name]


async def test_a_tenant_sees_its_own_figures_alone(watched: Served) -> None:
    found = await figures(watched, MINE)
    assert found['sandboxes{tenant="mine",state="running"}'] == 1
    assert not [name for name in found if "theirs" in name or name.startswith(("strangers", "resident"))]


async def test_the_token_of_figures_opens_nothing_else(watched: Served) -> None:
    for method, path in CONTROL:
        assert (await watched.ask(method, path, headers={"X-API-Key": OPERATOR})).status_code == 403, path
    for headers in ({}, {"X-API-Key": "wrong"}):
        assert (await watched.ask("GET", "/metrics", headers=headers)).status_code == 401


# --- our page ---------------------------------------------------------------------------------------------------------


async def test_the_page_has_each_call_with_what_opens_it(served: Served) -> None:
    answer = await served.ask("GET", "/openapi.json")
    page = answer.json()
    there = {(method.upper(), path) for path, calls in page["paths"].items() for method in calls}
    for method, path, *_ in (*e2b_control.ROUTES, *e2b_cells.ROUTES, *e2b_files.ROUTES, *e2b_folders.ROUTES):
        assert (method, path) in there
    assert page["paths"]["/execute"]["post"]["security"] == [{"traffic": []}]
    assert page["paths"]["/files"]["get"]["security"] == [{"access": []}]
    assert page["paths"]["/sandboxes"]["post"]["security"] == [{"token": []}, {"key": []}]
    described = {path: calls for path, calls in page["paths"].items() if not path.startswith("/open-terminal")}
    assert all(call["summary"] for calls in described.values() for call in calls.values())  # that wire has its own page
