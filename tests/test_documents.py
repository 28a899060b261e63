"""What the documents name is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    *ROOT.glob("*.md"),
    *ROOT.glob("design/**/*.md"),
    *ROOT.glob("tests/**/*.md"),
]
FILES = {
    path.relative_to(ROOT).as_posix()
    for top in ("continuation", "providers", "tests", "scripts", "examples")
    for path in (ROOT / top).rglob("*.py")
}
OTHERS = {"some_long_file.py", "_pydecimal.py", "NAME.py", "my_agent.py"}
"""Python files in examples, and of the standard library."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_names_files_that_exist(page: Path) -> None:
    named = set(re.findall(r"[\w/.-]*\w\.py\b", page.read_text(encoding="utf-8")))
    gone = {
        name
        for name in named
        if name.rsplit("/", 1)[-1] not in OTHERS
        and not any(f"/{file}".endswith(f"/{name.lstrip('./')}") for file in FILES)
    }
    assert gone == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_names_tests_that_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for file, name in set(re.findall(r"([\w/]+\.py)::(\w+)", text)):
        found = [path for path in FILES if f"/{path}".endswith(f"/{file}")]
        assert any(f"def {name}(" in (ROOT / path).read_text() for path in found), (file, name)


@cache
def members() -> dict[str, set[str]]:
    """Return our classes' names, with the names of all methods and attributes in them."""
    found: dict[str, set[str]] = {}
    for file in FILES:
        if not file.startswith(("continuation/", "providers/")):
            continue
        for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                names = found.setdefault(node.name, set())
                for part in ast.walk(node):
                    names |= {getattr(part, key, "") or "" for key in ("name", "id", "attr")}
    return found


THEIRS = {"Connection.wait"}
"""Methods of other packages' classes."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_names_members_that_exist(page: Path) -> None:
    ours = members()
    named = re.findall(r"`((\w+)\.(\w+)(?:\([^`]*\))?)`", page.read_text(encoding="utf-8"))
    gone = [whole for whole, owner, name in named if owner in ours and name not in ours[owner]]
    assert set(gone) - THEIRS == set()
