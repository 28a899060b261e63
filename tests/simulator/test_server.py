"""The simulated model and its server, asked by real SDK clients over a real socket."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.simulator_helpers import (
    ANSWER,
    GO,
    HEADERS,
    MODEL,
    OLD,
    PROMPT,
    ask,
    connect,
    create,
    said,
    stream,
    text_of,
)

from continuation.limits import ModelLimits
from continuation.simulator import Reply, Scenario, Simulator, Text, ToolCall, tokens


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(answer=ANSWER) as simulator:
        yield simulator


@pytest.fixture
def client(sim: Simulator) -> Iterator[anthropic.Anthropic]:
    with connect(sim) as made:
        yield made


def recite(client: anthropic.Anthropic, limit: int, **more: Any) -> list[str]:
    """Ask until the answer ends, stacking pairs; return what each attempt said."""
    turns: list[Any] = [GO]
    found: list[str] = []
    while True:
        message = create(client, limit, *turns, **more)
        found.append(text_of(message))
        if message.stop_reason != "max_tokens":
            return found
        turns += [said(message), PROMPT]


# -- recitation


def test_a_roomy_limit_lets_the_whole_answer_through(client: anthropic.Anthropic) -> None:
    message = create(client, 4096)
    assert (text_of(message), message.stop_reason) == (ANSWER, "end_turn")
    assert tokens(ANSWER) == message.usage.output_tokens


def test_the_answer_is_cut_where_the_limit_is_spent(client: anthropic.Anthropic) -> None:
    message = create(client, 100)
    assert (ANSWER[:400], "max_tokens") == (text_of(message), message.stop_reason)
    assert message.usage.output_tokens == 100


def test_a_stream_says_the_same_as_a_message(client: anthropic.Anthropic) -> None:
    with client.messages.stream(model=MODEL, max_tokens=100, messages=[GO]) as events:  # type: ignore[list-item]
        final = events.get_final_message()
    assert (text_of(create(client, 100)), "max_tokens") == (text_of(final), final.stop_reason)
    assert final.usage.output_tokens == 100


def test_events_come_in_the_documented_order(sim: Simulator) -> None:
    names = [line[7:] for line in ask(sim, stream=True).text.splitlines() if line[:6] == "event:"]
    deltas = ["content_block_delta"] * (names.count("content_block_delta"))
    opening = ["message_start", "ping", "content_block_start"]
    assert [*opening, *deltas, "content_block_stop", "message_delta", "message_stop"] == names


@pytest.mark.parametrize("limit", [1, 7, 64, 333, tokens(ANSWER) - 1, tokens(ANSWER) + 1])
def test_stacked_pairs_give_the_whole_answer(client: anthropic.Anthropic, limit: int) -> None:
    assert "".join(recite(client, max(limit, 20))) == ANSWER


def test_an_answer_that_spends_its_limit_exactly_has_nothing_left_to_say(
    client: anthropic.Anthropic,
) -> None:
    first = create(client, tokens(ANSWER))
    assert (text_of(first), first.stop_reason) == (ANSWER, "max_tokens")
    rest = create(client, 100, GO, said(first), PROMPT)
    assert (rest.content, rest.stop_reason) == ([], "end_turn")


def test_a_merged_turn_is_gone_on_from(client: anthropic.Anthropic) -> None:
    partial = {"role": "assistant", "content": ANSWER[:777]}
    assert ANSWER[777:] == text_of(create(client, 4096, GO, partial, PROMPT))


def test_a_turn_that_lost_its_head_is_gone_on_from(client: anthropic.Anthropic) -> None:
    tail = {"role": "assistant", "content": f"[earlier text left out]\n{ANSWER[500:777]}"}
    assert ANSWER[777:] == text_of(create(client, 4096, GO, tail, PROMPT))


def test_a_conversation_about_something_else_does_not_move_the_model(
    client: anthropic.Anthropic,
) -> None:
    turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello!"}, GO]
    assert text_of(create(client, 4096, *turns)) == ANSWER


def test_after_a_whole_recitation_a_new_one_begins(client: anthropic.Anthropic) -> None:
    whole = create(client, 4096)
    again = create(client, 10, GO, said(whole), {"role": "user", "content": "once more"})
    assert ANSWER[:40] == text_of(again)


def test_memory_knows_where_a_restart_ended(client: anthropic.Anthropic) -> None:
    how = {"extra_headers": {"x-simulate": "manner=restart"}}
    first = create(client, 20)
    again = create(client, 15, GO, said(first), PROMPT, **how)
    third = create(client, 5, GO, said(first), PROMPT, said(again), PROMPT)
    assert (ANSWER[:60], ANSWER[60:80]) == (text_of(again), text_of(third))


def test_a_prefill_is_continued_where_it_stops(client: anthropic.Anthropic) -> None:
    partial = {"role": "assistant", "content": ANSWER[:100].rstrip()}
    message = create(client, 4096, GO, partial, model=OLD)
    assert ANSWER[:100].rstrip() + text_of(message) == ANSWER


def test_prefilled_attempts_give_the_whole_answer(client: anthropic.Anthropic) -> None:
    text, stop = "", "max_tokens"
    while stop == "max_tokens":
        partial = [{"role": "assistant", "content": text}] if text.rstrip() else []
        message = create(client, 99, GO, *partial, model=OLD)
        text, stop = (text + text_of(message)).rstrip(), message.stop_reason
    assert ANSWER.rstrip() == text


def test_a_stop_sequence_ends_the_answer(client: anthropic.Anthropic) -> None:
    message = create(client, 4096, stop_sequences=["Line 3"])
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "Line 3")
    assert ANSWER[: ANSWER.index("Line 3")] == text_of(message)


def test_a_limit_of_nothing_gives_nothing(client: anthropic.Anthropic) -> None:
    message = create(client, 0)
    assert (
        message.content,
        message.stop_reason,
        message.usage.output_tokens,
    ) == ([], "max_tokens", 0)


def test_the_window_ends_an_answer_for_its_own_reason() -> None:
    models = {MODEL: ModelLimits(ceiling=4096, window=100)}
    with (
        Simulator(ANSWER, models=models) as sim,
        connect(sim) as client,
    ):
        message = create(client, 4096)
    assert message.stop_reason == "model_context_window_exceeded"
    assert message.usage.input_tokens + message.usage.output_tokens == 100


@settings(max_examples=examples(30))
@given(
    answer=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300),
    limit=st.integers(20, 60),
)
def test_any_answer_is_recited_whole(answer: str, limit: int) -> None:
    answer = f"<{answer}>"  # never blank, or the pieces could not be sent back
    with (
        Simulator(answer) as sim,
        connect(sim) as client,
    ):
        pieces: list[str] = []
        while True:
            turns = [GO, {"role": "assistant", "content": "".join(pieces)}, PROMPT]
            message = create(client, limit, *(turns if pieces else [GO]))
            pieces.append(text_of(message))
            if message.stop_reason == "end_turn":
                break
    assert answer == "".join(pieces)


async def _recite_many(url: str, count: int) -> list[str]:
    async def one(client: anthropic.AsyncAnthropic, number: int) -> str:
        turns: Any = [{"role": "user", "content": f"recite {number}"}]
        async with client.messages.stream(model=MODEL, max_tokens=4096, messages=turns) as events:
            return await events.get_final_text()

    async with anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as client:
        return await asyncio.gather(*(one(client, number) for number in range(count)))


@pytest.mark.parametrize("count", [50, pytest.param(200, marks=pytest.mark.slow)])
def test_many_async_streams_at_once(sim: Simulator, count: int) -> None:
    assert asyncio.run(_recite_many(sim.url, count)) == [ANSWER] * count
    assert len(sim.posts) == count


# -- thinking and calls


def test_thinking_is_spent_before_the_text(sim: Simulator, client: anthropic.Anthropic) -> None:
    sim.scenario = Scenario(thinking=30)
    message = create(client, 100)
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert (ANSWER[:280], 30) == (
        text_of(message),
        message.usage.output_tokens_details.thinking_tokens,
    )


@pytest.mark.parametrize(("limit", "kinds"), [(100, ["thinking"]), (2000, ["thinking", "text"])])
def test_thinking_eats_a_small_limit(
    sim: Simulator, client: anthropic.Anthropic, limit: int, kinds: list[str]
) -> None:
    sim.scenario = Scenario(thinking="all:2000")
    message = create(client, limit)
    assert kinds == [block.type for block in message.content]


def test_thinking_that_was_cut_is_never_signed(sim: Simulator, client: anthropic.Anthropic) -> None:
    sim.scenario = Scenario(thinking="all")
    deltas = [e.delta.type for e in stream(client, 10) if e.type == "content_block_delta"]
    assert {"thinking_delta"} == set(deltas)
    assert create(client, 10).content[0].signature == ""


def test_omitted_thinking_is_signed_and_counted(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    sim.scenario = Scenario(thinking=30)
    message = create(client, 100, thinking={"type": "adaptive", "display": "omitted"})
    assert message.content[0].thinking == ""
    assert message.content[0].signature
    assert message.usage.output_tokens_details.thinking_tokens == 30


def test_a_model_told_not_to_think_does_not(sim: Simulator, client: anthropic.Anthropic) -> None:
    sim.scenario = Scenario(thinking=30)
    message = create(client, 100, thinking={"type": "disabled"})
    assert [block.type for block in message.content] == ["text"]


def test_the_answer_can_come_as_a_call(sim: Simulator, client: anthropic.Anthropic) -> None:
    sim.scenario = Scenario(call=True)
    whole = create(client, 4096)
    assert whole.content[1].input == {"path": "answer.txt", "content": ANSWER}
    result = {"type": "tool_result", "tool_use_id": whole.content[1].id, "content": "ok"}
    after = create(
        client,
        4096,
        GO,
        said(whole),
        {"role": "user", "content": [result]},
        tools=[{"name": "Write", "input_schema": {"type": "object"}}],
    )
    assert (whole.stop_reason, after.stop_reason) == ("tool_use", "end_turn")


def test_a_call_that_was_cut_keeps_whole_members_only(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    sim.scenario = Scenario(call=True)
    cut = create(client, 100)
    with client.messages.stream(model=MODEL, max_tokens=100, messages=[GO]) as events:  # type: ignore[list-item]
        raw = "".join(e.partial_json for e in events if e.type == "input_json")
    assert (cut.content[1].input, cut.stop_reason) == ({"path": "answer.txt"}, "max_tokens")
    assert raw.startswith('{"path": "answer.txt", "content": "Line 0')


@pytest.mark.parametrize(
    ("raw", "arrived"),
    [
        ("", {}),
        ('{"a": "b', {}),
        ('{"a": 12', {}),
        ('{"a": 12, "b": tr', {"a": 12}),
        ('{"a": {"b": 1}, "c": {"d": 2', {"a": {"b": 1}}),
        ('{"a": "\\"", "b', {"a": '"'}),
        ('{"a": [1, {"x": 2}]}', {"a": [1, {"x": 2}]}),
        ('{"a": null}', {"a": None}),
    ],
)
def test_only_members_that_arrived_whole_are_told(
    sim: Simulator, client: anthropic.Anthropic, raw: str, arrived: dict[str, Any]
) -> None:
    sim.script([Reply([ToolCall("Write", raw)], stop="max_tokens")])
    assert arrived == create(client).content[0].input


# -- the server


def test_requests_are_recorded_as_they_came(sim: Simulator, client: anthropic.Anthropic) -> None:
    create(client, extra_headers={"X-Mine": "Yes"})
    client.models.retrieve(MODEL)
    asked, looked = sim.requests
    assert (
        asked.method,
        asked.path,
        asked.headers["x-mine"],
        asked.status,
    ) == ("POST", "/v1/messages", "Yes", 200)
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


def test_an_answer_is_read_from_a_file_as_it_is(tmp_path: Any) -> None:
    path = tmp_path / "story.md"
    path.write_bytes("a\r\nb\tü".encode())
    with (
        Simulator(path, Scenario(call=True)) as sim,
        connect(sim) as client,
    ):
        assert create(client).content[1].input == {"path": "story.md", "content": "a\r\nb\tü"}


def test_a_file_that_is_no_text_is_refused_by_name(tmp_path: Any) -> None:
    path = tmp_path / "image.png"
    path.write_bytes(b"\x89PNG")
    with pytest.raises(ValueError, match=r"answer: .*image\.png is not UTF-8"):
        Simulator(path)


def test_closing_ends_stalled_streams_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with Simulator() as sim, anthropic.Anthropic(base_url=sim.url, api_key="k") as client:
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
    pieces = 0
    with httpx2.stream(
        "POST",
        f"{sim.url}/v1/messages",
        headers=HEADERS,
        json={"model": MODEL, "max_tokens": 100, "messages": [GO], "stream": True},
    ) as response:
        for _ in response.iter_raw():
            pieces += 1
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


def test_starting_twice_is_starting_once() -> None:
    before = threading.active_count()
    with Simulator() as sim:
        sim.start()
        assert before + 1 == threading.active_count()
