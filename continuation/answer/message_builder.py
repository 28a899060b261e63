"""Builds the caller's answer: attempts go in event by event, one answer comes out.

A `MessageBuilder` knows the current attempt, makes others read its bytes, and returns its result.
During the first attempt, a `FirstStream` delivers the bytes as they arrive. If that answer needs
more than its own bytes, an `AttemptReader` reads them again into a `Segment`. It also reads each
later attempt. In both cases a small `Gate` decides what may be delivered, and the `ClientStream`
owns what was delivered. The codec translates bytes to events and back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from continuation.answer.attempt_reader import AttemptReader
from continuation.answer.client_stream import ClientStream
from continuation.answer.first_stream import FirstFramed, FirstStream
from continuation.answer.gate import Gate
from continuation.policy import Policy
from continuation.providers.contract import Feed, Shape, WireCodec
from continuation.seams.repetition import runaway
from continuation.seams.seam import Verdict
from continuation.seams.text import says_the_same
from continuation.types import (
    AttemptResult,
    Head,
    JoinPlan,
    Json,
    Mode,
    ReplayBuffer,
    Stop,
    StopWord,
    StreamError,
    Usage,
)
from continuation.wire import eventstream
from continuation.wire.blocks import REFUSAL, TEXT, THINKING, TOOL_CALL, Block, Segment, calls_in
from continuation.wire.errors import word
from continuation.wire.json_values import as_json, as_text, dumps, loads

if TYPE_CHECKING:
    from continuation.answer.call_completion import CallCompletion


_BROKE_OFF = frozenset({Stop.LENGTH, Stop.DROPPED, Stop.REPETITION})


class MessageBuilder:
    """One model turn, built from one attempt after another."""

    def __init__(self, codec: WireCodec, policy: Policy) -> None:
        self._codec = codec
        self._policy = policy
        self._replay = ReplayBuffer()
        self._first: FirstStream | None = None
        """The first attempt while it streams; `None`: it is a body, or it has ended."""
        self._plan = JoinPlan(Mode.FIRST)
        # The next objects are for an answer that is a body. `end` replaces them for a stream.
        self._client = ClientStream(
            codec.writer(), self._replay, streamed=False, served=codec.served
        )
        self._segment = Segment()
        self._attempt = AttemptReader(codec.reader(), self._segment, Gate(policy), self._client)
        self.allows: Callable[[str], float] | None = None
        """Returns how many copies of a repeated text the request asks for; `None`: a repetition
        does not end an attempt."""
        self._length_before = 0
        """Characters of visible text that the turn had before the current attempt."""
        self._usage: Json = {}
        self._token: str | None = None
        """The continuation token in the current attempt's request, if any."""
        self._held_events: list[Json] = []
        """Buffered pings and unknown events of the first attempt."""
        self.lasting: Json = {}
        """Fields from the attempts' ends that apply to the complete turn."""
        self.stop: str | None = None
        """The delivered stop reason; `None` until the turn is finished."""
        self.pairs: list[tuple[list[Json], str | None]] = []
        """What a recovery sends: each attempt's content, and the prompt that requested it."""

    # --- reading ---------------------------------------------------------------------------

    def first(self, head: Head, replay: ReplayBuffer) -> Feed:
        """Return the feed for the first attempt. The shell adds its bytes to `replay`."""
        self._replay = replay
        if not head.streamed:
            return lambda chunk: b""  # a JSON body is buffered until it is complete
        replay.last = self._codec.last
        kind = FirstFramed if head.framed else FirstStream
        self._first = kind(
            self._codec, replay, Gate(self._policy, self._codec.live, allows=self.allows)
        )
        return self._first.feed

    def gather(self, head: Head) -> Feed:
        """Return the feed for the first attempt if a stream must become a body."""
        return self.begin(JoinPlan(Mode.REPLACE), head)

    def gathered(self) -> bytes:
        """Return the first attempt's stream as a body, with unchanged content."""
        segment = self._segment
        writer = self._codec.writer()
        return dumps(writer.body(segment.message, segment.blocks, segment.delta, segment.usage))

    def begin(self, plan: JoinPlan, head: Head) -> Feed:
        """Return the feed for a later attempt."""
        self._plan = plan
        if plan.mode is not Mode.REPLACE:  # a replacement has its own pings
            self._pass_on_held()
        if plan.mode is Mode.RECOVERY:
            self._client.leave()
        self._join(unary=not head.streamed)
        self._length_before = len(self._client.text)
        if head.framed:
            feed, unframed = self._attempt.feed, eventstream.Unframed()
            return lambda chunk: feed(unframed(chunk))
        return self._attempt.feed if head.streamed else self._attempt.collect

    def _pass_on_held(self) -> None:
        held, self._held_events = self._held_events, []
        for event in held:
            self._client.pass_on(event)

    def _join(self, *, unary: bool) -> None:
        """Begin another response of the provider, joined to the caller's answer so far."""
        client, mode, gate = self._client, self._plan.mode, self._attempt.gate
        if mode is Mode.NATIVE_CONTINUATION:  # the response continues the same answer
            self._token = self._segment.token
            self._segment.reopen(apart=self._codec.sends_back)
            self._segment.unary = unary
        else:
            self._token = None
            self._segment = Segment(unary=unary)
        client.join(self._segment, self._plan)
        if mode is not Mode.NATIVE_CONTINUATION:
            held = bool(client.joined.live_calls)
            live = self._codec.live
            gate = Gate(
                self._policy,
                live,
                hold_calls=held,
                streamed=client.streamed,
                allows=self.allows,
            )
        self._attempt = AttemptReader(self._codec.reader(), self._segment, gate, client)

    def prepare_recovery(self) -> None:
        """Settle the end of the text so far, because the next request asks to continue it."""
        if not self._client.joined.waits:  # else buffered text may still be delivered
            self._client.leave()

    def revert(self) -> None:
        """Drop the last attempt. What the one before has buffered may still be delivered."""
        self._client.revert()
        self._segment = self._client.joined.segment

    # --- the end of an attempt ---------------------------------------------------------------

    def take(self) -> bytes:
        """Return the bytes that are ready for delivery after the end of an attempt."""
        return self._client.take()

    def result_by_labels(self, error: BaseException | None = None) -> AttemptResult | None:
        """Return how the first attempt ended; `None`: its labels are not enough."""
        if self._first is not None:
            return self._first.result_by_labels()
        raw = self._replay.raw
        # Despite a normal stop reason, a body may be empty or torn. Then it has to be read.
        if error is not None or not self._codec.speaks(raw) or not _looks_whole(raw):
            return None
        return self._codec.quick_body(raw)

    def end(self, error: BaseException | None = None) -> AttemptResult:
        """Read the end of the attempt's bytes; return its result. `error`: why they broke off."""
        first, self._first = self._first, None
        passed_on = list[Json]()
        if self._plan.mode is Mode.FIRST:
            if first is not None:
                self._client = ClientStream(
                    self._codec.writer(),
                    self._replay,
                    streamed=True,
                    muted=True,
                    framed=first.framed,
                    served=self._codec.served,
                )
            self._join(unary=first is None)
            if first is not None:
                passed_on = self._read_again(first, error)
            elif (broken := self._broken_body(error)) is not None:
                return broken
        elif not self._segment.unary:
            self._attempt.finish(ended=error is None)
        else:
            try:
                self._read_body(self._attempt.buffer)
            except ValueError:  # half a body, equal to a drop; or a stream with another type
                self._attempt.finish(ended=error is None)
        client, stop = self._client, self._without_copies(self._ending)
        # A complete first answer may still be delivered unchanged.
        whole = self._plan.mode is Mode.FIRST and stop not in _BROKE_OFF
        self._held_events = [] if whole else passed_on
        if (client.joined.adds or client.blocks) and not whole:
            client.flush_held()
        # If the seam has not decided yet, its text stays buffered: half an anchor is not text.
        # After a drop, the next attempt repeats it. After a pause, the next hop continues it.
        if not (stop in {Stop.DROPPED, Stop.PAUSED} and client.joined.waits):
            client.finish_text(ended=stop.is_end, refused=stop is Stop.REFUSED)
            client.place_annotations()
            self._remember()
        return self._result(stop, error)

    def _without_copies(self, stop: Stop) -> Stop:
        """Remove the copies with which the text runs away; return how the attempt ended then."""
        blocks = self._segment.blocks
        last = blocks[-1] if blocks else None
        if self.allows is None or last is None or last.kind != TEXT or last.closed:
            return stop
        if stop not in _BROKE_OFF:
            return stop
        length = runaway(last.text, self.allows, last.shown_characters)
        if length is None:
            return stop
        self._segment.removed = last.cut_text(length)
        return Stop.REPETITION

    def _broken_body(self, error: BaseException | None) -> AttemptResult | None:
        """Read the first attempt as a body; return its result if it cannot be read."""
        if error is not None:
            return AttemptResult(stop=Stop.DROPPED, opened=False, error=error)
        try:
            self._read_body(self._replay.raw)
        except ValueError:
            if self._replay.raw.lstrip().startswith(b"{"):  # a proxy stopped in the middle
                return AttemptResult(stop=Stop.DROPPED, closed=False)
            return AttemptResult(stop=Stop.END, opened=False)  # passed on unchanged
        return None

    def _read_again(self, first: FirstStream, error: BaseException | None) -> list[Json]:
        """Read all of the first attempt. Some of its bytes were delivered already.

        Return the buffered events that are only passed on.
        """
        replay, segment = self._replay, self._segment
        frames = first.frames(replay.raw, final=True)
        events, passed_on = self._attempt.read_again(frames, replay.sent, ended=error is None)
        if not (events or segment.blocks or segment.reason):
            self._client.message.clear()  # only an opening arrived: deliver that of a later attempt
        self._client.unmute({**segment.delta, "stop_reason": segment.reason}, events)
        return passed_on

    def _read_body(self, raw: bytes | bytearray) -> None:
        self._attempt.see(self._codec.to_events(as_json(loads(raw))))

    def _result(self, stop: Stop, error: BaseException | None) -> AttemptResult:
        segment, client, mode = self._segment, self._client, self._plan.mode
        text, calls = client.text, segment.calls
        opened = segment.events > 0
        counted = segment.reason is not None and bool(segment.usage)
        unknown, unseen = None, 0
        for block in segment.blocks:
            if unknown is None and not self._codec.knows(block.kind):
                unknown = f"a block of unknown type {block.kind!r}"
            if block.kind == TEXT and not block.begun:
                unseen += len(block.text)
        # Whether the token is new: not the one in the attempt's request.
        hops = segment.token not in {None, self._token}
        progress = len(text) > self._length_before or bool(calls) or hops
        if mode in {Mode.FIRST, Mode.REPLACE}:
            progress = True
        elif stop.is_end and mode is Mode.NATIVE_CONTINUATION:
            progress = True  # its end is the answer's end, even without new text
        elif stop.is_end and mode is Mode.APPEND_TAIL:  # if it caught up, it is complete
            progress = progress or not (client.joined.behind or self.half_call)
        anchor = (self._plan.anchor or "").rstrip()
        seam, again = client.joined.seam, False
        if mode is Mode.RECOVERY and stop is Stop.LENGTH:
            again = seam is not None and seam.restarted
            again = again or says_the_same(text, self._length_before)
        own_pause = stop is Stop.PAUSED and mode is Mode.FIRST
        if error is None and segment.error is not None:
            kind = word(segment.error.get("type")) or "error event"
            error = StreamError(kind, lasting=segment.error.get("lasting") is True)
        return AttemptResult(
            stop=stop,
            raw=segment.reason,
            id=self._codec.identity(segment.message),
            text=bool(text.strip() or client.held),
            empty=segment.reason is not None
            and not (text.strip() or any(map(self._speaks, segment.blocks))),
            call=segment.call_state(ended=stop.is_end or own_pause),
            shown=client.streamed and bool(client.blocks),
            opened=opened,
            closed=segment.stopped,
            made_progress=progress,
            stalled=again,
            not_resumable=unknown,
            # After a drop the same token may be used again.
            token=hops
            or (stop is Stop.DROPPED and segment.token is not None)
            or (stop is Stop.PAUSED and self._codec.sends_back),
            length=len(text) + unseen,
            usage=self._codec.read_usage(segment.usage),
            unmetered_text=segment.generated if opened and not counted else None,
            error=error,
            repeated=bool(anchor) and not progress and segment.text.rstrip().endswith(anchor),
            args_verified=not calls or calls[-1].shows_cut or calls[-1].finished,
            only_call=len(calls) < 2,
        )

    def _speaks(self, block: Block) -> bool:
        """Whether a block has content for the user or their program."""
        if block.kind == TEXT:
            return bool(block.text.strip())
        return block.kind not in self._codec.silent

    @property
    def _ending(self) -> Stop:
        stop = self._codec.ending(self._segment)
        if stop is Stop.END and self._plan.mode is Mode.RECOVERY:
            # Chat and Responses put a refusal in a separate field, with a normal stop reason.
            refused = any(block.kind == REFUSAL for block in self._segment.blocks)
            return Stop.REFUSED if refused else stop
        return stop

    # --- what a later request replays ---------------------------------------------------------

    def _remember(self) -> None:
        """Keep what later requests and the end of the turn need from the last attempt."""
        mode, prompt, delta = self._plan.mode, self._plan.prompt, self._segment.delta
        if mode is Mode.REPLACE:
            self._usage = {**self._usage, **self._segment.usage}
        else:
            self._usage = self._codec.add_usage(self._usage, self._segment.usage)
        for key in self._codec.lasting:
            if delta.get(key):
                self.lasting[key] = delta[key]
        own = mode in {Mode.FIRST, Mode.REPLACE} or (mode is Mode.RECOVERY and prompt is not None)
        blocks = self._carried
        if not own:
            blocks = [block for block in self._client.blocks if block.kind != TOOL_CALL]
        content = [self._codec.wire(block) for block in blocks]
        if mode is Mode.RECOVERY and own:
            self.pairs.append((content, prompt))
        else:
            self.pairs = [(content, None)]

    @property
    def _carried(self) -> list[Block]:
        """The attempt's blocks that a later request may contain.

        It must not contain blank text, unsigned or trailing thinking, calls without a result (which
        every provider refuses), and what the format cannot send back.
        """
        blocks, carries = self._segment.blocks, self._codec.carries
        kept = [b for b in blocks if b.kind != TOOL_CALL and b.fit and carries(b, blocks)]
        while kept and kept[-1].kind in THINKING:
            kept.pop()
        return kept

    @property
    def content(self) -> list[Json]:
        """The turn's content so far, as the content of one assistant message."""
        return [self._codec.wire(block) for block in self._client.blocks or self._carried]

    @property
    def unchanged(self) -> list[Json]:
        """The content of the last answer, with all of its blocks."""
        return [self._codec.wire(block) for block in self._segment.blocks]

    # --- the state of the answer -------------------------------------------------------------

    @property
    def text(self) -> str:
        """All visible text that was or will be delivered."""
        return self._client.text

    @property
    def holds(self) -> bool:
        """Whether a part of the current attempt has arrived but is not delivered yet."""
        if self._plan.mode is Mode.FIRST:
            return self._replay.sent < len(self._replay.raw)
        gate, repetition = self._attempt.gate, self._attempt.gate.repetition
        return (gate.blind and not gate.flowing) or (repetition is not None and repetition.holds)

    @property
    def open_text(self) -> str:
        """The visible text that a recovery would continue, including buffered text."""
        tail, held = self._client.tail, self._client.held
        if held is None or not (tail and held.begun):
            return tail + held.text if held is not None else tail
        pieces = [d for d in held.deltas[held.shown :] if d.get("type") == "text_delta"]
        return tail + "".join([as_text(delta.get("text")) for delta in pieces])

    @property
    def phases(self) -> list[str]:
        """What the attempt has generated so far, block by block; the last is still under way.

        Each is "text", "thinking" or "call"; "" is unknown, or nothing of the block came yet.
        """
        if self._first is not None:
            return self._first.phases
        return self._segment.phases

    @property
    def half_call(self) -> bool:
        """Whether a part of an incomplete call was delivered, by policy."""
        for call in calls_in(self._client.blocks) if self._client.streamed else ():
            if call.broken or not call.done:
                return True
        return False

    @property
    def cut_call(self) -> tuple[str, int]:
        """The name of the attempt's last call, and how many characters of arguments arrived."""
        call = self._segment.calls[-1]
        return as_text(call.start.get("name")), len(self._codec.arrived(call) or call.arguments)

    @property
    def calls(self) -> list[tuple[str, int]]:
        """The name of each complete call in the caller's answer, and its arguments' length."""
        calls = [call for call in calls_in(self._client.blocks) if not call.broken]
        return [
            (as_text(call.start.get("name")), len(self._codec.arrived(call) or call.arguments))
            for call in calls
        ]

    @property
    def token(self) -> str | None:
        """The continuation token of the last attempt; `None`: it has none."""
        return self._segment.token

    @property
    def note(self) -> str:
        """What the provider wrote about the end of the last attempt; `""`: nothing."""
        return self._codec.note(self._segment.delta)

    def broken(self, error: Json, shape: Shape) -> bytes:
        """Return the bytes that end the caller's stream with `error`, at which the SDK raises."""
        return shape.error_event(error)

    @property
    def framed(self) -> bool:
        """Whether the caller's stream has AWS's framing."""
        return self._client.framed

    def seams(self) -> list[tuple[int, Verdict]]:
        """Return the last attempt's seam, with the characters of text before it; `[]`: no seam."""
        seam = self._client.joined.seam
        return [(self._length_before, seam.verdict)] if seam is not None and seam.verdict else []

    def parses(self, schema: Json | None = None) -> bool:
        """Whether the visible text is complete JSON that `schema`, if given, accepts."""
        held = self._client.held
        try:
            document = loads(self.text + (held.text if held is not None else ""))
        except ValueError:
            return False
        if schema is None:
            return True
        from continuation.answer.call_completion import mistake

        return mistake(document, schema) is None

    # --- the end of the turn -----------------------------------------------------------------

    def fork(self) -> MessageBuilder:
        """Return a builder for an answer that begins again. This one does not change."""
        other: MessageBuilder = type(self)(self._codec, self._policy)
        other._replay, other._client, other._usage = self._replay, self._client.fork(), self._usage
        other.allows = self.allows
        return other

    # --- a call that is completed ------------------------------------------------------------

    def completion(self, begun: CallCompletion | None) -> CallCompletion:
        """Return the completion of the truncated call: `begun` if that is for the same call."""
        # Imported here, because few programs complete calls.
        from continuation.answer.call_completion import CallCompletion

        call = self._segment.calls[-1]
        same = begun is not None and begun.call is call
        return begun if begun is not None and same else CallCompletion(self, self._codec, call)

    def aside(self, text: str) -> MessageBuilder:
        """Return a separate builder for a text that begins with `text` and will be continued."""
        other: MessageBuilder = type(self)(self._codec, self._policy)
        other._client.begin_text(text)
        return other

    @property
    def before(self) -> str:
        """The visible text that the turn had before the last attempt."""
        return self._client.text[: self._length_before]

    @property
    def last_arguments(self) -> str | None:
        """The argument text of the last call in the last attempt; `None`: it has no call."""
        calls = self._segment.calls
        return self._codec.arguments(calls[-1]) if calls else None

    @property
    def attempt_text(self) -> str:
        """The visible text of the last attempt, before any seam."""
        return self._segment.text

    def show(self) -> bytes:
        """Deliver what was added to a live call; return the bytes."""
        self._client.show()
        return self._client.take()

    def called(self) -> AttemptResult:
        """End the attempt with its calls, because the last one is complete; return its result."""
        segment = self._segment
        segment.reason, segment.stopped = self._codec.called, True
        segment.delta = {"stop_reason": segment.reason}
        return self._result(Stop.END, None)

    def release(self, *, whole: bool, cut_call: str | None) -> None:
        """Deliver what is still buffered and fit. `whole`: the last attempt ended normally.

        `cut_call`: the policy `truncated_tool_call` for a truncated call; `None`: drop the call.
        """
        self._pass_on_held()
        stop = self._ending
        self._client.finish_text(ended=stop.is_end, refused=stop is Stop.REFUSED)
        self._client.release(cut_call, ended=whole)

    def finish(self, stop: StopWord, usage: Usage) -> bytes:
        """End the turn: return the remaining bytes with the terminal event, or the JSON body."""
        codec, delta = self._codec, {**self._segment.delta, **self.lasting}
        if stop is StopWord.ENDED:
            delta["stop_reason"] = codec.called if calls_in(self._client.blocks) else codec.ended
        elif stop in {StopWord.TRUNCATED, StopWord.RAISED}:
            delta["stop_reason"] = codec.truncated
        if delta.get("stop_reason") != self._segment.reason:
            delta.pop("stop_sequence", None)
        self.stop = as_text(delta.get("stop_reason")) or None
        return self._client.end(delta, codec.write_usage(self._usage, usage))


def _looks_whole(body: bytearray) -> bool:
    """Whether a JSON body ends like one and closes what it opens; braces in texts count too."""
    ends = body[-8:].rstrip().endswith((b"}", b"]"))
    return ends and body.count(b"{") == body.count(b"}")
