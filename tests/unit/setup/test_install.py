"""Installing the kernelspec, through the real command line, jupyter_client and `jupyter kernelspec`."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager

from sandbox_kernel.config.sources import from_argv, read_argv
from sandbox_kernel.core.codes import UsageCode
from sandbox_kernel.core.errors import ConfigurationError, ImageMissing
from sandbox_kernel.core.model import GIB
from sandbox_kernel.core.package_files import brought
from sandbox_kernel.core.remedies import install_words
from sandbox_kernel.setup import install
from tests.support.command_line import run

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _no_engine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)


def installed(prefix: Path, name: str = "sandbox-python") -> Path:
    return prefix / "share" / "jupyter" / "kernels" / name


def spec_of(prefix: Path, name: str = "sandbox-python") -> KernelSpec:
    return KernelSpecManager(kernel_dirs=[str(installed(prefix).parent)]).get_kernel_spec(name)


def test_front_ends_find_the_installed_kernel(tmp_path: Path) -> None:
    """jupyter_client loads it, and `jupyter kernelspec list` shows it."""
    done = run("install", "--prefix", tmp_path, "--memory", "1G", "--cell_timeout=120", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert str(installed(tmp_path)) in done.stdout

    spec = spec_of(tmp_path)
    assert spec.display_name == "Python 3 (sandbox)"
    assert spec.language == "python"
    assert spec.interrupt_mode == "message"
    assert spec.metadata["debugger"] is True
    assert spec.metadata["sandbox_kernel"]["memory"] == "1.0 GiB"
    assert spec.argv[0] == sys.executable
    assert spec.argv[-4:] == ["-f", "{connection_file}", "--memory=1G", "--cell-timeout=120"]

    command = [sys.executable, "-m", "jupyter", "kernelspec", "list", "--json"]
    environment = {**os.environ, "JUPYTER_PATH": str(tmp_path / "share" / "jupyter")}
    listed = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(listed.stdout)["kernelspecs"]["sandbox-python"]["resource_dir"] == str(installed(tmp_path))


def test_the_installed_arguments_are_the_settings_that_were_asked_for(tmp_path: Path) -> None:
    """What the kernel reads from its own command line is what was chosen, and only that."""
    assert run("install", "--prefix", tmp_path, "--cpus", "1", "--outputs=strict", cwd=tmp_path).returncode == 0
    argv = spec_of(tmp_path).argv
    words = argv[argv.index("sandbox_kernel") + 1 :]
    assert read_argv(words) == ("{connection_file}", {"cpus": "1", "outputs": "strict"})
    assert from_argv([*words, "--HistoryManager.hist_file=:memory:"])[1].outputs == "strict"


def test_logos_are_installed_and_readable_by_everybody(tmp_path: Path) -> None:
    """Front ends look for these three names; a system-wide kernel belongs to root and serves all."""
    assert run("install", "--prefix", tmp_path, cwd=tmp_path).returncode == 0
    folder = installed(tmp_path)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    for size in (32, 64):
        data = (folder / f"logo-{size}x{size}.png").read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        assert (int.from_bytes(data[16:20]), int.from_bytes(data[20:24])) == (size, size)
    assert "<svg" in (folder / "logo-svg.svg").read_text()
    assert all(file.stat().st_mode & 0o444 == 0o444 for file in folder.iterdir())


def test_name_and_display_name(tmp_path: Path) -> None:
    """Several kernels with different settings stand side by side; the name for people may be anything printable."""
    flags = ["--name", "Small-One", "--display-name", "Petit {bac} à sable", "--memory", "512M"]
    assert run("install", "--prefix", tmp_path, *flags, cwd=tmp_path).returncode == 0
    assert run("install", "--prefix", tmp_path, cwd=tmp_path).returncode == 0
    assert spec_of(tmp_path, "small-one").display_name == "Petit {bac} à sable"
    assert spec_of(tmp_path).display_name == "Python 3 (sandbox)"


def test_installing_again_replaces(tmp_path: Path) -> None:
    """The last installation counts, with nothing left of the one before."""
    assert run("install", "--prefix", tmp_path, "--cpus", "1", cwd=tmp_path).returncode == 0
    (installed(tmp_path) / "stale").touch()
    assert run("install", "--prefix", tmp_path, "--pids", "99", cwd=tmp_path).returncode == 0
    assert spec_of(tmp_path).argv[-1] == "--pids=99"
    assert not (installed(tmp_path) / "stale").exists()


def test_user_installation_goes_to_the_users_data_folder(tmp_path: Path) -> None:
    """--user is Jupyter's own place for the user."""
    done = run("install", "--user", cwd=tmp_path, variables={"JUPYTER_DATA_DIR": str(tmp_path / "data")})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "data" / "kernels" / "sandbox-python" / "kernel.json").is_file()


def test_the_flag_for_frozen_modules_is_accepted(tmp_path: Path) -> None:
    """Scripts written for ipykernel pass it; here modules are always frozen, as the debugger runs inside."""
    assert run("install", "--prefix", tmp_path, "--frozen_modules", cwd=tmp_path).returncode == 0
    assert not any("frozen" in word for word in spec_of(tmp_path).argv)


def test_an_engine_that_the_environment_names_becomes_a_setting(tmp_path: Path) -> None:
    """A front end may be started without DOCKER_HOST, or with another; the kernel stays with its engine."""
    host = {"DOCKER_HOST": "unix:///run/user/1/docker.sock"}
    assert run("install", "--prefix", tmp_path, cwd=tmp_path, variables=host).returncode == 0
    assert spec_of(tmp_path).argv[-1] == "--engine=unix:///run/user/1/docker.sock"
    assert run("install", "--prefix", tmp_path, "--engine", "docker", cwd=tmp_path, variables=host).returncode == 0
    assert spec_of(tmp_path).argv[-1] == "--engine=docker"


REFUSED = {
    "a misspelt setting": (["--memroy", "1G"], "did you mean memory"),
    "a value that cannot work": (["--memory", "lots"], "memory is not a size"),
    "limits that contradict each other": (["--memory", "1G", "--scratch-size", "1G"], "three quarters"),
    "an upload folder that is not there": (["--uploads", "/nonexistent/none"], "not a folder"),
    "downloads into the home folder": (["--downloads", "~"], "downloads holds a home folder"),
    "a name that Jupyter cannot list": (["--name", "sand box"], "Invalid kernel name"),
    "environment variables": (["--env", "A", "b"], "see nothing of the host's environment"),
    "an IPython profile": (["--profile", "x"], "code of the host"),
    "a connection file": (["-f", "/c.json"], "connection file"),
    "two places at once": (["--user"], "not allowed with"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_is_written(case: str, tmp_path: Path) -> None:
    """A mistake ends with exit code 2, one paragraph and no file."""
    flags, reason = REFUSED[case]
    done = run("install", "--prefix", tmp_path / "prefix", *flags, cwd=tmp_path)
    assert done.returncode == 2
    assert reason in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "prefix").exists()


def test_a_folder_that_cannot_be_written_names_the_choices(tmp_path: Path) -> None:
    """Where root's rights are missing, the message says which flags do without them."""
    (tmp_path / "prefix").touch()  # a file where a folder must be: refused to root too
    done = run("install", "--prefix", tmp_path / "prefix", cwd=tmp_path)
    assert done.returncode == 2
    assert "--user or --sys-prefix" in " ".join(done.stderr.split())


def test_a_relative_folder_belongs_to_each_notebook(tmp_path: Path) -> None:
    """It need not exist where the kernel is installed: it is looked for beside the notebook at every start."""
    assert run("install", "--prefix", tmp_path, "--uploads", "data", cwd=tmp_path).returncode == 0
    assert spec_of(tmp_path).argv[-1] == "--uploads=data"


def test_the_notebooks_folder_and_the_environment_cannot_replace_modules(tmp_path: Path) -> None:
    """A cell's download beside the notebook, or a PYTHONPATH of a start request, is not imported by the next kernel."""
    assert run("install", "--prefix", tmp_path, cwd=tmp_path).returncode == 0
    trap = tmp_path / "notebooks"
    (trap / "sandbox_kernel").mkdir(parents=True)
    for name in (
        "sandbox_kernel/__init__.py",
        "sandbox_kernel/__main__.py",
        "traitlets.py",
        "json.py",
        "sitecustomize.py",
    ):
        (trap / name).write_text("import os; os.write(1, b'imported from the trap'); os._exit(0)")
    argv = [*spec_of(tmp_path).argv]
    argv[argv.index("-f") :] = ["--version"]
    environment = {**os.environ, "PYTHONPATH": str(trap), "PYTHONSTARTUP": str(trap / "json.py")}
    done = subprocess.run(argv, cwd=trap, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith("sandbox-kernel ")
    assert done.returncode == 0


def test_a_python_that_only_finds_the_package_by_accident_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a kernel would work in one folder, or under one PYTHONPATH, and fail elsewhere."""
    monkeypatch.setattr(install, "PACKAGE", Path(__file__).parent)
    with pytest.raises(ConfigurationError, match="install it first"):
        install.isolation_flags(sys.executable)


def test_the_template_of_the_repository_is_what_is_installed(tmp_path: Path) -> None:
    """One kernel.json, readable in the repository; the code only fills it in."""
    template: dict[str, Any] = json.loads((brought("kernelspec") / "kernel.json").read_text())
    assert run("install", "--prefix", tmp_path, cwd=tmp_path).returncode == 0
    written = json.loads((installed(tmp_path) / "kernel.json").read_text())
    assert set(written) == set(template)
    assert written["metadata"].items() >= template["metadata"].items()
    assert written["argv"] == [sys.executable, "-I", *template["argv"][2:]]


def test_kernels_of_other_names_are_told_apart_in_the_picker_and_can_be_removed(tmp_path: Path) -> None:
    for name in ("sandbox-python", "sandbox-8g"):
        assert run("install", "--prefix", tmp_path, "--name", name, cwd=tmp_path).returncode == 0
    assert spec_of(tmp_path).display_name == "Python 3 (sandbox)"
    assert spec_of(tmp_path, "sandbox-8g").display_name == "Python 3 (sandbox-8g)"
    done = run("uninstall", "--prefix", tmp_path, "--name", "sandbox-8g", cwd=tmp_path)
    assert done.stdout.strip() == f"Removed {installed(tmp_path, 'sandbox-8g')}"
    assert not installed(tmp_path, "sandbox-8g").exists()
    assert installed(tmp_path).is_dir()


def test_only_a_kernel_of_this_package_is_removed(tmp_path: Path) -> None:
    other = installed(tmp_path, "other")
    other.mkdir(parents=True)
    (other / "kernel.json").write_text(json.dumps({"argv": ["python"], "display_name": "x", "language": "python"}))
    for name in ("other", "none"):
        assert run("uninstall", "--prefix", tmp_path, "--name", name, cwd=tmp_path).returncode == 2
    assert other.is_dir()


class Machine:
    """An engine of 8 GiB without an image."""

    limited = frozenset({"memory"})

    async def info(self) -> Any:
        runtimes = frozenset({"runc"})
        return SimpleNamespace(memory_bytes=8 * GIB, runtimes=runtimes, limited=self.limited, product="")

    async def image(self, name: str) -> Any:
        raise ImageMissing(name)


def test_what_this_machine_lacks_is_found_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control is the same engine for a kernel that fits, and has its image."""
    monkeypatch.setattr("sandbox_kernel.engines.select.make_engine", lambda settings: Machine())
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    monkeypatch.setattr(install, "isolation_flags", lambda python: ["-I"])
    install.install({"display_name": "Twin"}, name="twin", prefix=str(tmp_path))
    values: dict[str, object] = {"memory": "1T", "image": "none:1", "runtime": "other", "time_zone": "Mars/Base"}
    values["display_name"] = "Twin"
    found = install.look(install.check(values), values, "another")
    wrong = {error.setting: (error.value, error.limit) for error in found.impossible}
    assert wrong == {
        "time_zone": ("Mars/Base", None),
        "memory": ("1024.0 GiB", "8.0 GiB"),
        "runtime": ("other", None),
        "image": ("none:1", None),
    }
    assert {error.code for error in found.impossible} == {UsageCode.NOT_ON_THIS_MACHINE}
    assert found.doubts == ["the kernel twin is called 'Twin', too: --display-name gives this one another name"]

    unbuilt: dict[str, object] = {"display_name": "Single"}  # its image may be built later, as the default's
    found = install.look(install.check(unbuilt), unbuilt, "another")
    assert not found.impossible
    assert "ImageMissing" in found.doubts[0]

    monkeypatch.setattr(Machine, "image", lambda self, name: self.info())
    fits: dict[str, object] = {"memory": "1G", "runtime": "runc", "time_zone": "UTC", "display_name": "Single"}
    assert install.look(install.check(fits), fits, "another") == ([], [])

    monkeypatch.setattr(Machine, "limited", frozenset())
    [doubt] = install.look(install.check(fits), fits, "another").doubts
    assert "no limit can be kept here" in doubt
    fits["limits"] = "best-effort"
    assert install.look(install.check(fits), fits, "another") == ([], [])
    fits["limits"] = "enforced"
    [asked] = install.look(install.check(fits), fits, "another").impossible
    assert (asked.setting, asked.value) == ("limits", "enforced")


def test_what_cannot_work_here_is_installed_only_by_force(tmp_path: Path) -> None:
    flags = ("--prefix", tmp_path / "prefix", "--memory", "9999G", "--engine", "bubblewrap")
    done = run("install", *flags, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "--force" in done.stderr
    assert "Setting to change: memory" in " ".join(done.stderr.split())
    assert not (tmp_path / "prefix").exists()
    done = run("install", *flags, "--force", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("note: ")
    assert "--memory=9999G" in spec_of(tmp_path / "prefix").argv


def test_the_packages_of_an_extra_are_named_as_every_index_knows_them() -> None:
    assert install_words("mcp").startswith("`pip install 'mcp")
    assert "papermill" in install_words("run")
    assert install_words("none") == "install sandbox-kernel with its extra [none]"
