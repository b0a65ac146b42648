"""What code expects of the machine that it runs on: a user with a name, a home, measures, letters of all scripts."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import ImageMissing
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.plugins.bubblewrap.interface import bubblewrap_program
from sandbox_kernel.plugins.hints.codes import HintCode
from tests.support.roots import root_of_tests

GVISOR = "runsc" in asyncio.run(DockerEngine().info()).runtimes

WHO = """
import getpass, grp, json, os, pathlib, pwd, subprocess
own = pwd.getpwuid(os.getuid())
open(os.path.join("/home", "user", "here.txt"), "w").write("the same folder")
pathlib.Path("mine.txt").write_text("")
print(json.dumps({
    "names": [own.pw_name, grp.getgrgid(os.getgid()).gr_name, getpass.getuser(), pathlib.Path("mine.txt").owner(),
              pathlib.Path("mine.txt").group(), subprocess.getoutput("whoami"), subprocess.getoutput("id -un")],
    "other": [pathlib.Path("/usr/bin").owner(), pathlib.Path("/usr/bin").group()],
    "id": subprocess.run(["id"], capture_output=True).returncode,
    "home": own.pw_dir == os.path.expanduser("~"),
    "here": pathlib.Path("here.txt").read_text(),
}))
"""

PLOT = """
import warnings
warnings.simplefilter("error")
import matplotlib.pyplot as plt
{theme}
figure, axes = plt.subplots()
axes.set_title("中文标题 日本語の題 한국어 العنوان پژوهش हिन्दी शीर्षक ภาษาไทย தமிழ் తెలుగు বাংলা ខ្មែរ עברית", weight="bold")
axes.set_xlabel("月份", family="serif")
axes.plot([1, 2], label="売上")
axes.legend()
for kind in {kinds}:
    figure.savefig("plot." + kind)
"""

MEASURES = """
import json, psutil, os
memory, disk = psutil.virtual_memory(), psutil.disk_usage("/")
held = b"x" * (100 << 20)
more = psutil.virtual_memory()
print(json.dumps([memory.total, memory.used < memory.total, memory.available + memory.used <= memory.total,
                  more.used - memory.used > 90 << 20, psutil.cpu_count(), disk.total, disk.used < disk.total,
                  psutil.disk_usage("/tmp").total, psutil.disk_usage("/mnt/data").total]))
"""


def said(sandbox: Sandbox, code: str) -> Any:
    execution = sandbox.run_code(code)
    assert execution.error is None, execution.error
    return json.loads("".join(execution.logs.stdout))


def engines() -> list[Any]:
    gvisor = pytest.mark.skipif(not GVISOR, reason="the engine has no runtime runsc: sandbox-kernel setup --gvisor")
    without = pytest.mark.skipif(bubblewrap_program() is None, reason="there is no bwrap on this machine")
    return [
        pytest.param("runc", id="docker"),
        pytest.param("runsc", marks=[gvisor, pytest.mark.long], id="gvisor"),
        pytest.param(None, marks=without, id="bubblewrap"),
    ]


@pytest.mark.parametrize("runtime", engines())
def test_the_user_has_a_name_and_e2b_s_home_is_the_working_folder(image: str, runtime: str | None) -> None:
    options: dict[str, Any] = {"engine": "docker", "image": image, "runtime": runtime}
    if runtime is None:
        options = {"engine": "bubblewrap", "image": root_of_tests(), "limits": "best-effort"}
    with Sandbox(**options) as sandbox:
        found = said(sandbox, WHO)
    nobody = ["nobody", "nogroup"] if runtime is None else ["root", "root"]  # where there are no other users
    assert found["names"] == ["sandbox"] * 7
    assert found["other"] == nobody
    assert found["id"] == 0
    assert found["home"]
    assert found["here"] == "the same folder"


@pytest.mark.parametrize("runtime", engines()[:2])
def test_psutil_measures_the_sandbox(image: str, runtime: str) -> None:
    size, memory = 96 << 20, 512 << 20
    with Sandbox(engine="docker", image=image, runtime=runtime, memory=memory, scratch_size=size, cpus=1) as sandbox:
        total, below, adds_up, seen, cpus, disk, free, tmp, scratch = said(sandbox, MEASURES)
        machine = said(sandbox, "import shutil; print(shutil.disk_usage('/').total)")
    assert (total, below, adds_up, seen) == (memory, True, True, True)
    assert cpus == 1
    assert (disk, free, scratch) == (size, True, size)
    assert tmp not in {disk, machine}
    assert machine > disk  # what is replaced is psutil's, and no more


@pytest.mark.long
def test_plots_have_glyphs_for_all_scripts(image: str) -> None:
    with Sandbox(image=image) as sandbox:
        for theme, kinds in (("", ("png", "svg", "pdf")), ("import seaborn; seaborn.set_theme()", ("png",))):
            execution = sandbox.run_code(PLOT.format(theme=theme, kinds=kinds))
            assert execution.error is None, execution.error  # matplotlib warns of a glyph that is missing
            assert execution.logs.stderr == []
        control = sandbox.run_code("axes.set_title('\\U00013000'); figure.savefig('plot.png')")
    assert control.error is not None
    assert "Glyph 77824" in control.error.value


def test_a_part_that_a_package_lacks_is_not_taken_for_a_package(image: str) -> None:
    with Sandbox(image=image) as sandbox:
        execution = sandbox.run_code("import numpy.no_such_part")
        pickled = sandbox.run_code("import pickle; pickle.loads(b'cpandas.core.no_such_part\\nFrame\\n.')")
    for one in (execution, pickled):
        assert one.error is not None
        assert HintCode.SUBMODULE_NOT_HERE.text.partition(":")[0] in "".join(one.logs.stderr)


HOURS = """
import datetime, os, time
def hours():
    time.tzset()
    return datetime.datetime(2026, 1, 15).astimezone().utcoffset().total_seconds() / 3600
found = [hours()]
for os.environ["TZ"] in ("US/Pacific", "Asia/Calcutta", "Europe/Kiev", "Mars/Base"):
    found.append(hours())
found
"""


@pytest.mark.parametrize("runtime", engines())
def test_a_time_zone_is_shown_by_its_older_names_too_or_refused_at_the_start(image: str, runtime: str | None) -> None:
    """In a running sandbox, the last one shows what becomes of a zone that nobody refuses."""
    options: dict[str, Any] = {"engine": "docker", "image": image, "runtime": runtime}
    if runtime is None:
        options = {"engine": "bubblewrap", "image": root_of_tests(), "limits": "best-effort"}
    with Sandbox(**options, time_zone="US/Pacific") as sandbox:
        assert sandbox.run_code(HOURS).text == "[-8.0, -8.0, 5.5, 2.0, 0.0]"
    with pytest.raises(ImageMissing, match="'Mars/Base'") as raised, Sandbox(**options, time_zone="Mars/Base"):
        pass
    assert (raised.value.code, raised.value.setting) == (EndCode.NO_TIME_ZONE, "time_zone")
