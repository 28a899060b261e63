"""The simulated model. It recites a text until its limit is spent, and knows no wire format.

One token is exactly four characters (code points). The last token of a text may be shorter. The
rule is simple on purpose: the reader of a test can see where N tokens end, and a truncation can be
anywhere in the text, as with real models. A normal end needs room for one more token, so an answer
that spends its complete limit is always truncated.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from continuation.simulator.manners import RecoveryHead, longest_tail, recovery_head
from continuation.simulator.scenario import SIGNED, Block, Reply, Scenario, Text, Thinking, ToolUse

CHARS_PER_TOKEN = 4
PREFACE = "I will write the file now."
WRITTEN = "The file is written."
_THOUGHT = "Where did the text stop, and what comes next? "
_SIGN = re.compile(r"<end-[0-9a-f]{8}>")
"""Matches the sign that a prompt may request after a text's last character."""
_EVIDENCE = 12
"""The characters of the shortest tail that is not found in the answer by chance."""


def tokens(text: str) -> int:
    """Return the tokens of a text: four characters each, rounded up."""
    return -(-len(text) // CHARS_PER_TOKEN)


@dataclass(frozen=True)
class PromptTurn:
    """One turn as the model reads it. `role`: `user` or `assistant`. `results`: it has results."""

    role: str
    text: str
    results: bool = False


@dataclass(frozen=True)
class Ask:
    """A request as the model reads it: turns of alternating roles, and bounds on the output.

    `limit`: the output limit, in tokens. `room`: tokens left in the context window, None: unknown.
    `thinks`: thinking is on; `shows_thinking`: its text is shown. `key`: the conversation's key.
    `spent`: the format's name of the count of output tokens. `endings`: the format's own stop
    reasons for endings that not every format has, by the scenario in `continuation.testing`.
    """

    turns: Sequence[PromptTurn]
    limit: int
    room: int | None = None
    stop_sequences: Sequence[str] = ()
    thinks: bool = True
    shows_thinking: bool = True
    key: str = ""
    spent: str = "output_tokens"
    endings: Mapping[str, str] = field(default_factory=dict[str, str])


class _Budget:
    """The rest of the output limit in tokens, and why the answer ends."""

    def __init__(self, ask: Ask, mislabel: str | None) -> None:
        full = ask.room is not None and ask.room < ask.limit
        self.left = min(ask.limit, ask.limit if ask.room is None else ask.room)
        self.stop = "end_turn"
        self.stop_sequence: str | None = None
        self._stop_sequences = ask.stop_sequences
        self._cut = "model_context_window_exceeded" if full else (mislabel or "max_tokens")

    def is_open(self) -> bool:
        return self.stop == "end_turn"

    def emit(self, text: str) -> str:
        """Truncate a visible text at a stop sequence or the limit, and spend its tokens."""
        stops = [(text.find(word), word) for word in self._stop_sequences if word in text]
        if stops:
            end, self.stop_sequence = min(stops)
            self.stop, text = "stop_sequence", text[:end]
        return self.spend(text)

    def spend(self, text: str) -> str:
        """Truncate `text` at the limit, and spend its tokens."""
        if tokens(text) >= self.left:
            self.stop, self.stop_sequence = self._cut, None
        written = text[: self.left * CHARS_PER_TOKEN]
        self.left -= tokens(written)
        return written


class Reciter:
    """Recites `answer`. It remembers its position after each conversation that it has answered."""

    def __init__(self, answer: str, path: str = "answer.txt") -> None:
        self.answer = answer
        self.path = path
        self._ends: dict[bytes, int] = {}
        self._unended: set[str] = set()
        """Conversations with an answer that ended at the last token of the limit.

        They are truncated nevertheless."""
        self._lock = threading.Lock()

    def forget(self) -> None:
        with self._lock:
            self._ends.clear()
            self._unended.clear()

    def reply(self, ask: Ask, scenario: Scenario) -> Reply:
        """Return the reply to one request. The server adds the scenario's faults."""
        budget = _Budget(ask, scenario.mislabel)
        blocks: list[Block] = [*_think(ask, scenario.thinking, budget)]
        if budget.is_open() and scenario.call:
            blocks += self._write(ask, scenario.manner, budget)
        elif budget.is_open():
            blocks += self._recite(ask, scenario.manner, budget)
        return Reply(
            blocks, budget.stop, budget.stop_sequence, deltas=scenario.deltas, slow=scenario.slow
        )

    def _recite(self, ask: Ask, manner: str, budget: _Budget) -> Iterator[Block]:
        begin = self._opening(ask, manner)
        text = budget.emit(begin.head + (self.answer[begin.position :] if begin.goes_on else ""))
        new = max(0, len(text) - len(begin.head)) if begin.goes_on else 0
        position, last = begin.position + new, ask.turns[-1]
        if last.role == "assistant":
            turns = [*ask.turns[:-1], replace(last, text=last.text + text)]
        else:
            turns = [*ask.turns, PromptTurn("assistant", text)]
        seen = hashlib.sha256()
        for turn in turns:
            seen.update(_identity(turn))
        with self._lock:
            self._ends[seen.digest()] = position
            if position == len(self.answer) and not budget.is_open():
                self._unended.add(ask.key)
        if text:
            yield Text(text)

    def _opening(self, ask: Ask, manner: str) -> RecoveryHead:
        position, last = self.position(ask.turns), ask.turns[-1]
        if last.role == "assistant":
            return RecoveryHead(last.text if manner == "prefill-echo" else "", position)
        if position == len(self.answer):
            with self._lock:
                cut = ask.key in self._unended
                self._unended.discard(ask.key)
            return RecoveryHead("", position if cut else 0)
        if position == 0:
            return RecoveryHead("", 0)
        return recovery_head(manner, self.answer, position, last.text)

    def position(self, turns: Sequence[PromptTurn]) -> int:
        """Return how many characters of the answer the turns have recited.

        If exactly these turns were answered before, the position is remembered. Otherwise the text
        shows it. A turn without text of the answer does not count. After a complete recitation a
        new one begins.
        """
        position, seen = 0, hashlib.sha256()
        for turn in turns:
            seen.update(_identity(turn))
            if turn.role == "assistant" and turn.text:
                start = 0 if position == len(self.answer) else position
                end = self._ends.get(seen.digest())
                position = self._advance(start, turn.text) if end is None else end
        return position

    def _advance(self, position: int, text: str) -> int:
        if self.answer.startswith(text, position):
            return position + len(text)
        if self.answer.startswith(text):
            return len(text)
        # Find the longest tail of the text that the answer contains, at the most likely position.
        tail = longest_tail(text, self.answer)
        if len(tail) < min(_EVIDENCE, len(text)):
            return position
        likely, ends, start = position + len(text), list[int](), self.answer.find(tail)
        while start >= 0:
            ends.append(start + len(tail))
            start = self.answer.find(tail, start + 1)
        return min(ends, key=lambda end: abs(end - likely))

    def _write(self, ask: Ask, manner: str, budget: _Budget) -> Iterator[Block]:
        """Yield a call of `Write` with the answer, or its rest as text if the prompt quotes it."""
        if ask.turns[-1].results:
            yield Text(budget.emit(WRITTEN))
            return
        if (quoted := ask.turns[-1].text.find(self.answer[:_EVIDENCE])) >= 0:
            quotation = ask.turns[-1].text[quoted:]
            position = _alike(quotation, self.answer)
            begin = recovery_head(manner, self.answer, position, quotation[position:])
            rest = self.answer[begin.position :] if begin.goes_on else ""
            sign = _SIGN.search(ask.turns[-1].text) if begin.goes_on else None
            yield Text(budget.emit(begin.head + rest + (sign[0] if sign is not None else "")))
            return
        if not any(turn.text.startswith(PREFACE) for turn in ask.turns[-2:]):
            yield Text(budget.emit(PREFACE))
        if budget.is_open():
            arguments = json.dumps({"path": self.path, "content": self.answer}, ensure_ascii=False)
            arrived = budget.spend(arguments)
            cut = None if budget.is_open() else len(arrived)
            if cut is None:
                budget.stop = "tool_use"
            yield ToolUse("Write", arguments, cut=cut)


def _alike(one: str, other: str) -> int:
    """Return the number of characters in the common beginning of two texts."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _think(ask: Ask, thinking: str | int, budget: _Budget) -> Iterator[Thinking]:
    """Yield the scenario's thinking. `all:N` is short if the limit is at least N tokens."""
    kind, _, enough = str(thinking).partition(":")
    if kind == "all":
        wanted = min(ask.limit, 64) // 2 if enough and ask.limit >= int(enough) else ask.limit
    else:
        wanted = 0 if kind == "none" else int(kind)
    if wanted and ask.thinks:
        size = wanted * CHARS_PER_TOKEN
        text = budget.spend((_THOUGHT * (size // len(_THOUGHT) + 1))[:size])
        shown = text if ask.shows_thinking else ""
        yield Thinking(shown, SIGNED if budget.is_open() else None, tokens(text))


def _identity(turn: PromptTurn) -> bytes:
    return f"{turn.role} {len(turn.text)} {turn.text}".encode(errors="surrogatepass")
