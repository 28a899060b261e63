"""One request of the caller's: what is the same in every wire format.

A format derives its request from `BaseRequest` and says what is its own: under which keys its
fields stand, and how a turn of the user's or the model's is put behind the conversation
(`_add_user`, `_add_model`). The other methods can be as they are.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Protocol, Self, cast
from urllib.parse import quote

from continuation.dialect import MessageBuilder
from continuation.policy import Policy
from continuation.types import (
    ClassifiedError,
    ErrorKind,
    Head,
    Json,
    Outgoing,
    Request,
    Untouched,
    Way,
)
from continuation.wire.json_values import (
    as_int,
    as_json,
    as_list,
    as_text,
    dumps,
    dumps_in_pieces,
    loads,
)


def read_body(request: Request) -> Json:
    """Return the request's body. Raises `Untouched` when it is not one we can read and change."""
    if request.headers.get("authorization", "").startswith("AWS4-"):
        raise Untouched("the request is signed over its body")
    try:
        parsed = loads(request.body)
    except ValueError as error:
        raise Untouched("the request body is not JSON") from error
    if not isinstance(parsed, dict):
        raise Untouched("the request body is not a JSON object")
    return cast("Json", parsed)


class Chained(Protocol):
    """What a request has to do with a store of chains. Nothing here asks it: a shell does."""

    @property
    def patience(self) -> float | None:
        """Seconds that the store may take; `None`: it has nothing to wait for."""
        ...

    def recall(self, policy: Policy) -> Callable[[], object] | None:
        """Return what looks up where the request goes on from; `None`: nowhere."""
        ...

    def recalled(self, found: Any) -> None:
        """Take what was found; `None`: the store did not tell."""
        ...

    def clear(self, answer: bytes | None) -> bool:
        """Take what the server said to `doubt`; whether the request is to be rewritten now."""
        ...

    def promise(self, policy: Policy, given: str) -> Callable[[], bool] | None:
        """Return what tells the store that the answer of this id is about to be mended."""
        ...

    def record(self) -> Callable[[], bool] | None:
        """Return what keeps the turn, once its end is written; `None`: nothing to keep."""
        ...


class BaseRequest(ABC):
    """A request whose body is a JSON object with a list of turns."""

    turns_key: ClassVar[str] = "messages"
    model_key: ClassVar[str] = "model"
    limit_key: ClassVar[str] = "max_tokens"
    stream_key: str = "stream"
    """The fields that hold the conversation, the model's name, the limit, how to answer (`""`: it
    is the path that says so)."""

    ceiling_field: str = ""
    """Where in the models endpoint's answer the ceiling is: keys joined by dots; `""`: nowhere."""
    structured: bool = False
    can_drop_schema: bool = True
    """Whether the constraint on structured output can be lifted for a recovery..."""
    unbounded: bool = False
    """Without a limit in the request the server allows the model's whole ceiling."""
    ceiling: int | None = None
    """The model's ceiling on this server, where that is known to differ from the model's."""
    unary_ceiling: int | None = None
    """Largest limit that is safe on a call that is not streamed; `None`: no such bound."""
    hop_ceiling: int | None = None
    """Largest output of one request, whatever its limit; `None`: its limit is the bound."""
    doubt: Outgoing | None = None
    """To be answered before the request is rewritten: may who asks see what it goes on from?"""
    _stream_path: Callable[[str], str] | None = None
    """Maps the caller's URL path to that of a streamed answer, where that is another."""

    def __init__(self, request: Request, body: Json) -> None:
        self._request = request
        self.body = body
        self.model = as_text(body.get(self.model_key))
        self.limit = as_int(body.get(self.limit_key))
        self.streamed = body.get(self.stream_key) is True

    # --- what a format says of itself ------------------------------------------------------------

    @abstractmethod
    def _add_user(self, turns: list[Any], text: str) -> None:
        """Put a text of the user's behind the conversation."""

    @abstractmethod
    def _add_model(self, turns: list[Any], content: list[Json]) -> None:
        """Put behind the conversation what of an attempt's content a request may carry."""

    def _like(self, body: Json) -> Self:
        """Return the same request with another body."""
        return type(self)(self._request, body)

    def _limited(self, body: Json, limit: int | None) -> Json:
        """Return a copy of `body` with the limit set; `None`: the one that the caller set."""
        limit = limit if limit is not None else self.limit
        return dict(body) if limit is None else {**body, self.limit_key: limit}

    def _turns_of(self, body: Mapping[str, object]) -> list[Any]:
        """Return a copy of the conversation in `body`."""
        return list(as_list(body.get(self.turns_key)))

    def _add_prefill(self, turns: list[Any], content: list[Json]) -> None:
        """Put behind the conversation the text that the model goes on from as its own."""
        self._add_model(turns, content)

    def _for_recovery(self, body: Json, answer: MessageBuilder) -> Json:
        """Return the body of a recovery: without what was asked of the whole answer."""
        return body

    def _send(self, body: Json, limit: int | None) -> Outgoing:
        """Return a later attempt, which is streamed wherever it may be: it may be long."""
        body = self._limited(body, limit)
        if self.streams and self.stream_key:
            body[self.stream_key] = True
        return Outgoing(dumps(body), self._stream_path, headers={"accept": "application/json"})

    # --- what the engine asks --------------------------------------------------------------------

    @property
    def chain(self) -> Chained | None:
        """Its place in a chain that is kept beside its server, where the format has such."""
        return None

    @property
    def completable(self) -> bool:
        """...and whether it can where policy asks for documents to be completed."""
        return self.can_drop_schema

    @property
    def streams(self) -> bool:
        """Whether later attempts may be streamed; `unary_ceiling` holds for those that may not."""
        return True

    @abstractmethod
    def answer(self, policy: Policy) -> MessageBuilder:
        """Return what builds the caller's answer."""

    def untouched(self, policy: Policy) -> str | None:
        """Why this request is not ours to heal, if it is not."""
        return None

    def prefills(self, model_takes_it: bool) -> bool:
        """Whether this request can be gone on with by prefill.

        `model_takes_it`: what the table of models says, for formats in which it is the model's
        matter and not the server's.
        """
        return False

    def prefilled(self, answer: MessageBuilder) -> str:
        """Return the text that `resume` by prefill ends with."""
        return answer.open_text

    def repaired(self, body: Mapping[str, object], more: str | None) -> BaseRequest:
        """Return the same request with another body; `more` is said for the user at its end."""
        changed = dict(body)
        if more is not None:
            turns = self._turns_of(body)
            self._add_user(turns, more)
            changed[self.turns_key] = turns
        return self._like(changed)

    def outgoing(self, headers: Mapping[str, str]) -> Outgoing:
        """Return the request as it is, with further headers."""
        return Outgoing(dumps_in_pieces(self.body), headers=headers)

    def first(self, limit: int) -> Outgoing:
        """Return the caller's request with another limit, streamed or not as the caller asked."""
        return Outgoing(dumps(self._limited(self.body, limit)))

    def again(self, limit: int | None) -> Outgoing:
        """Return the same request with another limit, streamed."""
        return self._send(self.body, limit)

    def resume(self, answer: MessageBuilder, way: Way, prompt: str, limit: int | None) -> Outgoing:
        """Return the request that asks the model to go on from `answer`."""
        turns = self._turns_of(self.body)
        if way is Way.PREFILL:
            self._add_prefill(turns, answer.content)
        else:
            for turn in exchange(answer, way, prompt):
                if isinstance(turn, str):
                    self._add_user(turns, turn)
                else:
                    self._add_model(turns, turn)
        body = self._for_recovery({**self.body, self.turns_key: turns}, answer)
        return self._send(self._calling_none(body) if way is Way.ARGUMENT else body, limit)

    def _calling_none(self, body: Json) -> Json:
        """Return the body with its tools forbidden, and declared: they are part of the prompt."""
        return {**body, "tool_choice": "none"} if body.get("tools") else body

    def ask_members(
        self, answer: MessageBuilder, tool: str, schema: Json, prompt: str, limit: int | None
    ) -> Outgoing:
        """Return the request for a call of a tool that has just the members of `schema`."""
        turns = self._turns_of(self.body)
        self._add_model(turns, answer.content)
        self._add_user(turns, prompt)
        body = self._for_recovery({**self.body, self.turns_key: turns}, answer)
        return self._send(self._calling(body, tool, schema), limit)

    def _calling(self, body: Json, tool: str, schema: Json) -> Json:
        """Return the body with one tool, which has to be called, under another schema."""
        function: Json = {"name": tool, "parameters": schema}
        described: Json = {"type": "function", "function": function}
        forced: Json = {"type": "function", "function": {"name": tool}}
        return {**body, "tools": [described], "tool_choice": forced}

    @property
    def document(self) -> Json | None:
        """What structured output is to be, as JSON Schema; `None`: the request does not say."""
        return None

    def schema(self, tool: str) -> Json | None:
        """Return what a tool takes, as JSON Schema; `None`: the request does not say."""
        for declared in map(as_json, as_list(self.body.get("tools"))):
            for one in (declared, as_json(declared.get("function"))):
                shape = as_json(one.get("parameters")) or as_json(one.get("input_schema"))
                if one.get("name") == tool and shape:
                    return shape
        return None

    def hop(self, answer: MessageBuilder, limit: int | None) -> Outgoing:
        """Return the request that goes on by the provider's own token; most formats have none."""
        return self.again(limit)

    def with_less_thinking(self) -> BaseRequest | None:
        """Return the same request with less thinking; `None` where it cannot be asked for."""
        return None

    def lookup(self) -> Outgoing | None:
        """Return the request that asks the provider's models endpoint for this model."""
        return None

    def looked_up(self, body: bytes) -> int | None:
        """Read the ceiling in the models endpoint's answer."""
        try:
            found = loads(body)
        except ValueError:
            return None
        for key in self.ceiling_field.split("."):
            found = as_json(found).get(key)
        ceiling = as_int(found)
        return ceiling if ceiling is not None and ceiling > 0 else None

    def rewritten(
        self, policy: Policy, head: Head | None = None, body: bytes = b""
    ) -> BaseRequest | None:
        """Return the request as its server must be asked, where that differs from what it holds.

        With `head` and `body`: after this refusal. `None`: as it is, or there is no help.
        """
        return None

    def refused(self, head: Head, body: bytes) -> ClassifiedError:
        """Classify an error answer; the next request is built with what it teaches of the form."""
        busy = head.status in {408, 429} or head.status >= 500
        kind = ErrorKind.RETRYABLE if busy else ErrorKind.FINAL
        return ClassifiedError(kind, label_of(head.status, body))


def exchange(answer: MessageBuilder, way: Way, prompt: str) -> Iterator[str | list[Json]]:
    """Yield what a recovery adds to the conversation: the model's contents, the user's texts.

    A call that is to be made smaller is asked for behind all that was shown. Otherwise the model
    sees each attempt behind the prompt that asked for it, as it happened.
    """
    if way in {Way.RETRY_SMALLER, Way.ARGUMENT}:
        yield answer.content
    else:
        for content, asked in answer.pairs:
            if asked is not None:
                yield asked
            yield content
    yield prompt


def alternate(turns: list[Any], role: str, field: str, content: list[Any]) -> None:
    """Add content under a role; what follows a turn of that role becomes part of it.

    Strictly alternating roles are the form every server takes. A turn without a role is the user's.
    """
    if not content:
        return
    last = as_json(turns[-1]) if turns else {}
    if not last or (last.get("role") or "user") != role:
        turns.append({"role": role, field: content})
        return
    before = last.get(field)
    blocks = [{"type": "text", "text": before}] if isinstance(before, str) else as_list(before)
    turns[-1] = {**last, field: [*blocks, *content]}


# --- the body of an error answer -----------------------------------------------------------------
#
# What the error is called may stand in a report; what it says never does: it can quote the caller's
# own text.

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


def segment(name: str) -> str:
    """Write a name as one segment of a path, so that it leads nowhere else; `""`: it cannot be."""
    return quote(name, safe="") if name.strip(".") else ""


def word(value: object) -> str:
    """Return a server's word for something; `""` for a text that may say anything."""
    text = as_text(value)
    return text if _WORD.fullmatch(text) else ""


def label_of(status: int, body: bytes) -> str:
    """Return the status and the server's word for the error, if it has one."""
    outer = _decoded(body)
    for error in (as_json(outer.get("error")), outer):
        for key in ("code", "type", "status"):
            if label := word(error.get(key)):
                return f"{status} {label}"
    return str(status)


def message_of(body: bytes) -> str:
    """Return what `error.message` says; or `message`, which is all that AWS says."""
    error = _decoded(body)
    return as_text(as_json(error.get("error")).get("message")) or as_text(error.get("message"))


def _decoded(body: bytes) -> Json:
    try:
        document = loads(body)
    except ValueError:
        return {}
    return as_json(next(iter(as_list(document)), document))  # a stream's error comes in an array
