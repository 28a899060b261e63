"""What is raced, by wire format: its answers, its path, and how its SDK asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import answers
import answers_chat
import answers_responses
import anthropic
import openai


class Answers(Protocol):
    """A module that encodes one format's answers."""

    def of_events(self, number: int, *, call: bool = False) -> list[bytes]: ...

    def body(self, texts: Sequence[str], reason: str = ...) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Wire:
    """One wire format."""

    what: str
    answers: Answers
    path: str
    base: str
    """What the SDK's base URL has behind the server's."""
    client: Callable[..., Any]
    async_client: Callable[..., Any]
    create: Callable[[Any], Callable[..., Any]]
    """The method that asks, of a client."""


def _response(create: Callable[..., Any], **asked: Any) -> Any:
    """Ask in the words that the other two have in common."""
    limit, items = asked.pop("max_tokens"), asked.pop("messages")
    return create(max_output_tokens=limit, input=items, **asked)


WIRES: Mapping[str, Wire] = {
    "anthropic": Wire(
        "client.messages.create of the anthropic SDK",
        answers,
        "/v1/messages",
        "",
        anthropic.Anthropic,
        anthropic.AsyncAnthropic,
        lambda client: client.messages.create,
    ),
    "openai-chat": Wire(
        "client.chat.completions.create of the openai SDK",
        answers_chat,
        "/v1/chat/completions",
        "/v1",
        openai.OpenAI,
        openai.AsyncOpenAI,
        lambda client: client.chat.completions.create,
    ),
    "openai-responses": Wire(
        "client.responses.create of the openai SDK",
        answers_responses,
        "/v1/responses",
        "/v1",
        openai.OpenAI,
        openai.AsyncOpenAI,
        lambda client: partial(_response, client.responses.create),
    ),
}
