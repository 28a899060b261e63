"""The form of log lines: an event, then its fields."""

from __future__ import annotations

import re

_BARE = re.compile(r"[\w./:@+~*#-]+")


def line(event: str, **known: object) -> str:
    """Return `event: name=value ...`; fields that are `None` or empty are left out.

    A value with spaces or other signs is quoted. Line breaks in it become spaces.
    """
    words = {name: " ".join(str(value).split()) for name, value in known.items()}
    given = (
        f"{name}={_quoted(words[name])}"
        for name in known
        if known[name] is not None and words[name]
    )
    pairs = " ".join(given)
    return f"{event}: {pairs}" if pairs else event


def _quoted(value: str) -> str:
    if _BARE.fullmatch(value):
        return value
    return f"'{value}'" if '"' in value else f'"{value}"'
