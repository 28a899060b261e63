"""Sending a request until it is answered: the caller's own first, then each later attempt.

The caller's own request is sent unchanged, with a changed limit, or with a repaired history. If a
raised limit is refused, it is sent again as the caller made it. A later attempt is retried after
errors that may be temporary, and sent again in a corrected form if a refusal states what to
correct. The tables in `sending.py` decide which of these is done.

What was spent is in the ledger. What may still be spent is in the `Budget`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeAlias

from continuation.engine.budget import LESSONS, Budget
from continuation.engine.commands import Command, Consult, Read, Reply, Script, Send, Wait, Work
from continuation.engine.sending import (
    HISTORY_STATUSES,
    MOMENTARY,
    REMEDIES,
    RETRIES,
    SLOW_STATUSES,
    STARTS,
    Remedy,
    RemedyFacts,
    Retry,
    RetryFacts,
    Start,
    StartFacts,
    choose,
)
from continuation.engine.table import Action
from continuation.engine.waits import pause
from continuation.ledger import Ledger
from continuation.limits import Learned
from continuation.policy import Policy
from continuation.providers.contract import Dialect, ProviderRequest
from continuation.reports.report import ChainStore, Recorder, Repairing, Retrying
from continuation.types import (
    Change,
    ClassifiedError,
    ErrorKind,
    Head,
    Mode,
    Outgoing,
    Way,
)

logger = logging.getLogger("continuation")

_LOOKUP_SECONDS = 5.0
_LONG_BODY = 16_384
"""Tokens from which on a body is expected to be long: 100 s, after which the first proxies give up,
are 5,000 to 10,000 tokens, and an answer is often shorter than its limit."""
_LARGE = 1 << 18
"""Bytes of a request above which it takes milliseconds to write it anew."""
_SLOW = 1_000_000
"""Bytes of a job from which on it runs in a thread."""

Build: TypeAlias = Callable[[int | None, Way], Outgoing]
"""Makes an attempt's request for a limit and a way; called for each try."""


@dataclass(frozen=True, slots=True)
class RepairedRequest:
    """The caller's request, changed so that its provider accepts it."""

    request: ProviderRequest
    outgoing: Outgoing
    changes: Sequence[Change]
    code: str
    """The rule that was broken, as `continuation.history.validate` names it."""


class FunctionFailed(Exception):  # noqa: N818 - says what happened, like StopIteration
    """A function that the caller gave as a policy failed; the text says which one, and how."""

    def __init__(self, name: str, how: str) -> None:
        super().__init__(f"{name} {how}")


def send(
    ledger: Ledger,
    outgoing: Outgoing | None,
    mode: Mode,
    limit: int | None,
    seconds: float | None = None,
    *,
    bounded: bool = False,
) -> Generator[Command, Reply, Reply]:
    """Send one call (`None`: the caller's own request); return its answer's head or the error."""
    ledger.begin(mode, limit)
    reply = yield Send(outgoing, seconds, bounded=bounded or mode is not Mode.FIRST)
    if isinstance(reply, Head):
        ledger.answered(reply)
    return reply


@dataclass(eq=False)
class Attempts:
    """Sends the requests of one turn."""

    dialect: Dialect
    request: ProviderRequest
    """The caller's request as it was sent last: repaired, or with less thinking."""
    policy: Policy
    recorder: Recorder
    learned: Learned
    key: Hashable
    """The key of the model's lessons in `learned`."""
    timeout: float | None
    """The caller's read timeout in seconds; `None`: it has none."""
    wall: Callable[[], float] | None
    """Returns the seconds since 1970, for a `retry-after` that is a date."""
    left: Callable[[], float]
    """Returns the seconds in which attempts may still begin."""
    size: int
    """Bytes of the caller's request."""
    refusal: str = ""
    """Status and name of the error that the caller gets; `""`: its body was not read."""
    gathered: bool = False
    """The caller waits for a body, and the first attempt is answered by a stream."""

    @cached_property
    def budget(self) -> Budget:
        """What the turn may still spend; made when it is first needed."""
        return Budget(
            self.policy,
            self.request,
            self.dialect,
            self.recorder.ledger,
            self.learned,
            self.key,
            self.timeout,
            self.left,
            self.size,
        )

    # --- the caller's own request ----------------------------------------------------------------

    def first(self, *, ours: bool) -> Generator[Command, Reply, Reply]:
        """Send the first attempt until it is answered.

        `ours`: if its answer is truncated, the turn will complete it.
        """
        policy, own = self.policy, None
        if (chain := self.request.chain) is not None and (ask := chain.recall(policy)) is not None:
            chain.recalled((yield from self._consult("read", ask)))
        repaired = yield from self._repaired()
        doubt = self.request.doubt
        if chain and doubt and chain.clear((yield from self._look_up(doubt))):
            repaired = yield from self._repaired()
        if repaired is not None:
            own = self._adopt(repaired)
        lowered = self.budget.lowered_first() if policy.clamp else None
        facts = StartFacts(
            handled=ours,
            refused_here=own is not None and own.refusal is not None,
            changed=own is not None,
            lowered=lowered,
            from_ceiling=policy.initial_limit == "ceiling",
            long_body=self._is_long_body,
            remembered=policy.remember_limit and self.learned.get(self.key).limits,
        )
        first = choose(STARTS, facts).then
        raised = (yield from self._raised_first()) if first is Start.RAISE else None
        if first is Start.RAISE and raised is None:
            first = choose(STARTS, replace(facts, from_ceiling=False, remembered=False)).then
        if first is Start.LOWER and lowered is not None:
            reply = yield from self._lowered(lowered)
        elif raised is not None:
            reply = yield from self._raised(raised, own)
        elif first is Start.STREAM:
            reply = yield from self._as_stream(own)
        else:
            reply = yield from self._send(own)
        return (yield from self._remedied(reply, own, ours=ours))

    def _send(self, outgoing: Outgoing | None) -> Generator[Command, Reply, Reply]:
        """Send the first attempt under the caller's own limit."""
        seconds = self.budget.seconds_left if outgoing is not None else None
        return send(self.recorder.ledger, outgoing, Mode.FIRST, self.request.limit, seconds)

    def _repaired(
        self, refusal: tuple[Head, bytes] | None = None
    ) -> Generator[Command, Reply, RepairedRequest | None]:
        """Return a repaired request; `None`: it needs no repair, or none is possible.

        `refusal`: the error answer; `None`: before sending. A request that its format rewrites for
        the server is returned too, without changes: no message differs.
        """
        policy = self.policy
        history = self.dialect.name if self.dialect.has_grammar else None
        head, body = refusal or (None, b"")
        changed = self.request.rewritten(policy, head, body)
        if changed is not None:
            return RepairedRequest(changed, changed.outgoing({}), (), "rewritten")
        # A history that was refused once would be refused again.
        asked = refusal is not None or policy.repair == "before_send" or self.learned.histories
        if not asked or policy.repair == "off" or history is None:
            return None
        from continuation.engine import history_repair  # not needed until something is broken

        memory = history_repair.Memory(self.learned.histories, self.key)
        work = Work(
            lambda: history_repair.repaired(history, self.request, policy, refusal, memory),
            self.size,
        )
        yield work
        if isinstance(work.error, FunctionFailed):
            logger.error("history unchanged: %s", work.error, exc_info=work.error)
            self.recorder.failed = str(work.error)
            return None
        if work.error is not None:
            raise work.error
        done: RepairedRequest | None = work.result
        return done

    def _raised_first(self) -> Generator[Command, Reply, int | None]:
        """Return the raised limit for the first attempt, if any; estimate its prompt first."""
        budget = self.budget
        if budget.needed and budget.table.window_shared and budget.nears_window(budget.ceiling):
            # Never at once: the first estimate of a process may read a vocabulary.
            yield Work(lambda: budget.prompt, max(self.size, _SLOW))
        return budget.raised_first()

    def _raised(self, limit: int, own: Outgoing | None) -> Generator[Command, Reply, Reply]:
        """Send the first attempt with a raised limit; if that is refused, with the caller's own.

        `own`: the caller's request if its history was repaired, else `None`.
        """
        budget, ledger, request = self.budget, self.recorder.ledger, self.request
        gathers = budget.gathers(limit)
        outgoing = request.again(limit) if gathers else request.first(limit)
        if own is not None:
            outgoing = replace(outgoing, headers={**own.headers, **outgoing.headers})
        # Of a body the caller's timeout bounds all of it, of a stream each wait for bytes.
        reply = yield from send(
            ledger, outgoing, Mode.FIRST, limit, budget.seconds_left, bounded=gathers
        )
        if not isinstance(reply, Head):
            return reply
        facts = RemedyFacts(status=reply.status, raised=True, gathers=gathers)
        if choose(REMEDIES, facts).then is Remedy.READ:
            return (yield from self._raise_refused(facts, reply, limit, own))
        self.gathered = gathers and reply.ok and not reply.is_json
        return reply

    def _raise_refused(
        self, facts: RemedyFacts, head: Head, limit: int, own: Outgoing | None
    ) -> Generator[Command, Reply, Reply]:
        """Send the first attempt again after its raised `limit` was refused with `head`."""
        budget, ledger = self.budget, self.recorder.ledger
        raw = yield Read()
        body = raw if isinstance(raw, bytes) else b""
        spare, repaired = ledger.sent == 1 and self.policy.max_attempts > 2, None
        if spare and head.status in HISTORY_STATUSES:
            repaired = yield from self._repaired((head, body))
        error = self._classified(head, body, repaired)
        taught = budget.learn(error, limit) and head.status not in MOMENTARY
        corrected = error.maximum or limit
        facts = replace(
            facts,
            known=True,
            repairable=repaired is not None,
            spare=spare,
            corrects=taught and corrected > (self.request.limit or 0),
        )
        then = choose(REMEDIES, facts).then
        ledger.record(error=error.error)
        if then is Remedy.REPAIR_RAISED and repaired is not None:
            own = self._adopt(repaired)
            again = self._raised(limit, own) if own.refusal is None else self._send(own)
            return (yield from again)
        if then is Remedy.RAISE_AGAIN:
            return (yield from self._raised(corrected, own))
        answered = yield from self._send(own)
        # If it is answered now, the limit was refused; and not for this prompt's length alone.
        if not taught and isinstance(answered, Head) and answered.ok:
            budget.forget()
        return answered

    def _lowered(self, limit: int) -> Generator[Command, Reply, Reply]:
        """Send the first attempt with a smaller limit than the caller's."""
        outgoing = yield from self._built(partial(self.request.first, limit))
        seconds = self.budget.seconds_left
        return (yield from send(self.recorder.ledger, outgoing, Mode.FIRST, limit, seconds))

    # --- a body that is sent as a stream ---------------------------------------------------------

    @property
    def _may_stream(self) -> bool:
        """Whether the request is for a body, and may be sent as a stream."""
        policy, request = self.policy, self.request
        allowed = policy.stream_bodies == "auto" and policy.max_attempts > 1
        asks = request.gathers and not (request.streamed or self.recorder.ledger.played)
        return allowed and asks and not self.learned.get(self.key).no_stream

    @property
    def _is_long_body(self) -> bool:
        """Whether the request is for a body that may take too long, and may be sent as a stream."""
        if not (self.request.gathers_exactly and self._may_stream):
            return False
        known = self.learned.get(self.key).limits  # most turns need no budget, so none is made
        needed = (self.budget.needed or 0) if known else 0
        # A body cannot be ended early.
        return self.policy.stop_repetition or max(self.request.limit or 0, needed) >= _LONG_BODY

    def _as_stream(self, own: Outgoing | None) -> Generator[Command, Reply, Reply]:
        """Send a request for a body as a stream; if that is refused, as the caller made it.

        `own`: the caller's request if its history was repaired, else `None`.
        """
        ledger, request = self.recorder.ledger, self.request
        outgoing = yield from self._built(lambda: request.again(None))
        if own is not None:
            outgoing = replace(outgoing, headers={**own.headers, **outgoing.headers})
        seconds = self.budget.seconds_left
        reply = yield from send(ledger, outgoing, Mode.FIRST, request.limit, seconds, bounded=True)
        if not isinstance(reply, Head):
            return reply
        raw = b"" if reply.ok else (yield Read())
        body = raw if isinstance(raw, bytes) else b""
        # Such as "Your organization must be verified to stream this model", with status 400.
        named = b"stream" in body.lower()
        facts = RemedyFacts(status=reply.status, gathers=True, names_stream=named)
        if choose(REMEDIES, facts).then is Remedy.OWN:
            ledger.record(error=self.request.label(reply, body))
            answered = yield from self._send(own)
            if isinstance(answered, Head) and answered.ok:
                self.learned.learn(self.key, no_stream=True)
            return answered
        self.gathered = reply.ok and not reply.is_json
        return reply

    def _remedied(
        self, reply: Reply, own: Outgoing | None, *, ours: bool
    ) -> Generator[Command, Reply, Reply]:
        """Send a refused first attempt again if a change can help; return the last reply.

        `own`: the caller's request if its history was repaired, else `None`. `ours`: if its answer
        is truncated, the turn will complete it.
        """
        if not isinstance(reply, Head):
            return reply
        slow = ours and reply.status in SLOW_STATUSES and self._may_stream
        may = slow and self.policy.max_retries > 0 and self.budget.spent is None
        first = choose(REMEDIES, facts := RemedyFacts(status=reply.status, may_stream=may)).then
        if first is Remedy.STREAM:
            error = yield from self._failure(reply)
            if (seconds := self._pause(reply, error, 0)) is None:
                self.refusal = error.error
                return reply
            yield from self._wait(error, seconds)
            self.recorder.ledger.record(error=error.error)
            return (yield from self._as_stream(own))
        if first is not Remedy.READ:
            return reply
        body = yield Read()
        if not isinstance(body, bytes):
            return body  # the body broke off: the caller gets that error
        repaired = yield from self._repaired((reply, body))
        # A budget belongs to the request that is sent from here on: none is made before a repair.
        below = ours and repaired is None and self.budget.below
        error, limit = ClassifiedError(ErrorKind.FINAL, ""), self.request.limit
        if repaired is not None or below or (ours and self.policy.clamp):
            error = self._classified(reply, body, repaired)
        named = error.kind is ErrorKind.CEILING and self.budget.teaches(error, limit)
        facts = replace(
            facts,
            known=True,
            repairable=repaired is not None,
            clamp=self.policy.clamp,
            ceiling=error.maximum if named else None,
            consumed=error.kind is ErrorKind.LIMIT_CONSUMED,
            below=below,
        )
        row = choose(REMEDIES, facts)
        if row.then is Remedy.PASS_ON:
            self.refusal = self.request.label(reply, body)
            return reply
        self.recorder.ledger.record(error=error.error)
        if row.then is Remedy.REPAIR and repaired is not None:
            return (yield from self._with_retries(self._adopt(repaired)))
        if row.then is Remedy.LOWER and facts.ceiling is not None:
            self.budget.learn(error, limit)
            return (yield from self._lowered(facts.ceiling))
        self.recorder.rows.append(row.name)
        raised = self.budget.spend(Action.ESCALATE)
        return (yield from self._raised(raised, None)) if raised is not None else reply

    def _with_retries(self, outgoing: Outgoing) -> Generator[Command, Reply, Reply]:
        """Send a repaired request, and retry it after errors that may be temporary."""
        tries = 0
        while True:
            reply = yield from self._send(outgoing)
            if isinstance(reply, Head) and reply.ok:
                return reply
            error = yield from self._failure(reply)
            if isinstance(reply, Head):
                self.refusal = error.error
            seconds = self._pause(reply, error, tries)
            facts = RetryFacts(
                error_kind=error.kind,
                spent=self.budget.spent,
                lessons=False,
                retries=tries < self.policy.max_retries,
                timely=seconds is not None,
                chosen=False,
            )
            if choose(RETRIES, facts).then is not Retry.WAIT or seconds is None:
                return reply
            yield from self._wait(error, seconds)
            self.recorder.ledger.record(error=error.error)
            tries += 1

    def _adopt(self, repaired: RepairedRequest) -> Outgoing:
        """Make the repaired request the caller's one from here on; return what to send."""
        self.request = repaired.request
        self.recorder.repairs += repaired.changes
        self.recorder.tell(
            Repairing(self.recorder.ledger.sent + 1, repaired.code, len(repaired.changes))
        )
        return repaired.outgoing

    def _classified(
        self, head: Head, body: bytes, repaired: RepairedRequest | None = None
    ) -> ClassifiedError:
        """Return what a refusal means; later requests get the form that it wants.

        `repaired`: the repair of the broken rule that the refusal is about.
        """
        if repaired is not None:
            return ClassifiedError(ErrorKind.FINAL, f"{head.status} {repaired.code}")
        error = self.request.refused(head, body)
        self.request.adapt(error)
        return error

    def _failure(self, reply: Reply) -> Generator[Command, Reply, ClassifiedError]:
        """Read an error answer, if one arrived; return what the failure means."""
        if isinstance(reply, Head):
            body = yield Read()
            return self._classified(reply, body if isinstance(body, bytes) else b"")
        why = self.budget.time_up or type(reply).__name__
        return ClassifiedError(ErrorKind.RETRYABLE, why)

    def _pause(self, reply: Reply, error: ClassifiedError, tries: int) -> float | None:
        """Return the seconds to wait before a retry; `None`: there should be none."""
        headers = reply.headers if isinstance(reply, Head) else dict[str, str]()
        wall = self.wall() if self.wall is not None else None
        seconds = pause(self.policy, headers, tries, error.wait, wall)
        last = min(self.budget.patience, self.left())
        return seconds if seconds is not None and seconds < last else None

    def _wait(self, error: ClassifiedError, seconds: float) -> Script:
        """Wait before a retry."""
        self.recorder.tell(Retrying(self.recorder.ledger.sent, error.error, seconds))
        yield Wait(seconds)

    def _built(self, build: Callable[[], Outgoing]) -> Generator[Command, Reply, Outgoing]:
        """Build a request; a large one takes long, and must not keep others waiting."""
        if self.size < _LARGE:
            return build()
        work = Work(build, self.size)
        yield work
        if work.error is not None:
            raise work.error
        outgoing: Outgoing = work.result
        return outgoing

    # --- later attempts --------------------------------------------------------------------------

    def open(
        self,
        build: Build,
        limit: int | None,
        mode: Mode,
        way: Way = Way.PROMPT,
        above: int = 0,
    ) -> Generator[Command, Reply, tuple[Head, Way] | None]:
        """Send a later attempt, with its retries and lessons; `None`: it failed for good.

        `above`: a refusal that names a limit up to this one ends it, because the answer would be
        truncated again. Return the head of its answer, and the way of the last request.
        """
        budget, ledger, tries, lessons = self.budget, self.recorder.ledger, 0, LESSONS
        anew = mode in {Mode.REPLACE, Mode.APPEND_TAIL}
        while True:
            outgoing = yield from self._built(partial(build, limit, way))
            reply = yield from send(ledger, outgoing, mode, limit, max(0.1, budget.patience))
            if isinstance(reply, Head) and reply.ok:
                budget.accepted(limit)
                return reply, way
            error = yield from self._failure(reply)
            ledger.record(error=error.error)
            taught = budget.learn(error, limit)  # for later turns too, whatever is done now
            seconds = self._pause(reply, error, tries)
            facts = RetryFacts(
                error_kind=error.kind,
                status=reply.status if isinstance(reply, Head) else 0,
                spent=budget.spent,
                lessons=lessons > 0,
                quota=budget.quota(error, limit),
                retries=tries < self.policy.max_retries,
                timely=seconds is not None,
                teaches=taught,
                leaves_room=error.maximum is None or error.maximum > above,
                chosen=mode is not Mode.NATIVE_CONTINUATION,
                stepped=budget.steps < LESSONS,
                smaller=budget.smaller(limit, anew=anew),
            )
            then = choose(RETRIES, facts).then
            if then in {Retry.STEP_DOWN, Retry.SETTLE}:
                budget.step_down(limit)
            if then in {Retry.STOP, Retry.SETTLE}:
                return None
            if then is Retry.WAIT and seconds is not None:
                yield from self._wait(error, seconds)
                tries += 1
            elif then is Retry.STEP_DOWN:
                limit = facts.smaller
            else:
                if then is Retry.QUOTA:
                    budget.forget()
                lessons -= 1
                way = Way.PROMPT if error.kind is ErrorKind.PREFILL else way
                limit = error.maximum or limit

    def ask_ceiling(self) -> Script:
        """Ask for the model's ceiling, once per model and only after a truncated answer."""
        budget, request = self.budget, self.request
        wanted = self.policy.models_endpoint and self.policy.escalate
        outgoing = request.lookup() if wanted and not budget.known_ceiling else None
        if outgoing is None or budget.spent or not budget.learned.learn(budget.key, asked=True):
            return
        body = yield from self._look_up(outgoing)
        if body is not None and (ceiling := request.looked_up(body)) is not None:
            budget.learn_ceiling(ceiling, "models endpoint")

    def _look_up(self, outgoing: Outgoing) -> Generator[Command, Reply, bytes | None]:
        """Send a request that costs no tokens; return its answer's body, `None` if it failed."""
        reply = yield Send(outgoing, min(_LOOKUP_SECONDS, self.budget.patience), bounded=True)
        body = (yield Read()) if isinstance(reply, Head) else None
        return body if isinstance(reply, Head) and reply.ok and isinstance(body, bytes) else None

    # --- the store of chains ---------------------------------------------------------------------

    def promise(self, given: str) -> Generator[Command, Reply, bool]:
        """Note in the chain store that answer `given` will differ from the server's.

        Return `False` if that fails. It is noted first, so that no request ever continues from the
        server's incomplete answer.
        """
        chain = self.request.chain
        entries = chain.promise(self.policy, given) if chain is not None else None
        return entries is None or (yield from self._consult("write", entries)) is True

    def unchanged(self, given: str | None) -> None:
        """Note that the caller gets answer `given` unchanged, as its server has it."""
        if (chain := self.request.chain) is not None:
            chain.unchanged(self.policy, given or "")

    def keep(self) -> Script:
        """Keep the turn in the chain store, for requests that continue from it."""
        chain = self.request.chain
        kept = chain.record() if chain is not None else None
        self.recorder.given = chain.given if chain is not None else ""
        if kept is not None:
            yield from self._consult("write", kept)

    def _consult(self, operation: str, job: Callable[[], object]) -> Generator[Command, Reply, Any]:
        """Run a job of the chain store; return its result, `None` if it failed or took too long."""
        chain, ledger = self.request.chain, self.recorder.ledger
        command = Consult(job, 0, seconds=chain.patience if chain is not None else None)
        begun = ledger.seconds
        late = yield command
        error = late if isinstance(late, BaseException) else command.error
        failed = None if error is None else type(error).__name__
        if failed is None and command.result is False:
            failed = "not kept"
        if failed is not None:
            self.recorder.chain = f"the chain store did not {operation} ({failed})"
        if command.seconds is not None:
            self.recorder.tell(ChainStore(operation, ledger.seconds - begun, failed))
        return command.result if error is None else None

    def rest(self) -> Script:
        """Wait before a request is sent again after the server reported an error in its stream."""
        tries = self.policy.max_drop_recoveries - self.budget.drops
        seconds = pause(self.policy, {}, max(0, tries - 1))
        if seconds:
            yield Wait(max(0.0, min(seconds, self.budget.patience)))
