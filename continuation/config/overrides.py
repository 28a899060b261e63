"""Policies for single calls: `override` for a block of code, a header for one request.

What applies is fixed when the request is sent. The header is for callers that cannot reach into the
block, such as a framework's settings; it is taken off before anything leaves.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import re
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

from continuation.policy import CLIENT_KEYS, check, read_value, shown, unaliased

if TYPE_CHECKING:
    from typing import Unpack

    import httpx2

    from continuation.policy import CallKeys

HEADER = "x-continuation"
"""`off`, `on`, or `key=value, key=value`; a text with a comma in it is written "in quotes"."""

_NOTHING: Mapping[str, Any] = {}
_current: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar(
    "continuation_override", default=_NOTHING
)


@contextlib.contextmanager
def override(**keys: Unpack[CallKeys]) -> Generator[None]:
    """Let other policies hold for the requests sent inside the block.

    `keys`: any key of `Policy` but `learned_file` and `chain_store`, which hold for a client.
    Blocks nest, the inner one wins; a header of the request wins over both. Threads and tasks do
    not see each other's blocks; a task that is started inside a block begins with what holds
    there. A stream keeps the policies that held when its request was sent.

    Raises `ValueError` or `TypeError` naming key, value and what is possible.
    """
    _check(keys)
    token = _current.set({**_current.get(), **unaliased({**keys})})
    try:
        yield
    finally:
        # A generator may be closed in another context, which never had the block's value.
        with contextlib.suppress(ValueError):
            _current.reset(token)


def current() -> Mapping[str, Any]:
    """Return what `override` blocks say here."""
    return _current.get()


def take(request: httpx2.Request) -> Mapping[str, Any]:
    """Take the header off a request; return what holds for it: the blocks, then the header.

    Raises `ValueError` naming header, key, value and what is possible. A request that is sent
    once more keeps what its header said.
    """
    said: Mapping[str, Any] = request.extensions.get(HEADER, _NOTHING)
    if HEADER in request.headers:
        said = parse(request.headers[HEADER])
        del request.headers[HEADER]
        request.extensions = {**request.extensions, HEADER: said}
    return {**current(), **unaliased(said)} if said else current()


def checked(request: httpx2.Request) -> httpx2.Request:
    """Return a request that was just built, its header found to be sound; raises as `take`.

    The SDKs turn what `send` raises into connection errors and try again; what is raised here,
    before that, reaches the caller as it is.
    """
    if HEADER in request.headers:
        parse(request.headers[HEADER])
    return request


_ITEM = re.compile(r'\s*([^\s=,"]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^,"]*?)\s*(,|$)')


def parse(text: str) -> dict[str, Any]:
    """Read the header's value; raises `ValueError` naming header, key, value and remedy."""
    word = text.strip().lower()
    if word in {"on", "off"}:
        return {"enabled": word == "on"}
    values: dict[str, Any] = {}
    at, more = 0, True
    while more:
        item = _ITEM.match(text, at)
        if item is None or item[1] in values:
            why = f"{item[1]!r} is said twice" if item else "write off, or key=value, key=value"
            message = f"{HEADER}: {shown('', text)}: {why}"
            raise ValueError(message)
        values[item[1]] = _value(item[1], item[2])
        at, more = item.end(), bool(item[3])
    return values


def _value(key: str, text: str) -> Any:
    try:
        value = read_value(key, json.loads(text) if text.startswith('"') else text)
        _check({key: value})
    except (ValueError, TypeError) as error:
        message = f"{HEADER}: {error}"
        raise ValueError(message) from None
    return value


def _check(values: Mapping[str, Any]) -> None:
    check(values)
    for key in CLIENT_KEYS & values.keys():
        message = f"{key} = {shown(key, values[key])}: holds for a client, not for one call"
        raise ValueError(message)
