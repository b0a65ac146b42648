"""Made the files that lie here, as a cell of the image `full`: where two programs know a format, not the reader.

`python -m tests.container.formats.make` runs it; the files are committed, as few machines have all of these programs.
"""

# mypy: ignore-errors

import email.message
import gzip
import json
import os
import sqlite3
import subprocess
from pathlib import Path

import fitz
import img2pdf
import msoffcrypto
import netCDF4
import numpy as np
import pandas as pd
import pillow_heif
import polars as pl
import pptx
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pyreadr
import pyreadstat
import scipy.io
import shapefile
import zstandard
from PIL import Image
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import SimpleDocTemplate, Table

os.chdir(Path.cwd() / "made")
AMOUNT, NAMES = [10, 20, 30], ["desk", "floor", "wall"]
frame = pd.DataFrame({"name": NAMES, "amount": AMOUNT})


def run(*command: str, **options: object) -> None:
    subprocess.run(command, check=True, capture_output=True, **options)


def office(kind: str, source: str) -> None:
    run("soffice", "--headless", "--convert-to", kind, source)


# --- tables
text = "name,amount\n" + "".join(f"{name},{amount}\n" for name, amount in zip(NAMES, AMOUNT, strict=True))
Path("t.csv").write_text(text)
Path("old.csv").write_bytes(
    "name,city\nMüller,Köln\nStraße,Düsseldorf\nGröße,Fürth\nÄrzte,Österreich\n".encode("cp1252")
)
Path("t.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
Path("t.csv.zst").write_bytes(zstandard.compress(text.encode()))
rows = [{"name": name, "amount": amount} for name, amount in zip(NAMES, AMOUNT, strict=True)]
Path("t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
Path("t.xml").write_text(
    "<t>"
    + "".join(f"<row><name>{n}</name><amount>{a}</amount></row>" for n, a in zip(NAMES, AMOUNT, strict=True))
    + "</t>"
)
Path("t.html").write_text(
    "<table><tr><th>name</th><th>amount</th></tr>"
    + "".join(f"<tr><td>{n}</td><td>{a}</td></tr>" for n, a in zip(NAMES, AMOUNT, strict=True))
    + "</table>"
)
Path("t.yaml").write_text("amount:\n- 10\n- 20\n- 30\n")
for kind in ("xlsx", "xls", "ods"):
    office(kind, "t.csv")
with Path("t.xlsx").open("rb") as plain, Path("locked.xlsx").open("wb") as locked:
    msoffcrypto.OfficeFile(plain).encrypt("lamp", locked)
table = pa.table({"name": NAMES, "amount": AMOUNT})
pa.parquet.write_table(table, "t.parquet")
pa.orc.write_table(table, "t.orc")
pl.DataFrame({"name": NAMES, "amount": AMOUNT}).write_ipc("t.feather")
pl.DataFrame({"name": NAMES, "amount": AMOUNT}).write_avro("t.avro")
with sqlite3.connect("t.sqlite") as base:
    frame.to_sql("t", base, index=False)
pyreadstat.write_dta(frame, "t.dta")
pyreadstat.write_sav(frame, "t.sav")
pyreadstat.write_xport(frame.rename(columns=str.upper), "t.xpt", file_format_version=5)
pyreadr.write_rds("t.rds", frame)
with netCDF4.Dataset("t.h5", "w") as store:
    store.createDimension("x", 3)
    store.createVariable("amount", "i4", ("x",))[:] = AMOUNT
with scipy.io.netcdf_file("t.nc", "w") as store:
    store.createDimension("x", 3)
    store.createVariable("amount", "i4", ("x",))[:] = AMOUNT
np.save("t.npy", np.array(AMOUNT))
scipy.io.savemat("t.mat", {"amount": np.array(AMOUNT)})
with shapefile.Writer(dbf="t.dbf") as base:
    base.field("name", "C")
    base.field("amount", "N")
    for row in rows:
        base.record(*row.values())

# --- documents
canvas = Canvas("t.pdf", A4, invariant=1)
canvas.drawString(72, 720, "Lamps for sale")
canvas.save()
fitz.open("t.pdf").save("locked.pdf", encryption=fitz.PDF_ENCRYPT_AES_256, user_pw="lamp", owner_pw="lamp")
SimpleDocTemplate("table.pdf", invariant=1).build(
    [
        Table(
            [["name", "amount"], *([n, str(a)] for n, a in zip(NAMES, AMOUNT, strict=True))],
            style=[("GRID", (0, 0), (-1, -1), 1, "black")],
        )
    ]
)
page = fitz.open()
page.new_page(width=300, height=80).insert_text((20, 50), "Lamps for sale", fontsize=24)
page[0].get_pixmap(dpi=150, colorspace=fitz.csGRAY).save("scan.png")
Path("scan.pdf").write_bytes(img2pdf.convert("scan.png"))
Path("scan.png").unlink()
Path("t.txt").write_text("Lamps for sale\n")
for kind in ("docx:MS Word 2007 XML", "doc:MS Word 97", "odt", "rtf:Rich Text Format"):
    office(kind, "t.txt")
slides = pptx.Presentation()
slides.slides.add_slide(slides.slide_layouts[5]).shapes[0].text_frame.text = "Lamps for sale"
slides.save("t.pptx")
office("odp", "t.pptx")
Path("t.pptx").unlink()
office("pptx", "t.odp")
Path("t.odp").unlink()
Path("t.md").write_text("---\ntitle: Lamps for sale\n---\n\nNothing else.\n")
run("pandoc", "t.md", "-o", "t.epub")
Path("t.md").write_text("Lamps for sale\n")
mail = email.message.EmailMessage()
mail["Subject"] = "Lamps"
mail.set_content("For sale.")
Path("t.eml").write_bytes(bytes(mail))

# --- places
square = [[0, 0], [0, 1], [1, 1], [1, 0], [0, 0]]
Path("t.geojson").write_text(
    json.dumps(
        {
            "type": "FeatureCollection",
            "features": [
                {"type": "Feature", "properties": {}, "geometry": {"type": "Polygon", "coordinates": [square]}}
            ],
        }
    )
)
with shapefile.Writer("square") as shape:
    shape.field("name", "C")
    shape.poly([square])
    shape.record("square")
run("zip", "-q", "shape.zip", "square.shp", "square.shx", "square.dbf")
run("python3", "-c", "import geopandas; geopandas.read_file('t.geojson').to_file('t.gpkg')")
Path("t.kml").write_text(
    '<kml xmlns="http://www.opengis.net/kml/2.2"><Document><Placemark><Polygon><outerBoundaryIs><LinearRing><coordinates>'
    + " ".join(f"{x},{y}" for x, y in square)
    + "</coordinates></LinearRing></outerBoundaryIs></Polygon></Placemark></Document></kml>"
)
Image.fromarray(np.array([AMOUNT], dtype=np.uint8)).save("t.tif")

# --- pictures, sound, archives
for ending in ("png", "jpg", "gif", "webp", "bmp"):
    run("magick", "-size", "6x4", "xc:red", f"t.{ending}")
Image.new("RGB", (6, 4)).save("t.avif")
pillow_heif.from_pillow(Image.new("RGB", (64, 64))).save("t.heic")
Path("t.svg").write_text(
    '<svg xmlns="http://www.w3.org/2000/svg" width="6" height="4"><rect width="6" height="4"/></svg>'
)
for ending in ("wav", "mp3", "flac", "m4a"):
    run("ffmpeg", "-f", "lavfi", "-i", "sine=d=0.1:r=8000", "-ar", "8000", f"t.{ending}")
run("ffmpeg", "-f", "lavfi", "-i", "color=red:s=32x32:r=10:d=0.5", "t.mp4")
Path("t.txt").write_text("Lamps\n")
run("zip", "-q", "t.zip", "t.txt")
run("tar", "cJf", "t.tar.xz", "t.txt")
run("7z", "a", "t.7z", "t.txt")
for path in (*Path().glob("square.*"), Path("t.txt")):
    path.unlink()
print(len(list(Path().iterdir())), "files")
