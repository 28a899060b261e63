"""The gate: which part of an attempt may be delivered while it is being read."""

from __future__ import annotations

from collections.abc import Callable

from continuation.policy import Policy
from continuation.seams.repetition import Repetition
from continuation.types import Json
from continuation.wire.blocks import TEXT, THINKING, TOOL_CALL
from continuation.wire.json_values import as_json, as_text

BEHIND = 600
"""Characters that are buffered at the end of a live call that may be completed."""


class Gate:
    """Decides at each event whether everything that was read so far may be delivered.

    Text is delivered as it arrives, and so are the items in a codec's `live`. Everything else is
    buffered until one of these follows it, so that it can still be dropped: a thinking block may be
    truncated before its signature, and a function call before its last brace. Once a call has
    begun, everything is buffered until the end of the message. Text that repeats its own end is
    buffered too, if the policy `stop_repetition` may end the attempt there.
    """

    def __init__(
        self,
        policy: Policy,
        live: frozenset[str] = frozenset(),
        *,
        hold_calls: bool = False,
        streamed: bool = True,
        allows: Callable[[str], float] | None = None,
    ) -> None:
        """Begin. `live`: types of blocks to deliver as they arrive, if the answer is `streamed`.

        `hold_calls`: buffer calls even if the policy delivers them live. `allows` returns how many
        copies of a repeated text the request asks for; `None`: repetitions are not looked for.
        """
        self._allows = allows
        self.repetition: Repetition | None = None
        """Follows the open text; `None`: the open block is not followed."""
        self._speaks = False
        """Whether the text that is followed has more than white space."""
        self._live = live if streamed else frozenset[str]()
        self._runs = False
        """Whether the open block has one of these types. Its end is then delivered too."""
        self._live_calls = streamed and policy.stream_tool_calls == "live" and not hold_calls
        self._completes = policy.truncated_tool_call == "complete"
        self._live_thinking = streamed and policy.stream_thinking == "live"
        self._calls = self._begun = False
        self.flowing = False
        """Whether deltas may be delivered without being read."""
        self.blind = False
        """Whether deltas need not be read, because all are delivered or all are buffered."""
        self.behind = False
        """Whether the delivered deltas belong to a call. Its last `BEHIND` characters are buffered:
        if the call is truncated, the model can write them again."""

    def step(self, event: Json) -> bool:
        """Process the next event; return whether it and everything before it may be delivered."""
        kind = event.get("type")
        if kind == "content_block_delta":
            if self.repetition is not None:
                return self._follow(self.repetition, as_json(event.get("delta")))
            if not self.blind and as_text(as_json(event.get("delta")).get("text")).strip():
                self.flowing = self.blind = True
            return self.flowing
        if kind == "content_block_start":
            block = as_text(as_json(event.get("content_block")).get("type"))
            call, thought = block == TOOL_CALL, block in THINKING
            self._runs = block in self._live
            # If the server parsed a call, it may lack something, but that is not visible.
            call_flows = self._live_calls and call and event.get("parsed") is not True
            live = call_flows or (self._live_thinking and thought) or self._runs
            self._calls, self._begun = self._calls or (call and not call_flows), True
            self.flowing = live and not self._calls
            self.behind = call and self.flowing and self._completes
            follows = block == TEXT and not self._calls
            self.repetition = Repetition(self._allows) if follows and self._allows else None
            self._speaks = False
            if self.repetition is not None:
                self._follow(self.repetition, as_json(event.get("content_block")))
            self.blind = not self.behind and (self.flowing or self._calls or block != TEXT)
            return self.flowing
        if kind == "content_block_stop":
            ran = self._runs and self.flowing
            self.flowing, self.blind = False, True
            return ran
        if kind == "message_delta" and as_json(event.get("delta")).get("stop_reason"):
            # This may be the end. Buffer what follows, unless it is text, to read it with the end.
            self.flowing, self.blind = False, self._calls
        if kind in {"message_delta", "message_stop", "error"}:
            return False
        # A second `message_start`, as in spliced streams, delivers nothing that is buffered.
        return self.flowing or (kind == "message_start" and not self._begun)

    def _follow(self, repetition: Repetition, part: Json) -> bool:
        """Process a part of a text that may run away; return whether it may be delivered."""
        piece = as_text(part.get("text"))
        repetition.feed(piece)
        self._speaks = self._speaks or bool(piece.strip())
        return self._speaks and not repetition.holds

    @property
    def runs_away(self) -> bool:
        """Whether the open text repeats itself for so long that the attempt should end."""
        return self.repetition is not None and self.repetition.runs_away
