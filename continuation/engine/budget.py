"""What a turn may still spend: limits, recoveries, attempts, tokens, time."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable

from continuation.dialect import Dialect, ProviderRequest
from continuation.engine.table import Action
from continuation.limits import Learned, ModelLimits, clamp, find
from continuation.policy import Policy
from continuation.reports.report import Lesson, Report
from continuation.types import ClassifiedError, ErrorKind

MARGIN = 1024
"""Tokens left free in the window: our prompt, and what counting gets wrong."""
WORTH = 1.2
"""An escalation must raise the limit by a fifth."""
HOPS = 32
"""Hops of an answer that are no attempts of their own; 16 fill the largest window."""


class Budget:
    """The counts of one turn, and the output limit of its next attempt.

    The bound on everything: `sent` grows with each upstream call but the look-up of a ceiling and
    never passes `max_attempts` and `HOPS` together; escalation, less thinking and guidance happen
    once, recoveries and resumptions have budgets that only shrink.
    """

    def __init__(
        self, policy: Policy, dialect: Dialect, learned: Learned, now: Callable[[], float]
    ) -> None:
        self.limit: int | None = None
        """The last limit that was sent."""
        self.key: Hashable = None
        self.sent = 0
        self.paused = 0
        """How many of them were paused by the provider, within the limit and not at its end."""
        self.recoveries = policy.max_recoveries
        self.drops = policy.max_drop_recoveries
        self.escalated = False
        self.stepped = False
        self.may_retry_smaller = policy.truncated_tool_call == "retry_smaller"
        self.may_calm = policy.less_thinking
        self.lessons: list[Lesson] = []
        """What was learned in this turn."""
        self._least = 1
        """The caller's own limit: a later attempt with less would only make another seam."""
        self._policy = policy
        self._dialect = dialect
        self._learned = learned
        self._now = now
        self._started = now()
        self._deadline: float | None = None
        self._call: ProviderRequest | None = None

    def read(self, call: ProviderRequest, key: Hashable, timeout: float | None) -> None:
        """Take the caller's own limits: its output limit, and its timeout if it chose one."""
        self.limit, self.key, self._call = call.limit, key, call
        self._least = call.limit or 1
        chosen = timeout is not None and timeout != self._dialect.default_timeout
        if timeout is not None and chosen and not call.streamed:
            self._deadline = self._started + timeout

    # --- limits ------------------------------------------------------------------------------

    @property
    def table(self) -> ModelLimits:
        """What the table says of the model."""
        model = self._call.model if self._call is not None else ""
        return find(model) or ModelLimits(self._dialect.default_ceiling)

    @property
    def ceiling(self) -> int:
        """The largest output limit: policy, then learned, then the server's, then the model's."""
        there = self._call.ceiling if self._call is not None else None
        learned = self._learned.get_ceiling(self.key)
        return self._policy.model_max_output_tokens or learned or there or self.table.ceiling

    @property
    def ceiling_known(self) -> bool:
        """Policy or the provider itself has named the ceiling."""
        return bool(self._policy.model_max_output_tokens or self._learned.get_ceiling(self.key))

    def target(self, so_far: Report, *, onward: bool) -> int:
        """Return the limit for the next attempt: the ceiling, as far as the window has room.

        `onward`: the attempt sends what the turn holds as part of its prompt.
        """
        turn = so_far.turn
        held = (turn.output or 0) if onward else 0
        prompt = None if turn.prompt is None else turn.prompt + held
        room = clamp(self.ceiling, self.table.window, prompt, margin=MARGIN, floor=self.limit or 1)
        return min(room, max(self._tokens_left(so_far), self._least))

    def _tokens_left(self, so_far: Report) -> int:
        """Return how many output tokens the turn may still be billed.

        Where the provider gave no final count, all that the limit allowed counts as billed, but
        not more than one request can bring.
        """
        answered = [a for a in so_far.attempts if a.answered]
        told = [a.usage if a.stop is not None and not a.estimated else None for a in answered]
        counts = [usage.output if usage else None for usage in told]
        most = [a.limit or self.ceiling for a in answered]
        if self._call is not None and self._call.hop_ceiling is not None:
            most = [min(m, self._call.hop_ceiling) for m in most]
        billed = sum(m if n is None else n for n, m in zip(counts, most, strict=True))
        return self._policy.max_turn_output_tokens - billed

    def below(self, so_far: Report) -> bool:
        """Whether the limit can still be raised by a fifth or more."""
        if self.escalated or not self._policy.escalate:
            return False
        if self.limit is None:
            return self._call is None or not self._call.unbounded
        return self.target(so_far, onward=False) >= WORTH * self.limit

    def raisable(self, so_far: Report) -> bool:
        """Whether the limit can still be raised at all: where nothing is generated twice."""
        return self.limit is None or self.target(so_far, onward=False) > self.limit

    def raised_first(self, call: ProviderRequest) -> int | None:
        """Return the limit to send instead of the caller's, if policy or memory say so."""
        limit = 0
        if self._policy.initial_limit == "ceiling":
            limit = self.ceiling
        elif self._policy.remember_limit:
            limit = self._learned.get_raised(self.key) or 0
        if not call.streamed and call.unary_ceiling is not None:
            limit = min(limit, call.unary_ceiling)
        limit = min(limit, self._policy.max_turn_output_tokens)
        if self._policy.max_attempts < 2:  # if it were refused, there would be no second try
            return None
        return limit if call.limit is not None and limit > call.limit else None

    # --- spending ----------------------------------------------------------------------------

    def spend(self, action: Action, so_far: Report) -> int | None:
        """Take an attempt from its budget; return the limit it is to be sent with."""
        if action in {Action.RESEND, Action.RESEND_BEHIND, Action.CHECKPOINT}:
            self.drops -= 1
            left = max(self._tokens_left(so_far), self._least)
            return None if self.limit is None else min(self.limit, left)
        again = action in {Action.ESCALATE, Action.ESCALATE_BEHIND}
        fresh = again or action in {Action.TOKEN, Action.THINK_LESS}
        target = self.target(so_far, onward=not fresh)
        if again:
            self.escalated = True
            if self._policy.remember_limit:
                self._learned.remember_raised(self.key, target)
                self.lessons.append(Lesson("raised", target, "escalation"))
        elif action is Action.RETRY_SMALLER:
            self.may_retry_smaller = False
        elif action is Action.THINK_LESS:
            self.may_calm = False
        elif action is Action.RESUME:
            self.drops -= 1
        elif action is not Action.TOKEN:  # a hop is bounded by its progress
            self.recoveries -= 1
        return target

    def spent(self, so_far: Report) -> str | None:
        """Name the budget that is used up, if one is."""
        policy, now = self._policy, self._now()
        if self.sent - min(self.paused, HOPS) >= policy.max_attempts:
            return "max_attempts spent"
        if now - self._started >= policy.max_turn_seconds:
            return "max_turn_seconds spent"
        if self.late:
            return "the caller's timeout is spent"
        if self._tokens_left(so_far) < self._least:
            return "max_turn_output_tokens spent"
        return None

    @property
    def late(self) -> bool:
        """The caller's own timeout has passed."""
        return self._deadline is not None and self._now() >= self._deadline

    @property
    def left(self) -> float | None:
        """Seconds left of the caller's own timeout; `None`: it set none for the turn."""
        return None if self._deadline is None else max(0.1, self._deadline - self._now())

    @property
    def patience(self) -> float:
        """Seconds after which it is too late to begin an attempt: no wait may be longer."""
        left = self._started + self._policy.max_turn_seconds - self._now()
        return left if self.left is None else min(left, self.left)

    def give_up_drops(self) -> None:
        """An attempt after a drop failed for good: another one would, too."""
        self.drops = 0

    def step_down(self, limit: int | None) -> int | None:
        """Return a smaller raise to try once, when a raised limit itself may be what is refused.

        Some vendors reserve the limit against the quota, so that a 429 can be our doing.
        """
        self.forget_raised()
        before = self.limit or 0
        smaller = math.isqrt(before * (limit or 0))
        if self.stepped or smaller < WORTH * before or before == 0:
            return None
        self.stepped = True
        return smaller

    def quota(self, refused: ClassifiedError, limit: int | None) -> int | None:
        """Return the limit to go down to when a rate limit has room for a smaller one only.

        Never below the caller's own limit: that one was worth a try as it stood.
        """
        most = refused.maximum if refused.kind is ErrorKind.RETRYABLE else None
        if most is None or limit is None or not self._least <= most < limit:
            return None
        self.forget_raised()
        return most

    # --- lessons -----------------------------------------------------------------------------

    def learn(self, refused: ClassifiedError, limit: int | None) -> bool:
        """Take the lesson of a refusal; whether it makes another try worth it."""
        if refused.kind is ErrorKind.PREFILL:
            self._learned.refuse_prefill(self.key)
            self.lessons.append(Lesson("prefill", 0, "refusal"))
            return True
        if refused.kind is ErrorKind.UNSUPPORTED_PARAMETER:
            return True
        if refused.maximum is None or limit is None or not 0 < refused.maximum < limit:
            return False
        if refused.kind is ErrorKind.CEILING:
            # What is left of the window in this request is no lesson for the next one.
            self._learned.learn_ceiling(self.key, refused.maximum)
            self.lessons.append(Lesson("ceiling", refused.maximum, "refusal"))
        return refused.kind in {ErrorKind.CEILING, ErrorKind.CONTEXT_OVERFLOW}

    def prefill_refused(self) -> bool:
        return self._learned.prefill_refused(self.key)

    def ask_once(self) -> bool:
        """Whether it is this turn's part to ask the models endpoint."""
        return self._learned.ask_once(self.key)

    def learn_ceiling(self, ceiling: int) -> None:
        """Take what the models endpoint says."""
        self._learned.learn_ceiling(self.key, ceiling)
        self.lessons.append(Lesson("ceiling", ceiling, "models endpoint"))

    def forget_raised(self) -> None:
        """The raised limit was refused: later turns begin with the caller's own again."""
        self._learned.forget_raised(self.key)
