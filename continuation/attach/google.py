"""Attaches to clients of `google-genai` in place, because such a client cannot be copied.

A client sends through one inner API client, which has a synchronous and an asynchronous HTTP
client. We replace each of the two by a `HealingClient` that sends through it. The `send` of the
SDK's asynchronous HTTP client uses a pool of connections for each event loop. Our client calls that
`send`, so the pools still work.

If aiohttp is installed, the SDK sends asynchronous requests through aiohttp and not through its
HTTP client. We turn that off. A timeout keeps the meaning that it has in aiohttp (`TotalTimeout`).
"""

# ruff: noqa: SLF001 - an existing client has no public attribute for its HTTP clients
from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any

import httpx2

from continuation.attach.common import (
    Healing,
    Unsupported,
    check_client,
    classes,
    name_of,
    owner_of,
)
from continuation.attach.google_chats import heal_chats
from continuation.attach.total_timeout import TotalTimeout

PACKAGE = "google.genai"
_PLACES = ("_httpx_client", "_async_httpx_client", "_http_options", "_use_aiohttp")
"""The attributes of the inner client that we replace or read."""
_SENDING = ("_request", "_async_request", "_request_once", "_async_request_once")
"""The inner client's methods that send. A client that records or replays overrides them."""
_MTLS = ("_use_google_auth_sync", "_use_google_auth_async")
"""Methods that return whether the client sends through google-auth, with a client certificate."""


def attach(client: Any, healing: Healing) -> Any:
    """Replace a client's HTTP clients by `HealingClient`s; return the client.

    Raises `Unsupported`, and changes nothing, if some of its requests would bypass them.
    """
    if "AsyncClient" in classes(client, PACKAGE):
        raise Unsupported("wrap the Client that it belongs to; this wraps `aio`, too")
    check_client(client, PACKAGE, 3, {"Client"}, {})
    api: Any = getattr(client, "_api_client", None)
    if why := _reason(api):
        raise Unsupported(why)
    # The SDK closes the HTTP clients that it made itself. Closing ours closes those, too.
    sync, other, options = api._httpx_client, api._async_httpx_client, api._http_options
    if not healing.is_healing(sync):
        sync = healing.client(sync, owned=options.httpx_client is None)
        sync.prepare = partial(_renew, api)
    aiohttp = api._use_aiohttp()
    if not healing.is_healing(other):
        if aiohttp:
            # The SDK lets aiohttp open any number of connections unless a limit is given. It makes
            # the HTTP client of each event loop with these settings.
            settings: Any = getattr(other, "_client_kwargs", None)
            if settings is not None:
                settings.setdefault("limits", httpx2.Limits())
            other = TotalTimeout(other)
        other = healing.client(other, owned=options.httpx_async_client is None)
        other.prepare = partial(_arenew, api)
    _lead(client, "client", api._httpx_client, sync)
    _lead(getattr(client, "aio", None), "async_client", api._async_httpx_client, other)
    api._httpx_client, api._async_httpx_client = sync, other
    if aiohttp:
        api._use_aiohttp = _never
    heal_chats(client)
    return client


# Vertex's access token may expire during a turn. Then the SDK returns a new one.


def _renew(api: Any, request: httpx2.Request) -> None:
    if api._credentials is not None and "authorization" in request.headers:
        request.headers["authorization"] = f"Bearer {api._access_token()}"


async def _arenew(api: Any, request: httpx2.Request) -> None:
    if api._credentials is not None and "authorization" in request.headers:
        request.headers["authorization"] = f"Bearer {await api._async_access_token()}"


def _reason(api: Any) -> str | None:
    """Return why requests of this inner client would bypass our HTTP clients, or `None`."""
    if missing := [place for place in _PLACES if not hasattr(api, place)]:
        return f"its inner client has no {missing[0]}, which wrap needs"
    if any(owner_of(api, name) != f"{PACKAGE}._api_client" for name in _SENDING):
        return f"its {name_of(api)} overrides how requests are sent (it records or replays)"
    if any(getattr(api, name, _never)() for name in _MTLS):
        return (
            "with a client certificate (mTLS) it sends through google-auth, not its HTTP client; "
            "give it an httpx_client and an httpx_async_client in http_options"
        )
    wanted = {"_httpx_client": httpx2.Client, "_async_httpx_client": httpx2.AsyncClient}
    for place, kind in wanted.items():
        if not isinstance(given := getattr(api, place), kind):
            return f"it sends through {name_of(given)}, not through an httpx2.{kind.__name__}"
    if not api._use_aiohttp():
        return None
    # httpx2 must have an equivalent of each setting that the caller made for aiohttp.
    if api._http_options.aiohttp_client is not None:
        return (
            "it has an aiohttp session, which wrap cannot replace; "
            "give it an httpx_async_client instead of the aiohttp_client"
        )
    settings: Mapping[str, Any] = api._http_options.async_client_args or {}
    known = set(inspect.signature(httpx2.AsyncClient).parameters)
    if "verify" in settings:
        known.add("ssl")
    if unknown := sorted(set(settings) - known):
        hint = "; set verify, too" if unknown[0] == "ssl" else ""
        return f"only aiohttp understands {unknown[0]!r} of its async_client_args{hint}"
    return None


def _lead(owner: object, place: str, before: object, after: object) -> None:
    """Replace the HTTP client in resources that were made earlier: they have references to it."""
    for resource in list(vars(owner).values()):
        settings = getattr(resource, "sdk_configuration", None)
        if getattr(settings, place, None) is before:
            setattr(settings, place, after)


def _never() -> bool:
    return False
