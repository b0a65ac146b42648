"""Whom a broker takes a user id for: an account of the machine, or nobody.

The class: what a broker allows, counts, lists and hands over goes by the user id of its caller, so each id that one
person can have besides its own would be another person. Only ids that are an account's own are served, and all callers
come through one function (`Broker._taken`); what a range is called, whose it is and whether it can be read decides
nothing but the words of the refusal. So no other spelling of a range is left that would let one through.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandbox_kernel.core.errors import EngineError, EngineUnavailable
from sandbox_kernel.plugins.broker import daemon, user_accounts
from sandbox_kernel.plugins.broker.ceilings import Ceiling, Policy
from sandbox_kernel.plugins.broker.client.channel import BrokerChannel, connect
from sandbox_kernel.plugins.broker.codes import BrokerCode
from sandbox_kernel.plugins.broker.daemon import Broker, bound
from sandbox_kernel.plugins.broker.user_accounts import require_account
from tests.support import ROOT
from tests.support.patience import within

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
LENT = 2_100_000_005
"""A user id that no table of this machine has."""
NOBODY = pwd.getpwnam("nobody").pw_uid
SOMEBODY = next(user for user in pwd.getpwall() if user.pw_uid not in {0, NOBODY, os.geteuid()})


@pytest.fixture
def subordinate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "subuid"
    monkeypatch.setattr(user_accounts, "SUBORDINATE", file)
    return file


# --- a user id ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "",
        f"alice:{LENT - 5}:65536",
        f"{os.geteuid()}:{LENT}:1",
        f"root:{LENT}:1",
        f"alice:{LENT}:1\nbob:{LENT}:1",
        f"alice:{hex(LENT)}:1",
        f"alice:0{LENT:o}:0x1",
        f"alice:{LENT}",
        f"alice:{LENT}:-1",
        "alice:0:4294967295",
        "\udcff\0:::\n# nothing",
    ],
)
def test_an_id_that_no_account_has_is_nobody_s_whatever_the_ranges_say(subordinate: Path, line: str) -> None:
    subordinate.write_bytes(line.encode("utf-8", "surrogateescape"))
    with pytest.raises(EngineError, match=f"uid {LENT}") as caught:
        require_account(LENT)
    assert caught.value.code.code == "broker-no-account"


@pytest.mark.parametrize("first", [f(SOMEBODY.pw_uid) for f in (str, hex, "0{:o}".format, lambda uid: str(uid - 1))])
@pytest.mark.parametrize("owner", ["nobody", str(NOBODY), "somebody-who-is-gone", "4000000"])
def test_an_account_whose_id_is_lent_to_another_may_be_either(subordinate: Path, first: str, owner: str) -> None:
    subordinate.write_text(f"# a comment\nno range\n{owner}:{first}:2\n", encoding="utf-8")
    with pytest.raises(EngineError, match=owner):
        require_account(SOMEBODY.pw_uid)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nobody:100000:65536\n",
        f"{SOMEBODY.pw_name}:{SOMEBODY.pw_uid}:1\n",
        f"{SOMEBODY.pw_uid}:{SOMEBODY.pw_uid}:1\n",
        f"root:{SOMEBODY.pw_uid}:1\n0:{SOMEBODY.pw_uid}:1\n",
        f"nobody:{SOMEBODY.pw_uid + 1}:65536\n",
        f"nobody:{SOMEBODY.pw_uid}:0\nnobody:{SOMEBODY.pw_uid}:x\n:{SOMEBODY.pw_uid}:1\n",
    ],
)
def test_an_account_whose_id_is_its_own_is_served(subordinate: Path, text: str) -> None:
    """The control. Root's ranges count for nothing: root may be any user without one."""
    require_account(SOMEBODY.pw_uid)  # there is no such file
    subordinate.write_text(text, encoding="utf-8")
    require_account(SOMEBODY.pw_uid)


def test_a_range_that_is_added_counts_from_then_on(subordinate: Path) -> None:
    subordinate.write_text("", encoding="utf-8")
    require_account(SOMEBODY.pw_uid)
    subordinate.write_text(f"nobody:{SOMEBODY.pw_uid}:1\n", encoding="utf-8")
    with pytest.raises(EngineError):
        require_account(SOMEBODY.pw_uid)


def test_ranges_that_cannot_be_read_leave_root_and_the_broker_s_own_user(subordinate: Path) -> None:
    subordinate.mkdir()  # which nobody can read as a file, root included
    with pytest.raises(EngineError, match="cannot be read"):
        require_account(SOMEBODY.pw_uid)
    for uid in (0, os.geteuid()):
        require_account(uid)


def test_a_user_of_the_system_s_table_alone_is_an_account(subordinate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of a directory service is, that no file of this machine names."""
    row = pwd.struct_passwd(("of-a-directory", "x", LENT, LENT, "", "/", "/bin/sh"))
    with pytest.raises(EngineError):
        require_account(LENT)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: row)
    require_account(LENT)


@pytest.mark.parametrize("uid", [-1, 0xFFFFFFFF, 1 << 40])
def test_the_number_of_no_user_is_no_account(uid: int) -> None:
    with pytest.raises(EngineError):
        require_account(uid)


# --- real processes -------------------------------------------------------------------------------------------------

ASK = """
import json, socket, sys
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.settimeout(20)
sock.connect(sys.argv[1])
try:
    sock.send(json.dumps({"op": "status", "n": 1}).encode())
except BrokenPipeError:
    pass  # it has hung up already; what it said is still to be read
try:
    data = sock.recv(1 << 17)
except ConnectionResetError:
    data = sock.recv(1 << 17)
print(data.decode())
"""
IN_A_NAMESPACE = """
import ctypes, os, sys
ready, go = os.pipe(), os.pipe()
child = os.fork()
if not child:
    os.close(go[1])
    assert ctypes.CDLL(None).unshare(0x10000000) == 0
    os.write(ready[1], b"1")
    os.read(go[0], 1)
    os.setgroups([]); os.setgid(5); os.setuid(5)
    os.execv(sys.executable, [sys.executable, "-I", *sys.argv[2:]])
os.close(ready[1])
os.read(ready[0], 1)
for name in ("uid_map", "gid_map"):
    with open(f"/proc/{child}/{name}", "w") as file:
        file.write(f"0 {sys.argv[1]} 10")
os.write(go[1], b"1")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
"""A root of a user namespace, mapped to a range as newuidmap does it, and in it the user with the number 5."""
PYTHON = "/usr/bin/python3"
"""One that other users can start."""


@pytest.fixture
async def broker() -> AsyncIterator[tuple[Broker, str]]:
    """A real one for all users, with an engine that is never asked."""
    with tempfile.TemporaryDirectory(prefix="broker-") as folder:
        os.chmod(folder, 0o755)  # noqa: PTH101, S103 (others may enter, and ask)
        path = f"{folder}/broker.sock"
        one = Broker(cast("Any", SimpleNamespace(address="an engine")), Policy(everybody=Ceiling(sessions=7)))
        sock, lock = bound(path, for_all=True)
        one.listen(sock)
        try:
            yield one, path
        finally:
            await one.close()
            os.close(lock)


async def said(path: str, *words: str, **who: Any) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *words, ASK, path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/", **who
    )
    async with within(30):
        out, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    found: dict[str, Any] = json.loads(out)
    return found


def of_user(uid: int) -> dict[str, Any]:
    return {"user": uid, "group": uid, "extra_groups": []}


@only_root
@pytest.mark.parametrize("way", ["by its number", "in a user namespace"])
async def test_a_subordinate_id_of_a_user_has_no_place_at_a_broker(
    broker: tuple[Broker, str], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose quota, ceilings and denials it would get round. The control is the broker without the function."""
    one, path = broker
    inside = [PYTHON, "-c", IN_A_NAMESPACE, str(LENT - 5), "-c"]
    words, who = ([PYTHON, "-c"], of_user(LENT)) if way == "by its number" else (inside, {})
    answer = await said(path, *words, **who)
    assert answer["refused"]["code"] == "broker-no-account"
    assert answer["refused"]["value"] == f"uid {LENT}"
    assert (await one.page()).count('refusals_total{code="broker-no-account"} 1') == 1
    assert one.connections == 0

    monkeypatch.setattr(daemon, "require_account", lambda uid: None)
    assert (await said(path, *words, **who))["sessions"] == 7


@only_root
async def test_an_account_has_its_place_at_a_broker(broker: tuple[Broker, str]) -> None:
    """The other control: nobody is a user as any other where all ids are mapped, and so is root."""
    assert (await said(broker[1], PYTHON, "-c", **of_user(NOBODY)))["sessions"] == 7
    assert (await said(broker[1], PYTHON, "-c"))["sessions"] == 7


async def test_a_caller_that_is_refused_at_once_is_told_why(
    broker: tuple[Broker, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the broker has hung up before it was asked."""
    refused = asyncio.Event()

    def refuse(uid: int) -> None:
        refused.set()
        raise EngineError(BrokerCode.BROKER_NO_ACCOUNT, "it is a test's")

    monkeypatch.setattr(daemon, "require_account", refuse)
    sock = await connect(broker[1])
    async with within(10):
        await refused.wait()
    with closing(BrokerChannel(sock)) as channel:
        with pytest.raises(EngineError, match="it is a test's"):
            await channel.ask("status")
        with pytest.raises(EngineUnavailable):
            await channel.ask("status")  # it is gone


WITHIN = """
import os, socket, sys
sys.path.insert(0, sys.argv[2])
from sandbox_kernel.plugins.broker.user_accounts import require_account
from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.plugins.broker.client.listener_trust import peer
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
sock.listen(1)
print("up", flush=True)
one, _ = sock.accept()
uid = peer(one).uid
try:
    require_account(uid)
    print(uid, "served", flush=True)
except EngineError as error:
    print(uid, error.code.code, flush=True)
"""


@only_root
@pytest.mark.parametrize("unshared", [True, False])
async def test_users_whom_a_namespace_does_not_map_are_no_user_together(tmp_path: Path, unshared: bool) -> None:
    """They all have one number there, which is an account's by the tables. Where all are mapped, it is that account."""
    with tempfile.TemporaryDirectory(prefix="broker-") as folder:
        os.chmod(folder, 0o755)  # noqa: PTH101, S103 (others may enter, and ask)
        words = ["unshare", "-U", "-r"] if unshared else []
        process = await asyncio.create_subprocess_exec(
            *words, sys.executable, "-c", WITHIN, f"{folder}/sock", str(ROOT), stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        async with within(60):
            assert await process.stdout.readline() == b"up\n"
            connecting = "import socket, sys; socket.socket(1, socket.SOCK_SEQPACKET).connect(sys.argv[1])"
            caller = await asyncio.create_subprocess_exec(
                PYTHON, "-c", connecting, f"{folder}/sock", cwd="/", **of_user(NOBODY)
            )
            answer = (await process.stdout.read()).decode().strip()
            await process.wait()
            await caller.wait()
        assert answer == (f"{NOBODY} broker-no-account" if unshared else f"{NOBODY} served")
