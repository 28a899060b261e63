"""Draw the rooms of the code and which of them imports which, read from the sources.

    python scripts/draw_rooms.py            # print the drawing
    python scripts/draw_rooms.py --write    # put it into design/architecture.md

`tests/test_architecture.py` checks the import rule with the functions of this file, and fails if
the page has another drawing.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "design" / "architecture.md"
BEGIN, END = "<!-- drawn by scripts/draw_rooms.py -->", "<!-- end of the drawing -->"

WORDS = {"types", "policy", "ledger", "logs", "prompts", "registry", "__version__"}
"""Top-level modules that every room shares; the other ones are the public doors."""


class Import(NamedTuple):
    """One import of one module."""

    name: str
    """The imported module, or the name imported from one of the two top packages."""
    lazy: bool
    """Whether it is inside a function, and so loaded only when it is needed."""


def room(module: str) -> str:
    """Return the room of a module of ours, by its dotted name."""
    first, *rest = module.removeprefix("continuation").lstrip(".").split(".")
    if first == "providers":
        return f"providers/{rest[0]}" if rest else "providers"
    if first and (ROOT / "continuation" / first).is_dir():
        return first
    if first == "__main__":
        return "cli"
    return "words" if first in WORDS else "doors"


def modules() -> Iterator[tuple[str, Path]]:
    """Yield every module of ours: its dotted name and its file."""
    for top, prefix in (("continuation", ""), ("providers", "continuation.")):
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if parts[:2] != ("continuation", "providers"):  # a link to the top-level folder
                yield prefix + ".".join(p for p in parts if p != "__init__"), path


def imports(path: Path) -> Iterator[Import]:
    """Yield the imports of a file, without those that only type checkers read."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = [n for n in tree.body if isinstance(n, ast.If)]
    unseen = {id(inner) for block in for_types for inner in ast.walk(block)}
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if id(node) in unseen:
            continue
        lazy = id(node) not in top
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            by_name = node.module in {"continuation", "continuation.providers"}
            for alias in node.names:
                yield Import(f"{node.module}.{alias.name}" if by_name else node.module, lazy)


def arrows() -> dict[str, dict[str, bool]]:
    """Return, for each room, the rooms it imports, with whether it does so only lazily."""
    drawn: dict[str, dict[str, bool]] = defaultdict(dict)
    for module, path in modules():
        importer = room(module)
        drawn[importer].update({})
        for name, lazy in imports(path):
            if name.split(".")[0] == "continuation" and (imported := room(name)) != importer:
                drawn[importer][imported] = lazy and drawn[importer].get(imported, True)
    return drawn


def lines_of(wanted: str) -> int:
    """Return how many lines of source a room has."""
    files = (path for module, path in modules() if room(module) == wanted)
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def floors(drawn: dict[str, dict[str, bool]]) -> list[list[str]]:
    """Return the rooms in floors, the top one first: a room stands above all it imports.

    Lazy imports do not count. Raises `ValueError` when rooms import each other in a circle.
    """
    left = {name: {t for t, lazy in others.items() if not lazy} for name, others in drawn.items()}
    stacked: list[list[str]] = []
    while left:
        free = sorted(name for name, others in left.items() if not others & left.keys())
        if not free:
            message = f"these rooms import each other: {', '.join(sorted(left))}"
            raise ValueError(message)
        stacked.insert(0, free)
        for name in free:
            del left[name]
    return stacked


def drawing() -> str:
    """Return the floors as text, the top one first."""
    drawn = arrows()
    out = ["```"]
    for floor in floors(drawn):
        for name in floor:
            imported = [f"({t})" if lazy else t for t, lazy in sorted(drawn[name].items())]
            out.append(f"{name:<28}-> {', '.join(imported) or 'nothing'}".rstrip())
        out.append("")
    return "\n".join([*out[:-1], "```"])


def page_with(text: str) -> str:
    """Return the page with `text` in the place of its drawing."""
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page_with(drawing()), encoding="utf-8")
    else:
        print(drawing())
