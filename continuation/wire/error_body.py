"""The body of an error answer: what the error is called, and what it says.

The first may stand in a report, the second never does: it can quote the caller's own text.
"""

from __future__ import annotations

import re

from continuation.types import Json
from continuation.wire.json_values import as_json, as_list, as_text, loads

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


def word(value: object) -> str:
    """Return a server's word for something; `""` for a text that may say anything."""
    text = as_text(value)
    return text if _WORD.fullmatch(text) else ""


def label_of(status: int, body: bytes) -> str:
    """Return the status and the server's word for the error, if it has one."""
    outer = _decoded(body)
    for error in (as_json(outer.get("error")), outer):
        for key in ("code", "type", "status"):
            if told := word(error.get(key)):
                return f"{status} {told}"
    return str(status)


def message_of(body: bytes) -> str:
    """Return what `error.message` says."""
    return as_text(as_json(_decoded(body).get("error")).get("message"))


def _decoded(body: bytes) -> Json:
    try:
        told = loads(body)
    except ValueError:
        return {}
    return as_json(next(iter(as_list(told)), told))  # a stream's error comes in an array
