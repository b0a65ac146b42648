"""Pure decisions about what leaves the container and how much of it: no I/O here, and no clock.

- `verdict`: What a filter says: a verdict and its notes.
- `allowance`: What one output may come to, in elements, characters, bytes and depth: every reader charges it.
- `json_check`: JSON of bounded depth whose keys cannot reach into a browser's objects.
- `line_ends`: Text in which a line ends in one way, and markup in which Markdown reads nothing.
- `slow_text`: Text that is slow to lay out: rows of marks on one letter, many changes of direction.
- `terminal`: Text with colours and without any other power over a terminal.
- `css`: CSS that stays within its own output and loads nothing.
- `html_blocks`: The style and script blocks of a piece of HTML, as a browser finds them.
- `frame_libraries`: Libraries of frames: packed, and left out where the notebook has them already.
- `raster`: Images of pixels: their type, and how many pixels their headers claim.
- `media`: Sounds and films: known by their first bytes, of containers that hold what they play.
- `tex`: Formulas, found on the host, made of macros that only draw, and kept apart from everything else.
- `html`: HTML, sanitised within a budget if it is markup, framed if it is a program.
- `markdown`: Markdown: left alone if it is words, else parsed here and turned into sanitised HTML.
- `mime`: MIME bundles: one rule for each type; a type without a rule does not pass.
- `budget`: How much a cell and a session may send.
- `display_budget`: How much of a cell's text goes onto the page of a person.
- `cell_errors`: The error of a cell as text; a name that no class has is cut.
- `comms`: Which comms may pass is a plugin's to say; without an open one, all are refused.
- `replies`: Replies: text stays text, and no reply makes a front end act.
- `output_policy`: The table of filters that every message goes through.
- `protocol`: The Jupyter tables: which message may pass on which channel in which direction, and how one is decoded.
- `handshake`: What a kernel says of itself: asked once, before the first cell, and read against a table.
- `safe_text`: Text as every entry point hands it out, whatever let it pass before; lines for logs that are read for
commands.

Packages: `svg` (drawings, parsed here and written again from an allow-list) and `frame` (programs, without origin and
network).
"""
