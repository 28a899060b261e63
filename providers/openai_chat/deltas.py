"""Deltas and whole messages of Chat Completions split into blocks.

A delta may carry text, reasoning, calls and a vendor's own fields at once; each kind becomes a
block, and what is nobody's travels with the text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, cast

from continuation.answer import blocks as _blocks
from continuation.answer.blocks import TEXT, TOOL_CALL
from continuation.providers.openai_common.vendors import Profile
from continuation.types import Json
from continuation.wire.json_values import as_json, as_list, as_text, dumps, parsed

REFUSAL: Final = "refusal"
ENVELOPE: Final = ("choices", "usage", "obfuscation")
_ROLE = ("role", "refusal", "content", "tool_calls", "function_call")


def beside(chunk: Json) -> Json:
    """Return what stands beside a chunk's choices and is somebody's own."""
    usual = {*ENVELOPE, *_STEADY}
    return {k: v for k, v in chunk.items() if k not in usual and v is not None}


@dataclass(slots=True)
class _Call:
    """One call of the answer: where it stands, and what came of it."""

    index: object
    block: int
    ident: str
    name: str
    arguments: list[str] = field(default_factory=list[str])

    def differs(self, ident: str, name: str) -> bool:
        """Whether a piece under this call's index is the beginning of another call."""
        if ident and self.ident:
            return ident != self.ident
        if self.names_on(name):
            return False
        return bool(name) and (name != self.name or self.whole)

    def names_on(self, name: str) -> bool:
        """Whether a piece that is this call's, if it has no id of its own, has more of its name."""
        return bool(self.ident) and not self.arguments and name not in {"", self.name}

    @property
    def whole(self) -> bool:
        """Whether the arguments so far are a JSON object."""
        ended = bool(self.arguments) and self.arguments[-1].rstrip().endswith("}")
        return ended and isinstance(parsed("".join(self.arguments)), dict)


class Pieces:
    """Splits deltas, and whole messages, into blocks."""

    def __init__(self, profile: Profile, needy: Collection[str]) -> None:
        self._reasoning = (*profile.reasoning, "reasoning_content", "reasoning")
        self._needy = needy
        self._beside: Json = {}
        """What stood beside the chunks so far, as it was told last..."""
        self.due: Json = {}
        """...and what is still to be told of it."""
        self._where = ""
        """What the open block is, "" when none is..."""
        self._open = self._number = 0
        """...and its number."""
        self._calls: dict[object, _Call] = {}
        """By index, or what stands for it."""
        self._last: _Call | None = None
        self._held: dict[object, list[Json]] = {}
        """Pieces of parallel calls, by index, that came while the open one was not whole."""

    def take(
        self, delta: Json, choice: Json | None = None, chunk: Json | None = None
    ) -> Iterator[Json]:
        """Tell one delta: what stands around it with its first piece, what beside it on its own.

        A text that is joined to another gives up all but its words.
        """
        self.due |= {k: v for k, v in beside(chunk or {}).items() if self._beside.get(k) != v}
        for event in self._split(delta):
            if event["type"] == "content_block_delta" and choice:
                event["delta"] = {**as_json(event["delta"]), "choice": choice}
                choice = None
            yield event
        if self.due and self._where not in {"", "thinking"}:  # thoughts are not all shown
            yield _blocks.delta(self._open, "extra_delta", chunk=self.due)
            self._beside |= self.due
            self.due = {}

    def observe(self, event: Json) -> None:
        """Keep what came of a delta that was told without being taken."""
        if self._calls and (piece := as_json(event["delta"]).get("partial_json")):
            call = next(c for c in self._calls.values() if c.block == event["index"])
            call.arguments.append(as_text(piece))

    def close(self) -> Iterator[Json]:
        """End all that was begun."""
        while self._held:
            yield from self._next_held()
        yield from self._stop()

    def _stop(self) -> Iterator[Json]:
        """End the open block; not a call that lacks its arguments, whatever is said to follow."""
        call = self._last
        here = call is not None and call.block == self._open
        lacking = here and call is not None and call.name in self._needy and not call.arguments
        if self._where and not lacking:
            yield _blocks.stop(self._open)
        self._where = ""

    def _split(self, delta: Json) -> Iterator[Json]:
        thoughts = *self._reasoning, "reasoning_details"
        if thought := {k: delta[k] for k in thoughts if delta.get(k)}:
            yield from self._in("thinking", {"type": "thinking"}, loose=True)
            text = next((v for v in thought.values() if isinstance(v, str)), "")
            yield _blocks.delta(self._open, "thinking_delta", thinking=text, native=thought)
        yield from self._speak(delta.get("content"))
        if refusal := as_text(delta.get(REFUSAL)):
            yield from self._in(REFUSAL, {"type": REFUSAL})
            yield _blocks.delta(self._open, "refusal_delta", native={REFUSAL: refusal})
        for item in as_list(delta.get("tool_calls")):
            yield from self._in_turn(as_json(item))
        if legacy := as_json(delta.get("function_call")):
            yield from self._legacy(legacy)
        told = {*_ROLE, *thoughts}
        if native := {k: v for k, v in delta.items() if v is not None and k not in told}:
            if not self._where:
                yield from self._in(TEXT, {"type": TEXT, "text": ""})
            yield _blocks.delta(self._open, "extra_delta", native=native)

    def _speak(self, content: object) -> Iterator[Json]:
        if isinstance(content, str):
            if content:
                yield from self._in(TEXT, {"type": TEXT, "text": ""})
                yield _blocks.delta(self._open, "text_delta", text=content)
            return
        for item in map(as_json, as_list(content)):  # Mistral's reasoning models
            kind = as_text(item.get("type"))
            if kind == TEXT:
                yield from self._speak(as_text(item.get("text")))
            elif kind == "thinking":
                yield from self._in("thinking", {"type": "thinking"}, loose=True)
                yield _blocks.delta(self._open, "thinking_delta", native={"content": [item]})
            else:
                yield from self._in(kind, {"type": kind or "part"})
                yield _blocks.delta(self._open, "part_delta", native={"content": [item]})

    def _in_turn(self, item: Json) -> Iterator[Json]:
        """Tell one call after the other, though some servers mix the pieces of parallel ones.

        A block that is followed by another one gets no more deltas in most formats.
        """
        index = item.get("index")
        if index in self._held:
            self._held[index].append(item)
        elif index is not None and index not in self._calls and self._busy:
            self._held[index] = [item]
        else:
            yield from self._call(item)
            while self._held and not self._busy:
                yield from self._next_held()

    def _next_held(self) -> Iterator[Json]:
        for item in self._held.pop(next(iter(self._held))):
            yield from self._call(item)

    @property
    def _busy(self) -> bool:
        """Whether the open block is a call that is not whole, as far as can be told."""
        call = self._last
        is_open = call is not None and self._where != "" and call.block == self._open
        return is_open and call is not None and not call.whole

    def _call(self, item: Json) -> Iterator[Json]:
        """Join by index. Some servers leave it out, or give every call the same one."""
        own = as_json(item.get("custom")) or as_json(item.get("function"))
        ident, name = as_text(item.get("id")), as_text(own.get("name"))
        index = item.get("index")
        if index is None:
            index = ident or (self._last.index if self._last is not None else 0)
        call = self._calls.get(index)
        if call is None or call.differs(ident, name):
            start = {"type": TOOL_CALL, "id": ident, "name": name, "native": item}
            free = item.get("type") == "custom" or "custom" in item
            yield from self._in(f"call {self._number}", start, free=free)
            call = self._last = self._calls[index] = _Call(index, self._open, ident, name)
        else:
            native = {k: v for k, v in item.items() if k not in _CALL and v is not None}
            if call.names_on(name):
                call.name += name
                native["custom" if "custom" in item else "function"] = {"name": name}
            if ident and not call.ident:
                native["id"] = call.ident = ident
            if native:
                yield _blocks.delta(call.block, "call_delta", native=native)
        yield from self._arguments(call, own.get("input", own.get("arguments")))

    def _legacy(self, said: Json) -> Iterator[Json]:
        call = self._calls.get("legacy")
        if call is None:
            name = as_text(said.get("name"))
            start = {"type": TOOL_CALL, "id": "", "name": name, "native": said, "legacy": True}
            yield from self._in("legacy call", start)
            call = self._last = self._calls["legacy"] = _Call("legacy", self._open, "", name)
        yield from self._arguments(call, said.get("arguments"))

    def _arguments(self, call: _Call, piece: object) -> Iterator[Json]:
        if isinstance(piece, dict):  # Ollama's own form, passed on by some gateways
            piece = dumps(cast("Json", piece)).decode()
        if isinstance(piece, str) and piece:
            call.arguments.append(piece)
            yield _blocks.delta(call.block, "input_json_delta", partial_json=piece)

    def _in(self, where: str, start: dict[str, Any], **traits: bool) -> Iterator[Json]:
        """Be in a block: end the open one if it is another, and begin."""
        if self._where == where:
            return
        yield from self._stop() if start["type"] == TOOL_CALL else self.close()
        self._number += 1
        self._where, self._open = where, self._number
        yield _blocks.start(self._open, start, **traits)


_STEADY = frozenset({"id", "object", "created", "model", "system_fingerprint", "service_tier"})
_CALL = frozenset({"index", "id", "type", "function", "custom"})
"""What of a call's pieces is told otherwise."""
