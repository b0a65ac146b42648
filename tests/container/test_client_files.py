"""Files of a sandbox through the SDK: bytes, text, paths, streams and folders in and out, and what is refused."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from sandbox_kernel import ConfigurationError, FileInfo, FileRefused, Sandbox
from sandbox_kernel.sdk.sandbox_paths import place, relative
from tests.support.kernels import containers_of

LARGE = 3_000_000
"""Bytes: three chunks."""


@pytest.fixture(scope="module")
def shared(image: str) -> Iterator[Sandbox]:
    with Sandbox(image=image, memory="512M", file_limit="8M", folder_files=5) as sandbox:
        yield sandbox
    assert not containers_of(os.getpid())


@pytest.fixture
def sandbox(shared: Sandbox) -> Sandbox:
    """The shared one, with an empty scratch."""
    shared.run_code(
        "import os, shutil\nfor entry in os.scandir():\n"
        "    (shutil.rmtree if entry.is_dir(follow_symlinks=False) else os.unlink)(entry.path)"
    )
    return shared


@pytest.fixture
def local(tmp_path: Path) -> Path:
    path = tmp_path / "sales.csv"
    path.write_bytes(os.urandom(LARGE))
    return path


# --- in and out ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "content"),
    [
        (b"bytes", b"bytes"),
        (bytearray(b"array"), b"array"),
        (memoryview(b"a view")[2:], b"view"),
        ("text, ü", "text, ü".encode()),
        (b"", b""),
        ("", b""),
        (bytes(LARGE), bytes(LARGE)),
    ],
    ids=["bytes", "bytearray", "memoryview", "text", "no bytes", "no text", "large"],
)
def test_content_arrives_as_it_is(sandbox: Sandbox, data: Any, content: bytes) -> None:
    assert sandbox.files.write("a/b/data", data) == FileInfo("a/b/data", len(content))
    assert sandbox.files.read("a/b/data", "bytes") == content
    assert sandbox.run_code("len(open('a/b/data', 'rb').read())").text == str(len(content))


def test_paths_and_streams_are_copied(sandbox: Sandbox, local: Path) -> None:
    content = local.read_bytes()
    assert sandbox.files.write("from a path", local).size == LARGE
    with local.open("rb") as file:
        sandbox.files.write("from a file", file)
    sandbox.files.write("from memory", io.BytesIO(content))
    for name in ("from a path", "from a file", "from memory"):
        assert sandbox.files.read(name, "bytes") == content


def test_a_file_is_read_as_text_or_in_pieces(sandbox: Sandbox, local: Path) -> None:
    sandbox.files.write("data", local)
    pieces = list(sandbox.files.read("data", "stream"))
    assert [len(piece) for piece in pieces] == [1 << 20, 1 << 20, LARGE - (2 << 20)]
    assert b"".join(pieces) == local.read_bytes()
    with pytest.raises(FileRefused, match="not UTF-8"):
        sandbox.files.read("data", "text")
    sandbox.files.write("words", "über")
    assert sandbox.files.read("words", format="text") == "über"
    with pytest.raises(ConfigurationError, match="format"):
        sandbox.files.read("words", "lines")  # type: ignore[call-overload]


def test_uploads_and_downloads_keep_names_and_contents(sandbox: Sandbox, local: Path, tmp_path: Path) -> None:
    assert sandbox.files.upload(local) == [FileInfo("sales.csv", LARGE)]
    assert sandbox.files.upload(str(local), "in/renamed.csv") == [FileInfo("in/renamed.csv", LARGE)]
    results = tmp_path / "results"
    results.mkdir()
    assert sandbox.files.download("in/renamed.csv", results) == results / "renamed.csv"
    assert sandbox.files.download("sales.csv", tmp_path / "copy") == tmp_path / "copy"
    assert (results / "renamed.csv").read_bytes() == (tmp_path / "copy").read_bytes() == local.read_bytes()
    assert sorted(path.name for path in results.iterdir()) == ["renamed.csv"]
    assert (tmp_path / "copy").stat().st_mode & 0o111 == 0


def test_a_folder_is_uploaded_with_its_files_and_without_its_links(sandbox: Sandbox, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    (folder / "one").write_text("1")
    (folder / "deep" / "two").write_text("22")
    (folder / "secret").symlink_to("/etc/passwd")
    (folder / "etc").symlink_to("/etc")
    os.mkfifo(folder / "fifo")
    assert sandbox.files.upload(folder) == [FileInfo("folder/one", 1), FileInfo("folder/deep/two", 2)]
    assert sandbox.files.list("folder") == [FileInfo("folder/deep/two", 2), FileInfo("folder/one", 1)]
    for number in range(5):
        (folder / str(number)).write_text("x")
    with pytest.raises(FileRefused, match="too many"):
        sandbox.files.upload(folder)


def test_files_are_listed_found_and_removed(sandbox: Sandbox) -> None:
    sandbox.files.make_folder("empty/inner")
    for name in ("b", "folder/c", "folder2/d"):
        sandbox.files.write(name, b"12")
    sandbox.run_code("import os; os.symlink('/etc/passwd', 'link'); os.mkfifo('fifo')")
    assert [file.path for file in sandbox.files.list()] == ["b", "folder/c", "folder2/d"]
    assert [file.path for file in sandbox.files.list("folder")] == ["folder/c"]
    assert [file.path for file in sandbox.files.list("/mnt/data/folder/")] == ["folder/c"]
    assert sandbox.files.list("/mnt/data") == sandbox.files.list(".") == sandbox.files.list()
    for elsewhere in ("/mnt/database", "/folder", "/etc/passwd"):
        with pytest.raises(FileRefused):
            sandbox.files.list(elsewhere)
    assert [sandbox.files.exists(name) for name in ("b", "empty", "nothing", "link", "fifo")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    for name in ("b", "link", "fifo", "empty/inner"):
        sandbox.files.remove(name)
    assert not sandbox.files.exists("b")
    with pytest.raises(FileRefused, match="'folder': the folder is not empty"):
        sandbox.files.remove("folder")


def test_files_may_be_moved_while_a_cell_runs(sandbox: Sandbox) -> None:
    def answer(text: str) -> None:
        sandbox.files.write("answer", sandbox.files.read("question", "bytes"))

    code = (
        "import os, time\nopen('question', 'w').write('why?'); print(1, flush=True)\n"
        "while not os.path.exists('answer'): time.sleep(0.01)\nopen('answer').read()"
    )
    assert sandbox.run_code(code, on_stdout=answer).text == "'why?'"


def test_what_the_caller_writes_does_not_come_back_as_a_download(image: str, tmp_path: Path) -> None:
    with Sandbox(image=image, downloads=str(tmp_path)) as sandbox:
        sandbox.files.write("mine", "x")
        sandbox.run_code("open('theirs', 'w').write('y')")
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a.csv", "a.csv"),
        ("./a/b.csv", "a/b.csv"),
        ("/mnt/data/a.csv", "a.csv"),
        ("/home/user/a.csv", "a.csv"),
        ("/home/user/./a/b.csv", "a/b.csv"),
        (PurePosixPath("/mnt/data/a/b"), "a/b"),
        (".hidden", ".hidden"),
    ],
)
def test_a_path_is_relative_to_the_folder_of_the_cells(path: str, name: str) -> None:
    assert relative(path) == name


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/etc/passwd",
        "/mnt/database",
        "../x",
        "a/../b",
        "/mnt/data/../x",
        "/home/user/../x",
        "/home/users/x",
        "/mnt/data//home/user/x",
        "a//b",
        "x" * 300,
    ],
)
def test_a_path_that_leads_elsewhere_is_refused_on_the_host(path: str) -> None:
    with pytest.raises(FileRefused):
        relative(path)


@pytest.mark.parametrize(
    ("path", "name"),
    [("/tmp/a", "/tmp/a"), ("/", "/"), ("/mnt/data/a", "a"), ("a", "a"), ("/a\nb/c", "/a_b~ef0790fb/c")],
)
def test_a_path_elsewhere_is_whole(path: str, name: str) -> None:
    assert place(path) == name


@pytest.mark.parametrize(
    "path", ["//etc/x", "/etc/../x", "/mnt/data/../x", "/tmp/", "/tmp//a", "../x", "", "/" + "a/" * 20 + "b"]
)
def test_a_whole_path_is_as_proper_as_another(path: str) -> None:
    with pytest.raises(FileRefused):
        place(path)


def test_a_path_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="a path must be text, not bytes"):
        relative(b"a")  # type: ignore[arg-type]


def test_a_refusal_names_the_file_and_the_reason(sandbox: Sandbox) -> None:
    with pytest.raises(FileRefused, match=r"'missing\.csv': there is no such file"):
        sandbox.files.read("missing.csv")
    with pytest.raises(FileRefused, match="'/etc/passwd': the sandbox may not touch it"):
        sandbox.files.write("/etc/passwd", b"")
    sandbox.run_code("import os; os.symlink('/etc/passwd', 'link')")
    with pytest.raises(FileRefused, match="'link': it is a link"):
        sandbox.files.read("link")


def test_a_file_over_the_limit_is_refused_and_leaves_nothing(sandbox: Sandbox) -> None:
    for data in (bytes(9 << 20), io.BytesIO(bytes(9 << 20))):
        with pytest.raises(FileRefused, match=r"'big': it is too large.*8\.0 MiB"):
            sandbox.files.write("big", data)
    sandbox.run_code("open('huge', 'wb').truncate(9 << 20)")
    with pytest.raises(FileRefused, match="'huge': it is too large"):
        sandbox.files.read("huge")
    assert sandbox.run_code("import os; os.listdir()").text == "['huge']"


def test_a_stream_that_fails_leaves_nothing(sandbox: Sandbox) -> None:
    class Failing(io.RawIOBase):
        reads = 0

        def read(self, size: int = -1) -> bytes:
            self.reads += 1
            if self.reads > 2:
                raise OSError("the disk is gone")
            return bytes(1 << 20)

    with pytest.raises(OSError, match="the disk is gone"):
        sandbox.files.write("part", Failing())  # type: ignore[arg-type]
    assert sandbox.run_code("import os; os.listdir()").text == "[]"


@pytest.mark.parametrize("data", [7, None, ["a"]], ids=["number", "none", "list"])
def test_what_is_no_content_is_refused(sandbox: Sandbox, data: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be bytes"):
        sandbox.files.write("x", data)
    assert not sandbox.files.exists("x")


def test_a_fifo_of_the_caller_s_is_refused_and_does_not_hang(sandbox: Sandbox, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(FileRefused, match="it is a FIFO"):
        sandbox.files.upload(tmp_path / "fifo")
    with pytest.raises(FileNotFoundError):
        sandbox.files.upload(tmp_path / "missing")


def test_a_download_replaces_a_link_and_does_not_follow_it(sandbox: Sandbox, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / "link").symlink_to(precious)
    sandbox.files.write("new", "from the sandbox")
    sandbox.files.download("new", tmp_path / "link")
    assert precious.read_text() == "kept"
    assert (tmp_path / "link").read_text() == "from the sandbox"
    assert not (tmp_path / "link").is_symlink()


def test_a_download_that_fails_leaves_nothing_and_keeps_what_was_there(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    with pytest.raises(FileRefused, match="no such file"):
        sandbox.files.download("missing", tmp_path / "old")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old", "old")]


def test_several_threads_may_move_files_at_once(sandbox: Sandbox) -> None:
    def copy(number: int) -> None:
        sandbox.files.write(f"file {number}", bytes([number]) * 100_000)

    threads = [threading.Thread(target=copy, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for number in range(8):
        assert sandbox.files.read(f"file {number}", "bytes") == bytes([number]) * 100_000


def test_no_link_of_the_working_folder_is_followed(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`data -> ~/.ssh` in a folder from elsewhere: neither read, nor written to."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "key").write_text("secret")
    (tmp_path / "repo" / "plain").mkdir(parents=True)
    (tmp_path / "repo" / "link").symlink_to("../mine")
    (tmp_path / "repo" / "file").symlink_to("../mine/key")
    os.link(tmp_path / "mine" / "key", tmp_path / "repo" / "plain" / "hard")
    monkeypatch.chdir(tmp_path / "repo")
    sandbox.files.write("result", "new")
    for local in ("link", "link/key", "file", "plain", "plain/hard", str(tmp_path / "repo" / "link")):
        with pytest.raises(FileRefused, match="link"):
            sandbox.files.upload(local)
    for local in ("link", "link/", "link/new", str(tmp_path / "repo" / "link" / "key")):
        with pytest.raises(FileRefused, match="link"):
            sandbox.files.download("result", local)
    assert [path.read_text() for path in (tmp_path / "mine").iterdir()] == ["secret"]
    assert sandbox.files.download("result", "plain").read_text() == "new"
    assert sandbox.files.upload("plain/result")[0].path == "result"


def test_a_name_that_tools_act_upon_is_written_only_where_the_caller_says_it(sandbox: Sandbox, tmp_path: Path) -> None:
    for name in ("conftest.py", ".envrc", "-rf"):
        sandbox.files.write(name, "x")
        with pytest.raises(FileRefused, match="say under which name"):
            sandbox.files.download(name, tmp_path)
        assert sandbox.files.download(name, tmp_path / f"{name}.txt").read_text() == "x"
    assert len(list(tmp_path.iterdir())) == 3


def test_files_that_cells_may_read_or_write_are_there_wherever_they_are(sandbox: Sandbox) -> None:
    files = sandbox.files
    assert (
        files.read("/etc/os-release")
        == sandbox.run_code("print(open('/etc/os-release').read(), end='')").logs.stdout[0]
    )
    assert files.read("/proc/self/status").startswith("Name:")
    assert files.write("/tmp/e/a.txt", "text").path == "/tmp/e/a.txt"
    assert sandbox.run_code("open('/tmp/e/a.txt').read()").text == "'text'"
    assert files.read("/tmp/e/a.txt") == "text"
    assert [one.path for one in files.list("/tmp/e")] == ["/tmp/e/a.txt"]
    assert files.rename("/tmp/e/a.txt", "from-tmp/a.txt").path == "from-tmp/a.txt"
    assert (files.read("from-tmp/a.txt"), files.exists("/tmp/e/a.txt")) == ("text", False)
    sandbox.run_code("import os; os.mkfifo('/tmp/e/fifo')")
    for path, reason in {
        "/dev/zero": "no regular file",
        "/tmp/e/fifo": "no regular file",
        "/proc/kmsg": "may not touch",
        "/etc/none": "no such file",
        "/etc": "a folder",
    }.items():
        with pytest.raises(FileRefused, match=reason):
            files.read(path)
    for path in ("/etc/x", "/usr/x/y", "/x"):
        with pytest.raises(FileRefused, match="may not touch"):
            files.write(path, "x")


def test_links_among_the_parents_of_a_caller_s_own_path_are_followed(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/a.txt").write_text("mine")
    (tmp_path / "link").symlink_to("there")
    (tmp_path / "last").symlink_to("there/a.txt")
    assert sandbox.files.write("own.txt", tmp_path / "link/a.txt").size == 4
    assert [one.path for one in sandbox.files.upload(tmp_path / "link/a.txt", "own2.txt")] == ["own2.txt"]
    sandbox.files.download("own.txt", tmp_path / "link/b.txt")
    assert (tmp_path / "there/b.txt").read_text() == "mine"
    for refused in (tmp_path / "last", tmp_path / "link/none", tmp_path / "link"):
        with pytest.raises((FileRefused, OSError)):
            sandbox.files.write("own3.txt", refused)
    assert not sandbox.files.exists("own3.txt")
