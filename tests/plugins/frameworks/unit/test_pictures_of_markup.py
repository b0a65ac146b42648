"""A picture that HTML or Markdown shows is a picture for a framework, and its name is the text."""

from __future__ import annotations

from sandbox_kernel.plugins.frameworks import as_text, pictures
from sandbox_kernel.sdk.execution import Execution
from sandbox_kernel.sdk.result import Result

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


def test_what_shows_pictures_is_its_text_and_each_picture() -> None:
    page = f'<p><img src="data:image/png;base64,{PNG}"></p>'
    shown = Result({"text/plain": "![p](p.png) ![p](p.png)", "text/html": page * 2})
    figure = Result({"text/plain": "<Figure>", "image/png": PNG})
    execution = Execution(results=[shown, figure])
    assert pictures(execution) == [("image/png", PNG)] * 3
    assert as_text(execution) == "![p](p.png) ![p](p.png)\n[image 1]\n[image 2]\n[image 3]"
