"""Chat Completions as block events, and block events as Chat Completions.

A delta of a chunk may carry text, reasoning, calls and a vendor's own fields at once; each kind
becomes a block, and what is nobody's travels with the text. Wire facts: API reference "Chat
Completions", the types of openai 3.5x, and the fields that vendors add to them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from continuation.providers import _blocks, _openai_usage, _sse
from continuation.providers._blocks import CALL, TEXT, THINKING, Block, Segment
from continuation.providers._chat_skim import ChatSkim, lone_call_whole
from continuation.providers._chat_writer import ChatWriter, folded
from continuation.providers._form import Reader, Skim, Writer
from continuation.providers._json import as_json, as_list, as_text, dumps, loads, parsed
from continuation.providers._openai_errors import lasting
from continuation.providers._skim import last_object
from continuation.providers._vendors import Profile
from continuation.types import CallState, Ending, Json, Stop, Usage

REFUSAL: Final = "refusal"
_STOPS = {
    "length": Stop.LENGTH,
    # Gateways that pass on what another format calls it.
    "max_tokens": Stop.LENGTH,
    "max_output_tokens": Stop.LENGTH,
    "MAX_TOKENS": Stop.LENGTH,
    "model_context_window_exceeded": Stop.WINDOW,  # Zhipu
    "content_filter": Stop.REFUSED,
    "sensitive": Stop.REFUSED,  # Zhipu
    "refusal": Stop.REFUSED,
    # The server broke off: DeepSeek, SGLang, Zhipu, OpenRouter.
    "insufficient_system_resource": Stop.DROPPED,
    "aborted": Stop.DROPPED,
    "abort": Stop.DROPPED,
    "network_error": Stop.DROPPED,
    "error": Stop.DROPPED,
}
_KNOWN = frozenset({TEXT, CALL}) | THINKING
_ROLE = ("role", "refusal", "content", "tool_calls", "function_call")
_ENVELOPE = ("choices", "usage", "obfuscation")
_REASON = re.compile(rb'"finish_reason"\s*:\s*(?:"([^"\\]*)"|null)')
_CALLS = re.compile(rb'"(?:tool_calls|function_call)"\s*:\s*(?:\[\s*\{|\{)')


class ChatForm:
    """The answers to one Chat request."""

    ended = "stop"
    called = "tool_calls"
    truncated = "length"
    lasting: tuple[str, ...] = ()

    def __init__(
        self, profile: Profile, *, usage_asked: bool, needy: Collection[str] = frozenset()
    ) -> None:
        self._profile = profile
        self._usage_asked = usage_asked
        self._needy = needy
        """Tools that cannot be called without arguments."""

    def reader(self) -> Reader:
        return ChatReader(self._profile, self._needy)

    def identity(self, message: Json) -> str:
        return as_text(message.get("id"))

    def skim(self) -> Skim:
        return ChatSkim()

    def writer(self) -> Writer:
        return ChatWriter(usage_asked=self._usage_asked)

    def explode(self, body: Json) -> Iterator[Json]:
        """Tell a whole completion as the events it would have been streamed as."""
        choices = as_list(body.get("choices"))
        if not choices:
            return
        choice = as_json(choices[0])
        said = as_json(choice.get("message"))
        head = {key: value for key, value in body.items() if key not in _ENVELOPE}
        beside = {k: v for k, v in choice.items() if k not in {"message", "finish_reason"}}
        own = {k: said[k] for k in said if k in {"role", REFUSAL} and said[k] is not None}
        yield _blocks.opening({**head, "choice": beside, "said": own})
        pieces = _Pieces(self._profile, self._needy)
        yield from pieces.take(said)
        yield from pieces.close()
        usage = as_json(body.get("usage"))
        yield _blocks.closing(_reason(choice), usage)
        yield _blocks.ENDED

    def stop_of(self, reason: str | None, *, closed: bool) -> Stop:
        """Read a finish reason; an unknown one is an ordinary end."""
        if reason is None:
            return Stop.END if closed else Stop.DROPPED
        return _STOPS.get(reason, Stop.END)

    def read_usage(self, usage: Json) -> Usage | None:
        return _openai_usage.read(usage, _openai_usage.CHAT)

    def write_usage(self, native: Json, usage: Usage | None) -> Json:
        if usage is None or not native:
            return native
        return _openai_usage.write(native, usage, _openai_usage.CHAT)

    def wire(self, block: Block) -> Json:
        """Return the block as the part of an assistant message it is."""
        return folded([block])

    def carries(self, block: Block, blocks: Sequence[Block]) -> bool:
        return block.kind in _KNOWN

    def knows(self, kind: str) -> bool:
        return kind in _KNOWN

    def quick_body(self, body: bytes | bytearray) -> Ending | None:
        """Calls get a full look: servers label a cut one as finished (vLLM: `tool_calls`)."""
        reasons = {match[1] for match in _REASON.finditer(body)}
        if len(reasons) != 1 or _CALLS.search(body) is not None:
            return None
        reason = (reasons.pop() or b"").decode() or None
        usage = self.read_usage(last_object(body, "usage"))
        return Ending(stop=self.stop_of(reason, closed=True), raw=reason, usage=usage, text=True)

    def quick_calls(self, raw: bytearray, sketch: Segment) -> CallState:
        """Read the calls again, from the first one on: no label proves them whole."""
        if not sketch.calls:
            return CallState.NONE
        found = _CALLS.search(raw)
        if found is not None and len(sketch.calls) == 1 and lone_call_whole(raw, found.start()):
            return CallState.WHOLE
        blank = raw.rfind(b"\n\n", 0, found.start()) if found else -1
        reader, segment = self.reader(), Segment()
        for frame in _sse.frames(raw, blank + 2 if blank >= 0 else 0):
            for event in () if frame.empty else reader.events(frame):
                segment.add(event)
        ended = self.stop_of(sketch.reason, closed=True) is Stop.END
        whole = all(call.whole(ended=ended) for call in segment.calls)
        return CallState.WHOLE if whole else CallState.CUT


class ChatReader:
    """Tells chunks as block events."""

    def __init__(self, profile: Profile, needy: Collection[str] = frozenset()) -> None:
        self._optional = profile.terminal == "optional"
        self._pieces = _Pieces(profile, needy)
        self._opened = self._counted = self._failed = False
        self._ended: str | None = None

    def events(self, frame: _sse.Frame) -> Sequence[Json]:
        if frame.data.strip() == b"[DONE]":
            return self._done()
        try:
            chunk = as_json(loads(frame.data)) if frame.data else {}
        except ValueError:
            chunk = {}
        if chunk.get("error") and not (frame.name and frame.name != "error"):
            # An error in place of an answer is as final as it would be under its own status.
            self._failed = not self._opened and lasting(as_json(chunk["error"]))
            return [] if self._failed else [{"type": "error", "error": _error(chunk["error"])}]
        return list(self._chunk(chunk))

    def eof(self) -> Sequence[Json]:
        """Some servers never say why they end (a profile's `terminal`); that is no drop there."""
        if self._ended or (self._optional and self._opened):
            return [*self._pieces.close(), _blocks.ENDED]
        return ()

    def _done(self) -> Sequence[Json]:
        # Without a reason and without a count nobody said that the answer is whole.
        if self._ended or self._counted or (self._optional and not self._failed):
            return [*self._pieces.close(), _blocks.ENDED]
        return ()

    def _chunk(self, chunk: Json) -> Iterator[Json]:
        choices = as_list(chunk.get("choices"))
        choice = as_json(choices[0]) if choices else {}
        if choices and not self._opened:
            self._opened = True
            head = {k: v for k, v in chunk.items() if k not in _ENVELOPE}
            if "usage" in chunk and chunk["usage"] is None:
                head["usage"] = None
            yield _blocks.opening({**head, "logprobs": "logprobs" in choice})
        reason = _reason(choice)
        if reason == "stop":  # the word of a gateway that closes what has ended already
            reason = self._ended or reason
        usage = as_json(chunk.get("usage"))
        if chunk and not (choices or usage or self._opened):
            yield {"type": "preface", "chunk": chunk}  # Azure's, of the prompt
        if usage:
            self._counted = True
            if reason is None:  # before the text, so that text is the last word of its chunk
                yield {"type": "message_delta", "delta": {}, "usage": usage}
        if choices:
            yield from self._pieces.take(as_json(choice.get("delta")), around(choice), chunk)
        if reason is not None:
            self._ended = reason
            yield from self._pieces.close()
            more = {"choice": around(choice), "chunk": beside(chunk)}
            inline = {"inline": True} if usage else {}
            kept = {key: value for key, value in more.items() if value}
            yield _blocks.closing(reason, usage, **kept, **inline)


def _reason(choice: Json) -> str | None:
    """Return why a choice ends; some servers say "" or "null" until it does."""
    reason = as_text(choice.get("finish_reason"))
    return reason if reason not in {"", "null"} else None


def around(choice: Json) -> Json:
    """Return what stands beside a choice's delta and is somebody's own."""
    usual = {"index", "delta", "finish_reason"}
    return {k: v for k, v in choice.items() if k not in usual and v is not None}


def beside(chunk: Json) -> Json:
    """Return what stands beside a chunk's choices and is somebody's own."""
    usual = {*_ENVELOPE, *_STEADY}
    return {k: v for k, v in chunk.items() if k not in usual and v is not None}


def _error(error: object) -> Json:
    """Some servers say it in an object, some in a string."""
    given = as_json(error)
    kind = given.get("type") or given.get("code") or "error"
    return {**given, "type": str(kind)}


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
        if self.names_on(ident, name):
            return False
        return bool(name) and (name != self.name or self._whole)

    def names_on(self, ident: str, name: str) -> bool:
        """Whether a piece is the rest of this call's name."""
        bare = bool(self.ident) and not ident and not self.arguments
        return bare and name not in {"", self.name}

    @property
    def _whole(self) -> bool:
        ended = bool(self.arguments) and self.arguments[-1].rstrip().endswith("}")
        return ended and isinstance(parsed("".join(self.arguments)), dict)


class _Pieces:
    """Splits deltas, and whole messages, into blocks."""

    def __init__(self, profile: Profile, needy: Collection[str]) -> None:
        self._reasoning = (*profile.reasoning, "reasoning_content", "reasoning")
        self._needy = needy
        self._beside: Json = {}
        """What stood beside the chunks so far, as it was told last."""
        self._where = ""
        """What the open block is, "" when none is..."""
        self._open = self._number = 0
        """...and its number."""
        self._calls: dict[object, _Call] = {}
        """By index, or what stands for it."""
        self._last: _Call | None = None

    def take(
        self, delta: Json, choice: Json | None = None, chunk: Json | None = None
    ) -> Iterator[Json]:
        """Tell one delta; what stands around it goes with its first piece."""
        new = {k: v for k, v in beside(chunk or {}).items() if self._beside.get(k) != v}
        more = {key: said for key, said in (("choice", choice), ("chunk", new)) if said}
        for event in self._split(delta):
            if event["type"] == "content_block_delta" and more:
                event["delta"] = {**as_json(event["delta"]), **more}
                self._beside |= new
                more = {}
            yield event

    def close(self) -> Iterator[Json]:
        """End the open block; not a call that lacks its arguments, whatever is said to follow."""
        if self._where and not self._lacking():
            yield _blocks.stop(self._open)
        self._where = ""

    def _lacking(self) -> bool:
        call = self._last
        return (
            call is not None
            and call.block == self._open
            and call.name in self._needy
            and not call.arguments
        )

    def _split(self, delta: Json) -> Iterator[Json]:
        yield from self._think(delta)
        yield from self._speak(delta.get("content"))
        if refusal := as_text(delta.get(REFUSAL)):
            yield from self._in(REFUSAL, {"type": REFUSAL})
            yield _blocks.delta(self._open, "refusal_delta", native={REFUSAL: refusal})
        for item in as_list(delta.get("tool_calls")):
            yield from self._call(as_json(item))
        if legacy := as_json(delta.get("function_call")):
            yield from self._legacy(legacy)
        native = {k: v for k, v in delta.items() if self._extra(k) and v is not None}
        if native:
            if not self._where:
                yield from self._in(TEXT, {"type": TEXT, "text": ""})
            yield _blocks.delta(self._open, "extra_delta", native=native)

    def _extra(self, key: str) -> bool:
        return key not in _ROLE and key not in self._reasoning and key != "reasoning_details"

    def _think(self, delta: Json) -> Iterator[Json]:
        native = {k: delta[k] for k in (*self._reasoning, "reasoning_details") if delta.get(k)}
        if native:
            yield from self._in("thinking", {"type": "thinking"}, loose=True)
            text = next((v for v in native.values() if isinstance(v, str)), "")
            yield _blocks.delta(self._open, "thinking_delta", thinking=text, native=native)

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

    def _call(self, item: Json) -> Iterator[Json]:
        """Join by index. Some servers leave it out, or give every call the same one."""
        own = as_json(item.get("custom")) or as_json(item.get("function"))
        ident, name = as_text(item.get("id")), as_text(own.get("name"))
        index = item.get("index")
        if index is None:
            index = ident or (self._last.index if self._last is not None else 0)
        call = self._calls.get(index)
        if call is None or call.differs(ident, name):
            start = {"type": CALL, "id": ident, "name": name, "native": item}
            free = item.get("type") == "custom" or "custom" in item
            yield from self._in(f"call {self._number}", start, free=free)
            call = self._last = self._calls[index] = _Call(index, self._open, ident, name)
        else:
            native = {k: v for k, v in item.items() if k not in _CALL and v is not None}
            if call.names_on(ident, name):
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
            start = {"type": CALL, "id": "", "name": name, "native": said, "legacy": True}
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
        yield from self.close()
        self._number += 1
        self._where, self._open = where, self._number
        yield _blocks.start(self._open, start, **traits)


_STEADY = frozenset({"id", "object", "created", "model", "system_fingerprint", "service_tier"})
_CALL = frozenset({"index", "id", "type", "function", "custom"})
"""What of a call's pieces is told otherwise."""
