"""Each helper of the SDK, on an answer that was healed, one that cannot be, and one not cut."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import openai
import pydantic
import pytest
from support.sdks.chat import CEILING, LIMIT, MODEL, WRITE, limits, playing, written
from support.sdks.turn import body_of, cut, end
from support.shells import Way, both

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


ASK: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Go. Answer in JSON."}],
}
stories = pytest.mark.parametrize("story", ["uncut", "healed", "unhealable"])


def healing(way: Way, sim: Simulator, policy: Policy | None = None) -> Any:
    make = way.pick(openai.OpenAI, openai.AsyncOpenAI)
    bare = make(base_url=f"{sim.url}/v1", api_key="k", max_retries=0)
    way._made.append(bare)
    return way.wrap(bare, config=playing(policy)).chat.completions


def said(completion: Any) -> tuple[str, str]:
    choice = completion.choices[0]
    return choice.message.content, choice.finish_reason


def streamed(choices: list[Any]) -> tuple[str, str]:
    reasons = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    assert len(reasons) == 1
    return "".join(choice["delta"].get("content") or "" for choice in choices), reasons[0]


# --- a text -------------------------------------------------------------------------------------
# Each way asks, and tells what was said and why it ended.


def create(way: Way, client: Any) -> tuple[str, str]:
    completion = way.do(client.create(**ASK, max_tokens=CEILING))
    assert completion._request_id == "req_sim000000000000000000002"
    return said(completion)


def create_with_a_stream(way: Way, client: Any) -> tuple[str, str]:
    stream = way.do(client.create(**ASK, max_tokens=CEILING, stream=True))
    chunks = [chunk.to_dict() for chunk in way.each(stream)]
    way.do(stream.close())
    return streamed([choice for chunk in chunks for choice in chunk["choices"]])


def with_options(way: Way, client: Any) -> tuple[str, str]:
    return create(way, client._client.with_options(timeout=30.0).chat.completions)


def with_raw_response(way: Way, client: Any) -> tuple[str, str]:
    raw = way.do(client.with_raw_response.create(**ASK, max_tokens=CEILING))
    assert (raw.status_code, raw.request_id) == (200, "req_sim000000000000000000002")
    choice = json.loads(raw.content)["choices"][0]
    assert said(raw.parse()) == (choice["message"]["content"], choice["finish_reason"])
    return said(raw.parse())


def with_streaming_response(way: Way, client: Any) -> tuple[str, str]:
    opening = client.with_streaming_response.create(**ASK, max_tokens=CEILING, stream=True)
    with way.within(opening) as response:
        lines = list(way.each(response.iter_lines()))
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    return streamed([json.loads(text)["choices"][0] for text in data[:-1]])


def stream_helper(way: Way, client: Any) -> tuple[str, str]:
    with way.within(client.stream(**ASK, max_tokens=CEILING)) as stream:
        events = list(way.each(stream))
        text = "".join(event.delta for event in events if event.type == "content.delta")
        assert [event.type for event in events].count("content.done") == 1
        try:
            completion = way.do(stream.get_final_completion())
        except openai.LengthFinishReasonError:
            return text, "length"
        assert said(completion)[0] == text
        return said(completion)


def final_completion_alone(way: Way, client: Any) -> tuple[str, str]:
    with way.within(client.stream(**ASK, max_tokens=CEILING)) as stream:
        try:
            return said(way.do(stream.get_final_completion()))
        except openai.LengthFinishReasonError as error:
            return said(error.completion)


TEXTS = [
    create,
    create_with_a_stream,
    with_options,
    with_raw_response,
    with_streaming_response,
    stream_helper,
    final_completion_alone,
]


@both
@stories
@pytest.mark.parametrize("ask", TEXTS, ids=lambda ask: ask.__name__)
def test_each_way_to_ask_for_a_text(
    sim: Simulator, kind: Any, story: str, ask: Callable[[Way, Any], tuple[str, str]]
) -> None:
    half = "The quick brown fo"
    sim.script([end(WHOLE)] if story == "uncut" else [cut(half), end("x jumps.")])
    policy = Policy(max_recoveries=0 if story == "unhealable" else 3, backoff_seconds=0)
    with Way(kind) as way:
        told = ask(way, healing(way, sim, policy))
    assert told == ((half, "length") if story == "unhealable" else (WHOLE, "stop"))


# --- a document, a call -------------------------------------------------------------------------
# These helpers raise where an answer ends with `length`, with or without a type to parse into.


def parse(way: Way, client: Any, **asked: Any) -> Any:
    return way.do(client.parse(**ASK, **asked))


def parse_raw(way: Way, client: Any, **asked: Any) -> Any:
    return way.do(client.with_raw_response.parse(**ASK, **asked)).parse()


def stream(way: Way, client: Any, **asked: Any) -> Any:
    with way.within(client.stream(**ASK, **asked)) as opened:
        list(way.each(opened))
        return way.do(opened.get_final_completion())


@both
@stories
@pytest.mark.parametrize(
    ("ask", "typed"), [(parse, True), (parse, False), (parse_raw, True), (stream, True)]
)
def test_each_way_to_ask_for_a_document(
    sim: Simulator, kind: Any, story: str, ask: Callable[..., Any], typed: bool
) -> None:
    first, rest = DOCUMENT[:30], DOCUMENT[30:]
    sim.script([end(DOCUMENT)] if story == "uncut" else [cut(first), end(rest)])
    asked: dict[str, Any] = {"response_format": Book} if typed else {}
    # What was shown of a document cannot be taken back: at the ceiling no stream of one is healed.
    shown = ask is stream and story != "unhealable"
    policy = Policy(max_recoveries=0 if story == "unhealable" and ask is not stream else 3)
    with Way(kind) as way:
        client = healing(way, sim, policy)
        asked["max_tokens"] = LIMIT if shown else CEILING
        if story == "unhealable":
            with pytest.raises(openai.LengthFinishReasonError) as caught:
                ask(way, client, **asked)
            assert caught.value.completion.choices[0].message.content == first
            return
        message = ask(way, client, **asked).choices[0].message
    assert message.content == DOCUMENT
    if typed:
        assert message.parsed == Book(title="The quick brown fox", pages=[1, 2, 3])
    if story == "healed" and typed and ask is not stream:
        formats = ["response_format" in body_of(post) for post in sim.posts]
        assert formats == [True, False]


@both
def test_a_document_is_escalated_with_its_constraint(sim: Simulator, kind: Any) -> None:
    sim.script([cut(DOCUMENT[:30]), end(DOCUMENT)])
    with Way(kind) as way:
        client = healing(way, sim)
        completion = way.do(client.parse(**ASK, max_tokens=LIMIT, response_format=Book))
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
            way.do(client.parse(**ASK, max_tokens=CEILING, response_format=Book))
    assert len(sim.posts) == 2


@both
@stories
@pytest.mark.parametrize("ask", [parse, stream])
def test_each_way_to_ask_for_a_strict_call(
    sim: Simulator, kind: Any, story: str, ask: Callable[..., Any]
) -> None:
    whole, half = end("I write. ", written(), stop="tool_use"), cut("I write. ", written(30))
    sim.script({"uncut": [whole], "healed": [half, whole], "unhealable": [half]}[story])
    asked = {"max_tokens": CEILING if story == "unhealable" else LIMIT, "tools": [STRICT]}
    with Way(kind) as way:
        client = healing(way, sim)
        if story == "unhealable":
            with pytest.raises(openai.LengthFinishReasonError):
                ask(way, client, **asked)
            return
        call = ask(way, client, **asked).choices[0].message.tool_calls[0].function
    assert call.parsed_arguments == json.loads(call.arguments) == WRITE


@both
def test_the_end_of_a_call_is_told_once(sim: Simulator, kind: Any) -> None:
    sim.script([cut("I write. ", written(30)), end("I write. ", written(), stop="tool_use")])
    with Way(kind) as way:
        opening = healing(way, sim).stream(**ASK, max_tokens=LIMIT, tools=[STRICT])
        with way.within(opening) as opened:
            events = list(way.each(opened))
    done = [e.arguments for e in events if e.type == "tool_calls.function.arguments.done"]
    assert [json.loads(arguments) for arguments in done] == [WRITE]


@both
def test_azure_clients_are_healed_under_their_own_paths(sim: Simulator, kind: Any) -> None:
    sim.scenario = sim.scenario.but("vendor=azure")
    sim.script([cut("The quick brown fo"), end("x jumps.")])
    with Way(kind) as way:
        make = way.pick(openai.AzureOpenAI, openai.AsyncAzureOpenAI)
        bare = make(azure_endpoint=sim.url, api_version="2026-10-01", api_key="k", max_retries=0)
        way._made.append(bare)
        client = way.wrap(bare, config=playing(None, "azure"))
        told = create_with_a_stream(way, client.chat.completions)
    assert told == (WHOLE, "stop")
    assert {post.path.partition("?")[0] for post in sim.posts} == {
        f"/openai/deployments/{MODEL}/chat/completions"
    }
