"""The words the engine and the dialects share: plain values, no behaviour worth the name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import TypeAlias

Json: TypeAlias = "dict[str, object]"
"""A decoded JSON object, as it stood on the wire."""


PIECE = 65_536
"""Bytes to go out at once; the parsers above us copy what they are given, some several times."""


class Stop(StrEnum):
    """Why an attempt ended, in the engine's words; the provider's own word travels beside it."""

    END = "end"
    """It ended as it should: finished, stopped at a stop sequence, paused, or asks for a tool."""
    REFUSED = "refused"
    """The provider refused or filtered it."""
    LENGTH = "length"
    """It ran into the output limit."""
    WINDOW = "window"
    """It filled the context window: a larger limit cannot help."""
    PAUSED = "paused"
    """One hop of a longer answer is over, within its limit; a token goes on from here."""
    DROPPED = "dropped"
    """The bytes ended, or failed, before the provider said why."""


class Outcome(StrEnum):
    """What became of a turn, as its report says it."""

    COMPLETE = "complete"
    """The provider's answer was not cut."""
    HEALED = "healed"
    """It was cut, and is whole now."""
    PARTIAL = "partial"
    """It was cut and could not be made whole: `reason` says why."""
    TRUNCATED = "truncated"
    """It is still cut, and ends with the provider's own truncation reason."""
    STALLED = "stalled"
    """The model only repeated itself."""
    UNTOUCHED = "untouched"
    """Not ours to heal: `reason` says why."""
    FAILED = "failed"
    """Nothing was in hand: the caller got the error."""


class ToolCallState(StrEnum):
    """What is known of the function calls in a turn."""

    NONE = "none"
    WHOLE = "whole"
    CUT = "cut"
    """The last call's arguments are not proven whole."""


_WHO = re.compile(
    r"auth|(?<!idempotency-)key|token|secret|credential"
    r"|organi[sz]ation|project|tenant|account|customer|workspace|user(?!-agent)"
)
"""Names of headers that may say who asks: gateways have their own. Cookies change on the way."""
_tells_who = lru_cache(maxsize=512)(_WHO.search)
_PER_REQUEST = {"x-amz-date", "x-amz-security-token", "x-amz-content-sha256"}
_SIGNATURE = re.compile(r"(?<=\bAWS4-HMAC-SHA256 Credential=)([^/\n]*)/[^\n]*")


@dataclass(frozen=True, slots=True)
class Request:
    """A request as the caller sent it. Header names are lower-case."""

    host: str
    """`host` or `host:port`."""
    path: str
    headers: Mapping[str, str]
    body: bytes
    server: Mapping[str, object] = field(default_factory=dict[str, object])
    """What the configuration says of this server, in the dialect's own keys."""
    identity: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers that the client's own `auth`, or its SDK's hook, puts in or changes as it leaves."""
    client: str = ""
    """The name of a client that may put in a credential which nobody sees before it leaves."""

    @property
    def credential(self) -> str | None:
        """The header values that say who asks, as they leave: a key may be a placeholder only.

        Of a signature (SigV4) it is the id of the key: all else differs from request to request.
        """
        sent = {**self.headers, **self.identity}
        names = sorted({*filter(_tells_who, sent), *self.identity} - _PER_REQUEST)
        return _SIGNATURE.sub(r"\1", "\n".join(filter(None, map(sent.get, names)))) or None


class Mode(StrEnum):
    """How an attempt's answer joins what the caller already has."""

    FIRST = "first"
    """The caller's own request."""
    REPLACE = "replace"
    """The same request again; nothing was shown, so this answer replaces the earlier one."""
    APPEND_TAIL = "append_tail"
    """The same request again after text was shown: only what follows it, or only the calls."""
    RECOVERY = "recovery"
    """A recovery: the answer goes on where the text before it stopped."""
    NATIVE_CONTINUATION = "native_continuation"
    """A provider's own continuation: the answer goes on without a seam."""
    ARGUMENT = "argument"
    """The rest of a call's argument, written as text (the policy `truncated_tool_call`)."""


class Way(StrEnum):
    """How a recovery asks the model to go on."""

    PREFILL = "prefill"
    PROMPT = "prompt"
    RETRY_SMALLER = "retry_smaller"
    """Not on: redo the function call that was cut, in smaller pieces."""
    ARGUMENT = "argument"
    """Go on with the argument that a call was cut in, as text and without a call."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one attempt. `None` where the provider gave no count.

    `input` is what was neither read from nor written to a cache; `output` includes `thinking`.
    """

    input: int | None = None
    cached: int | None = None
    cache_write: int | None = None
    output: int | None = None
    thinking: int | None = None
    tools: Mapping[str, int] | None = None
    """Calls of tools that the provider ran, by its own names for their counts."""

    @property
    def shown(self) -> int | None:
        """What was generated without thinking."""
        return None if self.output is None else self.output - (self.thinking or 0)

    @property
    def prompt(self) -> int | None:
        """All input tokens, however they were priced."""
        if self.input is None:
            return None
        return self.input + (self.cached or 0) + (self.cache_write or 0)


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """What an attempt came to: how it ended, and what the turn holds after it."""

    stop: Stop
    raw: str | None = None
    """The provider's own word for it."""
    id: str = ""
    """The answer's own id, where it was looked at."""
    text: bool = False
    """The turn has visible text."""
    call: ToolCallState = ToolCallState.NONE
    shown: bool = False
    """Content of the turn has reached the caller's stream and cannot be taken back."""
    opened: bool = True
    """At least one event of the attempt arrived."""
    closed: bool = True
    """Its terminal event arrived: its bytes are a whole answer."""
    made_progress: bool = True
    """The attempt added something to the turn."""
    stalled: bool = False
    """A recovery that was cut only repeated what was there."""
    token: bool = False
    """The provider gave a continuation token, and a new one."""
    args_verified: bool = True
    """The arguments of the last call came raw, or the answer went on behind it."""
    only_call: bool = True
    """The cut call is the only call of the attempt."""
    not_resumable: str | None = None
    """Why the turn cannot be gone on from by a recovery, if it cannot."""
    length: int = 0
    """Characters of visible text the turn holds."""
    usage: Usage | None = None
    unmetered_text: str | None = None
    """What an attempt said for which the provider gave no final count."""
    estimated: bool = False
    """`usage` is our estimate."""
    error: BaseException | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What speaks for a cut call that is being completed, and what against it."""

    in_text: bool = True
    """It broke off inside a string, or all of its input is text; or what it broke off in is so
    little of the answer that it can be asked for anew."""
    quotable: bool = True
    """Words from the end of that text can be quoted, for the model to repeat; or the latter."""
    error: str | None = None
    """Why the rest was not answered, if it was not."""
    refused: bool = False
    decoded: bool = True
    """It is known whether the rest came as plain text or as JSON."""
    added: bool = True
    """Something came behind the words that were quoted."""
    exact: bool = True
    """Nothing had to be taken back or put in where the parts meet."""
    seam: str = ""
    """The kind of the last seam."""
    trusted: bool = True
    """The policy `complete_seams` trusts that kind."""
    remarks: bool = False
    """The text says something to the reader, or that something was left out."""
    lacking: str | None = None
    """The arguments that were asked for, and did not come."""
    parses: bool = True
    mistake: str | None = None
    """Where the arguments are not what the tool's schema takes."""
    seen: bool = False
    """The caller has been shown what the whole call does not begin with."""


@dataclass(slots=True)
class ReplayBuffer:
    """The first attempt's bytes, kept by the shell: what is safe to send if our own code fails."""

    raw: bytearray = field(default_factory=bytearray)
    sent: int = 0
    """How many of them the caller has, or gets with what is being returned just now."""
    closing: bytes | None = None
    """Bytes that end the caller's answer validly where it stands now; `None`: the unsent rest."""
    flows: Callable[[bytes], bool] | None = None
    """While it is there: a chunk it accepts is text that may go out as it came, unseen."""
    due: bool = False
    """All that is unsent may go out, and is too long for one piece: see `pieces`."""
    last: bytes = b""
    """What the format writes behind the last event of a stream, if anything."""
    seconds: Callable[[], float] = float
    """How long the turn has taken so far."""

    def rest(self, shown: bytes) -> bytes:
        """Give `shown` and all that is unsent. Too long for one piece, it stays, `due`."""
        if not shown and len(self.raw) - self.sent > PIECE:
            self.due = True
            return b""
        start, self.sent = self.sent, len(self.raw)
        return shown + bytes(memoryview(self.raw)[start:])

    def complete(self) -> None:
        """The connection broke off behind a whole answer: add what it may not have brought."""
        if not self.raw.rstrip().endswith(self.last.rstrip()):
            self.raw += self.last

    def pieces(self) -> Iterator[bytes]:
        """Give what is unsent in pieces; each leaves the buffer, or it would be there twice."""
        self.due = False
        while self.sent < len(self.raw):
            del self.raw[: self.sent]
            piece = bytes(memoryview(self.raw)[:PIECE])
            self.sent = len(piece)
            yield piece


@dataclass(frozen=True, slots=True)
class Resume:
    """How the next attempt's answer joins the turn."""

    mode: Mode
    anchor: str | None = None
    """The words the recovery prompt asked the model to repeat."""
    prefilled: str | None = None
    """The text that was sent as the trailing assistant message."""
    prompt: str | None = None
    """The recovery prompt that was sent."""
    glue: bool = True
    """Its text goes on in the open block; `False`: it begins a block of its own."""
    hold: int = 600
    """Characters of the head that may be held for the seam."""


class StopWord(StrEnum):
    """Which stop reason the caller gets at the end of an answer; each format has its words."""

    OWN = "own"
    """The provider's own, of the last attempt."""
    ENDED = "ended"
    """The format's word for a normal end, or for calls where the answer holds one: synthetic."""
    TRUNCATED = "truncated"
    """The format's word for "output limit", whatever the last attempt said."""
    RAISED = "raised"
    """No end: an exception that carries the answer as it stands (the policy `on_failure`)."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change to a history, made or planned; it never holds message text."""

    what: str
    """What is done, such as "result_synthesized"."""
    where: str
    """Path in the request's body as it was then, such as "messages[3]"."""
    why: str
    """The rule it broke, as `continuation.history.validate` names it."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request for the shell to send; URL and headers default to the caller's own."""

    body: bytes
    path: Callable[[str], str] | None = None
    """Maps the caller's URL path to the one to use."""
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    """Query parameters to set beside the caller's; an empty value removes one."""
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers to set on top of the caller's; an empty value removes one."""
    refusal: bytes | None = None
    """Not to be sent: it would mean something else. This is the body of the 400 that says why."""


class Head:
    """Status and headers of a response, before its body. Header names are lower-case."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        self.headers = headers
        self.ok = 200 <= status < 300
        self.kind = headers.get("content-type", "").lower()
        """The content type, in lower case."""
        self.framed = "application/vnd.amazon.eventstream" in self.kind
        self.streamed = self.framed or "text/event-stream" in self.kind


class ErrorKind(StrEnum):
    """What an error answer to a later attempt means for the engine."""

    CEILING = "ceiling"
    """The limit is above what the model can do; the answer names the maximum."""
    CONTEXT_OVERFLOW = "context_overflow"
    """The limit is above what is left of the window in this request."""
    PREFILL = "prefill"
    """A trailing assistant message is not accepted."""
    UNSUPPORTED_PARAMETER = "unsupported_parameter"
    """Not in this form; the call has learned a form that the server says it takes."""
    LIMIT_CONSUMED = "limit_consumed"
    """The whole limit went into thinking, and the provider calls that an error."""
    RETRYABLE = "retryable"
    """Rate limit, overload, server trouble: worth another try."""
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class ClassifiedError:
    """A classified error answer; `maximum` is the limit it names, if it names one.

    `wait`: the seconds after which to try again, where the body names them and no header does.
    """

    kind: ErrorKind
    error: str
    maximum: int | None = None
    wait: float | None = None


class Untouched(Exception):  # noqa: N818  (a reason, not a failure)
    """This request is not ours to heal; the text says why."""


class StreamError(Exception):
    """The provider reported an error inside a stream; the text is its type, never its message.

    `lasting`: it would be reported again, however often one asks.
    """

    def __init__(self, kind: str, *, lasting: bool = False) -> None:
        super().__init__(kind)
        self.lasting = lasting


class TimeUp(Exception):  # noqa: N818  (a reason, not a failure)
    """We broke an attempt off, since the turn's time was up; the text says whose time."""


class Enough(Exception):  # noqa: N818  (a signal, not a failure)
    """Raised by a reader's `feed`: the attempt is over. `show` may still be shown.

    `result` is there when the caller's own attempt said by itself how it ended: then the engine is
    asked, before anything else is read, whether the rest of the body goes out as it comes.
    """

    def __init__(self, show: bytes = b"", result: AttemptResult | None = None) -> None:
        super().__init__()
        self.show = show
        self.result = result
