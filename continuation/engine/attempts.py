"""Sending a request until it is answered: the caller's own first, then each later attempt.

The caller's own request is sent as it is, with a changed limit, or with a repaired history; if a
raised limit is refused, it is sent again as the caller made it. A later attempt is retried after
errors that may pass, and sent again with what a refusal taught.

What has been spent is in the ledger, what is left to spend in the `Budget`. The bound on
everything: `ledger.sent` grows with each upstream call except the look-up of a ceiling, and never
passes `max_attempts` plus `HOPS`. Escalation, less thinking and the request for smaller calls
happen once each; recoveries and resumptions have budgets that only shrink.
"""

from __future__ import annotations

import email.utils
import logging
import math
import random
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeAlias

from continuation.dialect import Dialect, ProviderRequest
from continuation.engine.commands import Command, Consult, Read, Reply, Script, Send, Wait, Work
from continuation.engine.table import Action, OpeningFacts, decide
from continuation.ledger import Ledger, Lesson, delivered
from continuation.limits import Learned, ModelLimits, clamp, find
from continuation.limits.tokens import estimate
from continuation.policy import Policy
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

LESSONS = 2
"""How often one attempt may be repeated because its limit or its form was refused."""
HISTORY_STATUSES = frozenset({400, 404, 422})
"""Statuses with which providers answer a history they cannot accept, or do not find."""
LONGEST_BACKOFF = 8.0
"""Seconds; the SDKs use the same."""
MARGIN = 1024
"""Tokens left free in the window, for our prompt and for errors in counting."""
WORTH = 1.2
"""An escalation must raise the limit by at least a fifth."""
HOPS = 32
"""Provider hops not counted against `max_attempts`; 16 of them fill the largest window."""
_LOOKUP_SECONDS = 5.0
_LARGE = 1 << 18
"""Bytes of a request above which it takes milliseconds to write it anew."""
_TAKEN = 4_096
"""Tokens that any server gives, where neither request nor answer say what it has given."""
_REFUSED = frozenset({400, 402, 413, 422})
"""What servers answer to a limit that they do not give."""
_NO_STREAM = frozenset({403, 404, 405, 501})
"""What servers answer in addition to a caller who may not stream."""
_SLOW = 1_000_000
"""The size of a job in bytes, at least, for which a thread is worth its while."""

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


class Budget:
    """What one turn may still do, and the output limit of its next attempt; most need none."""

    def __init__(self, attempts: Attempts) -> None:
        policy, request = attempts.policy, attempts.request
        self.recoveries = policy.max_recoveries
        # A stopped process is not one of the drops that policy counts.
        self.drops = policy.max_drop_recoveries + attempts.recorder.ledger.played
        self.escalated = False
        self.steps = LESSONS
        """How often a limit may still be lowered that is refused without a number."""
        self._most: int | None = None
        """What the rest of the turn may ask for, after such a refusal."""
        self.may_retry_smaller = policy.truncated_tool_call == "retry_smaller"
        self.may_think_less = policy.less_thinking
        self.learned, self.key = attempts.learned, attempts.key
        self._outgrown: int | None = None
        """The limit at which the last answer was cut, if a later attempt may have a larger one."""
        self._remembered = False
        known = find(request.model)
        self.table = known or ModelLimits(attempts.dialect.default_ceiling)
        """The table's limits of the model, or the dialect's default ceiling."""
        self._in_table = known is not None
        # Answers of requests with tools and without them are not equally long.
        self._kind = "needed_with_tools" if request.body.get("tools") else "needed"
        self._policy, self._request, self._left = policy, request, attempts.left
        self._size = attempts.size
        self._ledger = attempts.recorder.ledger
        self._least = request.limit or 1
        """The caller's own limit, or 1: a later attempt with less would only add a seam."""
        chosen = attempts.timeout != attempts.dialect.default_timeout and not request.streamed
        self._timeout = attempts.timeout if chosen else None

    # --- limits ------------------------------------------------------------------------------

    @property
    def ceiling(self) -> int:
        """The largest output limit: by policy, else learned, else the server's or the table's."""
        return self.known_ceiling or self._request.ceiling or self.table.ceiling

    @property
    def known_ceiling(self) -> int | None:
        """The ceiling that policy or the provider has named; `None`: neither has."""
        return self._policy.model_max_output_tokens or self.learned.get(self.key).ceiling

    @property
    def _top(self) -> int:
        """The limit of an escalation, where the window has room for it."""
        most = None if self._request.streams else self._request.unary_ceiling
        return self.ceiling if most is None else min(self.ceiling, most)

    def target(self, *, onward: bool) -> int:
        """Return the limit for the next attempt: the ceiling, or what window and budget allow.

        `onward`: the attempt's prompt contains the output of the turn so far.
        """
        turn = delivered(self._ledger.attempts)
        held = (turn.output or 0) if onward else 0
        prompt = turn.prompt
        if prompt is None and self.nears_window(self._top + held):
            prompt = self.prompt
        prompt = None if prompt is None else prompt + held
        floor = self._ledger.limit or 1
        room = clamp(self._top, self.table.window, prompt, margin=MARGIN, floor=floor)
        return min(room, max(self._tokens_left, self._least), self._most or room)

    @property
    def _tokens_left(self) -> int:
        """How many output tokens the turn may still be billed."""
        billed = self._ledger.most_billed(self.ceiling, self._request.hop_ceiling)
        return self._policy.max_turn_output_tokens - billed

    @property
    def below(self) -> bool:
        """Whether the limit can still be raised by a fifth or more, and was not raised yet."""
        if self.escalated or not self._policy.escalate:
            return False
        limit = self._ledger.limit
        if limit is None:
            return not self._request.unbounded
        return self.target(onward=False) >= WORTH * limit

    @property
    def can_raise_limit(self) -> bool:
        """Whether the limit can still be raised at all, for attempts that repeat no output."""
        limit = self._ledger.limit
        return limit is None or self.target(onward=False) > limit

    def nears_window(self, limit: int) -> bool:
        """Whether prompt and `limit` may exceed the window; no text has more tokens than bytes."""
        window = self.table.window
        return window is not None and self._size + limit + MARGIN > window

    @cached_property
    def prompt(self) -> int:
        """An estimate of the prompt's tokens, which takes some milliseconds for a long one."""
        return estimate(self._request.prompt_text, self._request.model)

    def raised_first(self) -> int | None:
        """Return the raised limit for the first attempt; `None`: the caller's own limit is sent.

        Policy `initial_limit` raises it. So does what was learned, but only where it can go so high
        that no escalation follows: one after our own raise would pay for the answer twice.
        """
        request, policy = self._request, self._policy
        # If the raise were refused and no attempt is left, nothing more could be sent. A saved
        # answer was made with the caller's own limit.
        if policy.max_attempts < 2 or self._ledger.played or request.unbounded:
            return None
        limit = top = min(self._top, policy.max_turn_output_tokens)
        needed = self._needed_more
        bodies = request.unary_ceiling if not request.streamed else None
        if bodies is not None and not (needed and request.gathers):
            limit = min(limit, bodies)
        if policy.initial_limit != "ceiling" and (limit < top or not needed):
            return None
        if self.table.window_shared and self.nears_window(limit):
            limit = min(limit, (self.table.window or 0) - self.prompt - MARGIN)
            if policy.initial_limit != "ceiling" and limit < (needed or 0):
                return None
        return limit if limit > (request.limit or 0) else None

    @property
    def _needed_more(self) -> int | None:
        """Tokens of the longest answer that was cut, if the caller's limit is no larger."""
        needed, limit = self.needed, self._request.limit
        if not (self._policy.remember_limit and self._policy.escalate and needed):
            return None
        return needed if limit is None or limit < WORTH * needed else None

    def gathers(self, limit: int) -> bool:
        """Whether the first attempt is sent as a stream, though its caller waits for a body.

        With a limit above `unary_ceiling` a body may outlast the SDK's timeout.
        """
        request = self._request
        most = request.unary_ceiling
        return not request.streamed and request.gathers and most is not None and limit > most

    def lowered_first(self) -> int | None:
        """Return the ceiling, if policy `clamp` sends it instead of a larger limit; else `None`."""
        known = self.known_ceiling or self._request.ceiling
        if known is None and self._in_table:
            known = self.table.ceiling
        limit = self._request.limit
        wanted = self._policy.clamp and known is not None and limit is not None and limit > known
        return known if wanted else None

    @property
    def needed(self) -> int | None:
        """Tokens of the longest answer to such a request that was cut; `None`: none was."""
        return getattr(self.learned.get(self.key), self._kind, None)

    def outgrows(self) -> None:
        """Note that the last answer was cut at its limit, and more is about to be asked for."""
        output = delivered(self._ledger.attempts).output
        self._outgrown = self._ledger.limit or output

    def accepted(self, limit: int | None) -> None:
        """Remember at once, for turns that begin now, that a cut answer got a larger limit."""
        cut_at, self._outgrown = self._outgrown, None
        if cut_at is None or self._most is not None or not self._policy.remember_limit:
            return
        if limit is not None and limit > cut_at:
            self._remembered = True
            self._need(cut_at)

    def settle(self) -> None:
        """Remember how many tokens the whole answer needed, now that the turn is over."""
        attempts = self._ledger.attempts
        if self._remembered and (output := delivered(attempts).output) is not None:
            self._need(output)
            escalated = any(a.mode in {Mode.REPLACE, Mode.APPEND_TAIL} for a in attempts)
            source = "escalation" if escalated else "recovery"
            self._ledger.lessons.append(Lesson("needed", output, source))

    def _need(self, tokens: int) -> None:
        self.learned.learn(self.key, **{self._kind: max(self.needed or 0, tokens)})

    def forget(self) -> None:
        """Forget what answers needed: a raised limit was refused, so do not raise it at once."""
        self._remembered, self._outgrown = False, None
        self.learned.learn(self.key, **{self._kind: None})

    # --- spending ----------------------------------------------------------------------------

    def spend(self, action: Action) -> int | None:
        """Take an attempt from its budget; return its output limit; `None`: it gets none."""
        if action in {Action.RESEND, Action.RESEND_BEHIND, Action.CHECKPOINT}:
            self.drops -= 1
            limit = self._ledger.limit
            return None if limit is None else min(limit, max(self._tokens_left, self._least))
        escalates = action in {Action.ESCALATE, Action.ESCALATE_BEHIND}
        anew = escalates or action in {Action.TOKEN, Action.THINK_LESS}
        target = self.target(onward=not anew)
        if escalates:
            self.escalated = True
        elif action is Action.RETRY_SMALLER:
            self.may_retry_smaller = False
        elif action is Action.THINK_LESS:
            self.may_think_less = False
        elif action is Action.RESUME:
            self.drops -= 1
        elif action is not Action.TOKEN:  # hops are bounded by `HOPS` and their progress
            self.recoveries -= 1
        return target

    @property
    def spent(self) -> str | None:
        """Which budget is used up, in words for the report; `None`: none is."""
        ledger, policy = self._ledger, self._policy
        if self.time_up:  # first, because it may be why an attempt was broken off
            return self.time_up
        if self._left() <= 0:
            return "the process is about to end"
        if ledger.before + ledger.sent - min(ledger.paused, HOPS) >= policy.max_attempts:
            return "max_attempts spent"
        if self._tokens_left < self._least:
            return "max_turn_output_tokens spent"
        return None

    @property
    def time_up(self) -> str | None:
        """Whether our time or the caller's is up, in words for the report; `None`: neither is."""
        if self._ledger.seconds >= self._policy.max_turn_seconds:
            return "max_turn_seconds spent"
        if self._timeout is not None and self._ledger.seconds >= self._timeout:
            return "the caller's timeout is spent"
        return None

    @property
    def seconds_left(self) -> float | None:
        """Seconds left of the caller's timeout, at least 0.1; `None`: it set none for the turn."""
        return None if self._timeout is None else max(0.1, self._timeout - self._ledger.seconds)

    @property
    def patience(self) -> float:
        """Seconds left for later attempts: neither a wait nor an attempt may take longer."""
        left = self._policy.max_turn_seconds - self._ledger.seconds
        return left if self.seconds_left is None else min(left, self.seconds_left)

    # --- what a refusal teaches --------------------------------------------------------------

    def learn(self, error: ClassifiedError, limit: int | None) -> bool:
        """Learn from a refusal; return whether another try may succeed. `limit`: what was sent."""
        if error.kind is ErrorKind.PREFILL:
            self.learned.learn(self.key, no_prefill=True)
            self._ledger.lessons.append(Lesson("prefill", 0, "refusal"))
            return True
        if error.kind is ErrorKind.UNSUPPORTED_PARAMETER:
            return True
        if error.maximum is None or limit is None or not 0 < error.maximum < limit:
            return False
        if error.kind is ErrorKind.CEILING:
            # CONTEXT_OVERFLOW depends on this request, so nothing is learned for the next one.
            self.learn_ceiling(error.maximum, "refusal")
        return error.kind in {ErrorKind.CEILING, ErrorKind.CONTEXT_OVERFLOW}

    def learn_ceiling(self, ceiling: int, source: str) -> None:
        """Keep the ceiling that the provider has named, for this turn and later ones."""
        self.learned.learn(self.key, ceiling=ceiling)
        self._ledger.lessons.append(Lesson("ceiling", ceiling, source))

    def quota(self, error: ClassifiedError, limit: int | None) -> int | None:
        """Return the limit, at least the caller's, that the quota allows; `None`: none is named."""
        most = error.maximum if error.kind is ErrorKind.RETRYABLE else None
        if most is None or limit is None or not self._least <= most < limit:
            return None
        self.forget()
        return most

    def step_down(self, limit: int | None, *, anew: bool) -> int | None:
        """Return a smaller limit to try, when a raised one itself may be what is refused.

        Some vendors reserve the limit against the quota, so that a 429 can be our doing; others say
        in words of their own what they do not give. At last it is the limit that was taken, which
        is no use to an answer that is asked for `anew`.
        """
        self.forget()
        before = self._ledger.limit or max(delivered(self._ledger.attempts).output or 0, _TAKEN)
        self.steps -= 1
        smaller = math.isqrt(before * (limit or 0)) if self.steps >= 0 else 0
        self._most = smaller = smaller if smaller >= WORTH * before else before
        return smaller if smaller < (limit or 0) and not (anew and smaller == before) else None


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
    size: int = 0
    """Bytes of the caller's request."""
    refusal: str = ""
    """Status and name of the error that the caller gets; `""`: its body was not read."""
    gathered: bool = False
    """The caller waits for a body, and the first attempt is answered by a stream."""

    @cached_property
    def budget(self) -> Budget:
        """What the turn may still spend; made when it is first needed."""
        return Budget(self)

    # --- the caller's own request ----------------------------------------------------------------

    def first(self, *, ours: bool) -> Generator[Command, Reply, Reply]:
        """Send the first attempt until it is answered; `ours`: its answer will be healed."""
        policy, raised, lowered, own = self.policy, None, None, None
        if (chain := self.request.chain) is not None and (ask := chain.recall(policy)) is not None:
            chain.recalled((yield from self._consult("read", ask)))
        repaired = yield from self._repaired()
        doubt = self.request.doubt
        if chain and doubt and chain.clear((yield from self._look_up(doubt))):
            repaired = yield from self._repaired()
        if repaired is not None:
            own = self._adopt(repaired)
        if ours and (own is None or own.refusal is None):
            lowered = self.budget.lowered_first() if policy.clamp and own is None else None
            remembered = policy.remember_limit and self.learned.knows(self.key)
            if remembered or policy.initial_limit == "ceiling":
                raised = yield from self._raised_first()
        if lowered is not None:
            reply = yield from self._lowered(lowered)
        elif raised is not None:
            reply = yield from self._raised(raised, own)
        else:
            reply = yield from self._send(own)
        if isinstance(reply, Head) and reply.status in HISTORY_STATUSES:
            reply = yield from self._refused(reply, ours=ours)
        return reply

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
        policy, history = self.policy, self.dialect.history
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
        refusals = {*_REFUSED, 429, *(_NO_STREAM if gathers else ())}
        if not (isinstance(reply, Head) and reply.status in refusals):
            self.gathered = gathers and isinstance(reply, Head) and reply.ok and not reply.is_json
            return reply
        raw = yield Read()
        body = raw if isinstance(raw, bytes) else b""
        spare = ledger.sent == 1 and self.policy.max_attempts > 2
        if spare and reply.status in HISTORY_STATUSES:
            repaired = yield from self._repaired((reply, body))
            if repaired is not None:
                ledger.record(error=f"{reply.status} {repaired.code}")
                own = self._adopt(repaired)
                again = self._raised(limit, own) if own.refusal is None else self._send(own)
                return (yield from again)
        error = request.refused(reply, body)
        ledger.record(error=error.error)
        # What credit and quota leave now is no limit to begin with: it may be less than is needed.
        taught = budget.learn(error, limit) and reply.status not in {402, 429}
        named = error.maximum or limit
        if taught and named > (request.limit or 0) and spare:
            return (yield from self._raised(named, own))
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

    def _refused(self, head: Head, *, ours: bool) -> Generator[Command, Reply, Reply]:
        """Send a refused first attempt again if a change can help; return the last reply.

        The history is repaired; else the limit is lowered to the ceiling that the answer names, if
        policy wants that; else it is raised if thinking used it up.
        """
        body = yield Read()
        if not isinstance(body, bytes):
            return body  # the body broke off: the caller gets that error
        repaired = yield from self._repaired((head, body))
        if repaired is not None:
            self.recorder.ledger.record(error=f"{head.status} {repaired.code}")
            return (yield from self._with_retries(self._adopt(repaired)))
        # An error that means "thinking used the whole limit" is treated as a cut answer.
        looked = ours and (self.policy.clamp or self.budget.below)
        error = self.request.refused(head, body) if looked else None
        named = error.maximum if error is not None and error.kind is ErrorKind.CEILING else None
        if self.policy.clamp and error and named and self.budget.learn(error, self.request.limit):
            self.recorder.ledger.record(error=error.error)
            return (yield from self._lowered(named))
        consumed = error is not None and error.kind is ErrorKind.LIMIT_CONSUMED
        refused = decide(OpeningFacts(ok=False, status=head.status, consumed=consumed))
        if error is None or refused.action is not Action.ESCALATE:
            self.refusal = self.request.label(head, body)
            return head
        self.recorder.ledger.record(error=error.error)
        self.recorder.rows.append(refused.row)
        limit = self.budget.spend(refused.action)
        return (yield from self._raised(limit, None)) if limit is not None else head

    def _with_retries(self, outgoing: Outgoing) -> Generator[Command, Reply, Reply]:
        """Send a repaired request and retry it after errors that may pass, so that it is of use."""
        tries = 0
        while True:
            reply = yield from self._send(outgoing)
            if isinstance(reply, Head) and reply.ok:
                return reply
            error = ClassifiedError(ErrorKind.RETRYABLE, type(reply).__name__)
            if isinstance(reply, Head):
                body = yield Read()
                error = self.request.refused(reply, body if isinstance(body, bytes) else b"")
                self.refusal = error.error
            transient = error.kind is ErrorKind.RETRYABLE and tries < self.policy.max_retries
            if not transient or self.budget.spent:
                return reply
            if not (yield from self._waited(reply, error, tries)):
                return reply
            self.recorder.ledger.record(error=error.error)
            tries += 1

    def _waited(
        self, reply: Reply, error: ClassifiedError, tries: int
    ) -> Generator[Command, Reply, bool]:
        """Wait before a retry; return `False`, without waiting, if there should be none."""
        seconds = self._pause(reply, tries, error.wait)
        if seconds is None or seconds >= min(self.budget.patience, self.left()):
            return False
        self.recorder.tell(Retrying(self.recorder.ledger.sent, error.error, seconds))
        yield Wait(seconds)
        return True

    def _adopt(self, repaired: RepairedRequest) -> Outgoing:
        """Make the repaired request the caller's one from here on; return what to send."""
        self.request = repaired.request
        self.recorder.repairs += repaired.changes
        self.recorder.tell(
            Repairing(self.recorder.ledger.sent + 1, repaired.code, len(repaired.changes))
        )
        return repaired.outgoing

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

        `above`: a refusal that names a limit up to this one ends it, for the answer would only be
        cut again. Return the head of its answer, and the way in which the model was asked last.
        """
        budget, ledger, tries, lessons = self.budget, self.recorder.ledger, 0, LESSONS
        anew = mode in {Mode.REPLACE, Mode.APPEND_TAIL}
        while True:
            outgoing = yield from self._built(partial(build, limit, way))
            reply = yield from send(ledger, outgoing, mode, limit, max(0.1, budget.patience))
            if not isinstance(reply, Head):
                why = budget.time_up or type(reply).__name__
                error = ClassifiedError(ErrorKind.RETRYABLE, why)
            elif reply.ok:
                budget.accepted(limit)
                return reply, way
            else:
                body = yield Read()
                error = self.request.refused(reply, body if isinstance(body, bytes) else b"")
            self.recorder.ledger.record(error=error.error)
            if budget.spent:
                return None
            if lessons and (quota := budget.quota(error, limit)) is not None:
                lessons -= 1  # waiting does not help: the quota never has room for this limit
                limit = quota
            elif error.kind is ErrorKind.RETRYABLE and tries < self.policy.max_retries:
                if not (yield from self._waited(reply, error, tries)):
                    return None
                tries += 1
            elif (
                lessons
                and budget.learn(error, limit)
                and (error.maximum is None or error.maximum > above)
            ):
                lessons -= 1
                way = Way.PROMPT if error.kind is ErrorKind.PREFILL else way
                limit = error.maximum or limit
            # The raised limit may be what is refused, or what a rate limit met.
            elif (
                isinstance(reply, Head)
                and mode is not Mode.NATIVE_CONTINUATION  # its token, rather
                and (reply.status in _REFUSED or (reply.status == 429 and budget.steps == LESSONS))
                and (smaller := budget.step_down(limit, anew=anew))
            ):
                limit = smaller
            else:
                return None

    def ask_ceiling(self) -> Script:
        """Ask the provider for the model's ceiling, once per model and only after a cut."""
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
        """Note in the chain store that answer `given` will be mended; return `False` if that fails.

        It is noted first: whatever then happens, no request continues from the server's half.
        """
        chain = self.request.chain
        entries = chain.promise(self.policy, given) if chain is not None else None
        return entries is None or (yield from self._consult("write", entries)) is True

    def unchanged(self, given: str | None) -> None:
        """Note that the caller gets answer `given` as its server has it."""
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
        budget = self.budget
        tries = self.policy.max_drop_recoveries - budget.drops
        seconds = self._pause(None, max(0, tries - 1), None)
        if seconds:
            yield Wait(max(0.0, min(seconds, budget.patience)))

    def _pause(self, reply: Reply, tries: int, named: float | None) -> float | None:
        """Return the seconds to wait before try `tries + 1`, or `None`: do not try again.

        The server's `retry-after-ms` or `retry-after`, or else the seconds `named` in its body, are
        obeyed up to `max_wait_seconds`; a longer wait, or `x-should-retry: false`, means not to
        try again. Otherwise the wait doubles each time, less up to a quarter at random.
        """
        headers = reply.headers if isinstance(reply, Head) else dict[str, str]()
        if headers.get("x-should-retry") == "false":
            return None
        asked = retry_after(headers, self.wall() if self.wall is not None else None)
        seconds = named if asked is None else asked
        if seconds is None:
            doubled = min(self.policy.backoff_seconds * 2.0**tries, LONGEST_BACKOFF)
            seconds = doubled * (1 - 0.25 * random.random())
        elif seconds > self.policy.max_wait_seconds:
            return None
        return capped(seconds)


_longest: float | None = None


def cap_waits(seconds: float | None) -> float | None:
    """Cap all waits in the process at so many seconds (`None`: no cap); return the cap before."""
    global _longest
    before, _longest = _longest, seconds
    return before


def capped(seconds: float) -> float:
    """Return `seconds`, or the cap of this process if that is smaller."""
    return seconds if _longest is None else min(seconds, _longest)


def retry_after(headers: Mapping[str, str], wall: float | None = None) -> float | None:
    """Return the seconds in `retry-after-ms`, else `retry-after` (seconds or a date), or `None`.

    `wall`: the time in seconds since 1970; without it a date is ignored.
    """
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * scale)
        except (KeyError, ValueError):
            continue
    try:
        parsed = email.utils.parsedate_tz(headers.get("retry-after"))
        return max(0.0, email.utils.mktime_tz(parsed) - wall) if parsed and wall else None
    except (ValueError, OverflowError):  # not a valid date
        return None
