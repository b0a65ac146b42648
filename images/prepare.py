"""Makes the files of `container/prepared.py`, by a kernel that starts in an image as each does, and ends then.

`prepare.py FOLDER` is given what the host ships on its standard input, and writes into a folder. Whatever is missing
afterwards is done at each start instead. Standard library only.
"""

import builtins
import importlib.util
import json
import marshal
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.machinery import ExtensionFileLoader
from pathlib import Path

FORM = 1
CONNECTION = {"shell_port": 1, "iopub_port": 2, "stdin_port": 3, "control_port": 4, "hb_port": 5, "transport": "ipc"}
SECONDS = 120
"""For a start, on a machine that is busy."""


def main(folder: Path) -> None:
    """Write both files."""
    shipped = json.load(sys.stdin)
    folder.mkdir(parents=True, exist_ok=True)
    codes = {text: marshal.dumps(compile(text, name, "exec", dont_inherit=True)) for name, text in shipped["sources"]}
    (folder / "sources").write_bytes(marshal.dumps((sys.version, codes)))
    with tempfile.TemporaryDirectory() as place:
        shutil.copytree(os.environ["HOME"], f"{place}/home")
        file = Path(place, "connection.json")
        file.write_text(json.dumps({**CONNECTION, "ip": f"{place}/s", "key": "", "signature_scheme": "hmac-sha256"}))
        arguments = [each.replace("{connection_file}", str(file)) for each in shipped["kernel"]]
        program = f"exec(open({__file__!r}).read(), {{'__name__': 'prepare'}})\n" + arguments[1]
        command = [sys.executable, "-c", program, *arguments[2:], "--IPKernelApp.exec_lines=sandbox_prepared()"]
        environment = {**os.environ, **shipped["environment"], "HOME": f"{place}/home", "PREPARED": str(folder)}
        subprocess.run(command, check=True, timeout=SECONDS, cwd=place, env=environment, stdout=subprocess.DEVNULL)
    for path in (folder, *folder.iterdir()):  # another user reads these
        path.chmod(0o755 if path.is_dir() else 0o644)


def begin() -> None:
    """Have this process, which becomes a kernel, note what it loads."""
    folder, expressions = Path(os.environ["PREPARED"]), {}
    python = here()
    compiler = getattr(re, "_compiler", None)  # since Python 3.11
    if compiler is not None:
        engine, now = vars(compiler)["_sre"], []
        plain, made = compiler.compile, engine.compile

        def compile_noted(pattern, flags=0):
            now.append((type(pattern) is str, pattern, int(flags)) if type(pattern) in (str, bytes) else None)
            try:
                return plain(pattern, flags)
            finally:
                now.pop()

        def made_noted(pattern, *made_of):
            if now and now[-1] is not None:
                flags, code, groups, places, names = made_of
                expressions[now[-1]] = (int(flags), [*map(int, code)], int(groups), dict(places), tuple(names))
            return made(pattern, *made_of)

        compiler.compile, engine.compile = compile_noted, made_noted
    builtins.sandbox_prepared = lambda: write(folder, python, expressions)


def write(folder: Path, python: list, expressions: dict) -> None:
    """Write what was loaded, and end."""
    index, data = {}, []
    end = 0
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if spec is None or spec.name != name or not spec.origin or not Path(spec.origin).is_file():
            continue
        status = Path(spec.origin).stat()
        of = (spec.origin, int(status.st_mtime), status.st_size, bool(spec.submodule_search_locations))
        if isinstance(spec.loader, ExtensionFileLoader):
            index[name] = (*of, 0, 0)
        elif (code := bytecode(spec.origin, of[1], of[2])) is not None:
            data.append(code)
            index[name] = (*of, end, end + len(code))
            end += len(code)
    head = marshal.dumps((FORM, python, index, expressions))
    (folder / "kernel.part").write_bytes(len(head).to_bytes(8, "little") + head + b"".join(data))
    (folder / "kernel.part").replace(folder / "kernel")  # whole, or not at all
    os._exit(0)


def bytecode(origin: str, time: int, size: int):
    """Return the bytecode that Python keeps of a source, if it is of this one."""
    try:
        kept = Path(importlib.util.cache_from_source(origin)).read_bytes()
    except (OSError, NotImplementedError):
        return None
    of_this = (0).to_bytes(4, "little") + time.to_bytes(4, "little") + size.to_bytes(4, "little")
    return kept[16:] if kept[:16] == importlib.util.MAGIC_NUMBER + of_this else None


def here() -> list:
    """As in `container/prepared.py`."""
    folders = []
    for name in sys.path[sys.path[0] == "" :]:
        try:
            folders.append((name, int(Path(name).stat().st_mtime)))
        except OSError:
            folders.append((name, -1))
    return [sys.version, sys.flags.optimize, folders]


if __name__ == "prepare":
    begin()
elif __name__ == "__main__":
    main(Path(sys.argv[1]))
