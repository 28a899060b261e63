"""The providers' error texts for invalid histories, and the repair of each rule (`rules.toml`)."""

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
"""The code of a rule -> the name of its repair."""


@cache
def texts(dialect: str) -> Mapping[str, str]:
    """Return the provider's error texts, by the code of the rule."""
    by_rules = {**TABLE[dialect], **TABLE["every"]}
    return {rule: text for rules, text in by_rules.items() for rule in rules.split()}
