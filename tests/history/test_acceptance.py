"""The acceptance rows (K, C, A, Q) that a line of `test_vectors.py` cannot say, by their ids.

`design/history.md` has the table of all rows: where each is tested, or why it is not ours.
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest
from support.notation import DIALECTS, Json, read, write

from continuation.history import Reason, RepairPolicy, classify, repair, repair_refused, validate
from continuation.history.wordings import WORDINGS

AN, OC, OR, GE = DIALECTS
DEAD = RepairPolicy(live=False)
STRICT = RepairPolicy(strict=True, live=False, duplicate_ids="drop")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_k04_each_resume_derives_the_same_repair_whatever_was_said_since(dialect: str) -> None:
    """So it need not be written down, and what a prompt cache has seen stays as it was."""
    line = "U:x A[c:a] U:y A[c:b]"
    first = repair(write(dialect, line), dialect, policy=DEAD).body
    later = repair(write(dialect, f"{line} U:z A[t:w] U:v"), dialect).body
    field = next(iter(first))
    seen = [*first[field]]
    if dialect in (AN, GE):  # the last results and the next words share a message there
        seen.pop()
    assert later[field][: len(seen)] == seen


@pytest.mark.parametrize("dialect", DIALECTS)
def test_k24_what_the_user_cancelled_says_so(dialect: str) -> None:
    policy = RepairPolicy(live=False, reason=Reason.CANCELLED)
    made = json.dumps(repair(write(dialect, "U:x A[c:a]"), dialect, policy=policy).body)
    assert "Do not repeat it unasked." in made


def test_vector_45_thinking_that_an_app_has_tampered_with_is_taken_out_not_made_up() -> None:
    error = classify(
        400,
        "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant"
        " message cannot be modified.",
    )
    assert error is not None
    healed = repair_refused(write(AN, "U:x A[th+,c:a] R:a"), error, AN)
    assert read(AN, dict(healed.body)) == "U:x A[c:a] R:a"


ROWS = {"K": 27, "C": 7, "Q": 7, "A": 18, "W": 14}


def test_every_row_is_in_the_table_of_the_design() -> None:
    page = Path(__file__).parents[2] / "design" / "history.md"
    table = [line for line in page.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    named = {row for line in table for row in re.findall(r"\b[KCQAW]\d\d\b", line.split("|")[1])}
    assert named == {f"{kind}{n:02}" for kind, most in ROWS.items() for n in range(1, most + 1)}


@pytest.mark.parametrize("dialect", [AN, OC])
def test_k13_an_id_used_again_while_open_is_superseded(dialect: str) -> None:
    body = write(dialect, "U:x A[c:a] A[c:a] R:a")
    text = str(repair(body, dialect).body)
    assert text.count(WORDINGS[Reason.SUPERSEDED]) == 1


def test_k14_only_blank_texts_are_dropped_and_a_message_left_empty_with_them() -> None:
    blank, real = {"type": "text", "text": " "}, {"type": "text", "text": " hi "}
    body: Json = {"messages": [{"role": "user", "content": [blank, real]}]}
    body["messages"].append({"role": "assistant", "content": [blank]})
    body["messages"].append({"role": "user", "content": "y"})
    made = repair(body, AN).body["messages"]
    said = [{"type": "text", "text": "y"}]
    assert made == [{"role": "user", "content": [real, *said]}]


def test_k19_an_empty_result_is_no_fault_and_a_blank_block_in_one_is_mended() -> None:
    body = write(AN, "U:x A[c:a] R:a")
    body["messages"][2]["content"][0]["content"] = ""
    assert repair(body, AN).body is body
    body["messages"][2]["content"][0]["content"] = [{"type": "text", "text": " "}]
    made = repair(body, AN).body["messages"][2]["content"]
    assert made == [{"type": "tool_result", "tool_use_id": "a"}]


def test_k20_each_repair_is_listed_and_explained_in_the_log_without_texts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    body = write(AN, "R:q U:secret A[c:a] U:y A[t:z,th-] U:w")
    with caplog.at_level(logging.DEBUG, logger="continuation.history"):
        repaired = repair(body, AN)
    whys = {change.why for change in repaired.changes}
    assert {"tool_result_orphan", "tool_result_missing", "thinking_unsigned"} <= whys
    assert len(caplog.records) == len(repaired.changes)
    assert "secret" not in caplog.text
    caplog.clear()
    repair(repaired.body, AN)
    assert caplog.records == []


def test_k23_background_notices_stay_apart_where_the_provider_lets_them() -> None:
    assert len(repair(write(OC, "U:notice U:x"), OC).body["messages"]) == 2
    assert len(repair(write(AN, "U:notice U:x"), AN).body["messages"]) == 2
    assert len(repair(write(GE, "U:notice U:x"), GE).body["contents"]) == 2
    assert len(repair(write(GE, "U:notice U:x"), GE, policy=STRICT).body["contents"]) == 1


@pytest.mark.parametrize(
    "text",
    [
        None,
        "Prompt is too long",
        "context length exceeded",
        "Rate limit exceeded",
        "Tool Debug Summary: expected=1 found=0",
    ],
)
def test_a01_a02_other_errors_and_none_at_all_are_not_recoverable(text: str | None) -> None:
    assert classify(400, {"error": {"message": text}}) is None


def test_a04_a07_thinking_is_never_made_up() -> None:
    thinks: Json = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    for line in ("U:x A[c:a] R:a", "U:x A[t:y,c:a] R:a", "U:x A[th-,c:a] R:a"):
        body = write(AN, line, **thinks)
        error = classify(400, validate(body, AN)[0].message)
        assert error is not None
        made = repair_refused(body, error, AN).body
        assert "'thinking', 'thinking'" not in str(made["messages"])


def test_a14_signatures_of_other_providers_are_stripped() -> None:
    body = write(AN, "U:x A[th+,t:y] U:z")
    body["messages"][1]["content"][0]["signature"] = "skip_thought_signature_validator"
    assert read(AN, dict(repair(body, AN).body)) == "U:x A[t:y] U:z"


def test_a15_a_stuck_loop_of_a_model_that_always_thinks_is_closed_once() -> None:
    error = classify(400, "Expected `thinking` or `redacted_thinking`, but found `tool_use`")
    assert error is not None
    body = write(AN, "U:x A[c:a] R:a", model="claude-opus-5-5")
    healed = repair_refused(body, error, AN)
    assert read(AN, dict(healed.body)).startswith("U:x A[c:a] R:a A[t:")
    assert repair_refused(healed.body, error, AN).body is healed.body
