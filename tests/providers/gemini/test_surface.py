"""What a caller of google-genai sees where an answer ends oddly, or is left half-way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from google import genai
from google.genai import types
from support.drive_gemini import FAST, LONG, NEW, SIGNATURE, Chunk, call, chunk, text
from support.sdks.gemini import connect
from support.servers import Answer, Asked, Canned
from support.shells import KINDS, Kind

import continuation
from continuation.types import Outcome

FAILED = (
    "UNEXPECTED_TOOL_CALL",
    "TOO_MANY_TOOL_CALLS",
    "MISSING_THOUGHT_SIGNATURE",
    "MALFORMED_RESPONSE",
    "NO_IMAGE",
)


@contextmanager
def serving(*answers: list[Chunk]) -> Iterator[tuple[genai.Client, Canned]]:
    """Answer each request with the next of `answers`, the last one again and again.

    A request that is not streamed gets the last chunk only.
    """
    left = list(answers)

    def rule(asked: Asked) -> Answer:
        chunks = left.pop(0) if len(left) > 1 else left[0]
        streamed = "streamGenerateContent" in asked.path
        return Answer(events=chunks) if streamed else Answer(body=chunks[-1])

    with Canned(rule) as server, connect(server.url) as bare:
        yield continuation.wrap(bare, config=FAST), server


ASKED: Any = {"model": NEW, "contents": "Go.", "config": {"max_output_tokens": 1000}}


def ask(client: genai.Client, *, streamed: bool) -> list[types.GenerateContentResponse]:
    if streamed:
        return [*client.models.generate_content_stream(**ASKED)]
    return [client.models.generate_content(**ASKED)]


async def ask_async(client: Any, *, streamed: bool) -> None:
    if streamed:
        async for _ in await client.models.generate_content_stream(**ASKED):
            pass
    else:
        await client.models.generate_content(**ASKED)


def outcome() -> Outcome:
    report = continuation.last_report()
    assert report is not None
    return report.outcome


def said(chunks: list[types.GenerateContentResponse]) -> str:
    return "".join(c.text or "" for c in chunks)


@pytest.mark.parametrize("reason", FAILED)
@pytest.mark.parametrize("streamed", [False, True])
def test_an_end_that_no_limit_helps_against_passes_though_it_used_the_limit(
    reason: str, streamed: bool
) -> None:
    """It is requested again while nothing of it was delivered, at most twice."""
    bad = [chunk(text("half a wor"), reason=reason, said=1000)]
    with serving(bad, bad, bad) as (client, server):
        chunks = ask(client, streamed=streamed)
    [told] = chunks[-1].candidates or []
    assert (said(chunks), told.finish_reason) == ("half a wor", reason)
    assert len(server.asked) == 3 - streamed  # a second stream is delivered as it arrives
    assert outcome() is Outcome.INCOMPLETE


def test_a_stream_left_half_way_says_nothing_of_the_next_answer() -> None:
    cut = [chunk(text("half ")), chunk(text("a wor"), reason="MAX_TOKENS", said=1000)]
    odd = [chunk(text("a"), text("b"), {}, reason="STOP")]  # with an empty part: the SDK drops it
    with serving(cut, odd) as (client, _):
        chat = client.chats.create(model=NEW)
        stream: Any = chat.send_message_stream("One.")
        next(stream)
        stream.close()
        chat.send_message("Two.")
        texts = [[p.text for p in c.parts or []] for c in chat.get_history()]
        assert texts == [["Two."], ["a", "b", None]]
        assert chat.get_history(curated=True) == []


CUT = chunk(text("half a wor"), reason="MAX_TOKENS", said=1000)
WHOLE = chunk(text("half a word."), reason="STOP")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_client_that_is_closed_between_two_attempts_leaves_no_empty_answer(
    kind: Kind, streamed: bool
) -> None:
    async def turn(client: Any) -> None:
        loop = asyncio.get_running_loop()
        close.append(lambda: asyncio.run_coroutine_threadsafe(client.aclose(), loop).result())
        await ask_async(client, streamed=streamed)

    close: list[Callable[[], None]] = []

    def rule(asked: Asked) -> Answer:
        if len(server.asked) == 1:
            return Answer(events=[CUT]) if streamed else Answer(body=CUT)
        close[0]()
        return Answer(events=[WHOLE])

    with Canned(rule) as server, connect(server.url) as bare:
        client = continuation.wrap(bare, config=FAST)
        if kind == "async":
            with pytest.raises(httpx2.ReadError):
                asyncio.run(turn(client.aio))
        else:
            close.append(client.close)
            with pytest.raises(httpx2.ReadError):
                ask(client, streamed=streamed)
        assert len(server.asked) == 2


SENTENCE = "The quick brown fox jumps over the lazy dog, and then it goes on to the "
EMPTY = {
    "stop": chunk(reason="STOP", said=0),
    "an empty text": chunk(text(""), reason="STOP", said=0),
    "a thought": chunk(text("hm", thought=True), reason="STOP", said=9),
    "malformed": chunk(reason="MALFORMED_FUNCTION_CALL", said=9),
}


@pytest.mark.parametrize("empty", EMPTY)
@pytest.mark.parametrize("streamed", [False, True])
def test_an_empty_answer_does_not_take_the_place_of_half_a_one(empty: str, streamed: bool) -> None:
    cut = chunk(text(SENTENCE), reason="MAX_TOKENS", said=1000)
    rest = [chunk(text(SENTENCE[-40:] + "river."), reason="STOP")]
    with serving([cut], [EMPTY[empty]], rest) as (client, server):
        chunks = ask(client, streamed=streamed)
    assert said(chunks) == SENTENCE + "river."
    assert len(server.asked) == 3
    assert outcome() is Outcome.HEALED


SIGNED = text("", thoughtSignature=SIGNATURE)
NOTE = call("note", path="a.txt")
WHOLE = call("note", path="a.txt", body="")
LIMITED: dict[str, Any] = {"reason": "MAX_TOKENS", "said": 65_536}
DONE = [chunk(text("Done."), reason="STOP")]
BEHIND = {
    "a signature": [chunk(WHOLE), chunk(SIGNED, **LIMITED)],
    "a signature in its chunk": [chunk(WHOLE, SIGNED, **LIMITED)],
    "a text": [chunk(NOTE, SIGNED, text("And so "), **LIMITED)],
    "nothing": [chunk(WHOLE, reason="STOP", said=65_536)],
}


def runs(*answers: list[Chunk], model: str, streamed: bool) -> tuple[list[str], int]:
    """Let a chat run calls; return which it ran, and how many requests were sent."""
    ran: list[str] = []

    def note(path: str, body: str = "") -> None:
        """Record a run."""
        ran.append(path + body)

    with serving(*answers) as (client, server):
        config: Any = {"max_output_tokens": 65_536, "tools": [note]}
        chat = client.chats.create(model=model, config=config)
        if streamed:
            list(chat.send_message_stream("Go."))
        else:
            chat.send_message("Go.")
        return ran, len(server.asked)


@pytest.mark.parametrize(
    ("behind", "streamed"),
    [(name, streamed) for name in BEHIND for streamed in {len(BEHIND[name]) > 1, True}],
)
def test_a_call_at_the_limit_that_is_proven_whole_is_run_and_not_asked_for_again(
    behind: str, streamed: bool
) -> None:
    """Its declaration has no argument that it lacks, or something follows it."""
    assert runs(BEHIND[behind], DONE, model=NEW, streamed=streamed) == (["a.txt"], 2)


@pytest.mark.parametrize("streamed", [False, True])
def test_what_is_behind_such_a_call_comes_by_the_providers_token(streamed: bool) -> None:
    cut = [chunk(NOTE, **LIMITED, continuationToken="dDE=")]
    rest = [chunk(text("And so on."), reason="STOP")]
    assert runs(cut, rest, DONE, model=LONG, streamed=streamed) == (["a.txt"], 3)
