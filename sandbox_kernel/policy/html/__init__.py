"""HTML: sanitised if it is markup, in a frame of its own if it is a program.

- `bounds`: Elements, cells, depth and text of what is kept, and what our own parser bears.
- `rendering`: Which of the two a source is, what of it is kept, and the markup that a page shows.
"""

from __future__ import annotations

from .rendering import MAX_TEXT, as_text, escape, render, sanitise

__all__ = ["MAX_TEXT", "as_text", "escape", "render", "sanitise"]
