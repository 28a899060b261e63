"""What histories of other agents and SDKs broke; the shapes are theirs, the words are not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.damage import FIELDS
from support.notation import DIALECTS, Json, read, write
from support.sdks.histories import history, send

from continuation import Policy
from continuation.cli import main
from continuation.history import RepairPolicy, classify, repair, repair_refused
from continuation.history.wordings import CONTINUE, HEAD
from continuation.simulator import Simulator

AN, OC, OR, GE = DIALECTS
ALL, BESIDE, PAIRED = DIALECTS, (AN, OC, GE), (AN, OC)
RULES = [
    # pydantic-ai, langgraph, deepagents: what a crash leaves
    (ALL, "U:x A[c:a]", "U:x A[c:a] R*:a"),
    (ALL, "U:x A[c:a,c:b] R:a", "U:x A[c:a,c:b] R:a R*:b"),
    (ALL, "U:x A[c:a] U:y", "U:x A[c:a] R*:a U:y"),
    (ALL, "U:x A[t:s,c:a] U:y A[t:z] U:w", "U:x A[t:s,c:a] R*:a U:y A[t:z] U:w"),
    (ALL, "U:x A[c:a] R:a A[c:b] R:b A[c:d]", "U:x A[c:a] R:a A[c:b] R:b A[c:d] R*:d"),
    (ALL, "U:x R:a A[c:a] U:y", "U:x A[c:a] R*:a U:y"),
    (ALL, "R:q R:r U:x A[t:y] U:z", "U:x A[t:y] U:z"),
    (ALL, "U:x A[c:a] R:a R:q A[t:y] U:z", "U:x A[c:a] R:a A[t:y] U:z"),
    (ALL, "U:x A[c:a] U:y A[c:b] R:b U:z", "U:x A[c:a] R*:a U:y A[c:b] R:b U:z"),
    (ALL, "U:x A[c:a,c:b,c:d] U:y", "U:x A[c:a,c:b,c:d] R*:a R*:b R*:d U:y"),
    (ALL, "U:x A[t:s,c:a] U:y U:z", "U:x A[t:s,c:a] R*:a U:y U:z"),
    # kimi-code: interrupted steps, what was appended meanwhile, what a log holds twice
    (ALL, "U:x A[c:a,c:b] U:y", "U:x A[c:a,c:b] R*:a R*:b U:y"),
    (ALL, "U:x A[c:a] U:y A[c:b] U:z", "U:x A[c:a] R*:a U:y A[c:b] R*:b U:z"),
    (PAIRED, "U:x A[c:a] A[c:b] A[t:y] U:z", "U:x A[c:a] R*:a A[c:b] R*:b A[t:y] U:z"),
    (BESIDE, "U:x A[c:a] U:s R:a A[t:y] U:z", "U:x A[c:a] R:a U:s A[t:y] U:z"),
    (BESIDE, "U:x A[c:a] U:s U:t R:a U:z", "U:x A[c:a] R:a U:s U:t U:z"),
    (BESIDE, "U:x A[c:a] U:y A[t:z] U:w R:a U:v", "U:x A[c:a] R:a U:y A[t:z] U:w U:v"),
    (ALL, "U:x A[c:a] R:a A[t:y] R*:a U:z", "U:x A[c:a] R:a A[t:y] U:z"),
    (ALL, "U:x A[c:a] R*:a R:a U:z", "U:x A[c:a] R:a U:z"),
    (PAIRED, "U:x A[th-] U:y", "U:x U:y"),
    ((OC,), "U:x A[c:a] R:a=1 A[c:a] R:a=2 U:y", "="),
    # openclaw and its relatives: pairing within a span
    (BESIDE, "U:x A[c:a,c:b] U:late R:b", "U:x A[c:a,c:b] R*:a R:b U:late"),
    (ALL, "U:x A[c:a] R:a=first R:a=second U:y", "U:x A[c:a] R:a=first U:y"),
    (ALL, "R:q U:x A[c:a] R:a U:y", "U:x A[c:a] R:a U:y"),
    (ALL, "U:x A[c:a] R:a A[t:y] U:z R:q", "U:x A[c:a] R:a A[t:y] U:z"),
    # OpenHands: one observation for each action
    (ALL, "U:x A[c:a] R:a=1 R:a=2 A[t:y] U:z", "U:x A[c:a] R:a=1 A[t:y] U:z"),
    (ALL, "U:x A[c:a,c:b] R:a R:b R:a A[t:y] U:z", "U:x A[c:a,c:b] R:a R:b A[t:y] U:z"),
    (ALL, "U:x A[c:a] R:a A[c:b] U:y", "U:x A[c:a] R:a A[c:b] R*:b U:y"),
    # cline, Roo Code: results of parallel calls, results too many
    (BESIDE, "U:x A[c:a,c:b] R:a U:w R:b", "U:x A[c:a,c:b] R:a R:b U:w"),
    (BESIDE, "U:x A[c:a,c:b,c:d] R:b U:y", "U:x A[c:a,c:b,c:d] R*:a R:b R*:d U:y"),
    ((AN, OC, OR), "U:x A[c:a,c:a] R:a U:y", "U:x A[c:a] R:a U:y"),
    (ALL, "U:x A[c:a] R:a R:b R:d U:y", "U:x A[c:a] R:a U:y"),
    # openai-agents, codex: Responses items
    ((OR,), "U:x A[th+,c:a] U:y", "U:x A[th,c:a] R*:a U:y"),
    ((OR,), "U:x A[th+,t:y] U:z", "="),
    ((OR,), "U:x A[c:a] U:y R:a", "="),
    ((OR,), "R:q A[t:y] U:x", "A[t:y] U:x"),
    # gemini-cli: order and heads
    ((GE,), "U:x A[c:a,c:b] R:b R:a", "U:x A[c:a,c:b] R:a R:b"),
    ((AN, GE), "A[t:hi] U:x", "U:HEAD A[t:hi] U:x"),
    ((GE,), "A[t:hi] A[c:a] R:a U:x", "U:HEAD A[t:hi] A[c:a] R:a U:x"),
    ((GE,), "U:x A[c:a] A[c:b] R:a R:b", "U:x A[c:a,c:b] R:a R:b"),
    ((GE,), "U:x A[] U:y A[t:z] U:w", "U:x U:y A[t:z] U:w"),
    # qwen-code: results that come late, an answer that broke off
    (ALL, "U:x A[c:a] R:a=1 A[t:y] U:z R:a=2", "U:x A[c:a] R:a=1 A[t:y] U:z"),
    (BESIDE, "U:x A[c:a,c:b] R:b U:y", "U:x A[c:a,c:b] R*:a R:b U:y"),
    (BESIDE, "U:x A[c:a] U:y R:a", "U:x A[c:a] R:a U:y"),
    (BESIDE, "U:x A[c:a] R*:a A[t:y] U:z R:a", "U:x A[c:a] R:a A[t:y] U:z"),
    # reports about Claude Code, and Antigravity's three errors
    ((AN,), "U:x A[c:a,t:y] R:a", "U:x A[t:y,c:a] R:a"),
    ((AN,), "U:x A[th+,c:a,t:y] R:a U:z", "U:x A[th+,c:a] R:a A[t:y] U:z"),
    (ALL, "U:x A[t:y] R:a U:z", "U:x A[t:y] U:z"),
    (BESIDE, "U:x A[c:a,c:b,c:d] R:a R:d U:y", "U:x A[c:a,c:b,c:d] R:a R*:b R:d U:y"),
    ((AN,), "U:x A[th+,c:a] U:y", "U:x A[th+,c:a] R*:a U:y"),
    ((AN,), "U:x A[t:y,th+] U:z", "U:x A[t:y] U:z"),
    ((AN,), "U:x A[th-,t:y] U:z", "U:x A[t:y] U:z"),
    ((AN,), "U:x A[th+,th+,c:a] R:a", "U:x A[c:a] R:a"),
    ((AN,), "U:x A[t:y,s:w] U:z", "U:x A[t:y] U:z"),
    # a compaction that cut between a call and its result
    (ALL, "R:a U:x", "U:x"),
    ((AN, GE), "R:a A[t:y] U:x", "U:HEAD A[t:y] U:x"),
    ((AN, GE), "A[c:a] R:a U:x", "U:HEAD A[c:a] R:a U:x"),
    # a trailing orphan: its removal must not make a prefill
    (ALL, "U:x A[t:y] R:q", "U:x A[t:y] U:GO"),
    # nothing left
    (ALL, "R:q", "U:HEAD"),
    # whole ones
    (ALL, "U:x", "="),
    (ALL, "U:x A[t:y] U:z", "="),
    (ALL, "U:x A[c:a,c:b] R:a R:b A[t:y] U:z", "="),
    (ALL, "U:x A[t:s,c:a] R:a A[c:b] R:b A[t:y] U:z", "="),
    (ALL, "U:x A[c:a] R:a A[t:y] U:z A[c:b] R:b A[t:w] U:v", "="),
    (PAIRED, "U:x A[c:a,c:b] R:b R:a U:y", "="),
]
"""What most of them agree in: the formats, the history, and what a repair makes of it."""

OPINIONS = [
    # Theirs, and ours beside it. openai-agents drops a call that has no result, and pi all of an
    # answer that broke off: what the model said and tried is lost, and it does it again.
    ((OR,), "U:x A[c:a] U:y", "U:x U:y", "U:x A[c:a] R*:a U:y"),
    (ALL, "U:x A[t:y,c:a] U:z", "U:x U:z", "U:x A[t:y,c:a] R*:a U:z"),
    # Roo Code gives a result of another id to the call in its place: it may be another call's.
    (PAIRED, "U:x A[c:a] R:q U:y", "U:x A[c:a] R:a U:y", "U:x A[c:a] R*:a U:y"),
    # gemini-cli makes up a call for a result: the model never made it.
    ((GE,), "U:x A[t:y] R:q U:z", "U:x A[t:y,c:q] R:q U:z", "U:x A[t:y] U:z"),
    # kimi-code lets the first call of an id win: what the second one brought is lost.
    (
        (AN,),
        "U:x A[c:a] R:a=1 A[c:a] R:a=2 U:y",
        "U:x A[c:a] R:a=1 U:y",
        "U:x A[c:a] R:a=1 A[c:a_2] R:a_2=2 U:y",
    ),
    # OpenHands drops a whole loop of tools that began with thinking: its results are lost.
    ((AN,), "U:x A[th+,c:a] R:a A[c:b] U:y", "U:x U:y", "U:x A[th+,c:a] R:a A[c:b] R*:b U:y"),
    # Antigravity's plug-in answers all calls of a message anew, those that have an answer too.
    (
        (AN,),
        "U:x A[c:a,c:b] R:a U:y",
        "U:x A[c:a,c:b] R*:a R*:b U:y",
        "U:x A[c:a,c:b] R:a R*:b U:y",
    ),
]


def _read(dialect: str, body: Any) -> str:
    return read(dialect, dict(body)).replace(HEAD, "HEAD").replace(CONTINUE, "GO")


def _purely(dialect: str, body: Json, tmp_path: Path, sim: Simulator) -> Any:
    del tmp_path, sim
    done = repair(body, dialect, policy=RepairPolicy(live=False))
    assert bool(done.changes) == (done.body is not body)
    return done.body


def _saved(dialect: str, body: Json, tmp_path: Path, sim: Simulator) -> Any:
    """By the command line; nobody is about to ask for an answer there."""
    del sim
    path = tmp_path / "body.json"
    path.write_text(json.dumps(body))
    found = main(["check", str(path)])
    assert main(["repair", str(path)]) == 0
    made = tmp_path / "body.repaired.json"
    assert found == made.exists()
    assert main(["check", str(made if found else path)]) == 0
    return json.loads((made if found else path).read_bytes())


def _sent(dialect: str, body: Json, tmp_path: Path, sim: Simulator) -> Any:
    """By a wrapped client, to a server that is as strict as the provider."""
    del tmp_path
    ran = send(sim, dialect, body, policy=Policy(repair="before_send"))
    assert (ran.statuses, ran.error) == ([200], None)
    return ran.sent[0]


@pytest.fixture(scope="module")
def server() -> Iterator[Simulator]:
    with Simulator(answer="All is well.") as running:
        yield running


@pytest.mark.parametrize(
    "way",
    [
        _purely,
        pytest.param(_saved, marks=pytest.mark.slow),
        pytest.param(_sent, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    ("dialect", "line", "wanted", "theirs"),
    [(dialect, line, wanted, "") for where, line, wanted in RULES for dialect in where]
    + [
        (dialect, line, ours, theirs) for where, line, theirs, ours in OPINIONS for dialect in where
    ],
)
def test_what_others_broke_is_mended_the_same_way_through_each_door(
    way: Callable[..., Any],
    dialect: str,
    line: str,
    wanted: str,
    theirs: str,
    tmp_path: Path,
    server: Simulator,
) -> None:
    body = history(dialect, line)
    made = _read(dialect, way(dialect, body, tmp_path, server))
    wanted = _read(dialect, body) if wanted == "=" else wanted
    assert made == (wanted.removesuffix(" U:GO") if way is _saved else wanted)
    assert made != theirs


def _gemini(calls: list[Json], answers: list[Json]) -> Json:
    return {
        "contents": [
            {"role": "user", "parts": [{"text": "x"}]},
            {"role": "model", "parts": [{"functionCall": {"args": {}, **call}} for call in calls]},
            {"role": "user", "parts": [{"functionResponse": answer} for answer in answers]},
            {"role": "user", "parts": [{"text": "y"}]},
        ]
    }


def test_a_result_whose_id_is_its_agents_own_answers_a_call_without() -> None:
    """gemini-cli gives results an id where the model gave the call none (its issue 6974)."""
    calls = [{"name": "look"}, {"name": "look"}, {"name": "go"}]
    answers = [
        {"id": f"{call['name']}-175589928-{n}", "name": call["name"], "response": {"output": "ok"}}
        for n, call in enumerate(calls)
    ]
    body = _gemini(calls, answers)
    assert repair(body, GE, policy=RepairPolicy(live=False)).body is body
    one = repair(_gemini(calls, answers[1:]), GE, policy=RepairPolicy(live=False))
    assert [change.what for change in one.changes][:1] == ["synthesize_result"]
    assert str(one.body).count("175589928") == len(answers) - 1


def test_a_result_with_an_id_is_not_for_a_call_with_another() -> None:
    answer = {"id": "other", "name": "tool", "response": {"output": "not yours"}}
    body = _gemini([{"name": "tool", "id": "mine"}], [answer])
    assert "not yours" not in str(repair(body, GE, policy=RepairPolicy(live=False)).body)


def test_results_without_id_answer_calls_in_their_order_with_id_or_without() -> None:
    calls: list[Json] = [{"name": "look", "id": "q"}, {"name": "look"}]
    answers: list[Json] = [{"name": "look", "response": {"output": word}} for word in ("a", "b")]
    body = _gemini(calls, answers)
    assert repair(body, GE, policy=RepairPolicy(live=False, strict=True)).left == ()
    assert repair(body, GE, policy=RepairPolicy(live=False)).body is body


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
