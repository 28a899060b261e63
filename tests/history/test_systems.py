"""System messages among the others in a Messages history: where they may stand they stay."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from continuation.history import classify, repair, repair_refused, validate

U, A = {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}
S = {"role": "system", "content": "be brief"}
SETTING = {"role": "system", "content": [], "output_config": {"effort": "low"}}
SEARCHED = {
    "role": "assistant",
    "content": [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
    ],
}


def _body(messages: list[Any], model: str = "claude-opus-5-5", **more: Any) -> dict[str, Any]:
    return {"model": model, "max_tokens": 9, "messages": messages, **more}


@pytest.mark.parametrize(
    "messages",
    [
        [U, S],
        [U, S, A, U],
        [U, S, S, A, U, S],
        [U, U, S],
        [U, A, SETTING, U, SETTING, U],
        [SETTING, U],
        [U, SEARCHED, S],
        [U, SEARCHED, S, A, U],
    ],
)
def test_a_system_message_behind_the_user_or_a_server_s_result_stays(messages: list[Any]) -> None:
    body = _body(messages)
    assert validate(body, live=False) == []
    assert repair(body).body is body


@pytest.mark.parametrize(
    ("messages", "wanted"),
    [
        ([U, S, U], "user system"),
        ([U, S, U, S, U, A, U], "user system assistant user"),
        ([U, A, S, U], "user assistant user system"),
        ([U, SEARCHED, S, U], "user assistant user system"),
        # Nothing of the user's to stand behind: it says it itself.
        ([U, A, S], "user assistant user"),
        ([U, A, S, A, U], "user assistant user assistant user"),
        # It lost its user, to a blank text or a compaction.
        ([{"role": "user", "content": " "}, S, A, U], "user assistant user"),
    ],
)
def test_one_astray_goes_behind_the_user_s_next_message(messages: list[Any], wanted: str) -> None:
    done = repair(_body(messages))
    turns = itertools.groupby(message["role"] for message in done.body["messages"])
    assert " ".join(role for role, _ in turns) == wanted
    assert str(done.body).count("be brief") == str(messages).count("be brief")
    assert validate(done.body, live=False) == []
    assert repair(done.body).body is done.body


@pytest.mark.parametrize("system", [None, "help", [{"type": "text", "text": "help"}]])
def test_the_first_ones_join_the_system_prompt(system: Any) -> None:
    body = _body([S, U], **({"system": system} if system else {}))
    done = repair(body).body
    assert done["messages"] == [U]
    texts = [block["text"] for block in done["system"]]
    assert texts == (["help"] if system else []) + ["be brief"]


def test_a_bare_history_keeps_its_first_one_for_it_has_no_other_place() -> None:
    bare = {"messages": [S, U, A, U]}
    assert validate(bare, "anthropic") == []


def test_an_empty_one_without_settings_is_dropped() -> None:
    done = repair(_body([U, {"role": "system", "content": []}, A, U]))
    assert [change.why for change in done.changes][:1] == ["message_empty"]
    assert done.body["messages"] == [U, A, U]


REFUSALS = [
    "messages[1].role must be either 'user' or 'assistant', but got 'system'",
    "messages[1].role: unknown variant `system`, expected `user` or `assistant`",
    "role 'system' is not supported on this model",
]


@pytest.mark.parametrize("text", REFUSALS)
@pytest.mark.parametrize("model", ["glm-5", "claude-sonnet-4-5"])
def test_a_server_that_takes_none_is_given_them_as_the_user_s(text: str, model: str) -> None:
    body = _body([S, U, {**S, "clear_at": "next_user_message"}, A, U, SETTING], model)
    error = classify(400, text)
    assert error is not None
    done = repair_refused(body, error, "anthropic").body
    assert [message["role"] for message in done["messages"]] == ["user", "assistant", "user"]
    assert [block["text"] for block in done["messages"][0]["content"]] == ["u", "be brief"]
    assert done["messages"][0].keys() == {"role", "content"}
    assert [block["text"] for block in done["system"]] == ["be brief"]


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_chat_template_that_takes_one_at_the_beginning_is_given_one(role: str) -> None:
    """Qwen's, on vLLM: the first ones become one, the others the user's."""
    late = {"role": role, "content": "be brief"}
    blocks = {"role": "system", "content": [{"type": "text", "text": "two"}]}
    body = {"messages": [{"role": "system", "content": "one"}, blocks, late, U, A, late, U]}
    assert repair(body, "openai-chat").body is body
    error = classify(400, "System message must be at the beginning.")
    assert error is not None
    done = repair_refused(body, error, "openai-chat").body
    roles = [message["role"] for message in done["messages"]]
    assert roles == ["system", "user", "assistant", "user", "user"]
    assert [block["text"].strip() for block in done["messages"][0]["content"]] == [
        *("one", "two", "be brief")
    ]
    assert done["messages"][3] == {"role": "user", "content": "be brief"}
    assert repair_refused(done, error, "openai-chat").body is done


def test_others_behind_this_api_may_take_them_anywhere() -> None:
    body = _body([U, S, U], "glm-5")
    assert validate(body, "anthropic", live=False) == []
