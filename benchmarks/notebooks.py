"""How large a notebook with ten figures is, beside a stock kernel: `python -m benchmarks.notebooks`.

Stock is what each library's own renderer for notebooks puts into an output, computed in the same sandbox.
"""

from __future__ import annotations

import json
import sys
import time
from queue import Empty
from typing import Any

from jupyter_client.manager import start_new_kernel

FIGURES = 10
SETUP = {
    "plotly": """
import json, plotly.express as px, plotly.io
def figure(n): return px.scatter(x=[1, 2, 3], y=[n, 1, 2], title="plotly")
def show(n): figure(n).show()
def stock(n): return plotly.io.renderers["plotly_mimetype"].to_mimebundle(figure(n).to_dict())
""",
    "altair": """
import json, altair as alt, pandas as pd
def figure(n):
    return alt.Chart(pd.DataFrame({"x": ["a", "b"], "y": [n, 1]})).mark_bar().encode(x="x", y="y")
def show(n): display(figure(n))
def stock(n):
    with alt.renderers.enable("default"): return figure(n)._repr_mimebundle_()
""",
    "bokeh": """
import json, bokeh.io, bokeh.embed, bokeh.plotting
def figure(n):
    plot = bokeh.plotting.figure(width=400, height=300, title="bokeh")
    plot.line([1, 2, 3], [n, 1, 2])
    return plot
def show(n): bokeh.io.show(figure(n))
def stock(n):
    from bokeh.embed.notebook import notebook_content
    script, div, _ = notebook_content(figure(n))
    return {"application/vnd.bokehjs_exec.v0+json": "", "text/html": div, "application/javascript": script}
""",
}


def outputs(client: Any, code: str, cell: str) -> list[dict[str, Any]]:
    """Run a cell of a notebook and return its outputs, as they stand in the file."""
    message = client.session.msg("execute_request", {"code": code, "silent": False}, metadata={"cellId": cell})
    client.shell_channel.send(message)
    found: list[dict[str, Any]] = []
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            heard = client.get_iopub_msg(timeout=5)
        except Empty:
            continue
        if heard["parent_header"].get("msg_id") != message["header"]["msg_id"]:
            continue
        if heard["msg_type"] == "error":
            raise SystemExit("\n".join(heard["content"]["traceback"]))
        if heard["msg_type"] in {"display_data", "execute_result", "stream"}:
            found.append(dict(heard["content"]))
        if heard["msg_type"] == "status" and heard["content"]["execution_state"] == "idle":
            return found
    raise SystemExit(f"not within two minutes: {code}")


def main(kernel: str = "sandbox-python") -> None:
    print(f"{'KB of outputs':<14}{'first':>8}{'next':>8}{'ten':>8}   stock: {'each':>6}{'ten':>8}")
    for library, setup in SETUP.items():
        manager, client = start_new_kernel(kernel_name=kernel)
        try:
            outputs(client, setup, "setup")
            sizes = [len(json.dumps(outputs(client, f"show({n})", f"cell {n}"))) for n in range(FIGURES)]
            told = outputs(client, "print(sum(len(json.dumps(stock(n))) for n in range(10)))", "stock")
            stock = int(told[0]["text"])
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
        numbers = [sizes[0], max(sizes[1:]), sum(sizes), stock // FIGURES, stock]
        first, later, ten, each, all_ten = (f"{number / 1000:.0f}" for number in numbers)
        print(f"{library:<14}{first:>8}{later:>8}{ten:>8}          {each:>6}{all_ten:>8}")


if __name__ == "__main__":
    main(*sys.argv[1:])
