"""Policies for single calls: blocks that do not leak, and a header that never leaves."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Generator, Iterator
from typing import Any

import anthropic
import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sdks.messages import NEW, ask, limits
from support.sdks.messages import run as run_turn
from support.sdks.turn import HOWS, How
from support.shells import Way, both

import continuation
from continuation import Policy
from continuation.config import HEADER, current, override, parse, take
from continuation.policy import KEYS
from continuation.simulator import Reply, Simulator, Text

CUT = Reply([Text("One, ")], stop="max_tokens")
REST = Reply([Text("two.")])
GO: Any = {"role": "user", "content": "Go."}
HEADERS = {"x-api-key": "k", "anthropic-version": "2023-06-01"}


@pytest.fixture
def client(sim: Simulator) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=sim.url, api_key="k", max_retries=2) as bare:
        yield continuation.wrap(bare, config=Policy(remember_limit=False))


def cuts(sim: Simulator, many: int = 1) -> None:
    sim.script([CUT, REST] * many)


# --- blocks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
def test_a_block_holds_for_the_requests_sent_in_it(sim: Simulator, how: How) -> None:
    sim.script([CUT])
    with override(enabled=False):
        ran = run_turn(sim, how)
    assert ran.said.stop_reason == "max_tokens"
    assert ran.told.reason == "switched off by policy"
    assert len(sim.posts) == 1


def test_after_the_block_everything_is_as_before(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    cuts(sim, 2)
    with override(model_max_output_tokens=5000):
        client.messages.create(**ask())
    client.messages.create(**ask())
    assert limits(sim) == [1000, 5000, 1000, 128_000]


def test_blocks_nest_the_inner_one_wins_and_an_exception_ends_it() -> None:
    with override(max_recoveries=1, max_retries=1):
        with override(max_recoveries=0):
            assert current() == {"max_recoveries": 0, "max_retries": 1}
        with pytest.raises(KeyError), override(max_retries=0):
            raise KeyError
        assert current() == {"max_recoveries": 1, "max_retries": 1}
    assert current() == {}


def test_a_stream_keeps_what_held_when_its_request_was_sent(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    sim.script([CUT])
    with override(max_recoveries=0, escalate=False):
        stream = client.messages.create(**ask(stream=True))
    with override(max_recoveries=3):
        assert [e.type for e in stream][-1] == "message_stop"
    assert len(sim.posts) == 1


def test_threads_do_not_see_each_others_blocks() -> None:
    seen: dict[int, Any] = {}
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        with override(max_recoveries=number):
            barrier.wait(60)
            seen[number] = current()
            barrier.wait(60)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    barrier.wait(60)
    seen[9] = current()
    barrier.wait(60)
    for thread in threads:
        thread.join()
    assert seen == {
        0: {"max_recoveries": 0},
        1: {"max_recoveries": 1},
        2: {"max_recoveries": 2},
        9: {},
    }


def test_tasks_do_not_see_each_others_blocks() -> None:
    async def turn(client: anthropic.AsyncAnthropic, ceiling: int, gate: asyncio.Event) -> Any:
        with override(model_max_output_tokens=ceiling):
            await gate.wait()
            await client.messages.create(**ask(max_tokens=300))
        report = continuation.last_report()
        assert report is not None
        return [attempt.limit for attempt in report.attempts]

    async def main(url: str) -> Any:
        async with anthropic.AsyncAnthropic(base_url=url, api_key="k") as bare:
            client = continuation.wrap(bare, config=Policy(remember_limit=False))
            gate = asyncio.Event()
            tasks = [asyncio.create_task(turn(client, n, gate)) for n in (6000, 7000, 8000)]
            await asyncio.sleep(0)
            gate.set()
            return await asyncio.gather(*tasks)

    with Simulator("All that is to be said. " * 100) as sim:
        assert asyncio.run(main(sim.url)) == [[300, 6000], [300, 7000], [300, 8000]]
    assert current() == {}


def test_a_task_begins_with_what_holds_where_it_is_started() -> None:
    async def child() -> Any:
        return dict(current())

    async def main() -> Any:
        with override(max_retries=0):
            task = asyncio.create_task(child())
        return await task, dict(current())

    assert asyncio.run(main()) == ({"max_retries": 0}, {})


def test_a_block_closed_in_another_context_does_no_harm() -> None:
    def generator() -> Generator[None]:
        with override(max_retries=0):
            yield

    running = generator()
    contextvars.copy_context().run(next, running)
    running.close()
    assert current() == {}


@pytest.mark.parametrize(
    ("keys", "kind", "parts"),
    [
        ({"max_recoverys": 3}, ValueError, ["max_recoverys = 3", "'max_recoveries'"]),
        ({"max_recoveries": 11}, ValueError, ["max_recoveries = 11", "from 0 to 10"]),
        ({"max_recoveries": "3"}, TypeError, ["max_recoveries = '3'", "int", "str"]),
        ({"usage": "all"}, ValueError, ["usage = 'all'", "'turn', 'billed'"]),
        ({"learned_file": "x"}, ValueError, ["learned_file = 'x'", "to a client"]),
    ],
)
def test_a_wrong_key_or_value_is_told_where_the_block_begins(
    keys: dict[str, Any], kind: type[Exception], parts: list[str]
) -> None:
    with pytest.raises(kind) as caught, override(**keys):
        pytest.fail("the block was entered")
    for part in parts:
        assert part in str(caught.value)


# --- the header -----------------------------------------------------------------------------


def sent_headers(sim: Simulator) -> set[str]:
    return {name for request in sim.requests for name in request.headers}


@pytest.mark.parametrize("how", ["create", "stream"])
def test_the_header_switches_a_call_off(
    sim: Simulator, client: anthropic.Anthropic, how: str
) -> None:
    sim.script([CUT])
    off = {HEADER: "off"}
    if how == "create":
        message = client.messages.create(**ask(), extra_headers=off)
    else:
        with client.messages.stream(**ask(), extra_headers=off) as stream:
            message = stream.get_final_message()
    assert message.stop_reason == "max_tokens"
    assert len(sim.posts) == 1
    assert HEADER not in sent_headers(sim)


@pytest.mark.parametrize("on_the_client", [False, True])
def test_the_header_goes_before_a_block_and_no_attempt_carries_it(
    sim: Simulator, client: anthropic.Anthropic, on_the_client: bool
) -> None:
    cuts(sim)
    header = {"X-Continuation": "model_max_output_tokens=7000, usage=billed"}
    with override(model_max_output_tokens=5000, models_endpoint=False):
        if on_the_client:
            client.with_options(default_headers=header).messages.create(**ask())
        else:
            client.messages.create(**ask(), extra_headers=header)
    assert limits(sim) == [1000, 7000]
    assert len(sim.requests) == 2
    client.messages.count_tokens(model=NEW, messages=[GO], extra_headers={HEADER: "off"})
    assert len(sim.requests) == 3
    assert HEADER not in sent_headers(sim), "nor does what is not ours to heal"


@both
def test_a_plain_http_client_takes_it_too(sim: Simulator, kind: Any) -> None:
    cuts(sim)
    headers = {**HEADERS, HEADER: "model_max_output_tokens=7000"}
    with Way(kind) as way:
        make = way.pick(continuation.http_client, continuation.async_http_client)
        with way.within(make()) as client:
            way.do(client.post(f"{sim.url}/v1/messages", json=ask(), headers=headers))
    assert limits(sim) == [1000, 7000]
    assert HEADER not in sent_headers(sim)


def test_the_first_attempt_is_the_callers_own_request_and_may_be_sent_again(sim: Simulator) -> None:
    seen: list[httpx2.Request] = []
    with httpx2.Client(event_hooks={"request": [seen.append]}) as plain:
        client = continuation.http_client(plain)
        request = client.build_request(
            "POST", f"{sim.url}/v1/messages", json=ask(), headers={**HEADERS, HEADER: "off"}
        )
        sim.script([CUT, CUT])
        for _ in range(2):  # it keeps what its header said
            client.send(request)
    assert seen == [request, request]
    assert HEADER not in request.headers


def test_the_names_of_other_tools_hold_for_a_call() -> None:
    request = httpx2.Request("POST", "http://127.0.0.1:1", headers={HEADER: "quiet_mode=true"})
    with continuation.override(session_recovery=False):
        assert take(request) == {"repair": "off", "log_repairs": False}
        with continuation.override(repair="before_send"):
            assert take(request) == {"repair": "before_send", "log_repairs": False}


MALFORMED = [
    ("", "write off, on, or key=value"),
    ("of", "write off, on, or key=value"),
    ("off, max_retries=0", "write off, on, or key=value"),
    ("max_retries", "write off, on, or key=value"),
    ("max_retries=0,", "write off, on, or key=value"),
    ("max_retries=0,,usage=turn", "write off, on, or key=value"),
    ("max_retries=0 usage=turn", "max_retries = '0 usage=turn'"),
    ("max_retries=0, max_retries=1", "'max_retries' is given twice"),
    ("max_retrys=0", "did you mean 'max_retries'?"),
    ("max_retries=", "max_retries = '': must be of type int, from 0 to 10"),
    ("max_retries=many", "max_retries = 'many': must be of type int, from 0 to 10"),
    ("max_retries=11", "max_retries = 11: must be from 0 to 10"),
    ("max_turn_seconds=nan", "max_turn_seconds = nan: must be from 1 to 86400"),
    ("prefill=1", "prefill = '1': must be true or false"),
    ("quiet_mode=1", "quiet_mode = '1': must be true or false"),
    ("usage=all", "usage = 'all': choose one of 'turn', 'billed'"),
    ("learned_file=/etc/passwd", "applies to a client, not to one call"),
    ('recovery_prompt="a', "write off, on, or key=value"),
]


@pytest.mark.parametrize(("text", "said"), MALFORMED, ids=[text for text, _ in MALFORMED])
@both
def test_a_malformed_header_is_an_error_before_anything_is_sent(
    sim: Simulator, text: str, said: str, kind: Any
) -> None:
    with Way(kind) as way, pytest.raises(ValueError, match=HEADER) as caught:
        way.do(way.healing(sim.url).messages.create(**ask(), extra_headers={HEADER: text}))
    assert said in str(caught.value)
    assert sim.requests == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("x-continuaton", "did you mean 'x-continuation'?"),
        ("X-Continuaiton", "did you mean 'x-continuation'?"),
        ("x-continuation-tokn", "did you mean 'x-continuation-token'?"),
        ("x-continuation-max-recoveries", "does not exist"),
        ("x-contination", "did you mean 'x-continuation'?"),
    ],
)
@both
def test_a_misspelled_header_is_an_error_before_anything_is_sent(
    sim: Simulator, name: str, said: str, kind: Any
) -> None:
    with Way(kind) as way, pytest.raises(ValueError, match="header ") as caught:
        way.do(way.healing(sim.url).messages.create(**ask(), extra_headers={name: "off"}))
    assert said in str(caught.value)
    assert sim.requests == []


@both
def test_headers_of_others_pass(sim: Simulator, kind: Any) -> None:
    headers = {
        "x-correlation-id": "1", "x-content-type-options": "nosniff", "x-client-name": "c",
        "x-continuation-token": "t", "x-ms-continuation": "1", "x-custom": "1",
    }  # fmt: skip
    sim.script([REST])
    with Way(kind) as way:
        way.do(way.healing(sim.url).messages.create(**ask(), extra_headers=headers))
    assert headers.items() <= {**sim.posts[0].headers}.items()


def test_a_malformed_header_on_a_foreign_request_object_is_an_error_of_send(
    sim: Simulator,
) -> None:
    request = httpx2.Request("GET", sim.url, headers={HEADER: "of"})
    with continuation.http_client() as client, pytest.raises(ValueError, match="write off"):
        client.send(request)
    assert sim.requests == []


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("off", {"enabled": False}),
        (" ON ", {"enabled": True}),
        ("max_retries=0", {"max_retries": 0}),
        (" prefill = FALSE ,usage=billed", {"prefill": False, "usage": "billed"}),
        ("max_turn_seconds=1.5", {"max_turn_seconds": 1.5}),
        ('recovery_prompt="Go on, \\"please\\""', {"recovery_prompt": 'Go on, "please"'}),
        ("recovery_prompt=Go on", {"recovery_prompt": "Go on"}),
    ],
)
def test_the_header_reads_every_type(text: str, values: dict[str, Any]) -> None:
    assert parse(text) == values


@given(
    st.text(max_size=60) | st.lists(st.sampled_from([*KEYS, "=", ",", '"', "1", " "])).map("".join)
)
def test_any_text_is_read_or_refused_with_the_headers_name(text: str) -> None:
    try:
        values = parse(text)
    except ValueError as error:
        said = str(error)
    else:
        assert set(values) <= set(KEYS)
        return
    assert said.startswith(f"{HEADER}: ")


@pytest.mark.parametrize(
    "text", ['a=x{}"', "a={}y", 'a="{}', '{}"', "max_recoveries={}1"], ids=lambda text: repr(text)
)
def test_no_header_takes_more_than_linear_time(text: str) -> None:
    """By the pattern that was used before, each of these took minutes."""
    with contextlib.suppress(ValueError):
        parse(text.format(" " * 1_000_000))
