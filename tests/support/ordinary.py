"""Tests in a process of an ordinary user's: of nobody's, without rights, in a cgroup that is theirs or in none."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from sandbox_kernel.engines.bubblewrap.discovery import bubblewrap_program, reachable
from sandbox_kernel.engines.cgroups import WANTED, here
from tests.support import ROOT
from tests.support.kernels import eventually
from tests.support.roots import root_of_tests

USER = 64123 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
"""Of nobody, and another one for each process that tests: some of the kernel's counts are a user's."""
SUBORDINATE = 1_700_000_000
"""The first of the ids that are subordinate to the user's."""


GROUPS = (USER, 27, 100)
"""What a login has (initgroups(3)): its own group again, `sudo`, and `users`, which adduser gives to everybody."""


@cache
def python() -> str | None:
    """Return a Python of this version that other users can start, None if there is none."""
    candidates = (sys.executable, f"/usr/bin/python3.{sys.version_info[1]}")
    return next((path for path in candidates if reachable(shutil.which(path) or "/nowhere")), None)


def absent() -> str | None:
    """Return why no test can run as an ordinary user here, None if they can."""
    if os.geteuid() != 0:
        return "these tests run as an ordinary user already"
    if bubblewrap_program() is None:
        return "there is no bubblewrap"
    if python() is None:
        return "no Python of this version can be started by other users"
    if not reachable(str(ROOT)):
        return "other users cannot read this checkout"
    return None if places() else "the machine has no cgroups of version 1 to hand over"


def places() -> list[Path]:
    """Return the hierarchies of version 1 in which a cgroup can be handed over."""
    return [Path(where) for where in {where for name, (where, _) in here().items() if name in WANTED}]


@contextlib.contextmanager
def cgroup(*, delegated: bool) -> Iterator[list[Path]]:
    """Make cgroups, which are the user's if they are `delegated`; they are gone after the block."""
    folders = [place / f"sandbox-kernel-test-{os.getpid()}" for place in places()]
    try:
        for folder in folders:
            folder.mkdir()
            if delegated:
                os.chown(folder, USER, USER)
        yield folders
    finally:
        for folder in folders:
            eventually(lambda folder=folder: _removed(folder), 10, f"{folder} is removed")  # type: ignore[misc]


def _removed(folder: Path) -> bool:
    """Remove a cgroup and those in it, of which the last sandbox's may still end; return whether it is gone."""
    for each in sorted(folder.rglob("*/"), reverse=True):
        with contextlib.suppress(OSError):
            each.rmdir()
    with contextlib.suppress(OSError):
        folder.rmdir()
    return not folder.exists()


def _with_packages(folder: Path) -> str:
    """Return a Python that has the packages of this one, wherever it is started from, as kernels are (-I)."""
    program = python()
    assert program is not None
    subprocess.run([program, "-m", "venv", "--without-pip", folder / "venv"], check=True, timeout=60)
    packages = next(folder.glob("venv/lib/python3*/site-packages"))
    paths = [str(ROOT), *(each for each in sys.path if each.endswith("site-packages"))]
    (packages / "tests.pth").write_text("".join(f"{path}\n" for path in paths))
    return str(folder / "venv/bin/python")


TABLES = {
    "passwd": f"tester:x:{USER}:{USER}::/nonexistent:/bin/sh\n",
    "subuid": f"tester:{SUBORDINATE}:65536\n",
    "subgid": f"{USER}:{SUBORDINATE}:65536\n",
}
"""What a machine says of the user, besides what it says of others."""


@contextlib.contextmanager
def subordinate(*, wanted: bool) -> Iterator[list[str]]:
    """Return what starts a program where the tables of users know this one, and its subordinate ids, if `wanted`."""
    if not wanted:
        yield []
        return
    with tempfile.TemporaryDirectory(prefix="sandbox-kernel-tables-") as folder:
        Path(folder).chmod(0o755)
        for name, row in TABLES.items():
            there = Path("/etc", name)
            before = there.read_text(encoding="utf-8") if there.exists() and name == "passwd" else ""
            Path(folder, name).write_text(before + row, encoding="utf-8")
        mounts = " && ".join(f"mount --bind {folder}/{name} /etc/{name}" for name in TABLES)
        yield ["unshare", "--mount", "/bin/sh", "-c", f'{mounts} && exec "$@"', "sh"]


def run(
    tests: Sequence[str], select: str, *, delegated: bool, seconds: float = 150, with_ids: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run pytest as an ordinary user, one test after the other; `with_ids` as one who has subordinate ids."""
    becomes = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--groups", ",".join(map(str, GROUPS))]
    root = root_of_tests()
    with (
        tempfile.TemporaryDirectory(prefix="sandbox-kernel-user-") as home,
        cgroup(delegated=delegated) as folders,
        subordinate(wanted=with_ids) as tables,
    ):
        program = _with_packages(Path(home))
        os.chown(home, USER, USER)
        pytest = [program, "-m", "pytest", *tests, "-k", select, f"--basetemp={home}/pytest"]
        pytest += ["-n0", "-q", "-rs", "-s", "-p", "no:cacheprovider"]
        enter = " && ".join(f"echo $$ > {folder}/cgroup.procs" for folder in folders)
        return subprocess.run(
            ["/bin/sh", "-c", f'{enter} && exec "$@"', "sh", *tables, *becomes, *pytest],
            cwd=ROOT,
            env={
                "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", "HOME": home, "SANDBOX_KERNEL_TEST_ROOT": root,
            },
            capture_output=True, text=True, timeout=seconds, check=False,
        )  # fmt: skip
