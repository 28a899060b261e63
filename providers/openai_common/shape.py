"""What the shapes of OpenAI's two formats share."""

from __future__ import annotations

from continuation.providers.contract import Shape

IGNORED = frozenset({"annotations", "index", "logprobs", "parsed", "parsed_arguments"})
"""The fields of a message that are not content, or that the SDK adds."""


class OpenAIShape(Shape):
    """The common part of the two shapes."""

    batch_request, batch_answer = "body", ("response", "body")
    upstream, server, telemetry = "openai", "https://api.openai.com", "openai"
    server_path = "/v1"
    key_header, key_prefix = b"authorization", b"Bearer "
