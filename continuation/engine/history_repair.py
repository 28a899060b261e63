"""A history the provider rejects is made valid again, in the request that met the rejection.

A conversation brings what broke it along in every later turn. So what was refused and mended is
remembered, and the same messages are mended before they are sent again.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from continuation.dialect import ProviderRequest
from continuation.engine.attempts import RepairedRequest
from continuation.policy import Policy
from continuation.types import Change, Head, Json

if TYPE_CHECKING:
    from continuation.history import (
        Decision,
        HistoryError,
        OpenCall,
        Repaired,
        RepairPolicy,
    )
    from continuation.policy import Ask

logger = logging.getLogger("continuation")

_left_alone: WeakSet[ProviderRequest] = WeakSet()
"""Requests whose history the policy's callable wanted left as it is: it is not asked again."""
_KEPT = 256
"""So many histories are remembered by one client, the longest unused go first."""


class Memory:
    """What one upstream refused, and what it said: the messages up to where they were mended."""

    def __init__(
        self, kept: OrderedDict[tuple[Hashable, int, bytes], Any], upstream: Hashable
    ) -> None:
        self._kept, self._upstream = kept, upstream

    def keep(self, body: Json, done: Repaired, error: HistoryError | None) -> bool:
        """Remember a history that was mended; whether it is a new one."""
        from continuation.history.resent import beginnings, mended_until

        until = mended_until(body, done)
        key = (self._upstream, *next(beginnings(body, {until})))
        before = self._kept.pop(key, False)
        self._kept[key] = error or before or None
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return before is False

    def errors(self, body: Json) -> list[HistoryError]:
        """What was said of messages that this history begins with."""
        from continuation.history.resent import beginnings

        lengths = {length for who, length, _ in list(self._kept) if who == self._upstream}
        keys = ((self._upstream, *beginning) for beginning in beginnings(body, lengths))
        return [error for key in keys if (error := self._kept.get(key))]


def repaired(
    kind: str,
    request: ProviderRequest,
    policy: Policy,
    refusal: tuple[Head, bytes] | None,
    memory: Memory,
) -> RepairedRequest | None:
    """Repair a request before it is sent, or after this refusal; `None`: it stays as it is.

    `kind`: the name of its history's rules. What was refused is repaired only in what the error
    speaks of, if it speaks of the history; before it is sent, in what it was refused for once.
    """
    from continuation import history  # not needed until a history is broken

    if request in _left_alone:
        return None
    # Not `live`: whoever ran the open calls of a request on its way out has given up on them.
    wanted = policy.unanswered_tool_calls
    if callable(wanted):
        rules = history.RepairPolicy(unanswered_tool_calls="ask", ask=_once(wanted), live=False)
    else:
        rules = history.RepairPolicy(unanswered_tool_calls=wanted, live=False)
    pending: list[HistoryError | None]
    if refusal is None:
        pending = [*memory.errors(request.body)]
        pending += [None] if policy.repair == "before_send" else []
    elif (error := history.classify(refusal[0].status, refusal[1])) is not None:
        pending = [error]
    else:
        return None
    changes: list[Change] = []
    body, code = request.body, ""
    headers, closed, new = dict[str, str](), False, False
    try:
        for error, done in _steps(kind, request, rules, pending, memory):
            first = memory.keep(body, done, error)
            new = new or (first and (error is None or refusal is not None))
            code = code or (error.code if error is not None else done.changes[0].why)
            body, headers = dict(done.body), {**headers, **done.headers}
            changes += done.changes
            closed = closed or (done.origins is not None and done.origins[-1:] == (-1,))
    except history.NewSessionWanted as left:
        logger.debug("the history is left as it is: %s", left)
        _left_alone.add(request)
        return None
    if not changes:
        return None
    fixed = request.repaired(body, policy.resume_text if policy.auto_resume and closed else None)
    if policy.log_repairs and new:
        logger.warning("the history was repaired (%s): %d changes", code, len(changes))
    for change in changes if logger.isEnabledFor(logging.DEBUG) else ():
        logger.debug("%s at %s: %s", change.what, change.where, change.why)
    return RepairedRequest(fixed, fixed.outgoing(headers), changes, code)


def _steps(
    kind: str,
    request: ProviderRequest,
    rules: RepairPolicy,
    pending: list[HistoryError | None],
    memory: Memory,
) -> Iterator[tuple[HistoryError | None, Repaired]]:
    """Repair one thing after the other: what these errors speak of, `None` for all that shows.

    What an earlier repair left may have been refused in its turn, so that is looked up as well.
    """
    from continuation import history

    body, model = request.body, request.model
    tried: set[HistoryError | None] = set()
    while pending:
        if (error := pending.pop(0)) in tried:
            continue
        tried.add(error)
        if error is None:
            done = history.repair(body, kind, model=model, policy=rules)
        else:
            done = history.repair_refused(body, error, kind, model=model, policy=rules)
        if done.changes:
            yield error, done
            body = dict(done.body)
            pending[:0] = memory.errors(body)


def _once(ask: Ask) -> Ask:
    """Show the same open calls to the policy's callable once, however often a repair asks."""
    answers: dict[tuple[str, ...], Decision | Mapping[str, Decision]] = {}

    def asked(calls: tuple[OpenCall, ...]) -> Decision | Mapping[str, Decision]:
        key = tuple(call.path for call in calls)
        if key not in answers:
            answers[key] = ask(calls)
        return answers[key]

    return asked
