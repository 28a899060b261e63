"""What the tests of the simulator share: one conversation and a few ways to ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic
import httpx2

if TYPE_CHECKING:
    from continuation.simulator import Simulator

MODEL = "claude-opus-5"
OLD = "claude-haiku-4-5"
ANSWER = "".join(f"Line {n}: der Text, 文字 und 🙂, geht weiter.\n" for n in range(60))
GO = {"role": "user", "content": "recite"}
PROMPT = {"role": "user", "content": "You were cut off. Go on."}
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
