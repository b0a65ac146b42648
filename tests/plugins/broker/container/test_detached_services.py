"""What the owner of a detached sandbox serves, over a real broker and a real engine: one owner after another."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import AsyncSandbox
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.core.model import SERVICE_PORT
from sandbox_kernel.plugins.broker.codes import BrokerCode
from sandbox_kernel.plugins.broker.detached import listed
from sandbox_kernel.plugins.contexts.codes import ContextCode
from tests.plugins.broker.brokers import Daemon
from tests.plugins.broker.container.test_detached import kept, until_free
from tests.support.origins import Origins, reachable
from tests.support.patience import within

VALUE = "sk-live-8Jd02kQm3vXz71LpRt5W"
LOOK = f"""
import os, socket, threading, time, urllib.request

def heard(one):
    try:
        return one.recv(12) or "broken"
    except ConnectionResetError:
        return "broken"

def ask():
    with socket.create_connection(("127.0.0.1", {SERVICE_PORT}), 5) as one:
        one.sendall(b"GET " + base.encode() + b"/ HTTP/1.1\\r\\nHost: " + base[7:].encode() + b"\\r\\n\\r\\n")
        return heard(one)

def tell():
    while not seen.is_set():
        told.append(ask())
        time.sleep(0.005)

told, seen = [], threading.Event()
held = socket.create_connection(("127.0.0.1", {SERVICE_PORT}), 5)
held.sendall(b"GET ")
threading.Thread(target=tell).start()
while not told:
    time.sleep(0.01)
told[0]
"""
READ = """
request = urllib.request.Request(secure + "/headers", headers={"Authorization": "Bearer " + os.environ["API_KEY"]})
urllib.request.urlopen(request, timeout=10).status
"""


@pytest.fixture(scope="module")
def origins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Origins]:
    with reachable(tmp_path_factory.mktemp("origins")) as origins:
        yield origins


async def test_each_owner_serves_connections_secrets_and_tools_and_between_two_they_break(
    daemon: Daemon, origins: Origins, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text(VALUE)
    file.chmod(0o600)

    def first_word(text: str) -> str:
        return text.split(maxsplit=1)[0]

    plain = f"data.example.test:{origins.plain.port}"
    served: dict[str, Any] = {
        "network": [f"GET {plain}", f"GET 127.0.0.1:{origins.plain.port}", *origins.rules],
        "network_certificates": str(origins.certificates),
        "secrets": {"API_KEY": {"file": str(file), "hosts": [f"api.example.test:{origins.tls.port}"]}},
        "tools": [first_word],
    }
    sandbox = await kept(daemon, **served)
    await sandbox.run_code(f"base, secure = {'http://' + plain!r}, {origins.https!r}\nimport os")
    assert (await sandbox.run_code(LOOK)).text == "b'HTTP/1.1 200'"
    assert (await sandbox.run_code(READ)).text == "200"
    placeholder = (await sandbox.run_code("os.environ['API_KEY']")).text
    assert await network_of(daemon, sandbox.id) == "unknown"  # to those that are not its owner
    await sandbox.detach()
    await until_free(daemon, sandbox.id)
    assert await network_of(daemon, sandbox.id) == "none"  # nobody serves it

    bare = await AsyncSandbox.connect(sandbox.id, engine=daemon.address)  # serves nothing
    try:
        assert (await bare.run_code("heard(held), ask()")).text == "('broken', 'broken')"
    finally:
        await bare.detach()
    await until_free(daemon, sandbox.id)

    again = await AsyncSandbox.connect(sandbox.id, engine=daemon.address, **served)
    try:
        assert (await again.run_code(READ)).text == "200"
        assert origins.tls.requests[-1][2]["Authorization"] == f"Bearer {VALUE}"
        assert (await again.run_code("os.environ['API_KEY']")).text == placeholder
        assert (await again.run_code("from sandbox_tools import first_word\nfirst_word('a b')")).text == "'a'"
        last = "seen.set()\nask(), set(map(str, told)) == {str(told[0]), 'broken'}"
        assert (await again.run_code(last)).text == "(b'HTTP/1.1 200', True)"
        assert again.info.secrets == ("API_KEY",)
    finally:
        await again.detach()
    await until_free(daemon, sandbox.id)

    other = await AsyncSandbox.connect(sandbox.id, engine=daemon.address, **{**served, "network": origins.rules})
    try:
        assert (await other.run_code("ask()")).text == "b'HTTP/1.1 403'"
    finally:
        await other.kill()


async def network_of(daemon: Daemon, name: str) -> object:
    return next(one.network for one in await listed({"engine": daemon.address}) if one.id == name)


async def test_a_sandbox_that_was_made_without_cannot_be_served(daemon: Daemon) -> None:
    sandbox = await kept(daemon)
    await sandbox.detach()
    for served, setting in (({"network": ["example.org"]}, "network"), ({"tools": [len]}, "tools")):
        with pytest.raises(ConfigurationError) as caught:
            await AsyncSandbox.connect(sandbox.id, engine=daemon.address, **served)
        assert (caught.value.code, caught.value.setting) == (BrokerCode.DETACHED_NOT_PREPARED, setting)
    again = await AsyncSandbox.connect(sandbox.id, engine=daemon.address)  # the control
    await again.kill()


async def test_contexts_end_with_the_owner_that_made_them_and_the_sandbox_s_own_goes_on(daemon: Daemon) -> None:
    sandbox = await kept(daemon)
    await sandbox.run_code("kept = 1")
    context = await sandbox.create_context()
    begun = asyncio.Event()
    code = "print('x', flush=True)\nimport time; time.sleep(60)"
    busy = asyncio.create_task(sandbox.run_code(code, context=context, on_stdout=lambda _: begun.set()))
    async with within(20):
        await begun.wait()
        await sandbox.detach()
        left = (await busy).error
    assert left is not None
    assert left.code == "detached-left"
    async with await AsyncSandbox.connect(sandbox.id, engine=daemon.address) as again:
        assert [one.id for one in await again.list_contexts()] == [again.id]
        with pytest.raises(ConfigurationError) as caught:
            await again.run_code("1", context=context)
        assert caught.value.code is ContextCode.CONTEXT_UNKNOWN
        assert (await again.run_code("kept")).text == "1"
        fresh = await again.create_context()
        assert (await again.run_code("'kept' in dir()", context=fresh)).text == "False"
        processes = await again.run_code("import os; sum(one.isdigit() for one in os.listdir('/proc'))")
        assert int(processes.text or "99") < 8  # nothing of the one before is left


async def test_a_paused_one_is_paused_until_somebody_takes_it_over(daemon: Daemon) -> None:
    sandbox = await kept(daemon)
    await sandbox.run_code("import threading, time\ntold = []")
    assert await sandbox.pause()
    await sandbox.detach()
    await until_free(daemon, sandbox.id)
    states = {info.id: info.state for info in await AsyncSandbox.list(engine=daemon.address)}
    assert states[sandbox.id] == "paused"
    async with within(30):
        again = await AsyncSandbox.connect(sandbox.id, engine=daemon.address)
    try:
        assert not again.is_paused
        assert (await again.run_code("told")).text == "[]"
        assert await again.pause()
        assert await again.resume()
        assert (await again.run_code("told")).text == "[]"
    finally:
        await again.kill()
