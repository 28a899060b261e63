"""What the requests of OpenAI's two formats have in common: the vendor, the model, its ceiling."""

from __future__ import annotations

import re

from continuation.providers.openai_common.vendors import profile
from continuation.types import Json, Outgoing, Request
from continuation.wire.json_values import as_json, as_list, as_text
from continuation.wire.request import BaseRequest

_DEPLOYMENT = re.compile(r"/deployments/([^/]+)/(?:chat/completions|responses)/?$")  # Azure
_UNARY = 21_333
"""Tokens that a model writes in the ten minutes after which the SDK gives up and asks again."""


class OpenAIRequest(BaseRequest):
    """A request to a server that speaks one of OpenAI's formats."""

    def __init__(self, request: Request, body: Json) -> None:
        super().__init__(request, body)
        vendor = self._vendor = profile(request.host + request.path, request.server)
        deployed = _DEPLOYMENT.search(request.path)
        self.model = self.model or (deployed[1] if deployed else "")
        self.ceiling = vendor.ceiling(self.model)
        self.ceiling_field = vendor.ceiling_field
        self.unary_ceiling = min(_UNARY, vendor.stream_above or _UNARY)
        self._asked: int | None = None
        """The limit of the request sent last."""

    def lookup(self) -> Outgoing | None:
        """Ask the server's models endpoint, where one tells a ceiling."""
        path = self._vendor.models_url(self._request.path, self.model)
        return Outgoing(b"", path=lambda _: path, method="GET") if path and self.model else None


def needy(body: Json) -> frozenset[str]:
    """Return the tools that cannot be called without arguments: a call without any was cut."""
    tools = [as_json(tool) for tool in as_list(body.get("tools"))]
    # Chat Completions wrap in "function" what Responses say of the tool itself.
    declared = [as_json(tool.get("function")) or tool for tool in tools]
    return frozenset(
        as_text(tool.get("name"))
        for tool in declared
        if as_list(as_json(tool.get("parameters")).get("required"))
    )
