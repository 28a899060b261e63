"""A hook of mkdocs: links from a page of `design/` to files outside of it become absolute.

The first page is the README.
"""

from __future__ import annotations

import posixpath
from typing import Any

from absolute_links import ROOT, absolute

_HOME, _FOLDER = "index.md", "design/"


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:
    """Return the Markdown of a page as the site shows it."""
    name: str = page.file.src_uri
    where = _FOLDER + name
    if name == _HOME:
        markdown, where = (ROOT / "README.md").read_text(encoding="utf-8"), "README.md"

    def keep(path: str) -> str | None:
        if not path.startswith(_FOLDER) or path.endswith("/"):
            return None
        return posixpath.relpath(path, posixpath.dirname(_FOLDER + name))

    return absolute(markdown, where, keep)
