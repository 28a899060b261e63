"""One request of the caller: what is the same in every wire format.

A format derives its request from `BaseRequest`. It defines the keys of its fields, and how a
message of the user or the model is appended (`_add_user`, `_add_model`). It can inherit the other
methods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, cast
from urllib.parse import quote

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
    short,
)
from continuation.wire.errors import label_of
from continuation.wire.json_values import (
    as_int,
    as_json,
    as_list,
    as_text,
    count_values,
    dumps,
    dumps_in_pieces,
    is_list,
    loads,
    texts_in,
)

if TYPE_CHECKING:
    from continuation.answer.message_builder import MessageBuilder
    from continuation.providers.contract import WireCodec

_LARGE = 1 << 20
"""Bytes. It takes milliseconds to write a larger request."""


def read_body(request: Request) -> Json:
    """Parse a request's body. Raises `Untouched` if it cannot be read or must not be changed."""
    if request.headers.get("authorization", "").startswith("AWS4-"):
        raise Untouched("the request is signed over its body")
    most = request.max_values
    if count_values(request.body, most) > most:
        raise Untouched(f"the request body has more than {most:,} JSON values")
    try:
        parsed = loads(request.body)
    except ValueError as error:
        raise Untouched("the request body is not JSON") from error
    if not isinstance(parsed, dict):
        raise Untouched("the request body is not a JSON object")
    return cast("Json", parsed)


class Chained(Protocol):
    """A request's place in a chain.

    Some methods return a function that uses the store. A shell runs that function.
    """

    @property
    def patience(self) -> float | None:
        """The seconds that the store may take; `None`: it is in memory, so there is no wait."""
        ...

    def recall(self, policy: Policy) -> Callable[[], object] | None:
        """Return a function that looks up the response that the request names, or `None`."""
        ...

    def recalled(self, found: Any) -> None:
        """Receive the result of that function; `None`: the store failed or took too long."""
        ...

    def clear(self, answer: bytes | None) -> bool:
        """Receive the server's answer to `doubt`; return whether the request must be rewritten."""
        ...

    def promise(self, policy: Policy, given: str) -> Callable[[], bool] | None:
        """Return a function that records that the answer with this id will be completed."""
        ...

    def unchanged(self, policy: Policy, given: str) -> None:
        """Note that the caller gets the answer with this id unchanged."""
        ...

    @property
    def given(self) -> str:
        """The id of the delivered answer; `""`: no end was written."""
        ...

    def record(self) -> Callable[[], bool] | None:
        """Return a function that stores the turn after its end was written, or `None`."""
        ...


class BaseRequest(ABC):
    """A request whose body is a JSON object with a list of messages."""

    messages_key: ClassVar[str] = "messages"
    model_key: ClassVar[str] = "model"
    limit_key: ClassVar[str] = "max_tokens"
    stream_key: str = "stream"
    """The keys of the conversation, the model's name, the output limit and the flag for streaming
    (`""`: the path decides whether to stream)."""

    streaming_keys: ClassVar[tuple[str, ...]] = ("stream", "stream_options")
    """The fields that only say how the answer is sent."""
    ceiling_field: str = ""
    """The path of the ceiling in the models endpoint's answer, joined by dots; `""`: none."""
    structured: bool = False
    """Whether the request demands structured output."""
    can_drop_schema: bool = True
    """Whether a recovery may drop the constraint on structured output."""
    always_completed: bool = False
    """Whether the server gives truncated answers a normal stop reason, too."""
    unbounded: bool = False
    """Whether the request has no limit, and the server then allows the model's ceiling."""
    ceiling: int | None = None
    """The ceiling on this server in tokens, if it is known to differ from the model's."""
    unary_ceiling: int | None = None
    """The largest limit in tokens that is safe without streaming; `None`: there is no bound."""
    hop_ceiling: int | None = None
    """The most output tokens of one request, whatever its limit; `None`: only its limit counts."""
    doubt: Outgoing | None = None
    """A request to send before this one is rewritten.

    Its answer shows whether the caller may read the response that this request continues."""
    _stream_path: Callable[[str], str] | None = None
    """Maps the caller's URL path to the path for a streamed answer; `None`: it is the same."""

    def __init__(self, request: Request, body: Json) -> None:
        self._request = request
        self.body = body
        self.model = short(as_text(body.get(self.model_key)))
        """The model's name, shortened if it is longer than any real name."""
        self.limit = as_int(body.get(self.limit_key))
        self.streamed = body.get(self.stream_key) is True

    # --- what a format defines -------------------------------------------------------------------

    @abstractmethod
    def _add_user(self, messages: list[Any], text: str) -> None:
        """Append a text of the user to the conversation."""

    @abstractmethod
    def _add_model(self, messages: list[Any], content: list[Json]) -> None:
        """Append an attempt's content, without the blocks that a request must not have."""

    def _like(self, body: Json) -> Self:
        """Return the same request with another body."""
        return type(self)(self._request, body)

    def _limited(self, body: Json, limit: int | None) -> Json:
        """Return a copy of `body` with a limit in tokens; `None`: the caller's limit, if any."""
        limit = limit if limit is not None else self.limit
        return dict(body) if limit is None else {**body, self.limit_key: limit}

    def _messages_of(self, body: Mapping[str, object]) -> list[Any]:
        """Return a copy of the conversation in `body`."""
        return list(as_list(body.get(self.messages_key)))

    def _add_prefill(self, messages: list[Any], content: list[Json]) -> None:
        """Append the content of a prefill, of which the model continues the last text."""
        self._add_model(messages, content)

    def _for_recovery(self, body: Json, answer: MessageBuilder) -> Json:
        """Return the body of a recovery, without constraints on the form of the complete answer."""
        return body

    def _send(self, body: Json, limit: int | None) -> Outgoing:
        """Return the request for a later attempt. It is streamed if possible: it may be long."""
        body = self._limited(body, limit)
        if self.streams and self.stream_key:
            body[self.stream_key] = True
        sent = self._written(body)
        return Outgoing(sent, self._stream_path, headers={"accept": "application/json"})

    def _written(self, body: Json) -> bytes:
        """Return a body as JSON. A large one is written in pieces, so that other threads run."""
        large = len(self._request.body) > _LARGE
        return dumps_in_pieces(body) if large else dumps(body)

    def _answers_tool(self, last: Json) -> bool:
        """Whether the last message is a tool's result, or the model's."""
        return last.get("role") in {"assistant", "model", "tool", "function"}

    # --- what the engine calls -------------------------------------------------------------------

    @property
    def chain(self) -> Chained | None:
        """The request's place in a chain of responses; `None`: the format has no chains."""
        return None

    @property
    def completable(self) -> bool:
        """Whether a truncated document can be completed, as `truncated_document` may demand."""
        return self.can_drop_schema

    @property
    def may_be_silent(self) -> bool:
        """Whether the model may intend an empty answer.

        It may after a tool's result, after a message of the model, and if the request has stop
        sequences, because a stop sequence may be the first text that it writes.
        """
        messages = self._messages_of(self.body)
        return bool(self._stop_sequences) or bool(
            messages and self._answers_tool(as_json(messages[-1]))
        )

    @property
    def _stop_sequences(self) -> object:
        """The stop sequences of the request. It is false if there are none."""
        return self.body.get("stop") or self.body.get("stop_sequences")

    def resumes(self, policy: Policy) -> bool:
        """Whether `hop` continues an answer that the provider paused."""
        return False

    def hinted(self, note: str) -> BaseRequest | None:
        """Return the request with a hint for a model that wrote a malformed call, or `None`.

        `note`: the provider's message about the call; `""`: it sent none.
        """
        return None

    @property
    def streams(self) -> bool:
        """Whether later attempts may be streamed. If not, `unary_ceiling` bounds their limit."""
        return True

    @property
    def gathers(self) -> bool:
        """Whether a complete body can be made of a streamed answer."""
        return self.streams

    gathers_exactly: ClassVar[bool] = False
    """Whether such a body has every field of the provider's body. If so, a request for a body may
    always be sent as a request for a stream."""

    @property
    def prompt_text(self) -> str:
        """All texts of the request, to estimate its size. It has no images and files."""
        return "\n".join(texts_in(self.body))

    @abstractmethod
    def codec(self) -> WireCodec:
        """Return a codec for this request's answers, for use outside a turn."""

    @abstractmethod
    def answer(self, policy: Policy) -> MessageBuilder:
        """Return a builder of the caller's answer."""

    def untouched(self, policy: Policy) -> str | None:
        """Return why this request must be passed through unchanged; `None`: it need not be."""
        return None

    def prefills(self, model_takes_it: bool) -> bool:
        """Whether this request can be continued by prefill.

        `model_takes_it`: whether the model supports prefill, by the table of models. It matters in
        formats in which that depends on the model and not on the server.
        """
        return False

    def prefilled(self, answer: MessageBuilder) -> str:
        """Return the text at the end of the request that `resume` builds for a prefill."""
        return answer.open_text

    @property
    def wanted(self) -> tuple[str, Json]:
        """The URL path and the body, without what only says whether the answer is streamed."""
        body = {key: value for key, value in self.body.items() if key not in self.streaming_keys}
        return self._request.path, body

    def repaired(self, body: Mapping[str, object], more: str | None) -> BaseRequest:
        """Return the same request with another body. `more`: a text of the user to append."""
        changed = dict(body)
        if more is not None:
            messages = self._messages_of(body)
            self._add_user(messages, more)
            changed[self.messages_key] = messages
        return self._like(changed)

    def outgoing(self, headers: Mapping[str, str]) -> Outgoing:
        """Return the request unchanged, with more headers."""
        return Outgoing(dumps_in_pieces(self.body), headers=headers)

    def first(self, limit: int) -> Outgoing:
        """Return the caller's request with another limit, streamed if the caller's is."""
        return Outgoing(self._written(self._limited(self.body, limit)))

    def again(self, limit: int | None) -> Outgoing:
        """Return the same request with another limit, streamed."""
        return self._send(self.body, limit)

    def resume(self, answer: MessageBuilder, way: Way, prompt: str, limit: int | None) -> Outgoing:
        """Return the request for a recovery, in which the model is asked to continue `answer`."""
        messages = self._messages_of(self.body)
        if way is Way.PREFILL:
            self._add_prefill(messages, answer.content)
        else:
            for message in exchange(answer, way, prompt):
                if isinstance(message, str):
                    self._add_user(messages, message)
                else:
                    self._add_model(messages, message)
        body = self._for_recovery({**self.body, self.messages_key: messages}, answer)
        return self._send(self._calling_none(body) if way is Way.ARGUMENT else body, limit)

    def _calling_none(self, body: Json) -> Json:
        """Return the body with calls forbidden. Its tools stay, because the prompt has them."""
        return {**body, "tool_choice": "none"} if body.get("tools") else body

    def ask_members(
        self, answer: MessageBuilder, tool: str, schema: Json, prompt: str, limit: int | None
    ) -> Outgoing:
        """Return a request that forces a call of a tool with the arguments in `schema` only."""
        messages = self._messages_of(self.body)
        self._add_model(messages, answer.content)
        self._add_user(messages, prompt)
        body = self._for_recovery({**self.body, self.messages_key: messages}, answer)
        return self._send(self._calling(body, tool, schema), limit)

    def _calling(self, body: Json, tool: str, schema: Json) -> Json:
        """Return the body with only this tool, with arguments by `schema`, and a forced call."""
        function: Json = {"name": tool, "parameters": schema}
        described: Json = {"type": "function", "function": function}
        forced: Json = {"type": "function", "function": {"name": tool}}
        return {**body, "tools": [described], "tool_choice": forced}

    @property
    def document(self) -> Json | None:
        """The JSON Schema of structured output; `None`: the request has none."""
        return None

    @property
    def last_text(self) -> str:
        """All words of the conversation's last message."""
        messages = self.body.get(self.messages_key)
        return "\n".join(texts_in(messages[-1] if is_list(messages) and messages else messages))

    @property
    def callable_tools(self) -> list[str]:
        """The names of the tools that the model may call; `[]`: none."""
        choice = self.body.get("tool_choice")
        if "none" in (choice, as_json(choice).get("type")):
            return []
        tools = map(as_json, as_list(self.body.get("tools")))
        # Chat Completions has the name one level deeper, under the tool's type.
        named = ([each, as_json(each.get(as_text(each.get("type"))))] for each in tools)
        names = (as_text(one.get("name")) for pair in named for one in pair)
        return [name for name in names if name]

    def schema(self, tool: str) -> Json | None:
        """Return the JSON Schema of a tool's arguments; `None`: the request has none."""
        for declared in map(as_json, as_list(self.body.get("tools"))):
            for one in (declared, as_json(declared.get("function"))):
                shape = as_json(one.get("parameters")) or as_json(one.get("input_schema"))
                if one.get("name") == tool and shape:
                    return shape
        return None

    def hop(self, answer: MessageBuilder, limit: int | None) -> Outgoing:
        """Return the request that continues by the provider's token. Most formats have no token."""
        return self.again(limit)

    def with_less_thinking(self) -> BaseRequest | None:
        """Return the same request with less thinking; `None`: less is not possible."""
        return None

    def lookup(self) -> Outgoing | None:
        """Return a request to the models endpoint for this model; `None`: there is none."""
        return None

    def looked_up(self, body: bytes) -> int | None:
        """Return the ceiling in tokens from the models endpoint's answer, or `None`."""
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
        """Return the request in the form that its server needs; `None`: its form is right.

        `head` and `body`: the error response to the request. With these, `None` means that no other
        form helps.
        """
        return None

    def label(self, head: Head, body: bytes) -> str:
        """Return the status of an error response with the server's name for the error."""
        return label_of(head.status, body)

    def refused(self, head: Head, body: bytes) -> ClassifiedError:
        """Classify an error response. This changes nothing; `adapt` changes later requests."""
        busy = head.status in {408, 429} or head.status >= 500
        kind = ErrorKind.RETRYABLE if busy else ErrorKind.FINAL
        return ClassifiedError(kind, label_of(head.status, body))

    def adapt(self, error: ClassifiedError) -> None:
        """Give later requests the form that a refusal demands (`error.form`)."""
        return


def exchange(answer: MessageBuilder, way: Way, prompt: str) -> Iterator[str | list[Json]]:
    """Yield the messages that a recovery adds. A list is the model's content, a string the user's.

    If a call is requested or completed, one message has all content, and `prompt` follows it. If a
    text is continued, each attempt's content follows the prompt to which it was the answer.
    """
    if way in {Way.RETRY_SMALLER, Way.ARGUMENT, Way.CALL}:
        yield answer.content
    else:
        for content, asked in answer.pairs:
            if asked is not None:
                yield asked
            yield content
    yield prompt


def alternate(messages: list[Any], role: str, field: str, content: list[Any]) -> None:
    """Append a message with a role. If the last message has that role, extend it instead.

    Every server accepts strictly alternating roles. A message without a role is the user's.
    """
    if not content:
        return
    last = as_json(messages[-1]) if messages else {}
    if not last or (last.get("role") or "user") != role:
        messages.append({"role": role, field: content})
        return
    before = last.get(field)
    blocks = [{"type": "text", "text": before}] if isinstance(before, str) else as_list(before)
    messages[-1] = {**last, field: [*blocks, *content]}


def segment(name: str) -> str:
    """Return a name quoted as one segment of a URL path, or `""` if it is empty or only dots."""
    return quote(name, safe="") if name.strip(".") else ""
