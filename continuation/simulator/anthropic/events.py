"""A reply in Anthropic's shapes: the events of a stream, or one message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from continuation.simulator.replies import (
    arrived,
    compact,
    pieces,
    spent,
    told_usage,
    whole_members,
)
from continuation.simulator.scenario import SIGNED, Block, Raw, Reply, Text, Thinking, ToolCall
from continuation.simulator.wire import Event, Json

_ONLY_AT_START = ("cache_creation", "service_tier")


@dataclass(frozen=True)
class Writer:
    """Writes a reply: what it does not know of the message it becomes is in the other fields."""

    reply: Reply
    id: str
    model: str
    input_usage: Json
    sign: Callable[[str], str]
    new_id: Callable[[str], str]

    def message(self) -> Json:
        """Write the whole message, as a request without `stream` gets it."""
        content = [self._whole(block) for block in self.reply.blocks]
        return {**self._head(self._usage), "content": content, **self._ending}

    def events(self) -> Iterator[Event]:
        """Write the stream: start, ping, each block's start, deltas and stop, then the end."""
        usage = self._usage
        begun = {name: usage[name] for name in usage if name != "output_tokens_details"}
        begun["output_tokens"] = min(1, usage.get("output_tokens", 0))
        yield _event({"type": "message_start", "message": self._head(begun)})
        yield _event({"type": "ping"})
        for index, block in enumerate(self.reply.blocks):
            yield from self._block_events(index, block)
        closing = {name: usage[name] for name in usage if name not in _ONLY_AT_START}
        yield _event({"type": "message_delta", "delta": self._ending, "usage": closing})
        yield _event({"type": "message_stop"})

    def _head(self, usage: Json) -> Json:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }

    @cached_property
    def _usage(self) -> Json:
        """The counts; an empty answer that ended by itself costs two tokens."""
        counted = {
            **self.input_usage,
            "output_tokens": spent(self.reply) or (2 if self.reply.stop == "end_turn" else 0),
            "output_tokens_details": {"thinking_tokens": spent(self.reply, Thinking)},
            "service_tier": "standard",
        }
        return told_usage(counted, self.reply)

    @property
    def _ending(self) -> Json:
        reply = self.reply
        return {"stop_reason": reply.stop, "stop_sequence": reply.stop_sequence, **reply.extra}

    def _whole(self, block: Block) -> Json:
        begun = self._opening(block)
        match block:
            case Text(text):
                return {**begun, "text": text}
            case Thinking(text):
                return {**begun, "thinking": text, "signature": self._signature(block) or ""}
            case ToolCall():
                return {**begun, "input": whole_members(arrived(block))}
            case Raw():
                return begun

    def _opening(self, block: Block) -> Json:
        """Write a block as it is before anything of it was said."""
        match block:
            case Text():
                return {"type": "text", "text": ""}
            case Thinking():
                return {"type": "thinking", "thinking": "", "signature": ""}
            case ToolCall(name, id=given):
                made = given or self.new_id("toolu")
                return {"type": "tool_use", "id": made, "name": name, "input": {}}
            case Raw(raw):
                return dict(raw)

    def _signature(self, block: Thinking) -> str | None:
        return self.sign(block.text) if block.signature == SIGNED else block.signature

    def _block_events(self, index: int, block: Block) -> Iterator[Event]:
        begun = {"index": index, "content_block": self._opening(block)}
        yield _event({"type": "content_block_start", **begun})
        match block:
            case Text(text):
                yield from self._deltas(index, "text_delta", "text", text)
            case Thinking(text):
                yield from self._deltas(index, "thinking_delta", "thinking", text)
                if (signature := self._signature(block)) is not None:
                    yield _delta(index, "signature_delta", "signature", signature)
            case ToolCall():
                yield _delta(index, "input_json_delta", "partial_json", "")
                yield from self._deltas(index, "input_json_delta", "partial_json", arrived(block))
            case Raw():
                pass
        yield _event({"type": "content_block_stop", "index": index})

    def _deltas(self, index: int, kind: str, name: str, text: str) -> Iterator[Event]:
        return (_delta(index, kind, name, piece) for piece in pieces(text, self.reply.deltas))


def _delta(index: int, kind: str, name: str, piece: str) -> Event:
    """Write the most frequent event by hand: a long stream has tens of thousands of them."""
    delta = f'{{"type":"{kind}","{name}":{compact(piece)}}}'
    data = f'{{"type":"content_block_delta","index":{index},"delta":{delta}}}'
    return Event("content_block_delta", data)


def _event(data: Json) -> Event:
    return Event(data["type"], compact(data))
