"""Repair of a history that the provider rejects, in the request that was rejected.

A conversation carries what broke it into every later turn. So a repaired history is remembered, and
later requests that begin with the same messages are repaired before they are sent.
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
"""Number of histories that one client remembers; those unused longest are forgotten first."""


class Memory:
    """The histories that one upstream refused, up to the repaired place, with its errors."""

    def __init__(
        self, kept: OrderedDict[tuple[Hashable, int, bytes], Any], upstream: Hashable
    ) -> None:
        self._kept, self._upstream = kept, upstream

    def keep(self, body: Json, done: Repaired, error: HistoryError | None) -> bool:
        """Remember a history that was repaired; return whether it was unknown before."""
        from continuation.history.resent import beginnings, mended_until

        until = mended_until(body, done)
        key = (self._upstream, *next(beginnings(body, {until})))
        before = self._kept.pop(key, False)
        self._kept[key] = error or before or None
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return before is False

    def errors(self, body: Json) -> list[HistoryError]:
        """Return the errors of the remembered histories that this one begins with."""
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
    """Return a request with a repaired history; `None`: the request stays as it is.

    `kind`: the name of its history's rules. After a `refusal` only what that error names is
    repaired, if it is about the history. Before sending: what earlier errors named, and all that
    `validate` finds if policy `repair` is "before_send".
    """
    from continuation import history  # not needed until a history is broken

    if request in _left_alone:
        return None
    # Not `live`: the caller is sending the request, so it no longer waits for its open calls.
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
    """Yield each error with the repair of what it names; `None`: of all that `validate` finds.

    A repaired history may have been refused before too, so its errors are looked up as well.
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
    """Return `ask` with its answers kept, so that it is asked about the same open calls once."""
    answers: dict[tuple[str, ...], Decision | Mapping[str, Decision]] = {}

    def asked(calls: tuple[OpenCall, ...]) -> Decision | Mapping[str, Decision]:
        key = tuple(call.path for call in calls)
        if key not in answers:
            answers[key] = ask(calls)
        return answers[key]

    return asked
