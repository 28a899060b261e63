"""A history the provider rejects is made valid again, in the request that met the rejection."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from continuation.dialect import Dialect, ProviderRequest
from continuation.policy import Policy
from continuation.types import Head, Outgoing

if TYPE_CHECKING:
    from continuation.history import Change, Decision, OpenCall, Repaired, RepairPolicy
    from continuation.policy import Ask

logger = logging.getLogger("continuation")

_left: WeakSet[ProviderRequest] = WeakSet()
"""Requests whose history the policy's callable wanted left as it is: it is not asked again."""

STATUSES = frozenset({400, 404, 422})
"""What providers answer to a history they cannot take, or do not find."""


@dataclass(frozen=True, slots=True)
class Mended:
    """The caller's request with a valid history."""

    call: ProviderRequest
    outgoing: Outgoing
    changes: tuple[Change, ...]
    code: str
    """What was wrong, as `continuation.history.validate` names it."""


def after_refusal(
    dialect: Dialect, call: ProviderRequest, head: Head, answer: bytes, policy: Policy
) -> Mended | None:
    """Repair a request that was refused for its history; `None` when that is not why, or no help.

    Never for a request that was valid: what is changed is what the error speaks of.
    """
    if (amended := call.amended(policy, head, answer)) is not None:
        return _amended(amended)
    if dialect.history is None or head.status not in STATUSES or policy.repair == "off":
        return None
    from continuation import history  # not needed until a history is broken

    error = history.classify(head.status, answer)
    if error is None or call in _left:
        return None
    repair = partial(history.repair_refused, call.body, error, dialect.history, model=call.model)
    return _mended(call, _unless_left(call, repair, policy), error.code, policy)


def before_sending(dialect: Dialect, call: ProviderRequest, policy: Policy) -> Mended | None:
    """Repair a request before it is sent; `None` when it is valid."""
    if (amended := call.amended(policy)) is not None:
        return _amended(amended)
    if dialect.history is None or policy.repair != "before_send":
        return None
    from continuation import history

    repair = partial(history.repair, call.body, dialect.history, model=call.model)
    repaired = _unless_left(call, repair, policy)
    code = repaired.changes[0].why if repaired.changes else ""
    return _mended(call, repaired, code, policy)


def _amended(call: ProviderRequest) -> Mended:
    return Mended(call, call.outgoing({}), (), "amended")


def _unless_left(
    call: ProviderRequest, repair: Callable[..., Repaired], policy: Policy
) -> Repaired:
    """Repair, unless the policy's callable wants a new session rather than this one mended."""
    from continuation.history import NewSessionWanted, Repaired

    try:
        return repair(policy=_policy(policy))
    except NewSessionWanted as wanted:
        logger.debug("the history is left as it is: %s", wanted)
        _left.add(call)
        return Repaired(call.body)


def _policy(policy: Policy) -> RepairPolicy:
    """What holds for a request on its way out: whoever ran its open calls has given up on them."""
    from continuation.history import RepairPolicy

    if callable(policy.unanswered_tool_calls):
        return RepairPolicy(
            unanswered_tool_calls="ask", ask=_Once(policy.unanswered_tool_calls), live=False
        )
    return RepairPolicy(unanswered_tool_calls=policy.unanswered_tool_calls, live=False)


class _Once:
    """Shows the same open calls to the policy's callable once, however often a repair asks."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._said: dict[tuple[str, ...], Decision | Mapping[str, Decision]] = {}

    def __call__(self, calls: tuple[OpenCall, ...]) -> Decision | Mapping[str, Decision]:
        key = tuple(call.path for call in calls)
        if key not in self._said:
            self._said[key] = self._ask(calls)
        return self._said[key]


def _mended(call: ProviderRequest, repaired: Repaired, code: str, policy: Policy) -> Mended | None:
    if not repaired.changes:
        return None
    body: Mapping[str, Any] = repaired.body
    closed = repaired.origins is not None and repaired.origins[-1:] == (-1,)
    fixed = call.mended(body, policy.resume_text if policy.auto_resume and closed else None)
    _tell(repaired, code, policy)
    return Mended(fixed, fixed.outgoing(repaired.headers), repaired.changes, code)


def _tell(repaired: Repaired, code: str, policy: Policy) -> None:
    if policy.log_repairs:
        logger.warning("the history was repaired (%s): %d changes", code, len(repaired.changes))
    for change in repaired.changes:
        logger.debug("%s at %s: %s", change.what, change.where, change.why)
