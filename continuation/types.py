"""The values that the engine and the dialects share: data, with hardly any behaviour."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import TypeAlias

Json: TypeAlias = "dict[str, object]"
"""A decoded JSON object, as it was received."""


PIECE = 65_536
"""Most bytes delivered at once: the SDKs' parsers copy each piece, some several times."""


class Stop(StrEnum):
    """Why an attempt ended, in the engine's words; `AttemptResult.raw` has the provider's."""

    END = "end"
    """It ended normally: finished, stopped at a stop sequence, or with a tool call."""
    OTHER = "other"
    """The provider ended it for a reason that means none of the others, or that is unknown."""
    REFUSED = "refused"
    """The provider refused or filtered it."""
    ABORTED = "aborted"
    """The generation failed: the model wrote a malformed call, for example. The same request may
    succeed."""
    LENGTH = "length"
    """It reached the output limit."""
    WINDOW = "window"
    """It filled the context window: a larger limit cannot help."""
    REPETITION = "repetition"
    """It repeated the same text over and over, and we or the provider ended it."""
    PAUSED = "paused"
    """A hop of a longer answer ended. The answer can be continued from here."""
    DROPPED = "dropped"
    """The bytes ended, or failed, before a stop reason arrived."""

    @property
    def is_end(self) -> bool:
        """Whether the model itself may have ended the answer here: its calls count as complete."""
        return self in (Stop.END, Stop.OTHER)


class Outcome(StrEnum):
    """What became of a turn, as its report states it."""

    COMPLETE = "complete"
    """The provider's answer ended normally, and was delivered as it came."""
    HEALED = "healed"
    """It was truncated, dropped or empty, and has been completed."""
    PARTIAL = "partial"
    """It was truncated or dropped, and could not be completed. Its end may be synthetic."""
    TRUNCATED = "truncated"
    """It is truncated, and ends with the provider's own stop reason for that."""
    STALLED = "stalled"
    """It is truncated, because a recovery only repeated earlier text."""
    INCOMPLETE = "incomplete"
    """The provider ended it early or empty, but not at a limit. It is delivered as it came."""
    UNTOUCHED = "untouched"
    """It was passed through unchanged: `reason` says why."""
    FAILED = "failed"
    """No answer arrived: the caller got the error."""


class ToolCallState(StrEnum):
    """What is known of the function calls in a turn."""

    NONE = "none"
    WHOLE = "whole"
    CUT = "cut"
    """The last call's arguments are not proven complete."""


_WHO = re.compile(
    r"auth|(?<!idempotency-)key|token|secret|credential"
    r"|organi[sz]ation|project|tenant|account|customer|workspace|user(?!-agent)"
)
"""Header names that may identify the caller; gateways add their own. Cookies change on the way."""
_tells_who = lru_cache(maxsize=512)(_WHO.search)
_PER_REQUEST = {"x-amz-date", "x-amz-security-token", "x-amz-content-sha256"}
_SIGNATURE = re.compile(r"(?<=\bAWS4-HMAC-SHA256 Credential=)([^/\n]*)/[^\n]*")


MOST_CHARACTERS_OF_A_NAME = 200


def short(name: str) -> str:
    """Return a name that a caller, model or provider chose, shortened if no real one is so long."""
    most = MOST_CHARACTERS_OF_A_NAME
    return name if len(name) <= most else f"{name[: most - 3]}..."


@dataclass(frozen=True, slots=True)
class Request:
    """A request as the caller sent it. Header names are lower-case."""

    host: str
    """`host` or `host:port`."""
    path: str
    headers: Mapping[str, str]
    body: bytes
    server: Mapping[str, object] = field(default_factory=dict[str, object])
    """The configuration's settings for this server, in the dialect's own keys."""
    identity: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers that the client's `auth` or its SDK's hook sets or changes just before sending."""
    client: str = ""
    """A name for the client, if it may add a credential that cannot be read before sending."""
    max_values: int = 1_000_000
    """How many JSON values the body may have to be parsed."""

    @property
    def credential(self) -> str | None:
        """The header values that identify the caller, as sent (before, a key may be a placeholder).

        Of a SigV4 signature only the key's id: the rest differs in each request. `None`: no values.
        """
        sent = {**self.headers, **self.identity}
        names = sorted({*filter(_tells_who, sent), *self.identity} - _PER_REQUEST)
        return _SIGNATURE.sub(r"\1", "\n".join(filter(None, map(sent.get, names)))) or None


class Mode(StrEnum):
    """How an attempt's answer joins what the caller already has."""

    FIRST = "first"
    """The caller's own request."""
    REPLACE = "replace"
    """The same request again. Nothing was delivered, so this answer replaces the earlier one."""
    APPEND_TAIL = "append_tail"
    """The same request again, after text was delivered. Only what follows that, or the calls, is
    used."""
    RECOVERY = "recovery"
    """A recovery: the answer continues where the text before it stopped."""
    NATIVE_CONTINUATION = "native_continuation"
    """A provider's own continuation: the answer continues without a seam."""
    ARGUMENT = "argument"
    """The rest of a call's argument, written as text (the policy `truncated_tool_call`)."""


class Way(StrEnum):
    """How a recovery asks the model to continue."""

    PREFILL = "prefill"
    """The request ends with the model's own text, and the model continues it."""
    PROMPT = "prompt"
    """A user's message asks the model to continue, and to repeat the anchor first."""
    RETRY_SMALLER = "retry_smaller"
    """Do not continue: write the truncated call again, in smaller pieces."""
    CALL = "call"
    """Do not continue: make the call that the text announces."""
    ARGUMENT = "argument"
    """Continue the argument in which a call was truncated, as text instead of a call."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one attempt. `None` where the provider gave no count.

    `input` is neither read from a cache nor written to one; `output` includes `thinking`.
    """

    input: int | None = None
    cached: int | None = None
    cache_write: int | None = None
    output: int | None = None
    thinking: int | None = None
    tools: Mapping[str, int] | None = None
    """How often the provider ran its own tools, by the provider's names for these counts."""
    estimated: bool = False
    """`output` is an estimate, or contains one: the provider gave no final count."""

    @property
    def shown(self) -> int | None:
        """Output tokens without thinking; `None`: the provider gave no count."""
        return None if self.output is None else self.output - (self.thinking or 0)

    @property
    def prompt(self) -> int | None:
        """All input tokens, cached or not; `None`: the provider gave no count."""
        if self.input is None:
            return None
        return self.input + (self.cached or 0) + (self.cache_write or 0)


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """How an attempt ended, and what the turn contains after it."""

    stop: Stop
    raw: str | None = None
    """The provider's stop reason; `None`: none arrived."""
    id: str = ""
    """The answer's own id; `""`: it has none, or it was not read."""
    text: bool = False
    """The turn has visible text."""
    empty: bool = False
    """The turn has nothing but thinking and blank text."""
    call: ToolCallState = ToolCallState.NONE
    shown: bool = False
    """Content of the turn was delivered in the caller's stream, and cannot be taken back."""
    opened: bool = True
    """At least one event of the attempt arrived."""
    closed: bool = True
    """The attempt's terminal event arrived, so nothing of its answer is missing."""
    made_progress: bool = True
    """The attempt added something to the turn."""
    stalled: bool = False
    """The attempt is a truncated recovery that only repeated earlier text."""
    token: bool = False
    """The provider gave a new continuation token."""
    repeated: bool = False
    """A recovery repeated the words of the anchor, and nothing follows them."""
    args_verified: bool = True
    """The arguments of the last call came as raw text, or more of the answer followed the call."""
    only_call: bool = True
    """The truncated call is the only call of the attempt."""
    not_resumable: str | None = None
    """Why no recovery can continue the turn; `None`: nothing prevents one."""
    length: int = 0
    """Characters of visible text in the turn."""
    usage: Usage | None = None
    unmetered_text: str | None = None
    """The text an attempt generated, if the provider gave no final token count for it."""
    estimated: bool = False
    """`usage` is an estimate, not the provider's count."""
    error: BaseException | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What is known for and against a truncated call that is being completed."""

    in_text: bool = True
    """The call was truncated inside a string or in free-form input. Also true if the member in
    which it was truncated is so small that the model can write it again."""
    quotable: bool = True
    """The text ends with words that the model can be asked to repeat. Also true if the member in
    which the call was truncated is so small that the model can write it again."""
    error: str | None = None
    """The error of the request for the rest of the text; `None`: the request succeeded."""
    refused: bool = False
    decoded: bool = True
    """It is known whether the rest arrived as plain text or as JSON."""
    added: bool = True
    """New text arrived after the quoted words."""
    exact: bool = True
    """The parts join exactly: nothing was removed or inserted at the seam."""
    seam: str = ""
    """The kind of the last seam."""
    trusted: bool = True
    """The policy `complete_seams` trusts the last seam."""
    ended: bool = True
    """The end of the text is marked, or the policy `complete_seams` trusts it without a mark."""
    remarks: bool = False
    """The text addresses the reader, or states that something was left out."""
    lacking: str | None = None
    """The requested arguments that did not arrive; `None`: all arrived."""
    parses: bool = True
    mistake: str | None = None
    """Where the arguments violate the tool's schema; `None`: nowhere."""
    seen: bool = False
    """The arguments that were delivered are not the beginning of the completed ones."""


@dataclass(slots=True)
class ReplayBuffer:
    """The first attempt's bytes. The shell keeps them, to end the answer if our code fails."""

    raw: bytearray = field(default_factory=bytearray)
    sent: int = 0
    """How many bytes of `raw` were delivered, including those that are being returned now."""
    closing: bytes | None = None
    """Bytes that would end the caller's answer validly here; `None`: the undelivered bytes do."""
    flows: Callable[[bytes], bool] | None = None
    """Whether a chunk is text that may be delivered unread; `None`: read every chunk."""
    due: bool = False
    """All undelivered bytes may be delivered, but not in one piece: `pieces` yields them."""
    last: bytes = b""
    """Bytes that the format writes after the last event of a stream; `b""`: none."""
    seconds: Callable[[], float] = float
    """Returns the seconds that the turn has taken so far."""

    def rest(self, shown: bytes) -> bytes:
        """Return `shown` and all undelivered bytes; `b""`: they are too many, and `due` is set."""
        if not shown and len(self.raw) - self.sent > PIECE:
            self.due = True
            return b""
        start, self.sent = self.sent, len(self.raw)
        return shown + bytes(memoryview(self.raw)[start:])

    def complete(self) -> None:
        """Add `last` if it is missing: the connection dropped after a complete answer."""
        if not self.raw.rstrip().endswith(self.last.rstrip()):
            self.raw += self.last

    def pieces(self) -> Iterator[bytes]:
        """Yield the undelivered bytes in pieces; a yielded one is deleted here, to save memory."""
        self.due = False
        while self.sent < len(self.raw):
            del self.raw[: self.sent]
            piece = bytes(memoryview(self.raw)[:PIECE])
            self.sent = len(piece)
            yield piece


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """How the next attempt's answer joins the turn."""

    mode: Mode
    anchor: str | None = None
    """The words the recovery prompt asked the model to repeat."""
    prefilled: str | None = None
    """The text that was sent as the trailing assistant message."""
    prompt: str | None = None
    """The recovery prompt that was sent."""
    glue: bool = True
    """The attempt's text continues the open block; `False`: it begins a block of its own."""
    apart: bool = False
    """The attempt's text is a paragraph of its own."""
    hold: int = 600
    """Characters at the attempt's beginning that may be held to find the seam."""


class StopWord(StrEnum):
    """Which stop reason the caller gets at the end of an answer; each format has its words."""

    OWN = "own"
    """The provider's own stop reason, from the last attempt."""
    ENDED = "ended"
    """The format's word for a normal end or, if the answer has calls, for tool calls: synthetic."""
    TRUNCATED = "truncated"
    """The format's word for "output limit", whatever the stop reason of the last attempt was."""
    BROKEN = "broken"
    """No stop reason: the stream ends with the format's error event, and a body with an error."""
    RAISED = "raised"
    """No stop reason: an exception with the answer so far is raised (the policy `on_failure`)."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change to a history, made or planned; it never holds message text."""

    what: str
    """The kind of change, such as "result_synthesized"."""
    where: str
    """Path in the request's body as it was before the change, such as "messages[3]"."""
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
    """The body of an error that states why the request is not sent: it would mean something else"""
    status: int = 400
    """The status of that error."""


_UNTYPED = frozenset({"", "text/plain", "application/octet-stream"})


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
        self.is_json = "json" in self.kind
        self.untyped = self.kind.partition(";")[0] in _UNTYPED
        """Its type says nothing. If a stream was requested, it counts as one, as in the SDKs."""


class ErrorKind(StrEnum):
    """What an error answer to a later attempt means for the engine."""

    CEILING = "ceiling"
    """The limit is above what the model can do; the answer names the maximum."""
    CONTEXT_OVERFLOW = "context_overflow"
    """The limit is above what is left of the window in this request."""
    PREFILL = "prefill"
    """A trailing assistant message is not accepted."""
    UNSUPPORTED_PARAMETER = "unsupported_parameter"
    """A parameter's form is not accepted; the request now uses a form that the server names."""
    LIMIT_CONSUMED = "limit_consumed"
    """The whole limit went into thinking, which this provider reports as an error."""
    RETRYABLE = "retryable"
    """Rate limit, overload or server error: it may pass, so the request is retried."""
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class ClassifiedError:
    """A classified error answer; `maximum` is the limit in tokens that it names, if any.

    `wait`: the seconds to wait before a retry, if the body states them and no header does.
    """

    kind: ErrorKind
    error: str
    maximum: int | None = None
    wait: float | None = None
    form: Mapping[str, object] = field(default_factory=dict[str, object])
    """What the error states about the form of requests, in words of the wire format."""


class Untouched(Exception):  # noqa: N818  (a reason, not a failure)
    """Raised for a request that is not healed; the text states why."""


class StreamError(Exception):
    """The provider reported an error inside a stream; the text is its type, never its message.

    `lasting`: sending the same request again would only report it again.
    """

    def __init__(self, kind: str, *, lasting: bool = False) -> None:
        super().__init__(kind)
        self.lasting = lasting


class TimeUp(Exception):  # noqa: N818  (a reason, not a failure)
    """We broke an attempt off because time was up; the text states whether ours or the caller's."""


class Enough(Exception):  # noqa: N818  (a signal, not a failure)
    """Raised by a reader's `feed` when the attempt is over; `show` may still be shown.

    `result`: how the caller's own attempt ended, if its bytes stated that. Then the engine decides,
    before more is read, whether the rest of the body goes out as it comes.
    """

    def __init__(self, show: bytes = b"", result: AttemptResult | None = None) -> None:
        super().__init__()
        self.show = show
        self.result = result
