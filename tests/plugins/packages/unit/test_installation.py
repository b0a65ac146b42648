"""Packages for a session: what is asked for, chosen, fetched and looked at, with an index of our own."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox_kernel import ConfigurationError
from sandbox_kernel.config.sources import from_keywords
from sandbox_kernel.core.model import MIB
from sandbox_kernel.plugins.packages import installation
from sandbox_kernel.plugins.packages.inside import sandbox_packages as inside
from sandbox_kernel.plugins.packages.installation import Allowed, Has, Package, PackageSource, check_wheel, resolve
from sandbox_kernel.plugins.packages.settings import PackageSettings
from sandbox_kernel.plugins.requirements.requirements import asked
from sandbox_kernel.wheels.pip_process import WheelTarget
from tests.support.cases import each
from tests.support.index import Index, serving, wheel

HAS = Has(WheelTarget(os.uname().machine), {"kept-thing": "1.0"})


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    monkeypatch.setattr(installation, "cache", lambda: tmp_path / "cache")
    folder = tmp_path / "index"
    folder.mkdir()
    with serving(folder) as one:
        yield one


def get(index: Index, *texts: str | Path, paths: bool = False, size: int = 8 * MIB) -> list[Package]:
    return resolve(texts, HAS, PackageSource(index.address, size), paths=paths)


def refused(do: Callable[[], object]) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as found:
        do()
    return found.value


# --- resolving -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_is_needed_is_chosen_fetched_and_kept(index: Index) -> None:
    wheel(index.folder, "greeting", needs=("helper>=2", "kept-thing"))
    wheel(index.folder, "helper", "2.0")
    wheel(index.folder, "helper", "3.0", needs=("kept-thing>=2",))
    wheel(index.folder, "kept_thing")
    wheel(index.folder, "kept_thing", "2.0")
    found = get(index, "greeting")
    assert [(one.name, one.version) for one in found] == [("greeting", "1.0"), ("helper", "2.0")]
    assert all(one.file.is_file() and one.file.parent.name == one.sha256 for one in found)
    found[0].file.write_bytes(b"changed")  # what is kept is looked at again
    assert get(index, "greeting") != []
    assert check_wheel(found[0].file, "greeting", "1.0", MIB) > 0


@pytest.mark.slow
def test_each_way_in_which_it_cannot_be_has_its_own_code(index: Index, tmp_path: Path) -> None:
    wheel(index.folder, "needy", needs=("kept-thing>=2",))
    wheel(index.folder, "kept_thing")
    wheel(index.folder, "kept_thing", "2.0")
    conflict = refused(lambda: get(index, "needy"))
    assert conflict.code.code == "package-conflict"
    assert "needy 1.0 asks for kept-thing>=2, and the image keeps kept-thing==1.0" in conflict.message

    (index.folder / "sourced-1.0.tar.gz").write_bytes(b"never looked at")
    assert refused(lambda: get(index, "sourced")).code.code == "package-without-wheel"
    assert "/files/sourced-1.0.tar.gz" not in index.asked

    forged = wheel(index.folder, "forged")
    index.wrong.add(forged.name)
    assert refused(lambda: get(index, "forged")).code.code == "package-hash-wrong"

    wheel(index.folder, "large", files={"data.bin": os.urandom(2 * MIB)})
    assert refused(lambda: get(index, "large", size=MIB)).code.code == "package-too-large"


@pytest.mark.slow
def test_what_a_package_needs_by_an_address_is_not_asked_for(index: Index) -> None:
    wheel(index.folder, "leader", needs=(f"led @ {index.address.removesuffix('simple')}files/led-1.0.tar.gz",))
    (index.folder / "led-1.0.tar.gz").write_bytes(b"never asked for")
    assert refused(lambda: get(index, "leader")).code.code == "package-without-wheel"
    assert [path for path in index.asked if "led-1.0" in path] == []


@each(
    "text",
    [
        "-e .",
        "--index-url=http://127.0.0.1:9/",
        "-r /etc/passwd",
        "name @ http://127.0.0.1:9/x.whl",
        "git+https://example.org/x",
        "./x",
        "/etc/passwd",
        "x.tar.gz",
        "a.whl",
        "${HOME}",
        "na\u0131ve",
        "a; python_version > '3' # b",
        "a\n--pre",
        "a\\",
        "",
        "x" * 1000,
    ],
)
def test_what_is_no_name_reaches_no_resolver(text: str) -> None:
    error = refused(lambda: resolve([text], HAS, PackageSource("http://127.0.0.1:9/simple"), paths=False))
    assert error.code.code == "package-improper"


def test_a_wheel_that_lies_here_is_the_caller_s_to_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it is written: a text that ended in a space was taken for a path."""
    monkeypatch.chdir(tmp_path)
    there = wheel(tmp_path, "a", "1")
    digest = hashlib.sha256(there.read_bytes()).hexdigest()
    for text in (there.name, f"{there.name} ", f"{there.name} --hash=sha256:{digest}", f"{there} ", f" {there}\t"):
        assert refused(lambda: asked([text], paths=False)).code.code == "package-improper"  # noqa: B023 (called at once)
    assert [one.name for one in asked([f"{there} "], paths=True).wheels] == [there.name]


# --- what cells may ask for ------------------------------------------------------------------------------------------


@each(
    "rules, text, allowed",
    [
        (("Greeting",), "greeting>=1", True),
        (("greeting",), "GREETING", True),
        (("greeting",), "greeting2", False),
        (("greeting",), "greeting[more]", False),
        (("greeting[more]",), "greeting[more]", True),
        (("greeting[more]",), "greeting[more,other]", False),
        (("my-name",), "my_name", True),
        (("greeting",), "greetlng", False),
        (("*",), "whatever[all]", True),
        ((), "greeting", False),
    ],
)
def test_a_cell_asks_for_what_the_setting_names(rules: tuple[str, ...], text: str, allowed: bool) -> None:
    if allowed:
        Allowed(rules).check([text])
    else:
        assert refused(lambda: Allowed(rules).check([text])).code.code == "package-not-allowed"


def test_the_setting_has_names_and_no_versions_or_addresses() -> None:
    settings = from_keywords(packages=["Rich[Jupyter]", "six, a_b"])
    assert settings.of(PackageSettings).packages == (
        "rich[Jupyter]",
        "six",
        "a-b",
    )
    for wrong in ("six==1", "six @ http://127.0.0.1/x", "./six", "six; python_version > '3'", 3):
        assert refused(lambda wrong=wrong: from_keywords(packages=wrong)).setting == "packages"  # type: ignore[misc]
    for wrong in ("ftp://a/", "http://user:pass@a/", "a", "https://a/ --pre"):
        assert refused(lambda wrong=wrong: from_keywords(packages_index=wrong)).setting == "packages_index"  # type: ignore[misc]


@each(
    "said",
    [
        None,
        [],
        {},
        {"python": "3.13; x", "architecture": "x86_64", "glibc": 41, "versions": {}},
        {"python": "3.13", "architecture": "../x", "glibc": 41, "versions": {}},
        {"python": "3.13", "architecture": "x86_64", "glibc": 1 << 80, "versions": {}},
        {"python": "3.13", "architecture": "x86_64", "glibc": 41, "versions": {"a": "1 --pre"}},
        {"python": "3.13", "architecture": "x86_64", "glibc": 41, "versions": {str(n): "1" for n in range(4000)}},
        {"python": 3, "architecture": [], "glibc": None, "versions": None},
    ],
)
def test_a_sandbox_that_says_nonsense_of_itself_is_not_believed(said: object) -> None:
    assert refused(lambda: Has.read(said)).code.code == "packages-unknown"


def test_a_name_that_is_none_is_no_constraint() -> None:
    said = {"python": "3.13", "architecture": "x86_64", "glibc": 41, "versions": {"a b\n--pre": "1", "B_c": "1.0"}}
    assert Has.read(said).versions == {"b-c": "1.0"}


# --- hostile wheels --------------------------------------------------------------------------------------------------


def link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


@each(
    "name",
    [
        "../outside.py",
        "a/../../outside.py",
        "/etc/passwd",
        "a//b.py",
        "./a.py",
        "a\\..\\b.py",
        "C:a.py",
        "a\n.py",
        "a\u202e.py",
        "/".join("a" * 40),
        "x" * 500,
        "hostile.py",
    ],
)
def test_a_wheel_with_a_hostile_name_is_refused(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = wheel(tmp_path_factory.mktemp("wheel"), "hostile")
    twice = pytest.warns(UserWarning, match="Duplicate") if name == "hostile.py" else contextlib.nullcontext()
    with twice, zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, b"")
    error = refused(lambda: check_wheel(path, "hostile", "1.0", MIB))
    assert error.code.code == "package-improper"
    assert error.message.isprintable()


def test_a_wheel_with_links_of_another_name_or_none_at_all_is_refused(tmp_path: Path) -> None:
    path = wheel(tmp_path, "hostile")
    assert refused(lambda: check_wheel(path, "other", "1.0", MIB)).code.code == "package-improper"
    assert refused(lambda: check_wheel(path, "hostile", "2.0", MIB)).code.code == "package-improper"
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(link("link.py"), "/etc/passwd")
    assert "is a link" in refused(lambda: check_wheel(path, "hostile", "1.0", MIB)).message
    path.write_bytes(b"PK\x03\x04")
    assert refused(lambda: check_wheel(path, "hostile", "1.0", MIB)).code.code == "package-improper"


@pytest.mark.parametrize("needs", [b"caf\xe9", b"a (" * 20_000])
def test_needs_that_are_no_text_are_refused(needs: bytes, tmp_path: Path) -> None:
    path = tmp_path / "hostile-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hostile-1.0.dist-info/METADATA", b"Name: hostile\nVersion: 1.0\nRequires-Dist: " + needs)
    assert refused(lambda: asked([str(path)], paths=True)).code.code == "package-improper"


def test_a_wheel_that_does_not_unpack_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hostile-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("hostile-1.0.dist-info/METADATA", "Name: hostile\nVersion: 1.0\n")
    data = bytearray(path.read_bytes())
    at = data.index(b"METADATA") + len(b"METADATA")
    data[at : at + 4] = b"\xff" * 4
    path.write_bytes(data)
    assert refused(lambda: check_wheel(path, "hostile", "1.0", MIB)).code.code == "package-improper"
    assert refused(lambda: asked([str(path)], paths=True)).code.code == "package-improper"


def test_a_bomb_is_told_by_what_it_says_and_by_what_lies_over_each_other(tmp_path: Path) -> None:
    path = wheel(tmp_path, "bomb", files={"zeros.bin": bytes(20 * MIB)})
    assert path.stat().st_size < MIB
    error = refused(lambda: check_wheel(path, "bomb", "1.0", MIB))
    assert error.code.code == "package-too-large"
    assert check_wheel(path, "bomb", "1.0", 32 * MIB) > 20 * MIB
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02")
    struct.pack_into("<I", data, at + 20, 1 << 30)  # its packed size
    path.write_bytes(data)
    assert refused(lambda: check_wheel(path, "bomb", "1.0", 32 * MIB)).code.code == "package-improper"


@each(
    "name, place",
    [
        ("a/b.py", "a/b.py"),
        ("x-1.data/purelib/a.py", "a.py"),
        ("x-1.data/platlib/a/b.so", "a/b.so"),
        ("x-1.data/scripts/run", None),
        ("x-1.data/data/etc/x", None),
        ("../a", None),
        ("/a", None),
        ("x-1.data/purelib/../../a", None),
    ],
)
def test_files_are_unpacked_into_one_folder_alone(name: str, place: str | None) -> None:
    assert inside.place_of(name) == (None if place is None else f"{inside.PLACE}/{place}")
