"""`finish`: makes a truncated answer from elsewhere the first attempt of a turn."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache, partial, reduce
from typing import Any, cast

from continuation.attach.clients import wrapped
from continuation.attach.common import Healing, name_of
from continuation.attach.healing_clients import AsyncHealingClient, HealingClient
from continuation.attach.journaled import ForeignAnswer
from continuation.providers.contract import Shape
from continuation.registry import shapes

_STREAMING = frozenset({"stream", "stream_options"})
_ADDED = {"sdk_http_response", "automatic_function_calling_history", "parsed"}
"""Fields that google-genai adds to the provider's answer."""


def finished(client: Any, request: Mapping[str, Any], answer: object) -> Any:
    """Return the completed answer, or an awaitable of it; see `doors.finish`."""
    body = body_of(answer)
    shape = next((each for each in shapes().values() if each.is_answer(body)), None)
    if shape is None:
        raise TypeError(
            f"answer = {name_of(answer)}: must be an answer from an SDK, or its JSON; "
            "from a batch line, pass the message or the response's body"
        )
    shape.mark_truncated(body)
    call = method(healing(client), shape, request, answer)
    given = ForeignAnswer(json.dumps(body).encode())
    with given.as_first_attempt():
        whole = call()
    return _later(given, whole) if inspect.isawaitable(whole) else whole


def method(
    client: Any, shape: Shape, request: Mapping[str, Any], answer: object = None
) -> Callable[[], Any]:
    """Return a function that sends a request by the SDK's method, without streaming.

    `request`: the method's keywords, or JSON. `answer`: an answer to that request, if one exists;
    it may decide which method is called. Raises `TypeError` if the client has no such method.
    """
    door = shape.sdk_method(request, answer)
    unstreamed = {key: value for key, value in request.items() if key not in _STREAMING}
    asked = shape.sdk_arguments(client, unstreamed)
    if any(isinstance(value, type) for value in asked.values()):
        door = door.replace("create", "parse")
    try:
        call = reduce(getattr, door.split("."), client)
    except AttributeError:
        raise TypeError(
            f"client = {name_of(client)}: has no {door}, which this request needs"
        ) from None
    known = _parameters(getattr(call, "__func__", call))
    if "extra_body" in known and (strange := asked.keys() - known):  # keys of another vendor
        more = {key: asked.pop(key) for key in strange}
        asked["extra_body"] = {**more, **(asked.get("extra_body") or {})}
    return partial(call, **asked)


@lru_cache(maxsize=16)
def _parameters(function: Any) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def is_async(client: Any) -> bool:
    """Whether the methods of an SDK's client are asynchronous."""
    return hasattr(client, "__aenter__")


def shape_for(client: Any, request: Mapping[str, Any]) -> Shape:
    """Return the format in which an SDK's client sends a request.

    Raises `TypeError` if the client does not send in a known format.
    """
    for shape in shapes().values():
        if shape.is_client(client, request):
            return shape
    raise TypeError(f"client = {name_of(client)}: not a client of an SDK for a known wire format")


async def _later(given: ForeignAnswer, whole: Awaitable[Any]) -> Any:
    with given.as_first_attempt():
        return await whole


def healing(client: Any) -> Any:
    """Return the client if it is wrapped, or else wrap it."""
    inner = getattr(client, "_api_client", client)  # google-genai's client and its `aio` have one
    http = getattr(inner, "_httpx_client", getattr(inner, "_client", None))
    ours = isinstance(http, (HealingClient, AsyncHealingClient))
    return client if ours else wrapped(client, Healing(None, None, {}))


def body_of(answer: Any) -> Any:
    """Return an answer's JSON with the provider's field names, or `{}` if it is no answer."""
    if isinstance(answer, Mapping):
        return copy.deepcopy({**cast("Mapping[str, Any]", answer)})
    if hasattr(answer, "to_dict"):
        return answer.to_dict(mode="json", warnings=False)
    if hasattr(answer, "model_dump"):
        return answer.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=_ADDED)
    return {}
