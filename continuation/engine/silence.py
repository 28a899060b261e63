"""How long one stream may be silent, and how long it was.

A stream that is silent for far longer than the model ever was counts as dropped. What is usual is
learned from answers that arrived to their end, by model and by phase: a model writes its text
without a pause, but a call may be written in silence and arrive in one piece.

No bound is set while nothing of a block has arrived. How long a model thinks in silence depends on
the question, not on the model, so what it needed before says nothing. There the read timeout of the
client applies: 600 s in the SDKs and in the gateway. The same holds for a phase of which nothing
was learned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Final

from continuation.limits import Learned

TIMES: Final = 8
"""A silence this many times longer than the longest one so far counts as a drop."""
LEAST: Final = {"text": 60.0, "thinking": 300.0, "call": 300.0}
"""Seconds that a silence lasts at least to count as a drop, by phase.

A call of 16,000 tokens takes 200 to 300 s at 50 to 80 tokens a second, and some servers send it in
one piece; so do summaries of thinking arrive. Pings and comments end a silence.
"""
SHORTEST: Final = 7
"""Shorter silences in seconds are not told apart: eight times as long is below each minimum."""


class Silence:
    """The silences of one stream."""

    def __init__(
        self,
        learned: Learned,
        key: Hashable,
        phases: Callable[[], Sequence[str]],
        *,
        tools: bool,
    ) -> None:
        """`phases`: see `MessageBuilder.phases`. `tools`: a call may follow a text."""
        self._learned = learned
        self._key = key
        self._phases = phases
        self._tools = tools
        self._longest: dict[str, float] = {}

    def _phase(self, kind: str) -> str:
        return "call" if kind == "text" and self._tools else kind

    @property
    def _now(self) -> str:
        kinds = self._phases()
        return self._phase(kinds[-1]) if kinds else ""

    @property
    def allowed(self) -> float:
        """Seconds that the stream may be silent now; infinite without a bound."""
        phase = self._now
        known = getattr(self._learned.get(self._key), f"gap_{phase}") if phase else None
        return math.inf if known is None else max(LEAST[phase], TIMES * known)

    def note(self, seconds: float) -> None:
        """Note how long a silence was; call it before the bytes that end it are read."""
        phase = self._now
        self._longest[phase] = max(seconds, self._longest.get(phase, 0))

    def learn(self) -> None:
        """Keep the longest silence of each phase: the answer has arrived to its end."""
        facts, known = dict[str, int](), self._learned.get(self._key)
        for phase in {*map(self._phase, self._phases())} - {""}:
            seconds = max(SHORTEST, math.ceil(self._longest.get(phase, 0)))
            if seconds > (getattr(known, f"gap_{phase}") or 0):
                facts[f"gap_{phase}"] = seconds
        if facts:
            self._learned.learn(self._key, **facts)
