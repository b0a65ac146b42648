"""Honest outputs look and work in a real JupyterLab as they do with a stock kernel.

Each test of looks leaves its screenshot in pytest's temporary folder, for a person to see.
"""

from __future__ import annotations

import base64
from pathlib import Path
from textwrap import dedent

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.browser.lab import Lab, eventually

CELLS = {
    "pandas": """
        import pandas as pd
        pd.DataFrame({"name": ["ant", "bee", "cat"], "legs": [6, 6, 4]})""",
    "styler": """
        frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [3.0, 2.0, 1.0]})
        frame.style.background_gradient(cmap="viridis").format(precision=1)""",
    "matplotlib": """
        import matplotlib.pyplot as plt
        plt.plot([1, 4, 9, 16]); plt.title("squares"); plt.show()""",
    "plotly": """
        import plotly.express as px
        px.scatter(x=[1, 2, 3], y=[3, 1, 2], title="plotly").show()""",
    "altair": """
        import altair as alt
        bars = pd.DataFrame({"x": ["a", "b", "c"], "y": [3, 1, 2]})
        alt.Chart(bars).mark_bar().encode(x="x", y="y").properties(width=300)""",
    "bokeh": """
        from bokeh.io import output_notebook
        from bokeh.plotting import figure, show
        output_notebook()
        plot = figure(width=400, height=300, title="bokeh")
        plot.line([1, 2, 3], [3, 1, 2], line_width=3)
        show(plot)""",
    "slider": """
        from ipywidgets import interact
        @interact(n=(0, 10))
        def square(n=3):
            print("the square is", n * n)""",
}
PLACE = {name: place for place, name in enumerate(CELLS)}

DRAWN = {
    "plotly": "return document.querySelectorAll('.scatterlayer .point').length",
    "altair": "return document.querySelectorAll('canvas, .mark-rect path').length",
    "bokeh": "return window.Bokeh?.documents?.[0]?.is_idle",
}
"""What holds inside of a frame once the library has drawn."""

MAX_HIDDEN = 10
"""CSS pixels. The height of a frame is guessed; what is below its edge is reached by scrolling or dragging the edge."""

COLOURS = """
    const [data, done] = arguments, image = new Image();
    image.onload = () => {
        const canvas = document.createElement('canvas');
        [canvas.width, canvas.height] = [image.width, image.height];
        const context = canvas.getContext('2d');
        context.drawImage(image, 0, 0);
        const found = {};
        for (const one of new Uint32Array(context.getImageData(0, 0, image.width, image.height).data.buffer))
            found[one] = (found[one] ?? 0) + 1;
        done(Object.values(found).filter(count => count >= 20).length);
    };
    image.src = 'data:image/png;base64,' + data;
"""


def colours(lab: Lab, element: WebElement, path: Path) -> int:
    """Take a picture of an element and return how many colours fill a fair part of it."""
    lab.js("arguments[0].scrollIntoView({block: 'center'})", element)
    picture = element.screenshot_as_png
    path.write_bytes(picture)
    count: int = lab.browser.execute_async_script(COLOURS, base64.b64encode(picture).decode())
    return count


@pytest.mark.parametrize(
    "server",
    [
        pytest.param("shared_lab", id="plain server"),
        pytest.param("walled_lab", id="with the second wall", marks=pytest.mark.long),
    ],
)
def test_honest_outputs_look_and_work_as_on_a_stock_kernel(
    server: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """One notebook with all of them: a page takes longer to load than they take to run."""
    lab: Lab = request.getfixturevalue(server)
    lab.open("sandbox-python", *map(dedent, CELLS.values()))
    lab.run_all()

    tables = {name: lab.output(PLACE[name]).find_element(By.CSS_SELECTOR, "table") for name in ("pandas", "styler")}
    assert tables["pandas"].text.split() == ["name", "legs", "0", "ant", "6", "1", "bee", "6", "2", "cat", "4"]
    assert "dataframe" in str(tables["pandas"].get_attribute("class"))
    corner = tables["styler"].find_element(By.CSS_SELECTOR, "td")
    assert corner.value_of_css_property("background-color") == "rgba(68, 1, 84, 1)"  # where viridis begins
    image = lab.output(PLACE["matplotlib"]).find_element(By.CSS_SELECTOR, "img")
    assert str(image.get_attribute("src")).startswith("data:image/png;base64,")

    for name, drawn in DRAWN.items():
        frames = lab.output(PLACE[name]).find_elements(By.CSS_SELECTOR, "iframe")
        assert [frame.get_attribute("sandbox") for frame in frames] == ["allow-scripts"], name
        lab.browser.switch_to.frame(frames[0])
        inner = lab.browser.find_element(By.CSS_SELECTOR, "iframe")
        assert inner.get_attribute("sandbox") == "allow-scripts"
        lab.browser.switch_to.frame(inner)
        eventually(lambda drawn=drawn: lab.js(drawn), f"{name} has drawn")  # type: ignore[misc]
        assert lab.js("return window.origin") == "null"
        assert hidden(lab) < MAX_HIDDEN, f"much of what {name} drew is below the edge of its frame"
        lab.browser.switch_to.default_content()

    slider = lab.output(PLACE["slider"])
    eventually(lambda: "the square is 9" in slider.text, "the slider's first result")
    handle = slider.find_element(By.CSS_SELECTOR, ".noUi-handle")
    for _ in range(4):
        handle.send_keys(Keys.ARROW_RIGHT)
    eventually(lambda: "the square is 49" in slider.text, "the slider has moved to 7 and its result is new")
    assert slider.find_element(By.CSS_SELECTOR, ".widget-readout").text == "7"

    shades = {name: colours(lab, lab.output(place), tmp_path / f"{name}.png") for name, place in PLACE.items()}
    assert min(shades.values()) >= 4, shades
    notes = [name for name, place in PLACE.items() if "sandbox_kernel:" in lab.output(place).text]
    assert notes == []


def hidden(lab: Lab) -> int:
    """Return how many pixels of a frame's document are below its lower edge."""
    pixels: int = lab.js("const page = document.scrollingElement; return page.scrollHeight - page.clientHeight")
    return pixels
