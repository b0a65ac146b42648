"""The second wall in a real JupyterLab: what it stops by itself, and that JupyterLab goes on working behind it.

Honest outputs behind it are in test_honest.py, and a person's day in test_person.py.
"""

from __future__ import annotations

import base64

import pytest
from selenium.webdriver.common.by import By

from tests.browser.lab import Lab, eventually, settled
from tests.browser.test_hostile import RAN, Seen
from tests.support.chromium import listening
from tests.support.corpus import UNSUITED, attacks

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAYAAACNMs+9AAAAFUlEQVR42mP8z8BQz0AEYBxVSF+FABJADveWkH6oAAAAAElFTkSuQmCC"
PDF = b"""%PDF-1.4
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]>>endobj
trailer<</Root 1 0 R>>
"""
FILES = {
    "one.png": base64.b64decode(PNG),
    "two.md": b"# A title\n\nText, *slanted*, and $x^2$.\n",
    "three.pdf": PDF,
    "four.html": b"<h1>A page</h1>",
    "five.csv": b"a,b\n1,2\n",
    "six.json": b'{"a": 1}',
    "seven.svg": b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect width="9" height="9"/></svg>',
}
SHOWN = {
    "one.png": ("default", ".jp-ImageViewer img", "return arguments[0].naturalWidth === 10"),
    "two.md": ("Markdown Preview", ".jp-MarkdownViewer h1", "return arguments[0].textContent.startsWith('A title')"),
    "three.pdf": (
        "default",
        ".jp-PDFContainer iframe",
        "return arguments[0].contentDocument?.querySelector('object')?.data.startsWith('blob:')",
    ),
    "four.html": ("default", ".jp-HTMLViewer iframe", "return arguments[0].src.startsWith('blob:')"),
    "five.csv": ("default", ".jp-CSVViewer canvas", "return true"),
    "six.json": ("default", ".jp-RenderedJSON", "return true"),
    "seven.svg": ("default", ".jp-ImageViewer img", "return arguments[0].naturalWidth === 9"),
}
BY_ADDRESS = "display({'text/html': '<script src=\"/files/made.js\"></script>'}, raw=True); 'shown'"


def test_the_wall_alone_stops_what_acts_under_trusted(walled_lab: Lab) -> None:
    """The control is `test_hostile.py::test_the_same_outputs_fire_when_they_are_trusted`: 60 and more of them act.

    What is left needs a click on the output: links to commands of JupyterLab, which are no script.
    """
    with listening() as evil:
        chosen = [attack for attack in attacks(evil.tcp) if attack.name not in UNSUITED]
        seen = Seen(walled_lab, evil, "sandbox-trusted", chosen, used="a[href*=script]", wall=True)
    assert seen.ran == set()
    assert seen.asked == set()
    assert seen.terminals == []


def by_address(lab: Lab) -> bool:
    """Return whether a script runs that lies in the working folder, where cells may have put it."""
    (lab.folder / "made.js").write_text("window.pwned1 = 1")
    lab.open("sandbox-trusted", BY_ADDRESS)
    lab.run_all()
    settled(lambda: len(lab.js(RAN)))
    assert "'shown'" in lab.text(0)
    return bool(lab.js(RAN))


@pytest.mark.long
def test_control_without_the_wall_a_file_of_the_folder_becomes_a_script(spoiled_lab: Lab) -> None:
    assert by_address(spoiled_lab)


def test_jupyterlab_works_behind_the_wall_and_nothing_of_its_own_is_refused(walled_lab: Lab) -> None:
    """Files of each kind, an editor, a terminal; then the one thing that is to be refused."""
    lab = walled_lab
    for name, content in FILES.items():
        (lab.folder / name).write_bytes(content)
    lab.open("sandbox-python", "1")
    lab.run_all()
    for name, (factory, selector, good) in SHOWN.items():
        opened = (
            "return window.jupyterapp.commands.execute('docmanager:open', {path: arguments[0], factory: arguments[1]})"
        )
        lab.js(opened + ".then(() => 1)", name, factory)
        eventually(
            lambda selector=selector, good=good: any(  # type: ignore[misc]
                lab.js(good, one) for one in lab.browser.find_elements(By.CSS_SELECTOR, selector)
            ),
            name,
        )
    lab.js("window.jupyterapp.commands.execute('docmanager:open', {path: 'two.md', factory: 'Editor'})")
    eventually(lambda: lab.browser.find_elements(By.CSS_SELECTOR, ".jp-FileEditor .cm-content"), "an editor")
    lab.js("window.jupyterapp.commands.execute('terminal:create-new')")
    eventually(lambda: lab.browser.find_elements(By.CSS_SELECTOR, ".jp-Terminal .xterm-screen"), "a terminal")
    said = [one["message"] for one in lab.browser.get_log("browser")]
    # JupyterLab makes an object without an address first, which every policy of objects refuses, and fills it then.
    refused = [one for one in said if "Content Security Policy" in one and "plugin data from ''" not in one]
    assert refused == [], "\n".join(refused)
    assert not by_address(lab)
