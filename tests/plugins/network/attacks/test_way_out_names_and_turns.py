"""Ways to another host by the resolver, to another method by a header, and to all of the host's time by chunks."""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.plugins.network import dns_lookup, http_relay
from sandbox_kernel.plugins.network.dns_lookup import Lookups, is_own
from sandbox_kernel.plugins.network.policy import RefusedConnection
from tests.support.gateway import API, CELL, Origin, Pieces, Way

INNER = "192.0.2.7"
SEARCHED = "corp.example.test"


# --- the resolver --------------------------------------------------------------------------------------------------


def searching(host: str, port: int, **_: object) -> list[Any]:
    """Resolve as the C library does on a machine with a search domain in which every name has an address."""
    if not host.endswith("."):
        host = f"{host}.{SEARCHED}."
    if not host.endswith(f".{SEARCHED}."):
        raise socket.gaierror(socket.EAI_NONAME, "unknown")
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (INNER, port))]


async def test_a_name_that_does_not_exist_is_not_searched_for_in_the_domain_of_the_machine() -> None:
    with pytest.raises(RefusedConnection) as raised:
        await Lookups(1, 5.0, searching)("nobody.example.org", 443)
    assert raised.value.code.code == "no-address"


def test_control_the_name_without_its_dot_leads_to_a_host_of_another_name() -> None:
    assert searching("nobody.example.org", 443)[0][4] == (INNER, 443)


async def test_the_list_of_the_machine_counts_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows no final dots, and a name in it is that very name."""
    listed = tmp_path / "hosts"
    listed.write_text(
        f"# {INNER} not.example.test\n{INNER} other API.example.test # x\n2001:db8::7\tapi.example.test\n"
    )
    monkeypatch.setattr(dns_lookup, "HOSTS", str(listed))
    lookups = Lookups(1, 5.0, searching)
    assert list(await lookups(API, 443)) == [ip_address(INNER), ip_address("2001:db8::7")]
    with pytest.raises(RefusedConnection):
        await lookups("not.example.test", 443)


def without(number: int) -> Callable[[int], socket.socket]:
    def probe(version: int) -> socket.socket:
        raise OSError(number, "no socket")

    return probe


def test_a_machine_without_ipv6_has_no_such_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with an address of each kind is reached there by the other one."""
    monkeypatch.setattr(dns_lookup, "_probe", without(errno.EAFNOSUPPORT))
    assert not is_own(ip_address("2001:db8::1"))


def test_a_host_that_has_no_file_left_does_not_take_its_own_address_for_another_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dns_lookup, "_probe", without(errno.EMFILE))
    with pytest.raises(OSError, match="no socket"):
        is_own(ip_address("127.0.0.1"))


# --- methods -------------------------------------------------------------------------------------------------------


def overriding(port: int, *headers: bytes) -> bytes:
    lines = [b"GET http://%s:%d/rows HTTP/1.1" % (API.encode(), port), b"Host: %s:%d" % (API.encode(), port)]
    return b"\r\n".join([*lines, *headers, b"Connection: close", b"", b""])


@pytest.mark.parametrize(
    "header",
    [
        b"X-HTTP-Method-Override: DELETE",
        b"x-http-method-override: delete",
        b"X-HTTP-Method: PUT",
        b"X_HTTP_Method_Override: DELETE",
        b"X-HTTP_METHOD-Override: DELETE",
        b"X.Http.Method.Override: DELETE",
        b"X-Method-Override: GET, DELETE",
        b"X-Method-Override: GET\r\nX-Method-Override: PATCH",
    ],
)
async def test_a_rule_for_one_method_holds_for_what_headers_make_of_it(header: bytes) -> None:
    async with Origin() as origin:
        way = Way(rules=(f"GET {API}:{origin.port}", f"127.0.0.1:{origin.port}"))
        async with way.open():
            answer = await way.ask(overriding(origin.port, header))
            assert answer.startswith(b"HTTP/1.1 403 ")
            assert origin.requests == []
            assert way.heard.codes == ["method-not-allowed"]
            assert (await way.ask(overriding(origin.port, b"X-HTTP-Method-Override: HEAD"))).endswith(b"GET /rows 0")


async def test_control_with_a_rule_for_the_host_the_header_arrives() -> None:
    async with Origin() as origin, Way(origin.port).open() as way:
        await way.ask(overriding(origin.port, b"X-HTTP-Method-Override: DELETE"))
    assert b"X-HTTP-Method-Override: DELETE" in origin.requests[0]


@pytest.mark.parametrize(
    "header", [b"Content_Length: 5", b"Transfer_Encoding: chunked", b"Proxy_Authorization: Basic x", b"Keep_Alive: 1"]
)
async def test_a_header_that_some_servers_read_as_that_of_a_connection_does_not_go_on(header: bytes) -> None:
    """An interface such as CGI knows one sign for a hyphen and for an underscore."""
    async with Origin() as origin, Way(origin.port).open() as way:
        assert (await way.ask(overriding(origin.port, header, b"X_Own: 1"))).endswith(b"GET /rows 0")
        assert header.split(b":")[0] not in origin.requests[0]
        assert b"X_Own: 1" in origin.requests[0], "the control: underscores by themselves go on"


# --- turns ---------------------------------------------------------------------------------------------------------


async def turns_during_an_upload() -> int:
    """Return how often another task had its turn while a cell sent 240 KiB in chunks of one byte."""

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        end = b""
        while not end.endswith(b"0\r\n\r\n"):
            end = end[-5:] + await reader.read(1 << 16)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    turns, begun = 0, time.monotonic()

    async def another() -> None:
        nonlocal turns
        while time.monotonic() < begun + 60:
            await asyncio.sleep(0)
            turns += 1

    async with Origin(swallow) as origin:
        place = f"{API}:{origin.port}"
        head = f"POST http://{place}/ HTTP/1.1\r\nHost: {place}\r\nTransfer-Encoding: chunked\r\n\r\n"
        cell = Pieces(head.encode(), b"1\r\na\r\n" * 40_000 + b"0\r\n\r\n")
        task = asyncio.create_task(another())
        await Way(origin.port).egress.serve(cell, CELL)  # type: ignore[arg-type]  # it has no number
        task.cancel()
        assert cell.got.endswith(b"ok")
    return turns


async def test_other_tasks_have_their_turns_beside_a_body_of_small_chunks() -> None:
    assert await turns_during_an_upload() > 500


async def test_control_a_body_that_is_parsed_in_one_go_stops_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_relay, "IN_A_ROW", 1 << 60)
    assert await turns_during_an_upload() < 500
