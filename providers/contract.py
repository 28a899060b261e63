"""The contract of a wire format: everything that the rest of the code may ask one.

A format is a folder in `providers/` (or a package of someone else's, found by its entry point). Its
`DIALECT` implements `Dialect`, which leads to the other parts:

- `Dialect` recognizes the format's requests and parses them.
- A request derives from `BaseRequest` (`providers/request.py`): what to send for each attempt.
- `WireCodec`, with `Reader`, `Writer` and `FastPath`, translates answers to block events and back.
- `Shape` says how conversations, tool results, batch lines and errors are written. Journals,
  batches, the gateway and reports ask it.

A format translates and never decides what happens next. Nothing in it does I/O: bytes in, bytes
out.
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
else:  # used in annotations only, which nothing evaluates at run time
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
"""Takes the next bytes of an attempt's body, returns what may be shown now; raises `Enough`."""


class Dialect(Protocol):
    """One wire format."""

    name: str
    has_grammar: bool = False
    """Whether it has a grammar: `continuation.history` can check and repair its requests."""
    default_ceiling: int
    """The output limit, in tokens, assumed for a model that is not in the table."""
    default_timeout: float | None
    """The SDK's default read timeout in seconds; another one was chosen by the caller."""
    shape: Shape

    def claims(self, method: str, path: str) -> bool:
        """Whether a request belongs to this format. It is called for every request: be fast."""
        ...

    def call(self, request: Request) -> ProviderRequest:
        """Return the request, parsed. Raises `Untouched` when it cannot be read."""
        ...

    def grammar(self) -> Grammar | None:
        """Return the rules of the format's histories; they are imported when they are needed."""
        return None

    def driver(self) -> SdkDriver | None:
        """Return how commands call a model through the format's SDK; `None`: they cannot."""
        return None

    def prepare(self, policy: Policy) -> Callable[[], object] | None:
        """Return a job that a gateway runs in a thread before the first request; `None`: none.

        For a format that has a store of its own, which it opens there.
        """
        return None

    def keep_alive(self, opening: bytes) -> bytes:
        """Return an event without content, which keeps a silent stream alive.

        `opening`: the first event that the caller got; `b""`: none yet. Every client must accept
        the event at every place between two events (design/decisions/0022-keep-alive.md).
        """
        return COMMENT


# --- the shape ------------------------------------------------------------------------------------

_EMPTY: tuple[object, ...] = (None, [], {})


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A tool call, in one form for all wire formats."""

    id: str
    """As in the answer; where Gemini gives none, one that the journal makes, beginning with `#`."""
    name: str
    arguments: Any
    """Parsed, if they are JSON; otherwise the text as it came."""
    custom: bool = False
    """Whether it is a custom call of the Responses API: its input is any text."""

    @property
    def input(self) -> Any:
        """The arguments, by Anthropic's name."""
        return self.arguments

    @property
    def args(self) -> Any:
        """The arguments, by Google's name."""
        return self.arguments


class Shape(ABC):
    """How a format writes a conversation, an answer, a batch line and an error.

    The attributes and methods without a default are what a format has to define. A message is one
    element of a request's list of messages.
    """

    # --- recognizing a request by its body --------------------------------------------------------

    def resembles(self, body: Mapping[str, Any]) -> int:
        """Return how surely a body, apart from its messages, is a request of this format.

        0: it is none, 1: nothing but its messages shows it. Of several formats the surest is right.
        """
        return int(is_list(body.get(self.messages)))

    def resembles_message(self, message: Mapping[str, Any]) -> int:
        """Return how surely a message is one of this format; 0: nothing shows it."""
        return 0

    # --- requests and answers ---------------------------------------------------------------------

    messages: ClassVar[str]
    """The field of a request that holds its messages."""
    answer: ClassVar[str]
    """The field that only this format's answers have. If it holds choices, `choices` says so."""
    stop: ClassVar[str]
    """The field of an answer, or of each choice, that holds the stop reason."""
    truncated: ClassVar[str]
    """What that field holds if the answer was truncated at the output limit."""
    stops: ClassVar[Mapping[str, Stop]]
    """The codec's stop reasons."""
    identity: ClassVar[tuple[str, ...]] = ("model", "tools")
    """Fields, besides the messages, that are equal in two requests that ask the same."""
    lengths: ClassVar[frozenset[str]] = frozenset({"stream"})
    """Fields that may differ when a request is repeated."""
    ignored: ClassVar[frozenset[str]] = frozenset()
    """Fields of messages that are no content, or that an SDK adds. They are not compared."""
    envelope: ClassVar[frozenset[str]] = frozenset()
    """Fields of an answer that are kept besides its content, and are small."""

    def options(self, body: Json) -> Json:
        """Return the other fields of a request that have to be equal in a repeated request."""
        excluded = {*self.lengths, *self.identity, self.messages}
        return {key: value for key, value in body.items() if key not in excluded}

    def is_chained(self, body: Json) -> bool:
        """Whether a request continues a conversation that the provider keeps."""
        return False

    def request_messages(self, body: Json) -> list[Json]:
        """Return the messages of a request."""
        return objects(body.get(self.messages))

    @abstractmethod
    def answer_messages(self, body: Json) -> list[Json]:
        """Return an answer's body as the messages that a later request carries."""

    @abstractmethod
    def join_answer(self, messages: Sequence[Json], envelope: Json) -> Json:
        """Return the body that `split_answer` took apart."""

    def split_answer(self, body: Json) -> tuple[list[Json], Json]:
        """Return an answer's messages, and the fields of its body that are no content."""
        envelope = {key: value for key, value in body.items() if key in self.envelope}
        return self.answer_messages(body), envelope

    def choices(self, body: Json) -> list[Json]:
        """Return the objects that hold the stop reason, one for each choice."""
        return [body]

    def is_single_answer(self, body: Json) -> bool:
        """Whether a body holds one answer with content, which `join_answer` can rebuild."""
        return len(self.choices(body)) == 1 and bool(self.answer_messages(body))

    def is_answer(self, body: Json) -> bool:
        """Whether a JSON object is an answer of this format."""
        return is_list(body.get(self.answer))

    def is_truncated(self, body: Json) -> bool:
        """Whether an answer states that it was truncated; of several choices, whether one does."""
        words = {word.lower() for word, stop in self.stops.items() if stop in _TRUNCATED}
        return any(as_text(each.get(self.stop)).lower() in words for each in self.choices(body))

    def mark_truncated(self, body: Json) -> None:
        """Give an answer without a stop reason the one of a truncated answer."""
        for choice in self.choices(body)[:1]:
            choice[self.stop] = choice.get(self.stop) or self.truncated

    @abstractmethod
    def text(self, body: Json) -> str:
        """Return the visible text of an answer."""

    def normalized(self, value: object, key: str) -> object:
        """Return a value of a message in the one form in which messages are compared.

        `key`: the field that holds it. Its members are in that form already.
        """
        return value

    # --- tools ------------------------------------------------------------------------------------

    def parse_call(self, call: Json) -> ParsedCall:
        """Return a tool call that is given as the answer's JSON; without a name if it is none."""
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
        """Return the object within a call that holds its name and arguments."""
        return call

    @abstractmethod
    def result(self, call: ParsedCall, value: Any, *, failed: bool) -> Json:
        """Return the message that gives one call its result."""

    def group_results(self, results: Sequence[Json]) -> list[Json]:
        """Return results of one answer's calls as the format requires: in one message or many."""
        return list(results)

    @abstractmethod
    def answered_calls(self, message: Json) -> set[str]:
        """Return the ids of the calls that a message has results for; `#` for calls without one."""

    def calls_without_id(self, message: Json) -> list[ParsedCall]:
        """Return the calls of an answer's message that the provider gave no id."""
        return []

    # --- SDKs and batch files ---------------------------------------------------------------------

    method: ClassVar[str] = ""
    """The dotted path of the SDK's method for requests, such as `messages.create`; `""`: none."""
    batch_request: ClassVar[str] = ""
    """The field of a line of a batch API's file that holds the request; `""`: it has no batches."""
    batch_answer: ClassVar[tuple[str, ...]] = ()
    """The path of the answer in a line of a batch API's results."""

    def is_client(self, client: Any, request: Mapping[str, Any]) -> bool:
        """Whether an SDK's client sends this request in this format."""
        return False

    def sdk_method(self, request: Mapping[str, Any], answer: object = None) -> str:
        """Return the path of the SDK's method for a request; `answer`: what it has returned."""
        return self.method

    def sdk_arguments(self, client: Any, request: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of the SDK's method; `request`: its keywords, or its JSON."""
        return request

    def joined_message(self, chunks: Sequence[Any]) -> Any:
        """Return a streamed message, which an SDK's chat has as an object per chunk, as one."""
        return chunks[-1]

    def is_batch_line(self, line: Json, request: Json) -> bool:
        """Whether a line of a file holds a request of this format, judged by its form."""
        return bool(self.batch_request) and self.batch_request in line and self.messages in request

    # --- gateways and telemetry -------------------------------------------------------------------

    upstream: ClassVar[str] = ""
    """The name that the gateway's configuration has for providers of this format; `""`: none."""
    server: ClassVar[str] = ""
    """The URL of the format's own provider."""
    server_path: ClassVar[str] = ""
    """The path that the SDK's base URL has beyond that."""
    key_header: ClassVar[bytes] = b"authorization"
    """The header that carries the caller's API key."""
    key_prefix: ClassVar[bytes] = b""
    """What stands before the key in that header."""
    telemetry: ClassVar[str] = ""
    """OpenTelemetry's name of the provider; `""`: the dialect's own name."""

    def error(self, status: int, message: str) -> Json:
        """Return the body of an error answer, from which the SDKs make their own exception."""
        return plain_error(status, message)

    def error_event(self, error: Json) -> bytes:
        """Return such a body as an event in mid-stream, at which the SDKs raise."""
        return b"event: error\ndata: %b\n\n" % dumps(error)


WORD = rb'"(?:\s|\\[nrt])*+(?:[^"\\\s]|\\[^nrt])'
"""Matches the beginning of a JSON string up to its first character that is not blank."""
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
    """Return a message without the fields that say nothing."""
    return {key: value for key, value in message.items() if value not in _EMPTY}


# --- answers --------------------------------------------------------------------------------------


class Reader(Protocol):
    """Reads one attempt's stream as block events."""

    def events(self, frame: Frame) -> Sequence[Json]:
        """Return one server-sent event, which is not empty, as block events; raises nothing."""
        ...

    def deltas(self, raw: bytes, index: object, *, text: bool) -> Iterator[tuple[Json, int]]:
        """Yield the first events in `raw` while each is surely a delta of one block, and no more.

        With each delta comes its end in `raw`; anything may follow. `text`: text deltas only.
        """
        return iter(())

    def joined(
        self, raw: bytes, index: object, chunks: Sequence[bytes] = ()
    ) -> tuple[Json, int] | None:
        """Return many such deltas joined to one, and its end in `raw`; `None`: read one by one.

        `chunks`: the pieces in which the bytes came, if known.
        """
        return None

    def eof(self) -> Sequence[Json]:
        """Return the events that follow from the proper end of the bytes alone."""
        return ()


class PlainReader(Reader):
    """A reader that recognizes text events by comparing them to one that it has parsed."""

    _plain: PlainEvents

    def deltas(self, raw: bytes, index: object, *, text: bool) -> Iterator[tuple[Json, int]]:
        return self._plain.deltas(raw, index, text=text)

    def joined(
        self, raw: bytes, index: object, chunks: Sequence[bytes] = ()
    ) -> tuple[Json, int] | None:
        return self._plain.joined(raw, index, chunks)


class FastPath(Protocol):
    """Looks at the first attempt's bytes without parsing them. In doubt it returns `False`.

    The methods here always do: they are right for a format without a fast path.
    """

    blank: bytes = b"\n\n"
    """The bytes that end an event as this format's servers write it."""

    def flows(self, chunk: bytes) -> bool:
        """Whether a chunk is nothing but whole events of visible text."""
        return False

    def skips(self, raw: bytearray, start: int, end: int, *, flowing: bool) -> bool:
        """Whether the whole events in `raw[start:end]` need not be read.

        `flowing`: text is being shown, and all events must be text. Otherwise all are held, and
        none may end a block or the answer.
        """
        return False


class Writer(Protocol):
    """Writes one answer for the caller, as events or as a body; indices count its blocks.

    Methods that not every format needs have a default here, for writers that derive from this.
    """

    def open(self, message: Json) -> bytes:
        """Return the beginning of a stream; `message`: the reader's values for the whole answer."""
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
        """Return an event that is not a block event, such as a ping, to be passed on."""
        return b""

    def resume(self, message: Json, blocks: Sequence[Block], shown: int) -> None:
        """Continue the provider's stream: the caller has `shown` events of it, with `blocks`."""
        return

    def closing(self, blocks: Sequence[Block], delta: Json) -> bytes:
        """Return the bytes that would end an open block and the answer here; changes nothing."""
        return self.end(blocks, delta, {})

    def end(self, blocks: Sequence[Block], delta: Json, usage: Json) -> bytes:
        """Return the terminal events; `delta` has the stop reason in the provider's words."""
        ...

    def body(self, message: Json, blocks: Sequence[Block], delta: Json, usage: Json) -> Json:
        """Return the whole answer as one JSON body."""
        ...


class _NoFastPath(FastPath): ...


class WireCodec(ABC):
    """One wire format's answers, for one request.

    A format has to define how its answers are read and written, and its stop reasons. The other
    methods make an answer that is not cut cheap, or are for what only some formats have; their
    defaults are right for a format that does not define them.
    """

    ended: str
    """The stop reason of a synthetic STOP."""
    called: str
    """The stop reason of a synthetic STOP if the answer has calls."""
    truncated: str
    """The provider's stop reason for "output limit"."""
    stops: Mapping[str, Stop]
    """The provider's stop reasons -> what they mean. `ended` and `called` may be left out. An
    unknown reason means `Stop.OTHER`."""
    speech: re.Pattern[bytes] | None = None
    """Matches in a JSON answer that has visible text; it need not match in each. `None`: each
    answer that ended normally is parsed."""
    silent: frozenset[str] = THINKING
    """Types of blocks that show the user nothing."""
    sends_back: bool = False
    """A paused answer is continued by sending its content back, without a token."""
    lasting: tuple[str, ...] = ()
    """Fields at an answer's end that hold for the whole turn."""
    delta: bytes = b""
    """The beginning of a delta's JSON, in a format that comes as AWS event streams too."""
    last: bytes = b""
    """Bytes after the last event of a stream; `b""`: none."""
    kinds: frozenset[str] = frozenset({TEXT, TOOL_CALL}) | THINKING
    """Types of blocks with which an answer can be continued."""
    served: frozenset[str] = frozenset()
    """Types of items that the provider runs itself. The same request runs them again, but the
    caller is shown each once."""
    live: frozenset[str] = frozenset()
    """The types in `served` that report their progress: they are shown as they come, like text."""

    # --- what every format defines ---------------------------------------------------------------

    @abstractmethod
    def reader(self) -> Reader: ...

    @abstractmethod
    def writer(self) -> Writer: ...

    @abstractmethod
    def to_events(self, body: Json) -> Iterable[Json]:
        """Return a JSON body as the block events of the same answer streamed."""

    @abstractmethod
    def read_usage(self, usage: Json) -> Usage | None:
        """Return the provider's counts in the engine's words; `None` when it gave none."""

    @abstractmethod
    def write_usage(self, native: Json, usage: Usage | None) -> Json:
        """Return the provider's usage object with our counts; other fields stay as they came."""

    def add_usage(self, native: Json, later: Json) -> Json:
        """Return a turn's usage object with a later attempt's added, except for our counts."""
        return native or dict(later)

    @abstractmethod
    def wire(self, block: Block) -> Json:
        """Return a block as one JSON value, as a later request may carry it."""

    # --- what a format may define ----------------------------------------------------------------

    def stop_of(self, reason: str | None, *, closed: bool) -> Stop:
        """Return what a stop reason means, in capitals or not.

        `closed`: the answer's terminal event came; then an answer without a reason ended normally.
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
        """Return why an answer ended that was read into `segment`."""
        return self.stop_of(segment.reason, closed=segment.stopped)

    def note(self, delta: Json) -> str:
        """Return what the provider wrote about an answer's end, from its last event's `delta`."""
        return ""

    def speaks(self, body: bytes | bytearray) -> bool:
        """Whether a JSON answer surely has more than thinking, without parsing it."""
        return self.speech is not None and self.speech.search(body) is not None

    def identity(self, message: Json) -> str:
        """Return the answer's own id, from its opening; `""`: it has none."""
        return as_text(message.get("id"))

    def carries(self, block: Block, blocks: Sequence[Block]) -> bool:
        """Whether a later request may carry this block; `blocks`: all of its attempt."""
        return self.knows(block.kind)

    def knows(self, kind: str) -> bool:
        """Whether an answer with a block of this type can be continued."""
        return kind in self.kinds

    def arguments(self, call: Block) -> str:
        """Return the argument text of a call that was not truncated; `""`: it has none."""
        return call.arguments

    def arrived(self, call: Block) -> str | None:
        """Return the argument text of a cut call up to the cut; `None`: it is unknown."""
        return call.arguments if call.free or not call.may_be_parsed else None

    def rest_of(self, call: Block, arrived: str, arguments: str) -> list[Json]:
        """Return the deltas that a call lacks whose `arguments` have come as far as `arrived`."""
        return [{"type": "input_json_delta", "partial_json": arguments[len(arrived) :]}]

    def goes_on(self, call: Block, text: str) -> list[Json]:
        """Return the deltas that add `text` to the string a call broke off in; `[]`: hold it."""
        written = text if call.free else dumps(text).decode()[1:-1]
        return [{"type": "input_json_delta", "partial_json": written}]

    def fast_path(self) -> FastPath:
        """Return the format's fast path for the first attempt."""
        return _NoFastPath()

    def quick_body(self, body: bytes | bytearray) -> AttemptResult | None:
        """Return how a JSON answer ended, without parsing it; `None`: it has to be parsed."""
        return None

    def quick_result(self, body: bytes | bytearray, reason: str | None) -> AttemptResult:
        """Return how a JSON answer with this one stop reason ended; its text is not read."""
        return AttemptResult(
            stop=self.stop_of(reason, closed=True),
            raw=reason,
            id=first_text(body, "id"),
            usage=self.read_usage(last_object(body, "usage")),
            text=True,
        )

    def quick_calls(self, raw: bytearray, sketch: Segment) -> ToolCallState:
        """Return how the calls of an ended stream look; `CUT`: it has to be read in full."""
        return ToolCallState.CUT if sketch.calls else ToolCallState.NONE
