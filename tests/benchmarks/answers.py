"""Messages answers, encoded beforehand: whole bodies, and streams of any number of events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle, islice

MODEL = "bench-model"
LIMIT = 16_000
"""What is asked for; above 21,333 the SDK refuses to call without streaming."""
TOKENS = 5_000
"""Output tokens of any answer: fewer than the limit, or an uncut one would be doubted."""
CUT, END = "max_tokens", "end_turn"
"""Why an answer ended, in this format's words."""
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
"""What one event says: code, quotes, line breaks, more than ASCII; 22 characters on average."""


def pieces(characters: int) -> list[str]:
    """Return pieces of code that have `characters` characters in all."""
    found: list[str] = []
    for number, piece in enumerate(cycle(PIECES)):
        text = f"{piece}{number}"[: max(0, characters)]
        if not text:
            return found
        found.append(text)
        characters -= len(text)
    return found


def ping() -> bytes:
    """Return an event that says nothing."""
    return event("ping")


def event(kind: str, **fields: object) -> bytes:
    data = json.dumps({"type": kind, **fields}, ensure_ascii=False, separators=(",", ":"))
    return f"event: {kind}\ndata: {data}\n\n".encode()


def opening(block: object) -> list[bytes]:
    """Return the events before the first delta of the one content block."""
    message: dict[str, object] = {
        "id": "msg_bench",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 25, "output_tokens": 1},
    }
    start = event("content_block_start", index=0, content_block=block)
    return [event("message_start", message=message), start, event("ping")]


def closing(reason: str) -> list[bytes]:
    """Return the events after the last delta."""
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [
        event("content_block_stop", index=0),
        event("message_delta", delta=delta, usage={"output_tokens": TOKENS}),
        event("message_stop"),
    ]


def text_deltas(texts: Iterable[str]) -> Iterator[bytes]:
    for text in texts:
        delta = {"type": "text_delta", "text": text}
        yield event("content_block_delta", index=0, delta=delta)


def call_deltas(texts: Iterable[str]) -> Iterator[bytes]:
    """Return the texts as one call's arguments."""
    for text in ('{"content": "', *(json.dumps(text)[1:-1] for text in texts), '"}'):
        delta = {"type": "input_json_delta", "partial_json": text}
        yield event("content_block_delta", index=0, delta=delta)


def text_stream(texts: Sequence[str], reason: str = "end_turn") -> list[bytes]:
    """Return a stream that says `texts`, one event each."""
    begin = opening({"type": "text", "text": ""})
    return [*begin, *text_deltas(texts), *closing(reason)]


def call_stream(texts: Sequence[str]) -> list[bytes]:
    """Return a stream that is one call to write `texts` to a file."""
    begin = opening({"type": "tool_use", "id": "toolu_bench", "name": "write", "input": {}})
    return [*begin, *call_deltas(texts), *closing("tool_use")]


def of_events(number: int, *, call: bool = False) -> list[bytes]:
    """Return an uncut stream of `number` events."""
    texts = [f"{piece}{n}" for n, piece in enumerate(islice(cycle(PIECES), number))]
    return call_stream(texts[: number - 8]) if call else text_stream(texts[: number - 6])


def body(texts: Sequence[str], reason: str = "end_turn") -> bytes:
    """Return the same answer as one JSON body."""
    message = {
        "id": "msg_bench",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [{"type": "text", "text": "".join(texts)}],
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 25, "output_tokens": TOKENS},
    }
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
