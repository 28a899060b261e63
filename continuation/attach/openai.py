"""Clients of `openai`: a copy around an HTTP client of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from continuation.attach.common import (
    ClientT,
    Healing,
    Unsupported,
    check_client,
    owner_of,
    within,
)

PACKAGE = "openai"
SUPPORTED = "openai.OpenAI, AsyncOpenAI, AzureOpenAI, AsyncAzureOpenAI (openai >= 3)"
_SIGNED = "its requests may be signed over their bodies"
_REFUSED = {
    "BedrockOpenAI": _SIGNED,
    "_ModuleClient": "it is the one behind the module's own functions, and its settings are the "
    "module's; make one of your own with openai.OpenAI()",
}
# Where a request passes between its making and the HTTP client.
_HOOKS = ("_prepare_request", "_send_request")


def attach(client: ClientT, healing: Healing) -> ClientT:
    """Return a copy whose answers come back whole; raise `Unsupported` if there cannot be one."""
    check_client(client, PACKAGE, 3, {"OpenAI"}, _REFUSED)
    if not all(within(owner_of(client, hook), PACKAGE) for hook in _HOOKS):
        message = "it prepares or sends requests in a way of its own, as one that signs them does"
        raise Unsupported(message)
    _check_credentials(client)
    return healing.copy(client)


def _check_credentials(client: object) -> None:
    """Raise `Unsupported` where they sign requests, or send them past the HTTP client."""
    identity: object = getattr(client, "workload_identity", None)
    if isinstance(identity, Mapping) and cast("Any", identity).get("type") == "x509":
        message = "with an X.509 identity its requests do not go through its HTTP client's send"
        raise Unsupported(message)
    provider = getattr(client, "_provider_runtime", None)
    name = getattr(provider, "name", None)
    if provider is None or name == "vertex":  # a token in the headers, whatever the body
        return
    message = f"the provider {name!r} prepares its requests in a way we do not know"
    raise Unsupported(_SIGNED if name == "bedrock" else message)
