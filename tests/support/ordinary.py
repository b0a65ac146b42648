"""Tests in a login of an ordinary user (`su -`): without rights, in a cgroup that is theirs or in none.

The account is in the tables of a mount namespace alone. It has what `adduser` gives (a group of its own, `users`), the
group `sudo`, and what people have: a umask of 077, no language, a proxy, a home with a blank and an umlaut.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from sandbox_kernel.plugins.bubblewrap.cgroups import WANTED, here
from sandbox_kernel.plugins.bubblewrap.discovery import bubblewrap_program, reachable
from tests.support import ROOT
from tests.support.kernels import eventually
from tests.support.roots import root_of_tests

USER = 64123 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
"""Of nobody, and another one for each process that tests: some of the kernel's counts are a user's."""
SUBORDINATE = 1_700_000_000
"""The first of the ids that are subordinate to the user's."""
ROOT_OF_TESTS = "SANDBOX_KERNEL_TEST_ROOT"


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


def with_packages(folder: Path) -> str:
    """Return a Python that has the packages of this one, wherever it is started from, as kernels are (-I)."""
    program = python()
    assert program is not None
    subprocess.run([program, "-m", "venv", "--without-pip", folder / "venv"], check=True, timeout=60)
    packages = next(folder.glob("venv/lib/python3*/site-packages"))
    paths = [str(ROOT), *(each for each in sys.path if each.endswith("site-packages"))]
    (packages / "tests.pth").write_text("".join(f"{path}\n" for path in paths))
    return str(folder / "venv/bin/python")


NAME, HOME_PREFIX = "tester", "Jürgen's Höme "
"""Of the account, and what its folder begins with: people have blanks and umlauts in theirs."""
LOGIN = {
    "LANG": "C",
    "LC_ALL": "C",
    "http_proxy": "http://192.0.2.1:3128",
    "https_proxy": "http://192.0.2.1:3128",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""What a login may have set: no language, and a proxy that does not answer."""


def tables(home: str, *, with_ids: bool) -> dict[str, str]:
    """Return what a machine says of the user, besides what it says of others."""
    ids = f"{NAME}:{SUBORDINATE}:65536\n" if with_ids else ""
    named = "".join(f"{name}:x:{gid}:{NAME}\n" for name, gid in (("test-sudo", 27), ("test-users", 100)))
    return {
        "passwd": f"{NAME}:x:{USER}:{USER}::{home}:/bin/sh\n",
        "group": f"{NAME}:x:{USER}:\n{named}",
        "shadow": f"{NAME}:*:20000:0:99999:7:::\n",
        "subuid": ids,
        "subgid": ids,
    }


@contextlib.contextmanager
def account(home: str, *, with_ids: bool) -> Iterator[list[str]]:
    """Return what starts a program where the tables of users know this one, with its subordinate ids or without."""
    with tempfile.TemporaryDirectory(prefix="sandbox-kernel-tables-") as folder:
        Path(folder).chmod(0o755)
        mounts = []
        for name, rows in tables(home, with_ids=with_ids).items():
            there, made = Path("/etc", name), Path(folder, name)
            if not there.exists():
                continue
            before = "" if name.startswith("sub") else there.read_text(encoding="utf-8")
            made.write_text(before + rows, encoding="utf-8")
            made.chmod(there.stat().st_mode)
            mounts.append(f"mount --bind {folder}/{name} /etc/{name}")
        yield ["unshare", "--mount", "/bin/sh", "-c", f'{" && ".join(mounts)} && exec "$@"', "sh"]


def run(
    tests: Sequence[str],
    select: str,
    *,
    delegated: bool,
    seconds: float = 150,
    with_ids: bool = False,
    named: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run pytest as an ordinary user who has logged in, one test after the other; `with_ids`: subordinate ones, too.

    One who is not `named` is a number that no table has, as in a container that was started with `--user`.
    """
    root = root_of_tests()
    with (
        tempfile.TemporaryDirectory(prefix=HOME_PREFIX) as home,
        cgroup(delegated=delegated) as folders,
        account(home, with_ids=with_ids) as known,
    ):
        program = with_packages(Path(home))
        os.chown(home, USER, USER)
        pytest = [program, "-m", "pytest", *tests, "-k", select, f"--basetemp={home}/pytest"]
        pytest += ["-n0", "-q", "-rs", "-s", "-p", "no:cacheprovider"]
        words = " ".join(f"{name}={shlex.quote(value)}" for name, value in (LOGIN | {ROOT_OF_TESTS: root}).items())
        begins = f'umask 077 && cd {shlex.quote(str(ROOT))} && exec env {words} "$@"'
        login = ["su", "--login", NAME, "--shell", "/bin/sh", "--command", begins, "--", "sh"]
        begun = known
        if not named:
            becomes = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups", "env", f"HOME={home}"]
            begun, login = [], [*becomes, "/bin/sh", "-c", begins, "sh"]
        enter = " && ".join(f"echo $$ > {folder}/cgroup.procs" for folder in folders)
        return subprocess.run(
            ["/bin/sh", "-c", f'{enter} && exec "$@"', "sh", *begun, *login, *pytest],
            cwd=ROOT, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            capture_output=True, text=True, timeout=seconds, check=False,
        )  # fmt: skip
