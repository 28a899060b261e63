"""Draw the engine's tables, from the tables themselves.

    python scripts/draw_tables.py            # print the drawing
    python scripts/draw_tables.py --write    # put it into design/decision-table.md

`tests/engine/test_table.py` fails if the page and the engine's tables differ.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from continuation.engine import sending, table
from continuation.engine.sending import PARTS, REMEDIES, RETRIES, STARTS, WAYS, Choice
from continuation.engine.table import (
    ANSWERS,
    ENDINGS,
    LABELS,
    OPENINGS,
    PROOFS,
    ROWS,
    AnyRow,
    Row,
    When,
)
from continuation.types import AttemptResult, Proof, StopWord, Way

PAGE = Path(__file__).resolve().parents[1] / "design" / "decision-table.md"
BEGIN, END = "<!-- drawn by scripts/draw_tables.py: {} -->", "<!-- end of the drawing -->"


def condition(row: AnyRow) -> str:
    """Return in words when a row fits."""
    conditions = [_all_of(row.when)] if row.when else []
    if row.either:
        conditions.append(f"({' or '.join(map(_all_of, row.either))})")
    return " and ".join(conditions) or "otherwise"


def _all_of(when: When) -> str:
    return ", ".join(_fact(name, wanted) for name, wanted in when.items())


def _fact(name: str, wanted: Any) -> str:
    if isinstance(wanted, bool):
        return f"`{name}`" if wanted else f"not `{name}`"
    if isinstance(wanted, frozenset):
        return f"`{name}` {' / '.join(sorted(map(str, wanted)))}"
    return f"`{name}` {wanted}"


def decisions(rows: Iterable[Row]) -> Iterator[str]:
    """Draw `OPENINGS` or `ROWS`, line by line."""
    yield "| row | when | then | outcome | reason |"
    yield "|---|---|---|---|---|"
    for row in rows:
        outcome, reason = row.outcome or "", row.reason or ""
        yield f"| {row.name} | {condition(row)} | `{row.action}` | {outcome} | {reason} |"


def labels() -> Iterator[str]:
    """Draw `LABELS`, line by line."""
    yield "| an attempt that | when | its stop counts as | its last call counts as |"
    yield "|---|---|---|---|"
    for row in LABELS:
        stop, call = row.stop or "unchanged", row.call or "unchanged"
        yield f"| {row.name} | {condition(row)} | {stop} | {call} |"


def answers() -> Iterator[str]:
    """Draw `ANSWERS`, line by line."""
    yield "| the new answer | when | kept |"
    yield "|---|---|---|"
    for row in ANSWERS:
        yield f"| {row.name} | {condition(row)} | {row.stands} |"


def proofs() -> Iterator[str]:
    """Draw `PROOFS`, line by line."""
    yield "| row | when | why the call stays truncated |"
    yield "|---|---|---|"
    for row in PROOFS:
        yield f"| {row.name} | {condition(row)} | {row.reason or 'none: continue or deliver'} |"


def endings() -> Iterator[str]:
    """Draw `ENDINGS`, line by line."""
    yield "| row | when | stop reason | buffered content | outcome |"
    yield "|---|---|---|---|---|"
    for row in ENDINGS:
        stop, held = row.stop or "unchanged", row.held if row.stop else "unchanged"
        yield f"| {row.name} | {condition(row)} | {stop} | {held} | {row.outcome or ''} |"


def choices(rows: Iterable[Choice[Any]]) -> Iterator[str]:
    """Draw a table of `sending.py`, line by line."""
    yield "| row | when | then |"
    yield "|---|---|---|"
    for row in rows:
        yield f"| {row.name} | {condition(row)} | `{row.then}` |"


def words(*kinds: type) -> Iterator[str]:
    """Draw the docstrings of the members of enumerations, or of the fields of facts.

    A fact that several tables use is drawn once; it must mean the same in each of them.
    """
    yield "| word | means |"
    yield "|---|---|"
    drawn = dict[str, str]()
    for kind in kinds:
        body = ast.parse(inspect.getsource(kind)).body[0]
        assert isinstance(body, ast.ClassDef)
        for this, following in zip(body.body, body.body[1:], strict=False):
            documented = isinstance(following, ast.Expr) and isinstance(
                following.value, ast.Constant
            )
            if documented and isinstance(this, ast.Assign):
                word = ast.literal_eval(this.value)
            elif documented and isinstance(this, ast.AnnAssign):
                word = ast.unparse(this.target)
            else:
                continue
            meaning = " ".join(str(ast.literal_eval(following.value)).split())  # type: ignore[attr-defined]
            if drawn.setdefault(word, meaning) != meaning:
                message = f"{word!r} has two meanings"
                raise ValueError(message)
    yield from (f"| `{word}` | {meaning} |" for word, meaning in drawn.items())


def drawings() -> dict[str, str]:
    """Return each drawing by the name it has in the page."""
    drawn = {
        "openings": decisions(OPENINGS),
        "labels": labels(),
        "rows": decisions(ROWS),
        "answers": answers(),
        "proofs": proofs(),
        "endings": endings(),
        "actions": words(table.Action),
        "starts": choices(STARTS),
        "start words": words(sending.Start),
        "remedies": choices(REMEDIES),
        "remedy words": words(sending.Remedy),
        "retries": choices(RETRIES),
        "retry words": words(sending.Retry),
        "ways": choices(WAYS),
        "way words": words(Way),
        "parts": choices(PARTS),
        "part words": words(sending.NextPart),
        "facts": words(
            table.OpeningFacts,
            AttemptResult,
            table.Evidence,
            table.Situation,
            table.Again,
            Proof,
            table.Closing,
            sending.StartFacts,
            sending.RemedyFacts,
            sending.RetryFacts,
            sending.WayFacts,
            sending.PartFacts,
        ),
        "ends": words(StopWord, table.Held, table.Stands),
    }
    return {name: "\n".join(lines) for name, lines in drawn.items()}


def with_drawings(page: str) -> str:
    """Return the page with every drawing replaced; `ValueError` if a place is not there once."""
    for name, drawn in drawings().items():
        begin = BEGIN.format(name)
        pattern = f"{re.escape(begin)}.*?{re.escape(END)}"
        found = re.subn(pattern, lambda _: f"{begin}\n\n{drawn}\n\n{END}", page, flags=re.DOTALL)  # noqa: B023
        page, count = found
        if count != 1:
            message = f"the page has {count} places for {name!r}"
            raise ValueError(message)
    return page


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(with_drawings(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(*drawings().values(), sep="\n\n")
