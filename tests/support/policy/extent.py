"""Documents that come to more than they look like, and honest ones that are as large as they look."""

from __future__ import annotations

import random


def _nested(opened: str, closed: str, depth: int, times: int) -> str:
    return (opened * depth + "x" + closed * depth) * times


OVER = {
    "columns": "<table>" + "<col span=1000>" * 25_000 + "<tr><td>a</td></tr></table>",
    "groups of columns": "<table>" + "<colgroup span=1000></colgroup>" * 25_000 + "<tr><td>a</td></tr></table>",
    "cells over columns": "<table><tr>" + "<td colspan=1000>a</td>" * 25_000 + "</tr></table>",
    "cells over columns, in many rows": "<table>"
    + "".join(f"<tr><td colspan={n % 999 + 1}>a</td><td colspan={999 - n % 999}>b</td></tr>" for n in range(15_000))
    + "</table>",
    "cells over both": "<table>" + "<tr><td colspan=100 rowspan=100>a</td></tr>" * 1_000 + "</table>",
    "a wide row and a long column": "<table style='border-collapse:collapse;border:1px solid'><tr>"
    + "<td>a</td>" * 24_000
    + "</tr>"
    + "<tr><td style='border:1px solid'>b</td></tr>" * 12_000
    + "</table>",
    "rows that lie in others' columns": "<table>"
    + "<tr><td rowspan=49>a</td></tr>" * 2_000
    + "<tr></tr>" * 40_000
    + "</table>",
    "inline blocks in each other": _nested("<span style='display:inline-block'>", "</span>", 400, 24),
    "ruby in ruby": _nested("<ruby>a<rt>", "</rt></ruby>", 50, 90),
    "players": "<video controls></video>" * 10_000,
    "Thai in a narrow column": "<p style='width:5px'>" + "\u0e01" * 330_000,
    "letters of two scripts in turn": "<p>" + "a\u4e00" * 200_000,
    "scripts in turn": "<p>" + "a\u0e01\uac05\u6f22\u1f00\u0416\u263a" * 40_000,
}
"""Each of them keeps a browser busy for many seconds, and is small."""


def frame(rows: int, columns: int) -> str:
    """Return a data frame as pandas writes it."""
    chance = random.Random(1)
    head = "".join(f"      <th>{column}</th>\n" for column in range(columns))
    lines = [
        f"    <tr>\n      <th>{row}</th>\n"
        + "".join(f"      <td>{chance.random():.6f}</td>\n" for _ in range(columns))
        + "    </tr>\n"
        for row in range(rows)
    ]
    return (
        "<div>\n<style scoped>\n    .dataframe tbody tr th:only-of-type {\n        vertical-align: middle;\n    }\n"
        "\n    .dataframe thead th {\n        text-align: right;\n    }\n</style>\n"
        '<table border="1" class="dataframe">\n  <thead>\n    <tr style="text-align: right;">\n      <th></th>\n'
        f"{head}    </tr>\n  </thead>\n  <tbody>\n{''.join(lines)}  </tbody>\n</table>\n"
        f"<p>{rows} rows x {columns} columns</p>\n</div>"
    )
