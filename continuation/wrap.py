"""`wrap`: a client of the same type whose answers come back whole."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, TypeVar, cast

import httpx2

from continuation.engine import Engine
from continuation.http import AsyncHealingClient, HealingClient
from continuation.policy import Policy, load
from continuation.registry import dialects
from continuation.report import OnEvent

ClientT = TypeVar("ClientT")

SUPPORTED = (
    "anthropic.Anthropic, AsyncAnthropic, AnthropicVertex, AsyncAnthropicVertex, "
    "AnthropicFoundry, AsyncAnthropicFoundry (anthropic >= 2)"
)
# These sign or rewrite each request after the SDK has built it, over its body or for one attempt
# only; a later attempt of ours would go out unsigned or wrongly signed.
_REFUSED = {
    "AnthropicBedrock": "its answers are AWS event streams and its requests are signed",
    "AnthropicBedrockMantle": "its requests may be signed over their bodies",
    "AnthropicAWS": "its requests may be signed over their bodies",
    "AnthropicGoogleCloud": "it signs each request after it was built",
}


def _engine(config: Policy | str | Path | None, on_event: OnEvent | None) -> Engine:
    return Engine(dialects(), load(config), on_event, time.monotonic)


def wrap(
    client: ClientT,
    *,
    config: Policy | str | Path | None = None,
    on_event: OnEvent | None = None,
) -> ClientT:
    """Return a client like `client` whose cut answers are made whole.

    The result is of the same type and shares the HTTP client, and so connections, proxies, auth,
    hooks and limits; `client` itself is not changed. Closing the result closes nothing of it.
    Wrapping a wrapped client gives it the new `config` and `on_event`, or returns it as it is.

    `config`: a `Policy`, or the path of a TOML file with a `[defaults]` table.
    `on_event`: called with each event of a turn as it happens (see `continuation.report`).

    Raises `TypeError` for a client that is not supported, naming those that are, and what
    `Policy` raises for a bad `config`.
    """
    _refuse(client)
    inner = getattr(client, "_client", None)
    if isinstance(inner, (HealingClient, AsyncHealingClient)):
        if config is None and on_event is None:
            return client
        inner = inner.origin
    engine = _engine(config, on_event)
    if isinstance(inner, httpx2.Client):
        return _copied(client, HealingClient(inner, engine))
    if isinstance(inner, httpx2.AsyncClient):
        return _copied(client, AsyncHealingClient(inner, engine))
    message = f"{_name(client)} does not send through httpx2; supported: {SUPPORTED}"
    raise TypeError(message)


def http_client(
    client: httpx2.Client | None = None,
    *,
    config: Policy | str | Path | None = None,
    on_event: OnEvent | None = None,
) -> httpx2.Client:
    """Return an HTTP client for frameworks that take one rather than an SDK client.

    It stands for `client` and leaves it open when closed; without one it makes its own and closes
    it. Requests that no dialect knows pass through untouched.
    """
    origin = client or httpx2.Client(timeout=httpx2.Timeout(600.0, connect=5.0))
    return HealingClient(origin, _engine(config, on_event), owned=client is None)


def async_http_client(
    client: httpx2.AsyncClient | None = None,
    *,
    config: Policy | str | Path | None = None,
    on_event: OnEvent | None = None,
) -> httpx2.AsyncClient:
    """Return the asynchronous twin of `http_client`."""
    origin = client or httpx2.AsyncClient(timeout=httpx2.Timeout(600.0, connect=5.0))
    return AsyncHealingClient(origin, _engine(config, on_event), owned=client is None)


def _name(client: object) -> str:
    kind = type(client)
    return f"{kind.__module__}.{kind.__qualname__}"


def _sdk(client: object) -> Any:
    """Return the SDK a client comes from, if it is loaded: else it cannot be one of its clients."""
    return sys.modules.get("anthropic") if _is_anthropic(client) else None


def _is_anthropic(client: object) -> bool:
    return any(base.__module__.split(".")[0] == "anthropic" for base in type(client).__mro__)


def _refuse(client: object) -> None:
    """Raise `TypeError` for what we cannot serve faithfully."""
    sdk = _sdk(client)
    if sdk is None:
        message = f"cannot wrap {_name(client)}; supported: {SUPPORTED}"
        raise TypeError(message)
    if int(str(getattr(sdk, "__version__", "0")).split(".")[0]) < 2:
        message = f"anthropic {sdk.__version__} is too old to wrap; supported: {SUPPORTED}"
        raise TypeError(message)
    names = {base.__name__.removeprefix("Async") for base in type(client).__mro__}
    for name, why in _REFUSED.items():
        if name in names:
            message = f"cannot wrap {_name(client)}: {why}; supported: {SUPPORTED}"
            raise TypeError(message)
    if not names & {"Anthropic", "AnthropicVertex"}:
        message = f"cannot wrap {_name(client)}; supported: {SUPPORTED}"
        raise TypeError(message)
    if "AnthropicVertex" not in names and _signs(client):
        message = f"cannot wrap {_name(client)}: it signs requests itself; supported: {SUPPORTED}"
        raise TypeError(message)


def _signs(client: object) -> bool:
    """Whether a subclass overrides the hook in which requests are signed."""
    for base in type(client).__mro__:
        if "_prepare_request" in vars(base):
            return not base.__module__.endswith("._base_client")
    message = f"{_name(client)} has no _prepare_request; supported: {SUPPORTED}"
    raise TypeError(message)


def _copied(client: ClientT, inner: HealingClient | AsyncHealingClient) -> ClientT:
    """Copy the SDK client with our HTTP client in it."""
    copy = getattr(client, "copy", None)
    if copy is None:
        message = f"{_name(client)} cannot be copied; supported: {SUPPORTED}"
        raise TypeError(message)
    wrapped = cast("ClientT", copy(http_client=inner))
    if getattr(wrapped, "_client", None) is not inner:
        message = f"{_name(client)} does not take an http_client; supported: {SUPPORTED}"
        raise TypeError(message)
    return wrapped
