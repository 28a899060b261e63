"""What a turn may still spend: limits, recoveries, attempts, tokens, time.

What it has spent stands in the ledger. The bound on everything: `ledger.sent` grows with each
upstream call but the look-up of a ceiling and never passes `max_attempts` and `HOPS` together;
escalation, less thinking and guidance happen once, recoveries and resumptions have budgets that
only shrink.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

from continuation.dialect import Dialect, ProviderRequest
from continuation.engine.table import Action
from continuation.ledger import Ledger, Lesson
from continuation.limits import Learned, ModelLimits, clamp, find
from continuation.policy import Policy
from continuation.types import ClassifiedError, ErrorKind

MARGIN = 1024
"""Tokens left free in the window: our prompt, and what counting gets wrong."""
WORTH = 1.2
"""An escalation must raise the limit by a fifth."""
HOPS = 32
"""Hops of an answer that are no attempts of their own; 16 fill the largest window."""


class Budget:
    """What one turn may still do, and the output limit of its next attempt.

    It is made when an answer was cut, and not before: most turns need none.
    """

    def __init__(
        self,
        policy: Policy,
        dialect: Dialect,
        request: ProviderRequest,
        ledger: Ledger,
        learned: Learned,
        key: Hashable,
        timeout: float | None,
    ) -> None:
        """Begin. `key` is what the model's lessons are kept under, `timeout` the caller's own."""
        self.recoveries = policy.max_recoveries
        self.drops = policy.max_drop_recoveries
        self.escalated = False
        self.stepped_down = False
        self.may_retry_smaller = policy.truncated_tool_call == "retry_smaller"
        self.may_think_less = policy.less_thinking
        self.learned = learned
        self.key = key
        self.table = find(request.model) or ModelLimits(dialect.default_ceiling)
        """What the table says of the model."""
        self._policy = policy
        self._request = request
        self._ledger = ledger
        self._least = request.limit or 1
        """The caller's own limit: a later attempt with less would only make another seam."""
        chosen = timeout != dialect.default_timeout and not request.streamed
        self._timeout = timeout if chosen else None

    # --- limits ------------------------------------------------------------------------------

    @property
    def ceiling(self) -> int:
        """The largest output limit: policy, then learned, then the server's, then the model's."""
        return self.known_ceiling or self._request.ceiling or self.table.ceiling

    @property
    def known_ceiling(self) -> int | None:
        """The ceiling that policy or the provider itself has named, if one of them has."""
        return self._policy.model_max_output_tokens or self.learned.get(self.key).ceiling

    def target(self, *, onward: bool) -> int:
        """Return the limit for the next attempt: the ceiling, as far as the window has room.

        `onward`: the attempt sends what the turn holds as part of its prompt.
        """
        turn = self._ledger.delivered
        held = (turn.output or 0) if onward else 0
        prompt = None if turn.prompt is None else turn.prompt + held
        floor = self._ledger.limit or 1
        room = clamp(self.ceiling, self.table.window, prompt, margin=MARGIN, floor=floor)
        return min(room, max(self._tokens_left, self._least))

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
    def raisable(self) -> bool:
        """Whether the limit can still be raised at all: where nothing is generated twice."""
        limit = self._ledger.limit
        return limit is None or self.target(onward=False) > limit

    def raised_first(self) -> int | None:
        """Return the limit to send instead of the caller's, if policy or memory say so."""
        request, limit = self._request, 0
        if self._policy.initial_limit == "ceiling":
            limit = self.ceiling
        elif self._policy.remember_limit:
            limit = self.learned.get(self.key).start or 0
        if not request.streamed and request.unary_ceiling is not None:
            limit = min(limit, request.unary_ceiling)
        limit = min(limit, self._policy.max_turn_output_tokens)
        if self._policy.max_attempts < 2:  # if it were refused, there would be no second try
            return None
        return limit if request.limit is not None and limit > request.limit else None

    # --- spending ----------------------------------------------------------------------------

    def spend(self, action: Action) -> int | None:
        """Take an attempt from its budget; return the limit it is to be sent with."""
        if action in {Action.RESEND, Action.RESEND_BEHIND, Action.CHECKPOINT}:
            self.drops -= 1
            limit = self._ledger.limit
            return None if limit is None else min(limit, max(self._tokens_left, self._least))
        escalates = action in {Action.ESCALATE, Action.ESCALATE_BEHIND}
        anew = escalates or action in {Action.TOKEN, Action.THINK_LESS}
        target = self.target(onward=not anew)
        if escalates:
            self.escalated = True
            if self._policy.remember_limit:
                self.learned.learn(self.key, raised=target)
                self._ledger.lessons.append(Lesson("raised", target, "escalation"))
        elif action is Action.RETRY_SMALLER:
            self.may_retry_smaller = False
        elif action is Action.THINK_LESS:
            self.may_think_less = False
        elif action is Action.RESUME:
            self.drops -= 1
        elif action is not Action.TOKEN:  # a hop is bounded by its progress
            self.recoveries -= 1
        return target

    @property
    def spent(self) -> str | None:
        """The name of the budget that is used up, if one is."""
        ledger, policy = self._ledger, self._policy
        if ledger.sent - min(ledger.paused, HOPS) >= policy.max_attempts:
            return "max_attempts spent"
        if ledger.seconds >= policy.max_turn_seconds:
            return "max_turn_seconds spent"
        if self.late:
            return "the caller's timeout is spent"
        if self._tokens_left < self._least:
            return "max_turn_output_tokens spent"
        return None

    @property
    def late(self) -> bool:
        """Whether the caller's own timeout has passed."""
        return self._timeout is not None and self._ledger.seconds >= self._timeout

    @property
    def seconds_left(self) -> float | None:
        """Seconds left of the caller's own timeout; `None`: it set none for the turn."""
        return None if self._timeout is None else max(0.1, self._timeout - self._ledger.seconds)

    @property
    def patience(self) -> float:
        """Seconds after which it is too late to begin an attempt: no wait may be longer."""
        left = self._policy.max_turn_seconds - self._ledger.seconds
        return left if self.seconds_left is None else min(left, self.seconds_left)

    # --- what a refusal teaches --------------------------------------------------------------

    def learn(self, error: ClassifiedError, limit: int | None) -> bool:
        """Take the lesson of a refusal; whether it makes another try worth it."""
        if error.kind is ErrorKind.PREFILL:
            self.learned.learn(self.key, no_prefill=True)
            self._ledger.lessons.append(Lesson("prefill", 0, "refusal"))
            return True
        if error.kind is ErrorKind.UNSUPPORTED_PARAMETER:
            return True
        if error.maximum is None or limit is None or not 0 < error.maximum < limit:
            return False
        if error.kind is ErrorKind.CEILING:
            # What is left of the window in this request is no lesson for the next one.
            self.learn_ceiling(error.maximum, "refusal")
        return error.kind in {ErrorKind.CEILING, ErrorKind.CONTEXT_OVERFLOW}

    def learn_ceiling(self, ceiling: int, source: str) -> None:
        """Keep the ceiling that the provider has named."""
        self.learned.learn(self.key, ceiling=ceiling)
        self._ledger.lessons.append(Lesson("ceiling", ceiling, source))

    def quota(self, error: ClassifiedError, limit: int | None) -> int | None:
        """Return the limit to go down to when a rate limit has room for a smaller one only.

        Never below the caller's own limit: that one was worth a try as it stood.
        """
        most = error.maximum if error.kind is ErrorKind.RETRYABLE else None
        if most is None or limit is None or not self._least <= most < limit:
            return None
        self.learned.learn(self.key, raised=None)
        return most

    def step_down(self, limit: int | None) -> int | None:
        """Return a smaller raise to try once, when a raised limit itself may be what is refused.

        Some vendors reserve the limit against the quota, so that a 429 can be our doing.
        """
        self.learned.learn(self.key, raised=None)
        before = self._ledger.limit or 0
        smaller = math.isqrt(before * (limit or 0))
        if self.stepped_down or smaller < WORTH * before or before == 0:
            return None
        self.stepped_down = True
        return smaller
