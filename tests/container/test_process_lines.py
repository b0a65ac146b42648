"""What `ps` and `docker inspect` show of a sandbox, and that no cell writes what the next kernel runs."""

from __future__ import annotations

import json

from sandbox_kernel import AsyncSandbox
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.sdk.client import handle_of
from tests.support.engines import IMAGE
from tests.support.process_lines import END, check, check_kernels

OF_CALLER = "a-word-of-the-caller-s"
PLANTING = """
import glob, time
while True:
    for path in glob.glob("/tmp/.sandbox/k*/kernel.py"):
        with open(path, "r+") as file:
            if file.read(9) != "# planted":
                file.seek(0)
                file.write("# planted\\nopen('/mnt/data/planted', 'w')\\n")
    time.sleep(0.001)
"""
PLANT = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {PLANTING!r}], start_new_session=True)
"""
READ = """
import glob
def text():
    (path,) = glob.glob("/tmp/.sandbox/k*/kernel.py")
    return open(path).read()
"""


async def test_words_of_processes_say_what_each_is() -> None:
    async with AsyncSandbox(engine="docker", image=IMAGE, envs={"WORD": OF_CALLER}) as sandbox:
        engine = DockerEngine()
        await sandbox.run_code("1")
        (row,) = [one for one in await engine.list() if one.session == handle_of(sandbox).session.id]
        found = json.dumps(await engine.inspect(row.container))
        check([json.loads(found)["Config"]["Entrypoint"]])
        assert OF_CALLER not in found
        assert (await sandbox.run_code("import os; os.environ['WORD']")).text == repr(OF_CALLER)
        await check_kernels(sandbox)


async def test_what_a_cell_leaves_behind_changes_no_later_kernel_s_program() -> None:
    """The control is the kernel that runs: it has read its file, which is any cell's to write to."""
    async with AsyncSandbox(engine="docker", image=IMAGE) as sandbox:
        assert (await sandbox.run_code(f"{READ}{PLANT}while 'planted' not in text(): time.sleep(0.01)")).error is None
        assert (await sandbox.run_code(END)).error is not None
        found = await sandbox.run_code(f"{READ}\nimport os\n'planted' in text(), os.listdir()")
        assert found.text == "(False, [])"
