"""Gemini's generateContent, as the Gemini API and Vertex speak it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import count, islice
from typing import Any
from urllib.parse import parse_qs

from continuation.limits import DEFAULT_CEILING, ModelLimits, find
from continuation.simulator.anthropic.body import Json, items, mapping
from continuation.simulator.cost import compact
from continuation.simulator.gemini import signatures
from continuation.simulator.gemini.body import (
    Target,
    config,
    get,
    is_alias,
    is_google,
    target,
    turns,
)
from continuation.simulator.gemini.checks import Context, first_count_refusal, first_refusal
from continuation.simulator.gemini.events import Envelope, chunks, response
from continuation.simulator.gemini.hops import Portion, Progress, Tokens
from continuation.simulator.model import Ask, Said
from continuation.simulator.scenario import Reply, Scenario
from continuation.simulator.wire import Answer, Event, Recorded, Route

_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_MESSAGES = {
    "RESOURCE_EXHAUSTED": "Resource has been exhausted (e.g. check quota).",
    "INTERNAL": "An internal error has occurred. Please retry.",
    "UNAVAILABLE": "The model is overloaded. Please try again later.",
    "DEADLINE_EXCEEDED": "Deadline expired before operation could complete.",
}
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
_NO_KEY = (
    "Method doesn't allow unregistered callers (callers without established identity). Please use "
    "API Key or other form of API consumer identity to call this API."
)
_NO_KEY_VERTEX = (
    "Request is missing required authentication credential. Expected OAuth 2 access token, login "
    "cookie or other valid authentication credential."
)
_VERTEX = 65_535
"""What Vertex takes of 2.5, 3 and 3.5 Flash, whose limit the Gemini API tells as 65,536."""
_STRANGER = ModelLimits(ceiling=DEFAULT_CEILING, thinking="adaptive")


class GeminiFormat:
    """Serves generateContent, streamGenerateContent and what belongs to them, under any prefix.

    `models` says what a model can do before the shipped table is asked.
    """

    def __init__(self, models: Mapping[str, ModelLimits]) -> None:
        self._models = models
        self._tokens = Tokens()
        self._numbers = count(1)

    def forget(self) -> None:
        self._tokens.forget()

    def route(self, method: str, path: str) -> Route | None:
        """Take what is Gemini's; `/v1/models/NAME`, which others have too, goes by the name."""
        asked = target(path)
        if asked is None:
            return None
        if method == "POST" and asked.verb in ("generateContent", "streamGenerateContent"):
            return "model"
        ours = asked.verb or asked.vertex or asked.version != "v1" or is_google(asked.model)
        return "other" if ours else None

    def error(self, status: int, message: str, kind: str | None = None) -> Answer:
        body = compact(_error(status, message, kind)).encode()
        return Answer(status, {"content-type": "application/json; charset=UTF-8"}, body)

    def error_event(self, kind: str, message: str) -> Event:
        return _event(_error(_code(kind), message, kind))

    def refuse(self, request: Recorded, scenario: Scenario) -> Answer | None:
        asked = _target(request)
        refused = self._stranger(request, asked) or self._malformed(request, asked, scenario)
        return None if refused is None else _listed(request, refused)

    def ask(self, request: Recorded, scenario: Scenario) -> Ask:
        body = request.body or {}
        context = self._context(request, scenario)
        before = context.progress or Progress()
        said, window = turns(body), context.model.window
        first = said[0].text if said else ""
        key = json.dumps([get(body, "systemInstruction"), first])
        return Ask(
            [*said, Said("assistant", before.text)] if before.text else said,
            _limit(context, before),
            None if window is None else max(0, window - context.input_tokens),
            [str(word) for word in items(get(config(body), "stopSequences"))],
            context.thinks and before.only_thought,
            context.shows_thinking,
            hashlib.sha256(key.encode()).hexdigest(),
            "candidatesTokenCount",
        )

    def answer(self, request: Recorded, reply: Reply) -> Answer:
        scenario = request.scenario or Scenario()
        context = self._context(request, scenario)
        if reply.raw_body is not None:
            return _raw(reply)
        streamed = context.target.streams
        if reply.status != 200 or (reply.error_after is not None and not streamed):
            return _listed(request, self._failure(reply))
        portion = _portion(context, reply)
        reply = _ended(context, reply, portion)
        envelope = self._envelope(context, scenario)
        if not streamed:
            head = {"content-type": "application/json; charset=UTF-8", **reply.headers}
            return Answer(200, head, compact(response(reply, portion, envelope)).encode())
        return self._stream(request, reply, portion, envelope)

    def other(self, request: Recorded, scenario: Scenario) -> Answer:
        asked = _target(request)
        stranger = self._stranger(request, asked)
        if stranger is not None:
            return stranger
        if request.method == "GET" and not asked.verb:
            return self._describe(asked, scenario)
        if request.method == "POST" and asked.verb == "countTokens":
            return self._count(request, scenario)
        return self.error(404, "Requested entity was not found.")

    # -- refusals

    def _stranger(self, request: Recorded, asked: Target) -> Answer | None:
        keyed = any(parse_qs(request.query).get("key", []))
        if keyed or any(request.headers.get(name) for name in ("x-goog-api-key", "authorization")):
            return None
        if asked.vertex:
            return self.error(401, _NO_KEY_VERTEX)
        return self.error(403, _NO_KEY)

    def _malformed(self, request: Recorded, asked: Target, scenario: Scenario) -> Answer | None:
        if request.body is None:
            return self.error(400, "Invalid JSON payload received. Unexpected end of string.")
        if self._missing(asked, scenario):
            return self.error(404, _not_found(asked))
        text = first_refusal(self._context(request, scenario))
        return None if text is None else self.error(400, text)

    def _missing(self, asked: Target, scenario: Scenario) -> bool:
        """Whether there is no such model here; the `-latest` names are known to v1beta only."""
        if is_alias(asked.model) and asked.version == "v1":
            return True
        return self._known(asked) is None and not scenario.any_model

    def _known(self, asked: Target) -> ModelLimits | None:
        """Return what a model can do; where the table has Vertex's odd limit, this is one more."""
        given, table = self._models.get(asked.model), find(asked.model)
        if given is None and table is not None and not asked.vertex and table.ceiling == _VERTEX:
            return replace(table, ceiling=_VERTEX + 1)
        return given or table

    def _context(self, request: Recorded, scenario: Scenario) -> Context:
        asked = _target(request)
        model = self._known(asked) or _STRANGER
        if scenario.ceiling is not None:
            model = replace(model, ceiling=scenario.ceiling)
        return Context(
            request.body or {},
            asked,
            model,
            self._tokens,
            scenario.strict_signatures,
            scenario.tokens,
            scenario.hop,
        )

    # -- answers

    def _envelope(self, context: Context, scenario: Scenario) -> Envelope:
        before = context.progress or Progress()
        sign = partial(signatures.sign, vertex=context.vertex)
        issue = partial(self._tokens.issue, context.conversation)
        return Envelope(
            f"sim{next(self._numbers):019d}",
            context.target.model,
            context.input_tokens + before.spent,
            sign if context.generation >= 3 else None,
            issue if context.hops else None,
            context.shows_thinking,
            context.streams_arguments,
            context.candidates,
            scenario.empty_shape,
            scenario.checkpoint,
        )

    def _stream(
        self, request: Recorded, reply: Reply, portion: Portion, envelope: Envelope
    ) -> Answer:
        whole: Iterable[Any] = (
            chunks(reply, portion, envelope)
            if reply.raw_events is None
            else (data for _, data in reply.raw_events)
        )
        if reply.error_after is not None:
            whole = [*islice(whole, reply.error_after), _failed(reply)]
        sse = _wants_events(request)
        kind = "text/event-stream" if sse else "application/json; charset=UTF-8"
        events = map(_event, whole) if sse else _array(whole)
        return Answer(200, {"content-type": kind, **reply.headers}, events=list(events))

    def _failure(self, reply: Reply) -> Answer:
        """Write an error status; one meant for a stream's middle has the status of its kind."""
        kind, text = reply.error or (None, None)
        status = reply.status if reply.status != 200 else _code(kind or "UNAVAILABLE")
        answer = self.error(status, text or _MESSAGES.get(_status(status, kind), "Error"), kind)
        return replace(answer, headers={**answer.headers, **reply.headers})

    # -- other endpoints

    def _count(self, request: Recorded, scenario: Scenario) -> Answer:
        if request.body is None:
            return self.error(400, "Invalid JSON payload received. Unexpected end of string.")
        inner = mapping(get(request.body, "generateContentRequest"))
        context = self._context(replace(request, body=inner or request.body), scenario)
        text = first_count_refusal(context)
        if text is not None:
            return self.error(400, text)
        return _json({"totalTokens": context.input_tokens})

    def _describe(self, asked: Target, scenario: Scenario) -> Answer:
        known = self._known(asked)
        if not scenario.models_endpoint or known is None or self._missing(asked, scenario):
            return self.error(404, _not_found(asked))
        if asked.vertex:  # which tells no limits
            return _json({"name": f"publishers/google/{asked.resource}", "versionId": "default"})
        ceiling = known.ceiling if scenario.ceiling is None else scenario.ceiling
        limits = {"inputTokenLimit": known.window, "outputTokenLimit": ceiling}
        return _json(
            {
                "name": asked.resource,
                "version": "001",
                "displayName": asked.model,
                **{name: value for name, value in limits.items() if value is not None},
                "supportedGenerationMethods": ["generateContent", "countTokens"],
                "thinking": known.thinking != "none",
            }
        )


def _target(request: Recorded) -> Target:
    found = target(request.path)
    if found is None:
        msg = f"path: {request.path!r} names no model"
        raise ValueError(msg)
    return found


# -- hops


def _limit(context: Context, before: Progress) -> int:
    """Return what the model may say: what the hops before left, and what it has to say again."""
    left = context.limit - before.spent
    return 0 if left <= 0 else left + before.repeated


def _portion(context: Context, reply: Reply) -> Portion:
    """Take from a reply what this hop may bring."""
    before = context.progress
    left = math.inf if before is None else max(0, context.limit - before.spent)
    hop = math.inf if context.hop_room is None else context.hop_room
    return Portion(reply.blocks, before or Progress(), min(left, hop))


def _ended(context: Context, reply: Reply, portion: Portion) -> Reply:
    """Tell why a reply that was cut to one hop's share ended."""
    if not portion.cut:
        return reply
    whole = context.limit <= portion.progress.spent
    return replace(reply, stop="max_tokens" if whole else "CONTINUATION", stop_sequence=None)


# -- writing


def _wants_events(request: Recorded) -> bool:
    return parse_qs(request.query).get("alt") == ["sse"]


def _listed(request: Recorded, answer: Answer) -> Answer:
    """Put an error into an array where the answer would have been one."""
    if not _target(request).streams or _wants_events(request):
        return answer
    return replace(answer, body=b"[" + answer.body + b"]")


def _event(data: Any) -> Event:
    """Write a chunk as Google does: no name, no comments, and always CRLF at a line's end."""
    text = data if isinstance(data, str) else compact(data)
    return Event(None, text, f"data: {text}\r\n\r\n".encode())


def _array(whole: Iterable[Any]) -> Iterator[Event]:
    """Write a stream without `alt=sse`: a JSON array, one element after the other."""
    opening = "["
    for data in whole:
        text = data if isinstance(data, str) else compact(data)
        yield Event(None, text, f"{opening}{text}\n".encode())
        opening = ",\r\n"
    yield Event(None, "", b"]" if opening != "[" else b"[]")


def _error(status: int, message: str, kind: str | None) -> Json:
    return {"error": {"code": status, "message": message, "status": _status(status, kind)}}


def _failed(reply: Reply) -> Json:
    kind, text = reply.error or ("UNAVAILABLE", _MESSAGES["UNAVAILABLE"])
    return _error(_code(kind), text, kind)


def _status(status: int, kind: str | None) -> str:
    if kind is not None:
        return _KINDS.get(kind, kind)
    return _STATUSES.get(status, "UNAVAILABLE" if status >= 500 else "INVALID_ARGUMENT")


def _code(kind: str) -> int:
    named = _KINDS.get(kind, kind)
    return next((status for status, name in _STATUSES.items() if name == named), 500)


def _not_found(asked: Target) -> str:
    if asked.vertex:
        return (
            f"Publisher Model `publishers/google/{asked.resource}` was not found or your project "
            "does not have access to it. Please ensure you are using a valid model version."
        )
    return (
        f"{asked.resource} is not found for API version {asked.version}, or is not supported for "
        f"{asked.verb or 'generateContent'}. Call ListModels to see the list of available models "
        "and their supported methods."
    )


def _json(value: Json) -> Answer:
    head = {"content-type": "application/json; charset=UTF-8"}
    return Answer(200, head, compact(value).encode())


def _raw(reply: Reply) -> Answer:
    raw = reply.raw_body
    if not isinstance(raw, bytes):
        raw = (raw if isinstance(raw, str) else json.dumps(raw)).encode()
    head = {"content-type": "application/json; charset=UTF-8", **reply.headers}
    return Answer(reply.status, head, raw)
