from __future__ import annotations

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.damage import broken, lines, sure_results, texts
from support.examples import examples
from support.notation import DIALECTS, Json, write

from continuation.history import RepairPolicy, api, repair, validate
from continuation.history.grammar import History

_MANY = settings(max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow])
_POLICIES = st.builds(
    RepairPolicy,
    strict=st.booleans(),
    live=st.booleans(),
    duplicate_ids=st.sampled_from(["rename", "drop"]),
    unanswered_tool_calls=st.sampled_from(["synthesize", "purge"]),
    late_results=st.sampled_from(["replace", "append", "drop"]),
)


@_MANY
@given(broken(), _POLICIES)
def test_every_policy_ends_in_a_valid_history(
    case: tuple[str, Json, Json], policy: RepairPolicy
) -> None:
    dialect, _, body = case
    repaired = repair(body, dialect, policy=policy)
    assert validate(repaired.body, dialect, strict=policy.strict, live=policy.live) == []
    assert repair(repaired.body, dialect, policy=policy).body is repaired.body


@_MANY
@given(broken())
def test_a_repair_is_the_same_each_time_and_leaves_its_input_alone(
    case: tuple[str, Json, Json],
) -> None:
    dialect, _, body = case
    before = copy.deepcopy(body)
    first, second = repair(body, dialect), repair(copy.deepcopy(body), dialect)
    assert body == before
    assert json.dumps(first.body) == json.dumps(second.body)
    assert first.changes == second.changes


@_MANY
@given(broken())
def test_no_real_result_is_lost(case: tuple[str, Json, Json]) -> None:
    dialect, _, body = case
    flat = json.dumps(repair(body, dialect).body)
    assert all(f'"{text}"' in flat for text in sure_results(body))


@_MANY
@given(lines(), st.sampled_from(DIALECTS), st.booleans())
def test_a_valid_history_comes_back_as_the_same_object(
    line: str, dialect: str, strict: bool
) -> None:
    body = write(dialect, line)
    assert validate(body, dialect) == []
    assert repair(body, dialect).body is body
    repaired = repair(body, dialect, policy=RepairPolicy(strict=strict, live=False))
    assert repaired.body is body


@_MANY
@given(broken())
def test_changes_are_listed_and_never_hold_message_text(case: tuple[str, Json, Json]) -> None:
    dialect, _, body = case
    repaired = repair(body, dialect)
    assert bool(repaired.changes) == (repaired.body is not body)
    listed = json.dumps([[c.what, c.where, c.why] for c in repaired.changes])
    assert not any(f"{word}" in listed.split('"') for word in texts(body, dialect))


@_MANY
@given(broken())
def test_a_refused_repair_changes_nothing_and_says_what_is_left(
    case: tuple[str, Json, Json],
) -> None:
    dialect, _, body = case
    refused = repair(body, dialect, policy=RepairPolicy(allow=lambda change: False))
    assert refused.body is body
    assert refused.left == tuple(validate(body, dialect))


_CONTEXTS = [
    {"model": "claude-opus-5-5"},
    {"model": "claude-haiku-4-5", "thinking": {"type": "enabled", "budget_tokens": 2000}},
    {"model": "claude-sonnet-5", "thinking": {"type": "adaptive"}},
    {"model": "claude-3-5-sonnet", "max_tokens": 100},
    {"model": "deepseek-reasoner"},
    {"model": "deepseek-chat"},
    {"thinking": {"type": "enabled", "budget_tokens": 2000}},
    {"thinking": {"type": "disabled"}},
    {"model": "claude-opus-5-5", "thinking": {"type": "enabled", "budget_tokens": 2000}},
    {"model": "kimi-k2-thinking"},
    {"model": "mistral-large"},
    {"model": "gemini-3-pro-preview"},
    {"model": "gemini-2.5-flash"},
    {"store": False},
    {"previous_response_id": "resp_1"},
]


@settings(_MANY, max_examples=examples(400))
@given(broken(), st.just({}) | st.sampled_from(_CONTEXTS))
def test_whatever_the_request_says_besides_one_repair_mends_all_and_loses_no_text(
    case: tuple[str, Json, Json], fields: Json
) -> None:
    dialect, _, body = case
    body = {**body, **fields}
    repaired = repair(body, dialect)
    assert repaired.left == ()
    assert validate(repaired.body, dialect) == []
    assert repair(repaired.body, dialect).body is repaired.body
    assert not texts(body, dialect) - texts(dict(repaired.body), dialect)


@pytest.mark.hypothesis
@pytest.mark.parametrize("damaged", [False, True])
def test_what_a_glance_calls_clean_the_full_check_calls_clean(
    damaged: bool,
) -> None:
    clean = 0

    @_MANY
    @given(broken(), st.sampled_from(_CONTEXTS))
    def compare(case: tuple[str, Json, Json], fields: Json) -> None:
        nonlocal clean
        dialect, whole, broken_body = case
        body = {**(broken_body if damaged else whole), **fields}
        grammar = api._grammar(body, dialect)
        context = api._context(body, grammar, RepairPolicy(), None, None)
        if grammar.fast_validate(body, context):
            clean += 1
            assert list(api._check(History(grammar, body, context))) == []

    compare()
    assert clean > (20 if examples(200) >= 200 else 0)
