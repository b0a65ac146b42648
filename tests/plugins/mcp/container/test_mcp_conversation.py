"""A conversation of 30 tool calls about the demo's data, as a model has it: state stays, unless a message says not."""

from __future__ import annotations

import asyncio
import base64
import csv
import gzip
from collections import defaultdict
from typing import Any

import pytest
from mcp import Client
from mcp_types import CallToolResult

from tests.support import ROOT
from tests.support.mcp_hosts import images_of, links_of, over_stdio, text_of
from tests.support.patience import until

DATA = ROOT / "notebooks" / "data"
PNG = b"\x89PNG\r\n\x1a\n"
ROWS = 54_376
"""Of flights.csv.gz, as its README says."""


class Conversation:
    """Counts the calls, and knows whether an answer said that something was lost."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.calls = 0

    async def call(self, name: str, *, wrong: bool = False, **arguments: Any) -> CallToolResult:
        self.calls += 1
        answer = await self.client.call_tool(name, arguments)
        assert answer.is_error is wrong, text_of(answer)
        return answer

    async def run(self, *lines: str, fails: str | None = None, **arguments: Any) -> str:
        """Run a cell; return its text, which is an error exactly if one is expected."""
        text = text_of(await self.call("run_code", code="\n".join(lines), **arguments))
        assert ("Error: " in text) is (fails is not None), text
        assert fails is None or f"Error: {fails}" in text
        return text


def mean_delays() -> dict[str, float]:
    """Compute with the standard library what the conversation computes with pandas."""
    airlines = (DATA / "airlines.csv").read_text(encoding="utf-8").splitlines()
    names = {row["carrier"]: row["name"] for row in csv.DictReader(airlines)}
    delays = defaultdict(list)
    with gzip.open(DATA / "flights.csv.gz", "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["dep_delay"] not in {"NA", ""}:
                delays[names[row["carrier"]]].append(float(row["dep_delay"]))
    return {name: sum(found) / len(found) for name, found in delays.items()}


@pytest.mark.long
async def test_thirty_calls_on_the_demo_s_data() -> None:
    expected = mean_delays()
    async with over_stdio("--memory", "1G", "--cell-timeout", "60") as client:
        talk = Conversation(client)

        # 1-4: upload
        flights = base64.b64encode((DATA / "flights.csv.gz").read_bytes()).decode()
        assert "is new" in text_of(await talk.call("upload_file", path="flights.csv.gz", base64=flights))
        for name in ("weather.csv", "airlines.csv"):
            text = (DATA / name).read_text(encoding="utf-8")
            written = await talk.call("upload_file", path=f"data/{name}", text=text)
            assert written.structured_content["size"] == (DATA / name).stat().st_size
            assert "is new" not in text_of(written)
        listed = (await talk.call("list_files")).structured_content["files"]
        assert [file["path"] for file in listed] == ["data/airlines.csv", "data/weather.csv", "flights.csv.gz"]

        # 5-8: describe
        shape = await talk.run("import pandas as pd", "flights = pd.read_csv('flights.csv.gz')", "len(flights)")
        assert shape == str(ROWS)
        assert "dep_delay" in await talk.run("flights.describe().T")
        assert await talk.run("int(flights.tailnum.isna().sum())") == "727"
        assert "carrier" in await talk.run("names = pd.read_csv('data/airlines.csv')", "names.head()")

        # 9-12: clean, join and group
        left = int(await talk.run("flown = flights.dropna(subset=['dep_delay'])", "len(flown)"))
        assert 0 < left < ROWS
        wind = "weather = pd.read_csv('data/weather.csv')"
        assert float(await talk.run(wind, "float(weather.wind_speed.max())")) > 1000  # an error of the source
        await talk.run("weather = weather[weather.wind_speed < 200]")
        grouped = await talk.run(
            "by_carrier = flown.merge(names, on='carrier').groupby('name').dep_delay.mean().sort_values()",
            "print(by_carrier.to_csv())",
        )
        said = {row[0]: float(row[1]) for row in list(csv.reader(grouped.splitlines()))[1:] if len(row) == 2}
        assert said.keys() == expected.keys()
        assert all(abs(said[name] - value) < 1e-6 for name, value in expected.items())

        # 13-16: an error, and all that came before it is there; a plot, saved
        assert "KeyError" in await talk.run("flown['delay']", fails="KeyError")
        assert await talk.run("len(flown), len(by_carrier)") == f"({left}, {len(expected)})"
        plot = await talk.call(
            "run_code",
            code="import matplotlib.pyplot as plt\nby_carrier.plot.barh()\nplt.tight_layout()\n"
            "plt.savefig('delays.png')\nplt.show()",
        )
        (image,) = images_of(plot)
        assert image.startswith(PNG)
        await talk.run("by_carrier.to_csv('delays.csv')", "flown.to_parquet('flown.parquet')")

        # 17-18: download
        table = text_of(await talk.call("download_file", path="delays.csv"))
        assert {row[0] for row in list(csv.reader(table.splitlines()))[2:]} == set(expected)
        (file,) = images_of(await talk.call("download_file", path="delays.png"))
        assert file.startswith(PNG)

        # 19-20: a timeout takes nothing away, and says so
        late = await talk.run("while True:", "    pass", timeout=1, fails="CellTimeout")
        assert "Kept: variables and files" in late
        assert await talk.run("len(flown)") == str(left)

        # 21-24: no memory left takes the variables, and says so; the files are what they were
        large = await talk.run("block = bytearray(3 << 30)", "block[::4096] = b'x' * len(block[::4096])", fails="OutOf")
        assert "All variables and imports are gone; the files in /mnt/data are still there." in large
        assert "NameError" in await talk.run("len(flown)", fails="NameError")
        assert await talk.run("import pandas as pd", "flown = pd.read_parquet('flown.parquet')", "len(flown)") == str(
            left
        )
        assert len((await talk.call("list_files")).structured_content["files"]) == 6

        # 25-26: text that is too long for an answer, and a part of a binary file
        rows = await talk.call("run_code", code="print(flown.to_csv())")
        (uri,) = links_of(rows)
        (whole,) = (await client.read_resource(uri)).contents
        assert whole.text.count("\n") == left + 2  # type: ignore[union-attr]
        part = await talk.call("download_file", path="flown.parquet", length=4)
        assert text_of(part).endswith("\nPAR1")

        # 27-28: an interrupt from beside
        call = asyncio.create_task(
            talk.run("import time", "open('began', 'w').close()", "time.sleep(50)", fails="KeyboardInterrupt")
        )

        async def runs() -> bool:
            return "began" in text_of(await client.call_tool("list_files"))

        await until(runs)
        await talk.call("interrupt")
        await call

        # 29-30: the variables outlive it; the end takes all
        assert await talk.run("len(flown)") == str(left)
        assert "has ended" in text_of(await talk.call("end_session"))
        assert talk.calls == 30

        after = await client.call_tool("run_code", {"code": "import os; os.listdir()"})
        assert "is new" in text_of(after)
        assert text_of(after).startswith("[]")
