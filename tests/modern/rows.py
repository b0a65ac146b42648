"""Runs in the machine: each engine that people have there works, or is refused with its reason and a row of the doctor.

No part of `make test`, whose machine has none of them. The engines are started as their own services start them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.modern.machine import as_user
from tests.support.patience import SLOWNESS

DOCKER, IMAGE, ROOT = "unix:///var/run/docker.sock", "sandbox-kernel:base", "/opt/root"
MINUTE = 60 * SLOWNESS
Rows = dict[str, dict[str, Any]]
Record = Callable[[str, object], None]
"""pytest's `record_property`: what a test says by it stands in the table at the end."""


def run(user: str, *command: str, delegated: bool = False, seconds: float = MINUTE) -> subprocess.CompletedProcess[str]:
    words = as_user(user, command, delegated=delegated)
    return subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False, stdin=subprocess.DEVNULL)


def doctor(user: str, *settings: str, delegated: bool = False) -> Rows:
    """Return the rows of the doctor, by their names, but for what is no engine's."""
    command = [sys.executable, "-m", "sandbox_kernel", "doctor", "--json", "--memory", "512M", *settings]
    done = run(user, *command, delegated=delegated, seconds=10 * MINUTE)
    try:
        rows = {row["name"]: row for row in json.loads(done.stdout)["checks"]}
    except ValueError:
        pytest.fail(f"{done.returncode} {done.stdout[-2000:]} {done.stderr[-2000:]}")
    for row in rows.values():
        print(f"{row['status']:8}{row['name']}: {row['found']}" + (f" -> {row['remedy']}" if row["remedy"] else ""))
    return {name: row for name, row in rows.items() if name not in {"kernelspec", "browser"}}


def wrong(rows: Rows) -> list[str]:
    return sorted(name for name, row in rows.items() if row["status"] == "wrong")


def protections(rows: Rows) -> int:
    return len(details(rows))


def details(rows: Rows) -> Sequence[dict[str, Any]]:
    found: Sequence[dict[str, Any]] = rows["attestation"]["details"]
    return found


def verdict(rows: Rows) -> str:
    """Return what the doctor makes of an engine, in a line."""
    if bad := [rows[name] for name in wrong(rows) if name != "environment"]:
        return f"refused ({bad[0]['name']}): {bad[0]['found'][:300]}"
    return f"works, {protections(rows)} protections"


# --- as it is ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", ["root", "member"])
def test_docker_as_it_is(user: str, record_property: Record) -> None:
    """Cgroup v2, AppArmor, a driver of cgroups that is systemd: every protection is in place."""
    rows = doctor(user, "--image", IMAGE)
    record_property("row", f"Docker, {user}: {verdict(rows)}")
    assert wrong(rows) == []
    assert rows["limits"]["found"] == "cgroup v2: memory, swap, cpus, pids"
    assert protections(rows) > 80
    assert any(line["name"] == "engine: AppArmor" and line["found"] == "docker-default" for line in details(rows))


def test_docker_as_it_is_to_a_user_who_is_not_in_its_group(record_property: Record) -> None:
    rows = doctor("person", "--engine", "docker")
    record_property("row", f"Docker, a person who is not in its group: {verdict(rows)}")
    assert wrong(rows) == ["engine"]
    assert "may not use the container engine at" in rows["engine"]["found"]
    assert "usermod -aG docker" in rows["engine"]["remedy"]


def test_bubblewrap_as_it_is_with_a_cgroup_that_systemd_delegates(record_property: Record) -> None:
    rows = doctor("person", "--engine", "bubblewrap", "--image", ROOT, delegated=True)
    record_property("row", f"bubblewrap, a person, delegated cgroup: {verdict(rows)}")
    assert {name for name in wrong(rows) if name != "environment"} == set()
    assert rows["cgroup"]["status"] == "ok"


def test_bubblewrap_as_it_is_without_one(record_property: Record) -> None:
    """A session of a login has a cgroup that belongs to root: the limits are refused, with what brings one."""
    rows = doctor("person", "--engine", "bubblewrap", "--image", ROOT)
    record_property("row", f"bubblewrap, a person, no cgroup: {verdict(rows)}")
    assert "cgroup" in wrong(rows)
    assert "systemd-run --user --scope" in rows["cgroup"]["remedy"]


# --- Podman -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", ["root", "person"])
def test_podman_has_all_protections(user: str, record_property: Record) -> None:
    """Podman 5, with and without root."""
    user_option = [] if user == "root" else ["--user"]
    done = run(user, "systemctl", *user_option, "start", "podman.socket")
    assert done.returncode == 0, done.stderr
    done_by("root", "chmod", "o+r", "/opt/image.tar")
    done = run(user, "podman", "load", "--quiet", "--input", "/opt/image.tar")
    assert done.returncode == 0, done.stderr
    uid = run(user, "id", "-u").stdout.strip()
    socket = "/run/podman/podman.sock" if user == "root" else f"/run/user/{uid}/podman/podman.sock"
    rows = doctor(user, "--engine", f"unix://{socket}", "--image", IMAGE)
    record_property("row", f"Podman, {user}: {verdict(rows)}")
    assert wrong(rows) == []


# --- Docker's own ways without root's user ids ------------------------------------------------------------------------

CONTRIBUTED = str(Path("/usr/share", "docker.io", "contrib"))
"""Where Debian keeps what starts a rootless Docker."""
TINY_FOR_DOCKER = f"tar -c -C /usr/share/base-files motd | docker -H $1 import - {IMAGE}"


def done_by(user: str, *command: str, seconds: float = 5 * MINUTE) -> str:
    done = run(user, *command, seconds=seconds)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def starts_with_own_user_ids(user: str, socket: str, reason: str, record_property: Record) -> None:
    """The image has one file: a start gets as far as its program, and not where the engine lacks the user id."""
    done_by(user, "sh", "-c", TINY_FOR_DOCKER, "sh", socket)
    rows = doctor(user, "--engine", socket, "--image", IMAGE)
    record_property("row", f"Docker, {reason}: {verdict(rows)}")
    assert wrong(rows) == ["attestation", "first cell"]
    assert rows["user ids"]["status"] == "note"
    assert reason in rows["user ids"]["found"]
    assert "the image has no python3" in rows["attestation"]["found"]


def test_rootless_docker_has_a_user_id_for_a_sandbox(record_property: Record) -> None:
    """A user's own daemon, which limits by a cgroup that systemd delegates, has 65,536 of them."""
    done_by("root", "ln", "-sf", "/usr/bin/docker", f"{CONTRIBUTED}/docker")  # which the tool asks for the version
    done_by("root", "loginctl", "enable-linger", "person")  # else the daemon ends with the session that started it
    try:
        path = f"PATH={CONTRIBUTED}:/usr/bin:/usr/sbin:/bin:/sbin"
        done_by("person", "env", path, f"{CONTRIBUTED}/dockerd-rootless-setuptool.sh", "install")
        socket = f"unix:///run/user/{done_by('person', 'id', '-u')}/docker.sock"
        starts_with_own_user_ids("person", socket, "rootless", record_property)
    finally:
        done_by("root", "loginctl", "disable-linger", "person")


def test_docker_with_remapped_users_has_a_user_id_for_a_sandbox(record_property: Record) -> None:
    settings = Path("/etc/docker/daemon.json")
    settings.parent.mkdir(exist_ok=True)
    try:
        settings.write_text('{"userns-remap": "default"}')
        done_by("root", "systemctl", "restart", "docker")
        starts_with_own_user_ids("root", DOCKER, "userns-remap", record_property)
    finally:
        settings.unlink()
        done_by("root", "systemctl", "restart", "docker")
