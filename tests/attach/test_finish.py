"""An answer that came cut from elsewhere is gone on with, and not paid again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from support.sdks.formats import FORMATS, MAKES, request
from support.sdks.turn import FAST, Turn, cut, end, quietly

import continuation
from continuation import Journal, Report
from continuation.simulator import Scenario, Simulator, Text, ToolUse

TEXT = "".join(f"{n}. A line of an answer that came cut.\n" for n in range(300))
LIMIT = 1_000

every_format = pytest.mark.parametrize("dialect", FORMATS)


@pytest.fixture
def reciting() -> Iterator[Simulator]:
    with Simulator(TEXT, Scenario()) as running, quietly():
        yield running


def asked_before(ran: Turn, sim: Simulator, asked: dict[str, Any]) -> Any:
    """Return what a plain client gets: the answer as a batch or a log has it."""
    with ran.connect(sim.url, asynchronous=False) as client:
        answer = ran.create(client, asked)
    sim.requests.clear()
    return answer


def finish(ran: Turn, sim: Simulator, asked: dict[str, Any], answer: Any, **options: Any) -> Report:
    with ran.connect(sim.url, asynchronous=False) as bare:
        client = continuation.wrap(bare, config=FAST, **options)
        ran.answer = continuation.finish(client, asked, answer)
    report = continuation.last_report()
    assert report is not None
    return report


def as_json(answer: Any) -> dict[str, Any]:
    if hasattr(answer, "to_dict"):
        return dict(answer.to_dict(mode="json"))
    return dict(answer.model_dump(mode="json", by_alias=True, exclude_none=True))


@every_format
@pytest.mark.parametrize("given", ["object", "json"])
def test_a_cut_answer_is_gone_on_with(dialect: str, given: str, reciting: Simulator) -> None:
    ran, asked = MAKES[dialect](), request(dialect, LIMIT, {})
    answer = asked_before(ran, reciting, asked)
    report = finish(ran, reciting, asked, answer if given == "object" else as_json(answer))
    assert ran.text == TEXT
    assert type(ran.answer) is type(answer)
    assert len(reciting.posts) == 1
    assert (report.outcome, report.saved.output) == ("healed", LIMIT)
    assert report.billed.output == report.attempts[1].usage.output  # type: ignore[union-attr]
    assert continuation.report(ran.answer) is report


@every_format
def test_of_an_asynchronous_client_it_is_awaited(dialect: str, reciting: Simulator) -> None:
    ran, asked = MAKES[dialect](), request(dialect, LIMIT, {})
    answer = asked_before(ran, reciting, asked)

    async def go_on() -> Any:
        bare = ran.connect(reciting.url, asynchronous=True)
        async with getattr(bare, "aio", bare):
            client: Any = continuation.wrap(bare, config=FAST)
            return await continuation.finish(getattr(client, "aio", client), asked, answer)

    ran.answer = asyncio.run(go_on())
    assert ran.text == TEXT
    assert len(reciting.posts) == 1


@every_format
def test_a_whole_answer_comes_back_without_a_request(dialect: str, sim: Simulator) -> None:
    ran, asked = MAKES[dialect](), request(dialect, LIMIT, {})
    sim.script([end("All of it.", ToolUse("Write", {"path": "a"}))])
    answer = asked_before(ran, sim, asked)
    report = finish(ran, sim, asked, answer)
    assert sim.posts == []
    assert (report.outcome, ran.text) == ("complete", "All of it.")
    assert ran.tool_calls == [("Write", {"path": "a"})]


@pytest.mark.parametrize("dialect", ["anthropic-messages", "openai-chat", "gemini"])
def test_an_answer_without_a_stop_reason_broke_off(dialect: str, reciting: Simulator) -> None:
    ran, asked = MAKES[dialect](), request(dialect, LIMIT, {})
    answer = as_json(asked_before(ran, reciting, asked))
    for told in (answer, *answer.get("choices", []), *answer.get("candidates", [])):
        for word in ("stop_reason", "finish_reason", "finishReason"):
            told.pop(word, None)
    finish(ran, reciting, asked, answer)
    assert ran.text == TEXT
    assert len(reciting.posts) == 1


@pytest.mark.parametrize("dialect", ["anthropic-messages", "openai-chat", "openai-responses"])
def test_half_a_call_is_asked_for_again(dialect: str, sim: Simulator) -> None:
    call = ToolUse("Write", {"path": "a", "content": "b" * 80})
    ran, asked = MAKES[dialect](), request(dialect, LIMIT, {})
    sim.script([cut("I write.", ToolUse("Write", call.arguments, cut=20))])
    answer = asked_before(ran, sim, asked)
    sim.script([end("I write.", call, stop="tool_use")])
    report = finish(ran, sim, asked, answer)
    assert ran.tool_calls == [("Write", call.arguments)]
    assert (len(sim.posts), report.saved.output) == (1, None)


def test_with_a_journal_the_turn_is_kept(reciting: Simulator, tmp_path: Path) -> None:
    ran, asked = MAKES["openai-chat"](), request("openai-chat", LIMIT, {})
    answer = asked_before(ran, reciting, asked)
    with Journal(tmp_path / "agent.db", "s") as journal:
        finish(ran, reciting, asked, answer, journal=journal)
        assert journal.history()[-1]["content"] == TEXT
    assert len(reciting.posts) == 1


def test_the_call_it_was_asked_for_with_may_have_been_streamed_long_or_of_a_beta(
    reciting: Simulator,
) -> None:
    asked: dict[str, Any] = {**request("anthropic-messages", LIMIT, {}), "betas": ["x-1"]}
    with anthropic.Anthropic(base_url=reciting.url, api_key="k", max_retries=0) as client:
        answer = client.beta.messages.create(**asked)
        reciting.requests.clear()
        more = {"stream": True, "max_tokens": 64_000}
        whole = continuation.finish(client, {**asked, **more}, answer)
    assert type(whole) is type(answer)
    assert "".join(block.text for block in whole.content if block.type == "text") == TEXT
    assert [post.headers["anthropic-beta"] for post in reciting.posts] == ["x-1"]


def test_only_the_first_request_is_answered_by_it(sim: Simulator) -> None:
    """The SDK of Gemini runs functions by itself, and sends their results within the same call."""
    ran, asked = MAKES["gemini"](), request("gemini", LIMIT, {})
    sim.script([end(ToolUse("look", {}))])
    answer = asked_before(ran, sim, asked)
    sim.script([end("I looked.")])
    looked = list[str]()

    def look() -> str:
        looked.append("once")
        return "a file"

    finish(ran, sim, {**asked, "config": {"tools": [look], "max_output_tokens": LIMIT}}, answer)
    assert (ran.text, looked, len(sim.posts)) == ("I looked.", ["once"], 1)


def test_what_cannot_be_finished_is_said() -> None:
    anthropics = anthropic.Anthropic(api_key="k")
    with pytest.raises(TypeError, match=r"answer = builtins.dict: .* from a batch line, pass"):
        continuation.finish(anthropics, {}, {"custom_id": "1", "result": {}})
    with pytest.raises(TypeError, match=r"has no chat.completions.create"):
        continuation.finish(anthropics, {}, {"choices": []})
    with pytest.raises(TypeError, match="cannot wrap"):
        continuation.finish(openai, {}, {"choices": []})  # type: ignore[arg-type]


def test_the_next_request_is_sent_again(reciting: Simulator) -> None:
    ran, asked = MAKES["openai-chat"](), request("openai-chat", LIMIT, {})
    answer = asked_before(ran, reciting, asked)
    with ran.connect(reciting.url, asynchronous=False) as bare:
        client = continuation.wrap(bare, config=FAST)
        continuation.finish(client, asked, answer)
        reciting.requests.clear()
        reciting.script([end(Text("Another one."))])
        assert ran.create(client, asked).choices[0].message.content == "Another one."
    assert len(reciting.posts) == 1
