"""Faults, scripted replies and the ways in which their bytes travel."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import pytest
from support.simulator_helpers import (
    ANSWER,
    GO,
    MODEL,
    ask,
    connect,
    create,
    stream,
    text_of,
)

from continuation.simulator import Raw, Reply, Scenario, Simulator, Text, Thinking, ToolCall


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(answer=ANSWER) as simulator:
        yield simulator


@pytest.fixture
def client(sim: Simulator) -> Iterator[anthropic.Anthropic]:
    with connect(sim) as made:
        yield made


# -- faults


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (429, anthropic.RateLimitError),
        (500, anthropic.InternalServerError),
        (529, anthropic.APIStatusError),
    ],
)
def test_an_attempt_can_meet_an_error_status(
    sim: Simulator, client: anthropic.Anthropic, status: int, kind: type[anthropic.APIStatusError]
) -> None:
    sim.scenario = Scenario(status={2: status}, retry_after=3, retry_after_ms=5)
    create(client)
    with pytest.raises(kind) as caught:
        create(client)
    create(client)
    head = caught.value.response.headers
    assert (status, "3", "5") == (
        caught.value.status_code,
        head["retry-after"],
        head["retry-after-ms"],
    )
    assert [200, status, 200] == [post.status for post in sim.posts]


def test_attempts_are_counted_by_conversation(sim: Simulator, client: anthropic.Anthropic) -> None:
    sim.scenario = Scenario(status={2: 529})
    create(client)
    create(client, 100, {"role": "user", "content": "another matter"})
    with pytest.raises(anthropic.APIStatusError):
        create(client)


@pytest.mark.parametrize("streamed", [True, False])
def test_an_attempt_can_be_dropped(
    sim: Simulator, client: anthropic.Anthropic, *, streamed: bool
) -> None:
    sim.scenario = Scenario(drop={1: 5})
    expected = httpx2.RemoteProtocolError if streamed else anthropic.APIConnectionError
    with pytest.raises(expected):
        (stream if streamed else create)(client)
    assert ANSWER[:400] == text_of(create(client))


def test_a_drop_lets_all_earlier_events_through(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    sim.scenario = Scenario(drop={1: 5})
    events = create(client, stream=True)
    kinds: list[str] = []
    with pytest.raises(httpx2.RemoteProtocolError):
        kinds.extend(event.type for event in events)
    assert ["message_start", "content_block_start", *["content_block_delta"] * 2] == kinds
    assert sim.posts[0].sent == 5  # the ping is one of them


def test_a_connection_can_be_dropped_before_anything(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    sim.script([Reply([Text("x")], drop=-1)])
    with pytest.raises(anthropic.APIConnectionError):
        create(client)
    assert sim.posts[0].status == 0


def test_a_stream_can_end_in_an_error_event(sim: Simulator, client: anthropic.Anthropic) -> None:
    sim.scenario = Scenario(error_event={1: 5})
    with pytest.raises(anthropic.APIStatusError) as caught:
        stream(client)
    error = {"type": "overloaded_error", "message": "Overloaded"}
    assert {"type": "error", "error": error} == caught.value.body
    assert sim.posts[0].sent == 6


def test_an_error_event_is_a_status_where_there_are_no_events(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    sim.scenario = Scenario(error_event={1: 5})
    with pytest.raises(anthropic.APIStatusError) as caught:
        create(client)
    assert caught.value.status_code == 529


async def _two_attempts(url: str) -> list[Any]:
    how: Any = {"model": MODEL, "max_tokens": 100, "messages": [GO], "stream": True}
    async with anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as client:
        seen: list[Any] = []
        for _ in range(2):
            try:
                seen.append([event.type async for event in await client.messages.create(**how)][-1])
            except (httpx2.HTTPError, anthropic.APIError) as error:
                seen.append(type(error))
        return seen


@pytest.mark.parametrize(
    ("scenario", "met"),
    [
        (Scenario(status={1: 429}), anthropic.RateLimitError),
        (Scenario(drop={1: 4}), httpx2.RemoteProtocolError),
        (Scenario(error_event={1: 4}), anthropic.APIStatusError),
    ],
)
def test_async_clients_meet_the_same_faults(
    sim: Simulator, scenario: Scenario, met: type[Exception]
) -> None:
    sim.scenario = scenario
    assert [met, "message_stop"] == asyncio.run(_two_attempts(sim.url))


def test_a_cut_can_be_mislabelled(sim: Simulator, client: anthropic.Anthropic) -> None:
    sim.scenario = Scenario(mislabel="end_turn")
    message = create(client)
    assert (message.stop_reason, message.usage.output_tokens) == ("end_turn", 100)


def test_slow_events_still_arrive(sim: Simulator, client: anthropic.Anthropic) -> None:
    sim.scenario = Scenario(slow=0.001)
    assert stream(client, 20)[-1].type == "message_stop"


# -- scripts


def test_a_script_comes_first_and_the_model_after_it(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    sim.script([Reply([Text("one")]), Reply([Text("two")], stop="max_tokens")])
    messages = [create(client, 2) for _ in range(3)]
    assert ["one", "two", ANSWER[:8]] == [text_of(message) for message in messages]


def test_without_an_answer_the_end_of_the_script_is_said_plainly() -> None:
    with (
        Simulator() as sim,
        connect(sim) as client,
        pytest.raises(anthropic.InternalServerError, match="the script is over"),
    ):
        create(client)


@pytest.mark.parametrize("streamed", [True, False])
def test_both_forms_show_the_same_reply(
    sim: Simulator, client: anthropic.Anthropic, *, streamed: bool
) -> None:
    server_call = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    reply = Reply(
        [
            Thinking("hm", signature="sig"),
            Text("Hello"),
            Raw(server_call),
            ToolCall("Write", {"path": "a.txt", "content": "hello"}, id="toolu_1", cut=24),
        ],
        stop="max_tokens",
        usage={"output_tokens": 77},
        extra={"container": {"id": "c1", "expires_at": "2027-01-01T00:00:00Z"}},
        deltas=2,
    )
    sim.script([reply])
    if streamed:
        with client.messages.stream(model=MODEL, max_tokens=100, messages=[GO]) as events:  # type: ignore[list-item]
            message: Any = events.get_final_message()
    else:
        message = create(client)
    thinking, text, search, call = message.content
    assert (thinking.thinking, thinking.signature, text.text) == ("hm", "sig", "Hello")
    assert (search.id, call.id, call.input) == ("srvtoolu_1", "toolu_1", {"path": "a.txt"})
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 77)
    assert message.container.id == "c1"


def test_a_reply_can_be_an_error_with_headers(sim: Simulator, client: anthropic.Anthropic) -> None:
    sim.script([Reply(status=529, error=("overloaded_error", "Busy"), headers={"x-mine": "1"})])
    with pytest.raises(anthropic.APIStatusError) as caught:
        create(client)
    body: Any = caught.value.body
    assert body["error"] == {"type": "overloaded_error", "message": "Busy"}
    assert ("1", body["request_id"]) == (
        caught.value.response.headers["x-mine"],
        caught.value.request_id,
    )


@pytest.mark.parametrize(
    "shape",
    [
        Reply([Text(ANSWER)], chunk=1),
        Reply([Text(ANSWER)], chunk=7, newline="\r\n", comments=True),
        Reply([Text(ANSWER)], gzip=True),
        Reply([Text(ANSWER)], gzip=True, chunk=3),
        Reply([Text(ANSWER)], deltas=1, newline="\r\n"),
        Reply([Text(ANSWER)], delay=0.01),
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
def test_the_same_reply_arrives_in_every_legal_shape(
    sim: Simulator, client: anthropic.Anthropic, shape: Reply, *, streamed: bool
) -> None:
    sim.script([shape])
    if streamed:
        events = stream(client)
        got = "".join(e.delta.text for e in events if e.type == "content_block_delta")
    else:
        got = text_of(create(client))
    assert got == ANSWER


def test_raw_events_and_bodies_are_sent_verbatim(sim: Simulator) -> None:
    sim.script([Reply(raw_events=[("odd", "{not json"), (None, {"a": 1})])])
    assert ask(sim, stream=True).text == 'event: odd\ndata: {not json\n\ndata: {"a":1}\n\n'
    sim.script([Reply(raw_body="<html>", status=502, headers={"content-type": "text/html"})])
    answer = ask(sim, stream=True)
    assert (
        answer.status_code,
        answer.text,
        answer.headers["content-type"],
    ) == (502, "<html>", "text/html")


def test_a_gate_holds_a_stream_at_its_event(sim: Simulator, client: anthropic.Anthropic) -> None:
    gate = threading.Event()
    sim.script([Reply([Text("abc")], deltas=1, gate=gate, gate_at=4)])
    events = iter(create(client, stream=True))
    seen = [next(events).type for _ in range(3)]  # the ping is the fourth
    assert sim.posts[0].sent == 4
    gate.set()
    assert [event.type for event in events][-1] == "message_stop"
    assert seen == ["message_start", "content_block_start", "content_block_delta"]


def test_a_gate_holds_a_body(sim: Simulator, client: anthropic.Anthropic) -> None:
    gate = threading.Event()
    sim.script([Reply([Text("abc")], gate=gate)])
    opener = threading.Thread(target=_open_once_asked, args=(sim, gate))
    opener.start()
    assert text_of(create(client)) == "abc"
    opener.join()


def _open_once_asked(sim: Simulator, gate: threading.Event) -> None:
    while not sim.posts:
        gate.wait(0.005)
    gate.set()


def test_a_stalled_stream_sees_its_client_leave(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    sim.script([Reply([Text("abc")], stall=3)])
    events = create(client, stream=True)
    assert next(iter(events)).type == "message_start"
    events.close()
    assert sim.posts[0].done.wait(60)
    assert (sim.posts[0].hung_up, sim.posts[0].sent) == (True, 3)
