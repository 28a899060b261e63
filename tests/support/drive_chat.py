"""Drives a Chat turn without sockets, and reads the result as the SDK does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from openai.types.chat import ChatCompletion, ChatCompletionChunk

from continuation import Policy
from support.drive import Driven, Provider, drive
from support.sdks.chat import whole

MODEL = "gpt-4o"
Chunk = dict[str, Any]


def chat(
    provider: Provider, request: Chunk, policy: Policy | None = None, like: str = "openai"
) -> Driven:
    """Run a turn to its end, against a vendor."""
    return drive(provider, request, policy, path="/v1/chat/completions", server={"like": like})


def asking(limit: int | None = 1000, **changes: Any) -> Chunk:
    """Return a request for a stream."""
    plain: Chunk = {
        "model": MODEL,
        "max_tokens": limit,
        "stream": True,
        "messages": [{"role": "user", "content": "Go."}],
    }
    return {name: value for name, value in {**plain, **changes}.items() if value is not None}


def accumulate(events: list[Chunk]) -> ChatCompletion:
    """Return the completion as the SDK's own accumulation builds it."""
    return whole(ChatCompletionChunk.model_validate(e) for e in events if "error" not in e)


def completed(driven: Driven) -> ChatCompletion:
    """Return the completion that a stream amounts to."""
    return driven.joined(accumulate)


def shown(driven: Driven) -> str:
    """Return all text deltas, joined."""
    deltas = [event["choices"][0]["delta"] for event in driven.told if event["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


def gist(driven: Driven) -> tuple[str, dict[int, str], list[str], list[Any]]:
    """Return text, calls, finish reasons and usage: what the SDK would see, in less time."""
    calls = dict[int, str]()
    for event in driven.told:
        for choice in event["choices"]:
            for said in choice["delta"].get("tool_calls") or []:
                held, own = calls.get(said["index"], ""), said["function"]
                told = (said.get("id"), own.get("name"), own.get("arguments"))
                calls[said["index"]] = held + "".join(text or "" for text in told)
    usage = [event["usage"] for event in driven.told if event.get("usage")]
    return shown(driven), calls, finishes(driven), usage


def finishes(driven: Driven) -> list[str]:
    """Return every finish reason that was sent."""
    said = [event["choices"][0].get("finish_reason") for event in driven.told if event["choices"]]
    return [reason for reason in said if reason]


# --- a provider in small ------------------------------------------------------------------------


def sse(chunks: Iterable[Any], newline: str = "\n", *, spaced: bool = False) -> bytes:
    """Encode chunks as a stream; texts are sent as they are."""
    separators = (", ", ": ") if spaced else (",", ":")
    told = (
        chunk if isinstance(chunk, str) else json.dumps(chunk, separators=separators)
        for chunk in chunks
    )
    return b"".join(f"data: {data}{newline}{newline}".encode() for data in told)


def chunk(delta: Chunk, finish: str | None = None, **more: Any) -> Chunk:
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "m"}
    return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


OPENING = chunk({"role": "assistant", "content": ""})


def texts(*pieces: str) -> list[Chunk]:
    return [chunk({"content": piece}) for piece in pieces]


def call(pieces: Sequence[str], index: int = 0, name: str = "Write") -> list[Chunk]:
    """Return a call whose arguments come in several deltas."""
    opened = {"name": name, "arguments": ""}
    begun = {"index": index, "id": f"call_{index}", "type": "function", "function": opened}
    rest = [{"index": index, "function": {"arguments": piece}} for piece in pieces]
    return [chunk({"tool_calls": [piece]}) for piece in (begun, *rest)]


def closing(finish: str, tokens: int | None = None) -> list[Chunk | str]:
    """Return the last chunks; with `tokens`, a usage chunk too."""
    counted = {"prompt_tokens": 10, "completion_tokens": tokens, "total_tokens": 10 + (tokens or 0)}
    usage = [] if tokens is None else [{**chunk({}), "choices": [], "usage": counted}]
    return [chunk({}, finish), *usage, "[DONE]"]
