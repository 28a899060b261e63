"""OpenAI's Responses (`POST .../responses`) and the servers that speak it.

Wire facts: API reference "Responses", guides "Conversation state" and "Reasoning", and the
behaviour of openai 3.5x. Why recoveries are asked for as they are:
design/decisions/0031-responses-merge.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from continuation.answer.message_builder import MessageBuilder
from continuation.policy import Policy
from continuation.providers.openai_common import errors
from continuation.providers.openai_common.error_text import text_of
from continuation.providers.openai_common.tools import needy
from continuation.providers.openai_common.vendors import Profile, profile
from continuation.providers.openai_responses.chain import Chain
from continuation.providers.openai_responses.format import ResponsesForm
from continuation.types import ClassifiedError, ErrorKind, Head, Json, Outgoing, Request, Way
from continuation.wire.json_values import as_int, as_json, as_list, as_text, dumps, loads
from continuation.wire.request_body import read_body

_PATH = re.compile(r"/responses(/compact)?/?$")
_DEPLOYMENT = re.compile(r"/deployments/([^/]+)/responses/?$")  # Azure
UNARY = 21_333
"""Tokens that a model writes in the ten minutes after which the SDK gives up and asks again."""
# The server answers outside this exchange, or keeps what is said where we cannot mend it.
_FOREIGN = ("background", "conversation")
# What a server says to items that it does not take back: ids, reasoning, its content, their order.
_ITEMS = re.compile(
    r"encrypted|reasoning|\bitems?\b|\binput\[\d+\]|summary|phase|web_search_call", re.IGNORECASE
)
_PLAIN = ("type", "role", "content")


class ResponsesRequest:
    """One Responses request of the caller's."""

    hop_ceiling: int | None = None

    def __init__(self, request: Request, body: Json, vendor: Profile, chain: Chain) -> None:
        self._request = request
        self._body = body
        self._vendor = vendor
        self._chain = chain
        self._bare = False
        """Recoveries carry nothing but messages: the server has refused more."""
        self._asked: int | None = None
        deployed = _DEPLOYMENT.search(request.path)
        self.model = as_text(body.get("model")) or (deployed[1] if deployed else "")
        self.limit = as_int(body.get("max_output_tokens"))
        self.streamed = body.get("stream") is True
        kind = as_text(as_json(as_json(body.get("text")).get("format")).get("type"))
        # Neither "auto" nor "none" nor absent: text is no answer, so it is no use to go on with it.
        forced = _choice(body.get("tool_choice")) not in {"", "auto", "none"}
        self.structured = forced or kind not in {"", "text"}
        self.liftable = not forced
        self.unbounded = self.limit is None and vendor.default_limit_is_ceiling
        self.ceiling = vendor.ceiling(self.model)
        self.unary_ceiling: int | None = min(UNARY, vendor.stream_above or UNARY)

    def untouched(self, policy: Policy) -> str | None:
        """Why this request is not ours to heal; what it goes on from is read all the same."""
        if _compacts(self._request.path):
            return "the request compacts a conversation"
        foreign = next((key for key in _FOREIGN if self._body.get(key)), None)
        return f"the request uses {foreign!r}" if foreign else None

    @property
    def body(self) -> Json:
        """The request's body."""
        return self._body

    def prefills(self, model_takes_it: bool) -> bool:
        """No server goes on with an assistant message at the end of `input`."""
        return False

    def prefilled(self, answer: MessageBuilder) -> str:
        """Not reached: nothing is prefilled."""
        return ""

    def mended(self, body: Mapping[str, object], more: str | None) -> ResponsesRequest:
        """Return the same request with another body; `more` is said for the user at its end."""
        changed = dict(body)
        if more is not None:
            changed["input"] = [*_items(body.get("input")), _user(more)]
        self._chain.sent = changed
        return ResponsesRequest(self._request, changed, self._vendor, self._chain)

    def amended(
        self, policy: Policy, head: Head | None = None, body: bytes = b""
    ) -> ResponsesRequest | None:
        """Return the request as its chain must be asked for, if the caller's id means another."""
        chain = self._chain
        chain.settle(policy.chain_store)
        made = chain.rewritten() if head is None else chain.recovered(body)
        if made is None:
            return None
        return _Lost(self, made) if isinstance(made, bytes) else self.mended(made, None)

    def outgoing(self, headers: Mapping[str, str]) -> Outgoing:
        """Return the request as it is, with further headers."""
        return Outgoing(dumps(self._body), headers=headers)

    def first(self, limit: int) -> Outgoing:
        """Return the caller's request with another limit, streamed or not as the caller asked."""
        self._asked = limit
        return Outgoing(dumps({**self._body, "max_output_tokens": limit}))

    def again(self, limit: int | None) -> Outgoing:
        """Return the same request with another limit, streamed."""
        return self._send(dict(self._body), limit)

    def resume(self, answer: MessageBuilder, way: Way, prompt: str, limit: int | None) -> Outgoing:
        """Return the request that asks the model to go on from `answer`.

        The server does not keep it: its prompt must never be part of a conversation.
        """
        items = _items(self._body.get("input"))
        if way is Way.RETRY_SMALLER:
            items += self._said(answer.content)
        else:
            for content, asked in answer.pairs:
                items += [_user(asked)] if asked is not None else []
                items += self._said(content)
        body: Json = {**self._body, "input": [*items, _user(prompt)], "store": False}
        return self._send(_lifted(body), limit)

    def _said(self, content: list[Json]) -> list[Json]:
        """Return what a request can carry of the turn; of a refused one, the messages alone."""
        kept = [item for item in content if _carried(item)]
        while kept and kept[-1].get("type") == "reasoning":
            kept.pop()
        if not self._bare:
            return kept
        messages = (item for item in kept if item.get("type") == "message")
        return [{key: item[key] for key in _PLAIN} for item in messages]

    def with_less_thinking(self) -> ResponsesRequest | None:
        """Lower the effort of reasoning; a model that does not reason refuses that."""
        reasoning = as_json(self._body.get("reasoning"))
        if as_text(reasoning.get("effort")) in {"none", "minimal", "low"}:
            return None
        return self.mended({**self._body, "reasoning": {**reasoning, "effort": "low"}}, None)

    def hop(self, answer: MessageBuilder, limit: int | None) -> Outgoing:
        """Not reached: this format gives no tokens."""
        return self.again(limit)

    def answer(self, policy: Policy) -> MessageBuilder:
        self._chain.settle(policy.chain_store)
        return MessageBuilder(ResponsesForm(self._chain.finished, needy(self._body)), policy)

    def refused(self, head: Head, body: bytes) -> ClassifiedError:
        """Classify an error answer to a later attempt."""
        told = errors.refused(head.status, body, self._asked)
        fixable = told.kind is ErrorKind.FINAL and head.status in {400, 404, 422}
        if fixable and not self._bare and _ITEMS.search(text_of(body)):
            self._bare = True
            return replace(told, kind=ErrorKind.UNSUPPORTED_PARAMETER)
        return told

    def lookup(self) -> Outgoing | None:
        """Ask the server's models endpoint, where one tells a ceiling."""
        path = self._vendor.models_url(self._request.path, self.model)
        return Outgoing(b"", path=lambda _: path, method="GET") if path and self.model else None

    def looked_up(self, body: bytes) -> int | None:
        """Read the ceiling in the models endpoint's answer."""
        try:
            return self._vendor.told_ceiling(loads(body))
        except ValueError:
            return None

    def _send(self, body: Json, limit: int | None) -> Outgoing:
        self._asked = limit if limit is not None else self.limit
        if self._asked is not None:
            body["max_output_tokens"] = self._asked
        body["stream"] = True
        return Outgoing(dumps(body), headers={"accept": "application/json"})


class _Lost(ResponsesRequest):
    """A request whose chain cannot be shown whole: it is answered by the error that says so."""

    def __init__(self, call: ResponsesRequest, error: bytes) -> None:
        super().__init__(call._request, call._body, call._vendor, call._chain)  # noqa: SLF001
        self._error = error

    def mended(self, body: Mapping[str, object], more: str | None) -> ResponsesRequest:
        return self

    def amended(
        self, policy: Policy, head: Head | None = None, body: bytes = b""
    ) -> ResponsesRequest | None:
        return None

    def outgoing(self, headers: Mapping[str, str]) -> Outgoing:
        return Outgoing(b"", refusal=self._error)


def _items(given: object) -> list[Any]:
    """Return the items of an `input`; a text is one message of the user's, an object one item."""
    if isinstance(given, dict):
        return [given]
    return [_user(given)] if isinstance(given, str) and given else list(as_list(given))


def _compacts(path: str) -> bool:
    found = _PATH.search(path)
    return found is not None and found[1] is not None


def _choice(given: object) -> str:
    """Return how tools are chosen: a word, or what kind of tool must be called."""
    choice = as_json(given)
    kind = as_text(given) or as_text(choice.get("type"))
    return as_text(choice.get("mode")) if kind == "allowed_tools" else kind


def _user(text: str) -> Json:
    return {"type": "message", "role": "user", "content": text}


def _carried(item: Json) -> bool:
    """Whether an item stands by itself: no server has to look anything up to read it."""
    if item.get("type") == "reasoning":
        return bool(item.get("encrypted_content"))
    if item.get("type") == "message":
        content = item.get("content")
        return bool(content.strip() if isinstance(content, str) else content)
    return item.get("type") == "web_search_call"


def _lifted(body: Json) -> Json:
    """Lift the output constraint: what goes on from half a document is no whole document."""
    text = {key: value for key, value in as_json(body.get("text")).items() if key != "format"}
    if text:
        body["text"] = text
    else:
        body.pop("text", None)
    return body


class OpenAIResponses:
    """The dialect object."""

    name = "openai-responses"
    history: str | None = "openai-responses"
    default_ceiling = 128_000
    default_timeout: float | None = 600.0

    def claims(self, method: str, path: str) -> bool:
        """Whether a request asks for a response, or has a conversation compacted.

        WebSockets begin with a GET and are not ours.
        """
        return method == "POST" and _PATH.search(path) is not None

    def call(self, request: Request) -> ResponsesRequest:
        """Read a request. Raises `Untouched` when it is not one we can read."""
        body = read_body(request)
        vendor = profile(request.host + request.path, request.server)
        return ResponsesRequest(request, body, vendor, Chain(request, body))


DIALECT = OpenAIResponses()
