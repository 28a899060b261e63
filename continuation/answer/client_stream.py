"""The caller's side of a turn: blocks with dense indices, written as its format has them."""

from __future__ import annotations

from continuation.answer.blocks import TEXT, THINKING, Block
from continuation.answer.wire_codec import Writer
from continuation.types import Json, ReplayBuffer


class ClientStream:
    """Keeps the blocks that the caller gets, and has them written when there is a stream."""

    def __init__(self, writer: Writer, *, streamed: bool) -> None:
        self.streamed = streamed
        self.message: Json = {}
        self.blocks: list[Block] = []
        self.muted = False
        self.closing_delta: Json = {}
        self.replay: ReplayBuffer | None = None
        self._writer = writer
        self._out: list[bytes] = []

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        out, self._out = b"".join(self._out), []
        return out

    @property
    def _writing(self) -> bool:
        return self.streamed and not self.muted

    def pass_on(self, event: Json) -> None:
        """Pass an event on as it is."""
        if self._writing:
            self._out.append(self._writer.other(event))

    def comment(self) -> None:
        """Keep the caller's connection alive, as the provider keeps ours.

        By a blank line, which every reader skips; a comment is no event to google-genai but JSON.
        """
        if self._writing:
            self._out.append(b"\n")

    def begin(self, message: Json) -> None:
        """Open the message; only the first opening is the caller's."""
        if not self.message:
            self.message.update(message)  # in place: so it is open for the sinks begun anew as well
            if self._writing:
                self._out.append(self._writer.open(message))

    @property
    def open(self) -> Block | None:
        """The block that has begun and not ended."""
        return self.blocks[-1] if self.blocks and not self.blocks[-1].done else None

    @property
    def open_text(self) -> Block | None:
        """The text that more text can go on in."""
        block = self.open
        return block if block is not None and block.kind == TEXT and not block.sealed else None

    @property
    def tail(self) -> str:
        """The text that a later attempt goes on from: the last, and text right before it."""
        said, phase = list[str](), None
        for block in reversed(self.blocks):
            if block.kind in THINKING:
                continue  # nobody was told it: the text before it is what was said last
            if block.kind == TEXT:
                phase = block.phase if phase is None else phase
                if block.phase != phase:
                    break
                said.append(block.text)
            elif not block.sealed:
                break
        return "".join(reversed(said))

    def start(self, like: Block) -> None:
        """Begin a block like another one, without its deltas."""
        self.stop()
        block = Block(dict(like.start), loose=like.loose, free=like.free, sealed=like.sealed)
        self.blocks.append(block)
        if self._writing:
            self._out.append(self._writer.start(len(self.blocks) - 1, block))
        self._mark()

    def delta(self, delta: Json) -> None:
        block = self.blocks[-1]
        block.deltas.append(delta)
        if self._writing:
            self._out.append(self._writer.delta(len(self.blocks) - 1, block, delta))

    def text(self, piece: str, like: Block | None = None) -> None:
        """Go on in the open text, or begin one like another."""
        if not piece:
            return
        if self.open_text is None:
            self.start(Block({**(like.start if like else {}), "type": TEXT, "text": ""}))
        self.delta({"type": "text_delta", "text": piece})

    def stop(self) -> None:
        block = self.open
        if block is None:
            return
        if self._writing:
            self._out.append(self._writer.stop(len(self.blocks) - 1, block))
        block.done = True
        self._mark()

    def take_back(self, characters: int) -> None:
        """Remove the end of the open text; only where nothing was streamed."""
        if characters and self.open_text is not None and not self.streamed:
            text = self.open_text.text
            merge_deltas(self.open_text, text[: len(text) - characters])

    def end(self, delta: Json, usage: Json) -> bytes:
        """Close the message: the terminal events, or the whole body."""
        self.stop()
        if not self.streamed:
            return self._writer.body(self.message, self.blocks, delta, usage)
        self._out.append(self._writer.end(self.blocks, delta, usage))
        return self.take()

    def _mark(self) -> None:
        """Keep on the tape how the message would be closed here, should our own code fail."""
        if self.replay is None or not self._writing:
            return
        self.replay.closing = self._writer.closing(self.blocks, self.closing_delta)

    def unmute(self, delta: Json, shown: int) -> None:
        """From here on events are written; `delta` is how the message would end now.

        `shown`: how many of the provider's events the caller has had.
        """
        self.muted = False
        self.closing_delta = delta
        self._writer.resume(self.message, self.blocks, shown)
        self._mark()

    def anew(self) -> ClientStream:
        """Return one that stands where this one stood before its first block.

        The two share the writer, which counts what the caller has had: only one goes on to write
        blocks.
        """
        other = ClientStream(self._writer, streamed=self.streamed)
        other.message, other.closing_delta, other.replay = (
            self.message,
            self.closing_delta,
            self.replay,
        )
        return other


def text_of(sink: ClientStream) -> str:
    """Return all visible text that has passed a sink."""
    return "".join(block.text for block in sink.blocks if block.kind == TEXT)


def merge_deltas(block: Block, text: str) -> None:
    """Make `text` the text of a block, in one piece."""
    block.start["text"] = ""
    others = [delta for delta in block.deltas if delta.get("type") != "text_delta"]
    block.retell([{"type": "text_delta", "text": text}, *others])
