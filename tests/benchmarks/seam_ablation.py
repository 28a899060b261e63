"""What each rule of the seam is worth: the figures with the rule switched off.

    python tests/benchmarks/seams.py --ablate [--cases 3000] [--seed 7] [--set own|files|made]

Every rule is a function, a pattern or a weight that is replaced by its neutral value. The cases of
the own set are those of the figures and the harder ones (`make_hard_cases`), for `--seed` and the
next two.
A rule that is neutral about a case cannot change it: one pass notes which rules speak about
which case, and only those are joined again.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from seam_cases import Case, make_cases, make_hard_cases

from continuation.seams import evidence
from continuation.seams.seam import join

_NEVER = re.compile(r"(?!)")


@dataclass(frozen=True)
class Rule:
    """One rule: where it stands, and what it returns when it is switched off."""

    name: str
    place: str
    neutral: Any
    attribute: str = ""

    @property
    def owner(self) -> Any:
        """The module, class or table that holds the rule."""
        module, _, inner = self.place.partition(":")
        found = import_module(f"continuation.seams.{module}")
        return getattr(found, inner) if inner else found


def _rules() -> list[Rule]:
    listed: list[tuple[str, str, str, Any]] = [
        # the judge's findings, in its order
        ("says it is complete", "judge", "only_says_complete", False),
        ("stays in a run", "judge:Judgement", "_stays_in_run", False),
        ("anchor", "judge:Judgement", "_anchored", None),
        ("- in other typography", "judge:Judgement", "_loosely", None),
        ("- its white space was left out", "judge", "lacks", False),
        ("echo", "judge:Judgement", "_echo", None),
        ("- a line fits only without it", "judge", "fits_only_without", False),
        ("- JSON is indented", "syntax", "_is_indented_json", True),
        ("echo: head goes round", "judge", "_goes_round_early", False),
        ("echo without the last space", "judge:Judgement", "_echo_without_space", None),
        ("echo in quotes, after an ellipsis", "judge:Judgement", "_decorated", None),
        ("echo behind white space", "judge:Judgement", "_behind_space", None),
        ("syntax proves a line twice", "judge:Judgement", "_proven", None),
        ("- a row's first bar", "syntax", "_row_again", 0),
        ("- a line that cannot follow itself", "syntax", "_cannot_follow_itself", False),
        ("fence again", "judge:Judgement", "_refenced", None),
        ("- around a whole document", "syntax", "_wraps_document", False),
        ("- bare, goes on as code", "syntax", "_goes_on_as_code", False),
        ("- bare, looks fenced", "syntax", "_looks_fenced", False),
        ("- bare, the next one closes", "syntax", "_next_fence_closes", False),
        ("- bare, is a sentence", "syntax", "_is_sentence", False),
        ("block again", "judge:Judgement", "_headed", None),
        ("- CSV header", "syntax", "_csv_header", 0),
        ("- table header", "syntax", "_table_header", 0),
        ("- lines just above", "syntax", "_block_above", 0),
        ("line again behind an opening", "judge:Judgement", "_line_again", None),
        ("preamble", "judge:Judgement", "_prefaced", None),
        ("long replay", "judge:Judge", "replays", None),
        ("- that was none, behind an opening", "judge:Judge", "opening", None),
        # the preamble
        ("preamble: only of itself", "judge", "only_of_itself", False),
        ("preamble: no sentence can stand there", "judge", "cannot_stand", False),
        ("- inside a word", "preamble", "_is_inside_word", False),
        ("- after an inner mark", "preamble", "_is_after_inner_mark", False),
        ("- between records", "preamble", "_is_between_records", False),
        ("- in a foreign script", "preamble", "_is_foreign", False),
        ("- before a space or an inner mark", "preamble", "_rest_is_inner", False),
        ("- in a text without sentences", "preamble", "_admits_no_sentence", False),
        ("preamble: completes a known word", "judge:Judgement", "_completes_word", False),
        ("preamble: its line break is the text's", "judge", "own_line_break", 0),
        ("preamble: a text about answers", "preamble", "_is_about", False),
        ("words before the anchor", "judge:Judgement", "_anchor_after_words", None),
        ("- one saying before a longer echo", "judge:Judgement", "_is_one_saying", False),
        # white space
        ("white space: superfluous", "judge", "superfluous", 0),
        ("- joins a known word", "syntax", "joins_to_known_word", False),
        ("- never doubles spaces", "syntax", "_never_doubles_spaces", False),
        ("white space: newline wanted", "judge", "wanted", ""),
        ("- before a row", "syntax", "_starts_new_row", False),
        ("- before an item", "syntax", "_starts_next_item", False),
        ("- before a closing fence", "syntax", "_closes_fence", False),
        ("- before a record", "syntax", "_starts_next_record", False),
        # the evidence
        ("evidence: begins again", "evidence", "_begins_again", False),
        ("evidence: the next line", "evidence", "_is_next_line", False),
        ("evidence: trite", "evidence", "_is_trite", False),
        ("evidence: counts again", "evidence", "_counts_again", False),
        ("evidence: words again", "evidence", "_says_words_again", False),
        ("evidence: misindents", "evidence", "_misindents", False),
        ("evidence: is a run", "evidence", "is_run", False),
        ("evidence: a word retyped", "evidence", "_retyped", False),
        ("evidence: little text", "evidence", "_odds_in_little", -99.0),
    ]
    rules = [Rule(name, place, neutral, attribute) for name, place, attribute, neutral in listed]
    for table in ("INSIDE", "AFTER"):
        for name in getattr(evidence, table):
            if name != "const":
                title = f"weight {table.lower()}: {name}"
                rules.append(Rule(title, f"evidence:{table}", 0.0, name))
    return rules


def _get(rule: Rule) -> Any:
    owner = rule.owner
    return owner[rule.attribute] if isinstance(owner, dict) else getattr(owner, rule.attribute)


def _set(rule: Rule, value: Any) -> None:
    owner = rule.owner
    if isinstance(owner, dict):
        owner[rule.attribute] = value
    else:
        setattr(owner, rule.attribute, value)


@contextmanager
def _replaced(rules: list[Rule], stand_in: Callable[[Rule, Any], Any]) -> Iterator[None]:
    shipped = [_get(rule) for rule in rules]
    for rule, value in zip(rules, shipped, strict=True):
        _set(rule, stand_in(rule, value))
    try:
        yield
    finally:
        for rule, value in zip(rules, shipped, strict=True):
            _set(rule, value)


def _off(rule: Rule, value: Any) -> Any:
    """What stands in for a rule: the pattern or weight itself, or a function that returns it."""
    return (lambda *_, **__: rule.neutral) if callable(value) else rule.neutral


def _listening(spoke: set[str]) -> Callable[[Rule, Any], Any]:
    """A stand-in that returns what the rule does, and notes when that is not neutral."""

    def stand_in(rule: Rule, value: Any) -> Any:
        if not callable(value):
            return value

        def listen(*given: Any, **named: Any) -> Any:
            before = rule.name in spoke
            spoke.add(rule.name)  # also when it asks for more, by an exception
            result = value(*given, **named)
            if result == rule.neutral and not before:
                spoke.discard(rule.name)
            return result

        return listen

    return stand_in


_FEATURES = Rule("features", "evidence", None, "features")


def _measuring(spoke: set[str]) -> Callable[[Rule, Any], Any]:
    """The same for the weights: one speaks where its feature is not nought."""

    def stand_in(_: Rule, value: Any) -> Any:
        def measure(before: str, head: str, size: int) -> dict[str, float]:
            measured: dict[str, float] = value(before, head, size)
            table = "after" if before.endswith("\n") else "inside"
            spoke.update(f"weight {table}: {name}" for name, found in measured.items() if found)
            return measured

        return measure

    return stand_in


def _joined(case: Case) -> str:
    return join(case.before, case.after, anchor=case.anchor)[0]


@dataclass
class Worth:
    """What changed without a rule, by manner: cases, and characters lost and doubled."""

    exact: int = 0
    lost: int = 0
    doubled: int = 0


def own_cases(count: int, seed: int) -> Iterator[tuple[str, list[Case]]]:
    """Yield the own set in three parts, with their names."""
    for each in (seed, seed + 1, seed + 2):
        yield f"seed {each}", make_cases(count, each) + make_hard_cases(count // 3, each)


def ablate(
    parts: Iterable[tuple[str, list[Case]]], difference: Callable[[str, str], tuple[int, int]]
) -> None:
    """Print a table: for each rule, what its absence costs (and what it gains)."""
    rules = _rules()
    tables: dict[str, dict[str, Worth]] = {rule.name: defaultdict(Worth) for rule in rules}
    total: dict[str, int] = defaultdict(int)
    wrong = lost = characters = 0
    for part, listed in parts:
        cases = [case for case in listed if not case.lossy]
        shipped: list[str] = []
        spoke: list[set[str]] = []
        for case in cases:
            noted: set[str] = set()
            with _replaced(rules, _listening(noted)), _replaced([_FEATURES], _measuring(noted)):
                shipped.append(_joined(case))
            spoke.append(noted)
            total[case.manner] += 1
            wrong += shipped[-1] != case.whole
            lost += difference(case.whole, shipped[-1])[0]
            characters += len(case.whole)
        for rule in rules:
            pattern = isinstance(rule.neutral, re.Pattern)
            touched = [
                (case, was)
                for case, was, names in zip(cases, shipped, spoke, strict=True)
                if rule.name in names or pattern
            ]
            with _replaced([rule], _off):
                for case, was in touched:
                    if (now := _joined(case)) != was:
                        _count(tables[rule.name][case.manner], case.whole, was, now, difference)
        print(f"{part}: {len(cases)} cases", file=sys.stderr)
    cases_in_all = sum(total.values())
    print(
        f"{cases_in_all} cases, {wrong} not exact, {lost / characters * 1e5:.3f} lost per 100,000"
    )
    _print(rules, tables, total, characters)


def _count(
    worth: Worth,
    whole: str,
    was: str,
    now: str,
    difference: Callable[[str, str], tuple[int, int]],
) -> None:
    before, after = difference(whole, was), difference(whole, now)
    worth.exact += (now == whole) - (was == whole)
    worth.lost += after[0] - before[0]
    worth.doubled += after[1] - before[1]


def _print(
    rules: list[Rule], tables: dict[str, dict[str, Worth]], total: dict[str, int], characters: int
) -> None:
    cases = sum(total.values())
    print(f"{'without':40}{'exact %':>9}{'lost':>8}{'doubled':>9}  worst manners (exact %)")
    for rule in rules:
        table = tables[rule.name]
        exact = sum(worth.exact for worth in table.values()) / cases * 100
        lost = sum(worth.lost for worth in table.values()) / characters * 1e5
        doubled = sum(worth.doubled for worth in table.values()) / characters * 1e5
        shares = sorted(
            (worth.exact * 100 / total[manner], manner) for manner, worth in table.items()
        )
        named = shares[:2] + [share for share in shares[2:] if share[0] > 0][-1:]
        worst = ", ".join(f"{manner} {share:+.2f}" for share, manner in named if share)
        print(f"{rule.name:40}{exact:>+9.3f}{lost:>+8.3f}{doubled:>+9.2f}  {worst}")
