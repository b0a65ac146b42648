"""Roots for an engine without images: what they are made of, how a new one takes the place of an old one, archives."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_kernel.cli import main
from sandbox_kernel.core.errors import ConfigurationError, EngineError
from sandbox_kernel.plugins.bubblewrap import root_lookup as places_of_roots
from sandbox_kernel.plugins.bubblewrap.roots import build as roots
from sandbox_kernel.plugins.bubblewrap.roots import exported_root, root_generations, root_layout
from sandbox_kernel.setup import build_lock
from sandbox_kernel.setup.command_steps import Steps
from sandbox_kernel.wheels.pip_process import WheelTarget, platform_tags

LIBRARIES = ("libc.so.6", "libssl.so.3", "ld-linux-x86-64.so.2")


def python_of(prefix: str, *, library: str = "", libraries: str = "/usr/lib/x86_64-linux-gnu") -> root_layout.Python:
    """Return a Python as a probe would find it, with `library` for its own library."""
    modules = f"{prefix}/lib/python3.13"
    mapped = [f"{libraries}/{name}" for name in LIBRARIES]
    mapped += [f"{prefix}/bin/python3.13", f"{modules}/lib-dynload/_ssl.cpython-313-x86_64-linux-gnu.so"]
    mapped += [f"{prefix}/lib/{library}"] if library else []
    return root_layout.Python(
        executable=f"{prefix}/bin/python3.13",
        prefix=prefix,
        version="3.13.5",
        minor="3.13",
        tag="cpython-313",
        standard_library=(modules,),
        mapped=tuple(mapped),
    )


def machine_of(python: root_layout.Python, *folders: str, loaders: tuple[str, ...] = ()) -> root_layout.LayoutFound:
    names = {path: (Path(path).name,) for path in python.mapped}
    return root_layout.LayoutFound(folders=frozenset(folders), loaders=loaders, names=names)


def places(laid: root_layout.Layout) -> dict[str, str]:
    """Return the source of each place inside."""
    return {inside: source for source, inside in laid.binds}


DEBIAN = python_of("/usr")
HOME = python_of("/opt/ada/pythons/3.13.5", library="libpython3.13.so.1.0")
ARCH = python_of("/usr", libraries="/usr/lib")
FEDORA = python_of("/usr", libraries="/usr/lib64")
MACHINES = {
    "debian": (DEBIAN, machine_of(DEBIAN, "/usr/lib64", "/usr/share/zoneinfo")),
    "home": (HOME, machine_of(HOME, "/usr/lib64", f"{HOME.standard_library[0]}/site-packages")),
    "arch": (ARCH, machine_of(ARCH, "/usr/lib/python3.13/site-packages", "/usr/share/zoneinfo")),
    "fedora": (FEDORA, machine_of(FEDORA, "/usr/lib64", "/usr/lib/python3.13/site-packages")),
}


# --- where everything lies --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MACHINES)
def test_no_more_of_the_machine_is_bound_than_libraries_the_python_and_their_data(name: str) -> None:
    python, machine = MACHINES[name]
    sources = {source for source, _ in root_layout.lay_out(python, machine).binds if source.startswith("/")}
    allowed = {python.executable, *python.standard_library, *(path for path in python.mapped if "libpython" in path)}
    assert sources - allowed <= {"/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", *root_layout.DATA}
    assert python.executable in sources


@pytest.mark.parametrize("name", MACHINES)
def test_no_package_of_the_machine_s_own_python_is_seen(name: str) -> None:
    """An empty folder lies over each of its folders, after what it lies in."""
    python, machine = MACHINES[name]
    laid = root_layout.lay_out(python, machine)
    inside = [place for _, place in laid.binds]
    for folder in machine.folders:
        if not folder.endswith("-packages"):
            continue
        place = next(place for place in inside if place.endswith("python3.13/site-packages"))
        assert places(laid)[place] == "empty"
        assert all(inside.index(other) < inside.index(place) for other in inside if place.startswith(f"{other}/"))


def test_a_python_of_the_system_is_where_it_is() -> None:
    laid = root_layout.lay_out(*MACHINES["debian"])
    assert laid.python == "/usr/bin/python3.13"
    assert places(laid)["/usr/lib/python3.13"] == "/usr/lib/python3.13"
    assert dict(laid.environment).keys() == {"PATH", "LANG"}
    assert ("usr/lib64", "/lib64") in laid.links


def test_a_python_of_a_home_lies_elsewhere_inside_and_no_name_of_the_home_is_seen() -> None:
    laid = root_layout.lay_out(*MACHINES["home"])
    assert laid.python == "/opt/sandbox/python/bin/python3.13"
    assert places(laid)["/opt/sandbox/python/lib/python3.13"] == HOME.standard_library[0]
    assert places(laid)["/opt/sandbox/python/lib/libpython3.13.so.1.0"].endswith("/lib/libpython3.13.so.1.0")
    assert dict(laid.environment)["LD_LIBRARY_PATH"] == "/opt/sandbox/python/lib"
    assert not [place for _, place in (*laid.binds, *laid.links) if "ada" in place]


def test_the_loader_is_bound_by_itself_where_no_folder_has_it() -> None:
    loader = "/usr/lib/ld-linux-aarch64.so.1"
    arm = machine_of(DEBIAN, loaders=("/lib/ld-linux-aarch64.so.1", loader))
    assert places(root_layout.lay_out(DEBIAN, arm))[loader] == loader
    assert "/lib/ld-linux-aarch64.so.1" not in places(root_layout.lay_out(DEBIAN, arm))
    within = machine_of(ARCH, loaders=(loader,))
    assert loader not in places(root_layout.lay_out(ARCH, within))


def test_what_lies_apart_of_its_modules_is_refused() -> None:
    apart = replace(DEBIAN, prefix="/opt/python")
    with pytest.raises(EngineError, match="apart"):
        root_layout.lay_out(apart, machine_of(apart))


# --- the Python -------------------------------------------------------------------------------------------------------


def test_a_probe_finds_what_a_python_is() -> None:
    found = root_layout.probe(sys.executable)
    assert found is not None
    assert found.version == sys.version.split()[0]
    assert found.tag == sys.implementation.cache_tag
    assert found.prefix == os.path.realpath(sys.base_prefix)
    assert any("libc.so" in path for path in found.mapped)


def test_a_python_without_a_lock_is_none_that_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_layout, "LOCKED_FOR", ("2.7",))
    assert root_layout.probe(sys.executable) is None
    with pytest.raises(EngineError, match=r"it is none of 2\.7"):
        root_layout.find_python()


def test_a_python_that_does_not_work_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "python3"
    broken.write_text("#!/bin/sh\necho no module named ssl >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(root_layout, "candidates", lambda: [str(broken), sys.executable])
    assert root_layout.find_python() == root_layout.probe(sys.executable)
    monkeypatch.setattr(root_layout, "candidates", lambda: [str(broken)])
    with pytest.raises(EngineError, match="no module named ssl"):
        root_layout.find_python()


def test_the_target_is_this_machine() -> None:
    found = root_layout.target(DEBIAN)
    assert (found.python, found.architecture) == ("3.13", os.uname().machine)
    assert f"glibc 2.{found.glibc}" == os.confstr("CS_GNU_LIBC_VERSION")


def test_wheels_of_a_machine_are_kept_apart_from_those_of_the_images() -> None:
    assert WheelTarget("x86_64").prefix == ""
    assert WheelTarget("x86_64", "3.11", 36).prefix == "python3.11-glibc36-"
    tags = platform_tags(WheelTarget("x86_64", "3.11", 28))
    assert tags[0] == "manylinux_2_28_x86_64"
    assert "manylinux_2_34_x86_64" not in tags


# --- generations ------------------------------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder for this user's data."""
    monkeypatch.setattr(places_of_roots, "folders", lambda: [str(tmp_path / "roots")])
    monkeypatch.setattr(root_generations, "root_folders", lambda: [str(tmp_path / "roots")])
    return tmp_path / "roots"


def make(name: str, contents: str) -> str:
    with root_generations.new_generation(name, contents) as made:
        (made.path / "env").mkdir()
        (made.path / "env" / "file").write_text(contents)
        made.said["binds"] = [["/usr/lib64", "/usr/lib64"], [made.within("env"), "/usr/local"]]
    return made.path.name


def test_a_root_is_there_when_it_is_whole_and_the_one_before_stays(data: Path) -> None:
    """A sandbox that runs goes on importing from the one that it was started with."""
    made = [make("a/b:c", f"sha256:{number}") for number in range(3)]
    folder = data / "a%2Fb:c"
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == sorted(made[1:])
    said = root_generations.read(root_generations.folder_of("a/b:c"))
    assert said["contents"] == "sha256:2"
    assert said["size_bytes"] == len("sha256:2")
    assert said["binds"][1] == [f"{made[2]}/env", "/usr/local"]
    assert (folder / said["binds"][1][0] / "file").read_text() == "sha256:2"


def test_a_build_that_fails_changes_nothing_and_leaves_nothing(data: Path) -> None:
    make("n", "sha256:old")
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    with pytest.raises(FileExistsError), root_generations.new_generation("n", "sha256:new") as made:
        made.path.mkdir()
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


def test_what_a_killed_build_left_goes_with_the_next(data: Path) -> None:
    make("n", "sha256:old")
    (data / "n" / "half-done").mkdir()
    make("n", "sha256:new")
    assert not (data / "n" / "half-done").exists()


def test_everybody_may_read_and_nobody_has_the_rights_of_another(tmp_path: Path) -> None:
    for name, mode in {"plain": 0o600, "program": 0o4700, "shared": 0o2777}.items():
        (tmp_path / name).write_text("12")
        (tmp_path / name).chmod(mode)
    (tmp_path / "folder").mkdir(0o700)
    (tmp_path / "link").symlink_to("/etc/shadow")
    (tmp_path / "again").hardlink_to(tmp_path / "plain")
    shadow = stat.S_IMODE(Path("/etc/shadow").stat().st_mode)
    assert root_generations.tidy(tmp_path) == 6
    found = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in tmp_path.iterdir() if not path.is_symlink()}
    assert found == {"plain": 0o644, "again": 0o644, "program": 0o755, "shared": 0o755, "folder": 0o755}
    assert stat.S_IMODE(Path("/etc/shadow").stat().st_mode) == shadow


def test_a_fifo_has_no_place_in_a_root(data: Path) -> None:
    with pytest.raises(EngineError, match="FIFO"), root_generations.new_generation("n", "sha256:1") as made:
        os.mkfifo(made.path / "fifo")
    assert root_generations.read(root_generations.folder_of("n")) == {}


# --- what is there ----------------------------------------------------------------------------------------------------


def test_a_root_is_missing_then_current_then_stale(data: Path) -> None:
    name = "sandbox-kernel:base"
    assert roots.state(name)[0] == "wrong"
    assert roots.state(name)[2] == "`sandbox-kernel build --engine bubblewrap --kind base`"
    make(name, roots.plan_for("base").contents)
    assert roots.state(name)[::2] == ("ok", "")
    make(name, "sha256:of an older version")
    assert roots.state(name)[0] == "note"
    make(name, roots.plan_for("base").contents)
    path = data / name / "root.json"
    said = json.loads(path.read_text())
    path.write_text(json.dumps(said | {"binds": [["/usr/lib/python3.99", "/usr/lib/python3.99"], *said["binds"]]}))
    assert roots.state(name)[0] == "note"
    assert "/usr/lib/python3.99" in roots.state(name)[1]


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '{"size_bytes": "x"}', '{"binds": 7}', '{"binds": [[1]]}'])
def test_a_root_json_that_is_none_is_no_error(data: Path, text: str) -> None:
    folder = data / "sandbox-kernel:base"
    folder.mkdir(parents=True)
    (folder / "root.json").write_text(text)
    assert roots.state("sandbox-kernel:base")[0] != "ok"
    make("sandbox-kernel:base", "sha256:1")
    assert root_generations.read(root_generations.folder_of("sandbox-kernel:base"))["contents"] == "sha256:1"


def test_what_goes_into_a_root_is_in_its_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = {roots.plan_for("base").contents, roots.plan_for("data").contents}
    found = root_layout.find_python()
    other = replace(found, version=f"{found.minor}.99")
    monkeypatch.setattr(root_layout, "find_python", lambda: other)
    assert len(digests | {roots.plan_for("base").contents}) == 3
    updated = tuple(path.replace("libz.so.1.", "libz.so.1.9.") for path in found.mapped)
    other = replace(found, mapped=updated)
    assert roots.plan_for("base").contents in digests, "an update of a library of the machine asks for no new root"


def test_programs_are_copies_without_rights_and_many_names_are_one_file(tmp_path: Path) -> None:
    count = roots.copy_programs(tmp_path, Path("/usr/bin/python3.99"))
    found = {path.name for path in tmp_path.iterdir()}
    assert {"sh", "bash", "cat", "ls", "sleep", "tar", "python3"} <= found
    assert not found & {"su", "sudo", "mount", "unshare", "nsenter", "bwrap", "gdb", "passwd", "newuidmap"}
    assert count == len(found)
    assert (tmp_path / "python3").readlink() == Path("python3.99")
    assert (tmp_path / "python3.99").stat().st_size == 0
    real = [path for path in tmp_path.iterdir() if not path.is_symlink()]
    assert not [path for path in real if path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)]
    assert (tmp_path / "awk").samefile(tmp_path / Path("/usr/bin/awk").resolve().name)


# --- the files of an image --------------------------------------------------------------------------------------------


def archive(*members: tuple[str, bytes, dict[str, object]]) -> tarfile.TarFile:
    """Return an archive of (name, type, fields), to be read once."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as made:
        for name, kind, fields in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            body = b"body" if kind == tarfile.REGTYPE else b""
            info.size = len(body)
            for field, value in fields.items():
                setattr(info, field, value)
            made.addfile(info, io.BytesIO(body))
    file.seek(0)
    return tarfile.open(fileobj=file, mode="r|")


def test_files_folders_and_links_come_out_of_an_archive(tmp_path: Path) -> None:
    members = archive(
        ("etc/", tarfile.DIRTYPE, {"mode": 0o700}),
        ("etc/passwd", tarfile.REGTYPE, {"mode": 0o600, "mtime": 1_000_000_000}),
        ("usr/bin/tool", tarfile.REGTYPE, {"mode": 0o6755}),
        ("usr/bin/other", tarfile.LNKTYPE, {"linkname": "usr/bin/tool"}),
        ("bin", tarfile.SYMTYPE, {"linkname": "usr/bin"}),
        ("etc/alternative", tarfile.SYMTYPE, {"linkname": "/usr/bin/tool"}),
    )
    exported_root.unpack(members, tmp_path)
    assert (tmp_path / "etc" / "passwd").read_bytes() == b"body"
    assert (tmp_path / "etc" / "passwd").stat().st_mtime == 1_000_000_000, (
        "bytecode would be made again in each session"
    )
    assert stat.S_IMODE((tmp_path / "usr/bin/tool").stat().st_mode) == 0o755
    assert (tmp_path / "usr/bin/other").samefile(tmp_path / "usr/bin/tool")
    assert (tmp_path / "bin").readlink() == Path("usr/bin")
    assert (tmp_path / "etc/alternative").readlink() == Path("/usr/bin/tool")


def test_device_nodes_fifos_and_the_kernel_s_own_folders_are_left_out(tmp_path: Path) -> None:
    members = archive(
        ("dev/null", tarfile.CHRTYPE, {"devmajor": 1, "devminor": 3}),
        ("proc/version", tarfile.REGTYPE, {}),
        ("disk", tarfile.BLKTYPE, {"devmajor": 8}),
        ("pipe", tarfile.FIFOTYPE, {}),
        ("kept", tarfile.REGTYPE, {}),
    )
    exported_root.unpack(members, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.parametrize(
    "members",
    [
        [("../escaped", tarfile.REGTYPE, {})],
        [("a/../../escaped", tarfile.REGTYPE, {})],
        [("a", tarfile.SYMTYPE, {"linkname": "{outside}"}), ("a/escaped", tarfile.REGTYPE, {})],
        [("a", tarfile.SYMTYPE, {"linkname": ".."}), ("a/outside/escaped", tarfile.REGTYPE, {})],
        [("a", tarfile.SYMTYPE, {"linkname": "{outside}/escaped"}), ("a", tarfile.REGTYPE, {})],
        [("a", tarfile.LNKTYPE, {"linkname": "../outside/secret"})],
        [("a", tarfile.SYMTYPE, {"linkname": "{outside}"}), ("b", tarfile.LNKTYPE, {"linkname": "a/secret"})],
        [("a", tarfile.SYMTYPE, {"linkname": "{outside}/secret"}), ("b", tarfile.LNKTYPE, {"linkname": "a"})],
        [("a", tarfile.SYMTYPE, {"linkname": "{outside}"}), ("a", tarfile.DIRTYPE, {})],
    ],
)
def test_no_name_of_an_archive_leads_out_of_a_root(
    tmp_path: Path, members: list[tuple[str, bytes, dict[str, object]]]
) -> None:
    """What tarfile would have done with the last but one without its filters is a control of test_transfer's kind."""
    (outside := tmp_path / "outside").mkdir()
    (outside / "secret").write_text("secret")
    (tree := tmp_path / "tree").mkdir()
    filled: list[tuple[str, bytes, dict[str, object]]] = [
        (name, kind, {key: str(value).format(outside=outside) for key, value in fields.items()})
        for name, kind, fields in members
    ]
    with pytest.raises((ValueError, FileExistsError)):
        exported_root.unpack(archive(*filled), tree)
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").stat().st_nlink == 1
    assert not (tmp_path / "escaped").exists()


def test_control_such_an_archive_does_lead_out_where_links_are_followed(tmp_path: Path) -> None:
    (outside := tmp_path / "outside").mkdir()
    (tree := tmp_path / "tree").mkdir()
    members = archive(("a", tarfile.SYMTYPE, {"linkname": str(outside)}), ("a/escaped", tarfile.REGTYPE, {}))
    members.extractall(tree, filter="fully_trusted")  # noqa: S202 -- that is what is shown
    assert (outside / "escaped").read_bytes() == b"body"


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from-image", "sandbox-kernel:base"], "needs --engine bubblewrap"),
        (["--engine", "bubblewrap", "--from-image", "a", "--requirements", "b"], "no use there"),
        (["--engine", "bubblewrap", "--tag", ".."], "no name of an image"),
        (["--engine", "bubblewrap", "--from-image", "/etc"], "no name of an image"),
    ],
)
def test_what_build_cannot_do_is_a_wrong_argument(
    arguments: list[str], said: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", *arguments]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_requirements_file_that_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="missing"):
        roots.plan_for("base", requirements=tmp_path / "missing.txt")


def test_a_folder_that_cannot_be_written_to_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a user whom the system does not know: without a home, roots would lie in the system's own folder."""

    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", unknown)
    (tmp_path / "file").touch()
    with pytest.raises(EngineError, match=rf"cannot be written to.*no home for user {os.getuid()}"):
        build_lock.alone(tmp_path / "file" / "roots", Steps(print)).__enter__()
