"""Tables of cases, as tests write them: a case to a line, its cells between bars."""

from __future__ import annotations

from typing import Any

from continuation.types import Stop, ToolCallState


def rows(table: str) -> list[list[str]]:
    """Read a table, a case to a line; an indented line goes on with the one before."""
    lines = table.strip().replace("\n  ", " ").splitlines()
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def words(cell: str) -> dict[str, Any]:
    """Read facts: a stop reason, `flag`, `-flag`, `name=value`."""
    told: dict[str, Any] = {}
    for word in cell.split():
        name, _, value = word.partition("=")
        if word in set(Stop):
            told["stop"] = Stop(word)
        elif name == "call":
            told[name] = ToolCallState(value)
        elif value:
            told[name] = int(value) if value.isdigit() else value
        else:
            told[name.lstrip("-")] = not name.startswith("-")
    return told
