"""OpenAI's Responses (`POST .../responses`), and the servers with this format.

Wire facts: API reference "Responses", guides "Conversation state" and "Reasoning", and the
behaviour of openai 3.5x. design/decisions/0015-responses-merge.md explains the form of recoveries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from continuation.answer.message_builder import MessageBuilder
from continuation.policy import Policy
from continuation.providers.contract import Dialect, Grammar, SdkDriver
from continuation.providers.contract import MessageBuilder as Turn
from continuation.providers.openai_common import errors
from continuation.providers.openai_common.request import OpenAIRequest
from continuation.providers.openai_responses.chain import Chain, store
from continuation.providers.openai_responses.codec import ResponsesCodec
from continuation.providers.openai_responses.items import ALONE, JOINED
from continuation.providers.openai_responses.shape import ResponsesShape
from continuation.providers.request import BaseRequest, read_body
from continuation.types import ClassifiedError, ErrorKind, Head, Json, Outgoing, Request
from continuation.wire import sse
from continuation.wire.json_values import as_json, as_list, as_text, dumps

_PATH = re.compile(r"/responses(/compact|/input_tokens)?/?$")
_JOINED_PATH = re.compile(rf"/responses/({JOINED}[^/]*)(/|$)")
_GONE = (
    "Response with id '{name}' not found: `continuation` joined it from several answers, so the"
    " server cannot show, cancel or delete it; the answer that you received is all of it, and a"
    " request can continue from it by `previous_response_id`"
)
# With these the answer is not in the response, or the server stores it where we cannot replace it.
_FOREIGN = ("background", "conversation")
# Matches errors about input items that a server refuses: for ids, reasoning, content or order.
_ITEMS = re.compile(
    r"encrypted|reasoning|\bitems?\b|\binput\[\d+\]|summary|phase|web_search_call", re.IGNORECASE
)
_PLAIN = ("type", "role", "content")
_NO_ANSWER = {
    "/compact": "the request compacts a conversation",
    "/input_tokens": "the request counts tokens",
}


class ResponsesRequest(OpenAIRequest):
    """One Responses request of the caller.

    There is no prefill, because no server continues an assistant message at the end of `input`.
    """

    messages_key = "input"
    limit_key = "max_output_tokens"
    gathers_exactly = True  # the last event of a stream has the complete response

    def __init__(self, request: Request, body: Json, chain: Chain) -> None:
        super().__init__(request, body)
        self._chain = chain
        self._bare = False
        """Whether recoveries have only messages, because the server refused other items."""
        self._error: bytes | None = None
        """The body of the error with which we answer the request, or `None`."""
        self._status = 400
        kind = as_text(as_json(as_json(body.get("text")).get("format")).get("type"))
        # `tool_choice` is a word, or the kind of tool that must be called. Unless it is "auto",
        # "none" or absent, a text is not a valid answer, so it is useless to continue one.
        choice = as_json(body.get("tool_choice"))
        chosen = as_text(body.get("tool_choice")) or as_text(choice.get("type"))
        chosen = as_text(choice.get("mode")) if chosen == "allowed_tools" else chosen
        forced = chosen not in {"", "auto", "none"}
        self.structured = forced or kind not in {"", "text"}
        self.can_drop_schema = not forced
        self.always_completed = self._vendor.always_completed
        self.unbounded = self.limit is None and self._vendor.default_limit_is_ceiling

    def _answers_tool(self, last: Json) -> bool:
        return as_text(last.get("type")).endswith("_output") or super()._answers_tool(last)

    @property
    def chain(self) -> Chain:
        return self._chain

    def untouched(self, policy: Policy) -> str | None:
        """Return why its answer is passed through unchanged, or `None`.

        The request is rewritten for its chain in either case.
        """
        if (found := _PATH.search(self._request.path)) and found[1]:
            return _NO_ANSWER[found[1]]
        foreign = next((key for key in _FOREIGN if self.body.get(key)), None)
        return f"the request uses {foreign!r}" if foreign else None

    def rewritten(
        self, policy: Policy, head: Head | None = None, body: bytes = b""
    ) -> BaseRequest | None:
        """Return the request rewritten for its chain; `None`: unchanged, or send `doubt` first."""
        chain = self.chain
        if self._error is not None:
            return None
        if ident := chain.doubtful:
            if head is None and self.doubt is None:
                tail = "/" + quote(ident, safe="", errors="surrogatepass")
                self.doubt = Outgoing(b"", path=lambda path: path + tail, method="GET")
            return None  # the server checks whether the credential may read that response
        made = chain.rewritten() if head is None else chain.recovered(body)
        if made is None:
            return None
        if not isinstance(made, bytes):
            return self.repaired(made, None)
        lost = ResponsesRequest(self._request, self.body, chain)
        lost._error = made
        return lost

    def repaired(self, body: Mapping[str, object], more: str | None) -> BaseRequest:
        return super().repaired(body, more) if self._error is None else self

    def outgoing(self, headers: Mapping[str, str]) -> Outgoing:
        if self._error is not None:
            return Outgoing(b"", refusal=self._error, status=self._status)
        return super().outgoing(headers)

    def with_less_thinking(self) -> ResponsesRequest | None:
        """Lower the effort of reasoning; `None`: it is low. Models without reasoning refuse it."""
        reasoning = as_json(self.body.get("reasoning"))
        if as_text(reasoning.get("effort")) in {"none", "minimal", "low"}:
            return None
        return self._like({**self.body, "reasoning": {**reasoning, "effort": "low"}})

    def codec(self) -> ResponsesCodec:
        return ResponsesCodec(lambda *_: None)  # it is used outside a turn, so no chain is stored

    def answer(self, policy: Policy) -> MessageBuilder:
        return MessageBuilder(ResponsesCodec(self.chain.finished), policy)

    def refused(self, head: Head, body: bytes) -> ClassifiedError:
        classified = super().refused(head, body)
        fixable = classified.kind is ErrorKind.FINAL and head.status in {400, 404, 422}
        if fixable and not self._bare and _ITEMS.search(errors.text_of(body)):
            return replace(classified, kind=ErrorKind.UNSUPPORTED_PARAMETER, form={"bare": True})
        return classified

    def adapt(self, error: ClassifiedError) -> None:
        super().adapt(error)
        self._bare = self._bare or "bare" in error.form

    # --- how a request is made --------------------------------------------------------------------

    def _like(self, body: Json) -> ResponsesRequest:
        self.chain.sent = body
        return ResponsesRequest(self._request, body, self.chain)

    def _messages_of(self, body: Mapping[str, object]) -> list[Any]:
        """Return the items of `input`. A text is one message of the user, an object is one item."""
        given, items = body.get("input"), list[Any]()
        if isinstance(given, str) and given:
            self._add_user(items, given)
            return items
        return [given] if isinstance(given, dict) else list(as_list(given))

    def _add_user(self, messages: list[Any], text: str) -> None:
        messages.append({"type": "message", "role": "user", "content": text})

    def _add_model(self, messages: list[Any], content: list[Json]) -> None:
        """Append the items that a request may have. After a refusal, append only the messages."""
        kept = list[Json]()
        for item in content:  # keep items that a server can read without looking up an id
            kind, text = item.get("type"), item.get("content")
            if kind == "reasoning":
                carried = bool(item.get("encrypted_content"))
            elif kind == "message":
                carried = bool(text.strip() if isinstance(text, str) else text)
            else:
                carried = kind in ALONE
            if carried:
                kept.append(item)
        while kept and kept[-1].get("type") == "reasoning":
            kept.pop()
        if self._bare:
            plain = [item for item in kept if item.get("type") == "message"]
            kept = [{key: item[key] for key in _PLAIN} for item in plain]
        messages += kept

    def _for_recovery(self, body: Json, answer: Turn) -> Json:
        """Drop the output constraint, because the rest of a document is not a valid document.

        The server must not store a recovery, because our prompt must not be part of a conversation.
        """
        text = dict(as_json(body.get("text")))
        text.pop("format", None)
        if text:
            body["text"] = text
        else:
            body.pop("text", None)
        body["store"] = False
        body.pop("metadata", None)
        return body

    @property
    def document(self) -> Json | None:
        shaped = as_json(as_json(self.body.get("text")).get("format"))
        return as_json(shaped.get("schema")) or None

    def _calling(self, body: Json, tool: str, schema: Json) -> Json:
        function = {"type": "function", "name": tool, "parameters": schema, "strict": False}
        return {**body, "tools": [function], "tool_choice": {"type": "function", "name": tool}}

    def _limited(self, body: Json, limit: int | None) -> Json:
        self._asked = limit if limit is not None else self.limit
        return super()._limited(body, limit)


class _AboutJoined(ResponsesRequest):
    """A request about a response that no server has, because it joins several answers."""

    def __init__(self, request: Request, name: str) -> None:
        super().__init__(request, {}, Chain(request, {}))
        error = {"message": _GONE.format(name=name), "type": "invalid_request_error"}
        self._error = dumps({"error": {**error, "param": "response_id", "code": None}})
        self._status = 404

    def untouched(self, policy: Policy) -> str | None:
        return "no server has this response"

    def rewritten(
        self, policy: Policy, head: Head | None = None, body: bytes = b""
    ) -> BaseRequest | None:
        return self if head is None else None


class OpenAIResponses(Dialect):
    """The dialect of Responses."""

    name = "openai-responses"
    has_grammar = True
    default_ceiling = 128_000
    default_timeout: float | None = 600.0
    shape = ResponsesShape()

    def claims(self, method: str, path: str) -> bool:
        """Whether a request creates a response, or names one that joins several answers.

        WebSockets begin with a GET and are not claimed.
        """
        if method == "POST" and _PATH.search(path) is not None:
            return True
        return JOINED in path and _JOINED_PATH.search(path) is not None

    def call(self, request: Request) -> ResponsesRequest:
        if (found := _JOINED_PATH.search(request.path)) is not None:
            return _AboutJoined(request, found[1])
        body = read_body(request)
        return ResponsesRequest(request, body, Chain(request, body))

    def prepare(self, policy: Policy) -> Callable[[], object] | None:
        """Return a function that opens the store of chains; `None`: the store is in memory."""
        if policy.chain_store in {"memory", "off"}:
            return None
        from continuation.chains.stores import Key

        where, patience = policy.chain_store, policy.store_seconds
        return lambda: store(where, patience).get(Key("", "", ""))

    def grammar(self) -> Grammar:
        from continuation.providers.openai_responses.history import ResponsesGrammar

        return ResponsesGrammar()

    def driver(self) -> SdkDriver:
        from continuation.providers.openai_responses.sdk import DRIVER

        return DRIVER

    def keep_alive(self, opening: bytes) -> bytes:
        """Return OpenAI's `keepalive` event, or a comment if the opening was not delivered yet.

        `response.in_progress` would work in most clients, but some use its empty output as answer.
        """
        created = sse.first_json(opening)
        if created.get("type") != "response.created":
            return sse.COMMENT
        event = {"type": "keepalive", "sequence_number": created.get("sequence_number", 0)}
        return b"event: keepalive\ndata: %b\n\n" % dumps(event)


DIALECT = OpenAIResponses()
