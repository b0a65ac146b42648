"""A picture that HTML or Markdown shows is a picture for clients of E2B and for LibreChat."""

from __future__ import annotations

import base64

from sandbox_kernel.plugins.serve.e2b.cells import lines_of
from sandbox_kernel.plugins.serve.librechat.cells import ran
from sandbox_kernel.sdk.execution import Execution
from sandbox_kernel.sdk.result import Result

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
JPEG = b"\xff\xd8\xff\xe0" + bytes(20)
IMAGES = {kind: base64.b64encode(data).decode() for kind, data in (("image/png", PNG), ("image/jpeg", JPEG))}
PAGE = "".join(f'<img alt="x" src="data:{kind};base64,{data}">' for kind, data in (*IMAGES.items(), *IMAGES.items()))
SHOWN = Result({"text/plain": "![p](p.png)", "text/html": PAGE}, is_main_result=True)
FIGURE = Result({"text/plain": "<Figure size 1x1 with 1 Axes>", **IMAGES})


def test_e2b_gets_the_first_of_each_type_with_its_text_and_each_further_one_as_a_result() -> None:
    png, jpeg = IMAGES["image/png"], IMAGES["image/jpeg"]
    first, *others = lines_of(SHOWN)
    assert (first["text"], first["png"], first["jpeg"]) == ("![p](p.png)", png, jpeg)
    further = {"type": "result", "is_main_result": False}
    assert others == [{**further, "png": png}, {**further, "jpeg": jpeg}]
    (figure,) = lines_of(FIGURE)
    assert (figure["png"], figure["jpeg"]) == (png, jpeg)


def test_librechat_gets_each_as_a_file_and_of_a_figure_one() -> None:
    found = ran(Execution(results=[SHOWN, FIGURE])).images
    assert found == [("png", PNG), ("jpg", JPEG), ("png", PNG), ("jpg", JPEG), ("png", PNG)]
