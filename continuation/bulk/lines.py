"""Reads and writes requests and results as lines of JSON, in the forms of the batch APIs.

The shapes of the formats name the places of the request and the answer in a line. The line's id is
in `custom_id`, `key`, `metadata.key` or `id`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple, cast

from continuation.attach.elsewhere import body_of
from continuation.providers.contract import Shape
from continuation.registry import shapes
from continuation.types import Json
from continuation.wire.json_values import as_int, as_json, as_text

_ID = ("custom_id", "key", "id")


class FileLine(NamedTuple):
    """One line of a file that is not empty."""

    number: int
    offset: int
    raw: bytes
    value: Json | None
    """The JSON object in the line; `None`: there is none."""


def lines_of(path: Path) -> Iterator[FileLine]:
    """Yield the lines of a file that are not empty."""
    offset = 0
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            if raw.strip():
                yield FileLine(number, offset, raw, object_in(raw))
            offset += len(raw)


def object_in(line: bytes) -> Json | None:
    """Return the JSON object in a line; `None`: there is none."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):  # drop the error: its text may quote the line
        return None
    return cast("Json", value) if isinstance(value, dict) else None


def format_of(line: Json) -> str | None:
    """Return the name of a line's format by its form; `None`: the form does not show it."""
    _, request = request_in(line)
    return next(
        (name for name, each in shapes().items() if each.is_batch_line(line, request)), None
    )


def is_prompt(line: Json) -> bool:
    """Whether a line is only a prompt. A stored prompt of a Responses request is an object."""
    return "prompt" in line and not isinstance(line["prompt"], dict)


def has_turns(request: Json) -> bool:
    """Whether a request has a conversation in any format, or a stored prompt."""
    return bool({"prompt", *(shape.messages for shape in shapes().values())} & request.keys())


def request_in(line: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the id of a line (`""`: none) and its request."""
    request = dict(line)
    for shape in shapes().values():
        if inner := as_json(request.get(shape.batch_request)):
            return id_of(request), inner
    return _id_text(request.pop("id", "")), request


class RequestIds:
    """Makes ids for requests without one: a digest, and a count of repetitions."""

    def __init__(self) -> None:
        self._seen = dict[bytes, int]()

    def of(self, request: Mapping[str, Any]) -> str:
        """Return an id. The same requests in the same order have the same ids in any process."""
        document = json.dumps(request, sort_keys=True, default=_lasting)
        digest = hashlib.sha256(document.encode(errors="surrogatepass")).digest()[:8]
        count = self._seen[digest] = self._seen.get(digest, 0) + 1
        return digest.hex() if count == 1 else f"{digest.hex()}-{count}"


def _lasting(value: object) -> str:
    """Return a text that is the same in any process; for a function or a class, its name."""
    return str(getattr(value, "__qualname__", value))


def id_of(line: Json) -> str:
    """Return the id of a line of a batch API or of our own output; `""`: none."""
    # In a bare request, `metadata` is part of the request.
    is_bare = any(shape.messages in line for shape in shapes().values())
    metadata = {} if is_bare else as_json(line.get("metadata"))
    ids: list[object] = [*(line.get(name) for name in _ID), metadata.get("key")]
    return next((text for each in ids if (text := _id_text(each))), "")


def _id_text(value: object) -> str:
    """Return an id as a text; it may be a number."""
    return str(as_text(value) if as_int(value) is None else value)


def answer_in(line: Json) -> Json | None:
    """Return the answer in a line of results; `None`: there is none, as for an error."""
    located = _answer(line)
    return None if located is None else located[1]


def is_cut(answer: Json) -> bool:
    """Whether an answer, or one of its choices, says that it was truncated."""
    return any(shape.is_truncated(answer) for shape in shapes().values())


def _shape(answer: Json) -> Shape | None:
    """Return the format of an answer; `None`: it is not an answer."""
    return next((shape for shape in shapes().values() if shape.is_answer(answer)), None)


def failure_in(line: Json) -> str:
    """Return types and codes of a result line's error, with commas between; `""`: none."""
    result, response = as_json(line.get("result")), as_json(line.get("response"))
    error = (
        as_json(result.get("error")) or as_json(line.get("error")) or as_json(line.get("status"))
    )
    error = error or as_json(as_json(response.get("body")).get("error"))
    error = as_json(error.get("error")) or error
    values = [result.get("type"), *(error.get(key) for key in ("type", "code", "status"))]
    return ", ".join(str(each) for each in values if each and isinstance(each, str | int))


def with_answer(line: Json, answer: Json) -> Json:
    """Return a line of results with its answer replaced."""
    located = _answer(line)
    if located is None:
        return line
    outer, *inner = located[0]
    return {**line, outer: {**as_json(line[outer]), inner[0]: answer} if inner else answer}


def _answer(line: Json) -> tuple[tuple[str, ...], Json] | None:
    for path in {shape.batch_answer: None for shape in shapes().values() if shape.batch_answer}:
        answer = reduce(lambda value, key: as_json(value.get(key)), path, line)
        if _shape(answer) is not None:
            return path, answer
    return None


def answer_json(answer: object) -> Json:
    """Return the JSON of an answer that an SDK returned."""
    return as_json(body_of(answer))


def text_of(answer: Json) -> str:
    """Return the visible text of an answer's JSON."""
    shape = _shape(answer)
    return "" if shape is None else shape.text(answer)
