"""The gate: what of an attempt may be shown while it is being read."""

from __future__ import annotations

from continuation.policy import Policy
from continuation.types import Json
from continuation.wire.blocks import TEXT, THINKING, TOOL_CALL
from continuation.wire.json_values import as_json, as_text

BEHIND = 600
"""Characters held at the end of a live call that may be completed."""


class Gate:
    """Decides at each event whether all that was read so far may be shown.

    Text is shown as it comes, and so are the items in a codec's `live`. Anything else is held until
    one of these follows it, so that it can still be dropped: a thinking block may be cut before its
    signature, a function call before its last brace. Once a call has begun, all is held until the
    end of the message.
    """

    def __init__(
        self,
        policy: Policy,
        live: frozenset[str] = frozenset(),
        *,
        hold_calls: bool = False,
        streamed: bool = True,
    ) -> None:
        """Begin. `live`: types of blocks shown as they come, if the answer is `streamed`.

        `hold_calls`: hold calls even if policy shows them live.
        """
        self._live = live if streamed else frozenset[str]()
        self._runs = False
        """The open block has one of these types; its end is shown as well."""
        self._live_calls = streamed and policy.stream_tool_calls == "live" and not hold_calls
        self._completes = policy.truncated_tool_call == "complete"
        self._live_thinking = streamed and policy.stream_thinking == "live"
        self._calls = self._begun = False
        self.flowing = False
        """Deltas may be shown without being read."""
        self.blind = False
        """Deltas need not be read: all of them are shown, or all are held."""
        self.behind = False
        """The deltas shown are of a call, whose last `BEHIND` characters are held: if it is cut,
        the model can write these again."""

    def step(self, event: Json) -> bool:
        """Take the next event; return whether it and all before it may be shown."""
        kind = event.get("type")
        if kind == "content_block_delta":
            if not self.blind and as_text(as_json(event.get("delta")).get("text")).strip():
                self.flowing = self.blind = True
            return self.flowing
        if kind == "content_block_start":
            block = as_text(as_json(event.get("content_block")).get("type"))
            call, thought = block == TOOL_CALL, block in THINKING
            self._runs = block in self._live
            # A call that came parsed may lack something without showing it.
            call_flows = self._live_calls and call and event.get("parsed") is not True
            live = call_flows or (self._live_thinking and thought) or self._runs
            self._calls, self._begun = self._calls or (call and not call_flows), True
            self.flowing = live and not self._calls
            self.behind = call and self.flowing and self._completes
            self.blind = not self.behind and (self.flowing or self._calls or block != TEXT)
            return self.flowing
        if kind == "content_block_stop":
            ran = self._runs and self.flowing
            self.flowing, self.blind = False, True
            return ran
        if kind == "message_delta" and as_json(event.get("delta")).get("stop_reason"):
            # This may be the end: what follows and is not text is held, to be read with it.
            self.flowing, self.blind = False, self._calls
        if kind in {"message_delta", "message_stop", "error"}:
            return False
        # A second `message_start`, in spliced streams, releases nothing that is held.
        return self.flowing or (kind == "message_start" and not self._begun)
