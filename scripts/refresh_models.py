"""Refresh continuation/limits/models.toml from a local copy of litellm's model price list.

    python scripts/refresh_models.py model_prices_and_context_window.json            # shows a diff
    python scripts/refresh_models.py model_prices_and_context_window.json --write

Only entries of a model's own vendor count; a reseller may set limits of its own.
Rows with `pin = true` stay as they are, and so do comments and the order of the rows. A row changes

- its ceiling, if no model of the family has the row's number in the data set any more; of several
  numbers the lowest is taken, and the models with another one are named on stderr;
- its window, if the set has a larger one: its number is an input limit, so a smaller one does not
  contradict the row;
- its prefill, if the set has the same value for every model of the family.

Models that no row covers are added at the end, to be moved to their family by hand.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from continuation.limits import ModelRow, parse, pick, spellings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Entry = dict[str, Any]

TABLE: Final = Path(__file__).parents[1] / "continuation" / "limits" / "models.toml"
SOURCE: Final = "litellm"
KEYS: Final = (
    "match", "ceiling", "window", "prefill", "thinking",
    "binding", "window_shared", "source", "date", "pin",
)  # fmt: skip
VENDORS: Final = frozenset({
    "anthropic", "cohere_chat", "dashscope", "deepseek", "gemini", "meta_llama",
    "minimax", "mistral", "moonshot", "openai", "xai", "zai",
})  # fmt: skip
_ROW: Final = re.compile(r"^ *\{ match = ")


class BadInputError(Exception):
    """The data set cannot be used; the message names the file, what is wrong and the remedy."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What the data set contains on one model."""

    name: str
    ceiling: int
    window: int
    prefill: bool | None
    thinks: bool


def offers(path: Path) -> list[Offer]:
    """Read the vendors' own chat models from the data set; raises BadInputError."""
    try:
        data: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        message = f"{path}: cannot be read as JSON ({error}); pass a local copy of litellm's file"
        raise BadInputError(message) from error
    entries = cast("Entry", data).items() if isinstance(data, dict) else ()
    models = [_offer(name, entry) for name, entry in entries if _usable(name, entry)]
    if not models:
        message = (
            f"{path}: no vendor's chat model with max_output_tokens in it; is it the right file?"
        )
        raise BadInputError(message)
    return models


def _usable(name: str, entry: object) -> bool:
    if not isinstance(entry, dict):
        return False
    facts = cast("Entry", entry)
    return (
        facts.get("mode") in {"chat", "responses"}
        and facts.get("litellm_provider") in VENDORS
        and name.count("/") <= 1
        and not name.startswith("ft:")
        and isinstance(facts.get("max_output_tokens"), int)
        and facts["max_output_tokens"] > 0
    )


def _offer(name: str, entry: Entry) -> Offer:
    window = entry.get("max_input_tokens")
    return Offer(
        name=name,
        ceiling=entry["max_output_tokens"],
        window=window if isinstance(window, int) else 0,
        prefill=entry.get("supports_assistant_prefill"),
        thinks=entry.get("supports_reasoning") is True,
    )


def refresh(text: str, offered: Iterable[Offer], date: str) -> tuple[str, list[str]]:
    """Return the refreshed table, and a note for each model with another ceiling than its row."""
    rows, notes = parse(text), list[str]()
    by_match, new = _sorted_in(rows, offered)
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if _ROW.match(line) and (family := by_match.get(_read(line)["match"])):
            lines[number] = _updated(line, family, date, notes)
    end = lines.index("]")
    lines[end:end] = [_added(name, group, date) for name, group in sorted(new.items())]
    result = "\n".join(lines) + "\n"
    parse(result)  # raises if what is to be written is not readable
    return result, notes


def _sorted_in(
    rows: Sequence[ModelRow], offered: Iterable[Offer]
) -> tuple[dict[str, list[Offer]], dict[str, list[Offer]]]:
    """Group the offers by the row that covers them, and the others by their shortest spelling."""
    covered: dict[str, list[Offer]] = {}
    new: dict[str, list[Offer]] = {}
    for offer in offered:
        if row := pick(rows, offer.name):
            covered.setdefault(row.match, []).append(offer)
        else:
            new.setdefault(min(spellings(offer.name), key=len), []).append(offer)
    return covered, new


def _updated(line: str, family: list[Offer], date: str, notes: list[str]) -> str:
    row = _read(line)
    if row.get("pin"):
        return line
    changes = {**_ceiling(row, family, notes), **_window(row, family), **_prefill(row, family)}
    return _render({**row, **changes, "source": SOURCE, "date": date}) if changes else line


def _ceiling(row: Entry, family: list[Offer], notes: list[str]) -> Entry:
    numbers = {offer.ceiling for offer in family}
    chosen = row["ceiling"] if row["ceiling"] in numbers else min(numbers)
    notes += [
        f"{row['match']}: {chosen:_} kept, but {offer.name} has {offer.ceiling:_}"
        for offer in family
        if offer.ceiling != chosen
    ]
    return {} if chosen == row["ceiling"] else {"ceiling": chosen}


def _window(row: Entry, family: list[Offer]) -> Entry:
    largest = max(offer.window for offer in family)
    return {"window": largest} if "window" in row and largest > row["window"] else {}


def _prefill(row: Entry, family: list[Offer]) -> Entry:
    values = {offer.prefill for offer in family}
    if len(values) != 1 or None in values or values == {row.get("prefill", False)}:
        return {}
    return {"prefill": values.pop()}


def _added(name: str, group: list[Offer], date: str) -> str:
    return _render(
        {
            "match": name,
            "ceiling": min(offer.ceiling for offer in group),
            "window": max(offer.window for offer in group),
            "prefill": all(offer.prefill for offer in group),
            "thinking": "adaptive" if any(offer.thinks for offer in group) else "none",
            "source": SOURCE,
            "date": date,
        }
    )


def _read(line: str) -> Entry:
    row: Entry = tomllib.loads(f"row = {line.strip().rstrip(',')}")["row"]
    return row


def _render(row: Entry) -> str:
    """Return a row's line: the keys in fixed order, without those that have their default."""
    fields = {key: row[key] for key in KEYS if row.get(key) and row[key] != "none"}
    return "  { " + ", ".join(f"{key} = {_value(value)}" for key, value in fields.items()) + " },"


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:_}" if isinstance(value, int) else json.dumps(value)


def main(argv: Sequence[str] | None = None) -> int:
    """Show or write the refreshed table; the exit code is 1 if the data set cannot be used."""
    options = _options(argv)
    before = options.table.read_text(encoding="utf-8")
    try:
        after, notes = refresh(before, offers(options.data), options.date)
    except BadInputError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stderr.writelines(f"{note}\n" for note in notes)
    sys.stdout.writelines(_diff(before, after, options.table.name))
    if options.write and after != before:
        options.table.write_text(after, encoding="utf-8")
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Refresh models.toml from a public data set.")
    parser.add_argument(
        "data", type=Path, help="local copy of model_prices_and_context_window.json"
    )
    parser.add_argument("--table", type=Path, default=TABLE, help="the table to refresh")
    parser.add_argument("--date", default=f"{datetime.now(UTC):%Y-%m-%d}", help="date of the data")
    parser.add_argument("--write", action="store_true", help="write the table, not only a diff")
    return parser.parse_args(argv)


def _diff(before: str, after: str, name: str) -> Iterable[str]:
    old, new = (text.splitlines(keepends=True) for text in (before, after))
    return difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", n=0)


if __name__ == "__main__":
    sys.exit(main())
