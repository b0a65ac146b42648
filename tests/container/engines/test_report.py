"""The self-report's reading of both kinds of control groups, from files as the kernel writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox_kernel.container import agent_report

V1 = {
    "memory/memory.limit_in_bytes": "2147483648\n",
    "memory/memory.memsw.limit_in_bytes": "2147483648\n",
    "memory/memory.usage_in_bytes": "50000000\n",
    "memory/memory.stat": "cache 123\ntotal_inactive_file 10000000\n",
    "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
    "pids/pids.max": "256\n",
    "pids/pids.current": "12\n",
    "cpu,cpuacct/cpu.cfs_quota_us": "200000\n",
    "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    "cpu,cpuacct/cpuacct.usage": "1500000000\n",
}
V2 = {
    "memory.max": "2147483648\n",
    "memory.swap.max": "0\n",
    "memory.current": "50000000\n",
    "memory.stat": "anon 5\ninactive_file 10000000\n",
    "memory.events": "low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\n",
    "pids.max": "256\n",
    "pids.current": "12\n",
    "cpu.max": "200000 100000\n",
    "cpu.stat": "usage_usec 1500000\nuser_usec 1\n",
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize("files", [V1, V2], ids=["v1", "v2"])
def test_limits_and_use_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: dict[str, str]) -> None:
    write(tmp_path, files)
    monkeypatch.setattr(agent_report, "CGROUP", str(tmp_path))
    monkeypatch.setattr(agent_report, "SCRATCH", str(tmp_path))
    limits = agent_report._limits()
    assert limits["memory_bytes"] == 2 << 30
    assert (limits["memory_and_swap_bytes"], limits["swap_bytes"]) in {(2 << 30, None), (None, 0)}
    assert (limits["pids"], limits["cpu_quota"], limits["cpu_period"]) == (256, 200_000, 100_000)
    usage = agent_report.usage()
    assert usage["memory_used"] == 40_000_000
    assert usage["cpu_seconds"] == 1.5
    assert usage["pids_used"] == 12
    assert isinstance(usage["scratch_used"], int)
    assert agent_report.oom_kills() == 3


@pytest.mark.parametrize("files", [{}, {"memory.max": "max\n", "pids.max": "max\n", "cpu.max": "max 100000\n"}])
def test_no_limit_is_no_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: dict[str, str]) -> None:
    write(tmp_path, files)
    monkeypatch.setattr(agent_report, "CGROUP", str(tmp_path))
    limits = agent_report._limits()
    assert (limits["memory_bytes"], limits["pids"], limits["cpu_quota"]) == (None, None, None)
    assert agent_report.usage()["memory_used"] is None
    assert agent_report.oom_kills() == -1


@pytest.mark.parametrize(
    ("files", "highest", "cpu"),
    [
        (V1, "memory/memory.max_usage_in_bytes", ("cpu,cpuacct/cpuacct.usage", "2000000000")),
        (V2, "memory.peak", ("cpu.stat", "usage_usec 2000000\n")),
    ],
    ids=["v1", "v2"],
)
def test_a_meter_takes_the_systems_own_peak_if_it_rose(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: dict[str, str], highest: str, cpu: tuple[str, str]
) -> None:
    write(tmp_path, {**files, highest: "90000000\n"})
    monkeypatch.setattr(agent_report, "CGROUP", str(tmp_path))
    meter = agent_report.Meter()
    assert meter.read()["memory_peak"] == 40_000_000  # an earlier peak is not this one's
    write(tmp_path, {highest: "110000000\n", cpu[0]: cpu[1]})
    assert meter.read() == {"memory_peak": 100_000_000, "cpu_seconds": 0.5}


def test_a_meter_without_control_groups_knows_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(agent_report, "CGROUP", str(tmp_path))
    assert agent_report.Meter().read() == {"memory_peak": None, "cpu_seconds": None}


def test_terminals_of_this_user_are_no_device_nodes_and_those_of_another_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bash's kernel has two; a sandbox with one that waited was refused when it was claimed."""
    ends = os.openpty()
    try:
        name = os.ttyname(ends[1])
        assert name.startswith("/dev/pts/")
        assert name not in agent_report._devices()
        assert "/dev/null" in agent_report._devices()
        monkeypatch.setattr(os, "getuid", lambda: Path(name).stat().st_uid + 1)
        assert name in agent_report._devices()
    finally:
        for end in ends:
            os.close(end)
