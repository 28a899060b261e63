"""How the simulated model and its provider behave, as data: scripted replies and scenarios."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from continuation.simulator.manners import MANNERS
from continuation.simulator.openai_chat.vendors import find_vendor

SIGNED = "(signed by the simulator)"
"""Stands for a signature that the simulator makes itself, bound to the conversation before."""


@dataclass(frozen=True)
class Text:
    """Visible text."""

    text: str


@dataclass(frozen=True)
class Thinking:
    """Thinking; `signature=None`: it was truncated before its signature was sent.

    `tokens`: its cost, if that does not follow from its text (display "omitted"); None: it does.
    """

    text: str
    signature: str | None = SIGNED
    tokens: int | None = None


@dataclass(frozen=True)
class ToolUse:
    """A tool call; `arguments`: a mapping or raw JSON; only `cut` characters of it are sent."""

    name: str
    arguments: Mapping[str, Any] | str
    id: str | None = None
    cut: int | None = None


@dataclass(frozen=True)
class Raw:
    """A whole content block in the provider's own format, sent unchanged."""

    block: Mapping[str, Any]


Block = Text | Thinking | ToolUse | Raw


@dataclass(frozen=True)
class Reply:
    """One answer of the model and how its bytes are sent, as events or as one JSON body.

    Event counts (`drop`, `kill`, `error_after`, `stall`, `gate_at`) count every event, pings too.

    - `stop`, `stop_sequence`: why the model stopped, in Anthropic's words; other formats translate.
    - `usage`: replaces computed counts; None removes a field. `extra`: replaces fields of the
      message, in a stream of the closing delta (`container`, `stop_details`).
    - `status`, `error` (type, message), `headers`: another HTTP status makes it an error answer.
    - `drop`: after this many events the connection is closed without the end of the body. -1:
      before the status line. A JSON body ends in its middle.
    - `torn`: the event after this many events ends in the middle of its data. A JSON body has no
      events.
    - `torn_body`: a JSON body ends after this many bytes, or in its middle if that comes first. Its
      length is the one announced. A stream has no JSON body.
    - `kill`: after this many events `Simulator.victim` is killed; with a JSON body before any of
      it.
    - `error_after`: after this many events comes an `error` event, which `error` describes, and the
      end. A JSON body has no events: there the same fault is an error status.
    - `delay`: seconds before the status line. `slow`: seconds before each event.
    - `stall`: after this many events nothing is sent until the client hangs up; of a JSON body
      nothing at all. `gate`: wait for it before event `gate_at`, or before the JSON body.
    - `chunk`: bytes per write. `gzip`: the body is compressed.
    - `deltas`: characters per text, thinking or argument delta.
    - `overflow`: the request is refused, as one that is larger than the context window.
    - `raw_body`: the body verbatim, whatever the request asked for.
    """

    blocks: Sequence[Block] = ()
    stop: str = "end_turn"
    stop_sequence: str | None = None
    usage: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    status: int = 200
    error: tuple[str, str] | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    drop: int | None = None
    kill: int | None = None
    torn: int | None = None
    torn_body: int | None = None
    error_after: int | None = None
    delay: float = 0.0
    slow: float = 0.0
    stall: int | None = None
    gate: threading.Event | None = None
    gate_at: int = 0
    chunk: int | None = None
    gzip: bool = False
    deltas: int | None = None
    overflow: bool = False
    raw_body: bytes | str | Mapping[str, Any] | None = None


_COUNTED = ("echo", "skip")


@dataclass(frozen=True)
class Scenario:
    """What the reciting model answers, and how its provider fails.

    `manner`: how a recovery begins.

    - `exact` continues where the text was truncated. The next four do the same, but first repeat
      something: `anchor` the text that the recovery prompt quoted, `echo:K` the last K characters,
      `echo-word` the last word, `echo-line` the last line.
    - `preamble` announces the continuation, `fence` reopens the code fence, `restart` starts over.
    - `whitespace` drops the white space at the seam, or adds some if there is none.
    - `skip:K` leaves out K characters.
    - `done` states that the answer was complete, `empty` answers with no text.
    - `prefill-echo` repeats a prefill; the others do not.

    The content of an answer:

    - `thinking`: `none`; the number of thinking tokens before the text; `all` (thinking uses the
      whole limit); `all:N` (it does so if the limit is below N tokens).
    - `call`: the answer is a call `Write{path, content}` after a short text.
    - `mislabel`: the stop reason of a truncated answer; None: `max_tokens`.
    - `deltas`: characters per delta.
    - `slow`: seconds before each event.

    Faults, by attempt (1 is a conversation's first model call since start or reset):

    - `status`: HTTP status by attempt, with `retry_after` seconds or `retry_after_ms`.
    - `drop`, `kill`, `torn`, `stall`, `error_event`: number of events before the fault, by attempt.
      `torn` ends an event in the middle of its data. After a `stall`, nothing more is sent; of a
      JSON body, nothing at all. `kill` sends SIGKILL to `Simulator.victim`, which only Python can
      set. Use it with `slow`, so that the client has read and saved the events before.
    - `torn_body`: number of bytes of a JSON body that are sent, by attempt; half of it at most.

    The provider:

    - `ceiling`: largest output limit in tokens, instead of the model's own.
    - `any_model`: unknown models are served, with a ceiling of 64,000 tokens.
    - `models_endpoint`: whether it has a models endpoint.
    - `strict_signatures`: refuse thinking signatures that the simulator did not make.
    - `vendor`: whose Chat Completions are simulated (`deepseek`, `vllm`, …); `quirks`: changes to
      it, joined by `+` (`no-finish+no-done`); `openai_chat/vendors.py` lists both.
    - `chain`: the provider stores answers and accepts `previous_response_id`.
    - `forgets`: stored answers are not found (Responses: `previous_response_not_found`).
    - `tokens`: Gemini 4 sends continuation tokens.
    - `hop`: output tokens of one request before it stops with CONTINUATION, instead of the
      provider's own number.
    - `checkpoint`: number of chunks between two tokens in a stream.
    - `empty_shape`: how Gemini writes a truncated answer without text, and the last chunk of a
      truncated stream: 1 no candidates; 2 no content; 3 no parts (usual); 4 an empty text; 5 only a
      thought; 6 an empty text with a signature; 7 unchanged; 8 a second candidate, which ended.
    """

    manner: str = "exact"
    thinking: str | int = "none"
    call: bool = False
    mislabel: str | None = None
    deltas: int = 24
    status: Mapping[int, int] = field(default_factory=dict[int, int])
    retry_after: float | None = None
    retry_after_ms: int | None = None
    drop: Mapping[int, int] = field(default_factory=dict[int, int])
    kill: Mapping[int, int] = field(default_factory=dict[int, int])
    torn: Mapping[int, int] = field(default_factory=dict[int, int])
    torn_body: Mapping[int, int] = field(default_factory=dict[int, int])
    stall: Mapping[int, int] = field(default_factory=dict[int, int])
    error_event: Mapping[int, int] = field(default_factory=dict[int, int])
    slow: float = 0.0
    ceiling: int | None = None
    any_model: bool = True
    models_endpoint: bool = True
    strict_signatures: bool = False
    forgets: bool = False
    chain: bool = True
    tokens: bool = True
    hop: int | None = None
    checkpoint: int | None = None
    empty_shape: int | None = None
    vendor: str = "openai"
    quirks: str = ""

    def __post_init__(self) -> None:
        find_vendor(self.vendor, self.quirks)
        for msg in self._faults():
            raise ValueError(msg)

    def _faults(self) -> Iterator[str]:
        manner, (name, colon, count) = self.manner, self.manner.partition(":")
        counted = name in _COUNTED
        if name not in MANNERS:
            yield f"manner: {manner!r} is none of {', '.join(MANNERS)}"
        if count.isdecimal() != counted or (colon and not count):
            wanted = "a number of characters after the colon" if counted else "no count"
            example = f"{name}:40" if counted else name
            yield f"manner: {manner!r} needs {wanted}, as in {example!r}"
        thinking = str(self.thinking)
        if thinking not in ("none", "all") and not thinking.removeprefix("all:").isdecimal():
            options = "'none', 'all', 'all:LIMIT' nor a token count"
            yield f"thinking: {self.thinking!r} is neither {options}"
        if self.empty_shape not in (None, *range(1, 9)):
            yield f"empty_shape: {self.empty_shape} is not one of the shapes 1 to 8"
        if self.deltas < 1:
            yield f"deltas: {self.deltas} is not a positive number of characters"

    def but(self, settings: str) -> Scenario:
        """Return this scenario with the settings in a text such as `key=value, key=value`.

        This is the form of the request header `x-simulate`, which holds for that request only.
        A map by attempt is written `2:529`, several entries joined by `+`.
        Raises ValueError naming the setting, the value and what is possible.
        """
        changes: dict[str, Any] = {}
        for item in filter(None, map(str.strip, settings.split(","))):
            key, equals, value = (part.strip() for part in item.partition("="))
            name = key.replace("-", "_")
            if not equals or name not in _KINDS:
                msg = f"{item!r} is not a setting; write key=value with one of {', '.join(_KINDS)}"
                raise ValueError(msg)
            try:
                changes[name] = _read(_KINDS[name], value)
            except ValueError as error:
                raise ValueError(f"{key}={value!r}: {error}") from None
        return replace(self, **changes)


_KINDS = {each.name: str(each.type).removesuffix(" | None") for each in fields(Scenario)}
"""The type of each setting, by name, as a text."""
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def _read(kind: str, value: str) -> Any:
    """Return a value of a type, read from text; raises ValueError explaining how to write it."""
    match kind:
        case "bool":
            if value.lower() in (*_TRUE, *_FALSE):
                return value.lower() in _TRUE
            msg = "write true or false"
        case "int":
            if value.isdecimal():
                return int(value)
            msg = "write a whole number"
        case "float":
            with contextlib.suppress(ValueError):
                if 0 <= (seconds := float(value)) < 86_400:
                    return seconds
            msg = "write seconds, from 0 to a day"
        case "Mapping[int, int]":
            pairs = [item.split(":") for item in value.split("+")]
            if all(len(pair) == 2 and all(map(str.isdecimal, pair)) for pair in pairs):
                return {int(attempt): int(number) for attempt, number in pairs}
            msg = "write ATTEMPT:NUMBER, several joined by '+', as in 2:529"
        case _:
            return int(value) if kind == "str | int" and value.isdecimal() else value
    raise ValueError(msg)
