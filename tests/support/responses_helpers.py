"""What the tests of the simulated Responses API share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai
import pytest

from continuation.simulator import Reply, Text, Thinking

if TYPE_CHECKING:
    from continuation.simulator import Simulator

MODEL = "gpt-5.4"
OLD = "gpt-4o"
ANSWER = "".join(f"Line {n}: der Text, 文字 und 🙂, geht weiter.\n" for n in range(60))
GO = {"role": "user", "content": "recite"}
PROMPT = {"role": "user", "content": "You were cut off. Go on."}
CALL = {"type": "function_call", "call_id": "call_1", "name": "Write", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "ok"}
THOUGHT = Reply([Thinking("hm"), Text("done")])


def connect(sim: Simulator, key: str = "k") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{sim.url}/v1", api_key=key, max_retries=0)


def create(client: openai.OpenAI, *items: Any, limit: int | None = None, **more: Any) -> Any:
    body = {"model": MODEL, "input": [*items] or [GO], **more}
    return client.responses.create(**body, max_output_tokens=limit)


def stream(client: openai.OpenAI, *items: Any, **more: Any) -> list[Any]:
    return list(create(client, *items, stream=True, **more))


def said(response: Any) -> list[dict[str, Any]]:
    """The output as a client sends it back."""
    return [item.to_dict() for item in response.output]


def seen(client: openai.OpenAI, response: Any) -> list[Any]:
    """What the model read before it gave this response, oldest first."""
    return [item.to_dict() for item in client.responses.input_items.list(response.id, order="asc")]


def refusal(client: openai.OpenAI, *items: Any, **body: Any) -> dict[str, Any]:
    """Send a body as it stands; return the error and its status."""
    whole = {"model": MODEL, "input": [*items] or [GO], **body}
    sent = {name: value for name, value in whole.items() if value != "missing"}
    with pytest.raises(openai.APIStatusError) as caught:
        client.post("/responses", body=sent, cast_to=object)
    answer: Any = caught.value.body
    assert answer["type"] == "invalid_request_error"
    assert caught.value.request_id is not None
    return {**answer, "status": caught.value.status_code}
