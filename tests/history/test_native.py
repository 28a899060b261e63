"""Vectors and acceptance rows that need a body of their own; ids as in the facts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.notation import DIALECTS, Facts, Json, anthropic_block, chat_call, read, write

from continuation.history import (
    Decision,
    NewSessionWanted,
    OpenCall,
    Reason,
    RepairPolicy,
    classify,
    plan,
    repair,
    repair_refused,
    unanswered_tool_calls,
    validate,
)
from continuation.history.wordings import WORDINGS, looks_synthetic

AN, OC, OR, GE = DIALECTS
DEAD = RepairPolicy(live=False)
MANUAL: Json = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


def _mended(dialect: str, body: Json, policy: RepairPolicy | None = None, **more: Any) -> Json:
    repaired = repair(body, dialect, policy=policy, **more)
    return dict(repaired.body)


# -- anthropic -----------------------------------------------------------------------------------


def test_vector_29_ids_of_another_provider_are_mapped_on_both_sides() -> None:
    long = "fc_" + "x" * 440 + "|call"
    body = write(AN, f"U:x A[c:{long}] R:{long}=ok U:y")
    made = _mended(AN, body)["messages"]
    new = made[1]["content"][0]["id"]
    assert len(new) <= 64
    assert made[2]["content"][0]["tool_use_id"] == new
    assert _mended(AN, body)["messages"][1]["content"][0]["id"] == new


def test_vector_36_a_loop_without_its_thinking_turns_thinking_off_for_the_request() -> None:
    made = _mended(AN, write(AN, "U:x A[c:a] R:a", **MANUAL))
    assert made["thinking"] == {"type": "disabled"}
    assert read(AN, made) == "U:x A[c:a] R:a"


def test_vector_37_where_thinking_cannot_be_turned_off_the_loop_is_closed() -> None:
    body = write(AN, "U:x A[c:a] R:a", **MANUAL)
    made = _mended(
        AN, body, RepairPolicy(loop_text="done", continue_text="on"), facts=Facts(thinking="always")
    )
    assert read(AN, made) == "U:x A[c:a] R:a A[t:done] U:on"
    assert made["thinking"] == {"type": "adaptive"}


def test_vector_44_or_the_server_is_asked_to_drop_it() -> None:
    body = write(AN, "U:x A[th+,c:a] U:y A[th+,t:z] U:w")
    repaired = repair(
        body, AN, policy=RepairPolicy(binding="drop_block"), facts=Facts(binding=True)
    )
    assert repaired.body["thinking"] == {
        "type": "adaptive",
        "block_binding": {"prefix_mismatch_behavior": "drop_block"},
    }
    assert repaired.headers == {"anthropic-beta": "thinking-binding-controls-2026-08-01"}
    assert "th+,t:z" in read(AN, dict(repaired.body))


def test_vector_47_blank_texts_go_and_white_space_around_words_stays() -> None:
    blocks = [anthropic_block("t", text) for text in ("", "  \n", "  hi ")]
    body = {"messages": [{"role": "user", "content": blocks}]}
    assert _mended(AN, body)["messages"] == [{"role": "user", "content": blocks[2:]}]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_vector_48_an_assistant_that_says_nothing_is_dropped(dialect: str) -> None:
    nothing: dict[str, Json] = {
        AN: {"role": "assistant", "content": [{"type": "text", "text": " "}]},
        OC: {"role": "assistant", "content": " "},
        OR: {"role": "assistant", "content": " "},
        GE: {"role": "model", "parts": [{"text": " "}]},
    }
    body = write(dialect, "U:x U:y")
    field = next(iter(body))
    body[field].insert(1, nothing[dialect])
    assert read(dialect, _mended(dialect, body)) == "U:x U:y"
    merged = {AN: 1, OC: 2, OR: 2, GE: 1}
    assert len(_mended(dialect, body)[field]) == merged[dialect]


def test_vector_49_trailing_white_space_of_a_prefill_is_trimmed() -> None:
    body = {
        "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "f \n"}]
    }
    assert _mended(AN, body)["messages"][1] == {"role": "assistant", "content": "f"}


def test_vector_56_undeclared_tools_are_declared_and_not_offered() -> None:
    made = _mended(AN, write(AN, "U:x A[c:a] R:a", max_tokens=10))
    assert made["tools"] == [
        {"name": "tool", "input_schema": {"type": "object", "additionalProperties": True}}
    ]
    assert made["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize("tail", ["", " U:y"])
def test_vector_59_a_call_with_cut_arguments_is_answered_as_not_run_even_if_last(tail: str) -> None:
    body = write(AN, "U:x A[c:a]" + tail)
    body["messages"][1]["content"][0]["input"] = '{"path":"/a","content":"he'
    made = _mended(AN, body)
    assert made["messages"][1]["content"][0]["input"] == {}
    answer = made["messages"][2]["content"][0]
    assert answer["content"] == WORDINGS[Reason.ARGS_TRUNCATED]
    assert answer["is_error"] is True


def test_vector_60_a_call_that_only_its_runner_knows_to_be_cut() -> None:
    body = write(AN, "U:x A[c:a] U:y")
    policy = RepairPolicy(
        reason=lambda call: Reason.ARGS_TRUNCATED if call.id == "a" else Reason.RESULT_LOST
    )
    assert WORDINGS[Reason.ARGS_TRUNCATED] in json.dumps(_mended(AN, body, policy))


# -- chat ----------------------------------------------------------------------------------------


def test_vector_28_an_empty_id_is_filled_on_both_sides() -> None:
    body = write(OC, "U:x A[c:a] R:a U:y")
    body["messages"][1]["tool_calls"][0]["id"] = body["messages"][2]["tool_call_id"] = ""
    made = _mended(OC, body)["messages"]
    assert made[1]["tool_calls"][0]["id"] == made[2]["tool_call_id"] != ""


def test_vector_30_mistral_ids_are_nine_letters_or_digits() -> None:
    made = _mended(OC, write(OC, "U:x A[c:call_1] R:call_1", model="mistral-large"))["messages"]
    assert made[1]["tool_calls"][0]["id"].isalnum()
    assert len(made[1]["tool_calls"][0]["id"]) == 9
    assert made[1]["tool_calls"][0]["id"] == made[2]["tool_call_id"]


def test_vector_61_cut_arguments_go_as_an_empty_object() -> None:
    calls = [chat_call("a", '{"a": 1, "b": "xx')]
    body = write(OC, "U:x")
    body["messages"].append({"role": "assistant", "content": None, "tool_calls": calls})
    made = _mended(OC, body)["messages"]
    assert made[1]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert made[2]["content"] == WORDINGS[Reason.ARGS_TRUNCATED]


def test_vector_62_deepseek_wants_null_beside_calls() -> None:
    body = write(OC, "U:x A[c:a] R:a", model="deepseek-chat")
    body["messages"][1]["content"] = ""
    assert _mended(OC, body)["messages"][1]["content"] is None
    body["model"] = "gpt-5"
    assert repair(body, OC).body is body


def test_vector_63_lost_reasoning_is_marked_as_lost_on_calls_only() -> None:
    body = write(OC, "U:x A[c:a] R:a A[t:y] U:z", model="kimi-k2-thinking")
    made = _mended(OC, body, RepairPolicy(reasoning_text="lost"))["messages"]
    assert [message.get("reasoning_content") for message in made] == [None, "lost", *[None] * 3]
    kept = write(OC, "U:x A[th-,c:a] R:a", model="kimi-k2-thinking")
    assert repair(kept, OC).body is kept


# -- responses -----------------------------------------------------------------------------------


def test_vectors_70_and_71_items_without_their_reasoning_lose_their_ids() -> None:
    body = write(OR, "U:x A[th+,t:y] U:z A[c:a,t:w] R:a U:v")
    body["input"][4]["id"], body["input"][5]["id"] = "fc_1", "msg_1"
    made = _mended(OR, body, RepairPolicy(strict=True))["input"]
    assert "id" not in made[4]
    assert "id" not in made[5]
    assert repair(body, OR).body is body


def test_vector_72_unstored_reasoning_goes_with_the_ids_that_hang_on_it() -> None:
    body = write(OR, "U:x A[th+,c:a] R:a U:y", store=False)
    body["input"][2]["id"] = "fc_1"
    assert repair(body, OR).body is body
    del body["input"][1]["encrypted_content"]
    made = _mended(OR, body)["input"]
    assert [item.get("type") for item in made[1:3]] == ["function_call", "function_call_output"]
    assert "id" not in made[1]


def test_vector_73_one_item_id_on_two_calls_is_stripped_and_both_are_kept() -> None:
    body = write(OR, "U:x A[c:a] R:a A[c:b] R:b")
    body["input"][1]["id"] = body["input"][3]["id"] = "fc_1"
    made = _mended(OR, body)["input"]
    assert read(OR, {"input": made}) == "U:x A[c:a] R:a A[c:b] R:b"
    assert [item.get("id") for item in made] == [None, "fc_1", None, None, None]


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ({"type": "local_shell_call", "action": {}}, {"type": "function_call_output"}),
        ({"type": "custom_tool_call", "name": "t"}, {"type": "custom_tool_call_output"}),
        ({"type": "tool_search_call"}, {"type": "tool_search_output", "tools": []}),
        ({"type": "shell_call"}, {"type": "shell_call_output"}),
        ({"type": "apply_patch_call"}, {"type": "apply_patch_call_output", "status": "failed"}),
    ],
)
def test_vector_74_every_kind_of_call_gets_its_own_kind_of_output(call: Json, answer: Json) -> None:
    body = write(OR, "U:x U:y")
    body["input"].insert(1, {**call, "call_id": "k"})
    made = _mended(OR, body)["input"][2]
    assert made["call_id"] == "k"
    assert answer.items() <= made.items()


def test_a_computer_call_cannot_be_answered_in_words_and_goes() -> None:
    body = write(OR, "U:x U:y")
    body["input"].insert(1, {"type": "computer_call", "call_id": "k", "action": {}})
    assert read(OR, _mended(OR, body)) == "U:x U:y"


def test_vector_75_a_search_of_the_server_needs_no_call() -> None:
    body = write(OR, "U:x U:y")
    body["input"].insert(1, {"type": "tool_search_output", "execution": "server", "tools": []})
    assert repair(body, OR).body is body


def test_vector_84_a_call_of_an_incomplete_answer_is_not_replayed() -> None:
    body = write(OR, "U:x A[th+,t:y,c:a] U:z")
    body["input"][3].update(arguments='{"a', status="incomplete")
    assert read(OR, _mended(OR, body)) == "U:x A[th,t:y] U:z"


# -- gemini --------------------------------------------------------------------------------------


def _without_ids(body: Json) -> Json:
    return dict(
        json.loads(
            json.dumps(body),
            object_pairs_hook=lambda pairs: {key: value for key, value in pairs if key != "id"},
        )
    )


def test_vector_86_calls_without_ids_are_answered_first_in_first_out_by_name() -> None:
    clean = _without_ids(write(GE, "U:x A[c:a,c:b] R:a=1 R:b=2 A[t:y] U:z"))
    assert repair(clean, GE).body is clean
    gap = _without_ids(write(GE, "U:x A[c:a,c:b] R:a=1 U:z"))
    parts = _mended(GE, gap)["contents"][2]["parts"]
    assert [list(part) for part in parts] == [["functionResponse"], ["functionResponse"], ["text"]]
    assert parts[0]["functionResponse"]["response"] == {"output": "1"}
    assert looks_synthetic(parts[1]["functionResponse"]["response"]["error"])


def test_vectors_88_and_89_only_the_first_call_of_a_step_of_this_turn_is_signed() -> None:
    body = write(GE, "U:x A[c:a] R:a A[t:y] U:z A[c:b,c:d] R:b R:d A[c:e] R:e")
    made = _mended(GE, body, model="gemini-3-pro-preview")["contents"]
    signed = [
        part["functionCall"]["id"]
        for content in made
        for part in content["parts"]
        if "thoughtSignature" in part
    ]
    assert signed == ["b", "e"]
    assert repair(body, GE, model="gemini-2.5-pro").body is body


def test_vector_90_a_turn_with_a_response_and_text_is_still_of_the_loop() -> None:
    body = write(GE, "U:x A[c:a] R:a U:more A[c:b] R:b")
    body["contents"][2]["parts"] += body["contents"].pop(3)["parts"]
    made = _mended(GE, body, model="gemini-3-flash")
    assert json.dumps(made).count("skip_thought_signature_validator") == 2


def test_vector_94_a_signature_on_an_empty_text_stays() -> None:
    body = write(GE, "U:x A[t:y] U:z")
    body["contents"][1]["parts"].append({"text": "", "thoughtSignature": "Zm9v"})
    assert repair(body, GE).body is body


# -- all -----------------------------------------------------------------------------------------


def test_untouched_messages_are_the_same_objects() -> None:
    body = write(AN, "U:x A[t:y] U:z A[c:a] U:w")
    made = _mended(AN, body)["messages"]
    assert all(a is b for a, b in zip(made[:4], body["messages"][:4], strict=True))


def test_vector_100_a_tools_words_about_errors_change_nothing() -> None:
    body = write(AN, "U:x A[c:a] R:a")
    body["messages"][2]["content"][0]["content"] = (
        "messages.1: `tool_use` ids were found without `tool_result` blocks"
    )
    assert repair(body, AN, policy=DEAD).body is body


def test_vector_106_each_reason_has_a_text_of_its_own() -> None:
    texts = {
        json.dumps(_mended(AN, write(AN, "U:x A[c:a] U:y"), RepairPolicy(reason=reason)))
        for reason in Reason
    }
    assert len(texts) == len(Reason)
    assert all(looks_synthetic(WORDINGS[reason]) for reason in Reason)


def test_wordings_are_policy_and_may_name_the_tool() -> None:
    policy = RepairPolicy(wordings={Reason.STARTED_UNKNOWN: "[no result] {name} was cut"})
    made = json.dumps(_mended(AN, write(AN, "U:x A[c:a] U:y"), policy))
    assert "[no result] tool was cut" in made


# -- what the policy decides ---------------------------------------------------------------------


def test_c01_open_calls_are_listed_with_name_arguments_and_place() -> None:
    body = write(AN, "U:x A[c:a] U:y A[c:b]")
    assert unanswered_tool_calls(body) == (
        OpenCall("a", "tool", {"n": 1}, "messages[1].content[0]", trailing=False),
        OpenCall("b", "tool", {"n": 1}, "messages[3].content[0]", trailing=True),
    )


def test_c04_ask_is_shown_the_open_calls_and_decides_for_each() -> None:
    shown: list[tuple[OpenCall, ...]] = []

    def ask(calls: tuple[OpenCall, ...]) -> dict[str, Decision]:
        shown.append(calls)
        return {"a": "purge", "b": "synthesize"}

    body = write(AN, "U:x A[c:a,c:b] U:y")
    policy = RepairPolicy(unanswered_tool_calls="ask", ask=ask)
    assert read(AN, _mended(AN, body, policy)) == "U:x A[c:b] R*:b U:y"
    assert [call.id for call in shown[0]] == ["a", "b"]
    assert len(shown) == 1


def test_c04_ask_may_choose_a_new_session() -> None:
    policy = RepairPolicy(unanswered_tool_calls="ask", ask=lambda calls: "new_session")
    with pytest.raises(NewSessionWanted) as raised:
        repair(write(OC, "U:x A[c:a] U:y"), OC, policy=policy)
    assert [call.id for call in raised.value.calls] == ["a"]


def test_asking_without_somebody_to_ask_is_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match=r'unanswered_tool_calls="ask" needs ask='):
        RepairPolicy(unanswered_tool_calls="ask")


def test_a_wrong_policy_value_names_field_value_and_choices() -> None:
    with pytest.raises(ValueError, match=r"thinking='maybe': use one of keep, strip, off"):
        RepairPolicy(thinking="maybe")  # type: ignore[arg-type]


@pytest.mark.parametrize("body", ["messages", b"{}", [{"role": "user"}], None])
def test_what_is_no_body_at_all_is_said_to_be_none(body: Any) -> None:
    for look in (validate, repair):
        with pytest.raises(TypeError, match=f"must be a mapping, not {type(body).__name__}"):
            look(body)


def test_an_unknown_dialect_and_a_body_without_history_say_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"dialect='claude': use one of anthropic, openai-chat"):
        validate({"messages": []}, "claude")
    with pytest.raises(ValueError, match="no list `messages`, `contents` or `input`"):
        validate({"prompt": "x"})


def test_a_plan_can_be_shown_and_single_changes_refused() -> None:
    body = write(AN, "U:x A[c:a] U:y A[t:z,th-] U:w")
    planned = plan(body)
    assert {change.what for change in planned.changes} == {
        "synthesize_result",
        "merge_messages",
        "drop_thinking",
    }
    policy = RepairPolicy(allow=lambda change: change.what == "drop_thinking")
    partly = repair(body, policy=policy)
    assert read(AN, dict(partly.body)) == "U:x A[c:a] U:y A[t:z] U:w"
    assert [violation.code for violation in partly.left] == ["tool_result_missing"]


@pytest.mark.parametrize(
    ("line", "dialect"),
    [
        ("U:x A[c:a] R:a", AN),
        ("U:x A[c:a] R:a", OC),
        ("U:x A[c:a] R:a", OR),
        ("U:x A[c:a] R:a", GE),
        ("U:x A[th+,t:y]", AN),
        ("U:x A[t:y]", OC),
    ],
)
def test_the_dialect_is_told_from_the_shape(line: str, dialect: str) -> None:
    from continuation.history.detect import detect

    body = write(dialect, line)
    if "tool_calls" not in json.dumps(body) and dialect == AN:
        body["max_tokens"] = 1
    assert detect(body) == dialect


# -- situations ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_kimi_code_killed_while_a_tool_runs_goes_on_after_resume(dialect: str) -> None:
    """MoonshotAI/kimi-code#269: every later message was refused, and so was compacting."""
    saved = "U:task A[t:on,c:a,c:b] R:a"
    resumed = write(dialect, f"{saved} U:continue U:again")
    assert [v.code for v in validate(resumed, dialect) if "alternat" not in v.code] == [
        "tool_result_missing"
    ]
    made = _mended(dialect, resumed)
    assert read(dialect, made) == "U:task A[t:on,c:a,c:b] R:a R*:b U:continue U:again"
    slice_to_compact = write(dialect, saved)
    assert "R*:b" in read(dialect, _mended(dialect, slice_to_compact, DEAD))


def test_claude_code_interrupted_and_continued_closes_purges_or_asks() -> None:
    """Ctrl+C in a tool, then --continue: `tool_use` ids were found without `tool_result` blocks."""
    body = write(AN, "U:task A[th+,t:on,c:a] U:continue")
    (error,) = [classify(400, violation.message) for violation in validate(body, AN)]
    assert error is not None
    assert (error.code, error.index, error.ids) == ("tool_result_missing", 1, ())
    healed = repair_refused(body, error, AN)
    assert read(AN, dict(healed.body)) == "U:task A[th+,t:on,c:a] R*:a U:continue"
    purged = _mended(AN, body, RepairPolicy(unanswered_tool_calls="purge"))
    assert read(AN, purged) == "U:task A[th+,t:on] U:continue"


def test_antigravity_thinking_errors_are_told_from_pairing_and_healed() -> None:
    """opencode-antigravity-auth: the text on thinking order names tool_use and tool_result too."""
    body = write(AN, "U:task A[t:on,c:a] R:a", **MANUAL)
    (violation,) = validate(body, AN)
    assert "tool_use" in violation.message
    assert "tool_result" in violation.message
    error = classify(400, violation.message)
    assert error is not None
    assert (error.code, error.family) == ("thinking_missing", "thinking")
    healed = repair_refused(body, error, AN)
    assert healed.body["thinking"] == {"type": "disabled"}
    assert validate(healed.body, AN, strict=True, live=False) == []


def test_a_signature_only_the_provider_can_judge_is_stripped_after_its_error() -> None:
    body = write(AN, "U:x A[th+,t:y] U:z A[th+,c:a] R:a")
    assert validate(body, AN) == []
    error = classify(400, "messages.1.content.0: Invalid `signature` in `thinking` block")
    assert error is not None
    healed = repair_refused(body, error, AN)
    assert read(AN, dict(healed.body)) == "U:x A[t:y] U:z A[c:a] R:a"
    assert repair_refused(healed.body, error, AN).body is healed.body


@pytest.mark.parametrize(
    ("dialect", "line", "text"),
    [
        (OR, "U:x A[th+,c:a] R:a", "The encrypted content gAAA could not be verified."),
        (
            GE,
            "U:x A[th+,t:y] U:z",
            "Unable to submit request because Thought signature is not valid",
        ),
        (OC, "U:x A[th-,t:y] U:z", "property 'messages.1.reasoning_content' is unsupported"),
        (OC, "U:x A[c:a] R:a", "thinking is enabled but reasoning_content is missing in assistant"),
        (AN, "U:x A[t:y]", "This model does not support assistant message prefill."),
        (AN, "U:x U:y", 'messages: roles must alternate between "user" and "assistant"'),
    ],
)
def test_what_the_history_does_not_show_is_mended_once_the_provider_says_it(
    dialect: str, line: str, text: str
) -> None:
    body = write(dialect, line)
    error = classify(400, text)
    assert error is not None
    healed = repair_refused(body, error, dialect)
    assert healed.changes
    again = repair_refused(healed.body, error, dialect)
    assert again.body is healed.body
