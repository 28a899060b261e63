"""Writes a reply in Gemini's format: one response, or the chunks of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any

from continuation.simulator.common import arrived, pieces, usage_of, whole_members
from continuation.simulator.gemini.hops import Portion, Progress
from continuation.simulator.gemini.request import GeminiContext, call_of, sign, text_of
from continuation.simulator.model import tokens
from continuation.simulator.scenario import SIGNED, Block, Raw, Reply, Text, Thinking, ToolUse
from continuation.simulator.wire import Json
from continuation.wire.json_values import is_list, is_map

_REASONS = {
    "end_turn": "STOP",
    "stop_sequence": "STOP",
    "tool_use": "STOP",
    "max_tokens": "MAX_TOKENS",
    "model_context_window_exceeded": "MAX_TOKENS",
    "refusal": "SAFETY",
}
"""Anthropic's stop reason -> Gemini's finish reason. An unknown reason is sent unchanged."""
_UNFINISHED = ("MAX_TOKENS", "CONTINUATION")
_THOUGHT = "Let me think about where this is going."


class GeminiReplyWriter:
    """Writes a reply. `portion` is the share of its blocks for this request."""

    def __init__(self, context: GeminiContext, reply: Reply, portion: Portion, name: str) -> None:
        self._context, self._reply, self._portion, self._id = context, reply, portion, name
        self._reason = _REASONS.get(reply.stop, reply.stop)
        self._unfinished = self._reason in _UNFINISHED
        # The scenario chooses the shape of a truncated answer.
        self._shape = context.scenario.empty_shape if self._unfinished else None

    def response(self) -> Json:
        parts = self._signed([part for b in self._portion.blocks for part in self._whole(b)])
        return self._closing(_content(*parts) if parts else self._empty())

    def chunks(self) -> Iterator[Json]:
        """Yield the stream: one chunk for each piece, then one with the end of the answer.

        The usage of each chunk is the total of the stream so far. The content of the last chunk is
        an empty text, which is signed if the answer is complete.
        """
        portion, before, shown = self._portion, self._portion.before, ""
        checkpoint = self._context.scenario.checkpoint if self._context.hops else None
        for number, part in enumerate(self._pieces(), 1):
            shown += text_of(part)
            output = tokens(shown) if shown else 0
            candidate = {**_content(part), "index": 0}
            if checkpoint and number % checkpoint == 0 and shown:
                thought = before.thought + portion.thought
                progress = Progress(thought, before.output + output, 0, before.text + shown)
                candidate["continuationToken"] = self._context.issue(progress)
            yield self._response(self._copies(candidate), min(output, portion.output))
        if self._unfinished:
            thoughts = all(isinstance(block, Thinking) for block in portion.blocks)
            closing = self._empty(3 if thoughts else 4)
        elif any(isinstance(block, ToolUse) for block in portion.blocks):
            closing = _content({"text": ""})
        else:
            closing = _content(*self._signed([]) or [{"text": ""}])
        yield self._closing(closing)

    # -- parts

    def _whole(self, block: Block) -> Iterator[Json]:
        match block:
            case Text(text):
                yield {"text": text}
            case Thinking(text):
                if text and self._context.shows_thinking:
                    yield {"text": text, "thought": True}
            case ToolUse(name, id=call_id):
                # A truncated call is dropped, unless arguments are streamed.
                if block.cut is None or self._context.streams_arguments:
                    named = {"id": call_id} if call_id else {}
                    args = whole_members(arrived(block))
                    yield {"functionCall": {**named, "name": name, "args": args}}
            case Raw(raw):
                yield dict(raw)

    def _pieces(self) -> Iterator[Json]:
        """Yield text in pieces. Each call is one part, unless its arguments are streamed."""
        calls = [block for block in self._portion.blocks if isinstance(block, ToolUse)]
        for block in self._portion.blocks:
            for part in self._whole(block):
                text = part.get("text")
                if isinstance(text, str):
                    for piece in pieces(text, self._reply.deltas):
                        yield {**part, "text": piece}
                elif isinstance(block, ToolUse):
                    signed = self._with_signature(part) if block is calls[0] else part
                    streamed = self._context.streams_arguments
                    yield from self._call_pieces(block, signed) if streamed else [signed]
                else:
                    yield part

    def _call_pieces(self, call: ToolUse, signed: Json) -> Iterator[Json]:
        """Yield a call as its name, pieces of its arguments and an empty end (only on Vertex).

        A truncated call has no end. Its `cut` counts characters of values, so the truncation is
        near the place where it would be in JSON.
        """
        named = {key: value for key, value in call_of(signed).items() if key != "args"}
        yield {**signed, "functionCall": {**named, "willContinue": True}}
        left = call.cut
        try:
            raw = call.arguments
            value: Any = json.loads(raw) if isinstance(raw, str) else dict(raw)
        except ValueError:
            value = whole_members(arrived(call))
        for argument in _values("$", value, self._reply.deltas):
            if left is not None:
                left -= len(str(argument.get("stringValue", ""))) or 1
                if left < 0:
                    return
            yield {"functionCall": {"partialArgs": [argument], "willContinue": True}}
        if left is None:
            yield {"functionCall": {}}

    # -- signatures

    def _signed(self, parts: list[Json]) -> list[Json]:
        """Sign the first call, or if there is none the last part of an answer with a normal end."""
        calls = [index for index, part in enumerate(parts) if "functionCall" in part]
        if not calls and (self._context.generation < 3 or self._reason != "STOP"):
            return parts
        visible = bool(parts) and not parts[-1].get("thought")
        listed = parts if calls or visible else [*parts, {"text": ""}]
        index = calls[0] if calls else len(listed) - 1
        return [*listed[:index], self._with_signature(listed[index]), *listed[index + 1 :]]

    def _with_signature(self, part: Json) -> Json:
        """Return a part with the thinking's signature; without one if the thinking has none."""
        scripted = [block.signature for block in self._reply.blocks if isinstance(block, Thinking)]
        signature = scripted[-1] if scripted else SIGNED
        if self._context.generation < 3 or signature is None:
            return part
        own = sign(part, vertex=self._context.vertex)
        return {**part, "thoughtSignature": own if signature == SIGNED else signature}

    # -- the end

    def _empty(self, usual: int = 3) -> Json:
        """Return the content of an answer without text, in the scenario's or the usual shape."""
        match usual if self._shape in (None, 7, 8) else self._shape:
            case 1 | 2:
                return {}
            case 4:
                return _content({"text": ""})
            case 5:
                return _content({"text": _THOUGHT, "thought": True})
            case 6:
                made = sign({"text": ""}, vertex=self._context.vertex)
                return _content({"text": "", "thoughtSignature": made})
            case _:
                return {"content": {"role": "model"}}

    def _closing(self, content: Json) -> Json:
        """Return the end of an answer, with a continuation token if it is incomplete.

        Shape 1 has no candidate, and shape 8 has another candidate.
        """
        ending: Json = {"finishReason": self._reason} if self._reason else {}
        if self._unfinished and self._context.hops:
            ending["continuationToken"] = self._context.issue(self._portion.progress)
        candidate = {**content, **ending, "index": 0, **self._reply.extra}
        listed = self._copies(candidate)
        if self._shape == 1 and "content" not in candidate:
            listed = []
        if self._shape == 8:
            other = {**_content({"text": "Another answer."}), "finishReason": "STOP", "index": 1}
            listed = [candidate, other]
        return self._response(listed, self._portion.output)

    def _copies(self, candidate: Json) -> list[Json]:
        return [{**candidate, "index": index} for index in range(self._context.candidates)]

    def _response(self, candidates: list[Json], output: int) -> Json:
        """Return one response. It has no counts of 0."""
        prompt = self._context.input_tokens + self._portion.before.spent
        output, thought = output * self._context.candidates, self._portion.thought
        counted = {
            "promptTokenCount": prompt,
            "candidatesTokenCount": output or None,
            "thoughtsTokenCount": thought or None,
            "totalTokenCount": prompt + thought + output,
        }
        return {
            **({"candidates": candidates} if candidates else {}),
            "usageMetadata": usage_of(counted, self._reply),
            "modelVersion": self._context.name,
            "responseId": self._id,
        }


def _content(*parts: Json) -> Json:
    return {"content": {"parts": list(parts), "role": "model"}}


def _values(path: str, value: Any, size: int | None) -> Iterator[Json]:
    """Yield the pieces of a call's arguments, each with its JSON path."""
    if is_map(value):
        nested = (_values(f"{path}.{name}", item, size) for name, item in value.items())
        yield from chain.from_iterable(nested)
    elif is_list(value):
        listed = enumerate(value)
        yield from chain.from_iterable(_values(f"{path}[{n}]", item, size) for n, item in listed)
    elif isinstance(value, str):
        *begun, last = [*pieces(value, size)] or [""]
        for piece in begun:
            yield {"jsonPath": path, "stringValue": piece, "willContinue": True}
        yield {"jsonPath": path, "stringValue": last}
    elif value is None:
        yield {"jsonPath": path, "nullValue": "NULL_VALUE"}
    else:
        kind = "boolValue" if isinstance(value, bool) else "numberValue"
        yield {"jsonPath": path, kind: value}
