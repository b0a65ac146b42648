"""The ways around rules from inside a real sandbox: hostile code speaks to the proxy, and to whatever else is there.

What each of these bytes does to the host's proxy alone is in test_way_out.py; here they take the whole way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sandbox_kernel import Sandbox
from tests.support.origins import Origins
from tests.support.requests import SMUGGLES

pytestmark = pytest.mark.timeout(300)

TOOLS = """
import json, socket

def ask(*pieces):
    with socket.create_connection(("127.0.0.1", 3128), 30) as link:
        link.settimeout(30)
        try:
            for piece in pieces:
                link.sendall(piece)
            link.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: link.recv(65536), b""))
        except OSError as error:
            return repr(error).encode()
"""


@pytest.fixture(scope="module", params=[None, "runsc"], ids=["runc", "gVisor"])
def sandbox(request: pytest.FixtureRequest, origins: Origins, image: str) -> Iterator[Sandbox]:
    with Sandbox(
        image=image,
        runtime=request.param,
        network=origins.rules,
        network_certificates=str(origins.certificates),
    ) as sandbox:
        assert sandbox.run_code(TOOLS).error is None
        yield sandbox


def asked(sandbox: Sandbox, *requests: bytes) -> list[str]:
    """Have the sandbox send each over a connection of its own; return what comes back."""
    done = sandbox.run_code(f"print(json.dumps([ask(one).decode('latin-1') for one in {list(requests)!r}]))")
    assert done.error is None, done
    found: list[str] = json.loads("".join(done.logs.stdout))
    return found


def at(origins: Origins, raw: bytes) -> bytes:
    """Return a request for `api.example.test` as one for the tests' server."""
    return raw.replace(b"api.example.test", b"api.example.test:%d" % origins.plain.port)


def test_control_an_honest_request_is_answered(sandbox: Sandbox, origins: Origins) -> None:
    raw = b"GET http://api.example.test/rows HTTP/1.1\r\nHost: api.example.test\r\nConnection: close\r\n\r\n"
    (answer,) = asked(sandbox, at(origins, raw))
    assert answer.startswith("HTTP/1.1 200 ")
    assert "north" in answer


def test_no_second_request_gets_out_in_the_first(sandbox: Sandbox, origins: Origins) -> None:
    before = len(origins.plain.requests)
    answers = asked(sandbox, *(at(origins, raw) for raw in SMUGGLES.values()))
    assert len(answers) == len(SMUGGLES)
    assert all(answer.startswith("HTTP/1.1 ") for answer in answers)
    seen = origins.plain.requests[before:]
    assert not [path for _, path, _ in seen if "smuggled" in path]
    assert {headers["Host"] for _, _, headers in seen} <= {f"api.example.test:{origins.plain.port}"}


def test_the_host_is_not_reached_in_any_spelling(sandbox: Sandbox, origins: Origins) -> None:
    port = origins.plain.port
    hosts = ["localhost", "127.1", "0x7f.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "127.0.0.2", "172.17.0.1"]
    hosts += [
        "169.254.169.254",
        "metadata.google.internal",
        "10.0.0.1",
        "api.example.test\0",
        "api.example.test@x.test",
    ]
    raw = [f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode() for host in hosts]
    raw += [f"GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode() for host in hosts]
    before = len(origins.plain.requests)
    assert [answer[:10] for answer in asked(sandbox, *raw)] == ["HTTP/1.1 4"] * len(raw)
    assert len(origins.plain.requests) == before


def test_tls_to_another_site_through_an_allowed_tunnel(sandbox: Sandbox, origins: Origins) -> None:
    """Both sites are at one address, and the certificate is good for both."""
    code = f"""
import ssl
def site(name):
    link = socket.create_connection(("127.0.0.1", 3128), 30)
    link.sendall(b"CONNECT api.example.test:{origins.tls.port} HTTP/1.1\\r\\n\\r\\n".replace(b"1.1", b"1.0"))
    assert b" 200 " in link.recv(4096)
    try:
        with ssl.create_default_context().wrap_socket(link, server_hostname=name) as inner:
            inner.sendall(b"GET /rows HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
            return inner.recv(12).decode()
    except ssl.SSLError as error:
        return error.reason
print(json.dumps([site("api.example.test"), site("other.example.test")]))
"""
    done = sandbox.run_code(code)
    assert done.error is None, done
    first, second = json.loads("".join(done.logs.stdout))
    assert first == "HTTP/1.1 200"
    assert second.endswith("ACCESS_DENIED")
    assert [denial.code for denial in done.denied] == ["server-name-other"]
    assert "".join(done.logs.stderr).count("TLS to api.example.test names another server") == 1


def test_there_is_no_way_beside_the_proxy(sandbox: Sandbox) -> None:
    """No route, no resolver, and nothing at the loopback of the host: the rules are for the proxy alone."""
    code = """
def tried(what):
    try:
        what()
    except OSError as error:
        return type(error).__name__
    return "reached"
print(json.dumps([
    tried(lambda: socket.create_connection(("192.0.2.1", 443), 5)),
    tried(lambda: socket.getaddrinfo("api.example.test", 443)),
    tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53))),
    tried(lambda: socket.create_connection(("127.0.0.1", 3128), 5).close()),
]))
"""
    done = sandbox.run_code(code)
    assert done.error is None, done
    *others, proxy = json.loads("".join(done.logs.stdout))
    assert proxy == "reached"
    assert "reached" not in others


def test_many_connections_leave_the_sandbox_usable(sandbox: Sandbox, origins: Origins) -> None:
    """More than are served at a time, and none says anything: afterwards there is room again."""
    code = """
held = []
for _ in range(300):
    try:
        held.append(socket.create_connection(("127.0.0.1", 3128), 5))
    except OSError:
        break
for one in held:
    one.close()
print(len(held))
"""
    done = sandbox.run_code(code)
    assert done.error is None, done
    assert int("".join(done.logs.stdout)) > 0
    raw = b"GET http://api.example.test/rows HTTP/1.1\r\nHost: api.example.test\r\nConnection: close\r\n\r\n"
    for _ in range(50):
        (answer,) = asked(sandbox, at(origins, raw))
        if answer.startswith("HTTP/1.1 200 "):
            break
    assert answer.startswith("HTTP/1.1 200 ")
