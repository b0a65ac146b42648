"""Documents as data frames write them, and pieces to damage them with: for what is read without a sanitiser."""

# ruff: noqa: E501, RUF001 (documents as they are written)

from __future__ import annotations

import random

SHEET = "<style scoped>\n    .dataframe tbody tr th {\n        vertical-align: top;\n    }\n</style>\n"
STYLER = (
    '<style type="text/css">\n#T_0a1_row0_col0 {\n  background-color: #6da6cd;\n  color: #f1f1f1;\n}\n</style>\n'
    '<table id="T_0a1">\n  <caption>A <b>b</b></caption>\n  <thead>\n    <tr>\n      <th class="blank level0" >&nbsp;</th>\n'
    '      <th id="T_0a1_level0_col0" class="col_heading level0 col0" >a</th>\n    </tr>\n  </thead>\n  <tbody>\n    <tr>\n'
    '      <th id="T_0a1_level0_row0" class="row_heading level0 row0" rowspan="2">x</th>\n'
    '      <td id="T_0a1_row0_col0" class="data row0 col0" >0.1</td>\n    </tr>\n  </tbody>\n</table>\n'
)
FRAME = (
    f'<div>\n{SHEET}<table border="1" class="dataframe">\n  <thead>\n    <tr style="text-align: right;">\n      <th></th>\n'
    '      <th colspan="2" halign="left">a</th>\n      <th rowspan="2" valign="top">b</th>\n    </tr>\n  </thead>\n  <tbody>\n'
    "    <tr>\n      <th>0</th>\n      <td>0.25</td>\n      <td>A &amp; B &lt;c&gt;</td>\n    </tr>\n  </tbody>\n</table>\n</div>"
)
PLAIN = {
    "a table without a body": "<table><tr><td>0.1</td><td>0.2</td></tr></table>" * 2,
    "a table without a body, on lines": "<table>\n<tr>\n<th>a</th>\n</tr>\n<tr><td>1</td></tr>\n</table>\n",
    "a data frame": FRAME,
    "a Styler": STYLER,
    "a link": '<table><tbody><tr><td><a href="https://example.com/a?b=1&c=2" target="_blank">x &amp; y</a></td></tr></tbody></table>',
    "links in formats": '<p><b><a href="http://a.de/">a <i>b</i></a></b> &quot;c&quot; it&#39;s</p><p style="color: red">x</p>',
    "divs": '<div class="data"><div style="padding: 2px">a<br>b<span style="color: red">c</span></div></div>\n<div></div>',
    "dollars": "<table><tr><td>$5.00</td><td>cost $x and \\alpha</td></tr></table>",
    "other scripts": "<table><tr><td>Zürich – 東京</td><td>שלום</td><td>สวัสดี</td></tr></table>",
    "a table of tabulate's": '<table>\n<tbody>\n<tr><td style="text-align: right;">0.5  </td></tr>\n</tbody>\n</table>',
}
PIECES = (
    "<", ">", '"', "'", "&", ";", "/", "=", " ", "\n", "-", "a", "0", "\x01", "\r", "\x00", "\xa0", "\ufeff", "\ud800", "\u0301",
    "\u05d0", "$", "\\", "\\(", "&quot;", "&#39;", "&nbsp;", "&amp;", "&lt;", "&copy", "&copy;", "&#1;", "&#x202e;", "amp;",
    "<!--", "-->", "<!", "<?", "</", "<b>", "</b>", "<i>", "</i>", "<span>", "</span>", "<div>", "</div>", "<p>", "</p>", "<br>",
    "<br/>", "</br>", "</p ", "<table>", "</table>", "<tr>", "</tr>", "<td>", "</td>", "<th>", "</th>", "<tbody>", "</tbody>",
    "<thead>", "</thead>", "<tfoot>", "</tfoot>", "<caption>", "</caption>", "<colgroup>", "<TD>", "<td >", "<td/>",
    "<style>", "</style>", "<style>a{color:red}</style>", "<STYLE>", "<style scoped>td{position:fixed}</style>", "<pre>", "</pre>",
    "<script>", "</script>", "<svg>", "<math>", "<textarea>", "<title>", "<xmp>", "<plaintext>", "<template>", "<img src=x>",
    "<form>", "<h1>", "</h1>", "<li>", "<ul>", "</ul>", "<a>", "</a>", '<a href="http://a.de/">', '<a href="javascript:x">',
    '<a href="http://a.de/" target="_blank" rel="noopener noreferrer">', '<a href="https://1.2.3.4.5/">', '<a href="http://xn--a.de/">',
    ' style="', ' style="color: red"', ' style="position: fixed"', ' style=""', ' class="', ' class="data"', ' class="jp-Dialog"',
    ' class="data  row0"', ' id="T_1"', ' id="x"', ' onclick="x"', ' colspan="0"', ' rowspan="99999"', '" >', "target=", "[sandbox_kernel: x]",
)  # fmt: skip
"""What a parser of HTML may do something of its own with."""


def damaged(chance: random.Random, times: int) -> str:
    """Return one of the documents, or two of them in one, with some pieces put in, taken out, doubled or moved."""
    names = list(PLAIN)
    source = PLAIN[chance.choice(names)]
    for _ in range(times):
        start = chance.randrange(len(source) + 1)
        end = min(len(source), start + chance.choice((0, 0, 0, 1, 1, 2, 5, 30)))
        kind = chance.randrange(8)
        if kind < 5:
            new = chance.choice(PIECES)
        elif kind == 5:
            new = source[start:end] * 2
        elif kind == 6:
            new = PLAIN[chance.choice(names)]
        else:
            new = ""
        if chance.random() < 0.5:  # where a tag or a text begins
            at = source.find(chance.choice('<>"& '), start)
            start, end = (at, at + end - start) if at >= 0 else (start, end)
            start += chance.randrange(2)
            end = max(end, start)
        source = source[:start] + new + source[end:]
    return source
