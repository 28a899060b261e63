"""What providers say to broken histories, and the repair of each rule: `rules.toml`, read."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

TABLE: Final[Mapping[str, Any]] = tomllib.loads(
    files("continuation.history").joinpath("rules.toml").read_text(encoding="utf-8")
)
REPAIRS: Final[Mapping[str, str]] = {
    rule: repair for repair, row in TABLE["repairs"].items() for rule in row["rules"].split()
}
"""The repair for each rule, by the rule's code."""


@cache
def texts(dialect: str) -> Mapping[str, str]:
    """Return a provider's error text for each rule of its dialect."""
    by_rules = {**TABLE[dialect], **TABLE["every"]}
    return {rule: text for rules, text in by_rules.items() for rule in rules.split()}
