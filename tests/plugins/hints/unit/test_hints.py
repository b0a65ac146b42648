"""One line for a person who meets a wall of the sandbox, in the words of the entry point that they came by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox_kernel.core.model import Audience, Settings
from sandbox_kernel.files.notebook_files import Beside
from sandbox_kernel.kernel.proxy import NOTEBOOK
from sandbox_kernel.plugins import index
from sandbox_kernel.plugins.api import CellFailure
from sandbox_kernel.plugins.hints.codes import HintCode
from sandbox_kernel.plugins.hints.hints import Hints
from sandbox_kernel.session import hints as session

LOST = {
    "urllib, requests": ("URLError", "<urlopen error [Errno -3] Temporary failure in name resolution>"),
    "gVisor": ("gaierror", "[Errno -2] Name or service not known"),
    "gVisor, an address": ("OSError", "[Errno 113] No route to host"),
    "an address": ("OSError", "[Errno 101] Network is unreachable"),
    "curl": ("CalledProcessError", "curl: (6) Could not resolve host: a.test"),
}
MISSING = {
    "open, pandas": ("FileNotFoundError", "[Errno 2] No such file or directory: 'sales.csv'"),
    "below a folder": ("FileNotFoundError", "[Errno 2] No such file or directory: './sales.csv'"),
    "in scratch": ("FileNotFoundError", "[Errno 2] No such file or directory: '/mnt/data/sales.csv'"),
    "polars": ("FileNotFoundError", "No such file or directory (os error 2): sales.csv"),
    "numpy": ("FileNotFoundError", "sales.csv not found."),
    "pyarrow": ("FileNotFoundError", "[Errno 2] Failed to open local file 'sales.csv'. Detail: [errno 2] No such file"),
    "geopandas": ("DataSourceError", "sales.csv: No such file or directory"),
}


def hints_of(
    *,
    uploads: str | None = None,
    way_out: bool = False,
    volumes: bool = False,
    audience: Audience | None = None,
    beside: Callable[[Sequence[str]], str | None] | None = None,
) -> Hints:
    """Return the hints of a session with an upload folder, a network or volumes."""
    of_plugins = SimpleNamespace(network=["a.test"][: int(way_out)], volumes=["b"][: int(volumes)])
    return Hints(Settings(uploads=uploads, of_plugins=(of_plugins,)), audience or Audience(), beside)


def hint(name: str, value: str, **more: Any) -> str | None:
    return hints_of(**more).of_failure(CellFailure(name, value))


@pytest.mark.parametrize("case", LOST)
def test_who_meets_no_network_is_told_so(case: str) -> None:
    assert "the sandbox has no network" in str(hint(*LOST[case]))
    said = str(hint(*LOST[case], way_out=True))
    assert "did not use the proxy" in said
    assert "trust_env=True" in said


def test_who_meets_no_network_is_told_how_to_open_a_host() -> None:
    for said in (hint(*LOST["urllib, requests"], uploads="uploads"), *hints_of().of_code("!wget http://a.test/b")):
        assert 'The setting network opens single hosts, such as network = ["api.example.org"].' in str(said)


def test_who_asks_for_a_pickle_of_a_variable_is_told_what_to_do() -> None:
    said = str(hint("ModuleNotFoundError", "No module named 'jupyter_mimetypes'"))
    assert "Print the value as JSON" in said
    assert "jupyter_kernel_client" in said
    assert "part of the image" in str(hint("ModuleNotFoundError", "No module named 'jupyter_mimetypes2'"))


def test_who_sets_a_locale_is_told_which_there_is() -> None:
    assert "the image has one locale, C.UTF-8" in str(hint("Error", "unsupported locale setting"))
    assert hint("Error", "unsupported locale setting of mine") is None


def test_what_has_nothing_to_do_with_it_gets_no_hint() -> None:
    assert hint("ValueError", "Network is a nice word", way_out=True) is None
    assert hint("KeyError", "'sales.csv'") is None
    assert "cannot open more files" in str(hint("OSError", "[Errno 24] Too many open files", way_out=True))


def test_nothing_of_what_the_cell_says_is_in_a_hint() -> None:
    for name, value in (
        ("gaierror", "Name or service not known FORGED"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: 'FORGED'"),
        ("ModuleNotFoundError", "No module named 'FORGED'"),
    ):
        said = hint(name, value, way_out=True)
        assert said is not None
        assert "FORGED" not in said


@pytest.mark.parametrize("case", MISSING)
def test_whoever_reads_a_file_that_is_not_there_is_told_why_and_the_one_step_at_each_entry_point(case: str) -> None:
    assert "Sandbox.files.write" in str(hint(*MISSING[case]))
    assert "sandbox-kernel setup" in str(hint(*MISSING[case], audience=NOTEBOOK))
    assert "into the folder `uploads` beside" in str(hint(*MISSING[case], audience=NOTEBOOK, uploads="uploads"))


def test_a_program_is_told_of_no_upload_folder() -> None:
    assert "folder `" not in str(hint(*MISSING["numpy"], audience=Audience()))


def test_no_hint_has_a_place_left_to_fill_in() -> None:
    hints = hints_of(uploads="uploads", audience=NOTEBOOK)
    for code in HintCode:
        said = hints._text(code, "sales.csv")  # noqa: SLF001 (all of the table)
        assert "{" not in said
        assert "None" not in said


@pytest.mark.parametrize("case", MISSING)
def test_a_file_that_lies_beside_the_notebook_is_named(case: str, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "sales.csv").write_text("a\n")
    monkeypatch.chdir(tmp_path)
    hints = hints_of(uploads="uploads", audience=NOTEBOOK, beside=Beside())
    failure = CellFailure(*MISSING[case])
    found = Beside()(hints.sought(failure))
    assert found == "sales.csv"
    assert str(hints.of_failure(failure, found)).startswith("sales.csv lies beside the notebook")


def test_the_upload_folder_is_no_part_of_a_name() -> None:
    value = "[Errno 2] No such file or directory: 'uploads/sales.csv'"
    assert "leave `uploads/` out" in str(hint("FileNotFoundError", value, audience=NOTEBOOK, uploads="uploads"))
    assert "leave" not in str(hint("FileNotFoundError", value, audience=NOTEBOOK))


def test_a_module_of_ones_own_beside_the_notebook_is_named(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "mymodule.py").write_text("")
    (tmp_path / "mypackage").mkdir()
    (tmp_path / "mypackage" / "__init__.py").write_text("")
    monkeypatch.chdir(tmp_path)
    hints = hints_of(uploads="uploads", audience=NOTEBOOK, beside=Beside())
    for name, path in (("mymodule", "mymodule.py"), ("mypackage", "mypackage/__init__.py"), ("absent", None)):
        failure = CellFailure("ModuleNotFoundError", f"No module named '{name}'")
        assert Beside()(hints.sought(failure)) == path
    assert "is brought in like any file. Put a copy" in str(hints.of_failure(failure))


def test_nobody_looks_for_what_is_hidden_elsewhere_or_behind_a_link(tmp_path: Path, monkeypatch) -> None:
    """The control is the plain file: it is found, and by the same names nothing else is."""
    folder = tmp_path / "folder"
    (folder / ".ssh").mkdir(parents=True)
    (folder / ".ssh" / "id").write_text("")
    (folder / ".env").write_text("")
    (folder / "plain.csv").write_text("")
    (tmp_path / "above.csv").write_text("")
    (folder / "link").symlink_to(tmp_path)
    (folder / "above.csv").symlink_to(tmp_path / "above.csv")
    monkeypatch.chdir(folder)
    hints = hints_of(beside=Beside())
    names = [".env", ".ssh/id", "../above.csv", "x/../../above.csv", f"{tmp_path}/above.csv", "~/above.csv"]
    for name in names:
        assert hints.sought(CellFailure("FileNotFoundError", f"[Errno 2] No such file or directory: {name!r}")) == []
    look = Beside()
    assert look(["plain.csv"]) == "plain.csv"
    for name in [*names, "link/above.csv", "above.csv"]:
        assert name.startswith(".") or look([name]) is None


def test_a_entry_point_that_cannot_tell_a_person_alone_looks_for_nothing() -> None:
    assert hints_of().sought(CellFailure(*MISSING["polars"])) == []


def test_a_part_of_a_package_that_is_there_is_no_missing_package() -> None:
    for value in ("No module named 'numpy.foo'", "No module named 'pandas.core.indexes.numeric'"):
        assert "the package is installed, but this part of it is missing" in str(hint("ModuleNotFoundError", value))
    assert "no module with this name" in str(hint("ModuleNotFoundError", "No module named 'foo'"))


def test_a_program_that_is_missing_is_no_file() -> None:
    assert "no such program" in str(hint("FileNotFoundError", "[Errno 2] No such file or directory: 'git'"))


@pytest.mark.parametrize(
    ("printed", "program"),
    [
        ("/bin/sh: 1: soffice: not found\r\n", "soffice"),
        ("bash: line 1: ffmpeg: command not found\n", "ffmpeg"),
        ("begun\n./run.sh: line 30: g++: command not found\nended\n", "g++"),
        ("7z: not found\n", "7z"),
        ("sh: 1: unknown: not found\n", None),
        ("the file of git: not found\n", None),
        ("soffice: not found in the list\n", None),
        ("x" * 6000 + "\nsh: 1: git: not found\n", None),
    ],
)
def test_what_a_shell_did_not_find_is_read_from_what_it_prints(printed: str, program: str | None) -> None:
    assert Hints.program_not_found(printed) == program


def test_a_program_that_a_shell_did_not_find_is_named_with_the_image_that_has_it() -> None:
    assert "The image sandbox-kernel:full has soffice" in hints_of().of_program("soffice")
    assert "sandbox-kernel:full" not in hints_of().of_program("cargo")


def test_figure_widget_is_told_from_a_missing_package() -> None:
    said = hint("ImportError", "Please install anywidget to use the FigureWidget class")
    assert "plotly.graph_objects.Figure" in str(said)


INSTALLS = (
    "!pip install x", "%pip install -q x", "!conda install y", "%conda install -y y", "!python -m pip install z",
    "! pip3 -q install z", "out = !pip install z", "import a\n  !uv pip install b", "!sudo apt-get -y install curl",
    "!mamba create -n x",
)  # fmt: skip
FETCHES = (
    "!wget https://a.test/f.csv",
    "!curl -O https://a.test/f.csv",
    "!git clone https://a.test/r",
    "x = !curl a.test",
)
NEITHER = (
    "!pip list", "!pip --version", "!git status", "!ls", "%time f()", "pip = 'install'", "!curl http://localhost:1",
    "x = a % pip", "print('wget')", "!echo pip install",
)  # fmt: skip


@pytest.mark.parametrize("code", INSTALLS)
def test_who_installs_from_a_cell_is_told_how_packages_come_in(code: str) -> None:
    (said,) = hints_of(way_out=True).of_code(code)
    assert "a cell cannot install packages" in said
    assert "--requirements" in said


@pytest.mark.parametrize("code", FETCHES)
def test_who_fetches_from_a_cell_is_told_how_files_come_in(code: str) -> None:
    (said,) = hints_of().of_code(code)
    assert "Sandbox.files.write" in said
    assert hints_of(way_out=True).of_code(code) == []


@pytest.mark.parametrize("code", NEITHER)
def test_other_lines_of_the_shell_get_no_hint(code: str) -> None:
    assert hints_of().of_code(code) == []


def test_a_long_cell_is_looked_at_in_time_that_its_length_bounds() -> None:
    spaces = " " * 100_000
    lines = ["!pip " + "-a " * 3000 + "x", "!" + "a," * 5000, f"%{spaces}pip", f"a{spaces}", "!git " + "-c " * 3000]
    assert hints_of().of_code("\n".join(lines)) == []
    assert hints_of().sought(CellFailure("FileNotFoundError", "'" * 100_000)) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PermissionError", "[Errno 13] Permission denied: '/mnt/datasets/sales/a.parquet'"),
        ("IOException", 'IO Error: Cannot open file "/mnt/datasets/sales/a.parquet": Permission denied'),
        ("ComputeError", "Permission denied (os error 13): /mnt/datasets/sales/a.parquet"),
    ],
    ids=["open", "duckdb", "polars"],
)
def test_who_may_not_read_a_dataset_is_told_who_may(name: str, value: str) -> None:
    assert "what others may read (docs/large-data.md)" in str(hint(name, value))
    assert hint(name, value.replace("/mnt/datasets", "/mnt/data")) is None


def test_who_fills_a_folder_is_told_of_volumes_where_there_are_some() -> None:
    full = ("OSError", "[Errno 28] No space left on device")
    assert "each volume" in str(hint(*full, volumes=True))
    assert "each volume" not in str(hint(*full))


FULL = {
    "sqlite": ("OperationalError", "database or disk is full"),
    "numpy": ("OSError", "13107200 requested and 12582912 written"),
    "joblib, of a worker": ("TerminatedWorkerError", "The exit codes of the workers are {SIGBUS(-7)}"),
    "PyTorch, of a worker": (
        "RuntimeError",
        "DataLoader worker (pid 9) is killed by signal: Bus error.",
    ),
}


@pytest.mark.parametrize("case", FULL)
def test_a_full_folder_is_named_however_a_library_says_it(case: str) -> None:
    assert "512.0 MiB in /dev/shm (shm_size)" in str(hint(*FULL[case]))


WRAPPED: dict[str, tuple[list[object], bool]] = {
    "plain": (["OSError: [Errno 28] No space left on device\n\nThe above exception was", "PicklingError: x"], True),
    "in colours": (["\x1b[31mOSError\x1b[39m: [Errno 28] No space left on device"], True),
    "of a worker": (['_RemoteTraceback: \n"""\nTraceback:\nOSError: [Errno 28] No space left on device\n"""'], True),
    "a line of the cell's": (["----> 1 raise ValueError('OSError: [Errno 28] No space')"], False),
    "no text": ([None, 7], False),
}


@pytest.mark.parametrize("case", WRAPPED)
def test_a_full_folder_is_named_where_another_exception_wraps_it(case: str) -> None:
    lines, named = WRAPPED[case]
    said = hints_of().of_failure(CellFailure("PicklingError", "Could not pickle the task", lines))
    assert ("in /tmp (tmp_size)" in (said or "")) is named


@pytest.mark.parametrize(
    ("name", "value", "there"),
    [
        ("ModuleNotFoundError", "No module named 'cv2'", "cv2"),
        ("ModuleNotFoundError", "No module named 'netCDF4'", "netCDF4"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: 'soffice'", "soffice"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: PosixPath('ffmpeg')", "ffmpeg"),
    ],
)
def test_what_another_image_has_is_told_first_and_how_it_comes_by(name: str, value: str, there: str) -> None:
    said = str(hint(name, value))
    kind = said.index(f"The image sandbox-kernel:full has {there}: `sandbox-kernel build --kind full`")
    if name == "ModuleNotFoundError":
        assert kind < said.index("with the setting `packages`") < said.index("--requirements FILE")


@pytest.mark.parametrize(
    "code", ["%pip install -q opencv-python", "!pip install numpy geopandas==1.0", "!pip3 install 'pymupdf>=1'"]
)
def test_who_installs_what_another_image_has_is_told_so(code: str) -> None:
    (said,) = hints_of().of_code(code)
    assert "The image sandbox-kernel:full has " in said


@pytest.mark.parametrize("code", ["%pip install -q opencv", "!pip install numpy"])
def test_who_installs_what_no_image_has_is_told_of_none(code: str) -> None:
    (said,) = hints_of().of_code(code)
    assert "sandbox-kernel:full" not in said


def test_a_session_has_hints_for_its_settings_and_audience_and_none_without_the_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = session.SessionHints(Settings(uploads="/srv/uploads"))
    one.address(NOTEBOOK, Beside())
    failure = CellFailure(*MISSING["open, pandas"])
    for there, hints, sought in ((True, 1, ["sales.csv"]), (False, 0, [])):
        monkeypatch.setattr(index, "is_here", lambda name, there=there: there)
        assert [*one.sought(failure)] == sought
        said = one.of_cell(failure, None, None, "")
        assert [len(said), len(one.of_cell(None, None, None, "!pip install x"))] == [hints, hints]
        assert one.program_not_found("sh: 1: git: not found\n") == ("git" if there else None)
        assert not there or "into the folder `uploads` beside" in said[0]
