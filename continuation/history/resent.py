"""Recognizes a history that was sent before, by a digest of its first messages."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from typing import Any

from continuation.history.types import Body, Repaired
from continuation.registry import shapes
from continuation.wire.json_values import as_list, is_list, is_map


def mended_until(body: Body, done: Repaired) -> int:
    """Return the number of messages up to and including the first that a repair changed."""
    messages, repaired = _messages(body), _messages(done.body)
    origins = done.origins or range(len(messages))
    mended = (n for n, at in enumerate(origins) if at != n or repaired[n] is not messages[n])
    return min(next(mended, len(messages)) + 1, len(messages))


def beginnings(body: Body, lengths: Collection[int]) -> Iterator[tuple[int, bytes]]:
    """Yield each length with a digest of that many first messages.

    `cache_control` is ignored: it may be on other messages when they are sent again.
    """
    messages, digest, done = _messages(body), hashlib.blake2b(digest_size=16), 0
    for length in sorted(length for length in lengths if length <= len(messages)):
        for message in messages[done:length]:
            digest.update("\0".join(_tokens(message)).encode(errors="surrogatepass"))
        done = length
        yield length, digest.digest()


def count(body: Body) -> int:
    """Return the number of messages in a body."""
    return len(_messages(body))


def beginning(body: Body, length: int) -> Body:
    """Return the body with its first messages only."""
    key = _key(body)
    return {**body, key: as_list(body.get(key))[:length]} if key else body


def with_rest(repaired: Body, body: Body, length: int) -> Body:
    """Return a repaired beginning with the messages of `body` that follow it."""
    key = _key(body)
    return {**repaired, key: [*as_list(repaired.get(key)), *as_list(body.get(key))[length:]]}


def _messages(body: Body) -> list[Any]:
    return as_list(body.get(_key(body)))


def _key(body: Body) -> str:
    return next(filter(body.get, (shape.messages for shape in shapes().values())), "")


def _tokens(value: Any) -> Iterator[str]:
    """Yield the tokens of a JSON value. Unlike `json.dumps`, this lets other threads run."""
    if is_list(value):
        yield "["
        for each in value:
            yield from _tokens(each)
        yield "]"
    elif is_map(value):
        yield "{"
        for key in sorted(value.keys() - {"cache_control"}):
            yield key
            yield from _tokens(value[key])
        yield "}"
    else:
        yield repr(value)
