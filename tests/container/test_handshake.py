"""What a kernel says of itself is asked once, before the first cell, and names no code of the host."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

from sandbox_kernel.core.model import Message
from sandbox_kernel.plugins.batch import source_notebook
from sandbox_kernel.policy.handshake import LANGUAGE, KernelHandshake
from tests.support.kernels import Kernel, connect

Start = Callable[..., Kernel]

HOSTILE = {"nbconvert_exporter": "results.helpers.Exporter", "file_extension": ".sh", "version": "1\x1b]0;a\x07"}

PLANT = f"""
import os
from pathlib import Path
folder = Path(os.environ.get('IPYTHONDIR', os.path.expanduser('~/.ipython'))) / 'profile_default/startup'
folder.mkdir(parents=True, exist_ok=True)
(folder / '00.py').write_text('''
from ipykernel.ipkernel import IPythonKernel
IPythonKernel.language_info = {{"name": "python", **{HOSTILE!r}}}
IPythonKernel.implementation_version = "9\\\\x1b]0;a\\\\x07"
IPythonKernel.banner = property(lambda self: "planted")
open("/mnt/data/planted", "w").close()
''')
"""

HELPERS = """
from nbconvert.exporters import PythonExporter
open("ran", "w").close()
class Exporter(PythonExporter):
    pass
"""


NBCONVERT = """
import sys
sys.modules["rfc3987_syntax"] = None  # a grammar that jsonschema compiles for a second and no notebook needs
from nbconvert.nbconvertapp import main
main()
"""


def info_of(kernel: Kernel) -> dict[str, Any]:
    content: dict[str, Any] = kernel.client.kernel_info(reply=True, timeout=60)["content"]
    return content


def converted(folder: Path, language: dict[str, Any]) -> bool:
    """Return whether `jupyter nbconvert` of a notebook of this language ran the module beside it."""
    (folder / "results").mkdir(exist_ok=True)
    (folder / "results/helpers.py").write_text(HELPERS)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 + 1")])
    notebook.metadata["language_info"] = language
    nbformat.write(notebook, folder / "notebook.ipynb")
    command = [sys.executable, "-c", NBCONVERT, "--to", "script", "notebook.ipynb"]
    subprocess.run(command, cwd=folder, capture_output=True, timeout=120, check=False)
    ran = (folder / "ran").exists()
    (folder / "ran").unlink(missing_ok=True)
    return ran


def test_a_restarted_kernel_with_planted_startup_files_is_not_asked(start_kernel: Start) -> None:
    kernel = start_kernel()
    first = info_of(kernel)
    assert kernel.run(PLANT).reply["status"] == "ok"
    for _ in range(2):
        kernel.manager.restart_kernel()
        kernel.client.stop_channels()
        kernel.client = connect(kernel.manager)
        assert kernel.run("__import__('os').path.exists('/mnt/data/planted')").value == "True", "the control: it ran"
        said = "get_ipython().kernel.language_info['nbconvert_exporter']"
        assert kernel.run(said).value == repr(HOSTILE["nbconvert_exporter"]), "what the kernel itself would say"
        again = info_of(kernel)
        assert again["language_info"] == first["language_info"]
        assert again["banner"] == first["banner"]
        assert "\x1b" not in json.dumps(again, ensure_ascii=False)
    told = {**again["language_info"], "version": LANGUAGE["version"]}
    assert told == LANGUAGE, "which runs nothing that lies beside a notebook, as the test of an executed one shows"


def test_the_same_after_the_death_of_a_kernel(start_kernel: Start) -> None:
    kernel = start_kernel()
    first = info_of(kernel)
    assert kernel.run(PLANT + "\nos._exit(1)").ename == "KernelDied"
    assert kernel.run("__import__('os').path.exists('/mnt/data/planted')").value == "True"
    assert info_of(kernel)["language_info"] == first["language_info"]


def test_an_executed_notebook_does_not_keep_what_its_author_said_of_the_language(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(metadata={"language_info": {**LANGUAGE, **HOSTILE, "version": "3.12.1"}})
    kept = source_notebook.read("a.ipynb", nbformat.writes(notebook).encode()).notebook.metadata["language_info"]
    assert kept == {**LANGUAGE, "version": "3.12.1"}
    assert not converted(tmp_path, dict(kept))
    assert converted(tmp_path, notebook.metadata["language_info"]), "the control: as it came"


def answer(handshake: KernelHandshake, content: object, kind: str = "kernel_info_reply", size: int = 2000) -> bool:
    parent = handshake.question("s").header
    message = Message(channel="control", header={"msg_type": kind}, parent=parent, content=content)  # type: ignore[arg-type]
    return handshake.takes(message, size)


@pytest.mark.parametrize(
    ("content", "version", "implementation", "features"),
    [
        ({}, "3", "", []),
        ({"language_info": {"version": "3.13.1"}, "implementation_version": "9.4.0rc1"}, "3.13.1", "9.4.0rc1", []),
        ({"language_info": HOSTILE, "implementation_version": "9\x1b]0;a\x07"}, "3", "", []),
        ({"language_info": {"version": "1." * 40}, "implementation_version": 7}, "3", "", []),
        ({"language_info": [], "supported_features": ["debugger", "invented", 7]}, "3", "", ["debugger"]),
        ({"language_info": {"version": "٣.٣"}, "supported_features": "debugger"}, "3", "", []),
        ({"implementation_version": "9.1\n"}, "3", "", []),
    ],
)
def test_an_answer_is_read_against_a_table(
    content: object, version: str, implementation: str, features: list[str]
) -> None:
    handshake = KernelHandshake()
    assert answer(handshake, content)
    assert handshake.known == {
        "language_info": {**LANGUAGE, "version": version},
        "implementation_version": implementation,
        "supported_features": features,
    }


def test_one_answer_and_two_statuses_are_taken_and_nothing_else() -> None:
    handshake = KernelHandshake()
    parent = handshake.question("s").header
    assert parent["msg_id"] != KernelHandshake().question("s").header["msg_id"], "nobody can know it before"

    def takes(kind: str, channel: Any = "iopub", size: int = 100, parent: Any = parent) -> bool:
        return handshake.takes(Message(channel=channel, header={"msg_type": kind}, parent=parent, content={}), size)

    assert not takes("stream")
    assert not takes("kernel_info_reply", "shell")
    assert not takes("kernel_info_reply", "control", size=1 << 20)
    assert not takes("kernel_info_reply", "control", parent={"msg_id": "sandbox-kernel-probe"})
    assert [takes("status") for _ in range(4)] == [True, True, False, False]
    assert [takes("kernel_info_reply", "control") for _ in range(2)] == [True, False]


def test_what_another_process_hands_over_is_read_against_the_same_table() -> None:
    handshake = KernelHandshake()
    handshake.restore({"language_info": HOSTILE, "supported_features": ["x"]})
    assert handshake.known["language_info"] == LANGUAGE
    handshake = KernelHandshake()
    handshake.restore(None)
    assert handshake.known, "a kernel that cells have used is not asked, whatever is missing"
