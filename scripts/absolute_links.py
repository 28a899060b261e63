"""Make the relative links of a page absolute, for readers outside the repository.

    python scripts/absolute_links.py README.md > elsewhere/README.md

The base is `[tool.continuation] source` in pyproject.toml, and is set nowhere else.
"""

from __future__ import annotations

import posixpath
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def base() -> str:
    """Return the URL of the sources, with a slash at its end."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(settings["tool"]["continuation"]["source"]).rstrip("/") + "/"


def absolute(text: str, page: str, keep: Callable[[str], str | None] = lambda _: None) -> str:
    """Return `text`, the page at path `page` in the repository, with absolute links.

    `keep`: returns the relative link to keep for a path in the repository, or None for none.
    Raises `ValueError` for a link to a path that does not exist.
    """

    def link(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        path, sign, fragment = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        if not (ROOT / path).exists():
            raise ValueError(f"{page}: links to {path}, which is not there")
        near = keep(path)
        far = base().replace("/blob/", "/raw/") if picture else base()
        return f"{picture}[{words}]({near or far + path}{sign}{fragment})"

    return _LINK.sub(link, text)


if __name__ == "__main__":
    print(absolute((ROOT / sys.argv[1]).read_text(encoding="utf-8"), sys.argv[1]), end="")
