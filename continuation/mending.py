"""A history the provider rejects is made valid again, in the request that met the rejection."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from continuation.dialect import Call, Dialect
from continuation.policy import Policy
from continuation.types import Head, Outgoing

if TYPE_CHECKING:
    from continuation.history import Change, Repaired, RepairPolicy

logger = logging.getLogger("continuation")

STATUSES = frozenset({400, 422})
"""What providers answer to a history they cannot take."""


@dataclass(frozen=True, slots=True)
class Mended:
    """The caller's request with a valid history."""

    call: Call
    outgoing: Outgoing
    changes: tuple[Change, ...]
    code: str
    """What was wrong, as `continuation.history.validate` names it."""


def after_refusal(
    dialect: Dialect, call: Call, head: Head, answer: bytes, policy: Policy
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
    if error is None:
        return None
    repaired = history.repair_refused(
        call.body, error, dialect.history, policy=_policy(policy, live=False), model=call.model
    )
    return _mended(call, repaired, error.code, policy)


def before_sending(dialect: Dialect, call: Call, policy: Policy) -> Mended | None:
    """Repair a request before it is sent; `None` when it is valid."""
    if (amended := call.amended(policy)) is not None:
        return _amended(amended)
    if dialect.history is None or policy.repair != "before_send":
        return None
    from continuation import history

    repaired = history.repair(
        call.body, dialect.history, policy=_policy(policy, live=False), model=call.model
    )
    code = repaired.changes[0].why if repaired.changes else ""
    return _mended(call, repaired, code, policy)


def _amended(call: Call) -> Mended:
    return Mended(call, call.outgoing({}), (), "amended")


def _policy(policy: Policy, *, live: bool) -> RepairPolicy:
    from continuation.history import RepairPolicy

    return RepairPolicy(open_calls=policy.open_calls, live=live)


def _mended(call: Call, repaired: Repaired, code: str, policy: Policy) -> Mended | None:
    if not repaired.changes:
        return None
    body: Mapping[str, Any] = repaired.body
    closed = repaired.origins is not None and repaired.origins[-1:] == (-1,)
    fixed = call.mended(body, policy.resume_text if policy.auto_resume and closed else None)
    _tell(repaired, code, policy)
    return Mended(fixed, fixed.outgoing(repaired.headers), repaired.changes, code)


def _tell(repaired: Repaired, code: str, policy: Policy) -> None:
    if not policy.quiet:
        logger.warning("the history was repaired (%s): %d changes", code, len(repaired.changes))
    for change in repaired.changes:
        logger.debug("%s at %s: %s", change.what, change.where, change.why)
