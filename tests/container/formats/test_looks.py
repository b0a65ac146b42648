"""Answers as people look at them: charts, a workbook with styles, and a report in several languages."""

from __future__ import annotations

import ast
import base64

import pytest

from sandbox_kernel import BarChart, LineChart, Result, Sandbox, ScatterChart
from sandbox_kernel.engines.image_names import FULL

Room = tuple[str, Sandbox]
TABLE = "import pandas as pd; table = pd.DataFrame({'town': ['Bonn', 'Rome'] * 2, 'sold': [3.0, 5, 5, 9]})\n"
BOOK = """
import openpyxl, xlsxwriter
book = xlsxwriter.Workbook('first.xlsx'); sheet = book.add_worksheet('Sales')
bold, euros = book.add_format({'bold': True, 'bg_color': '#FFCC00'}), book.add_format({'num_format': '#,##0.00 €'})
sheet.write_row('A1', ['Town', 'Amount'], bold)
for n, (town, amount) in enumerate([('Köln', 1234.5), ('Αθήνα', 2), ('上海', 3)], 1):
    sheet.write(n, 0, town); sheet.write(n, 1, amount, euros)
sheet.set_column('A:B', 20); sheet.freeze_panes(1, 0); sheet.conditional_format('B2:B4', {'type': 'data_bar'})
chart = book.add_chart({'type': 'column'}); chart.set_title({'name': 'Lamps'})
chart.add_series({'categories': '=Sales!$A$2:$A$4', 'values': '=Sales!$B$2:$B$4'})
sheet.insert_chart('D2', chart); book.close()
book = openpyxl.load_workbook('first.xlsx')
book['Sales']['B5'] = '=SUM(B2:B4)'; book['Sales']['B5'].font = openpyxl.styles.Font(italic=True)
book.save('second.xlsx')
sheet = openpyxl.load_workbook('second.xlsx')['Sales']
print([sheet['A1'].font.b, sheet['A1'].fill.fgColor.rgb, sheet['B2'].number_format, sheet['A4'].value,
       sheet['B5'].font.i, sheet.freeze_panes, len(sheet._charts), len(sheet.conditional_formatting)])
"""
BOOK_SEEN = """
import subprocess, pypdfium2
subprocess.run(['soffice', '--headless', '--convert-to', 'pdf', 'second.xlsx'], check=True, capture_output=True)
pages = pypdfium2.PdfDocument('second.pdf'); print([page.get_textpage().get_text_range() for page in pages])
"""
LOOK = """
import numpy, pypdfium2
from PIL import Image

def spans(ink):
    edges = numpy.flatnonzero(numpy.diff(numpy.r_[0, ink, 0])); return list(zip(edges[::2], edges[1::2]))

def kinds(line):
    '''Return how many different letters a line of ink has.'''
    found = []
    for left, right in spans(line.any(axis=0)):
        letter = line[:, left:right]
        rows = numpy.flatnonzero(letter.any(axis=1)); letter = letter[rows[0]:rows[-1] + 1]
        (h, w), small = letter.shape, numpy.asarray(Image.fromarray(letter.astype('u1') * 255).resize((16, 16)), float)
        if not any(abs(h - a) <= 2 and abs(w - b) <= 2 and abs(small - other).mean() < 30 for a, b, other in found):
            found.append((h, w, small))
    return len(found)

def look(name):
    '''Print how many different letters each line of a page has, and the share of the page that the bars fill.'''
    page = pypdfium2.PdfDocument(name)[0].render(scale=150 / 72).to_pil().convert('RGB')
    page.save(name + '.png'); page = numpy.asarray(page).astype(int); dark = page.sum(axis=2) < 384
    orange = (page[..., 0] > 230) & (page[..., 2] < 60)
    print([kinds(dark[top:end]) for top, end in spans(dark.any(axis=1))], float(orange.mean()))

LINES = ['Lamps sold in March, by town', 'Verkaufte Lampen im März: Größe, Straße', 'Πωλήσεις λαμπτήρων τον Μάρτιο',
         'Продажа ламп в марте по городам', '三月各城市灯具销售']
NO_FONT_HAS = '\\ue123' * 8
import matplotlib.pyplot as plt

def bars(axes):
    axes.bar(['Köln', 'Αθήνα', 'Пермь', '上海'], [3, 5, 2, 4], color='orange')

figure, axes = plt.subplots(figsize=(5, 2.5)); bars(axes); figure.savefig('figure.png'); plt.close(figure)
"""
REPORTS = {
    "reportlab": """
from reportlab.pdfbase import pdfmetrics, ttfonts
from reportlab.pdfgen.canvas import Canvas
pdfmetrics.registerFont(ttfonts.TTFont('DejaVu', 'DejaVuSans.ttf'))
page = Canvas('report.pdf'); page.setFont('DejaVu', 14)
for n, line in enumerate([NO_FONT_HAS, *LINES[:4]]): page.drawString(72, 780 - 30 * n, line, charSpace=2)
page.drawImage('figure.png', 72, 400, 360, 180); page.save()
look('report.pdf')
""",
    "matplotlib": """
figure = plt.figure(figsize=(8.27, 11.69))
for n, line in enumerate([NO_FONT_HAS, *LINES]): figure.text(.1, .93 - .035 * n, line, fontsize=14)
bars(figure.add_axes((.1, .4, .6, .25))); figure.savefig('report.pdf'); plt.close(figure)
look('report.pdf')
""",
    "LibreOffice": """
import docx, subprocess
page = docx.Document()
for line in [NO_FONT_HAS, *LINES]: page.add_paragraph(line)
page.add_picture('figure.png', width=docx.shared.Cm(12)); page.save('report.docx')
subprocess.run(['soffice', '--headless', '--convert-to', 'pdf', 'report.docx'], check=True, capture_output=True)
look('report.pdf')
""",
}


def shown(room: Room, code: str, missing: str = "") -> Result:
    image, sandbox = room
    if missing and image != FULL:
        pytest.skip(f"{image} has no {missing}")
    execution = sandbox.run_code(TABLE + code)
    assert execution.error is None, execution.error
    return execution.results[-1]


@pytest.mark.parametrize(
    ("plot", "kind", "values"),
    [
        ("barplot(table, x='town', y='sold')", BarChart, [4.0, 7.0]),
        ("barplot(table, x='town', y='sold', errorbar=None)", BarChart, [4.0, 7.0]),
        ("lineplot(table, x='town', y='sold')", LineChart, [4.0, 7.0]),
        ("scatterplot(table, x='sold', y='sold', hue='town')", ScatterChart, [3.0, 5.0, 5.0, 9.0]),
        ("violinplot(table, x='town', y='sold')", None, []),
    ],
)
def test_a_chart_of_seaborn_is_a_picture_and_data(
    room: Room, plot: str, kind: type | None, values: list[float]
) -> None:
    """Also where seaborn draws how sure a value is, or empty lines for the legend. A plot of violins has no data."""
    result = shown(room, f"import seaborn; seaborn.{plot}; None")
    assert result.png is not None
    assert base64.b64decode(result.png).startswith(b"\x89PNG")
    found = result.chart
    assert found is not None
    if kind is None:
        assert (found.type, found.elements) == ("unknown", [])
        return
    assert isinstance(found, kind)
    seen = [one.value if kind is BarChart else [y for _, y in one.points] for one in found.elements]
    assert (seen if kind is BarChart else seen[0]) == values


def test_a_chart_of_plotnine_is_a_picture(room: Room) -> None:
    result = shown(room, "import plotnine as p; p.ggplot(table, p.aes('town', 'sold')) + p.geom_col()", "plotnine")
    assert base64.b64decode(result.png or "").startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("import plotly.express as px; px.bar(table, x='town', y='sold')", "Bonn"),
        ("import altair; altair.Chart(table).mark_bar().encode(x='town', y='sold')", "Bonn"),
        (
            "import bokeh.io, bokeh.plotting as b; bokeh.io.output_notebook()\n"
            "page = b.figure(x_range=['Bonn']); page.vbar(x=['Bonn'], top=[3]); b.show(page)",
            "Bonn",
        ),
    ],
    ids=["plotly", "altair", "bokeh"],
)
def test_a_chart_that_is_a_program_is_html_in_a_frame(room: Room, code: str, word: str) -> None:
    """With its data and its library: nothing is loaded when it is shown."""
    page = shown(room, code).html or ""
    assert page.startswith('<iframe sandbox="allow-scripts"')
    assert word in page
    assert len(page) > 100_000


def test_a_map_says_why_it_is_not_shown_and_is_a_file(room: Room) -> None:
    result = shown(room, "import folium; map = folium.Map([50, 8]); map.save('map.html'); map", "folium")
    assert "a map is not shown: it loads its program and tiles from a network" in (result.html or "")
    assert b"leaflet" in room[1].files.read("map.html", format="bytes")


def test_a_workbook_keeps_its_styles_and_its_chart(room: Room) -> None:
    image, sandbox = room
    execution = sandbox.run_code(BOOK)
    assert execution.error is None, execution.error
    seen = ast.literal_eval("".join(execution.logs.stdout))
    assert seen == [True, "FFFFCC00", "#,##0.00 €", "上海", True, "A2", 1, 1]
    if image != FULL:
        return
    execution = sandbox.run_code(BOOK_SEEN)
    assert execution.error is None, execution.error
    text = " ".join(ast.literal_eval("".join(execution.logs.stdout)))
    for words in ("1,234.50 €", "1239.5", "Lamps", "上海"):
        assert words in text


@pytest.mark.parametrize("maker", REPORTS)
def test_a_report_in_several_languages_has_its_letters_and_its_figure(room: Room, maker: str) -> None:
    """The first line is one that no font has: its letters all look the same, and those of the others do not."""
    image, sandbox = room
    if maker == "LibreOffice" and image != FULL:
        pytest.skip(f"{image} has no LibreOffice")
    execution = sandbox.run_code(LOOK + REPORTS[maker])
    assert execution.error is None, execution.error
    lines, _, bars = "".join(execution.logs.stdout).strip().rpartition(" ")
    first, *others = ast.literal_eval(lines)
    assert first <= 3  # a letter's edges differ with its place
    assert min(others[:4]) >= 10, lines
    assert maker == "reportlab" or others[4] >= 8, lines
    assert float(bars) > 0.02
    assert sandbox.files.read("report.pdf.png", format="bytes").startswith(b"\x89PNG")
