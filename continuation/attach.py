"""Where we hook in: an SDK client copied around an HTTP client of ours. `wrap.py` is the door."""

from __future__ import annotations

import functools
import re
import sys
import time
from typing import Any, TypeVar, cast

import httpx2

from continuation.config import Source, load
from continuation.engine import Engine
from continuation.http import AsyncHealingClient, HealingClient
from continuation.registry import dialects
from continuation.report import OnEvent

ClientT = TypeVar("ClientT")

SUPPORTED = (
    "anthropic.Anthropic, AsyncAnthropic, AnthropicVertex, AsyncAnthropicVertex, "
    "AnthropicFoundry, AsyncAnthropicFoundry (anthropic >= 2)"
)
_OLDEST = 2
# These sign or rewrite each request after the SDK has built it, over its body or for one attempt
# only; a later attempt of ours would go out unsigned or wrongly signed.
_REFUSED = {
    "AnthropicBedrock": "its answers are AWS event streams and its requests are signed",
    "AnthropicBedrockMantle": "its requests may be signed over their bodies",
    "AnthropicAWS": "its requests may be signed over their bodies",
    "AnthropicGoogleCloud": "it signs each request after it was built",
}
# Where the hook may come from in which a client signs: nothing there, or a token without the body.
_HARMLESS = {"anthropic._base_client", "anthropic.lib.vertex._client"}
# What the SDKs give the HTTP clients they make themselves.
_DEFAULTS: dict[str, Any] = {
    "timeout": httpx2.Timeout(600.0, connect=5.0),
    "limits": httpx2.Limits(max_connections=1000, max_keepalive_connections=100),
    "follow_redirects": True,
}
_CREDENTIALS = {"api_key", "auth_token", "credentials", "config", "profile"}


def wrap(
    client: ClientT,
    *,
    config: Source = None,
    on_event: OnEvent | None = None,
) -> ClientT:
    """Return a copy of an SDK client around an HTTP client of ours; see `wrap.wrap`."""
    _refuse(client)
    inner = getattr(client, "_client", None)
    if _settled(inner, config, on_event):
        return client
    engine = _engine(config, on_event)
    if isinstance(inner, (httpx2.Client, httpx2.AsyncClient)):
        return _copied(client, _healing(inner, engine))
    raise _unsupported(client, "it does not send through httpx2")


def http_client(
    client: httpx2.Client | None = None,
    *,
    config: Source = None,
    on_event: OnEvent | None = None,
) -> httpx2.Client:
    """Return an HTTP client of ours; see `wrap.http_client`."""
    _check_http(client, httpx2.Client)
    if client is not None and _settled(client, config, on_event):
        return client
    engine = _engine(config, on_event)
    if client is None:
        return HealingClient(httpx2.Client(**_DEFAULTS), engine, owned=True)
    return cast("httpx2.Client", _healing(client, engine))


def async_http_client(
    client: httpx2.AsyncClient | None = None,
    *,
    config: Source = None,
    on_event: OnEvent | None = None,
) -> httpx2.AsyncClient:
    """Return an asynchronous HTTP client of ours; see `wrap.async_http_client`."""
    _check_http(client, httpx2.AsyncClient)
    if client is not None and _settled(client, config, on_event):
        return client
    engine = _engine(config, on_event)
    if client is None:
        return AsyncHealingClient(httpx2.AsyncClient(**_DEFAULTS), engine, owned=True)
    return cast("httpx2.AsyncClient", _healing(client, engine))


# --- HTTP clients -------------------------------------------------------------------------------


def _engine(config: Source, on_event: OnEvent | None) -> Engine:
    return Engine(dialects(), load(config), on_event, time.monotonic)


def _settled(client: object, config: object, on_event: object) -> bool:
    """Whether a client is one of ours already and nothing new is asked of it."""
    ours = isinstance(client, (HealingClient, AsyncHealingClient))
    return ours and config is None and on_event is None


def _healing(
    client: httpx2.Client | httpx2.AsyncClient, engine: Engine
) -> HealingClient | AsyncHealingClient:
    """Let a client of ours stand for `client`, never for another one of ours."""
    if isinstance(client, (HealingClient, AsyncHealingClient)):
        client = cast("httpx2.Client | httpx2.AsyncClient", client.origin)
    if isinstance(client, httpx2.Client):
        return HealingClient(client, engine)
    return AsyncHealingClient(client, engine)


def _check_http(client: object, wanted: type) -> None:
    if client is not None and not isinstance(client, wanted):
        message = (
            f"client must be an httpx2.{wanted.__name__}, not {_name(client)}; "
            "for the client of an SDK there is continuation.wrap"
        )
        raise TypeError(message)


# --- SDK clients --------------------------------------------------------------------------------


def _name(client: object) -> str:
    kind = client if isinstance(client, type) else type(client)
    return f"{kind.__module__}.{kind.__qualname__}"


def _unsupported(client: object, why: str) -> TypeError:
    what = "the class " if isinstance(client, type) else ""
    return TypeError(f"cannot wrap {what}{_name(client)}: {why}; supported: {SUPPORTED}")


def _refuse(client: object) -> None:
    """Raise `TypeError` for what we cannot serve faithfully."""
    bases = type(client).__mro__
    if not any(base.__module__.split(".")[0] == "anthropic" for base in bases):
        raise _unsupported(client, "it is not a client of an SDK we know")
    version = str(getattr(sys.modules.get("anthropic"), "__version__", ""))
    major = re.match(r"\d+", version)
    if major is None or int(major[0]) < _OLDEST:
        raise _unsupported(client, f"anthropic {version or 'of no version'} is too old")
    names = {base.__name__.removeprefix("Async") for base in bases}
    why = next((why for name, why in _REFUSED.items() if name in names), None)
    if why is None and not names & {"Anthropic", "AnthropicVertex"}:
        why = "it is no client"
    if why is None and not _harmless(bases):
        why = "it prepares requests in a way of its own, as one that signs them does"
    if why is not None:
        raise _unsupported(client, why)


def _harmless(bases: tuple[type, ...]) -> bool:
    """Whether the hook in which clients sign requests is there, and leaves bodies out of it."""
    owner = next((base for base in bases if "_prepare_request" in vars(base)), None)
    return owner is not None and owner.__module__ in _HARMLESS


def _copied(client: ClientT, inner: HealingClient | AsyncHealingClient) -> ClientT:
    """Copy the SDK client with our HTTP client in it."""
    try:
        wrapped = cast("Any", client).copy(http_client=inner)
    except (AttributeError, TypeError) as error:
        raise _unsupported(client, f"it cannot be copied ({error})") from error
    if getattr(wrapped, "_client", None) is not inner or type(wrapped) is not type(client):
        raise _unsupported(client, "its copy does not take another HTTP client")
    if getattr(wrapped, "credentials", None) is not None:
        _lend(wrapped)
    return wrapped


def _lend(wrapped: Any) -> None:
    """Leave the closing of the credentials to the client they belong to.

    The SDK's `close` closes its HTTP client, which is ours, and then its credentials, which are
    not. A copy of the copy has them on loan as well, unless it is given others.
    """
    plain, inner = wrapped.copy, wrapped._client  # noqa: SLF001  (as the SDK's own `copy` does)

    @functools.wraps(plain)
    def copy(**options: Any) -> Any:
        other = plain(**options)
        if not any(options.get(name) for name in _CREDENTIALS):
            _lend(other)
        return other

    wrapped.close = inner.close if isinstance(inner, httpx2.Client) else inner.aclose
    wrapped.copy = wrapped.with_options = copy
