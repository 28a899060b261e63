"""What a turn may still spend, and the output limit of its next attempt.

The ledger has what was spent. The bound on everything: `ledger.sent` counts each upstream call
except the look-up of a ceiling, and never exceeds `max_attempts` plus `HOPS`. Escalation, less
thinking and the request for smaller calls happen once each; recoveries and resumptions have budgets
that only shrink.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING

from continuation.engine.table import Action
from continuation.ledger import Lesson, delivered
from continuation.limits import ModelLimits, clamp, find
from continuation.limits.tokens import estimate
from continuation.types import ClassifiedError, ErrorKind, Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from continuation.ledger import Ledger
    from continuation.limits import Learned
    from continuation.policy import Policy
    from continuation.providers.contract import Dialect, ProviderRequest

LESSONS = 2
"""How often one attempt may be repeated because its limit or its form was refused."""
MARGIN = 1024
"""Tokens left free in the window, for our prompt and for errors in counting."""
WORTH = 1.2
"""An escalation must raise the limit by at least a fifth."""
HOPS = 32
"""Provider hops not counted against `max_attempts`; 16 of them fill the largest window."""
PAUSES = 10
"""How often an answer is sent back to a provider that paused it."""
REPEATS = 2
"""How often a request is resent after an ending that another answer may not have."""
_TAKEN = 4_096
"""Tokens that any server accepts as a limit, for a server that has stated no limit."""


class Budget:
    """What one turn may still do, and the output limit of its next attempt; most need none."""

    def __init__(
        self,
        policy: Policy,
        request: ProviderRequest,
        dialect: Dialect,
        ledger: Ledger,
        learned: Learned,
        key: Hashable,
        timeout: float | None,
        left: Callable[[], float],
        size: int,
    ) -> None:
        """Begin; what is passed means the same as in `Attempts`."""
        self.recoveries = policy.max_recoveries
        # A stopped process is not one of the drops that policy counts.
        self.drops = policy.max_drop_recoveries + ledger.played
        self.escalated = False
        self.steps = LESSONS
        """How often a limit may still be lowered that is refused without a number."""
        self._most: int | None = None
        """The largest limit that the rest of the turn may send, after such a refusal."""
        self.may_retry_smaller = policy.truncated_tool_call == "retry_smaller"
        self.may_think_less = policy.less_thinking
        self.asked_call = False
        """The model was asked for a call that its text announced; this happens once."""
        self.passed_loop = False
        """The model was asked to continue behind a text that it repeated; this happens once."""
        self.repeats = REPEATS if policy.resend_failed else 0
        """How often the request may still be resent after a bad ending."""
        self.pauses = PAUSES if request.resumes(policy) else math.inf
        """How many more pauses of the provider are resumed."""
        self.learned, self.key = learned, key
        self._outgrown: int | None = None
        """The limit at which the last answer was truncated; `None`: no larger one follows."""
        self._remembered = False
        known = find(request.model)
        self.table = known or ModelLimits(dialect.default_ceiling)
        """The table's limits of the model, or the dialect's default ceiling."""
        self._in_table = known is not None
        # Answers of requests with tools and without them are not equally long.
        self._kind = "needed_with_tools" if request.body.get("tools") else "needed"
        self._policy, self._request, self._left = policy, request, left
        self._size = size
        self._ledger = ledger
        self._least = request.limit or 1
        """The caller's own limit, or 1: a later attempt with less would only add a seam."""
        chosen = timeout != dialect.default_timeout and not request.streamed
        self._timeout = timeout if chosen else None

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
        """Tokens of the longest truncated answer, if the caller's limit is no larger."""
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
        """Tokens of the longest answer to such a request that was truncated; `None`: none was."""
        return getattr(self.learned.get(self.key), self._kind, None)

    def outgrows(self) -> None:
        """Note that the last answer was truncated, and that more is about to be requested."""
        output = delivered(self._ledger.attempts).output
        self._outgrown = self._ledger.limit or output

    def accepted(self, limit: int | None) -> None:
        """Remember at once, for turns that begin now, that a larger limit was accepted."""
        cut_at, self._outgrown = self._outgrown, None
        if cut_at is None or self._most is not None or not self._policy.remember_limit:
            return
        if limit is not None and limit > cut_at:
            self._remembered = True
            self._need(cut_at)

    def settle(self) -> None:
        """Remember how many tokens the complete answer needed, now that the turn is over."""
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
        if action in {Action.RESEND, Action.RESEND_BEHIND, Action.CHECKPOINT, Action.REPEAT}:
            if action is Action.REPEAT:
                self.repeats -= 1
            else:
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
        elif action is Action.ASK_CALL:
            self.asked_call = True
        elif action is Action.PASS_LOOP:
            self.passed_loop = True
        elif action is Action.RESUME:
            self.drops -= 1
        elif action is Action.TOKEN:  # hops are bounded by their progress, too
            self.pauses -= 1
        else:
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

    def teaches(self, error: ClassifiedError, limit: int | None) -> bool:
        """Whether a refusal states what to correct; `limit`: the limit that was sent."""
        if error.kind in {ErrorKind.PREFILL, ErrorKind.UNSUPPORTED_PARAMETER}:
            return True
        stated = error.maximum is not None and limit is not None and 0 < error.maximum < limit
        return stated and error.kind in {ErrorKind.CEILING, ErrorKind.CONTEXT_OVERFLOW}

    def learn(self, error: ClassifiedError, limit: int | None) -> bool:
        """Keep what a refusal states for this turn and later ones; return whether it `teaches`."""
        taught = self.teaches(error, limit)
        if error.kind is ErrorKind.PREFILL:
            self.learned.learn(self.key, no_prefill=True)
            self._ledger.lessons.append(Lesson("prefill", 0, "refusal"))
        elif taught and error.kind is ErrorKind.CEILING and error.maximum is not None:
            # CONTEXT_OVERFLOW depends on this request, so nothing is learned for the next one.
            self.learn_ceiling(error.maximum, "refusal")
        return taught

    def learn_ceiling(self, ceiling: int, source: str) -> None:
        """Keep the ceiling that the provider has named, for this turn and later ones."""
        self.learned.learn(self.key, ceiling=ceiling)
        self._ledger.lessons.append(Lesson("ceiling", ceiling, source))

    def quota(self, error: ClassifiedError, limit: int | None) -> int | None:
        """Return the limit, at least the caller's, that the quota allows; `None`: none is named."""
        most = error.maximum if error.kind is ErrorKind.RETRYABLE else None
        allowed = most is not None and limit is not None and self._least <= most < limit
        return most if allowed else None

    def smaller(self, limit: int | None, *, anew: bool) -> int | None:
        """Return a limit to try next, if the raised `limit` itself may be what is refused.

        It is between the refused limit and the accepted one. After `LESSONS` steps, or if the two
        are close, it is the accepted one, which is no use to an answer that is generated `anew`.
        `None`: there is none.
        """
        smaller = self._between(limit)
        useless = anew and smaller == self._accepted
        return smaller if smaller < (limit or 0) and not useless else None

    def step_down(self, limit: int | None) -> None:
        """Let the rest of the turn use no larger limit than the one below the refused `limit`."""
        self._most = self._between(limit)
        self.steps -= 1
        self.forget()

    def _between(self, limit: int | None) -> int:
        between = math.isqrt(self._accepted * (limit or 0)) if self.steps > 0 else 0
        return between if between >= WORTH * self._accepted else self._accepted

    @property
    def _accepted(self) -> int:
        """The limit of the last call that was answered, or what any server accepts."""
        output = delivered(self._ledger.attempts).output
        return self._ledger.limit or max(output or 0, _TAKEN)
