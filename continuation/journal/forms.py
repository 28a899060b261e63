"""Digests by which a journal recognizes messages and requests; and tool calls from SDKs.

Digests compare messages by their content only. An SDK adds fields of its own when it sends an
answer back, and a caller may write a text as a string where the provider wrote a block.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final

from continuation.journal.errors import JournalError
from continuation.providers.contract import ParsedCall, Shape
from continuation.registry import dialects, shapes
from continuation.types import Json
from continuation.wire.json_values import as_json, dumps, is_list, is_map, loads

_EMPTY: Final[tuple[object, ...]] = (None, [], {})


def digest(value: object, shape: Shape | None = None) -> str:
    """Return a digest of 32 hex digits; with a shape, equal for messages with the same content."""
    return hashlib.sha256(dumps(_normalized(value, shape))).hexdigest()[:32]


def request_digest(
    form: str,
    shape: Shape,
    model: str,
    body: Json,
    digests: Iterable[str],
    *,
    exactly: bool = False,
) -> str:
    """Return a digest that is equal for equal requests.

    `digests`: the digests of the request's messages. `exactly`: all other options count too,
    except limits and streaming.
    """
    identity = {key: body[key] for key in shape.identity if body.get(key) not in _EMPTY}
    options = [shape.options(body)] if exactly else []
    return digest([form, model, identity, *options, *digests], shape)


def _normalized(value: object, shape: Shape | None, key: str = "") -> object:
    if is_map(value):
        ignored = shape.ignored if shape is not None else frozenset[str]()
        fields = {
            name: _normalized(each, shape, name)
            for name, each in sorted(value.items())
            if name not in ignored
        }
        return {name: each for name, each in fields.items() if each not in _EMPTY}
    if is_list(value):
        value = [_normalized(each, shape) for each in value]
    return value if shape is None else shape.normalized(value, key)


def tool_call(call: object) -> ParsedCall:
    """Return a parsed call from an SDK's object, from an answer's JSON, or from `Resume`.

    Raises `TypeError` for anything else.
    """
    if isinstance(call, ParsedCall):
        return call
    source: Any = call
    if hasattr(source, "arguments") and hasattr(source, "path"):  # an `OpenCall` of the history
        source = {"id": source.id, "name": source.name, "arguments": source.arguments}
    dump = getattr(source, "model_dump", None)
    data = as_json(dump() if callable(dump) else source)
    for shape in shapes().values():
        if (parsed := shape.parse_call(data)).name:
            return parsed
    kind = type(call).__name__
    message = f"call: a tool call as the SDK gave it, or its JSON; not {kind}"
    raise TypeError(message)


def is_single_answer(shape: Shape, data: bytes) -> bool:
    """Whether bytes are the JSON of one answer with content."""
    try:
        return shape.is_single_answer(as_json(loads(data)))
    except ValueError:
        return False


def shape_of(form: str) -> Shape:
    """Return the shape of a session's format. Raises `JournalError` if it is not installed."""
    if (shape := shapes().get(form)) is None:
        message = f"format {form!r}: not installed; install the package that provides it"
        raise JournalError(message)
    return shape


def has_rules(form: str) -> bool:
    """Whether `continuation.history` has rules for a format."""
    return any(dialect.name == form and dialect.has_grammar for dialect in dialects())
