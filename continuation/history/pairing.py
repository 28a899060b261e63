"""Pairs calls with their results, and checks the pairs.

One rule holds in all dialects: every call has exactly one result with its id, and the result comes
after it. Flags of the grammar state the differences. They say whether results must follow at once,
whether they must be in one message, and whether their order matters.

The history is read once from the front, so a result can only belong to an earlier call. If several
calls have the same id, a result belongs to the latest of them. So if an agent retried a call, the
retry gets the result.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from continuation.history.tree import Fault, Kind, Message, Part
from continuation.history.types import OpenCall, Violation

if TYPE_CHECKING:
    from continuation.history.grammar import History


@dataclass(slots=True, eq=False)
class Pair:
    """A call and its results."""

    call: Part
    results: list[tuple[int, Part]] = field(default_factory=list[tuple[int, Part]])
    """The results, in order, each with the position of its message. Only one result is valid."""

    @property
    def best(self) -> tuple[int, Part]:
        """The result to keep, with its message's position: the first real one, else the first."""
        return next((entry for entry in self.results if not entry[1].synthetic), self.results[0])


@dataclass(slots=True, eq=False)
class Exchange:
    """The calls of the message at position `at`, with their results."""

    at: int
    pairs: list[Pair]
    trailing: bool | None = None
    """Whether nothing except its results follows its calls; `None`: not computed yet."""


class Pairing:
    """All exchanges of a history, and the results without a call (`orphans`)."""

    def __init__(self, messages: list[Message], *, ids_needed: bool = True) -> None:
        self.exchanges: list[Exchange] = []
        self.orphans: list[tuple[int, Part]] = []
        # Ids of results. A result without an id must not be paired with a call of such an id.
        results = [part.id for message in messages for part in message.of(Kind.RESULT)]
        self._answered = set(results) - {""}
        # By id: the position of the latest message with calls of this id, these calls (several have
        # one id only within one message), and how many of them have results.
        self._by_id: dict[str, tuple[int, list[Pair], list[int]]] = {}
        # Open calls of each message with its position, by (whether the call must have no id, name).
        # They are for results that have no id, or an id that no call has: in dialects where calls
        # need no ids, some agents give ids to results.
        self._ids_needed = ids_needed
        self._nameless = "" in results or (not ids_needed and bool(results))
        self._by_name: dict[tuple[bool, str], list[tuple[int, deque[Pair]]]] = {}
        for at, message in enumerate(messages):
            for part in message.parts:
                if part.kind is Kind.CALL and message.role == "assistant":
                    self._call(at, part)
                elif part.kind is Kind.RESULT and message.role in ("user", "tool"):
                    self._result(at, part)

    def unanswered(self) -> Iterator[tuple[Exchange, Pair]]:
        """Yield the calls without a result, each with its exchange."""
        for exchange in self.exchanges:
            yield from ((exchange, pair) for pair in exchange.pairs if not pair.results)

    def calls(self) -> dict[Part, Part]:
        """Return the call that each result answers."""
        pairs = (pair for exchange in self.exchanges for pair in exchange.pairs)
        return {result: pair.call for pair in pairs for _, result in pair.results}

    def _call(self, at: int, part: Part) -> None:
        if not self.exchanges or self.exchanges[-1].at != at:
            self.exchanges.append(Exchange(at, []))
        pair, exchange = Pair(part), self.exchanges[-1]
        exchange.pairs.append(pair)
        if part.id:
            latest = self._by_id.get(part.id)
            if latest is None or latest[0] != at:
                for old in latest[1] if latest else ():
                    old.call.superseded = not old.results
                self._by_id[part.id] = (at, [pair], [0])
            else:
                latest[1].append(pair)
        if self._nameless and part.id not in self._answered:
            ways = itertools.product({False, not part.id}, {part.name, ""})
            for way in ways:
                stack = self._by_name.setdefault(way, [])
                if not stack or stack[-1][0] != at:
                    stack.append((at, deque()))
                stack[-1][1].append(pair)

    def _result(self, at: int, part: Part) -> None:
        if not part.id:
            pair = self._nearest(part.name)
        elif (latest := self._by_id.get(part.id)) is not None:
            _, same, answered = latest
            pair = same[answered[0]] if answered[0] < len(same) else same[0]
            answered[0] += 1
        else:
            pair = None if self._ids_needed else self._nearest(part.name, without_id=True)
        if pair is None:
            self.orphans.append((at, part))
        else:
            pair.results.append((at, part))

    def _nearest(self, name: str, *, without_id: bool = False) -> Pair | None:
        """Return the first open call of this name in the nearest message, or `None`.

        `without_id`: only calls without an id.
        """
        stack = self._by_name.get((without_id, name), [])
        while stack:
            _, waiting = stack[-1]
            while waiting and waiting[0].results:
                waiting.popleft()
            if waiting:
                return waiting[0]
            stack.pop()
        return None


# -- checking ------------------------------------------------------------------------------------

_NAMED = 50
"""The most open calls that one error text names."""


def check(history: History) -> Iterator[Violation]:
    """Yield the violations of calls and results."""
    grammar, pairing = history.grammar, history.pairing()
    yield from (history.violation(code, part) for part, code in surplus(history))
    if grammar.id_keys is not None:
        yield from _check_ids(history, pairing)
    for exchange in pairing.exchanges:
        call = history.messages[exchange.at].index
        for code, part, detail in findings(history, exchange):
            yield history.violation(Fault(code, detail, call=call), part)


def surplus(history: History) -> Iterator[tuple[Part, str]]:
    """Yield the results that belong to no call, each with the code of the rule that it breaks.

    A call may be stored on the server. Then its first result is valid, and further ones are not.
    """
    grammar, pairing, answered = history.grammar, history.pairing(), set[str]()
    kept = pairing.orphans and grammar.calls_on_server(history)
    shown = {pair.call.id for each in pairing.exchanges for pair in each.pairs} if kept else ()
    for place, part in pairing.orphans:
        if not kept or not part.id or part.id in shown:
            yield part, grammar.orphan_code(history.messages, place)
        elif part.id in answered:
            yield part, "tool_result_duplicate"
        answered.add(part.id)


def _check_ids(history: History, pairing: Pairing) -> Iterator[Violation]:
    grammar, seen = history.grammar, set[str]()
    unique = grammar.unique_ids or history.context.strict
    for exchange in pairing.exchanges:
        if not unique:
            seen = set[str]()
        for pair in exchange.pairs:
            if (code := grammar.id_fault(pair.call.id, history.context)) is not None:
                yield history.violation(code, pair.call)
            elif pair.call.id in seen:
                yield history.violation("tool_use_duplicate_id", pair.call)
            seen.add(pair.call.id)
            for _, result in pair.results[:1]:
                if result.id != pair.call.id:
                    yield history.violation("tool_result_id_missing", result)


def findings(history: History, exchange: Exchange) -> Iterator[tuple[str, Part, str]]:
    """Yield the faults of one message's calls, except those of ids: code, part, detail."""
    missing = [pair for pair in exchange.pairs if not pair.results]
    if missing and not may_be_live(history, exchange):
        ids = ", ".join(pair.call.id or pair.call.name for pair in missing[:_NAMED])
        yield from (("tool_result_missing", pair.call, ids) for pair in missing)
    else:
        yield from (("tool_result_missing", pair.call, "") for pair in missing if pair.call.cut)
    if len(missing) == len(exchange.pairs):
        return
    for pair in exchange.pairs:
        for _, part in pair.results:
            if part is not pair.best[1]:
                yield ("tool_result_duplicate", part, "")
    yield from misplaced(history, exchange)


def may_be_live(history: History, exchange: Exchange) -> bool:
    """Whether open calls may still be running, because the exchange ends the history."""
    return history.context.live and _trailing(history, exchange)


def _trailing(history: History, exchange: Exchange) -> bool:
    """Whether nothing except this exchange's results follows its calls."""
    if exchange.trailing is None:
        exchange.trailing = _trails(history, exchange)
    return exchange.trailing


def _trails(history: History, exchange: Exchange) -> bool:
    own = {part for pair in exchange.pairs for _, part in pair.results}
    behind = range(exchange.at + 1, len(history.messages))
    calls = history.messages[exchange.at].parts
    last = max(n for n, part in enumerate(calls) if part.kind is Kind.CALL)
    spoke = any(part.kind is not Kind.THINKING and not part.blank for part in calls[last + 1 :])
    if spoke and history.grammar.calls_last:
        return False
    return all(part in own for n in behind for part in history.messages[n].parts)


def misplaced(history: History, exchange: Exchange) -> Iterator[tuple[str, Part, str]]:
    """Yield results that are not where the provider expects them: code, part, detail."""
    grammar = history.grammar
    best = [(pair, *pair.best) for pair in exchange.pairs if pair.results]
    if not (best and grammar.adjacent):
        return
    first = exchange.at + 1
    end, split, ahead = _bounds(history, first)
    for pair, at, part in best:
        if not first <= at < end:
            near = grammar.one_message and first <= at <= split
            yield ("tool_results_split" if near else "tool_result_displaced", part, pair.call.id)
        elif grammar.one_message and part not in ahead:
            yield ("tool_result_not_first", part, pair.call.id)
    if grammar.ordered and all(first <= at < end for _, at, _ in best):
        slots = [(part.index, part.slot) for _, _, part in best]
        if slots != sorted(slots):
            wrong = next(n for n, slot in enumerate(sorted(slots)) if slot != slots[n])
            yield ("tool_results_out_of_order", best[wrong][2], "")


def _bounds(history: History, first: int) -> tuple[int, int, set[Part]]:
    """Return where the results of calls may be, if they begin in the message at position `first`.

    The result has the end of the messages that may contain them, the end of the messages over which
    they may be spread by mistake, and the results with which their message begins, as it must.
    """
    grammar, messages = history.grammar, history.messages
    end, split, ahead = first, first, set[Part]()
    if not grammar.one_message:
        while end < len(messages) and messages[end].role == "tool":
            end += 1
        return end, split, ahead
    if first < len(messages) and messages[first].role == "user":
        end += 1
        ahead.update(
            itertools.takewhile(lambda part: part.kind is Kind.RESULT, messages[first].parts)
        )
    while split < len(messages) and messages[split].role == "user":
        if not messages[split].has(Kind.RESULT):
            break
        split += 1
    return end, split, ahead


def open_call(history: History, exchange: Exchange, pair: Pair) -> OpenCall:
    """Return a call without a result as an `OpenCall`."""
    call, trailing = pair.call, _trailing(history, exchange)
    arguments = history.grammar.arguments(call)
    return OpenCall(call.id, call.name, arguments, history.path(call), trailing)
