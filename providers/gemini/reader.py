"""Reads a Gemini answer as block events, chunk by chunk.

Each chunk is a complete response. Its usage is the total of the attempt so far. The candidate's
other fields (grounding, citations, ratings) are collected for the end. Only the first candidate is
read, because requests for several candidates are passed through unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from continuation.providers.contract import PlainReader
from continuation.providers.gemini.declarations import is_whole
from continuation.providers.gemini.parts import (
    SIGNATURE,
    block_of,
    kind_of,
    plain,
    put_together,
)
from continuation.types import Json
from continuation.wire import blocks as _blocks
from continuation.wire import sse as _sse
from continuation.wire.blocks import ENDED, TEXT, THINKING, TOOL_CALL, Block
from continuation.wire.json_values import as_int, as_json, as_list, as_text, loads
from continuation.wire.text_template import COUNTS, PlainEvents

LENGTH = "MAX_TOKENS"
_ENDS = "STOP"
_MALFORMED = "MALFORMED_FUNCTION_CALL"
_UNSAID = frozenset({"", "FINISH_REASON_UNSPECIFIED"})
_UNNAMED = "a function"
_UNSET = 8_192
"""The lowest documented limit in tokens for a request that sets none."""
_HOP = 65_536
"""The most output tokens of one attempt, whatever its limit."""
_OF_ANSWER = frozenset({"content", "finishReason", "index", "continuationToken", "finishMessage"})
_COUNTS = "usageMetadata"
_OF_CHUNK = frozenset({"candidates", _COUNTS, "promptFeedback"})


class GeminiReader(PlainReader):
    """Reads one attempt.

    `limit`: the output limit of its request in tokens; `None`: none. `tools`: the request's tools.
    """

    def __init__(self, limit: int | None, tools: object = None) -> None:
        self._limit = limit
        self._tools = tools
        self._count = 0
        self._parsed = 0
        self._begun = False
        self._open: tuple[int, str] | None = None
        self._pieces: list[Json] | None = None
        """The parts of an open call with arguments in pieces; `None`: no such call is open."""
        self._usage: Json = {}
        self._beside: list[Json] = []
        self._finished = False
        self._chatty = False
        """Whether the server sends STOP with each text, as servers did in 2024."""
        self._cut = False
        """Whether MAX_TOKENS has arrived, and no text after it."""
        self._bare = False
        """Whether the last chunk had no candidate."""
        self._token: str | None = None
        """The token that continues after all content so far; `None`: content arrived after it."""
        self._plain = PlainEvents(_string, {_COUNTS: COUNTS})

    def events(self, frame: _sse.Frame) -> Sequence[Json]:
        if (event := self._plain.match(frame)) is not None:
            return (event,)
        self._count_plain()
        events = list(self._tell(_sse.decoded(frame)))
        self._plain.learn(frame, events)
        return events

    def _count_plain(self) -> None:
        """Read the usage of the last chunk that was matched without parsing, if there is one."""
        if counts := self._plain.beside(_COUNTS):
            self._usage = as_json(loads(counts))

    def eof(self) -> Sequence[Json]:
        self._count_plain()
        return list(self._end_of_bytes())

    def body(self, chunks: Sequence[object], *, whole: bool) -> Iterator[Json]:
        """Yield the events of a body's chunks. `whole`: it is complete even without a reason."""
        for chunk in chunks:
            yield from self._tell(chunk)
        yield from self._end_of_bytes(whole=whole)

    # --- chunks --------------------------------------------------------------------------------

    def _tell(self, given: object) -> Iterator[Json]:
        """Yield the events of one decoded chunk."""
        if not (chunk := as_json(given)):
            yield {"type": "no response"}
            return
        self._parsed += 1
        if error := as_json(chunk.get("error")):
            code = as_int(error.get("code"))
            kind = as_text(error.get("status")) or str(code or "error")
            lasting = code is not None and 400 <= code < 500 and code not in {408, 429, 499}
            yield {"type": "error", "error": {"type": kind, "lasting": lasting}}
            return
        self._usage = as_json(chunk.get(_COUNTS)) or self._usage
        if not self._begun:
            self._begun = True
            head = {key: value for key, value in chunk.items() if key not in _OF_CHUNK}
            yield _blocks.opening({**head, "usage": self._usage})
        feedback = as_json(chunk.get("promptFeedback"))
        if reason := as_text(feedback.get("blockReason")):
            self._finished = True
            yield from self._stop()
            yield _blocks.closing(reason, self._usage, feedback=feedback)
            yield ENDED
            return
        # Only the first candidate (index 0) is read, if the chunk has it.
        candidates = [as_json(candidate) for candidate in as_list(chunk.get("candidates"))]
        candidate = next((c for c in candidates if not c.get("index")), None)
        self._bare = candidate is None
        yield from self._candidate(candidate or {})

    def _candidate(self, candidate: Json) -> Iterator[Json]:
        parts = as_list(as_json(candidate.get("content")).get("parts"))
        events = [event for part in parts if part for event in self._part(as_json(part))]
        if beside := {k: v for k, v in candidate.items() if k not in _OF_ANSWER}:
            chunk = self._parsed + self._plain.seen
            self._beside.append({"chunk": chunk, "candidate": beside})
        token = as_text(candidate.get("continuationToken")) or None
        self._token = token or (None if events else self._token)
        reason = as_text(candidate.get("finishReason"))
        self._cut = self._cut and not events
        if self._cut and reason == _ENDS:
            reason = LENGTH  # a proxy sends its own STOP for the same end
        self._chatty = self._chatty or bool(self._finished and events)
        ends = [] if reason in _UNSAID else list(self._finish(reason, candidate))
        # The last event of a chunk decides whether the chunk is buffered until the end.
        flows = self._chatty and reason == _ENDS
        yield from (*ends, *events) if flows else (*events, *ends)
        if not (events or ends):
            # The chunk has only counts. It is buffered until text follows, because the SDK's chat
            # treats a chunk without content as a failed turn.
            yield _blocks.closing(None, self._usage)
        if token and (self._finished or not ends):
            # A stream that is dropped after this token is continued from here.
            yield _blocks.closing(None, token=token)

    # --- parts ---------------------------------------------------------------------------------

    def _part(self, part: Json) -> Iterator[Json]:
        kind = kind_of(part)
        call = as_json(part["functionCall"]) if kind == TOOL_CALL else {}
        pieces = None if call.get("name") else self._pieces  # only the first piece has a name
        if call.get("willContinue") or (kind == TOOL_CALL and pieces is not None):
            # The arguments of the call arrive in pieces (Vertex).
            if pieces is not None:
                pieces.append(part)
                yield _blocks.delta(self._count, "part_delta", part=part)
            else:
                yield from self._stop()
                yield self._start(block_of(part), args_verified=False)
                self._pieces = [part]
            if not call.get("willContinue"):
                yield from self._stop(whole=self._is_whole(self._pieces or []))
        elif not plain(part):
            yield from self._whole(part, kind)
        elif text := as_text(part["text"]):
            if self._open is None or self._open[1] != kind:
                yield from self._stop()
                yield self._start(block_of(part), loose=True)
            key = "text" if kind == TEXT else "thinking"
            yield _blocks.delta(self._count, f"{key}_delta", **{key: text})

    def _whole(self, part: Json, kind: str) -> Iterator[Json]:
        """Yield the events of a part that is one block."""
        yield from self._stop()
        traits = {"loose": kind in THINKING, "sealed": kind in {TEXT, SIGNATURE}}
        # A signature may end any answer, so it does not show that a call before it is complete.
        whole = kind != TOOL_CALL or self._is_whole([part])
        traits |= {"finished": whole and kind == TOOL_CALL, "mute": kind == SIGNATURE}
        yield self._start(block_of(part), args_verified=whole, parsed=not whole, **traits)
        if kind in THINKING | {TEXT}:
            key = "text" if kind == TEXT else "thinking"
            yield _blocks.delta(self._count, f"{key}_delta", **{key: part["text"]})
        yield from self._stop()

    def _start(self, block: Json, **traits: bool) -> Json:
        self._count += 1
        self._open = self._count, as_text(block.get("type"))
        return _blocks.start(self._count, block, **traits)

    def _stop(self, *, whole: bool | None = None) -> Iterator[Json]:
        """End the open block. A call without its last piece (`whole=None`) gets no end."""
        if self._open is not None and (self._pieces is None or whole is not None):
            yield _blocks.stop(self._open[0], finished=whole is True)
        self._open = self._pieces = None

    def _is_whole(self, parts: list[Json]) -> bool:
        """Whether its declaration proves that a call is complete. `parts`: all of its parts."""
        begun, *more = parts
        joined = put_together(Block(block_of(begun), [{"part": part} for part in more]))
        call = as_json(begun["functionCall"])
        return joined is not None and is_whole({**call, "args": joined[0]}, self._tools)

    # --- the end -------------------------------------------------------------------------------

    def _finish(self, reason: str, candidate: Json) -> Iterator[Json]:
        """Yield the events of a finish reason. The answer ends only with the end of the bytes.

        A last count or a signature may follow the reason, and some servers send it with each chunk.
        """
        more: Json = {"finishMessage": candidate.get("finishMessage")}
        if reason == _MALFORMED and self._spent(self._limit or _UNSET):
            # The model wrote a call until it reached the limit, and no part of the call arrived.
            yield from self._stop()
            yield self._start(
                {"type": TOOL_CALL, "name": _UNNAMED, "input": {}}, args_verified=False
            )
            self._open = None
            reason, more["finishReason"] = LENGTH, reason
        yield _blocks.closing(reason, self._usage, token=self._token, beside=self._beside, **more)
        self._finished, self._cut = True, reason == LENGTH

    def _end_of_bytes(self, *, whole: bool = False) -> Iterator[Json]:
        # If the answer has no candidate but spent its limit, thinking has used all of it.
        used_up = output_of(self._usage) and self._spent(min(self._limit or 0, _HOP))
        if not self._finished and self._bare and used_up:
            yield _blocks.closing(LENGTH, self._usage, beside=self._beside)
            self._finished = True
        if self._finished or whole:
            yield from self._stop()
            yield ENDED

    def _spent(self, limit: int) -> bool:
        """Whether nearly all tokens of a limit were spent. Thinking stops shortly before it."""
        return (output_of(self._usage) or 0) >= limit - max(16, limit // 20)


def output_of(usage: Json) -> int | None:
    """Return all output tokens, including thinking; `None`: unknown. A count of 0 is not sent."""
    counts = [as_int(usage.get(key)) for key in ("candidatesTokenCount", "thoughtsTokenCount")]
    known = [count for count in counts if count is not None]
    prompt, total = (as_int(usage.get(key)) for key in ("promptTokenCount", "totalTokenCount"))
    if known or prompt is None or total is None:
        return sum(known) if known else None
    return max(0, total - prompt - (as_int(usage.get("toolUsePromptTokenCount")) or 0))


def _string(chunk: Json) -> object:
    """Return the text of a decoded chunk, or `None` if its candidate has fields to collect."""
    (candidate,) = as_list(chunk["candidates"])
    (part,) = as_list(as_json(candidate["content"])["parts"])
    return part["text"] if candidate.keys() <= _OF_ANSWER else None
