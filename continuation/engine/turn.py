"""One model turn: the engine, with no I/O in it.

Theory of operation
-------------------
`Turn.run()` is a generator. It yields commands (send this, relay that response's bytes through
this function, show these bytes, wait) and is sent what came of them. A shell of a few lines
performs them; `http.py` has the two there are. The generator is the only place that knows the
order of things, `decide.py` the only place that knows what to do next, and a dialect the only
place that knows what bytes mean.

Two rules shape the code:

* What was shown cannot be unshown. So a `MessageBuilder` keeps back all that may still have to go;
  an answer that is to replace an unshown one is built beside it (`fork`) until it has succeeded.
* Once an answer is in hand nothing may raise, our own bugs included: an SDK would run the whole
  paid turn again. The shell keeps a `ReplayBuffer` for that; nothing here relies on it.

Bounds: at most 1 + 1 + `max_recoveries` attempts that the model answers, plus
`max_drop_recoveries` after drops, and one each with less thinking and with guidance, where policy
asks for them; retries and lessons are counted with them against `max_attempts`, which nothing
passes but a provider's own hops (`budget.HOPS`) and the look-up of a ceiling, made once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace

from continuation.dialect import Dialect, Feed, MessageBuilder, ProviderRequest
from continuation.engine import evidence
from continuation.engine.attempts import Attempts, Build
from continuation.engine.budget import Budget
from continuation.engine.commands import (
    Attach,
    Command,
    Emit,
    PassRest,
    PassThrough,
    Raise,
    Reply,
    Script,
    StreamBody,
)
from continuation.engine.ending import as_it_came, as_shown, closing
from continuation.engine.first_request import Opening
from continuation.engine.table import Action, Decision, Situation, decide
from continuation.limits import Learned
from continuation.limits.tokens import estimate
from continuation.policy import Policy
from continuation.prompts import Cause, cut_call_guidance, recovery_prompt
from continuation.reports.report import Escalating, Recorder, Recovering, Truncated
from continuation.seams.seam import choose_anchor
from continuation.types import (
    AttemptResult,
    Enough,
    Head,
    Mode,
    Outcome,
    ReplayBuffer,
    Request,
    Resume,
    Stop,
    StreamError,
    Untouched,
    Usage,
    Way,
)

_AGAIN = "resend"


class Failed(Exception):  # noqa: N818  (a value that says why an attempt failed for good)
    """An attempt failed for good; the text says with what."""


class Turn:
    """The state of one turn; `run()` is its life."""

    def __init__(
        self,
        dialect: Dialect,
        policies: Callable[[str], Policy],
        learned: Learned,
        recorder: Recorder,
        now: Callable[[], float],
    ) -> None:
        """Begin. `policies` says what holds for a model; it is asked when the model is known."""
        self.replay = ReplayBuffer()
        self.recorder = recorder
        self._dialect = dialect
        self._policies = policies
        self._learned = learned
        self._now = now
        self._untouched: str | None = "the request could not be read"
        self._readable = False
        self._call: ProviderRequest
        self._answer: MessageBuilder
        self._mode = Mode.FIRST
        self._broke: BaseException | None = None
        """What ended the caller's own attempt, if that broke off."""
        self._adopt("")

    @property
    def policy(self) -> Policy:
        """What holds for this turn."""
        return self._policy

    def _adopt(self, model: str) -> None:
        """Take the policies that hold for a model."""
        policy = self._policy = self._policies(model)
        self._budget = Budget(policy, self._dialect, self._learned, self._now)
        self.recorder.learned = self._budget.lessons
        self._attempts = Attempts(policy, self._budget, self.recorder, self._now)

    # --- the caller's request ----------------------------------------------------------------

    def read(self, request: Request, timeout: float | None) -> None:
        """Read the caller's request; afterwards the turn knows whether it is ours to heal."""
        try:
            call = self._call = self._dialect.call(request)
        except Untouched as reason:
            self._untouched = str(reason)
            return
        self._readable = True
        self.recorder.model = call.model
        self._adopt(call.model)
        key = (request.host, self._learned.digest(request.credential), call.model)
        self._budget.read(call, key, timeout)
        self._untouched = call.untouched(self._policy) or self._unwanted(call.limit)
        self._answer = call.answer(self._policy)

    def _unwanted(self, limit: int | None) -> str | None:
        if not self._policy.enabled:
            return "switched off by policy"
        if limit is None or limit >= self._policy.leave_limits_below:
            return None
        return f"limit {limit} is below leave_limits_below {self._policy.leave_limits_below}"

    # --- the life of a turn --------------------------------------------------------------------

    def run(self) -> Script:
        """Yield what is to be done, be sent what came of it, until the turn is over."""
        head = yield from self._open_first()
        if head is None:
            yield PassThrough()
            return
        yield Attach()
        reply = yield StreamBody(self._answer.first(head, self.replay), self.replay)
        error = reply if isinstance(reply, BaseException) else None
        quick = reply if isinstance(reply, AttemptResult) else self._answer.glance(error)
        if quick is not None and self._accepted(quick):
            if reply is quick:
                reply = yield PassRest()
            if isinstance(reply, BaseException):
                self.replay.complete()
            yield from map(Emit, self.replay.pieces())
            return
        self._broke = error
        ending = self._ended(error)
        while True:
            yield Emit(self._answer.take())
            if ending.stop is Stop.LENGTH:
                yield from self._attempts.ask_ceiling(self._call)
            decision = decide(self._situation(ending))
            self.recorder.rows.append(decision.row)
            if decision.outcome is not None:
                yield from self._close(decision, decision.outcome, ending)
                return
            ending = yield from self._go_on(decision.action, ending)

    def _open_first(self) -> Generator[Command, Reply, Head | None]:
        """Send the caller's request; `None` when its answer is to be handed over as it is."""
        if self._readable:
            opening = Opening(
                self._dialect, self._call, self._policy, self._budget, self._attempts, self.recorder
            )
            reply = yield from opening.send(ours=self._untouched is None)
            self._call = opening.call
        else:
            reply = yield from self._attempts.send(None, Mode.FIRST, None)
        if isinstance(reply, BaseException):
            self._attempts.record(error=type(reply).__name__)
            self.recorder.finish(Outcome.FAILED, "the request failed")
            yield Raise(reply)
        return self._ours(reply) if isinstance(reply, Head) else None

    def _ours(self, head: Head) -> Head | None:
        """Whether this answer can be healed; if not, the report is written now."""
        if not head.ok:
            self._attempts.record(error=str(head.status))
            tried = " after the history was repaired" if self.recorder.repairs else ""
            self.recorder.finish(Outcome.FAILED, f"status {head.status}{tried}")
            return None
        reason = self._untouched
        if reason is None and not ("json" in head.kind or head.streamed):
            reason = f"the answer is of type {head.kind!r}"
        if reason is None:
            return head
        self._attempts.record()
        self.recorder.finish(Outcome.UNTOUCHED, reason)
        return None

    def _accepted(self, ending: AttemptResult) -> bool:
        """Whether the first answer may go out as it came; then the report is written now."""
        if evidence.suspect(ending, self._doubted) or not evidence.passes(ending):
            return False
        self._attempts.record(ending)
        decision = decide(Situation(stop=ending.stop, text=ending.text, call=ending.call))
        self.recorder.rows.append(decision.row)
        outcome = decision.outcome or Outcome.COMPLETE
        self.recorder.finish(outcome, decision.reason, stop=ending.raw)
        return True

    @property
    def _doubted(self) -> int | None:
        """The limit at which a normal end deserves a look."""
        return self._budget.limit if self._policy.verify_stop_reason else None

    def _ended(self, error: BaseException | None) -> AttemptResult:
        """Take in how the attempt's bytes ended."""
        ending = self._answer.end(error)
        ending = evidence.judged(
            ending, self._answer, self._doubted, structured=self._call.structured
        )
        if ending.unmetered_text:
            ending = self._estimated(ending, ending.unmetered_text)
        for at, verdict in self._answer.seams():
            self.recorder.seam(self._budget.sent, at, verdict)
        self._attempts.record(ending)
        self._budget.paused += ending.stop is Stop.PAUSED
        if ending.stop in {Stop.LENGTH, Stop.DROPPED}:
            output = ending.usage.output if ending.usage else None
            reason = ending.raw or "dropped"
            self.recorder.tell(Truncated(self._budget.sent, reason, self._budget.limit, output))
        return ending

    def _estimated(self, ending: AttemptResult, said: str) -> AttemptResult:
        """A stream that broke off gave no final count: estimate it."""
        usage = ending.usage or Usage()
        output = max(usage.output or 0, estimate(said, self._call.model))
        return replace(ending, usage=replace(usage, output=output), estimated=True)

    def _situation(self, ending: AttemptResult) -> Situation:
        draft = self.recorder.draft()
        return Situation(
            stop=ending.stop,
            text=ending.text,
            call=ending.call,
            shown=ending.shown,
            structured=self._call.structured,
            liftable=self._call.liftable,
            below=self._budget.below(draft),
            token=ending.token,
            raisable=self._budget.raisable(draft),
            recovering=self._mode in {Mode.RECOVERY, Mode.NATIVE_CONTINUATION},
            later=self._mode is not Mode.FIRST,
            opened=ending.opened,
            made_progress=ending.made_progress,
            stalled=ending.stalled,
            not_resumable=ending.not_resumable,
            failed=isinstance(ending.error, Failed),
            spent=self._budget.spent(draft),
            recoveries=self._budget.recoveries > 0,
            drops=self._budget.drops > 0,
            think_less=self._budget.may_calm and self._call.with_less_thinking() is not None,
            retry_smaller=self._budget.may_retry_smaller
            and ending.only_call
            and not self._answer.half_call,
        )

    # --- going on ------------------------------------------------------------------------------

    def _go_on(
        self, action: Action, held: AttemptResult
    ) -> Generator[Command, Reply, AttemptResult]:
        limit = self._budget.spend(action, self.recorder.draft())
        if held.stop is Stop.DROPPED and isinstance(held.error, StreamError):
            yield from self._attempts.rest(self._policy.max_drop_recoveries - self._budget.drops)
        if action is Action.THINK_LESS:
            self._call = self._call.with_less_thinking() or self._call
        if action in {Action.ESCALATE, Action.RESEND, Action.THINK_LESS}:
            return (yield from self._replace(action, limit, held))
        if action in {Action.ESCALATE_BEHIND, Action.RESEND_BEHIND}:
            return (yield from self._follow(action, limit, held))
        if action in {Action.TOKEN, Action.CHECKPOINT}:
            return (yield from self._hop(limit, held))
        return (yield from self._recover(action, limit, held))

    def _replace(
        self, action: Action, limit: int | None, held: AttemptResult
    ) -> Generator[Command, Reply, AttemptResult]:
        """Ask the same again; what we hold stays until the new answer has succeeded."""
        kept, mode, count = self._answer, self._mode, len(self.recorder.attempts)
        self._tell_again(action, limit, replaces=True)
        ending = yield from self._attempt(
            lambda n, _: self._call.again(n), limit, lambda _: Resume(Mode.REPLACE), kept.fork()
        )
        if ending is not None and evidence.better(ending, held):
            self._attempts.discard(0, count)
            return ending
        self._answer, self._mode = kept, mode
        self._attempts.discard(count)
        return self._back(action, held, ending)

    def _follow(
        self, action: Action, limit: int | None, held: AttemptResult
    ) -> Generator[Command, Reply, AttemptResult]:
        """Ask the same again; of its answer only what follows the shown text, or only calls."""
        mode, count = self._mode, len(self.recorder.attempts)
        self._tell_again(action, limit, replaces=False)
        ending = yield from self._attempt(
            lambda n, _: self._call.again(n),
            limit,
            lambda _: Resume(Mode.APPEND_TAIL),
            self._answer,
        )
        if ending is not None and evidence.follows(ending):
            self._attempts.discard(0, count)
            return ending
        if ending is not None:
            self._answer.revert()
        self._mode = mode
        if ending is None or ending.length <= held.length:  # else the caller has text of it
            self._attempts.discard(count)
        return self._back(action, held, ending)

    def _back(
        self, action: Action, held: AttemptResult, ending: AttemptResult | None
    ) -> AttemptResult:
        """Return to what we held: the attempt that was to better it did not."""
        if ending is None and action in {Action.RESEND, Action.RESEND_BEHIND}:
            self._budget.give_up_drops()
        resendable = self._budget.drops > 0 and not self._budget.spent(self.recorder.draft())
        return evidence.restored(held, ending, resendable=resendable)

    def _tell_again(self, action: Action, limit: int | None, *, replaces: bool) -> None:
        number = self._budget.sent + 1
        if action in {Action.ESCALATE, Action.ESCALATE_BEHIND} and limit is not None:
            self.recorder.tell(Escalating(number, limit, replaces))
        else:
            self.recorder.tell(Recovering(number, limit, _AGAIN, replaces))

    def _recover(
        self, action: Action, limit: int | None, held: AttemptResult
    ) -> Generator[Command, Reply, AttemptResult]:
        """Ask the model to go on from what we have."""
        answer = self._answer
        answer.settle()
        before = answer.open_text
        way = Way.RETRY_SMALLER if action is Action.RETRY_SMALLER else self._way()
        anchor = choose_anchor(before)
        prompt = self._prompt(action, before, anchor)
        self.recorder.tell(Recovering(self._budget.sent + 1, limit, str(way)))

        def resume(now: Way) -> Resume:
            hold = self._policy.seam_buffer_chars
            if now is Way.PREFILL:
                return Resume(Mode.RECOVERY, prefilled=self._call.prefilled(answer), hold=hold)
            glue = now is not Way.RETRY_SMALLER
            return Resume(Mode.RECOVERY, anchor, prompt=prompt, glue=glue, hold=hold)

        ending = yield from self._attempt(
            lambda n, now: self._call.resume(answer, now, prompt, n), limit, resume, answer, way
        )
        if ending is not None or way is Way.RETRY_SMALLER:
            return ending or held
        self._mode = Mode.RECOVERY
        return replace(held, error=Failed(self.recorder.error or "failed"))

    def _hop(
        self, limit: int | None, held: AttemptResult
    ) -> Generator[Command, Reply, AttemptResult]:
        """Go on by the provider's own token: no seam, and nothing is generated twice."""
        answer = self._answer
        self.recorder.tell(Recovering(self._budget.sent + 1, limit, "token"))
        ending = yield from self._attempt(
            lambda n, _: self._call.hop(answer, n),
            limit,
            lambda _: Resume(Mode.NATIVE_CONTINUATION),
            answer,
        )
        return ending or replace(held, token=False)

    def _prompt(self, action: Action, before: str, anchor: str | None) -> str:
        if action is Action.RETRY_SMALLER:
            return cut_call_guidance(self._answer.cut_name, self._answer.cut_length)
        cause = Cause.DROP if action is Action.RESUME else Cause.LENGTH
        return recovery_prompt(before, anchor, cause, self._policy.recovery_prompt or None)

    def _way(self) -> Way:
        takes = self._policy.prefill and self._call.prefills(self._budget.table.prefill)
        usable = takes and bool(self._answer.open_text.strip())
        return Way.PREFILL if usable and not self._budget.prefill_refused() else Way.PROMPT

    def _attempt(
        self,
        build: Build,
        limit: int | None,
        resume: Callable[[Way], Resume],
        answer: MessageBuilder,
        way: Way = Way.PROMPT,
    ) -> Generator[Command, Reply, AttemptResult | None]:
        """Send a later attempt and read its answer; `None` when it failed for good."""
        mode = resume(way).mode
        opened = yield from self._attempts.open(build, self._call.refused, limit, mode, way)
        if opened is None:
            return None
        joins = resume(opened.way)
        self._mode, self._answer, self._budget.limit = joins.mode, answer, opened.limit
        error = yield StreamBody(self._timed(answer.begin(joins, opened.head)))
        return self._ended(error if isinstance(error, BaseException) else None)

    def _timed(self, feed: Feed) -> Feed:
        """Stop reading once the caller's time is up."""
        if self._budget.left is None:
            return feed

        def timed(chunk: bytes) -> bytes:
            shown = feed(chunk)
            if self._budget.late:
                raise Enough(shown)
            return shown

        return timed

    # --- the end -------------------------------------------------------------------------------

    def _close(self, decision: Decision, outcome: Outcome, ending: AttemptResult) -> Script:
        """End the turn. The report is written before the last bytes leave."""
        error = ending.error
        if decision.action is Action.RAISE:
            self.recorder.finish(outcome, decision.reason)
            yield from map(Emit, self.replay.pieces())
            # An error event of a later attempt is not on the tape: what broke the first is told.
            told = self._broke if isinstance(error, StreamError) else error
            if told is not None:
                yield Raise(told)
        elif as_it_came(decision, ending, self._mode, self._policy):
            reason = decision.reason
            if not ending.opened:
                outcome, reason = Outcome.UNTOUCHED, "the answer could not be read"
            self.recorder.finish(outcome, reason, stop=ending.raw)
            yield from map(Emit, self.replay.pieces())
        else:
            end = closing(
                decision,
                outcome,
                ending,
                self.recorder.draft(),
                self._policy,
                self._call,
                self._answer,
            )
            data = self._answer.finish(end.close)
            end = as_shown(end, self._answer)
            self.recorder.finish(
                end.outcome, end.reason, stop=self._answer.stop, synthetic=end.close.synthetic
            )
            yield Emit(data)
