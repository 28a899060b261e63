"""Many requests at once: each answer whole, none lost, none paid twice."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import anthropic
import openai
import pytest
from support.cli_helpers import until
from support.killed import let_go
from support.limited import Bucket, Limited
from support.sdks.formats import FORMATS, MAKES, request
from support.sdks.turn import FAST, quietly

import continuation
from continuation import BatchResult, Journal, JournalError
from continuation.bulk.lines import RequestIds
from continuation.bulk.workers import Batch
from continuation.simulator import Reply, Scenario, Simulator, Text

TEXT = "".join(f"{n}. A line of an answer that may be cut.\n" for n in range(300))
LIMIT = 1_000

every_format = pytest.mark.parametrize("dialect", FORMATS)
both = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


@pytest.fixture
def reciting() -> Iterator[Simulator]:
    with Simulator(TEXT, Scenario(deltas=96)) as running, quietly():
        yield running


def asks(dialect: str, count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {**request(dialect, LIMIT, {}), "id": f"r{number}"}


def run(
    dialect: str, sim: Simulator, requests: Any, *, asynchronous: bool = False, **options: Any
) -> list[BatchResult]:
    bare = MAKES[dialect]().connect(sim.url, asynchronous=asynchronous)
    client: Any = continuation.wrap(bare, config=FAST)
    if not asynchronous:
        with contextlib.closing(bare):
            return list(continuation.run_batch(client, requests, **options))

    async def collect() -> list[BatchResult]:
        mine: Any = getattr(client, "aio", client)
        async with getattr(bare, "aio", bare):
            return [result async for result in continuation.run_batch(mine, requests, **options)]

    return asyncio.run(collect())


def texts(dialect: str, results: list[BatchResult]) -> set[str]:
    assert [result.error for result in results if result.error] == []
    return {text_of(dialect, result) for result in results}


def text_of(dialect: str, result: BatchResult) -> str:
    ran = MAKES[dialect]()
    ran.answer = result.answer
    return ran.text


@every_format
@both
def test_each_answer_is_healed_and_known_by_its_id(
    dialect: str, asynchronous: bool, reciting: Simulator
) -> None:
    given = asks(dialect, 6)
    results = run(dialect, reciting, given, concurrency=3, asynchronous=asynchronous)
    assert texts(dialect, results) == {TEXT}
    assert {(result.index, result.id) for result in results} == {(n, f"r{n}") for n in range(6)}
    outcomes = [str(result.report and result.report.outcome) for result in results]
    assert 1 <= outcomes.count("healed") <= 3, "those sent before the first was known to be cut"
    assert outcomes.count("complete") == 6 - outcomes.count("healed")
    assert len(reciting.posts) == 6 + outcomes.count("healed")
    with MAKES[dialect]().connect(reciting.url, asynchronous=False) as client:
        plain = MAKES[dialect]().create(client, request(dialect, LIMIT, {}))
    assert {type(result.answer) for result in results} == {type(plain)}
    kinds = {getattr(result.answer, "object", None) for result in results}
    assert kinds == {getattr(plain, "object", None)}


@every_format
@both
def test_a_stream_that_breaks_off_is_gone_on_with(
    dialect: str, asynchronous: bool, reciting: Simulator
) -> None:
    reciting.scenario = Scenario(deltas=96, drop={1: 40})
    results = run(dialect, reciting, asks(dialect, 2), asynchronous=asynchronous)
    assert texts(dialect, results) == {TEXT}
    assert {post.sent > 0 for post in reciting.posts} == {True}


@every_format
@both
def test_with_a_journal_nothing_is_paid_twice(
    dialect: str, asynchronous: bool, reciting: Simulator, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"journal": tmp_path / "batch.db", "asynchronous": asynchronous}
    first = run(dialect, reciting, asks(dialect, 4), **options)
    reciting.requests.clear()
    second = run(dialect, reciting, asks(dialect, 5), **options)
    assert texts(dialect, first) == texts(dialect, second) == {TEXT}
    assert len(reciting.posts) == 2, "those of the fifth"
    paid = {result.id for result in second if result.report and result.report.billed.output}
    assert paid == {"r4"}
    assert (tmp_path / "batch.db").stat().st_mode & 0o777 == 0o600


@every_format
@both
def test_who_leaves_a_batch_goes_on_in_mid_answer(
    dialect: str, asynchronous: bool, reciting: Simulator, tmp_path: Path
) -> None:
    """One of two answers stands still when the batch is left."""
    path, gate = tmp_path / "batch.db", threading.Event()
    reciting.script([Reply([Text(TEXT[:8_000])], gate=gate, gate_at=60, deltas=96)])
    client: Any = MAKES[dialect]().connect(reciting.url, asynchronous=asynchronous)

    async def leave() -> None:
        mine: Any = continuation.wrap(client, config=FAST)
        requests = asks(dialect, 2)
        batch: Any = continuation.run_batch(getattr(mine, "aio", mine), requests, journal=path)
        await anext(batch)
        await batch.aclose()
        await getattr(client, "aio", client).__aexit__(None, None, None)

    if asynchronous:
        asyncio.run(leave())
    else:
        with contextlib.closing(client):
            batch: Any = continuation.run_batch(client, asks(dialect, 2), journal=path)
            next(batch)
            batch.close()
    gate.set()
    reciting.requests.clear()
    results = run(dialect, reciting, asks(dialect, 2), journal=path, asynchronous=asynchronous)
    assert texts(dialect, results) == {TEXT}
    assert len(reciting.posts) == 1, "the rest of the one"
    saved = [result.report.saved.output for result in results if result.report]
    assert 1_000 < min(count or 0 for count in saved) < 2_500 < max(count or 0 for count in saved)


@every_format
@both
@pytest.mark.parametrize("how", ["partial", "truncated"])
def test_an_answer_that_is_not_whole_is_gone_on_with_the_next_time(
    how: str, dialect: str, asynchronous: bool, reciting: Simulator, tmp_path: Path
) -> None:
    """What there is of it is not paid again, and what came then is given from there on."""
    options: dict[str, Any] = {"journal": tmp_path / "batch.db", "asynchronous": asynchronous}
    dropped = Reply([Text(TEXT[:4_000])], drop=20, deltas=96)
    reciting.script([dropped] * (how == "partial"))
    with continuation.override(max_recoveries=0, max_drop_recoveries=0, escalate=False):
        [first] = run(dialect, reciting, asks(dialect, 1), **options)
    assert first.report is not None
    assert first.report.outcome == how
    begun = text_of(dialect, first)
    assert len(begun) > 500
    reciting.requests.clear()
    [second] = run(dialect, reciting, asks(dialect, 1), **options)
    assert texts(dialect, [second]) == {TEXT}
    assert second.report is not None
    assert second.report.outcome == "healed"
    assert (second.report.billed.output or 0) < (len(TEXT) - len(begun)) // 4 + 100
    assert len(reciting.posts) == 1
    reciting.requests.clear()
    [third] = run(dialect, reciting, asks(dialect, 1), **options)
    assert texts(dialect, [third]) == {TEXT}
    assert reciting.posts == []


def test_requests_that_ask_the_same_are_told_apart(reciting: Simulator, tmp_path: Path) -> None:
    same = [request("anthropic-messages", LIMIT, {})] * 3
    first, again = (
        run("anthropic-messages", reciting, iter(same), journal=tmp_path / "batch.db")
        for _ in range(2)
    )
    ids = {result.id for result in first}
    assert len(ids) == 3
    assert {result.id for result in again} == ids
    # A request that starts after the first truncation starts at the ceiling.
    assert len(reciting.posts) == sum(len(each.report.attempts) for each in first if each.report)


def test_another_request_under_the_same_id_is_asked(reciting: Simulator, tmp_path: Path) -> None:
    asked = next(asks("anthropic-messages", 1))
    run("anthropic-messages", reciting, [asked], journal=tmp_path / "batch.db")
    reciting.requests.clear()
    other = {**asked, "system": "Be brief."}
    run("anthropic-messages", reciting, [other], journal=tmp_path / "batch.db")
    assert [post.body and post.body["system"] for post in reciting.posts] == ["Be brief."] * 2


SMALL: dict[str, dict[str, Any]] = {
    "anthropic-messages": {"max_tokens": 100},
    "openai-chat": {"max_tokens": 100},
    "openai-responses": {"max_output_tokens": 100},
    "gemini": {"config": {"max_output_tokens": 100}},
}


@every_format
@both
def test_an_answer_that_is_left_alone_is_not_paid_twice_either(
    dialect: str, asynchronous: bool, tmp_path: Path
) -> None:
    """A small limit is a budget; asked with another one, it is another answer."""
    options: dict[str, Any] = {"journal": tmp_path / "batch.db", "asynchronous": asynchronous}
    with Simulator("Yes.", Scenario()) as sim:
        small = [{**ask, **SMALL[dialect]} for ask in asks(dialect, 2)]
        for _ in range(3):
            results = run(dialect, sim, small, **options)
            assert texts(dialect, results) == {"Yes."}
            assert {str(result.report and result.report.outcome) for result in results} == {
                "untouched"
            }
            assert len(sim.posts) == 2
        run(dialect, sim, asks(dialect, 2), **options)
        assert len(sim.posts) == 4


def test_of_several_choices_none_is_kept(tmp_path: Path) -> None:
    with Simulator("Yes.", Scenario()) as sim:
        asked = {**request("openai-chat", LIMIT, {}), "n": 2, "id": "a"}
        for count in (1, 2):
            [result] = run("openai-chat", sim, [asked], journal=tmp_path / "batch.db")
            assert result.error is None
            assert len(sim.posts) == count


ANOTHER_MANNER: dict[str, dict[str, Any]] = {
    "anthropic-messages": {"temperature": 0.5},
    "openai-chat": {"temperature": 0.5},
    "openai-responses": {"text": {"verbosity": "low"}},
    "gemini": {"temperature": 0.5},
}


@every_format
def test_another_manner_is_another_request_and_another_limit_is_not(
    dialect: str, reciting: Simulator, tmp_path: Path
) -> None:
    def ask(limit: int, more: dict[str, Any]) -> int:
        reciting.requests.clear()
        asked = {**request(dialect, limit, more), "id": "a"}
        results = run(dialect, reciting, [asked], journal=tmp_path / "batch.db")
        assert texts(dialect, results) == {TEXT}
        return len(reciting.posts)

    assert ask(LIMIT, {}) > 0
    assert ask(2 * LIMIT, {}) == 0
    assert ask(LIMIT, ANOTHER_MANNER[dialect]) > 0
    assert ask(LIMIT, ANOTHER_MANNER[dialect]) == 0


def test_a_journal_may_be_in_postgresql(reciting: Simulator, databases: Callable[[], str]) -> None:
    url = databases()
    for _ in range(2):
        results = run("anthropic-messages", reciting, asks("anthropic-messages", 4), journal=url)
        assert texts("anthropic-messages", results) == {TEXT}
    assert 5 <= len(reciting.posts) <= 8
    let_go()


def test_a_journal_of_ones_own_has_its_options_and_stays_open(
    reciting: Simulator, tmp_path: Path
) -> None:
    with Journal(tmp_path / "batch.db", "mine", save_every=0.5) as journal:
        run("anthropic-messages", reciting, asks("anthropic-messages", 1), journal=journal)
        journal.check()
    with Journal(tmp_path / "batch.db", "mine/r0", readonly=True) as one:
        assert one.history()[-1]["content"][0]["text"] == TEXT


@pytest.mark.parametrize(
    ("hint", "asynchronous"),
    [
        ("retry-after-ms", False),
        ("", True),
        pytest.param("retry-after-ms", True, marks=pytest.mark.slow),
        pytest.param("retry-after", False, marks=pytest.mark.slow),
        pytest.param("retry-after", True, marks=pytest.mark.slow),
        pytest.param("", False, marks=pytest.mark.slow),
    ],
)
def test_a_refusal_for_the_rate_is_everybodys(hint: str, asynchronous: bool) -> None:
    bucket = Bucket(rate=60, burst=4, hint=hint)
    with Limited("A short answer.", bucket) as sim:
        began = time.monotonic()
        results = run(
            "anthropic-messages",
            sim,
            asks("anthropic-messages", 60),
            concurrency=20,
            asynchronous=asynchronous,
        )
        took = time.monotonic() - began
    assert texts("anthropic-messages", results) == {"A short answer."}
    assert {len(result.report.attempts) for result in results if result.report} == {1}
    assert bucket.refused < 60, "each of twenty would have been refused again and again"
    assert took < 20


@pytest.mark.parametrize("status", [429, 503])
def test_what_no_waiting_mends_is_an_error_at_once(status: int, sim: Simulator) -> None:
    error = ("insufficient_quota", "You exceeded your current quota.")
    headers = {"x-should-retry": "false"} if status == 503 else {}
    sim.script([Reply(status=status, error=error, headers=headers)] * 3)
    results = run("openai-chat", sim, asks("openai-chat", 3), concurrency=1)
    assert {type(result.error).__name__ for result in results} <= {
        "RateLimitError",
        "InternalServerError",
    }
    assert len(sim.posts) == 3


def test_a_request_that_fails_is_a_result_and_the_others_go_on(reciting: Simulator) -> None:
    requests = [*asks("anthropic-messages", 3)]
    requests[1]["max_tokens"] = -1
    requests.append({"id": "empty"})
    results = run("anthropic-messages", reciting, requests)
    failed = {result.id: result for result in results if result.error}
    assert set(failed) == {"r1", "empty"}
    assert isinstance(failed["r1"].error, anthropic.BadRequestError)
    assert isinstance(failed["empty"].error, TypeError)
    assert failed["r1"].answer is None
    assert failed["empty"].report is None


@both
def test_requests_are_taken_as_they_are_needed(asynchronous: bool, reciting: Simulator) -> None:
    taken = list[str]()

    def coming() -> Iterator[dict[str, Any]]:
        for each in asks("anthropic-messages", 100):
            taken.append(each["id"])
            yield each

    client: Any = MAKES["anthropic-messages"]().connect(reciting.url, asynchronous=asynchronous)
    batch: Any = continuation.run_batch(client, coming(), concurrency=2)

    async def some() -> None:
        for _ in range(3):
            await anext(batch)
        await batch.aclose()
        await client.close()

    if asynchronous:
        asyncio.run(some())
    else:
        for _ in range(3):
            next(batch)
        batch.close()
        client.close()
    assert len(taken) <= 3 + 2 + 2


@both
def test_what_the_requests_come_from_may_fail(asynchronous: bool, reciting: Simulator) -> None:
    def broken() -> Iterator[dict[str, Any]]:
        yield from asks("anthropic-messages", 1)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        run("anthropic-messages", reciting, broken(), asynchronous=asynchronous)


def test_who_wants_no_stream_gets_none(reciting: Simulator) -> None:
    asked = {**request("openai-chat", LIMIT, {}), "stream": False}
    results = run("openai-chat", reciting, [asked])
    assert texts("openai-chat", results) == {TEXT}
    first, *_ = (post.body for post in reciting.posts)
    assert first is not None
    assert "stream" not in first


def test_lines_of_batch_apis_are_requests(reciting: Simulator) -> None:
    message = {"role": "user", "content": "Go."}
    chat = {"model": "gpt-4.1", "max_tokens": 1_000, "messages": [message], "top_k": 3}
    response = {"model": "gpt-5", "input": "Go."}
    lines = {
        "openai-chat": {"custom_id": "a", "method": "POST", "url": "/v1/chat", "body": chat},
        "openai-responses": {"custom_id": "a", "method": "POST", "url": "/v1/r", "body": response},
        "anthropic-messages": {
            "custom_id": "a",
            "params": {"model": "claude-opus-5", "max_tokens": 1_000, "messages": [message]},
        },
        "gemini": {
            "key": "a",
            "request": {
                "model": "gemini-3-pro",
                "contents": [{"role": "user", "parts": [{"text": "Go."}]}],
                "generationConfig": {"maxOutputTokens": 1_000, "temperature": 0.5},
                "systemInstruction": {"parts": [{"text": "Be long."}]},
            },
        },
    }
    for dialect, line in lines.items():
        results = run(dialect, reciting, [line])
        assert texts(dialect, results) == {TEXT}
        assert results[0].id == "a"
    sent = [post.body for post in reciting.posts if post.body]
    assert sum(body.get("top_k") == 3 for body in sent) == 2
    assert any(body.get("systemInstruction") for body in sent)


def test_policies_that_hold_where_it_is_called_hold_in_it(reciting: Simulator) -> None:
    with continuation.override(max_recoveries=0, escalate=False):
        [result] = run("anthropic-messages", reciting, asks("anthropic-messages", 1))
    assert result.report is not None
    assert result.report.outcome == "truncated"


def test_what_cannot_be_is_named(sim: Simulator, tmp_path: Path) -> None:
    with openai.OpenAI(base_url=sim.url, api_key="k") as client:
        with pytest.raises(ValueError, match="concurrency = 0: must be a whole number from 1"):
            continuation.run_batch(client, [], concurrency=0)
        with (
            Journal(tmp_path / "a.db", "s", content="none") as journal,
            pytest.raises(ValueError, match="content = 'none'"),
        ):
            continuation.run_batch(client, [], journal=journal)
        untyped: Any = continuation.run_batch
        for count in (True, 2.5, "8"):
            with pytest.raises(ValueError, match=r"concurrency = .*must be a whole number from 1"):
                untyped(client, [], concurrency=count)
        for given in ("prompts.jsonl", tmp_path, {"input": "Go."}):
            with pytest.raises(TypeError, match=r"requests = .*: must be an iterable of requests"):
                untyped(client, given)
        with pytest.raises(JournalError, match="closed"):
            continuation.run_batch(client, [], journal=journal_that_is_closed(tmp_path))
        with (
            Journal(tmp_path / "a.db", "s", readonly=True) as journal,
            pytest.raises(JournalError, match="readonly=True"),
        ):
            continuation.run_batch(client, [], journal=journal)
        assert list(continuation.run_batch(client, [])) == []


def journal_that_is_closed(folder: Path) -> Journal:
    with Journal(folder / "b.db", "s") as journal:
        return journal


@both
def test_what_is_no_request_is_a_result(asynchronous: bool, reciting: Simulator) -> None:
    given = [None, *asks("openai-chat", 1), "Go."]
    results = run("openai-chat", reciting, given, asynchronous=asynchronous)
    wrong = {result.index: str(result.error) for result in results if result.error}
    assert set(wrong) == {0, 2}
    assert wrong[2] == "requests[2] = builtins.str: must be a mapping"


@both
def test_two_requests_do_not_share_a_session(
    asynchronous: bool, reciting: Simulator, tmp_path: Path
) -> None:
    one, two = asks("openai-chat", 2)
    options: dict[str, Any] = {"journal": tmp_path / "batch.db", "asynchronous": asynchronous}
    results = run("openai-chat", reciting, [one, {**two, "id": one["id"]}], **options)
    assert [str(result.error) for result in results if result.error] == [
        "requests[1], id = 'r0': an earlier request has this id and so its session; choose another"
    ]
    assert len(reciting.posts) == 2


def test_a_request_with_a_function_is_known_in_the_next_process() -> None:
    def weather() -> str:
        return "fair"

    first, again = (
        RequestIds().of({"contents": "Go.", "config": {"tools": [tool]}})
        for tool in (weather, FunctionType(weather.__code__, {}))
    )
    assert first == again


def test_numbers_are_ids(reciting: Simulator) -> None:
    results = run("openai-chat", reciting, [{**ask, "id": 7} for ask in asks("openai-chat", 1)])
    assert [result.id for result in results] == ["7"]


def test_who_leaves_does_not_wait_for_each_thread() -> None:
    """A server that says nothing is waited for by all threads together, and not for long."""
    with Simulator("x", Scenario()) as sim:
        sim.script([Reply([Text("Short.")]), *[Reply(delay=30.0)] * 20])
        client: Any = MAKES["openai-chat"]().connect(sim.url, asynchronous=False)
        batch: Any = continuation.run_batch(client, asks("openai-chat", 21), concurrency=12)
        next(batch)
        began = time.monotonic()
        batch.close()
        took = time.monotonic() - began
        client.close()
    assert took < 10, "five seconds for each of twelve were a minute"


def test_who_stops_gets_what_has_come(reciting: Simulator) -> None:
    """Answers that wait for a slow caller are given; what is under way is broken off, and no more
    is asked."""
    reciting.script([*[Reply([Text("Short.")])] * 4, *[Reply([Text(TEXT[:4_000])], slow=0.5)] * 9])
    client: Any = MAKES["openai-chat"]().connect(reciting.url, asynchronous=False)
    with contextlib.closing(client):
        batch = Batch(client, asks("openai-chat", 20), 4, None)
        results: Any = batch.results()
        first = next(results)
        until(lambda: batch.waiting == 3 and len(reciting.posts) == 5)
        batch.stop()
        rest = list(results)
    assert texts("openai-chat", [first, *rest]) == {"Short."}
    assert len(rest) == 3
    assert len(reciting.posts) == 5


@pytest.mark.parametrize("after", [0.0, 0.001, 0.003, 0.01, 0.03])
def test_a_batch_that_is_cancelled_lets_its_sessions_go(
    after: float, reciting: Simulator, tmp_path: Path
) -> None:
    async def cancelled() -> list[BatchResult]:
        bare: Any = MAKES["openai-chat"]().connect(reciting.url, asynchronous=True)

        async def all_of_it() -> list[BatchResult]:
            path = tmp_path / "a.db"
            batch: Any = continuation.run_batch(bare, asks("openai-chat", 8), journal=path)
            async with contextlib.aclosing(batch):
                return [result async for result in batch]

        async with bare:
            task = asyncio.create_task(all_of_it())
            await asyncio.sleep(after)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            return await all_of_it()

    assert texts("openai-chat", asyncio.run(cancelled())) == {TEXT}
