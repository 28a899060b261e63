"""The public functions, which validate a history, plan its repair, or repair it."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

from continuation.history import pairing, passes
from continuation.history.classify import HistoryError, classify
from continuation.history.detect import detect
from continuation.history.grammar import Grammar, History, HistoryContext, HistoryRepair
from continuation.history.resent import beginning, count, with_rest
from continuation.history.shrink import shortened, tokens_in
from continuation.history.tree import Kind, Message, Part
from continuation.history.types import (
    Body,
    Facts,
    HistoryFormat,
    OpenCall,
    Repaired,
    RepairPolicy,
    Violation,
)
from continuation.history.unknown import followed_by, without_tag
from continuation.history.wordings import looks_like_recovery
from continuation.registry import dialects
from continuation.types import Change
from continuation.wire import collector
from continuation.wire.json_values import as_map, as_text, is_list
from continuation.wire.vendors import vendor_of_model

_log = logging.getLogger(__name__)

_ROUNDS = 8
"""The most rounds of passes. Random damage (tests/history) needs at most three."""


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
    """Return the violations of a provider's rules in a history, in any order; `[]`: it is valid.

    `dialect`: "anthropic", "openai-chat", "openai-responses" or "gemini". By default it is detected
    from the body's shape.
    `model`: the model's name, by default the body's `model`. Some rules depend on the model's
    properties. An unknown model is checked by the rules for all models.
    `facts`: the model's properties, by default those in the table of models.
    `strict`: also apply the rules that only some servers of a dialect enforce.
    `live`: whether a trailing call without a result may still be running. False: the body is about
    to be sent, so the call is not running.
    `vendor`: the vendor of a Chat server, if the model's name does not show it.

    Raises ValueError for a body of unknown shape and for an unknown dialect, and TypeError for a
    body that is not a mapping.
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
    """Return a valid copy of a history, and the changes. A valid history is returned unchanged.

    `body` itself is never changed, equal bodies give equal results, and a second repair changes
    nothing. `policy` decides between several possible repairs. The other arguments are those of
    `validate`.

    Raises what `validate` raises, and NewSessionWanted if the policy's `ask` decides so.
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
    """Repair a body that a provider has refused with `error`.

    If the history shows the fault, it is repaired as usual. If it does not (an invalid signature
    looks like a valid one), the repair removes what the error is about. In two cases `body` is
    returned unchanged, and it is useless to resend it: neither repair changes anything, or the only
    broken rules are rules of some servers and the error is about another rule.

    Raises what `repair` raises.
    """
    grammar = _grammar(body, dialect)
    rules = grammar.rules
    if error.code == "reasoning_missing" and grammar.may_lack_thinking:
        # Some vendors of this format require earlier thinking, which a repair cannot make.
        error = replace(error, code="thinking_missing")
    shown = repair(body, dialect, policy=error.policy(policy), model=model, facts=facts)
    if error.tag:
        left = without_tag(shown, grammar, error.tag)
        if left is not None:
            done = repair(left.body, dialect, policy=error.policy(policy), model=model, facts=facts)
            return followed_by(left, done)
    for code in dict.fromkeys(change.why for change in shown.changes):
        # Several rules may have the same error text, so the broken rule may have another code.
        text = rules.get(code)
        meant = classify(400, text) if text is not None else None
        if error.code == code or (meant is not None and error.code == meant.code):
            return shown
    forced = repair(body, dialect, policy=error.forced(policy), model=model, facts=facts)
    if forced.changes != shown.changes:
        return forced
    broken = validate(body, dialect, model=model, facts=facts, live=False)
    return shown if broken else Repaired(body)


def repair_beginning(
    body: Body,
    length: int,
    error: HistoryError,
    dialect: str | None = None,
    *,
    policy: RepairPolicy | None = None,
    model: str | None = None,
) -> Repaired:
    """Repair the first `length` messages of a body, because a request with them was refused.

    The later messages were not refused, so they are not changed, and their valid thinking is kept.
    A setting of the complete request changes only if the history would break a rule otherwise.
    Thinking that is turned off is such a setting. Raises what `repair` raises.
    """
    done = repair_refused(beginning(body, length), error, dialect, policy=policy, model=model)
    if not done.changes:
        return Repaired(body)
    whole = with_rest(done.body, body, length)
    kept = {**body, **{key: whole[key] for key in whole if is_list(whole[key])}}
    needed = dict(whole) != kept and not _turned_off(whole, body)
    if needed or validate(kept, dialect, model=model, live=False):
        kept = dict(whole)
    elif kept == body:
        return Repaired(body)
    more = range(length, count(body))
    origins = (*(done.origins or range(length)), *more)
    return replace(done, body=kept, origins=origins)


def _turned_off(body: Body, before: Body) -> bool:
    """Whether a repair turned thinking off for the complete request."""
    thinking = as_map(body.get("thinking"))
    return thinking.get("type") == "disabled" and thinking != as_map(before.get("thinking"))


@dataclass(frozen=True, slots=True)
class Plan:
    """A planned repair: its changes; `apply` returns the repaired body."""

    body: Body
    """The body that was given; it is never changed."""
    _repaired: Repaired

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes, in the order in which they are made."""
        return self._repaired.changes

    @property
    def left(self) -> tuple[Violation, ...]:
        """Violations that would remain because the policy refuses their repair."""
        return self._repaired.left

    def apply(self) -> Repaired:
        """Return the repaired body and its changes."""
        return self._repaired


def plan(
    body: Body,
    dialect: str | None = None,
    *,
    policy: RepairPolicy | None = None,
    model: str | None = None,
    facts: Facts | None = None,
) -> Plan:
    """Return a repair that can be inspected before it is applied.

    Arguments and errors are those of `repair`.
    """
    policy = policy if policy is not None else RepairPolicy()
    return Plan(body, _planned(_grammar(body, dialect), body, policy, model, facts))


def diagnosed(
    body: Body, dialect: HistoryFormat, policy: RepairPolicy, model: str
) -> tuple[list[Violation], Repaired]:
    """Return the results of `validate` and `repair`; the history is parsed only once."""
    violations: list[Violation] = []
    return violations, _planned(_grammar(body, dialect), body, policy, model, None, violations)


@collector.resting()
def shrunk(
    repaired: Repaired,
    dialect: HistoryFormat,
    policy: RepairPolicy,
    model: str,
    writer: str,
    most: int,
) -> tuple[Repaired, int, int]:
    """Shorten tool results, the oldest first, until a repaired history has at most `most` tokens.

    `model`: the model by which the history is repaired. `writer`: the model that wrote the history.
    If the writer's thinking is bound to the messages before it, thinking after a shortened result
    is removed.

    Return the repair, and estimates of the history's tokens before and after it.
    """
    grammar, body = _grammar(repaired.body, dialect), repaired.body
    before = tokens_in(body, writer)
    context = _context(body, grammar, policy, model, None)
    if grammar.own_models and grammar.own_models in writer.lower():
        from continuation import limits  # as in `_context`

        known = limits.find(writer)
        context = replace(context, binding=known is not None and known.binding)
    done, after = repaired, before
    while after > most:  # a second round is needed only if a changed message becomes longer
        draft = HistoryRepair(grammar, done.body, context, policy=policy)
        new = shortened(draft.parts(Kind.RESULT), after, most, writer, _not_text())
        if not new:
            break
        made = {part: replace(part, native=native) for part, native in new.items()}
        draft.replace("shorten_result", "history_too_large", made)
        passes.run(draft)
        done = _written(draft, done)
        after = tokens_in(done.body, writer)
    return done, before, after


def unanswered_tool_calls(body: Body, dialect: str | None = None) -> tuple[OpenCall, ...]:
    """Return the tool calls of a history that have no result, including trailing calls.

    Raises what `validate` raises.
    """
    history = History(_grammar(body, dialect), body, HistoryContext())
    unanswered = history.pairing().unanswered()
    return tuple(pairing.open_call(history, exchange, pair) for exchange, pair in unanswered)


@collector.resting()
def _faults(grammar: Grammar, body: Body, context: HistoryContext) -> list[Violation]:
    """Return all violations in a body."""
    return list(_check(History(grammar, body, context)))


def _planned(
    grammar: Grammar,
    body: Body,
    policy: RepairPolicy,
    model: str | None,
    facts: Facts | None,
    violations: list[Violation] | None = None,
) -> Repaired:
    """Return a repair. If `violations` is a list, extend it with all violations found."""
    context = _context(body, grammar, policy, model, facts)
    # The fast check recognizes recovery prompts only by the default `is_recovery`.
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
    """Run the passes until nothing is wrong, or the policy allows no further change."""
    repaired = Repaired(body)
    for number in range(_ROUNDS):
        if number and quick and grammar.fast_validate(repaired.body, context):
            return repaired
        draft = HistoryRepair(grammar, repaired.body, context, policy=policy)
        if violations is not None and number == 0:
            violations += _check(draft)
        # The first violation is enough: the passes find the others themselves.
        broken = bool(violations and number == 0) or next(_check(draft), None) is not None
        # The policy may require changes that no provider requires.
        wanted = policy.coalesce and passes.has_recovery(draft)
        wanted = wanted or (policy.thinking != "keep" and number == 0)
        if not broken and not wanted:
            return repaired
        passes.run(draft)
        if not draft.changes:
            break
        for change in draft.changes if _log.isEnabledFor(logging.DEBUG) else ():
            _log.debug("%s at %s: %s", change.what, change.where, change.why)
        repaired = _written(draft, repaired)
        policy = replace(policy, thinking="keep")
    return replace(repaired, left=tuple(_faults(grammar, repaired.body, context)))


def _written(draft: HistoryRepair, before: Repaired) -> Repaired:
    """Return `before` with the changes of a draft that was read from its body."""
    # An unchanged message is written as the object from which it was read.
    grammar, earlier = draft.grammar, before.origins
    natives = draft.body.get(grammar.field, [])
    elements = [pair for each in draft.messages for pair in grammar.written(each, natives)]
    body = {**draft.body, grammar.field: [element for element, _ in elements], **draft.settings}
    for key in [key for key, value in draft.settings.items() if value is None]:
        del body[key]
    return Repaired(
        body,
        before.changes + tuple(draft.changes),
        left=before.left,
        origins=tuple(n if earlier is None or n < 0 else earlier[n] for _, n in elements),
        headers={**before.headers, **draft.headers},
    )


def _check(history: History) -> Iterator[Violation]:
    """Yield all violations in a history: of the rules for all dialects, and of its dialect's."""
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
        msg = f"body: must be a mapping, not {type(body).__name__}; decode it first"
        raise TypeError(msg)
    name = detect(body) if dialect is None else dialect
    if (grammar := _grammar_of(name)) is None:
        names = ", ".join(each.name for each in dialects() if each.has_grammar)
        msg = f"dialect={dialect!r}: use one of {names}, or None to detect it from the body"
        raise ValueError(msg)
    return grammar


@cache
def _not_text() -> frozenset[str]:
    """Return `not_text` of all formats: a result may quote blocks of another format."""
    grammars = (each.grammar() for each in dialects())
    return frozenset[str]().union(*(one.not_text for one in grammars if one is not None))


@cache
def _grammar_of(name: str) -> Grammar | None:
    return next((each.grammar() for each in dialects() if each.name == name), None)


def _context(
    body: Body, grammar: Grammar, policy: RepairPolicy, model: str | None, facts: Facts | None
) -> HistoryContext:
    """Return the context of a body: its model's properties, and the policy's settings."""
    name = as_text(model if model is not None else body.get("model"))
    # The table of models is used only for the provider's own models.
    own = grammar.own_models
    if facts is None and own and own in name.lower():
        from continuation import limits  # imported only if a history depends on the model

        facts = limits.find(name)
    vendor, prefill = policy.vendor, policy.prefill
    if not vendor and grammar.has_vendors:
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
