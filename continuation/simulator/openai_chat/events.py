"""Writes a reply in Chat's format: the chunks of a stream, or one body."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from continuation.simulator.common import arrived, compact, pieces, spent, text_of, usage_of
from continuation.simulator.openai_chat.request import ChatContext
from continuation.simulator.scenario import Block, Raw, Reply, Text, Thinking, ToolUse
from continuation.simulator.wire import Event, Json
from continuation.wire.json_values import as_int, mapping

CREATED = 1_760_000_000
"""The Unix time of every answer. It is fixed, so that tests know it."""
DONE = Event(None, "[DONE]")
_FINISH = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_CUT = ("max_tokens", "model_context_window_exceeded")
_MOST_CHOICES = 8
_OBFUSCATION = "cG7vXq2LrT9sYb4KdWm1"
_SAFE = {
    name: {"filtered": False, "severity": "safe"}
    for name in ("hate", "self_harm", "sexual", "violence")
}
_FILTERED = [{"prompt_index": 0, "content_filter_results": _SAFE}]


class ChatReplyWriter:
    """Writes a reply as the request's vendor does. `call_id` returns a new id for a call."""

    def __init__(
        self, context: ChatContext, reply: Reply, name: str, call_id: Callable[[], str]
    ) -> None:
        self.context, self.reply, self.id, self.call_id = context, reply, name, call_id
        self._vendor = vendor = context.vendor
        self._choices = min(max(1, as_int(context.body.get("n")) or 1), _MOST_CHOICES)
        self._options = mapping(context.body.get("stream_options"))
        cut = reply.stop in _CUT
        self._withheld = vendor.withholds and cut
        self._blocks: list[Block] = [
            block
            for block in reply.blocks
            if not (self._withheld and isinstance(block, Text))
            and not (isinstance(block, Thinking) and not (vendor.reasoning and block.text))
        ]
        quiet = context.streamed and context.body.get("continue_final_message") is True
        echoes = vendor.prefill_echoes and context.ending == "prefill" and not quiet
        if echoes and (prefix := text_of(context.last.get("content"))):
            self._blocks.insert(0, Text(prefix))
        self._finish = _FINISH.get(reply.stop, reply.stop)
        if reply.stop == "model_context_window_exceeded":
            self._finish = vendor.window_stop
        cut_call = cut and any(isinstance(block, ToolUse) for block in reply.blocks)
        if cut_call and vendor.truncated_tool_call is not None and not context.streamed:
            self._finish = vendor.truncated_tool_call

    def completion(self) -> Json:
        choices = [
            self._choice(number, "message", self._message(), self._finish)
            for number in range(self._choices)
        ]
        filtered = {"prompt_filter_results": _FILTERED} if self._vendor.name == "azure" else {}
        head = {**self._head("chat.completion"), **filtered, "choices": choices}
        return {**head, "usage": self._usage(), **self.reply.extra}

    def chunks(self) -> Iterator[Event]:
        """Yield the stream: role, deltas, finish reason, usage if requested, and `[DONE]`."""
        vendor, stop = self._vendor, self.reply.stop
        if vendor.name == "azure":  # the first chunk is about the prompt
            blank: Json = {"id": "", "object": "", "created": 0, "model": "", "choices": []}
            yield _event({**blank, "prompt_filter_results": _FILTERED})
        overflow = stop == "model_context_window_exceeded"
        broken = {"cut": stop in _CUT, "overflow": overflow}.get(vendor.unfinished, False)
        for number in range(self._choices):
            for delta in self._deltas():
                yield _event(self._chunk(number, delta, None))
            if not broken:
                unasked = {"usage": self._usage()} if vendor.usage_unasked else {}
                closing = self._chunk(number, {}, self._finish)
                yield _event({**closing, **unasked, **self.reply.extra})
        if self._options.get("include_usage") and not broken:
            fields: Json = {"choices": [], "usage": self._usage()}
            yield _event({**self._head("chat.completion.chunk"), **fields})
        if vendor.sends_done:
            yield DONE

    def _usage(self) -> Json:
        """Return the answer's usage. An echoed prefix counts as part of the prompt."""
        prompt, output = self.context.prompt, spent(self.reply) * self._choices
        hidden = (Thinking, Text) if self._withheld else (Thinking,)
        counted = {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": spent(self.reply, *hidden) * self._choices,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }
        return usage_of(counted, self.reply)

    # -- one completion

    def _message(self) -> Json:
        texts = [block.text for block in self._blocks if isinstance(block, Text)]
        calls = [block for block in self._blocks if isinstance(block, ToolUse)]
        thoughts = "".join(block.text for block in self._blocks if isinstance(block, Thinking))
        message: Json = {
            "role": "assistant",
            "content": "".join(texts) if texts or not calls else None,
            **self._reasoning(thoughts),
        }
        if self._vendor.openai:
            message |= {"refusal": None, "annotations": []}
        if calls:
            message["tool_calls"] = [self._call(call, arrived(call)) for call in calls]
        for block in self._blocks:
            if isinstance(block, Raw):
                message |= dict(block.block)
        return message

    def _call(self, call: ToolUse, arguments: str) -> Json:
        function = {"name": call.name, "arguments": arguments}
        return {"id": call.id or self.call_id(), "type": "function", "function": function}

    def _reasoning(self, text: str) -> Json:
        names = self._vendor.reasoning
        if not text or not names:
            return {}
        fields: Json = {names[0]: text}
        if "reasoning_details" in names:
            detail = {"type": "reasoning.text", "text": text, "format": "unknown", "index": 0}
            fields["reasoning_details"] = [detail]
        return fields

    # -- a stream

    def _deltas(self) -> Iterator[Json]:
        """Yield the delta of each chunk. The first one has the role."""
        blocks, size = self._blocks, self.reply.deltas
        silent = bool(blocks) and all(isinstance(block, ToolUse) for block in blocks)
        first: Json = {"role": "assistant", "content": None if silent else ""}
        yield {**first, "refusal": None} if self._vendor.openai else first
        index = -1
        for block in blocks:
            match block:
                case Text(text):
                    yield from ({"content": piece} for piece in pieces(text, size))
                case Thinking(text):
                    yield from map(self._reasoning, pieces(text, size))
                case ToolUse():
                    # Id and name come before the arguments. Some servers send a call in one piece.
                    arguments, index = arrived(block), index + 1
                    at_once, later = (
                        (arguments, "") if self._vendor.whole_calls else ("", arguments)
                    )
                    yield {"tool_calls": [{"index": index, **self._call(block, at_once)}]}
                    for piece in pieces(later, size):
                        yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
                case Raw(raw):
                    yield dict(raw)

    def _chunk(self, number: int, delta: Json, finish: str | None) -> Json:
        """Return a chunk with a delta, and with the field by which OpenAI hides its length."""
        choice = self._choice(number, "delta", delta, finish)
        whole = {**self._head("chat.completion.chunk"), "choices": [choice]}
        if self._options.get("include_usage"):
            whole["usage"] = None
        if self._vendor.name == "openai" and self._options.get("include_obfuscation") is not False:
            length = len(str(delta.get("content") or ""))
            whole["obfuscation"] = _OBFUSCATION[length % len(_OBFUSCATION) :]
        return whole

    def _choice(self, number: int, name: str, message: Json, finish: str | None) -> Json:
        choice: Json = {"index": number, name: message, "logprobs": None, "finish_reason": finish}
        if self._vendor.name == "azure":
            choice["content_filter_results"] = _SAFE if message.get("content") else {}
        if self._vendor.name == "openrouter":
            choice["native_finish_reason"] = finish
        return choice

    def _head(self, kind: str) -> Json:
        head = {"id": self.id, "object": kind, "created": CREATED, "model": self.context.name}
        if self._vendor.openai:
            return {**head, "service_tier": "default", "system_fingerprint": "fp_simulator"}
        return {**head, "system_fingerprint": None}


def _event(data: Json) -> Event:
    return Event(None, compact(data))
