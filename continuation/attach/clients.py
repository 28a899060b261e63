"""Makes SDK clients send through a `HealingClient`. The public functions are in `doors.py`.

This module copies clients of `anthropic` and `openai`. `google.py` changes clients of
`google-genai` in place.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, TypeVar, cast

import httpx2

from continuation.attach import google
from continuation.attach.common import (
    ClientT,
    Healing,
    Unsupported,
    check_client,
    classes,
    name_of,
    owner_of,
    within,
)
from continuation.attach.instead import Instead, instead_of
from continuation.attach.preparing import carry, follow

HttpT = TypeVar("HttpT", httpx2.Client, httpx2.AsyncClient)

SUPPORTED = (
    "anthropic.Anthropic, AnthropicVertex, AnthropicGoogleCloud, AnthropicBedrock, "
    "AnthropicBedrockMantle, AnthropicAWS, AnthropicFoundry (anthropic >= 2); "
    "openai.OpenAI, AzureOpenAI, BedrockOpenAI (openai >= 3); their async twins; "
    "google.genai.Client (google-genai >= 3)"
)
# The settings of the HTTP clients that the SDKs make themselves.
_DEFAULTS: dict[str, Any] = {
    "timeout": httpx2.Timeout(600.0, connect=5.0),
    "limits": httpx2.Limits(max_connections=1000, max_keepalive_connections=100),
    "follow_redirects": True,
}


def wrapped(client: ClientT, healing: Healing) -> ClientT:
    """Return an SDK client that sends through `HealingClient`s; see `doors.wrap`.

    Raises `TypeError` if the client is not supported.
    """
    try:
        for package, attach in _ATTACH.items():
            if classes(client, package):
                return cast("ClientT", attach(client, healing))
        why: Unsupported | None = None
    except Unsupported as reason:
        why = reason
    what = name_of(client) if client is not None else "None"
    if isinstance(client, ModuleType):
        what = f"the module {client.__name__}"
    elif isinstance(client, type):
        what = f"the class {name_of(client)}"
    instead = instead_of(client)
    if why is not None and not why.no_client:
        instead = Instead(str(why))
    lines = "".join(f"\n    {line}" for line in instead.lines)
    message = f"cannot wrap {what}: {instead.why}{':' * bool(lines)}{lines}"
    cause = None if why is None else why.__cause__
    raise TypeError(f"{message}{chr(10) if lines else '; '}supported: {SUPPORTED}") from cause


def standing_for(client: HttpT | None, kind: type[HttpT], healing: Healing) -> HttpT:
    """Return a `HealingClient` for an HTTP client; see `doors.http_client`.

    Raises `TypeError` if `client` is not of the class `kind`.
    """
    if client is None:
        return cast("HttpT", healing.client(kind(**_DEFAULTS), owned=True))
    if not isinstance(client, kind):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            f"client must be an httpx2.{kind.__name__}, not {name_of(client)}; "
            "for the client of an SDK there is continuation.wrap"
        )
    return client if healing.is_healing(client) else cast("HttpT", healing.client(client))


def _copied(client: Any, healing: Healing) -> Any:
    """Copy a client of `anthropic` or `openai`, with a `HealingClient` as its HTTP client."""
    inner = getattr(client, "_client", None)
    if healing.is_healing(inner):
        return client
    ours = healing.client(inner)
    options: dict[str, Any] = {}
    if getattr(client, "_strict_response_validation", False):  # the SDKs' `copy` does not copy it
        options["_extra_kwargs"] = {"_strict_response_validation": True}
    try:
        copy = client.copy(http_client=ours, **options)
    except Exception as error:
        raise Unsupported(
            f"it cannot be copied ({error}); make it with http_client = continuation.http_client() "
            "or async_http_client()"
        ) from error
    if getattr(copy, "_client", None) is not ours or type(copy) is not type(client):
        raise Unsupported("its copy does not take another HTTP client")
    return copy


# --- anthropic ----------------------------------------------------------------------------------

_ANTHROPIC = {"Anthropic", "AnthropicVertex", "AnthropicBedrock", "AnthropicBedrockMantle"}
_CREDENTIALS = {"api_key", "auth_token", "credentials", "config", "profile"}


def _anthropic(client: Any, healing: Healing) -> Any:
    check_client(client, "anthropic", 2, _ANTHROPIC, {})
    copy = _copied(client, healing)
    if copy is not client:
        if getattr(copy, "credentials", None) is not None:
            _keep_credentials_open(copy)
        hooks = {owner_of(client, hook) for hook in ("_prepare_options", "_prepare_request")}
        if hooks - {"anthropic", "anthropic._base_client", "anthropic._client"}:
            follow(copy)
    return copy


def _keep_credentials_open(client: Any) -> None:
    """Make `close` of a copied client close its HTTP client but not its credentials.

    The SDK's `close` closes both. The copy shares the credentials with the client that was copied,
    which may still need them. A copy of the copy shares them too, unless it is given others.
    """

    def on_copy(other: Any, given: dict[str, Any]) -> None:
        if not any(given.get(name) for name in _CREDENTIALS):
            _keep_credentials_open(other)

    inner = client._client  # noqa: SLF001  (as the SDK's own `copy` does)
    client.close = inner.close if isinstance(inner, httpx2.Client) else inner.aclose
    carry(client, on_copy)


# --- openai -------------------------------------------------------------------------------------

_OPENAI_REFUSED = {
    "_ModuleClient": "it belongs to the module's own functions and settings; "
    "make a separate client with openai.OpenAI()",
}


def _openai(client: Any, healing: Healing) -> Any:
    check_client(client, "openai", 3, {"OpenAI"}, _OPENAI_REFUSED)
    if not within(owner_of(client, "_send_request"), "openai"):
        raise Unsupported("it overrides how requests are sent")
    copy = _copied(client, healing)
    if copy is not client:
        follow(copy)
    return copy


_ATTACH = {"anthropic": _anthropic, "openai": _openai, google.PACKAGE: google.attach}
