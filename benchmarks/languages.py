"""`python -m benchmarks.languages`: each kernel of an image beside the same kernel without a sandbox, in one run.

The one without runs from the same files, unpacked into a folder, with no walls: by `unshare` and `chroot`, as root. A
broker keeps one of each kind ready. Each row is a median, beside its ratio to the kernel without a sandbox.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from .broker import METRICS, Ready
from .kernels import BenchmarkError, Kernel, spec_name, write_sandbox, write_stock

CELLS = {"python3": "1 + 1", "bash": "echo $((1 + 1))", "sql": "select 1 + 1", "ir": "1 + 1", "deno": "1 + 1"}
FOLDERS = ("usr/local/share/jupyter/kernels", "usr/share/jupyter/kernels")
TRIVIAL_CELLS = 30
VARIABLES = "HOME=/tmp/home PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 TMPDIR=/tmp"
WITHOUT, SANDBOX, WARM = "without a sandbox", "sandbox", "ready"


def unpack(image: str, root: Path) -> None:
    """Unpack what an image has."""
    made = subprocess.run(["docker", "create", image, "true"], check=True, capture_output=True, text=True)
    container = made.stdout.strip()
    try:
        with subprocess.Popen(["docker", "export", container], stdout=subprocess.PIPE) as exporting:
            subprocess.run(["tar", "-x", "-C", root], check=True, stdin=exporting.stdout)
    finally:
        subprocess.run(["docker", "rm", container], check=True, capture_output=True)
    for name in ("passwd", "group"):
        (root / "etc" / name).unlink()
        (root / "etc" / name).touch()
    (root / "tmp/home").mkdir(parents=True)
    (root / "tmp/runtime").mkdir()


def kernelspecs(root: Path) -> dict[str, dict[str, Any]]:
    """Return the kernelspecs below a root that there are cells for."""
    found: dict[str, dict[str, Any]] = {}
    for folder in FOLDERS:
        for path in sorted(root.glob(f"{folder}/*/kernel.json")):
            if path.parent.name in CELLS:
                home = f"/{path.parent.relative_to(root)}"
                text = path.read_text(encoding="utf-8").replace("{resource_dir}", home)
                found.setdefault(path.parent.name, json.loads(text))
    return found


def write_without(folder: Path, name: str, spec: dict[str, Any], root: Path) -> None:
    """Write a kernelspec that starts a kernel below a root, in its own folders and without a wall."""
    words = [word if word == "{connection_file}" else shlex.quote(word) for word in spec["argv"]]
    if words[0] in {"python", "python3"}:
        words[0] = "/usr/bin/python3"
    variables = " ".join(f"{key}={shlex.quote(value)}" for key, value in spec.get("env", {}).items())
    command = " ".join(words).replace("{connection_file}", f'"${{1#{root}}}"')
    mounts = f"mount --rbind /dev {root}/dev && mount -t proc proc {root}/proc"
    script = f"{mounts} && exec chroot {root} /usr/bin/env -i {VARIABLES} {variables} {command}"
    place = folder / "share/jupyter/kernels" / spec_name(f"{WITHOUT} {name}")
    place.mkdir(parents=True)
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", "{connection_file}"]
    parts = {"argv": argv, "display_name": name, "language": spec["language"]}
    (place / "kernel.json").write_text(json.dumps(parts), encoding="utf-8")


def first_cell(name: str, code: str, specs: Any) -> float:
    """Return the seconds from the call that starts a kernel to the end of its first cell."""
    begin = time.perf_counter()
    kernel = Kernel(name, specs, lingers=False)
    try:
        if kernel.run(code).status != "ok":
            raise BenchmarkError(f"{name}: its first cell failed")
        return time.perf_counter() - begin
    finally:
        kernel.stop()


def cells(name: str, code: str, specs: Any, repetitions: int) -> list[float]:
    """Return medians of many trivial cells, each of a kernel of its own."""
    taken = []
    for _ in range(repetitions):
        kernel = Kernel(name, specs, lingers=False)
        try:
            kernel.run(code)
            taken.append(statistics.median(kernel.run(code).seconds for _ in range(TRIVIAL_CELLS)))
        finally:
            kernel.stop()
    return taken


def shown(what: str, values: dict[str, list[float]]) -> None:
    than = statistics.median(values[WITHOUT])
    for kind, taken in values.items():
        median = statistics.median(taken)
        print(f"{what}, {kind}: {1000 * median:.1f} ms ({median / than:.2f} x)", flush=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.languages", description=__doc__, allow_abbrev=False)
    parser.add_argument("--image", default="sandbox-kernel:all")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=CELLS, default=list(CELLS), metavar="KERNEL")
    options, failed = parser.parse_args(arguments), 0
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        folder, root, path = Path(name), Path(name, "root"), f"{name}/broker.sock"
        root.mkdir()
        unpack(options.image, root)
        tempfile.tempdir = str(root / "tmp/runtime")  # where jupyter_client writes connection files
        (folder / "broker.toml").write_text(f'[all]\nimages = ["{options.image}"]\nsessions = 20\n', encoding="utf-8")
        command = [sys.executable, "-m", "sandbox_kernel", "broker", "--socket", path, "--stay", "--engine", "docker"]
        command += ["--file", f"{name}/broker.toml", "--metrics", f"{name}/{METRICS}"]
        specs = write_stock(folder)
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            try:
                assert process.stderr is not None
                assert b"listening" in process.stderr.readline()
                threading.Thread(target=process.stderr.read, daemon=True).start()  # else it waits for who reads it
                ready = Ready(f"broker://{path}", f"{name}/{METRICS}")
                for kernel, spec in kernelspecs(root).items():
                    if kernel not in options.only:
                        continue
                    write_without(folder, kernel, spec, root)
                    given = ["--image", options.image, "--kernel", kernel]
                    write_sandbox(folder, f"{SANDBOX} {kernel}", [*given, "--engine", "docker"])
                    write_sandbox(folder, f"{WARM} {kernel}", [*given, "--engine", f"broker://{path}"])
                    try:
                        measure(kernel, specs, ready, options.repetitions)
                    except BenchmarkError as error:
                        failed += 1
                        print(f"{kernel}: FAILED: {error}"[:2000], flush=True)
            finally:
                process.terminate()
                process.wait()
    return 1 if failed else 0


def measure(kernel: str, specs: Any, ready: Ready, repetitions: int) -> None:
    ready.of_the_next_kind()
    first_cell(f"{WARM} {kernel}", CELLS[kernel], specs)  # what is asked for once is ready the next time
    starts: dict[str, list[float]] = {WITHOUT: [], SANDBOX: [], WARM: []}
    for _ in range(repetitions):
        for kind, taken in starts.items():
            name = f"{kind} {kernel}"

            def one(name: str = name) -> float:
                return first_cell(name, CELLS[kernel], specs)

            taken.append(ready.sample(one) if kind == WARM else one())
    shown(f"{kernel}: start to first result", starts)
    each = {kind: cells(f"{kind} {kernel}", CELLS[kernel], specs, max(2, repetitions // 2)) for kind in starts}
    shown(f"{kernel}: cell `{CELLS[kernel]}`", each)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
