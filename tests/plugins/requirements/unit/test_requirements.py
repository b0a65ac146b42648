"""A requirements file may have come with a notebook: it names packages, and neither it nor its folder runs anything."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.core.package_files import brought
from sandbox_kernel.plugins.requirements import own_wheels, resolver
from sandbox_kernel.plugins.requirements.requirements import read
from sandbox_kernel.wheels import image_wheels
from sandbox_kernel.wheels.pip_process import Pip, PipFailed, WheelTarget, environment, errors_of
from tests.support.cases import some

pytestmark = pytest.mark.slow

TARGET = WheelTarget("x86_64")
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
    monkeypatch.setattr(image_wheels, "installer", lambda recipes, architecture: pip)
    monkeypatch.setenv("PYTHONPATH", str(repo))
    monkeypatch.setenv("PIP_CONFIG_FILE", "pip.conf")
    monkeypatch.setenv("PIP_NO_BINARY", ":all:")
    (repo / "requirements.txt").write_text(f"--no-index\n./{wheel(repo).name}\n")
    found = own_wheels.resolved(brought("images"), read(Path("requirements.txt")), TARGET)
    assert "greeting_for_tests-1.0-py3-none-any.whl" in [path.name for path in found.files]
    assert not (repo / "ran-code").exists()


def test_control_pip_in_the_folder_runs_what_lies_there(repo: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, text=True, check=False)
    assert "from the folder" in done.stderr
    assert (repo / "ran-code").exists()


def installer() -> Path:
    return image_wheels.installer(brought("images"), TARGET)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels, which is all that pip finds, beside images with one package each."""
    pip, folder, recipes = installer(), tmp_path / "index", tmp_path / "images"
    folder.mkdir()
    recipes.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(image_wheels, "installer", lambda recipes, architecture: pip)
    monkeypatch.setattr(resolver, "MAX_TRIES", 8)
    for version in ("2.0", "4.0"):
        wheel(folder, name="of_base", version=version)
        wheel(folder, name="of_data", version=version)
    (recipes / "base.lock").write_text("of-base==4.0\n")
    (recipes / "data.lock").write_text("of-base==4.0\nof-data==4.0\n")
    return folder


def asked(index: Path, text: str) -> set[str]:
    """Return the wheels that meet requirements, by name and version."""
    (index.parent / "requirements.txt").write_text(text)
    found = own_wheels.resolved(index.parent / "images", read(index.parent / "requirements.txt"), TARGET)
    return {path.name.partition("-py3")[0] for path in found.files if path.name.partition("-")[0] != "pip"}


WAYS = ["a tree", "an address", "an address of a package that is named", "an address of a package that is found"]


def evil(how: str, index: Path, tmp_path: Path) -> tuple[str, Path]:
    """Return a line that leads to a source tree, and the file that its build would make."""
    tree = source_tree(tmp_path / "evil")
    return {
        "a tree": str(tree),
        "an address": f"evil @ file://{tree}",
        "an address of a package that is named": str(wheel(tmp_path, f"evil @ file://{tree}")),
        "an address of a package that is found": wheel(index, f"evil @ file://{tree}", name="leader").name[:6],
    }[how], tree / "built"


@pytest.mark.parametrize("how", WAYS)
def test_nothing_is_built_whatever_is_asked(index: Path, tmp_path: Path, how: str) -> None:
    line, built = evil(how, index, tmp_path)
    with pytest.raises(ConfigurationError):
        asked(index, f"{line}\n")
    assert not built.exists()


@pytest.mark.parametrize("how", some(WAYS, of=4))
def test_control_pip_builds_what_it_is_left_to_follow(index: Path, tmp_path: Path, how: str) -> None:
    """`--only-binary` keeps no source tree from being built that has an address, and its code from running."""
    line, built = evil(how, index, tmp_path)
    (tmp_path / "pip").mkdir()
    pip = Pip(tmp_path / "pip", installer(), TARGET, 120)
    with pytest.raises(PipFailed):
        pip.run("download", "--no-build-isolation", f"--dest={tmp_path / 'to'}", line)
    assert built.exists()


@pytest.mark.long
def test_what_an_image_keeps_is_named_where_it_is_in_the_way(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pip tried a thousand versions of botocore twice, and said that there was a conflict."""
    monkeypatch.setattr(own_wheels, "resolve", searches := Counted(resolver.resolve))
    for number in range(3 * resolver.MAX_TRIES):
        wheel(index, "of-base<3", name="client", version=f"1.{number}")
    with pytest.raises(ConfigurationError) as refused:
        asked(index, "client\n")
    last = 3 * resolver.MAX_TRIES - 1
    assert f"because of of-base: client 1.{last} asks for of-base<3, and the image keeps of-base==4.0" in str(
        refused.value
    )
    assert searches.count == 1, "what the kernel needs is not given up, so there is nothing else to try"
    with pytest.raises(ConfigurationError, match=r"your file asks for of-base<3, and the image keeps of-base==4\.0"):
        asked(index, "of-base<3\n")


@pytest.mark.long
def test_control_an_older_version_that_fits_is_found(index: Path) -> None:
    for number in range(resolver.MAX_TRIES // 2):
        wheel(index, *["of-base<3"][: number > 0], name="client", version=f"1.{number}")
    assert asked(index, "client\n") == {"client-1.0"}


@pytest.mark.long
def test_what_is_not_the_kernels_changes_its_version_where_it_has_to(index: Path) -> None:
    for number in range(2 * resolver.MAX_TRIES):
        wheel(index, "of-data<3", name="client", version=f"1.{number}")
    assert asked(index, "client\n") == {f"client-1.{2 * resolver.MAX_TRIES - 1}", "of_data-2.0"}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("left\nright\n", marks=pytest.mark.long),
        "right\nleft\n",
        pytest.param("left\nmiddle\n", marks=pytest.mark.long),
    ],
)
def test_what_does_not_go_together_is_given_up_until_it_does(index: Path, text: str) -> None:
    wheel(index, "shared>=2", name="left", version="1.0")
    wheel(index, "shared>=2", name="left", version="2.0")
    wheel(index, "shared", name="right", version="1.0")
    wheel(index, "shared<2", name="right", version="2.0")
    wheel(index, "right", name="middle")
    for version in ("1.0", "2.0"):
        wheel(index, name="shared", version=version)
    found = asked(index, text) - {"middle-1.0"}
    assert found - {"left-1.0"} - {"left-2.0"} == {"right-1.0", "shared-2.0"}
    assert len(found) == 3


@pytest.mark.long
def test_requirements_that_do_not_go_together_are_named(index: Path) -> None:
    wheel(index, "other<2", name="client")
    wheel(index, name="other", version="2.0")
    with pytest.raises(ConfigurationError, match=r"because of other: .*client 1\.0 asks for other<2"):
        asked(index, "client\nother==2.0\n")
    with pytest.raises(ConfigurationError, match=r"other<2 has no wheel in a version that fits"):
        asked(index, "client\n")


def test_a_package_without_a_wheel_is_named(index: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"oldthing==0\.1 has no wheel for Python 3\.13 on Linux x86_64") as no:
        asked(index, "oldthing==0.1\n")
    assert no.value.setting == "requirements"


@pytest.mark.long
def test_markers_are_read_for_the_python_of_the_image(index: Path) -> None:
    """Pip itself reads them for the Python that it runs on, and leaves out what only the image needs."""
    there, elsewhere = 'python_version == "3.13"', 'platform_machine == "odd"'
    wheel(index, f"new; {there}", f"old; {elsewhere}", 'more; extra == "Some.Extra"', name="leader")
    wheel(index, f"leader[some-extra]; {there}", name="asker")
    for name in ("new", "more"):
        wheel(index, name=name)
    assert asked(index, f"old; {elsewhere}\nleader; {there}\n") == {"leader-1.0", "new-1.0"}
    assert asked(index, "asker\n") == {"asker-1.0", "leader-1.0", "new-1.0", "more-1.0"}


@pytest.mark.long
def test_a_wheel_that_is_named_takes_part_in_the_choice(index: Path, tmp_path: Path) -> None:
    own = wheel(tmp_path, "helper<2", name="own", version="1.0+local.1")
    for version in ("1.0", "2.0"):
        wheel(index, name="helper", version=version)
    wheel(index, "own>=1", name="client")
    assert asked(index, f"client\n{own}\n") == {"client-1.0", "helper-1.0", "own-1.0+local.1"}
    wheel(index, "own>=2", name="other")
    with pytest.raises(
        ConfigurationError, match=r"because of own: other 1\.0 asks for own>=2; your file asks for own=="
    ):
        asked(index, f"other\n{own}\n")


def test_an_answer_of_pip_to_another_question_ends_the_search(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(self: Pip, lines: object) -> list[dict[str, Any]]:
        digest = {"archive_info": {"hashes": {"sha256": "0" * 64}}, "url": "file:///none"}
        return [{"metadata": {"name": "client", "version": "1.0"}, "download_info": digest}]

    monkeypatch.setattr(Pip, "choose", choose)
    with pytest.raises(ConfigurationError, match=r"pip chose client 1\.0, which is not what it was asked for"):
        asked(index, "client>=2\n")
    with pytest.raises(ConfigurationError, match="pip chose other packages than those"):
        asked(index, "other\n")


def test_with_hashes_each_package_has_one(index: Path) -> None:
    path = wheel(index, "helper>=1", name="client")
    helper = wheel(index, name="helper")
    digest, other = (hashlib.sha256(one.read_bytes()).hexdigest() for one in (path, helper))
    with pytest.raises(ConfigurationError, match="hashes"):
        asked(index, f"client==1.0 --hash=sha256:{digest}\n")
    both = f"client==1.0 --hash=sha256:{digest}\nhelper==1.0 --hash=sha256:"
    assert asked(index, both + other) == {"client-1.0", "helper-1.0"}
    with pytest.raises(ConfigurationError, match="DO NOT MATCH THE HASHES"):
        asked(index, both + digest)


class Counted:
    """A function of which the calls are counted."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.count = 0

    def __call__(self, *arguments: Any) -> Any:
        self.count += 1
        return self.function(*arguments)


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
    assert environment(given | dropped) == given | {"PATH": "/usr/bin:/bin"}
    assert "PIP_FIND_LINKS" not in environment({"PIP_FIND_LINKS": "wheels /opt"})


@pytest.mark.parametrize(
    "proxied", some([True, False], of=2), ids=["a proxy that is not there", "nobody at the address"]
)
def test_an_index_that_is_not_reached_is_no_package_that_is_missing(proxied: bool) -> None:
    """Pip says that no version was found, and names the package: its own words, from a port without anybody."""
    given = {name: value for name, value in os.environ.items() if not re.search("proxy|PIP_", name, re.IGNORECASE)}
    nobody = "http://127.0.0.1:9"
    given |= {"https_proxy": nobody} if proxied else {}
    index = "https://index.example/simple" if proxied else nobody
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--retries=1", f"--index-url={index}", "six"]
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=False, timeout=60)
    assert "No matching distribution found for six" in done.stderr, "the control: what would be believed"
    why = resolver.explain(done.stderr, TARGET).message
    assert re.search(
        r"the index was not reached \(\w+Error: \[Errno \d+\] Connection refused\): is there a network", why
    )
    assert "wheel" not in why
    assert errors_of(done.stderr) in why
