"""Folders of the host and a real container between them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tests.support.files_odd import ODD, RENAMED, fill_with_odd_things
from tests.support.kernels import Kernel
from tests.support.patience import Stopwatch

Start = Callable[..., Kernel]

MAKE_ODD_THINGS = r"""
import os, socket
os.makedirs("out/deeper", exist_ok=True)
open("out/deeper/图表.csv", "w").write("a,b\n1,2\n")
open("big.bin", "wb").write(bytes(3_000_000))
os.link("big.bin", "hard.bin")
os.symlink("/etc/passwd", "link")
os.symlink("/etc", "folder")
os.symlink("../../../../outside/secret", "climb")
os.mkfifo("fifo")
keep = socket.socket(socket.AF_UNIX); keep.bind("socket")
open("two\nlines", "w").write("x")
open(b"\xff\xfe.csv", "w").write("x")
os.makedirs(".git/hooks"); open(".git/hooks/post-checkout", "w").write("evil")
open("sparse", "wb").truncate(10 << 30)
open("run.sh", "w").write("evil"); os.chmod("run.sh", 0o777)
for kind, device in ((0o020666, (1, 3)), (0o060666, (8, 0))):
    try:
        os.mknod("device", kind, os.makedev(*device))
    except OSError as error:
        print("no device:", error.strerror)
"""


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def folders(base: Path) -> tuple[Path, Path, Path]:
    up, down, outside = base / "up", base / "down", base / "outside"
    for folder in (up, down, outside):
        folder.mkdir()
    (outside / "secret").write_text("secret")
    return up, down, outside


def test_what_may_go_in_goes_in_and_the_rest_is_named(start_kernel: Start, tmp_path: Path) -> None:
    up, down, outside = folders(tmp_path)
    fill_with_odd_things(up, outside / "secret")
    (up / "数据").mkdir()
    (up / "数据" / "😀 تقرير.csv").write_text("1")
    (up / "big.bin").write_bytes(os.urandom(2_500_000))
    kernel = start_kernel("--uploads", str(up), "--downloads", str(down))
    result = kernel.run("import os, pathlib; print(sorted(str(p) for p in pathlib.Path('.').rglob('*')))")
    assert result.text() == f"{sorted([*RENAMED, 'big.bin', '数据', '数据/😀 تقرير.csv'])}\n"
    for name in RENAMED:
        assert f"copied as {name}: " in result.text("stderr")
    for name, reason in ODD.items():
        shown = name.encode("unicode_escape").decode() if not name.isprintable() else name
        assert any(shown in line and reason in line for line in result.text("stderr").splitlines()), name
    assert kernel.run("1").text("stderr") == ""
    (up / "数据" / "😀 تقرير.csv").write_text("22")
    (up / "late.txt").write_text("late")
    with Stopwatch() as watch:
        assert kernel.run("print(open('数据/😀 تقرير.csv').read(), open('late.txt').read())").text() == "22 late\n"
    assert watch.seconds < 10
    kernel.run("import hashlib; print(hashlib.sha256(open('big.bin', 'rb').read()).hexdigest())")
    assert tree(down) == set()


def test_what_a_cell_makes_comes_out_and_nothing_lands_outside(start_kernel: Start, tmp_path: Path) -> None:
    up, down, outside = folders(tmp_path)
    (down / "planted").symlink_to(outside / "secret")
    (down / "way").symlink_to(outside)
    kernel = start_kernel("--uploads", str(up), "--downloads", str(down))
    result = kernel.run(MAKE_ODD_THINGS)
    assert result.reply["status"] == "ok", result
    assert result.text().count("no device: Operation not permitted") == 2
    good = {"out/deeper/图表.csv", "big.bin", "hard.bin", "run.sh"}
    replaced = {"two_lines~b8957a1f", "__~150ab71b.csv"}
    """What stands for names that the host would not have: a line's end, and bytes that are no text."""
    expected = good | replaced | {"out", "out/deeper", "planted", "way"}
    assert tree(down) == expected
    assert (down / "big.bin").stat().st_size == 3_000_000
    assert (down / "run.sh").stat().st_mode & 0o111 == 0
    plant = "open('planted', 'w').write('evil'); os.mkdir('way'); open('way/secret', 'w').write('evil')"
    notes = "".join(cell.text("stderr") for cell in (result, kernel.run(plant), kernel.run("1")))
    assert tree(down) == expected
    assert tree(outside) == {"secret"}
    assert (outside / "secret").read_text() == "secret"
    assert "planted: the host's folder has a link of that name" in notes
    for name in ("link", "folder", "climb", "fifo", "socket", *replaced, "sparse", ".git/hooks/post-checkout"):
        assert f"{name}: " in notes, name


def test_a_full_scratch_refuses_an_upload_by_name_and_goes_on(start_kernel: Start, tmp_path: Path) -> None:
    up, _, _ = folders(tmp_path)
    (up / "a-huge.bin").write_bytes(bytes(12 << 20))
    for name in ("b-large.bin", "c-large.bin"):
        (up / name).write_bytes(bytes(5 << 20))
    (up / "d-small.txt").write_text("x")
    kernel = start_kernel("--uploads", str(up), "--scratch-size", "8M")
    result = kernel.run("import os; print(sorted(os.listdir('.')))")
    assert result.text() == "['b-large.bin', 'd-small.txt']\n"
    assert "a-huge.bin: it is too large. Limit: 8.0 MiB" in result.text("stderr")
    assert "c-large.bin: scratch is full" in result.text("stderr")
    assert kernel.run("open('fill', 'wb').write(bytes(20 << 20))").ename == "OSError"
    assert kernel.run("1 + 1").value == "2"


def test_the_limits_of_the_folders_are_settings(start_kernel: Start, tmp_path: Path) -> None:
    up, down, _ = folders(tmp_path)
    for name in ("a", "b", "c"):
        (up / name).write_bytes(bytes(1000))
    kernel = start_kernel("--uploads", str(up), "--downloads", str(down), "--folder-files", "2", "--folder-limit", "3K")
    result = kernel.run("import os; print(sorted(os.listdir()))")
    assert result.text() == "['a', 'b']\n"
    reason = "the folder holds too many files. Limit: 2 files and folders. Setting to change: folder_files."
    assert f"c: {reason}" in result.text("stderr")
    result = kernel.run("open('large', 'wb').write(bytes(4000))")
    assert "large: the session's files are too large together" in result.text("stderr")
    assert "Setting to change: folder_limit." in result.text("stderr")
    assert tree(down) == set()
