"""Where we hook in: HTTP clients of ours, and SDK clients around them. `wrap.py` is the door."""

from __future__ import annotations

from types import ModuleType
from typing import Any, cast

import httpx2

from continuation.attach import (
    anthropic as _attach_anthropic,
)
from continuation.attach import (
    google as _attach_google,
)
from continuation.attach import (
    openai as _attach_openai,
)
from continuation.attach.common import ClientT, Healing, Unsupported, classes, name_of
from continuation.attach.http import AsyncHealingClient, HealingClient
from continuation.config import Source
from continuation.reports.report import OnEvent

_FAMILIES = (_attach_anthropic, _attach_openai, _attach_google)
SUPPORTED = "; ".join(family.SUPPORTED for family in _FAMILIES)
# What the SDKs give the HTTP clients they make themselves.
_DEFAULTS: dict[str, Any] = {
    "timeout": httpx2.Timeout(600.0, connect=5.0),
    "limits": httpx2.Limits(max_connections=1000, max_keepalive_connections=100),
    "follow_redirects": True,
}


def wrap(
    client: ClientT,
    *,
    config: Source = None,
    on_event: OnEvent | None = None,
) -> ClientT:
    """Return an SDK client that sends through HTTP clients of ours; see `wrap.wrap`."""
    try:
        for family in _FAMILIES:
            if classes(client, family.PACKAGE):
                wrapped: ClientT = family.attach(client, Healing(config, on_event))
                return wrapped
        raise Unsupported(_stranger(client))
    except Unsupported as reason:
        message = f"cannot wrap {_described(client)}: {reason}; supported: {SUPPORTED}"
        raise TypeError(message) from reason.__cause__


def http_client(
    client: httpx2.Client | None = None,
    *,
    config: Source = None,
    on_event: OnEvent | None = None,
) -> httpx2.Client:
    """Return an HTTP client of ours; see `wrap.http_client`."""
    _check_http(client, httpx2.Client)
    healing = Healing(config, on_event)
    if client is None:
        return HealingClient(httpx2.Client(**_DEFAULTS), healing.engine, owned=True)
    return client if healing.settled(client) else cast("httpx2.Client", healing.client(client))


def async_http_client(
    client: httpx2.AsyncClient | None = None,
    *,
    config: Source = None,
    on_event: OnEvent | None = None,
) -> httpx2.AsyncClient:
    """Return an asynchronous HTTP client of ours; see `wrap.async_http_client`."""
    _check_http(client, httpx2.AsyncClient)
    healing = Healing(config, on_event)
    if client is None:
        return AsyncHealingClient(httpx2.AsyncClient(**_DEFAULTS), healing.engine, owned=True)
    return client if healing.settled(client) else cast("httpx2.AsyncClient", healing.client(client))


def _check_http(client: object, wanted: type) -> None:
    if client is not None and not isinstance(client, wanted):
        message = (
            f"client must be an httpx2.{wanted.__name__}, not {name_of(client)}; "
            "for the client of an SDK there is continuation.wrap"
        )
        raise TypeError(message)


def _described(client: object) -> str:
    if isinstance(client, ModuleType):
        return f"the module {client.__name__}"
    return f"the class {name_of(client)}" if isinstance(client, type) else name_of(client)


def _stranger(client: object) -> str:
    """Say what is wrong with what is of none of the SDKs, and what to do."""
    if isinstance(client, ModuleType):
        return "its functions go through a client of its own; make a client and wrap that"
    if isinstance(client, type):
        return "it is not yet a client; make one and wrap that"
    if isinstance(client, (httpx2.Client, httpx2.AsyncClient)):
        return "for an HTTP client there are continuation.http_client and async_http_client"
    return "it is not a client of an SDK we know"
