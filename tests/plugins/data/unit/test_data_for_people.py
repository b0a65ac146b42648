"""What people, models and the doctor are told of datasets and volumes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.config.sources import SETTINGS, from_keywords
from sandbox_kernel.core.errors import ConfigurationError, FileRefused
from sandbox_kernel.core.model import Settings
from sandbox_kernel.kernel.proxy import Proxy
from sandbox_kernel.plugins.data.diagnosis import diagnosis
from sandbox_kernel.plugins.mcp import tool_descriptions
from sandbox_kernel.plugins.mcp.clients import ServerLimits
from sandbox_kernel.plugins.qemu.codes import SnapshotCode
from sandbox_kernel.plugins.qemu.snapshots import facts
from sandbox_kernel.plugins.shared import place
from sandbox_kernel.session.serving.kernel_info import kernel_info
from tests.support.cases import each
from tests.support.remedies import in_shell, only

DATA: dict[str, Any] = {"datasets": {"sales": "/srv/private/sales"}, "volumes": {"models": "rw", "old": "ro"}}


def test_a_model_is_told_where_data_is_and_how_large_scratch_is_and_no_folder_of_the_host() -> None:
    said = tool_descriptions.run_code(from_keywords(**DATA, scratch="disk", scratch_size="50G"), ServerLimits())
    for words in (
        "/mnt/datasets/sales (a dataset, read-only)",
        "/mnt/volumes/models (a volume, whose files outlive the session)",
        "/mnt/volumes/old (a volume of other sessions, read-only)",
        "50.0 GiB on a disk, which is no part of the memory",
        "2.0 GiB of memory for variables,",
    ):
        assert words in said, words
    assert "/srv" not in said
    plain = tool_descriptions.run_code(Settings(), ServerLimits())
    assert "Nothing of any other computer is there." in plain
    assert "memory for variables and files together," in plain


def test_a_kernel_says_in_its_banner_which_data_it_has(tmp_path: Path) -> None:
    settings = from_keywords(**DATA, engine="unix:///e.sock", scratch="disk", scratch_size="50G")
    proxy = Proxy(str(tmp_path / "connection.json"), {"key": "k"}, settings)
    said = kernel_info(proxy.session, proxy.engine_address, file_messages={})
    assert "50.0 GiB of files on a disk, in /mnt/data" in said["banner"]
    assert "Data: /mnt/datasets/sales (a dataset, read-only)." in said["banner"]
    assert said["sandbox"]["data"] == {
        "/mnt/datasets/sales": "ro",
        "/mnt/volumes/models": "rw",
        "/mnt/volumes/old": "ro",
    }
    assert "/srv" not in str(said)


def test_kernels_share_a_sandbox_only_with_the_same_data() -> None:
    made = [
        place.digest(place.described(from_keywords(datasets=datasets), "docker"))
        for datasets in ({"a": "/srv/a"}, {"a": "/srv/a"}, {"a": "/srv/b"}, {})
    ]
    assert made[0] == made[1]
    assert len(set(made)) == 3


@each("data", [{"datasets": {"a": "/srv"}}, {"volumes": "a:ro"}])
def test_a_sandbox_with_data_has_no_snapshot(data: dict[str, Any]) -> None:
    facts.require_whole(Settings(), {})  # the control
    with pytest.raises(FileRefused, match="datasets or volumes") as caught:
        facts.require_whole(from_keywords(**data), {})
    assert caught.value.code is SnapshotCode.SNAPSHOT_NOT_WHOLE


def test_a_snapshot_is_begun_from_with_the_settings_that_it_was_made_with() -> None:
    """Those of plugins are none of its own."""
    made = Settings(image="sandbox-kernel:base")
    said = facts.about(made, "0" * 32, {}, {})
    assert facts.settings_of("a", said, Settings(), {}).image == made.image


# --- the doctor -------------------------------------------------------------------------------------------------------


def of_a_dataset(path: Path) -> tuple[str, list[str]]:
    found = diagnosis(from_keywords(datasets={"sales": str(path)}))
    return found.there, [f"{one.missing} | {one.remedy} | {one.certain}" for one in found.problems]


def test_a_dataset_that_is_there_is_in_order(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch(0o644)
    tmp_path.chmod(0o755)
    assert of_a_dataset(tmp_path) == ("cells find /mnt/datasets/sales", [])


def test_the_doctor_says_what_is_wrong_with_a_dataset_and_what_to_do(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    [gone] = of_a_dataset(tmp_path / "gone")[1]
    assert "No such file" in gone
    assert "Name a folder that this user and others may read" in gone
    tmp_path.chmod(0o700)
    [closed] = of_a_dataset(tmp_path)[1]
    assert in_shell(only(closed)).returncode == 0
    (tmp_path / "secret.csv").touch(0o600)
    (tmp_path / "link").symlink_to("/etc/shadow")
    [some] = of_a_dataset(tmp_path)[1]
    assert "cannot read 1 of its entries, such as 'secret.csv'" in some
    assert some.endswith(", if they are to be read | False")
    assert in_shell(only(some)).returncode == 0
    assert of_a_dataset(tmp_path)[1] == []


def test_a_broker_s_names_are_for_the_broker_to_look_at() -> None:
    assert diagnosis(from_keywords(engine="broker", datasets="sales", volumes="models:rw")).problems == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has volumes")
def test_a_volume_that_is_read_has_to_be_there() -> None:
    [problem] = diagnosis(from_keywords(volumes="no-such-volume-of-the-tests:ro")).problems
    assert "no-such-volume-of-the-tests" in problem.missing
    assert diagnosis(from_keywords(volumes="no-such-volume-of-the-tests:rw")).problems == ()


@pytest.mark.parametrize("folder", ["/srv/data,old", "/srv/data "])
def test_a_folder_that_a_command_line_would_cut_is_not_written_into_one(folder: str) -> None:
    """Where the kernel starts, another folder would be mounted than the one that was named."""
    given = {"sales": folder, "plain": "/srv/a=b"}
    form = SETTINGS["datasets"].form
    with pytest.raises(ConfigurationError, match="cannot be written into one argument"):
        form.written("datasets", given)
    value = form("datasets", given)
    assert form.restore("datasets", form.kept(value)) == value == (f"sales={folder}", "plain=/srv/a=b")
    assert form.written("datasets", {"plain": "/srv/a=b"}) == ["plain=/srv/a=b"]  # the control
    for kept in ("sales=/srv", [1], ["sales=/srv", "sales=/old"], ["sales=/srv", "Sales=/old"], None):
        with pytest.raises(ConfigurationError, match="datasets"):
            form.restore("datasets", kept)
