"""The passes of a repair that are the same in every dialect, and their order.

What a valid history is. User and assistant alternate. The assistant makes calls; each has its own
id and exactly one result, and the result is where the provider expects it:

    user        U   "what is in a and b?"
    assistant   A   text, call k1, call k2      -- an exchange: the calls of one message ...
    user        R   result k1, result k2        -- ... and their results
    assistant   A   text

`pairing` finds that structure in a history: every call with the results that name it (a `Pair`),
the calls of one message with their results (an `Exchange`), and results without a call (orphans).
Few things can be wrong with a pair, and their repair is the same for all dialects:

    no result            the call was open when the session broke: make a result that states that,
                         or drop the call; unless it ends the history and may still be running
    several results      keep one, a real one rather than a synthetic one
    result of no call    drop it
    result elsewhere     move it behind its calls, together with the others of that message
    unusable id          missing, malformed or used before: give the call a new id, and its
                         results the same

How it is repaired. Nothing is moved while decisions are made. `_arrange` determines, exchange by
exchange, which parts are removed and which results go behind which message, and notes that in
`_Moves`; then all messages are rebuilt once. So positions stay valid meanwhile, and a change that
the policy refuses is simply not noted. Unchanged parts stay the same objects, in the same order.

The order of the passes (`run`), each of which may rely on those before it:

    convert messages  ->  join recoveries  ->  repair parts  ->  the dialect's `prepare`
        ->  identify  ->  arrange  ->  drop empty messages  ->  merge neighbours
        ->  the dialect's `finish`

Messages are first converted to a readable form, and messages that an earlier recovery had split are
joined, since that decides which calls share a message. Parts are repaired before they are paired,
and ids before results are placed by them. A dialect's rules about whole messages (thinking that is
not allowed, calls that must come last) run before pairing if they move calls, else at the end.

Why a second repair changes nothing. The passes run in rounds: the checks of `validate` read the
result of a round, and only violations that they still find start another one (nearly always one
round is enough; the bound is in `api`). So a repair ends with a history in which `validate` finds
nothing, and on such a history no pass runs, except for changes that no provider requires: joining
an earlier recovery, removing thinking at the policy's wish. A pass can also be simple: if it breaks
another rule, the next round repairs that. The rounds end because every change removes its own
reason: a dropped part does not come back, a new result belongs to its call for good, and new ids
are derived from the old ones, not random. What the policy refuses stays wrong; it is listed in
`Repaired.left`, and a round in which nothing else changes is the last.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, get_args

from continuation.history.pairing import (
    Exchange,
    Pair,
    Pairing,
    findings,
    may_be_live,
    misplaced,
    open_call,
    surplus,
)
from continuation.history.tree import Fault, Kind, Message, Part, Role
from continuation.history.types import Decision, DecisionError, NewSessionWanted, OpenCall
from continuation.history.wordings import LATE, WORDINGS, Reason, quoted_anchor
from continuation.wire.json_values import as_map, is_map

if TYPE_CHECKING:
    from continuation.history.grammar import HistoryRepair


def run(repair: HistoryRepair) -> None:
    """Run all passes once; if one breaks a rule for another, the next check finds it."""
    grammar = repair.grammar
    asked = bool(repair.messages) and repair.messages[-1].role != "assistant"
    converted: list[Message] = []
    for message in repair.messages:
        fault = repair.may_repair(message)
        converted += grammar.convert(message, fault) if fault else [message]
    repair.messages = converted
    if repair.context.strict:
        repair.replace("replace_halves", "text_surrogate", repair.torn())
    _join_recoveries(repair)
    calls = repair.pairing().calls() if any(p.faults for p in repair.parts(Kind.RESULT)) else {}
    for message in [m for m in repair.messages if any(part.faults for part in m.parts)]:
        parts: list[Part] = []
        for part in message.parts:
            fault = repair.may_repair(part)
            if fault is not None and fault.code == "tool_name_invalid":
                own = calls[part].name if part in calls else ""
                parts.append(grammar.renamed(part, own or _plain_name(part.name)))
            else:
                parts += grammar.repaired_part(message, part, fault) if fault else [part]
        if parts != message.parts:
            message.keep(parts)
    grammar.prepare(repair)
    if grammar.id_keys is not None:
        _identify(repair, grammar.id_keys)
    _arrange(repair)
    _drop_silent(repair, asked=asked)
    grammar.finish(repair)


def _plain_name(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unknown_tool"


def _drop_silent(repair: HistoryRepair, *, asked: bool) -> None:
    """Drop empty messages, and make sure that the rest can be sent.

    `asked`: the history did not end with the assistant. If it does now, a user message is added:
    otherwise the last answer would be taken for a prefill.
    """
    saying: list[Message] = []
    for n, message in enumerate(repair.messages):
        code = repair.grammar.empty_fault(message, last=n == len(repair.messages) - 1)
        if code is None or not repair.may("drop_message", message, code):
            saying.append(message)
    repair.messages = saying
    merge_neighbours(repair)
    if not repair.messages:
        repair.begin_with_user("history_empty")
    elif asked and repair.policy.prefill is not True and repair.messages[-1].role == "assistant":
        reasons = [c.why for c in repair.changes if c.what in ("drop_result", "drop_message")]
        if reasons and not repair.messages[-1].has(Kind.CALL):
            repair.end_with_user(reasons[-1])


def merge_neighbours(repair: HistoryRepair) -> None:
    """Merge adjacent messages that must not follow each other."""
    runs: list[list[Message]] = []
    for message in repair.messages:
        if (
            runs
            and repair.grammar.must_merge(runs[-1][-1], message, repair.context)
            and repair.may("merge_messages", message, "roles_not_alternating")
        ):
            message.touched = True
            runs[-1].append(message)
        else:
            runs.append([message])
    repair.messages = [run[0] if len(run) == 1 else repair.grammar.merged(run) for run in runs]


# -- recovery pairs ------------------------------------------------------------------------------


def has_recovery(repair: HistoryRepair) -> bool:
    """Whether there is a recovery prompt between two assistant messages that may be joined.

    Not with bound thinking: joining would invalidate all thinking after the join.
    """
    messages = repair.messages
    return not repair.context.binding and any(
        _is_split(repair, *messages[n - 1 : n + 2]) for n in range(1, len(messages) - 1)
    )


def _is_split(repair: HistoryRepair, before: Message, prompt: Message, after: Message) -> bool:
    """Whether `prompt` is a recovery prompt that has split one answer into these messages."""
    if prompt.role != "user" or before.role != "assistant" or after.role != "assistant":
        return False
    if before.has(Kind.CALL, Kind.SERVER_CALL) or not prompt.parts:
        return False
    texts = all(part.kind is Kind.TEXT for part in prompt.parts)
    return texts and repair.policy.is_recovery(prompt.parts[0].text)


def _join_recoveries(repair: HistoryRepair) -> None:
    """Join answers that an earlier recovery prompt had split."""
    if not repair.policy.coalesce or repair.context.binding:
        return
    after: list[Message] = []
    for message in repair.messages:
        if (
            len(after) > 1
            and _is_split(repair, after[-2], after[-1], message)
            and repair.may("join_recovery", after[-1], "recovery_pair")
        ):
            after[-2:] = [_joined(repair, after[-2], after[-1], message)]
        else:
            after.append(message)
    repair.messages = after


def _joined(repair: HistoryRepair, first: Message, prompt: Message, second: Message) -> Message:
    """Return both halves as one message; the second's thinking is dropped: it knew the prompt."""
    anchor = quoted_anchor(prompt.parts[0].text)

    def join_texts(before: str, after: str) -> str:
        """Join two texts; only what `after` repeats of `before` is removed."""
        from continuation.seams.judge import SeamKind  # few histories need it, so it is not on top
        from continuation.seams.seam import join

        asked = anchor if anchor and before.endswith(anchor) else None
        one, verdict = join(before, after, anchor=asked, unshown=0)
        repeats = (SeamKind.ANCHOR, SeamKind.ECHO, SeamKind.RESTART, SeamKind.FENCE)
        return one if verdict.kind in repeats else before + after

    head = list(first.parts)
    while head and head[-1].kind is Kind.THINKING:
        head.pop()
    tail = [repair.grammar.after_join(p) for p in second.parts if p.kind is not Kind.THINKING]
    if head and tail and head[-1].kind is tail[0].kind is Kind.TEXT:
        one = repair.grammar.joined_text(head[-1], tail[0], join_texts)
        if one is not None:
            head[-1:], tail[:1] = [one], []
    return Message(
        "assistant", head + tail, first.native, first.index, touched=True, faults=first.faults
    )


# -- calls and results on the wrong side (Anthropic, Gemini) ------------------------------------


def side_fault(role: Role, part: Part) -> tuple[Fault, ...]:
    """Return the fault of a call in a user message, or of a result in the assistant's; or none."""
    if role == "user" and part.kind is Kind.CALL:
        return (Fault("tool_use_in_user"),)
    if role == "assistant" and part.kind is Kind.RESULT:
        return (Fault("tool_result_in_assistant"),)
    return ()


def split_by_side(repair: HistoryRepair) -> None:
    """Split messages that mix both, so that calls are the assistant's and results the user's."""
    after: list[Message] = []
    for message in repair.messages:
        wrong = Kind.CALL if message.role == "user" else Kind.RESULT
        strays = {part for part in message.parts if part.kind is wrong and not part.faults}
        if message.role == "system" or not strays:
            after.append(message)
            continue
        other: Role = "assistant" if message.role == "user" else "user"
        pieces: list[Message] = []
        for part in message.parts:
            role = other if part in strays else message.role
            if not pieces or pieces[-1].role != role:
                native = message.native if role == message.role and not pieces else None
                pieces.append(Message(role, [], native, message.index, touched=True))
            pieces[-1].parts.append(part)
        after += pieces
    repair.messages = after


# -- ids -----------------------------------------------------------------------------------------


def _identify(repair: HistoryRepair, keys: tuple[str, str]) -> None:
    """Give every call a unique id that the provider accepts, and its results the same."""
    unique = repair.grammar.unique_ids or repair.context.strict
    if repair.policy.duplicate_ids == "drop":
        reused, seen_ids = dict[Part, str](), set[str]()
        for message in repair.messages:
            seen_ids = seen_ids if unique else set[str]()
            for part in message.of(Kind.CALL):
                if part.id in seen_ids:
                    reused[part] = "tool_use_duplicate_id"
                seen_ids.add(part.id)
        repair.drop("drop_call", reused)
    pairing = repair.pairing()
    used = {pair.call.id for exchange in pairing.exchanges for pair in exchange.pairs}
    seen, twice = dict[str, Part](), dict[Part, str]()
    numbers: dict[str, Iterator[int]] = defaultdict(partial(itertools.count, 2))
    for exchange in pairing.exchanges:
        seen = seen if unique else {}
        for pair in exchange.pairs:
            call = pair.call
            first = seen.setdefault(call.id, call)
            if first is not call and not pair.results and repair.grammar.same_call(first, call):
                twice[call] = "tool_use_duplicate_id"
            else:
                _name(repair, exchange.at, pair, keys, used, numbers, again=first is not call)
                seen.setdefault(call.id, call)
    repair.drop("drop_call", twice)


def _name(
    repair: HistoryRepair,
    at: int,
    pair: Pair,
    keys: tuple[str, str],
    used: set[str],
    numbers: Mapping[str, Iterator[int]],
    *,
    again: bool,
) -> None:
    """Give a call a new id if its own is invalid or used again, and its results the same."""
    grammar, call = repair.grammar, pair.call
    code = grammar.id_fault(call.id, repair.context)
    if code is None and again:
        code = "tool_use_duplicate_id"
    if code is not None and repair.may("rename_call", call, code):
        new = base = grammar.new_id(call.id, repair.context)
        while (code == "tool_use_duplicate_id" and new == call.id) or new in used:
            new = grammar.new_id(f"{base}_{next(numbers[base])}", repair.context)
        used.add(new)
        call.native, call.id = {**call.native, keys[0]: new}, new
        repair.messages[at].touched = True
    for where, result in pair.results:
        if result.id != call.id and repair.may("rename_result", result, "tool_result_id_missing"):
            result.native, result.id = {**result.native, keys[1]: call.id}, call.id
            repair.messages[where].touched = True


# -- placing results -----------------------------------------------------------------------------


@dataclass(slots=True)
class _Moves:
    """The parts to remove, and the results to place behind each message."""

    decisions: Mapping[str, str]
    """What the policy's `ask` returned, by the path of the open call: a decision, or a text."""
    removed: set[Part] = field(default_factory=set[Part])
    placed: dict[int, list[Part]] = field(default_factory=dict[int, list[Part]])
    """Results by the position of the message behind which they are placed."""
    late: dict[Part, Part] = field(default_factory=dict[Part, Part])
    """By late result: the text that replaces it."""


def _arrange(repair: HistoryRepair) -> None:
    """Give every call its one result: move, choose, make or drop it, by the policy.

    Raises NewSessionWanted if the policy's `ask` decides so.
    """
    pairing = repair.pairing()
    orphans = {p for p, code in [*surplus(repair)] if repair.may("drop_result", p, code)}
    moves = _Moves(_decisions(repair, pairing), orphans)
    for exchange in pairing.exchanges:
        if any(findings(repair, exchange)):
            _arrange_exchange(repair, exchange, moves)
    if moves.removed or moves.placed:
        _carry_out(repair, moves)


def _carry_out(repair: HistoryRepair, moves: _Moves) -> None:
    homes = {part: message for message in repair.messages for part in message.parts}
    for message in repair.messages:
        if any(part in moves.removed for part in message.parts):
            left = (moves.late.get(p) if p in moves.removed else p for p in message.parts)
            message.keep([part for part in left if part is not None])
    after: list[Message] = []
    for at, message in enumerate(repair.messages):
        if message.parts or not message.touched:
            after.append(message)
        placed = moves.placed.get(at)
        for message_made in repair.grammar.result_messages(placed) if placed else ():
            # It replaces the message that its first result came from, if that is empty now.
            home = homes.get(message_made.parts[0])
            if home is not None and not home.parts and home.native is not None:
                message_made.native, message_made.index, home.native = home.native, home.index, None
            after.append(message_made)
    repair.messages = after


def _decisions(repair: HistoryRepair, pairing: Pairing) -> Mapping[str, str]:
    if repair.policy.unanswered_tool_calls != "ask" or repair.policy.ask is None:
        return {}
    open_calls = [
        open_call(repair, exchange, pair)
        for exchange, pair in pairing.unanswered()
        if pair.call.cut or not may_be_live(repair, exchange)
    ]
    if not open_calls:
        return {}
    chosen = decisions(repair.policy.ask(tuple(open_calls)), open_calls)
    if "new_session" in chosen.values():
        raise NewSessionWanted(tuple(open_calls))
    return chosen


def decisions(answer: object, calls: Sequence[OpenCall]) -> dict[str, str]:
    """Return by path what `ask` returned for each call: a decision, or the text of a result.

    Raises DecisionError for no text, and for a word that looks like a decision and is none.
    """
    by_id, one = as_map(answer), not is_map(answer)
    return {
        call.path: _decision(answer if one else by_id.get(call.id, "synthesize")) for call in calls
    }


def _decision(wanted: object) -> str:
    words = get_args(Decision)
    text = wanted.strip() if isinstance(wanted, str) else ""
    if text not in words and (not text or get_close_matches(text, words, cutoff=0.8)):
        known = ", ".join(map(repr, words))
        message = f"ask= returned {wanted!r}; return one of {known}, or the text of a result"
        raise DecisionError(message)
    return text


def _arrange_exchange(repair: HistoryRepair, exchange: Exchange, moves: _Moves) -> None:
    """Note the removals and moves for one message's calls and their results."""
    grammar, results, before = repair.grammar, list[Part](), len(repair.changes)
    for pair in exchange.pairs:
        if pair.results:
            results.append(_choose(repair, pair, moves))
        elif pair.call.cut or not may_be_live(repair, exchange):
            results += _close(repair, exchange, pair, moves)
    stay = {
        part
        for code, part, _ in misplaced(repair, exchange)
        if not repair.may("move_result", part, code)
    }
    if len(repair.changes) == before:
        return
    behind = exchange.at
    if not grammar.adjacent:  # results may be anywhere after their calls: only new ones are placed
        stay = {part for pair in exchange.pairs for _, part in pair.results}
        while behind + 1 < len(repair.messages) and repair.messages[behind + 1].role == "tool":
            behind += 1
    moves.placed[behind] = [part for part in results if part not in stay]
    moves.removed.update(moves.placed[behind])


def _choose(repair: HistoryRepair, pair: Pair, moves: _Moves) -> Part:
    """Return the result to keep of several; the policy decides about a late real one."""
    _, keep = pair.best if repair.policy.late_results == "replace" else pair.results[0]
    for _, part in pair.results:
        if part is keep:
            continue
        late = not part.synthetic and keep.synthetic and repair.policy.late_results == "append"
        what = "keep_late_result_as_text" if late else "drop_result"
        if repair.may(what, part, "tool_result_duplicate"):
            moves.removed.add(part)
            if late:
                text = f"{LATE.format(id=pair.call.id)}\n{repair.grammar.result_text(part)}"
                moves.late[part] = repair.grammar.text_message("user", text).parts[0]
    return keep


def _close(repair: HistoryRepair, exchange: Exchange, pair: Pair, moves: _Moves) -> list[Part]:
    """Return a new result for an open call; `[]` if the call is dropped or left, by the policy."""
    call, reason = pair.call, repair.policy.reason
    wanted: str = moves.decisions.get(repair.path(call), repair.policy.unanswered_tool_calls)
    if wanted == "purge" or not repair.grammar.can_answer(call):
        if repair.may("drop_call", call, "tool_result_missing"):
            moves.removed.add(call)
        return []
    if not repair.may("synthesize_result", call, "tool_result_missing"):
        return []
    if call.cut:
        reason = Reason.ARGS_TRUNCATED
    elif call.superseded:
        reason = Reason.SUPERSEDED
    elif not isinstance(reason, Reason):
        reason = reason(open_call(repair, exchange, pair))
    text = (repair.policy.wordings.get(reason) or WORDINGS[reason]).replace("{name}", call.name)
    if wanted in repair.policy.wordings:
        text = repair.policy.wordings[Reason(wanted)].replace("{name}", call.name)
    elif wanted not in {"synthesize", "ask"}:
        text = wanted
    native = repair.grammar.synthetic_result(call, text)
    return [Part(Kind.RESULT, native, id=call.id, name=call.name, synthetic=True)]
