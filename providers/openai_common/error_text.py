"""What an error answer of an OpenAI-compatible server says, whatever its body looks like.

`{"error": {...}}` is OpenAI's; `{"error": "text"}` xAI's; `{"message": ...}` vLLM's and SGLang's;
`[{"error": {...}}]` Gemini's; `metadata.raw` holds the upstream's body in OpenRouter's; `detail` is
a text or a list of `{"loc", "msg"}` in validators'. A proxy's page is no JSON at all.

Only the fields errors travel in are read: a validator repeats the caller's own input, and a prompt
may speak of anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice

from continuation.wire.json_values import as_json, as_list, as_text, loads

_FIELDS = ("error", "message", "msg", "detail", "details", "errors", "metadata", "raw")
_MOST_TEXT = 4_000
"""Characters of one message that are looked at: a body can be a whole page of HTML."""
_MOST_MESSAGES = 16
"""A validator that complains of every message of a long history says the same each time."""
_MOST_NESTED = 8
_QUOTES = re.compile("[`'\"‘’“”\\\\]")  # noqa: RUF001 -- the quotes of other languages


def text_of(body: bytes) -> str:
    """Return the messages in a body, one to a line, without quotes and with single spaces.

    The parameter a message is about and the server's codes are part of it.
    """
    said = islice(filter(None, _said(_decoded(body), 0)), _MOST_MESSAGES)
    return "\n".join(re.sub(r"\s+", " ", _QUOTES.sub("", text)) for text in said)


def _decoded(body: bytes | str) -> object:
    """Decode JSON, or else text."""
    try:
        return loads(body)
    except ValueError:
        return body if isinstance(body, str) else body.decode("utf-8", "replace")


def _said(value: object, depth: int) -> Iterator[str]:
    if depth > _MOST_NESTED:
        return
    if isinstance(value, str):
        yield from _unwrapped(value, depth)
        return
    for item in as_list(value):
        yield from _said(item, depth + 1)
    if error := as_json(value):
        yield from _told(error, depth)


def _unwrapped(text: str, depth: int) -> Iterator[str]:
    """A gateway hands its upstream's error on as a text that is JSON again."""
    inner = _decoded(text) if text.lstrip()[:1] in {"{", "["} else text
    if isinstance(inner, str):
        yield inner[:_MOST_TEXT]
    else:
        yield from _said(inner, depth + 1)


def _told(error: Mapping[str, object], depth: int) -> Iterator[str]:
    codes = " ".join(filter(None, (as_text(error.get(key)) for key in ("type", "code"))))
    place = as_text(error.get("param")) or ".".join(map(str, as_list(error.get("loc"))))
    yield codes[:_MOST_TEXT]
    for key in _FIELDS:
        for said in _said(error.get(key), depth + 1):
            yield f"{place[:100]}: {said}" if place else said
