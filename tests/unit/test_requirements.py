"""A requirements file may have come with a notebook: it names packages, and neither it nor its folder runs anything."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from sandbox_kernel.core.errors import ConfigurationError, EngineError
from sandbox_kernel.core.resources import brought
from sandbox_kernel.gateway import wheels
from sandbox_kernel.gateway.requirements import read

pytestmark = pytest.mark.slow

HASH = "sha256:" + "0" * 64


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from elsewhere, which is the current one: whatever Python imports from it leaves a mark."""
    folder = tmp_path / "repo"
    folder.mkdir()
    for name in ("pip", "optparse", "json", "sitecustomize", "usercustomize", "packaging"):
        (folder / f"{name}.py").write_text(
            "open('ran-code', 'a').write(__name__)\nraise SystemExit('from the folder')\n"
        )
    (folder / "pip.conf").write_text("[global]\nindex-url = https://a.test/\n")
    monkeypatch.chdir(folder)
    return folder


def wheel(folder: Path, *needs: str, name: str = "greeting_for_tests", version: str = "1.0") -> Path:
    """Make a wheel by hand, so that the tests ask no package index."""
    path, meta = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {need}" for need in needs),
    ]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", "TEXT = 'hello'\n")
        archive.writestr(f"{meta}/METADATA", "\n".join([*lines, ""]))
        archive.writestr(
            f"{meta}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{meta}/RECORD", f"{name}.py,,\n{meta}/METADATA,,\n{meta}/WHEEL,,\n{meta}/RECORD,,\n")
    return path


def source_tree(folder: Path) -> Path:
    """Make a package whose build runs code, with a builder that lies beside it."""
    folder.mkdir(parents=True)
    build = '[build-system]\nrequires = []\nbuild-backend = "builder"\nbackend-path = ["."]\n'
    (folder / "pyproject.toml").write_text(build + '[project]\nname = "evil"\nversion = "1.0"\n')
    (folder / "builder.py").write_text(f"open({str(folder / 'built')!r}, 'w')\n")
    return folder


HONEST = {
    "polars>=1.2,<2": "polars<2,>=1.2",
    "  rich[jupyter] == 13.* # for tables": "rich[jupyter]==13.*",
    'tomli; python_version < "3.11"': 'tomli; python_version < "3.11"',
    f"six==1.16.0 \\\n    --hash={HASH} \\\n    --hash={HASH}": f"six==1.16.0 --hash={HASH} --hash={HASH}",
    "\ufeffsix\r\n": "six",
    "--only-binary :all:\nsix": "six",
    "--prefer-binary\nsix": "six",
    "six>=1 ; python_version in '3.12 3.13' and sys_platform!='win32'": (
        'six>=1; python_version in "3.12 3.13" and sys_platform != "win32"'
    ),
}


@pytest.mark.parametrize("text", HONEST)
def test_what_names_packages_is_taken(repo: Path, text: str) -> None:
    (repo / "requirements.txt").write_text(text, encoding="utf-8", newline="")
    assert read(Path("requirements.txt")).lines == [HONEST[text]]


def test_files_that_are_named_are_read_and_constraints_are_kept_apart(repo: Path) -> None:
    (repo / "more").mkdir()
    (repo / "requirements.txt").write_text("-r more/a.txt\n--constraint=more/c.txt\nsix\n")
    (repo / "more" / "a.txt").write_text("rich\n-cc.txt\n")
    (repo / "more" / "c.txt").write_text("six<2\n")
    found = read(Path("requirements.txt"))
    assert (found.lines, found.constraints) == (["rich", "six"], ["six<2", "six<2"])


REFUSED = {
    "-e .": "source tree",
    "-e.": "source tree",
    "--editable ./x": "source tree",
    "--no-binary :all:": "runs its code",
    ".": "neither",
    "./x": "neither",
    "x/": "neither",
    "/tmp/x": "neither",
    "x.tar.gz": "neither",
    "file:///tmp/x": "neither",
    "git+https://a.test/x": "neither",
    "https://a.test/x-1.0-py3-none-any.whl": "neither",
    "x @ https://a.test/x-1.0-py3-none-any.whl": "address",
    "x @ file:///tmp/x": "address",
    "x@git+ssh://a.test/x": "address",
    "--index-url https://a.test/${TOKEN}/": "variable",
    "x==${VERSION}": "variable",
    "-i https://a.test": "pip configuration",
    "--extra-index-url https://a.test": "pip configuration",
    "-f https://a.test": "pip configuration",
    "--find-links=.": "pip configuration",
    "--trusted-host a.test": "pip configuration",
    "--use-feature x": "pip configuration",
    "six --config-settings x=y": "neither",
    "six --global-option=x": "neither",
    "six --hash=md5:00": "hash",
    "x.whl": "no name of a wheel",
    "-r none.txt": "no requirements file",
    "six \\\n -e .": "neither",
    "-r https://a.test/x": "no requirements file",
    r"""six; platform_machine != 'a"\n--index-url https://a.test\n\x23'""": "escapes",
    r"""six; platform_machine != 'a"\x0c--pre\u2028-e .\x0c\x23'""": "escapes",
    r"""six; platform_machine != "\N{LINE FEED}" """: "escapes",
    "six; platform_machine != 'a\x1d'": "escapes",
    """six; platform_machine != 'a" or "b'""": "name of a platform",
    "six; platform_machine != 'a --global-option=x'": "name of a platform",
    "./a-1-py3-none-any ; x.whl": "no name of a wheel",
    "./a-1-py3-none-any -e ..whl": "no name of a wheel",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_runs_or_leaks_something_is_refused_with_its_line(repo: Path, text: str) -> None:
    (repo / "requirements.txt").write_text(f"rich\n{text}\n")
    with pytest.raises(ConfigurationError, match=REFUSED[text]):
        read(Path("requirements.txt"))
    (repo / "outer.txt").write_text("-r requirements.txt\n")
    with pytest.raises(ConfigurationError, match=REFUSED[text]):
        read(Path("outer.txt"))


def test_control_a_marker_written_anew_can_be_several_lines_to_pip() -> None:
    [escaped] = [text for text in REFUSED if "index-url https://a.test\\n" in text]
    assert "--index-url https://a.test" in str(Requirement(escaped)).split("\n")


def test_files_without_end_are_refused(repo: Path) -> None:
    (repo / "requirements.txt").write_text("-r requirements.txt\n")
    with pytest.raises(ConfigurationError, match="too deep"):
        read(Path("requirements.txt"))
    (repo / "requirements.txt").write_text("six\n" * 30_000)
    with pytest.raises(ConfigurationError, match="too long"):
        read(Path("requirements.txt"))


def test_no_link_is_followed(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("six\n")
    wheel(tmp_path)
    for name in ("mine.txt", "greeting_for_tests-1.0-py3-none-any.whl"):
        (repo / name).symlink_to(tmp_path / name)
    (repo / "a.txt").write_text("-r mine.txt\n")
    (repo / "b.txt").write_text("./greeting_for_tests-1.0-py3-none-any.whl\n")
    for name in ("mine.txt", "a.txt", "b.txt"):
        with pytest.raises(ConfigurationError, match="is a link"):
            read(Path(name))


def test_a_wheel_that_asks_for_an_address_is_refused(repo: Path) -> None:
    (repo / "requirements.txt").write_text(f"./{wheel(repo, 'six', 'evil @ file:///tmp/x').name}\n")
    with pytest.raises(ConfigurationError, match="asks for an address"):
        read(Path("requirements.txt"))
    (repo / "requirements.txt").write_text(f"./{wheel(repo, 'six').name}\n")
    assert [one.name for one in read(Path("requirements.txt")).wheels] == ["greeting_for_tests-1.0-py3-none-any.whl"]


# --- pip itself ------------------------------------------------------------------------------------------------------


def test_nothing_of_the_folder_is_imported_or_obeyed(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`build --requirements repo/requirements.txt` ran `repo/optparse.py` and `./pip.py`."""
    pip = installer()  # before the cache is an empty one
    monkeypatch.setenv("XDG_CACHE_HOME", str(repo.parent / "cache"))
    monkeypatch.setattr(wheels, "installer", lambda recipes, architecture: pip)
    monkeypatch.setenv("PYTHONPATH", str(repo))
    monkeypatch.setenv("PIP_CONFIG_FILE", "pip.conf")
    monkeypatch.setenv("PIP_NO_BINARY", ":all:")
    (repo / "requirements.txt").write_text(f"--no-index\n./{wheel(repo).name}\n")
    found = wheels.resolved(brought("images"), read(Path("requirements.txt")), wheels.Target("x86_64"))
    assert "greeting_for_tests-1.0-py3-none-any.whl" in [path.name for path in found.files]
    assert not (repo / "ran-code").exists()


def test_control_pip_in_the_folder_runs_what_lies_there(repo: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, text=True, check=False)
    assert "from the folder" in done.stderr
    assert (repo / "ran-code").exists()


def installer() -> Path:
    return wheels.installer(brought("images"), wheels.Target("x86_64"))


@pytest.mark.parametrize("patched", [True, False])
@pytest.mark.parametrize("how", ["a tree", "an address", "an address of a package that was named"])
def test_pip_builds_nothing_whatever_it_is_asked(repo: Path, tmp_path: Path, how: str, patched: bool) -> None:
    """The control, unpatched: `--only-binary` keeps no source tree from being built, and its code from running."""
    tree = source_tree(tmp_path / "evil")
    asked = {
        "a tree": str(tree),
        "an address": f"evil @ file://{tree}",
        "an address of a package that was named": str(wheel(tmp_path, f"evil @ file://{tree}")),
    }[how]
    code = wheels.RESOLVE_FOR_THE_IMAGE
    if not patched:
        before, after = code.split("from pip._internal.exceptions")[0], "from pip._internal.cli.main import main"
        code = before + after + code.split(after)[1]
    command = [
        sys.executable,
        "-I",
        "-c",
        code,
        str(installer()),
        "x86_64",
        "3.13",
        "download",
        "--quiet",
        "--no-index",
    ]
    command += ["--only-binary=:all:", "--no-build-isolation", f"--dest={tmp_path / 'to'}", asked]
    environment = wheels.environment(os.environ)
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode != 0
    assert (tree / "built").exists() is not patched, done.stderr
    if patched:
        assert isinstance(
            wheels.explain(done.stderr, "custom", wheels.Target("x86_64")), EngineError | ConfigurationError
        )


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels, which is all that pip finds, beside images with one package each."""
    pip, folder, recipes = installer(), tmp_path / "index", tmp_path / "images"
    folder.mkdir()
    recipes.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(wheels, "installer", lambda recipes, architecture: pip)
    for version in ("2.0", "4.0"):
        wheel(folder, name="of_base", version=version)
        wheel(folder, name="of_data", version=version)
    (recipes / "base.lock").write_text("of-base==4.0\n")
    (recipes / "data.lock").write_text("of-base==4.0\nof-data==4.0\n")
    return folder


def asked(index: Path, text: str) -> set[str]:
    """Return the wheels that meet requirements, by name and version."""
    (index.parent / "requirements.txt").write_text(text)
    found = wheels.resolved(index.parent / "images", read(index.parent / "requirements.txt"), wheels.Target("x86_64"))
    return {path.name.partition("-py3")[0] for path in found.files if path.name.partition("-")[0] != "pip"}


def test_what_an_image_keeps_is_named_where_it_is_in_the_way(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip tried a thousand versions of botocore twice, and said that there was a conflict."""
    monkeypatch.setattr(wheels, "_fetch", fetches := Counted(wheels._fetch))
    for number in range(3 * wheels.MOST_REJECTED):
        wheel(index, "of-base<3", name="client", version=f"1.{number}")
    with pytest.raises(ConfigurationError) as refused:
        asked(index, "client\n")
    last = 3 * wheels.MOST_REJECTED - 1
    assert f"because of of-base: client 1.{last} asks for of-base<3, and the image keeps of-base==4.0" in str(
        refused.value
    )
    assert fetches.count == 1, "what the kernel needs is not given up, so there is nothing else to try"
    with pytest.raises(ConfigurationError, match=r"your file asks for of-base<3, and the image keeps of-base==4\.0"):
        asked(index, "of-base<3\n")


def test_control_an_older_version_that_fits_is_found(index: Path) -> None:
    for number in range(wheels.MOST_REJECTED // 2):
        wheel(index, *["of-base<3"][: number > 0], name="client", version=f"1.{number}")
    assert asked(index, "client\n") == {"client-1.0"}


def test_what_is_not_the_kernels_changes_its_version_where_it_has_to(index: Path) -> None:
    for number in range(2 * wheels.MOST_REJECTED):
        wheel(index, "of-data<3", name="client", version=f"1.{number}")
    assert asked(index, "client\n") == {f"client-1.{2 * wheels.MOST_REJECTED - 1}", "of_data-2.0"}


def test_requirements_that_do_not_go_together_are_named(index: Path) -> None:
    wheel(index, "other<2", name="client")
    wheel(index, name="other", version="2.0")
    with pytest.raises(ConfigurationError, match=r"because of other: .*client 1\.0 asks for other<2"):
        asked(index, "client\nother==2.0\n")
    conflict = 'CONFLICT {"package": "other", "kept": "", "needs": [["client 1.0", "other<2"]]}'
    missing = f"ERROR: No matching distribution found for other<2\n{conflict}"
    assert "other<2 has no wheel" in str(wheels.explain(missing, "custom", wheels.Target("x86_64")))


class Counted:
    """A function of which the calls are counted."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function
        self.count = 0

    def __call__(self, *arguments: Any) -> None:
        self.count += 1
        self.function(*arguments)


def test_pip_is_given_the_variables_that_reach_an_index_and_no_others() -> None:
    given = {
        "PIP_INDEX_URL": "https://a.test/simple",
        "PIP_CERT": "/etc/cert",
        "https_proxy": "http://a.test",
        "HOME": "/root",
        "PIP_FIND_LINKS": "/opt/wheels https://a.test",
        "PATH": ".:/usr/bin::bin:/bin",
    }
    dropped = {
        "PIP_NO_BINARY": ":all:",
        "PIP_CONFIG_FILE": "pip.conf",
        "PIP_TARGET": "/",
        "PYTHONPATH": ".",
        "PYTHONSTARTUP": "x",
        "PIP_REQUIREMENT": "x",
        "LD_PRELOAD": "./x.so",
        "GIT_SSH_COMMAND": "x",
        "TOKEN": "x",
    }
    assert wheels.environment(given | dropped) == given | {"PATH": "/usr/bin:/bin"}
    assert "PIP_FIND_LINKS" not in wheels.environment({"PIP_FIND_LINKS": "wheels /opt"})
