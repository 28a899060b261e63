"""A server of the Messages API with given answers, and one turn through the real SDK."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import anthropic
from anthropic.types import Message

import continuation
from continuation import Policy, Report
from continuation.history import validate
from support.drive import block, closing
from support.servers import Answer, Asked, Canned

MODEL, LIMIT = "claude-opus-5", 1000
BEFORE = "A captain of the line wrote his log by lamplight, and then the quick brown fo"
ECHO, REST = "and then the quick brown fo", "x jumps over the lazy dog."
WHOLE = BEFORE + REST
FAST = Policy(backoff_seconds=0.0, models_endpoint=False, model_max_output_tokens=LIMIT)
Json = dict[str, Any]


def text(words: str, **more: Any) -> Json:
    return {"type": "text", "text": words, **more}


def thought(words: str = "Hm.", signature: str = "c2lnbmVk") -> Json:
    return {"type": "thinking", "thinking": words, "signature": signature}


def search(name: str = "srvtoolu_1") -> Json:
    found = {"query": "captains"}
    return {"type": "server_tool_use", "id": name, "name": "web_search", "input": found}


def result(name: str = "srvtoolu_1") -> Json:
    return {"type": "web_search_tool_result", "tool_use_id": name, "content": []}


def write(path: str = "a.txt") -> Json:
    return {"type": "tool_use", "id": "toolu_1", "name": "Write", "input": {"path": path}}


def half(call: Json, characters: int = 6) -> Json:
    return {**call, "characters": characters}


def message(*blocks: Json, stop: str = "end_turn", tokens: int = 9) -> Json:
    """Return a whole answer; the field `characters` of half a block is left out."""
    content = [{key: block[key] for key in block if key != "characters"} for block in blocks]
    counts = {"input_tokens": 10, "output_tokens": tokens}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL}
    ends = {"stop_reason": stop, "stop_sequence": None}
    return {**head, "content": content, **ends, "usage": counts}


def events(*blocks: Json, stop: str | None = "end_turn", tokens: int = 9) -> list[str]:
    """Return the same as events; `stop=None`: the stream breaks off after the last block."""
    told = _events(*blocks, stop=stop, tokens=tokens)
    return [f"{json.dumps(event)}\nevent: {event['type']}" for event in told]


def _events(*blocks: Json, stop: str | None, tokens: int) -> list[Json]:
    head = {**message(stop="", tokens=1), "stop_reason": None}
    told: list[Json] = [{"type": "message_start", "message": head}]
    for index, each in enumerate(blocks):
        began, deltas = _told(each)
        told += block(index, began, *deltas)
    return told if stop is None else [*told, *closing(stop, tokens)]


def _told(block: Json) -> tuple[Json, list[Json]]:
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    if block["type"] == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
        if block["signature"]:
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {**block, "thinking": "", "signature": ""}, deltas
    if "input" in block:
        raw = json.dumps(block["input"])[: block.get("characters")]
        began = {**block, "input": {}}
        began.pop("characters", None)
        return began, [{"type": "input_json_delta", "partial_json": raw}]
    return block, []


@dataclass
class Told:
    """What the caller got, and what the provider was asked."""

    message: Message
    report: Report
    asked: list[Json]

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.message.content if block.type == "text")

    @property
    def kinds(self) -> list[str]:
        return [block.type for block in self.message.content]

    @property
    def faults(self) -> list[str]:
        """The reasons for which the next request would be refused."""
        content = [block.model_dump(exclude_none=True) for block in self.message.content]
        asked = {key: value for key, value in self.asked[0].items() if key != "stream"}
        back = [{"role": "assistant", "content": content}, {"role": "user", "content": "And?"}]
        asked["messages"] = [*asked["messages"], *back]
        return [fault.message for fault in validate(asked, "anthropic", live=False)]

    def replayed(self, attempt: int) -> list[str]:
        """Return the types of the blocks so far that an attempt's request contains."""
        return [block["type"] for block in self.asked[attempt]["messages"][1]["content"]]


def ask(*answers: Answer, policy: Policy = FAST, streamed: bool = True) -> Told:
    left, asked = iter(answers), list[Json]()

    def rule(request: Asked) -> Answer:
        asked.append(request.body)
        return next(left)

    thinking: Any = {"type": "adaptive"}
    tools: Any = [
        {"name": "Write", "input_schema": {"type": "object"}},
        {"type": "web_search_20250305", "name": "web_search"},
    ]
    with Canned(rule) as server, anthropic.Anthropic(base_url=server.url, api_key="key") as bare:
        client = continuation.wrap(bare, config=policy)
        more: Any = {"model": MODEL, "max_tokens": LIMIT, "thinking": thinking, "tools": tools}
        messages: Any = [{"role": "user", "content": "Go."}]
        if streamed:
            with client.messages.stream(messages=messages, **more) as stream:
                shown = "".join(stream.text_stream)
                told = stream.get_final_message()
            assert shown == "".join(b.text for b in told.content if b.type == "text")
        else:
            told = client.messages.create(messages=messages, **more)
    report = continuation.last_report()
    assert report is not None
    return Told(told, report, asked)


def said(*blocks: Json, stop: str | None = "end_turn", tokens: int = 9) -> Answer:
    """Return a streamed answer."""
    return Answer(events=events(*blocks, stop=stop, tokens=tokens))


def cut(*blocks: Json, stop: str = "max_tokens") -> Answer:
    """Return a streamed answer that used up its limit, whatever its stop reason."""
    return said(*blocks, stop=stop, tokens=LIMIT)
