"""The Anthropic Messages format (`POST .../v1/messages`), with the paths of Vertex and Bedrock.

Wire facts: API reference "Messages", docs "Handling stop reasons", "Streaming", "Extended
thinking", "Errors", the behaviour of anthropic 2.12, and Bedrock's API reference (InvokeModel).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Self

from continuation.answer.message_builder import MessageBuilder
from continuation.policy import Policy
from continuation.providers.anthropic_messages.codec import MessagesCodec
from continuation.providers.anthropic_messages.shape import MessagesShape
from continuation.providers.contract import Dialect, Grammar, SdkDriver
from continuation.providers.contract import MessageBuilder as Turn
from continuation.providers.request import BaseRequest, alternate, read_body, segment
from continuation.types import (
    ClassifiedError,
    ErrorKind,
    Head,
    Json,
    Outgoing,
    Request,
    Untouched,
    short,
)
from continuation.wire.blocks import SERVER_CALLS, TEXT, THINKING, TOOL_CALL
from continuation.wire.errors import label_of, message_of, word
from continuation.wire.json_values import as_int, as_json, as_list, as_text

_PATH = re.compile(r"/v1/messages/?$")
_VERTEX = re.compile(
    r"/publishers/anthropic/models/(?!count-tokens:)([^/:]+):(?:streamRawPredict|rawPredict)$"
)
_BEDROCK = re.compile(r"/model/(.+)/invoke(-with-response-stream)?$")
_STREAM = "/invoke-with-response-stream"

# Parameters that connect an answer with server-side state, which a joined answer would break, and
# parameters of betas with an unknown effect on a second request: message threads, refusal credit,
# compaction.
_FOREIGN = ("thread", "fallback_credit_token", "compaction")

_FALLBACK_BETA = "server-side-fallback-2026-07-01"
"""The beta header of `fallbacks` (`anthropic.types.AnthropicBetaParam`)."""

_CEILINGS = (
    re.compile(r"max_tokens: \d+ > (\d+), which is the maximum allowed"),
    # Bedrock, Vertex, Foundry and gateways.
    re.compile(r"maximum tokens you requested exceeds the model limit of (\d+)"),
    re.compile(r"max_tokens\D*must be (?:less than or equal to|<=|at most) (\d+)"),
    re.compile(r"max_tokens\D*must not exceed (\d+)"),
    re.compile(r"\d+ is not less or equal to (\d+)"),
)
_ROOM = re.compile(r"exceed context limit: (\d+) \+ (\d+) > (\d+)")
_PREFILL = re.compile(r"prefill|must end with a user message|final position", re.IGNORECASE)
_LEAST_THINKING = 1024
"""Tokens. A smaller `budget_tokens` is refused (docs: "Extended thinking")."""
_BUSY = frozenset({408, 409, 424, 429, 500, 502, 503, 504, 529})
"""The statuses after which a request is retried. Bedrock sends 424 if its model failed."""


class MessagesRequest(BaseRequest):
    """One Messages request of the caller."""

    ceiling_field = "max_tokens"
    # Without streaming the SDK refuses a larger limit, because it would take over ten minutes.
    unary_ceiling = 21_333
    gathers_exactly = True

    def __init__(self, request: Request, body: Json) -> None:
        super().__init__(request, body)
        self.streamed = bool(body.get("stream")) or request.path.endswith(":streamRawPredict")
        # These clouds have the model's name in the path, and no models endpoint.
        self._cloud = _VERTEX.search(request.path) or _BEDROCK.search(request.path)
        if self._cloud:
            self.model = short(self._cloud[1])
            self._stream_path = partial(re.compile(r":rawPredict$").sub, ":streamRawPredict")
        if self._cloud and self._cloud.re is _BEDROCK:
            self.streamed, self.stream_key = self._cloud[2] is not None, ""
            self._stream_path = partial(re.compile(r"/invoke$").sub, _STREAM)
        shaped = as_json(body.get("output_config")).get("format") or body.get("output_format")
        # A forced call is another form of structured output that cannot be dropped: a model that
        # must call cannot continue its text. Only the same request with a higher limit helps.
        choice = as_text(as_json(body.get("tool_choice")).get("type"))
        self._forced = choice if choice in {"any", "tool"} else ""
        self.structured = bool(shaped or self._forced)
        self.can_drop_schema = not self._forced
        thinking = as_text(as_json(body.get("thinking")).get("type"))
        self._thinking = thinking not in {"", "disabled"}
        self.falls_back = False
        """Policy added `fallbacks` to the request."""

    def untouched(self, policy: Policy) -> str | None:
        """Return why this request is passed through unchanged; `None`: it is not."""
        if self.limit is None:
            return "no max_tokens in the request"
        wanted = {policy.forced_tool_choice, policy.truncated_document} & {"heal", "complete"}
        if self._forced and not wanted:
            return f"tool_choice {self._forced!r} forces a call"
        for key in _FOREIGN:
            if self.body.get(key) is not None:
                return f"the request uses {key!r}"
        return None

    def rewritten(
        self, policy: Policy, head: Head | None = None, body: bytes = b""
    ) -> BaseRequest | None:
        """Ask the server to send a refused request to the model that it has for such cases.

        `fallbacks: "default"` changes nothing for a model without one (`BetaFallbacksParam`). A
        server that refuses the field gets the request without it.
        """
        if policy.refused != "fallback" or self._cloud:
            return None
        changed = dict(self.body)
        if head is None and changed.setdefault("fallbacks", "default") == self.body.get(
            "fallbacks"
        ):
            return None
        if head is not None:
            if not (self.falls_back and "fallback" in message_of(body).lower()):
                return None
            del changed["fallbacks"]
        other = super()._like(changed)
        other.falls_back = head is None
        return other

    def _like(self, body: Json) -> Self:
        other = super()._like(body)
        other.falls_back = self.falls_back
        return other

    def _answers_tool(self, last: Json) -> bool:
        kinds = {as_json(block).get("type") for block in as_list(last.get("content"))}
        results = any(str(kind).endswith("tool_result") for kind in kinds)
        return results or super()._answers_tool(last)

    def resumes(self, policy: Policy) -> bool:
        """Whether to continue a paused answer. The SDK's tool runner does that itself."""
        helper = self._request.headers.get("x-stainless-helper", "").lower()
        return policy.paused == "resume" and "runner" not in helper

    def hop(self, answer: Turn, limit: int | None) -> Outgoing:
        """Send a paused answer back unchanged, as the docs demand ("Handling stop reasons")."""
        messages = self._messages_of(self.body)
        alternate(messages, "assistant", "content", answer.unchanged)
        body: Json = {**self.body, self.messages_key: messages}
        if container := as_json(answer.lasting.get("container")).get("id"):
            body["container"] = container
        return self._send(body, limit)

    def prefills(self, model_takes_it: bool) -> bool:
        """Whether prefill works. It needs thinking off, and no structured output (docs)."""
        return model_takes_it and not self._thinking and not self.structured

    def prefilled(self, answer: Turn) -> str:
        return answer.open_text.rstrip()

    def codec(self) -> MessagesCodec:
        return MessagesCodec()

    def answer(self, policy: Policy) -> MessageBuilder:
        return MessageBuilder(MessagesCodec(), policy)

    def _limited(self, body: Json, limit: int | None) -> Json:
        """Set the limit, which every request must have.

        A thinking budget that is not below the limit is lowered.
        """
        own = self.limit or 1
        limit = own if limit is None else limit
        limited: Json = {**body, self.limit_key: limit}
        budget = as_int(as_json(body.get("thinking")).get("budget_tokens"))
        # If the caller's budget is above the caller's limit, it may stay so (interleaved thinking).
        if budget is not None and limit <= budget < own:
            less = max(_LEAST_THINKING, budget * limit // own)
            limited["thinking"] = {**as_json(body.get("thinking")), "budget_tokens": less}
        return limited

    def with_less_thinking(self) -> MessagesRequest | None:
        """Set the thinking budget to its minimum, or the effort of adaptive thinking to "low"."""
        thinking, config = (as_json(self.body.get(k)) for k in ("thinking", "output_config"))
        budget = as_int(thinking.get("budget_tokens"))
        if budget is not None:
            least: Json = {**thinking, "budget_tokens": _LEAST_THINKING}
            lower = budget > _LEAST_THINKING
            return self._like({**self.body, "thinking": least}) if lower else None
        if config.get("effort") == "low" or not self._thinking:
            return None
        return self._like({**self.body, "output_config": {**config, "effort": "low"}})

    def lookup(self) -> Outgoing | None:
        """Return `GET /v1/models/{id}`, or `None` for a cloud, which has no such endpoint."""
        name = segment(self.model)
        if self._cloud or not name:
            return None
        return Outgoing(b"", path=lambda path: _PATH.sub("/v1/models/", path) + name, method="GET")

    def refused(self, head: Head, body: bytes) -> ClassifiedError:
        """Classify an error response to a later attempt."""
        text, label = message_of(body), label_of(head.status, body)
        if named := word(head.headers.get("x-amzn-errortype", "").partition(":")[0]):
            label = f"{head.status} {named}"
        if head.status in _BUSY:
            # A spend cap causes a 429 without a time for the retry. Many gateways send the same
            # for rate limits, so it is retried.
            return ClassifiedError(ErrorKind.RETRYABLE, label)
        if room := _ROOM.search(text):
            return ClassifiedError(ErrorKind.CONTEXT_OVERFLOW, label, int(room[3]) - int(room[1]))
        for pattern in _CEILINGS:
            if found := pattern.search(text):
                return ClassifiedError(ErrorKind.CEILING, label, int(found[1]))
        if _PREFILL.search(text):
            return ClassifiedError(ErrorKind.PREFILL, label)
        return ClassifiedError(ErrorKind.FINAL, label)

    # --- how a request is made --------------------------------------------------------------------

    @property
    def _headers(self) -> dict[str, str]:
        """Headers that the request needs beside the caller's."""
        if not self.falls_back:
            return {}
        named = self._request.headers.get("anthropic-beta", "")
        return {"anthropic-beta": ",".join(filter(None, (named, _FALLBACK_BETA)))}

    def outgoing(self, headers: Mapping[str, str]) -> Outgoing:
        return super().outgoing({**self._headers, **headers})

    def _send(self, body: Json, limit: int | None) -> Outgoing:
        sent = super()._send(body, limit)
        return replace(sent, headers={**sent.headers, **self._headers})

    def _add_user(self, messages: list[Any], text: str) -> None:
        alternate(messages, "user", "content", [{"type": TEXT, "text": text}])

    def _add_model(self, messages: list[Any], content: list[Json]) -> None:
        alternate(messages, "assistant", "content", _replayed(content))

    def _add_prefill(self, messages: list[Any], content: list[Json]) -> None:
        """Strip the end of the last text: the API refuses a final message that ends in spaces."""
        kept = _replayed(content)
        if kept and kept[-1].get("type") == TEXT:
            kept[-1] = {**kept[-1], "text": as_text(kept[-1].get("text")).rstrip()}
        alternate(messages, "assistant", "content", kept)

    def _for_recovery(self, body: Json, answer: Turn) -> Json:
        """Drop the output constraint, because the rest of a document is not a valid document."""
        body.pop("output_format", None)
        config = dict(as_json(body.get("output_config")))
        config.pop("format", None)
        if config:
            body["output_config"] = config
        else:
            body.pop("output_config", None)
        if container := as_json(answer.lasting.get("container")).get("id"):
            body["container"] = container
        return body

    @property
    def document(self) -> Json | None:
        config = as_json(self.body.get("output_config"))
        shaped = as_json(config.get("format")) or as_json(self.body.get("output_format"))
        return as_json(shaped.get("schema")) or None

    def _calling_none(self, body: Json) -> Json:
        return {**body, "tool_choice": {"type": "none"}} if body.get("tools") else body

    def _calling(self, body: Json, tool: str, schema: Json) -> Json:
        """Force a call, and drop thinking, with which the API refuses it.

        Source: docs "Extended thinking with tool use".
        """
        kept = {key: value for key, value in body.items() if key != "thinking"}
        tools = [{"name": tool, "input_schema": schema}]
        return {**kept, "tools": tools, "tool_choice": {"type": "tool", "name": tool}}


def _replayed(content: list[Json]) -> list[Json]:
    """Return an attempt's content without the blocks that a later request must not have.

    Thinking and calls may be truncated, if the policy delivers them live. The API refuses thinking
    after text ("the first block must be `thinking`"), unless a server tool is between them. Outside
    a tool loop, thinking may be dropped.
    """
    answered = {block.get("tool_use_id") for block in content}
    kept, server_tools = list[Json](), False
    for block in content:
        kind = block.get("type")
        if kind == TEXT:
            whole = bool(as_text(block.get("text")).strip())
        elif kind in SERVER_CALLS:
            whole = block.get("id") in answered
            server_tools = server_tools or whole
        else:
            whole = kind != TOOL_CALL and (kind != "thinking" or bool(block.get("signature")))
        if whole:
            kept.append(block)
    if kept and not server_tools and kept[0].get("type") not in THINKING:
        kept = [block for block in kept if block.get("type") not in THINKING]
    while kept and kept[-1].get("type") in THINKING:
        kept.pop()
    return kept


class AnthropicMessages(Dialect):
    """The dialect of the Messages format."""

    name = "anthropic"
    has_grammar = True
    default_ceiling = 64_000
    default_timeout: float | None = 600.0
    shape = MessagesShape()

    def claims(self, method: str, path: str) -> bool:
        if method != "POST":
            return False
        return bool(_PATH.search(path) or _VERTEX.search(path) or _BEDROCK.search(path))

    def call(self, request: Request) -> MessagesRequest:
        body = read_body(request)
        if "anthropic_version" not in body and _BEDROCK.search(request.path):
            raise Untouched("it asks a model of another format")
        return MessagesRequest(request, body)

    def grammar(self) -> Grammar:
        from continuation.providers.anthropic_messages.history import AnthropicGrammar

        return AnthropicGrammar()

    def driver(self) -> SdkDriver:
        from continuation.providers.anthropic_messages.sdk import DRIVER

        return DRIVER

    def keep_alive(self, opening: bytes) -> bytes:
        return b'event: ping\ndata: {"type": "ping"}\n\n'


DIALECT = AnthropicMessages()
