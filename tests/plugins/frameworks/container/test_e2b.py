"""Sandboxes by E2B's names: docs/e2b.md says the same in a table."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import (
    ConfigurationError,
    SandboxClosed,
)
from sandbox_kernel.plugins.frameworks.e2b import (
    AsyncSandbox,
    Sandbox,
    SandboxNotFoundException,
    SandboxQuery,
)
from tests.support import ROOT
from tests.support.kernels import containers_of, eventually


@pytest.fixture(scope="module")
def sandbox(image: str) -> Iterator[Sandbox]:
    given: dict[str, Any] = {"metadata": {"test": "e2b"}, "envs": {"FOO": "bar"}, "debug": False, "api_key": "none"}
    with Sandbox.create("code-interpreter-v1", timeout=600, image=image, memory="1G", cell_timeout=60, **given) as one:
        yield one


# --- sandboxes -------------------------------------------------------------------------------------------------------


CLOCKS = timedelta(milliseconds=100)
"""A lifetime is counted by another clock than the one that tells the time."""


def test_what_it_is(sandbox: Sandbox) -> None:
    info = sandbox.get_info(request_timeout=5)
    assert sandbox.is_running(request_timeout=5)
    assert info.sandbox_id == sandbox.sandbox_id == sandbox.id
    assert (info.state, info.metadata, info.memory_mb) == ("running", {"test": "e2b"}, 1024)
    assert info.template_id == info.name == sandbox.info.image
    assert info.started_at is not None
    assert info.end_at is not None
    before, lasts = datetime.now(UTC), timedelta(seconds=600)
    sandbox.set_timeout(600)
    after = datetime.now(UTC)
    ends = sandbox.get_info().end_at
    assert ends is not None
    assert before + lasts - CLOCKS <= ends <= after + lasts + CLOCKS


def test_it_is_found_in_its_process(sandbox: Sandbox) -> None:
    assert sandbox.id in [info.sandbox_id for info in Sandbox.list()]
    assert [info.sandbox_id for info in Sandbox.list(SandboxQuery(metadata={"test": "e2b"})).next_items()] == [
        sandbox.id
    ]
    assert not Sandbox.list(SandboxQuery(metadata={"test": "other"})).has_next
    pages = Sandbox.list(limit=1)
    assert len(pages.next_items()) == 1
    assert Sandbox.connect(sandbox.sandbox_id) is sandbox
    assert sandbox.connect(timeout=600) is sandbox
    with pytest.raises(SandboxNotFoundException, match="no open sandbox"):
        Sandbox.connect("no such id")


def test_what_it_uses_is_one_row(sandbox: Sandbox) -> None:
    sandbox.get_metrics()
    sandbox.run_code("import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass")
    (row,) = sandbox.get_metrics()
    assert 0 < row.mem_used <= row.mem_total == 1 << 30
    assert row.disk_used <= row.disk_total
    assert row.cpu_used_pct > 1
    assert row.cpu_count >= 1
    assert not sandbox.get_metrics(end=datetime.now(UTC) - timedelta(hours=1))


def test_it_ends_when_its_time_is_up_and_by_its_id(image: str) -> None:
    one, other = Sandbox.create(image=image, memory="512M"), Sandbox.create(image=image, memory="512M", timeout=600)
    one.set_timeout(0.2)
    eventually(lambda: not one.is_running(), 20, "its end")
    with pytest.raises(SandboxClosed):
        one.run_code("1")
    assert one.get_info().state == "ended"
    assert Sandbox.kill(other.sandbox_id) is True
    assert other.kill() is False
    assert Sandbox.kill(other.sandbox_id) is False
    assert not other.is_running()
    one.kill()
    assert not {one.id, other.id} & {row.session for row in containers_of(os.getpid())}


def test_a_sandbox_that_was_never_started_can_be_killed(image: str) -> None:
    assert Sandbox(image=image, timeout=5).kill() is True


@pytest.mark.parametrize(
    ("wrong", "setting"),
    [
        ({"allow_internet_access": True}, "network"),
        ({"network": {"allow_public_traffic": True}}, "network"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"envs": {"A B": "c"}}, "envs"),
        ({"envs": {"A": 1}}, "envs"),
        ({"envs": {"HOME": "/"}}, "envs"),
        ({"envs": {"A": "x" * 40_000}}, "envs"),
        ({"timeout": -1}, "timeout"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any], setting: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Sandbox(**wrong)
    assert raised.value.setting == setting


@pytest.mark.parametrize(
    ("network", "name"),
    [
        ({"allow_public_traffic": True}, "allow_public_traffic=True"),
        ({"allow_out": ["a.example"], "allow_public_traffic": 1}, "allow_public_traffic=1"),
        ({"mask_request_host": "a.example"}, "mask_request_host='a.example'"),
        ({"deny_all": False}, "deny_all=False"),
        ({"allow_out": "a.example"}, "allow_out='a.example'"),
    ],
    ids=str,
)
def test_what_a_network_cannot_have_is_refused_by_its_name(network: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(f"a sandbox has no {name}")):
        Sandbox(network=network)


def test_a_network_that_asks_for_what_is_so_in_any_case_is_accepted(image: str) -> None:
    accepted: tuple[dict[str, Any], ...] = (
        {"allow_public_traffic": False},
        {"allow_public_traffic": None, "mask_request_host": None, "deny_out": ["0.0.0.0/0"]},
        {"deny_out": None},
        {},
    )
    for network in accepted:
        assert Sandbox(image=image, network=network).info.network == "none"
    both: Any = {"allow_out": ["a.example"], "allow_public_traffic": False}
    assert Sandbox(image=image, network=both).info.network == ("a.example",)


def test_hosts_are_named_as_there(image: str) -> None:
    assert Sandbox(image=image, network={"allow_out": ["a.example"]}).info.network == ("a.example",)
    assert Sandbox("an-image", allow_internet_access=False).settings.image == "an-image"


async def test_awaited(image: str) -> None:
    sandbox = await AsyncSandbox.create(
        image=image, memory="1G", metadata={"who": "async"}, envs={"FOO": "bar"}, timeout=600
    )
    assert await sandbox.is_running()
    assert (await sandbox.get_info()).metadata == {"who": "async"}
    assert len(await sandbox.get_metrics()) == 1
    pages = AsyncSandbox.list(SandboxQuery(metadata={"who": "async"}))
    assert [info.sandbox_id async for info in pages] == [sandbox.sandbox_id]
    assert not await pages.next_items()
    assert await AsyncSandbox.connect(sandbox.sandbox_id) is sandbox
    assert (await sandbox.run_code("import os; os.getenv('FOO')", envs={"FOO": "baz"})).text == "baz"
    assert await sandbox.kill() is True
    assert await AsyncSandbox.kill(sandbox.sandbox_id) is False


def test_the_snippet_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (snippet,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/e2b.md").read_text(encoding="utf-8"), re.DOTALL)
    exec(snippet, {})  # noqa: S102 (our own page)
    printed = capsys.readouterr().out
    assert "3 sales.csv" in printed
    assert "bar [('a', 1.0), ('b', 2.0)]" in printed
