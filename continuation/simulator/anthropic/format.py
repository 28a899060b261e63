"""Anthropic's Messages API, as the simulated provider speaks it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count, islice

from continuation.limits import DEFAULT_CEILING, ModelLimits, find
from continuation.simulator.anthropic import endpoints
from continuation.simulator.anthropic.body import Json, Turn, items, mapping, turns
from continuation.simulator.anthropic.checks import Context, first_refusal
from continuation.simulator.anthropic.events import Envelope, events, message, raw_events
from continuation.simulator.anthropic.rules import first_error, shape_error
from continuation.simulator.anthropic.signatures import Signer
from continuation.simulator.anthropic.usage import PromptCache, input_tokens
from continuation.simulator.model import Ask, Said
from continuation.simulator.scenario import Reply, Scenario
from continuation.simulator.wire import Answer, Event, Recorded, Route

MAX_BYTES = 32 * 1024 * 1024
_KINDS = {
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
_MESSAGES = {
    "rate_limit_error": "This request would exceed your account's rate limit. "
    "Please try again later.",
    "overloaded_error": "Overloaded",
    "api_error": "Internal server error",
}
_STRANGER = ModelLimits(ceiling=DEFAULT_CEILING, thinking="adaptive")


class AnthropicFormat:
    """Serves `/v1/messages` and what belongs to it, under any prefix of the path.

    `models` says what a model can do before the shipped table is asked.
    """

    def __init__(self, models: Mapping[str, ModelLimits]) -> None:
        self._models = models
        self._cache = PromptCache()
        self._batches: dict[str, Json] = {}
        self._numbers = count(1)

    def forget(self) -> None:
        self._cache.forget()
        self._batches.clear()

    def route(self, method: str, path: str) -> Route | None:
        if method == "POST" and path.endswith("/v1/messages"):
            return "model"
        return "other" if "/v1/messages/" in path or "/v1/models" in path else None

    def error(self, status: int, message: str, kind: str | None = None) -> Answer:
        request_id = self._id("req")
        error = {"type": kind or _kind(status), "message": message}
        return _json(
            status, {"type": "error", "error": error, "request_id": request_id}, request_id
        )

    def error_event(self, kind: str, message: str) -> Event:
        error = {"type": kind, "message": message}
        return Event("error", json.dumps({"type": "error", "error": error}))

    def refuse(self, request: Recorded, scenario: Scenario) -> Answer | None:
        return (
            self._stranger(request)
            or self._malformed(request, shape_error)
            or self._refused(request, scenario)
        )

    def ask(self, request: Recorded, scenario: Scenario) -> Ask:
        body = request.body or {}
        context = self._context(request, scenario)
        said = [_said(turn) for turn in turns(body)]
        window = context.model.window
        return Ask(
            said,
            int(body["max_tokens"]),
            None if window is None else max(0, window - input_tokens(body)),
            [str(word) for word in items(body.get("stop_sequences"))],
            context.thinks,
            mapping(body.get("thinking")).get("display") != "omitted",
            hashlib.sha256(json.dumps([body.get("system"), said[0].text]).encode()).hexdigest(),
        )

    def answer(self, request: Recorded, reply: Reply) -> Answer:
        body = request.body or {}
        if reply.raw_body is not None:
            return _raw(reply, self._id("req"))
        streamed = bool(body.get("stream"))
        if reply.status != 200 or (reply.error_after is not None and not streamed):
            return self._failure(reply)
        request_id = self._id("req")
        envelope = self._envelope(body)
        if not streamed:
            return _json(200, message(reply, envelope), request_id, reply.headers)
        head = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        headers = {**head, "request-id": request_id, **reply.headers}
        return Answer(200, headers, events=self._events(reply, envelope))

    def other(self, request: Recorded, scenario: Scenario) -> Answer:
        stranger = self._stranger(request)
        if stranger is not None:
            return stranger
        what, *rest = request.path.rpartition("/v1/")[2].split("/")
        if what == "models" and request.method == "GET":
            return self._describe("/".join(rest), scenario)
        if rest == ["count_tokens"] and request.method == "POST":
            return self._malformed(request, _count_error) or self._count(request.body or {})
        if rest[:1] == ["batches"]:
            return self._batch(request, rest[1:])
        return self.error(404, "Not Found")

    # -- refusals

    def _stranger(self, request: Recorded) -> Answer | None:
        if "x-api-key" not in request.headers and "authorization" not in request.headers:
            return self.error(401, "x-api-key header is required")
        if "anthropic-version" not in request.headers:
            return self.error(400, "anthropic-version: header is required")
        return None

    def _malformed(self, request: Recorded, rule: Callable[[Json], str | None]) -> Answer | None:
        if len(request.raw) > MAX_BYTES:
            return self.error(413, "Request exceeds the maximum size")
        if request.body is None:
            return self.error(400, "The request body is not valid JSON")
        text = rule(request.body)
        return None if text is None else self.error(400, text)

    def _refused(self, request: Recorded, scenario: Scenario) -> Answer | None:
        name = (request.body or {})["model"]
        if self._known(name) is None and not scenario.any_model:
            return self.error(404, f"model: {name}")
        text = first_refusal(self._context(request, scenario))
        return None if text is None else self.error(400, text)

    def _known(self, name: str) -> ModelLimits | None:
        return self._models.get(name) or find(name)

    def _context(self, request: Recorded, scenario: Scenario) -> Context:
        body = request.body or {}
        model = _limited(self._known(body["model"]) or _STRANGER, scenario)
        return Context(body, model, request.headers, scenario.strict_signatures)

    # -- answers

    def _envelope(self, body: Json) -> Envelope:
        call_ids = (self._id("toolu") for _ in count())
        usage = self._cache.usage(body)
        return Envelope(self._id("msg"), str(body["model"]), usage, Signer(body).sign, call_ids)

    def _events(self, reply: Reply, envelope: Envelope) -> list[Event]:
        raw = reply.raw_events
        whole = events(reply, envelope) if raw is None else raw_events(raw)
        if reply.error_after is None:
            return list(whole)
        kind, text = reply.error or ("overloaded_error", _MESSAGES["overloaded_error"])
        return [*islice(whole, reply.error_after), self.error_event(kind, text)]

    def _failure(self, reply: Reply) -> Answer:
        """Write an error status; one meant for a stream's middle has the status of its kind."""
        kind, text = reply.error or (None, None)
        status = reply.status if reply.status != 200 else _status(kind or "overloaded_error")
        kind = kind or _kind(status)
        answer = self.error(status, text or _MESSAGES.get(kind, kind), kind)
        return replace(answer, headers={**answer.headers, **reply.headers})

    def _id(self, prefix: str) -> str:
        return f"{prefix}_sim{next(self._numbers):021d}"

    # -- other endpoints

    def _count(self, body: Json) -> Answer:
        return _json(200, {"input_tokens": input_tokens(body)}, self._id("req"))

    def _describe(self, name: str, scenario: Scenario) -> Answer:
        if not scenario.models_endpoint:
            return self.error(404, "Not Found")
        if not name:
            return _json(200, endpoints.model_page(self._models), self._id("req"))
        known = self._known(name)
        if known is None:
            return self.error(404, f"model: {name}")
        return _json(200, endpoints.model_info(name, _limited(known, scenario)), self._id("req"))

    def _batch(self, request: Recorded, rest: list[str]) -> Answer:
        if request.method == "POST" and not rest:
            name = self._id("msgbatch")
            self._batches[name] = endpoints.batch(name, request.body or {})
            return _json(200, self._batches[name], self._id("req"))
        if request.method == "GET" and len(rest) == 1 and rest[0] in self._batches:
            return _json(200, self._batches[rest[0]], self._id("req"))
        return self.error(404, "Not Found")


def _kind(status: int) -> str:
    return _KINDS.get(status, "api_error" if status >= 500 else "invalid_request_error")


def _status(kind: str) -> int:
    return next((status for status, name in _KINDS.items() if name == kind), 500)


def _limited(model: ModelLimits, scenario: Scenario) -> ModelLimits:
    return model if scenario.ceiling is None else replace(model, ceiling=scenario.ceiling)


def _count_error(body: Json) -> str | None:
    return first_error({**body, "max_tokens": 1})


def _said(turn: Turn) -> Said:
    results = bool(turn.of("tool_result"))
    return Said("assistant" if turn.role == "assistant" else "user", turn.text, results)


def _json(
    status: int, value: Json, request_id: str, headers: Mapping[str, str] | None = None
) -> Answer:
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    head = {"content-type": "application/json", "request-id": request_id, **(headers or {})}
    return Answer(status, head, body)


def _raw(reply: Reply, request_id: str) -> Answer:
    raw = reply.raw_body
    if not isinstance(raw, bytes):
        raw = (raw if isinstance(raw, str) else json.dumps(raw)).encode()
    head = {"content-type": "application/json", "request-id": request_id, **reply.headers}
    return Answer(reply.status, head, raw)
