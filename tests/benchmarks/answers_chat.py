"""Chat Completions answers, encoded beforehand, as OpenAI writes them; see `answers`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import cycle, islice

from answers import MODEL, PIECES, TOKENS

_USAGE = {"prompt_tokens": 25, "completion_tokens": TOKENS, "total_tokens": TOKENS + 25}
_PADDING = "aB3dE6gH9jK2mN5pQ8sT"
"""OpenAI pads each chunk, so that its length tells nothing of the text."""
CUT, END = "length", "stop"
_DONE = b"data: [DONE]\n\n"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _head(kind: str) -> dict[str, object]:
    head = {"id": "chatcmpl-bench00000000000000000", "object": kind, "created": 1_760_000_000}
    return {**head, "model": MODEL, "service_tier": "default", "system_fingerprint": "fp_bench0000"}


def chunk(delta: Mapping[str, object], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    padding = _PADDING[len(str(delta.get("content"))) % len(_PADDING) :]
    whole = {**_head("chat.completion.chunk"), "choices": [choice], "obfuscation": padding}
    return f"data: {_json(whole)}\n\n".encode()


def ping() -> bytes:
    """Return what OpenRouter keeps a connection open with: a comment."""
    return b": OPENROUTER PROCESSING\n\n"


def text_stream(texts: Iterable[str], reason: str = "stop") -> list[bytes]:
    """Return a stream that says `texts`, one event each."""
    begin = chunk({"role": "assistant", "content": "", "refusal": None})
    deltas = (chunk({"content": text}) for text in texts)
    return [begin, *deltas, chunk({}, reason), _DONE]


def _arguments(texts: Iterable[str]) -> Iterator[bytes]:
    for text in ('{"content": "', *(json.dumps(text)[1:-1] for text in texts), '"}'):
        yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": text}}]})


def call_stream(texts: Sequence[str]) -> list[bytes]:
    """Return a stream that is one call to write `texts` to a file."""
    named = {"name": "write", "arguments": ""}
    call = {"index": 0, "id": "call_bench", "type": "function", "function": named}
    begin = chunk({"role": "assistant", "content": None, "tool_calls": [call]})
    return [begin, *_arguments(texts), chunk({}, "tool_calls"), _DONE]


def of_events(number: int, *, call: bool = False) -> list[bytes]:
    """Return an uncut stream of `number` events."""
    texts = [f"{piece}{n}" for n, piece in enumerate(islice(cycle(PIECES), number))]
    return call_stream(texts[: number - 5]) if call else text_stream(texts[: number - 3])


def body(texts: Sequence[str], reason: str = "stop") -> bytes:
    """Return the same answer as one JSON body."""
    message: dict[str, object] = {"role": "assistant", "content": "".join(texts)}
    message |= {"refusal": None, "annotations": []}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    return _json({**_head("chat.completion"), "choices": [choice], "usage": _USAGE}).encode()
