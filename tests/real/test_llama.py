"""What an unmodified `llama-server` sends, and what a wrapped SDK makes of it."""

from __future__ import annotations

from typing import Any

import document
import httpx2
import pytest
from support.llama import CEILING, FORMATS, Format, config

import continuation

NOTICE = document.TEXTS["notice"]
ASKED = {"role": "user", "content": document.PROMPT.format(name="notice")}
CHAT, MESSAGES, _ = FORMATS
BEGUN = {"role": "assistant", "content": "The h"}


def raw(url: str, path: str, **body: Any) -> Any:
    answer = httpx2.post(f"{url}/v1/{path}", json={"model": "recites", "temperature": 0, **body})
    assert answer.status_code == 200, answer.text
    return answer


def test_the_model_knows_its_document(recites: str) -> None:
    for form in FORMATS:
        got = form.ask(form.client(recites), [ASKED], CEILING)
        assert (got.text, got.truncated) == (NOTICE, False), form.name


def test_a_body_repeats_the_prefill(recites: str) -> None:
    body: dict[str, Any] = {"messages": [ASKED, BEGUN], "max_tokens": 8}
    chat = raw(recites, "chat/completions", **body).json()
    assert chat["choices"][0]["message"]["content"] == "The harbour office open"
    messages = raw(recites, "messages", **body).json()
    assert messages["content"][0]["text"] == "The harbour office open"


def test_a_truncated_response_is_labelled_complete(recites: str) -> None:
    got = raw(recites, "responses", input=[ASKED], max_output_tokens=8).json()
    assert (got["status"], got["usage"]["output_tokens"]) == ("completed", 8)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("form", "limit"),
    # In Messages the server repeats every prefill, and a short one is not recognized.
    [(CHAT, 2), (CHAT, 60), (MESSAGES, 60)],
    ids=["chat, short", "chat", "messages"],
)
def test_a_prefill_continues_exactly(recites: str, form: Format, limit: int, stream: bool) -> None:
    client = continuation.wrap(form.client(recites), config=config(recites))
    more = {"stream": True} if stream else {}
    got = form.ask(client, [ASKED], limit, model=form.prefills, **more)
    assert got.text == NOTICE
