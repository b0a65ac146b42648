"""What `mkdocs build` cannot do by itself: pages of the repository's root, and links that leave docs/.

The same links lead somewhere in the repository, on a forge and in the built pages.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "index.md",
    **{name: name for name in ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")},
}
"""Pages of the root, and their addresses among the built pages."""

LINK = re.compile(r"(!?)\[((?:[^\[\]]|`[^`]*`)+)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root; put the pages of decisions, which the navigation names as one folder, into it."""
    for name, address in PAGES.items():
        files.append(File.generated(config, address, content=(ROOT / name).read_text(encoding="utf-8")))
    decisions = sorted(path.name for path in (ROOT / "docs/design").glob("*.md"))
    decisions.sort(key=lambda name: name != "index.md")
    _replace(config.nav, "design/", [f"design/{name}" for name in decisions])
    return files


def _replace(nav: object, old: str, new: list[str]) -> None:
    for item in nav if isinstance(nav, list) else nav.values() if isinstance(nav, dict) else ():
        if isinstance(item, dict):
            item.update({title: new for title, value in item.items() if value == old})
        _replace(item, old, new)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to where pages are among the built ones; a link to another file becomes its text."""
    here = page.file.src_uri
    original = next((name for name, address in PAGES.items() if address == here), f"docs/{here}")
    code = re.compile(r"(```.*?```)", re.DOTALL)

    def moved(found: re.Match[str]) -> str:
        image, text, target = found.groups()
        if "://" in target or target.startswith("#"):
            return found[0]
        target, hash_mark, heading = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(original), target))
        address = PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if address is None or files.get_file_from_path(address) is None:
            # What is not there is left as it is, so that the strict build names it.
            return text if (ROOT / path).exists() else found[0]
        return f"{image}[{text}]({posixpath.relpath(address, posixpath.dirname(here) or '.')}{hash_mark}{heading})"

    parts = code.split(markdown)
    return "".join(part if part.startswith("```") else LINK.sub(moved, part) for part in parts)
