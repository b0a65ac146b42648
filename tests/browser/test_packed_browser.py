"""Frames that share a library in a real browser: each draws, and none can be given another program by a neighbour."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from selenium.webdriver import Chrome

from sandbox_kernel.policy import frame
from sandbox_kernel.policy.frame_libraries import Packer
from tests.browser.lab import Lab, eventually
from tests.support.chromium import page
from tests.support.kernels import install

LIBRARY = "function draw(what){document.body.append(what+' ')} /* é much of it */\n" * 2000
PACKED = Packer().pack(LIBRARY)
assert PACKED is not None
NAME = PACKED.name.partition(":")[0]
WATCH = frame._WATCH  # noqa: SLF001
EVIL = "function draw(what){document.body.append('EVIL ')} //" + "x" * 1000
FORGED = PACKED.text.replace("A", "B") + "AAAAA"
WICKED = Packer().pack(f"{EVIL}\n" * 200)
assert WICKED is not None

EVENTS = """for(const what of['DOMContentLoaded','load'])
    (what=='load'?window:document).addEventListener(what,()=>draw(what))"""


def figure(name: str) -> str:
    return f"<p>{name}</p><script>{LIBRARY}</script><script>draw('drawn');{EVENTS}</script>"


LIAR = f"""<p>liar</p><script>
const name='{NAME}', codes=[{WICKED.text!r},{FORGED!r},'',{{}},null,7];
setInterval(()=>{{for(let i=0;i<top.length;i++)for(const code of codes)for(const one of [top[i],top[i][0]])
    try{{one.postMessage({{sandboxKernelOf:name,sandboxKernelCode:code}},'*')}}catch(e){{}} }},5);
addEventListener('message',e=>{{window.heard=(window.heard||0)+(e.data.sandboxKernelCode?.length=={len(PACKED.text)})}});
for(let i=0;i<top.length;i++)for(let n=0;n<50;n++)top[i].postMessage({{sandboxKernelWant:name}},'*');
for(let n=0;n<50;n++)parent.postMessage({{sandboxKernelWant:n.toString(16).padStart(64,'0')}},'*');
</script>"""
MISSED = "which this page does not have. Run this cell again"


def inside(browser: Chrome, number: int, script: str = "return document.body.innerText") -> str:
    """Ask in the program's frame of an output."""
    browser.switch_to.default_content()
    outer = browser.find_elements("css selector", "iframe")[number]
    browser.execute_script("arguments[0].scrollIntoView()", outer)
    browser.switch_to.frame(outer)
    browser.switch_to.frame(browser.find_element("css selector", "iframe"))
    return str(browser.execute_script(script))


def without(name: str) -> bool:
    return True


@pytest.mark.parametrize("host", ["127.0.0.1", "plain.test"], ids=["secure", "plain HTTP"])
def test_frames_share_a_library_and_a_neighbour_that_lies_is_not_believed(browser: Chrome, host: str) -> None:
    outputs = [frame.wrap(LIAR), frame.wrap(figure("a"), without), frame.wrap(LIAR)]
    outputs += [frame.wrap(figure("b")), frame.wrap(figure("c"), without)]
    with page("<!DOCTYPE html>" + "".join(outputs)) as port:
        browser.get(f"http://{host}:{port}/")
        for number in (1, 3, 4):
            eventually(lambda n=number: "load" in inside(browser, n), "it draws")  # type: ignore[misc]
            assert inside(browser, number).split() == [
                "abc"[number - 1 - (number > 1)],
                "drawn",
                "DOMContentLoaded",
                "load",
            ]
        # Whoever knows a library's name gets it: so often from the frame that has it, and once as its own.
        assert 0 < int(inside(browser, 0, "return window.heard")) <= 5


def test_figures_of_a_batch_have_their_library_once_and_each_draws_in_an_export(
    browser: Chrome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image: str
) -> None:
    """Nbclient names no cell. Two runs with one kernel are two notebooks, each of which stands alone."""
    install(tmp_path, "--image", image)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share/jupyter"))
    line, source = LIBRARY.partition("\n")[0] + "\n", figure("a").replace(LIBRARY, "LIBRARY")
    code = f"from IPython.display import HTML; HTML({source!r}.replace('LIBRARY', {line!r} * 2000))"
    cells = [nbformat.v4.new_code_cell(one) for one in ("x = 1", *[code] * 3)]
    document = nbformat.v4.new_notebook(cells=cells)
    manager, pages = KernelManager(kernel_name="sandbox-python"), []
    manager.start_kernel()
    try:
        for _ in range(2):
            client = NotebookClient(document, km=manager, timeout=120)
            client.execute()
            assert client.kc is not None
            client.kc.stop_channels()
            sizes = [len(cell.outputs[0].data["text/html"]) for cell in document.cells[1:]]
            assert sizes[1] == sizes[2] < sizes[0] - 0.9 * len(PACKED.text)
            pages.append(HTMLExporter().from_notebook_node(document)[0])
    finally:
        manager.shutdown_kernel(now=True)
    for body in pages:
        with page(body) as port:
            browser.get(f"http://127.0.0.1:{port}/")
            for number in range(3):
                eventually(lambda n=number: "load" in inside(browser, n), "it draws")  # type: ignore[misc]


def test_control_who_does_not_look_at_the_hash_runs_what_the_neighbour_says(browser: Chrome) -> None:
    assert WICKED is not None
    quote, believing = frame._quote, WATCH.replace("const honest = hash(code) == of;", "const honest = true;")  # noqa: SLF001
    assert believing != WATCH
    _, sizes = WICKED.name.split(":", 1)
    ours = frame.wrap(f'<script type="text/later" data-packed="{NAME}:{sizes}"></script><script>draw(1)</script>')
    digest = frame._hash(believing)  # noqa: SLF001
    control = ours.replace(quote(WATCH), quote(believing)).replace(frame.WATCH_HASH, digest)
    assert control != ours
    with page("<!DOCTYPE html>" + frame.wrap(LIAR) + control + ours) as port:
        browser.get(f"http://127.0.0.1:{port}/")
        eventually(lambda: "EVIL" in inside(browser, 1), "the neighbour's program")
        eventually(lambda: MISSED in inside(browser, 2), "what to do")
        assert "EVIL" not in inside(browser, 2)


@pytest.mark.long
def test_a_figure_whose_library_is_nowhere_says_what_to_do_and_draws_once_it_comes(browser: Chrome) -> None:
    with page("<!DOCTYPE html>" + frame.wrap(figure("a"), without)) as port:
        browser.get(f"http://127.0.0.1:{port}/")
        eventually(lambda: MISSED in inside(browser, 0), "what to do")
        browser.switch_to.default_content()
        browser.execute_script("document.body.insertAdjacentHTML('beforeend', arguments[0])", frame.wrap(figure("b")))
        eventually(lambda: "drawn" in inside(browser, 0), "it draws")
        assert MISSED not in inside(browser, 0)


def test_the_script_hashes_as_sha_256_does(browser: Chrome) -> None:
    code = re.search(r"const hash = .*?(?=const pass = )", WATCH, re.DOTALL)
    assert code is not None
    texts = ["x" * length for length in range(130)] + ["é" * 31, PACKED.text if PACKED else ""]
    browser.get("about:blank")
    hashed = browser.execute_script(f"{code[0]};return arguments[0].map(hash)", texts)
    assert hashed == [hashlib.sha256(text.encode()).hexdigest() for text in texts]


@pytest.mark.long
def test_cells_of_a_notebook_share_a_library_and_bring_it_when_they_are_run_again(
    walled_lab: Lab, tmp_path: Path
) -> None:
    """Behind the second wall, where no script runs but by the frame's own runner."""
    lab = walled_lab
    lab.open("sandbox-python", *(f"from IPython.display import HTML\nHTML({figure(name)!r})" for name in "abc"))
    lab.run_all()

    def sizes() -> list[int]:
        found: list[int] = lab.js(
            """return window.jupyterapp.shell.currentWidget.content.widgets
            .map(cell => JSON.stringify(cell.model.outputs.toJSON()).length)"""
        )
        return found

    first, *rest = sizes()
    assert max(rest) < first - len(PACKED.text if PACKED else "") + 100
    for number, name in enumerate("abc"):
        eventually(lambda n=number: "load" in inside(lab.browser, n), "it draws")  # type: ignore[misc]
        assert inside(lab.browser, number).split()[:2] == [name, "drawn"]
    # A cell that is out of sight may have no frame: our extension finds the library in the notebook.
    lab.browser.switch_to.default_content()
    lab.js(
        "document.querySelector('iframe').remove(); const one = document.querySelectorAll('iframe')[1];"
        "one.parentNode.append(one)"
    )
    eventually(lambda: "load" in inside(lab.browser, 1), "it draws again")
    lab.browser.switch_to.default_content()
    lab.js("window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1")
    lab.js("window.jupyterapp.commands.execute('notebook:run-cell')")
    eventually(lambda: sizes()[1] >= first - 100, "the cell that ran again has its own")
    # The control: where no cell of the notebook has it, nothing gives it.
    lab.js(
        """const {content} = window.jupyterapp.shell.currentWidget;
        for (const cell of [0, 1]) content.widgets[cell].model.outputs.clear();
        const one = [...document.querySelectorAll('iframe')].at(-1); one.parentNode.append(one)"""
    )
    eventually(lambda: MISSED in inside(lab.browser, 0), "what to do")
