"""How each vendor understands an assistant message at the end of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.chat_helpers import ANSWER, GO, PROMPT, connect, create, finish_of, post, said, text_of

from continuation.simulator import Reply, Scenario, Simulator, Text

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTIAL = ANSWER[:777]
GOES_ON = {"continue_final_message": True, "add_generation_prompt": False}


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(answer=ANSWER) as simulator:
        yield simulator


def ask(sim: Simulator, scenario: Scenario, **request: Any) -> Any:
    """Send a conversation that ends with the partial answer; return what came."""
    sim.scenario = scenario
    prefix, flags = request.pop("prefix", "/v1"), request.pop("flags", {})
    with connect(sim, prefix) as client:
        got = create(client, 4096, GO, said(PARTIAL, **flags), **request)
        return list(got) if request.get("stream") else got


def refusal(sim: Simulator, scenario: Scenario, **request: Any) -> Any:
    sim.scenario = scenario
    prefix, flags = request.pop("prefix", "/v1"), request.pop("flags", {})
    answer = post(sim, prefix, messages=[GO, said(PARTIAL, **flags)], **request)
    assert answer.status_code == 400, answer.text
    return answer.json()


@pytest.mark.parametrize(
    ("vendor", "model", "request_"),
    [
        ("deepseek", "deepseek-chat", {"prefix": "/beta", "flags": {"prefix": True}}),
        ("moonshot", "kimi-k2-0905", {"flags": {"partial": True}}),
        ("dashscope", "qwen-plus", {"flags": {"partial": True}}),
        ("vllm", "Qwen/Qwen3-8B", {"extra_body": GOES_ON}),
        ("sglang", "Qwen/Qwen3-8B", {"extra_body": {"continue_final_message": True}}),
        ("llamacpp", "some.gguf", {}),
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
    completion = ask(sim, Scenario(manner="echo:10"))
    assert text_of(completion) == ANSWER[767:]


def test_a_user_turn_gets_the_rest_everywhere(sim: Simulator) -> None:
    for vendor in ("openai", "deepseek", "mistral", "sglang", "gemini", "llamacpp"):
        sim.scenario = Scenario(vendor=vendor)
        with connect(sim) as client:
            rest = create(client, 4096, GO, said(PARTIAL), PROMPT, model="x")
        assert text_of(rest) == ANSWER[777:]


@pytest.mark.parametrize("stream", [False, True])
def test_mistral_echoes_the_prefix(sim: Simulator, stream: bool) -> None:
    scenario, flags = Scenario(vendor="mistral"), {"prefix": True}
    got = ask(sim, scenario, model="mistral-large-latest", flags=flags, stream=stream)
    text = "".join(c.choices[0].delta.content or "" for c in got) if stream else text_of(got)
    assert text == ANSWER


def test_mistral_echoes_before_a_scripted_reply_too(sim: Simulator) -> None:
    sim.script([Reply([Text("!")])])
    got = ask(sim, Scenario(vendor="mistral"), model="codestral", flags={"prefix": True})
    assert (text_of(got), got.usage.completion_tokens) == (PARTIAL + "!", 1)


def test_prefilled_attempts_give_the_whole_answer(sim: Simulator) -> None:
    sim.scenario = Scenario(vendor="deepseek")
    text, finish = "", "length"
    with connect(sim, "/beta") as client:
        while finish == "length":
            partial = [said(text, prefix=True)] if text else []
            completion = create(client, 99, GO, *partial, model="deepseek-chat")
            text, finish = text + text_of(completion), finish_of(completion)
    assert text == ANSWER


# -- refusals

DOCS = "https://api-docs.deepseek.com/guides/chat_prefix_completion"


def test_deepseek_wants_its_flag_and_its_path(sim: Simulator) -> None:
    scenario = Scenario(vendor="deepseek")
    assert refusal(sim, scenario, model="deepseek-reasoner", prefix="/beta")["error"] == {
        "message": "The last message of deepseek-reasoner must be a user message, or an assistant "
        f"message with prefix mode on (refer to {DOCS}).",
        "type": "invalid_request_error",
        "param": None,
        "code": "invalid_request_error",
    }
    told = refusal(sim, scenario, model="deepseek-chat", flags={"prefix": True})
    assert told["error"]["message"] == (
        'prefix is only available when using beta api (set base_url="https://api.deepseek.com/beta")'
    )


def test_mistral_wants_its_flag(sim: Simulator) -> None:
    assert refusal(sim, Scenario(vendor="mistral"), model="mistral-large-latest") == {
        "object": "error",
        "message": "Expected last role User or Tool (or Assistant with prefix True) for serving "
        "but got assistant",
        "type": "invalid_request_message_order",
        "param": None,
        "code": "3230",
    }


@pytest.mark.parametrize(
    ("model", "flags", "why"),
    [
        (
            "Qwen/Qwen3-8B",
            {"continue_final_message": True, "add_generation_prompt": True},
            "Cannot set both `continue_final_message` and `add_generation_prompt` to True.",
        ),
        (
            "Qwen/Qwen3-8B",
            {"continue_final_message": True},
            "continue_final_message and add_generation_prompt are not compatible.",
        ),
        (
            "mistralai/Mistral-Small-3.2",
            {},
            "Cannot set `add_generation_prompt` to True when the last message is from the "
            "assistant. Consider using `continue_final_message` instead.",
        ),
    ],
)
def test_vllm_wants_one_flag_without_the_other(
    sim: Simulator, model: str, flags: dict[str, Any], why: str
) -> None:
    error = refusal(sim, Scenario(vendor="vllm"), model=model, **flags)["error"]
    assert error["message"].startswith(why)
    assert (error["type"], error["code"]) == ("BadRequestError", 400)


def test_llama_cpp_takes_one_prefill_and_no_thinking(sim: Simulator) -> None:
    scenario = Scenario(vendor="llamacpp")
    on = {"chat_template_kwargs": {"enable_thinking": True}}
    assert refusal(sim, scenario, model="mine", **on)["error"] == {
        "code": 400,
        "message": "Assistant response prefill is incompatible with enable_thinking.",
        "type": "invalid_request_error",
    }
    two = post(sim, model="mine", messages=[GO, said("a"), said("b")]).json()
    assert two["error"]["message"] == (
        "Cannot have 2 or more assistant messages at the end of the list."
    )


def test_gemini_takes_no_prefill_and_says_so_in_a_list(sim: Simulator) -> None:
    assert refusal(sim, Scenario(vendor="gemini"), model="gemini-3.6-flash") == [
        {
            "error": {
                "code": 400,
                "message": "Requests ending with a model turn are not supported.",
                "status": "INVALID_ARGUMENT",
            }
        }
    ]


def test_claude_refuses_behind_a_gateway_as_it_does_without(sim: Simulator) -> None:
    told = refusal(sim, Scenario(vendor="openrouter"), model="anthropic/claude-opus-5")
    assert told["error"]["message"] == (
        "This model does not support assistant message prefill. "
        "The conversation must end with a user message."
    )
    assert told["error"]["code"] == 400


def test_qwen_has_no_partial_mode_while_it_thinks(sim: Simulator) -> None:
    how = {"model": "qwen-plus", "flags": {"partial": True}, "enable_thinking": True}
    told = refusal(sim, Scenario(vendor="dashscope"), **how)
    assert told["error"]["code"] == "invalid_parameter_error"
    assert "Partial mode" in told["error"]["message"]


@pytest.mark.parametrize("flag", ["prefix", "partial"])
def test_openai_does_not_know_the_flags_of_others(sim: Simulator, flag: str) -> None:
    told = refusal(sim, Scenario(), flags={flag: True})
    assert told["error"]["message"] == (
        f"Additional properties are not allowed ('{flag}' was unexpected) - 'messages.1'"
    )
