"""How far an answer got, and the share of it one request may bring.

A Gemini 4 answer may take several requests ("hops"). Each is the same request again with the token
of the one before; `maxOutputTokens` bounds them all together. The model is deterministic, so a
token stands for a place in the answer: text goes on behind what was said, and of thinking and of a
call, which do not come in halves, what was spent on them before is not asked for again. A call is
therefore brought whole, by the hop that ends it.
Source: Google's page on long decode; what is refused how is ours where that does not say.
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
    """What all hops so far have brought, in tokens, and the visible text.

    `begun`: tokens spent on a call that is not whole yet.
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
        """Tokens that the model will spend again: thinking and calls do not come in halves."""
        return self.thought if self.only_thought else self.begun


class Portion:
    """The share of an answer that one hop brings: `blocks`, and how far the answer then is.

    `room` is what this hop may spend, in tokens. `cut` says that there was more.
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
            # Thinking goes on from where the hops before left it.
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
                # Comes once all of it is paid for; one that the limit cut comes cut.
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
        """Spend what `owed` asks for, or what there is room for."""
        paid = int(min(owed, self._room))
        self._room -= paid
        self.cut = paid < owed
        return paid

    def _go_on(self, *, thought: int = 0, output: int = 0, begun: int = 0, text: str = "") -> None:
        now = self.progress
        self.progress = Progress(
            now.thought + thought, now.output + output, now.begun + begun, now.text + text
        )
