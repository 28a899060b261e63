"""The caller's own request on its way out: as it is, with a raised limit, or with a valid history.

Whatever is changed in it, the answer is the first attempt's. What is refused because of a change of
ours is sent again as the caller made it.
"""

from __future__ import annotations

from collections.abc import Generator

from continuation.dialect import Dialect, ProviderRequest
from continuation.engine import history_repair as mending
from continuation.engine.attempts import Attempts
from continuation.engine.budget import Budget
from continuation.engine.commands import Command, Read, Reply
from continuation.engine.table import Action
from continuation.policy import Policy
from continuation.reports.report import Recorder, Repair, Repairing
from continuation.types import ErrorKind, Head, Mode, Outgoing


class Opening:
    """Sends the first request of a turn until it is answered; `call` is what was sent at last."""

    def __init__(
        self,
        dialect: Dialect,
        call: ProviderRequest,
        policy: Policy,
        budget: Budget,
        attempts: Attempts,
        recorder: Recorder,
    ) -> None:
        self.call = call
        self._dialect = dialect
        self._policy = policy
        self._budget = budget
        self._attempts = attempts
        self._recorder = recorder

    def send(self, *, ours: bool) -> Generator[Command, Reply, Reply]:
        """Send it; `ours`: its answer will be healed, so that its limit is ours to raise."""
        raised = self._budget.raised_first(self.call) if ours else None
        mended = mending.before_sending(self._dialect, self.call, self._policy)
        if mended is not None:
            reply = yield from self._send(self._mended(mended))
        elif raised is None:
            reply = yield from self._send(None)
        else:
            reply = yield from self._raised(raised)
        if isinstance(reply, Head) and reply.status in mending.STATUSES:
            reply = yield from self._refused(reply, ours=ours)
        return reply

    def _send(self, outgoing: Outgoing | None) -> Generator[Command, Reply, Reply]:
        """Send one call under the caller's own limit; `None`: its own request, byte for byte."""
        return (yield from self._attempts.send(outgoing, Mode.FIRST, self._budget.limit))

    def _raised(self, limit: int) -> Generator[Command, Reply, Reply]:
        """Send it with a limit of ours; if that is refused, with the caller's own."""
        reply = yield from self._attempts.send(self.call.first(limit), Mode.FIRST, limit)
        if not (isinstance(reply, Head) and reply.status in {400, 422, 429}):
            self._budget.limit = limit
            return reply
        body = yield Read()
        refused = self.call.refused(reply, body if isinstance(body, bytes) else b"")
        self._attempts.record(error=refused.error)
        self._budget.forget_raised()
        named = refused.maximum if self._budget.learn(refused, limit) else None
        spare = self._budget.sent == 1 and self._policy.max_attempts > 2
        if named is not None and named > (self._budget.limit or 0) and spare:
            return (yield from self._raised(named))
        return (yield from self._send(None))

    def _refused(self, head: Head, *, ours: bool) -> Generator[Command, Reply, Reply]:
        """A history the provider rejects is repaired and sent again, once."""
        body = yield Read()
        if not isinstance(body, bytes):
            return body  # it broke off: that is the caller's error, and the head has no more to say
        mended = mending.after_refusal(self._dialect, self.call, head, body, self._policy)
        if mended is None:
            return (yield from self._spent(head, body)) if ours else head
        self._attempts.record(error=f"{head.status} {mended.code}")
        return (yield from self._send(self._mended(mended)))

    def _spent(self, head: Head, body: bytes) -> Generator[Command, Reply, Reply]:
        """An error that means "the limit was used up by thinking" is a cut answer: escalate."""
        below = self._budget.below(self._recorder.draft())
        refused = self.call.refused(head, body) if below else None
        if refused is None or refused.kind is not ErrorKind.LIMIT_CONSUMED:
            return head
        self._attempts.record(error=refused.error)
        self._recorder.rows.append("refused: the limit was spent without a word")
        limit = self._budget.spend(Action.ESCALATE, self._recorder.draft())
        return (yield from self._raised(limit)) if limit is not None else head

    def _mended(self, mended: mending.Mended) -> Outgoing:
        """From here on the caller's request is the one with the valid history."""
        self.call = mended.call
        changes = [Repair(c.what, c.where, c.why) for c in mended.changes]
        self._recorder.repairs += changes
        self._recorder.tell(Repairing(self._budget.sent + 1, mended.code, len(changes)))
        return mended.outgoing
