"""Responses answers, encoded beforehand, as OpenAI writes them; see `answers`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import count, cycle, islice

from answers import MODEL, PIECES, TOKENS

CUT, END = "max_output_tokens", "completed"
_Event = tuple[str, dict[str, object]]

_USAGE = {
    "input_tokens": 25,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": TOKENS,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": TOKENS + 25,
}
_PADDING = "aB3dE6gH9jK2mN5pQ8sT"
"""OpenAI pads each delta, so that its length tells nothing of the text."""
_AT = {"item_id": "msg_bench", "output_index": 0}
_PART = {**_AT, "content_index": 0}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _response(status: str, output: list[object], reason: str | None = None) -> dict[str, object]:
    return {
        "id": "resp_bench",
        "object": "response",
        "created_at": 1_760_000_000,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "model": MODEL,
        "output": output,
        "parallel_tool_calls": True,
        "store": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": _USAGE if output else None,
    }


def _encoded(events: Iterable[_Event]) -> list[bytes]:
    numbers = count()
    return [
        f"event: {kind}\ndata: {_json({'type': kind, **told, 'sequence_number': n})}\n\n".encode()
        for (kind, told), n in zip(events, numbers, strict=False)
    ]


def _around(
    item: dict[str, object], begun: dict[str, object], inside: list[_Event], reason: str = END
) -> list[bytes]:
    """Write a stream of one item."""
    cut = None if reason == END else reason
    status = "incomplete" if cut else END
    opening: dict[str, object] = {"response": _response("in_progress", [])}
    return _encoded(
        [
            ("response.created", opening),
            ("response.in_progress", opening),
            ("response.output_item.added", {"output_index": 0, "item": {**item, **begun}}),
            *inside,
            ("response.output_item.done", {"output_index": 0, "item": item}),
            (f"response.{status}", {"response": _response(status, [item], cut)}),
        ]
    )


def _message(text: str) -> dict[str, object]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    said = {"type": "message", "role": "assistant", "content": [part]}
    return {"id": _AT["item_id"], "status": "completed", **said}


def _padded(text: str) -> dict[str, object]:
    return {"delta": text, "obfuscation": _PADDING[len(text) % len(_PADDING) :]}


def ping() -> bytes:
    """Return an event that says nothing."""
    return b'event: keepalive\ndata: {"type":"keepalive","sequence_number":9}\n\n'


def text_stream(texts: Sequence[str], reason: str = END) -> list[bytes]:
    """Return a stream that says `texts`, one event each."""
    text = "".join(texts)
    empty = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    inside: list[_Event] = [
        ("response.content_part.added", {**_PART, "part": empty}),
        *(
            ("response.output_text.delta", {**_PART, **_padded(text), "logprobs": []})
            for text in texts
        ),
        ("response.output_text.done", {**_PART, "text": text, "logprobs": []}),
        ("response.content_part.done", {**_PART, "part": {**empty, "text": text}}),
    ]
    return _around(_message(text), {"status": "in_progress", "content": []}, inside, reason)


def call_stream(texts: Sequence[str]) -> list[bytes]:
    """Return a stream that is one call to write `texts` to a file."""
    pieces = ['{"content": "', *(json.dumps(text)[1:-1] for text in texts), '"}']
    arguments, kind = "".join(pieces), "response.function_call_arguments"
    inside: list[_Event] = [
        *((f"{kind}.delta", {**_AT, **_padded(piece)}) for piece in pieces),
        (f"{kind}.done", {**_AT, "arguments": arguments, "name": "write"}),
    ]
    call: dict[str, object] = {"type": "function_call", "call_id": "call_bench", "name": "write"}
    item = {"id": _AT["item_id"], "status": "completed", **call, "arguments": arguments}
    return _around(item, {"status": "in_progress", "arguments": ""}, inside)


def of_events(number: int, *, call: bool = False) -> list[bytes]:
    """Return an uncut stream of `number` events."""
    texts = [f"{piece}{n}" for n, piece in enumerate(islice(cycle(PIECES), number))]
    return call_stream(texts[: number - 8]) if call else text_stream(texts[: number - 8])


def body(texts: Sequence[str], reason: str = END) -> bytes:
    """Return the same answer as one JSON body."""
    cut = None if reason == END else reason
    status = "incomplete" if cut else END
    return _json(_response(status, [_message("".join(texts))], cut)).encode()
