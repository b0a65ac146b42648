"""Libraries in frames: packed to a fifth, and in the notebook once where others can take them from there.

Imports nothing of ours. A packed script is deflated and written in 85 signs. None has to be escaped in HTML or
JSON, however often. Its name is the hash of that text, so a frame that gets it from another one can check it.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections import OrderedDict
from dataclasses import dataclass

LIBRARY = 100_000
"""Characters; a longer script is a library."""
MAX_CODE = 12_000_000
"""Characters of all scripts of an output that are packed, in less than a second; others stay as they are."""
MAX_KEPT = 8 << 20
"""Characters of packed libraries that the host remembers: the next figure's is the same."""
MAX_LIBRARIES, MAX_CELLS = 64, 4_000
"""How many are remembered to be in a notebook; what is forgotten comes once more."""

SIGNS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%,()*+-;.=/?@^_`{|}~"
"""Those of base 85, but that none needs an escape."""
_SIGNS = bytes.maketrans(b"&<>", b",./")


@dataclass(frozen=True, slots=True)
class Packed:
    """`name` says the hash, the bytes of the script and those of what is deflated; `text` is that, in 85 signs."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class CellRun:
    """Where an output will be: a cell of a notebook, by its id, in one of its runs."""

    cell: str
    run: str
    gone: tuple[str, ...] = ()
    """Cells that the notebook has lost."""
    notebook: str = ""
    """Which one, if a client runs several, one after another."""


class Packer:
    """Packs scripts; what was packed last is kept, for a library comes with each figure."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, Packed] = OrderedDict()
        self.size = 0
        """Characters of what is kept."""

    def pack(self, code: str) -> Packed:
        """Return a script packed, whether it gets smaller or not: it is shared."""
        raw = code.encode()
        key = hashlib.sha256(raw).digest()
        if found := self._kept.get(key):
            self._kept.move_to_end(key)
            return found
        deflate = zlib.compressobj(7, zlib.DEFLATED, -15)
        data = deflate.compress(raw) + deflate.flush()
        text = base64.b85encode(data, pad=True).translate(_SIGNS).decode()
        packed = Packed(f"{hashlib.sha256(text.encode()).hexdigest()}:{len(raw)}:{len(data)}", text)
        if len(text) <= MAX_KEPT:
            self._kept[key] = packed
            self.size += len(text)
            while self.size > MAX_KEPT:
                self.size -= len(self._kept.popitem(last=False)[1].text)
        return packed


class Libraries:
    """Which cells of a notebook hold which library; to be asked for each output, in their order.

    A cell's figure may leave out its library if another cell has brought it since the cell ran before, or this run has.
    So whatever a person does to the other cells, running this one again brings it along.
    """

    def __init__(self) -> None:
        self._turn = 0
        self.cells: OrderedDict[str, tuple[str, int, int]] = OrderedDict()
        """By id: the last run, its turn, and the turn of the run before."""
        self.held: OrderedDict[str, dict[str, int]] = OrderedDict()

    def leaves_out(self, name: str, place: CellRun) -> bool:
        """Return whether the library is in the notebook; if it is not, it comes with this output."""
        for cell in place.gone:
            self.forget(cell)
        run, turn, before = self.cells.pop(place.cell, ("", 0, 0))
        if run != place.run:
            self.forget(place.cell)
            self._turn += 1
            run, turn, before = place.run, self._turn, turn
        self.cells[place.cell] = run, turn, before
        holders = self.held.setdefault(name, {})
        self.held.move_to_end(name)
        if len(self.cells) > MAX_CELLS:
            self.forget(self.cells.popitem(last=False)[0])
        if len(self.held) > MAX_LIBRARIES:
            self.held.popitem(last=False)
        if any(held == turn if cell == place.cell else held > before for cell, held in holders.items()):
            return True
        holders[place.cell] = turn
        return False

    def forget(self, cell: str) -> None:
        """Note that what a cell has shown is gone."""
        for holders in self.held.values():
            holders.pop(cell, None)
