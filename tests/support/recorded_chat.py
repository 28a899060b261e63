"""Recorded streams of Chat Completions, by vendor, in a line of text each.

    t:One_|day         text in two chunks; `_` is a space
    th:Hm|so           reasoning, in the vendor's field
    c:read|{"a":|1}    a call to run

A vendor's habits are in `Style`: what stands in its first chunk, in every one, and in its last.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from continuation.history.types import Body
from support.drive_chat import accumulate
from support.recorded import LIMIT, Events, Gist, Json, Wire

DONE: Json = {"done": True}
"""Stands for `[DONE]`."""
_TOKEN = re.compile(r"(?P<kind>[a-z]+):(?P<said>\S+)")


@dataclass(frozen=True)
class Style:
    """How a vendor writes its chunks."""

    first: Json = field(default_factory=lambda: {"role": "assistant", "content": ""})
    """The delta of the first chunk; if it is empty, there is no such chunk."""
    reasoning: str = "reasoning_content"
    parts: bool = False
    """Whether text and reasoning are typed parts of the content."""
    whole: bool = False
    """Whether a call comes in one chunk."""
    named: bool = True
    """Whether a choice without a finish reason has the field, with null."""
    every: Json = field(default_factory=dict[str, Any])
    beside: Json = field(default_factory=dict[str, Any])
    """Fields of every chunk, and of each choice."""
    before: tuple[Json, ...] = ()
    """Chunks before the first."""
    last: Json = field(default_factory=dict[str, Any])
    """Fields of the chunk with the finish reason, beside those of every chunk."""
    counted: bool = True
    """Whether the last chunk has the usage and no choices."""


def stream(line: str, style: Style = Style(), usage: Mapping[str, Any] = {}) -> Events:
    """Return the events of a line as a vendor writes them."""
    used = {"prompt_tokens": 9, "completion_tokens": 40, "total_tokens": 49, **usage}
    events: list[Json] = [*style.before]
    if style.first:
        events.append(_chunk(style, style.first))
    number, called = count(), False
    for token in _TOKEN.finditer(line):
        first, *rest = token["said"].split("|")
        if token["kind"] == "c":
            called, index = True, next(number)
            own = {"name": first, "arguments": "".join(rest) if style.whole else ""}
            begun = {"index": index, "id": f"call_{index}", "type": "function", "function": own}
            events.append(_chunk(style, {"tool_calls": [begun]}))
            for piece in () if style.whole else rest:
                more = {"index": index, "function": {"arguments": piece}}
                events.append(_chunk(style, {"tool_calls": [more]}))
            continue
        for piece in (first, *rest):
            said = piece.replace("_", " ")
            part: Any = {"type": "text", "text": said}
            if token["kind"] == "th" and style.parts:
                part = {"type": "thinking", "thinking": [part]}
            name = "content" if style.parts or token["kind"] == "t" else style.reasoning
            events.append(_chunk(style, {name: [part] if style.parts else said}))
    inline = {} if style.counted else {"usage": used}
    end = _chunk(style, {}, "tool_calls" if called else "stop", **{**style.last, **inline})
    last = [{**_chunk(style, {}), "choices": [], "usage": used}] if style.counted else []
    return [*events, end, *last, DONE]


def _chunk(style: Style, delta: Json, reason: str | None = None, **more: Any) -> Json:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "m"}
    why = {"finish_reason": reason} if reason or style.named else {}
    choice = {"index": 0, "delta": delta, **why, **style.beside}
    return {**head, "choices": [choice], **style.every, **more}


# --- what a stream amounts to -----------------------------------------------------------------


def encode(events: Events) -> bytes:
    told = ("[DONE]" if event == DONE else json.dumps(event) for event in events)
    return b"".join(f"data: {data}\n\n".encode() for data in told)


def _flat(event: Json) -> Json:
    """Return a chunk as the SDK's types want it: content as a text, and no field missing."""
    choices = [dict(choice) for choice in event.get("choices", [])]
    for choice in choices:
        delta = choice["delta"] = dict(choice.get("delta", {}))
        if isinstance(content := delta.get("content"), list):
            delta["content"] = "".join(part.get("text", "") for part in content)
        if calls := delta.get("tool_calls"):
            delta["tool_calls"] = [{"index": n, **call} for n, call in enumerate(calls)]
        choice.setdefault("finish_reason", None)
    return {"created": 7, **event, "object": "chat.completion.chunk", "choices": choices}


def gist(events: Events) -> Gist:
    whole = accumulate([_flat(event) for event in events if event != DONE])
    message = whole.choices[0].message
    calls = [each.to_dict() for each in message.tool_calls or []]
    own: list[Any] = [call.get("function") or call.get("custom") for call in calls]
    kept = [*_beside(events)]
    return Gist(message.content or "", [json.dumps([o["name"], o["arguments"]]) for o in own], kept)


def _beside(events: Events) -> set[str]:
    """Return what vendors add for the whole answer; some repeat it in every chunk."""
    found = set[str]()
    for event in events:
        told = [event, *event.get("choices", [])]
        for key in (
            "citations",
            "search_results",
            "prompt_filter_results",
            "content_filter_results",
        ):
            found |= {f"{key} {json.dumps(each[key])}" for each in told if each.get(key)}
    return found


def limited(events: Events, at: int) -> Events:
    """End the stream at its limit."""
    told = [e for e in events[:at] if e != DONE and e["choices"]]
    told = [e for e in told if not e["choices"][0].get("finish_reason")]
    before = [e for e in events[:at] if e != DONE and not e["choices"] and not e.get("usage")]
    ended = next(e for e in reversed(events) if e != DONE and e["choices"])
    (choice,) = ended["choices"]
    used = {"prompt_tokens": 9, "completion_tokens": LIMIT, "total_tokens": 9 + LIMIT}
    counts = any(event.get("usage") for event in events)
    usage = {"usage": used} if counts and ended.get("usage") else {}
    reason = {**ended, "choices": [{**choice, "finish_reason": "length"}], **usage}
    more = [{**ended, "choices": [], "usage": used}] if counts and not usage else []
    return [*before, *told, reason, *more, DONE]


def again(events: Events, asked: Body) -> Events:
    """Answer a later request: with all, or with what follows the text that it contains."""
    text = "".join(m["content"] for m in asked["messages"] if m["role"] == "assistant")
    told: list[Json] = []
    for event in events:
        choices = [dict(choice) for choice in event.get("choices", [])]
        for choice in choices:
            content = choice["delta"].get("content")
            parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
            left = list[Json]()
            for part in parts:
                had = min(len(text), len(part.get("text") or "")) if part["type"] == "text" else 0
                text = text[had:]
                left.append({**part, "text": part["text"][had:]} if had else part)
            if content:
                said: Any = left if isinstance(content, list) else left[0]["text"]
                choice["delta"] = {**choice["delta"], "content": said}
        told.append({**event, "choices": choices} if choices else event)
    return told


WIRE = Wire(
    path="/v1/chat/completions",
    history="openai-chat",
    request={
        "model": "m",
        "max_tokens": LIMIT,
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "Go."}],
        "tools": [{"type": "function", "function": {"name": "read", "parameters": {}}}],
    },
    encode=encode,
    gist=gist,
    limited=limited,
    again=again,
)
