"""Validate a history, plan its repair, repair it: the three verbs, for every dialect."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from continuation.history import pairing, passes
from continuation.history.anthropic.grammar import AnthropicGrammar
from continuation.history.classify import HistoryError, classify
from continuation.history.detect import detect
from continuation.history.gemini.grammar import GeminiGrammar
from continuation.history.grammar import Grammar, History, HistoryContext, HistoryRepair
from continuation.history.openai.chat import ChatGrammar
from continuation.history.openai.responses import ResponsesGrammar
from continuation.history.tree import Message, Part
from continuation.history.types import (
    Body,
    Facts,
    HistoryFormat,
    OpenCall,
    Repaired,
    RepairPolicy,
    Violation,
)
from continuation.history.wordings import looks_like_recovery
from continuation.types import Change
from continuation.wire import collector
from continuation.wire.json_values import as_text
from continuation.wire.vendors import vendor_of_model

_log = logging.getLogger(__name__)

_GRAMMARS: dict[HistoryFormat, Grammar] = {
    grammar.dialect: grammar
    for grammar in (AnthropicGrammar(), ChatGrammar(), ResponsesGrammar(), GeminiGrammar())
}


_ROUNDS = 8
"""A bound for rounds of passes, of which random damage (tests/history) needs three at most."""


def validate(
    body: Body,
    dialect: str | None = None,
    *,
    model: str | None = None,
    facts: Facts | None = None,
    strict: bool = False,
    live: bool = True,
    vendor: str | None = None,
) -> list[Violation]:
    """List where a history breaks its provider's rules, in no promised order; empty if it is valid.

    `dialect` is "anthropic", "openai-chat", "openai-responses" or "gemini"; by default the body's
    shape decides. Rules that depend on the model use `facts`, else what is known of `model`
    (default: the body's own); of an unknown model only what holds for all is asked. `strict` adds
    rules that only some servers of a dialect enforce. `live=False`: the body is about to be sent,
    so a trailing call without result is no longer one that may still be running.

    Raises ValueError for a body of no known shape and for an unknown dialect, TypeError
    for one that is no mapping.
    """
    grammar = _grammar(body, dialect)
    policy = RepairPolicy(strict=strict, live=live, vendor=vendor)
    context = _context(body, grammar, policy, model, facts)
    if grammar.fast_validate(body, context):
        return []
    return _faults(grammar, body, context)


def repair(
    body: Body,
    dialect: str | None = None,
    *,
    policy: RepairPolicy | None = None,
    model: str | None = None,
    facts: Facts | None = None,
) -> Repaired:
    """Make a history valid; the very same object comes back when there is nothing to do.

    The body is never changed, equal bodies give equal results, and repairing twice changes nothing.
    Arguments are those of `validate`; what is done where there is a choice, `policy` says.

    Raises what `validate` raises, and NewSessionWanted when the policy's `ask` decides so.
    """
    return plan(body, dialect, policy=policy, model=model, facts=facts).apply()


def repair_refused(
    body: Body,
    error: HistoryError,
    dialect: str | None = None,
    *,
    policy: RepairPolicy | None = None,
    model: str | None = None,
    facts: Facts | None = None,
) -> Repaired:
    """Repair a body that a provider has just refused with `error`.

    If the history shows the fault, it is repaired as usual; if it does not (a signature looks like
    any other), what the error speaks of is taken out. The same object comes back when neither
    helps: then sending again is pointless. So it does when all that could be changed is what only
    some servers mind, and the error speaks of something else. Raises what `repair` raises.
    """
    grammar = _grammar(body, dialect)
    rules = grammar.rules
    if error.code == "reasoning_missing" and grammar.dialect is HistoryFormat.ANTHROPIC:
        # Vendors behind this API that demand thinking back, which cannot be made up here.
        error = replace(error, code="thinking_missing")
    shown = repair(body, dialect, policy=error.policy(policy), model=model, facts=facts)
    for code in dict.fromkeys(change.why for change in shown.changes):
        # Several rules may share an error text, so the one that was broken may have another name.
        text = rules.get(code)
        meant = classify(400, text) if text is not None else None
        if error.code == code or (meant is not None and error.code == meant.code):
            return shown
    forced = repair(body, dialect, policy=error.forced(policy), model=model, facts=facts)
    if forced.changes != shown.changes:
        return forced
    broken = validate(body, dialect, model=model, facts=facts, live=False)
    return shown if broken else Repaired(body)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a repair would do; nothing is done before `apply`."""

    body: Body
    """The body as it was given."""
    _repaired: Repaired

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes, in the order they would be made."""
        return self._repaired.changes

    @property
    def left(self) -> tuple[Violation, ...]:
        """What would still be wrong, because the policy refused its repair."""
        return self._repaired.left

    def apply(self) -> Repaired:
        """The repaired body."""
        return self._repaired


def plan(
    body: Body,
    dialect: str | None = None,
    *,
    policy: RepairPolicy | None = None,
    model: str | None = None,
    facts: Facts | None = None,
) -> Plan:
    """Work out a repair without deciding for it; arguments are those of `repair`."""
    policy = policy if policy is not None else RepairPolicy()
    return Plan(body, _planned(_grammar(body, dialect), body, policy, model, facts))


def diagnosed(
    body: Body, dialect: HistoryFormat, policy: RepairPolicy, model: str
) -> tuple[list[Violation], Repaired]:
    """`validate` and `repair` in one: the history is taken apart once."""
    violations: list[Violation] = []
    return violations, _planned(_GRAMMARS[dialect], body, policy, model, None, violations)


def unanswered_tool_calls(body: Body, dialect: str | None = None) -> tuple[OpenCall, ...]:
    """List the tool calls of a history that have no result, trailing ones included.

    Raises what `validate` raises.
    """
    history = History(_grammar(body, dialect), body, HistoryContext())
    unanswered = history.pairing().unanswered()
    return tuple(pairing.open_call(history, exchange, pair) for exchange, pair in unanswered)


@collector.resting()
def _faults(grammar: Grammar, body: Body, context: HistoryContext) -> list[Violation]:
    """All that is wrong with a body."""
    return list(_check(History(grammar, body, context)))


def _planned(
    grammar: Grammar,
    body: Body,
    policy: RepairPolicy,
    model: str | None,
    facts: Facts | None,
    violations: list[Violation] | None = None,
) -> Repaired:
    """Work out a repair; `violations`, if it is a list, gets all that was wrong."""
    context = _context(body, grammar, policy, model, facts)
    # What the quick look takes for a recovery prompt is what we know to be one, not a caller's own.
    default_policy = policy.is_recovery is looks_like_recovery or not policy.coalesce
    if policy.thinking == "keep" and default_policy and grammar.fast_validate(body, context):
        return Repaired(body)
    return _repair(grammar, body, context, policy, violations, quick=default_policy)


@collector.resting()
def _repair(
    grammar: Grammar,
    body: Body,
    context: HistoryContext,
    policy: RepairPolicy,
    violations: list[Violation] | None,
    *,
    quick: bool,
) -> Repaired:
    """Run the passes until there is nothing left to do, or nothing that the policy allows."""
    repaired = Repaired(body)
    for number in range(_ROUNDS):
        if number and quick and grammar.fast_validate(repaired.body, context):
            return repaired
        draft = HistoryRepair(grammar, repaired.body, context, policy=policy)
        if violations is not None and number == 0:
            violations += _check(draft)
        # Whether anything is wrong; what it is the passes see for themselves.
        broken = bool(violations and number == 0) or next(_check(draft), None) is not None
        # What no provider objects to, and is wanted all the same.
        wanted = policy.coalesce and passes.has_recovery(draft)
        wanted = wanted or (policy.thinking != "keep" and number == 0)
        if not broken and not wanted:
            return repaired
        passes.run(draft)
        if not draft.changes:
            break
        for change in draft.changes if _log.isEnabledFor(logging.DEBUG) else ():
            _log.debug("%s at %s: %s", change.what, change.where, change.why)
        # Messages nobody touched are written as the very objects they were read from.
        natives, earlier = draft.body.get(grammar.field, []), repaired.origins
        elements = [pair for each in draft.messages for pair in grammar.written(each, natives)]
        body = {**draft.body, grammar.field: [element for element, _ in elements], **draft.settings}
        for key in [key for key, value in draft.settings.items() if value is None]:
            del body[key]
        repaired = Repaired(
            body,
            repaired.changes + tuple(draft.changes),
            origins=tuple(n if earlier is None or n < 0 else earlier[n] for _, n in elements),
            headers={**repaired.headers, **draft.headers},
        )
        policy = replace(policy, thinking="keep")
    return replace(repaired, left=tuple(_faults(grammar, repaired.body, context)))


def _check(history: History) -> Iterator[Violation]:
    """All that is wrong with a history, by the rules of all dialects and those of its own."""
    grammar, messages = history.grammar, history.messages
    if not messages and not history.context.live and not grammar.calls_on_server(history):
        yield history.violation("history_empty", grammar.field)
    torn = history.torn() if history.context.strict else ()
    yield from (history.violation("text_surrogate", part) for part in torn)
    for message in messages:
        nodes: tuple[Message | Part, ...] = (message, *message.parts)
        yield from (history.violation(fault, node) for node in nodes for fault in node.faults)
    yield from pairing.check(history)
    for n, message in enumerate(messages):
        code = grammar.empty_fault(message, last=n == len(messages) - 1)
        if code is not None:
            yield history.violation(code, message)
    for first, second in itertools.pairwise(messages):
        if grammar.must_merge(first, second, history.context):
            yield history.violation("roles_not_alternating", second)
    yield from grammar.check(history)


def _grammar(body: Body, dialect: str | None) -> Grammar:
    if not isinstance(body, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers
        msg = f"body: a request's body is a mapping, not {type(body).__name__}; decode it first"
        raise TypeError(msg)
    if dialect is None:
        return _GRAMMARS[detect(body)]
    try:
        return _GRAMMARS[HistoryFormat(dialect)]
    except ValueError:
        names = ", ".join(HistoryFormat)
        msg = f"dialect={dialect!r}: use one of {names}, or None to tell it from the body"
        raise ValueError(msg) from None


def _context(
    body: Body, grammar: Grammar, policy: RepairPolicy, model: str | None, facts: Facts | None
) -> HistoryContext:
    """What is known besides the body: its model's limits, and the policy's word on its server."""
    name = as_text(model if model is not None else body.get("model"))
    # Our table is asked where its rows speak of this dialect's own models.
    own = {HistoryFormat.ANTHROPIC: "claude", HistoryFormat.GEMINI: "gemini"}.get(grammar.dialect)
    if facts is None and own is not None and own in name.lower():
        from continuation import limits  # read only where a history depends on the model

        facts = limits.find(name)
    vendor, prefill = policy.vendor, policy.prefill
    if not vendor and grammar.dialect is HistoryFormat.OPENAI_CHAT:  # others are alike everywhere
        vendor = vendor_of_model(name)
    return HistoryContext(
        model=name,
        prefill=facts.prefill if facts and prefill is None else prefill,
        thinking=facts.thinking if facts else None,
        binding=facts.binding if facts else False,
        strict=policy.strict,
        live=policy.live,
        vendor=vendor or "",
        alternate=policy.alternate,
        reasoning=policy.reasoning,
        system_messages=policy.system_messages,
    )
