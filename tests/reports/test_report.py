"""What is told of a turn: to whom, under which id, in which numbers, and never what was said."""

from __future__ import annotations

import asyncio
import html
import inspect
import json
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from support.sdks.messages import NEW, OLD, ask, run
from support.sdks.turn import BOTH, FAST, How, cut

import continuation
from continuation import Finished, Policy, Report
from continuation.engine import budget, table
from continuation.ledger import Ledger, Lesson
from continuation.reports import account
from continuation.reports import report as reports
from continuation.simulator import Reply, Simulator, Text, Thinking, ToolUse
from continuation.testing import Rehearsal, simulate
from continuation.types import AttemptResult, Head, Mode, Outcome, Stop

CUT = Reply([Text("One, ")], stop="max_tokens")
REST = Reply([Text("two.")])


@pytest.fixture
def client(sim: Simulator) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=sim.url, api_key="k", max_retries=0) as bare:
        yield continuation.wrap(bare, config=FAST)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    reports._reports.clear()  # every simulator counts its request ids from one


# --- watch ----------------------------------------------------------------------------------


def test_watch_collects_the_turns_of_its_block(sim: Simulator, client: anthropic.Anthropic) -> None:
    sim.script([REST, CUT, REST, REST, REST])
    client.messages.create(**ask())
    with continuation.watch() as turns:
        client.messages.create(**ask())
        with continuation.watch() as inner:
            client.messages.create(**ask())
    client.messages.create(**ask())
    assert [turn.outcome for turn in turns] == [Outcome.HEALED, Outcome.COMPLETE]
    assert inner == turns[1:]


def test_watch_sees_child_tasks_and_other_blocks_do_not(sim: Simulator) -> None:
    async def turn(client: anthropic.AsyncAnthropic) -> None:
        await client.messages.create(**ask())

    async def main() -> tuple[int, int]:
        async with anthropic.AsyncAnthropic(base_url=sim.url, api_key="k") as bare:
            client = continuation.wrap(bare)

            async def apart() -> int:
                with continuation.watch() as others:
                    await turn(client)
                return len(others)

            outside = asyncio.create_task(apart())
            with continuation.watch() as turns:
                await asyncio.gather(*(asyncio.create_task(turn(client)) for _ in range(3)))
            return len(turns), await outside

    sim.script([REST] * 4)
    assert asyncio.run(main()) == (3, 1)


def test_watch_does_not_see_other_threads(sim: Simulator, client: anthropic.Anthropic) -> None:
    sim.script([REST, REST])
    with continuation.watch() as turns:
        other = threading.Thread(target=lambda: client.messages.create(**ask()))
        other.start()
        other.join()
        client.messages.create(**ask())
    assert len(turns) == 1


def test_a_stream_read_after_the_block_is_still_its_own(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    sim.script([REST])
    with continuation.watch() as turns:
        stream = client.messages.create(**ask(stream=True))
    assert turns == []
    list(stream)
    assert [turn.outcome for turn in turns] == [Outcome.COMPLETE]


# --- report ---------------------------------------------------------------------------------


def healed(report: Report | None) -> Report:
    assert report is not None
    assert report.outcome is Outcome.HEALED
    return report


def test_a_message_an_id_and_a_raw_response_lead_to_their_reports(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    sim.script([CUT, REST, CUT, REST, CUT, REST])
    message = client.messages.create(**ask())
    raw = client.messages.with_raw_response.create(**ask())
    with client.messages.with_streaming_response.create(**ask()) as response:
        response.read()
        healed(continuation.report(response))
    report = healed(continuation.report(message))
    assert report.attempts[0].request_id == message._request_id
    assert continuation.report(str(message._request_id)) is report
    assert healed(continuation.report(raw)) is continuation.report(raw.http_response)
    assert continuation.report(raw) is not report
    assert continuation.report("req_of_somebody_else") is None


def test_a_stream_leads_to_its_report_when_it_has_ended_and_so_does_an_event_of_it(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    sim.script([CUT, REST, CUT, REST])
    with client.messages.stream(**ask()) as stream:
        assert continuation.report(stream) is None
        stream.until_done()
        healed(continuation.report(stream))
    plain = client.messages.create(**ask(stream=True))
    start, *_, end = plain
    assert healed(continuation.report(plain)) is continuation.report(start)
    with pytest.raises(TypeError, match="RawMessageStopEvent has no id"):
        continuation.report(end)


def test_the_streams_of_openais_helpers_lead_to_their_reports() -> None:
    with simulate() as sim, openai.OpenAI(base_url=f"{sim.url}/v1", api_key="k") as bare:
        client = continuation.wrap(bare)
        said: Any = [{"role": "user", "content": "Go."}]
        with client.chat.completions.stream(model="gpt-5.5", messages=said) as chunks:
            list(chunks)
            healed(continuation.report(chunks))
        sim.reset()
        with client.responses.stream(model="gpt-5.5", input="Go.") as stream:
            events = list(stream)
            healed(continuation.report(stream))
        report = healed(continuation.report(events[0]))
        assert continuation.report(events[-1]) is report


def test_an_error_leads_to_its_report_and_a_refused_raised_limit_hides_no_response(
    sim: Simulator,
) -> None:
    refused = Reply(status=400, error=("invalid_request_error", "no"))
    with anthropic.Anthropic(base_url=sim.url, api_key="k", max_retries=0) as bare:
        client = continuation.wrap(bare, config=continuation.Policy(initial_limit="ceiling"))
        sim.script([refused, REST, refused, refused])
        message = client.messages.create(**ask())
        with pytest.raises(anthropic.BadRequestError) as caught:
            client.messages.create(**ask())
    report, failed = continuation.report(message), continuation.report(caught.value)
    assert report is not None
    assert failed is not None
    assert report.attempts[-1].request_id == message._request_id
    assert failed.outcome is Outcome.FAILED


@pytest.mark.parametrize("thing", [object(), 3, None, {"id": "msg_1"}])
def test_an_object_without_an_id_is_an_error_that_says_what_to_do(thing: object) -> None:
    with pytest.raises(TypeError, match=r"has no id; .* last_report\(\)"):
        continuation.report(thing)


def test_only_the_last_reports_are_kept() -> None:
    told = []
    for number in range(reports.MOST + 10):
        ledger = Ledger(lambda: 0.0)
        ledger.begin(Mode.FIRST, 1000)
        ledger.answered(Head(200, {"request-id": f"test_{number}"}))
        ledger.record(AttemptResult(Stop.END, id=f"also_{number}"))
        told.append(reports.Recorder("d", None, ledger).finish(Outcome.COMPLETE))
    for kind in ("test", "also"):
        assert continuation.report(f"{kind}_9") is None
        assert continuation.report(f"{kind}_10") is told[10]
    assert len(reports._reports) == 2 * reports.MOST


# --- numbers --------------------------------------------------------------------------------


def test_every_count_a_price_depends_on_is_told(sim: Simulator) -> None:
    ran = {"web_search_requests": 1}
    first: dict[str, Any] = {"input_tokens": 10, "server_tool_use": ran}
    first |= {"cache_read_input_tokens": 400, "cache_creation_input_tokens": 50}
    cut = Reply([Text("One, ")], stop="max_tokens", usage={**first, "output_tokens": 1000})
    sim.script([cut, Reply([Text("One, two.")], usage={**first, "output_tokens": 1200})])
    told = run(sim, "sync").told.as_dict()
    once = {"input": 10, "cached": 400, "cache_write": 50, "thinking": 0, "estimated": False}
    twice = {
        **{name: 2 * count for name, count in once.items()},
        "estimated": False,
        "tools": {"web_search_requests": 2},
    }
    assert told["turn"] == {**once, "output": 1200, "tools": ran}
    assert told["billed"] == {**twice, "output": 2200}
    assert told["discarded"] == {**once, "output": 1000, "tools": ran}
    assert [attempt["discarded"] for attempt in told["attempts"]] == [True, False]


def test_attempts_tell_when_they_began_and_whether_they_were_answered(sim: Simulator) -> None:
    sim.script([CUT, Reply(status=529, error=("overloaded_error", "busy")), REST])
    attempts = run(sim, "sync-stream").told.attempts
    assert [a.answered for a in attempts] == [True, False, True]
    begun = [a.begun for a in attempts]
    assert begun == sorted(begun)
    assert begun[0] < 0.1
    assert all(a.begun + a.seconds <= b for a, b in zip(attempts, begun[1:], strict=False))


def test_what_was_learned_is_told(sim: Simulator) -> None:
    limit = "max_tokens: 128000 > 9000, which is the maximum allowed number of output tokens for m"
    sim.script([CUT, Reply(status=400, error=("invalid_request_error", limit)), REST])
    learned = run(sim, "sync").told.learned
    assert Lesson("ceiling", 128_000, "models endpoint") in learned
    assert learned[1:] == (Lesson("ceiling", 9000, "refusal"), Lesson("needed", 1, "escalation"))
    sim.reset()
    prefill = "This model does not support assistant message prefill."
    sim.script([CUT, Reply(status=400, error=("invalid_request_error", prefill)), REST])
    told = run(sim, "sync-stream", model=OLD).told
    assert Lesson("prefill", 0, "refusal") in told.learned


def test_a_turn_closed_early_tells_the_call_that_was_under_way(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    sim.script([Reply([Text("One, two, three, four, five.")], deltas=4, stall=5)])
    with client.messages.stream(**ask()) as stream:
        next(iter(stream))
    report = continuation.report(stream)
    assert report is not None
    assert (report.outcome, report.reason) == (Outcome.PARTIAL, "closed by the caller")
    assert [(a.mode, a.limit, a.answered) for a in report.attempts] == [(Mode.FIRST, 1000, True)]


@pytest.mark.parametrize("how", BOTH)
def test_a_report_is_plain_json(sim: Simulator, how: How) -> None:
    sim.script([CUT, REST])
    told = run(sim, how).told.as_dict()
    assert json.loads(json.dumps(told)) == json.loads(json.dumps(told, default=None))
    assert told["outcome"] == "healed"
    assert told["repairs"] == ()
    assert {"attempts", "seams", "learned", "turn", "billed", "discarded", "cost"} <= set(told)


def test_a_report_is_readable(sim: Simulator) -> None:
    sim.script([Reply([Text("One, ")], stop="max_tokens", usage={"output_tokens": 1000}), REST])
    first, *attempts, billed = str(run(sim, "sync").told).splitlines()
    assert first.startswith(f"{NEW}: healed, 2 attempts, stop reason end_turn, 0.")
    assert "1 first: limit 1,000, 11 tokens in, 1,000 out, max_tokens" in attempts[0]
    assert attempts[0].endswith("discarded")
    assert "2 replace: limit 128,000" in attempts[1]
    assert "billed: 22 tokens in, 1,001 out" in billed


def test_a_readable_report_shows_ending_and_remedy_of_an_incomplete_answer(sim: Simulator) -> None:
    sim.script([Reply([Text("<b>One")], stop="because <i>")])
    report = run(sim, "sync").told
    line = f"ending: other; remedy: {report.remedy}"
    assert str(report).splitlines()[1] == f"  {line}"
    assert f"<p>{html.escape(line)}</p>" in report.to_html()
    sim.script([REST])
    whole = run(sim, "sync").told
    assert whole.ending == "end"
    assert "ending:" not in str(whole) + whole.to_html()


@pytest.mark.parametrize(
    ("script", "level", "said"),
    [
        ([CUT, REST], logging.INFO, "answer completed|attempts=2 stop_reason=end_turn|characters="),
        (
            [CUT] * 5,
            logging.WARNING,
            'outcome=truncated reason="all recoveries used"|remedy="raise max_recoveries"',
        ),
        (
            [CUT, CUT, Reply(status=400)],
            logging.WARNING,
            "outcome=partial|stop_reason=end_turn synthetic=true characters=5|remedy=",
        ),
        ([REST], None, ""),
    ],
)
def test_a_turn_that_was_cut_is_logged_once(
    sim: Simulator,
    caplog: pytest.LogCaptureFixture,
    script: list[Reply],
    level: int | None,
    said: str,
) -> None:
    caplog.set_level(logging.DEBUG, logger="continuation")
    sim.script(script)
    run(sim, "sync-stream" if level is None else "sync")
    assert [record.levelno for record in caplog.records] == ([] if level is None else [level])
    assert all(part in caplog.text for part in said.split("|"))
    assert not said or NEW in caplog.text


# --- what it cost -------------------------------------------------------------------------------


def test_the_cost_is_not_known_without_the_extra(
    sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    sim.script([REST])
    assert run(sim, "sync").told.cost is None


@pytest.mark.parametrize("model", [NEW, "a-model-nobody-sells"])
def test_the_cost_is_that_of_all_attempts(sim: Simulator, model: str) -> None:
    prices = pytest.importorskip("genai_prices")
    counts = {"input_tokens": 1000, "cache_read_input_tokens": 200, "output_tokens": 1000}
    sim.script([Reply([Text("One, ")], stop="max_tokens", usage=counts), REST])
    report = run(sim, "sync", model=model).told
    if model != NEW:
        assert report.cost is None
        return
    usages = [prices.Usage(input_tokens=1200, cache_read_tokens=200, output_tokens=1000)]
    usages += [prices.Usage(input_tokens=11, output_tokens=1)]
    each = [float(prices.calc_price(u, NEW, provider_id="anthropic").total_price) for u in usages]
    assert report.cost == pytest.approx(sum(each))
    assert f"${report.cost:.4f}" in str(report)


def test_an_answer_that_nobody_looked_into_did_not_cost_nothing(sim: Simulator) -> None:
    pytest.importorskip("genai_prices")
    sim.script([REST])
    report = run(sim, "sync", max_tokens=200).told
    assert (report.outcome, report.cost) == ("untouched", None)
    assert "$" not in str(report)


def test_a_status_is_told_once(sim: Simulator) -> None:
    sim.script([Reply(status=400, error=("invalid_request_error", "No."))])
    bare = anthropic.Anthropic(api_key="key", base_url=sim.url)
    with bare, pytest.raises(anthropic.BadRequestError):
        continuation.wrap(bare).messages.create(**ask())
    report = continuation.last_report()
    assert report is not None
    assert str(report).startswith(f"{NEW}: failed (status 400 invalid_request_error), 1 attempt, ")


# --- the last one, here -------------------------------------------------------------------------


def test_the_last_report_is_of_this_task_or_one_it_awaited(sim: Simulator) -> None:
    sim.script([REST] * 5)

    async def main() -> None:
        async with anthropic.AsyncAnthropic(base_url=sim.url, api_key="k") as bare:
            client = continuation.wrap(bare)

            async def turn() -> Report | None:
                said = await client.messages.create(**ask())
                assert continuation.last_report() is continuation.report(said)
                return continuation.last_report()

            async def none() -> Report | None:
                return continuation.last_report()

            assert await none() is None
            for waiting in (asyncio.create_task(turn()), asyncio.wait_for(turn(), 9), turn()):
                assert await waiting is continuation.last_report() is not None
            mine = continuation.last_report()
            assert await asyncio.create_task(none()) is None
            assert len(set(await asyncio.gather(turn(), turn()))) == 2
            assert continuation.last_report() is mine

    asyncio.run(main())


# --- nothing that was said ----------------------------------------------------------------------

SECRET = "sk-ant-api03-very-secret-key"
WORDS = "Bernstein"
HIDDEN = (SECRET, WORDS, "very-secret", "Kastanie", "Haselnuss")

FATES: dict[str, list[Reply]] = {
    "healed": [
        Reply([Text(f"{WORDS} eins, ")], stop="max_tokens"),
        Reply([Text(f"{WORDS} zwei.")]),
    ],
    "call": [
        Reply([Text(WORDS), ToolUse("Write", {"path": WORDS}, cut=12)], stop="max_tokens"),
        Reply([Text(WORDS), ToolUse("Write", {"path": WORDS}, cut=12)], stop="max_tokens"),
    ],
    "thinking": [Reply([Thinking(WORDS, signature=None)], stop="max_tokens")] * 3,
    "error": [Reply(status=401, error=("authentication_error", f"bad key {SECRET} {WORDS}"))],
    "refused": [
        Reply([Text(WORDS)], stop="max_tokens"),
        *[Reply(status=400, error=("invalid_request_error", f"{WORDS} {SECRET}"))] * 3,
    ],
    "dropped": [Reply([Text(WORDS * 9)], drop=3), Reply([Text(WORDS)], error_after=2)] * 3,
    "nonsense": [Reply(raw_body=f"{WORDS} {SECRET}".encode())] * 3,
}


@pytest.mark.parametrize("how", BOTH)
@pytest.mark.parametrize("fate", FATES)
def test_no_report_event_or_log_holds_text_or_keys(
    sim: Simulator, caplog: pytest.LogCaptureFixture, how: How, fate: str
) -> None:
    caplog.set_level(logging.DEBUG, logger="continuation")
    sim.script(FATES[fate])
    request: Any = {
        "messages": [{"role": "user", "content": "Kastanie"}],
        "system": "Haselnuss",
        "tools": [{"name": "Write", "input_schema": {"type": "object"}}],
    }
    ran = run(sim, how, policy=FAST, key=SECRET, **request)
    told = [ran.told.as_dict(), *map(repr, ran.events), repr(ran.told), *caplog.messages]
    everything = json.dumps(told) + caplog.text
    assert ran.told.attempts
    assert [word for word in HIDDEN if word in everything] == []
    assert isinstance(ran.events[-1], Finished)


def test_a_bug_of_ours_is_logged_without_what_was_said(
    sim: Simulator,
    client: anthropic.Anthropic,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object, **__: object) -> None:
        message = "a bug"
        raise RuntimeError(message)

    monkeypatch.setattr("continuation.engine.turn.believed", broken)
    sim.script([Reply([Text(WORDS)], stop="max_tokens")])
    message = client.messages.create(**ask(model=NEW))
    assert message.stop_reason == "max_tokens"
    assert "internal error" in caplog.text
    assert WORDS not in caplog.text


CUT_CALL = cut(ToolUse("Write", {"path": "a.txt", "content": "x"}, cut=12))
THOUGHT = cut(Thinking("Hm."))


@pytest.mark.parametrize(
    ("reply", "policy", "named", "not_named"),
    [
        (CUT_CALL, {}, ['"retry_smaller" or "complete"'], []),
        (CUT_CALL, {"truncated_tool_call": "retry_smaller"}, ['"complete"'], ["retry_smaller"]),
        (CUT_CALL, {"truncated_tool_call": "complete"}, ['"retry_smaller"'], ['"complete"']),
        (THOUGHT, {}, ["less_thinking = true"], []),
        (THOUGHT, {"less_thinking": True}, ["lower the effort"], ["less_thinking"]),
    ],
    ids=["a call", "tried smaller", "tried to complete", "thinking", "tried less thinking"],
)
def test_no_advice_names_what_is_set_already(
    reply: Reply,
    policy: dict[str, Any],
    named: list[str],
    not_named: list[str],
    sim: Simulator,
    caplog: pytest.LogCaptureFixture,
) -> None:
    sim.script([reply] * 6)
    with caplog.at_level(logging.WARNING, logger="continuation"):
        thinks: Any = {"max_tokens": 128_000, "thinking": {"type": "adaptive"}}
        ran = run(sim, "async-stream", policy=Policy(**policy), **thinks)
    for advice in (caplog.messages[-1], account.remedy(ran.told)):
        assert all(word in advice for word in named), advice
        assert not any(word in advice for word in not_named), advice


def test_each_remedy_is_for_a_reason_that_a_turn_can_end_with() -> None:
    told = "".join(inspect.getsource(module) for module in (table, budget))
    assert all(f'"{reason}"' in told for reason in account._REMEDIES)


@pytest.mark.parametrize("live", ["hold", "live"])
@pytest.mark.parametrize("policy", ["explain", "drop", "keep"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_stays_cut_stands_in_the_report_once(
    policy: Any, live: Any, *, stream: bool
) -> None:
    tools: Any = [{"name": "Write", "input_schema": {"type": "object"}}]
    with Rehearsal("call-stays-cut") as provider:
        bare = anthropic.Anthropic(base_url=provider.url, api_key="any", max_retries=0)
        keywords = {"truncated_tool_call": policy, "stream_tool_calls": live}
        with bare, continuation.wrap(bare, **keywords) as client:
            asked = client.messages.create(**ask(max_tokens=4096, tools=tools), stream=stream)
            _ = [*asked] if stream else asked
    report = continuation.last_report()
    assert report is not None
    (call,) = report.calls
    assert (call.name, call.how, call.reason) == ("Write", policy, None)
    assert call.characters > 1000
