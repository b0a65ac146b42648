"""A container without privileges, namespaces and network, with nothing but Python, wheels and the image beside it.

`make test-wasm` fetches the wheels. Docker's own filter of system calls refuses namespaces there.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.plugins.wasm.image import COMMAND, find
from tests.support import ROOT
from tests.support.containers import in_container

pytestmark = pytest.mark.xdist_group("wasm")
WHEELS = ROOT / ".cache/wasm-wheels"
PROGRAM = """
import glob, json, os, subprocess, sys, venv
said, python = {}, "/tmp/venv/bin/python"

def run(name, *words):
    done = subprocess.run([python, *words], capture_output=True, text=True, cwd="/tmp")
    said[name] = done.returncode, done.stdout + done.stderr

venv.create("/tmp/venv", symlinks=True)
[pip] = glob.glob("/wheels/pip-*.whl")
beside = "install", "--quiet", "--no-index", "--find-links", "/wheels"
run("pip", f"{pip}/pip", *beside, "sandbox-kernel[run,wasm]", "nbconvert")
try:
    os.unshare(os.CLONE_NEWUSER)
except OSError as error:
    said["namespaces"] = error.strerror
best = "--engine", "wasm", "--limits", "best-effort"
run("doctor", "-m", "sandbox_kernel", "doctor", "--engine", "wasm")
run("setup", "-m", "sandbox_kernel", "setup", *best)
run("demo", "%(root)s/notebooks/demo.py", "--output", "/tmp/output", *best)
run("cells", "-c", "SWAP = " + repr(%(swap)r) + %(cell)r)
print(json.dumps(said))
"""
CELL = """
import threading
from sandbox_kernel import Sandbox
from sandbox_kernel.core.errors import SandboxError
try:
    with Sandbox(engine="wasm"):
        print("started")
except SandboxError as error:
    print("refused", error.code.code)
with Sandbox(engine="wasm", limits="best-effort") as sandbox:
    sandbox.run_code("kept = 7")
    for code in ("while True: pass", "import time; time.sleep(600)"):
        print(sandbox.run_code(code, timeout=0.5).error.name, sandbox.run_code("kept").text)
    print("swapped", sandbox.run_code(SWAP % 1).text)
    turning = threading.Thread(target=sandbox.run_code, args=(SWAP % 1000,))
    turning.start()
    found = set()
    while turning.is_alive():
        for path in ("x/passwd", "x/inner/passwd", "file"):
            try:
                found.add(str(sandbox.files.read(path))[:4])
            except SandboxError as error:
                found.add(error.name)
    print("read", *sorted(found))
"""
SWAP = """
import os, shutil
out, seen = "../" * 12 + "etc", set()
os.makedirs("a/inner", exist_ok=True)
for name in ("a/passwd", "a/inner/passwd", "b"):
    open(name, "w").write("mine")
for turn in range(%d):
    for link, to in (("x", out), ("file", out + "/passwd"), ("x/inner", "../" + out)):
        for step in (lambda: os.symlink(to, link), lambda: seen.add(open(link).read()[:4]),
                     lambda: seen.add(open(link + "/passwd").read()[:4]), lambda: os.rename(link, link + "2"),
                     lambda: os.rename("a", link), lambda: seen.add(open(link + "/passwd").read()[:4]),
                     lambda: os.rename(link, "a"), lambda: os.unlink(link + "2"), lambda: os.unlink(link)):
            try:
                step()
            except OSError:
                pass
sorted(seen)
"""
"""Puts folders and links that lead out in each other's place, reads by both, and shows what it has read."""


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    if not list(WHEELS.glob("wasmtime-*.whl")):
        pytest.skip("there are no wheels: `make test-wasm` fetches them")
    try:
        image = find("sandbox-kernel:data").folder
    except EngineError as error:
        pytest.skip(f"{error.message}; `make test-wasm` runs `{COMMAND}`")
    options = ["--user", "1000", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only"]
    options += ["--tmpfs", "/tmp:exec,size=1g", "--env", "HOME=/tmp", "--env", "PYTHONPATH="]
    options += ["--volume", f"{WHEELS}:/wheels:ro", "--volume", f"{image}:/usr/local/share/sandbox-kernel/wasm:ro"]
    done = in_container(["-c", PROGRAM % {"root": ROOT, "cell": CELL, "swap": SWAP}], *options, seconds=280)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_control_it_has_no_namespaces_and_the_wheels_suffice(said: dict[str, Any]) -> None:
    assert said["namespaces"] == "Operation not permitted"
    assert said["pip"][0] == 0, said["pip"][1]


def test_what_is_missing_is_named_with_the_setting_that_accepts_it(said: dict[str, Any]) -> None:
    status, words = said["doctor"]
    assert status != 0
    assert re.search(r"WRONG\s+root of its own: none.*limits = best-effort", words)
    assert "refused attestation-failed" in said["cells"][1]


def test_setup_accepts_it_without_a_build(said: dict[str, Any]) -> None:
    status, words = said["setup"]
    assert status == 0, words
    assert "image       /usr/local/share/sandbox-kernel/wasm" in words


def test_the_quickstart_runs(said: dict[str, Any]) -> None:
    status, words = said["demo"]
    assert status == 0, words
    assert "54,376 flights: 4.0% cancelled" in words


def test_interrupts_keep_the_variables(said: dict[str, Any]) -> None:
    assert said["cells"][1].count("CellTimeout 7\n") == 2, said["cells"][1]


def test_links_lead_nobody_out_who_has_no_root_of_its_own(said: dict[str, Any]) -> None:
    """Neither the guest nor the host, which reads files while a cell swaps them; the control is its own file."""
    words = said["cells"][1]
    assert "swapped ['mine']" in words, words
    assert re.search(r"read .*FileRefused.* mine$", words, re.M), words
    assert "root" not in words
