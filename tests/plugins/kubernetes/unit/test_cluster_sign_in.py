"""How a cluster is found and signed in to: tokens that end, proxies, and files that ask for what is not done."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import shutil
import socket
import threading
import warnings
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from aiohttp.connector import NEEDS_CLEANUP_CLOSED

from sandbox_kernel.core.errors import ConfigurationError, EngineError
from sandbox_kernel.engines.owner_process import OwnerProcess
from sandbox_kernel.plugins.kubernetes import cluster_api
from sandbox_kernel.plugins.kubernetes.cluster_api import TRIES, ClusterApi, ClusterRefused, listed
from sandbox_kernel.plugins.kubernetes.cluster_namespace import Cluster
from sandbox_kernel.plugins.kubernetes.codes import KubernetesCode
from sandbox_kernel.plugins.kubernetes.settings import KubernetesSettings
from tests.plugins.kubernetes.scripted_api import ScriptedApi, refused
from tests.support.authority import Authority
from tests.support.patience import within

NOWHERE = "http://127.0.0.1:9"
EXECUTED = "client.authentication.k8s.io/v1"
PROGRAM = """\
#!/bin/sh
echo x >> {counted}
n=$(wc -l < {counted})
echo '{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {{"token": "'t$n'"}}}}'
"""


class Gate:
    """Lets those in who have one of its tokens, and keeps what each came with."""

    def __init__(self, api: ScriptedApi) -> None:
        self.tokens: set[str] = set()
        self.seen: list[tuple[str, str]] = []
        """Host and token of each request."""
        api.faults["look"] = self._look

    async def _look(self, request: web.Request) -> web.StreamResponse | None:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.seen.append((request.host, token))
        return web.json_response({"gitVersion": "v1"}) if token in self.tokens else refused(401, "Unauthorized")


def kubeconfig(folder: Path, server: str, user: Mapping[str, Any], **cluster: str) -> str:
    """Write a file that names a cluster, and return its name. JSON is YAML."""
    document = {
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
        "clusters": [{"name": "it", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "me", "user": dict(user)}],
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(document), encoding="utf-8")
    return str(file)


def overwrite(file: str, content: str) -> None:
    Path(file).write_text(content, encoding="utf-8")


@pytest.fixture
async def opened() -> AsyncIterator[list[ClusterApi]]:
    found: list[ClusterApi] = []
    yield found
    for one in found:
        await one.close()


async def connected(opened: list[ClusterApi]) -> ClusterApi:
    opened.append(await ClusterApi.connect(None))
    return opened[-1]


async def test_a_token_that_has_ended_is_brought_again(
    api: ScriptedApi, opened: list[ClusterApi], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program brings t1, then t2, and so on."""
    program = tmp_path / "tokens"
    program.write_text(PROGRAM.format(counted=tmp_path / "counted"), encoding="utf-8")
    program.chmod(0o700)
    user = {"exec": {"command": str(program), "apiVersion": EXECUTED}}
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, api.url, user))
    gate = Gate(api)
    async with within(20):
        found = await connected(opened)
        gate.tokens = {"t1"}
        await found.request("GET", "/version")
        gate.tokens = {"t2"}
        await found.request("GET", "/version")
        await found.request("GET", "/version")
        assert [token for _, token in gate.seen] == ["t1", "t1", "t2", "t2"]
        # The control: what no token opens is refused, after so many tries.
        gate.tokens, gate.seen = set(), []
        with pytest.raises(ClusterRefused) as caught:
            await found.request("GET", "/version")
        assert (caught.value.code, len(gate.seen)) == (KubernetesCode.CLUSTER_FORBIDS, TRIES)


async def test_a_token_goes_to_no_other_cluster(
    api: ScriptedApi, opened: list[ClusterApi], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, api.url, {"token": "mine"}))
    gate = Gate(api)
    gate.tokens = {"theirs"}
    async with within(20):
        found = await connected(opened)
        kubeconfig(tmp_path, NOWHERE, {"token": "theirs"})
        with pytest.raises(ClusterRefused):
            await found.request("GET", "/version")
        kubeconfig(tmp_path, api.url, {"token": "theirs"})  # the control
        await found.request("GET", "/version")
    assert [token for _, token in gate.seen] == ["mine", "mine", "theirs"]


async def test_a_proxy_of_the_file_is_used(
    api: ScriptedApi, opened: list[ClusterApi], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = kubeconfig(tmp_path, "http://cluster.invalid", {"token": "mine"}, **{"proxy-url": api.url})
    monkeypatch.setenv("KUBECONFIG", file)
    gate = Gate(api)
    gate.tokens = {"mine"}
    async with within(20):
        await (await connected(opened)).request("GET", "/version")
    assert gate.seen == [("cluster.invalid", "mine")]


FILES: Mapping[str, str | Mapping[str, Any]] = {
    "nothing": "",
    "no YAML": "a: [",
    "a text": "x",
    "a list": "[]",
    "no context": json.dumps({"current-context": "it", "contexts": [], "clusters": [], "users": []}),
    "another user": {"as": "somebody", "token": "x"},
    "another group": {"as": "somebody", "as-groups": ["those"], "token": "x"},
    "no program": {"exec": {"command": "/nowhere/tokens", "apiVersion": EXECUTED}},
}


@pytest.mark.parametrize("what", FILES)
async def test_a_file_that_cannot_be_followed_is_refused(
    what: str, opened: list[ClusterApi], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = FILES[what]
    file = kubeconfig(tmp_path, NOWHERE, {} if isinstance(content, str) else content)
    monkeypatch.setenv("KUBECONFIG", file)
    if isinstance(content, str):
        await connected(opened)  # the control
        overwrite(file, content)
    with pytest.raises(ConfigurationError) as caught:
        await connected(opened)
    assert (caught.value.code, caught.value.setting) == (KubernetesCode.CLUSTER_NOT_CONFIGURED, "kubernetes_context")


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a file"])
async def test_a_pipe_is_not_waited_for(
    beside: bool, opened: list[ClusterApi], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would not end: nothing else of the loop runs meanwhile, no clock either."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    file = kubeconfig(tmp_path, NOWHERE, {})
    monkeypatch.setenv("KUBECONFIG", file)
    await connected(opened)  # the control

    def write() -> None:
        with contextlib.suppress(BrokenPipeError):
            pipe.write_text("x", encoding="utf-8")

    writing = threading.Thread(target=write)  # so that who waits has an answer all the same
    writing.start()
    try:
        monkeypatch.setenv("KUBECONFIG", f"{file if beside else ''}:{pipe}")
        with pytest.raises(ConfigurationError, match="regular") as caught:
            await connected(opened)
        assert caught.value.code is KubernetesCode.CLUSTER_NOT_CONFIGURED
    finally:
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        writing.join()
        os.close(reader)


@pytest.mark.parametrize("said", ["", None])
async def test_no_file_is_named_by_an_empty_text(
    said: str | None, opened: list[ClusterApi], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a pod's own account is used, or the file that kubectl looks for."""
    account = tmp_path / "token"
    monkeypatch.setattr(cluster_api, "ACCOUNT", str(account))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".kube").mkdir()
    shutil.move(kubeconfig(tmp_path, NOWHERE, {}), tmp_path / ".kube" / "config")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    if said is None:
        monkeypatch.delenv("KUBECONFIG", raising=False)
    else:
        monkeypatch.setenv("KUBECONFIG", said)
    assert (await connected(opened)).address == NOWHERE
    account.write_text("a token", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="Service host"):
        await connected(opened)


async def test_a_certificate_that_is_none_is_refused(
    opened: list[ClusterApi], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca").write_text("no certificate", encoding="utf-8")
    file = kubeconfig(tmp_path, "https://127.0.0.1:9", {}, **{"certificate-authority": str(tmp_path / "ca")})
    monkeypatch.setenv("KUBECONFIG", file)
    with pytest.raises(ConfigurationError):
        await connected(opened)


async def test_another_file_is_another_cluster(
    api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, settings = OwnerProcess.of(1), KubernetesSettings()
    one, same = await Cluster.join(settings, owner), await Cluster.join(settings, owner)
    assert one is same
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, NOWHERE, {}))
    other = await Cluster.join(settings, owner)
    assert (one.api.address, other.api.address) == (api.url, NOWHERE)
    for joined in (one, same, other):
        await joined.leave()


async def test_a_pod_is_attached_where_the_file_says_and_nowhere_else(
    api: ScriptedApi, opened: list[ClusterApi], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, api.url, {"token": "mine"}))

    async def elsewhere(request: web.Request) -> web.StreamResponse | None:
        away = request.path.startswith("/elsewhere")
        return None if away else web.Response(status=302, headers={"Location": f"{api.url}/elsewhere/attach"})

    api.faults["attach"] = elsewhere
    async with within(20):
        with pytest.raises(EngineError, match="elsewhere") as caught:
            await (await connected(opened)).attach("sandboxes", "one", "sandbox")
        assert caught.value.code is KubernetesCode.CLUSTER_UNREACHABLE
        assert api.seen["attach"] == 1
        async with ClientSession() as session, session.ws_connect(f"{api.url}/a/attach"):  # the control
            assert api.seen["attach"] == 3


async def test_no_name_and_password_of_another_file_is_taken_along(
    api: ScriptedApi, opened: list[ClusterApi], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("default login me password secret\n", encoding="utf-8")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, api.url, {"token": "mine"}))
    gate = Gate(api)
    gate.tokens = {"mine"}
    async with within(20):
        await (await connected(opened)).request("GET", "/version")
        async with ClientSession(trust_env=True) as session, session.get(f"{api.url}/version"):  # the control
            pass
    assert [token[:5] for _, token in gate.seen] == ["mine", "Basic"]


@pytest.mark.parametrize("answer", [{}, {"items": None}, {"items": [], "metadata": {}}, {"metadata": []}])
def test_what_is_no_list_says_of_no_pod_that_it_is_gone(answer: Mapping[str, Any]) -> None:
    assert listed({"items": None, "metadata": {"resourceVersion": "7"}}) == []  # the control
    with pytest.raises(EngineError):
        listed(answer)


@contextlib.contextmanager
def silent_server(folder: Path) -> Iterator[tuple[int, threading.Event]]:
    """Serve TLS to one client: take what it asks, and never answer, nor say goodbye. Yields its port."""
    context, asked, over = Authority(folder).server("localhost"), threading.Event(), threading.Event()

    def serve() -> None:
        with listener.accept()[0] as raw, context.wrap_socket(raw, server_side=True) as wire:
            wire.recv(1 << 16)
            asked.set()
            over.wait(30)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], asked
        over.set()
        thread.join(30)


@pytest.mark.skipif(not NEEDS_CLEANUP_CLOSED, reason="this Python closes them by itself")
@pytest.mark.parametrize("mended", [True, False])
def test_a_connection_whose_caller_gave_up_is_closed_with_the_others(
    mended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control is the same without the mend: the server's goodbye is waited for, by nobody."""
    monkeypatch.setattr(cluster_api, "NEEDS_CLEANUP_CLOSED", mended)

    async def give_up(port: int, asked: threading.Event) -> None:
        api = await ClusterApi.connect(None)
        asking = asyncio.create_task(api.request("GET", "/version"))
        await asyncio.to_thread(asked.wait, 20)
        asking.cancel()
        await asyncio.wait({asking})
        await api.close()

    with silent_server(tmp_path) as (port, asked):
        authority = {"certificate-authority": str(tmp_path / "authority.pem")}
        monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, f"https://localhost:{port}", {}, **authority))
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always", ResourceWarning)
            asyncio.run(give_up(port, asked))
            gc.collect()
    assert asked.is_set()
    assert any("unclosed transport" in str(one.message) for one in heard) != mended
