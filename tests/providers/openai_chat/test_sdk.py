"""Each helper of the SDK, on an answer that was healed, one that cannot be, and one not cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pydantic
import pytest
from support.sdks.chat import CEILING, LIMIT, MODEL, TOOL, cut, end, limits, playing, written
from support.sdks.turn import body_of
from support.shells import Way, both

import continuation
from continuation import Policy
from continuation.simulator import Reply, Simulator

WHOLE = "The quick brown fox jumps."
DOCUMENT = '{"title": "The quick brown fox", "pages": [1, 2, 3]}'
STRICT: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "Write",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
            "required": ["path", "content"],
            "additionalProperties": False,
        },
    },
}


class Book(pydantic.BaseModel):
    title: str
    pages: list[int]


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator() as running:
        yield running


def healing(way: Way, sim: Simulator, policy: Policy | None = None) -> Any:
    make = way.pick(openai.OpenAI, openai.AsyncOpenAI)
    bare = make(base_url=f"{sim.url}/v1", api_key="k", max_retries=0)
    way._made.append(bare)
    return way.wrap(bare, config=playing(policy))


def ask(limit: int = LIMIT, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Go. Answer in JSON."}]
    return {"model": MODEL, "max_tokens": limit, "messages": messages, **more}


UNCUT = [end(WHOLE)]
HEALED = [cut("The quick brown fo"), end("x jumps.")]
STUCK = [cut("The quick brown fo")] * 5
"""Cut at the ceiling, and so is each recovery."""
stories = pytest.mark.parametrize("story", ["uncut", "healed", "unhealable"])


def tell(sim: Simulator, story: str) -> Policy:
    """Script an answer that is cut at the ceiling or not; a recovery is allowed if it is healed."""
    sim.script({"uncut": UNCUT, "healed": HEALED, "unhealable": STUCK}[story])
    return Policy(max_recoveries=3 if story == "healed" else 0, backoff_seconds=0)


def expected(story: str) -> tuple[str, str]:
    return ("The quick brown fo", "length") if story == "unhealable" else (WHOLE, "stop")


def said(completion: Any) -> tuple[str, str]:
    choice = completion.choices[0]
    return choice.message.content, choice.finish_reason


def streamed(chunks: list[Any]) -> tuple[str, str]:
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    reasons = [choice.finish_reason for choice in choices if choice.finish_reason]
    assert len(reasons) == 1
    return "".join(choice.delta.content or "" for choice in choices), reasons[0]


@both
@stories
def test_create(sim: Simulator, kind: Any, story: str) -> None:
    with Way(kind) as way:
        client = healing(way, sim, tell(sim, story))
        completion = way.do(client.chat.completions.create(**ask(CEILING)))
        assert said(completion) == expected(story)
        assert completion._request_id == "req_sim000000000000000000002"


@both
@stories
def test_create_with_a_stream(sim: Simulator, kind: Any, story: str) -> None:
    with Way(kind) as way:
        client = healing(way, sim, tell(sim, story))
        stream = way.do(client.chat.completions.create(**ask(CEILING), stream=True))
        assert streamed(list(way.each(stream))) == expected(story)
        way.do(stream.close())


@both
@stories
def test_with_options_keeps_healing(sim: Simulator, kind: Any, story: str) -> None:
    with Way(kind) as way:
        client = healing(way, sim, tell(sim, story)).with_options(timeout=30.0)
        completion = way.do(client.chat.completions.create(**ask(CEILING)))
        assert said(completion) == expected(story)


@both
@stories
def test_with_raw_response(sim: Simulator, kind: Any, story: str) -> None:
    with Way(kind) as way:
        client = healing(way, sim, tell(sim, story))
        raw = way.do(client.chat.completions.with_raw_response.create(**ask(CEILING)))
        assert (raw.status_code, raw.request_id) == (200, "req_sim000000000000000000002")
        assert said(raw.parse()) == expected(story)
        body = json.loads(raw.content)
        assert body["choices"][0]["message"]["content"] == expected(story)[0]


@both
@stories
def test_with_streaming_response(sim: Simulator, kind: Any, story: str) -> None:
    with Way(kind) as way:
        client = healing(way, sim, tell(sim, story))
        create = client.chat.completions.with_streaming_response.create
        with way.within(create(**ask(CEILING), stream=True)) as response:
            lines = list(way.each(response.iter_lines()))
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        assert data[-1] == "[DONE]"
        deltas = [json.loads(text)["choices"][0] for text in data[:-1]]
        assert "".join(d["delta"].get("content") or "" for d in deltas) == expected(story)[0]
        assert deltas[-1]["finish_reason"] == expected(story)[1]


@both
@stories
@pytest.mark.parametrize("typed", [False, True])
def test_parse(sim: Simulator, kind: Any, story: str, typed: bool) -> None:
    """It raises on `length`, with or without a type to parse into."""
    first, rest = DOCUMENT[:30], DOCUMENT[30:]
    sim.script(
        {"uncut": [end(DOCUMENT)], "healed": [cut(first), end(rest)], "unhealable": [cut(first)]}[
            story
        ]
    )
    wanted = {"response_format": Book} if typed else {}
    policy = Policy(max_recoveries=0 if story == "unhealable" else 3)
    with Way(kind) as way:
        client = healing(way, sim, policy)
        if story == "unhealable":
            with pytest.raises(openai.LengthFinishReasonError) as caught:
                way.do(client.chat.completions.parse(**ask(CEILING), **wanted))
            assert caught.value.completion.choices[0].message.content == first
            return
        completion = way.do(client.chat.completions.parse(**ask(CEILING), **wanted))
        assert completion.choices[0].message.content == DOCUMENT
        if typed:
            book = Book(title="The quick brown fox", pages=[1, 2, 3])
            assert completion.choices[0].message.parsed == book
    if story == "healed" and typed:
        assert "response_format" in body_of(sim.posts[0])
        assert "response_format" not in body_of(sim.posts[1])


@both
def test_a_document_is_escalated_with_its_constraint(sim: Simulator, kind: Any) -> None:
    sim.script([cut(DOCUMENT[:30]), end(DOCUMENT)])
    with Way(kind) as way:
        client = healing(way, sim)
        completion = way.do(client.chat.completions.parse(**ask(), response_format=Book))
    assert completion.choices[0].message.parsed.pages == [1, 2, 3]
    assert limits(sim) == [LIMIT, CEILING]
    assert all("response_format" in body_of(post) for post in sim.posts)


@both
@pytest.mark.parametrize("fails", [True, False])
def test_a_document_that_cannot_be_joined_is_told_as_cut(
    sim: Simulator, kind: Any, fails: bool
) -> None:
    """Never a synthetic STOP: half a document would be parsed."""
    second = Reply(status=400) if fails else end("is no JSON at all")
    sim.script([cut(DOCUMENT[:30]), second])
    with Way(kind) as way:
        client = healing(way, sim)
        with pytest.raises(openai.LengthFinishReasonError):
            way.do(client.chat.completions.parse(**ask(CEILING), response_format=Book))
    assert len(sim.posts) == 2


@both
def test_raw_response_of_parse(sim: Simulator, kind: Any) -> None:
    sim.script([cut(DOCUMENT[:30]), end(DOCUMENT[30:])])
    with Way(kind) as way:
        client = healing(way, sim)
        parse = client.chat.completions.with_raw_response.parse
        raw = way.do(parse(**ask(CEILING), response_format=Book))
        assert raw.parse().choices[0].message.parsed.pages == [1, 2, 3]


@both
@stories
def test_stream(sim: Simulator, kind: Any, story: str) -> None:
    with Way(kind) as way:
        client = healing(way, sim, tell(sim, story))
        with way.within(client.chat.completions.stream(**ask(CEILING))) as stream:
            events = list(way.each(stream))
            deltas = [event.delta for event in events if event.type == "content.delta"]
            assert "".join(deltas) == expected(story)[0]
            done = [event for event in events if event.type == "content.done"]
            assert len(done) == 1
            if story == "unhealable":
                with pytest.raises(openai.LengthFinishReasonError):
                    way.do(stream.get_final_completion())
            else:
                assert said(way.do(stream.get_final_completion())) == expected(story)


@both
def test_stream_read_by_get_final_completion_alone(sim: Simulator, kind: Any) -> None:
    sim.script(HEALED)
    with Way(kind) as way:
        client = healing(way, sim)
        with way.within(client.chat.completions.stream(**ask())) as stream:
            assert said(way.do(stream.get_final_completion())) == (WHOLE, "stop")


@both
@stories
def test_stream_of_a_document(sim: Simulator, kind: Any, story: str) -> None:
    """Shown structured output cannot be taken back: then it raises as it would have."""
    sim.script([end(DOCUMENT)] if story == "uncut" else [cut(DOCUMENT[:30]), end(DOCUMENT[30:])])
    limit = CEILING if story == "unhealable" else LIMIT
    with Way(kind) as way:
        client = healing(way, sim)
        opening = client.chat.completions.stream(**ask(limit), response_format=Book)
        with way.within(opening) as stream:
            if story == "unhealable":
                with pytest.raises(openai.LengthFinishReasonError):
                    list(way.each(stream))
                return
            list(way.each(stream))
            completion = way.do(stream.get_final_completion())
            assert completion.choices[0].message.parsed.pages == [1, 2, 3]


@both
@stories
def test_stream_of_a_strict_call(sim: Simulator, kind: Any, story: str) -> None:
    whole = end("I write. ", written(), stop="tool_use")
    half = cut("I write. ", written(30))
    sim.script({"uncut": [whole], "healed": [half, whole], "unhealable": [half]}[story])
    limit = CEILING if story == "unhealable" else LIMIT
    with Way(kind) as way:
        client = healing(way, sim)
        with way.within(client.chat.completions.stream(**ask(limit), tools=[STRICT])) as stream:
            if story == "unhealable":
                with pytest.raises(openai.LengthFinishReasonError):
                    list(way.each(stream))
                return
            done = [e for e in way.each(stream) if e.type == "tool_calls.function.arguments.done"]
            completion = way.do(stream.get_final_completion())
    call = completion.choices[0].message.tool_calls[0].function
    assert call.parsed_arguments == json.loads(call.arguments)
    assert [event.arguments for event in done] == [call.arguments]


@both
@stories
def test_parse_of_a_strict_call(sim: Simulator, kind: Any, story: str) -> None:
    whole, half = end(written(), stop="tool_use"), cut(written(30))
    sim.script({"uncut": [whole], "healed": [half, whole], "unhealable": [half]}[story])
    limit = CEILING if story == "unhealable" else LIMIT
    with Way(kind) as way:
        client = healing(way, sim)
        if story == "unhealable":
            with pytest.raises(openai.LengthFinishReasonError):
                way.do(client.chat.completions.parse(**ask(limit), tools=[STRICT]))
            return
        completion = way.do(client.chat.completions.parse(**ask(limit), tools=[STRICT]))
    assert completion.choices[0].message.tool_calls[0].function.parsed_arguments["path"] == "a.txt"


@both
def test_azure_clients_are_healed_under_their_own_paths(sim: Simulator, kind: Any) -> None:
    sim.scenario = sim.scenario.but("vendor=azure")
    sim.script(HEALED)
    with Way(kind) as way:
        make = way.pick(openai.AzureOpenAI, openai.AsyncAzureOpenAI)
        bare = make(azure_endpoint=sim.url, api_version="2026-10-01", api_key="k", max_retries=0)
        way._made.append(bare)
        client = way.wrap(bare, config=playing(None, "azure"))
        request = ask()
        stream = way.do(client.chat.completions.create(**request, stream=True))
        chunks = [c for c in way.each(stream) if c.choices]
    assert streamed(chunks) == (WHOLE, "stop")
    assert {post.path.partition("?")[0] for post in sim.posts} == {
        f"/openai/deployments/{MODEL}/chat/completions"
    }


@both
def test_forced_calls_are_escalated(sim: Simulator, kind: Any) -> None:
    sim.script([cut(written(30)), end(written(), stop="end_turn")])
    forced = {"type": "function", "function": {"name": "Write"}}
    with Way(kind) as way:
        client = healing(way, sim)
        request = ask(tools=[TOOL], tool_choice=forced)
        completion = way.do(client.chat.completions.create(**request))
    assert json.loads(completion.choices[0].message.tool_calls[0].function.arguments)
    assert continuation.last_report() is not None or kind == "async"
