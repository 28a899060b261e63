"""The simulated model: recites a text until its limit is spent; knows no wire format.

One token is exactly four characters (code points); the last one of a text may be shorter. The rule
is crude on purpose: whoever reads a test can tell where N tokens end, and cuts fall anywhere, as
they do in life. Ending a turn takes room for one more token, so an answer that spends its whole
limit has always been cut.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from continuation.simulator.manners import RecoveryHead, recovery_head
from continuation.simulator.scenario import SIGNED, Block, Reply, Scenario, Text, Thinking, ToolCall

CHARS_PER_TOKEN = 4
PREFACE = "I will write the file now."
WRITTEN = "The file is written."
_MUSING = "Where did the text stop, and what comes next? "
_EVIDENCE = 12
"""A tail of so many characters is found in the answer by reason, not by chance."""


def tokens(text: str) -> int:
    """Count tokens: four characters each, rounded up."""
    return -(-len(text) // CHARS_PER_TOKEN)


@dataclass(frozen=True)
class Said:
    """One turn, reduced to what the model goes by; `results`: it brings tool results."""

    role: Literal["user", "assistant"]
    text: str
    results: bool = False


@dataclass(frozen=True)
class Ask:
    """What the model is asked: turns of alternating roles, and how much it may say.

    `limit`: output tokens allowed. `room`: tokens left in the context window, None if unknown.
    `thinks`: thinking is on; `shows_thinking`: its text is shown. `key` names the conversation.
    `spent` is what the format calls the tokens of an answer.
    """

    turns: Sequence[Said]
    limit: int
    room: int | None = None
    stop_sequences: Sequence[str] = ()
    thinks: bool = True
    shows_thinking: bool = True
    key: str = ""
    spent: str = "output_tokens"


class _Budget:
    """What is left of the output limit, and why the answer ends."""

    def __init__(self, ask: Ask, mislabel: str | None) -> None:
        full = ask.room is not None and ask.room < ask.limit
        self.left = min(ask.limit, ask.limit if ask.room is None else ask.room)
        self.stop = "end_turn"
        self.stop_sequence: str | None = None
        self._stop_sequences = ask.stop_sequences
        self._cut = "model_context_window_exceeded" if full else (mislabel or "max_tokens")

    def is_open(self) -> bool:
        return self.stop == "end_turn"

    def speak(self, text: str) -> str:
        """Return as much of a visible text as can be said before a stop sequence."""
        return self.spend(self._up_to_stop_sequence(text))

    def spend(self, text: str) -> str:
        """Return as much of `text` as there are tokens for."""
        if tokens(text) >= self.left:
            self.stop, self.stop_sequence = self._cut, None
        said = text[: self.left * CHARS_PER_TOKEN]
        self.left -= tokens(said)
        return said

    def _up_to_stop_sequence(self, text: str) -> str:
        found = [(text.find(word), word) for word in self._stop_sequences if word in text]
        if not found:
            return text
        place, self.stop_sequence = min(found)
        self.stop = "stop_sequence"
        return text[:place]


class Reciter:
    """Recites `answer`; remembers what it said after which turns, and so knows where it stands."""

    def __init__(self, answer: str, path: str = "answer.txt") -> None:
        self.answer = answer
        self.path = path
        self._ends: dict[bytes, int] = {}
        self._unended: set[str] = set()
        self._lock = threading.Lock()

    def forget(self) -> None:
        with self._lock:
            self._ends.clear()
            self._unended.clear()

    def reply(self, ask: Ask, scenario: Scenario) -> Reply:
        """Answer one call; the faults of the scenario are not its business."""
        budget = _Budget(ask, scenario.mislabel)
        blocks: list[Block] = [*_think(ask, scenario.thinking, budget)]
        if budget.is_open():
            blocks += (
                self._write(ask, budget)
                if scenario.call
                else self._recite(ask, scenario.manner, budget)
            )
        return Reply(
            blocks, budget.stop, budget.stop_sequence, deltas=scenario.deltas, slow=scenario.slow
        )

    def _recite(self, ask: Ask, manner: str, budget: _Budget) -> Iterator[Block]:
        begin = self._opening(ask, manner)
        text = budget.speak(begin.head + (self.answer[begin.position :] if begin.goes_on else ""))
        new = max(0, len(text) - len(begin.head)) if begin.goes_on else 0
        self._remember(ask, text, begin.position + new, budget)
        if text:
            yield Text(text)

    def _opening(self, ask: Ask, manner: str) -> RecoveryHead:
        position, last = self.position(ask.turns), ask.turns[-1]
        if last.role == "assistant":
            return RecoveryHead(last.text if manner == "prefill-echo" else "", position)
        if position == len(self.answer):
            return RecoveryHead("", position if self._was_cut(ask.key) else 0)
        if position == 0:
            return RecoveryHead("", 0)
        return recovery_head(manner, self.answer, position, last.text)

    def _was_cut(self, key: str) -> bool:
        """Tell whether the whole answer was said but not ended: its last token was the limit's."""
        with self._lock:
            cut = key in self._unended
            self._unended.discard(key)
        return cut

    def position(self, turns: Sequence[Said]) -> int:
        """Find how much of the answer has been said, in characters.

        Memory first (exactly these turns were answered before), then the text itself; a turn that
        has nothing of the answer in it does not count; after a whole recitation comes a new one.
        """
        position, seen = 0, hashlib.sha256()
        for turn in turns:
            seen.update(_identity(turn))
            if turn.role == "assistant" and turn.text:
                start = 0 if position == len(self.answer) else position
                known = self._ends.get(seen.digest())
                position = self._advance(start, turn.text) if known is None else known
        return position

    def _advance(self, position: int, text: str) -> int:
        if self.answer.startswith(text, position):
            return position + len(text)
        if self.answer.startswith(text):
            return len(text)
        return self._after_nearest_tail(position, text)

    def _after_nearest_tail(self, position: int, text: str) -> int:
        """Take the longest tail of `text` that the answer has, at its likeliest place."""
        low, high = 0, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if text[-middle:] in self.answer else (low, middle - 1)
        if low < min(_EVIDENCE, len(text)):
            return position
        likely = position + len(text)
        return min(_ends(text[-low:], self.answer), key=lambda end: abs(end - likely))

    def _remember(self, ask: Ask, text: str, position: int, budget: _Budget) -> None:
        seen = hashlib.sha256()
        for turn in _with_reply(ask.turns, text):
            seen.update(_identity(turn))
        with self._lock:
            self._ends[seen.digest()] = position
            if position == len(self.answer) and not budget.is_open():
                self._unended.add(ask.key)

    def _write(self, ask: Ask, budget: _Budget) -> Iterator[Block]:
        if ask.turns[-1].results:
            yield Text(budget.speak(WRITTEN))
            return
        if not any(turn.text.startswith(PREFACE) for turn in ask.turns[-2:]):
            yield Text(budget.speak(PREFACE))
        if budget.is_open():
            yield self._file_call(budget)

    def _file_call(self, budget: _Budget) -> ToolCall:
        arguments = json.dumps({"path": self.path, "content": self.answer}, ensure_ascii=False)
        arrived = budget.spend(arguments)
        if not budget.is_open():
            return ToolCall("Write", arguments, cut=len(arrived))
        budget.stop = "tool_use"
        return ToolCall("Write", arguments)


def _think(ask: Ask, thinking: str | int, budget: _Budget) -> Iterator[Thinking]:
    wanted = _thinking_tokens(thinking, ask.limit) if ask.thinks else 0
    if wanted:
        size = wanted * CHARS_PER_TOKEN
        text = budget.spend((_MUSING * (size // len(_MUSING) + 1))[:size])
        shown = text if ask.shows_thinking else ""
        yield Thinking(shown, SIGNED if budget.is_open() else None, tokens(text))


def _thinking_tokens(thinking: str | int, limit: int) -> int:
    """Tokens the model wants to think; `all:N` needs only a few once the limit is N or more."""
    kind, _, enough = str(thinking).partition(":")
    if kind == "all":
        return min(limit, 64) // 2 if enough and limit >= int(enough) else limit
    return 0 if kind == "none" else int(kind)


def _with_reply(turns: Sequence[Said], text: str) -> list[Said]:
    if turns[-1].role == "assistant":
        return [*turns[:-1], replace(turns[-1], text=turns[-1].text + text)]
    return [*turns, Said("assistant", text)]


def _identity(turn: Said) -> bytes:
    return f"{turn.role} {len(turn.text)} {turn.text}".encode(errors="surrogatepass")


def _ends(text: str, answer: str) -> Iterator[int]:
    place = answer.find(text)
    while place >= 0:
        yield place + len(text)
        place = answer.find(text, place + 1)
