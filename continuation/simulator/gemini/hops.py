"""The progress of an answer, and the share of it that one request gets.

An answer of Gemini 4 may need several requests ("hops"). Each hop is the same request with the
token of the hop before, and `maxOutputTokens` bounds all hops together. The simulated model is
deterministic, so a token means a position in the answer. Text continues after the text so far. A
call is not split: the hop that completes it sends all of it. Tokens that earlier hops spent on
thinking and calls are not charged again.

Source: Google's page on long decode. Refusals that it does not describe are ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from continuation.simulator.common import cost
from continuation.simulator.model import CHARS_PER_TOKEN
from continuation.simulator.scenario import Block, Raw, Text, Thinking, ToolUse


@dataclass(frozen=True)
class Progress:
    """The tokens that all hops so far have spent, and their visible text.

    `begun`: tokens spent on a call that is still incomplete.
    """

    thought: int = 0
    output: int = 0
    begun: int = 0
    text: str = ""

    @property
    def spent(self) -> int:
        return self.thought + self.output + self.begun

    @property
    def only_thought(self) -> bool:
        return not self.output and not self.begun

    @property
    def repeated(self) -> int:
        """Tokens that the model generates again, because thinking and calls are not split."""
        return self.thought if self.only_thought else self.begun


class Portion:
    """The share of an answer for one hop: its `blocks`, and the `progress` after it.

    `room`: the tokens that this hop may spend. `cut`: whether the answer has more.
    """

    def __init__(self, answer: Iterable[Block], before: Progress, room: float = math.inf) -> None:
        self.blocks: list[Block] = []
        self.before = self.progress = before
        self.cut = False
        self._room = room
        again = before.thought if before.only_thought else 0
        for block in answer:
            if self.cut:
                break
            if not isinstance(block, Thinking):
                self._take(block)
                continue
            # Thinking continues where earlier hops stopped.
            skipped = min(again, cost(block))
            again -= skipped
            paid = self._pay(cost(block) - skipped)
            if paid or not skipped:
                text = block.text[skipped * CHARS_PER_TOKEN :][: paid * CHARS_PER_TOKEN]
                self.blocks.append(replace(block, text=text, tokens=paid))
                self._go_on(thought=paid)

    @property
    def thought(self) -> int:
        return self.progress.thought - self.before.thought

    @property
    def output(self) -> int:
        return self.progress.spent - self.before.spent - self.thought

    def _take(self, block: Text | ToolUse | Raw) -> None:
        whole, begun = cost(block), self.progress.begun
        match block:
            case Text():
                paid = self._pay(whole)
                if text := block.text[: paid * CHARS_PER_TOKEN]:
                    self.blocks.append(Text(text))
                    self._go_on(output=paid, text=text)
            case Raw():
                self.blocks.append(block)
                self._go_on(output=whole)
            case ToolUse():
                # It is sent when all its tokens are spent. A call truncated by the limit stays so.
                paid = self._pay(max(0, whole - begun))
                if self.cut:
                    self._go_on(begun=paid)
                    return
                self.blocks.append(block)
                if block.cut is None:
                    self._go_on(output=whole, begun=-begun)
                else:
                    self._go_on(begun=whole - begun)

    def _pay(self, owed: int) -> int:
        """Spend at most `owed` tokens, as far as there is room; return the number."""
        paid = int(min(owed, self._room))
        self._room -= paid
        self.cut = paid < owed
        return paid

    def _go_on(self, *, thought: int = 0, output: int = 0, begun: int = 0, text: str = "") -> None:
        now = self.progress
        self.progress = Progress(
            now.thought + thought, now.output + output, now.begun + begun, now.text + text
        )
