"""The contract of a wire format: the members by which the rest of the code uses a format.

A format is a folder in `providers/`, or another package that is found by its entry point. Its
`DIALECT` implements `Dialect`. These are its parts:

- `Dialect` recognizes the format's requests and parses them.
- A request derives from `BaseRequest` (`providers/request.py`). It says what is sent for each
  attempt.
- `WireCodec`, with `Reader`, `Writer` and `FastPath`, translates answers to block events and back.
- `Shape` describes conversations, tool results, batch lines and errors. Journals, batches, the
  gateway and reports use it.

A format translates bytes. It does no I/O, and it never decides what happens next.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from continuation.types import AttemptResult, Json, Request, Stop, ToolCallState, Usage
from continuation.wire.blocks import TEXT, THINKING, TOOL_CALL, Block, Segment
from continuation.wire.json_values import (
    as_list,
    as_map,
    as_text,
    dumps,
    first_text,
    is_list,
    last_object,
    objects,
    parsed,
)
from continuation.wire.sse import COMMENT, Frame
from continuation.wire.text_template import PlainEvents

if TYPE_CHECKING:
    from continuation.answer.message_builder import MessageBuilder
    from continuation.history.grammar import Grammar
    from continuation.policy import Policy
    from continuation.providers.request import BaseRequest as ProviderRequest
    from continuation.providers.sdk import SdkDriver
else:  # these are used only in annotations, which are not evaluated at run time
    Grammar = MessageBuilder = Policy = ProviderRequest = SdkDriver = object

__all__ = [
    "Dialect",
    "FastPath",
    "Feed",
    "Grammar",
    "MessageBuilder",
    "ParsedCall",
    "PlainReader",
    "ProviderRequest",
    "Reader",
    "SdkDriver",
    "Shape",
    "WireCodec",
    "Writer",
]

Feed = Callable[[bytes], bytes]
"""Takes the next bytes of an attempt's body; returns the bytes to deliver now; raises `Enough`."""


class Dialect(Protocol):
    """One wire format."""

    name: str
    has_grammar: bool = False
    """Whether it has a grammar, with which `continuation.history` checks and repairs requests."""
    default_ceiling: int
    """The output limit, in tokens, assumed for a model that is not in the table."""
    default_timeout: float | None
    """The SDK's default read timeout in seconds. Any other timeout is the caller's choice."""
    shape: Shape

    def claims(self, method: str, path: str) -> bool:
        """Whether a request has this format. It must be fast: it is called for every request."""
        ...

    def call(self, request: Request) -> ProviderRequest:
        """Parse a request. Raises `Untouched` if it cannot be read."""
        ...

    def grammar(self) -> Grammar | None:
        """Return the rules of the format's histories. This imports them."""
        return None

    def driver(self) -> SdkDriver | None:
        """Return the driver by which commands call a model; `None`: they cannot."""
        return None

    def prepare(self, policy: Policy) -> Callable[[], object] | None:
        """Return a function that a gateway runs in a thread before the first request, or `None`.

        It opens the format's own store, if the format has one.
        """
        return None

    def keep_alive(self, opening: bytes) -> bytes:
        """Return an event without content, which keeps a silent stream alive.

        `opening`: the first event that was delivered; `b""`: none yet. Every client must accept the
        returned event between any two events (design/decisions/0022-keep-alive.md).
        """
        return COMMENT


# --- the shape ------------------------------------------------------------------------------------

_EMPTY: tuple[object, ...] = (None, [], {})


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A tool call, in one form for all wire formats."""

    id: str
    """The id in the answer. If Gemini gave none, the journal makes one that begins with `#`."""
    name: str
    arguments: Any
    """The parsed arguments, or the text that arrived if it is not JSON."""
    custom: bool = False
    """Whether it is a custom call of the Responses API, which has any text as input."""

    @property
    def input(self) -> Any:
        """The arguments. This is Anthropic's name for them."""
        return self.arguments

    @property
    def args(self) -> Any:
        """The arguments. This is Google's name for them."""
        return self.arguments


class Shape(ABC):
    """How a format writes a conversation, an answer, a batch line and an error.

    A format must define the attributes and methods that have no default. A message is one element
    of a request's list of messages.
    """

    # --- recognizing a request by its body --------------------------------------------------------

    def resembles(self, body: Mapping[str, Any]) -> int:
        """Return how surely a body is a request of this format, judged without its messages.

        0: it is not. 1: only its messages can show it. The format with the highest number is right.
        """
        return int(is_list(body.get(self.messages)))

    def resembles_message(self, message: Mapping[str, Any]) -> int:
        """Return how surely a message has this format; 0: nothing in it shows that."""
        return 0

    # --- requests and answers ---------------------------------------------------------------------

    messages: ClassVar[str]
    """The field of a request with its messages."""
    answer: ClassVar[str]
    """The field that only this format's answers have; its value is a list."""
    stop: ClassVar[str]
    """The field with the stop reason, of an answer or of each of its choices."""
    truncated: ClassVar[str]
    """The stop reason of an answer that was truncated at the output limit."""
    stops: ClassVar[Mapping[str, Stop]]
    """The codec's stop reasons."""
    identity: ClassVar[tuple[str, ...]] = ("model", "tools")
    """The fields, besides the messages, that are equal in equal requests."""
    lengths: ClassVar[frozenset[str]] = frozenset({"stream"})
    """The fields that may differ when a request is repeated."""
    ignored: ClassVar[frozenset[str]] = frozenset()
    """The fields of messages that are not content, or that an SDK adds. They are not compared."""
    envelope: ClassVar[frozenset[str]] = frozenset()
    """The small fields of an answer that are kept in addition to its content."""

    def options(self, body: Json) -> Json:
        """Return the other fields of a request, which must be equal in a repeated request."""
        excluded = {*self.lengths, *self.identity, self.messages}
        return {key: value for key, value in body.items() if key not in excluded}

    def is_chained(self, body: Json) -> bool:
        """Whether a request continues a conversation that the provider stores."""
        return False

    def request_messages(self, body: Json) -> list[Json]:
        """Return the messages of a request."""
        return objects(body.get(self.messages))

    @abstractmethod
    def answer_messages(self, body: Json) -> list[Json]:
        """Return an answer's body as messages of a later request."""

    @abstractmethod
    def join_answer(self, messages: Sequence[Json], envelope: Json) -> Json:
        """Return the body of an answer, from the two results of `split_answer`."""

    def split_answer(self, body: Json) -> tuple[list[Json], Json]:
        """Return an answer's messages, and the fields of its body that are not content."""
        envelope = {key: value for key, value in body.items() if key in self.envelope}
        return self.answer_messages(body), envelope

    def choices(self, body: Json) -> list[Json]:
        """Return the objects that have the stop reason, one for each choice."""
        return [body]

    def is_single_answer(self, body: Json) -> bool:
        """Whether a body has one answer with content, which `join_answer` can rebuild."""
        return len(self.choices(body)) == 1 and bool(self.answer_messages(body))

    def is_answer(self, body: Json) -> bool:
        """Whether a JSON object is an answer of this format."""
        return is_list(body.get(self.answer))

    def is_truncated(self, body: Json) -> bool:
        """Whether an answer, or one of its choices, states that it was truncated."""
        words = {word.lower() for word, stop in self.stops.items() if stop in _TRUNCATED}
        return any(as_text(each.get(self.stop)).lower() in words for each in self.choices(body))

    def mark_truncated(self, body: Json) -> None:
        """If an answer has no stop reason, set that of a truncated answer. Changes `body`."""
        for choice in self.choices(body)[:1]:
            choice[self.stop] = choice.get(self.stop) or self.truncated

    @abstractmethod
    def text(self, body: Json) -> str:
        """Return the visible text of an answer."""

    def normalized(self, value: object, key: str) -> object:
        """Return a value of a message in the form in which messages are compared.

        `key`: the value's field. The members of the value have that form already.
        """
        return value

    # --- tools ------------------------------------------------------------------------------------

    def parse_call(self, call: Json) -> ParsedCall:
        """Parse a tool call in the answer's JSON. If it is not a call, the result has no name."""
        function = self.function_of(call)
        call_id = as_text(call.get("call_id")) or as_text(call.get("id"))
        call_id = call_id or as_text(function.get("id"))
        arguments: Any = None
        for key in ("input", "arguments", "args"):
            arguments = function.get(key) if arguments is None else arguments
        custom = call.get("type") == "custom_tool_call"
        if isinstance(arguments, str) and not custom and (decoded := parsed(arguments)) is not None:
            arguments = decoded
        return ParsedCall(call_id, as_text(function.get("name")), arguments, custom)

    def function_of(self, call: Json) -> Json:
        """Return the object within a call that has its name and arguments."""
        return call

    @abstractmethod
    def result(self, call: ParsedCall, value: Any, *, failed: bool) -> Json:
        """Return a message with the result of one call."""

    def group_results(self, results: Sequence[Json]) -> list[Json]:
        """Return the results of one answer's calls in as many messages as the format requires."""
        return list(results)

    @abstractmethod
    def answered_calls(self, message: Json) -> set[str]:
        """Return the ids of the calls for which a message has results; `#`: a call without id."""

    def calls_without_id(self, message: Json) -> list[ParsedCall]:
        """Return the calls of an answer's message to which the provider gave no id."""
        return []

    # --- SDKs and batch files ---------------------------------------------------------------------

    method: ClassVar[str] = ""
    """The dotted path of the SDK's method for requests, such as `messages.create`; `""`: none."""
    batch_request: ClassVar[str] = ""
    """The field with the request in a line of a batch API's file; `""`: there is no batch API."""
    batch_answer: ClassVar[tuple[str, ...]] = ()
    """The path of the answer in a line of a batch API's results."""

    def is_client(self, client: Any, request: Mapping[str, Any]) -> bool:
        """Whether an SDK's client sends this request in this format."""
        return False

    def sdk_method(self, request: Mapping[str, Any], answer: object = None) -> str:
        """Return the path of the SDK's method for a request. `answer`: the method's result."""
        return self.method

    def sdk_arguments(self, client: Any, request: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of the SDK's method. `request`: its keywords, or the JSON body."""
        return request

    def joined_message(self, chunks: Sequence[Any]) -> Any:
        """Join the objects that an SDK's chat has for a streamed message, one for each chunk."""
        return chunks[-1]

    def is_batch_line(self, line: Json, request: Json) -> bool:
        """Whether a line of a file is a request of this format, judged by its form."""
        return bool(self.batch_request) and self.batch_request in line and self.messages in request

    # --- gateways and telemetry -------------------------------------------------------------------

    upstream: ClassVar[str] = ""
    """The name of this format's providers in the gateway's configuration; `""`: none."""
    server: ClassVar[str] = ""
    """The URL of the format's own provider."""
    server_path: ClassVar[str] = ""
    """The path that the SDK's base URL has in addition to `server`."""
    key_header: ClassVar[bytes] = b"authorization"
    """The header with the caller's API key."""
    key_prefix: ClassVar[bytes] = b""
    """The bytes before the key in that header."""
    telemetry: ClassVar[str] = ""
    """OpenTelemetry's name of the provider; `""`: the dialect's name."""

    def error(self, status: int, message: str) -> Json:
        """Return the body of an error response from which the SDKs make their exception."""
        return plain_error(status, message)

    def error_event(self, error: Json) -> bytes:
        """Return such a body as an event in a stream. The SDKs raise an exception at it."""
        return b"event: error\ndata: %b\n\n" % dumps(error)


WORD = rb'"(?:\s|\\[nrt])*+(?:[^"\\\s]|\\[^nrt])'
"""Matches the beginning of a JSON string up to its first character that is not white space."""
_TRUNCATED = frozenset({Stop.LENGTH, Stop.WINDOW})


def plain_error(status: int, message: str) -> Json:
    """Return an error's body in the form that most servers use, which is OpenAI's."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def as_result_text(value: object) -> str:
    """Return a tool's result as text."""
    return value if isinstance(value, str) else dumps(value).decode()


def block_types(message: Mapping[str, Any]) -> set[str]:
    """Return the types of a message's blocks."""
    return {as_text(as_map(block).get("type")) for block in as_list(message.get("content"))}


def without_empty(message: Json) -> Json:
    """Return a message without fields that are null or empty."""
    return {key: value for key, value in message.items() if value not in _EMPTY}


# --- answers --------------------------------------------------------------------------------------


class Reader(Protocol):
    """Reads one attempt's stream as block events."""

    def events(self, frame: Frame) -> Sequence[Json]:
        """Return a server-sent event, which is not empty, as block events. Must not raise."""
        ...

    def deltas(self, raw: bytes, index: object, *, text: bool) -> Iterator[tuple[Json, int]]:
        """Yield the first events in `raw` while each is certainly one delta of the block `index`.

        Yields each delta with its end in `raw`. Anything may follow there. `text`: yield only text
        deltas.
        """
        return iter(())

    def joined(
        self, raw: bytes, index: object, chunks: Sequence[bytes] = ()
    ) -> tuple[Json, int] | None:
        """Return many such deltas joined to one, with its end in `raw`; `None`: it cannot.

        `chunks`: the pieces in which the bytes arrived, if known.
        """
        return None

    def eof(self) -> Sequence[Json]:
        """Return the events that follow because the bytes have ended properly."""
        return ()


class PlainReader(Reader):
    """A reader that recognizes text events by comparing them with an event that it has parsed."""

    _plain: PlainEvents

    def deltas(self, raw: bytes, index: object, *, text: bool) -> Iterator[tuple[Json, int]]:
        return self._plain.deltas(raw, index, text=text)

    def joined(
        self, raw: bytes, index: object, chunks: Sequence[bytes] = ()
    ) -> tuple[Json, int] | None:
        return self._plain.joined(raw, index, chunks)


class FastPath(Protocol):
    """Examines the first attempt's bytes without parsing them. If unsure, it returns `False`.

    The methods here always return `False`, which is right for a format without a fast path.
    """

    blank: bytes = b"\n\n"
    """The bytes that end an event of this format's servers."""

    def flows(self, chunk: bytes) -> bool:
        """Whether a chunk has nothing except complete events of visible text."""
        return False

    def skips(self, raw: bytearray, start: int, end: int, *, flowing: bool) -> bool:
        """Whether the complete events in `raw[start:end]` need not be read.

        `flowing`: events are delivered at once, so all of them must be text. If not, events are
        buffered, and none of them may end a block or the answer.
        """
        return False


class Writer(Protocol):
    """Writes one answer for the caller, as events or as a body. Indices count its blocks.

    Methods that not every format needs have a default here.
    """

    def open(self, message: Json) -> bytes:
        """Return the beginning of a stream. `message`: the reader's values for the answer."""
        return b""

    def start(self, index: int, block: Block) -> bytes:
        """Return the beginning of a block."""
        return b""

    def delta(self, index: int, block: Block, delta: Json) -> bytes:
        """Return one more delta of a block."""
        ...

    def stop(self, index: int, block: Block) -> bytes:
        """Return the end of a block."""
        return b""

    def other(self, event: Json) -> bytes:
        """Return the bytes of an event that is not a block event, such as a ping."""
        return b""

    def resume(self, message: Json, blocks: Sequence[Block], shown: int) -> None:
        """Continue the provider's stream. `shown` events of it were delivered, with `blocks`."""
        return

    def closing(self, blocks: Sequence[Block], delta: Json) -> bytes:
        """Return the bytes that would end an open block and the answer here. Changes nothing."""
        return self.end(blocks, delta, {})

    def end(self, blocks: Sequence[Block], delta: Json, usage: Json) -> bytes:
        """Return the terminal events. `delta` has the stop reason in the provider's words."""
        ...

    def body(self, message: Json, blocks: Sequence[Block], delta: Json, usage: Json) -> Json:
        """Return the complete answer as one JSON body."""
        ...


class _NoFastPath(FastPath): ...


class WireCodec(ABC):
    """Reads and writes the answers of one wire format, for one request.

    A format must define how its answers are read and written, and its stop reasons. The other
    methods save work for complete answers, or are for features that only some formats have. Their
    defaults are right for a format without them.
    """

    ended: str
    """The stop reason of a synthetic STOP."""
    called: str
    """The stop reason of a synthetic STOP if the answer has calls."""
    truncated: str
    """The provider's stop reason for "output limit"."""
    stops: Mapping[str, Stop]
    """The provider's stop reasons -> their meaning. `ended` and `called` may be missing. An unknown
    reason means `Stop.OTHER`."""
    speech: re.Pattern[bytes] | None = None
    """If it matches in a JSON answer, the answer has visible text; it need not match in every such
    answer. `None`: each answer that ended normally is parsed."""
    silent: frozenset[str] = THINKING
    """The types of blocks without anything visible for the user."""
    sends_back: bool = False
    """Whether a paused answer is continued by sending its content back, without a token."""
    lasting: tuple[str, ...] = ()
    """The fields at an answer's end that stay valid for the rest of the turn."""
    delta: bytes = b""
    """The beginning of a delta's JSON, in a format that is also sent in AWS event streams."""
    last: bytes = b""
    """The bytes after the last event of a stream; `b""`: none."""
    kinds: frozenset[str] = frozenset({TEXT, TOOL_CALL}) | THINKING
    """The types of blocks with which an answer can be continued."""
    served: frozenset[str] = frozenset()
    """The types of items that the provider runs itself. If a request is resent, they run again, but
    the caller gets each only once."""
    live: frozenset[str] = frozenset()
    """The types in `served` that report their progress. They are delivered as they arrive."""

    # --- what every format defines ---------------------------------------------------------------

    @abstractmethod
    def reader(self) -> Reader: ...

    @abstractmethod
    def writer(self) -> Writer: ...

    @abstractmethod
    def to_events(self, body: Json) -> Iterable[Json]:
        """Return a JSON body as the block events that a stream of the same answer would have."""

    @abstractmethod
    def read_usage(self, usage: Json) -> Usage | None:
        """Return the provider's token counts as a `Usage`; `None`: it sent none."""

    @abstractmethod
    def write_usage(self, native: Json, usage: Usage | None) -> Json:
        """Return the provider's usage object with our counts. Its other fields do not change."""

    def add_usage(self, native: Json, later: Json) -> Json:
        """Return a turn's usage object joined with a later attempt's, except the counts.

        `write_usage` sets the counts.
        """
        return native or dict(later)

    @abstractmethod
    def wire(self, block: Block) -> Json:
        """Return a block as one JSON value, in the form for a later request."""

    # --- what a format may define ----------------------------------------------------------------

    def stop_of(self, reason: str | None, *, closed: bool) -> Stop:
        """Return the meaning of a stop reason, in upper or lower case.

        `closed`: whether the answer's terminal event arrived. If so, an answer without a reason
        ended normally.
        """
        if reason is None:
            return Stop.END if closed else Stop.DROPPED
        if reason in {self.ended, self.called}:
            return Stop.END
        for spelled in (reason, reason.lower(), reason.upper()):
            if spelled in self.stops:
                return self.stops[spelled]
        return Stop.OTHER

    def ending(self, segment: Segment) -> Stop:
        """Return why the answer in `segment` ended."""
        return self.stop_of(segment.reason, closed=segment.stopped)

    def note(self, delta: Json) -> str:
        """Return the provider's message about an answer's end, from its last event's `delta`."""
        return ""

    def speaks(self, body: bytes | bytearray) -> bool:
        """Whether a JSON answer certainly has more than thinking. The body is not parsed."""
        return self.speech is not None and self.speech.search(body) is not None

    def identity(self, message: Json) -> str:
        """Return the answer's id, from its opening; `""`: it has none."""
        return as_text(message.get("id"))

    def carries(self, block: Block, blocks: Sequence[Block]) -> bool:
        """Whether a later request may have this block. `blocks`: all blocks of its attempt."""
        return self.knows(block.kind)

    def knows(self, kind: str) -> bool:
        """Whether an answer with a block of this type can be continued."""
        return kind in self.kinds

    def arguments(self, call: Block) -> str:
        """Return the argument text of a call that was not truncated; `""`: it has none."""
        return call.arguments

    def arrived(self, call: Block) -> str | None:
        """Return the part of a truncated call's argument text that arrived; `None`: unknown."""
        return call.arguments if call.free or not call.may_be_parsed else None

    def rest_of(self, call: Block, arrived: str, arguments: str) -> list[Json]:
        """Return the deltas that are missing in a call.

        `arrived`: the argument text that arrived. `arguments`: the complete argument text.
        """
        return [{"type": "input_json_delta", "partial_json": arguments[len(arrived) :]}]

    def goes_on(self, call: Block, text: str) -> list[Json]:
        """Return the deltas that add `text` to the string in which a call was truncated.

        `[]`: the text must be buffered until the call is complete.
        """
        written = text if call.free else dumps(text).decode()[1:-1]
        return [{"type": "input_json_delta", "partial_json": written}]

    def fast_path(self) -> FastPath:
        """Return the format's fast path for the first attempt."""
        return _NoFastPath()

    def quick_body(self, body: bytes | bytearray) -> AttemptResult | None:
        """Return how a JSON answer ended, without parsing it; `None`: it must be parsed."""
        return None

    def quick_result(self, body: bytes | bytearray, reason: str | None) -> AttemptResult:
        """Return how a JSON answer with this stop reason ended. The body is not parsed."""
        return AttemptResult(
            stop=self.stop_of(reason, closed=True),
            raw=reason,
            id=first_text(body, "id"),
            usage=self.read_usage(last_object(body, "usage")),
            text=True,
        )

    def quick_calls(self, raw: bytearray, sketch: Segment) -> ToolCallState:
        """Return the state of the calls in a stream that has ended; `CUT`: read it fully."""
        return ToolCallState.CUT if sketch.calls else ToolCallState.NONE
