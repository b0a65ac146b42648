"""The folder that a notebook comes in is as hostile as its cells: what lies ready in it leads nowhere else."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from sandbox_kernel.config import sources as config
from sandbox_kernel.core.errors import ConfigurationError, FileRefused
from sandbox_kernel.core.home_folder import home_folder
from sandbox_kernel.files import folder_policy, host_paths, path_walk
from sandbox_kernel.files.file_rules import FileLimits
from sandbox_kernel.files.host_tree import DownloadFolder, UploadFolder
from sandbox_kernel.setup.install import install

pytestmark = pytest.mark.slow


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from elsewhere, which is the current one; `tmp_path / "mine"` is a folder of the user's beside it."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "key").write_text("secret")
    (tmp_path / "repo").mkdir()
    monkeypatch.chdir(tmp_path / "repo")
    return tmp_path / "repo"


# --- what goes in ----------------------------------------------------------------------------------------------------


def test_a_link_in_the_home_folder_is_the_users_own(
    repo: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """~/scratch -> /lustre/me is followed from elsewhere; as a part of the working folder it is not."""
    (tmp_path / "scratch").symlink_to("mine")
    monkeypatch.setattr(path_walk, "home_folder", lambda user="": str(tmp_path))
    with host_paths.open_folder(tmp_path / "scratch") as folder:
        assert folder.path == tmp_path / "mine"
    monkeypatch.chdir(tmp_path)
    for name in ("scratch", str(tmp_path / "scratch")):
        with pytest.raises(FileRefused, match="'scratch' is a link"):
            host_paths.open_folder(name)


def test_a_link_to_the_working_folder_is_the_users_own(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell says `$PWD/results` by the name under which it came here."""
    (repo.parent / "short").symlink_to("repo")
    (repo / "results").mkdir()
    with pytest.raises(FileRefused, match="'short' is a link"):
        host_paths.open_folder(repo.parent / "short" / "results")
    monkeypatch.setenv("PWD", str(repo.parent / "short"))
    with host_paths.open_folder(repo.parent / "short" / "results") as folder:
        assert folder.path == repo / "results"


# --- folders that cells fill -----------------------------------------------------------------------------------------

PRECIOUS = [
    *("/etc", "/etc/cron.d", "/etc/profile.d", "/usr/local/bin", "/usr/share", "/var/lib", "/var/spool/cron"),
    *("/boot", "/opt", "/run", "/dev/shm", "/tmp", "/home", "/bin"),
]


@pytest.mark.parametrize("place", PRECIOUS)
def test_downloads_refuses_a_folder_of_the_system(place: str) -> None:
    if not Path(place).is_dir():
        pytest.skip("this system has no such folder")
    with pytest.raises(ConfigurationError, match=r"downloads (holds|lies within|is not opened: .* a link)"):
        config.from_keywords(downloads=place)


@pytest.mark.parametrize(
    "place",
    [".git", ".git/hooks", ".vscode", ".ssh", "a/.config/autostart", "x/site-packages", "x/dist-packages/y", "bin",
     "node_modules/x", "__pycache__", "Autostart", "etc/cron.d", "library.app/x", "thing.dist-info"],
)  # fmt: skip
def test_downloads_refuses_a_folder_that_programs_obey_wherever_it_lies(repo: Path, place: str) -> None:
    (repo / place).mkdir(parents=True)
    for name in (place, str(repo / place)):
        with pytest.raises(ConfigurationError, match="downloads lies within a"):
            config.from_keywords(downloads=name)
    with pytest.raises(FileRefused, match="lies within a"):
        DownloadFolder(repo / place).held.open()


@pytest.mark.parametrize("name", ["pyproject.toml", "Makefile", "conftest.py", "package.json", ".vscode", ".envrc"])
def test_downloads_refuses_a_project(repo: Path, name: str) -> None:
    (repo / name).touch()
    with pytest.raises(ConfigurationError, match=f"downloads holds {name}"):
        config.from_keywords(downloads=".")
    (repo / "results").mkdir()
    assert config.from_keywords(downloads="results").downloads == str(repo / "results")


def test_downloads_refuses_what_belongs_to_a_program(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bare.git/objects", "bare.git/refs", "bare.git/hooks", "venv/share", "tools", "modules"):
        (repo / name).mkdir(parents=True)
    (repo / "bare.git" / "HEAD").touch()
    (repo / "venv" / "pyvenv.cfg").touch()
    monkeypatch.setenv("PATH", f"{repo}/tools:{os.environ['PATH']}")
    monkeypatch.syspath_prepend(str(repo / "modules"))
    for name, reason in {
        "bare.git/hooks": "Git repository",
        "venv/share": "Python environment",
        "tools": "commands are run",
        "modules": "Python imports",
    }.items():
        with pytest.raises(ConfigurationError, match=reason):
            config.from_keywords(downloads=name)


def test_another_name_of_a_precious_folder_is_refused(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bind mount has no link on its path: identity tells."""
    (repo / "results").mkdir()
    real = folder_policy._identity
    results = real(repo / "results")
    monkeypatch.setattr(folder_policy, "_identity", lambda path: results if path == Path("/etc") else real(path))
    with pytest.raises(ConfigurationError, match="the system's own folder"):
        config.from_keywords(downloads="results")


def test_honest_folders_are_taken(repo: Path) -> None:
    for name in ("output", "results", "output/files", "Ergebnisse 2026", "data.out"):
        (repo / name).mkdir(parents=True)
        assert config.from_keywords(downloads=name).downloads == str(repo / name)
        assert config.from_keywords(downloads=str(repo / name)).downloads == str(repo / name)
    for top in ("data/out", "mnt/x", "builds/group/project/out", "srv/me/out", "home/someone/work/out", "workspace"):
        assert folder_policy._by_name(Path("/", top)) is None


# --- handles ---------------------------------------------------------------------------------------------------------


def fill(folder: DownloadFolder) -> None:
    with closing(folder.target("a.txt")) as target:
        target.open()
        target.write(b"x")
        target.commit()


@pytest.mark.parametrize("by", ["a link", "another folder"])
def test_an_ancestor_that_is_swapped_later_changes_nothing(tmp_path: Path, by: str) -> None:
    (tmp_path / "shared" / "results").mkdir(parents=True)
    (tmp_path / "theirs" / "results").mkdir(parents=True)
    (tmp_path / "shared" / "results" / "in.csv").touch()
    (tmp_path / "theirs" / "results" / "key").touch()
    downloads = DownloadFolder(tmp_path / "shared" / "results")
    uploads = UploadFolder(tmp_path / "shared" / "results", FileLimits())
    (tmp_path / "shared").rename(tmp_path / "moved")
    if by == "a link":
        (tmp_path / "shared").symlink_to("theirs")
    else:
        (tmp_path / "theirs").rename(tmp_path / "shared")
    fill(downloads)
    assert (tmp_path / "moved" / "results" / "a.txt").read_text() == "x"
    assert not (tmp_path / "shared" / "results" / "a.txt").exists()
    assert [file.path for file in uploads.scan().files] == ["a.txt", "in.csv"]


def test_a_folder_that_was_removed_is_made_again_and_never_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    downloads = DownloadFolder(tmp_path / "results")
    (tmp_path / "results").rmdir()
    fill(downloads)
    assert (tmp_path / "results" / "a.txt").read_text() == "x"
    (tmp_path / "results" / "a.txt").unlink()
    (tmp_path / "results").rmdir()
    (tmp_path / "results").symlink_to(tmp_path)
    with pytest.raises(FileRefused, match="a link"):
        fill(downloads)


def test_the_home_folder_is_known() -> None:
    """The control of what is told apart above: a home folder itself is no place for downloads."""
    with pytest.raises(ConfigurationError, match="downloads holds"):
        config.from_keywords(downloads=home_folder())


# --- the other entry points ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("link", ["kernels", "kernels/share", "kernels/share/jupyter/kernels/sandbox-python"])
def test_a_kernelspec_replaces_nothing_at_the_end_of_a_link(repo: Path, link: str) -> None:
    """The folder of that name is emptied first."""
    (repo / link).parent.mkdir(parents=True, exist_ok=True)
    (repo / link).symlink_to(repo.parent / "mine")
    with pytest.raises(ConfigurationError, match="is a link"):
        install(prefix="kernels")
    assert (repo.parent / "mine" / "key").read_text() == "secret"
    assert install(prefix="mine") == repo / "mine" / "share" / "jupyter" / "kernels" / "sandbox-python"
