"""What is done once, when an image or a root is made: filling the home that each session copies.

Where a root is made without an image, it runs in a sandbox as a cell would, with the packages read-only and no network,
for it runs their code.
"""

import importlib.util
import json
import marshal
import os
import site
import subprocess
import sys
import tempfile
from pathlib import Path

HOME = Path("/opt/sandbox/home")
CODES = ("import matplotlib.font_manager", "import jedi; jedi.Interpreter('impor', [{}]).complete()")
"""The first plot would search all fonts, and the first completion parse the types of Python's own modules."""
BYTECODE = HOME / ".cache" / "kernel-bytecode"
"""The bytecode of all that a kernel imports at its start, in one file: `container/kernel_launcher.py` reads it."""
SHIPPED = Path(__file__).with_name("shipped.json")
"""Name and text of what the host ships to each sandbox: `container/prepared.py` reads its bytecode."""
CONNECTION = """{"transport": "ipc", "ip": "%s/s", "key": "", "signature_scheme": "hmac-sha256",
"shell_port": 1, "iopub_port": 2, "stdin_port": 3, "control_port": 4, "hb_port": 5}"""


def write_bytecode() -> None:
    """Start a kernel up to where it would serve, and write what it has imported."""
    paths = [path for path in sys.path[1:] if path != site.USER_SITE]  # the first is the folder of this file
    sys.modules["debugpy"] = None  # type: ignore[assignment]  # which a debugger loads
    from ipykernel.kernelapp import IPKernelApp

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "connection.json")
        file.write_text(CONNECTION % folder)
        history = "--HistoryManager.hist_file=:memory:"
        IPKernelApp.instance().initialize([f"--IPKernelApp.connection_file={file}", history])
    found, content = {}, b""
    for name, module in sorted(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if spec is None or spec.name != name or not (spec.cached and Path(spec.cached).exists()):
            continue
        cached = Path(spec.cached).read_bytes()
        if cached[4:8] == bytes(4):  # it counts as long as its source has the size and the time that come next
            is_package = spec.submodule_search_locations is not None
            found[name] = (spec.origin, is_package, cached[8:16], len(content), len(cached) - 16)
            content += cached[16:]
    head = marshal.dumps((importlib.util.MAGIC_NUMBER, paths, found))
    BYTECODE.write_bytes(len(head).to_bytes(8, "little") + head + content)
    os._exit(0)  # the threads of a kernel are there


def write_shipped() -> None:
    """Write the bytecode of what the host ships."""
    codes = {
        (name, text): marshal.dumps(compile(text, name, "exec", dont_inherit=True))
        for name, text in json.loads(SHIPPED.read_text(encoding="utf-8"))
    }
    whole = marshal.dumps((importlib.util.MAGIC_NUMBER, codes))
    BYTECODE.with_name("agent-bytecode").write_bytes(whole)


if __name__ == "__main__" and sys.argv[1:] == ["bytecode"]:
    write_bytecode()
elif __name__ == "__main__":
    BYTECODE.parent.mkdir(parents=True, exist_ok=True)
    write_shipped()
    for words in (*(("-c", code) for code in CODES), (__file__, "bytecode")):
        # Of a package that is not there, nothing is prepared.
        subprocess.run([sys.executable, *words], check=False, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
