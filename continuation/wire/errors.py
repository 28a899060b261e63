"""Reads the body of an error answer.

A report may contain the name of an error. It never contains the message, because that can quote the
caller's text.
"""

from __future__ import annotations

import re

from continuation.types import Json
from continuation.wire.json_values import as_json, as_list, as_text, loads

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


def word(value: object) -> str:
    """Return a value if it is an identifier, such as an error's name; `""` for free text."""
    text = as_text(value)
    return text if _WORD.fullmatch(text) else ""


def label_of(status: int, body: bytes) -> str:
    """Return the status and the server's name for the error, such as "404 not_found_error"."""
    outer = _decoded(body)
    for error in (as_json(outer.get("error")), outer):
        for key in ("code", "type", "status"):
            if label := word(error.get(key)):
                return f"{status} {label}"
    return str(status)


def message_of(body: bytes) -> str:
    """Return the text of `error.message`, or of `message` (AWS); `""`: there is none."""
    error = _decoded(body)
    return as_text(as_json(error.get("error")).get("message")) or as_text(error.get("message"))


def _decoded(body: bytes) -> Json:
    try:
        document = loads(body)
    except ValueError:
        return {}
    return as_json(next(iter(as_list(document)), document))  # the error of a stream is in an array
