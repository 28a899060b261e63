"""What an answer of the simulator says of itself, whichever wire format it is in: no content."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from continuation.cli.words import number
from continuation.simulator.wire import Answer

_NESTS = (
    "message",
    "response",
    "choices",
    "candidates",
    "delta",
    "usage",
    "usageMetadata",
    "incomplete_details",
)
"""Where the formats put what is looked for. Not `output` or `content`: that is the answer."""
_IN = ("input_tokens", "prompt_tokens", "promptTokenCount")
_OUT = ("output_tokens", "completion_tokens")
_OUT_APART = ("candidatesTokenCount", "thoughtsTokenCount")
"""Gemini counts thinking beside the visible text, the others within the output."""
_STOP = ("stop_reason", "finish_reason", "finishReason", "reason", "status")
"""The first one found is told: Responses has a reason only where its status does not say all."""
_ERROR = ("type", "status", "code")
_FAILED = 400


def facts(answer: Answer) -> Iterator[str]:
    """Yield tokens in and out, why it ended, and the type of an error, as far as they are told."""
    found: dict[str, Any] = {}
    for document in _documents(answer):
        found |= dict(_told(document))
    spent = _first(found, _IN), _first(found, _OUT) or _sum(found, _OUT_APART)
    for label, count in zip(("in", "out"), spent, strict=True):
        if isinstance(count, int):
            yield f"{label} {number(count)}"
    for why in (_first(found, _STOP) if answer.status < _FAILED else None, found.get("error")):
        if why is not None:
            yield str(why)


def _documents(answer: Answer) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON of an answer that may say tokens: a body, or its first and last events."""
    events = [] if answer.events is None else [*answer.events[:1], *answer.events[-4:]]
    for raw in (answer.body.decode(errors="replace"), *(event.data for event in events)):
        with contextlib.suppress(ValueError):
            yield from _mappings(json.loads(raw))


def _mappings(value: object) -> Iterator[Mapping[str, Any]]:
    """Yield an object, or the first of a list: choices and candidates are told by their first."""
    listed = cast("list[object]", value) if isinstance(value, list) else [value]
    if listed and isinstance(first := listed[0], dict):
        yield cast("Mapping[str, Any]", first)


def _told(value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what is said here and, over it, what is said further in."""
    for name in (*_IN, *_OUT, *_OUT_APART, *_STOP):
        if isinstance(value.get(name), (str, int)):
            yield name, value[name]
    for error in _mappings(value.get("error")):
        yield "error", _first(error, _ERROR)
    for name in _NESTS:
        for inner in _mappings(value.get(name)):
            yield from _told(inner)


def _first(found: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((found[name] for name in names if found.get(name) is not None), None)


def _sum(found: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    counts = [found[name] for name in names if isinstance(found.get(name), int)]
    return sum(counts) if counts else None
