"""Putting calls and results right: an id for each, one result for each, in its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

from continuation.history.pairing import (
    Exchange,
    Pair,
    Pairing,
    findings,
    match,
    may_be_live,
    misplaced,
    open_call,
)
from continuation.history.tree import Kind, Message, Part
from continuation.history.types import Decision, NewSessionWanted
from continuation.history.wordings import LATE, WORDINGS, Reason

if TYPE_CHECKING:
    from continuation.history.grammar import Work

__all__ = ["arrange", "identify"]

# -- ids -----------------------------------------------------------------------------------------


def identify(work: Work) -> None:
    """Give every call an id of its own that the provider accepts, and its results the same."""
    if not work.grammar.keyed:
        return
    if work.policy.duplicate_ids == "drop":
        _drop_reused(work)
    pairing = match(work.messages)
    used = {pair.call.id for exchange in pairing.exchanges for pair in exchange.pairs}
    namer = _Namer(work, used)
    for exchange in pairing.exchanges:
        namer.name_all(work.messages, exchange)


def _drop_reused(work: Work) -> None:
    unique = work.grammar.unique_ids(work.context)
    seen = set[str]()
    for message in work.messages:
        seen = seen if unique else set[str]()
        for part in message.of(Kind.CALL):
            if part.id in seen and work.may("drop_call", part, "tool_use_duplicate_id"):
                message.keep([other for other in message.parts if other is not part])
            seen.add(part.id)


@dataclass(slots=True)
class _Namer:
    work: Work
    used: set[str]
    seen: dict[str, Part] = field(default_factory=dict[str, Part])

    def name_all(self, messages: list[Message], exchange: Exchange) -> None:
        if not self.work.grammar.unique_ids(self.work.context):
            self.seen = {}
        for pair in exchange.pairs:
            self._name(messages, exchange, pair)

    def _name(self, messages: list[Message], exchange: Exchange, pair: Pair) -> None:
        grammar, call = self.work.grammar, pair.call
        code = grammar.id_fault(call.id, self.work.context)
        if code is None and call.id in self.seen:
            code = "tool_use_duplicate_id"
            if not pair.results and grammar.same_call(self.seen[call.id], call):
                self._drop(messages[exchange.at], call, code)
                return
        if code is not None and self.work.may("rename_call", call, code):
            new = self._new_id(call.id, code)
            self._replace(messages[exchange.at], call, new)
        self.seen.setdefault(pair.call.id, pair.call)
        self._name_results(messages, pair)

    def _new_id(self, old: str, code: str) -> str:
        new = base = self.work.grammar.mint(old, self.work.context)
        number = 2
        while (code == "tool_use_duplicate_id" and new == old) or new in self.used:
            new = self.work.grammar.mint(f"{base}_{number}", self.work.context)
            number += 1
        self.used.add(new)
        return new

    def _name_results(self, messages: list[Message], pair: Pair) -> None:
        for at, result in pair.results:
            if result.id != pair.call.id and self.work.may(
                "rename_result", result, "tool_result_id_missing"
            ):
                self._replace(messages[at], result, pair.call.id)

    def _replace(self, message: Message, part: Part, new: str) -> None:
        renamed = self.work.grammar.with_id(part, new)
        part.native, part.id = renamed.native, renamed.id
        message.touched = True

    def _drop(self, message: Message, call: Part, code: str) -> None:
        if self.work.may("drop_call", call, code):
            message.keep([part for part in message.parts if part is not call])


# -- putting in place ----------------------------------------------------------------------------


@dataclass(slots=True)
class _Plan:
    """What leaves its place, and what is put behind which message."""

    removed: set[int] = field(default_factory=set[int])
    placed: dict[int, list[Part]] = field(default_factory=dict[int, list[Part]])
    late: dict[int, list[Part]] = field(default_factory=dict[int, list[Part]])
    """Texts that go where a late result stood."""

    def remove(self, *parts: Part) -> None:
        self.removed.update(id(part) for part in parts)


def arrange(work: Work) -> None:
    """Bring every call its one result: move, choose, make or drop, as the policy says.

    Raises NewSessionWanted if the policy's `ask` decides so.
    """
    pairing, plan = match(work.messages), _Plan()
    if not work.grammar.anchored(work):
        for at, part in pairing.orphans:
            if work.may("drop_result", part, work.grammar.orphan(work.messages, at)):
                plan.remove(part)
    decide = _decisions(work, pairing)
    for exchange in pairing.exchanges:
        if list(findings(work, exchange)):
            _settle(work, exchange, plan, decide)
    if plan.removed or plan.placed:
        _carry_out(work, plan)


def _decisions(work: Work, pairing: Pairing) -> Mapping[str, Decision]:
    """What the policy wants for each open call, by path."""
    found = [
        open_call(work, exchange, pair)
        for exchange in pairing.exchanges
        for pair in exchange.pairs
        if not pair.results and (pair.call.cut or not may_be_live(work, exchange))
    ]
    if work.policy.unanswered_tool_calls != "ask":
        return {call.path: work.policy.unanswered_tool_calls for call in found}
    if not found or work.policy.ask is None:
        return {}
    answer = work.policy.ask(tuple(found))
    chosen: dict[str, Decision] = {
        call.path: answer if isinstance(answer, str) else answer.get(call.id, "synthesize")
        for call in found
    }
    for decision in chosen.values():
        if decision not in get_args(Decision):
            words = ", ".join(map(repr, get_args(Decision)))
            msg = f"ask= decided {decision!r}: use one of {words}"
            raise ValueError(msg)
    if "new_session" in chosen.values():
        raise NewSessionWanted(tuple(found))
    return chosen


def _settle(work: Work, exchange: Exchange, plan: _Plan, decide: Mapping[str, Decision]) -> None:
    kept, before = list[Part](), len(work.changes)
    for pair in exchange.pairs:
        if pair.results:
            kept.append(_choose(work, pair, plan))
        elif pair.call.cut or not may_be_live(work, exchange):
            kept += _close(work, exchange, pair, plan, decide)
    stay = {
        id(part) for code, part in _moves(work, exchange) if not work.may("move_result", part, code)
    }
    if len(work.changes) == before:
        return
    if not work.grammar.adjacent:
        stay = {id(part) for pair in exchange.pairs for _, part in pair.results}
    placed = [part for part in kept if id(part) not in stay]
    plan.placed[_behind(work, exchange.at)] = placed
    plan.remove(*placed)


def _behind(work: Work, at: int) -> int:
    """Position behind which results go: the calls, or the results that may stay where they are."""
    messages = work.messages
    while not work.grammar.adjacent and at + 1 < len(messages) and messages[at + 1].role == "tool":
        at += 1
    return at


def _moves(work: Work, exchange: Exchange) -> list[tuple[str, Part]]:
    if not work.grammar.adjacent:
        return []
    return [(code, at) for code, at, _ in misplaced(work, exchange) if isinstance(at, Part)]


def _choose(work: Work, pair: Pair, plan: _Plan) -> Part:
    """Keep one result of several; what happens to a late real one is the policy's choice."""
    first, best = pair.results[0][1], pair.best
    keep = best[1] if best is not None and work.policy.late_results == "replace" else first
    for _, part in pair.results:
        if part is keep:
            continue
        late = not part.stand_in and keep.stand_in and work.policy.late_results == "append"
        what = "keep_late_result_as_text" if late else "drop_result"
        if work.may(what, part, "tool_result_duplicate"):
            plan.remove(part)
            if late:
                plan.late[id(part)] = [_late_text(work, pair.call, part)]
    return keep


def _late_text(work: Work, call: Part, result: Part) -> Part:
    lead = LATE.format(id=call.id)
    return work.grammar.say("user", f"{lead}\n{work.grammar.result_text(result)}").parts[0]


def _close(
    work: Work, exchange: Exchange, pair: Pair, plan: _Plan, decide: Mapping[str, Decision]
) -> list[Part]:
    """Answer an open call, or drop it; what hung on it goes by the dialect's own rules."""
    call = pair.call
    if decide.get(work.path(call)) == "purge" or not work.grammar.answerable(call):
        if work.may("drop_call", call, "tool_result_missing"):
            plan.remove(call)
        return []
    if not work.may("synthesize_result", call, "tool_result_missing"):
        return []
    reason = _reason(work, exchange, pair)
    text = work.policy.wordings.get(reason) or WORDINGS[reason]
    return [work.grammar.answer(call, text.replace("{name}", call.name))]


def _reason(work: Work, exchange: Exchange, pair: Pair) -> Reason:
    if pair.call.cut:
        return Reason.ARGS_TRUNCATED
    if pair.call.superseded:
        return Reason.SUPERSEDED
    reason = work.policy.reason
    return reason if isinstance(reason, Reason) else reason(open_call(work, exchange, pair))


def _carry_out(work: Work, plan: _Plan) -> None:
    homes = {id(part): message for message in work.messages for part in message.parts}
    for message in work.messages:
        _take(message, plan)
    after: list[Message] = []
    for at, message in enumerate(work.messages):
        placed = _housed(work, plan.placed.get(at, []), homes)
        if message.parts or not message.touched:
            after.append(message)
        after.extend(placed)
    work.messages = after


def _take(message: Message, plan: _Plan) -> None:
    """Take the parts that leave out of a message; late results stay as text."""
    if not any(id(part) in plan.removed for part in message.parts):
        return
    kept: list[Part] = []
    for part in message.parts:
        kept += plan.late.get(id(part), []) if id(part) in plan.removed else [part]
    message.keep(kept)


def _housed(work: Work, parts: list[Part], homes: dict[int, Message]) -> list[Message]:
    """Messages for results; one takes over the message its first result came from, if emptied."""
    made = work.grammar.results(parts) if parts else []
    for message in made:
        home = homes.get(id(message.parts[0]))
        if home is not None and not home.parts and home.native is not None:
            message.native, message.index, home.native = home.native, home.index, None
    return made
