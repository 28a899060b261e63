"""The simulated Responses API of OpenAI, and the requests that it refuses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from continuation.limits import ModelLimits
from continuation.simulator.common import compact, conversation_key
from continuation.simulator.format import Format
from continuation.simulator.model import Ask
from continuation.simulator.openai_chat.format import ChatFormat, unverified
from continuation.simulator.openai_chat.vendors import find_vendor
from continuation.simulator.openai_responses.events import ResponsesReplyWriter, shows_reasoning
from continuation.simulator.openai_responses.request import (
    ResponsesContext,
    credential,
    input_tokens,
    is_reference,
    listed,
    turns,
)
from continuation.simulator.openai_responses.rules import RULES, faults
from continuation.simulator.openai_responses.store import Archive, StoredResponse, reasoning_error
from continuation.simulator.scenario import Reply, Scenario
from continuation.simulator.wire import Answer, Event, Json, Recorded, Refusal, Route
from continuation.wire.json_values import as_int, mapping

# -- what is refused

SMALLEST = 16
"""The smallest output limit in tokens."""


def settings(context: ResponsesContext) -> Iterator[Refusal]:
    """Refuse an invalid limit, an unknown model, and reasoning that the model does not have."""
    body, most = context.body, context.model.ceiling
    if context.streamed and not find_vendor("openai", context.scenario.quirks).streams:
        yield unverified()
    requested, param = body.get("max_output_tokens"), "max_output_tokens"
    if requested is not None and (as_int(requested) or 0) < SMALLEST:
        text = (
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >="
            f" {SMALLEST}, but got {requested} instead."
        )
        yield Refusal(text, code="integer_below_min_value", param=param)
    if not context.served:
        text = f"The requested model '{context.name}' does not exist."
        yield Refusal(text, code="model_not_found", param="model")
    if requested is not None and requested > most:  # the text is like that of Chat Completions
        text = (
            f"max_output_tokens is too large: {requested}. This model supports at most {most}"
            f" output tokens, whereas you provided {requested}."
        )
        yield Refusal(text, code="invalid_value", param=param)
    effort = mapping(body.get("reasoning")).get("effort")
    if context.model.thinking == "none" and effort not in (None, "none"):
        yield _unsupported("reasoning.effort")


def _unsupported(name: str) -> Refusal:
    text = f"Unsupported parameter: '{name}' is not supported with this model."
    return Refusal(text, code="unsupported_parameter", param=name)


def stored(context: ResponsesContext) -> Iterator[Refusal]:
    """Refuse the names of responses and items that are not stored. Conversations are not stored."""
    name, store = context.anchor, context.store
    if name is not None and not context.scenario.chain:
        yield _unsupported("previous_response_id")
    if name is not None and name not in store.responses:
        text = f"Previous response with id '{name}' not found."
        yield Refusal(text, code="previous_response_not_found", param="previous_response_id")
    for item in map(mapping, context.brought):
        bare = item.get("type") == "reasoning" and not item.get("encrypted_content")
        name = item.get("id") if bare or is_reference(item) else None
        if name is not None and str(name) not in store.items:
            text = RULES.fault("item_not_stored", id=name).text
            yield Refusal(text, 404, param="input")


def reasoning_stored(context: ResponsesContext) -> Iterator[Refusal]:
    """Refuse an item of a stored response if its reasoning does not directly precede it."""
    for n, item in context.new:
        name = str(item.get("id"))
        wanted = context.store.reasoning.get(name)
        before = mapping(context.items[n - 1]) if n else {}
        if wanted is not None and before.get("id") != wanted:
            text = (
                f"Item '{name}' of type '{item.get('type', 'message')}' was provided without its"
                f" required 'reasoning' item: '{wanted}'."
            )
            yield Refusal(text, param="input")


_INVALID_VALUES = ("role_invalid", "content_type_invalid", "input_type_invalid", "item_id_invalid")


def history(context: ResponsesContext) -> Iterator[Refusal]:
    """Refuse an invalid history. A call without a result is invalid, because the model must answer.

    Stored items are valid, except for a call without an output in the request. Indexes in errors
    count only the items in the request.
    """
    held = context.held

    def renumbered(text: str) -> str:
        return re.sub(r"input\[(\d+)\]", lambda match: f"input[{int(match[1]) - held}]", text)

    answerable = [
        # Reasoning that the server has stored needs no encrypted content.
        {**item, "encrypted_content": "held"}
        if n < held and mapping(item).get("type") == "reasoning"
        else item
        for n, item in enumerate(context.items)
    ]
    body: Json = {"model": context.body.get("model"), "input": answerable}
    if context.body.get("store") is False:
        body["store"] = False
    for code, where, text in faults(body):
        index, text = next(iter(where), 0), renumbered(text)
        if index < held and code != "tool_result_missing":
            continue
        if code in _INVALID_VALUES:
            yield Refusal(text, code="invalid_value", param=f"input[{index - held}]")
        yield Refusal(text, 404 if code == "item_not_stored" else 400, param="input")


def encrypted_and_window(context: ResponsesContext) -> Iterator[Refusal]:
    """Refuse invalid encrypted content in the request, and an input above the context window."""
    strict, most = context.scenario.strict_signatures, context.model.window
    for _, item in context.new:
        text = reasoning_error(item, context.credential, strict=strict)
        if text is not None:
            yield Refusal(text, code="invalid_encrypted_content", param="input")
    if most is not None and input_tokens(context) > most:
        text = (
            "Your input exceeds the context window of this model. Please adjust your input and try"
            " again."
        )
        yield Refusal(text, code="context_length_exceeded", param="input")


class ResponsesFormat(Format[ResponsesContext]):
    """Serves `/responses` and the paths below it, with any prefix."""

    checks = (settings, stored, reasoning_stored, history, encrypted_and_window)
    kinds: ClassVar[Mapping[int, str]] = {429: "rate_limit_error"}
    fault_texts: ClassVar[Mapping[str, str]] = {
        "rate_limit_error": "Rate limit reached. Please try again later.",
        "server_error": "The server had an error while processing your request. Sorry about that!",
    }
    no_key = ChatFormat.no_key

    def __init__(self, models: Mapping[str, ModelLimits]) -> None:
        super().__init__(models)
        self._stores: dict[str, Archive] = {}

    def forget(self) -> None:
        self._stores.clear()

    def route(self, method: str, path: str) -> Route | None:
        what = _tail(path)
        if what == ["responses"] and method == "POST":
            return "model"
        return "other" if what else None

    def context(self, request: Recorded) -> ResponsesContext:
        """Parse a request. A server that forgets, or that has no chains, has nothing stored."""
        scenario = request.scenario
        store = Archive()
        if scenario.chain and not scenario.forgets:
            store = self._stores.setdefault(credential(request), store)
        name = str((request.body or {}).get("model") or "")
        return ResponsesContext(request, *self.limits(name, scenario), store)

    def ask(self, context: ResponsesContext) -> Ask:
        body, model = context.body, context.model
        prompt_turns = turns(context.items)
        effort = mapping(body.get("reasoning")).get("effort")
        return Ask(
            prompt_turns,
            body.get("max_output_tokens") or model.ceiling,
            context.room(input_tokens(context)),
            thinks=model.thinking == "always" or (model.thinking != "none" and effort != "none"),
            shows_thinking=shows_reasoning(body),
            key=conversation_key(body.get("instructions"), prompt_turns[0].text),
            endings={"aborted": "failed"},
        )

    def write(self, context: ResponsesContext, reply: Reply) -> Json | Iterable[Event]:
        """Return the response as events or a body, and store it unless the request says not to."""
        body = context.body
        writer = ResponsesReplyWriter(context, reply, self.new_id)
        response = writer.response()
        faults = (reply.drop, reply.error_after, reply.stall)
        # An answer that a fault interrupts is not stored, because it was not finished.
        if all(fault is None for fault in faults):
            # A server that forgets also stores it, because a later scenario may not forget.
            store = self._stores.setdefault(context.credential, Archive())
            if body.get("store") is not False:
                store.add(StoredResponse(response, listed(context.items, self.new_id)))
        return writer.events(response) if context.streamed else response

    def error_body(self, refusal: Refusal, scenario: Scenario) -> Any:
        code = refusal.code or ("rate_limit_exceeded" if refusal.status == 429 else None)
        error = {"message": refusal.text, "type": self.kind_of(refusal)}
        return {"error": {**error, "param": refusal.param, "code": code}}

    def error_events(self, refusal: Refusal, scenario: Scenario, number: int) -> Sequence[Event]:
        error = {"type": "error", "code": refusal.kind, "message": refusal.text, "param": None}
        return [Event("error", compact({**error, "sequence_number": number}))]

    def other(self, request: Recorded) -> Answer:
        context = self.context(request)
        store = context.store
        match request.method, *_tail(request.path):
            case (("GET" | "DELETE"), "responses", name, *_) if name not in store.responses:
                return self.refused(Refusal(f"Response with id '{name}' not found.", 404), request)
            case "GET", "responses", name:
                return self.json(200, store.responses[name].response)
            case "GET", "responses", name, "input_items":  # one page has all, the oldest first
                read = store.responses[name].context
                return self.json(200, {"object": "list", "data": read, "has_more": False})
            case "DELETE", "responses", name:
                store.remove(name)
                return self.json(200, {"id": name, "object": "response", "deleted": True})
            case "POST", "responses", name, "cancel":
                text, status = "Cannot cancel a synchronous response.", 400
                if name not in store.responses:
                    text, status = f"Response with id '{name}' not found.", 404
                return self.refused(Refusal(text, status), request)
            case _:
                text = f"Invalid URL ({request.method} {request.path})"
                return self.refused(Refusal(text, 404), request)


def _tail(path: str) -> list[str]:
    """Return a path's segments from the last `responses` on, or `[]`."""
    parts = path.strip("/").split("/")
    indexes = [n for n, part in enumerate(parts) if part == "responses"]
    return parts[indexes[-1] :] if indexes and len(parts) - indexes[-1] <= 3 else []
