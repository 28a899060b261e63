"""Chat Completions as block events, and block events as Chat Completions.

How a delta becomes blocks is in `deltas.py`. Wire facts: API reference "Chat Completions",
the types of openai 3.5x, and the fields that vendors add to them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from continuation.answer import blocks as _blocks
from continuation.answer.blocks import Block, Segment
from continuation.answer.wire_codec import FastPath, Reader, WireCodec, Writer
from continuation.providers.openai_chat.deltas import ENVELOPE, REFUSAL, Pieces, beside
from continuation.providers.openai_chat.fast_path import ChatPath, lone_call_whole
from continuation.providers.openai_chat.writer import DONE, ChatWriter, folded
from continuation.providers.openai_common.errors import lasting
from continuation.providers.openai_common.usage import CHAT
from continuation.providers.openai_common.vendors import Profile
from continuation.types import AttemptResult, Json, Stop, ToolCallState, Usage
from continuation.wire import sse as _sse
from continuation.wire.json_values import as_json, as_list, as_text, loads
from continuation.wire.text_template import PADDING, PlainEvents

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
_REASON = re.compile(rb'"finish_reason"\s*:\s*(?:"([^"\\]*)"|null)')
_CALLS = re.compile(rb'"(?:tool_calls|function_call)"\s*:\s*(?:\[\s*\{|\{)')


class ChatCodec(WireCodec):
    """The answers to one Chat request."""

    ended = "stop"
    called = "tool_calls"
    truncated = "length"
    stops = _STOPS
    last = DONE

    def __init__(
        self, profile: Profile, *, usage_asked: bool, needy: Collection[str] = frozenset()
    ) -> None:
        self._profile = profile
        self._usage_asked = usage_asked
        self._needy = needy
        """Tools that cannot be called without arguments."""

    def reader(self) -> Reader:
        return ChatReader(self._profile, self._needy)

    def fast_path(self) -> FastPath:
        return ChatPath()

    def writer(self) -> Writer:
        return ChatWriter(usage_asked=self._usage_asked)

    def to_events(self, body: Json) -> Iterator[Json]:
        """Tell a whole completion as the events it would have been streamed as."""
        choices = as_list(body.get("choices"))
        if not choices:
            return
        choice = as_json(choices[0])
        said = as_json(choice.get("message"))
        head = {key: value for key, value in body.items() if key not in ENVELOPE}
        beside = {k: v for k, v in choice.items() if k not in {"message", "finish_reason"}}
        own = {k: said[k] for k in said if k in {"role", REFUSAL} and said[k] is not None}
        yield _blocks.opening({**head, "choice": beside, "said": own})
        pieces = Pieces(self._profile, self._needy)
        yield from pieces.take(said)
        yield from pieces.close()
        usage = as_json(body.get("usage"))
        yield _blocks.closing(_reason(choice) if len(choices) == 1 else self.ended, usage)
        yield _blocks.ENDED

    def read_usage(self, usage: Json) -> Usage | None:
        return CHAT.read(usage)

    def write_usage(self, native: Json, usage: Usage | None) -> Json:
        return CHAT.write(native, usage) if native else native

    def wire(self, block: Block) -> Json:
        """Return the block as the part of an assistant message it is."""
        return folded([block])

    def quick_body(self, body: bytes | bytearray) -> AttemptResult | None:
        """Calls get a full look: servers label a cut one as finished (vLLM: `tool_calls`)."""
        reasons = {match[1] for match in _REASON.finditer(body)}
        if len(reasons) != 1 or _CALLS.search(body) is not None:
            return None
        return self.quick_result(body, (reasons.pop() or b"").decode() or None)

    def quick_calls(self, raw: bytearray, sketch: Segment) -> ToolCallState:
        """Read the calls again, from the first one on: no label proves them whole."""
        if not sketch.calls:
            return ToolCallState.NONE
        found = _CALLS.search(raw)
        if found is not None and len(sketch.calls) == 1 and lone_call_whole(raw, found.start()):
            return ToolCallState.WHOLE
        blank = raw.rfind(b"\n\n", 0, found.start()) if found else -1
        reader, segment = self.reader(), Segment()
        for frame in _sse.frames(raw, blank + 2 if blank >= 0 else 0):
            for event in () if frame.empty else reader.events(frame):
                segment.add(event)
        ended = self.stop_of(sketch.reason, closed=True) is Stop.END
        whole = all(call.whole(ended=ended) for call in segment.calls)
        return ToolCallState.WHOLE if whole else ToolCallState.CUT


class ChatReader:
    """Tells chunks as block events."""

    def __init__(self, profile: Profile, needy: Collection[str] = frozenset()) -> None:
        self._optional = profile.terminal == "optional"
        self._pieces = Pieces(profile, needy)
        self._opened = self._counted = self._failed = False
        self._ended: str | None = None
        self._choices = set[object]()
        self._plain = PlainEvents(_string, {"obfuscation": PADDING})

    def events(self, frame: _sse.Frame) -> Sequence[Json]:
        if (event := self._plain.match(frame)) is not None:
            self._pieces.observe(event)
            return (event,)
        told = list(self._told(frame))
        self._plain.learn(frame, told)
        return told

    def _told(self, frame: _sse.Frame) -> Iterator[Json]:
        if frame.data.strip() == b"[DONE]":
            # Without a reason and without a count nobody said that the answer is whole.
            if self._ended or self._counted or (self._optional and not self._failed):
                yield from (*self._pieces.close(), _blocks.ENDED)
            return
        try:
            chunk = as_json(loads(frame.data)) if frame.data else {}
        except ValueError:
            chunk = {}
        if (error := chunk.get("error")) and frame.name in {"", "error"}:
            # An error in place of an answer is as final as it would be under its own status.
            given = as_json(error)  # some servers say it in an object, some in a string
            self._failed = not self._opened and lasting(given)
            if not self._failed:
                kind = str(given.get("type") or given.get("code") or "error")
                yield {"type": "error", "error": {**given, "type": kind}}
            return
        yield from self._chunk(chunk)

    def eof(self) -> Sequence[Json]:
        """Some servers never say why they end (a profile's `terminal`); that is no drop there."""
        if self._ended or (self._optional and self._opened):
            return [*self._pieces.close(), _blocks.ENDED]
        return ()

    def _chunk(self, chunk: Json) -> Iterator[Json]:
        choices = as_list(chunk.get("choices"))
        choice = as_json(choices[0]) if choices else {}
        if choices and not self._opened:
            self._opened = True
            head = {k: v for k, v in chunk.items() if k not in ENVELOPE}
            if "usage" in chunk and chunk["usage"] is None:
                head["usage"] = None
            yield _blocks.opening({**head, "logprobs": "logprobs" in choice})
        reason = _reason(choice)
        if reason == "stop":  # the word of a gateway that closes what has ended already
            reason = self._ended or reason
        self._choices |= {as_json(one).get("index") or 0 for one in choices}
        if reason and len(self._choices) > 1:
            reason = "stop"  # several answers nobody asked for: none of them can be gone on with
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
            more = {"choice": around(choice), "chunk": {**self._pieces.due, **beside(chunk)}}
            inline = {"inline": True} if usage else {}
            kept = {key: value for key, value in more.items() if value}
            yield _blocks.closing(reason, usage, **kept, **inline)


def _string(chunk: Json) -> object:
    """Return what `Pieces` takes for a chunk's text, or for more of a call's arguments.

    Not beside a name: whether that begins another call depends on the arguments so far.
    """
    delta = as_json(as_list(chunk["choices"])[0]["delta"])
    if not delta.get("tool_calls"):
        return delta["content"]
    (call,) = as_list(delta["tool_calls"])
    own = call["function"]
    usual = "custom" not in call and "input" not in own and not own.get("name")
    return own["arguments"] if usual else None


def _reason(choice: Json) -> str | None:
    """Return why a choice ends; some servers say "" or "null" until it does."""
    reason = as_text(choice.get("finish_reason"))
    return reason if reason not in {"", "null"} else None


def around(choice: Json) -> Json:
    """Return what stands beside a choice's delta and is somebody's own."""
    usual = {"index", "delta", "finish_reason"}
    return {k: v for k, v in choice.items() if k not in usual and v is not None}
