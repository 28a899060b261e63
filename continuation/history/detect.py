"""Detects the dialect of a body by its shape."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from continuation.history.types import Body, HistoryFormat
from continuation.registry import shapes
from continuation.wire.json_values import as_map

if TYPE_CHECKING:
    from continuation.providers.contract import Shape

_PLAIN_ROLES: Final = frozenset({"user", "assistant", "system"})


def detect(body: Body) -> HistoryFormat:
    """Return the dialect of a request body, or of the part of it that has the conversation.

    A plain text message is the same in Anthropic's format and in Chat. If a body has only such
    messages, the result is Chat, which has fewer rules. Raises ValueError if `body` has no
    conversation.
    """
    found = shapes()
    known = {each: found[each] for each in HistoryFormat}
    signs = {each: shape.resembles(body) for each, shape in known.items()}
    most = max(signs.values())
    if not most:
        problem = "body: it has no list `messages`, `contents` or `input`"
        raise ValueError(f"{problem}; name the dialect or correct the body")
    surest = {each: known[each] for each, sign in signs.items() if sign == most}
    if len(surest) > 1:
        return _by_messages(body["messages"], surest)
    return next(iter(surest))


def _by_messages(messages: list[Any], known: Mapping[HistoryFormat, Shape]) -> HistoryFormat:
    # Skip plain texts, which most messages are: they are the same in both dialects.
    with contextlib.suppress(LookupError, TypeError):
        messages = [
            message
            for message in messages
            if type(message["content"]) is not str
            or len(message) != 2
            or message["role"] not in _PLAIN_ROLES
        ]
    for message in map(as_map, messages):
        signs = {shape.resembles_message(message): each for each, shape in known.items()}
        if (most := max(signs)) > 0:
            return signs[most]
    return HistoryFormat.OPENAI_CHAT
