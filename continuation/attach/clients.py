"""Where we hook in: HTTP clients of ours, and SDK clients around them. `doors.py` is the door."""

from __future__ import annotations

from types import ModuleType
from typing import Any, TypeVar, cast

import httpx2

from continuation.attach import anthropic, google, openai
from continuation.attach.common import ClientT, Healing, Unsupported, classes, name_of

HttpT = TypeVar("HttpT", httpx2.Client, httpx2.AsyncClient)

_FAMILIES = (anthropic, openai, google)
SUPPORTED = "; ".join(family.SUPPORTED for family in _FAMILIES)
# What the SDKs give the HTTP clients they make themselves.
_DEFAULTS: dict[str, Any] = {
    "timeout": httpx2.Timeout(600.0, connect=5.0),
    "limits": httpx2.Limits(max_connections=1000, max_keepalive_connections=100),
    "follow_redirects": True,
}


def wrapped(client: ClientT, healing: Healing) -> ClientT:
    """Return an SDK client that sends through HTTP clients of ours; see `doors.wrap`."""
    try:
        for family in _FAMILIES:
            if classes(client, family.PACKAGE):
                served: ClientT = family.attach(client, healing)
                return served
        raise Unsupported(_stranger(client))
    except Unsupported as reason:
        message = f"cannot wrap {_described(client)}: {reason}; supported: {SUPPORTED}"
        raise TypeError(message) from reason.__cause__


def standing_for(client: HttpT | None, kind: type[HttpT], healing: Healing) -> HttpT:
    """Return an HTTP client of ours; see `doors.http_client`."""
    if client is None:
        return cast("HttpT", healing.client(kind(**_DEFAULTS), owned=True))
    if not isinstance(client, kind):  # pyright: ignore[reportUnnecessaryIsInstance]
        message = (
            f"client must be an httpx2.{kind.__name__}, not {name_of(client)}; "
            "for the client of an SDK there is continuation.wrap"
        )
        raise TypeError(message)
    return client if healing.is_healing(client) else cast("HttpT", healing.client(client))


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
