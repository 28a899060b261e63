"""What the chats of a wrapped client remember; and the calls that ask for a bare HTTP response."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from google import genai
from google.genai import types
from support.drive_gemini import BEFORE, ECHO, FAST, SIGNATURE, call, chunk, text
from support.sdks.gemini import ASKED, CEILING, NEW, connect, run
from support.sdks.turn import BOTH, STREAMS, How
from support.servers import Answer, Canned, in_turn

import continuation
from continuation.simulator import Scenario, Simulator
from continuation.types import Json, Outcome

STORY = "Once upon a time there was a king who had three sons and a horse. " * 40
CUT = chunk(text("Once upon a "), reason="MAX_TOKENS", said=1000)


def answers(*told: list[Json]) -> Canned:
    return in_turn(*(Answer(events=chunks) for chunks in told))


def talk(url: str, how: How, *said: str, **config: Any) -> list[types.Content]:
    """Say something in a streamed chat; return what it remembers."""
    config["max_output_tokens"] = CEILING  # a cut is then followed by a recovery
    with connect(url) as bare:
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


@pytest.mark.parametrize("how", BOTH)
def test_a_healed_turn_is_one_content_in_the_history(how: How) -> None:
    with Simulator(answer=STORY, scenario=Scenario()) as sim:
        ran = run(sim, how, door="chats", limit=300)
        assert ran.told.outcome is Outcome.HEALED
        asked, (role, parts) = told(ran.history)
        assert (asked, role) == (("user", [{"text": ASKED}]), "model")
        assert parts[0]["text"] == STORY
        assert all("thought_signature" in part for part in parts[1:])


COUNTS: Json = {"candidates": [], "usageMetadata": {"promptTokenCount": 10}, "responseId": "r1"}
"""A chunk without content amid the text: for it the SDK's chat forgets the whole turn."""
AMID = [chunk(text("So: ")), COUNTS, chunk(text(BEFORE)), chunk(reason="MAX_TOKENS", said=65_536)]
SHORT = [chunk(text('{"a":')), COUNTS, chunk(text(" 1")), AMID[-1]]
REST = [chunk(text(ECHO)), chunk(text("x jumps.")), chunk(text(""), reason="STOP")]
REMEMBERED: dict[str, tuple[list[list[Json]], dict[str, Any], str | None]] = {
    "not cut": ([[chunk(text("One, ")), chunk(text("two."), reason="STOP")]], {}, "One, two."),
    "not cut and blocked, which is the SDK's to judge": (
        [[chunk(text("I wo")), chunk(reason="SAFETY")]],
        {},
        None,
    ),
    "empty chunks": (
        [[chunk(), CUT], [chunk(), chunk(text("time."), reason="STOP")]],
        {},
        "Once upon a time.",
    ),
    "counts amid the text": ([AMID, REST], {}, f"So: {BEFORE}x jumps."),
    # Without an id the last report counts.
    "no ids": (
        [
            [{k: v for k, v in c.items() if k != "responseId"} for c in told]
            for told in (AMID, REST)
        ],
        {},
        f"So: {BEFORE}x jumps.",
    ),
    "stays cut": ([SHORT], {"response_mime_type": "application/json"}, '{"a": 1'),
}


@pytest.mark.parametrize("how", STREAMS)
@pytest.mark.parametrize("what", REMEMBERED)
def test_a_streamed_turn_is_one_content_in_the_history(how: How, what: str) -> None:
    attempts, config, said = REMEMBERED[what]
    turn = [("user", [{"text": "Go."}]), ("model", [{"text": said}])]
    with answers(*attempts) as server:
        assert told(talk(server.url, how, "Go.", **config)) == (turn if said else [])


@pytest.mark.parametrize("how", STREAMS)
def test_a_healed_chat_goes_on(how: How) -> None:
    rest = chunk(text("time."), reason="STOP")
    with answers([chunk(), CUT], [chunk(), rest], [rest]) as server:
        history = told(talk(server.url, how, "Go.", "And then?"))
    said = ["Go.", "Once upon a time.", "And then?", "time."]
    assert [(role, part["text"]) for role, [part] in history] == [
        ("model" if n % 2 else "user", text) for n, text in enumerate(said)
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


@pytest.mark.parametrize("how", BOTH)
def test_each_response_and_chunk_leads_to_the_report(how: How) -> None:
    with Simulator(answer=STORY, scenario=Scenario()) as sim:
        for limit, outcome in ((300, Outcome.HEALED), (60_000, Outcome.COMPLETE)):
            ran = run(sim, how, limit=limit)
            found = continuation.report(ran.chunks[-1])
            assert found is not None
            assert (found, found.outcome) == (ran.told, outcome)
