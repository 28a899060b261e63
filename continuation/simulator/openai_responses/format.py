"""OpenAI's Responses API, as the simulated provider speaks it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count, islice
from urllib.parse import parse_qs

from continuation.limits import DEFAULT_CEILING, ModelLimits, find
from continuation.simulator.anthropic.events import raw_events
from continuation.simulator.model import Ask
from continuation.simulator.openai_responses.events import DELTA, error_event, events
from continuation.simulator.openai_responses.items import Input, conversation_id, listed, turns
from continuation.simulator.openai_responses.output import Envelope, begun, shows_reasoning, whole
from continuation.simulator.openai_responses.reasoning import seal
from continuation.simulator.openai_responses.rules import (
    Context,
    Refusal,
    count_refusal,
    first_refusal,
    not_found,
)
from continuation.simulator.openai_responses.store import Kept, Shelf, Store
from continuation.simulator.openai_responses.usage import PrefixCache, input_tokens
from continuation.simulator.scenario import Reply, Scenario
from continuation.simulator.wire import Answer, Event, Json, Recorded, Route
from continuation.wire.json_values import as_map

_KINDS = {429: "rate_limit_error"}
_CODES = {429: "rate_limit_exceeded"}
_MESSAGES = {
    "rate_limit_error": "Rate limit reached. Please try again later.",
    "server_error": "The server had an error while processing your request. Sorry about that!",
}
_NO_KEY = (
    "You didn't provide an API key. You need to provide your API key in an Authorization header"
    " using Bearer auth (i.e. Authorization: Bearer YOUR_KEY)."
)
_NO_JSON = (
    "We could not parse the JSON body of your request. (HINT: This likely means you aren't using"
    " your HTTP library correctly. The OpenAI API expects a JSON payload, but what was sent was not"
    " valid JSON.)"
)
_STRANGER = ModelLimits(ceiling=DEFAULT_CEILING, thinking="adaptive")
_PAGE = 20


class ResponsesFormat:
    """Serves `/responses` and what belongs to it, under any prefix of the path.

    `models` says what a model can do before the shipped table is asked.
    """

    def __init__(self, models: Mapping[str, ModelLimits]) -> None:
        self._models = models
        self._store = Store()
        self._cache = PrefixCache()
        self._numbers = count(1)

    def forget(self) -> None:
        self._store.forget()
        self._cache.forget()

    def route(self, method: str, path: str) -> Route | None:
        what = _tail(path)
        if what == ["responses"] and method == "POST":
            return "model"
        return "other" if what else None

    def error(self, status: int, message: str, kind: str | None = None) -> Answer:
        return self._error(Refusal(message, _CODES.get(status), None, status), kind)

    def error_event(self, kind: str, message: str) -> Event:
        return error_event(kind, message, 0)

    def refuse(self, request: Recorded, scenario: Scenario) -> Answer | None:
        refused = _stranger(request) or first_refusal(self._context(request, scenario))
        return None if refused is None else self._error(refused)

    def ask(self, request: Recorded, scenario: Scenario) -> Ask:
        context = self._context(request, scenario)
        body, items, model = context.body, context.input.items, context.model
        said = turns(items)
        effort = as_map(body.get("reasoning")).get("effort")
        spent = input_tokens(body, items)
        return Ask(
            said,
            body.get("max_output_tokens") or model.ceiling,
            None if model.window is None else max(0, model.window - spent),
            thinks=model.thinking == "always" or (model.thinking != "none" and effort != "none"),
            shows_thinking=shows_reasoning(body),
            key=hashlib.sha256(
                json.dumps([body.get("instructions"), said[0].text]).encode()
            ).hexdigest(),
        )

    def answer(self, request: Recorded, reply: Reply) -> Answer:
        body = request.body or {}
        if reply.raw_body is not None:
            return self._raw(reply)
        streamed = bool(body.get("stream"))
        if reply.status != 200 or (reply.error_after is not None and not streamed):
            return self._failure(reply)
        credential = _credential(request)
        shelf = self._store.of(credential)
        read = shelf.read(body)
        envelope = self._envelope(body, credential, read.items)
        response = whole(reply, envelope)
        told = list(events(response, envelope, reply.deltas or DELTA)) if streamed else []
        if _is_kept(body, reply):
            self._keep(shelf, body, read, response, told)
        if streamed:
            return self._stream(_struck(told, reply), reply.headers)
        queued = body.get("background")
        return self._json(200, begun(envelope, "queued") if queued else response, reply.headers)

    def other(self, request: Recorded, scenario: Scenario) -> Answer:
        refused = _stranger(request)
        if refused is not None:
            return self._error(refused)
        shelf = self._shelf(request, scenario)
        what, *rest = _tail(request.path)
        if what == "conversations":
            return self._conversation(request, rest, shelf)
        if rest == ["input_tokens"] and request.method == "POST":
            return self._count(request, scenario)
        if not rest or request.method == "POST":
            return self._nowhere(request)
        kept = shelf.responses.get(rest[0])
        if kept is None:
            return self._error(not_found("Response", rest[0]))
        return self._kept(request, kept, rest[1:], shelf)

    # -- what a request may look at

    def _shelf(self, request: Recorded, scenario: Scenario) -> Shelf:
        """Return what is kept for the caller; a server that forgets or never keeps has nothing."""
        if scenario.forgets or not scenario.chain:
            return Shelf()
        return self._store.of(_credential(request))

    def _context(self, request: Recorded, scenario: Scenario) -> Context:
        body = request.body or {}
        name = body.get("model")
        known = (self._models.get(name) or find(name)) if isinstance(name, str) else None
        model = known or _STRANGER
        if scenario.ceiling is not None:
            model = replace(model, ceiling=scenario.ceiling)
        shelf = self._shelf(request, scenario)
        return Context(body, model, known is not None, scenario, shelf, _credential(request))

    # -- answers

    def _envelope(self, body: Json, credential: str, items: list[object]) -> Envelope:
        return Envelope(
            self._id("resp"),
            int(time.time()),
            body,
            self._cache.usage(credential, body, items),
            lambda item, text: seal(item, credential, text),
            self._id,
        )

    def _keep(
        self,
        shelf: Shelf,
        body: Json,
        read: Input,
        response: Json,
        told: Sequence[Event],
    ) -> None:
        context = listed(read.items, self._id)
        conversation = conversation_id(body)
        if conversation is not None:
            shelf.extend(conversation, [*context[read.held :], *response["output"]])
        if body.get("store") is not False:
            shelf.keep(Kept(response, context, told if body.get("background") else ()))

    def _failure(self, reply: Reply) -> Answer:
        """Write an error status; one meant for a stream's middle has the status of its kind."""
        kind, text = reply.error or (None, None)
        status = reply.status if reply.status != 200 else 429 if kind in _KINDS.values() else 500
        kind = kind or _kind(status)
        answer = self.error(status, text or _MESSAGES.get(kind, kind), kind)
        return replace(answer, headers={**answer.headers, **reply.headers})

    def _error(self, refusal: Refusal, kind: str | None = None) -> Answer:
        told = {
            "message": refusal.message,
            "type": kind or _kind(refusal.status),
            "param": refusal.param,
            "code": refusal.code,
        }
        return self._json(refusal.status, {"error": told})

    def _stream(self, told: Sequence[Event], headers: Mapping[str, str]) -> Answer:
        head = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        return Answer(200, {**head, "x-request-id": self._id("req"), **headers}, events=told)

    def _json(self, status: int, value: Json, headers: Mapping[str, str] | None = None) -> Answer:
        head = {"content-type": "application/json", "x-request-id": self._id("req")}
        body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        return Answer(status, {**head, **(headers or {})}, body)

    def _raw(self, reply: Reply) -> Answer:
        raw = reply.raw_body
        if not isinstance(raw, bytes):
            raw = (raw if isinstance(raw, str) else json.dumps(raw)).encode()
        head = {"content-type": "application/json", "x-request-id": self._id("req")}
        return Answer(reply.status, {**head, **reply.headers}, raw)

    def _id(self, prefix: str) -> str:
        return f"{prefix}_sim{next(self._numbers):021d}"

    # -- other endpoints

    def _nowhere(self, request: Recorded) -> Answer:
        return self.error(404, f"Invalid URL ({request.method} {request.path})")

    def _count(self, request: Recorded, scenario: Scenario) -> Answer:
        context = self._context(request, scenario)
        refused = count_refusal(context)
        if refused is not None:
            return self._error(refused)
        spent = input_tokens(context.body, context.input.items)
        return self._json(200, {"object": "response.input_tokens", "input_tokens": spent})

    def _kept(self, request: Recorded, kept: Kept, rest: list[str], shelf: Shelf) -> Answer:
        name = kept.response["id"]
        match request.method, rest:
            case "GET", []:
                return self._retrieve(request, kept)
            case "GET", ["input_items"]:
                return self._page(request, kept.context)
            case "DELETE", []:
                shelf.delete(name)
                return self._json(200, {"id": name, "object": "response", "deleted": True})
            case _:
                return self._nowhere(request)

    def _retrieve(self, request: Recorded, kept: Kept) -> Answer:
        """Show a response, or go on with the stream of one made in the background."""
        asked = _query(request)
        if asked.get("stream") != "true":
            return self._json(200, kept.response)
        if not kept.events:
            why = "This response cannot be streamed because it was not created with background=true"
            return self.error(400, f"{why} and stream=true.")
        return self._stream(kept.events[int(asked.get("starting_after", -1)) + 1 :], {})

    def _page(self, request: Recorded, items: list[Json]) -> Answer:
        asked = _query(request)
        ordered = items if asked.get("order") == "asc" else items[::-1]
        names = [item["id"] for item in ordered]
        start = names.index(asked["after"]) + 1 if asked.get("after") in names else 0
        stop = start + int(asked.get("limit", _PAGE))
        ends = names[start:stop] or [None]
        page = {"object": "list", "data": ordered[start:stop], "has_more": stop < len(names)}
        return self._json(200, {**page, "first_id": ends[0], "last_id": ends[-1]})

    def _conversation(self, request: Recorded, rest: list[str], shelf: Shelf) -> Answer:
        """Open a conversation, or list its items; there is no more to conversations here."""
        if request.method == "POST" and not rest:
            body, name = request.body or {}, self._id("conv")
            shelf.conversations[name] = listed(body.get("items") or [], self._id)
            told = {"id": name, "object": "conversation", "created_at": int(time.time())}
            return self._json(200, {**told, "metadata": body.get("metadata") or {}})
        if request.method != "GET" or rest[1:] != ["items"]:
            return self._nowhere(request)
        if rest[0] not in shelf.conversations:
            return self._error(not_found("Conversation", rest[0]))
        return self._page(request, shelf.conversations[rest[0]])


def _tail(path: str) -> list[str]:
    """Return what of a path is ours: from the last `responses` or `conversations` on."""
    parts = path.strip("/").split("/")
    places = [n for n, part in enumerate(parts) if part in ("responses", "conversations")]
    return parts[places[-1] :] if places and len(parts) - places[-1] <= 3 else []


def _credential(request: Recorded) -> str:
    return request.headers.get("authorization") or request.headers.get("api-key", "")


def _stranger(request: Recorded) -> Refusal | None:
    if not _credential(request):
        return Refusal(_NO_KEY, None, None, 401)
    if request.raw and request.body is None:
        return Refusal(_NO_JSON)
    return None


def _kind(status: int) -> str:
    return _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")


def _is_kept(body: Json, reply: Reply) -> bool:
    """Tell whether an answer is kept: what the client never got to its end was never finished."""
    struck = (reply.drop, reply.error_after, reply.stall, reply.raw_events)
    return bool(body.get("background")) or all(fault is None for fault in struck)


def _struck(told: list[Event], reply: Reply) -> list[Event]:
    """Put the script's own events, or the error event it asks for, into a stream."""
    told = told if reply.raw_events is None else list(raw_events(reply.raw_events))
    if reply.error_after is None:
        return told
    kind, message = reply.error or ("server_error", _MESSAGES["server_error"])
    sent = list(islice(told, reply.error_after))
    return [*sent, error_event(kind, message, len(sent))]


def _query(request: Recorded) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(request.query).items()}
