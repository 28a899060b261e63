"""A reply in the shapes of the Responses API: output items, the response, the events of a stream.

The events are numbered without a gap, and no `[DONE]` ends them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from continuation.simulator.model import CHARS_PER_TOKEN
from continuation.simulator.openai_responses.request import Context, item_id
from continuation.simulator.openai_responses.store import seal_reasoning
from continuation.simulator.replies import arrived, compact, pieces, spent, told_usage
from continuation.simulator.scenario import SIGNED, Block, Raw, Reply, Text, Thinking, ToolCall
from continuation.simulator.wire import Event, Json
from continuation.wire.json_values import as_list, mapping

_ENDED = ("end_turn", "stop_sequence", "tool_use", "pause_turn", "completed")
_REASONS = {
    "max_tokens": "max_output_tokens",
    "model_context_window_exceeded": "max_output_tokens",
    "refusal": "content_filter",
}
_ECHOED: Json = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}


def shows_reasoning(body: Json) -> bool:
    """Tell whether a request asks for a summary of the reasoning."""
    asked = mapping(body.get("reasoning"))
    return bool(asked.get("summary") or asked.get("generate_summary"))


@dataclass(frozen=True)
class Writer:
    """Writes a reply: what it does not know of the response it becomes is in the other fields."""

    context: Context
    reply: Reply
    input_usage: Json
    id: str
    created: int
    new_id: Callable[[str], str]

    def response(self) -> Json:
        """Write the finished response."""
        reply, status = self.reply, self._status
        code, message = reply.error or ("server_error", "The model failed to generate a response.")
        reason = None if status != "incomplete" else _REASONS.get(reply.stop, reply.stop)
        last = len(reply.blocks) - 1
        return {
            **self.begun(),
            "status": status,
            "completed_at": self.created if status == "completed" else None,
            "error": {"code": code, "message": message} if status == "failed" else None,
            "incomplete_details": None if reason is None else {"reason": reason},
            "output": [
                self._item(
                    block, "completed" if status == "completed" or n < last else "incomplete"
                )
                for n, block in enumerate(reply.blocks)
            ],
            "usage": self._usage(),
            **reply.extra,
        }

    def begun(self, status: str = "in_progress") -> Json:
        """Write the response as it is before anything was said."""
        body, conversation = self.context.body, self.context.conversation
        echoed = {k: v if body.get(k) is None else body[k] for k, v in _ECHOED.items()}
        named = {} if conversation is None else {"conversation": {"id": conversation}}
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            "model": body.get("model"),
            "output": [],
            "usage": None,
            **echoed,
            **named,
        }

    def events(self, response: Json) -> Iterator[Event]:
        """Write the stream that ends in `response`."""
        for number, payload in enumerate(self._payloads(response)):
            kind = payload["type"]
            yield Event(kind, compact({"type": kind, "sequence_number": number, **payload}))

    @property
    def _status(self) -> str:
        """Of an answer that was cut, only the last item is incomplete."""
        if self.reply.stop in _ENDED:
            return "completed"
        return "failed" if self.reply.stop == "failed" else "incomplete"

    @cached_property
    def _logprobs(self) -> bool:
        return "message.output_text.logprobs" in as_list(self.context.body.get("include"))

    def _usage(self) -> Json:
        """Count the output; an empty answer that ended by itself costs two tokens."""
        said = spent(self.reply) or (2 if self._status == "completed" else 0)
        counted = {
            **self.input_usage,
            "output_tokens": said,
            "output_tokens_details": {"reasoning_tokens": spent(self.reply, Thinking)},
            "total_tokens": self.input_usage["input_tokens"] + said,
        }
        return told_usage(counted, self.reply)

    # -- items

    def _item(self, block: Block, status: str) -> Json:
        match block:
            case Text(text):
                logprobs = token_logprobs(text) if self._logprobs else []
                part: Json = {"type": "output_text", "text": text, "annotations": []}
                return {
                    "id": self.new_id("msg"),
                    "type": "message",
                    "status": status,
                    "role": "assistant",
                    "content": [{**part, "logprobs": logprobs}],
                }
            case Thinking():
                return self._reasoning(block, status)
            case ToolCall():
                return {
                    "id": self.new_id("fc"),
                    "type": "function_call",
                    "status": status,
                    "call_id": block.id or self.new_id("call"),
                    "name": block.name,
                    "arguments": arrived(block),
                }
            case Raw(raw):
                return {**raw, "id": item_id(raw, self.new_id)}

    def _reasoning(self, block: Thinking, status: str) -> Json:
        """Write reasoning; one that was cut before its end has no encrypted content."""
        name, shown = self.new_id("rs"), block.text and shows_reasoning(self.context.body)
        summary = [{"type": "summary_text", "text": block.text}] if shown else []
        item: Json = {"id": name, "type": "reasoning", "status": status, "summary": summary}
        if block.signature == SIGNED:
            item["encrypted_content"] = seal_reasoning(name, self.context.credential, block.text)
        elif block.signature is not None:
            item["encrypted_content"] = block.signature
        return item

    # -- events

    def _payloads(self, response: Json) -> Iterator[Json]:
        begin, background = self.begun(), bool(self.context.body.get("background"))
        first = self.begun("queued") if background else begin
        yield {"type": "response.created", "response": first}
        if background:
            yield {"type": "response.queued", "response": first}
        yield {"type": "response.in_progress", "response": begin}
        for index, item in enumerate(response["output"]):
            place = {"output_index": index}
            yield {"type": "response.output_item.added", **place, "item": _at_start(item)}
            between = _BETWEEN.get(str(item.get("type")))
            if between is not None:
                at = {"item_id": item["id"], **place}
                yield from between(item, _Deltas(at, self.reply.deltas, self._logprobs))
            yield {"type": "response.output_item.done", **place, "item": item}
        yield {"type": f"response.{response['status']}", "response": response}


def token_logprobs(text: str) -> list[Json]:
    """Return made-up probabilities, one for each token of a text."""
    return [
        {"token": piece, "bytes": [*piece.encode()], "logprob": -0.125, "top_logprobs": []}
        for piece in pieces(text, CHARS_PER_TOKEN)
    ]


@dataclass(frozen=True)
class _Deltas:
    """Writes the events within one item: `at` is its place, `size` the characters per delta."""

    at: Json
    size: int | None
    logprobs: bool

    def event(self, kind: str, /, **told: Any) -> Json:
        return {"type": f"response.{kind}", **self.at, **told}

    def pieces(self, kind: str, text: str, /, **told: Any) -> Iterator[Json]:
        """Write a text as deltas."""
        return (self.event(kind, **told, delta=piece) for piece in pieces(text, self.size))


def _at_start(item: Json) -> Json:
    """Return an item as it is announced; its encrypted content is not whole yet."""
    started = _emptied(item, "content", "summary", "arguments", "input")
    if "status" in item:
        started["status"] = "in_progress"
    if "encrypted_content" in item:
        whole = item["encrypted_content"]
        started["encrypted_content"] = whole[: len(whole) // 2]
    return started


def _emptied(value: Json, *names: str) -> Json:
    """Copy an object with nothing yet in those of its members that grow."""
    return {**value, **{name: type(value[name])() for name in names if name in value}}


def _message_events(item: Json, deltas: _Deltas) -> Iterator[Json]:
    for number, part in enumerate(item["content"]):
        here = {"content_index": number}
        empty = _emptied(part, "text", "refusal", "annotations", "logprobs")
        yield deltas.event("content_part.added", **here, part=empty)
        if part["type"] == "refusal":
            yield from deltas.pieces("refusal.delta", part["refusal"], **here)
            yield deltas.event("refusal.done", **here, refusal=part["refusal"])
        else:
            yield from _output_text(part, here, deltas)
        yield deltas.event("content_part.done", **here, part=part)


def _output_text(part: Json, here: Json, deltas: _Deltas) -> Iterator[Json]:
    def told(text: str) -> list[Json]:
        return token_logprobs(text) if deltas.logprobs else []

    for payload in deltas.pieces("output_text.delta", part["text"], **here):
        yield {**payload, "logprobs": told(payload["delta"])}
    for number, annotation in enumerate(part.get("annotations") or []):
        yield deltas.event(
            "output_text.annotation.added", **here, annotation_index=number, annotation=annotation
        )
    text = part["text"]
    yield deltas.event("output_text.done", **here, text=text, logprobs=told(text))


def _reasoning_events(item: Json, deltas: _Deltas) -> Iterator[Json]:
    ended = {"status": "incomplete"} if item.get("status") == "incomplete" else {}
    for number, part in enumerate(item["summary"]):
        here, text = {"summary_index": number}, part["text"]
        empty = {**part, "text": ""}
        yield deltas.event("reasoning_summary_part.added", **here, part=empty)
        yield from deltas.pieces("reasoning_summary_text.delta", text, **here)
        yield deltas.event("reasoning_summary_text.done", **here, text=text)
        yield deltas.event("reasoning_summary_part.done", **here, part=part, **ended)


def _function_call(item: Json, deltas: _Deltas) -> Iterator[Json]:
    arguments = item["arguments"]
    yield from deltas.pieces("function_call_arguments.delta", arguments)
    yield deltas.event("function_call_arguments.done", arguments=arguments)


def _custom_tool_call(item: Json, deltas: _Deltas) -> Iterator[Json]:
    yield from deltas.pieces("custom_tool_call_input.delta", item["input"])
    yield deltas.event("custom_tool_call_input.done", input=item["input"])


def _web_search(_: Json, deltas: _Deltas) -> Iterator[Json]:
    for step in ("in_progress", "searching", "completed"):
        yield deltas.event(f"web_search_call.{step}")


_BETWEEN: dict[str, Callable[[Json, _Deltas], Iterator[Json]]] = {
    "message": _message_events,
    "reasoning": _reasoning_events,
    "function_call": _function_call,
    "custom_tool_call": _custom_tool_call,
    "web_search_call": _web_search,
}
