"""`install --kernel NAME`: what front ends show of an image's kernel, and that it runs; with an image of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from papermill.translators import translate_parameters

from sandbox_kernel.cli import main
from sandbox_kernel.core.package_files import brought
from tests.support.cases import some
from tests.support.kernel_images import FAKE, image_with
from tests.support.kernels import ENGINE, Kernel, close_all

pytestmark = pytest.mark.skipif(ENGINE != "docker", reason="it makes an image of Docker's")
LOGO = (brought("kernelspec") / "logo-32x32.png").read_bytes()
OURS = (brought("kernelspec") / "logo-64x64.png").read_bytes()
SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"


@pytest.fixture(scope="module")
def kinds(image: str) -> Iterator[str]:
    files: dict[str, bytes | dict[str, Any]] = {
        "fake/kernel.json": FAKE,
        "fake/logo-64x64.png": LOGO,
        "fake/logo-svg.svg": SVG,
        "hostile/kernel.json": FAKE | {"display_name": "a\nb", "language": "<b>"},
        "hostile/logo-64x64.png": SVG,
        "broken/kernel.json": b"{",
        "r-like/kernel.json": FAKE | {"display_name": "R", "language": "R"},
        "as-python/kernel.json": FAKE | {"language": "python"},
    }
    with image_with(image, files) as tag:
        yield tag


def installed(folder: Path, image: str, kernel: str, *words: str) -> Path:
    assert main(["install", "--prefix", str(folder), "--image", image, "--kernel", kernel, *words]) == 0
    [made] = (folder / "share/jupyter/kernels").iterdir()
    return made


def test_front_ends_show_name_language_and_logo_of_the_images_kernel(tmp_path: Path, kinds: str) -> None:
    made = installed(tmp_path, kinds, "fake")
    assert made.name == "sandbox-fake"
    spec = json.loads((made / "kernel.json").read_text())
    assert (spec["display_name"], spec["language"], spec["interrupt_mode"]) == ("Fake (sandbox)", "fake", "message")
    assert spec["metadata"]["debugger"] is False
    assert spec["metadata"]["sandbox_kernel"]["kernel"] == "fake"
    assert {file.name for file in made.iterdir()} == {"kernel.json", "logo-64x64.png"}
    assert (made / "logo-64x64.png").read_bytes() == LOGO


def test_a_name_of_ones_own_is_in_its_name_for_people(tmp_path: Path, kinds: str) -> None:
    made = installed(tmp_path, kinds, "fake", "--name", "mine")
    assert (made.name, json.loads((made / "kernel.json").read_text())["display_name"]) == ("mine", "Fake (mine)")


def test_what_an_image_says_amiss_is_left_out(tmp_path: Path, kinds: str) -> None:
    made = installed(tmp_path, kinds, "hostile")
    spec = json.loads((made / "kernel.json").read_text())
    assert (spec["display_name"], spec["language"]) == ("hostile (sandbox)", "hostile")
    assert (made / "logo-64x64.png").read_bytes() == OURS
    assert "<script" not in (made / "logo-svg.svg").read_text()


@pytest.mark.parametrize("kernel", some(["broken", "other"], of=2))
def test_a_kernel_that_cannot_be_had_is_named_with_those_that_can(
    tmp_path: Path, kinds: str, kernel: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["install", "--prefix", str(tmp_path), "--image", kinds, "--kernel", kernel]
    assert main(words) != 0
    told = " ".join(capsys.readouterr().err.split())
    assert f"has no kernel '{kernel}'" in told
    assert "fake" in told
    assert not (tmp_path / "share").exists()
    assert main([*words, "--force"]) == 0
    spec = json.loads((tmp_path / f"share/jupyter/kernels/sandbox-{kernel}/kernel.json").read_text())
    assert (spec["display_name"], spec["language"]) == (f"{kernel} (sandbox)", kernel)


def test_the_doctor_starts_it_and_names_one_that_there_is_not(
    tmp_path: Path, kinds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["doctor", "--image", kinds, "--kernel", "fake", "--json"])
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["checks"]}
    assert rows["first cell"]["status"] == "ok"
    assert main(["doctor", "--image", kinds, "--kernel", "other", "--json"]) == 1
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["checks"]}
    assert rows["first cell"]["status"] == "wrong"
    assert "has no kernel 'other'" in rows["first cell"]["found"]


def test_it_runs(tmp_path: Path, kinds: str) -> None:
    made = installed(tmp_path, kinds, "fake")
    manager = KernelManager(
        kernel_name=made.name, kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(made.parent)])
    )
    manager.start_kernel()
    kernels = []
    try:
        kernels.append(kernel := Kernel(manager))
        assert kernel.run("import os; print(os.getcwd())").text() == "/mnt/data\n"
        message, begin = kernel.start("import time; print(1); time.sleep(60)", until="stream")
        manager.interrupt_kernel()
        assert kernel.collect(message, begin).ename == "KeyboardInterrupt"
    finally:
        close_all(kernels) if kernels else manager.shutdown_kernel(now=True)


@pytest.mark.parametrize(("kernel", "written"), [("r-like", "list(1, 2)"), ("as-python", "[1, 2]")])
def test_papermill_writes_parameters_in_the_kernels_language(
    tmp_path: Path, kinds: str, kernel: str, written: str
) -> None:
    """It finds a translator by the language in a notebook's metadata, where front ends write the kernelspec's."""
    spec = json.loads((installed(tmp_path, kinds, kernel) / "kernel.json").read_text())
    assert f"n = {written}" in translate_parameters(f"sandbox-{kernel}", spec["language"], {"n": [1, 2]})
