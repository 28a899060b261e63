"""Clients of `openai`: a copy around an HTTP client of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from continuation.attach.common import (
    ClientT,
    Healing,
    Unsupported,
    check_version,
    classes,
    copied,
    owner_of,
    within,
)

PACKAGE = "openai"
SUPPORTED = "openai.OpenAI, AsyncOpenAI, AzureOpenAI, AsyncAzureOpenAI (openai >= 3)"
_OLDEST = 3
_SIGNED = "its requests may be signed over their bodies"
_REFUSED = {
    "BedrockOpenAI": _SIGNED,
    "_ModuleClient": "it is the one behind the module's own functions, and its settings are the "
    "module's; make one of your own with openai.OpenAI()",
}
# Providers that put a token into the headers, whatever the body.
_TOKENS = {"vertex"}
# Where a request passes between its making and the HTTP client.
_HOOKS = ("_prepare_request", "_send_request")


def attach(client: ClientT, healing: Healing) -> ClientT:
    """Return a copy whose answers come back whole; raise `Unsupported` if there cannot be one."""
    check_version(PACKAGE, _OLDEST)
    why = _reason(client) or _reason_in_auth(client)
    if why is not None:
        raise Unsupported(why)
    inner = getattr(client, "_client", None)
    if healing.settled(inner):
        return client
    return copied(client, healing.client(inner))


def _reason(client: object) -> str | None:
    """Return why a client of this class is not served, if so."""
    names = {name.removeprefix("Async") for name in classes(client, PACKAGE)}
    why = next((why for name, why in _REFUSED.items() if name in names), None)
    if why is None and "OpenAI" not in names:
        why = "it is no client"
    if why is None and not all(within(owner_of(client, hook), PACKAGE) for hook in _HOOKS):
        why = "it prepares or sends requests in a way of its own, as one that signs them does"
    return why


def _reason_in_auth(client: object) -> str | None:
    """Return why a client with these credentials is not served, if so."""
    identity: object = getattr(client, "workload_identity", None)
    if isinstance(identity, Mapping) and cast("Any", identity).get("type") == "x509":
        return "with an X.509 identity its requests do not go through its HTTP client's send"
    provider = getattr(client, "_provider_runtime", None)
    if provider is None or (name := getattr(provider, "name", None)) in _TOKENS:
        return None
    if name == "bedrock":
        return _SIGNED
    return f"the provider {name!r} prepares its requests in a way we do not know"
