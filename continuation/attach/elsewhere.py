"""`finish`: continues a cut answer from elsewhere, by making it a turn's first attempt."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache, partial, reduce
from typing import Any, cast

from continuation.attach.clients import wrapped
from continuation.attach.common import Healing, name_of
from continuation.attach.http import AsyncHealingClient, HealingClient
from continuation.attach.journaled import ForeignAnswer

_DOORS = {
    "choices": ("chat.completions.create", "finish_reason", "length"),
    "candidates": ("models.generate_content", "finishReason", "MAX_TOKENS"),
    "output": ("responses.create", "status", "incomplete"),
    "content": ("messages.create", "stop_reason", "max_tokens"),
}
"""By the key that only one format's answers have: the SDK's method, the key of the stop reason, and
its value in a cut answer."""
_STREAMING = frozenset({"stream", "stream_options"})
_ADDED = {"sdk_http_response", "automatic_function_calling_history", "parsed"}
"""Fields that google-genai adds to the provider's answer."""


def finished(client: Any, request: Mapping[str, Any], answer: object) -> Any:
    """Return the whole answer, or an awaitable of it; see `doors.finish`."""
    body = body_of(answer)
    key = next((key for key in _DOORS if isinstance(body.get(key), list)), None)
    if key is None:
        raise TypeError(
            f"answer = {name_of(answer)}: must be an answer from an SDK, or its JSON; "
            "from a batch line, pass the message or the response's body"
        )
    door, place, word = _DOORS[key]
    for choice in body[key][:1] if key in {"choices", "candidates"} else [body]:
        choice[place] = choice.get(place) or word  # an answer without a stop reason was cut
    if door == "messages.create" and type(answer).__name__.startswith("Beta"):
        door = f"beta.{door}"
    call = method(healing(client), door, request)
    given = ForeignAnswer(json.dumps(body).encode())
    with given.as_first_attempt():
        whole = call()
    return _later(given, whole) if inspect.isawaitable(whole) else whole


def method(client: Any, door: str, request: Mapping[str, Any]) -> Callable[[], Any]:
    """Return a function that calls the SDK's method at the path `door` without streaming.

    `request`: the method's keywords, or JSON. Raises `TypeError` if the client has no such method.
    """
    asked = {key: value for key, value in request.items() if key not in _STREAMING}
    if door.endswith("messages.create"):
        if "betas" in asked and not door.startswith("beta."):
            door = f"beta.{door}"
        # The SDK refuses a long call without a stream unless a timeout is given by name.
        asked.setdefault("timeout", getattr(client, "timeout", None))
    elif door == "models.generate_content" and "config" not in asked:  # the request's JSON
        generation = {**asked.pop("generationConfig", {}), **asked.pop("generation_config", {})}
        settings = {key: asked.pop(key) for key in asked.keys() - {"model", "contents"}}
        asked["config"] = {**settings, **generation}
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


def door_of(client: Any, request: Mapping[str, Any]) -> str:
    """Return the dotted path of the SDK's method for a request, such as `messages.create`."""
    if hasattr(getattr(client, "models", None), "generate_content"):
        return _DOORS["candidates"][0]
    if hasattr(client, "responses"):
        return _DOORS["choices" if "messages" in request else "output"][0]
    return _DOORS["content"][0]


async def _later(given: ForeignAnswer, whole: Awaitable[Any]) -> Any:
    with given.as_first_attempt():
        return await whole


def healing(client: Any) -> Any:
    """Return this client if it is wrapped, else a wrapped one."""
    inner = getattr(client, "_api_client", client)  # google-genai's client and its `aio` have one
    http = getattr(inner, "_httpx_client", getattr(inner, "_client", None))
    ours = isinstance(http, (HealingClient, AsyncHealingClient))
    return client if ours else wrapped(client, Healing(None, None, {}))


def body_of(answer: Any) -> Any:
    """Return an answer's JSON in its provider's field names; empty for what is no answer."""
    if isinstance(answer, Mapping):
        return copy.deepcopy({**cast("Mapping[str, Any]", answer)})
    if hasattr(answer, "to_dict"):
        return answer.to_dict(mode="json", warnings=False)
    if hasattr(answer, "model_dump"):
        return answer.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=_ADDED)
    return {}
