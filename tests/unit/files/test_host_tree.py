"""Names and sizes that may pass, and folders of the host that hold or receive files."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.core.codes import FileCode
from sandbox_kernel.core.errors import ConfigurationError, FileRefused
from sandbox_kernel.core.model import GIB, MIB
from sandbox_kernel.files import host_tree as files
from sandbox_kernel.files.file_rules import (
    FileLimits,
    check_copied_name,
    check_downloaded_name,
    check_name,
    folded,
    printable,
)
from sandbox_kernel.files.host_tree import DownloadFolder, HostSource, UploadFolder
from tests.support.cases import each
from tests.support.descriptors import open_below
from tests.support.examples import examples
from tests.support.files_odd import ODD, RENAMED, fill_with_odd_things
from tests.support.processes import python
from tests.support.programs import program

PLAIN = [
    "a", "sales.csv", "a b.txt", "a/b/c.png", "it's.txt", 'say "hi".txt', "<b>.txt", "$(id).txt", "-rf", "..a", "a..",
    "...", "تقرير.csv", "می‌خواهم.txt", "数据.csv", "😀👩‍👧.png", "Zoë.txt", "שלום.txt", "a" * 255, "/".join("x" * 16),
]  # fmt: skip

NOT_PLAIN = {
    "": "empty", "/": "absolute", "/etc/passwd": "absolute", "//x": "absolute", "a//b": "empty", "a/": "empty",
    ".": "'.'", "..": "'..'", "../x": "'..'", "a/../b": "'..'", "./a": "'.'", "a/..": "'..'",
    "a\0b": "control", "a\nb": "control", "\x1b[2Jx": "control", "a\x7f": "control", "a\x85b": "control",
    "a\u2028b": "control", "evil\u202egnp.exe": "direction", "a\u2066b": "direction", "a\u200fb": "direction",
    "a\u200bb": "invisible", "\ufeffa": "invisible", "a\U000e0041": "invisible", "a\\b": "backslash",
    "\udcff.txt": "UTF-8", "a" * 256: "too long", "é" * 128: "too long", "/".join(["a" * 250] * 5): "too long",
    "/".join("x" * 17): "too deep",
}  # fmt: skip


@each("name", PLAIN)
def test_a_plain_name_passes_unchanged(name: str) -> None:
    assert str(check_name(name)) == name


@each(("name", "reason"), NOT_PLAIN.items())
def test_a_name_that_is_not_plain_is_refused_with_its_reason(name: str, reason: str) -> None:
    with pytest.raises(FileRefused, match=reason):
        check_name(name)


@each(
    "name",
    [".bashrc", ".git/hooks/post-checkout", "a/.envrc", ".ipynb_checkpoints/x.ipynb", "__pycache__/json.pyc", "x.pth",
     "json.pyc", "sitecustomize.py", "a/Chart.desktop", "Desktop.ini", "AUTORUN.INF", ".sandbox-00.part"],
)  # fmt: skip
def test_what_tools_act_upon_by_themselves_is_not_copied(name: str) -> None:
    check_name(name)
    with pytest.raises(FileRefused, match=r"hidden|act upon"):
        check_copied_name(name)


OUT_REFUSED = {
    "-rf": "hyphen",
    "a/--checkpoint-action=exec=sh": "hyphen",
    "\uff0drf": "hidden",
    "\ufe63rf": "hidden",
    "sitecustomize/__init__.py": "act upon",
    "usercustomize/x": "act upon",
    "sitecustomize": "act upon",
    "sitecustomize.cpython-313-x86_64-linux-gnu.so": "act upon",
    "python313._pth": "act upon",
    "a/PYTHON._PTH": "act upon",
    "x.dist-info/entry_points.txt": "act upon",
    "x.egg-link": "act upon",
    "conftest.py": "act upon",
    "a/ConfTest.py": "act upon",
    "setup.py": "act upon",
    "setup.cfg": "act upon",
    "pyproject.toml": "act upon",
    "tox.ini": "act upon",
    "Makefile": "act upon",
    "a/GNUmakefile": "act upon",
    "package.json": "act upon",
    "node_modules/x/index.js": "act upon",
    "jupyter_server_config.py": "act upon",
    "ipython_config.py": "act upon",
    "vite.config.mjs": "act upon",
    "x.code-workspace": "act upon",
    "x.library-ms": "act upon",
    "\uff53etup.py": "act upon",
    "lab/index.html.j2": "act upon",
    "a/base/CELLTAGS.J2": "act upon",
    "lab/conf.json": "act upon",
    "lab/static/theme-light.css": "act upon",
    "matplotlibrc": "act upon",
    "latexmkrc": "act upon",
    "ansible.cfg": "act upon",
    "gunicorn.conf.py": "act upon",
    "con": "device",
    "a/NUL.txt": "device",
    "com1": "device",
    "LPT\u00b9.csv": "device",
    "aux.tar.gz": "device",
    "con .x": "device",
    "git~1": "short form",
    "a/GIT~1/config": "short form",
    "SETUP~1.PY": "short form",
    "a.": "ends with a dot",
    "a ": "space",
    " a": "space",
    "a /b": "space",
    "a./b": "ends with a dot",
    "\u3000": "hidden",
    "\uff0egit/config": "hidden",
    "\u2024bashrc": "hidden",
    "a/\u2100": "lookalike",
}


@pytest.mark.slow
def test_control_a_template_in_the_current_folder_is_a_program_to_nbconvert(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    run = "{{ cycler.__init__.__globals__.os.mkdir('ran-code') }}"
    (tmp_path / "lab" / "index.html.j2").write_text(run)
    (tmp_path / "a.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    command = [*program("nbconvert", "-P"), "--to", "html", "a.ipynb"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=True)
    assert (tmp_path / "ran-code").is_dir()


@each(("name", "reason"), OUT_REFUSED.items())
def test_a_name_that_acts_where_the_folder_is_opened_next_is_not_copied_out(name: str, reason: str) -> None:
    with pytest.raises(FileRefused, match=reason):
        check_downloaded_name(name)


SEEN_AS_NOTHING = {
    "pay\u200dload.csv": "nothing needs it",
    "a\u200cb": "nothing needs it",
    "\u200dx": "nothing needs it",
    "x\u200d": "nothing needs it",
    "x\ufe0f.csv": "nothing needs it",
    "x\U000e0100": "nothing needs it",
    "\u0627\u200dx": "nothing needs it",
    "1\ufe0f.txt": "nothing needs it",
    "a\u034fb": "invisible",
    "a\u3164b": "invisible",
    "a\u115fb": "invisible",
    "a\u2800b": "invisible",
    "a\u206ab": "invisible",
    "a\U0001d173b": "invisible",
    "a\u17b5b": "invisible",
    "a\uff0fb": "lookalike",
    "a\u2044b": "lookalike",
    "a\u2041b": "lookalike",
    "..\u2571..\u2571b": "lookalike",
    "a\u2572b": "lookalike",
    "a\u27cbb": "lookalike",
    "a\u27cdb": "lookalike",
    "a\u1735b": "lookalike",
    "a\u31d3b": "lookalike",
    "a\U0001d23ab": "lookalike",
    "a\u2215b": "lookalike",
    "a\uff3cb": "lookalike",
    "a\ue000b": "without a meaning",
}


@each(("name", "reason"), SEEN_AS_NOTHING.items())
def test_what_shows_as_nothing_or_as_a_separator_is_refused_by_every_entry_point(name: str, reason: str) -> None:
    with pytest.raises(FileRefused, match=reason):
        check_name(name)


@each(
    "name",
    [
        "plot.png",
        "\u30ce\u30fc\u30c8.csv",
        "results/2026-01-01T10:30:00.csv",
        "my report (final).pdf",
        "pandas.py",
        "a-b_c.tar.gz",
        "build/x.txt",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645.csv",
        "\u0915\u094d\u200d\u0937.txt",
        "\u0915\u094d\u200c\u0937.txt",
        "\U0001f469\u200d\U0001f467.png",
        "\U0001f3f3\ufe0f\u200d\U0001f308.png",
        "\U0001f468\U0001f3fd\u200d\u2695\ufe0f.png",
        "1\ufe0f\u20e3.txt",
        "\u845b\U000e0100.txt",
        "Zo\u00eb \u00bd.txt",
        "\u00e9\u0301.txt",
        "model.config.json",
        "lab/results.csv",
        "base/a.json",
        "latex/static/x.png",
        "static/style.css",
        "config.json",
        "contest.py",
        "control.csv",
        "Screenshot at 1.00\u202fPM.png",
        "notebook.ipynb",
        "computer.txt",
        "setup.txt",
        "2026~1.csv.gz",
        "x.y.z",
    ],
)
def test_honest_names_are_copied_out(name: str) -> None:
    assert str(check_downloaded_name(name)) == name


def test_names_that_are_one_on_other_systems_fold_to_one() -> None:
    assert folded("Plot.PNG") == folded("plot.png")
    assert folded("Zo\u00eb") == folded("ZOE\u0308")
    assert folded("a") != folded("b")


@given(
    st.text(max_size=80) | st.lists(st.sampled_from(["..", ".", "", "a", "é", "\n", "/"]), max_size=20).map("/".join)
)
@examples(300)
def test_a_name_that_passes_names_a_file_beneath_the_folder(name: str) -> None:
    try:
        checked = check_name(name)
    except FileRefused:
        return
    assert str(checked) == name
    assert os.path.normpath(f"/root/{name}") == f"/root/{name}"
    assert printable(name, 2000).isprintable()


@given(st.text(max_size=400) | st.binary(max_size=200).map(os.fsdecode))
@examples()
def test_whatever_is_printed_is_one_bounded_line(name: str) -> None:
    text = printable(name, 100)
    assert text.isprintable()
    assert len(text) <= 1000
    text.encode()


def test_limits_must_be_positive() -> None:
    with pytest.raises(ConfigurationError, match="files"):
        FileLimits(files=0)


# --- uploads ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    return tmp_path / "folder"


def read_all(source: HostSource) -> bytes:
    try:
        source.open()
        return b"".join(iter(source.read, b""))
    finally:
        source.close()


def test_a_scan_takes_regular_files_and_refuses_the_rest_by_name(folder: Path) -> None:
    fill_with_odd_things(folder, folder.parent / "outside" / "secret")
    good = {"تقرير.csv": b"1", "数据/😀.csv": b"2", "a b.txt": b"", "big.bin": bytes(MIB + 1)}
    for name, content in good.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "with a second name.txt").write_bytes(b"")
    os.link(folder / "with a second name.txt", folder / "hard link.txt")
    uploads = UploadFolder(folder, FileLimits())
    scan = uploads.scan()
    assert {file.path: read_all(uploads.source(file)) for file in scan.files} == good | RENAMED
    reasons = dict(scan.refused)
    assert reasons.keys() == ODD.keys() | {"with a second name.txt", "hard link.txt"}
    assert "hard link" in str(reasons["hard link.txt"])
    for name, reason in ODD.items():
        assert reason in str(reasons[name])


def test_a_size_over_the_limit_is_refused_with_both_numbers(folder: Path) -> None:
    with (folder / "sparse.bin").open("wb") as file:
        file.truncate(10 * GIB)
    ((_, reason),) = UploadFolder(folder, FileLimits()).scan().refused
    assert (reason.limit, reason.value) == ("512.0 MiB", "10.0 GiB")


def test_number_and_total_size_of_files_are_limited(folder: Path) -> None:
    for number in range(5):
        (folder / f"{number}").write_bytes(b"x" * 10)
    scan = UploadFolder(folder, FileLimits(files=3)).scan()
    assert [file.path for file in scan.files] == ["0", "1", "2"]
    assert [(path, reason.limit) for path, reason in scan.refused] == [(name, "3 files and folders") for name in "34"]
    scan = UploadFolder(folder, FileLimits(total_bytes=25)).scan()
    assert [file.path for file in scan.files] == ["0", "1"]
    assert {path for path, _ in scan.refused} == {"2", "3", "4"}


def test_a_scan_ends_in_a_folder_of_endless_entries(folder: Path) -> None:
    for number in range(60):
        (folder / f"{number}").touch()
    scan = UploadFolder(folder, FileLimits(files=2)).scan()
    assert len(scan.files) == 2
    assert len(scan.refused) < 60
    assert any("too many entries" in str(reason) for _, reason in scan.refused)


def test_a_missing_folder_is_refused_without_its_path(folder: Path) -> None:
    with pytest.raises(FileRefused, match="is not there") as caught:
        UploadFolder(folder / "none", FileLimits()).scan()
    assert caught.value.code is FileCode.FOLDER_MISSING
    assert str(folder) not in str(caught.value)


def test_a_missing_download_folder_is_made_with_the_first_file(folder: Path) -> None:
    target = DownloadFolder(folder / "made").target("a.csv")
    assert not (folder / "made").exists()
    target.open()
    target.write(b"x")
    target.commit()
    target.close()
    assert (folder / "made" / "a.csv").read_bytes() == b"x"


def test_no_download_folder_is_made_where_a_cell_may_not_write(folder: Path) -> None:
    """The control is the test above: the same name in a plain folder is made."""
    (folder / ".hidden").mkdir()
    target = DownloadFolder(folder / ".hidden" / "made").target("a.csv")
    with pytest.raises(FileRefused, match="hidden folder"):
        target.open()
    target.close()
    assert list((folder / ".hidden").iterdir()) == []


def test_no_folder_above_a_download_folder_is_made(folder: Path) -> None:
    target = DownloadFolder(folder / "none" / "made").target("a.csv")
    with pytest.raises(FileRefused) as caught:
        target.open()
    target.close()
    assert caught.value.code is FileCode.FOLDER_MISSING
    assert not (folder / "none").exists()


def test_an_unreadable_file_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a").write_text("x")
    uploads = UploadFolder(folder, FileLimits())
    (file,) = uploads.scan().files

    def denied(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied", "/host/path")  # root may read everything: say it is not so

    monkeypatch.setattr(files.os, "open", denied)  # type: ignore[attr-defined]
    with pytest.raises(FileRefused, match="cannot be opened: Permission denied"):
        read_all(uploads.source(file))


def test_a_folder_swapped_for_a_link_after_the_scan_is_not_followed(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "secret").write_text("harmless")
    uploads = UploadFolder(folder, FileLimits())
    (file,) = uploads.scan().files
    (folder / "data").rename(folder / "moved")
    (folder / "data").symlink_to(folder.parent / "outside")
    with pytest.raises(FileRefused, match="a link"):
        read_all(uploads.source(file))


def test_a_folder_swapped_for_a_link_between_check_and_open_is_not_followed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "secret").write_text("harmless")
    uploads = UploadFolder(folder, FileLimits())
    (file,) = uploads.scan().files
    real_open = os.open

    def swap_first(path: object, *args: int, **kwargs: int) -> int:
        if path == "data":
            (folder / "data").rename(folder / "moved")
            (folder / "data").symlink_to(folder.parent / "outside")
        return real_open(path, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(files.os, "open", swap_first)  # type: ignore[attr-defined]
    with pytest.raises(FileRefused, match="could not"):
        read_all(uploads.source(file))
    assert (folder / "data").is_symlink()


@pytest.mark.parametrize("swap", ["link", "link to the same file", "fifo", "other file"])
def test_a_file_swapped_between_check_and_open_is_not_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, swap: str
) -> None:
    (folder / "a").write_text("harmless")
    uploads = UploadFolder(folder, FileLimits())
    (file,) = uploads.scan().files
    real_open = os.open

    def swap_first(path: object, *args: int, **kwargs: int) -> int:
        if path == "a":
            (folder / "a").rename(folder.parent / "moved")
            if swap == "link to the same file":
                (folder / "a").symlink_to(folder.parent / "moved")
            elif swap == "link":
                (folder / "a").symlink_to(folder.parent / "outside" / "secret")
            elif swap == "fifo":
                os.mkfifo(folder / "a")
            else:
                os.link(folder.parent / "outside" / "secret", folder / "a")
        return real_open(path, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(files.os, "open", swap_first)  # type: ignore[attr-defined]
    with pytest.raises(FileRefused):
        read_all(uploads.source(file))


@pytest.mark.parametrize("change", [b"longer than before", b"s"])
def test_a_file_that_changes_while_it_is_read_is_refused(folder: Path, change: bytes) -> None:
    (folder / "a").write_text("harmless")
    uploads = UploadFolder(folder, FileLimits())
    (file,) = uploads.scan().files
    source = uploads.source(file)
    source.open()
    (folder / "a").write_bytes(change)
    with pytest.raises(FileRefused, match="being changed"):
        list(iter(source.read, b""))
    source.close()


# --- downloads -------------------------------------------------------------------------------------------------------


def put(folder: Path, path: str, data: bytes = b"data") -> None:
    with closing(DownloadFolder(folder).target(path)) as target:
        target.open()
        target.write(data)
        target.commit()


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_file_arrives_whole_with_its_folders_and_is_not_executable(folder: Path) -> None:
    target = DownloadFolder(folder).target("a/b/c.png")
    target.open()
    target.write(b"12")
    target.write(b"34")
    assert not list(folder.rglob("*.png"))
    target.commit()
    target.close()
    assert (folder / "a/b/c.png").read_bytes() == b"1234"
    assert stat.S_IMODE((folder / "a/b/c.png").stat().st_mode) & 0o133 == 0
    assert tree(folder) == {"a", "a/b", "a/b/c.png"}


@pytest.mark.parametrize("anonymous", [True, False])
def test_without_a_commit_nothing_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch, anonymous: bool) -> None:
    if not anonymous:
        monkeypatch.delattr(files.os, "O_TMPFILE")  # type: ignore[attr-defined]
    (folder / "kept").mkdir()
    target = DownloadFolder(folder).target("kept/new/a.txt")
    target.open()
    target.write(b"half")
    assert anonymous or any(name.endswith(".part") for name in tree(folder))
    target.close()
    assert tree(folder) == {"kept"}
    put(folder, "kept/new/a.txt")
    assert tree(folder) == {"kept", "kept/new", "kept/new/a.txt"}


def test_a_killed_process_leaves_no_part_of_a_file(folder: Path) -> None:
    try:
        os.close(os.open(folder, os.O_WRONLY | os.O_TMPFILE))
    except OSError:
        pytest.skip("this file system has no files without a name")
    code = """if True:
        import sys
        from sandbox_kernel.files.host_tree import DownloadFolder
        target = DownloadFolder(sys.argv[1]).target("a.bin")
        target.open()
        target.write(bytes(1 << 20))
        print("written", flush=True)
        sys.stdin.read()
    """
    with python(code, folder) as (_, line):
        assert line == "written"
    assert tree(folder) == set()


def test_a_regular_file_is_replaced_and_its_other_names_are_not(folder: Path) -> None:
    secret = folder.parent / "outside" / "secret"
    os.link(secret, folder / "a")
    put(folder, "a")
    assert (folder / "a").read_bytes() == b"data"
    assert secret.read_text() == "secret"


@pytest.mark.parametrize("kind", ["link", "dangling link", "folder", "fifo", "device"])
def test_anything_else_of_that_name_is_refused_and_stays(folder: Path, kind: str) -> None:
    place = folder / "a"
    match kind:
        case "link":
            place.symlink_to(folder.parent / "outside" / "secret")
        case "dangling link":
            place.symlink_to(folder.parent / "outside" / "new")
        case "folder":
            place.mkdir()
        case "fifo":
            os.mkfifo(place)
        case "device":
            os.mknod(place, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    before = place.lstat()
    with pytest.raises(FileRefused, match="of that name"):
        put(folder, "a")
    assert place.lstat() == before
    assert tree(folder) == {"a"}
    assert tree(folder.parent / "outside") == {"secret"}
    assert (folder.parent / "outside" / "secret").read_text() == "secret"


def test_a_link_in_the_place_of_a_folder_is_not_followed(folder: Path) -> None:
    (folder / "out").symlink_to(folder.parent / "outside")
    with pytest.raises(FileRefused, match="a link in place of a folder"):
        put(folder, "out/secret")
    with pytest.raises(FileRefused, match="a link in place of a folder"):
        put(folder, "out/new/file")
    assert tree(folder.parent / "outside") == {"secret"}
    assert (folder.parent / "outside" / "secret").read_text() == "secret"


def test_a_folder_swapped_for_a_link_before_the_commit_is_not_followed(folder: Path) -> None:
    target = DownloadFolder(folder).target("a/secret")
    target.open()
    target.write(b"data")
    (folder / "a").rename(folder / "moved")
    (folder / "a").symlink_to(folder.parent / "outside")
    target.commit()
    target.close()
    assert (folder / "moved" / "secret").read_text() == "data"
    assert (folder.parent / "outside" / "secret").read_text() == "secret"


def test_a_link_planted_before_the_commit_is_refused(folder: Path) -> None:
    target = DownloadFolder(folder).target("a")
    target.open()
    target.write(b"data")
    (folder / "a").symlink_to(folder.parent / "outside" / "secret")
    with pytest.raises(FileRefused, match="a link of that name"):
        target.commit()
    target.close()
    assert tree(folder) == {"a"}
    assert (folder.parent / "outside" / "secret").read_text() == "secret"


@pytest.mark.slow
def test_no_file_descriptor_is_left_open(folder: Path) -> None:
    (folder / "a").mkdir()
    (folder / "b").symlink_to("a")
    before = open_below(folder)
    put(folder, "a/x/y")
    for path in ("a", "b/x", "a/x/y/z"):
        with pytest.raises(FileRefused):
            put(folder, path)
    uploads = UploadFolder(folder, FileLimits())
    (file,) = uploads.scan().files
    read_all(uploads.source(file))
    assert len(open_below(folder)) > len(before)  # the control: what is open is seen
    del uploads  # it keeps its folder open as long as it lives, and so do the errors of the others
    assert open_below(folder) == before


def test_nothing_blocks_on_a_fifo(folder: Path) -> None:
    """An opener would wait for a writer for ever: the whole of it must be over within the bound."""
    os.mkfifo(folder / "pipe")
    thread = threading.Thread(target=UploadFolder(folder, FileLimits()).scan, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


SEGMENT = st.sampled_from(["..", ".", "", "a", "b", "link", "secret", "new", "etc", ".x", "\n", "\udc80", "x" * 300])


@given(path=st.lists(SEGMENT, min_size=1, max_size=6).map("/".join))
@examples(150)
def test_nothing_is_ever_written_outside(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    base = tmp_path_factory.mktemp("case")
    (base / "folder" / "a").mkdir(parents=True)
    (base / "folder" / "link").symlink_to(base)
    (base / "folder" / "a" / "link").symlink_to(base / "secret")
    (base / "secret").write_text("secret")
    try:
        put(base / "folder", path)
    except FileRefused:
        assert tree(base) == {"folder", "folder/a", "folder/link", "folder/a/link", "secret"}
    else:
        assert (base / "folder" / path).read_bytes() == b"data"
    assert {child.name for child in base.iterdir()} == {"folder", "secret"}
    assert (base / "secret").read_text() == "secret"
