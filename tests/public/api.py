"""The public API as type checkers see it: read by mypy and pyright, never run.

`.ci/run` has both check a copy of it outside the checkout, against the wheel and against an
editable install. A `type: ignore` that is not needed is an error, so each of them is a test too.
"""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, assert_type

import anthropic
import httpx2
import openai
from google import genai
from openai.types.chat import ChatCompletion

import continuation
from continuation import Policy, Report
from continuation.journal import ParsedCall, ToolRun
from continuation.testing import Rehearsal, set_testing, simulate


class Mine(anthropic.Anthropic):
    """A client of somebody's own."""


def wrap_returns_the_type_it_was_given(mine: Mine, azure: openai.AsyncAzureOpenAI) -> None:
    assert_type(continuation.wrap(anthropic.Anthropic()), anthropic.Anthropic)
    assert_type(continuation.wrap(anthropic.AsyncAnthropic()), anthropic.AsyncAnthropic)
    assert_type(continuation.wrap(openai.OpenAI()), openai.OpenAI)
    assert_type(continuation.wrap(genai.Client()), genai.Client)
    assert_type(continuation.wrap(azure, config="c.toml", on_event=print), openai.AsyncAzureOpenAI)
    assert_type(continuation.wrap(mine, max_recoveries=2, usage="billed"), Mine)


def policies_are_typed_wherever_they_are_said(client: anthropic.Anthropic) -> None:
    Policy(max_recoveries=2, truncated_tool_call="retry_smaller", learned_file="~/x.json")
    Policy(max_recoverys=2)  # type: ignore[call-arg]
    Policy(usage="all")  # type: ignore[arg-type]
    continuation.wrap(client, truncated_tool_call="drop", backoff_seconds=0, chain_store="off")
    continuation.wrap(client, max_recoverys=2)  # type: ignore[call-arg]
    continuation.wrap(client, max_recoveries="2")  # type: ignore[arg-type]
    continuation.wrap(client, config=3)  # type: ignore[arg-type]
    continuation.wrap(client, on_event=lambda: None)  # type: ignore[arg-type, misc]
    with continuation.override(max_recoveries=0, quiet_mode=True, session_recovery=False):
        pass
    with continuation.override(learned_file="x"):  # type: ignore[call-arg]
        pass


def http_clients_are_those_of_httpx2(sync: httpx2.Client, other: httpx2.AsyncClient) -> None:
    assert_type(continuation.http_client(), httpx2.Client)
    assert_type(continuation.http_client(sync, enabled=False), httpx2.Client)
    assert_type(continuation.async_http_client(other, prefill=False), httpx2.AsyncClient)
    continuation.http_client(other)  # type: ignore[arg-type]


def an_answer_that_is_not_whole(error: continuation.TruncatedAnswerError) -> None:
    assert_type((error.report, error.text, error.body), tuple[Report, str, bytes | None])


def hear(event: continuation.Event) -> None:
    if isinstance(event, continuation.Truncated):
        assert_type(event.limit, int | None)
    if isinstance(event, continuation.Finished):
        assert_type(event.report, Report)


def what_is_told_of_a_turn(message: object) -> None:
    listener: Callable[[continuation.Event], object] = hear
    continuation.wrap(anthropic.Anthropic(), on_event=listener)
    assert_type(continuation.last_report(), Report | None)
    assert_type(continuation.report(message), Report | None)
    with continuation.watch() as turns:
        assert_type(list(turns), list[Report])
    [report] = turns
    assert_type(report.outcome, continuation.Outcome)
    assert_type(report.reason, str | None)
    assert_type(report.attempts, tuple[continuation.Attempt, ...])
    assert_type(report.billed, continuation.Usage)
    assert_type(report.billed.output, int | None)
    assert_type(report.to_html(), str)
    assert_type(Report.from_dict(report.as_dict()), Report)


async def answers_from_elsewhere(
    sync: anthropic.Anthropic,
    other: openai.AsyncOpenAI,
    google: genai.Client,
    message: anthropic.types.Message,
    chat: ChatCompletion,
    body: Mapping[str, Any],
) -> None:
    assert_type(continuation.finish(sync, body, message), anthropic.types.Message)
    assert_type(await continuation.finish(other, body, chat), ChatCompletion)
    assert_type(continuation.finish(google, body, body), Any)
    assert_type(await continuation.finish(google.aio, body, message), anthropic.types.Message)
    continuation.finish(other, body)  # type: ignore[call-overload]


async def batches(
    sync: anthropic.Anthropic,
    other: openai.AsyncOpenAI,
    google: genai.Client,
    bodies: list[dict[str, Any]],
    journal: continuation.Journal,
) -> None:
    for result in continuation.run_batch(sync, bodies, concurrency=32, journal="batch.db"):
        assert_type(result, continuation.BatchResult)
        assert_type((result.index, result.id), tuple[int, str])
        assert_type((result.report, result.error), tuple[Report | None, Exception | None])
    async for result in continuation.run_batch(other, iter(bodies), journal=journal):
        assert_type(result, continuation.BatchResult)
    assert_type(continuation.run_batch(google, bodies), Iterator[continuation.BatchResult])
    assert_type(continuation.run_batch(google.aio, bodies), AsyncIterator[continuation.BatchResult])
    continuation.run_batch(sync, bodies, concurrency="8")  # type: ignore[call-overload]


def journals(journal: continuation.Journal, call: object) -> None:
    def run(call: ParsedCall, tool_run: ToolRun) -> str:
        tool_run.check()
        return f"{call.name} {tool_run.key} {tool_run.fencing_token}"

    assert_type(journal.settle(run, idempotent={"Read"}, verify=print), Any)
    assert_type(journal.call(call, run, idempotent=True), Any)
    with journal.tool(call) as tool:
        assert_type(tool, ToolRun)
    assert_type(journal.history(), list[dict[str, Any]])


def histories(body: Mapping[str, Any]) -> None:
    repaired = continuation.repair(body)
    assert_type(repaired, continuation.Repaired)
    violations = continuation.validate(body)
    assert_type(violations, list[continuation.Violation])
    continuation.reapir(body)  # type: ignore[attr-defined]


def rehearsals() -> None:
    with set_testing(), simulate("cut-call", answer="text") as rehearsal:
        assert_type(rehearsal, Rehearsal)
        assert_type(rehearsal.url, str)
