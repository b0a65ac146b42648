"""Where the server listens: on loopback as it comes, and under the names that requests may carry."""

from __future__ import annotations

import socket

import pytest

from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.plugins.serve.place import ServerAddress


@pytest.mark.parametrize("missing", ["tls", "token_file", "names"])
def test_an_address_that_others_reach_needs_tls_tokens_and_a_name(missing: str) -> None:
    whole = {"tls": True, "token_file": True, "names": ("box.example.com",)}
    given = {name: value for name, value in whole.items() if name != missing}
    with pytest.raises(ConfigurationError) as found:
        ServerAddress(host="0.0.0.0", port=0, **given).listen()  # type: ignore[arg-type]  # noqa: S104 (refused before)
    assert found.value.code.code == "serve-exposed"
    ServerAddress(**whole).check_remote()  # type: ignore[arg-type]
    ServerAddress(port=0).listen().close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104 (what is refused)
def test_behind_a_proxy_other_machines_reach_it_only_if_that_is_said_twice(host: str) -> None:
    """As `mcp --http` has it, with --allow-remote and --allowed-host."""
    with pytest.raises(ConfigurationError, match="--allow-remote"):
        ServerAddress(host=host, port=0, remote=False, names=("box.example.com",)).listen()
    with pytest.raises(ConfigurationError, match="--allowed-host"):
        ServerAddress(host=host, port=0, remote=True).listen()
    ServerAddress(host=host, remote=True, names=("box.example.com",)).check_remote()


def test_a_port_that_is_taken_and_an_address_that_is_not_there_are_said() -> None:
    with ServerAddress(port=0).listen() as taken, pytest.raises(ConfigurationError, match="cannot be used"):
        ServerAddress(port=taken.getsockname()[1]).listen()
    for host in ("no such host", "a..b", "x" * 64):
        with pytest.raises(ConfigurationError, match="no address"):
            ServerAddress(host=host).listen()


def test_an_answer_of_several_pieces_does_not_wait_for_the_client() -> None:
    with (
        ServerAddress(port=0).listen() as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as one,
    ):
        assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_names_of_the_server_are_compared_as_clients_send_them() -> None:
    known = ServerAddress(names=("Box.Example.com", "inner.example:8443")).known()
    for host in (
        "box.example.com",
        "BOX.example.com:443",
        "inner.example:8443",
        "localhost:1",
        "[::1]:8808",
        "[0:0::1]",
    ):
        assert known.host([host]), host
    for origin in ("http://localhost:6274", "https://box.example.com", "http://[::1]:80"):
        assert known.origin([origin]), origin
    assert known.origin([])  # a program has none


def test_a_host_or_origin_that_only_begins_or_ends_like_ours_is_another() -> None:
    known = ServerAddress(names=("box.example.com", "inner.example:8443")).known()
    wrong = """localhost:8942.evil.test localhost:8808@evil.test evil.test:8808@localhost localhost.evil.test
        127.0.0.1.evil.test 127.0.0.1:80:80 127.1 0x7f.1 0127.0.0.1 127.0.0.1. localhost. localhost: localhost:0
        localhost:08808 localhost:65536 localhost:+80 localhost:8808/ localhost/evil.test localhost#evil.test
        localhost?evil.test localhost\\evil.test [::1 ::1 [::1]evil.test [::1].evil.test [::1]:8808.evil.test [::1%25lo]
        [::ffff:127.0.0.1] [127.0.0.1] [localhost] box.example.com.evil.test evilbox.example.com inner.example
        inner.example:8444 localhost,evil.test \u2024localhost localhost:\u0668 evil.test 10.0.0.1 0.0.0.0 [::]
    """.split()  # noqa: SIM905 (a list of words reads better as words)
    for host in (*wrong, "", "localhost evil.test", "localhost\x00", "localhost\n", " localhost", "localhost:80 "):
        assert not known.host([host]), host
        assert not known.origin([f"http://{host}"]), host
    for values in ([], ["localhost", "localhost"], ["localhost", "evil.test"]):
        assert not known.host(values)
    for origin in (
        "null",
        "file://",
        "localhost",
        "ftp://localhost",
        "HTTP://localhost",
        "http://localhost/",
        "http:localhost",
    ):
        assert not known.origin([origin]), origin
    assert not known.origin(["http://localhost", "http://localhost"])


def test_a_name_that_no_request_could_carry_is_a_setting_that_cannot_work() -> None:
    for name in ("http://box.example.com", "box.example.com/mcp", "user@box", "", "*", "box:*"):
        with pytest.raises(ConfigurationError, match="allowed-host"):
            ServerAddress(names=(name,), port=0).listen()
