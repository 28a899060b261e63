"""Endings to which a real `llama-server` can be brought, and what a wrapped SDK makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import document
import openai
import pytest
from support.breaking import Breaking, breaking
from support.llama import CEILING, FORMATS, Format, config

import continuation
from continuation import Outcome, Report, watch
from continuation.config import Config, Layer

NOTICE = document.TEXTS["notice"]
ASKED = {"role": "user", "content": document.PROMPT.format(name="notice")}
CHAT, MESSAGES, RESPONSES = FORMATS
PART = 2_000
"""Bytes: a part of an answer's stream."""


def with_policy(url: str, **policy: Any) -> Config:
    """Return the configuration of `support.llama` with other policies on top."""
    found = config(url)
    return Config((*found.layers, Layer("the test", policy)), found.vendors)


def streamed(
    form: Format, proxy: Breaking, messages: Sequence[Any] = (ASKED,), **policy: Any
) -> tuple[str, Report]:
    """Stream an answer through the proxy; return its text and the report."""
    client = continuation.wrap(form.client(proxy.url), config=with_policy(proxy.url, **policy))
    with watch() as reports:
        more = {"model": form.prefills} if form.prefills else {}
        got = form.ask(client, [*messages], CEILING, stream=True, **more)
    return got.text, reports[-1]


@pytest.mark.parametrize("form", [CHAT, MESSAGES], ids=["chat", "messages"])
@pytest.mark.parametrize("passes", [PART, PART + 1, PART + 57, PART + 333])
def test_a_dropped_stream_is_resumed(recites: str, form: Format, passes: int) -> None:
    with breaking(recites, passes) as proxy:
        text, report = streamed(form, proxy)
    assert text == NOTICE
    assert report.outcome is Outcome.HEALED
    assert len(report.attempts) == 2


def test_two_drops_are_resumed(recites: str) -> None:
    with breaking(recites, PART, PART) as proxy:
        text, report = streamed(CHAT, proxy)
    assert text == NOTICE
    assert len(report.attempts) == 3


def test_a_server_that_stays_dead_is_an_error(recites: str) -> None:
    with breaking(recites, PART, rest=0) as proxy:
        client = continuation.wrap(CHAT.client(proxy.url), config=with_policy(proxy.url))
        pieces = list[str]()

        def read() -> None:
            for chunk in client.chat.completions.create(
                model="tasks", messages=[ASKED], max_tokens=CEILING, temperature=0, stream=True
            ):
                pieces.extend(choice.delta.content or "" for choice in chunk.choices)

        with watch() as reports, pytest.raises(openai.APIError, match="could not be resumed"):
            read()
    text = "".join(pieces)
    assert text
    assert NOTICE.startswith(text)
    assert (reports[-1].outcome, reports[-1].ending) == (Outcome.PARTIAL, "dropped")
    assert reports[-1].remedy


def test_half_a_body_is_an_error_as_without_us(recites: str) -> None:
    """The SDK sends such a request again by itself, unless its retries are off, as here."""
    with breaking(recites, 400) as proxy:
        client = continuation.wrap(CHAT.client(proxy.url), config=with_policy(proxy.url))
        with watch() as reports, pytest.raises(openai.APIConnectionError):
            CHAT.ask(client, [ASKED], CEILING)
    assert reports[-1].outcome is Outcome.FAILED


def test_a_request_that_exceeds_the_window_is_refused_in_the_servers_words(recites: str) -> None:
    long = {"role": "user", "content": "The harbour office opens at nine. " * 400}
    client = continuation.wrap(CHAT.client(recites), config=with_policy(recites))
    with watch() as reports, pytest.raises(openai.BadRequestError, match="context"):
        CHAT.ask(client, [long], CEILING)
    assert reports[-1].outcome is Outcome.FAILED


def test_a_silence_that_the_request_allows_is_complete(recites: str) -> None:
    client = continuation.wrap(CHAT.client(recites), config=with_policy(recites))
    with watch() as reports:
        got = CHAT.ask(client, [ASKED], CEILING, stop=[NOTICE[:3]])
    assert got.text == ""
    assert (reports[-1].outcome, reports[-1].ending) == (Outcome.COMPLETE, "end")
    assert len(reports[-1].attempts) == 1
