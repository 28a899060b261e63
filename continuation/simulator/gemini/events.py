"""A reply in Gemini's shapes: one response, or the chunks of a stream."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, cast

from continuation.simulator.anthropic.body import Json, items, mapping
from continuation.simulator.anthropic.events import whole_members
from continuation.simulator.cost import arrived
from continuation.simulator.gemini.body import call_of, text_of
from continuation.simulator.gemini.hops import Portion, Progress
from continuation.simulator.model import tokens
from continuation.simulator.scenario import SIGNED, Block, Raw, Reply, Text, Thinking, ToolCall

PIECE = 24
"""Characters per chunk where the reply does not say."""
_REASONS = {
    "end_turn": "STOP",
    "stop_sequence": "STOP",
    "tool_use": "STOP",
    "max_tokens": "MAX_TOKENS",
    "model_context_window_exceeded": "MAX_TOKENS",
    "refusal": "SAFETY",
}
UNFINISHED = ("MAX_TOKENS", "CONTINUATION")
_MUSING = "Let me think about where this is going."


@dataclass(frozen=True)
class Envelope:
    """What a reply does not know of the response it becomes.

    `sign` makes the signature of a part, `issue` the token of a place in the answer; None where the
    model has neither. `arguments`: those of calls are streamed. `shape`: see `Scenario`.
    """

    id: str
    model: str
    prompt: int
    sign: Callable[[Json], str] | None
    issue: Callable[[Progress], str] | None
    shows_thinking: bool = False
    arguments: bool = False
    candidates: int = 1
    shape: int | None = None
    checkpoint: int | None = None


def reason(stop: str) -> str:
    """Return Gemini's finish reason for a stop reason; a strange word passes as it is."""
    return _REASONS.get(stop, stop)


def response(reply: Reply, portion: Portion, envelope: Envelope) -> Json:
    """Write the whole response, as `generateContent` gives it."""
    listed = [part for block in portion.blocks for part in _whole(block, envelope)]
    parts = _signed(listed, reply, envelope)
    candidate = _content(parts) if parts else _empty(reply, envelope)
    usage = _usage(reply, envelope, portion.thought, portion.said)
    closed = _closed(candidate, reply, portion, envelope)
    return _response(envelope, _candidates(closed, reply, envelope), usage)


def chunks(reply: Reply, portion: Portion, envelope: Envelope) -> Iterator[Json]:
    """Write the stream: one chunk per piece, then one that tells how the answer ended.

    The usage of each chunk is the running total of the stream.
    """
    before, shown = portion.before, ""
    for number, part in enumerate(_pieces(reply, portion, envelope), 1):
        shown += text_of(part)
        said = tokens(shown) if shown else 0
        usage = _usage(reply, envelope, portion.thought, min(said, portion.said))
        candidate = {**_content([part]), "index": 0}
        if envelope.issue and envelope.checkpoint and number % envelope.checkpoint == 0 and shown:
            place = Progress(
                before.thought + portion.thought, before.said + said, 0, before.text + shown
            )
            candidate["continuationToken"] = envelope.issue(place)
        yield _response(envelope, _copies(candidate, envelope.candidates), usage)
    usage = _usage(reply, envelope, portion.thought, portion.said)
    closed = _closed(_closing(reply, portion, envelope), reply, portion, envelope)
    yield _response(envelope, _candidates(closed, reply, envelope), usage)


# -- parts


def _whole(block: Block, envelope: Envelope) -> Iterator[Json]:
    match block:
        case Text(text):
            yield {"text": text}
        case Thinking(text):
            if text and envelope.shows_thinking:
                yield {"text": text, "thought": True}
        case ToolCall():
            yield {"functionCall": _call(block, whole_members(arrived(block)))}
        case Raw(raw):
            yield dict(raw)


def _call(call: ToolCall, args: Json) -> Json:
    named = {"id": call.id} if call.id else {}
    return {**named, "name": call.name, "args": args}


def _pieces(reply: Reply, portion: Portion, envelope: Envelope) -> Iterator[Json]:
    """Cut text into pieces; calls come whole unless their arguments are streamed."""
    size = reply.deltas or PIECE
    first = next((block for block in portion.blocks if isinstance(block, ToolCall)), None)
    for block in portion.blocks:
        for part in _whole(block, envelope):
            if "functionCall" not in part:
                yield from _cut(part, size)
                continue
            signed = _with_signature(part, reply, envelope) if block is first else part
            if envelope.arguments and isinstance(block, ToolCall):
                yield from _call_pieces(block, signed, size)
            else:
                yield signed


def _cut(part: Json, size: int) -> Iterator[Json]:
    text = part.get("text")
    if not isinstance(text, str):
        yield part
        return
    for start in range(0, len(text), size):
        yield {**part, "text": text[start : start + size]}


# -- streamed arguments (Vertex)


def _call_pieces(call: ToolCall, signed: Json, size: int) -> Iterator[Json]:
    """Write a call as its name, pieces of its arguments and an empty end; a cut call has no end.

    What arrived is counted in characters of values, so a cut falls near where it would in JSON.
    """
    named = {key: value for key, value in call_of(signed).items() if key != "args"}
    yield {**signed, "functionCall": {**named, "willContinue": True}}
    left = None if call.cut is None else call.cut
    for argument in _arguments(call, size):
        if left is not None:
            left -= len(str(argument.get("stringValue", ""))) or 1
            if left < 0:
                return
        yield {"functionCall": {"partialArgs": [argument], "willContinue": True}}
    if left is None:
        yield {"functionCall": {}}


def _arguments(call: ToolCall, size: int) -> Iterator[Json]:
    raw = call.arguments
    try:
        value: Any = json.loads(raw) if isinstance(raw, str) else dict(raw)
    except ValueError:
        value = whole_members(arrived(call))
    yield from _values("$", value, size)


def _values(path: str, value: Any, size: int) -> Iterator[Json]:
    if isinstance(value, dict):
        members = mapping(cast("Any", value)).items()
        nested = (_values(f"{path}.{name}", item, size) for name, item in members)
        yield from chain.from_iterable(nested)
    elif isinstance(value, list):
        listed = enumerate(items(value))
        yield from chain.from_iterable(_values(f"{path}[{n}]", item, size) for n, item in listed)
    elif isinstance(value, str):
        yield from _string(path, value, size)
    else:
        yield {"jsonPath": path, **_scalar(value)}


def _string(path: str, text: str, size: int) -> Iterator[Json]:
    for start in range(0, len(text) or 1, size):
        more = {"willContinue": True} if start + size < len(text) else {}
        yield {"jsonPath": path, "stringValue": text[start : start + size], **more}


def _scalar(value: Any) -> Json:
    if value is None:
        return {"nullValue": "NULL_VALUE"}
    return {"boolValue": value} if isinstance(value, bool) else {"numberValue": value}


# -- signatures


def _signed(parts: list[Json], reply: Reply, envelope: Envelope) -> list[Json]:
    """Sign the first call, or else the last part of an answer that ended."""
    calls = [place for place, part in enumerate(parts) if "functionCall" in part]
    if not calls and (envelope.sign is None or reason(reply.stop) != "STOP"):
        return parts
    listed = parts if calls or (parts and not parts[-1].get("thought")) else [*parts, {"text": ""}]
    place = calls[0] if calls else len(listed) - 1
    signed = _with_signature(listed[place], reply, envelope)
    return [*listed[:place], signed, *listed[place + 1 :]]


def _with_signature(part: Json, reply: Reply, envelope: Envelope) -> Json:
    """Sign a part, with what the reply's thinking says; None there leaves it unsigned."""
    given = [block.signature for block in reply.blocks if isinstance(block, Thinking)]
    signature = given[-1] if given else SIGNED
    if envelope.sign is None or signature is None:
        return part
    own = envelope.sign(part) if signature == SIGNED else signature
    return {**part, "thoughtSignature": own}


# -- the end


def _closing(reply: Reply, portion: Portion, envelope: Envelope) -> Json:
    """Write the content of a stream's last chunk: an empty text, signed if the answer is whole."""
    if reason(reply.stop) in UNFINISHED:
        shown = any(not isinstance(block, Thinking) for block in portion.blocks)
        return _empty(reply, envelope, 4 if shown else 3)
    called = any(isinstance(block, ToolCall) for block in portion.blocks)
    return _content([{"text": ""}] if called else _signed([], reply, envelope) or [{"text": ""}])


def _empty(reply: Reply, envelope: Envelope, usual: int = 3) -> Json:
    """Write the content of an answer that shows nothing, in the shape asked for."""
    shape = envelope.shape if reason(reply.stop) in UNFINISHED else None
    match usual if shape in (None, 7, 8) else shape:
        case 1 | 2:
            return {}
        case 4:
            return _content([{"text": ""}])
        case 5:
            return _content([{"text": _MUSING, "thought": True}])
        case 6:
            return _content([_with_signature({"text": ""}, replace(reply, blocks=()), envelope)])
        case _:
            return {"content": {"role": "model"}}


def _content(parts: list[Json]) -> Json:
    return {"content": {"parts": parts, "role": "model"}}


def _closed(candidate: Json, reply: Reply, portion: Portion, envelope: Envelope) -> Json:
    """Add how the answer ended, and the token with which one that is not whole goes on."""
    told = reason(reply.stop)
    ending: Json = {"finishReason": told} if told else {}
    if told in UNFINISHED and envelope.issue is not None:
        ending["continuationToken"] = envelope.issue(portion.progress)
    return {**candidate, **ending, "index": 0, **reply.extra}


def _candidates(candidate: Json, reply: Reply, envelope: Envelope) -> list[Json]:
    """Repeat the candidate as often as asked; shape 1 has none at all, shape 8 one more."""
    shape = envelope.shape if reason(reply.stop) in UNFINISHED else None
    if shape == 1 and "content" not in candidate:
        return []
    if shape == 8:
        other = {**_content([{"text": "Another answer."}]), "finishReason": "STOP", "index": 1}
        return [candidate, other]
    return _copies(candidate, envelope.candidates)


def _copies(candidate: Json, count: int) -> list[Json]:
    return [{**candidate, "index": index} for index in range(count)]


def _usage(reply: Reply, envelope: Envelope, thought: int, said: int) -> Json:
    """Count; `candidatesTokenCount` leaves thinking out, and what is nothing is absent."""
    said *= envelope.candidates
    counted = {
        "promptTokenCount": envelope.prompt,
        "candidatesTokenCount": said or None,
        "thoughtsTokenCount": thought or None,
        "totalTokenCount": envelope.prompt + thought + said,
        **(reply.usage or {}),
    }
    return {name: value for name, value in counted.items() if value is not None}


def _response(envelope: Envelope, candidates: list[Json], usage: Json) -> Json:
    listed: Json = {"candidates": candidates} if candidates else {}
    return {
        **listed,
        "usageMetadata": usage,
        "modelVersion": envelope.model,
        "responseId": envelope.id,
    }
