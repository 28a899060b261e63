"""The Anthropic Messages format (`POST .../v1/messages`), Vertex and Foundry paths included.

Wire facts: API reference "Messages", docs "Handling stop reasons", "Streaming", "Extended
thinking", "Errors", and the behaviour of anthropic 2.12.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from continuation.answer.blocks import SERVER_CALLS, TEXT, THINKING, TOOL_CALL
from continuation.answer.message_builder import MessageBuilder
from continuation.policy import Policy
from continuation.providers.anthropic_messages.format import MessagesForm
from continuation.types import ClassifiedError, ErrorKind, Head, Json, Outgoing, Request, Way
from continuation.wire.error_body import label_of, message_of
from continuation.wire.json_values import as_json, as_list, as_text, dumps, loads
from continuation.wire.request_body import read_body

_PATH = re.compile(r"/v1/messages/?$")
_VERTEX = re.compile(r"/publishers/anthropic/models/([^/:]+):(?:streamRawPredict|rawPredict)$")

# Parameters that tie an answer to server-side state a merged turn would break, or whose effect on
# a second request is not ours to judge (message threads, refusal credit, compaction betas).
_FOREIGN = ("thread", "fallback_credit_token", "compaction")

_CEILING = re.compile(r"max_tokens: \d+ > (\d+), which is the maximum allowed")
_CEILING_ELSEWHERE = (
    re.compile(r"maximum tokens you requested exceeds the model limit of (\d+)"),
    re.compile(r"max_tokens\D*must be (?:less than or equal to|<=|at most) (\d+)"),
    re.compile(r"max_tokens\D*must not exceed (\d+)"),
)
_ROOM = re.compile(r"exceed context limit: (\d+) \+ (\d+) > (\d+)")
_PREFILL = re.compile(r"prefill|must end with a user message|final position", re.IGNORECASE)
_LEAST_THINKING = 1024
"""Tokens; a smaller `budget_tokens` is refused (docs: "Extended thinking")."""
_FORM = MessagesForm()
_BUSY = frozenset({408, 409, 429, 500, 502, 503, 504, 529})


class MessagesRequest:
    """One Messages request of the caller's."""

    unbounded = False
    ceiling: int | None = None
    # The SDK refuses a larger limit without streaming: it expects more than ten minutes.
    unary_ceiling: int | None = 21_333
    hop_ceiling: int | None = None

    def __init__(self, path: str, body: Json) -> None:
        self._path = path
        self._body = body
        vertex = _VERTEX.search(path)
        self._vertex = vertex is not None
        self.model = vertex[1] if vertex else as_text(body.get("model"))
        limit = body.get("max_tokens")
        self.limit = limit if isinstance(limit, int) and not isinstance(limit, bool) else None
        self.streamed = bool(body.get("stream")) or path.endswith(":streamRawPredict")
        shaped = as_json(body.get("output_config")).get("format") or body.get("output_format")
        # A forced call is structured output of another name, and nothing can lift it: a model
        # that has to call cannot be asked to go on with its text. Only asking again helps.
        choice = as_text(as_json(body.get("tool_choice")).get("type"))
        self._forced = choice if choice in {"any", "tool"} else ""
        self.structured = bool(shaped or self._forced)
        self.liftable = not self._forced

    def untouched(self, policy: Policy) -> str | None:
        """Why this request is not ours to heal."""
        if self.limit is None:
            return "no max_tokens in the request"
        if self._forced and policy.forced_tool_choice == "pass":
            return f"tool_choice {self._forced!r} forces a call"
        foreign = next((key for key in _FOREIGN if self._body.get(key) is not None), None)
        return f"the request uses {foreign!r}" if foreign else None

    @property
    def _thinking(self) -> bool:
        return as_text(as_json(self._body.get("thinking")).get("type")) not in {"", "disabled"}

    def prefills(self, model_takes_it: bool) -> bool:
        """Prefill needs thinking off and no output format (docs: "Prefill not supported")."""
        return model_takes_it and not self._thinking and not self.structured

    @property
    def body(self) -> Json:
        """The request's body."""
        return self._body

    def mended(self, body: Mapping[str, object], more: str | None) -> MessagesRequest:
        """Return the same request with another body; `more` is said for the user at its end."""
        changed = dict(body)
        if more is not None:
            messages = list(as_list(body.get("messages")))
            _extend(messages, "user", [{"type": "text", "text": more}])
            changed["messages"] = messages
        return MessagesRequest(self._path, changed)

    def outgoing(self, headers: Mapping[str, str]) -> Outgoing:
        """Return the request as it is, with further headers."""
        return Outgoing(dumps(self._body), headers=headers)

    def first(self, limit: int) -> Outgoing:
        """Return the caller's request with another limit."""
        return Outgoing(dumps({**self._body, "max_tokens": limit}))

    def again(self, limit: int | None) -> Outgoing:
        """Return the same request with another limit, streamed."""
        return self._send(dict(self._body), limit)

    def resume(self, answer: MessageBuilder, way: Way, prompt: str, limit: int | None) -> Outgoing:
        """Return the request that asks the model to go on from `answer`."""
        messages = list(as_list(self._body.get("messages")))
        if way is Way.PREFILL:
            _extend(messages, "assistant", _stripped(_replayed(answer.content)))
        elif way is Way.RETRY_SMALLER:
            _extend(messages, "assistant", _replayed(answer.content))
            _extend(messages, "user", [{"type": "text", "text": prompt}])
        else:
            for content, asked in answer.pairs:
                if asked is not None:
                    _extend(messages, "user", [{"type": "text", "text": asked}])
                _extend(messages, "assistant", _replayed(content))
            _extend(messages, "user", [{"type": "text", "text": prompt}])
        body = _lifted({**self._body, "messages": messages})
        container = as_json(answer.lasting("container")).get("id")
        if container:
            body["container"] = container
        return self._send(body, limit)

    def prefilled(self, answer: MessageBuilder) -> str:
        """Return the text that `resume` by prefill ends with."""
        return answer.open_text.rstrip()

    def answer(self, policy: Policy) -> MessageBuilder:
        return MessageBuilder(_FORM, policy)

    def with_less_thinking(self) -> MessagesRequest | None:
        """Lower a manual budget to its minimum, or the effort where thinking is adaptive."""
        thinking, config = as_json(self._body.get("thinking")), self._body.get("output_config")
        budget = thinking.get("budget_tokens")
        if isinstance(budget, int):
            lowered: Json = {"thinking": {**thinking, "budget_tokens": _LEAST_THINKING}}
            return (
                MessagesRequest(self._path, {**self._body, **lowered})
                if budget > _LEAST_THINKING
                else None
            )
        if as_json(config).get("effort") == "low" or not self._thinking:
            return None
        return MessagesRequest(
            self._path, {**self._body, "output_config": {**as_json(config), "effort": "low"}}
        )

    def hop(self, answer: MessageBuilder, limit: int | None) -> Outgoing:
        """Not reached: this format gives no tokens."""
        return self.again(limit)

    def lookup(self) -> Outgoing | None:
        """Ask `GET /v1/models/{id}`; Vertex has no such endpoint."""
        if self._vertex or not self.model:
            return None
        return Outgoing(b"", path=_model_path(self.model), method="GET")

    def refused(self, head: Head, body: bytes) -> ClassifiedError:
        """Classify an error answer to a later attempt."""
        text, label = message_of(body), label_of(head.status, body)
        if head.status in _BUSY:
            # A spend cap says 429 with no hint when to come back, but so do many gateways.
            return ClassifiedError(ErrorKind.RETRYABLE, label)
        if room := _ROOM.search(text):
            return ClassifiedError(ErrorKind.CONTEXT_OVERFLOW, label, int(room[3]) - int(room[1]))
        for pattern in (_CEILING, *_CEILING_ELSEWHERE):
            if found := pattern.search(text):
                return ClassifiedError(ErrorKind.CEILING, label, int(found[1]))
        if _PREFILL.search(text):
            return ClassifiedError(ErrorKind.PREFILL, label)
        return ClassifiedError(ErrorKind.FINAL, label)

    def looked_up(self, body: bytes) -> int | None:
        """Read `ModelInfo.max_tokens`."""
        try:
            value = as_json(loads(body)).get("max_tokens")
        except ValueError:
            return None
        return value if isinstance(value, int) and value > 0 else None

    def amended(
        self, policy: Policy, head: Head | None = None, body: bytes = b""
    ) -> MessagesRequest | None:
        """Return `None`: this format keeps nothing at the server."""
        return None

    def _send(self, body: Json, limit: int | None) -> Outgoing:
        body["max_tokens"] = limit if limit is not None else self.limit
        body["stream"] = True
        path = _streamed_path if self._vertex else None
        return Outgoing(dumps(body), path=path, headers={"accept": "application/json"})


def _streamed_path(path: str) -> str:
    return (
        path.removesuffix(":rawPredict") + ":streamRawPredict"
        if (path.endswith(":rawPredict"))
        else path
    )


def _model_path(model: str) -> Callable[[str], str]:
    return lambda path: _PATH.sub(f"/v1/models/{model}", path)


def _lifted(body: Json) -> Json:
    """Lift the output constraint: what goes on from half a document is no whole document."""
    body.pop("output_format", None)
    config = {k: v for k, v in as_json(body.get("output_config")).items() if k != "format"}
    if config:
        body["output_config"] = config
    else:
        body.pop("output_config", None)
    return body


def _extend(messages: list[Any], role: str, content: list[Json]) -> None:
    """Append a turn; strictly alternating roles are the form every server takes."""
    if not content:
        return
    last = as_json(messages[-1]) if messages else {}
    if last.get("role") != role:
        messages.append({"role": role, "content": content})
        return
    before = last.get("content")
    blocks: list[Any] = (
        [{"type": "text", "text": before}] if isinstance(before, str) else as_list(before)
    )
    messages[-1] = {**last, "content": [*blocks, *content]}


def _replayed(content: list[Json]) -> list[Json]:
    """Return of an attempt's content what a later request may carry.

    By policy thinking and calls are shown as they come, and so a half one may be in it. Thinking
    behind text is refused where no server tool stands between ("the first block must be
    `thinking`"); outside a tool-use turn it may be left out.
    """
    answered = {block.get("tool_use_id") for block in content}
    kept = [block for block in content if _whole(block, answered)]
    if not any(block.get("type") in SERVER_CALLS for block in kept):
        first = kept[0].get("type") if kept else None
        kept = kept if first in THINKING else [b for b in kept if b.get("type") not in THINKING]
    while kept and kept[-1].get("type") in THINKING:
        kept.pop()
    return kept


def _whole(block: Json, answered: set[object]) -> bool:
    kind = block.get("type")
    if kind == TEXT:
        return bool(as_text(block.get("text")).strip())
    if kind in SERVER_CALLS:
        return block.get("id") in answered
    return kind != TOOL_CALL and (kind != "thinking" or bool(block.get("signature")))


def _stripped(content: list[Json]) -> list[Json]:
    """Strip the end of the last text: a final assistant turn must not end in whitespace."""
    if content and content[-1].get("type") == TEXT:
        return [*content[:-1], {**content[-1], "text": as_text(content[-1].get("text")).rstrip()}]
    return content


class AnthropicMessages:
    """The dialect object."""

    name = "anthropic"
    history: str | None = "anthropic"
    default_ceiling = 64_000
    default_timeout: float | None = 600.0

    def claims(self, method: str, path: str) -> bool:
        """Whether a request is a Messages call."""
        return method == "POST" and (
            _PATH.search(path) is not None or _VERTEX.search(path) is not None
        )

    def call(self, request: Request) -> MessagesRequest:
        """Read a request. Raises `Untouched` when it is not one we can read."""
        return MessagesRequest(request.path, read_body(request))


DIALECT = AnthropicMessages()
