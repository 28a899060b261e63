"""What each vendor of Chat Completions refuses, in its own words, and what it goes on from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from support.chat_helpers import (
    ANSWER,
    CALL,
    CALLED,
    GO,
    MODEL,
    PROMPT,
    REASONING,
    RESULT,
    WRITE,
    connect,
    create,
    finish_of,
    post,
    refused,
    said,
    text_of,
)
from support.openai_error_texts import CEILINGS, FINALS, PREFILLS, ROOMS

from continuation.limits import ModelLimits
from continuation.simulator import Reply, Scenario, Simulator, Text
from continuation.simulator.openai_chat.vendors import vendors

MODELS = {
    "small": ModelLimits(ceiling=900, window=1000),
    "roomy": ModelLimits(ceiling=900, window=1200),
    "thinking": ModelLimits(ceiling=900, window=1200, thinking="always"),
}


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(answer=ANSWER, models=MODELS) as simulator:
        yield simulator


TEXT = {"type": "text", "text": "What is this?"}


def why(told: Any) -> str:
    """Return an error's text, in whichever of the shapes it came."""
    told = told[0] if isinstance(told, list) else told
    error = told.get("error", told)
    return str(error if isinstance(error, str) else error["message"])


# -- the limit


@pytest.mark.parametrize("model", [REASONING, "o3", "gpt-5.1"])
def test_reasoning_models_want_the_new_parameter(sim: Simulator, model: str) -> None:
    assert refused(sim, model=model)["error"] == {
        "message": "Unsupported parameter: 'max_tokens' is not supported with this model. "
        "Use 'max_completion_tokens' instead.",
        "type": "invalid_request_error",
        "param": "max_tokens",
        "code": "unsupported_parameter",
    }
    assert post(sim, model=model, max_tokens="missing", max_completion_tokens=9).is_success


def test_some_hosts_know_the_old_parameter_only(sim: Simulator) -> None:
    sim.scenario = Scenario(vendor="azure", quirks="max-tokens-only")
    told = post(sim, max_tokens="missing", max_completion_tokens=9).json()
    assert why(told) == "Unrecognized request argument supplied: max_completion_tokens"
    assert post(sim, max_tokens=9).is_success


@pytest.mark.parametrize("vendor", ["openai", "azure"])
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_openai_names_its_ceiling(sim: Simulator, vendor: str, name: str) -> None:
    body: dict[str, Any] = {"max_tokens": "missing", name: 100_000}
    assert refused(sim, vendor, **body)["error"] == {
        "message": f"{name} is too large: 100000. This model supports at most 16384 completion "
        "tokens, whereas you provided 100000.",
        "type": "invalid_request_error",
        "param": name,
        "code": "invalid_value",
    }


def test_sglang_names_its_ceiling_flat(sim: Simulator) -> None:
    assert refused(sim, "sglang", model="llama-3.3", max_tokens=99_999) == {
        "object": "error",
        "message": "max_completion_tokens is too large: 99999.This model supports at most 32768 "
        "completion tokens.",
        "type": "BadRequestError",
        "param": "max_tokens",
        "code": 400,
    }


def test_a_vendor_that_refuses_no_limit_clamps_it(sim: Simulator) -> None:
    sim.scenario = Scenario(vendor="ollama", ceiling=50)
    answer = post(sim, model="llama3", max_tokens=10**9).json()
    assert answer["usage"]["completion_tokens"] == 50


def test_fireworks_wants_a_stream_for_a_large_limit(sim: Simulator) -> None:
    text = "Requests with max_tokens > 4096 must have stream=true"
    assert why(refused(sim, "fireworks", model="llama-v3p3", max_tokens=4097)) == text
    assert post(sim, model="llama-v3p3", max_tokens=4097, stream=True).is_success
    assert post(sim, model="llama-v3p3", max_tokens=4096).is_success


def test_mistral_forbids_what_it_does_not_know(sim: Simulator) -> None:
    told = refused(sim, "mistral", status=422, stream=True, stream_options={"include_usage": True})
    (fault,) = told["message"]["detail"]
    place = ["body", "stream_options", "include_usage"]
    assert (fault["type"], fault["loc"]) == ("extra_forbidden", place)
    told = refused(sim, "mistral", status=422, max_tokens="missing", max_completion_tokens=9)
    assert told["message"]["detail"][0]["input"] == 9


def test_stream_options_can_be_unknown(sim: Simulator) -> None:
    sim.scenario = Scenario(vendor="xai", quirks="no-stream-options")
    told = post(sim, stream=True, stream_options={"include_usage": True}).json()
    assert told["error"] == "Unrecognized request argument supplied: stream_options"


# -- limit, window and history, in the vendors' words


def limit(model: str) -> dict[str, Any]:
    return {"model": model, "max_tokens": 999_999}


def overflow(model: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "x" * 4000}]
    return {"model": model, "max_tokens": 900, "messages": messages, **more}


def history(*turns: Any, model: str = MODEL) -> dict[str, Any]:
    return {"model": model, "messages": [GO, *turns], "tools": [WRITE]}


@pytest.mark.parametrize(
    ("vendor", "body", "numbers"),
    [
        ("deepseek", limit("deepseek-chat"), "1 8192"),
        ("dashscope", limit("qwen-max"), "400 1 8192"),
        ("zhipu", limit("glm-4.6"), "1 131072"),
        ("groq", limit("llama-3.3-70b-versatile"), "32768"),
        ("openai", overflow("roomy"), "1200 1911 1011 900"),
        ("moonshot", overflow("roomy"), "1200 1911"),
        ("groq", overflow("roomy"), ""),
        ("together", overflow("roomy"), "1200"),
        ("vllm", overflow("roomy"), "301 900 1200 300 301"),
        ("lmstudio", overflow("roomy"), "1200 900 4041"),
        ("sglang", overflow("roomy"), "1200 1911 1011 900"),
        ("openai", overflow("small"), "1000 1011"),
        ("moonshot", overflow("small"), ""),
        ("dashscope", overflow("small"), "400 1 1000"),
        ("zhipu", overflow("small"), ""),
        ("llamacpp", overflow("small"), "1011 1000"),
        ("xai", overflow("small"), "1000 1011"),
        ("mistral", overflow("small"), "1011 0 1000"),
        ("gemini", overflow("small"), "1011 1000"),
        ("sglang", overflow("small"), "1011 1000"),
        (
            "openai",
            overflow("thinking", max_tokens="missing", max_completion_tokens=900),
            "300 1011",
        ),
    ],
)
def test_each_vendor_says_what_a_server_was_seen_to_say_with_its_own_numbers(
    sim: Simulator, vendor: str, body: dict[str, Any], numbers: str
) -> None:
    told = why(refused(sim, vendor, **body))
    assert " ".join(re.findall(r"\d+", told)) == numbers
    seen = [*FINALS.values(), *(text for text, _ in (*CEILINGS.values(), *ROOMS.values()))]
    said, known = re.sub(r"\d+", "#", told), {re.sub(r"\d+", "#", text) for text in seen if text}
    # Some of what was collected breaks off, or lacks how it began.
    assert any(text.startswith(said) or said.startswith(text) or text in said for text in known)


@pytest.mark.parametrize(
    ("vendor", "body", "text"),
    [
        (
            "openrouter",
            overflow("roomy"),
            "This endpoint's maximum context length is 1200 tokens. However, you requested about "
            "1911 tokens (1011 of text input, 900 in the output). Please reduce the length of "
            'either one, or use the "middle-out" transform to compress your prompt automatically.',
        ),
        (
            "openai",
            history(CALLED),
            "An assistant message with 'tool_calls' must be followed by tool messages responding "
            "to each 'tool_call_id'. The following tool_call_ids did not have response messages: "
            "call_1",
        ),
        (
            "openai",
            history(RESULT),
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding "
            "message with 'tool_calls'.",
        ),
        (
            "moonshot",
            history({**RESULT, "tool_call_id": ""}, model="kimi-k3"),
            "Invalid request: tool_call_id  is not found",
        ),
        (
            "moonshot",
            history(CALLED, RESULT, model="kimi-k2-thinking"),
            "thinking is enabled but reasoning_content is missing in assistant tool call message "
            "at index 1",
        ),
        (
            "moonshot",
            history(said(""), GO, model="kimi-k3"),
            "Invalid request: the message at position 1 with role 'assistant' must not be empty",
        ),
        (
            "deepseek",
            history(said(""), GO, model="deepseek-chat"),
            "Invalid assistant message: content or tool_calls must be set",
        ),
        (
            "deepseek",
            history(CALLED, RESULT, model="deepseek-reasoner"),
            "The `reasoning_content` in the thinking mode must be passed back to the API.",
        ),
        (
            "deepseek",
            history({**CALLED, "content": ""}, RESULT, model="deepseek-chat"),
            "Invalid assistant message: content must not be an empty string",
        ),
        (
            "mistral",
            history({**CALLED, "tool_calls": [{**CALL, "id": "abcdefghi"}]}, GO),
            "Not the same number of function calls and responses",
        ),
    ],
)
def test_each_vendor_refuses_in_its_own_words(
    sim: Simulator, vendor: str, body: dict[str, Any], text: str
) -> None:
    assert why(refused(sim, vendor, **body)) == text


def test_codes_and_sizes_stand_where_the_vendor_has_them(sim: Simulator) -> None:
    code = "Client specified an invalid argument"
    assert refused(sim, "xai", **overflow("small"))["code"] == code
    assert refused(sim, "llamacpp", **overflow("small"))["error"]["n_ctx"] == 1000
    assert refused(sim, "zhipu", **overflow("small"))["error"]["code"] == "1261"
    too_long = refused(sim, **overflow("small"))["error"]
    assert too_long["code"] == "context_length_exceeded"


def test_the_window_ends_an_answer_in_the_vendors_word() -> None:
    for vendor, finish in (("ollama", "length"), ("zhipu", "model_context_window_exceeded")):
        models = {"small": ModelLimits(ceiling=900, window=100)}
        with Simulator(ANSWER, Scenario(vendor=vendor), models=models) as sim:
            choice = post(sim, model="small", max_tokens=900).json()["choices"][0]
        assert choice["finish_reason"] == finish


@pytest.mark.parametrize(
    ("vendor", "turns"),
    [
        ("openai", [GO, GO]),
        ("openai", [{"role": "user", "content": [TEXT, {"type": "image_url", "image_url": {}}]}]),
        ("openai", [GO, {"role": "function", "name": "Write", "content": "ok"}]),
        ("openai", [GO, said(""), GO]),
        ("openai", [GO, {"role": "system", "content": "be brief"}, GO]),
        *((vendor, [GO, CALLED, GO]) for vendor in ("vllm", "ollama", "llamacpp", "openrouter")),
    ],
)
def test_some_histories_are_taken(sim: Simulator, vendor: str, turns: list[Any]) -> None:
    sim.scenario = Scenario(vendor=vendor)
    assert post(sim, messages=turns).is_success


def test_the_sdk_tells_what_is_refused_in_every_shape(sim: Simulator) -> None:
    """Clients see a body that is a string, a list or flat; the SDK must not choke on any."""
    for vendor in vendors():
        sim.scenario = Scenario(vendor=vendor)
        with connect(sim) as client, pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model=MODEL, messages=[GO], max_tokens=0)  # type: ignore[list-item]
        assert "below minimum value" in caught.value.response.text


# -- an assistant message at the end

PARTIAL = ANSWER[:777]
GOES_ON = {"continue_final_message": True, "add_generation_prompt": False}


def ask(sim: Simulator, scenario: Scenario, **request: Any) -> Any:
    """Send a conversation that ends with the partial answer; return what came."""
    sim.scenario = scenario
    prefix, flags = request.pop("prefix", "/v1"), request.pop("flags", {})
    with connect(sim, prefix) as client:
        got = create(client, 4096, GO, said(PARTIAL, **flags), **request)
        return list(got) if request.get("stream") else got


@pytest.mark.parametrize(
    ("vendor", "model", "request_"),
    [
        ("deepseek", "deepseek-chat", {"prefix": "/beta", "flags": {"prefix": True}}),
        ("moonshot", "kimi-k2-0905", {"flags": {"partial": True}}),
        ("dashscope", "qwen-plus", {"flags": {"partial": True}}),
        ("vllm", "Qwen/Qwen3-8B", {"extra_body": GOES_ON}),
        ("sglang", "Qwen/Qwen3-8B", {"extra_body": {"continue_final_message": True}}),
        ("ollama", "qwen3:8b", {}),
        ("groq", "llama-3.3-70b-versatile", {}),
        ("openrouter", "meta-llama/llama-3.3-70b-instruct", {}),
        ("openrouter", "anthropic/claude-haiku-4.5", {}),
        ("together", "meta-llama/Llama-3.3-70B-Instruct-Turbo", {}),
        ("fireworks", "accounts/fireworks/models/llama-v3p3-70b-instruct", {}),
    ],
)
def test_a_prefill_in_the_vendors_own_form_is_gone_on_from(
    sim: Simulator, vendor: str, model: str, request_: dict[str, Any]
) -> None:
    completion = ask(sim, Scenario(vendor=vendor), model=model, **request_)
    assert (text_of(completion), finish_of(completion)) == (ANSWER[777:], "stop")


@pytest.mark.parametrize(
    ("vendor", "model", "request_"),
    [
        ("openai", "gpt-4o", {}),
        ("azure", "gpt-4o", {}),
        ("moonshot", "kimi-k2-0905", {}),
        ("moonshot", "kimi-k2-0905", {"flags": {"prefix": True}}),
        ("dashscope", "qwen-plus", {}),
        ("vllm", "Qwen/Qwen3-8B", {}),
        ("sglang", "Qwen/Qwen3-8B", {}),
        ("xai", "grok-3", {}),
        ("zhipu", "glm-4.6", {}),
        ("lmstudio", "mine", {}),
        ("groq", "openai/gpt-oss-120b", {}),
        ("openrouter", "openai/gpt-4o", {}),
    ],
)
def test_elsewhere_the_last_message_is_a_finished_turn_and_the_model_begins_afresh(
    sim: Simulator, vendor: str, model: str, request_: dict[str, Any]
) -> None:
    assert text_of(ask(sim, Scenario(vendor=vendor), model=model, **request_)) == ANSWER


def test_a_finished_turn_is_gone_on_from_in_the_scenarios_manner(sim: Simulator) -> None:
    assert text_of(ask(sim, Scenario(manner="echo:10"))) == ANSWER[767:]


def test_a_user_turn_gets_the_rest_everywhere(sim: Simulator) -> None:
    for vendor in ("openai", "deepseek", "mistral", "sglang", "gemini", "llamacpp"):
        sim.scenario = Scenario(vendor=vendor)
        with connect(sim) as client:
            rest = create(client, 4096, GO, said(PARTIAL), PROMPT, model="x")
        assert text_of(rest) == ANSWER[777:]


@pytest.mark.parametrize("stream", [False, True])
def test_mistral_echoes_the_prefix(sim: Simulator, stream: bool) -> None:
    how = {"model": "mistral-large-latest", "flags": {"prefix": True}}
    got = ask(sim, Scenario(vendor="mistral"), **how, stream=stream)
    text = "".join(c.choices[0].delta.content or "" for c in got) if stream else text_of(got)
    assert text == ANSWER
    sim.script([Reply([Text("!")])])
    got = ask(sim, Scenario(vendor="mistral"), **how)
    assert (text_of(got), got.usage.completion_tokens) == (PARTIAL + "!", 1)


def test_only_a_flagged_stream_of_llamacpp_does_not_echo_the_prefill(sim: Simulator) -> None:
    flags = {"continue_final_message": True, "add_generation_prompt": False}
    for stream, extra in ((False, {}), (False, flags), (True, {}), (True, flags)):
        got = ask(sim, Scenario(vendor="llamacpp"), model="x", extra_body=extra, stream=stream)
        text = "".join(c.choices[0].delta.content or "" for c in got) if stream else text_of(got)
        assert text == (ANSWER[777:] if stream and extra else ANSWER), (stream, extra)


def test_prefilled_attempts_give_the_whole_answer(sim: Simulator) -> None:
    sim.scenario = Scenario(vendor="deepseek")
    text, finish = "", "length"
    with connect(sim, "/beta") as client:
        while finish == "length":
            partial = [said(text, prefix=True)] if text else []
            completion = create(client, 99, GO, *partial, model="deepseek-chat")
            text, finish = text + text_of(completion), finish_of(completion)
    assert text == ANSWER


QWEN = "Qwen/Qwen3-8B"
LAST = [GO, said(PARTIAL)]


@pytest.mark.parametrize(
    ("vendor", "seen", "body", "more"),
    [
        (
            "deepseek",
            "deepseek",
            {"model": "deepseek-reasoner", "prefix": "/beta"},
            {"type": "invalid_request_error", "param": None, "code": "invalid_request_error"},
        ),
        (
            "deepseek",
            "deepseek, not at /beta",
            {"model": "deepseek-chat", "messages": [GO, said(PARTIAL, prefix=True)]},
            {},
        ),
        (
            "mistral",
            "mistral",
            {"model": "mistral-large-latest"},
            {"object": "error", "type": "invalid_request_message_order", "code": "3230"},
        ),
        (
            "vllm",
            "vllm, both",
            {"model": QWEN, "continue_final_message": True, "add_generation_prompt": True},
            {"type": "BadRequestError", "code": 400},
        ),
        ("vllm", "vllm, one flag", {"model": QWEN, "continue_final_message": True}, {}),
        ("vllm", "vllm, mistral", {"model": "mistralai/Mistral-Small-3.2"}, {}),
        (
            "llamacpp",
            "llama.cpp",
            {"model": "mine", "chat_template_kwargs": {"enable_thinking": True}},
            {"code": 400, "type": "invalid_request_error"},
        ),
        (
            "llamacpp",
            "llama.cpp, two",
            {"model": "mine", "messages": [GO, said("a"), said("b")]},
            {},
        ),
        (
            "gemini",
            "gemini",
            {"model": "gemini-3.6-flash"},
            {"code": 400, "status": "INVALID_ARGUMENT"},
        ),
        ("openrouter", "claude", {"model": "anthropic/claude-opus-5"}, {"code": 400}),
        (
            "dashscope",
            "dashscope",
            {
                "model": "qwen-plus",
                "messages": [GO, said(PARTIAL, partial=True)],
                "enable_thinking": True,
            },
            {"code": "invalid_parameter_error"},
        ),
    ],
)
def test_a_prefill_is_refused_as_the_vendor_was_seen_to_do_it(
    sim: Simulator, vendor: str, seen: str, body: dict[str, Any], more: dict[str, Any]
) -> None:
    told = refused(sim, vendor, **{"messages": LAST, **body})
    assert why(told).startswith(PREFILLS[seen])
    told = told[0] if isinstance(told, list) else told
    assert more.items() <= told.get("error", told).items()


@pytest.mark.parametrize("flag", ["prefix", "partial"])
def test_openai_does_not_know_the_flags_of_others(sim: Simulator, flag: str) -> None:
    told = refused(sim, messages=[GO, said(PARTIAL, **{flag: True})])
    text = f"Additional properties are not allowed ('{flag}' was unexpected) - 'messages.1'"
    assert why(told) == text
