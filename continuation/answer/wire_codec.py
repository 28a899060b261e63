"""What a wire format adds to `MessageBuilder`: reading bytes as block events, and writing them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from continuation.answer.blocks import TEXT, THINKING, TOOL_CALL, Block, Segment
from continuation.types import AttemptResult, Json, Stop, ToolCallState, Usage
from continuation.wire.json_values import as_text, dumps, first_text, last_object
from continuation.wire.sse import Frame
from continuation.wire.text_template import PlainEvents


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
    """The provider's stop reasons other than for an ordinary end -> what they mean."""
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
        """Return what a stop reason means, in capitals or not; an unknown one is an ordinary end.

        `closed`: the answer's terminal event came; then an answer without a reason ended normally.
        """
        if reason is None:
            return Stop.END if closed else Stop.DROPPED
        return self.stops.get(reason) or self.stops.get(reason.lower(), Stop.END)

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
