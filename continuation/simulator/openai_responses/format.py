"""OpenAI's Responses API, as the simulated provider speaks it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import parse_qs

from continuation.limits import ModelLimits
from continuation.simulator.common import compact, conversation_key
from continuation.simulator.format import Format
from continuation.simulator.model import Ask
from continuation.simulator.openai_chat.format import ChatFormat
from continuation.simulator.openai_responses.checks import CHECKS, COUNT_CHECKS, not_found
from continuation.simulator.openai_responses.events import Writer, shows_reasoning
from continuation.simulator.openai_responses.request import (
    Context,
    credential,
    input_tokens,
    input_usage,
    listed,
    turns,
)
from continuation.simulator.openai_responses.store import Shelf, StoredResponse
from continuation.simulator.scenario import Reply, Scenario
from continuation.simulator.wire import Answer, Event, Json, Recorded, Refusal, Route
from continuation.wire.json_values import as_list, mapping

_PAGE = 20


class ResponsesFormat(Format[Context]):
    """Serves `/responses` and what belongs to it, under any prefix of the path."""

    checks = CHECKS
    kinds: ClassVar[Mapping[int, str]] = {429: "rate_limit_error"}
    fault_texts: ClassVar[Mapping[str, str]] = {
        "rate_limit_error": "Rate limit reached. Please try again later.",
        "server_error": "The server had an error while processing your request. Sorry about that!",
    }
    no_key, no_json = ChatFormat.no_key, ChatFormat.no_json

    def __init__(self, models: Mapping[str, ModelLimits]) -> None:
        super().__init__(models)
        self._shelves: dict[str, Shelf] = {}
        self._cache: set[bytes] = set()

    def forget(self) -> None:
        self._shelves.clear()
        self._cache.clear()

    def route(self, method: str, path: str) -> Route | None:
        what = _tail(path)
        if what == ["responses"] and method == "POST":
            return "model"
        return "other" if what else None

    def context(self, request: Recorded) -> Context:
        """Read a request; a server that forgets or never keeps has nothing on its shelf."""
        scenario = request.scenario
        empty = scenario.forgets or not scenario.chain
        shelf = Shelf() if empty else self._shelf(credential(request))
        name = str((request.body or {}).get("model") or "")
        return Context(request, *self.limits(name, scenario), shelf)

    def _shelf(self, key: str) -> Shelf:
        return self._shelves.setdefault(key, Shelf())

    def ask(self, request: Recorded) -> Ask:
        context = self.context(request)
        body, model = context.body, context.model
        said = turns(context.input.items)
        effort = mapping(body.get("reasoning")).get("effort")
        return Ask(
            said,
            body.get("max_output_tokens") or model.ceiling,
            context.room(input_tokens(context)),
            thinks=model.thinking == "always" or (model.thinking != "none" and effort != "none"),
            shows_thinking=shows_reasoning(body),
            key=conversation_key(body.get("instructions"), said[0].text),
        )

    def write(self, context: Context, reply: Reply) -> Json | Iterable[Event]:
        """Write the response, and keep it; one in the background is only queued when it is told."""
        body, read = context.body, context.input
        usage, now = input_usage(context, self._cache), int(time.time())
        writer = Writer(context, reply, usage, self.new_id("resp"), now, self.new_id)
        response = writer.response()
        told = list(writer.events(response)) if context.streamed else []
        struck = (reply.drop, reply.error_after, reply.stall, reply.raw_events)
        # What the client never got to its end was never finished.
        if body.get("background") or all(fault is None for fault in struck):
            # A server that forgets keeps it all the same: it may remember later.
            shelf = self._shelf(context.credential)
            whole_input = listed(read.items, self.new_id)
            if context.conversation in shelf.conversations:
                shelf.extend(context.conversation, [*whole_input[read.held :], *response["output"]])
            if body.get("store") is not False:
                events = told if body.get("background") else ()
                shelf.keep(StoredResponse(response, whole_input, events))
        if context.streamed:
            return told
        return writer.begun("queued") if body.get("background") else response

    # -- errors

    def error_body(self, refusal: Refusal, scenario: Scenario) -> Any:
        code = refusal.code or ("rate_limit_exceeded" if refusal.status == 429 else None)
        error = {"message": refusal.text, "type": self.kind_of(refusal)}
        return {"error": {**error, "param": refusal.param, "code": code}}

    def error_events(self, refusal: Refusal, scenario: Scenario, number: int) -> Sequence[Event]:
        error = {"type": "error", "code": refusal.kind, "message": refusal.text, "param": None}
        return [Event("error", compact({**error, "sequence_number": number}))]

    # -- other endpoints

    def other(self, request: Recorded) -> Answer:
        """Answer about what is kept, or count tokens."""
        context = self.context(request)
        shelf = context.shelf
        match request.method, *_tail(request.path):
            case "POST", "conversations":
                # There is no more to conversations here than this and their items.
                body, name = context.body, self.new_id("conv")
                shelf.conversations[name] = listed(as_list(body.get("items")), self.new_id)
                told = {"id": name, "object": "conversation", "created_at": int(time.time())}
                return self.json(200, {**told, "metadata": body.get("metadata") or {}})
            case "GET", "conversations", name, "items":
                if name in shelf.conversations:
                    return self._page(request, shelf.conversations[name])
                return self.refused(not_found("Conversation", name), request)
            case "POST", "responses", "input_tokens":
                counted = {"object": "response.input_tokens", "input_tokens": input_tokens(context)}
                return self.refuse(request, COUNT_CHECKS) or self.json(200, counted)
            case "GET" | "DELETE", "responses", name, *_ if name not in shelf.responses:
                return self.refused(not_found("Response", name), request)
            case "GET", "responses", name:
                return self._retrieve(context, shelf.responses[name])
            case "GET", "responses", name, "input_items":
                return self._page(request, shelf.responses[name].context)
            case "DELETE", "responses", name:
                shelf.delete(name)
                return self.json(200, {"id": name, "object": "response", "deleted": True})
            case _:
                text = f"Invalid URL ({request.method} {request.path})"
                return self.refused(Refusal(text, 404), request)

    def _retrieve(self, context: Context, kept: StoredResponse) -> Answer:
        """Show a response, or go on with the stream of one made in the background."""
        asked = _query(context.request)
        if asked.get("stream") != "true":
            return self.json(200, kept.response)
        if not kept.events:
            why = "This response cannot be streamed because it was not created with background=true"
            return self.refused(Refusal(f"{why} and stream=true."), context.request)
        return self.stream(context, kept.events[int(asked.get("starting_after", -1)) + 1 :], {})

    def _page(self, request: Recorded, kept: list[Json]) -> Answer:
        asked = _query(request)
        ordered = kept if asked.get("order") == "asc" else kept[::-1]
        names = [item["id"] for item in ordered]
        start = names.index(asked["after"]) + 1 if asked.get("after") in names else 0
        stop = start + int(asked.get("limit", _PAGE))
        ends = names[start:stop] or [None]
        page = {"object": "list", "data": ordered[start:stop], "has_more": stop < len(names)}
        return self.json(200, {**page, "first_id": ends[0], "last_id": ends[-1]})


def _tail(path: str) -> list[str]:
    """Return what of a path is ours: from the last `responses` or `conversations` on."""
    parts = path.strip("/").split("/")
    places = [n for n, part in enumerate(parts) if part in ("responses", "conversations")]
    return parts[places[-1] :] if places and len(parts) - places[-1] <= 3 else []


def _query(request: Recorded) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(request.query).items()}
