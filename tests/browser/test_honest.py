"""Honest outputs look and work in a real JupyterLab as they do with a stock kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from .lab import Lab, eventually

CELLS = {
    "pandas": """
import pandas as pd
pd.DataFrame({"name": ["ant", "bee", "cat"], "legs": [6, 6, 4]})
""",
    "styler": """
frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [3.0, 2.0, 1.0]})
frame.style.background_gradient(cmap="viridis").format(precision=1)
""",
    "matplotlib": """
import matplotlib.pyplot as plt
plt.plot([1, 4, 9, 16]); plt.title("squares"); plt.show()
""",
    "plotly": """
import plotly.express as px
px.scatter(x=[1, 2, 3], y=[3, 1, 2], title="plotly").show()
""",
    "altair": """
import altair as alt
alt.Chart(pd.DataFrame({"x": ["a", "b", "c"], "y": [3, 1, 2]})).mark_bar().encode(x="x", y="y").properties(width=300)
""",
    "bokeh": """
from bokeh.plotting import figure, show
from bokeh.io import output_notebook
output_notebook()
plot = figure(width=400, height=300, title="bokeh")
plot.line([1, 2, 3], [3, 1, 2], line_width=3)
show(plot)
""",
    "slider": """
from ipywidgets import interact
def square(n=3): print("the square is", n * n)
interact(square, n=(0, 10));
""",
}


def test_x(lab: Lab, tmp_path: Path) -> None:
    lab.open("sandbox-python", *CELLS.values())
    lab.run_all()
    import time
    time.sleep(8)
    for n, name in enumerate(CELLS):
        out = lab.output(n)
        print(name, len(out.get_attribute("outerHTML")), out.get_attribute("innerText")[:300])
        lab.js("arguments[0].scrollIntoView()", out)
        out.screenshot(str(tmp_path / f"{name}.png"))
    lab.browser.save_screenshot(str(tmp_path / "page.png"))
    print(lab.browser.get_log("browser"))
