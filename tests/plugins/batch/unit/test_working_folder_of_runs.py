"""The folder that a batch run comes in: what lies ready in it leads nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_kernel.cli import main
from sandbox_kernel.config import sources as config
from sandbox_kernel.core.errors import ConfigurationError, FileRefused
from sandbox_kernel.files.file_rules import FileLimits
from sandbox_kernel.files.host_paths import fetch
from sandbox_kernel.files.host_tree import UploadFolder
from sandbox_kernel.plugins.batch import input_files, source_notebook
from sandbox_kernel.plugins.batch.run_report import OutputFile

pytestmark = pytest.mark.slow


def run(*argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sandbox_kernel", "run", *argv]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def test_a_run_fills_no_folder_that_a_link_leads_to(repo: Path) -> None:
    """A repository that ships `analysis-output/files -> ../.git` got its cell's `config` into .git."""
    subprocess.run(["git", "init", "-q"], cwd=repo, check=True)
    before = (repo / ".git" / "config").read_bytes()
    (repo / "analysis.py").write_text("open('/mnt/data/config', 'w').write('[core]\\n\\tfsmonitor = touch pwned\\n')\n")
    (repo / "analysis-output").mkdir()
    (repo / "analysis-output" / "files").symlink_to("../.git")
    done = run("analysis.py", cwd=repo)
    assert (done.returncode, "'files' is a link" in done.stderr) == (2, True), done.stderr
    assert (repo / ".git" / "config").read_bytes() == before


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("link", ["analysis-output", "analysis-output/files", "analysis-output/analysis.ipynb"])
def test_a_run_writes_through_no_link(
    repo: Path, link: str, absolute: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the same folder is named in full, and from elsewhere."""
    (repo / "analysis.py").write_text("print(1)\n")
    (repo / link).parent.mkdir(exist_ok=True)
    (repo / link).symlink_to(repo.parent / "mine" / ("key" if link.endswith("ipynb") else ""))
    argv = [str(repo / "analysis.py"), "--output", str(repo / "analysis-output")] if absolute else ["analysis.py"]
    monkeypatch.chdir(repo.parent if absolute else repo)
    assert (main(["run", *argv]), "a link" in capsys.readouterr().err) == (2, True)
    assert os.listdir(repo.parent / "mine") == ["key"]  # noqa: PTH208
    assert (repo.parent / "mine" / "key").read_text() == "secret"


def test_control_the_same_run_without_the_link_fills_its_folder(repo: Path) -> None:
    (repo / "analysis.py").write_text("open('/mnt/data/config', 'w').write('x')\n")
    (repo / "analysis-output").mkdir()
    done = run("analysis.py", "--report", "report.json", cwd=repo)
    assert done.returncode == 0, done.stderr
    assert (repo / "analysis-output" / "files" / "config").read_text() == "x"
    assert (repo / "report.json").stat().st_size


@pytest.mark.parametrize("name", ["report.json", "reports/report.json"])
def test_a_report_replaces_no_link_and_goes_through_none(repo: Path, name: str) -> None:
    first = name.split("/", maxsplit=1)[0]
    (repo / first).symlink_to(repo.parent / "mine" / ("key" if first == name else ""))
    with pytest.raises(ConfigurationError, match="a link"):
        OutputFile(Path(name)).write("{}")
    assert (repo.parent / "mine" / "key").read_text() == "secret"
    assert not (repo.parent / "mine" / "report.json").exists()


def test_a_report_that_is_there_is_replaced_and_its_other_names_are_not(repo: Path) -> None:
    os.link(repo.parent / "mine" / "key", repo / "report.json")
    OutputFile(Path("report.json")).write("{}")
    assert (repo / "report.json").read_text() == "{}"
    assert (repo.parent / "mine" / "key").read_text() == "secret"


READERS: dict[str, Callable[[str], object]] = {
    "--input": lambda name: input_files.plan([name], FileLimits()),
    "SOURCE": fetch,
    "-f": lambda name: source_notebook.read_parameters([], [], [], [name]),
}


@pytest.mark.parametrize("spelling", ["{}", "./{}", "{here}/{}", "../repo/{}", "sub/../{}"])
@pytest.mark.parametrize("how", READERS)
def test_a_file_that_is_a_link_or_has_another_name_is_not_read(repo: Path, how: str, spelling: str) -> None:
    (repo / "sub").mkdir()
    (repo / "link.csv").symlink_to("../mine/key")
    os.link(repo.parent / "mine" / "key", repo / "hard.csv")
    (repo / "folder").symlink_to("../mine")
    for name in ("link.csv", "hard.csv", "folder/key"):
        with pytest.raises(ConfigurationError, match="link"):
            READERS[how](spelling.format(name, here=repo))


@pytest.mark.parametrize("how", READERS)
def test_control_a_plain_file_is_read(repo: Path, how: str) -> None:
    (repo / "plain.csv").write_text("a: 1")
    (repo / "sub").mkdir()
    for name in ("plain.csv", "./plain.csv", str(repo / "plain.csv"), "../repo/plain.csv", "sub/../plain.csv"):
        READERS[how](name)


@pytest.mark.parametrize("name", ["data", "data/.", "./data/", "up/data"])
def test_a_folder_that_is_a_link_goes_in_by_no_entry_point(repo: Path, name: str) -> None:
    (repo / "data").symlink_to("../mine")
    (repo / "up").symlink_to(".")
    with pytest.raises(ConfigurationError, match="is a link"):
        input_files.plan([name], FileLimits())
    with pytest.raises(ConfigurationError, match="is a link"):
        config.from_keywords(uploads=name)
    with pytest.raises(ConfigurationError, match="is a link"):
        config.from_keywords(uploads=str(repo / name))
    with pytest.raises(FileRefused, match="a link is on its path"):
        UploadFolder(name, FileLimits()).scan()


def test_python_m_imports_nothing_of_the_folder(repo: Path) -> None:
    """`python -m` puts the current folder first on the path; the command `sandbox-kernel` never did."""
    for name in ("argparse", "asyncio", "json", "docker", "yaml", "nbformat", "papermill", "pathlib", "dataclasses"):
        (repo / f"{name}.py").write_text("open('ran', 'w')\n")
    (repo / "analysis.py").write_text("print('honest')\n")
    done = run("analysis.py", "-p", "x", "1", cwd=repo)
    assert (done.returncode, done.stdout.strip()) == (0, "honest"), done.stderr
    assert not (repo / "ran").exists()


def test_control_another_module_of_the_package_run_so_does_import_them(repo: Path) -> None:
    (repo / "json.py").write_text("open('ran', 'w')\n")
    subprocess.run(
        [sys.executable, "-m", "sandbox_kernel.kernel.pipe_holder"], cwd=repo, capture_output=True, check=False
    )
    assert (repo / "ran").exists()
