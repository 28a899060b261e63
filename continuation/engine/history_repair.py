"""A history the provider rejects is made valid again, in the request that met the rejection."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING
from weakref import WeakSet

from continuation.dialect import ProviderRequest
from continuation.engine.attempts import RepairedRequest
from continuation.policy import Policy
from continuation.types import Head

if TYPE_CHECKING:
    from continuation.history import Decision, OpenCall
    from continuation.policy import Ask

logger = logging.getLogger("continuation")

_left_alone: WeakSet[ProviderRequest] = WeakSet()
"""Requests whose history the policy's callable wanted left as it is: it is not asked again."""


def repaired(
    kind: str, request: ProviderRequest, policy: Policy, refusal: tuple[Head, bytes] | None
) -> RepairedRequest | None:
    """Repair a request before it is sent, or after this refusal; `None`: it stays as it is.

    `kind`: the name of its history's rules. What was refused is repaired only in what the error
    speaks of, if it speaks of the history.
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
    body, model, code = request.body, request.model, None
    try:
        if refusal is None:
            done = history.repair(body, kind, model=model, policy=rules)
        else:
            error = history.classify(refusal[0].status, refusal[1])
            if error is None:
                return None
            code = error.code
            done = history.repair_refused(body, error, kind, model=model, policy=rules)
    except history.NewSessionWanted as left:
        logger.debug("the history is left as it is: %s", left)
        _left_alone.add(request)
        return None
    if not done.changes:
        return None
    code = code or done.changes[0].why
    closed = done.origins is not None and done.origins[-1:] == (-1,)
    more = policy.resume_text if policy.auto_resume and closed else None
    fixed = request.repaired(done.body, more)
    if policy.log_repairs:
        logger.warning("the history was repaired (%s): %d changes", code, len(done.changes))
    for change in done.changes:
        logger.debug("%s at %s: %s", change.what, change.where, change.why)
    return RepairedRequest(fixed, fixed.outgoing(done.headers), done.changes, code)


def _once(ask: Ask) -> Ask:
    """Show the same open calls to the policy's callable once, however often a repair asks."""
    answers: dict[tuple[str, ...], Decision | Mapping[str, Decision]] = {}

    def asked(calls: tuple[OpenCall, ...]) -> Decision | Mapping[str, Decision]:
        key = tuple(call.path for call in calls)
        if key not in answers:
            answers[key] = ask(calls)
        return answers[key]

    return asked
