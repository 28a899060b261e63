"""Writes a reply in Anthropic's format: the events of a stream, or one message."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from continuation.simulator.anthropic.request import AnthropicContext, input_tokens
from continuation.simulator.anthropic.signatures import Signer
from continuation.simulator.common import arrived, compact, pieces, spent, usage_of, whole_members
from continuation.simulator.scenario import SIGNED, Block, Raw, Reply, Text, Thinking, ToolUse
from continuation.simulator.wire import Event, Json

_ONLY_AT_START = ("cache_creation", "service_tier")


class AnthropicReplyWriter:
    """Writes a reply."""

    def __init__(
        self, context: AnthropicContext, reply: Reply, new_id: Callable[[str], str]
    ) -> None:
        self._reply, self._new_id = reply, new_id
        self._sign = Signer(context.body).sign
        # An empty answer with a normal end costs two tokens.
        counted = {
            "input_tokens": input_tokens(context.body),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
            "output_tokens": spent(reply) or (2 if reply.stop == "end_turn" else 0),
            "output_tokens_details": {"thinking_tokens": spent(reply, Thinking)},
            "service_tier": "standard",
        }
        self._usage = usage_of(counted, reply)
        self._head: Json = {
            "id": new_id("msg"),
            "type": "message",
            "role": "assistant",
            "model": context.name,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }
        stopped = {"stop_reason": reply.stop, "stop_sequence": reply.stop_sequence}
        self._ending = {**stopped, **reply.extra}

    def message(self) -> Json:
        content = [self._whole(block) for block in self._reply.blocks]
        return {**self._head, "usage": self._usage, "content": content, **self._ending}

    def events(self) -> Iterator[Event]:
        """Yield the stream: start, ping, each block's start, deltas and stop, then the end."""
        usage = self._usage
        begun = {name: usage[name] for name in usage if name != "output_tokens_details"}
        begun["output_tokens"] = min(1, usage.get("output_tokens", 0))
        yield _event({"type": "message_start", "message": {**self._head, "usage": begun}})
        yield _event({"type": "ping"})
        for index, block in enumerate(self._reply.blocks):
            yield from self._block_events(index, block)
        closing = {name: usage[name] for name in usage if name not in _ONLY_AT_START}
        yield _event({"type": "message_delta", "delta": self._ending, "usage": closing})
        yield _event({"type": "message_stop"})

    def _whole(self, block: Block) -> Json:
        match block:
            case Text(text):
                return {"type": "text", "text": text}
            case Thinking(text, signature):
                signed = self._sign(text) if signature == SIGNED else signature
                return {"type": "thinking", "thinking": text, "signature": signed or ""}
            case ToolUse(name, id=call_id):
                made, members = call_id or self._new_id("toolu"), whole_members(arrived(block))
                return {"type": "tool_use", "id": made, "name": name, "input": members}
            case Raw(raw):
                return dict(raw)

    def _block_events(self, index: int, block: Block) -> Iterator[Event]:
        whole, deltas = self._whole(block), list[tuple[str, str, str]]()
        begun, size = dict(whole), self._reply.deltas
        match block:
            case Text(text):
                begun["text"] = ""
                deltas = [("text_delta", "text", piece) for piece in pieces(text, size)]
            case Thinking(text):
                begun |= {"thinking": "", "signature": ""}
                deltas = [("thinking_delta", "thinking", piece) for piece in pieces(text, size)]
                if block.signature is not None:
                    deltas.append(("signature_delta", "signature", whole["signature"]))
            case ToolUse():
                begun["input"] = {}
                fragments = ["", *pieces(arrived(block), size)]
                deltas = [("input_json_delta", "partial_json", piece) for piece in fragments]
            case Raw():
                pass
        yield _event({"type": "content_block_start", "index": index, "content_block": begun})
        for kind, name, piece in deltas:
            # Long streams have thousands of these events, so they are formatted by hand.
            delta = f'{{"type":"{kind}","{name}":{compact(piece)}}}'
            data = f'{{"type":"content_block_delta","index":{index},"delta":{delta}}}'
            yield Event("content_block_delta", data)
        yield _event({"type": "content_block_stop", "index": index})


def _event(data: Json) -> Event:
    return Event(data["type"], compact(data))
