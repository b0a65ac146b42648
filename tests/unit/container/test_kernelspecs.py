"""Kernelspecs as the agent reads them: what a kernel is started with, and what is none."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.container import kernel_messages, kernelspecs, wire

OK: dict[str, Any] = {"argv": ["sh", "-c", "x", "{connection_file}"], "display_name": "Shell", "language": "sh"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kernelspecs, "folders", lambda: [str(tmp_path / "first"), str(tmp_path / "second")])
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    return tmp_path / "first"


def write(folder: Path, name: str, spec: object) -> None:
    (folder / name).mkdir()
    (folder / name / "kernel.json").write_text(json.dumps(spec))


def test_a_kernelspec_is_read(folder: Path) -> None:
    write(folder, "sh", OK | {"env": {"A": "b"}, "interrupt_mode": "message"})
    spec = kernelspecs.read("sh")
    assert spec["argv"][0].endswith("/sh")
    assert spec["argv"][1:] == ["-c", "x", "{connection_file}"]
    assert (spec["env"], spec["interrupt_mode"], spec["transport"]) == ({"A": "b"}, "message", "ipc")
    assert not spec["idle_early"]


def test_words_that_stand_for_something_are_replaced(folder: Path) -> None:
    write(folder, "py", OK | {"argv": ["python3", "{resource_dir}/k.py", "{prefix}/x"]})
    assert kernelspecs.read("py")["argv"] == [sys.executable, f"{folder}/py/k.py", f"{sys.prefix}/x"]


def test_the_first_folder_counts(folder: Path) -> None:
    write(folder, "sh", OK)
    write(folder.with_name("second"), "sh", OK | {"display_name": "another"})
    write(folder.with_name("second"), "other", OK)
    assert kernelspecs.read("sh")["display_name"] == "Shell"
    assert kernelspecs.names() == ["other", "sh"]


@pytest.mark.parametrize(
    "spec",
    [
        [],
        {},
        OK | {"argv": []},
        OK | {"argv": ["/no/such/program"]},
        OK | {"argv": ["no-such-program"]},
        OK | {"interrupt_mode": "shout"},
        OK | {"metadata": {"sandbox_kernel": {"transport": "udp"}}},
        OK | {"metadata": []},
        OK | {"env": ["A"]},
    ],
    ids=str,
)
def test_what_is_no_kernelspec_says_why(folder: Path, spec: object) -> None:
    write(folder, "odd", spec)
    with pytest.raises(ValueError, match=r"no kernelspec|program|kind|JSON"):
        kernelspecs.read("odd")
    config: dict[str, Any] = {"kernelspec": "odd"}
    kernelspecs.choose(config)
    assert config["missing"]["names"] == ["odd"]
    assert config["missing"]["why"]
    assert kernelspecs.described() == []


def test_one_that_is_not_there_is_missing(folder: Path) -> None:
    write(folder, "sh", OK)
    config: dict[str, Any] = {"kernelspec": "ir"}
    kernelspecs.choose(config)
    assert config["missing"] == {"names": ["sh"]}
    assert kernelspecs.described() == [{"name": "sh", "display_name": "Shell", "language": "sh"}]


def test_the_agents_own_requests_are_known_by_their_token() -> None:
    sent = kernel_messages.request("interrupt_request", "agent-12")
    header = json.loads(sent[2])
    assert header["msg_type"] == "interrupt_request"
    status = [b"{}", sent[2], b"{}", b'{"execution_state": "idle"}']
    assert kernel_messages.answers(status, b"agent-12")
    assert not kernel_messages.answers(status, b"agent-34")
    assert kernel_messages.is_idle(wire.IOPUB, status)
    assert not kernel_messages.is_idle(wire.SHELL, status)
    assert not kernel_messages.is_idle(wire.IOPUB, [*status[:3], b'{"execution_state": "busy"}'])
