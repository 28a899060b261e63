"""Draw the table of all policies from their docstrings.

    python scripts/draw_keys.py            # print the table
    python scripts/draw_keys.py --write    # put it into design/tuning.md

`tests/test_policy.py` fails if the page has another table.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from dataclasses import fields
from pathlib import Path

from continuation.policy import Policy, possible

PAGE = Path(__file__).resolve().parents[1] / "design" / "tuning.md"


def docstrings() -> dict[str, str]:
    """Return the docstring of each field of `Policy`, by the field's name."""
    [policy] = ast.parse(inspect.getsource(Policy)).body
    assert isinstance(policy, ast.ClassDef)
    texts = dict[str, str]()
    for field, below in zip(policy.body, policy.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            texts[ast.unparse(field.target)] = " ".join(str(ast.literal_eval(below.value)).split())
    return texts


def table() -> str:
    """Return a row for each key: its default, its possible values, its docstring."""
    rows, texts = list[str](), docstrings()
    for item in fields(Policy):
        default = f'"{item.default}"' if isinstance(item.default, str) else str(item.default)
        default = default.lower() if isinstance(item.default, bool) else default
        rows.append(f"| `{item.name}` | `{default}` | {possible(item.name)} | {texts[item.name]} |")
    return "\n".join(rows)


def with_table(page: str) -> str:
    """Return the page with the rows of its table replaced."""
    rows = re.compile(r"(?<=\|---\|---\|---\|---\|\n)(?:\| `.*\n)+")
    return rows.sub(lambda _: table() + "\n", page, count=1)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(table())
