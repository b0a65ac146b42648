"""What an image says of its kernels, as it lands in a kernelspec of the host: honest and hostile."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import pytest

from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import SandboxDied, SandboxError
from sandbox_kernel.core.model import Settings
from sandbox_kernel.core.package_files import brought
from sandbox_kernel.setup import self_test
from sandbox_kernel.setup.image_kernelspec import MAX_LOGO_BYTES, ImageKernelspec, look


def png(width: int, height: int, padding: int = 0) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunk = b"IHDR" + head
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk)) + bytes(padding)


def said(**changed: Any) -> dict[str, Any]:
    return {"display_name": "R", "language": "R"} | changed


def test_what_is_proper_is_taken() -> None:
    logo = (brought("kernelspec") / "logo-64x64.png").read_bytes()
    found = ImageKernelspec.of("ir", said(logo=base64.b64encode(logo).decode()))
    assert found == ImageKernelspec("R", "R", logo)
    assert ImageKernelspec.of("ir", said(display_name="C++ 17 (é)", language="C++")).language == "C++"


@pytest.mark.parametrize("shown", ["", "a\nb", "a\x1b[31m", "a\u202eb", None, 7, ["R"]])
def test_an_improper_name_is_the_kernelspecs(shown: object) -> None:
    assert ImageKernelspec.of("ir", said(display_name=shown)).display_name == "ir"


def test_a_long_name_is_cut() -> None:
    assert ImageKernelspec.of("ir", said(display_name="R" * 10_000)).display_name == "R" * 80


@pytest.mark.parametrize("language", ["", "R\n", "<b>", "a" * 41, "python; x", None, {"R": 1}])
def test_an_improper_language_is_the_kernelspecs(language: object) -> None:
    assert ImageKernelspec.of("ir", said(language=language)).language == "ir"


LOGOS: dict[str, object] = {
    "SVG": base64.b64encode(b"<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>").decode(),
    "GIF": base64.b64encode(b"GIF89a" + bytes(20)).decode(),
    "many pixels": base64.b64encode(png(100_000, 100_000)).decode(),
    "no pixels": base64.b64encode(png(0, 64)).decode(),
    "no header": base64.b64encode(b"\x89PNG\r\n\x1a\n").decode(),
    "large": base64.b64encode(png(64, 64, MAX_LOGO_BYTES)).decode(),
    "huge": "A" * 10_000_000,
    "no base64": "§",
    "number": 7,
}


@pytest.mark.parametrize("case", LOGOS)
def test_an_improper_logo_is_left_out(case: str) -> None:
    assert ImageKernelspec.of("ir", said(logo=LOGOS[case])).logo is None


def test_control_a_small_png_is_a_logo() -> None:
    assert ImageKernelspec.of("ir", said(logo=base64.b64encode(png(64, 64)).decode())).logo == png(64, 64)


NONSENSE = ["", "nonsense", "error: NameError: x", "7", "'7'", "'[]'", "'{'", "'null'", '"' * 9]


@pytest.mark.parametrize("shown", NONSENSE)
def test_nonsense_is_an_error_with_a_code(shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(*_: object) -> str:
        return shown

    monkeypatch.setattr(self_test, "shown", answer)
    with pytest.raises(SandboxDied) as raised:
        look(Settings(kernel="ir"))
    assert raised.value.code is EndCode.NO_REPORT


@pytest.mark.parametrize("names", ['["a", 7, "../x", "b\\\\n"]', "[]", '"abc"'])
def test_names_that_there_are_not_are_left_out(names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(*_: object) -> str:
        return f"'{{\"names\": {names}}}'"

    monkeypatch.setattr(self_test, "shown", answer)
    with pytest.raises(SandboxError) as raised:
        look(Settings(kernel="ir"))
    assert raised.value.code is EndCode.NO_KERNELSPEC
    assert "../x" not in raised.value.message
