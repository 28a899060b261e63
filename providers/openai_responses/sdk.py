"""How commands call a model in Responses, through OpenAI's SDK."""

from __future__ import annotations

from typing import Any

from continuation.providers.openai_common.sdk import FUNCTION, MODELS, OPENAI
from continuation.providers.sdk import AnswerFailedError, End, OnDelta, Prompt, SdkDriver


def _response(prompt: Prompt) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": prompt.model,
        "max_output_tokens": prompt.limit,
        "input": prompt.text,
    }
    if prompt.system is not None:
        body["instructions"] = prompt.system
    if prompt.tool:
        body["tools"] = [{"type": "function", "strict": False, **FUNCTION}]
    return body


def _responses(client: Any, prompt: Prompt, on_delta: OnDelta) -> End:
    stop, calls = None, list[str]()
    with client.responses.create(**_response(prompt), stream=True) as stream:
        for event in stream:
            match event.type:
                case "response.output_text.delta":
                    on_delta.text(event.delta)
                case "response.function_call_arguments.delta":
                    on_delta.arguments(event.delta)
                case "response.completed" | "response.incomplete":
                    final = event.response
                    why = final.incomplete_details and final.incomplete_details.reason
                    stop = f"{final.status}: {why}" if why else final.status
                    calls = [one.arguments for one in final.output if one.type == "function_call"]
                case "response.failed":
                    error = event.response.error
                    raise AnswerFailedError(error.to_dict() if error else {})
                case "error":
                    raise AnswerFailedError(event.to_dict())
                case _:
                    pass
    return End(stop, calls)


DRIVER = SdkDriver(
    "openai-responses",
    title="OpenAI Responses",
    sdk=OPENAI,
    method=".responses",
    model="gpt-5.5",
    prefixes=MODELS,
    stop_name="status",
    ends=("completed",),
    called="completed",
    body=_response,
    stream=_responses,
    rank=1,
)
