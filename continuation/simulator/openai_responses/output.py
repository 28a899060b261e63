"""A reply in the shapes of the Responses API: output items, usage, and the response around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from continuation.simulator.cost import arrived, cost
from continuation.simulator.model import CHARS_PER_TOKEN
from continuation.simulator.openai_responses.items import conversation_id, item_id
from continuation.simulator.scenario import SIGNED, Block, Raw, Reply, Text, Thinking, ToolCall
from continuation.simulator.wire import Json
from continuation.wire.json_values import as_map

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


@dataclass(frozen=True)
class Envelope:
    """What a reply does not know of the response it becomes.

    `seal` makes encrypted content of an item's id and its reasoning; `new_id` takes a prefix.
    """

    id: str
    created: int
    body: Json
    input_usage: Json
    seal: Callable[[str, str], str]
    new_id: Callable[[str], str]

    @property
    def summarises(self) -> bool:
        """Tell whether the request wants to see a summary of the reasoning."""
        return shows_reasoning(self.body)

    @property
    def logprobs(self) -> bool:
        return "message.output_text.logprobs" in (self.body.get("include") or [])


def shows_reasoning(body: Json) -> bool:
    """Tell whether a request asks for a summary of the reasoning."""
    asked = as_map(body.get("reasoning"))
    return bool(asked.get("summary") or asked.get("generate_summary"))


def whole(reply: Reply, envelope: Envelope) -> Json:
    """Write the finished response."""
    status, reason = ending(reply)
    output = [_item(block, envelope, _status(reply, n)) for n, block in enumerate(reply.blocks)]
    return {
        **begun(envelope),
        "status": status,
        "completed_at": envelope.created if status == "completed" else None,
        "error": _error(reply) if status == "failed" else None,
        "incomplete_details": None if reason is None else {"reason": reason},
        "output": output,
        "usage": _usage(reply, envelope),
        **reply.extra,
    }


def begun(envelope: Envelope, status: str = "in_progress") -> Json:
    """Write the response as it is before anything was said."""
    body, conversation = envelope.body, conversation_id(envelope.body)
    echoed = {k: v if body.get(k) is None else body[k] for k, v in _ECHOED.items()}
    named = {} if conversation is None else {"conversation": {"id": conversation}}
    return {
        "id": envelope.id,
        "object": "response",
        "created_at": envelope.created,
        "status": status,
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "model": body["model"],
        "output": [],
        "usage": None,
        **echoed,
        **named,
    }


def ending(reply: Reply) -> tuple[str, str | None]:
    """Return the status that a stop reason means, and the reason why an answer is incomplete."""
    if reply.stop in _ENDED:
        return "completed", None
    if reply.stop == "failed":
        return "failed", None
    return "incomplete", _REASONS.get(reply.stop, reply.stop)


def _status(reply: Reply, place: int) -> str:
    """Of a cut answer's items, only the last is incomplete."""
    cut = ending(reply)[0] != "completed" and place == len(reply.blocks) - 1
    return "incomplete" if cut else "completed"


def _error(reply: Reply) -> Json:
    code, message = reply.error or ("server_error", "The model failed to generate a response.")
    return {"code": code, "message": message}


# -- items


def _item(block: Block, envelope: Envelope, status: str) -> Json:
    match block:
        case Text(text):
            return _message(text, envelope, status)
        case Thinking():
            return _reasoning(block, envelope, status)
        case ToolCall():
            return _call(block, envelope, status)
        case Raw(raw):
            return {**raw, "id": item_id(raw, envelope.new_id)}


def _message(text: str, envelope: Envelope, status: str) -> Json:
    logprobs = {"logprobs": token_logprobs(text) if envelope.logprobs else []}
    part = {"type": "output_text", "text": text, "annotations": [], **logprobs}
    return {
        "id": envelope.new_id("msg"),
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": [part],
    }


def _reasoning(block: Thinking, envelope: Envelope, status: str) -> Json:
    """Write reasoning; one that was cut before its end has no encrypted content."""
    name = envelope.new_id("rs")
    shown = [{"type": "summary_text", "text": block.text}]
    item: Json = {"id": name, "type": "reasoning", "status": status}
    item["summary"] = shown if block.text and envelope.summarises else []
    if block.signature is not None:
        sealed = envelope.seal(name, block.text) if block.signature == SIGNED else block.signature
        item["encrypted_content"] = sealed
    return item


def _call(call: ToolCall, envelope: Envelope, status: str) -> Json:
    return {
        "id": envelope.new_id("fc"),
        "type": "function_call",
        "status": status,
        "call_id": call.id or envelope.new_id("call"),
        "name": call.name,
        "arguments": arrived(call),
    }


def token_logprobs(text: str) -> list[Json]:
    """Return made-up probabilities, one for each token of a text."""
    pieces = (text[n : n + CHARS_PER_TOKEN] for n in range(0, len(text), CHARS_PER_TOKEN))
    return [
        {"token": piece, "bytes": [*piece.encode()], "logprob": -0.125, "top_logprobs": []}
        for piece in pieces
    ]


# -- usage


def _usage(reply: Reply, envelope: Envelope) -> Json:
    """Count the output; an empty answer that ended by itself costs two tokens."""
    empty = 2 if ending(reply)[0] == "completed" else 0
    spent = sum(map(cost, reply.blocks)) or empty
    thought = sum(cost(block) for block in reply.blocks if isinstance(block, Thinking))
    usage = {
        **envelope.input_usage,
        "output_tokens": spent,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": envelope.input_usage["input_tokens"] + spent,
        **(reply.usage or {}),
    }
    return {name: value for name, value in usage.items() if value is not None}
