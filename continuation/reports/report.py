"""What happened in a turn: the events while it runs, and the report after it has ended.

Neither contains message text, keys, or headers other than a request id. The reports of recent turns
are kept, and can be found by the ids in the SDK's objects.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Mapping, Set
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from continuation.ledger import Attempt, Ledger, Lesson, delivered, request_id_in, total
from continuation.types import Change, Mode, Outcome, Usage, short

if TYPE_CHECKING:
    import asyncio

    from continuation.policy import Policy
    from continuation.seams.seam import Verdict

logger = logging.getLogger("continuation")


@dataclass(frozen=True, slots=True)
class Truncated:
    """An attempt did not reach its end."""

    attempt: int
    """The attempt's number, from 1."""
    reason: str | None
    """The provider's stop reason. If there is none: the time limit that ended the attempt, or
    `"dropped"`."""
    limit: int | None
    """The output limit that it was sent with, in tokens; `None`: none was set."""
    output_tokens: int | None
    """Its output tokens, counted by the provider or estimated by us; `None`: unknown."""
    estimated: bool = False
    """Whether `output_tokens` is our estimate."""


@dataclass(frozen=True, slots=True)
class Escalating:
    """The same request is resent with a raised limit."""

    attempt: int
    """The number of the attempt that begins."""
    limit: int
    """The raised output limit, in tokens."""
    replaces: bool
    """Whether the new answer replaces everything so far, because nothing was delivered."""


@dataclass(frozen=True, slots=True)
class Recovering:
    """Another attempt continues the answer, or requests it again."""

    attempt: int
    """The number of the attempt that begins."""
    limit: int | None
    """Its output limit, in tokens; `None`: none is set."""
    way: str
    """How: `prefill`, `prompt`, `retry_smaller`, `call`, `argument`, `resend` or `token`."""
    replaces: bool = False
    """Whether the new answer replaces everything so far, because nothing was delivered."""


@dataclass(frozen=True, slots=True)
class Retrying:
    """An attempt failed with a temporary error, and is retried."""

    attempt: int
    """The number of the attempt that failed."""
    error: str
    """A status and the error's type, or an exception's name."""
    seconds: float
    """The wait before the retry, in seconds."""
    replaces: bool = False
    """Always `False`: nothing that was delivered changes."""


@dataclass(frozen=True, slots=True)
class Repairing:
    """The request's history was repaired, and the request is sent with the repaired history."""

    attempt: int
    """The number of the attempt that begins."""
    code: str
    """The rule that the history broke: a `code` of `continuation.history.Violation`."""
    changes: int
    """The number of changes; the report's `repairs` lists them."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The turn has ended. This is emitted before its last bytes are delivered."""

    report: Report
    """The turn's report."""


@dataclass(frozen=True, slots=True)
class NotDurable:
    """The journal could not be written. If the process is killed now, what arrived is lost."""

    error: str
    """The exception's name."""
    reason: str = ""
    """The reason, and what to do about it."""


@dataclass(frozen=True, slots=True)
class ChainStore:
    """A chain store outside this process was read or written."""

    operation: str
    """`read` or `write`."""
    seconds: float
    """The seconds that it took, or until the engine stopped waiting for it."""
    error: str | None
    """An exception's name (`TimeoutError`: it took too long) or `not kept`; `None`: it worked."""


Event: TypeAlias = (
    Truncated | Escalating | Recovering | Retrying | Repairing | NotDurable | ChainStore | Finished
)
OnEvent: TypeAlias = Callable[[Event], object]


@dataclass(frozen=True, slots=True)
class SeamReport:
    """The place where the texts of two attempts are joined."""

    attempt: int
    """The later attempt's number."""
    at: int
    """Characters of visible text before the seam."""
    kind: str
    """What was found at the seam: a value of `continuation.seams.judge.SeamKind`.

    `assumed` means that the later attempt repeated nothing that proves where it continues."""
    dropped: int
    """Characters dropped at the beginning of the later attempt, as a repetition or preamble."""
    taken_back: int
    """Characters of buffered text before the seam that were dropped."""
    inserted: int
    """Characters inserted between the two texts, such as a space or a line break."""
    confidence: float
    """The confidence of the finding, from 0 to 1."""
    argument: str | None = None
    """`tool.argument` if the seam is inside a call's argument. Then `at` counts characters of the
    argument."""


@dataclass(frozen=True, slots=True)
class CallReport:
    """The result of a function call in a turn with an incomplete attempt."""

    name: str
    how: str
    """`as it came`, `asked again` (the request, or missing arguments), `completed` (its argument
    was continued), or for a call that stays truncated the policy: `explain`, `drop`, `keep`..."""
    characters: int
    """The number of characters of its arguments that arrived."""
    reason: str | None = None
    """Why a truncated call was not completed, if the policy says that it should be."""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one turn. `as_dict()` returns it as plain JSON values."""

    outcome: Outcome
    """`complete`, `healed`, `partial`, `truncated`, `stalled`, `incomplete`, `untouched` or
    `failed`."""
    reason: str | None
    """Why the outcome is not `complete` or `healed`, for people to read. Do not parse it."""
    dialect: str
    """The wire format: `anthropic`, `openai-chat`, `openai-responses`, `gemini` or another one."""
    model: str | None
    """The model's name in the request; `None`: it could not be read."""
    stop: str | None
    """The stop reason that was delivered; `None`: none."""
    synthetic: bool
    """Whether that stop reason is ours and not the provider's."""
    attempts: tuple[Attempt, ...]
    """The attempts, in the order in which they were sent."""
    seams: tuple[SeamReport, ...]
    """The places where texts of two attempts are joined, from the first to the last."""
    error: str | None
    """The error of the last attempt that failed; `None`: none failed."""
    seconds: float
    """Seconds from the caller's request to the end of the answer."""
    rows: tuple[str, ...] = ()
    """The rows of the decision table that were taken, in order."""
    learned: tuple[Lesson, ...] = ()
    """What this turn learned about the model's limits. Later turns of the client use it."""
    repairs: tuple[Change, ...] = ()
    """The first 1,000 changes made to the request's history so that the provider accepts it."""
    calls: tuple[CallReport, ...] = ()
    """The results of the first 1,000 function calls; empty if no attempt was incomplete."""
    host: str | None = None
    """The host to which the request was sent."""
    characters: int | None = None
    """Characters of visible text in the answer; `None`: not counted.

    They are counted only if an attempt was incomplete."""
    chain: str | None = None
    """What the chain store failed to do; `None`: nothing, or it was not used."""
    ending: str | None = None
    """What ended the answer: a value of `continuation.types.Stop`, or `empty`; `None`: unknown.

    `stop` is the provider's own word for it."""
    remedy: str | None = None
    """What to do about an incomplete answer, in one sentence; `None`: there is nothing to do."""

    @property
    def turn(self) -> Usage:
        """Tokens of the turn as if it were one attempt: the first prompt, all output delivered."""
        return delivered(self.attempts)

    @property
    def billed(self) -> Usage:
        """Tokens of all attempts, including discarded ones and excluding `saved` ones."""
        return total([a for a in self.attempts if not a.saved])

    @property
    def saved(self) -> Usage:
        """Tokens of output that existed before the turn and became part of its answer.

        A stopped process made that output, or another call whose answer `finish` continued. It was
        not billed again. The tokens of a stopped process are an estimate.
        """
        return total([a for a in self.attempts if a.saved and not a.discarded])

    @property
    def discarded(self) -> Usage:
        """Tokens of the attempts whose answers are not part of the turn's answer."""
        return total([a for a in self.attempts if a.discarded])

    @property
    def cost(self) -> float | None:
        """What was billed, in US dollars at list prices; `None`: unknown.

        Prices come from `genai-prices`, which the extra `pricing` installs.
        """
        from continuation.reports.account import cost

        return cost(self)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values, with all usages and the cost."""
        usages = {"turn": self.turn, "billed": self.billed, "discarded": self.discarded}
        usages["saved"] = self.saved
        fields = {name: asdict(usage) for name, usage in usages.items()}
        return {**asdict(self), **fields, "cost": self.cost}

    def __str__(self) -> str:
        """Return the turn as lines of text: its outcome, each attempt, what was billed."""
        from continuation.reports.account import account

        return account(self)

    def to_html(self) -> str:
        """Return an HTML page with the turn's timeline. It loads nothing and runs no script."""
        from continuation.reports.timeline import page

        return page([self])

    def _repr_html_(self) -> str:
        """Return the timeline as HTML for a notebook."""
        from continuation.reports.timeline import fragment

        return fragment(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Report:
        """Make a report from the mapping that `as_dict` returned. Unknown names are ignored.

        Raises `ValueError` if the mapping is not a report.
        """
        from continuation.reports.account import read

        return read(document)


class TruncatedAnswerError(Exception):
    """Raised if an answer could not be completed and `on_failure = "raise"`.

    The SDKs do not treat it as a connection error, so they do not resend the request.
    """

    def __init__(self, report: Report, text: str, body: bytes | None) -> None:
        """Make the exception; the attributes have the same names."""
        self.report = report
        """The turn's report."""
        self.text = text
        """The visible text so far. If the answer was streamed, all of it was delivered."""
        self.body = body
        """The answer so far, as a body in the provider's format; `None` for a stream."""
        from continuation.reports.account import plural

        count = plural(len(text), "character")
        super().__init__(
            f"the answer is incomplete: {report.outcome} ({report.reason}), {count} received"
        )


# --- the last one --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Ended:
    """The report of a turn that ended, and the thread or task that it belongs to."""

    report: Report
    where: object
    """What `_here` returns there. `None`: the waiting task that first reads the report sets it."""


_last: contextvars.ContextVar[_Ended | None] = contextvars.ContextVar(
    "continuation_last_report", default=None
)


def _here() -> int | weakref.ref[asyncio.Task[Any]]:
    """Return an identity of the running task, or of this thread if no task runs."""
    if "asyncio" in sys.modules:
        import asyncio  # slow to import, so only if the program has imported it

        with contextlib.suppress(RuntimeError):  # no loop runs here
            if task := asyncio.current_task():
                return weakref.ref(task)
    return threading.get_ident()


def _remember(report: Report) -> None:
    """Make `report` the last one of this task or thread, and of a task that awaits this one.

    Before Python 3.12, `asyncio.wait_for` runs its awaitable in another task with a copy of the
    context. The waiting task can only be found through the callbacks of the task that it awaits.
    """
    here = _here()
    _last.set(_Ended(report, here))
    task = None if isinstance(here, int) else here()
    callbacks: list[Any] = list(getattr(task, "_callbacks", None) or ())
    for callback, _ in callbacks.copy():  # what `wait_for` waits on
        for waiter in getattr(callback, "args", ()):
            callbacks += getattr(waiter, "_callbacks", None) or ()
    for _, context in callbacks:
        with contextlib.suppress(RuntimeError):  # this context is in use
            context.run(_last.set, _Ended(report, None))


def last_report() -> Report | None:
    """Return the report of the turn that ended last in this thread or task; `None`: none ended.

    Turns in a task that this task awaited (`await task`, `asyncio.wait_for`) count. Turns that ran
    concurrently (`gather`, a task group, another thread) do not count. `watch()` collects those,
    and `report(message)` finds the report of one message.
    """
    last, here = _last.get(), _here()
    if last is None or last.where not in (None, here):  # inherited with the context
        return None
    last.where = here
    return last.report


# --- found again --------------------------------------------------------------------------------

MOST_LISTED = 1_000
"""The most changes, and the most calls, that a report lists."""
MOST = 1024
"""The number of reports that are kept. The oldest is removed first."""
_reports: dict[str, Report] = {}
_recent: deque[tuple[Set[str], Report]] = deque()
_lock = threading.Lock()


def report(thing: object) -> Report | None:
    """Return the report of the turn from which an SDK's object came; `None`: none is known.

    `thing`: the SDK's message, chunk, raw or streaming response, stream or error, or the id of a
    request or answer. The report of a stream exists after the stream has ended. The last 1,024
    reports are kept.

    Raises `TypeError` for an object without an id.
    """
    name = _id_of(thing)
    if name is None:
        raise TypeError(
            f"{type(thing).__name__} has no id; pass the message or raw response that the "
            "SDK returned, its stream, its error, or the id itself, or use last_report()"
        )
    with _lock:
        return _reports.get(name)


def _keep(report: Report, given: str) -> None:
    """Keep a report under each id of the turn that the caller may know.

    These are the ids of the attempts' answers, the id of the delivered answer (`given`) if it is
    another one, and the request id of the caller's response, which is that of the last attempt in
    mode `first`.
    """
    request_id, ids = "", {given} if given else set[str]()
    for attempt in report.attempts:
        if attempt.answer_id:
            ids.add(attempt.answer_id)
        if attempt.mode is Mode.FIRST and attempt.request_id:
            request_id = attempt.request_id
    if request_id:
        ids.add(request_id)
    with _lock:
        _recent.append((ids, report))
        _reports.update(dict.fromkeys(ids, report))
        while len(_recent) > MOST:
            old, gone = _recent.popleft()
            for name in old:
                if _reports.get(name) is gone:
                    del _reports[name]


def _id_of(thing: object) -> str | None:
    """Return an object's request id, or else the id of its answer; `None`: it has none."""
    if isinstance(thing, str):
        return thing
    for name in ("_request_id", "request_id"):
        if isinstance(attribute := getattr(thing, name, None), str):
            return attribute
    candidates: list[Any] = []
    for name in ("", "response", "http_response", "sdk_http_response", "_response"):
        headers = getattr(getattr(thing, name, None) if name else thing, "headers", None)
        if isinstance(headers, Mapping):
            lowered = {str(key).lower(): str(value) for key, value in headers.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - any SDK's headers
            candidates.append(request_id_in(lowered))
    for answer in (thing, getattr(thing, "message", None), getattr(thing, "response", None)):
        candidates += [getattr(answer, name, None) for name in ("response_id", "id")]
    return next((each for each in candidates if each and isinstance(each, str)), None)


_watching: contextvars.ContextVar[tuple[list[Report], ...]] = contextvars.ContextVar(
    "continuation_watching", default=()
)


@contextlib.contextmanager
def watch() -> Generator[list[Report]]:
    """Collect the reports of the turns that begin inside the block, in the order in which they end.

    This includes turns of tasks that are started inside the block, but not of other threads. A
    stream that is read after the block still adds its report when it ends.
    """
    turns: list[Report] = []
    token = _watching.set((*_watching.get(), turns))
    try:
        yield turns
    finally:
        with contextlib.suppress(ValueError):  # it was closed in another context
            _watching.reset(token)


_INCOMPLETE = frozenset({Outcome.PARTIAL, Outcome.TRUNCATED, Outcome.STALLED, Outcome.INCOMPLETE})
_LOGGED = _INCOMPLETE | {Outcome.HEALED}


class Spans(Protocol):
    """A tracer of one turn."""

    def finish(self, report: Report) -> None:
        """Trace the turn, which has ended."""
        ...


class Recorder:
    """Collects what a turn does, emits its events, and writes the report at its end."""

    def __init__(self, dialect: str, on_event: OnEvent | None, ledger: Ledger) -> None:
        """Begin to record a turn. `on_event`: the caller's listener, or `None`."""
        self.ledger = ledger
        self.rows: list[str] = []
        self.repairs: list[Change] = []
        self.calls: list[CallReport] = []
        self.policy: Policy | None = None
        """The policy of the turn, when it is known. Advice does not suggest what it sets."""
        self.model: str | None = None
        self.host: str | None = None
        self.finished: Report | None = None
        """The report; `None` until it is written."""
        self.chain: str | None = None
        """What the chain store last failed to do; `None`: nothing."""
        self.given = ""
        """The id of the delivered answer, if the format gives it an id of its own."""
        self.failed: str | None = None
        """How a policy that is a function of the caller failed; `None`: none failed."""
        self.left = False
        """Whether the caller stopped reading before the end."""
        self._spans: Spans | None = None
        self._dialect = dialect
        self._on_event = on_event
        self.seams: list[SeamReport] = []
        self._watching = _watching.get()

    def trace(self, wanted: str, headers: Mapping[str, str]) -> None:
        """Begin to trace the turn if the policy says so. Never raises.

        `wanted`: the policy `tracing`. "auto" traces if the program has imported OpenTelemetry and
        set a provider. `headers`: the request's headers, with lower-case names.
        """
        imported = "opentelemetry.trace" in sys.modules or "opentelemetry.metrics" in sys.modules
        if wanted == "on" or (wanted == "auto" and imported):
            from continuation.reports.tracing import begin  # most programs do not trace

            self._spans = begin(headers, always=wanted == "on")

    def tell(self, event: Event) -> None:
        """Call the listener with an event. An exception that it raises is logged and ignored."""
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception:
            name = getattr(self._on_event, "__qualname__", type(self._on_event).__qualname__)
            logger.exception("on_event failed: function=%s; the answer continues", name)

    def seam(self, at: int, verdict: Verdict, argument: str | None = None) -> None:
        """Note the seam of the last attempt.

        `at`: the characters before the seam, of the visible text, or of `argument` if the seam is
        in a call's argument (`tool.argument`).
        """
        self.seams.append(
            SeamReport(
                attempt=self.ledger.sent,
                at=at,
                kind=str(verdict.kind),
                dropped=verdict.dropped,
                taken_back=verdict.taken_back,
                inserted=verdict.inserted,
                confidence=verdict.confidence,
                argument=argument,
            )
        )

    def finish(
        self,
        outcome: Outcome,
        reason: str | None = None,
        *,
        stop: str | None = None,
        synthetic: bool = False,
        characters: int | None = None,
        ending: str | None = None,
    ) -> Report:
        """Write, keep, log and emit the report; return it. Later calls only return the report."""
        if self.finished is not None:
            return self.finished
        ledger = self.ledger
        reason = "; ".join(filter(None, (reason, self.failed))) or None
        ledger.record()  # the attempt under way, if the caller has left
        report = self.finished = Report(
            outcome=outcome,
            reason=None if reason is None else short(reason),
            dialect=self._dialect,
            model=self.model,
            stop=None if stop is None else short(stop),
            synthetic=synthetic,
            attempts=tuple(ledger.attempts),
            seams=tuple(self.seams),
            error=ledger.error,
            seconds=ledger.seconds,
            rows=tuple(self.rows),
            repairs=tuple(self.repairs[:MOST_LISTED]),
            calls=tuple(self.calls[:MOST_LISTED]),
            learned=tuple(ledger.lessons),
            host=self.host,
            characters=characters,
            chain=self.chain,
            ending=ending,
        )
        if outcome in _INCOMPLETE:
            from continuation.reports.account import remedy  # most turns are complete

            report = self.finished = replace(report, remedy=remedy(report, self.policy) or None)
        _remember(report)
        for turns in self._watching:
            turns.append(report)
        if self._spans is not None:
            try:
                self._spans.finish(report)
            except Exception:
                logger.exception("spans unavailable; the answer continues")
        _keep(report, self.given)
        level = logging.INFO if outcome is Outcome.HEALED else logging.WARNING
        if outcome in _LOGGED and logger.isEnabledFor(level):
            from continuation.reports.account import log  # most turns are complete

            log(report)
        self.tell(Finished(report))
        return report
