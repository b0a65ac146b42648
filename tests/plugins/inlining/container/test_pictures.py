"""Pictures of scratch that HTML and Markdown name are in the output; whatever else does not come is said."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest

from sandbox_kernel import Execution, Result, Sandbox
from sandbox_kernel.policy import frame

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect width="9" height="9"/></svg>'
ADDRESS = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
MADE = """
import os
from IPython.display import HTML, FileLink, Image, Markdown, display
os.mkfifo('fifo.png'); os.symlink('/etc/passwd', 'link.png'); os.symlink('/tmp/out.png', 'out.png')
open('/tmp/out.png', 'wb').write(open('plot.png', 'rb').read())
open('large.png', 'wb').write(open('plot.png', 'rb').read() + bytes(9 << 20))
open('text.png', 'w').write('none')
for n in range(60): open(f'{n}.png', 'wb').write(open('plot.png', 'rb').read())
None"""


@pytest.fixture(scope="module")
def sandbox(image: str) -> Iterator[Sandbox]:
    with Sandbox(image=image, memory="512M") as sandbox:
        sandbox.files.write("plot.png", PNG)
        sandbox.files.write("a folder/my plot.svg", SVG)
        sandbox.files.write("table.csv", b"a\n1\n")
        assert sandbox.run_code(MADE).ok
        yield sandbox


def shown(sandbox: Sandbox, code: str) -> str:
    execution = sandbox.run_code(code)
    assert execution.ok, execution.error
    (result,) = execution.results
    return result.html or result.markdown or result.text or ""


@pytest.mark.parametrize(
    "code",
    [
        "HTML('<img src=\"plot.png\">')",
        "HTML('<p>x<IMG width=3 SRC = plot.png>')",
        "HTML(\"<img src='/mnt/data/plot.png?v=1'>\")",
        "Image(url='plot.png')",
        "Markdown('# A title\\n\\n![what it is](plot.png)')",
        "Markdown('![](<plot.png> \"title\")')",
        "Markdown('words <img src=\"./plot.png\"/>')",
        "display({'text/html': '<img src=plot.png>', 'text/plain': 'x'}, raw=True)",
    ],
)
def test_a_picture_of_scratch_is_in_the_output(sandbox: Sandbox, code: str) -> None:
    page = shown(sandbox, code)
    assert f'src="{ADDRESS}"' in page
    assert "sandbox_kernel" not in page


def picture(result: Result) -> bool:
    return result.pictures == [("image/png", base64.b64encode(PNG).decode())]


@pytest.mark.parametrize(
    "source",
    [
        "# report\n\n![p](plot.png)",
        '<img src="plot.png"> words',
        "![p][1] and *more*\n\n[1]: plot.png",
        "![](<plot.png>)",
    ],
)
def test_markdown_is_its_source_as_text_and_its_picture_a_picture(sandbox: Sandbox, source: str) -> None:
    """A model reads the name, and sees the picture: no base64 is text."""
    execution = sandbox.run_code(f"Markdown({source!r})")
    (result,) = execution.results
    assert execution.text == result.text == source
    assert picture(result)
    assert result.png == base64.b64encode(PNG).decode()
    assert "png" in result.formats()


def test_each_picture_of_markup_is_one_and_what_holds_itself_gets_a_name_in_text(sandbox: Sandbox) -> None:
    two = sandbox.run_code("Markdown('![a](plot.png) ![b](plot.png) ![c](a%20folder/my%20plot.svg)')").results[0]
    assert [kind for kind, _ in two.pictures] == ["image/png"] * 2
    assert picture(sandbox.run_code("HTML('<p>x</p><img src=plot.png>')").results[0])
    held = sandbox.run_code(f"Markdown('# x ![a]({ADDRESS}) ![b]({ADDRESS})')").results[0]
    assert held.text == "# x ![a](picture-1.png) ![b](picture-2.png)"
    assert len(held.pictures) == 2
    framed = sandbox.run_code("HTML('<script>1</script><img src=plot.png>')").results[0]
    assert framed.html is not None
    assert "<iframe" in framed.html
    assert not framed.pictures  # it is part of a program
    assert not sandbox.run_code("Markdown('plain words')").results[0].pictures


def page_of(execution: Execution) -> str:
    """Return what is in the inner one of the frames that an execution shows."""
    (result,) = execution.results
    assert result.html is not None
    body = frame.unwrapped(result.html)
    assert body is not None, result.html[:500]
    return body


def test_a_page_of_the_cell_s_own_is_shown_in_a_frame_with_what_it_names(sandbox: Sandbox) -> None:
    sandbox.files.write("site/pic.png", PNG)
    sandbox.files.write("site/own.js", "document.title = 'own'")
    sandbox.files.write("site/own.css", "h1 { color: red }")
    sandbox.files.write(
        "site/page.html",
        "<!DOCTYPE html><link rel=stylesheet href=own.css><h1>made here</h1><img src='pic.png'>"
        '<script src=own.js></script><p>"quotes" &amp; more</p>',
    )
    for code in ("IFrame('site/page.html', 300, 100)", "IFrame('/mnt/data/site/page.html', 300, 100, a=1, b=2)"):
        body = page_of(sandbox.run_code(f"from IPython.display import IFrame\n{code}"))
        assert "<h1>made here</h1>" in body
        assert f"<img src='{ADDRESS}'>" in body
        assert "document.title = 'own'" in body
        assert "<style>h1 { color: red }</style>" in body
        assert '"quotes" &amp; more' in body


@pytest.mark.parametrize(
    ("name", "shown"), [("plot.png", f'<img src="{ADDRESS}">'), ("table.csv", "<pre>a\n1\n</pre>")]
)
def test_a_frame_may_name_a_picture_or_a_text(sandbox: Sandbox, name: str, shown: str) -> None:
    assert shown in page_of(sandbox.run_code(f"HTML('<iframe width=200 src={name}></iframe>')"))


@pytest.mark.parametrize(
    "name", ["none.html", "../../etc/passwd", "link.png", "fifo.png", "//192.0.2.1/x", "large.png"]
)
def test_a_frame_holds_nothing_but_files_of_scratch(sandbox: Sandbox, name: str) -> None:
    page = shown(sandbox, f"HTML('<iframe src={name}></iframe>')")
    assert "srcdoc" not in page
    assert "removed &lt;iframe&gt;" in page


def test_an_svg_is_drawn_anew_and_a_name_may_have_spaces(sandbox: Sandbox) -> None:
    for code in ("HTML('<img src=\"a%20folder/my plot.svg\">')", "Markdown('![](a%20folder/my%20plot.svg)')"):
        page = shown(sandbox, code)
        assert 'src="data:image/svg+xml;base64,' in page
        assert "sandbox_kernel" not in page


def test_a_large_picture_in_markdown_stays_a_picture(sandbox: Sandbox) -> None:
    sandbox.run_code("open('noise.png', 'wb').write(open('plot.png', 'rb').read() + os.urandom(300_000))")
    page = shown(sandbox, "Markdown('# x\\n\\n![](noise.png) and ![](plot.png) *more*')")
    assert page.count("data:image/png;base64,") == 2
    assert "<em>more</em>" in page
    assert len(page) > 400_000


@pytest.mark.parametrize(
    "name", ["fifo.png", "link.png", "out.png", "large.png", "text.png", "none.png", "../../etc/passwd", "."]
)
def test_what_is_no_picture_of_scratch_is_not_there_and_that_is_said(sandbox: Sandbox, name: str) -> None:
    page = shown(sandbox, f"HTML('<img src=\"{name}\">')")
    assert "data:" not in page
    assert f"removed a picture: {name} is not in the sandbox" in page


def test_so_many_pictures_and_no_more(sandbox: Sandbox) -> None:
    page = shown(sandbox, "HTML(''.join(f'<img src={n}.png>' for n in range(60)))")
    assert page.count("data:image/png") == 50
    assert "removed a picture: 50.png" in page


def test_links_to_files_and_addresses_without_a_scheme_are_said(sandbox: Sandbox) -> None:
    page = shown(sandbox, "FileLink('table.csv')")
    assert "removed a link to table.csv: a page cannot open files of the sandbox" in page
    assert "removed the source of &lt;img&gt;: outputs load nothing from a network" in shown(
        sandbox, "HTML('<img src=//evil.test/x.png>')"
    )
    assert "removed the source of &lt;audio&gt;: a.mp3 is in the sandbox, where a page loads nothing" in shown(
        sandbox, "HTML('<audio src=a.mp3 controls>')"
    )
    assert "sandbox_kernel" not in shown(sandbox, "HTML('<a href=#part>part</a>')")


def test_control_without_the_kernels_own_side_the_picture_stays_away(sandbox: Sandbox) -> None:
    """It is the kernel that puts pictures in; the host reads no file for it."""
    code = "f = get_ipython().display_formatter; type(f).format(f, HTML('<img src=plot.png>'))[0]['text/html']"
    assert sandbox.run_code(code).text == "'<img src=plot.png>'"
