"""The server itself: what it records, keeps and survives; scripts, faults and gates."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
from support.simulator_helpers import (
    ANSWER,
    GO,
    HEADERS,
    MODEL,
    ask,
    connect,
    create,
    stream,
    text_of,
)

from continuation.simulator import Raw, Reply, Scenario, Simulator, Text, Thinking, ToolUse


def test_requests_are_recorded_as_they_came(sim: Simulator, client: anthropic.Anthropic) -> None:
    create(client, extra_headers={"X-Mine": "Yes"})
    client.models.retrieve(MODEL)
    asked, looked = sim.requests
    assert (asked.method, asked.path, asked.status) == ("POST", "/v1/messages", 200)
    assert asked.headers["x-mine"] == "Yes"
    assert asked.body is not None
    assert asked.body["max_tokens"] == 100
    assert b'"max_tokens"' in asked.raw
    assert ([asked], "GET") == (sim.posts, looked.method)


def test_reset_forgets_everything_but_the_scenario(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    sim.scenario = Scenario(status={2: 529})
    create(client)
    sim.script([Reply([Text("never")])])
    sim.reset()
    assert sim.requests == []
    assert ANSWER[:400] == text_of(create(client))


def test_a_base_path_may_have_a_prefix(sim: Simulator) -> None:
    url = f"{sim.url}/some/anthropic"
    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client:
        assert ANSWER[:400] == text_of(create(client))


def test_an_answer_is_read_from_a_file_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "story.md"
    path.write_bytes("a\r\nb\tü".encode())
    with Simulator(path, Scenario(call=True)) as sim, connect(sim) as client:
        assert create(client).content[1].input == {"path": "story.md", "content": "a\r\nb\tü"}
    path.write_bytes(b"\x89PNG")
    with pytest.raises(ValueError, match=r"answer: .*story\.md is not UTF-8"):
        Simulator(path)


async def _recite_many(url: str, count: int) -> list[str]:
    async def one(client: anthropic.AsyncAnthropic, number: int) -> str:
        turns: Any = [{"role": "user", "content": f"recite {number}"}]
        async with client.messages.stream(model=MODEL, max_tokens=4096, messages=turns) as events:
            return await events.get_final_text()

    how: Any = {"base_url": url, "api_key": "k", "max_retries": 0, "timeout": 60.0}
    async with anthropic.AsyncAnthropic(**how) as client:
        return await asyncio.gather(*(one(client, number) for number in range(count)))


def test_many_async_streams_at_once(sim: Simulator) -> None:
    assert asyncio.run(_recite_many(sim.url, 50)) == [ANSWER] * 50
    assert len(sim.posts) == 50


def test_closing_ends_stalled_streams_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with Simulator() as sim, anthropic.Anthropic(base_url=sim.url, api_key="k") as client:
        sim.start()
        assert len(threading.enumerate()) == len(before) + 1, "starting twice is starting once"
        sim.script([Reply([Text("abc")], stall=2)])
        events = create(client, stream=True)
        next(iter(events))
        sim.close()
        with pytest.raises(httpx2.HTTPError):
            list(events)
    gc.collect()
    assert before == set(threading.enumerate())


def test_a_long_stream_is_pushed_in_few_writes(sim: Simulator) -> None:
    sim.script([Reply([Text("x" * 20_000)], deltas=1)])
    body = {"model": MODEL, "max_tokens": 100, "messages": [GO], "stream": True}
    url = f"{sim.url}/v1/messages"
    with httpx2.stream("POST", url, headers=HEADERS, json=body) as response:
        pieces = sum(1 for _ in response.iter_raw())
    assert sim.posts[0].sent == 20_006
    assert pieces < 500


def test_a_body_sent_in_chunks_is_read_whole(sim: Simulator) -> None:
    body = b'{"model": "x", "max_tokens": 20, "messages": [{"role": "user", "content": "go"}]}'
    with httpx2.Client(base_url=sim.url, headers=HEADERS) as line:
        for _ in range(2):  # the connection must be fit for another request
            answer = line.post("/v1/messages", content=iter([body[:10], body[10:]]))
            assert answer.json()["stop_reason"] == "max_tokens"
    assert [body, body] == [request.raw for request in sim.requests]


def test_a_bug_of_the_simulator_is_told_to_the_client(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    sim.script([Reply(raw_body={"not": object()})])
    with pytest.raises(anthropic.InternalServerError, match="the simulator failed: TypeError"):
        create(client)


# -- faults


def test_attempts_are_counted_by_conversation(sim: Simulator, client: anthropic.Anthropic) -> None:
    sim.scenario = Scenario(status={2: 529})
    create(client)
    create(client, 100, {"role": "user", "content": "another matter"})
    with pytest.raises(anthropic.APIStatusError):
        create(client)


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


def test_a_kill_strikes_once_at_its_event_and_never_this_process(
    sim: Simulator, client: anthropic.Anthropic, caplog: pytest.LogCaptureFixture
) -> None:
    sim.script([Reply([Text("to the end")], deltas=1, kill=4) for _ in range(4)])
    sent = list[int]()
    sim.victim = lambda: sent.append(sim.requests[-1].sent)
    assert stream(client)[-1].type == "message_stop"
    assert sent == [4]
    assert text_of(create(client)) == "to the end"
    assert sent == [4, 0]
    for victim, why in ((None, "none is set"), (os.getpid(), "it is this process")):
        sim.victim = victim
        assert stream(client)[-1].type == "message_stop"
        assert f"{why}: set the simulator's `victim`" in caplog.text


def test_a_connection_can_be_dropped_before_anything(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    sim.script([Reply([Text("x")], drop=-1)])
    with pytest.raises(anthropic.APIConnectionError):
        create(client)
    assert sim.posts[0].status == 0


def test_an_error_event_is_the_last_and_a_status_where_there_are_no_events(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    sim.scenario = Scenario(error_event={1: 5, 2: 5})
    with pytest.raises(anthropic.APIStatusError) as caught:
        stream(client)
    error = {"type": "overloaded_error", "message": "Overloaded"}
    assert {"type": "error", "error": error} == caught.value.body
    assert sim.posts[0].sent == 6
    with pytest.raises(anthropic.APIStatusError) as caught:
        create(client)
    assert caught.value.status_code == 529


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
            ToolUse("Write", {"path": "a.txt", "content": "hello"}, id="toolu_1", cut=24),
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
    assert caught.value.response.headers["x-mine"] == "1"
    assert body["request_id"] == caught.value.request_id


def test_a_raw_body_is_sent_verbatim(sim: Simulator) -> None:
    sim.script([Reply(raw_body="<html>", status=502, headers={"content-type": "text/html"})])
    answer = ask(sim, stream=True)
    assert (answer.status_code, answer.text) == (502, "<html>")
    assert answer.headers["content-type"] == "text/html"


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

    def open_once_asked() -> None:
        while not sim.posts:
            gate.wait(0.005)
        gate.set()

    sim.script([Reply([Text("abc")], gate=gate)])
    opener = threading.Thread(target=open_once_asked)
    opener.start()
    assert text_of(create(client)) == "abc"
    opener.join()


def test_a_stalled_stream_sees_its_client_leave(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    sim.script([Reply([Text("abc")], stall=3)])
    events = create(client, stream=True)
    assert next(iter(events)).type == "message_start"
    events.close()
    assert sim.posts[0].done.wait(60)
    assert (sim.posts[0].hung_up, sim.posts[0].sent) == (True, 3)
