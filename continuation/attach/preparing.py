"""Prepares each attempt with the SDK's own hooks, which sign its body or add a new token.

Some clients sign a request after it is built (AWS), or get a token for each request (Entra ID,
Google). That happens above the HTTP client. A later attempt with the first attempt's headers would
have the signature of another body, or an expired token. So we replace the hooks of a wrapped client
by functions that call them. These functions add a `Preparation` to the request: its headers before
the hooks ran, and a function that prepares another request. `Shell` uses both.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, NamedTuple, cast

import httpx2

from continuation.attach.steps import Steps, awaited, called
from continuation.config import take as take_override
from continuation.registry import shapes

KEY = "continuation.preparation"
"""Key of a request's `Preparation` in its extensions."""
_STAND_IN = "Bearer workload-identity-auth"
"""The header that `openai` replaces by a workload identity's token when it sends a request."""


class Preparation(NamedTuple):
    """How a request was prepared, so that later attempts can be prepared in the same way."""

    headers: httpx2.Headers
    """The headers before the request was prepared."""
    again: Callable[[httpx2.Request], Any]
    """Prepares another request in place; returns an awaitable if the client is asynchronous."""

    @staticmethod
    def note(request: httpx2.Request, again: Callable[[httpx2.Request], Any]) -> None:
        """Add a `Preparation` to a request that is about to be prepared."""
        made = Preparation(httpx2.Headers(request.headers), again)
        request.extensions = {**request.extensions, KEY: made}


_options: ContextVar[Any] = ContextVar("continuation_options", default=None)
"""The options of the call under way before a hook added a token. `None`: no hook added one."""


def follow(client: Any) -> None:
    """Add a `Preparation` to each request of an SDK client and of its copies."""
    if "_prepare_request" in vars(client):  # a copy of such a client
        return
    prepare_options, prepare_request = client._prepare_options, client._prepare_request  # noqa: SLF001
    drive = awaited if inspect.iscoroutinefunction(prepare_request) else called

    def options(given: Any) -> Steps:
        before = copy.copy(given)
        prepared = yield partial(prepare_options, given)
        _options.set(before if _fresh(before, prepared) else None)
        return prepared

    def request(made: httpx2.Request) -> Steps:
        take_override(made)  # a header that is not sent must not be signed
        before = _options.get()
        _options.set(None)
        Preparation.note(made, lambda other: drive(again(other, before)))
        yield partial(prepare_request, made)

    def again(other: httpx2.Request, before: Any) -> Steps:
        if before is not None:
            prepared = yield partial(prepare_options, copy.copy(before))
            other.headers.update(_fresh(before, prepared))
        yield partial(prepare_request, other)
        if other.headers.get("authorization") == _STAND_IN:
            token = yield partial(_exchanged, client, other)
            other.headers["authorization"] = f"Bearer {token}"

    def hooked(steps: Callable[[Any], Steps]) -> Callable[[Any], Any]:
        return lambda given: drive(steps(given))

    client._prepare_options, client._prepare_request = hooked(options), hooked(request)  # noqa: SLF001
    carry(client, lambda other, _: follow(other))


def carry(client: Any, on_copy: Callable[[Any, dict[str, Any]], None]) -> None:
    """Call `on_copy` with each later copy of a client and the keywords that the copy was given."""
    plain = client.copy

    @wraps(plain)
    def copied(**given: Any) -> Any:
        other = plain(**given)
        on_copy(other, given)
        return other

    client.copy = client.with_options = copied


def _exchanged(client: Any, request: httpx2.Request) -> Any:
    """Return the token of a client's workload identity, or an awaitable of it."""
    identity = client._workload_identity_auth  # noqa: SLF001
    if hasattr(identity, "get_token_for_request"):  # an X.509 identity
        return identity.get_token_for_request(request)
    is_async = isinstance(client._client, httpx2.AsyncClient)  # noqa: SLF001
    return identity.get_token_async() if is_async else identity.get_token()


def _fresh(before: Any, prepared: Any) -> dict[str, str]:
    """Return the credentials in a call's headers that a hook added or changed, by header name."""
    was, now = (_headers(options) for options in (before, prepared))
    names = {"authorization", "api-key"} | {each.key_header.decode() for each in shapes().values()}
    return {name: text for name, text in now.items() if was.get(name) != text and name in names}


def _headers(options: Any) -> dict[str, str]:
    given: object = getattr(options, "headers", None)  # may be the SDK's `NotGiven`
    items = cast("Mapping[str, object]", given).items() if isinstance(given, Mapping) else ()
    return {name.lower(): value for name, value in items if isinstance(value, str)}
