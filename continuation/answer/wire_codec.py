"""What a wire format adds to `Answer`: how its bytes are told as block events, and written."""

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
        """Read one server-sent event, which is not empty; raises nothing."""
        ...

    def deltas(self, raw: bytes, index: object, *, text: bool) -> Iterator[tuple[Json, int]]:
        """Tell the first events in `raw`, while they are known to be deltas of one block, no more.

        With each comes where it ends; behind the last may be anything. `text`: of text alone.
        """
        return iter(())

    def joined(
        self, raw: bytes, index: object, chunks: Sequence[bytes] = ()
    ) -> tuple[Json, int] | None:
        """Tell them as one delta, where they are many; `None`: they are to be told one by one.

        With it comes where the last of them ends. `chunks`: the bytes as they were cut, if known.
        """
        return None

    def eof(self) -> Sequence[Json]:
        """The bytes ended where they should: return what that alone says."""
        return ()


class PlainReader(Reader):
    """A reader that knows events of text again by one of them that it has parsed."""

    _plain: PlainEvents

    def deltas(self, raw: bytes, index: object, *, text: bool) -> Iterator[tuple[Json, int]]:
        return self._plain.deltas(raw, index, text=text)

    def joined(
        self, raw: bytes, index: object, chunks: Sequence[bytes] = ()
    ) -> tuple[Json, int] | None:
        return self._plain.joined(raw, index, chunks)


class FastPath(Protocol):
    """Looks at the first attempt's bytes without parsing them; doubt is `False`, and costs time.

    What stands here doubts everything: it is the fast path of a format that has none.
    """

    blank: bytes = b"\n\n"
    """What ends an event as this format's servers write it."""

    def flows(self, chunk: bytes) -> bool:
        """Whether a chunk is nothing but whole events of visible text."""
        return False

    def skips(self, raw: bytearray, start: int, end: int, *, flowing: bool) -> bool:
        """Whether the whole events in `raw[start:end]` need no look.

        `flowing`: text flows, and all of them must be text. Otherwise all is held back, and only
        what ends a block or the answer matters.
        """
        return False


class Writer(Protocol):
    """Writes one answer for the caller, as events or as a body; indices count its blocks.

    What is not needed in every format has a body here, for a writer that derives from this.
    """

    def open(self, message: Json) -> bytes:
        """Begin a stream; `message` is what the reader said of the answer as a whole."""
        return b""

    def start(self, index: int, block: Block) -> bytes:
        """Begin a block."""
        return b""

    def delta(self, index: int, block: Block, delta: Json) -> bytes:
        """Go on in a block."""
        ...

    def stop(self, index: int, block: Block) -> bytes:
        """End a block."""
        return b""

    def other(self, event: Json) -> bytes:
        """Pass on an event that is none of ours."""
        return b""

    def resume(self, message: Json, blocks: Sequence[Block], shown: int) -> None:
        """From here on events are ours: the caller has had `shown` events, which made `blocks`."""
        return

    def closing(self, blocks: Sequence[Block], delta: Json) -> bytes:
        """Return what would end the answer here, an open block first; changes nothing."""
        return self.end(blocks, delta, {})

    def end(self, blocks: Sequence[Block], delta: Json, usage: Json) -> bytes:
        """Write the terminal events; `delta` has the stop reason in the provider's words."""
        ...

    def body(self, message: Json, blocks: Sequence[Block], delta: Json, usage: Json) -> Json:
        """Return the whole answer as one JSON body."""
        ...


class _NoFastPath(FastPath): ...


class WireCodec(ABC):
    """One wire format's answers, for one request.

    A format has to say how its answers are read and written, and in which words they end. The
    other methods make an answer that is not cut cheap, or are there for what only some formats
    have; what stands here is right for a format that says nothing of them.
    """

    ended: str
    """The stop reason of a synthetic STOP..."""
    called: str
    """...and that of one whose answer holds calls."""
    truncated: str
    """The provider's word for "output limit"."""
    stops: Mapping[str, Stop]
    """The provider's stop reasons that are no ordinary end."""
    lasting: tuple[str, ...] = ()
    """What an answer's end carries that holds for the whole turn."""
    delta: bytes = b""
    """How the JSON of a delta begins, in a format that comes as AWS event streams too."""
    last: bytes = b""
    """What stands behind the last event of a stream, if anything does."""
    kinds: frozenset[str] = frozenset({TEXT, TOOL_CALL}) | THINKING
    """Types of blocks that an answer can be gone on from."""
    served: frozenset[str] = frozenset()
    """Types of items that the provider runs and that stand for themselves: asked again it runs
    them again, and the caller is told of them once..."""
    live: frozenset[str] = frozenset()
    """...and those of them that tell how they go on: they flow like text."""

    # --- what every format says ------------------------------------------------------------------

    @abstractmethod
    def reader(self) -> Reader: ...

    @abstractmethod
    def writer(self) -> Writer: ...

    @abstractmethod
    def to_events(self, body: Json) -> Iterable[Json]:
        """Tell a JSON body as the events it would have been streamed as."""

    @abstractmethod
    def read_usage(self, usage: Json) -> Usage | None:
        """Return the provider's counts in the engine's words; `None` when it gave none."""

    @abstractmethod
    def write_usage(self, native: Json, usage: Usage | None) -> Json:
        """Return the provider's usage object with our counts; other fields stay as they came."""

    def add_usage(self, native: Json, later: Json) -> Json:
        """Return the usage object of a turn that a later attempt adds to, but for our counts."""
        return native or dict(later)

    @abstractmethod
    def wire(self, block: Block) -> Json:
        """Return a block as one JSON value, as a later request may carry it."""

    # --- what a format may say -------------------------------------------------------------------

    def stop_of(self, reason: str | None, *, closed: bool) -> Stop:
        """Read a stop reason; an unknown one is an ordinary end.

        `closed`: the answer's terminal event came, so that no reason means that it just ended.
        """
        if reason is None:
            return Stop.END if closed else Stop.DROPPED
        return self.stops.get(reason, Stop.END)

    def identity(self, message: Json) -> str:
        """Return the answer's own id, of what its opening said; `""`: it has none."""
        return as_text(message.get("id"))

    def carries(self, block: Block, blocks: Sequence[Block]) -> bool:
        """Whether a later request may carry this block, of those of its attempt."""
        return self.knows(block.kind)

    def knows(self, kind: str) -> bool:
        """Whether an answer with a block of this type can be gone on from."""
        return kind in self.kinds

    def arrived(self, call: Block) -> str | None:
        """Return the argument text of a cut call up to the cut; `None`: it cannot be known."""
        return call.arguments if call.free or call.args_verified else None

    def rest_of(self, call: Block, arrived: str, arguments: str) -> list[Json]:
        """Return the deltas that make a call whole of which `arrived` is there."""
        return [{"type": "input_json_delta", "partial_json": arguments[len(arrived) :]}]

    def goes_on(self, call: Block, text: str) -> list[Json]:
        """Return the deltas by which the text that a call broke off in goes on; none: it waits."""
        written = text if call.free else dumps(text).decode()[1:-1]
        return [{"type": "input_json_delta", "partial_json": written}]

    def fast_path(self) -> FastPath:
        """Return what looks at the first attempt without parsing it."""
        return _NoFastPath()

    def quick_body(self, body: bytes | bytearray) -> AttemptResult | None:
        """Read how a JSON answer ended without parsing it; `None` when that needs a full look."""
        return None

    def quick_result(self, body: bytes | bytearray, reason: str | None) -> AttemptResult:
        """Return how a JSON answer ended that said only one reason; its text was not looked at."""
        return AttemptResult(
            stop=self.stop_of(reason, closed=True),
            raw=reason,
            id=first_text(body, "id"),
            usage=self.read_usage(last_object(body, "usage")),
            text=True,
        )

    def quick_calls(self, raw: bytearray, sketch: Segment) -> ToolCallState:
        """Look at the calls of a stream that has ended; `CUT` asks for a full look."""
        return ToolCallState.CUT if sketch.calls else ToolCallState.NONE
