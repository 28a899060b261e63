"""Reads Chat Completions as block events, and writes block events as Chat Completions.

Wire facts: API reference "Chat Completions", the types of openai 3.5x, and the fields that vendors
add to them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from continuation.providers.contract import WORD, FastPath, Reader, WireCodec, Writer
from continuation.providers.openai_chat.reader import ENVELOPE, ChatReader, Pieces, reason_of
from continuation.providers.openai_chat.writer import DONE, ChatWriter, folded
from continuation.providers.openai_common.usage import CHAT
from continuation.providers.openai_common.vendors import Profile
from continuation.types import AttemptResult, Json, Stop, ToolCallState, Usage
from continuation.wire import blocks as _blocks
from continuation.wire import sse as _sse
from continuation.wire.blocks import Block, Segment
from continuation.wire.json_values import as_json, as_list, parsed

_STOPS = {
    **dict.fromkeys(("stop", "tool_calls", "function_call"), Stop.END),
    # Other servers' and formats' words for a normal end: Together, TGI, Cohere, Anthropic.
    **dict.fromkeys(("eos", "eos_token", "stop_sequence", "complete", "completed"), Stop.END),
    **dict.fromkeys(("end_turn", "tool_use", "tool_call"), Stop.END),
    "length": Stop.LENGTH,
    # Some gateways pass on the stop reasons of other formats.
    "max_tokens": Stop.LENGTH,
    "max_output_tokens": Stop.LENGTH,
    "model_length": Stop.WINDOW,  # Mistral
    "model_context_window_exceeded": Stop.WINDOW,  # Zhipu
    "content_filter": Stop.REFUSED,
    "sensitive": Stop.REFUSED,  # Zhipu
    "refusal": Stop.REFUSED,
    "repetition": Stop.REPETITION,  # vLLM
    # The server stopped early: DeepSeek, SGLang, Zhipu, OpenRouter.
    "insufficient_system_resource": Stop.DROPPED,
    "aborted": Stop.DROPPED,
    "abort": Stop.DROPPED,
    "network_error": Stop.DROPPED,
    "error": Stop.DROPPED,
}
_SPEECH = re.compile(rb'"content"\s*:\s*%b' % WORD)
_REASON = re.compile(rb'"finish_reason"\s*:\s*(?:"([^"\\]*)"|null)')
_CALLS = re.compile(rb'"(?:tool_calls|function_call)"\s*:\s*(?:\[\s*\{|\{)')


class ChatCodec(WireCodec):
    """The codec of Chat Completions, for one request."""

    ended = "stop"
    called = "tool_calls"
    truncated = "length"
    stops = _STOPS
    speech = _SPEECH
    last = DONE
    lasting = ("counted",)

    def __init__(
        self, profile: Profile, *, usage_asked: bool, asks: Callable[[], bool] = lambda: False
    ) -> None:
        """Make a codec.

        `usage_asked`: whether the caller's request wants usage. `asks`: returns whether the last
        request wants usage that the caller's does not.
        """
        self._profile = profile
        self._usage_asked, self._asks = usage_asked, asks

    def reader(self) -> Reader:
        return ChatReader(self._profile, unasked=not self._asks())

    def fast_path(self) -> FastPath:
        return ChatPath()

    def writer(self) -> Writer:
        return ChatWriter(usage_asked=self._usage_asked)

    def to_events(self, body: Json) -> Iterator[Json]:
        """Yield the block events of a complete body; none if it has no choices."""
        choices = as_list(body.get("choices"))
        if not choices:
            return
        choice = as_json(choices[0])
        message = as_json(choice.get("message"))
        head = {key: value for key, value in body.items() if key not in ENVELOPE}
        beside = {k: v for k, v in choice.items() if k not in {"message", "finish_reason"}}
        own = {k: v for k, v in message.items() if k == "role" or v in (None, "", [])}
        yield _blocks.opening({**head, "choice": beside, "said": own})
        pieces = Pieces(self._profile)
        yield from pieces.take(message)
        yield from pieces.close()
        usage = as_json(body.get("usage"))
        yield _blocks.closing(reason_of(choice) if len(choices) == 1 else self.ended, usage)
        yield _blocks.ENDED

    def read_usage(self, usage: Json) -> Usage | None:
        return CHAT.read(usage)

    def write_usage(self, native: Json, usage: Usage | None) -> Json:
        return CHAT.write(native, usage) if native else native

    def wire(self, block: Block) -> Json:
        """Return the block as an assistant message that has only this block."""
        return folded([block])

    def quick_body(self, body: bytes | bytearray) -> AttemptResult | None:
        """Return `None` also for calls: servers label truncated ones as ended (vLLM does)."""
        reasons = {match[1] for match in _REASON.finditer(body)}
        if len(reasons) != 1 or _CALLS.search(body) is not None:
            return None
        return self.quick_result(body, (reasons.pop() or b"").decode() or None)

    def quick_calls(self, raw: bytearray, sketch: Segment) -> ToolCallState:
        """Parse the calls from the first one on: no stop reason proves that they are complete."""
        if not sketch.calls:
            return ToolCallState.NONE
        found = _CALLS.search(raw)
        if found is not None and len(sketch.calls) == 1 and _lone_call_whole(raw, found.start()):
            return ToolCallState.WHOLE
        blank = raw.rfind(b"\n\n", 0, found.start()) if found else -1
        reader, segment = self.reader(), Segment()
        for frame in _sse.frames(raw, blank + 2 if blank >= 0 else 0):
            for event in () if frame.empty else reader.events(frame):
                segment.add(event)
        return segment.call_state(ended=self.ending(sketch).is_end)


# --- a stream, unparsed ---------------------------------------------------------------------------
#
# Inside a JSON string a quote is escaped. So a key between unescaped quotes is a real key.

_SPELLINGS = tuple(
    (
        b'"finish_reason":%snull' % space,
        b'"content":%s"' % space,
        (b'"reasoning_content":%s"' % space, b'"reasoning":%s"' % space),
    )
    for space in (b"", b" ")
)
_THOUGHT = re.compile(rb'"reasoning(?:_content)?"\s*:\s*"[^"]')
_CALLING = re.compile(rb'"(?:tool_calls|function_call)"\s*:\s*(?:\[\s*\{|\{\s*")')
_NAMING = re.compile(rb'"name"\s*:\s*"')
_LINE, _RETURN = b"\n\r"
_END = slice(-2, None)
_NEVER = b"\0"
_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+')
_ARGUMENTS = re.compile(rb'"arguments"\s*:\s*"((?:[^"\\]|\\.)*)"')
_CALL = b"_call"
"""A common part of `tool_calls` and `function_call`."""
_SAMPLES = 8
"""The most patterns that are made from an answer's chunks. Some servers vary every chunk."""


class ChatPath:
    """Recognizes chunks with only text: a null reason, a text, and no piece of a call.

    The chunks of an answer are alike. So other chunks are compared with the bytes before and after
    the text in the first chunk that was examined.
    """

    blank = b"\n\n"

    def __init__(self) -> None:
        self._null, self._text, self._thoughts = _SPELLINGS[0]
        self._head = self._tail = _NEVER
        """The bytes before a chunk's text, from the beginning of its line, and those after it."""
        self._before = self._behind = slice(1)
        """Slices of a chunk: the bytes before its text, and the rest without the blank line."""
        self._samples = _SAMPLES
        self._called = False
        """Whether a call has begun. Then its other pieces are not examined."""

    def flows(self, chunk: bytes) -> bool:
        # This runs for each event of every answer. Slices and `in` are faster than methods.
        if chunk[self._before] == self._head and chunk[_END] == b"\n\n":
            rest = chunk[self._behind]
            if _LINE not in rest and _RETURN not in rest:  # one event
                if rest.startswith(self._tail, rest.find(b'"')):
                    return True
                text = _STRING.match(rest)  # the text has a quote, or the tail is not at its end
                return text is not None and rest.startswith(self._tail, text.end())
        return chunk.endswith(b"\n\n") and self._texts(chunk, 0, len(chunk))

    def skips(self, raw: bytearray, start: int, end: int, *, flowing: bool) -> bool:
        if flowing:
            return self._texts(raw, start, end)
        if raw.find(_RETURN, start, end) >= 0:
            return False
        # An event has two line feeds, and its JSON has none.
        lines = raw.count(_LINE, start, end)
        if 2 * self._nulls(raw, start, end) != lines:
            return False
        if _SPEECH.search(raw, start, end) is not None:
            return False
        if self._called:
            return _NAMING.search(raw, start, end) is None
        self._called = _calls(raw, start, end)
        # Some servers send each thought under both names.
        thoughts = max(raw.count(field, start, end) for field in self._thoughts)
        return not self._called and 2 * thoughts == lines

    def _texts(self, raw: bytes | bytearray, start: int, end: int) -> bool:
        """Whether all complete events in `raw[start:end]` are text."""
        if raw.find(_RETURN, start, end) >= 0 or _THOUGHT.search(raw, start, end) is not None:
            return False
        head, lines = self._head, raw.count(_LINE, start, end)
        if head and 2 * raw.count(head, start, end) == lines == 2 * raw.count(
            self._tail, start, end
        ):
            return not _calls(raw, start, end)
        # No pattern matches, so count what each event of text must contain.
        count = raw.count(b"\n\n", start, end)
        if self._nulls(raw, start, end) != count or _calls(raw, start, end):
            return False
        if raw.count(self._text, start, end) != count:
            return False
        if self._samples:
            self._samples -= 1
            self._learn(bytes(raw[start : raw.find(b"\n\n", start)]))
        return True

    def _nulls(self, raw: bytes | bytearray, start: int, end: int) -> int:
        """Count null reasons in this server's spelling, which may have a space."""
        count = raw.count(self._null, start, end)
        if count:
            return count
        for spelling in _SPELLINGS:
            if count := raw.count(spelling[0], start, end):
                self._null, self._text, self._thoughts = spelling
                break
        return count

    def _learn(self, line: bytes) -> None:
        begin = line.find(self._text) + len(self._text)
        text = _STRING.match(line, begin)
        if not line.startswith(b"data:") or b"\n" in line or text is None:
            return
        null = line.find(self._null, text.end())
        # If the reason is before the text, it is part of the head, and no key may follow the text.
        end = null + len(self._null) if null >= 0 else text.end() + 2
        if null < 0 and not line.startswith(b'"}', text.end()):
            return
        self._head, self._tail = line[:begin], line[text.end() : end]
        self._before, self._behind = slice(begin), slice(begin, -2)


def _calls(raw: bytes | bytearray, start: int, end: int) -> bool:
    """Whether there is a piece of a call. An empty list, which some servers send, is none."""
    return raw.find(_CALL, start, end) >= 0 and _CALLING.search(raw, start, end) is not None


def _lone_call_whole(raw: bytearray, start: int) -> bool:
    """Whether its argument text proves that a stream's only call is complete; `False`: unsure."""
    pieces = b"".join(_ARGUMENTS.findall(raw, start)).decode("utf-8", "replace")
    return isinstance(parsed(str(parsed(f'"{pieces}"'))), dict)
