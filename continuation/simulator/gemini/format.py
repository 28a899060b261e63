"""Gemini's generateContent, as the Gemini API and Vertex speak it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import parse_qs

from continuation.limits import ModelLimits
from continuation.simulator.common import compact, conversation_key
from continuation.simulator.format import GRPC_STATUSES, Format
from continuation.simulator.gemini.checks import CHECKS, COUNT_CHECKS, model_known, not_found
from continuation.simulator.gemini.events import Writer
from continuation.simulator.gemini.hops import Portion, Progress, Tokens
from continuation.simulator.gemini.request import (
    Context,
    Target,
    config,
    get,
    target,
    turns,
)
from continuation.simulator.model import Ask, Said
from continuation.simulator.scenario import Reply, Scenario
from continuation.simulator.wire import Answer, Event, Json, Recorded, Refusal, Route
from continuation.wire.json_values import as_list, mapping

_KINDS = {
    "invalid_request_error": "INVALID_ARGUMENT",
    "authentication_error": "UNAUTHENTICATED",
    "permission_error": "PERMISSION_DENIED",
    "not_found_error": "NOT_FOUND",
    "rate_limit_error": "RESOURCE_EXHAUSTED",
    "api_error": "INTERNAL",
    "overloaded_error": "UNAVAILABLE",
    "timeout_error": "DEADLINE_EXCEEDED",
}
"""Error types in Anthropic's words, which a reply may use whatever the format."""
_NO_KEY_VERTEX = (
    "Request is missing required authentication credential. Expected OAuth 2 access token, login "
    "cookie or other valid authentication credential."
)
_VERTEX = 65_535
"""What Vertex takes of 2.5, 3 and 3.5 Flash, whose limit the Gemini API tells as 65,536."""
_OURS = re.compile(r"gem|learnlm")
"""Names of models that are Google's, where the path is the same for several providers."""


class GeminiFormat(Format[Context]):
    """Serves generateContent, streamGenerateContent and what belongs to them, under any prefix."""

    checks = CHECKS
    kinds = GRPC_STATUSES
    client_kind = "INVALID_ARGUMENT"
    server_kind = fault_kind = "UNAVAILABLE"
    fault_texts: ClassVar[Mapping[str, str]] = {
        "RESOURCE_EXHAUSTED": "Resource has been exhausted (e.g. check quota).",
        "INTERNAL": "An internal error has occurred. Please retry.",
        "UNAVAILABLE": "The model is overloaded. Please try again later.",
        "DEADLINE_EXCEEDED": "Deadline expired before operation could complete.",
        "": "Error",
    }
    id_header = ""
    json_type = "application/json; charset=UTF-8"
    key_headers = ("x-goog-api-key", "authorization")
    no_key = Refusal(
        "Method doesn't allow unregistered callers (callers without established identity). Please "
        "use API Key or other form of API consumer identity to call this API.",
        403,
    )
    no_json = Refusal("Invalid JSON payload received. Unexpected end of string.")

    def __init__(self, models: Mapping[str, ModelLimits]) -> None:
        super().__init__(models)
        self._tokens = Tokens()

    def forget(self) -> None:
        self._tokens.forget()

    def route(self, method: str, path: str) -> Route | None:
        """Take what is Gemini's; `/v1/models/NAME`, which others have too, goes by the name."""
        asked = target(path)
        if asked is None:
            return None
        if method == "POST" and asked.verb in ("generateContent", "streamGenerateContent"):
            return "model"
        ours = asked.verb or asked.vertex or asked.version != "v1" or _OURS.match(asked.model)
        return "other" if ours else None

    def context(self, request: Recorded) -> Context:
        """Read a request; where the table has Vertex's odd limit, the Gemini API's is one more."""
        asked, scenario = _target(request), request.scenario
        limits, known = self.limits(asked.model, scenario)
        odd = limits.ceiling == _VERTEX and asked.model not in self.models
        if odd and not asked.vertex and scenario.ceiling is None:
            limits = replace(limits, ceiling=_VERTEX + 1)
        return Context(request, limits, known, asked, self._tokens)

    def ask(self, request: Recorded) -> Ask:
        context = self.context(request)
        body, before = context.body, context.progress or Progress()
        said = turns(body)
        first = said[0].text if said else ""
        # What the hops before left of the limit, and what the model has to say again.
        left = context.limit - before.spent
        return Ask(
            [*said, Said("assistant", before.text)] if before.text else said,
            0 if left <= 0 else left + before.repeated,
            context.room(context.input_tokens),
            [str(word) for word in as_list(get(config(body), "stopSequences"))],
            context.thinks and before.only_thought,
            context.shows_thinking,
            conversation_key(get(body, "systemInstruction"), first),
            "candidatesTokenCount",
        )

    def write(self, context: Context, reply: Reply) -> Json | Iterable[Event]:
        before = context.progress
        left = math.inf if before is None else max(0, context.limit - before.spent)
        hop = math.inf if context.hop_room is None else context.hop_room
        portion = Portion(reply.blocks, before or Progress(), min(left, hop))
        if portion.cut:  # to this hop's share
            whole = context.limit <= portion.progress.spent
            reply = replace(
                reply, stop="max_tokens" if whole else "CONTINUATION", stop_sequence=None
            )
        writer = Writer(context, reply, portion, self.new_id("", ""))
        if not context.streamed:
            return writer.response()
        return (Event(None, compact(chunk)) for chunk in writer.chunks())

    def stream(
        self, context: Context, events: Sequence[Event], headers: Mapping[str, str]
    ) -> Answer:
        """Frame a stream as Google does: with CRLF at a line's end, or as one JSON array."""
        framed: list[Event] = []
        if _wants_events(context.request):
            for event in events:
                text = f"data: {event.data}\r\n\r\n"
                framed.append(replace(event, name=None, framed=text.encode()))
            return Answer(200, {"content-type": "text/event-stream", **headers}, events=framed)
        opening = "["
        for event in events:
            text = f"{opening}{event.data}\n"
            framed.append(replace(event, name=None, framed=text.encode()))
            opening = ",\r\n"
        framed.append(Event(None, "", b"]" if framed else b"[]"))
        return Answer(200, {"content-type": self.json_type, **headers}, events=framed)

    # -- errors

    def unknown_caller(self, request: Recorded) -> Refusal | None:
        """Refuse a request without a key, which may be in the query too."""
        refusal = super().unknown_caller(request)
        if refusal is None or any(parse_qs(request.query).get("key", [])):
            return None
        return Refusal(_NO_KEY_VERTEX, 401) if _target(request).vertex else refusal

    def refused(
        self, refusal: Refusal, request: Recorded, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Write a refusal; where the answer would have been an array, so is the error."""
        answer = super().refused(refusal, request, headers)
        listed = _target(request).verb == "streamGenerateContent" and not _wants_events(request)
        return replace(answer, body=b"[" + answer.body + b"]") if listed else answer

    def error_body(self, refusal: Refusal, scenario: Scenario) -> Any:
        status = self.kind_of(refusal)
        return {"error": {"code": refusal.status, "message": refusal.text, "status": status}}

    def kind_of(self, refusal: Refusal) -> str:
        kind = super().kind_of(refusal)
        return _KINDS.get(kind, kind)

    def status_of(self, kind: str) -> int:
        return super().status_of(_KINDS.get(kind, kind))

    # -- other endpoints

    def other(self, request: Recorded) -> Answer:
        asked = _target(request)
        if request.method == "GET" and not asked.verb:
            return self._describe(request, asked)
        if request.method == "POST" and asked.verb == "countTokens":
            if inner := mapping(get(request.body or {}, "generateContentRequest")):
                request = replace(request, body=inner)
            counted = {"totalTokens": self.context(request).input_tokens}
            return self.refuse(request, COUNT_CHECKS) or self.json(200, counted)
        return self.refused(Refusal("Requested entity was not found.", 404), request)

    def _describe(self, request: Recorded, asked: Target) -> Answer:
        context = self.context(request)
        model, gone = context.model, next(model_known(context), None)
        if gone is not None or not context.known or not request.scenario.models_endpoint:
            return self.refused(not_found(asked), request)
        if asked.vertex:  # which tells no limits
            name = f"publishers/google/{asked.resource}"
            return self.json(200, {"name": name, "versionId": "default"})
        limits = {"inputTokenLimit": model.window, "outputTokenLimit": model.ceiling}
        described = {
            "name": asked.resource,
            "version": "001",
            "displayName": asked.model,
            **{name: value for name, value in limits.items() if value is not None},
            "supportedGenerationMethods": ["generateContent", "countTokens"],
            "thinking": model.thinking != "none",
        }
        return self.json(200, described)


def _target(request: Recorded) -> Target:
    found = target(request.path)
    assert found is not None, "another path is not routed here"
    return found


def _wants_events(request: Recorded) -> bool:
    return parse_qs(request.query).get("alt") == ["sse"]
