"""A reply in Chat's shapes: the chunks of a stream, or one completion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from continuation.simulator.anthropic.body import Json
from continuation.simulator.cost import arrived, compact, cost
from continuation.simulator.openai_chat.vendors import Vendor
from continuation.simulator.scenario import Block, Raw, Reply, Text, Thinking, ToolCall
from continuation.simulator.wire import Event

DELTA = 24
"""Characters per delta where the reply does not say."""
CREATED = 1_760_000_000
"""When every answer was made, in Unix time: a test can tell what it will be."""
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
_OBFUSCATION = "cG7vXq2LrT9sYb4KdWm1"
_SAFE = {
    name: {"filtered": False, "severity": "safe"}
    for name in ("hate", "self_harm", "sexual", "violence")
}


@dataclass(frozen=True)
class Envelope:
    """What a reply does not know of the completion it becomes.

    `prefix` is what the vendor echoes before the text; `tells_usage` and `obfuscates` are what the
    request asked for in its `stream_options`.
    """

    id: str
    model: str
    vendor: Vendor
    prompt_tokens: int
    call_ids: Iterator[str]
    choices: int = 1
    prefix: str = ""
    tells_usage: bool = False
    obfuscates: bool = False


def completion(reply: Reply, envelope: Envelope) -> Json:
    """Write the whole completion, as a request without `stream` gets it."""
    shown = _shown(reply, envelope)
    finish = _finish(reply, envelope, streamed=False)
    choices = [
        _choice(n, "message", _message(shown, envelope), finish, envelope)
        for n in range(envelope.choices)
    ]
    filtered = _prompt_filter(envelope)
    head = {**_head("chat.completion", envelope), **filtered, "choices": choices}
    return {**head, "usage": usage(reply, envelope), **reply.extra}


def chunks(reply: Reply, envelope: Envelope) -> Iterator[Event]:
    """Write the stream: role, deltas, finish reason, usage if asked for, and `[DONE]`."""
    vendor = envelope.vendor
    if vendor.name == "azure":
        yield _event(_first_of_azure(envelope))
    for number in range(envelope.choices):
        for delta in _deltas(_shown(reply, envelope), reply.deltas or DELTA, envelope):
            yield _chunk(number, delta, None, envelope)
        if not _ends_unfinished(reply, vendor):
            yield _closing(number, reply, envelope)
    if envelope.tells_usage and not _ends_unfinished(reply, vendor):
        told: Json = {"choices": [], "usage": usage(reply, envelope)}
        yield _event({**_head("chat.completion.chunk", envelope), **told})
    if vendor.sends_done:
        yield DONE


def usage(reply: Reply, envelope: Envelope) -> Json:
    """Count what the completion cost; an echoed prefix belongs to the prompt."""
    spent = sum(map(cost, reply.blocks)) * envelope.choices
    hidden = Thinking if not _withheld(reply, envelope) else (Thinking, Text)
    thought = sum(cost(block) for block in reply.blocks if isinstance(block, hidden))
    counted = {
        "prompt_tokens": envelope.prompt_tokens,
        "completion_tokens": spent,
        "total_tokens": envelope.prompt_tokens + spent,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": thought * envelope.choices,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
        **(reply.usage or {}),
    }
    return {name: value for name, value in counted.items() if value is not None}


# -- what is shown


def _shown(reply: Reply, envelope: Envelope) -> list[Block]:
    """Return the blocks that the vendor sends; the prefix goes before the first text."""
    hides_text = _withheld(reply, envelope)
    blocks: list[Block] = []
    for block in reply.blocks:
        if isinstance(block, Thinking):
            if envelope.vendor.reasoning is not None and block.text:
                blocks.append(block)
        elif not (hides_text and isinstance(block, Text)):
            blocks.append(block)
    return [Text(envelope.prefix), *blocks] if envelope.prefix else blocks


def _withheld(reply: Reply, envelope: Envelope) -> bool:
    return envelope.vendor.withholds and reply.stop in _CUT


def _ends_unfinished(reply: Reply, vendor: Vendor) -> bool:
    overflow = reply.stop == "model_context_window_exceeded"
    cut = vendor.unfinished == "cut" and reply.stop in _CUT
    return cut or (vendor.unfinished == "overflow" and overflow)


def _finish(reply: Reply, envelope: Envelope, *, streamed: bool) -> str:
    vendor = envelope.vendor
    calls = any(isinstance(block, ToolCall) for block in reply.blocks)
    if calls and reply.stop in _CUT and vendor.truncated_tool_call is not None and not streamed:
        return vendor.truncated_tool_call
    if reply.stop == "model_context_window_exceeded":
        return vendor.window_stop
    return _FINISH.get(reply.stop, reply.stop)


# -- one completion


def _message(blocks: list[Block], envelope: Envelope) -> Json:
    texts = [block.text for block in blocks if isinstance(block, Text)]
    calls = [block for block in blocks if isinstance(block, ToolCall)]
    message: Json = {
        "role": "assistant",
        "content": "".join(texts) if texts or not calls else None,
        **_reasoning("".join(b.text for b in blocks if isinstance(b, Thinking)), envelope),
    }
    if envelope.vendor.openai:
        message |= {"refusal": None, "annotations": []}
    if calls:
        message["tool_calls"] = [_call(call, arrived(call), envelope) for call in calls]
    for block in blocks:
        if isinstance(block, Raw):
            message |= dict(block.block)
    return message


def _call(call: ToolCall, arguments: str, envelope: Envelope) -> Json:
    name = call.id or next(envelope.call_ids)
    function = {"name": call.name, "arguments": arguments}
    return {"id": name, "type": "function", "function": function}


def _reasoning(text: str, envelope: Envelope) -> Json:
    name = envelope.vendor.reasoning
    if not text or name is None:
        return {}
    if envelope.vendor.name != "openrouter":
        return {name: text}
    detail = {"type": "reasoning.text", "text": text, "format": "unknown", "index": 0}
    return {name: text, "reasoning_details": [detail]}


# -- a stream


def _deltas(blocks: list[Block], size: int, envelope: Envelope) -> Iterator[Json]:
    """Yield what each chunk adds, the role first."""
    silent = bool(blocks) and all(isinstance(block, ToolCall) for block in blocks)
    first: Json = {"role": "assistant", "content": None if silent else ""}
    yield {**first, "refusal": None} if envelope.vendor.openai else first
    calls = 0
    for block in blocks:
        match block:
            case Text(text):
                yield from ({"content": piece} for piece in _pieces(text, size))
            case Thinking(text):
                yield from (_reasoning(piece, envelope) for piece in _pieces(text, size))
            case ToolCall():
                yield from _call_deltas(calls, block, size, envelope)
                calls += 1
            case Raw(raw):
                yield dict(raw)


def _call_deltas(index: int, call: ToolCall, size: int, envelope: Envelope) -> Iterator[Json]:
    """Yield id and name, then the arguments; some servers wait until they have the whole."""
    arguments = arrived(call)
    at_once = envelope.vendor.whole_calls
    begun = _call(call, arguments if at_once else "", envelope)
    yield {"tool_calls": [{"index": index, **begun}]}
    for piece in () if at_once else _pieces(arguments, size):
        yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


def _chunk(number: int, delta: Json, finish: str | None, envelope: Envelope) -> Event:
    choice = _choice(number, "delta", delta, finish, envelope)
    return _event(_with_extras({"choices": [choice]}, delta, envelope))


def _closing(number: int, reply: Reply, envelope: Envelope) -> Event:
    finish = _finish(reply, envelope, streamed=True)
    choice = _choice(number, "delta", {}, finish, envelope)
    unasked = {"usage": usage(reply, envelope)} if envelope.vendor.usage_unasked else {}
    return _event({**_with_extras({"choices": [choice]}, {}, envelope), **unasked, **reply.extra})


def _with_extras(chunk: Json, delta: Json, envelope: Envelope) -> Json:
    """Put a chunk into its frame, with what OpenAI adds to make its length tell nothing."""
    whole = {**_head("chat.completion.chunk", envelope), **chunk}
    if envelope.tells_usage:
        whole["usage"] = None
    if envelope.obfuscates:
        spoken = len(str(delta.get("content") or ""))
        whole["obfuscation"] = _OBFUSCATION[spoken % len(_OBFUSCATION) :]
    return whole


def _choice(number: int, name: str, said: Json, finish: str | None, envelope: Envelope) -> Json:
    choice: Json = {"index": number, name: said, "logprobs": None, "finish_reason": finish}
    if envelope.vendor.name == "azure":
        choice["content_filter_results"] = _SAFE if said.get("content") else {}
    if envelope.vendor.name == "openrouter":
        choice["native_finish_reason"] = finish
    return choice


def _head(kind: str, envelope: Envelope) -> Json:
    head = {"id": envelope.id, "object": kind, "created": CREATED, "model": envelope.model}
    if envelope.vendor.openai:
        return {**head, "service_tier": "default", "system_fingerprint": "fp_simulator"}
    return {**head, "system_fingerprint": None}


def _prompt_filter(envelope: Envelope) -> Json:
    if envelope.vendor.name != "azure":
        return {}
    filtered = {"prompt_index": 0, "content_filter_results": _SAFE}
    return {"prompt_filter_results": [filtered]}


def _first_of_azure(envelope: Envelope) -> Json:
    """Write the chunk about the prompt, which comes before there is a completion."""
    blank: Json = {"id": "", "object": "", "created": 0, "model": "", "choices": []}
    return {**blank, **_prompt_filter(envelope)}


def _event(data: Json) -> Event:
    return Event(None, compact(data))
