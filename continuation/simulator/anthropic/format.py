"""The simulated Messages API of Anthropic, and the requests that it refuses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import unquote

from continuation.simulator.anthropic import signatures
from continuation.simulator.anthropic.events import AnthropicReplyWriter
from continuation.simulator.anthropic.request import THINKING, AnthropicContext, input_tokens
from continuation.simulator.anthropic.rules import RULES, faults
from continuation.simulator.common import compact, conversation_key, numbers_in
from continuation.simulator.format import Format
from continuation.simulator.model import Ask, PromptTurn
from continuation.simulator.scenario import Reply, Scenario
from continuation.simulator.wire import Answer, Event, Json, Recorded, Refusal, Route
from continuation.wire.eventstream import encode
from continuation.wire.json_values import as_int, as_list, loads, mapping

# -- what is refused

_THINKING_DOCS = "https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking"
_CONTROLS = "thinking-binding-controls-2026-08-01"
_NEEDS_CONTROLS = f"That setting requires the `{_CONTROLS}` value in the `anthropic-beta` header."


def form(context: AnthropicContext) -> Iterator[str]:
    """Refuse a request without a valid limit or messages. The texts are ours."""
    if (requested := as_int(context.requested)) is None:
        yield "max_tokens: Input should be a valid integer"
    elif requested < 0:
        yield "max_tokens: Input should be greater than or equal to 0"
    if not context.turns:
        yield "messages: at least one message is required"


def settings(context: AnthropicContext) -> Iterator[Refusal | str]:
    """Refuse an unknown model, a limit above the ceiling, and thinking the model does not have."""
    requested, most = context.requested, context.model.ceiling
    if not context.served:
        yield Refusal(f"model: {context.name}", 404)
    if requested > most:
        yield (
            f"max_tokens: {requested} > {most}, which is the maximum allowed number of output "
            f"tokens for {context.name}"
        )
    kind, mode = context.thinking, context.model.thinking
    if mode == "always" and kind in ("enabled", "disabled"):
        yield f'"thinking.type.{kind}" is not supported for this model.'
    if mode == "manual" and kind == "adaptive":
        yield "adaptive thinking is not supported on this model"
    # The budget must be below the limit, except with interleaved thinking.
    interleaved = any(beta.startswith("interleaved-thinking") for beta in context.betas)
    if 0 < requested <= (context.budget or 0) and not interleaved:
        yield (
            "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our "
            f"documentation at {_THINKING_DOCS}#max-tokens-and-context-window-size"
        )
    if context.budget is not None and context.budget < 1024:
        yield "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"


def prefill(context: AnthropicContext) -> Iterator[str]:
    """Refuse a trailing assistant message, unless it is a paused answer that is continued."""
    last = context.turns[-1] if context.turns else None
    if last is None or last.role != "assistant" or last.of("server_tool_use"):
        return
    if context.thinking == "disabled" and last.of(*THINKING):
        yield RULES.fault("thinking_when_off", last.message).text
    if not context.model.prefill or context.thinking not in (None, "disabled"):
        yield RULES.fault("prefill_unsupported").text


def history(context: AnthropicContext) -> Iterator[str]:
    """Refuse an invalid history. A call without a result is invalid, because the model must answer.

    Thinking must be signed. It must be first in a turn that has thinking. In a turn with server
    tools it must be first only in manual mode.
    """
    manual = context.model.thinking == "manual" or context.thinking == "enabled"
    for turn in context.turns:
        for placed in turn.of("thinking"):
            if placed.block.get("signature") is None:
                yield f"{placed.path}.thinking.signature: Field required"
        first = turn.blocks[0].kind if turn.role == "assistant" and turn.blocks else ""
        leads = manual or not turn.of("server_tool_use")
        if turn.of(*THINKING) and first not in THINKING and turn.role == "assistant" and leads:
            yield RULES.fault("thinking_not_first", turn.message, detail=first).text
    yield from (fault.text for fault in faults(context.body, context.model))


def thinking_blocks(context: AnthropicContext) -> Iterator[str]:
    """Refuse invalid signatures and, for binding models, a block after a changed conversation."""
    binding = mapping(mapping(context.body.get("thinking")).get("block_binding"))
    drop = binding.get("prefix_mismatch_behavior") == "drop_block"
    broken = signatures.errors(
        context.body,
        binding=context.model.binding and not (drop and _CONTROLS in context.betas),
        strict=context.scenario.strict_signatures,
    )
    for code, placed in broken:
        text = RULES.fault(code, *numbers_in(placed.path)).text
        yield f"{text} {_NEEDS_CONTROLS}" if drop and code == "thinking_bound" else text


def window(context: AnthropicContext) -> Iterator[str]:
    most = context.model.window
    if most is None:
        return
    used, requested = input_tokens(context.body), context.requested
    if used > most:
        yield f"prompt is too long: {used} tokens > {most} maximum"
    if context.model.window_shared and used + requested > most:
        yield (
            f"input length and `max_tokens` exceed context limit: {used} + {requested} > {most}, "
            "decrease input length or `max_tokens` and try again"
        )


# -- Bedrock: it has the model in the path, AWS event streams, and AWS's names of errors

_INVOKE = re.compile(r"/model/([^/]+)/invoke(-with-response-stream)?$")
_PREDICT = re.compile(r"/publishers/anthropic/models/([^/:]+):(r|streamR)awPredict$")
"""Matches the path of Vertex, which also has the model's name."""
_EXCEPTIONS = {
    400: "ValidationException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
}
_IN_STREAM = {
    "rate_limit_error": "throttlingException",
    "overloaded_error": "serviceUnavailableException",
    "invalid_request_error": "validationException",
    "timeout_error": "modelTimeoutException",
    "api_error": "internalServerException",
}


def invoked(context: AnthropicContext) -> Iterator[str]:
    """Refuse a body with `model` or `stream`, or without `anthropic_version`, on Bedrock."""
    if _INVOKE.search(context.request.path):
        text = "Malformed input request: #: {}, please reformat your input and try again."
        body = mapping(loads(context.request.raw))
        for name in ("model", "stream"):
            if name in body:
                yield text.format(f"extraneous key [{name}] is not permitted")
        if "anthropic_version" not in body:
            yield text.format("required key [anthropic_version] not found")


class AnthropicFormat(Format[AnthropicContext]):
    """Serves `/v1/messages` and the paths below it, with any prefix.

    It also serves the paths of Bedrock and Vertex.
    """

    checks = (invoked, form, settings, prefill, history, thinking_blocks, window)
    kinds: ClassVar[Mapping[int, str]] = {
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        500: "api_error",
        504: "timeout_error",
        529: "overloaded_error",
    }
    server_kind = "api_error"
    fault_kind = "overloaded_error"
    fault_texts: ClassVar[Mapping[str, str]] = {
        "rate_limit_error": "This request would exceed your account's rate limit. "
        "Please try again later.",
        "overloaded_error": "Overloaded",
        "api_error": "Internal server error",
    }
    error_event = "error"
    id_header = "request-id"
    key_headers = ("x-api-key", "authorization")
    no_key = Refusal("x-api-key header is required", 401)

    def route(self, method: str, path: str) -> Route | None:
        asks_model = path.endswith("/v1/messages") or _INVOKE.search(path) or _PREDICT.search(path)
        if method == "POST" and asks_model:
            return "model"
        return "other" if "/v1/messages/" in path or "/v1/models" in path else None

    def context(self, request: Recorded) -> AnthropicContext:
        if (match := _INVOKE.search(request.path)) and request.body is not None:
            whole = {**request.body, "model": unquote(match[1]), "stream": bool(match[2])}
            request = replace(request, body=whole)
        elif (match := _PREDICT.search(request.path)) and request.body is not None:
            whole = {**request.body, "model": match[1].replace("@", "-")}
            request = replace(request, body=whole)
        name = str((request.body or {}).get("model") or "")
        return AnthropicContext(request, *self.limits(name, request.scenario))

    def ask(self, context: AnthropicContext) -> Ask:
        body = context.body
        turns: list[PromptTurn] = []
        for turn in context.turns:
            text = "".join(str(placed.block.get("text", "")) for placed in turn.of("text"))
            role = "assistant" if turn.role == "assistant" else "user"
            turns.append(PromptTurn(role, text, bool(turn.of("tool_result"))))
        turns = turns or [PromptTurn("user", "")]
        return Ask(
            turns,
            int(context.requested),
            context.room(input_tokens(body)),
            [str(word) for word in as_list(body.get("stop_sequences"))],
            context.thinks,
            mapping(body.get("thinking")).get("display") != "omitted",
            conversation_key(body.get("system"), turns[0].text),
            endings={"paused": "pause_turn"},
        )

    def write(self, context: AnthropicContext, reply: Reply) -> Json | Iterable[Event]:
        writer = AnthropicReplyWriter(context, reply, self.new_id)
        return writer.events() if context.streamed else writer.message()

    def refused(
        self, refusal: Refusal, request: Recorded, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Return a refusal. Its body has the same request id as its header."""
        if _INVOKE.search(request.path):
            server = "InternalServerException"
            kind = refusal.kind or _EXCEPTIONS.get(refusal.status, server)
            head = {"x-amzn-errortype": kind, "x-amzn-requestid": self.new_id("req")}
            return self.json(refusal.status, {"message": refusal.text}, {**head, **(headers or {})})
        request_id = self.new_id("req")
        body = {**self.error_body(refusal, request.scenario), "request_id": request_id}
        return self.json(refusal.status, body, {self.id_header: request_id, **(headers or {})})

    def stream(
        self, context: AnthropicContext, events: Sequence[Event], headers: Mapping[str, str]
    ) -> Answer:
        if not _INVOKE.search(context.request.path):
            return super().stream(context, events, headers)
        head = self._headers("application/vnd.amazon.eventstream", headers)
        return Answer(200, head, events=[replace(e, framed=_framed(e)) for e in events])

    def error_body(self, refusal: Refusal, scenario: Scenario) -> Any:
        error = {"type": self.kind_of(refusal), "message": refusal.text}
        return {"type": "error", "error": error}

    def other(self, request: Recorded) -> Answer:
        what, *rest = request.path.rpartition("/v1/")[2].split("/")
        if what == "models" and request.method == "GET" and request.scenario.models_endpoint:
            return self._describe("/".join(rest), request)
        if rest == ["count_tokens"] and request.method == "POST":
            return self.json(200, {"input_tokens": input_tokens(request.body or {})})
        return self.refused(Refusal("Not Found", 404), request)

    def _describe(self, name: str, request: Recorded) -> Answer:
        limits, known = self.limits(name, request.scenario)
        if not known:
            return self.refused(Refusal(f"model: {name}", 404), request)
        described = {
            "id": name,
            "type": "model",
            "display_name": name,
            "created_at": "1970-01-01T00:00:00Z",
            "lifecycle": "active",
            "max_tokens": limits.ceiling,
            "max_input_tokens": limits.window,
        }
        return self.json(200, described)


def _framed(event: Event) -> bytes:
    """Return an event as a message of an AWS event stream. An error gets Bedrock's name."""
    if event.name != "error":
        return encode("", event.data.encode())
    error = mapping(mapping(loads(event.data)).get("error"))
    kind = str(error.get("type"))
    renamed = {**error, "type": _IN_STREAM.get(kind, kind)}
    return encode("error", compact({"error": renamed}).encode())
