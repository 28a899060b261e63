"""What happened in a turn: the events while it runs, and the report when it has ended.

Neither ever holds message text, keys or headers other than a request id. The reports of recent
turns are kept and can be found by the ids in the SDK's objects.
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
    """An attempt was cut."""

    attempt: int
    """The attempt's number, from 1."""
    reason: str | None
    """The provider's stop reason; without one, whose time was up, or `"dropped"`."""
    limit: int | None
    """The output limit it was sent with, in tokens; `None`: none was set."""
    output_tokens: int | None
    """Its output tokens, by the provider's count or our estimate; `None`: unknown."""
    estimated: bool = False
    """`output_tokens` is our estimate."""


@dataclass(frozen=True, slots=True)
class Escalating:
    """The same request is sent again with a raised limit."""

    attempt: int
    """The number of the attempt that begins."""
    limit: int
    """The raised output limit, in tokens."""
    replaces: bool
    """The new answer replaces everything so far: nothing was shown."""


@dataclass(frozen=True, slots=True)
class Recovering:
    """The answer is continued, or asked for again, by another attempt."""

    attempt: int
    """The number of the attempt that begins."""
    limit: int | None
    """Its output limit, in tokens; `None`: none is set."""
    way: str
    """How: `prefill`, `prompt`, `retry_smaller`, `call`, `argument`, `resend` or `token`."""
    replaces: bool = False
    """The new answer replaces everything so far: nothing was shown."""


@dataclass(frozen=True, slots=True)
class Retrying:
    """An attempt failed with an error that may pass, and is retried."""

    attempt: int
    """The number of the attempt that failed."""
    error: str
    """A status and the error's type, or an exception's name."""
    seconds: float
    """Seconds of the wait before the retry."""
    replaces: bool = False
    """Always `False`: nothing that was shown changes."""


@dataclass(frozen=True, slots=True)
class Repairing:
    """The request's history was repaired, and the request is sent with it."""

    attempt: int
    """The number of the attempt that begins."""
    code: str
    """The rule that the history broke, as `continuation.history.validate` names it."""
    changes: int
    """How many changes were made; the report's `repairs` lists them."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The turn has ended; emitted before its last bytes reach the caller."""

    report: Report
    """What became of it."""


@dataclass(frozen=True, slots=True)
class NotDurable:
    """The journal could not be written: until it can be, a kill loses what has arrived."""

    error: str
    """The exception's name."""
    reason: str = ""
    """Why, and what to do about it."""


@dataclass(frozen=True, slots=True)
class ChainStore:
    """A chain store outside this process was read or written."""

    operation: str
    """`read` or `write`."""
    seconds: float
    """Seconds that it took, or that were waited for it."""
    error: str | None
    """An exception's name (`TimeoutError`: it took too long) or `not kept`; `None`: it worked."""


Event: TypeAlias = (
    Truncated | Escalating | Recovering | Retrying | Repairing | NotDurable | ChainStore | Finished
)
OnEvent: TypeAlias = Callable[[Event], object]


@dataclass(frozen=True, slots=True)
class SeamReport:
    """Where two attempts meet."""

    attempt: int
    """The later attempt's number."""
    at: int
    """Characters of visible text before the seam."""
    kind: str
    """What was found at the seam: a value of `continuation.seams.judge.SeamKind`.

    `assumed` means that the later attempt repeated nothing which proves where it continues."""
    dropped: int
    """Characters left out at the beginning of the later attempt, as a repetition or preamble."""
    taken_back: int
    """Characters of held text before the seam that were left out."""
    inserted: int
    """Characters, such as a space or a line break, that were put between the two."""
    confidence: float
    """How sure the finding is, from 0 to 1."""
    argument: str | None = None
    """`tool.argument` if the seam is inside a call's argument; then `at` counts its characters."""


@dataclass(frozen=True, slots=True)
class CallReport:
    """What became of a function call in a turn that was cut."""

    name: str
    how: str
    """`as it came`, `asked again` (the request, or missing arguments), `completed` (its argument
    was continued), or for a call that stays cut the policy: `explain`, `drop`, `keep`..."""
    characters: int
    """Characters of its arguments that arrived."""
    reason: str | None = None
    """Why a cut call was not completed, if policy asks for that."""


@dataclass(frozen=True, slots=True)
class Report:
    """What became of one turn. `as_dict()` returns it as plain JSON values."""

    outcome: Outcome
    """`complete`, `healed`, `partial`, `truncated`, `stalled`, `incomplete`, `untouched` or
    `failed`."""
    reason: str | None
    """Why it is not `complete` or `healed`; for people to read, not for code."""
    dialect: str
    """The wire format: `anthropic`, `openai-chat`, `openai-responses`, `gemini` or another one."""
    model: str | None
    """The model's name as the request had it; `None`: it could not be read."""
    stop: str | None
    """The stop reason the caller got; `None`: none."""
    synthetic: bool
    """Whether that stop reason is ours and not the provider's."""
    attempts: tuple[Attempt, ...]
    """The upstream calls, in the order they were sent."""
    seams: tuple[SeamReport, ...]
    """Where the texts of two attempts meet, from the first to the last."""
    error: str | None
    """The error of the last attempt that failed; `None`: none did."""
    seconds: float
    """Seconds from the caller's request to the end of the answer."""
    rows: tuple[str, ...] = ()
    """The rows of the decision table that were taken, in order."""
    learned: tuple[Lesson, ...] = ()
    """What this turn learned about the model's limits; later turns of the client use it."""
    repairs: tuple[Change, ...] = ()
    """The first 1,000 changes made to the request's history so that the provider accepts it."""
    calls: tuple[CallReport, ...] = ()
    """What became of each function call, of the first 1,000; empty for a turn that was not cut."""
    host: str | None = None
    """The host that the request was sent to."""
    characters: int | None = None
    """Characters of visible text in the answer, of a turn that was cut; `None`: not counted."""
    chain: str | None = None
    """What the chain store failed to do; `None`: nothing, or it was not used."""
    ending: str | None = None
    """What ended the answer: a value of `continuation.types.Stop`, or `empty`; `None`: unknown.

    `stop` is the provider's own word for it."""
    remedy: str | None = None
    """What to do about an incomplete answer, in one sentence; `None`: there is nothing to do."""

    @property
    def turn(self) -> Usage:
        """Tokens of the turn as if uncut: the first prompt, and all output delivered."""
        return delivered(self.attempts)

    @property
    def billed(self) -> Usage:
        """Tokens of all attempts, discarded ones included, `saved` ones not."""
        return total([a for a in self.attempts if not a.saved])

    @property
    def saved(self) -> Usage:
        """Tokens of output that was made before, elsewhere or by a stopped process, and reused.

        They were not billed again. Of a stopped process they are an estimate.
        """
        return total([a for a in self.attempts if a.saved and not a.discarded])

    @property
    def discarded(self) -> Usage:
        """Tokens of the attempts whose answers are not part of the turn's answer."""
        return total([a for a in self.attempts if a.discarded])

    @property
    def cost(self) -> float | None:
        """What was billed, in US dollars at list prices; `None`: the prices are unknown.

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
        """Return an HTML page with the turn's timeline; it loads nothing and runs no script."""
        from continuation.reports.timeline import page

        return page([self])

    def _repr_html_(self) -> str:
        """Return the timeline as HTML for a notebook."""
        from continuation.reports.timeline import fragment

        return fragment(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Report:
        """Return the report whose `as_dict` returned this mapping; unknown names are ignored.

        Raises `ValueError` if the mapping is no report.
        """
        from continuation.reports.account import read

        return read(document)


class TruncatedAnswerError(Exception):
    """Raised for an answer that could not be made whole, if `on_failure = "raise"`.

    No SDK takes it for a connection error, so none sends the request again.
    """

    def __init__(self, report: Report, text: str, body: bytes | None) -> None:
        """Make the exception; the attributes have the same names."""
        self.report = report
        """What became of the turn."""
        self.text = text
        """The visible text so far; of a stream, all of it has been shown."""
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
    """What `_here` returns there; `None`: the waiting task that reads it first sets this."""


_last: contextvars.ContextVar[_Ended | None] = contextvars.ContextVar(
    "continuation_last_report", default=None
)


def _here() -> int | weakref.ref[asyncio.Task[Any]]:
    """Return an identity of the running task, or of this thread where no task runs."""
    if "asyncio" in sys.modules:
        import asyncio  # slow to import: only where the program has done so

        with contextlib.suppress(RuntimeError):  # no loop runs here
            if task := asyncio.current_task():
                return weakref.ref(task)
    return threading.get_ident()


def _remember(report: Report) -> None:
    """Make `report` the last one of this task or thread, and of a task that awaits this one.

    Before Python 3.12 `asyncio.wait_for` runs its awaitable in a task of its own, whose context is
    a copy. The waiting task can only be found through the callbacks of the task it waits for.
    """
    here = _here()
    _last.set(_Ended(report, here))
    task = None if isinstance(here, int) else here()
    callbacks: list[Any] = list(getattr(task, "_callbacks", None) or ())
    for callback, _ in callbacks.copy():  # what `wait_for` waits on
        for waiter in getattr(callback, "args", ()):
            callbacks += getattr(waiter, "_callbacks", None) or ()
    for _, context in callbacks:
        with contextlib.suppress(RuntimeError):  # it is entered just now
            context.run(_last.set, _Ended(report, None))


def last_report() -> Report | None:
    """Return the report of the turn that ended last in this thread or task; `None`: none ended.

    Turns in a task that this one awaited (`await task`, `asyncio.wait_for`) count. Turns that ran
    beside it (`gather`, a task group, another thread) do not: `watch()` collects those, and
    `report(message)` finds the report of one message.
    """
    last, here = _last.get(), _here()
    if last is None or last.where not in (None, here):  # inherited with the context
        return None
    last.where = here
    return last.report


# --- found again --------------------------------------------------------------------------------

MOST_LISTED = 1_000
"""How many changes and how many calls a report lists."""
MOST = 1024
"""Number of reports that are kept; the oldest is removed first."""
_reports: dict[str, Report] = {}
_recent: deque[tuple[Set[str], Report]] = deque()
_lock = threading.Lock()


def report(thing: object) -> Report | None:
    """Return the report of the turn that an SDK object came from; `None`: none is known.

    `thing`: a message, chunk, raw or streaming response, stream or error as the SDK gave it, or
    the id of a request or answer. A stream has its report when it has ended. The last 1,024
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
    """Keep a report under the ids that the caller may have of the turn.

    These are the ids of its answers, the id of the `given` one if it has its own, and the request
    id of the response that the caller holds: that of the last attempt in mode `first`.
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
    """Return an object's request id, else the id of its answer or its event's; `None`: none."""
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
    """Collect the reports of the turns that begin inside the block, in the order they end.

    Tasks started inside the block are watched too; other threads are not. A stream that is read
    after the block still adds its report when it ends.
    """
    turns: list[Report] = []
    token = _watching.set((*_watching.get(), turns))
    try:
        yield turns
    finally:
        with contextlib.suppress(ValueError):  # closed in another context: nothing to undo there
            _watching.reset(token)


_INCOMPLETE = frozenset({Outcome.PARTIAL, Outcome.TRUNCATED, Outcome.STALLED, Outcome.INCOMPLETE})
_LOGGED = _INCOMPLETE | {Outcome.HEALED}


class Spans(Protocol):
    """What traces a turn."""

    def finish(self, report: Report) -> None:
        """Trace the turn, now that it has ended."""
        ...


class Recorder:
    """Collects what a turn does, emits its events, and writes the report at its end."""

    def __init__(self, dialect: str, on_event: OnEvent | None, ledger: Ledger) -> None:
        """Begin to record a turn; `on_event`: the listener, if there is one."""
        self.ledger = ledger
        self.rows: list[str] = []
        self.repairs: list[Change] = []
        self.calls: list[CallReport] = []
        self.policy: Policy | None = None
        """The policy of the turn, once it is known: no advice names what it sets."""
        self.model: str | None = None
        self.host: str | None = None
        self.finished: Report | None = None
        """The report; `None` until it is written."""
        self.chain: str | None = None
        """What the chain store failed to do last; `None`: nothing."""
        self.given = ""
        """The id of the answer that the caller gets, if its format gives it one of its own."""
        self.failed: str | None = None
        """How a function that the caller gave as a policy failed; `None`: none did."""
        self.left = False
        """Whether the caller stopped reading before the end."""
        self._spans: Spans | None = None
        self._dialect = dialect
        self._on_event = on_event
        self.seams: list[SeamReport] = []
        self._watching = _watching.get()

    def trace(self, wanted: str, headers: Mapping[str, str]) -> None:
        """Begin to trace the turn if `wanted`, the policy `tracing`, asks for it. Never raises.

        "auto": if the program has imported OpenTelemetry and set a provider. `headers`: those of
        the request, with lower-case names.
        """
        imported = "opentelemetry.trace" in sys.modules or "opentelemetry.metrics" in sys.modules
        if wanted == "on" or (wanted == "auto" and imported):
            from continuation.reports.tracing import begin  # most programs do not trace

            self._spans = begin(headers, always=wanted == "on")

    def tell(self, event: Event) -> None:
        """Give an event to the listener; an exception it raises is logged and nothing more."""
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception:
            name = getattr(self._on_event, "__qualname__", type(self._on_event).__qualname__)
            logger.exception("on_event failed: function=%s; the answer continues", name)

    def seam(self, at: int, verdict: Verdict, argument: str | None = None) -> None:
        """Note the seam of the last attempt; `at`: characters of text before it."""
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
        """Write, keep, log and emit the report; return it. Later calls return the first report."""
        if self.finished is not None:
            return self.finished
        ledger = self.ledger
        reason = "; ".join(filter(None, (reason, self.failed))) or None
        ledger.record()  # the call that is under way, if the caller has left
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
            from continuation.reports.account import log  # most turns are whole

            log(report)
        self.tell(Finished(report))
        return report
