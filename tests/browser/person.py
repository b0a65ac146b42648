"""What a person does in JupyterLab, as steps with names: real clicks and keys, and waits for what they bring about.

Knows JupyterLab's page, and nothing of kernels. Each step leaves a screenshot in a folder.
"""

from __future__ import annotations

import re
from pathlib import Path

from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    StaleElementReferenceException,
)
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.browser.lab import NOTEBOOK, Lab, eventually

CELL = ".jp-Notebook .jp-CodeCell"
TOOLBAR = ".jp-NotebookPanel-toolbar"
FILES = "#filebrowser .jp-DirListing"
VARIABLES = ".jp-DebuggerVariables"

NOT_YET = (ElementClickInterceptedException, ElementNotInteractableException, StaleElementReferenceException)
"""What the page says of things that it is still drawing."""


class Person:
    """Somebody in front of one JupyterLab."""

    def __init__(self, lab: Lab, pictures: Path) -> None:
        self.lab, self.browser, self.pictures = lab, lab.browser, pictures
        self._taken = 0
        pictures.mkdir(parents=True, exist_ok=True)

    # --- looking ---

    def all(self, selector: str, text: str = "") -> list[WebElement]:
        """Return what is on the screen now and has a text that matches a pattern."""
        found = self.browser.find_elements(By.CSS_SELECTOR, selector)
        return [one for one in found if one.is_displayed() and re.search(text, one.text)]

    def see(self, selector: str, text: str = "") -> WebElement:
        """Wait until something is on the screen whose text matches a pattern, and return it."""
        found: list[WebElement] = []

        def look() -> bool:
            try:
                found[:] = self.all(selector, text)
            except NOT_YET:
                return False
            return bool(found)

        eventually(look, f"{selector} that says {text!r}")
        return found[0]

    def picture(self, name: str) -> None:
        self._taken += 1
        self.browser.save_screenshot(str(self.pictures / f"{self._taken:02} {name}.png"))

    # --- acting ---

    def click(self, selector: str, text: str = "", place: int = 0) -> None:
        """Click what is there, the first of its kind or another, as soon as it is at rest and nothing lies over it."""

        def attempt() -> bool:
            try:
                self.all(selector, text)[place].click()
            except (*NOT_YET, IndexError):
                return False
            return True

        eventually(attempt, f"a click on {selector} {text!r}")

    def command(self, name: str) -> None:
        """Click the button of a command."""
        self.click(f"jp-button[data-command='{name}']")

    def keys(self, *keys: str) -> None:
        ActionChains(self.browser).send_keys(*keys).perform()

    def chord(self, *keys: str) -> None:
        """Press keys together."""
        actions = ActionChains(self.browser)
        for key in keys[:-1]:
            actions.key_down(key)
        actions.send_keys(keys[-1])
        for key in keys[:-1]:
            actions.key_up(key)
        actions.perform()

    def menu(self, *path: str) -> None:
        """Choose an entry of the menu."""
        self.click(".lm-MenuBar-itemLabel", f"^{path[0]}$")
        for label in path[1:]:
            self.click(".lm-Menu-itemLabel", f"^{label}$")

    def menu_of(self, thing: WebElement, label: str) -> None:
        """Choose an entry of the menu that the right button opens over something."""
        ActionChains(self.browser).context_click(thing).perform()
        self.click(".lm-Menu-itemLabel", f"^{label}$")

    # --- the file browser ---

    def open_in_files(self, name: str) -> None:
        """Double-click a name in the file browser."""
        ActionChains(self.browser).double_click(self.see(f"{FILES}-item", f"^{re.escape(name)}\\b")).perform()

    def go_home_in_files(self) -> None:
        self.click("#filebrowser .jp-BreadCrumbs-home")

    def drag_into_files(self, path: Path) -> None:
        """Drag a file from outside of the browser into the folder that the file browser shows, and drop it there."""
        place = self.see(f"{FILES}-content").rect
        x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] - 20
        data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            event = {"type": kind, "x": x, "y": y, "data": data}
            self.browser.execute_cdp_cmd("Input.dispatchDragEvent", event)

    # --- the notebook ---

    def write(self, code: str) -> int:
        """Put code into the last cell, which is empty after every run; return its place."""
        self.click(f"{CELL} .jp-InputArea-editor .cm-content", place=-1)
        self.browser.execute_cdp_cmd("Input.insertText", {"text": code})
        return len(self.lab.cells()) - 1

    def start(self, code: str) -> int:
        """Write a cell and press Shift-Enter; return its place."""
        place = self.write(code)
        self.chord(Keys.SHIFT, Keys.ENTER)
        return place

    def run(self, code: str) -> int:
        """Write a cell, run it and wait for its end; return its place."""
        place = self.start(code)
        self.ended(place)
        return place

    def ended(self, place: int) -> None:
        prompt = f"return {NOTEBOOK}.content.widgets[{place}].prompt"
        eventually(lambda: re.fullmatch(r"\d+", self.lab.js(prompt) or ""), f"cell {place} has ended")

    def output(self, place: int, text: str = "") -> str:
        """Return what a cell shows, once that matches a pattern."""
        eventually(lambda: re.search(text, self.lab.output(place).text), f"cell {place} says {text!r}")
        return self.lab.output(place).text

    def status(self) -> str:
        """Return what the indicator in the notebook's toolbar says of the kernel."""
        shown = self.see(f"{TOOLBAR} .jp-Notebook-ExecutionIndicator")
        return str(shown.get_attribute("data-status"))

    def await_status(self, status: str) -> None:
        eventually(lambda: self.status() == status, f"the kernel is {status}")

    def wipe(self) -> None:
        """Empty the last cell."""
        self.write("")
        self.chord(Keys.CONTROL, "a")
        self.keys(Keys.DELETE)

    def set_breakpoint(self, cell: int, line: int) -> None:
        """Click beside a line of a cell; lines count from 1."""
        gutter = f"{CELL} .cm-breakpoint-gutter .cm-gutterElement"
        margin = self.browser.find_elements(By.CSS_SELECTOR, CELL)[cell]
        eventually(lambda: len(margin.find_elements(By.CSS_SELECTOR, gutter)) > line, "a margin for breakpoints")
        margin.find_elements(By.CSS_SELECTOR, gutter)[line].click()
        self.see(".jp-DebuggerBreakpoint", str(line))
