"""What the vendors of Chat Completions refuse, in their own words and shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai
import pytest
from support.chat_helpers import (
    ANSWER,
    CALL,
    CALLED,
    GO,
    MODEL,
    REASONING,
    RESULT,
    WRITE,
    connect,
    post,
    refused,
    said,
)

from continuation.limits import ModelLimits
from continuation.simulator import Scenario, Simulator
from continuation.simulator.openai_chat.vendors import vendors

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(answer=ANSWER) as simulator:
        yield simulator


def why(sim: Simulator, vendor: str = "openai", **body: Any) -> str:
    return str(refused(sim, vendor, **body)["error"]["message"])


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
    told = post(sim, max_tokens="missing", max_completion_tokens=9).json()["error"]["message"]
    assert told == "Unrecognized request argument supplied: max_completion_tokens"
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


@pytest.mark.parametrize(
    ("vendor", "model", "text"),
    [
        (
            "deepseek",
            "deepseek-chat",
            "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
        ),
        (
            "dashscope",
            "qwen-max",
            "<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 8192]",
        ),
        ("zhipu", "glm-4.6", "max_tokens参数非法：限制数值范围[1,131072]"),
        (
            "groq",
            "llama-3.3-70b-versatile",
            "`max_tokens` must be less than or equal to `32768`, the maximum value for "
            "`max_tokens` is less than the `context_window` for this model",
        ),
    ],
)
def test_each_vendor_names_its_ceiling(sim: Simulator, vendor: str, model: str, text: str) -> None:
    assert why(sim, vendor, model=model, max_tokens=999_999) == text


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
    assert why(sim, "fireworks", model="llama-v3p3", max_tokens=4097) == text
    assert post(sim, model="llama-v3p3", max_tokens=4097, stream=True).is_success
    assert post(sim, model="llama-v3p3", max_tokens=4096).is_success


def test_mistral_forbids_what_it_does_not_know(sim: Simulator) -> None:
    told = refused(sim, "mistral", status=422, stream=True, stream_options={"include_usage": True})
    (fault,) = told["message"]["detail"]
    assert (fault["type"], fault["loc"]) == (
        "extra_forbidden",
        ["body", "stream_options", "include_usage"],
    )
    told = refused(sim, "mistral", status=422, max_tokens="missing", max_completion_tokens=9)
    assert told["message"]["detail"][0]["input"] == 9


def test_stream_options_can_be_unknown(sim: Simulator) -> None:
    sim.scenario = Scenario(vendor="xai", quirks="no-stream-options")
    told = post(sim, stream=True, stream_options={"include_usage": True}).json()
    assert told["error"] == "Unrecognized request argument supplied: stream_options"


# -- the window

LONG = [{"role": "user", "content": "x" * 4000}]
SMALL = {"small": ModelLimits(ceiling=900, window=1000)}
ROOMY = {"small": ModelLimits(ceiling=900, window=1200)}


def overflow(vendor: str, models: dict[str, ModelLimits], **more: Any) -> Any:
    with Simulator(ANSWER, Scenario(vendor=vendor), models=models) as sim:
        answer = post(sim, model="small", messages=LONG, **{"max_tokens": 900, **more})
        assert answer.status_code == 400, answer.text
        return answer.json()


@pytest.mark.parametrize(
    ("vendor", "text"),
    [
        (
            "openai",
            "This model's maximum context length is 1200 tokens. However, you requested 1911 "
            "tokens (1011 in the messages, 900 in the completion). Please reduce the length of the "
            "messages or completion.",
        ),
        (
            "moonshot",
            "Invalid request: Your request exceeded model token limit: 1200 (requested: 1911)",
        ),
        ("groq", "Please reduce the length of the messages or completion."),
        (
            "openrouter",
            "This endpoint's maximum context length is 1200 tokens. However, you requested about "
            "1911 tokens (1011 of text input, 900 in the output). Please reduce the length of "
            'either one, or use the "middle-out" transform to compress your prompt automatically.',
        ),
        ("together", "`inputs` tokens + `max_new_tokens` must be <= 1200"),
        (
            "vllm",
            "You passed 301 input tokens and requested 900 output tokens. However, the model's "
            "context length is only 1200 tokens, resulting in a maximum input length of 300 "
            "tokens. Please reduce the length of the input prompt. "
            "(parameter=input_tokens, value=301)",
        ),
        (
            "lmstudio",
            "maximum context length is 1200 tokens. However, you requested 900 output tokens and "
            "your prompt contains 4041 characters",
        ),
    ],
)
def test_prompt_and_limit_together_may_be_too_long(vendor: str, text: str) -> None:
    assert overflow(vendor, ROOMY)["error"]["message"] == text


def test_sglang_counts_all_three() -> None:
    assert overflow("sglang", ROOMY)["message"] == (
        "Requested token count exceeds the model's maximum context length of 1200 tokens. You "
        "requested a total of 1911 tokens: 1011 tokens from the input messages and 900 tokens for "
        "the completion."
    )


@pytest.mark.parametrize(
    ("vendor", "text"),
    [
        (
            "openai",
            "This model's maximum context length is 1000 tokens. However, your messages resulted "
            "in 1011 tokens. Please reduce the length of the messages.",
        ),
        ("moonshot", "Input token length too long"),
        (
            "dashscope",
            "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 1000]",
        ),
        ("zhipu", "Prompt exceeds max length"),
        (
            "llamacpp",
            "request (1011 tokens) exceeds the available context size (1000 tokens), try "
            "increasing it",
        ),
    ],
)
def test_the_prompt_alone_may_be_too_long(vendor: str, text: str) -> None:
    assert overflow(vendor, SMALL)["error"]["message"] == text


def test_overflow_comes_in_every_shape_of_body() -> None:
    assert overflow("xai", SMALL) == {
        "code": "Client specified an invalid argument",
        "error": "This model's maximum prompt length is 1000 but the request contains 1011 tokens.",
    }
    assert overflow("llamacpp", SMALL)["error"]["n_ctx"] == 1000
    assert overflow("mistral", SMALL)["message"] == (
        "Prompt contains 1011 tokens and 0 draft tokens, too large for model with 1000 maximum "
        "context length"
    )
    assert overflow("gemini", SMALL)[0]["error"]["message"] == (
        "The input token count (1011) exceeds the maximum number of tokens allowed (1000)."
    )
    assert overflow("zhipu", SMALL)["error"]["code"] == "1261"
    assert overflow("sglang", SMALL)["message"] == (
        "The input (1011 tokens) is longer than the model's context length (1000 tokens)."
    )
    assert overflow("openai", SMALL)["error"]["code"] == "context_length_exceeded"


def test_reasoning_models_have_an_input_limit_of_their_own() -> None:
    models = {"small": ModelLimits(ceiling=900, window=1200, thinking="always")}
    limit = {"max_tokens": "missing", "max_completion_tokens": 900}
    assert overflow("openai", models, **limit)["error"]["message"].startswith(
        "Input tokens exceed the configured limit of 300 tokens. "
        "Your messages resulted in 1011 tokens."
    )


def test_the_window_ends_an_answer_in_the_vendors_word() -> None:
    for vendor, finish in (("ollama", "length"), ("zhipu", "model_context_window_exceeded")):
        models = {"small": ModelLimits(ceiling=900, window=100)}
        with Simulator(ANSWER, Scenario(vendor=vendor), models=models) as sim:
            choice = post(sim, model="small", max_tokens=900).json()["choices"][0]
        assert choice["finish_reason"] == finish


# -- history

MISSING = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
    "'tool_call_id'. The following tool_call_ids did not have response messages: call_1"
)
ORPHAN = (
    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
    "'tool_calls'."
)
THOUGHTLESS = {**CALLED, "content": ""}


@pytest.mark.parametrize(
    ("vendor", "model", "turns", "text"),
    [
        ("openai", MODEL, [GO, CALLED, GO], MISSING),
        ("openai", MODEL, [GO, CALLED], MISSING),
        ("openai", MODEL, [GO, RESULT], ORPHAN),
        (
            "openai",
            MODEL,
            [GO, {**CALLED, "content": "x", "tool_calls": []}, GO],
            "[] is too short - 'messages.1.tool_calls'",
        ),
        (
            "moonshot",
            "kimi-k3",
            [GO, {**RESULT, "tool_call_id": ""}],
            "Invalid request: tool_call_id  is not found",
        ),
        (
            "moonshot",
            "kimi-k2-thinking",
            [GO, CALLED, RESULT],
            "thinking is enabled but reasoning_content is missing in assistant tool call message "
            "at index 1",
        ),
        (
            "moonshot",
            "kimi-k3",
            [GO, said(""), GO],
            "Invalid request: the message at position 1 with role 'assistant' must not be empty",
        ),
        (
            "deepseek",
            "deepseek-chat",
            [GO, said(""), GO],
            "Invalid assistant message: content or tool_calls must be set",
        ),
        (
            "deepseek",
            "deepseek-reasoner",
            [GO, CALLED, RESULT],
            "The `reasoning_content` in the thinking mode must be passed back to the API.",
        ),
        (
            "deepseek",
            "deepseek-chat",
            [GO, THOUGHTLESS, RESULT],
            "Invalid assistant message: content must not be an empty string",
        ),
    ],
)
def test_a_history_the_vendor_refuses_is_refused(
    sim: Simulator, vendor: str, model: str, turns: list[Any], text: str
) -> None:
    assert why(sim, vendor, model=model, messages=turns, tools=[WRITE]) == text


def test_mistral_counts_calls_and_answers(sim: Simulator) -> None:
    call = {**CALL, "id": "abcdefghi"}
    turns = [GO, {**CALLED, "tool_calls": [call]}, GO]
    told = refused(sim, "mistral", model="mistral-small-latest", messages=turns, tools=[WRITE])
    assert (told["message"], told["code"]) == (
        "Not the same number of function calls and responses",
        "3230",
    )


@pytest.mark.parametrize(
    "turns", [[GO, GO], [GO, said(""), GO], [GO, {"role": "system", "content": "be brief"}, GO]]
)
def test_openai_tolerates_what_others_do_not(sim: Simulator, turns: list[Any]) -> None:
    assert post(sim, messages=turns).is_success


@pytest.mark.parametrize("vendor", ["vllm", "ollama", "llamacpp", "openrouter"])
def test_some_servers_check_no_history(sim: Simulator, vendor: str) -> None:
    sim.scenario = Scenario(vendor=vendor)
    assert post(sim, model="mine", messages=[GO, CALLED, GO]).is_success


def test_the_sdk_tells_what_is_refused_in_every_shape(sim: Simulator) -> None:
    """Clients see a body that is a string, a list or flat; the SDK must not choke on any."""
    for vendor in vendors():
        sim.scenario = Scenario(vendor=vendor)
        with connect(sim) as client, pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model=MODEL, messages=[])
        assert "expected an array" in caught.value.response.text
