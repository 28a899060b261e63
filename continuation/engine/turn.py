"""One model turn: the engine, with no I/O in it.

Theory of operation
-------------------
`Turn.run()` is a generator. It yields commands (send this, pass that response's bytes through this
function, deliver these bytes, wait) and is sent their results. A shell of a few lines executes
them; `attach/http.py` has both shells. Only the generator knows the order of things. The tables in
`table.py` know what follows an answer and how the caller's answer ends; those in `sending.py` know
what is sent, and how. Only a dialect knows what bytes mean.

Two rules shape the code:

* What was delivered cannot be taken back. So a `MessageBuilder` buffers everything that may have to
  be dropped. An answer that replaces an undelivered one is built beside it (`fork`) until it has
  succeeded.
* Once there is an answer, nothing may raise, not even because of a bug here: an SDK would run the
  paid turn again. The shell keeps a `ReplayBuffer` for that; nothing here relies on it.

Most answers are complete. Only their labels are read. The budget, and what sends later attempts,
are made when an answer turns out to be truncated.

Bounds: the model answers at most one first attempt, one escalation, `max_recoveries` recoveries and
`max_drop_recoveries` attempts after drops. A recovery that completes a call may take two requests,
one for its text and one for missing arguments. If policy asks for them, one attempt with less
thinking, one for smaller calls, one for an announced call and one behind a repetition follow.
Retries and corrected requests count with all these against `max_attempts`. A provider's own hops
(up to `budget.HOPS`) and the one look-up of a ceiling do not count.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from continuation.config import Config, current, load
from continuation.engine.attempts import Attempts, send
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
from continuation.engine.loops import LoopNotes, allowing
from continuation.engine.promise import Notes, announces_call
from continuation.engine.sending import PARTS, WAYS, NextPart, PartFacts, WayFacts, choose
from continuation.engine.silence import Silence
from continuation.engine.table import (
    Action,
    Again,
    Closing,
    Decision,
    Evidence,
    Held,
    OpeningFacts,
    Situation,
    Stands,
    believed,
    decide,
    ending,
    objection,
    standing,
)
from continuation.ledger import Ledger, delivered, total
from continuation.limits import Learned
from continuation.limits.tokens import estimate
from continuation.policy import Policy
from continuation.prompts import (
    Cause,
    announced_call_prompt,
    argument_prompt,
    cut_call_guidance,
    members_prompt,
    recovery_prompt,
)
from continuation.providers.contract import Dialect, MessageBuilder, ProviderRequest
from continuation.reports.report import (
    CallReport,
    Escalating,
    OnEvent,
    Recorder,
    Recovering,
    Truncated,
    TruncatedAnswerError,
)
from continuation.seams.text import Cut, choose_anchor
from continuation.types import (
    AttemptResult,
    Enough,
    Head,
    JoinPlan,
    Json,
    Mode,
    Outcome,
    Outgoing,
    ReplayBuffer,
    Request,
    Stop,
    StopWord,
    StreamError,
    TimeUp,
    ToolCallState,
    Untouched,
    Usage,
    Way,
    short,
)

if TYPE_CHECKING:
    from continuation.answer.call_completion import CallCompletion

_DROPPED = "the stream dropped and could not be resumed"
_CAUSES = {Action.RESUME: Cause.DROP, Action.PASS_LOOP: Cause.REPETITION}
_HELD_AS = {Stands.HELD_CUT: Stop.LENGTH, Stands.HELD_DROPPED: Stop.DROPPED}


class Failed(Exception):  # noqa: N818  (a value that says why an attempt failed for good)
    """An attempt failed for good; the text is its error."""


def used_up(result: AttemptResult, limit: int | None) -> bool:
    """Whether an attempt used up its limit; with `limit=None` never.

    Some servers report thinking that does not count against the limit: a larger count than the
    limit is compared without thinking. Where thinking counts, the count equals the limit.
    """
    usage = result.usage
    if limit is None or usage is None or usage.output is None:
        return False
    return usage.output == limit or (usage.shown or 0) >= limit


class Turn:
    """One model turn; `run()` carries it out."""

    def __init__(
        self,
        dialect: Dialect,
        asked: Request,
        timeout: float | None,
        policies: Callable[[str], Policy],
        learned: Learned,
        recorder: Recorder,
        wall: Callable[[], float] | None,
        left: Callable[[], float],
    ) -> None:
        """Read the caller's request. `policies` returns the policy for a model's name.

        `left` returns the seconds in which attempts may still begin.
        """
        self.recorder = recorder
        recorder.host = asked.host
        self._ledger = recorder.ledger
        self.replay = ReplayBuffer(seconds=lambda: recorder.ledger.seconds)
        self._mode = Mode.FIRST
        self._prefilled = False
        """The last recovery was a prefill."""
        self._prefill_works = False
        """A prefill was continued."""
        self._ended_empty = False
        """The last recovery ended normally without anything new."""
        self._resend_failed = False
        """A resend after a drop failed for good, so another one would fail too."""
        self._dead = False
        """The caller's own attempt dropped, and no attempt has resumed it yet."""
        self._broke: BaseException | None = None
        """The error that broke off the caller's own attempt, if one did."""
        self._first_id: str | None = None
        """The id of the first attempt's answer, in formats that have ids."""
        self._silence: Silence | None = None
        """The silences of the stream read last; `None`: they are not bounded."""
        self._completion: CallCompletion | None = None
        """Completes the call that was truncated last, if policy says so."""
        self._attempts: Attempts
        self._answer: MessageBuilder
        try:
            request = dialect.call(asked)
        except Untouched as reason:
            self.policy = policies("")
            self._opening = OpeningFacts(unreadable=str(reason))
            return
        self.policy = policies(request.model)
        """The policy of this turn."""
        recorder.policy = self.policy
        smallest = self.policy.leave_limits_below
        self._opening = OpeningFacts(
            reserved=request.untouched(self.policy),
            enabled=self.policy.enabled,
            limit=request.limit,
            leave_limits_below=smallest,
            small=request.limit is not None and request.limit < smallest,
        )
        key = (asked.host + asked.client, learned.digest(asked.credential), request.model)
        self._attempts = Attempts(
            dialect,
            request,
            self.policy,
            recorder,
            learned,
            key,
            timeout,
            wall,
            left,
            len(asked.body),
        )
        recorder.model = request.model
        self._ledger.limit = request.limit

    @property
    def asked(self) -> tuple[str, ProviderRequest] | None:
        """The name of its format, and the request; `None`: it could not be read."""
        if self._opening.unreadable is not None:
            return None
        return self._attempts.dialect.name, self._attempts.request

    def streamed(self) -> Outgoing | None:
        """Return the request changed to ask for a stream; `None`: it does already, or may not."""
        if decide(self._opening).action is not Action.READ:
            return None
        request = self._attempts.request
        return request.again(None) if request.streams and not request.streamed else None

    def resume(self, attempts: int, *, played: bool) -> None:
        """Continue a turn of another process, which made so many upstream calls.

        `played`: the first attempt repeats what was shown then, without an upstream call.
        """
        self._ledger.before = attempts - played
        self._ledger.played = played or self._ledger.played

    # --- the life of a turn --------------------------------------------------------------------

    def run(self) -> Script:
        """Yield commands and be sent their replies, until the turn is over."""
        head = yield from self._open()
        if head is None:
            return
        gathered = self._attempts.gathered
        yield Attach(gathered)
        self._answer = self._attempts.request.answer(self.policy)
        if self.policy.stop_repetition:
            self._answer.allows = allowing(self._attempts.request)
        self._ledger.holds = lambda: self._answer.holds
        if gathered:
            feed = self._answer.gather(head)
            relay = StreamBody(feed, silence=self._listen(head), gathers=True)
            result = self._ended((yield relay))
        elif (ended := (yield from self._read_first(head))) is None:
            return
        else:
            result = ended
        self._first_id, self._dead = result.id, result.stop is Stop.DROPPED
        while True:
            yield Emit(self._answer.take())
            if result.stop is Stop.LENGTH:
                yield from self._attempts.ask_ceiling()
            situation = self._situation(result)
            decision = decide(situation)
            if self._mends(decision, situation) and not (
                yield from self._attempts.promise(result.id or "")
            ):
                if decision.action is Action.ASK_CALL:  # the answer is complete as it is
                    situation = replace(situation, promised=False)
                else:
                    situation = replace(situation, unkept=self.recorder.chain)
                decision = decide(situation)
            self.recorder.rows.append(decision.row)
            if decision.outcome is not None:
                yield from self._close(decision, decision.outcome, situation)
                return
            result = yield from self._go_on(decision.action, result)
            self._dead = self._dead and result.stop is Stop.DROPPED

    def rebuilt(self, head: Head, events: bytes) -> bytes:
        """Return the body that the events of the caller's own attempt amount to.

        For the shell, if our code fails. It reads the events with a new builder, so a failure of
        the engine or of the first builder does not cost the answer. Raises what fails again.
        """
        answer = self._attempts.request.answer(self.policy)
        with contextlib.suppress(Enough):
            answer.gather(head)(events)
        answer.end()
        return answer.gathered()

    def _read_first(self, head: Head) -> Generator[Command, Reply, AttemptResult | None]:
        """Read the caller's own attempt; return its result; `None`: it went out as it came."""
        feed = self._answer.first(head, self.replay)
        reply = yield StreamBody(feed, self.replay, self._listen(head))
        error = reply if isinstance(reply, BaseException) else None
        labels = reply if isinstance(reply, AttemptResult) else self._answer.result_by_labels(error)
        known = None
        if labels is not None:  # they may be enough to let the answer go out as it came
            full = self.policy.verify_stop_reason and used_up(labels, self._ledger.limit)
            known = decide(
                Situation(
                    result=labels,
                    looked=False,
                    used_up=full,
                    repeats=int(self.policy.resend_failed),
                    may_promise=self._may_promise,
                    resumes=self._attempts.request.resumes(self.policy),
                    stops_loops=self.policy.stop_repetition,
                )
            )
        if labels is not None and known is not None and known.outcome is not None:
            self._ledger.record(labels)
            self._learn_silence(labels)
            self._attempts.unchanged(labels.id)
            self.recorder.rows.append(known.row)
            self._finish(known.outcome, known.reason, labels, stop=labels.raw)
            if reply is labels:
                reply = yield PassRest()
            if isinstance(reply, BaseException):
                self.replay.complete()
            yield from map(Emit, self.replay.pieces())
            return None
        self._broke = error
        return self._ended(reply)

    def _open(self) -> Generator[Command, Reply, Head | None]:
        """Send the caller's request; return the head of an answer to heal, or end the turn."""
        opening = self._opening
        ours = decide(opening).action is Action.READ
        if opening.unreadable is not None:
            reply = yield from send(self._ledger, None, Mode.FIRST, None)
        else:
            reply = yield from self._attempts.first(ours=ours)
        error = None
        if isinstance(reply, Head):
            asked = ours and (self._attempts.request.streamed or self._attempts.gathered)
            reply.streamed = reply.streamed or (reply.untyped and asked)
            known = reply.is_json or reply.streamed
            opening = replace(
                opening,
                ok=reply.ok,
                status=reply.status,
                repaired=bool(self.recorder.repairs),
                kind=reply.kind,
                known_kind=known,
            )
            refusal = "" if opening.unreadable is not None else self._attempts.refusal
            known_as = refusal if refusal.split()[:1] == [str(reply.status)] else str(reply.status)
            error = None if reply.ok else known_as
        else:
            opening = replace(opening, unanswered=True)
            error = type(reply).__name__
        decision = decide(opening)
        if decision.outcome is None and isinstance(reply, Head):
            return reply
        self._ledger.record(error=error)
        self.recorder.finish(decision.outcome or Outcome.UNTOUCHED, decision.reason)
        if isinstance(reply, BaseException):
            yield Raise(reply)
        else:
            yield PassThrough()
        return None

    def _ended(
        self, reply: Reply, beside: MessageBuilder | None = None, inside: str | None = None
    ) -> AttemptResult:
        """Record how an attempt ended, and return its result; `reply`: how its bytes ended.

        `beside`: the builder that read them, if not the answer's. `inside`: the argument (as
        `tool.argument`) that its text belongs to.
        """
        answer, request, live = beside or self._answer, self._attempts.request, self._ledger.live
        error = reply if isinstance(reply, BaseException) else None
        ours = live is not None and (live.mode is not Mode.FIRST or self._attempts.gathered)
        if error is not None and ours:
            up = self._attempts.budget.time_up  # if so, we broke the attempt off
            error = TimeUp(up) if up else error
        result = answer.end(error)
        limit = self._ledger.limit if self.policy.verify_stop_reason else None
        full, text, used = used_up(result, limit), answer.open_text, result.usage or Usage()
        evidence = Evidence(
            used_up=full,
            at_limit=full and limit in {used.output, used.shown},
            structured=request.structured,
            parses=full and request.structured and answer.parses(),
            written=bool(text),
            in_word=text[-1:].isalnum(),
            always_completed=request.always_completed,
            open_end=full and result.stop.is_end and Cut(text).is_open,
        )
        result = believed(result, evidence)
        if beside is None:
            self._learn_silence(result)
        if result.unmetered_text:  # a stream that broke off has no final count
            usage = result.usage or Usage()
            estimated = max(usage.output or 0, estimate(result.unmetered_text, request.model))
            usage = replace(usage, output=estimated, estimated=True)
            result = replace(result, usage=usage, estimated=True)
        for at, verdict in answer.seams():
            self.recorder.seam(at, verdict, inside)
        self._ledger.record(result)
        if result.stop is Stop.LENGTH and beside is None and not self.policy.stop_repetition:
            LoopNotes.note(text, request)
        if result.stop in {Stop.LENGTH, Stop.DROPPED, Stop.REPETITION}:
            output = result.usage.output if result.usage else None
            broken_off = isinstance(result.error, TimeUp)
            reason = result.raw or (str(result.error) if broken_off else str(result.stop))
            number, limit = self._ledger.sent, self._ledger.limit
            self.recorder.tell(Truncated(number, reason, limit, output, result.estimated))
        return result

    def _situation(self, result: AttemptResult) -> Situation:
        budget, request = self._attempts.budget, self._attempts.request
        wanted = self.policy.truncated_tool_call == "retry_smaller"
        guided = wanted and not budget.may_retry_smaller  # a call is missing
        nothing_new = not result.made_progress and not guided
        ends = nothing_new and result.stop is Stop.END and self._mode is Mode.RECOVERY
        empty = result.stop is Stop.END and result.empty
        twice, self._ended_empty = ends and self._ended_empty, ends
        continued = result.made_progress and self._mode is Mode.RECOVERY
        self._prefill_works = self._prefill_works or (self._prefilled and continued)
        completable = self.policy.truncated_document == "complete" and request.completable
        return Situation(
            result=result,
            ended_twice=twice,
            prefill_works=self._prefill_works,
            at_end=nothing_new and Cut(self._answer.open_text).at_end,
            structured=request.structured,
            can_drop_schema=request.can_drop_schema or completable,
            completable=completable,
            below=budget.below,
            can_raise_limit=budget.can_raise_limit,
            given=self._ledger.played and self._mode is Mode.FIRST,
            recovering=self._mode in {Mode.RECOVERY, Mode.NATIVE_CONTINUATION},
            later=self._mode is not Mode.FIRST,
            failed=isinstance(result.error, Failed),
            spent=budget.spent,
            unkept=None,
            recoveries=budget.recoveries > 0,
            prefilled=self._prefilled,
            drops=self._may_resend and not getattr(result.error, "lasting", False),
            repeats=budget.repeats,
            silence=empty and request.may_be_silent,
            resumes=self._resumes if result.stop is Stop.PAUSED else False,
            promised=self._promised(result),
            asked_call=budget.asked_call,
            stops_loops=self.policy.stop_repetition,
            passed_loop=budget.passed_loop,
            think_less=budget.may_think_less and request.with_less_thinking() is not None,
            retry_smaller=budget.may_retry_smaller
            and result.only_call
            and not self._answer.half_call,
            **(self._completes(result) if result.call is ToolCallState.CUT else {}),
        )

    @property
    def _may_promise(self) -> bool:
        """Whether a complete answer's text is read for a call that it announces."""
        wanted = self.policy.unkept_promise == "ask" or Notes.wanted()
        return wanted and bool(self._attempts.request.callable_tools)

    def _promised(self, result: AttemptResult) -> bool:
        """Whether the text announces a call that the model is to be asked for."""
        ended = result.stop is Stop.END and result.text and result.call is ToolCallState.NONE
        if not ended or self._attempts.budget.asked_call or not self._may_promise:
            return False
        answer, tools = self._answer, self._attempts.request.callable_tools
        announced = not answer.calls and announces_call(answer.open_text, tools)
        if self.policy.unkept_promise == "ask":
            return announced
        Notes.note(self.recorder.model, announced=announced)
        return False

    @property
    def _resumes(self) -> bool:
        """Whether a pause is resumed: by policy, or because the answer came from such a resume."""
        first = self._mode is Mode.FIRST and not self._attempts.request.resumes(self.policy)
        return not first and self._attempts.budget.pauses > 0

    @property
    def _may_resend(self) -> bool:
        """Whether the budget allows another attempt after a drop, and none has failed for good."""
        return self._attempts.budget.drops > 0 and not self._resend_failed

    def _completes(self, result: AttemptResult) -> dict[str, bool]:
        """Return the facts of a truncated call that policy completes; `{}`: it does not."""
        policy, request, name = self.policy, self._attempts.request, self._answer.cut_call[0]
        wanted = policy.truncated_tool_call == "complete" or (
            request.structured and policy.truncated_document == "complete"
        )
        named = [tool for tool in policy.complete_tools if not tool.startswith("!")]
        excluded = f"!{name}" in policy.complete_tools or (named and name not in named)
        if not wanted or excluded or result.stop is not Stop.LENGTH:
            return {}
        completion = self._completion = self._answer.completion(self._completion)
        dropped, spent = completion.dropped, (result.usage or Usage()).output
        # What is at most half of a truncated answer fits into a new one.
        lesser = spent is None or 2 * estimate(dropped or "", request.model) <= spent
        completion.quote(again=dropped is not None and lesser)
        unread = completion.unread and request.streams and not self._attempts.budget.escalated
        return {"complete": True, "proven": objection(completion.proof) is None, "unread": unread}

    # --- later attempts ------------------------------------------------------------------------

    def _go_on(
        self, action: Action, held: AttemptResult
    ) -> Generator[Command, Reply, AttemptResult]:
        """Make the next attempt and return its result; `held`: the result so far, if that fails."""
        budget = self._attempts.budget
        limit = budget.spend(action)
        if held.stop is Stop.LENGTH:
            budget.outgrows()
        if held.stop is Stop.DROPPED and isinstance(held.error, StreamError):
            yield from self._attempts.rest()
        if action is Action.THINK_LESS:
            request = self._attempts.request
            self._attempts.request = request.with_less_thinking() or request
        if action in {Action.ESCALATE, Action.RESEND, Action.THINK_LESS, Action.REPEAT}:
            return (yield from self._ask_again(action, limit, held, replaces=True))
        if action in {Action.ESCALATE_BEHIND, Action.RESEND_BEHIND}:
            return (yield from self._ask_again(action, limit, held, replaces=False))
        if action is Action.COMPLETE_CALL and self._completion is not None:
            return (yield from self._complete(self._completion, limit, held))
        if action is Action.ASK_CALL:
            return (yield from self._ask_call(limit, held))
        if action not in {Action.TOKEN, Action.CHECKPOINT}:
            return (yield from self._recover(action, limit, held))
        # Continue by the provider's own token: no seam, and nothing is generated twice.
        answer, request, plan = (
            self._answer,
            self._attempts.request,
            JoinPlan(Mode.NATIVE_CONTINUATION),
        )
        self.recorder.tell(Recovering(self._ledger.sent + 1, limit, "token"))
        opened = yield from self._attempts.open(
            lambda n, _: request.hop(answer, n), limit, plan.mode
        )
        if opened is None:
            return replace(held, token=False)
        return (yield from self._read(answer, plan, opened[0]))

    def _ask_again(
        self, action: Action, limit: int | None, held: AttemptResult, *, replaces: bool
    ) -> Generator[Command, Reply, AttemptResult]:
        """Send the same request again, and return the result of the answer that is kept.

        `replaces`: the new answer replaces the held one, which stays until the new one has
        succeeded. Otherwise only what follows the shown text is used, or only its calls.
        """
        kept, kept_mode, count = self._answer, self._mode, len(self._ledger.attempts)
        if not replaces:
            starts = {seam.attempt: seam.at for seam in self.recorder.seams if not seam.argument}
            self._ledger.keep(starts, len(kept.text))
        number = self._ledger.sent + 1
        if action in {Action.ESCALATE, Action.ESCALATE_BEHIND} and limit is not None:
            self.recorder.tell(Escalating(number, limit, replaces))
        else:
            self.recorder.tell(Recovering(number, limit, "resend", replaces))
        answer, plan = kept, JoinPlan(Mode.APPEND_TAIL)
        if replaces:
            answer, plan = kept.fork(), JoinPlan(Mode.REPLACE)
        request = self._attempts.request
        if action is Action.REPEAT and self._attempts.budget.repeats == 0:
            request = request.hinted(self._answer.note) or request
        # If the call can be completed, another answer truncated there is of no use, unless
        # its arguments came parsed: then only a stream shows how far they came.
        known = self._completion is not None and held.args_verified
        above = self._ledger.limit if known else None
        opened = yield from self._attempts.open(
            lambda n, _: request.again(n), limit, plan.mode, above=above or 0
        )
        new = held
        if opened is not None:
            new = yield from self._read(answer, plan, opened[0])
        resends = action in {Action.RESEND, Action.RESEND_BEHIND}
        self._resend_failed = self._resend_failed or (resends and opened is None)
        if action is Action.REPEAT and opened is None:
            self._attempts.budget.repeats = 0
        again = Again(
            replaces=replaces,
            came=opened is not None,
            held_text=held.text,
            held_closed=held.closed,
            held_dropped=held.stop is Stop.DROPPED,
            longer=new.length > held.length,
            shorter=new.length < held.length,
            held_parsed=not held.args_verified,
            resendable=self._may_resend and not self._attempts.budget.spent,
        )
        stands = standing(new, again)
        if stands is Stands.NEW:
            self._ledger.discard(0, count)
            return new
        if opened is not None and not replaces:
            kept.revert()
        self._answer, self._mode = kept, kept_mode
        if replaces or new.length <= held.length:  # else the caller has been shown text of it
            self._ledger.discard(count)
        return replace(held, stop=_HELD_AS.get(stands, held.stop))

    def _ask_call(
        self, limit: int | None, held: AttemptResult
    ) -> Generator[Command, Reply, AttemptResult]:
        """Ask for the call that the text announces; return `held` if that brings nothing new."""
        answer, mode, count = self._answer, self._mode, len(self._ledger.attempts)
        answer.prepare_recovery()
        length = len(answer.text)
        new = yield from self._recover(Action.ASK_CALL, limit, held)
        if new is held:
            return held
        done = new.stop is Stop.END and new.made_progress
        if done or answer.half_call or len(answer.text) > length:
            return new
        answer.revert()
        self._mode = mode
        self._ledger.discard(count)
        return held

    def _recover(
        self, action: Action, limit: int | None, held: AttemptResult
    ) -> Generator[Command, Reply, AttemptResult]:
        """Ask the model to continue from the text so far; return the attempt's result."""
        answer, request, budget = self._answer, self._attempts.request, self._attempts.budget
        answer.prepare_recovery()
        before = answer.open_text
        # An anchor would be what the model is to stop repeating.
        anchor = None if action is Action.PASS_LOOP else choose_anchor(before)
        facts = WayFacts(
            action=action,
            prefills=self.policy.prefill and request.prefills(budget.table.prefill),
            written=bool(before.strip()),
            no_prefill=budget.learned.get(budget.key).no_prefill,
            prefilled=self._prefilled,
            # A dropped attempt shows nothing: its text may still have been held by the seam.
            made_progress=held.made_progress or held.stop is Stop.DROPPED,
        )
        if (way := choose(WAYS, facts).then) is Way.RETRY_SMALLER:
            prompt = cut_call_guidance(*answer.cut_call)
        elif way is Way.CALL:
            prompt = announced_call_prompt()
        else:
            cause = _CAUSES.get(action, Cause.LENGTH)
            template = self.policy.recovery_prompt if cause is not Cause.REPETITION else ""
            prompt = recovery_prompt(before, anchor, cause, template or None)
        self.recorder.tell(Recovering(self._ledger.sent + 1, limit, str(way)))
        opened = yield from self._attempts.open(
            lambda n, now: request.resume(answer, now, prompt, n), limit, Mode.RECOVERY, way
        )
        if opened is None:
            if way in {Way.RETRY_SMALLER, Way.CALL}:
                return held
            self._mode = Mode.RECOVERY
            return replace(held, error=Failed(self._ledger.error or "failed"))
        head, way = opened
        self._prefilled = way is Way.PREFILL
        hold = self.policy.seam_buffer_chars
        if way is Way.PREFILL:
            plan = JoinPlan(Mode.RECOVERY, prefilled=request.prefilled(answer), hold=hold)
        else:
            glue, apart = way not in {Way.RETRY_SMALLER, Way.CALL}, way is Way.CALL
            plan = JoinPlan(Mode.RECOVERY, anchor, prompt=prompt, glue=glue, apart=apart, hold=hold)
        return (yield from self._read(answer, plan, head))

    def _complete(
        self, completion: CallCompletion, limit: int | None, held: AttemptResult
    ) -> Generator[Command, Reply, AttemptResult]:
        """Request what a buffered call lacks; return `held` if the call stays truncated.

        This may take two requests: one for the rest of its text, one for missing arguments.
        """
        request, self._mode = self._attempts.request, Mode.ARGUMENT
        schema, text_requested = request.schema(completion.name), False
        missing = None if completion.in_text else completion.missing(schema)
        while True:
            facts = PartFacts(
                continues_text=completion.in_text,
                text_requested=text_requested,
                text_whole=completion.whole,
                objection=objection(completion.proof),
                members_missing=missing is not None,
                spent=self._attempts.budget.spent,
            )
            part = choose(PARTS, facts).then
            if part is NextPart.TEXT:
                yield from self._request_text(completion, limit)
                missing, text_requested = completion.missing(schema), True
            elif part is NextPart.MEMBERS and missing is not None:
                yield from self._request_members(completion, missing, limit)
                missing = None
            elif part is NextPart.DO_WITHOUT:
                completion.do_without()
                missing = None
            else:
                break
        if part is NextPart.LEAVE:
            return held
        completion.close(schema)
        return (objection(completion.proof) is None and completion.deliver()) or held

    def _request_text(self, completion: CallCompletion, limit: int | None) -> Script:
        """Request the rest of the text in which the call was truncated."""
        answer, request, text = self._answer, self._attempts.request, completion.text
        anchor = completion.anchor or ""
        prompt = argument_prompt(
            completion.name, completion.argument, text.text, anchor, completion.sign
        )
        self.recorder.tell(Recovering(self._ledger.sent + 1, limit, Way.ARGUMENT))
        opened = yield from self._attempts.open(
            lambda n, now: request.resume(answer, now, prompt, n),
            limit,
            Mode.ARGUMENT,
            Way.ARGUMENT,
        )
        if opened is None:
            completion.know(error=self._ledger.error or "failed")
            return
        hold = self.policy.seam_buffer_chars
        plan = JoinPlan(Mode.RECOVERY, anchor, prompt=prompt, hold=hold)
        place = short(f"{completion.name}.{completion.argument}")
        result = self._ended((yield StreamBody(completion.begin(plan, opened[0]))), text, place)
        completion.take(result, sure=self.policy.complete_seams == "sure")

    def _request_members(
        self, completion: CallCompletion, missing: Json, limit: int | None
    ) -> Script:
        """Request the arguments that the call still lacks, by a small call of schema `missing`."""
        answer, request, asked = self._answer, self._attempts.request, completion.asked
        whole, lists = completion.argument if completion.in_text else "", completion.lists
        wanted = completion.lacking, completion.allowed, lists
        arrived = completion.arguments if lists else "" if whole else completion.kept
        prompt = members_prompt(completion.name, *wanted, whole, arrived, begun=completion.begun)
        opened = yield from self._attempts.open(
            lambda n, _: request.ask_members(answer, completion.name, missing, prompt, n),
            limit,
            Mode.ARGUMENT,
            Way.ARGUMENT,
        )
        if opened is None:
            completion.do_without()
            return
        reply = yield StreamBody(asked.begin(JoinPlan(Mode.REPLACE), opened[0]))
        completion.add(self._ended(reply, asked))

    def _read(
        self, answer: MessageBuilder, plan: JoinPlan, head: Head
    ) -> Generator[Command, Reply, AttemptResult]:
        """Read the answer to a later attempt, and return its result."""
        self._mode, self._answer = plan.mode, answer
        feed = self._ledger.watching(answer.begin(plan, head))
        return self._ended((yield StreamBody(feed, None, self._listen(head))))

    def _listen(self, head: Head) -> Silence | None:
        """Return the silences of the stream that the answer begins to read now, if bounded."""
        self._silence, attempts = None, self._attempts
        if head.streamed and self.policy.stall == "learned":
            answer, tools = self._answer, bool(attempts.request.body.get("tools"))
            self._silence = Silence(
                attempts.learned, attempts.key, lambda: answer.phases, tools=tools
            )
        return self._silence

    def _learn_silence(self, result: AttemptResult) -> None:
        if self._silence is not None and result.stop is not Stop.DROPPED:
            self._silence.learn()

    # --- the end -------------------------------------------------------------------------------

    def _close(self, decision: Decision, outcome: Outcome, situation: Situation) -> Script:
        """End the turn. The report is written before the last bytes leave."""
        result, answer, policy = situation.result, self._answer, self.policy
        self._attempts.budget.settle()
        if decision.action is Action.RAISE:
            self._finish(outcome, decision.reason, result)
            yield from map(Emit, self.replay.pieces())
            # An error event of a later attempt is not in the buffer: raise what broke the first.
            buffered = not self._attempts.gathered and isinstance(result.error, StreamError)
            error = self._broke if buffered else result.error
            if error is not None:
                yield Raise(error)
            return
        closing = self._closing(decision, outcome, situation)
        end = ending(closing, situation)
        if end.stop is None:
            self._attempts.unchanged(self._first_id)
            if not situation.unkept:
                yield from self._attempts.keep()
            reason = end.reason or decision.reason
            self._finish(end.outcome or outcome, reason, result, stop=result.raw)
            if self._attempts.gathered:
                yield Emit(answer.gathered())
            yield from map(Emit, self.replay.pieces())
            return
        answer.release(
            whole=end.held is Held.ALL and result.stop.is_end,
            cut_call=policy.truncated_tool_call if end.held is Held.BY_POLICY else None,
        )
        # What was just delivered may have completed a call that was delivered in part.
        end = ending(replace(closing, half_call=answer.half_call), situation)
        usage = (delivered if policy.usage == "turn" else total)(self._ledger.attempts)
        if result.call is not ToolCallState.NONE:
            self._tell_calls(decision)
        shown = answer.take()
        data = answer.finish(end.stop or StopWord.OWN, usage)
        yield from self._attempts.keep()
        self._finish(
            end.outcome or outcome,
            end.reason or decision.reason,
            result,
            stop=answer.stop,
            synthetic=end.stop is StopWord.ENDED,
            characters=len(answer.text),
        )
        if end.stop is StopWord.BROKEN:
            yield Emit(shown)
            yield from self._break(result)
        elif end.stop is not StopWord.RAISED:
            yield Emit(shown + data)
        elif (report := self.recorder.finished) is not None:
            yield Emit(shown)
            body = None if self._attempts.request.streamed else data
            yield Raise(TruncatedAnswerError(report, answer.text, body))

    def _break(self, result: AttemptResult) -> Script:
        """End the answer as a broken one, with an error that says how much was delivered."""
        answer, shape = self._answer, self._attempts.dialect.shape
        if answer.framed:
            yield Raise(self._broke or result.error or ConnectionError(_DROPPED))
            return
        last = self._ledger.error or str(result.error or "")
        why = f" ({last})" if last else ""
        delivered = f"{len(answer.text):,} characters were delivered"
        error = shape.error(502, f"{_DROPPED}{why}; {delivered}")
        yield Emit(answer.broken(error, shape))

    def _finish(
        self, outcome: Outcome, reason: str | None, result: AttemptResult, **more: Any
    ) -> None:
        """Write the report of an answer that ended with `result`."""
        empty = result.stop is Stop.END and result.empty and outcome is Outcome.INCOMPLETE
        ending = "empty" if empty else str(result.stop)
        self.recorder.finish(outcome, reason, ending=ending if result.opened else None, **more)

    def _closing(self, decision: Decision, outcome: Outcome, situation: Situation) -> Closing:
        answer, policy = self._answer, self.policy
        document = (
            outcome is Outcome.HEALED
            and situation.structured
            and any(a.mode is Mode.RECOVERY and not a.discarded for a in self._ledger.attempts)
        )
        return Closing(
            action=decision.action,
            outcome=outcome,
            half_call=answer.half_call,
            half_document=document and not answer.parses(self._document),
            # A body has no error event, and an exception would make the SDK send it again.
            dead=self._dead and self._attempts.request.streamed,
            on_dead=policy.on_dead,
            on_failure=policy.on_failure,
            truncated_tool_call=policy.truncated_tool_call,
        )

    def _mends(self, decision: Decision, situation: Situation) -> bool:
        """Whether the caller's answer will differ from the server's, in a request with a chain."""
        if self._attempts.request.chain is None:
            return False
        if decision.outcome is None or decision.action is Action.RAISE:
            return decision.outcome is None
        closing = self._closing(decision, decision.outcome, situation)
        return ending(closing, situation).stop is not None

    @property
    def _document(self) -> Json | None:
        """The schema to check joined structured output against, if policy completes such output."""
        wanted = self.policy.truncated_document == "complete"
        return self._attempts.request.document if wanted else None

    def _tell_calls(self, decision: Decision) -> None:
        """Report what became of each call."""
        again = any(a.mode in {Mode.REPLACE, Mode.APPEND_TAIL} for a in self._ledger.attempts)
        completion, calls = self._completion, self.recorder.calls
        for name, length in self._answer.calls:
            calls.append(CallReport(short(name), "asked again" if again else "as it came", length))
        if decision.action is Action.CUT_CALL:
            why = objection(completion.proof) if completion is not None else None
            name, length = self._answer.cut_call
            calls.append(CallReport(short(name), self.policy.truncated_tool_call, length, why))
        elif completion is not None and objection(completion.proof) is None:
            calls[-1] = replace(calls[-1], how="completed" if completion.in_text else "asked again")


class Engine:
    """What the turns of one client share: policy, what was learned, the listener."""

    def __init__(
        self,
        dialects: tuple[Dialect, ...],
        config: Config | Policy,
        on_event: OnEvent | None,
        now: Callable[[], float],
        wall: Callable[[], float] | None = None,
        learned: Learned | None = None,
    ) -> None:
        """Begin. `now` is a clock in seconds that never goes back.

        `wall` returns the seconds since 1970; without it a `retry-after` with a date is ignored.
        `learned`: what earlier turns learned of limits; `None`: nothing yet.
        """
        self.config = load(config)
        self.learned = Learned() if learned is None else learned
        self.last_call = math.inf
        """The time, by the clock `now`, after which no attempt begins: the process will end."""
        self._dialects = dialects
        self.journal: Any = None
        """The caller's journal, which the shells write; `None`: there is none."""
        self._on_event = on_event
        self._now = now
        self._wall = wall

    def claims(self, method: str, path: str) -> Dialect | None:
        """Return the dialect that claims this request; `None`: none does."""
        for dialect in self._dialects:
            if dialect.claims(method, path):
                return dialect
        return None

    def begin(
        self,
        dialect: Dialect,
        request: Request,
        timeout: float | None,
        asked: Mapping[str, Any] | None = None,
        on_event: OnEvent | None = None,
    ) -> Turn:
        """Begin a turn. `timeout` is the caller's read timeout in seconds, if any.

        `asked`: policies for this call only; `None`: those that `override` sets here. `on_event`: a
        listener for this turn, in place of the client's.
        """
        overrides = current() if asked is None else asked
        vendor = None if request.server else self.config.vendor(request.host + request.path)
        if vendor:
            request = replace(request, server=vendor.settings)

        def policies(model: str) -> Policy:
            policy = self.config.policy_for(model)
            return replace(policy, **overrides) if overrides else policy

        recorder = Recorder(dialect.name, on_event or self._on_event, Ledger(self._now))
        turn = Turn(
            dialect,
            request,
            timeout,
            policies,
            self.learned,
            recorder,
            self._wall,
            lambda: self.last_call - self._now(),
        )
        recorder.trace(turn.policy.tracing, request.headers)
        return turn
