"""A history the provider rejects is made valid again, in the request that met the rejection."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakSet

from continuation.dialect import Dialect, ProviderRequest
from continuation.policy import Policy
from continuation.types import Head, Outgoing

if TYPE_CHECKING:
    from continuation.history import Change, Decision, OpenCall, Repaired
    from continuation.policy import Ask

logger = logging.getLogger("continuation")

_left_alone: WeakSet[ProviderRequest] = WeakSet()
"""Requests whose history the policy's callable wanted left as it is: it is not asked again."""


@dataclass(frozen=True, slots=True)
class RepairedRequest:
    """The caller's request as its provider takes it."""

    request: ProviderRequest
    outgoing: Outgoing
    changes: tuple[Change, ...]
    code: str
    """What was wrong, as `continuation.history.validate` names it."""


def rewritten(request: ProviderRequest) -> RepairedRequest:
    """Return a request that its format has rewritten for the server; no message has changed."""
    return RepairedRequest(request, request.outgoing({}), (), "rewritten")


def after_refusal(
    dialect: Dialect, request: ProviderRequest, head: Head, answer: bytes, policy: Policy
) -> RepairedRequest | None:
    """Repair a request that was refused for its history; `None` when that is not why, or no help.

    Never for a request that was valid: what is changed is what the error speaks of.
    """
    if (changed := request.rewritten(policy, head, answer)) is not None:
        return rewritten(changed)
    if dialect.history is None or policy.repair == "off":
        return None
    from continuation import history  # not needed until a history is broken

    error = history.classify(head.status, answer)
    if error is None or request in _left_alone:
        return None
    repair = partial(
        history.repair_refused, request.body, error, dialect.history, model=request.model
    )
    return _repaired(request, repair, policy, error.code)


def before_sending(
    dialect: Dialect, request: ProviderRequest, policy: Policy
) -> RepairedRequest | None:
    """Repair a request before it is sent; `None` when it is valid."""
    if dialect.history is None:
        return None
    from continuation import history

    repair = partial(history.repair, request.body, dialect.history, model=request.model)
    return _repaired(request, repair, policy)


def _repaired(
    request: ProviderRequest,
    repair: Callable[..., Repaired],
    policy: Policy,
    code: str | None = None,
) -> RepairedRequest | None:
    """Repair, unless the policy's callable wants a new session rather than this one repaired."""
    from continuation.history import NewSessionWanted, RepairPolicy

    # Not `live`: whoever ran the open calls of a request on its way out has given up on them.
    wanted = policy.unanswered_tool_calls
    if callable(wanted):
        rules = RepairPolicy(unanswered_tool_calls="ask", ask=_once(wanted), live=False)
    else:
        rules = RepairPolicy(unanswered_tool_calls=wanted, live=False)
    try:
        repaired = repair(policy=rules)
    except NewSessionWanted as left:
        logger.debug("the history is left as it is: %s", left)
        _left_alone.add(request)
        return None
    changes = repaired.changes
    if not changes:
        return None
    code = code or changes[0].why
    closed = repaired.origins is not None and repaired.origins[-1:] == (-1,)
    resume = policy.resume_text if policy.auto_resume and closed else None
    fixed = request.repaired(repaired.body, resume)
    if policy.log_repairs:
        logger.warning("the history was repaired (%s): %d changes", code, len(changes))
    for change in changes:
        logger.debug("%s at %s: %s", change.what, change.where, change.why)
    return RepairedRequest(fixed, fixed.outgoing(repaired.headers), changes, code)


def _once(ask: Ask) -> Ask:
    """Show the same open calls to the policy's callable once, however often a repair asks."""
    answers: dict[tuple[str, ...], Decision | Mapping[str, Decision]] = {}

    def asked(calls: tuple[OpenCall, ...]) -> Decision | Mapping[str, Decision]:
        key = tuple(call.path for call in calls)
        if key not in answers:
            answers[key] = ask(calls)
        return answers[key]

    return asked
