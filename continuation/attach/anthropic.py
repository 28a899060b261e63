"""Clients of `anthropic`: a copy around an HTTP client of ours."""

from __future__ import annotations

import functools
from typing import Any

import httpx2

from continuation.attach.common import ClientT, Healing, Unsupported, check_client, owner_of

PACKAGE = "anthropic"
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
# Where the hook may come from in which a client signs: nothing there, or a token without the body.
_HARMLESS = {"anthropic._base_client", "anthropic.lib.vertex._client"}
_CREDENTIALS = {"api_key", "auth_token", "credentials", "config", "profile"}


def attach(client: ClientT, healing: Healing) -> ClientT:
    """Return a copy whose answers come back whole; raise `Unsupported` if there cannot be one."""
    check_client(client, PACKAGE, 2, {"Anthropic", "AnthropicVertex"}, _REFUSED)
    if owner_of(client, "_prepare_request") not in _HARMLESS:
        message = "it prepares requests in a way of its own, as one that signs them does"
        raise Unsupported(message)
    wrapped = healing.copy(client)
    if wrapped is not client and getattr(wrapped, "credentials", None) is not None:
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
