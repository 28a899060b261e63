"""Writes a reply in Responses' format: output items, the response, and the events of a stream.

The numbers of events have no gaps. No `[DONE]` follows them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from continuation.simulator.common import arrived, compact, pieces, spent, usage_of
from continuation.simulator.openai_responses.request import ResponsesContext, input_tokens, item_id
from continuation.simulator.openai_responses.store import seal_reasoning
from continuation.simulator.scenario import SIGNED, Block, Raw, Reply, Text, Thinking, ToolUse
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
    reasoning = mapping(body.get("reasoning"))
    return bool(reasoning.get("summary") or reasoning.get("generate_summary"))


class ResponsesReplyWriter:
    """Writes a reply."""

    def __init__(
        self, context: ResponsesContext, reply: Reply, new_id: Callable[[str], str]
    ) -> None:
        self._context, self._reply = context, reply
        self._id, self._created, self._new_id = new_id("resp"), int(time.time()), new_id
        tools = map(mapping, as_list(context.body.get("tools")))
        self._freeform = {tool.get("name") for tool in tools if tool.get("type") == "custom"}

    def response(self) -> Json:
        """Return the finished response. If it is incomplete, its last item is incomplete, too."""
        reply, status = self._reply, "incomplete"
        if reply.stop in _ENDED:
            status = "completed"
        elif reply.stop == "failed":
            status = "failed"
        code, message = reply.error or ("server_error", "The model failed to generate a response.")
        last, output = len(reply.blocks) - 1, list[Json]()
        for n, block in enumerate(reply.blocks):
            whole = status == "completed" or n < last
            output.append(self._item(block, "completed" if whole else "incomplete"))
        # An empty answer with a normal end costs two tokens.
        output_tokens = spent(reply) or (2 if status == "completed" else 0)
        prompt_tokens = input_tokens(self._context)
        counted = {
            "input_tokens": prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": output_tokens,
            "output_tokens_details": {"reasoning_tokens": spent(reply, Thinking)},
            "total_tokens": prompt_tokens + output_tokens,
        }
        written = {**self.begun(status), "output": output, "usage": usage_of(counted, reply)}
        if status == "completed":
            written["completed_at"] = self._created
        elif status == "failed":
            written["error"] = {"code": code, "message": message}
        else:
            written["incomplete_details"] = {"reason": _REASONS.get(reply.stop, reply.stop)}
        return {**written, **reply.extra}

    def begun(self, status: str) -> Json:
        """Return the response without output and usage."""
        body = self._context.body
        echoed = {k: v if body.get(k) is None else body[k] for k, v in _ECHOED.items()}
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            "model": body.get("model"),
            "output": [],
            "usage": None,
            **echoed,
        }

    def _item(self, block: Block, status: str) -> Json:
        match block:
            case Text(text):
                part: Json = {"type": "output_text", "text": text, "annotations": []}
                return {
                    "id": self._new_id("msg"),
                    "type": "message",
                    "status": status,
                    "role": "assistant",
                    "content": [{**part, "logprobs": []}],
                }
            case Thinking(text, signature):
                name, shown = self._new_id("rs"), text and shows_reasoning(self._context.body)
                summary = [{"type": "summary_text", "text": text}] if shown else []
                item: Json = {"id": name, "type": "reasoning", "status": status, "summary": summary}
                if signature == SIGNED:
                    signature = seal_reasoning(name, self._context.credential, text)
                # Truncated reasoning has no encrypted content.
                return item if signature is None else {**item, "encrypted_content": signature}
            case ToolUse():
                free = block.name in self._freeform
                return {
                    "id": self._new_id("ctc" if free else "fc"),
                    "type": "custom_tool_call" if free else "function_call",
                    "status": status,
                    "call_id": block.id or self._new_id("call"),
                    "name": block.name,
                    "input" if free else "arguments": arrived(block),
                }
            case Raw(raw):
                return {**raw, "id": item_id(raw, self._new_id)}

    # -- events

    def events(self, response: Json) -> Iterator[Event]:
        for number, payload in enumerate(self._payloads(response)):
            kind = payload["type"]
            yield Event(kind, compact({"type": kind, "sequence_number": number, **payload}))

    def _payloads(self, response: Json) -> Iterator[Json]:
        begun = self.begun("in_progress")
        yield {"type": "response.created", "response": begun}
        yield {"type": "response.in_progress", "response": begun}
        for index, item in enumerate(response["output"]):
            position = {"output_index": index}
            started = _emptied(item, "content", "summary", "arguments", "input")
            if "status" in item:
                started["status"] = "in_progress"
            if "encrypted_content" in item:  # OpenAI's is incomplete at the start, too
                whole = item["encrypted_content"]
                started["encrypted_content"] = whole[: len(whole) // 2]
            yield {"type": "response.output_item.added", **position, "item": started}
            for kind, fields in self._within(item):
                yield {"type": f"response.{kind}", "item_id": item["id"], **position, **fields}
            yield {"type": "response.output_item.done", **position, "item": item}
        yield {"type": f"response.{response['status']}", "response": response}

    def _within(self, item: Json) -> Iterator[tuple[str, Json]]:
        """Yield the events between an item's start and its end, each as its kind and its fields."""
        match kind := item.get("type"):
            case "message":
                for number, part in enumerate(item["content"]):
                    here = {"content_index": number}
                    empty = _emptied(part, "text", "refusal", "annotations", "logprobs")
                    yield "content_part.added", {**here, "part": empty}
                    for name, fields in self._within_part(part):
                        yield name, {**here, **fields}
                    yield "content_part.done", {**here, "part": part}
            case "reasoning":
                ended = {"status": "incomplete"} if item.get("status") == "incomplete" else {}
                for number, part in enumerate(item["summary"]):
                    here, text = {"summary_index": number}, part["text"]
                    yield "reasoning_summary_part.added", {**here, "part": {**part, "text": ""}}
                    yield from self._deltas("reasoning_summary_text", text, here)
                    yield "reasoning_summary_text.done", {**here, "text": text}
                    yield "reasoning_summary_part.done", {**here, "part": part, **ended}
            case "function_call" | "custom_tool_call":
                name = "arguments" if kind == "function_call" else "input"
                yield from self._deltas(f"{kind}_{name}", item[name], {})
                yield f"{kind}_{name}.done", {name: item[name]}
            case "web_search_call":
                for step in ("in_progress", "searching", "completed"):
                    yield f"web_search_call.{step}", {}
            case _:
                pass  # other items have no events between their start and their end

    def _within_part(self, part: Json) -> Iterator[tuple[str, Json]]:
        """Yield the events between the start and the end of a part of a message."""
        if part["type"] == "refusal":
            yield from self._deltas("refusal", part["refusal"], {})
            yield "refusal.done", {"refusal": part["refusal"]}
            return
        text = part["text"]
        for kind, delta in self._deltas("output_text", text, {}):
            yield kind, {**delta, "logprobs": []}
        for number, annotation in enumerate(part.get("annotations") or []):
            fields = {"annotation_index": number, "annotation": annotation}
            yield "output_text.annotation.added", fields
        yield "output_text.done", {"text": text, "logprobs": []}

    def _deltas(self, kind: str, text: str, here: Json) -> Iterator[tuple[str, Json]]:
        return (
            (f"{kind}.delta", {**here, "delta": delta})
            for delta in pieces(text, self._reply.deltas)
        )


def _emptied(value: Json, *names: str) -> Json:
    """Return a copy of an object with the named members empty."""
    return {**value, **{name: type(value[name])() for name in names if name in value}}
