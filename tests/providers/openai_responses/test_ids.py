"""The id of a healed answer: no server may know less under it than the caller was given.

Each test continues from a healed answer where nothing of the chain is kept: in a process that was
restarted, in a second gateway, in a client without us.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest
from support.gateways import serving
from support.sdks.responses import GO, MODEL, posts
from support.sdks.turn import FAST, HOWS, How, cut, end
from support.servers import Answer, Asked, Canned

import continuation
from continuation import Policy
from continuation.prompts import looks_like_recovery_prompt
from continuation.providers.openai_responses import chain as _chain
from continuation.simulator import Reply, Scenario, Simulator, Thinking

NEXT: Any = {"type": "message", "role": "user", "content": "And then?"}
WHOLE = "One fine day, all was well."
TOP = 128_000
HEALED: dict[str, tuple[tuple[Reply, ...], int]] = {
    "recovered": ((cut(Thinking("Hm."), "One fine day, "), end("all was well.")), TOP),
    "escalated": ((cut(Thinking("Hm")), end(Thinking("Hm."), WHOLE)), 1000),
    "unbroken": ((cut("One fine day, "), cut("all "), end("was well.")), TOP),
}
"""What the model says in a turn that is healed, and the limit that makes it so."""
REMEDY = "send the whole conversation as `input`"
END = end("The end.")


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    restart()
    yield
    restart()


def restart() -> None:
    """What a process keeps in memory is gone."""
    for store in _chain._stores.values():
        store.close()
    _chain._stores.clear()


def ask(url: str, how: How, *, policy: Policy | None = FAST, **more: Any) -> Any:
    """Ask with a new client; `policy` `None`: with one that is not wrapped."""
    later, streamed = how.startswith("async"), how.endswith("stream")
    kind: Any = openai.AsyncOpenAI if later else openai.OpenAI
    asked: dict[str, Any] = {"model": MODEL, "max_output_tokens": 1000, "input": [GO], **more}

    bare = kind(base_url=f"{url}/v1", api_key="key", max_retries=0)
    client = bare if policy is None else continuation.wrap(bare, config=policy)

    async def awaited() -> Any:
        async with bare, client:
            if not streamed:
                return await client.responses.create(**asked)
            async with client.responses.stream(**asked) as stream:
                return _final([event async for event in stream])

    if later:
        return asyncio.run(awaited())
    with bare, client:
        if not streamed:
            return client.responses.create(**asked)
        with client.responses.stream(**asked) as stream:
            return _final(list(stream))


def _final(events: list[Any]) -> Any:
    names = {event.response.id for event in events if hasattr(event, "response")}
    assert len(names) == 1, "one id in all events of a stream"
    return events[-1].response


def asked_for(sim: Simulator) -> list[str]:
    return [request.method for request in sim.requests]


def read(sim: Simulator, name: str) -> list[str]:
    """What the model read before it gave a response, without reasoning."""
    with openai.OpenAI(base_url=f"{sim.url}/v1", api_key="key") as client:
        items = [item.to_dict() for item in client.responses.input_items.list(name, order="asc")]
    told: list[Any] = [item for item in items if item["type"] == "message"]
    return ["".join(part["text"] for part in item["content"]) for item in told]


def continues_from_all_or_nothing(sim: Simulator, follow: Callable[[], Any]) -> None:
    """Assert that a later turn reads the whole answer, or that it is refused with the remedy."""
    sim.script([END])
    before = len(sim.posts)
    refused = None
    try:
        after = follow()
    except openai.BadRequestError as error:
        refused = error.code
    if refused is not None:
        assert refused == "previous_response_not_found"
        assert all(post.status == 400 for post in sim.posts[before:]), "nothing was generated"
        return
    seen = read(sim, after.id)
    assert seen == ["Go.", WHOLE, "And then?"]
    assert not any(map(looks_like_recovery_prompt, seen))


# --- a healed turn --------------------------------------------------------------------------


@pytest.mark.parametrize("again", HOWS)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", HEALED)
def test_a_restarted_process_never_continues_from_half(
    sim: Simulator, kind: str, how: How, again: How
) -> None:
    answers, limit = HEALED[kind]
    sim.script(answers)
    first = ask(sim.url, how, max_output_tokens=limit)
    assert (first.output_text, first.status) == (WHOLE, "completed")
    assert continuation.report(first) is not None
    restart()
    continues_from_all_or_nothing(
        sim, lambda: ask(sim.url, again, input=[NEXT], previous_response_id=first.id)
    )


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("kind", HEALED)
def test_the_id_of_a_body_is_safe_in_any_client(sim: Simulator, kind: str, how: How) -> None:
    answers, limit = HEALED[kind]
    sim.script(answers)
    first = ask(sim.url, how, max_output_tokens=limit)
    assert first.output_text == WHOLE
    continues_from_all_or_nothing(
        sim,
        lambda: ask(sim.url, how, policy=None, input=[NEXT], previous_response_id=first.id),
    )


def test_the_id_of_a_body_that_was_asked_for_again_is_the_servers_own(sim: Simulator) -> None:
    answers, limit = HEALED["escalated"]
    sim.script([*answers, END])
    first = ask(sim.url, "sync", max_output_tokens=limit)
    with openai.OpenAI(base_url=f"{sim.url}/v1", api_key="key") as bare:
        shown = bare.responses.retrieve(first.id)
    assert (shown.output_text, shown.created_at) == (WHOLE, first.created_at)
    restart()
    after = ask(sim.url, "sync", input=[NEXT], previous_response_id=first.id)
    assert read(sim, after.id) == ["Go.", WHOLE, "And then?"]


@pytest.mark.parametrize("how", HOWS)
def test_a_second_gateway_never_continues_from_half(
    sim: Simulator, tmp_path_factory: pytest.TempPathFactory, how: How
) -> None:
    answers, limit = HEALED["recovered"]
    sim.script(answers)
    more = "[defaults]\nbackoff_seconds = 0.0\nremember_limit = false\n"
    with serving(tmp_path_factory.mktemp("one"), sim.url, more) as gateway:
        first = ask(f"{gateway.url}/openai", how, policy=None, max_output_tokens=limit)
        assert first.output_text == WHOLE
        sim.script([END])
        after = ask(
            f"{gateway.url}/openai",
            how,
            policy=None,
            input=[NEXT],
            previous_response_id=first.id,
        )
        assert read(sim, after.id) == ["Go.", WHOLE, "And then?"]
    restart()
    with serving(tmp_path_factory.mktemp("two"), sim.url, more) as gateway:
        with pytest.raises(openai.BadRequestError, match=REMEDY) as refused:
            ask(
                f"{gateway.url}/openai",
                how,
                policy=None,
                input=[NEXT],
                previous_response_id=first.id,
            )
        assert refused.value.code == "previous_response_not_found"


FOLLOW = """
import continuation, openai, sys
client = continuation.wrap(openai.OpenAI(base_url=sys.argv[1], api_key="key", max_retries=0))
try:
    client.responses.create(model=sys.argv[2], input="And then?", previous_response_id=sys.argv[3])
except openai.BadRequestError as error:
    print(error.code)
else:
    print("answered")
"""


@pytest.mark.parametrize("how", ["sync", "sync-stream"])
def test_another_process_refuses_too(sim: Simulator, how: How) -> None:
    answers, limit = HEALED["recovered"]
    sim.script([*answers, END])
    first = ask(sim.url, how, max_output_tokens=limit)
    command = [sys.executable, "-c", FOLLOW, f"{sim.url}/v1", MODEL, first.id]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "previous_response_not_found"


def test_a_file_outlives_the_process_for_streams_and_bodies(sim: Simulator, tmp_path: Path) -> None:
    policy = Policy(chain_store=str(tmp_path / "chains.db"), store_seconds=30)
    answers, limit = HEALED["recovered"]
    for how in HOWS:
        sim.script([*answers, END])
        first = ask(sim.url, how, policy=policy, max_output_tokens=limit)
        restart()
        sent = len(sim.requests)
        after = ask(sim.url, how, policy=policy, input=[NEXT], previous_response_id=first.id)
        assert len(sim.requests) == sent + 1, "a store that lasts need not ask the server"
        assert read(sim, after.id) == ["Go.", WHOLE, "And then?"]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", HEALED)
def test_without_storage_items_are_sent_back_and_the_id_is_refused(
    sim: Simulator, kind: str, how: How
) -> None:
    """`store: false`, with encrypted reasoning: the server has nothing under any id."""
    answers, limit = HEALED[kind]
    sim.scenario = Scenario(strict_signatures=True)
    sim.script([*answers, END])
    more: dict[str, Any] = {"store": False, "include": ["reasoning.encrypted_content"]}
    first = ask(sim.url, how, max_output_tokens=limit, **more)
    assert first.output_text == WHOLE
    restart()
    back = [json.loads(item.to_json(exclude_none=True)) for item in first.output]
    for item in back:
        for part in item.get("content") or []:
            part.pop("parsed", None)
    assert ask(sim.url, how, input=[GO, *back, NEXT], **more).output_text == "The end."
    sim.script([END])
    with pytest.raises(openai.BadRequestError) as refused:
        ask(sim.url, how, input=[NEXT], previous_response_id=first.id, **more)
    assert refused.value.code == "previous_response_not_found"


# --- turns that were not healed -------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
def test_a_whole_turn_is_continued_after_a_restart_and_asked_for_once(
    sim: Simulator, how: How
) -> None:
    sim.script([end("Whole."), END, END, END])
    first = ask(sim.url, how)
    restart()
    for _ in range(2):
        ask(sim.url, how, input=[NEXT], previous_response_id=first.id)
        assert posts(sim)[-1]["previous_response_id"] == first.id
    assert asked_for(sim) == ["POST", "GET", "POST", "POST"]


@pytest.mark.parametrize("how", HOWS)
def test_within_a_process_the_server_is_not_asked(sim: Simulator, how: How) -> None:
    sim.script([end("Whole."), END, END])
    last = None
    for _ in range(3):
        last = ask(sim.url, how, input=[NEXT], previous_response_id=last).id
    assert asked_for(sim) == ["POST"] * 3


@pytest.mark.parametrize("how", HOWS)
def test_what_the_caller_got_as_the_server_has_it_is_continued(sim: Simulator, how: How) -> None:
    """A truncated answer that was not healed: the server knows as much as the caller."""
    sim.script([cut("Half "), END])
    policy = replace(FAST, max_recoveries=0)
    half = ask(sim.url, how, policy=policy, max_output_tokens=TOP)
    assert (half.output_text, half.status) == ("Half ", "incomplete")
    ask(sim.url, "sync", input=[NEXT], previous_response_id=half.id)
    assert posts(sim)[-1]["previous_response_id"] == half.id
    assert "GET" not in asked_for(sim)


@pytest.mark.parametrize("limit", [100, 1000])
def test_a_limit_too_small_to_be_healed_leaves_a_response_to_continue(
    sim: Simulator, limit: int
) -> None:
    """With a larger one, another process may have healed it, and the server may lack the rest."""
    sim.script([cut("Half "), END])
    half = ask(sim.url, "sync", policy=None, max_output_tokens=limit)
    if limit < FAST.leave_limits_below:
        ask(sim.url, "sync", input=[NEXT], previous_response_id=half.id)
        assert posts(sim)[-1]["previous_response_id"] == half.id
    else:
        with pytest.raises(openai.BadRequestError, match="not found in full"):
            ask(sim.url, "sync", input=[NEXT], previous_response_id=half.id)
        off = Policy(enabled=False)
        ask(sim.url, "sync", policy=off, input=[NEXT], previous_response_id=half.id)


@pytest.mark.parametrize("shown", [404, 405, 500, "[]", '{"object": "list"}'])
def test_a_server_that_does_not_show_responses_is_believed_to_know(shown: object) -> None:
    whole = {
        "id": "resp_2",
        "object": "response",
        "created_at": 1,
        "model": MODEL,
        "status": "completed",
        "output": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}],
    }

    def rule(asked: Asked) -> Answer:
        if asked.method == "POST":
            return Answer(body=whole)
        if isinstance(shown, int):
            return Answer(status=shown, body={"error": {"message": "no"}})
        return Answer(body=json.loads(str(shown)))

    with Canned(rule) as server:
        ask(server.url, "sync", input=[NEXT], previous_response_id="resp_1")
        assert [each.method for each in server.asked] == ["GET", "POST"]
        assert server.asked[-1].body["previous_response_id"] == "resp_1"


# --- requests about a response --------------------------------------------------------------

ABOUT: dict[str, Callable[[Any, str], Any]] = {
    "retrieve": lambda responses, name: responses.retrieve(name),
    "input_items": lambda responses, name: responses.input_items.list(name),
    "delete": lambda responses, name: responses.delete(name),
    "cancel": lambda responses, name: responses.cancel(name),
}


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("about", ABOUT)
def test_a_request_about_an_id_that_no_server_has_says_so(
    sim: Simulator, about: str, wrapped: bool
) -> None:
    answers, limit = HEALED["recovered"]
    sim.script([*answers, END])
    first = ask(sim.url, "sync", max_output_tokens=limit)
    with openai.OpenAI(base_url=f"{sim.url}/v1", api_key="key", max_retries=0) as bare:
        client = continuation.wrap(bare) if wrapped else bare
        before = len(sim.requests)
        with pytest.raises(openai.NotFoundError, match="not found") as caught:
            ABOUT[about](client.responses, first.id)
        assert ("joined it from several answers" in str(caught.value)) is wrapped
        assert len(sim.requests) == before + (not wrapped)
    ask(sim.url, "sync", input=[NEXT], previous_response_id=first.id)
    assert WHOLE in str(posts(sim)[-1]["input"]), "the turn can still be continued"


@pytest.mark.parametrize("about", ABOUT)
def test_through_a_gateway_as_well(sim: Simulator, tmp_path: Path, about: str) -> None:
    answers, limit = HEALED["recovered"]
    sim.script(answers)
    with serving(tmp_path, sim.url) as gateway:
        url = f"{gateway.url}/openai"
        first = ask(url, "async", policy=None, max_output_tokens=limit)
        with (
            openai.OpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0) as client,
            pytest.raises(openai.NotFoundError, match="joined it from several answers"),
        ):
            ABOUT[about](client.responses, first.id)


@pytest.mark.parametrize("how", ["sync", "sync-stream"])
@pytest.mark.parametrize("kind", ["whole", "escalated"])
def test_what_the_server_has_is_shown_and_deleted_by_its_own_id(
    sim: Simulator, kind: str, how: How
) -> None:
    sim.script([end(WHOLE)] if kind == "whole" else HEALED[kind][0])
    first = ask(sim.url, how)
    with openai.OpenAI(base_url=f"{sim.url}/v1", api_key="key", max_retries=0) as bare:
        responses = continuation.wrap(bare).responses
        shown = responses.retrieve(first.id)
        assert shown.id == first.id
        if kind == "whole" or how == "sync":
            assert shown.output_text == WHOLE
        else:
            assert shown.status == "incomplete", "of a stream the server shows its own half, so"
        responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            responses.retrieve(first.id)


def test_tokens_are_counted_for_all_of_a_healed_turn() -> None:
    counted = {"object": "response.input_tokens", "input_tokens": 11}

    def rule(asked: Asked) -> Answer:
        if asked.path.endswith("/input_tokens"):
            return Answer(body=counted)
        number = len([each for each in server.asked if each.path.endswith("/responses")])
        part = {"type": "output_text", "text": ["One fine day, ", "all was well."][number - 1]}
        message = {"type": "message", "id": f"msg_{number}", "role": "assistant"}
        ended = ["incomplete", "completed"][number - 1]
        return Answer(
            body={
                "id": f"resp_{number}",
                "object": "response",
                "created_at": 1,
                "model": MODEL,
                "status": ended,
                "incomplete_details": {"reason": "max_output_tokens"} if number == 1 else None,
                "output": [{**message, "status": ended, "content": [{**part, "annotations": []}]}],
            }
        )

    with (
        Canned(rule) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="key", max_retries=0) as bare,
    ):
        client = continuation.wrap(bare, config=FAST)
        first = client.responses.create(model=MODEL, input="Go.", max_output_tokens=TOP)
        assert first.output_text == WHOLE
        count = client.responses.input_tokens.count(
            model=MODEL, input="And then?", previous_response_id=first.id
        )
        assert count.input_tokens == 11
    assert WHOLE in json.dumps(server.asked[-1].body["input"])
