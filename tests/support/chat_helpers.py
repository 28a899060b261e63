"""What the tests of Chat Completions in the simulator share."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx2
import openai

from continuation.simulator import Scenario

if TYPE_CHECKING:
    from continuation.simulator import Simulator

MODEL = "gpt-4o"
REASONING = "gpt-5"
ANSWER = "".join(f"Line {n}: der Text, 文字 und 🙂, geht weiter.\n" for n in range(60))
GO = {"role": "user", "content": "recite"}
PROMPT = {"role": "user", "content": "You were cut off. Go on."}
HEADERS = {"authorization": "Bearer k"}
WRITE = {"type": "function", "function": {"name": "Write", "parameters": {"type": "object"}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "Write", "arguments": "{}"}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "ok"}


def connect(sim: Simulator, prefix: str = "/v1") -> openai.OpenAI:
    return openai.OpenAI(base_url=sim.url + prefix, api_key="k", max_retries=0)


def create(client: openai.OpenAI, limit: int | None = 100, *turns: Any, **more: Any) -> Any:
    body: dict[str, Any] = {"model": MODEL, "messages": [*turns] or [GO], **more}
    if limit is not None:
        body.setdefault("max_tokens", limit)
    return client.chat.completions.create(**body)


def post(sim: Simulator, prefix: str = "/v1", **body: Any) -> httpx2.Response:
    """Ask without the SDK, to see the bytes; a member that is "missing" is left out."""
    whole = {"model": MODEL, "max_tokens": 100, "messages": [GO], **body}
    sent = {name: value for name, value in whole.items() if value != "missing"}
    return httpx2.post(f"{sim.url}{prefix}/chat/completions", headers=HEADERS, json=sent)


def refused(sim: Simulator, vendor: str = "openai", *, status: int = 400, **body: Any) -> Any:
    sim.scenario = Scenario(vendor=vendor)
    answer = post(sim, **body)
    assert answer.status_code == status, answer.text
    return answer.json()


def text_of(completion: Any) -> str:
    return str(completion.choices[0].message.content)


def finish_of(completion: Any) -> str:
    return str(completion.choices[0].finish_reason)


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def chunks(client: openai.OpenAI, limit: int = 100, **more: Any) -> list[Any]:
    return list(create(client, limit, stream=True, **more))


def data(sim: Simulator, **body: Any) -> list[Any]:
    """Return the events of a stream as they came, the last one `[DONE]`."""
    lines = post(sim, stream=True, **body).text.splitlines()
    found = [line.removeprefix("data: ") for line in lines if line]
    return [text if text == "[DONE]" else json.loads(text) for text in found]
