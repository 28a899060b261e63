"""What the chats of a wrapped client remember; and the calls that ask for a bare HTTP response."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from google import genai
from google.genai import types
from support.drive_gemini import FAST, SIGNATURE, call, chunk, text
from support.sdks.gemini import ASKED, CEILING, NEW, connect, run
from support.sdks.turn import HOWS, How
from support.servers import Answer, Asked, Canned

import continuation
from continuation.simulator import Scenario, Simulator
from continuation.types import Json, Outcome

STORY = "Once upon a time there was a king who had three sons and a horse. " * 40
CUT = chunk(text("Once upon a "), reason="MAX_TOKENS", said=1000)
STREAMS: tuple[How, ...] = ("sync-stream", "async-stream")


def answers(*streams: list[Json]) -> Canned:
    """Answer each request with the next stream; the last one is given again and again."""
    left = list(streams)

    def rule(asked: Asked) -> Answer:
        return Answer(events=left.pop(0) if len(left) > 1 else left[0])

    return Canned(rule)


def talk(url: str, how: How, *said: str, **config: Any) -> list[types.Content]:
    """Say something in a streamed chat; return what it remembers."""
    options = types.HttpOptions(base_url=url)
    config["max_output_tokens"] = CEILING  # a cut is then followed by a recovery
    with genai.Client(api_key="key", http_options=options) as bare:
        client = continuation.wrap(bare, config=FAST)
        if how == "sync-stream":
            settings = types.GenerateContentConfig(**config)
            chat = client.chats.create(model=NEW, config=settings)
            for message in said:
                list(chat.send_message_stream(message))
            return chat.get_history(curated=True)
        return asyncio.run(_talk(client, said, config))


async def _talk(client: genai.Client, said: tuple[str, ...], config: Any) -> list[types.Content]:
    chat = client.aio.chats.create(model=NEW, config=config)
    for message in said:
        async for _ in await chat.send_message_stream(message):
            pass
    await client.aio.aclose()
    return chat.get_history(curated=True)


def told(history: list[types.Content]) -> list[tuple[str | None, list[Json]]]:
    """Return who said what, part by part, as it would be sent."""
    return [
        (c.role, [p.model_dump(mode="json", exclude_none=True) for p in c.parts or []])
        for c in history
    ]


@pytest.mark.parametrize("how", HOWS)
def test_a_healed_turn_is_one_content_in_the_history(how: How) -> None:
    with Simulator(answer=STORY, scenario=Scenario()) as sim:
        ran = run(sim, how, door="chats", limit=300)
        assert ran.told.outcome is Outcome.HEALED
        asked, (role, parts) = told(ran.history)
        assert (asked, role) == (("user", [{"text": ASKED}]), "model")
        assert parts[0]["text"] == STORY
        assert all("thought_signature" in part for part in parts[1:])


@pytest.mark.parametrize("how", STREAMS)
def test_a_turn_that_was_not_cut_is_one_content_as_well(how: How) -> None:
    with answers([chunk(text("One, ")), chunk(text("two."), reason="STOP")]) as server:
        assert told(talk(server.url, how, "Go.")) == [
            ("user", [{"text": "Go."}]),
            ("model", [{"text": "One, two."}]),
        ]


@pytest.mark.parametrize("how", STREAMS)
def test_whether_an_answer_that_was_not_cut_counts_is_the_sdks_to_say(how: How) -> None:
    with answers([chunk(text("I wo")), chunk(reason="SAFETY")]) as server:
        assert told(talk(server.url, how, "Go.")) == []


@pytest.mark.parametrize("how", STREAMS)
def test_a_chunk_without_content_does_not_make_a_healed_chat_forget(how: How) -> None:
    """The SDK's rule: then the whole turn is invalid, what the user said included."""
    empty = chunk()
    rest = chunk(text("time."), reason="STOP")
    with answers([empty, CUT], [empty, rest], [rest]) as server:
        history = told(talk(server.url, how, "Go.", "And then?"))
    assert history == [
        ("user", [{"text": "Go."}]),
        ("model", [{"text": "Once upon a time."}]),
        ("user", [{"text": "And then?"}]),
        ("model", [{"text": "time."}]),
    ]


@pytest.mark.parametrize("how", STREAMS)
def test_what_is_signed_is_remembered_as_it_came(how: How) -> None:
    thought = [chunk(text("Let me ", thought=True)), chunk(text("see.", thought=True))]
    signed = text("far away. ", thoughtSignature=SIGNATURE)
    rest = [
        chunk(signed),
        chunk(text("He ")),
        chunk(text("rode."), call(path="a")),
        chunk(text(""), reason="STOP"),
    ]
    with answers([*thought, CUT], rest) as server:
        (_, [*asked]), (role, parts) = told(talk(server.url, how, "Go."))
    assert (asked, role) == ([{"text": "Go."}], "model")
    kept = [part for part in parts if not part.get("thought")]
    assert "".join(str(part.get("text", "")) for part in kept) == "Once upon a far away. He rode."
    assert {"text": "far away. ", "thought_signature": SIGNATURE} in kept
    assert kept[-1]["function_call"] == {"name": "Write", "args": {"path": "a"}}
    assert {"text": ""} not in parts


def test_each_step_of_a_streamed_chat_with_functions_is_one_content() -> None:
    seen: list[str] = []

    def write(path: str) -> str:
        """Write a file."""
        seen.append(path)
        return "done"

    with answers(
        [CUT],
        [chunk(text("time I ")), chunk(text("write."), call("write", path="a"), reason="STOP")],
        [chunk(text("Now ")), chunk(text("the re"), reason="MAX_TOKENS", said=1000)],
        [chunk(text("st.")), chunk(text(""), reason="STOP")],
    ) as server:
        history = told(talk(server.url, "sync-stream", "Go.", tools=[write]))
    assert seen == ["a"]
    assert [role for role, _ in history] == ["user", "model", "user", "model"]
    assert [part.get("text") for part in history[1][1]] == ["Once upon a time I write.", None]
    assert history[3] == ("model", [{"text": "Now the rest."}])


def test_two_clients_of_which_one_is_wrapped() -> None:
    with Simulator(answer=STORY) as sim, connect(sim) as bare, connect(sim) as other:
        client = continuation.wrap(bare, config=FAST)
        assert continuation.wrap(client) is client
        assert isinstance(client.chats.create(model=NEW), type(other.chats.create(model=NEW)))
        assert type(other) is genai.Client
        assert type(other.chats) is not type(client.chats)


# --- bare responses -----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_call_for_the_bare_response_is_not_touched(how: How) -> None:
    with Simulator(answer=STORY, scenario=Scenario()) as sim:
        config = types.GenerateContentConfig(
            max_output_tokens=300, should_return_http_response=True
        )
        with connect(sim) as plain:
            client = continuation.wrap(plain, config=FAST)
            if how == "sync":
                said = client.models.generate_content(model=NEW, contents="Go.", config=config)
            else:
                asking = client.aio.models.generate_content(
                    model=NEW, contents="Go.", config=config
                )
                said = asyncio.run(_closing(client, asking))
        assert said.candidates is None
        assert said.sdk_http_response is not None
        body = json.loads(said.sdk_http_response.body or "")
        assert body["candidates"][0]["finishReason"] == "MAX_TOKENS"
        assert len(sim.posts) == 1


async def _closing(client: genai.Client, asking: Any) -> types.GenerateContentResponse:
    said: types.GenerateContentResponse = await asking
    await client.aio.aclose()
    return said


@pytest.mark.parametrize("how", HOWS)
def test_each_response_and_chunk_leads_to_the_report(how: How) -> None:
    with Simulator(answer=STORY, scenario=Scenario()) as sim:
        for limit, outcome in ((300, Outcome.HEALED), (60_000, Outcome.COMPLETE)):
            ran = run(sim, how, limit=limit)
            found = continuation.report(ran.chunks[-1])
            assert found is not None
            assert (found, found.outcome) == (ran.told, outcome)
