"""More output than a page bears, through a real kernel: its beginning and its end are shown, all of it is in a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from sandbox_kernel.sdk.blocking import Sandbox
from tests.attacks.test_floods import status
from tests.support.kernels import Kernel, Result, close_all, install

Start = Callable[..., Kernel]

SMALL = ("--display-lines", "1000", "--display-size", "64K")


@pytest.fixture(scope="module")
def small(launch_kernel: Start) -> Iterator[Kernel]:
    """A kernel with a small page that tests share: what they leave does not depend on the others."""
    kernel = launch_kernel(*SMALL)
    yield kernel
    close_all([kernel])


def file_of(result: Result, beyond: int = 0) -> str:
    """Return where the rest of what a cell said is kept, or that of the cell so many after it."""
    return f"outputs/cell-{result.reply['execution_count'] + beyond}.txt"


def told(result: Result) -> str:
    return "".join(
        line for line in result.text("stderr").splitlines(keepends=True) if line.startswith("[sandbox_kernel]")
    )


def read_back(kernel: Kernel, path: str) -> str:
    return kernel.run(f"print(open({path!r}).read(), end='')").text()


def test_the_beginning_and_the_end_are_shown_and_the_rest_is_in_a_file(small: Kernel) -> None:
    result = small.run("for n in range(100_000): print(n)")
    assert result.reply["status"] == "ok"
    lines = [int(line) for line in result.text().splitlines()]
    assert lines[:999] == list(range(999))
    assert lines[999:] == list(range(99_900, 100_000))
    assert "1,000 lines or 64.0 KiB" in told(result)
    assert "display_lines, display_size" in told(result)
    assert f"/mnt/data/{file_of(result)} (" in told(result)
    whole = f"open({file_of(result)!r}).read() == ''.join(f'{{n}}\\n' for n in range(999, 100_000))"
    assert small.run(whole).value == "True"


def test_ten_million_lines_cost_the_kernel_process_little(start_kernel: Start) -> None:
    """What froze a tab: the front end gets a megabyte, the file has the rest, and no cell waits for either."""
    kernel = start_kernel()
    before = status(kernel.pid, "VmRSS")
    result = kernel.run(
        "for n in range(0, 10**7, 1000): print('\\n'.join(str(m % 10) for m in range(1000)))", timeout=150
    )
    assert result.reply["status"] == "ok"
    assert sum(len(str(message["content"])) for message in result.messages) < 2 << 20
    assert result.text().endswith("\n8\n9\n")
    assert kernel.run("import os; os.path.getsize('outputs/cell-1.txt') > 19_900_000").value == "True"
    assert status(kernel.pid, "VmHWM") - before < 200 << 20


def test_control_without_the_limit_all_of_it_reaches_the_front_end(start_kernel: Start) -> None:
    kernel = start_kernel("--display-lines", "1000000000", "--display-size", "1G")
    result = kernel.run("for n in range(100_000): print(n)")
    assert result.text().count("\n") == 100_000
    assert not told(result)


@pytest.mark.long
def test_progress_bars_are_not_cut(small: Kernel) -> None:
    bar = "import sys\nfor n in range(10_000): sys.stderr.write(f'\\r{n:50}'); sys.stderr.flush()"
    result = small.run(bar)
    assert result.text("stderr").endswith(f"{9999:50}")
    assert "sandbox_kernel" not in result.text("stderr")


def test_a_single_long_text_loses_its_middle(small: Kernel) -> None:
    cells = {
        "'x' * 1_000_000": "execute_result",
        "display('y' * 1_000_000)": "display_data",
        "raise ValueError('x ' * 500_000)": "error",
        "display({'text/plain': 'line\\n' * 200_000}, raw=True)": "display_data",
    }
    files = []
    for code, kind in cells.items():
        result = small.run(code, store_history=True)
        files.append(file_of(result))
        (shown,) = [message for message in result.messages if message["msg_type"] == kind]
        assert len(str(shown["content"])) < 200_000, code
        assert "characters are left out here" in str(shown["content"]), code
        assert f"/mnt/data/{files[-1]}" in told(result), code
    sizes = f"[len(open(name).read()) >= 1_000_000 for name in {files}]"
    assert small.run(sizes).value == "[True, True, True, True]"


def test_many_small_displays_have_an_end_and_their_text_is_kept(small: Kernel) -> None:
    result = small.run("for n in range(500): display(n)")
    assert sum(message["msg_type"] == "display_data" for message in result.messages) == 99
    assert "401 displays are not shown" in told(result)
    assert read_back(small, file_of(result)) == "".join(f"{n}\n" for n in range(99, 500))


def test_what_a_cell_plants_in_the_way_gets_nothing(start_kernel: Start) -> None:
    kernel = start_kernel(*SMALL)
    plants = {
        "os.symlink('/tmp', 'outputs')": "it is a link",
        "os.unlink('outputs'); open('outputs', 'w').close()": "a part of its path is a file",
        "os.unlink('outputs'); os.makedirs('outputs/cell-6.txt')": "there is a folder of that name",
    }
    for count, (plant, reason) in enumerate(plants.items(), start=1):
        kernel.run(f"import os\n{plant}")
        result = kernel.run("for n in range(10_000): print(n)")
        assert result.reply["status"] == "ok"
        assert f"kept nowhere; /mnt/data/outputs/cell-{2 * count}.txt: {reason}" in told(result)
    assert kernel.run("[name for name in os.listdir('/tmp') if name.startswith('cell')]").value == "[]"


def test_a_link_in_place_of_the_file_is_replaced_and_not_followed(small: Kernel) -> None:
    file = file_of(small.run("import os; os.makedirs('outputs', exist_ok=True)"), beyond=2)
    small.run(f"os.symlink('/tmp/elsewhere', {file!r})")
    assert file_of(small.run("for n in range(10_000): print(n)")) == file
    assert small.run(f"os.path.islink({file!r}), os.path.exists('/tmp/elsewhere')").value == "(False, False)"
    assert small.run(f"os.path.getsize({file!r}) > 0").value == "True"


def test_a_full_scratch_is_said_and_ends_nothing(start_kernel: Start) -> None:
    kernel = start_kernel(*SMALL, "--scratch-size", "8M")
    kernel.run("open('full', 'wb').write(b'x' * (8 * 2**20 - 65536))")
    result = kernel.run("print('a line of text\\n' * 100_000)")
    assert result.reply["status"] == "ok"
    assert "scratch is full" in told(result)
    assert "scratch_size" in told(result)


def test_the_files_together_take_a_quarter_of_scratch(start_kernel: Start) -> None:
    kernel = start_kernel(*SMALL, "--scratch-size", "8M")
    for _ in range(4):
        kernel.run("print('x' * 1_000_000)")
    over = kernel.run("print('x' * 9_000_000)")
    assert "for which there was no room" in told(over)
    sizes = "import os; sum(os.path.getsize(f'outputs/{name}') for name in os.listdir('outputs'))"
    assert int(kernel.run(sizes).value) <= 2 << 20


def test_the_file_comes_out_with_the_others(start_kernel: Start, tmp_path: Path) -> None:
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    kernel = start_kernel(*SMALL, "--downloads", str(downloads))
    kernel.run("for n in range(100_000): print(n)")
    assert (downloads / "outputs/cell-1.txt").read_text() == "".join(f"{n}\n" for n in range(999, 100_000))


def test_the_limit_of_all_output_still_ends_the_cell(start_kernel: Start) -> None:
    kernel = start_kernel(*SMALL, "--output-limit", "16M")
    result = kernel.run("while True: print('x' * 1000)")
    assert result.ename == "OutputLimit"
    assert "/mnt/data/outputs/cell-1.txt" in told(result)
    assert kernel.run("1 + 1").value == "2"


def test_a_cell_that_is_ended_keeps_its_reason_on_a_full_page(start_kernel: Start) -> None:
    kernel = start_kernel(*SMALL, "--cell-timeout", "2")
    result = kernel.run("for n in range(10_000): print(n)\nimport time\ntime.sleep(60)")
    assert result.ename == "CellTimeout"
    assert [message["content"]["ename"] for message in result.messages if message["msg_type"] == "error"] == [
        "CellTimeout"
    ]


def test_a_thread_that_goes_on_after_its_cell_fills_no_page(small: Kernel) -> None:
    code = """
        import threading, time
        def go_on():
            time.sleep(0.5)
            for n in range(20_000): print(n)
            print('all printed')
        goes_on = threading.Thread(target=go_on)
        goes_on.start()
    """
    begin = time.monotonic()
    message_id = small.client.execute(code.replace("\n        ", "\n"))
    text = ""
    while "What follows is not shown" not in text:
        assert time.monotonic() - begin < 60
        message = small.client.get_iopub_msg(timeout=60)
        if message["parent_header"].get("msg_id") == message_id and message["msg_type"] == "stream":
            text += message["content"]["text"]
    assert text.count("\n") < 1100
    small.run("goes_on.join()")  # what it prints meanwhile may be said to be this cell's
    assert small.run("1 + 1").value == "2"


def test_a_batch_client_of_the_same_kernel_is_given_all(
    tmp_path: Path, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nbclient says with each cell that nobody is there to be asked for input, so nobody looks at a page either."""
    install(tmp_path, "--image", image, *SMALL)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share/jupyter"))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("for n in range(50_000): print(n)")])
    NotebookClient(notebook, kernel_name="sandbox-python", timeout=120).execute()
    outputs = notebook.cells[0].outputs
    assert {one.name for one in outputs} == {"stdout"}
    assert "".join(one.text for one in outputs).count("\n") == 50_000


def test_a_cell_decides_by_its_front_end_s_word_alone(small: Kernel) -> None:
    for allow, count in ((False, 5000), (True, 999 + 100), (False, 5000)):
        result = small.run("for n in range(5000): print(n)", allow_stdin=allow)
        assert result.text().count("\n") == count


def test_the_python_interface_gets_all_of_it(image: str) -> None:
    with Sandbox(image=image) as sandbox:
        done = sandbox.run_code("for n in range(50_000): print(n)")
    assert "".join(done.logs.stdout).count("\n") == 50_000
