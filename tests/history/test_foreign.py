"""What a change of provider leaves behind is said in the new provider's form, images and all."""

from __future__ import annotations

from typing import Any

import pytest

from continuation.history import classify, repair, repair_refused, validate

DATA = "data:image/png;base64,iVBORw0KGgo="
LINK = "https://example.org/a.png"
CHAT = [{"type": "image_url", "image_url": {"url": url}} for url in (DATA, LINK)]
ITEMS = [{"type": "input_image", "image_url": url} for url in (DATA, LINK)]
MESSAGES = [
    {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
    },
    {"type": "image", "source": {"type": "url", "url": LINK}},
]


def _repaired(field: str, dialect: str, given: list[Any]) -> list[Any]:
    done = repair({field: given}, dialect).body
    assert validate(done, dialect, live=False) == []
    made: list[Any] = done[field]
    return made


@pytest.mark.parametrize("images", [CHAT, ITEMS])
def test_images_of_openai_are_read_in_a_messages_history(images: list[Any]) -> None:
    user = {"role": "user", "content": [{"type": "text", "text": "see"}, *images]}
    (made,) = _repaired("messages", "anthropic", [user])
    assert made["content"] == [{"type": "text", "text": "see"}, *MESSAGES]


def test_images_in_a_result_of_chat_stay_in_it() -> None:
    function = {"name": "look", "arguments": "{}"}
    call = {"id": "a", "type": "function", "function": function}
    told = [{"type": "text", "text": "here"}, *CHAT]
    said = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": told},
    ]
    made = _repaired("messages", "anthropic", said)
    assert made[2]["content"][0]["content"] == [{"type": "text", "text": "here"}, *MESSAGES]


def test_images_of_messages_are_read_in_chat_those_of_results_behind_them() -> None:
    call = {"type": "tool_use", "id": "a", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [*MESSAGES[:1]]}
    said = [
        {"role": "user", "content": [{"type": "text", "text": "x"}, MESSAGES[1]]},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    made = _repaired("messages", "openai-chat", said)
    assert made[0]["content"] == [{"type": "text", "text": "x"}, CHAT[1]]
    assert [message["role"] for message in made[1:]] == ["assistant", "tool", "user"]
    assert made[3]["content"] == CHAT[:1]


@pytest.mark.parametrize("images", [CHAT, MESSAGES])
def test_images_are_read_in_responses(images: list[Any]) -> None:
    (made,) = _repaired("input", "openai-responses", [{"role": "user", "content": images}])
    assert made["content"] == ITEMS


def test_what_a_chat_message_has_beside_its_text_is_no_part_of_messages() -> None:
    """As answers of Chat come, and are kept; a refusal is what was said."""
    answer: Any = {"role": "assistant", "content": "y", "refusal": None, "annotations": []}
    refused = {"role": "assistant", "content": None, "refusal": "I will not."}
    user = {"role": "user", "content": "x"}
    made = _repaired("messages", "anthropic", [user, answer, user, refused, user])
    assert made[1] == {"role": "assistant", "content": [{"type": "text", "text": "y"}]}
    assert made[3]["content"] == [{"type": "text", "text": "I will not."}]


def test_an_image_in_a_result_that_is_an_error_comes_behind_the_results() -> None:
    calls = [{"type": "tool_use", "id": name, "name": "look", "input": {}} for name in "ab"]
    text = {"type": "text", "text": "it threw"}
    failed = {"type": "tool_result", "tool_use_id": "a", "content": [text, *MESSAGES]}
    other = {"type": "tool_result", "tool_use_id": "b", "content": MESSAGES}
    said = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": calls},
        {"role": "user", "content": [{**failed, "is_error": True}, other]},
    ]
    made = _repaired("messages", "anthropic", said)
    assert made[2]["content"] == [
        {**failed, "content": [text], "is_error": True},
        other,
        *MESSAGES,
    ]


def test_an_object_where_a_text_belongs_is_not_lost() -> None:
    """As Ollama has arguments, and as careless tools answer."""
    function = {"name": "look", "arguments": {"a": 1}}
    said: list[Any] = [
        {"role": "user", "content": {"type": "text", "text": "x"}},
        {
            "role": "assistant",
            "tool_calls": [{"id": "a", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "a", "content": {"ok": True}},
    ]
    made = _repaired("messages", "openai-chat", said)
    assert made[0]["content"] == [{"type": "text", "text": "x"}]
    assert made[1]["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'
    assert made[2]["content"] == '{"ok": true}'

    call = {"type": "function_call", "call_id": "a", **function}
    output = {"type": "function_call_output", "call_id": "a", "output": {"ok": True}}
    made = _repaired("input", "openai-responses", [said[0], call, output])
    assert made[0]["content"] == [{"type": "input_text", "text": "x"}]
    assert (made[1]["arguments"], made[2]["output"]) == ('{"a": 1}', '{"ok": true}')

    used = {"type": "tool_use", "id": "a", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": {"ok": True}}
    said[1:] = [{"role": "assistant", "content": [used]}, {"role": "user", "content": [result]}]
    made = _repaired("messages", "anthropic", said)
    assert made[2]["content"][0]["content"] == '{"ok": true}'


def test_calls_beside_an_empty_list_of_content_stay() -> None:
    function = {"name": "look", "arguments": "{}"}
    call = {"id": "a", "type": "function", "function": function}
    said: list[Any] = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [], "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "ok"},
    ]
    made = _repaired("messages", "openai-chat", said)
    assert made == [said[0], {**said[1], "content": None}, said[2]]


def test_a_file_of_gemini_s_before_a_result_goes_behind_it() -> None:
    file = {"fileData": {"fileUri": "gs://x"}}
    answer = {"functionResponse": {"name": "look", "response": {}}}
    said: list[Any] = [
        {"role": "user", "parts": [{"text": "x"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]},
        {"role": "user", "parts": [file, answer]},
    ]
    made = _repaired("contents", "gemini", said)
    assert made[2]["parts"] == [answer, file]


def test_one_part_of_gemini_s_need_not_be_in_a_list() -> None:
    body = {"contents": [{"role": "user", "parts": {"text": "x"}}]}
    assert repair(body, "gemini").body is body


REFUSED = [
    (
        "anthropic",
        {"messages": [{"role": "user", "content": CHAT}]},
        "messages.0.content.0: Input tag 'image_url' found using 'type' does not match any of the"
        " expected tags: 'document', 'image', 'text'",
    ),
    (
        "anthropic",
        {"messages": [{"role": "user", "content": "x", "annotations": []}]},
        "messages.0.annotations: Extra inputs are not permitted",
    ),
    (
        "openai-chat",
        {"messages": [{"role": "user", "content": MESSAGES}]},
        "Invalid value: 'image'. Supported values are: 'text', 'image_url' and 'file'.",
    ),
    (
        "openai-responses",
        {"input": [{"role": "user", "content": CHAT}]},
        "Invalid value: 'image_url'. Supported values are: 'input_text', 'input_image', and"
        " 'input_file'.",
    ),
    (
        "gemini",
        {"contents": [{"role": "user", "content": "x"}]},
        "Unknown name \"content\" at 'contents[0]': Cannot find field. Invalid JSON payload",
    ),
]


@pytest.mark.parametrize(("dialect", "body", "text"), REFUSED)
def test_a_refusal_of_it_is_understood(dialect: str, body: Any, text: str) -> None:
    error = classify(400, text)
    assert error is not None
    done = repair_refused(body, error, dialect)
    assert done.changes
    assert validate(done.body, dialect, live=False, strict=True) == []


def test_texts_of_others_are_read_in_a_gemini_history() -> None:
    blocks = [{"type": "text", "text": "y"}, {"type": "text", "text": "z"}]
    said = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": blocks},
        {"role": "user", "parts": [{"text": "w"}]},
    ]
    made = _repaired("contents", "gemini", said)
    assert made == [
        {"role": "user", "parts": [{"text": "x"}]},
        {"role": "model", "parts": [{"text": "y"}, {"text": "z"}]},
        {"role": "user", "parts": [{"text": "w"}]},
    ]
