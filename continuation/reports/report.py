"""What happened in a turn: the events while it runs, and the report when it has ended.

Neither ever holds message text, keys or headers other than a request id.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from continuation.reports.recent import find, keep
from continuation.types import Mode, Outcome, Usage

if TYPE_CHECKING:
    from continuation.seams.seam import Verdict

logger = logging.getLogger("continuation")


@dataclass(frozen=True, slots=True)
class Truncated:
    """An attempt was cut. `reason` is the provider's word, or `"dropped"`."""

    attempt: int
    reason: str | None
    limit: int | None
    output_tokens: int | None


@dataclass(frozen=True, slots=True)
class Escalating:
    """The same request is sent again with a raised limit.

    `replaces`: what follows takes the place of everything so far (nothing was shown).
    """

    attempt: int
    limit: int
    replaces: bool


@dataclass(frozen=True, slots=True)
class Recovering:
    """The model is asked to go on; what follows continues what was shown."""

    attempt: int
    limit: int | None
    way: str
    """`prefill`, `prompt`, `guide`, `resend` or `token`."""
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Retrying:
    """A later attempt was turned away and is tried again after `seconds`."""

    attempt: int
    error: str
    seconds: float
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Repairing:
    """The history was made valid; the request is sent (again) with it."""

    attempt: int
    code: str
    """What was wrong, as `continuation.history.validate` names it."""
    changes: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The turn has ended; told before its last bytes reach the caller."""

    report: Report


Event: TypeAlias = Truncated | Escalating | Recovering | Retrying | Repairing | Finished
OnEvent: TypeAlias = Callable[[Event], object]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One upstream call."""

    number: int
    mode: Mode
    """How it joined the turn: `first`, `replace`, `append_tail`, `recovery` or
    `native_continuation`."""
    limit: int | None
    """The output limit it was sent with, in tokens; `None`: none was set."""
    stop: str | None
    """The provider's own stop reason; `None` when it never said one."""
    usage: Usage | None
    request_id: str | None
    seconds: float
    error: str | None = None
    """Why it failed, if it did: a status or an exception's name."""
    discarded: bool = False
    """Its answer is not in the turn (it was billed all the same)."""
    estimated: bool = False
    """`usage` is our estimate: the provider gave no count."""
    answered: bool = False
    """The provider began to answer it with 2xx, so that it was billed."""
    begun: float = 0.0
    """Seconds since the turn began."""
    answer_id: str | None = None
    """The id in the answer itself (`msg_...`, `chatcmpl-...`, `resp_...`), where it was read."""


@dataclass(frozen=True, slots=True)
class Seam:
    """Where two attempts meet."""

    attempt: int
    """The later attempt's number."""
    at: int
    """Characters of visible text before the seam."""
    kind: str
    dropped: int
    taken_back: int
    inserted: int
    confidence: float


@dataclass(frozen=True, slots=True)
class Lesson:
    """What was learned of a model's limits in this turn; later turns of the client know it."""

    kind: str
    """`ceiling` or `raised`, in tokens; `prefill`, 0: refused."""
    value: int
    source: str
    """`refusal`, `models endpoint` or `escalation`."""


@dataclass(frozen=True, slots=True)
class Repair:
    """One change to a history: what was done, where (a path), and why (a rule's code)."""

    what: str
    where: str
    why: str


@dataclass(frozen=True, slots=True)
class Report:
    """What became of one turn. `as_dict()` is JSON-able."""

    outcome: Outcome
    reason: str | None
    """Why it is not `complete` or `healed`; for the eye, not for code."""
    dialect: str
    model: str | None
    stop: str | None
    """The stop reason the caller got."""
    synthetic: bool
    """That stop reason is ours, not the provider's."""
    attempts: tuple[Attempt, ...]
    seams: tuple[Seam, ...]
    error: str | None
    """What the last failed attempt failed with."""
    seconds: float
    rows: tuple[str, ...] = ()
    """The rows of the decision table that were taken, in order."""
    learned: tuple[Lesson, ...] = ()
    repairs: tuple[Repair, ...] = ()
    """What was changed in the request's history so that the provider takes it."""

    @property
    def turn(self) -> Usage:
        """What the turn would have cost uncut: the first prompt, and all output delivered."""
        kept = [a.usage for a in self.attempts if a.usage and not a.discarded]
        first = next((a.usage for a in self.attempts if a.usage), Usage())
        return Usage(
            input=first.input,
            cached=first.cached,
            cache_write=first.cache_write,
            output=_sum([usage.output for usage in kept]),
            thinking=_sum([usage.thinking for usage in kept]),
        )

    @property
    def billed(self) -> Usage:
        """All tokens of all attempts, discarded ones too."""
        return _total([a.usage for a in self.attempts if a.usage])

    @property
    def discarded(self) -> Usage:
        """The part of `billed` whose answers are not in the turn."""
        return _total([a.usage for a in self.attempts if a.usage and a.discarded])

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values, all usages included."""
        usages = {"turn": self.turn, "billed": self.billed, "discarded": self.discarded}
        return {**asdict(self), **{name: asdict(usage) for name, usage in usages.items()}}


def _total(usages: list[Usage]) -> Usage:
    return Usage(
        input=_sum([usage.input for usage in usages]),
        cached=_sum([usage.cached for usage in usages]),
        cache_write=_sum([usage.cache_write for usage in usages]),
        output=_sum([usage.output for usage in usages]),
        thinking=_sum([usage.thinking for usage in usages]),
    )


def _sum(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


_last: contextvars.ContextVar[Report | None] = contextvars.ContextVar(
    "continuation_last_report", default=None
)


def last_report() -> Report | None:
    """Return the report of the turn that ended last in this thread or task, if one did."""
    return _last.get()


def report(thing: object) -> Report | None:
    """Return the report of the turn that an SDK object came from; `None`: none is known.

    `thing`: a message, a chunk, a raw or streaming response, a stream or an error as the SDK gave
    it, or an id: a request's or an answer's. A stream's report is there when the stream has
    ended. The last 1,024 are known.

    Raises `TypeError` for an object that carries no id.
    """
    return find(thing)


_watching: contextvars.ContextVar[tuple[list[Report], ...]] = contextvars.ContextVar(
    "continuation_watching", default=()
)


@contextlib.contextmanager
def watch() -> Generator[list[Report]]:
    """Collect the reports of the turns that begin inside the block, in the order they end.

    Tasks started inside the block are watched too, other threads are not. A stream that is read
    after the block adds its report when it ends.
    """
    turns: list[Report] = []
    token = _watching.set((*_watching.get(), turns))
    try:
        yield turns
    finally:
        with contextlib.suppress(ValueError):  # closed in another context: nothing to undo there
            _watching.reset(token)


@dataclass(slots=True)
class Recorder:
    """Collects what a turn does, and tells those who listen."""

    dialect: str
    on_event: OnEvent | None
    now: Callable[[], float]
    started: float = 0.0
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    seams: list[Seam] = field(default_factory=list[Seam])
    repairs: list[Repair] = field(default_factory=list[Repair])
    rows: list[str] = field(default_factory=list[str])
    learned: list[Lesson] = field(default_factory=list[Lesson])
    live: Attempt | None = None
    """The upstream call that is under way, as far as it is known."""
    model: str | None = None
    error: str | None = None
    finished: Report | None = None
    watching: tuple[list[Report], ...] = ()
    then: Callable[[Report], object] | None = None
    """Who else gets the report (`tracing.py`)."""

    def __post_init__(self) -> None:
        self.started = self.now()
        self.watching = _watching.get()

    def tell(self, event: Event) -> None:
        """Hand an event to the listener. A listener that raises is logged, and no more."""
        if self.on_event is None:
            return
        try:
            self.on_event(event)
        except Exception:
            logger.exception("on_event raised; the turn goes on")

    def seam(self, attempt: int, at: int, verdict: Verdict) -> None:
        self.seams.append(
            Seam(
                attempt=attempt,
                at=at,
                kind=str(verdict.kind),
                dropped=verdict.dropped,
                taken_back=verdict.taken_back,
                inserted=verdict.inserted,
                confidence=verdict.confidence,
            )
        )

    def draft(self) -> Report:
        """Return the report as it would stand now."""
        return Report(
            outcome=Outcome.PARTIAL,
            reason=None,
            dialect=self.dialect,
            model=self.model,
            stop=None,
            synthetic=False,
            attempts=tuple(self.attempts),
            seams=tuple(self.seams),
            error=self.error,
            seconds=self.now() - self.started,
            rows=tuple(self.rows),
            repairs=tuple(self.repairs),
            learned=tuple(self.learned),
        )

    def finish(
        self,
        outcome: Outcome,
        reason: str | None = None,
        *,
        stop: str | None = None,
        synthetic: bool = False,
    ) -> Report:
        """Write the report, make it this context's last one, and tell. The first call counts."""
        if self.finished is not None:
            return self.finished
        if self.live is not None:
            took = self.now() - self.started - self.live.begun
            self.attempts.append(replace(self.live, seconds=took))
        report = self.finished = replace(
            self.draft(),
            outcome=outcome,
            reason=reason,
            stop=stop,
            synthetic=synthetic,
        )
        _last.set(report)
        self._keep(report)
        self.tell(Finished(report))
        return report

    def _keep(self, report: Report) -> None:
        """Let those find it who look for it."""
        for turns in self.watching:
            turns.append(report)
        if self.then is not None:
            try:
                self.then(report)
            except Exception:
                logger.exception("the spans could not be made; the turn goes on")
        first = (a.request_id for a in reversed(self.attempts) if a.mode is Mode.FIRST)
        ids = {next(filter(None, first), None), *(a.answer_id for a in self.attempts)}
        keep([found for found in ids if found], report)
