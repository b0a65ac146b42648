"""The table: a file of each format, what a person would ask of it, and the answer. docs/images.md is made of it."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One thing that people do. It works in the image `full`, and in `data` unless something is missing there."""

    name: str
    code: str
    """What a cell does with the file; it prints the answer."""
    answer: str
    file: str = ""
    """Of files/, where there is one: another program wrote it than the one that reads it (`files/make.py`)."""
    missing: str = ""
    """The package, or the program, that `data` lacks for it."""


TABLES = (
    Row("CSV", "import pandas as pd; print(pd.read_csv('t.csv').amount.sum())", "60", "t.csv"),
    Row(
        "CSV in an old encoding",
        "import chardet, pandas as pd; e = chardet.detect(open('old.csv', 'rb').read())['encoding']\n"
        "print(pd.read_csv('old.csv', encoding=e).name[0])",
        "Müller",
        "old.csv",
    ),
    Row("CSV, gzip", "import pandas as pd; print(pd.read_csv('t.csv.gz').amount.sum())", "60", "t.csv.gz"),
    Row("CSV, Zstandard", "import pandas as pd; print(pd.read_csv('t.csv.zst').amount.sum())", "60", "t.csv.zst"),
    Row("JSON lines", "import polars as pl; print(pl.read_ndjson('t.jsonl')['amount'].sum())", "60", "t.jsonl"),
    Row("XML", "import pandas as pd; print(pd.read_xml('t.xml').amount.sum())", "60", "t.xml"),
    Row("HTML table", "import pandas as pd; print(pd.read_html('t.html')[0].amount.sum())", "60", "t.html"),
    Row("YAML", "import yaml; print(yaml.safe_load(open('t.yaml'))['amount'][2])", "30", "t.yaml"),
    Row("Excel (xlsx)", "import pandas as pd; print(pd.read_excel('t.xlsx').amount.sum())", "60", "t.xlsx"),
    Row(
        "Excel (xlsx), by polars", "import polars as pl; print(pl.read_excel('t.xlsx')['amount'].sum())", "60", "t.xlsx"
    ),
    Row("Excel 97 (xls)", "import pandas as pd; print(pd.read_excel('t.xls').amount.sum())", "60", "t.xls"),
    Row(
        "Excel with a password",
        "import io, msoffcrypto, pandas as pd; book = msoffcrypto.OfficeFile(open('locked.xlsx', 'rb'))\n"
        "book.load_key(password='lamp'); out = io.BytesIO(); book.decrypt(out); print(pd.read_excel(out).amount.sum())",
        "60",
        "locked.xlsx",
    ),
    Row(
        "OpenDocument table (ods)",
        "import pandas as pd; print(pd.read_excel('t.ods', engine='calamine').amount.sum())",
        "60",
        "t.ods",
    ),
    Row(
        "OpenDocument table (ods), without a word of how",
        "import pandas as pd; print(pd.read_excel('t.ods').amount.sum())",
        "60",
        "t.ods",
    ),
    Row(
        "Parquet",
        "import duckdb; print(duckdb.sql(\"select sum(amount) from 't.parquet'\").fetchall()[0][0])",
        "60",
        "t.parquet",
    ),
    Row("Feather", "import pandas as pd; print(pd.read_feather('t.feather').amount.sum())", "60", "t.feather"),
    Row("ORC", "import pyarrow.orc as orc; print(sum(orc.read_table('t.orc')['amount'].to_pylist()))", "60", "t.orc"),
    Row(
        "Avro",
        "import fastavro; print(sum(r['amount'] for r in fastavro.reader(open('t.avro', 'rb'))))",
        "60",
        "t.avro",
        "fastavro",
    ),
    Row(
        "SQLite",
        "import sqlite3; print(sqlite3.connect('t.sqlite').execute('select sum(amount) from t').fetchone()[0])",
        "60",
        "t.sqlite",
    ),
    Row(
        "A time with its zone, by DuckDB",
        "import duckdb; print(duckdb.sql(\"select timestamptz '2026-01-02 03:04:05+00'\").fetchall()[0][0].year)",
        "2026",
    ),
    Row("Stata", "import pandas as pd; print(int(pd.read_stata('t.dta').amount.sum()))", "60", "t.dta"),
    Row("SPSS", "import pandas as pd; print(int(pd.read_spss('t.sav').amount.sum()))", "60", "t.sav", "pyreadstat"),
    Row("SAS transport", "import pandas as pd; print(int(pd.read_sas('t.xpt').AMOUNT.sum()))", "60", "t.xpt"),
    Row("R (rds)", "import pyreadr; print(int(pyreadr.read_r('t.rds')[None].amount.sum()))", "60", "t.rds", "pyreadr"),
    Row("HDF5", "import h5py; print(h5py.File('t.h5')['amount'][:].sum())", "60", "t.h5", "h5py"),
    Row("NetCDF", "import xarray; print(int(xarray.open_dataset('t.nc').amount.sum()))", "60", "t.nc", "xarray"),
    Row("NumPy", "import numpy; print(numpy.load('t.npy').sum())", "60", "t.npy"),
    Row("MATLAB", "import scipy.io; print(int(scipy.io.loadmat('t.mat')['amount'].sum()))", "60", "t.mat"),
    Row("dBASE", "import geopandas; print(int(geopandas.read_file('t.dbf').amount.sum()))", "60", "t.dbf", "geopandas"),
    Row("TSV", "import pandas as pd; print(pd.read_csv('t.csv', sep='\\t').shape)", "(3, 1)", "t.csv"),
    Row(
        "Columns of a fixed width",
        "import io, pandas as pd; print(pd.read_fwf(io.StringIO('name  amount\\nlamp      60')).amount[0])",
        "60",
    ),
    Row(
        "JSON, by DuckDB",
        "import duckdb; print(duckdb.sql(\"select sum(amount) from 't.jsonl'\").fetchall()[0][0])",
        "60",
        "t.jsonl",
    ),
    Row(
        "CSV, by DuckDB",
        "import duckdb; print(duckdb.sql(\"select sum(amount) from 't.csv'\").fetchall()[0][0])",
        "60",
        "t.csv",
    ),
    Row(
        "Parquet, by polars",
        "import polars as pl; print(pl.read_parquet('t.parquet')['amount'].sum())",
        "60",
        "t.parquet",
    ),
    Row("TOML", "import tomllib; print(tomllib.loads('amount = 60')['amount'])", "60"),
    Row(
        "INI", "import configparser as c; p = c.ConfigParser(); p.read_string('[a]\\nb = 60'); print(p['a']['b'])", "60"
    ),
    Row(
        "Excel with several sheets, written",
        "import pandas as pd; w = pd.ExcelWriter('made.xlsx'); [pd.DataFrame({'a': [n]}).to_excel(w, sheet_name=str(n)) for n in (1, 2)]\n"
        "w.close(); print(list(pd.read_excel('made.xlsx', sheet_name=None)))",
        "['1', '2']",
    ),
    Row(
        "Excel 97 (xls) as PDF",
        "import subprocess; subprocess.run(['soffice', '--headless', '--convert-to', 'pdf', '--outdir', 'made', 't.xls'], check=True,\n"
        "    capture_output=True); import pypdf; print('60' in pypdf.PdfReader('made/t.pdf').pages[0].extract_text() or 30)",
        "30",
        "t.xls",
        "soffice",
    ),
    Row(
        "OpenDocument table (ods), written",
        "import pandas as pd; pd.DataFrame({'a': [60]}).to_excel('made.ods'); print(pd.read_excel('made.ods').a[0])",
        "60",
        missing="odf",
    ),
    Row(
        "HDF5, by pandas",
        "import pandas as pd; pd.DataFrame({'a': [60]}).to_hdf('made.h5', key='t'); print(pd.read_hdf('made.h5').a[0])",
        "60",
        missing="tables",
    ),
    Row(
        "zarr, written",
        "import zarr; z = zarr.create_array('made.zarr', shape=3, dtype='i4'); z[:] = 20; print(z[:].sum())",
        "60",
        missing="zarr",
    ),
    Row(
        "SQLAlchemy",
        "import sqlalchemy as s; print(s.create_engine('sqlite:///t.sqlite').connect().execute(s.text('select sum(amount) from t')).scalar())",
        "60",
        "t.sqlite",
    ),
    Row("Excel, binary (xlsb): its reader", "import pyxlsb; print(pyxlsb.__name__)", "pyxlsb"),
    Row("Time zones by their older names", "import zoneinfo; print(zoneinfo.ZoneInfo('US/Pacific').key)", "US/Pacific"),
)
DOCUMENTS = (
    Row("PDF", "import pypdf; print(pypdf.PdfReader('t.pdf').pages[0].extract_text().split()[0])", "Lamps", "t.pdf"),
    Row(
        "PDF with a password",
        "import pypdf; print(pypdf.PdfReader('locked.pdf', password='lamp').pages[0].extract_text().split()[0])",
        "Lamps",
        "locked.pdf",
    ),
    Row(
        "PDF with a table",
        "import pdfplumber; print(pdfplumber.open('table.pdf').pages[0].extract_table()[3][1])",
        "30",
        "table.pdf",
    ),
    Row(
        "PDF as a picture",
        "import pdf2image; print(pdf2image.convert_from_path('t.pdf', dpi=50)[0].mode)",
        "RGB",
        "t.pdf",
        "pdf2image",
    ),
    Row(
        "PDF that was scanned",
        "import fitz, io, pytesseract; from PIL import Image\n"
        "page = fitz.open('scan.pdf')[0].get_pixmap(dpi=150).tobytes('png')\n"
        "print(pytesseract.image_to_string(Image.open(io.BytesIO(page))).split()[0])",
        "Lamps",
        "scan.pdf",
        "fitz",
    ),
    Row("Word", "import docx; print(docx.Document('t.docx').paragraphs[0].text)", "Lamps for sale", "t.docx"),
    Row(
        "Word 97 (doc)",
        "import subprocess; subprocess.run(['soffice', '--headless', '--convert-to', 'txt:Text', 't.doc'], check=True,\n"
        "    capture_output=True); print(open('t.txt', encoding='utf-8-sig').read().strip())",
        "Lamps for sale",
        "t.doc",
        "soffice",
    ),
    Row(
        "OpenDocument text",
        "from odf import opendocument, teletype, text\n"
        "print(teletype.extractText(opendocument.load('t.odt').getElementsByType(text.P)[0]))",
        "Lamps for sale",
        "t.odt",
        "odf",
    ),
    Row(
        "RTF",
        "from striprtf.striprtf import rtf_to_text; print(rtf_to_text(open('t.rtf').read()).strip())",
        "Lamps for sale",
        "t.rtf",
        "striprtf",
    ),
    Row(
        "PowerPoint",
        "import pptx; print(pptx.Presentation('t.pptx').slides[0].shapes[0].text_frame.text)",
        "Lamps for sale",
        "t.pptx",
    ),
    Row(
        "PowerPoint as PDF",
        "import subprocess; subprocess.run(['soffice', '--headless', '--convert-to', 'pdf', '--outdir', 'made', 't.pptx'], check=True,\n"
        "    capture_output=True); import pypdf; print(len(pypdf.PdfReader('made/t.pdf').pages))",
        "1",
        "t.pptx",
        "soffice",
    ),
    Row(
        "EPUB",
        "import ebooklib.epub; print(ebooklib.epub.read_epub('t.epub').title)",
        "Lamps for sale",
        "t.epub",
        "ebooklib",
    ),
    Row(
        "Markdown as Word",
        "import subprocess; subprocess.run(['pandoc', 't.md', '-o', 'made.docx'], check=True)\n"
        "import docx; print(docx.Document('made.docx').paragraphs[0].text)",
        "Lamps for sale",
        "t.md",
        "pandoc",
    ),
    Row(
        "A report as PDF",
        "from reportlab.pdfgen.canvas import Canvas; c = Canvas('made.pdf'); c.drawString(72, 720, 'Lamps'); c.save()\n"
        "import pypdf; print(pypdf.PdfReader('made.pdf').pages[0].extract_text().strip())",
        "Lamps",
    ),
    Row("Mail", "import email; print(email.message_from_file(open('t.eml'))['Subject'])", "Lamps", "t.eml"),
    Row(
        "Word as HTML",
        "import mammoth; print('Lamps for sale' in mammoth.convert_to_html(open('t.docx', 'rb')).value)",
        "True",
        "t.docx",
        "mammoth",
    ),
    Row(
        "Word as PDF",
        "import subprocess; subprocess.run(['soffice', '--headless', '--convert-to', 'pdf', '--outdir', 'made', 't.docx'], check=True,\n"
        "    capture_output=True); import pypdf; print(pypdf.PdfReader('made/t.pdf').pages[0].extract_text().strip())",
        "Lamps for sale",
        "t.docx",
        "soffice",
    ),
    Row(
        "Word, written",
        "import docx; d = docx.Document(); d.add_heading('Lamps'); d.save('made.docx'); print(docx.Document('made.docx').paragraphs[0].text)",
        "Lamps",
    ),
    Row(
        "PowerPoint, written",
        "import pptx; p = pptx.Presentation(); p.slides.add_slide(p.slide_layouts[0]).shapes.title.text = 'Lamps'\n"
        "p.save('made.pptx'); print(pptx.Presentation('made.pptx').slides[0].shapes.title.text)",
        "Lamps",
    ),
    Row(
        "Markdown as HTML", "import markdown; print(markdown.markdown('# Lamps'))", "<h1>Lamps</h1>", missing="markdown"
    ),
    Row(
        "HTML, read",
        "from bs4 import BeautifulSoup; print(BeautifulSoup(open('t.html'), 'lxml').find('td').text)",
        "desk",
        "t.html",
    ),
    Row("A template", "import jinja2; print(jinja2.Template('{{ a }}').render(a='Lamps'))", "Lamps"),
    Row("Pictures as PDF", "import img2pdf; print(img2pdf.convert('t.jpg')[1:4])", "b'PDF'", "t.jpg", "img2pdf"),
    Row(
        "A scan as PDF with text",
        "import ocrmypdf, pypdf; ocrmypdf.ocr('scan.pdf', 'made.pdf', progress_bar=False)\n"
        "print(pypdf.PdfReader('made.pdf').pages[0].extract_text().split()[0])",
        "Lamps",
        "scan.pdf",
        "ocrmypdf",
    ),
    Row(
        "PDFs, merged",
        "import pypdf; w = pypdf.PdfWriter(); w.append('t.pdf'); w.append('t.pdf'); w.write('made.pdf'); print(len(pypdf.PdfReader('made.pdf').pages))",
        "2",
        "t.pdf",
    ),
    Row(
        "PDF as a picture, by PDFium",
        "import pdfplumber; print(pdfplumber.open('t.pdf').pages[0].to_image().original.mode)",
        "RGB",
        "t.pdf",
    ),
    Row(
        "Outlook's mail (msg): its reader",
        "import extract_msg; print(extract_msg.__name__)",
        "extract_msg",
        missing="extract_msg",
    ),
    Row(
        "What a file is",
        "import magic; print(magic.from_file('t.pdf', mime=True))",
        "application/pdf",
        "t.pdf",
        "magic",
    ),
    Row(
        "EPUB, by pandoc",
        "import subprocess; print(subprocess.run(['pandoc', 't.epub', '-t', 'plain'], capture_output=True, text=True, check=True).stdout.split()[0])",
        "Lamps",
        "t.epub",
        "pandoc",
    ),
)
PLACES = (
    Row(
        "GeoJSON",
        "import json, shapely; print(shapely.from_geojson(open('t.geojson').read()).geoms[0].area)",
        "1.0",
        "t.geojson",
    ),
    Row(
        "GeoJSON, by GeoPandas",
        "import geopandas; print(geopandas.read_file('t.geojson').area.sum())",
        "1.0",
        "t.geojson",
        "geopandas",
    ),
    Row(
        "Shapefile",
        "import geopandas; print(geopandas.read_file('shape.zip').area.sum())",
        "1.0",
        "shape.zip",
        "geopandas",
    ),
    Row(
        "GeoPackage", "import geopandas; print(geopandas.read_file('t.gpkg').area.sum())", "1.0", "t.gpkg", "geopandas"
    ),
    Row("KML", "import geopandas; print(geopandas.read_file('t.kml').area.sum())", "1.0", "t.kml", "geopandas"),
    Row("GeoTIFF", "import rasterio; print(rasterio.open('t.tif').read(1).sum())", "60", "t.tif", "rasterio"),
    Row(
        "Another projection",
        "import pyproj; print(round(pyproj.Transformer.from_crs(4326, 3857, always_xy=True).transform(1, 0)[0]))",
        "111319",
        missing="pyproj",
    ),
    Row(
        "A map", "import folium; print('leaflet' in folium.Map([50, 8]).get_root().render())", "True", missing="folium"
    ),
    Row(
        "A join of places",
        "import geopandas as g; a = g.read_file('t.geojson'); print(len(g.sjoin(a, a)))",
        "1",
        "t.geojson",
        "geopandas",
    ),
    Row(
        "Shapefile, by pyshp",
        "import shapefile, zipfile; zipfile.ZipFile('shape.zip').extractall('shape'); import glob\n"
        "print(len(shapefile.Reader(glob.glob('shape/**/*.shp', recursive=True)[0])))",
        "1",
        "shape.zip",
        "shapefile",
    ),
)
PICTURES = (
    *(
        Row(name, f"from PIL import Image; print(Image.open('t.{ending}').size)", "(6, 4)", f"t.{ending}")
        for name, ending in (
            ("PNG", "png"),
            ("JPEG", "jpg"),
            ("GIF", "gif"),
            ("WebP", "webp"),
            ("BMP", "bmp"),
            ("AVIF", "avif"),
        )
    ),
    Row("HEIC", "import pillow_heif; print(pillow_heif.open_heif('t.heic').size)", "(64, 64)", "t.heic", "pillow_heif"),
    Row(
        "SVG as PNG",
        "import subprocess; subprocess.run(['magick', 't.svg', 'made.png'], check=True)\n"
        "from PIL import Image; print(Image.open('made.png').size)",
        "(6, 4)",
        "t.svg",
        "magick",
    ),
    Row("A picture, by OpenCV", "import cv2; print(cv2.imread('t.png').shape)", "(4, 6, 3)", "t.png", "cv2"),
    Row(
        "A picture, by scikit-image",
        "import skimage.io; print(skimage.io.imread('t.png').shape[:2])",
        "(4, 6)",
        "t.png",
        "skimage",
    ),
    Row(
        "Text on a picture",
        "from PIL import ImageFont; print(ImageFont.truetype('DejaVuSans.ttf', 12).getname()[0])",
        "DejaVu Sans",
    ),
    Row("WAV", "import scipy.io.wavfile as w; print(w.read('t.wav')[0])", "8000", "t.wav"),
    Row("MP3", "import librosa; print(librosa.load('t.mp3', sr=None)[1])", "8000", "t.mp3", "librosa"),
    Row("FLAC", "import soundfile; print(soundfile.info('t.flac').samplerate)", "8000", "t.flac", "soundfile"),
    Row(
        "M4A",
        "from pydub import AudioSegment; print(AudioSegment.from_file('t.m4a').frame_rate)",
        "8000",
        "t.m4a",
        "pydub",
    ),
    Row("MP4", "import cv2; print(int(cv2.VideoCapture('t.mp4').get(cv2.CAP_PROP_FRAME_COUNT)))", "5", "t.mp4", "cv2"),
    Row(
        "Edges, by OpenCV",
        "import cv2, numpy; print(cv2.Canny(numpy.eye(60, dtype='uint8') * 255, 1, 2).shape)",
        "(60, 60)",
        missing="cv2",
    ),
    Row(
        "TIFF",
        "from PIL import Image; Image.new('L', (6, 4)).save('made.tif'); print(Image.open('made.tif').size)",
        "(6, 4)",
    ),
    Row(
        "An animated GIF",
        "from PIL import Image; a = Image.new('L', (6, 4)); a.save('made.gif', save_all=True, append_images=[Image.new('L', (6, 4), 9)]); print(Image.open('made.gif').n_frames)",
        "2",
    ),
    Row(
        "An animation of matplotlib as MP4",
        "import matplotlib.pyplot as p, matplotlib.animation as m; f, a = p.subplots(figsize=(2, 2)); a.plot([1])\n"
        "m.FuncAnimation(f, lambda n: [], 3).save('made.mp4', writer=m.FFMpegWriter()); p.close(); print(open('made.mp4', 'rb').read(8)[4:])",
        "b'ftyp'",
        missing="ffmpeg",
    ),
    Row(
        "A spectrum of sound",
        "import librosa, numpy; print(librosa.feature.mfcc(y=numpy.ones(8000, 'f4'), sr=8000, n_mfcc=5).shape[0])",
        "5",
        missing="librosa",
    ),
    Row(
        "Text of a picture",
        "import pytesseract, pdfplumber; print(pytesseract.image_to_string(pdfplumber.open('scan.pdf').pages[0].to_image(150).original).split()[0])",
        "Lamps",
        "scan.pdf",
        "pytesseract",
    ),
)
ARCHIVES = (
    Row("ZIP", "import zipfile; print(zipfile.ZipFile('t.zip').read('t.txt').decode().strip())", "Lamps", "t.zip"),
    Row(
        "tar.xz",
        "import tarfile; print(tarfile.open('t.tar.xz').extractfile('t.txt').read().decode().strip())",
        "Lamps",
        "t.tar.xz",
    ),
    Row(
        "7z",
        "import subprocess; subprocess.run(['7z', 'x', '-y', 't.7z'], check=True, capture_output=True)\n"
        "print(open('t.txt').read().strip())",
        "Lamps",
        "t.7z",
        "7z",
    ),
    Row(
        "tar.zst",
        "import tarfile, zstandard, io; t = io.BytesIO(); w = tarfile.open(fileobj=t, mode='w'); w.add('t.csv'); w.close()\n"
        "t = zstandard.decompress(zstandard.compress(t.getvalue())); print(tarfile.open(fileobj=io.BytesIO(t)).getnames())",
        "['t.csv']",
        "t.csv",
    ),
    Row(
        "tar.gz, by tar",
        "import subprocess; subprocess.run('tar czf made.tgz t.csv && tar tzf made.tgz', shell=True, check=True)",
        "t.csv",
        "t.csv",
    ),
    Row(
        "ZIP, by unzip",
        "import subprocess; subprocess.run('unzip -p t.zip t.txt', shell=True, check=True)",
        "Lamps",
        "t.zip",
    ),
)
PLOTS = (
    Row(
        "A chart of matplotlib",
        "import matplotlib.pyplot as p; p.plot([1]); p.savefig('a.png'); print(open('a.png', 'rb').read(4)[1:])",
        "b'PNG'",
    ),
    Row(
        "A chart of altair as PNG",
        "import altair as a; a.Chart({'values': [{'a': 1}]}).mark_bar().encode(x='a:Q').save('a.png'); print('made')",
        "made",
    ),
    Row(
        "A chart of plotnine",
        "import plotnine as p, pandas as d; (p.ggplot(d.DataFrame({'a': [1]}), p.aes('a')) + p.geom_bar()).save('a.png', verbose=False); print('made')",
        "made",
        missing="plotnine",
    ),
    Row(
        "A chart of plotly as PNG",
        "import plotly.express as p; p.bar(x=[1], y=[2]).write_image('a.png'); print(open('a.png', 'rb').read(4)[1:])",
        "b'PNG'",
        missing="kaleido",
    ),
    Row(
        "A graph of dot",
        "import graphviz; g = graphviz.Digraph(); g.edge('a', 'b'); print(g.pipe('png')[1:4])",
        "b'PNG'",
        missing="graphviz",
    ),
    Row(
        "A cloud of words",
        "import wordcloud; print(wordcloud.WordCloud().generate('lamps for sale').width)",
        "400",
        missing="wordcloud",
    ),
    Row(
        "A chart of seaborn",
        "import seaborn; seaborn.barplot(x=['a'], y=[1]).figure.savefig('a.png'); print(open('a.png', 'rb').read(4)[1:])",
        "b'PNG'",
    ),
    Row(
        "A chart of plotly as HTML",
        "import plotly.express as p; p.bar(x=[1], y=[2]).write_html('a.html'); print('plotly' in open('a.html').read())",
        "True",
    ),
    Row(
        "A chart of bokeh as HTML",
        "import bokeh.plotting as b, bokeh.embed as e, bokeh.resources as r; f = b.figure(); f.line([1, 2], [1, 2]); print('bokeh' in e.file_html(f, r.INLINE))",
        "True",
    ),
    Row(
        "A chart of altair as SVG",
        "import altair as a; a.Chart({'values': [{'a': 1}]}).mark_bar().encode(x='a:Q').save('a.svg'); print('made')",
        "made",
    ),
    Row("A network", "import networkx as n; print(n.shortest_path_length(n.path_graph(5), 0, 4))", "4"),
)
MODELS = (
    *(
        Row(name, f"import {module}; print({module}.__name__)", module, missing=missing)
        for name, module, missing in (
            ("scikit-learn", "sklearn", ""),
            ("statsmodels", "statsmodels.api", ""),
            ("XGBoost", "xgboost", "xgboost"),
            ("LightGBM", "lightgbm", "lightgbm"),
            ("SHAP", "shap", "shap"),
            ("Prophet", "prophet", "prophet"),
            ("gensim", "gensim", "gensim"),
            ("NLTK", "nltk", "nltk"),
            ("spaCy", "spacy", "spacy"),
            ("TextBlob", "textblob", "textblob"),
            ("zarr", "zarr", "zarr"),
            ("contextily", "contextily", "contextily"),
            ("imageio", "imageio", "imageio"),
            ("PyTables", "tables", "tables"),
        )
    ),
    Row(
        "A forecast",
        "import pandas as pd, prophet; d = pd.DataFrame({'ds': pd.date_range('2026-01-01', periods=60), 'y': range(60)})\n"
        "m = prophet.Prophet().fit(d); print(round(m.predict(d).yhat.iloc[-1]))",
        "59",
        missing="prophet",
    ),
    Row("SciPy", "from scipy import stats; print(round(stats.ttest_ind([1, 2, 3], [4, 5, 6]).statistic, 2))", "-3.67"),
    Row("SymPy", "import sympy; print(sympy.solve('x**2 - 4'))", "[-2, 2]"),
    Row("Numba", "import numba; print(numba.njit(lambda a: a + 1)(1))", "2"),
    Row(
        "A regression with a formula",
        "import statsmodels.formula.api as f; print(round(f.ols('a ~ b', {'a': [1, 2, 3], 'b': [1, 2, 3]}).fit().params['b'], 2))",
        "1.0",
    ),
    Row(
        "A forest",
        "from sklearn.ensemble import RandomForestClassifier as F; print(F(random_state=0).fit([[0], [1]] * 9, [0, 1] * 9).predict([[1]])[0])",
        "1",
    ),
    Row(
        "XGBoost, fitted",
        "import xgboost; print(xgboost.XGBClassifier().fit([[0], [1]] * 9, [0, 1] * 9).predict([[1]])[0])",
        "1",
        missing="xgboost",
    ),
    Row(
        "LightGBM, fitted",
        "import lightgbm, numpy; print(round(lightgbm.LGBMRegressor(verbose=-1).fit(numpy.arange(60).reshape(-1, 1), numpy.ones(60)).predict([[1]])[0]))",
        "1",
        missing="lightgbm",
    ),
    Row(
        "Words, by spaCy without a model",
        "import spacy; print(len(spacy.blank('en')('Lamps for sale.')))",
        "4",
        missing="spacy",
    ),
    Row("Stems, by NLTK", "import nltk; print(nltk.PorterStemmer().stem('lamps'))", "lamp", missing="nltk"),
    Row("A progress bar", "import tqdm; print(list(tqdm.tqdm([1])))", "[1]"),
    Row("A table for the eye", "import rich.table, tabulate; print(tabulate.tabulate([[60]], tablefmt='plain'))", "60"),
)
PROGRAMS = tuple(
    Row(
        f"`{name}`",
        f"import subprocess; print(subprocess.run({words.split()}, capture_output=True).returncode)",
        "0",
        missing=missing,
    )
    for name, words, missing in (
        *((name, f"{name} --version", "") for name in ("git", "curl", "jq", "tar", "gzip")),
        ("unzip", "unzip -v", ""),
        ("zip", "zip -v", ""),
        *(
            (name, f"{name} --version", name)
            for name in (
                "wget",
                "sqlite3",
                "file",
                "gcc",
                "g++",
                "make",
                "less",
                "tree",
                "rsync",
                "node",
                "pandoc",
                "tesseract",
                "zstd",
                "soffice",
            )
        ),
        *((name, f"{name} -version", name) for name in ("ffmpeg", "magick")),
        ("7z", "7z i", "7z"),
        ("dot", "dot -V", "dot"),
        ("pdftotext", "pdftotext -v", "pdftotext"),
        ("pdftoppm", "pdftoppm -v", "pdftoppm"),
        *((name, f"{name} --version", "") for name in ("bash", "grep", "sed", "find", "python3", "pip", "xargs")),
        *((name, f"{name} --version", name) for name in ("gs", "xz", "rsvg-convert", "libreoffice")),
        *((name, f"{name} -version", name) for name in ("ffprobe", "convert", "identify")),
    )
)
GROUPS = {
    "Tables": TABLES,
    "Documents": DOCUMENTS,
    "Places": PLACES,
    "Pictures, sound and video": PICTURES,
    "Archives": ARCHIVES,
    "Charts": PLOTS,
    "Models": MODELS,
    "Programs": PROGRAMS,
}
ROWS = tuple(row for rows in GROUPS.values() for row in rows)


def as_markdown() -> str:
    """Return the tables of docs/images.md."""
    lines = ["| What | `data` | `full` |", "|---|---|---|"]
    for group, rows in GROUPS.items():
        lines.append(f"| **{group}** | | |")
        lines += [f"| {row.name} | {f'no {row.missing}' if row.missing else 'works'} | works |" for row in rows]
    return "\n".join(lines)
