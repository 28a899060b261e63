"""Answers encoded beforehand, as the simulator writes them: bodies, and streams of many events."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle, islice
from typing import Any
from urllib.parse import urlsplit

from continuation.simulator import Recorded, Reply, Scenario, Simulator, Text, ToolUse
from continuation.simulator.scenario import Block
from continuation.simulator.server import _framed

MODEL = "bench-model"
LIMIT = 16_000
"""What is asked for; above 21,333 the SDK refuses to call without streaming."""
TOKENS = 5_000
"""Output tokens of any answer: fewer than the limit, or an uncut one would be doubted."""
CUT, END = "max_tokens", "end_turn"
"""Why an answer ended, in the simulator's words; each format has its own for it."""
EACH = 22
"""Characters that one event says."""
PIECES = (
    "def ",
    "merge(left: list[int], right",
    ": list[int]) -> list[int]:\n",
    '    """Merge two sorted lists."""\n',
    "    out: list",
    "[int] = []\n",
    "    # größer, 更大, 🙂\n",
    "    while left and right:",
)
"""Code, quotes, line breaks, more than ASCII."""

_STREAMED_CALLS = {"toolConfig": {"functionCallingConfig": {"streamFunctionCallArguments": True}}}
"""Without it Gemini's calls come whole; the other formats do not look at it."""


def text_of(characters: int) -> str:
    """Return so much code."""
    numbered = (f"{piece}{n}" for n, piece in enumerate(cycle(PIECES)))
    return "".join(islice(numbered, characters // 4 + 1))[:characters]


class Answers:
    """One format's answers: to what is asked for at its path, with its names for counts."""

    def __init__(self, path: str, asked: Mapping[str, Any], counts: Mapping[str, int]) -> None:
        self._path, self._asked, self._counts = path, {**asked, **_STREAMED_CALLS}, counts
        formats = Simulator()._formats
        self._format = next(one for one in formats if one.route("POST", urlsplit(path).path))

    def _context(self, asked: dict[str, Any], path: str) -> Any:
        at = urlsplit(path)
        scenario = Scenario(any_model=True)
        request = Recorded("POST", at.path, at.query, {}, b"", asked, scenario=scenario)
        return self._format.context(request)

    def _events(self, block: Block, stop: str) -> list[bytes]:
        reply = Reply([block], stop, usage=self._counts, deltas=EACH)
        context = self._context({**self._asked, "stream": True}, self._path)
        events = self._format.answer(context, reply).events
        assert events is not None
        return [_framed(event) for event in events]

    def text_stream(self, text: str, stop: str = END) -> list[bytes]:
        """Return a stream that says a text."""
        return self._events(Text(text), stop)

    def of_events(self, number: int, *, call: bool = False) -> list[bytes]:
        """Return an uncut stream of so many events, give or take a few: a text, or a call."""
        stop, size = "tool_use" if call else END, number * EACH
        for _ in range(2):  # what is around the deltas, and what JSON makes of a text, goes off
            text = text_of(size)
            block = ToolUse("write", {"content": text}) if call else Text(text)
            found = self._events(block, stop)
            size = size * number // len(found)
        return found

    def body(self, text: str, stop: str = END) -> bytes:
        """Return the same answer as one JSON body."""
        reply = Reply([Text(text)], stop, usage=self._counts)
        path = self._path.replace("streamGenerate", "generate")
        context = self._context(self._asked, path.removesuffix("-with-response-stream"))
        return self._format.answer(context, reply).body
