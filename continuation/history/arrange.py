"""How a repair makes calls and results right: an id for each, one result for each, in its place.

What a valid history is. Two sides speak in turn. The assistant makes calls; each has an id of its
own and exactly one result, and the result stands where the provider looks for it:

    user        U   "what is in a and b?"
    assistant   A   text, call k1, call k2      -- an exchange: the calls of one message ...
    user        R   result k1, result k2        -- ... and their results
    assistant   A   text

`pairing` reads that off a history: every call with the results that name it (a `Pair`), the calls
of one message with theirs (an `Exchange`), and the results that nobody asked for (orphans). What
can be wrong with a pair is a short list, and what is done about it is the same for all dialects:

    no result            the call was open when the session broke: make one that says so, or drop
                         the call; unless the call ends the history and may be running still
    several results      keep one, a real one rather than one that somebody made up
    result of no call    drop it
    result elsewhere     move it behind its calls; those of one message stand together
    id of no use         missing, malformed or used before: give the call a new one, and its
                         results the same

How a repair is planned. Nothing is moved while the history is looked at. `arrange` asks, one
exchange after the other, which parts leave their place and which results go behind which message,
and notes that in `_Moves`; then all messages are rebuilt once. So positions stay true while
decisions are made, and a change that the policy refuses is simply not noted. Parts that nobody
touched stay the same objects, in the same order.

The order of the passes (`passes.run`), each of which may rely on those before it:

    convert messages  ->  join recoveries  ->  repair parts  ->  the dialect's `prepare`
        ->  identify  ->  arrange  ->  drop what says nothing  ->  merge neighbours
        ->  the dialect's `finish`

Messages first get a shape that can be read, and turns that an old recovery had split become one,
since that decides which calls share a message. Parts are made sound before they are paired, ids
before results are placed by them. What a dialect must know of whole messages (thinking that may not
stay, calls that must come last) comes before pairing where it moves calls, else at the end, when
the messages stand.

Why repairing twice is repairing once. The passes run in rounds: the checks of `validate` look at
what a round has made, and only what they still find starts another one (nearly always one round is
enough; the bound is in `api`). So a repair ends in a history that `validate` finds nothing in, and
on such a history no pass is run, but for what no provider minds: an old recovery to join, thinking
that the policy wants gone. It also lets a pass be simple: what it spoils for another rule is put
right in the next round. There is an end to it because every change takes away its own reason: a
dropped part does not come back, a result that was made answers its call for good, and new ids are
derived from the old ones, never drawn. What the policy refuses stays wrong; it is listed in
`Repaired.left`, and a round in which nothing else changes is the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

# -- ids -----------------------------------------------------------------------------------------


def identify(work: Work) -> None:
    """Give every call an id of its own that the provider accepts, and its results the same."""
    if not work.grammar.keyed:
        return
    unique = work.grammar.unique_ids(work.context)
    if work.policy.duplicate_ids == "drop":
        work.drop("drop_call", dict.fromkeys(_reused(work, unique), "tool_use_duplicate_id"))
    pairing = match(work.messages)
    used = {pair.call.id for exchange in pairing.exchanges for pair in exchange.pairs}
    seen = dict[str, Part]()
    for exchange in pairing.exchanges:
        seen = seen if unique else {}
        for pair in exchange.pairs:
            _name(work, exchange.at, pair, used, seen)


def _reused(work: Work, unique: bool) -> Iterator[Part]:
    """Calls whose id an earlier one has; without `unique`, an earlier one of the same message."""
    seen = set[str]()
    for message in work.messages:
        seen = seen if unique else set[str]()
        for part in message.of(Kind.CALL):
            if part.id in seen:
                yield part
            seen.add(part.id)


def _name(work: Work, at: int, pair: Pair, used: set[str], seen: dict[str, Part]) -> None:
    grammar, call = work.grammar, pair.call
    code = grammar.id_fault(call.id, work.context)
    if code is None and call.id in seen:
        code = "tool_use_duplicate_id"
        if not pair.results and grammar.same_call(seen[call.id], call):
            if work.may("drop_call", call, code):
                message = work.messages[at]
                message.keep([part for part in message.parts if part is not call])
            return
    if code is not None and work.may("rename_call", call, code):
        new = base = grammar.new_id(call.id, work.context)
        number = 2
        while (code == "tool_use_duplicate_id" and new == call.id) or new in used:
            new = grammar.new_id(f"{base}_{number}", work.context)
            number += 1
        used.add(new)
        _rename(work, at, call, new)
    seen.setdefault(call.id, call)
    for where, result in pair.results:
        if result.id != call.id and work.may("rename_result", result, "tool_result_id_missing"):
            _rename(work, where, result, call.id)


def _rename(work: Work, at: int, part: Part, new: str) -> None:
    renamed = work.grammar.with_id(part, new)
    part.native, part.id = renamed.native, renamed.id
    work.messages[at].touched = True


# -- putting in place ----------------------------------------------------------------------------


@dataclass(slots=True)
class _Moves:
    """What leaves its place, and what is put behind which message."""

    removed: set[Part] = field(default_factory=set[Part])
    placed: dict[int, list[Part]] = field(default_factory=dict[int, list[Part]])
    """Results by the position of the message that they go behind."""
    late: dict[Part, Part] = field(default_factory=dict[Part, Part])
    """Texts that go where a late result stood."""


def arrange(work: Work) -> None:
    """Bring every call its one result: move, choose, make or drop, as the policy says.

    Raises NewSessionWanted if the policy's `ask` decides so.
    """
    pairing, moves = match(work.messages), _Moves()
    if not work.grammar.calls_on_server(work):
        for at, part in pairing.orphans:
            if work.may("drop_result", part, work.grammar.orphan_code(work.messages, at)):
                moves.removed.add(part)
    decisions = _decisions(work, pairing)
    for exchange in pairing.exchanges:
        if any(findings(work, exchange)):
            _arrange_exchange(work, exchange, moves, decisions)
    if moves.removed or moves.placed:
        _carry_out(work, moves)


def _decisions(work: Work, pairing: Pairing) -> Mapping[str, Decision]:
    """What the policy wants for each open call, by path."""
    found = [
        open_call(work, exchange, pair)
        for exchange, pair in pairing.unanswered()
        if pair.call.cut or not may_be_live(work, exchange)
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


def _arrange_exchange(
    work: Work, exchange: Exchange, moves: _Moves, decisions: Mapping[str, Decision]
) -> None:
    """Note what becomes of one message's calls and of their results."""
    grammar, results, before = work.grammar, list[Part](), len(work.changes)
    for pair in exchange.pairs:
        if pair.results:
            results.append(_choose(work, pair, moves))
        elif pair.call.cut or not may_be_live(work, exchange):
            results += _close(work, exchange, pair, moves, decisions)
    stay = {
        part
        for code, part, _ in misplaced(work, exchange)
        if not work.may("move_result", part, code)
    }
    if len(work.changes) == before:
        return
    behind = exchange.at
    if not grammar.adjacent:  # results may stand anywhere behind their calls: only new ones move
        stay = {part for pair in exchange.pairs for _, part in pair.results}
        while behind + 1 < len(work.messages) and work.messages[behind + 1].role == "tool":
            behind += 1
    moves.placed[behind] = [part for part in results if part not in stay]
    moves.removed.update(moves.placed[behind])


def _choose(work: Work, pair: Pair, moves: _Moves) -> Part:
    """Keep one result of several; what happens to a late real one is the policy's choice."""
    first, best = pair.results[0][1], pair.best
    keep = best[1] if best is not None and work.policy.late_results == "replace" else first
    for _, part in pair.results:
        if part is keep:
            continue
        late = not part.synthetic and keep.synthetic and work.policy.late_results == "append"
        what = "keep_late_result_as_text" if late else "drop_result"
        if work.may(what, part, "tool_result_duplicate"):
            moves.removed.add(part)
            if late:
                text = f"{LATE.format(id=pair.call.id)}\n{work.grammar.result_text(part)}"
                moves.late[part] = work.grammar.text_message("user", text).parts[0]
    return keep


def _close(
    work: Work, exchange: Exchange, pair: Pair, moves: _Moves, decisions: Mapping[str, Decision]
) -> list[Part]:
    """Answer an open call, or drop it; what hung on it goes by the dialect's own rules."""
    call, reason = pair.call, work.policy.reason
    if decisions.get(work.path(call)) == "purge" or not work.grammar.can_answer(call):
        if work.may("drop_call", call, "tool_result_missing"):
            moves.removed.add(call)
        return []
    if not work.may("synthesize_result", call, "tool_result_missing"):
        return []
    if call.cut:
        reason = Reason.ARGS_TRUNCATED
    elif call.superseded:
        reason = Reason.SUPERSEDED
    elif not isinstance(reason, Reason):
        reason = reason(open_call(work, exchange, pair))
    text = work.policy.wordings.get(reason) or WORDINGS[reason]
    return [work.grammar.synthetic_result(call, text.replace("{name}", call.name))]


def _carry_out(work: Work, moves: _Moves) -> None:
    homes = {part: message for message in work.messages for part in message.parts}
    for message in work.messages:
        if any(part in moves.removed for part in message.parts):
            left = (moves.late.get(p) if p in moves.removed else p for p in message.parts)
            message.keep([part for part in left if part is not None])
    after: list[Message] = []
    for at, message in enumerate(work.messages):
        if message.parts or not message.touched:
            after.append(message)
        placed = moves.placed.get(at)
        for made in work.grammar.result_messages(placed) if placed else ():
            # It takes over the message that its first result came from, if that is empty now.
            home = homes.get(made.parts[0])
            if home is not None and not home.parts and home.native is not None:
                made.native, made.index, home.native = home.native, home.index, None
            after.append(made)
    work.messages = after
