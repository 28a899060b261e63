"""What the tests of the simulator share: one conversation and a few ways to ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic
import httpx2
import pytest

if TYPE_CHECKING:
    from continuation.simulator import Simulator

MODEL = "claude-opus-5"
OLD = "claude-haiku-4-5"
BINDING = "claude-haiku-5-5"
ANSWER = "".join(f"Line {n}: der Text, 文字 und 🙂, geht weiter.\n" for n in range(60))
GO = {"role": "user", "content": "recite"}
PROMPT = {"role": "user", "content": "You were cut off. Go on."}
TOOLS = [{"name": "Write", "input_schema": {"type": "object"}}]
CALL = {"type": "tool_use", "id": "toolu_1", "name": "Write", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}
HM = {"type": "thinking", "thinking": "hm", "signature": "sig"}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
MANUAL = {"type": "enabled", "budget_tokens": 1024}
CACHED = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
HEADERS = {"x-api-key": "k", "anthropic-version": "2026-10-21"}


def connect(sim: Simulator) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=sim.url, api_key="k", max_retries=0)


def create(client: anthropic.Anthropic, limit: int = 100, *turns: Any, **more: Any) -> Any:
    body = {"model": MODEL, "max_tokens": limit, "messages": [*turns] or [GO], **more}
    return client.messages.create(**body)


def stream(client: anthropic.Anthropic, limit: int = 100, *turns: Any, **more: Any) -> list[Any]:
    return list(create(client, limit, *turns, stream=True, **more))


def ask(sim: Simulator, **body: Any) -> httpx2.Response:
    """Ask without the SDK, to see the bytes."""
    whole = {"model": MODEL, "max_tokens": 100, "messages": [GO], **body}
    return httpx2.post(f"{sim.url}/v1/messages", headers=HEADERS, json=whole)


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def said(message: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [block.to_dict() for block in message.content]}


def text(words: Any) -> dict[str, Any]:
    return {"type": "text", "text": words}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def model(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def refusal(client: anthropic.Anthropic, **body: Any) -> str:
    """Send a body as it is through the SDK; return why it was refused."""
    whole = {"model": MODEL, "max_tokens": 2000, "messages": [GO], **body}
    sent = {name: value for name, value in whole.items() if value != "missing"}
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.post("/v1/messages", body=sent, cast_to=object)
    answer: Any = caught.value.body
    assert (answer["type"], answer["error"]["type"]) == ("error", "invalid_request_error")
    assert answer["request_id"] == caught.value.response.headers["request-id"]
    return str(answer["error"]["message"])
