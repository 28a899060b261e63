"""What each server makes of an assistant message at the end of a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from continuation.limits import find
from continuation.simulator.anthropic.body import Json
from continuation.simulator.openai_chat import texts
from continuation.simulator.openai_chat.body import Context
from continuation.simulator.openai_chat.errors import Refusal

AttemptResult = Literal["open", "prefill", "finished", "user"]
"""`open`: the user spoke last. `user`: the server takes the last message for the user's."""


def ending(context: Context) -> AttemptResult:
    """Tell how the model will understand the end of a request that was not refused."""
    last = context.messages[-1]
    if last["role"] != "assistant":
        return "open"
    if last.get("tool_calls"):
        return "finished"
    return "prefill" if _goes_on(context, last) else _left_alone(context)


def refusals(context: Context) -> Iterator[Refusal]:
    """Yield why the vendor refuses how a request ends."""
    last = context.messages[-1]
    rule = _RULES.get(context.vendor.name)
    if rule is not None and (last["role"] == "assistant" or context.vendor.name == "vllm"):
        yield from rule(context, last)


def _goes_on(context: Context, last: Json) -> bool:
    vendor = context.vendor
    if vendor.prefill == "flag":
        return last.get(vendor.flag) is True
    if vendor.prefill == "continue":
        return context.body.get("continue_final_message") is True
    return vendor.prefill == "bare" and not context.reasons and not _is_openai(context)


def _left_alone(context: Context) -> AttemptResult:
    """SGLang turns the message into the user's, the others see a turn that is over."""
    return "user" if context.vendor.name == "sglang" else "finished"


def _is_openai(context: Context) -> bool:
    return context.vendor.name == "openrouter" and context.name.startswith("openai/")


# -- refusals


def _deepseek(context: Context, last: Json) -> Iterator[Refusal]:
    if last.get("tool_calls"):
        return
    if last.get("prefix") is not True:
        yield Refusal(texts.DEEPSEEK_LAST.format(model=context.name))
    elif "/beta/" not in context.path:
        yield Refusal(texts.DEEPSEEK_BETA)


def _mistral(_: Context, last: Json) -> Iterator[Refusal]:
    if last.get("prefix") is not True and not last.get("tool_calls"):
        yield Refusal(texts.MISTRAL_LAST, kind="invalid_request_message_order", code="3230")


def _dashscope(context: Context, last: Json) -> Iterator[Refusal]:
    if last.get("partial") is True and context.reasons:
        yield Refusal(texts.QWEN_THINKING)


def _vllm(context: Context, last: Json) -> Iterator[Refusal]:
    goes_on = context.body.get("continue_final_message") is True
    generates = context.body.get("add_generation_prompt")
    if goes_on and generates is True:
        yield Refusal(texts.VLLM_BOTH)
    elif goes_on and generates is None:
        yield Refusal(texts.VLLM_DEFAULT)
    elif last["role"] == "assistant" and not goes_on and "mistral" in context.name.lower():
        yield Refusal(texts.VLLM_MISTRAL)


def _llamacpp(context: Context, last: Json) -> Iterator[Refusal]:
    roles = [message["role"] for message in context.messages]
    if roles[-2:] == ["assistant", "assistant"]:
        yield Refusal(texts.LLAMACPP_TWO)
    elif context.reasons and not last.get("tool_calls"):
        yield Refusal(texts.LLAMACPP_THINKING)


def _openrouter(context: Context, _: Json) -> Iterator[Refusal]:
    """Claude decides behind the gateway as it does without."""
    known = find(context.name)
    if "claude" in context.name and known is not None and not known.prefill:
        yield Refusal(texts.CLAUDE_LAST)


def _gemini(_: Context, __: Json) -> Iterator[Refusal]:
    yield Refusal(texts.GEMINI_LAST)


_RULES: dict[str, Callable[[Context, Json], Iterator[Refusal]]] = {
    "deepseek": _deepseek,
    "mistral": _mistral,
    "dashscope": _dashscope,
    "vllm": _vllm,
    "llamacpp": _llamacpp,
    "openrouter": _openrouter,
    "gemini": _gemini,
}
