"""What a person does in JupyterLab, from the launcher to the shutdown, with the real kernel on the other side.

Each step leaves a screenshot, for a person to see, in the folder that SANDBOX_KERNEL_SCREENSHOTS names, else in
pytest's temporary folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browser.lab import eventually, install_all, running_lab
from tests.browser.person import CELL, FILES, TOOLBAR, VARIABLES, Person
from tests.support.kernels import arguments_of, containers_of

KERNELS = {
    "sandbox-python": ("--uploads", "uploads", "--downloads", "downloads", "--cell-timeout", "15"),
    "sandbox-8gb": ("--display-name", "Python 3 (sandbox, 8 GB)", "--memory", "8G"),
}
SALES = "month,region,amount\n" + "".join(
    f"2024-{month:02},{region},{100 * month + extra}\n"
    for month in range(1, 13)
    for region, extra in (("north", 0), ("south", 40), ("west", 80))
)
NORTH = sum(100 * month for month in range(1, 13))


@pytest.fixture
def person(tmp_path: Path, image: str) -> Iterator[Person]:
    with running_lab(tmp_path, install_all(tmp_path / "prefix", image, KERNELS), wall=True) as lab:
        for name in ("uploads", "downloads"):
            (lab.folder / name).mkdir()
        lab.browser.get(f"{lab.url}lab?reset&token={lab.token}")
        somebody = Person(lab, Path(os.environ.get("SANDBOX_KERNEL_SCREENSHOTS") or tmp_path / "screenshots"))
        yield somebody
        somebody.picture("end")  # where a test failed, if it did


@pytest.mark.long
def test_a_person_works_in_jupyterlab_from_the_launcher_to_the_shutdown(person: Person, tmp_path: Path) -> None:
    pick_the_kernel(person)
    bring_a_file(person, tmp_path)
    look_at_the_data(person)
    take_files_away(person)
    move_a_slider(person)
    complete_and_look_up(person)
    answer_a_question(person)
    interrupt(person)
    run_into_the_time_limit(person)
    debug(person)
    look_at_variables(person)
    restart(person)
    shut_down(person)


def pick_the_kernel(person: Person) -> None:
    card = ".jp-LauncherCard[data-category='Notebook']"
    person.see(card, r"sandbox, 8\s+GB")
    logo = person.see(card, r"\(sandbox\)$").find_element(By.CSS_SELECTOR, "img")
    assert "/kernelspecs/sandbox-python/logo" in str(logo.get_attribute("src"))
    eventually(lambda: logo.get_property("naturalWidth"), "the logo is a picture")
    person.picture("launcher")
    person.click(card, r"\(sandbox\)$")
    person.see(f"{TOOLBAR} .jp-KernelName", r"^Python 3 \(sandbox\)$")
    person.await_status("idle")


def bring_a_file(person: Person, folder: Path) -> None:
    (folder / "sales.csv").write_text(SALES)
    person.open_in_files("uploads")
    person.see(".jp-BreadCrumbs", "uploads")
    person.drag_into_files(folder / "sales.csv")
    person.see(f"{FILES}-item", r"sales\.csv")
    person.picture("file dropped")
    assert (person.lab.folder / "uploads/sales.csv").read_text() == SALES


def look_at_the_data(person: Person) -> None:
    cell = person.run("import pandas as pd\nsales = pd.read_csv('sales.csv')\nsales.head()")
    assert person.lab.output(cell).find_element(By.CSS_SELECTOR, "table").text.split()[:3] == [
        *SALES.split()[0].split(",")
    ]
    person.picture("table")
    cell = person.run("sales.groupby('month').amount.sum().plot.bar(title='Sales', figsize=(6, 3));")
    plot = person.lab.output(cell).find_element(By.CSS_SELECTOR, "img")
    eventually(lambda: plot.get_property("naturalWidth") > 300, "the plot is a picture")  # type: ignore[operator]
    person.picture("plot")


def take_files_away(person: Person) -> None:
    person.run("sales.groupby('region').amount.sum().to_csv('by_region.csv')")
    person.go_home_in_files()
    person.open_in_files("downloads")
    person.see(f"{FILES}-item", r"by_region\.csv")
    person.picture("file made by a cell")
    assert f"north,{NORTH}\n" in (person.lab.folder / "downloads/by_region.csv").read_text()


def move_a_slider(person: Person) -> None:
    cell = person.run(
        "from ipywidgets import interact\n@interact(n=(1, 12))\ndef best(n=3):\n    print('first', n, 'of', len(sales))"
    )
    person.output(cell, "first 3 of 36")
    handle = person.lab.output(cell).find_element(By.CSS_SELECTOR, ".noUi-handle")
    handle.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    person.output(cell, "first 5 of 36")
    person.picture("slider moved")


def complete_and_look_up(person: Person) -> None:
    person.write("sales.sort_")
    person.keys(Keys.TAB)
    person.see(".jp-Completer", r"sort_index[^_]*sort_values")
    person.picture("completion")
    person.keys(Keys.ARROW_DOWN, Keys.ENTER)
    eventually(lambda: person.lab.cells()[-1] == "sales.sort_values", "the chosen name is in the cell")
    person.keys("(")
    person.chord(Keys.SHIFT, Keys.TAB)
    person.see(".jp-Tooltip", r"Signature:\s+sales\.sort_values\(\s+by: ")
    person.picture("tooltip")
    person.keys(Keys.ESCAPE)
    person.wipe()


def answer_a_question(person: Person) -> None:
    cell = person.start("region = input('Which region? ')\nprint(region, sales[sales.region == region].amount.sum())")
    person.see(".jp-Stdin-prompt", "Which region")
    person.picture("question")
    person.keys("north", Keys.ENTER)
    person.output(cell, f"Which region.*north\nnorth {NORTH}")
    person.picture("answer")


def interrupt(person: Person) -> None:
    cell = person.start("rounds = 0\nwhile True:\n    rounds += 1")
    person.await_status("busy")
    person.see("#jp-main-statusbar", r"\(sandbox\) \| Busy")
    person.picture("busy")
    person.command("notebook:interrupt-kernel")
    assert "CellTimeout" not in person.output(cell, r"KeyboardInterrupt:\s*$")
    person.await_status("idle")
    person.picture("interrupted")


def run_into_the_time_limit(person: Person) -> None:
    cell = person.run("while True:\n    rounds += 1")
    said = person.output(cell, "CellTimeout")
    assert said.count("CellTimeout") == said.count("time limit") == 1
    assert "Kept: variables and files." in said
    person.picture("time limit")
    person.output(person.run("print(len(sales), rounds > 0)"), "36 True")


def debug(person: Person) -> None:
    cell = person.write(
        "def grow(amount, rate):\n    more = amount * rate\n    total = amount + more\n    return total\n\n"
        "print('grown to', grow(200, 0.5))"
    )
    person.click(f"{TOOLBAR} .jp-DebuggerBugButton")
    person.set_breakpoint(cell, line=2)
    person.click(f"{CELL} .cm-line", "grown to")
    person.chord(Keys.SHIFT, Keys.ENTER)
    person.see(".jp-DebuggerCallstack", r"grow\s+Cell \[\*\]:2\s+<module>\s+Cell \[\*\]:6")
    person.see(VARIABLES, r"^amount\s+200\s+rate\s+0\.5$")
    person.picture("breakpoint")
    person.command("debugger:next")
    person.see(".jp-DebuggerCallstack", r"grow\s+Cell \[\*\]:3")
    person.see(VARIABLES, r"amount\s+200\s+more\s+100(\.0)?\s+rate")
    person.picture("stepped")
    person.command("debugger:continue")
    person.output(cell, "grown to 300")
    person.await_status("idle")


def look_at_variables(person: Person) -> None:
    person.menu_of(person.see(f"{VARIABLES} .jp-TreeItem", "^sales"), "Render Variable")
    person.see(".jp-VariableRendererPanel", "month region amount\n0 2024-01 north")
    person.picture("variable")
    person.click(".lm-TabBar-tab", r"Untitled\.ipynb")
    person.click(f"{TOOLBAR} .jp-DebuggerBugButton")


def restart(person: Person) -> None:
    person.command("notebook:restart-kernel")
    person.see(".jp-Dialog", "Restart")
    person.picture("restart")
    person.click(".jp-Dialog button.jp-mod-accept")
    cell = person.run("import os\nprint(sorted(os.listdir()), 'sales' in globals())")
    person.output(cell, r"^\['by_region\.csv', 'sales\.csv'\] False$")
    person.picture("restarted")


def shut_down(person: Person) -> None:
    def kernels() -> list[psutil.Process]:
        children = psutil.Process(person.lab.pid).children(recursive=True)
        return [child for child in children if "sandbox_kernel" in arguments_of(child)]

    (kernel,) = kernels()
    assert len(containers_of(kernel.pid)) == 1
    person.menu("Kernel", "Shut Down Kernel")
    person.see(f"{TOOLBAR} .jp-KernelName", "^No Kernel$")
    eventually(lambda: not containers_of(kernel.pid) and not kernels(), "kernel and container are gone")
    person.picture("shut down")
