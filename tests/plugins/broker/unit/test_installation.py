"""Which broker is this installation's own: two checkouts of one version have two, and so has one before a change."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox_kernel import __version__
from sandbox_kernel.cli import subcommands
from sandbox_kernel.core import package_files
from sandbox_kernel.core.model import Settings
from sandbox_kernel.engines import broker_sockets, select
from sandbox_kernel.plugins.broker.client import listener_trust, packets
from tests.plugins.broker.brokers import answering
from tests.support import ROOT

WHERE = """
import sys
sys.path.insert(0, sys.argv[1])
from sandbox_kernel.engines import broker_sockets
print(broker_sockets.own())
"""


def where(checkout: Path) -> str:
    """Return where the own broker of a checkout listens, as a process of its own says."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", WHERE, str(checkout)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout, byte by byte and with all times."""
    folder = tmp_path_factory.mktemp("checkout")
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("sandbox_kernel", "images"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    return folder


def test_two_checkouts_of_one_version_have_two_brokers(checkout: Path) -> None:
    """The control: one of them has the same one each time."""
    assert where(checkout) == where(checkout)
    assert where(ROOT) == broker_sockets.own() != where(checkout)


@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [
        "sandbox_kernel/container/agent.py",
        "sandbox_kernel/plugins/broker/pool.py",
        "images/base.lock",
        "images/recipe.py",
    ],
)
@pytest.mark.parametrize("how", ["written", "touched", "added", "removed"])
def test_any_change_of_sources_or_recipes_is_another_broker(checkout: Path, file: str, how: str) -> None:
    package, path = str(checkout / "sandbox_kernel"), checkout / file
    before, text, times = package_files.stamp(package), path.read_bytes(), path.stat()
    another = path.with_name("another.py")
    if how == "written":  # in place, and dated back
        path.write_bytes(text + b"\n")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    elif how == "touched":
        os.utime(path)
    elif how == "added":
        another.write_text("", encoding="utf-8")
    else:
        path.unlink()
    try:
        assert package_files.stamp(package) != before
    finally:
        another.unlink(missing_ok=True)
        path.write_bytes(text)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert package_files.stamp(package) == before  # control: what it is goes by the files


def test_what_python_writes_beside_the_sources_is_no_change(checkout: Path) -> None:
    package = checkout / "sandbox_kernel"
    before = package_files.stamp(str(package))
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(package / "core")], check=True)
    assert package_files.stamp(str(package)) == before


def test_an_installed_package_looks_at_nothing_beside_it(tmp_path: Path) -> None:
    """There, other packages have their own folders of that name."""
    images = tmp_path / "sandbox_kernel/resources/images"
    images.mkdir(parents=True)
    (tmp_path / "images").mkdir()
    before = package_files.stamp(str(tmp_path / "sandbox_kernel"))
    (tmp_path / "images/theirs").touch()
    assert package_files.stamp(str(tmp_path / "sandbox_kernel")) == before
    (images / "ours").touch()
    assert package_files.stamp(str(tmp_path / "sandbox_kernel")) != before


# --- a broker of another installation that listens ------------------------------------------------------------------


@contextmanager
def listening(path: str, package: str) -> Iterator[None]:
    """A broker that says which installation it is of."""
    said = {"n": 1, "version": __version__, "engine": "unix:///x", "package": package}
    with answering(path, lambda _: packets.packed(said)):
        yield


def test_a_broker_of_another_installation_is_not_taken_and_people_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither where such a one listens, nor where one of before listens in this one's place. Control: one's own is."""
    tmp_path.chmod(0o700)
    monkeypatch.setattr(broker_sockets, "own_folder", lambda: str(tmp_path))
    monkeypatch.setattr(broker_sockets, "OPERATORS", str(tmp_path / "none"))
    monkeypatch.setattr("sandbox_kernel.engines.docker.discovery.answers", lambda: True)
    monkeypatch.setattr("sandbox_kernel.engines.docker.discovery.socket_path", lambda url: "/x")
    monkeypatch.setattr(subcommands, "engine_call", lambda options, call, *rest: ())
    strange = str(tmp_path / "broker-00000000.sock")
    with listening(strange, "0" * 64), listening(str(tmp_path / "broker.sock"), "1" * 64):
        assert listener_trust.others() == [strange, str(tmp_path / "broker.sock")]
        assert select.of_session(Settings()).engine == "auto"
        assert f"not the broker at {strange}" in select.explained(Settings())
        subcommands.ps(type("Options", (), {"json": False, "values": {}})())
        assert f"not taken: the broker at {strange}" in capsys.readouterr().err
        subcommands.ps(type("Options", (), {"json": False, "values": {"engine": "docker"}})())
        assert "not taken" not in capsys.readouterr().err, "who names an engine asks for no other"
        with listening(broker_sockets.own(), "0" * 64):
            assert select.of_session(Settings()).engine == "auto"
        Path(broker_sockets.own()).unlink()
        with listening(broker_sockets.own(), package_files.installation()):
            assert select.of_session(Settings()).engine == f"broker://{broker_sockets.own()}"
            assert "this user's own" in select.explained(Settings())
            assert strange in listener_trust.others()
