"""How commands call a model in Chat Completions, through OpenAI's SDK."""

from __future__ import annotations

from typing import Any

from continuation.limits import spellings
from continuation.providers.openai_common.sdk import FUNCTION, MODELS, OPENAI
from continuation.providers.sdk import End, OnDelta, Prompt, SdkDriver


def _completion(prompt: Prompt) -> dict[str, Any]:
    system = [] if prompt.system is None else [{"role": "system", "content": prompt.system}]
    # Other servers accept only the older name, `max_tokens`, which OpenAI refuses.
    newer = any(name.startswith(MODELS) for name in spellings(prompt.model))
    body: dict[str, Any] = {
        "model": prompt.model,
        "max_completion_tokens" if newer else "max_tokens": prompt.limit,
        "messages": [*system, {"role": "user", "content": prompt.text}],
    }
    if prompt.tool:
        body["tools"] = [{"type": "function", "function": FUNCTION}]
    return body


def _chat(client: Any, prompt: Prompt, on_delta: OnDelta) -> End:
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    stop, calls = None, dict[int, str]()
    with client.chat.completions.create(**_completion(prompt), **streamed) as stream:
        for choice in (choice for chunk in stream for choice in chunk.choices or ()):
            stop = choice.finish_reason or stop
            if choice.delta.content:
                on_delta.text(choice.delta.content)
            for call in choice.delta.tool_calls or ():
                piece = (call.function and call.function.arguments) or ""
                calls[call.index] = calls.get(call.index, "") + piece
                on_delta.arguments(piece)
    return End(stop, [*calls.values()])


DRIVER = SdkDriver(
    "openai-chat",
    title="OpenAI Chat Completions",
    sdk=OPENAI,
    method=".chat.completions",
    model="gpt-5.5",
    prefixes=MODELS,
    stop_name="finish_reason",
    ends=("stop",),
    called="tool_calls",
    body=_completion,
    stream=_chat,
    rank=2,  # OpenAI offers all of its models in Responses, but only some of them in Chat
)
