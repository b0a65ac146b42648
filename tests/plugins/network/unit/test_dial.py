"""The way to a host: one resolution, every address checked, the checked ones dialled; and the operator's proxy."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence
from ipaddress import IPv4Address, ip_address
from typing import Any

import pytest

from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.plugins.network.dial import Dialler
from sandbox_kernel.plugins.network.dns_lookup import Lookups, is_own
from sandbox_kernel.plugins.network.operator_proxy import OperatorProxy, Proxies
from sandbox_kernel.plugins.network.policy import NetworkPolicy, RefusedConnection
from tests.support.gateway import Names, Origin
from tests.support.patience import until

API = "api.example.test"


def rows(*addresses: str) -> list[Any]:
    """Return what `getaddrinfo` returns."""
    family = {4: socket.AF_INET, 6: socket.AF_INET6}
    return [(family[ip_address(one).version], socket.SOCK_STREAM, 6, "", (one, 0)) for one in addresses]


def dialler(names: Names, *rules: str, proxies: Proxies | None = None, seconds: float = 10.0) -> Dialler:
    return Dialler(NetworkPolicy([API, *rules]), names, seconds=seconds, own=lambda address: False, proxies=proxies)


async def refused(work: Any) -> str:
    with pytest.raises(RefusedConnection) as caught:
        await work
    return caught.value.code.code


# --- lookups ---------------------------------------------------------------------------------------------------------


async def test_the_resolver_of_the_system_is_asked_in_a_thread() -> None:
    asked: list[tuple[str, int, str]] = []

    def look(host: str, port: int, **_: object) -> list[Any]:
        asked.append((host, port, threading.current_thread().name))
        return rows("192.0.2.1", "2001:db8::1")

    assert list(await Lookups(2, 5.0, look)(API, 443)) == [ip_address("192.0.2.1"), ip_address("2001:db8::1")]
    assert asked == [(f"{API}.", 443, "sandbox-kernel-lookup")]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (socket.gaierror(socket.EAI_NONAME, "unknown"), "no-address"),
        (socket.gaierror(socket.EAI_AGAIN, "later"), "lookup-failed"),
        (OSError("odd"), "lookup-failed"),
        (UnicodeError("label too long"), "lookup-failed"),
    ],
)
async def test_a_lookup_that_fails_says_so(error: Exception, code: str) -> None:
    def look(*_: object, **__: object) -> list[Any]:
        raise error

    assert await refused(Lookups(1, 5.0, look)(API, 443)) == code


async def test_lookups_are_bounded_in_time_and_number() -> None:
    """One that hangs keeps its place: what is waited for in vain is not started again and again."""
    release = threading.Event()
    started: list[str] = []

    def look(host: str, *_: object, **__: object) -> list[Any]:
        started.append(host)
        release.wait(20)
        return rows("192.0.2.1")

    lookups = Lookups(2, 0.1, look)
    codes = await asyncio.gather(*(refused(lookups(f"{n}.example.test", 443)) for n in range(5)))
    assert codes == ["lookup-slow"] * 5
    assert len(started) == 2
    release.set()
    patient = Lookups(2, 5.0, look)
    assert await patient(API, 443) == [IPv4Address("192.0.2.1")]
    await until(lambda: not any(one.name == "sandbox-kernel-lookup" for one in threading.enumerate()))


@pytest.mark.parametrize(("address", "own"), [("127.0.0.1", True), ("192.0.2.1", False), ("2001:db8::1", False)])
def test_an_address_of_this_machine_is_known(address: str, own: bool) -> None:
    assert is_own(ip_address(address)) is own


# --- dialling --------------------------------------------------------------------------------------------------------


async def test_the_address_that_was_checked_is_dialled_and_the_name_is_looked_up_once() -> None:
    async with Origin() as origin:
        names = Names({API: [["127.0.0.1"], ["192.0.2.1"]]})
        way = dialler(names, f"{API}:{origin.port}", f"127.0.0.1:{origin.port}")
        target = NetworkPolicy([]).target(API, origin.port, default_port=None)
        dialled = await way.dial(target)
        assert dialled.address == ip_address("127.0.0.1")
        assert names.asked == [API]
        dialled.duplex.reset("done")


async def test_one_address_that_may_not_be_dialled_is_enough_to_refuse_all() -> None:
    names = Names({API: [["127.0.0.1", "10.0.0.7"]]})
    target = NetworkPolicy([]).target(API, 443, default_port=None)
    assert await refused(dialler(names, "127.0.0.1").dial(target)) == "address-not-public"


async def test_the_next_address_is_tried() -> None:
    async with Origin() as origin:
        names = Names({API: [["127.0.0.2", "127.0.0.1"]]})  # the host listens at one of the two
        way = dialler(names, f"127.0.0.1:{origin.port}", f"127.0.0.2:{origin.port}")
        dialled = await way.dial(NetworkPolicy([]).target(API, origin.port, default_port=None))
        assert dialled.address == ip_address("127.0.0.1")
        dialled.duplex.reset("done")


async def test_a_host_that_never_answers_takes_bounded_time() -> None:
    async def never(host: str, port: int) -> Sequence[Any]:
        await asyncio.Event().wait()
        return []

    way = Dialler(NetworkPolicy([API]), never, seconds=0.1)
    assert await refused(way.dial(NetworkPolicy([]).target(API, 443, default_port=None))) == "dial-slow"


# --- the operator's proxy ---


async def test_the_operator_s_proxy_is_asked_for_the_checked_address() -> None:
    heads: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\nthrough")
        await reader.read()

    async with Origin(handler) as origin:
        proxies = Proxies(f"http://user:p%40ss@127.0.0.1:{origin.port}", {})
        way = dialler(Names({API: [["93.184.215.14"]]}), proxies=proxies)
        dialled = await way.dial(NetworkPolicy([]).target(API, 443, default_port=None))
        assert await dialled.duplex.receive() == b"through"
        dialled.duplex.reset("done")
    assert heads == [
        b"CONNECT 93.184.215.14:443 HTTP/1.1\r\nHost: 93.184.215.14:443\r\n"
        b"Proxy-Authorization: Basic dXNlcjpwQHNz\r\n\r\n"
    ]


@pytest.mark.parametrize("answer", [b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n", b"SSH-2.0\r\n\r\n", b""])
async def test_a_proxy_that_opens_nothing_is_named(answer: bytes) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)

    async with Origin(handler) as origin:
        way = dialler(Names({API: [["93.184.215.14"]]}), proxies=Proxies(f"http://127.0.0.1:{origin.port}", {}))
        assert await refused(way.dial(NetworkPolicy([]).target(API, 443, default_port=None))) == "proxy-failed"


def test_the_environment_is_read_only_where_the_setting_says_so() -> None:
    named = {"HTTPS_PROXY": "http://proxy.example.test:3128", "no_proxy": "direct.example.test,.lan.example.test"}
    proxies = Proxies("environment", named)
    assert proxies.for_host(API) == OperatorProxy("proxy.example.test", 3128)
    assert proxies.for_host("direct.example.test") is None
    assert proxies.for_host("a.lan.example.test") is None
    assert Proxies("environment", {}).for_host(API) is None
    assert Proxies("http://other.example.test:8080", named).for_host("direct.example.test") == OperatorProxy(
        "other.example.test", 8080
    )


@pytest.mark.parametrize(
    "url", ["https://p:1", "socks5://p:1", "http://p:99999", "http://:80", "http://p/x", "http://a%0ab:c@p:1"]
)
def test_what_is_no_proxy_is_refused_without_a_password_in_the_words(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Proxies(url, {})
    assert url not in str(caught.value)


def test_a_password_is_not_shown() -> None:
    assert "c2VjcmV0" not in repr(OperatorProxy.parse("http://user:secret@p.example.test:1"))
