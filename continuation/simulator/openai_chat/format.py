"""OpenAI's Chat Completions API and its many dialects, as the simulated provider speaks them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count, islice
from typing import Any
from urllib.parse import unquote

from continuation.limits import DEFAULT_CEILING, ModelLimits, find
from continuation.simulator.anthropic.body import Json, mapping
from continuation.simulator.anthropic.events import raw_events
from continuation.simulator.model import Ask, Said
from continuation.simulator.openai_chat import texts
from continuation.simulator.openai_chat.body import Context, model_name, stop_words, text_of
from continuation.simulator.openai_chat.checks import first_refusal
from continuation.simulator.openai_chat.errors import Refusal, error_body
from continuation.simulator.openai_chat.events import CREATED, DONE, Envelope, chunks, completion
from continuation.simulator.openai_chat.prefill import AttemptResult, ending
from continuation.simulator.openai_chat.shape import first_fault
from continuation.simulator.openai_chat.vendors import VENDORS, Vendor, find_vendor
from continuation.simulator.scenario import Reply, Scenario
from continuation.simulator.wire import Answer, Event, Recorded, Route

_KINDS = {
    401: "invalid_request_error",
    403: "invalid_request_error",
    429: "rate_limit_exceeded",
    503: "service_unavailable_error",
}
_RATE_LIMIT = "Rate limit reached. Please try again later."
_STRANGER = ModelLimits(ceiling=DEFAULT_CEILING, thinking="manual")


class ChatFormat:
    """Serves `…/chat/completions` and `…/models` under any prefix, as the scenario's vendor.

    `models` says what a model can do before the shipped table is asked.
    """

    def __init__(self, models: Mapping[str, ModelLimits]) -> None:
        self._models = models
        self._numbers = count(1)

    def forget(self) -> None:
        """Nothing is kept between requests."""

    def route(self, method: str, path: str) -> Route | None:
        if path.endswith("/chat/completions"):
            return "model" if method == "POST" else "other"
        return "other" if method == "GET" and _model_path(path) is not None else None

    def error(self, status: int, message: str, kind: str | None = None) -> Answer:
        return self._refuse(Refusal(message, status, kind or _kind(status)), VENDORS["openai"])

    def error_event(self, kind: str, message: str) -> Event:
        return _error_event(kind, message, VENDORS["openai"])

    def refuse(self, request: Recorded, scenario: Scenario) -> Answer | None:
        vendor = _vendor(scenario)
        refusal = _unknown_caller(request) or _fault(request) or self._refusal(request, scenario)
        return None if refusal is None else self._refuse(refusal, vendor)

    def ask(self, request: Recorded, scenario: Scenario) -> Ask:
        context = self._context(request, scenario)
        window = context.model.window
        said = _turns(context, ending(context))
        return Ask(
            said,
            context.limit,
            None if window is None else max(0, window - context.prompt),
            stop_words(context.body),
            context.thinks,
            context.vendor.reasoning is not None,
            _key(context.messages),
            "completion_tokens",
        )

    def answer(self, request: Recorded, reply: Reply) -> Answer:
        scenario = request.scenario or Scenario()
        context = self._context(request, scenario)
        if reply.raw_body is not None:
            return self._raw(reply)
        if reply.status != 200 or (reply.error_after is not None and not context.streamed):
            return self._failure(reply, context.vendor)
        envelope = self._envelope(context)
        if not context.streamed:
            return self._json(200, completion(reply, envelope), reply.headers)
        head = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        headers = {**head, "x-request-id": self._id("req"), **reply.headers}
        return Answer(200, headers, events=_events(reply, envelope))

    def other(self, request: Recorded, scenario: Scenario) -> Answer:
        vendor, name = _vendor(scenario), _model_path(request.path)
        refusal = _unknown_caller(request)
        if refusal is None and (name is None or not scenario.models_endpoint):
            text = f"Invalid URL ({request.method} {request.path})"
            refusal = Refusal(text, 404 if name is not None else 405)
        if refusal is not None:
            return self._refuse(refusal, vendor)
        if not name:
            listed = [_described(*item, vendor) for item in self._models.items()]
            return self._json(200, {"object": "list", "data": listed})
        known = self._known(name)
        if known is None:
            return self._refuse(_no_model(name), vendor)
        return self._json(200, _described(name, _limited(known, scenario), vendor))

    # -- requests

    def _refusal(self, request: Recorded, scenario: Scenario) -> Refusal | None:
        context = self._context(request, scenario)
        if not context.name:
            return Refusal("you must provide a model parameter")
        if self._known(context.name) is None and not scenario.any_model:
            return _no_model(context.name)
        return first_refusal(context)

    def _context(self, request: Recorded, scenario: Scenario) -> Context:
        body = request.body or {}
        known = self._known(model_name(body, request.path)) or _STRANGER
        model = _limited(known, scenario)
        return Context(body, request.path, _vendor(scenario), model, scenario)

    def _known(self, name: str) -> ModelLimits | None:
        return self._models.get(name) or find(name)

    # -- answers

    def _envelope(self, context: Context) -> Envelope:
        vendor, options = context.vendor, mapping(context.body.get("stream_options"))
        echoes = vendor.echoes and ending(context) == "prefill"
        return Envelope(
            self._id("chatcmpl"),
            context.name,
            vendor,
            context.prompt,
            (vendor.call_id.format(next(self._numbers)) for _ in count()),
            int(context.body.get("n") or 1),
            text_of(context.messages[-1].get("content")) if echoes else "",
            bool(options.get("include_usage")),
            vendor.name == "openai" and options.get("include_obfuscation") is not False,
        )

    def _failure(self, reply: Reply, vendor: Vendor) -> Answer:
        """Write an error status; one meant for a stream's middle has the status of its kind."""
        kind, text = reply.error or (None, None)
        status = reply.status if reply.status != 200 else _status(kind)
        kind = kind or _kind(status)
        text = text or (_RATE_LIMIT if status == 429 else texts.SERVER_ERROR)
        return self._refuse(Refusal(text, status, kind), vendor, reply.headers)

    def _raw(self, reply: Reply) -> Answer:
        raw = reply.raw_body
        if not isinstance(raw, bytes):
            raw = (raw if isinstance(raw, str) else json.dumps(raw)).encode()
        head = {"content-type": "application/json", "x-request-id": self._id("req")}
        return Answer(reply.status, {**head, **reply.headers}, raw)

    def _refuse(
        self, refusal: Refusal, vendor: Vendor, headers: Mapping[str, str] | None = None
    ) -> Answer:
        return self._json(refusal.status, error_body(refusal, vendor), headers)

    def _json(self, status: int, value: Any, headers: Mapping[str, str] | None = None) -> Answer:
        body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        head = {"content-type": "application/json", "x-request-id": self._id("req")}
        return Answer(status, {**head, **(headers or {})}, body)

    def _id(self, prefix: str) -> str:
        separator = "_" if prefix == "req" else "-"
        return f"{prefix}{separator}sim{next(self._numbers):021d}"


def _events(reply: Reply, envelope: Envelope) -> list[Event]:
    raw = reply.raw_events
    whole = chunks(reply, envelope) if raw is None else raw_events(raw)
    if reply.error_after is None:
        return list(whole)
    kind, text = reply.error or ("server_error", texts.SERVER_ERROR)
    after = [DONE] if envelope.vendor.name == "vllm" else []
    error = _error_event(kind, text, envelope.vendor)
    return [*islice(whole, reply.error_after), error, *after]


def _error_event(kind: str, message: str, vendor: Vendor) -> Event:
    body = error_body(Refusal(message, _status(kind), kind), vendor)
    return Event(None, json.dumps(body, ensure_ascii=False))


def _kind(status: int) -> str:
    return _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")


def _status(kind: str | None) -> int:
    return next((status for status, name in _KINDS.items() if name == kind), 500)


# -- refusals


def _unknown_caller(request: Recorded) -> Refusal | None:
    if "authorization" in request.headers or "api-key" in request.headers:
        return None
    return Refusal(texts.NO_KEY, 401, "invalid_request_error")


def _fault(request: Recorded) -> Refusal | None:
    if request.body is None:
        return Refusal(texts.NO_JSON)
    return first_fault(request.body)


def _no_model(name: str) -> Refusal:
    text = f"The model `{name}` does not exist or you do not have access to it."
    return Refusal(text, 404, "invalid_request_error", "model_not_found")


def _vendor(scenario: Scenario) -> Vendor:
    return find_vendor(scenario.vendor, scenario.quirks)


def _limited(model: ModelLimits, scenario: Scenario) -> ModelLimits:
    return model if scenario.ceiling is None else replace(model, ceiling=scenario.ceiling)


# -- what the model is asked


def _turns(context: Context, end: AttemptResult) -> list[Said]:
    """Return the turns as the model sees them; one role in a row is one turn.

    A finished turn that nothing follows is answered afresh: in the manner `exact`, which goes on as
    if it had been asked to, the model does not look at it at all.
    """
    said = list(_said(context.messages))
    if end == "finished":
        if context.scenario.manner == "exact" and len(said) > 1:
            del said[-1]
        if said[-1].role == "assistant":
            said.append(Said("user", ""))
    elif end == "user":
        last = said.pop()
        said.append(Said("user", last.text))
    return list(_joined(said)) or [Said("user", "")]


def _said(listed: list[Json]) -> Iterator[Said]:
    for message in listed:
        text = text_of(message.get("content"))
        match message["role"]:
            case "assistant":
                yield Said("assistant", text)
            case "tool" | "function":
                yield Said("user", "", results=True)
            case "user":
                yield Said("user", text)
            case _:
                pass  # system and developer: no turn


def _joined(said: list[Said]) -> Iterator[Said]:
    held: Said | None = None
    for turn in said:
        if held is not None and held.role == turn.role:
            held = Said(held.role, held.text + turn.text, held.results or turn.results)
            continue
        if held is not None:
            yield held
        held = turn
    if held is not None:
        yield held


def _key(listed: list[Json]) -> str:
    """Name a conversation by its system prompts and its first user message."""
    head = [text_of(m.get("content")) for m in listed if m["role"] in ("system", "developer")]
    first = next((text_of(m.get("content")) for m in listed if m["role"] == "user"), "")
    return hashlib.sha256(json.dumps([head, first]).encode()).hexdigest()


# -- models


def _model_path(path: str) -> str | None:
    """Return the model a path asks about, "" for all; None: it is none of ours (Gemini's own)."""
    before, found, name = path.partition("/models")
    if not found or before.endswith("/v1beta") or ":" in name or name[:1] not in ("", "/"):
        return None
    return unquote(name.strip("/"))


def _described(name: str, limits: ModelLimits, vendor: Vendor) -> Json:
    """Describe a model; some vendors tell its window or its ceiling."""
    model: Json = {"id": name, "object": "model", "created": CREATED, "owned_by": vendor.name}
    for path, fact in vendor.listed.items():
        *holders, member = path.split(".")
        place = model
        for holder in holders:
            place = place.setdefault(holder, {})
        place[member] = getattr(limits, fact)
    return model
