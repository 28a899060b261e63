"""Repair of a history that the provider rejects, in the request that was rejected.

A conversation carries what broke it into every later turn. So a repaired history is remembered, and
later requests that begin with the same messages are repaired before they are sent. Only those
messages are: what the conversation added since then was never refused.
"""

from __future__ import annotations

import inspect
import logging
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakSet

from continuation.engine.attempts import FunctionFailed, RepairedRequest
from continuation.policy import Policy
from continuation.providers.contract import ProviderRequest
from continuation.types import Change, Head, Json

if TYPE_CHECKING:
    from continuation.history import (
        HistoryError,
        OpenCall,
        Repaired,
        RepairPolicy,
    )
    from continuation.policy import Ask

logger = logging.getLogger("continuation")

_left_alone: WeakSet[ProviderRequest] = WeakSet()
"""Requests whose history the policy's callable wanted left as it is: it is not asked again."""
_Pending: TypeAlias = "tuple[HistoryError | None, int | None]"
"""An error and the number of first messages that it is about; `None`: all that is found, or all."""
_KEPT = 256
"""Number of histories that one client remembers; those unused longest are forgotten first."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is remembered of a repaired history, by the messages up to the first repaired one."""

    error: HistoryError | None
    """The error that the server refused it with; `None`: it was repaired before it was sent."""
    length: int
    """Number of messages of the whole history."""
    digest: bytes
    """The digest of all these messages."""


class Memory:
    """The histories that one upstream refused, up to the repaired place, with its errors."""

    def __init__(
        self, kept: OrderedDict[tuple[Hashable, int, bytes], _Kept], upstream: Hashable
    ) -> None:
        self._kept, self._upstream = kept, upstream

    def keep(self, body: Json, done: Repaired, error: HistoryError | None, *, known: bool) -> bool:
        """Remember a history that was repaired; return whether it was unknown before.

        `known`: it was repaired before it was sent. Then an error is one that is remembered of its
        beginning, and the messages after that were never refused with it.
        """
        from continuation.history.resent import beginnings, count, mended_until

        if known and error is not None:
            return False

        until, length = mended_until(body, done), count(body)
        digests = dict(beginnings(body, {until, length}))
        key = (self._upstream, until, digests[until])
        before = self._kept.pop(key, None)
        if before is not None and error is None:
            self._kept[key] = before  # the later messages were never refused
            return False
        self._kept[key] = _Kept(error, length, digests[length])
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return before is None

    def errors(self, body: Json) -> list[tuple[HistoryError, int]]:
        """Return the errors of the remembered histories that this one begins with.

        With each the number of first messages that were in the refused request.
        """
        from continuation.history.resent import beginnings

        mine = {key[1:]: kept for key, kept in list(self._kept.items()) if key[0] == self._upstream}
        lengths = {length for length, _ in mine} | {kept.length for kept in mine.values()}
        digests = dict(beginnings(body, lengths)) if lengths else {}
        found: list[tuple[HistoryError, int]] = []
        for (until, digest), kept in mine.items():
            if kept.error is not None and digests.get(until) == digest:
                self._kept.move_to_end((self._upstream, until, digest))
                whole = digests.get(kept.length) == kept.digest
                found.append((kept.error, kept.length if whole else until))
        return found


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
    `validate` finds if policy `repair` is "before_send". Raises FunctionFailed if the policy's
    function does not decide; then the history stays as it is.
    """
    from continuation import history  # not needed until a history is broken

    if request in _left_alone:
        return None
    rules = _rules(policy)
    pending: list[_Pending]
    if refusal is None:
        pending = [*memory.errors(request.body)]
        pending += [(None, None)] if policy.repair == "before_send" else []
    elif (error := history.classify(refusal[0].status, refusal[1])) is not None:
        pending = [(error, None)]
    else:
        return None
    changes: list[Change] = []
    body, code, tag = request.body, "", ""
    headers, closed, new = dict[str, str](), False, False
    try:
        for error, done in _steps(kind, request, rules, pending, memory):
            first = memory.keep(body, done, error, known=refusal is None)
            new = new or (first and (error is None or refusal is not None))
            code = code or (error.code if error is not None else done.changes[0].why)
            body, headers = dict(done.body), {**headers, **done.headers}
            changes += done.changes
            tag = tag or (error.tag if error is not None else "")
            closed = closed or (done.origins is not None and done.origins[-1:] == (-1,))
    except FunctionFailed:
        _left_alone.add(request)
        raise
    except history.NewSessionWanted as left:
        logger.debug("history unchanged: %s", left)
        _left_alone.add(request)
        return None
    if not changes:
        return None
    fixed = request.repaired(body, policy.resume_text if policy.auto_resume and closed else None)
    _log(changes, code, tag, warn=policy.log_repairs and new)
    return RepairedRequest(fixed, fixed.outgoing(headers), changes, code)


def _rules(policy: Policy) -> RepairPolicy:
    """Return the policy of a repair before sending: the caller waits for no open call any more."""
    from continuation.history import RepairPolicy

    wanted = policy.unanswered_tool_calls
    if callable(wanted):
        return RepairPolicy(unanswered_tool_calls="ask", ask=_once(wanted), live=False)
    return RepairPolicy(unanswered_tool_calls=wanted, live=False)


def _named(function: object) -> str:
    """Return how the policy's function is called, in words for a person."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"unanswered_tool_calls, the function {name}"


def _log(changes: list[Change], code: str, tag: str, *, warn: bool) -> None:
    if warn:
        logger.warning("history repaired: code=%s changes=%d", code, len(changes))
    if warn and any(change.what == "drop_block" for change in changes):
        logger.warning("history repaired: unknown_blocks=%r (removed)", tag)
    for change in changes if logger.isEnabledFor(logging.DEBUG) else ():
        logger.debug("%s at %s: %s", change.what, change.where, change.why)


def _steps(
    kind: str,
    request: ProviderRequest,
    rules: RepairPolicy,
    pending: list[_Pending],
    memory: Memory,
) -> Iterator[tuple[HistoryError | None, Repaired]]:
    """Yield each error with the repair of what it names; `None`: of all that `validate` finds.

    A repaired history may have been refused before too, so its errors are looked up as well.
    """
    from continuation import history
    from continuation.history.resent import count

    body, model = request.body, request.model
    tried: set[_Pending] = set()
    while pending:
        if (task := pending.pop(0)) in tried or (task[0], None) in tried:
            continue
        tried.add(task)
        error, length = task
        if error is None:
            done = history.repair(body, kind, model=model, policy=rules)
        elif length is None or length >= count(body):
            done = history.repair_refused(body, error, kind, model=model, policy=rules)
        else:
            done = history.repair_beginning(body, length, error, kind, model=model, policy=rules)
        if done.changes:
            yield error, done
            body = dict(done.body)
            pending[:0] = memory.errors(body)


def _once(ask: Ask) -> Ask:
    """Return `ask` with its answers kept, so that it is asked about the same open calls once.

    It raises FunctionFailed in place of what `ask` raises.
    """
    from continuation.history import DecisionError
    from continuation.history.passes import decisions

    answers: dict[tuple[str, ...], str | Mapping[str, str]] = {}

    def asked(calls: tuple[OpenCall, ...]) -> str | Mapping[str, str]:
        key = tuple(call.path for call in calls)
        if key not in answers:
            try:
                answers[key] = decided = ask(calls)
                if inspect.iscoroutine(decided):
                    decided.close()
                    raise TypeError("it is a coroutine function; give a plain one")
            except Exception as error:
                how = f"raised {type(error).__name__}: {error}"
                raise FunctionFailed(_named(ask), how) from error
            try:
                decisions(decided, calls)
            except DecisionError as error:
                raise FunctionFailed(_named(ask), f"returned no decision: {error}") from None
        return answers[key]

    return asked
