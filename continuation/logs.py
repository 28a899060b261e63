"""The form of log lines: an event, then its fields."""

from __future__ import annotations

import re

_BARE = re.compile(r"[\w./:@+~*#-]+")


def line(event: str, **known: object) -> str:
    """Return `event: name=value ...`; fields that are `None` or empty are left out.

    A value with spaces or other signs is quoted. Line breaks in it become spaces.
    """
    # Half a surrogate pair, which JSON may hold, cannot be written to a file.
    given = [
        (name, str(value).encode(errors="backslashreplace").decode())
        for name, value in known.items()
        if value is not None
    ]
    pairs = " ".join(f"{name}={_quoted(' '.join(text.split()))}" for name, text in given if text)
    return f"{event}: {pairs}" if pairs else event


def _quoted(value: str) -> str:
    if _BARE.fullmatch(value):
        return value
    return f"'{value}'" if '"' in value else f'"{value}"'
