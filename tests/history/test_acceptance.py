"""The acceptance rows of the systems we learned from, by their ids (K, C, A, Q).

`design/history.md` has the table of all rows: where each is tested, or why it is not ours. W rows
are in test_chain and test_chains, log formats in test_sessions, the doors in test_mending*.
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from support.notation import DIALECTS, Json, read, write

from continuation.history import Reason, RepairPolicy, classify, repair, repair_refused, validate
from continuation.history.wordings import WORDINGS

AN, OC, OR, GE = DIALECTS
DEAD = RepairPolicy(live=False)
STRICT = RepairPolicy(strict=True, live=False, duplicate_ids="drop")


def _after(dialect: str, line: str, policy: RepairPolicy | None = None, **fields: Any) -> str:
    repaired = repair(write(dialect, line, **fields), dialect, policy=policy)
    assert repaired.left == ()
    return read(dialect, dict(repaired.body))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("row", "line", "wanted", "policy"),
    [
        ("K01", "U:x A[c:a,c:b]", "U:x A[c:a,c:b] R*:a R*:b", DEAD),
        ("K02", "U:x A[c:a,c:b] R:a", "U:x A[c:a,c:b] R:a R*:b", DEAD),
        (
            "K03",
            "U:x A[c:a] U:y A[c:b] U:z A[c:d] R:d",
            "U:x A[c:a] R*:a U:y A[c:b] R*:b U:z A[c:d] R:d",
            None,
        ),
        ("K05", "U:x A[c:a] R*:a A[t:y] U:z R*:a", "U:x A[c:a] R*:a A[t:y] U:z", None),
        ("K06", "R:q U:x A[t:y] U:z", "U:x A[t:y] U:z", None),
        ("K08", "U:x A[c:a]", "U:x A[c:a]", None),
        ("K08", "U:x A[c:a]", "U:x A[c:a] R*:a", DEAD),
        ("K10", "R:q U:x A[c:a] U:y", "U:x A[c:a] R*:a U:y", STRICT),
        ("K12", "U:x A[c:a] R*:a R:a A[t:y]", "U:x A[c:a] R:a A[t:y]", None),
        ("K17 C03", "U:x A[t:y,c:a] U:z", "U:x A[t:y,c:a] R*:a U:z", None),
        (
            "C02",
            "U:x A[t:y,c:a] U:z",
            "U:x A[t:y] U:z",
            RepairPolicy(unanswered_tool_calls="purge"),
        ),
        ("A13", "U:x A[c:a] U:y A[t:z] U:w", "U:x A[c:a] R*:a U:y A[t:z] U:w", None),
        ("A03 Q02", "U:x A[c:a,c:b] R:a U:y", "U:x A[c:a,c:b] R:a R*:b U:y", None),
        ("Q03", "U:x A[c:a] R:a U:y", "U:x A[c:a] R:a U:y", None),
        ("Q04", "U:x A[c:a] R:a=1 A[t:y] U:z R:a=2", "U:x A[c:a] R:a=1 A[t:y] U:z", None),
        ("Q06", "U:x A[c:a] R:a", "U:x A[c:a] R:a", None),
    ],
)
def test_row_in_every_dialect(
    row: str, line: str, wanted: str, policy: RepairPolicy | None, dialect: str
) -> None:
    assert _after(dialect, line, policy) == wanted, row


@pytest.mark.parametrize("dialect", [AN, OC, GE])
@pytest.mark.parametrize(
    ("row", "line", "wanted"),
    [
        ("K07", "U:x A[c:a] U:y A[t:z] U:w R:a", "U:x A[c:a] R:a U:y A[t:z] U:w"),
        ("K09", "U:x A[c:a,c:b] U:p R:a U:q R:b", "U:x A[c:a,c:b] R:a R:b U:p U:q"),
        ("A12", "U:x A[c:a,c:b] R:b R:a U:y", None),
    ],
)
def test_row_where_results_must_stand_beside_their_calls(
    row: str, line: str, wanted: str | None, dialect: str
) -> None:
    ordered = "U:x A[c:a,c:b] R:a R:b U:y" if dialect == GE else line
    assert _after(dialect, line) == (wanted or ordered), row


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


def test_k11_duplicate_ids_are_kept_where_they_are_accepted_and_strictly_dropped() -> None:
    line = "U:x A[c:a] R:a=1 A[c:a] R:a=2 A[t:y]"
    assert _after(OC, line) == line
    assert _after(OC, line, STRICT) == "U:x A[c:a] R:a=1 A[t:y]"
    assert _after(OC, "U:x A[c:a] A[c:a,c:b] R:a R:b", STRICT) == "U:x A[c:a] R:a A[c:b] R:b"


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


def test_k15_k16_unsigned_thinking_alone_goes_and_signed_thinking_beside_words_stays() -> None:
    assert _after(AN, "U:x A[th-] U:y") == "U:x U:y"
    assert _after(AN, "U:x A[th0+,t:z] U:y") == "U:x A[th0+,t:z] U:y"
    assert _after(OC, "U:x A[th-] U:y") == "U:x U:y"
    assert _after(OC, "U:x A[th-,c:a] R:a") == "U:x A[th,c:a] R:a"


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


def test_a05_thinking_that_was_refused_leaves_no_empty_assistant() -> None:
    policy = RepairPolicy(thinking="strip")
    assert _after(AN, "U:x A[th+,c:a] R:a A[th+,t:y] U:z", policy) == ("U:x A[c:a] R:a A[t:y] U:z")


def test_a06_nothing_is_written_into_empty_messages() -> None:
    assert _after(AN, "U:x A[] U:y") == "U:x U:y"


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
