"""Sending a request until it is answered: the caller's own first, then each later attempt.

The caller's own request goes out as it is, with a raised limit, or with a valid history; what is
refused because of a change of ours is sent again as the caller made it. A later attempt is retried
after errors that pass, and repeated with what a refusal taught.
"""

from __future__ import annotations

import email.utils
import random
from collections.abc import Callable, Generator, Hashable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from continuation.dialect import Dialect, ProviderRequest
from continuation.engine.budget import Budget
from continuation.engine.commands import Command, Read, Reply, Script, Send, Wait
from continuation.engine.table import Action
from continuation.ledger import Ledger
from continuation.limits import Learned
from continuation.policy import Policy
from continuation.reports.report import Recorder, Repair, Repairing, Retrying
from continuation.types import ClassifiedError, ErrorKind, Head, Mode, Outgoing, Way

if TYPE_CHECKING:
    from continuation.engine.history_repair import RepairedRequest

LESSONS = 2
"""How often one attempt may be repeated because its limit or its form was refused."""
HISTORY_STATUSES = frozenset({400, 404, 422})
"""What providers answer to a history they cannot take, or do not find."""
LONGEST_BACKOFF = 8.0
"""Seconds; what the SDKs use as well."""
_LOOKUP_SECONDS = 5.0

Build: TypeAlias = Callable[[int | None, Way], Outgoing]
"""Makes an attempt's request for a limit and a way; called again after a lesson."""


def send(
    ledger: Ledger,
    outgoing: Outgoing | None,
    mode: Mode,
    limit: int | None,
    seconds: float | None = None,
) -> Generator[Command, Reply, Reply]:
    """Send one call, and note it in the ledger; `None`: the caller's own, byte for byte."""
    ledger.begin(mode, limit)
    reply = yield Send(outgoing, seconds)
    if isinstance(reply, Head):
        ledger.answered(reply)
    return reply


class Attempts:
    """Sends the requests of one turn."""

    def __init__(
        self,
        dialect: Dialect,
        request: ProviderRequest,
        policy: Policy,
        recorder: Recorder,
        learned: Learned,
        key: Hashable,
        timeout: float | None,
        wall: Callable[[], float] | None,
    ) -> None:
        """Begin.

        `key` is what the model's lessons are kept under, `timeout` the caller's own. `wall` says
        what time it is, for a `retry-after` that names a date.
        """
        self.request = request
        """The caller's request, as it was sent at last."""
        self._dialect = dialect
        self._policy = policy
        self._recorder = recorder
        self._ledger = recorder.ledger
        self._learned = learned
        self._key = key
        self._timeout = timeout
        self._wall = wall

    @cached_property
    def budget(self) -> Budget:
        """What the turn may still spend: made when something is cut or refused, not before."""
        return Budget(
            self._policy,
            self._dialect,
            self.request,
            self._ledger,
            self._learned,
            self._key,
            self._timeout,
        )

    # --- the caller's own request ----------------------------------------------------------------

    def first(self, *, ours: bool) -> Generator[Command, Reply, Reply]:
        """Send the first attempt until it is answered; `ours`: its answer will be healed."""
        policy, raised = self._policy, None
        repaired = self._repaired_before()
        if ours and repaired is None:
            remembered = policy.remember_limit and self._learned.get(self._key).start
            if remembered or policy.initial_limit == "ceiling":
                raised = self.budget.raised_first()
        if repaired is not None:
            reply = yield from self._send(self._adopt(repaired))
        elif raised is not None:
            reply = yield from self._raised(raised)
        else:
            reply = yield from self._send(None)
        if isinstance(reply, Head) and reply.status in HISTORY_STATUSES:
            reply = yield from self._refused(reply, ours=ours)
        return reply

    def _send(self, outgoing: Outgoing | None) -> Generator[Command, Reply, Reply]:
        """Send it under the caller's own limit."""
        seconds = self.budget.seconds_left if outgoing is not None else None
        return send(self._ledger, outgoing, Mode.FIRST, self.request.limit, seconds)

    def _repaired_before(self) -> RepairedRequest | None:
        """Repair the request before it is sent, where its server or the policy wants that."""
        rewritten = self.request.rewritten(self._policy)
        if rewritten is None and self._policy.repair != "before_send":
            return None
        from continuation.engine import history_repair  # not needed until something is broken

        if rewritten is not None:
            return history_repair.rewritten(rewritten)
        return history_repair.before_sending(self._dialect, self.request, self._policy)

    def _raised(self, limit: int) -> Generator[Command, Reply, Reply]:
        """Send it with a limit of ours; if that is refused, with the caller's own."""
        budget, outgoing = self.budget, self.request.first(limit)
        reply = yield from send(self._ledger, outgoing, Mode.FIRST, limit, budget.seconds_left)
        if not (isinstance(reply, Head) and reply.status in {400, 422, 429}):
            return reply
        body = yield Read()
        error = self.request.refused(reply, body if isinstance(body, bytes) else b"")
        self._ledger.record(error=error.error)
        budget.learned.learn(budget.key, raised=None)
        named = error.maximum if budget.learn(error, limit) else None
        spare = self._ledger.sent == 1 and self._policy.max_attempts > 2
        if named is not None and named > (self.request.limit or 0) and spare:
            return (yield from self._raised(named))
        return (yield from self._send(None))

    def _refused(self, head: Head, *, ours: bool) -> Generator[Command, Reply, Reply]:
        """A history the provider rejects is repaired and sent again, once."""
        body = yield Read()
        if not isinstance(body, bytes):
            return body  # it broke off: that is the caller's error, and the head has no more to say
        from continuation.engine import history_repair

        repaired = history_repair.after_refusal(
            self._dialect, self.request, head, body, self._policy
        )
        if repaired is not None:
            self._ledger.record(error=f"{head.status} {repaired.code}")
            return (yield from self._send(self._adopt(repaired)))
        return (yield from self._limit_consumed(head, body)) if ours else head

    def _limit_consumed(self, head: Head, body: bytes) -> Generator[Command, Reply, Reply]:
        """An error that means "the limit was used up by thinking" is a cut answer: escalate."""
        error = self.request.refused(head, body) if self.budget.below else None
        if error is None or error.kind is not ErrorKind.LIMIT_CONSUMED:
            return head
        self._ledger.record(error=error.error)
        self._recorder.rows.append("refused: the limit was spent without a word")
        limit = self.budget.spend(Action.ESCALATE)
        return (yield from self._raised(limit)) if limit is not None else head

    def _adopt(self, repaired: RepairedRequest) -> Outgoing:
        """From here on the caller's request is the one with the valid history."""
        self.request = repaired.request
        changes = [Repair(c.what, c.where, c.why) for c in repaired.changes]
        self._recorder.repairs += changes
        self._recorder.tell(Repairing(self._ledger.sent + 1, repaired.code, len(changes)))
        return repaired.outgoing

    # --- later attempts --------------------------------------------------------------------------

    def open(
        self, build: Build, limit: int | None, mode: Mode, way: Way = Way.PROMPT
    ) -> Generator[Command, Reply, tuple[Head, Way] | None]:
        """Send a later attempt, its retries and lessons included; `None`: it failed for good.

        Returns the head of its answer, and the way in which it was asked at last.
        """
        budget, tries, lessons = self.budget, 0, LESSONS
        anew = mode in {Mode.REPLACE, Mode.APPEND_TAIL}
        while True:
            outgoing = build(limit, way)
            reply = yield from send(self._ledger, outgoing, mode, limit, budget.seconds_left)
            if not isinstance(reply, Head):
                error = ClassifiedError(ErrorKind.RETRYABLE, type(reply).__name__)
            elif reply.ok:
                return reply, way
            else:
                body = yield Read()
                error = self.request.refused(reply, body if isinstance(body, bytes) else b"")
            self._ledger.record(error=error.error)
            if budget.spent:
                return None
            if lessons and (quota := budget.quota(error, limit)) is not None:
                lessons -= 1  # no wait would make room for more
                limit = quota
            elif error.kind is ErrorKind.RETRYABLE and tries < self._policy.max_retries:
                seconds = self._pause(reply, tries, error.wait)
                if seconds is None or seconds >= budget.patience:
                    return None
                tries += 1
                self._recorder.tell(Retrying(self._ledger.sent, error.error, seconds))
                yield Wait(seconds)
            # A rate limit that met an escalation: the raised limit may be its cause.
            elif (
                anew
                and isinstance(reply, Head)
                and reply.status == 429
                and (smaller := budget.step_down(limit))
            ):
                limit = smaller
            elif lessons and budget.learn(error, limit):
                lessons -= 1
                way = Way.PROMPT if error.kind is ErrorKind.PREFILL else way
                limit = error.maximum or limit
            else:
                return None

    def ask_ceiling(self) -> Script:
        """Ask the provider for the model's ceiling, once per model and only after a cut."""
        budget, request = self.budget, self.request
        wanted = self._policy.models_endpoint and self._policy.escalate
        outgoing = request.lookup() if wanted and not budget.known_ceiling else None
        if outgoing is None or budget.spent or not budget.learned.learn(budget.key, asked=True):
            return
        reply = yield Send(outgoing, seconds=min(_LOOKUP_SECONDS, budget.patience))
        if isinstance(reply, Head):
            body = yield Read()
            ceiling = request.looked_up(body) if reply.ok and isinstance(body, bytes) else None
            if ceiling is not None:
                budget.learn_ceiling(ceiling, "models endpoint")

    def rest(self) -> Script:
        """Wait before a request is sent again whose answer ended in an error of the server's."""
        budget = self.budget
        tries = self._policy.max_drop_recoveries - budget.drops
        seconds = self._pause(None, max(0, tries - 1), None)
        if seconds:
            yield Wait(max(0.0, min(seconds, budget.patience)))

    def _pause(self, reply: Reply, tries: int, named: float | None) -> float | None:
        """Return the seconds to wait before try `tries + 1`, or `None`: do not try again.

        The server's `retry-after-ms` or `retry-after` is obeyed up to `max_wait_seconds`, and so is
        what its body `named`; a longer one, or `x-should-retry: false`, means that trying again is
        pointless. Otherwise the wait doubles each time, but for up to a quarter left to chance.
        """
        headers = reply.headers if isinstance(reply, Head) else dict[str, str]()
        if headers.get("x-should-retry") == "false":
            return None
        asked = retry_after(headers, self._wall() if self._wall is not None else None)
        seconds = named if asked is None else asked
        if seconds is None:
            doubled = min(self._policy.backoff_seconds * 2.0**tries, LONGEST_BACKOFF)
            seconds = doubled * (1 - 0.25 * random.random())
        elif seconds > self._policy.max_wait_seconds:
            return None
        return seconds if _longest is None else min(seconds, _longest)


_longest: float | None = None


def cap_waits(seconds: float | None) -> float | None:
    """Let no wait be longer than this, in the whole process; return what held before."""
    global _longest
    before, _longest = _longest, seconds
    return before


def retry_after(headers: Mapping[str, str], wall: float | None = None) -> float | None:
    """Return the seconds that `retry-after-ms`, or `retry-after` (seconds or a date), asks for.

    `wall`: the time in seconds since 1970; without it a date says nothing.
    """
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * scale)
        except (KeyError, ValueError):
            continue
    try:
        parsed = email.utils.parsedate_tz(headers.get("retry-after"))
        return max(0.0, email.utils.mktime_tz(parsed) - wall) if parsed and wall else None
    except (ValueError, OverflowError):  # a date that no calendar has
        return None
