"""The passes of a repair that are the same in every dialect, and their order.

What a valid history is. User and assistant alternate. The assistant makes calls. Each call has a
unique id and exactly one result, and the result is where the provider expects it:

    user        U   "what is in a and b?"
    assistant   A   text, call k1, call k2      -- an exchange: the calls of one message ...
    user        R   result k1, result k2        -- ... and their results
    assistant   A   text

`pairing` finds that structure in a history: every call with its results (a `Pair`), the calls of
one message with their results (an `Exchange`), and results without a call (orphans). These things
can be wrong with a pair, and their repair is the same for all dialects:

    no result            The call was open when the session ended. Make a result that states this,
                         or drop the call. If the call ends the history and may still be running,
                         leave it.
    several results      Keep one: a real one rather than a synthetic one.
    result of no call    Drop it.
    result elsewhere     Move it behind its calls, together with the others of that message.
    unusable id          It is missing, malformed or used before. Give the call and its results a
                         new id.

How it is repaired. `_arrange` decides for each exchange which parts are removed and which results
go behind which message. It notes that in `_Moves` and moves nothing, so positions stay valid. A
change that the policy refuses is not noted. Then all messages are rebuilt once. Unchanged parts
stay the same objects, in the same order.

The order of the passes (`run`), each of which may rely on those before it:

    convert messages  ->  join recoveries  ->  repair parts  ->  the dialect's `prepare`
        ->  identify  ->  arrange  ->  drop empty messages  ->  merge neighbours
        ->  the dialect's `finish`

Messages are first converted to a readable form. Then messages that an earlier recovery has split
are joined, because that decides which calls share a message. Parts are repaired before they are
paired. Ids are repaired before results are placed by them. A dialect's rules about complete
messages (thinking that is not allowed, calls that must come last) are applied before pairing if
they move calls, and otherwise at the end.

Why a second repair changes nothing. The passes run in rounds. The checks of `validate` read the
result of each round, and start another round only if they find a violation. One round is nearly
always enough; `api` has the bound. So `validate` finds nothing in a repaired history, and no pass
runs on it again. Exceptions are two changes that no provider requires: joining an earlier recovery,
and removing thinking because the policy says so.

This also keeps passes simple: if a pass breaks another rule, the next round repairs that. The
rounds end, because every change removes its own reason. A dropped part does not come back, a new
result stays with its call, and new ids are derived from the old ones, so they are not random. What
the policy refuses remains a violation, listed in `Repaired.left`. A round without changes is the
last.
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
    """Run all passes once. If a pass breaks another rule, the next check finds that."""
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

    `asked`: whether the history before the repair ended with another message than the assistant's.
    If it now ends with the assistant, add a user message. Otherwise the provider would treat the
    last answer as a prefill.
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
    """Whether a recovery prompt stands between two assistant messages that may be joined.

    With bound thinking they may not be joined: that would invalidate all thinking after them.
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
    """Join answers that an earlier recovery prompt has split."""
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
    """Return both halves as one message, without the thinking of the second half.

    That thinking may refer to the prompt, which is dropped.
    """
    anchor = quoted_anchor(prompt.parts[0].text)

    def join_texts(before: str, after: str) -> str:
        """Join two texts; remove from `after` only what it repeats of `before`."""
        from continuation.seams.judge import SeamKind  # imported here, as few histories need it
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
    """Return the fault of a call in a user message, or of a result in an assistant message."""
    if role == "user" and part.kind is Kind.CALL:
        return (Fault("tool_use_in_user"),)
    if role == "assistant" and part.kind is Kind.RESULT:
        return (Fault("tool_result_in_assistant"),)
    return ()


def split_by_side(repair: HistoryRepair) -> None:
    """Split messages that mix calls and results: calls are the assistant's, results the user's."""
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
    """Give every call and its results a unique id that the provider accepts."""
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
    """Give a call a new id if its id is invalid or a duplicate; give its results the same id."""
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
    """By the path of an open call, what the policy's `ask` returned: a decision, or a text."""
    removed: set[Part] = field(default_factory=set[Part])
    placed: dict[int, list[Part]] = field(default_factory=dict[int, list[Part]])
    """The position of a message -> the results that are placed behind it."""
    late: dict[Part, Part] = field(default_factory=dict[Part, Part])
    """A late result -> the text that replaces it."""


def _arrange(repair: HistoryRepair) -> None:
    """Give every call exactly one result: move, choose or make results, or drop calls.

    The policy decides. Raises NewSessionWanted if the policy's `ask` decides so.
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
            # If the message of the first result is empty now, the new one replaces it.
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
    """Return, by the path of each call, what `ask` returned: a decision, or the text of a result.

    `answer`: one text for all calls, or a mapping by call id. Raises DecisionError for a value that
    is not a text, for an empty text, and for a text that looks like a misspelled decision.
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
    if not grammar.adjacent:  # results may be anywhere after their calls, so only place new ones
        stay = {part for pair in exchange.pairs for _, part in pair.results}
        while behind + 1 < len(repair.messages) and repair.messages[behind + 1].role == "tool":
            behind += 1
    moves.placed[behind] = [part for part in results if part not in stay]
    moves.removed.update(moves.placed[behind])


def _choose(repair: HistoryRepair, pair: Pair, moves: _Moves) -> Part:
    """Return the result of a call to keep. The policy decides about a late real one."""
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
    """Return a new result for an open call; `[]`: the policy drops the call, or leaves it open."""
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
