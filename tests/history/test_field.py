"""What histories of other agents and SDKs broke; the shapes are theirs, the words are not."""

from __future__ import annotations

from typing import Any

import pytest
from support.damage import FIELDS
from support.notation import DIALECTS, Json, read, write

from continuation.history import RepairPolicy, classify, repair, repair_refused

AN, OC, OR, GE = DIALECTS
ALL, BESIDE = DIALECTS, (AN, OC, GE)
RULES = [
    # pydantic-ai, langgraph, deepagents: what a crash leaves
    (ALL, "U:x A[c:a]", "U:x A[c:a] R*:a"),
    (ALL, "U:x A[c:a,c:b] R:a", "U:x A[c:a,c:b] R:a R*:b"),
    (ALL, "U:x A[c:a] U:y", "U:x A[c:a] R*:a U:y"),
    (ALL, "U:x A[t:s,c:a] U:y A[t:z] U:w", "U:x A[t:s,c:a] R*:a U:y A[t:z] U:w"),
    # openclaw and its relatives: pairing within a span
    (BESIDE, "U:x A[c:a,c:b] U:late R:b", "U:x A[c:a,c:b] R*:a R:b U:late"),
    (ALL, "U:x A[c:a] R:a=first R:a=second U:y", "U:x A[c:a] R:a=first U:y"),
    (ALL, "R:q U:x A[c:a] R:a U:y", "U:x A[c:a] R:a U:y"),
    (ALL, "U:x A[c:a] R:a A[t:y] U:z R:q", "U:x A[c:a] R:a A[t:y] U:z"),
    # gemini-cli: order and heads
    ((GE,), "U:x A[c:a,c:b] R:b R:a", "U:x A[c:a,c:b] R:a R:b"),
    ((AN, GE), "A[t:hi] U:x", "U:Lost. A[t:hi] U:x"),
    ((GE,), "A[t:hi] A[c:a] R:a U:x", "U:Lost. A[t:hi] A[c:a] R:a U:x"),
    # a trailing orphan: its removal must not make a prefill
    (ALL, "U:x A[t:y] R:q", "U:x A[t:y] U:Go."),
    # nothing left
    (ALL, "R:q", "U:Lost."),
    # whole ones
    (ALL, "U:x A[t:y] U:z", "="),
    (ALL, "U:x A[c:a,c:b] R:a R:b A[t:y] U:z", "="),
    (ALL, "U:x A[t:s,c:a] R:a A[c:b] R:b A[t:y] U:z", "="),
]


@pytest.mark.parametrize(
    ("dialect", "line", "wanted"), [(d, line, to) for ds, line, to in RULES for d in ds]
)
def test_a_rule_that_others_keep_is_kept(dialect: str, line: str, wanted: str) -> None:
    policy = RepairPolicy(live=False, head_text="Lost.", continue_text="Go.")
    body = write(dialect, line)
    done = repair(body, dialect, policy=policy)
    assert (done.body is body) == (wanted == "=")
    assert wanted in ("=", read(dialect, dict(done.body)))


def test_a_result_with_an_id_is_not_for_a_call_without() -> None:
    call = {"functionCall": {"name": "tool", "args": {}}}
    answer = {"id": "other", "name": "tool", "response": {"output": "not yours"}}
    body = {
        "contents": [
            {"role": "user", "parts": [{"text": "x"}]},
            {"role": "model", "parts": [call]},
            {"role": "user", "parts": [{"functionResponse": answer}]},
        ]
    }
    assert "not yours" not in str(repair(body, GE, policy=RepairPolicy(live=False)).body)


def test_a_made_up_search_result_claims_nothing() -> None:
    call = {"type": "tool_search_call", "call_id": "a", "execution": "client", "arguments": {}}
    body = {"input": [{"role": "user", "content": "x"}, call]}
    made = repair(body, OR, policy=RepairPolicy(live=False)).body["input"][-1]
    assert (made["status"], made["tools"]) == ("incomplete", [])


THOUGHT: Json = {"type": "thinking", "thinking": "hm", "signature": ""}


@pytest.mark.parametrize(
    ("model", "stays"),
    [("kimi-k2.6", True), ("deepseek-v4", True), ("glm-5", True), ("claude-opus-5", False)],
)
def test_unsigned_thinking_is_its_vendor_s_to_judge(model: str, stays: bool) -> None:
    body: dict[str, Any] = {"model": model, **write(AN, "U:x A[t:y] U:z")}
    body["messages"][1]["content"].insert(0, THOUGHT)
    assert (repair(body, AN).body is body) == stays


@pytest.mark.parametrize(
    "text",
    [
        "The `content[].thinking` in the thinking mode must be passed back to the API.",
        "thinking is enabled but reasoning_content is missing in assistant tool call message at 1",
    ],
)
def test_thinking_that_a_vendor_misses_is_turned_off_and_never_made_up(text: str) -> None:
    body = {"model": "kimi-k2.6", **write(AN, "U:x A[c:a] R:a")}
    error = classify(400, text)
    assert error is not None
    assert repair_refused(body, error, AN).body["thinking"] == {"type": "disabled"}


@pytest.mark.parametrize("dialect", [OC])
def test_a_chat_template_gets_its_alternation_once_it_has_asked(dialect: str) -> None:
    body = write(dialect, "U:x U:y A[t:z] U:w")
    error = classify(400, "Conversation roles must alternate user/assistant/user/assistant/...")
    assert error is not None
    assert repair(body, dialect, policy=RepairPolicy(live=False)).body is body
    done = repair_refused(body, error, dialect)
    assert done.body[FIELDS[dialect]][0]["content"] == "x\n\ny"
