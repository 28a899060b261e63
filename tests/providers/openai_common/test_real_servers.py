"""What servers of both formats do beyond their references: each is met where its rule is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from support.drive import JSON, STREAM, Driven, drive
from support.drive import sse as named
from support.drive_chat import OPENING, asking, call, chat, chunk, closing, completed, sse, texts
from support.recorded import Json
from support.recorded_responses import stream as responded
from support.sdks import chat as chats
from support.sdks import responses
from support.sdks.chat import playing, plays
from support.sdks.turn import How, body_of, cut, end, play

from continuation import Policy
from continuation.providers.openai_common.errors import refuses
from continuation.providers.openai_common.vendors import built_in
from continuation.simulator import Scenario, Simulator
from continuation.types import Outcome

FAST = Policy(backoff_seconds=0.0, models_endpoint=False, model_max_output_tokens=8000)
LONG = "".join(f"{n}: a line of the text that goes on and on.\n" for n in range(400))
BROWN, FOX = "The quick bro", "wn fox."
SAFE: Json = {"content_filter_results": {"hate": {"filtered": False, "severity": "safe"}}}


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(LONG) as running:
        yield running


def served(*answers: bytes, like: str = "openai", policy: Policy = FAST, **asked: Any) -> Driven:
    """Answer the requests of a Chat turn, one after the other."""
    left = iter(answers)
    kind = STREAM if asked.get("stream", True) else JSON
    first = iter([kind])
    return chat(
        lambda _: (200, next(first, STREAM), [next(left)], None), asking(**asked), policy, like
    )


def respond(*answers: bytes, stream: bool = True, **asked: Any) -> Driven:
    left, first = iter(answers), iter([STREAM if stream else JSON])
    request = {"model": "gpt-5.4", "max_output_tokens": 1000, "stream": stream, "input": "Go."}
    answer = lambda _: (200, next(first, STREAM), [next(left)], None)  # noqa: E731
    return drive(answer, {**request, **asked}, FAST, path="/v1/responses")


# --- who may not stream ---------------------------------------------------


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("formats", [chats, responses])
def test_where_streaming_is_refused_later_attempts_do_without(
    sim: Simulator, how: How, formats: Any
) -> None:
    sim.scenario = Scenario(quirks="no-stream")
    key = f"{how}-{formats.__name__}"  # what is learned is learned of one who asks
    made: Any = responses.Ran(key=key) if formats is responses else chats.Ran()
    asked = formats.ask(model="gpt-4o" if how == "sync" else "gpt-4.1")
    for number in range(2):
        ran = play(made, how, sim, asked, FAST)
        assert ran.text == LONG
        assert not ran.says_cut
        bodies = [body_of(post) for post in sim.posts]
        assert [body.get("stream") for body in bodies[1:]] == [True, None][number:]
        assert "stream_options" not in bodies[-1]
        sim.reset()
        sim.scenario = Scenario(quirks="no-stream")


def test_an_answer_in_one_body_is_not_asked_for_beyond_what_ten_minutes_bring(
    sim: Simulator,
) -> None:
    sim.scenario = Scenario(quirks="no-stream")
    ran = play(responses.Ran(key="long"), "sync", sim, responses.ask(model="gpt-5"), FAST)
    unbound = play(responses.Ran(key="long"), "sync", sim, responses.ask(model="gpt-5"))
    assert ran.text == unbound.text == LONG
    assert [limit for limit in responses.limits(sim) if limit and limit > 8000] == [21_333]


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        (True, {"message": "Your organization must be verified to stream this model."}),
        (
            True,
            {"message": "Unsupported value: 'stream' does not support true.", "param": "stream"},
        ),
        (True, {"message": "The model `m` does not support streaming"}),
        (False, {"message": "Unknown parameter: 'stream_options'.", "param": "stream_options"}),
        (False, {"message": "max_tokens above 4096 must have stream=true"}),
    ],
)
def test_a_refusal_to_stream_is_known_by_its_words(refused: bool, error: Json) -> None:
    body = json.dumps({"error": error}).encode()
    assert refuses("stream", 400, body) is refused
    assert not refuses("stream", 500, body)


# --- white space at the end of a prefill ---------------------------------------------------


@pytest.mark.parametrize("rest", ["two.", "\n\ntwo.", "\ntwo."])
def test_white_space_that_a_prefill_may_not_end_in_is_at_the_seam_once(
    sim: Simulator, rest: str
) -> None:
    plays(sim, "openrouter")
    sim.script([cut("One\n\n"), end(rest)])
    ran = chats.run(sim, "sync-stream", like="openrouter", model="anthropic/claude-3.5-haiku")
    last = body_of(sim.posts[-1])["messages"][-1]
    assert (last["role"], last["content"]) == ("assistant", "One")
    assert (ran.text, ran.told.outcome) == ("One\n\ntwo.", Outcome.HEALED)


def test_a_prefill_that_is_refused_for_its_end_becomes_a_user_turn(sim: Simulator) -> None:
    plays(sim, "openrouter")
    sim.script([cut("One\n\n"), end("two.")])
    config = playing(None, "openrouter", prefill="partial", prefill_models=["*"])
    ran = play(
        chats.Ran(), "sync", sim, chats.ask(model="anthropic/claude-3-opus", max_tokens=300), config
    )
    roles = [body_of(post)["messages"][-1]["role"] for post in sim.posts]
    assert ran.told.outcome is Outcome.HEALED
    assert "assistant" not in roles[-1:]


# --- how streams end ---------------------------------------------------


@pytest.mark.parametrize(("done", "healed"), [(True, False), (False, True)])
def test_of_a_stranger_done_alone_is_an_end_and_nothing_is_none(done: bool, healed: bool) -> None:
    first = [OPENING, *texts("The quick ", "brown fo"), *(["[DONE]"] if done else [])]
    driven = served(sse(first), sse([OPENING, *texts("x."), *closing("stop")]), like="unknown")
    assert driven.report.outcome is (Outcome.HEALED if healed else Outcome.COMPLETE)
    text = completed(driven).choices[0].message.content if healed else None
    assert text == ("The quick brown fox." if healed else None)


QUOTA = {"type": "insufficient_quota", "code": "insufficient_quota", "message": "no money"}


@pytest.mark.parametrize("opened", [False, True])
def test_an_error_that_would_come_again_is_told_at_once(opened: bool) -> None:
    told = sse([*([OPENING] if opened else []), {"error": QUOTA}])
    begun = responded("")[:2] if opened else []
    error = {**QUOTA, "type": "error", "sequence_number": len(begun), "param": None}
    raw = named([*begun, error])
    for driven, sent in ((served(told), told), (respond(raw), raw)):
        assert (b"".join(driven.pieces), len(driven.requests), driven.waits) == (sent, 1, [])
        assert driven.report.outcome is Outcome.FAILED


def test_behind_a_text_such_an_error_leaves_what_is_there() -> None:
    policy = replace(FAST, on_dead="stop")
    driven = served(sse([OPENING, *texts("The quick"), {"error": QUOTA}]), policy=policy)
    assert len(driven.requests) == 1
    assert (driven.report.outcome, completed(driven).choices[0].message.content) == (
        Outcome.PARTIAL,
        "The quick",
    )


def test_a_mark_of_byte_order_before_the_first_event_hides_nothing() -> None:
    first, rest = (
        sse([chunk({"role": "assistant", "content": BROWN}), *closing("length")]),
        sse([chunk({"role": "assistant", "content": FOX}), *closing("stop")]),
    )
    driven = served(b"\xef\xbb\xbf" + first, b"\xef\xbb\xbf" + rest)
    assert b"".join(driven.pieces).startswith(b"\xef\xbb\xbf" + first.split(b"\n\n")[0])
    assert b"".join(driven.pieces).count(BROWN.encode()) == 1
    assert driven.requests[1]["messages"][1]["content"] == BROWN


# --- what is counted ---------------------------------------------------


@pytest.mark.parametrize(
    ("output", "thinking", "more"),
    [(1010, 990, {}), (20, 990, {"total_tokens": 1020})],  # xAI counts them beside
)
def test_thinking_that_the_limit_does_not_count_cuts_no_finished_answer(
    output: int, thinking: int, more: Json
) -> None:
    details = {"completion_tokens_details": {"reasoning_tokens": thinking}}
    usage = {"prompt_tokens": 10, "completion_tokens": output, **details, **more}
    ended = chunk({}, "stop", usage=usage)
    driven = served(sse([OPENING, *texts("Par", "is"), ended, "[DONE]"]))
    assert (driven.report.outcome, len(driven.requests)) == (Outcome.COMPLETE, 1)
    counted = driven.report.turn
    assert (counted.output, counted.thinking) == (1010, 990)


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_counts_beside_each_other_stay_so_in_an_answer_that_was_healed(reason: str) -> None:
    def used(output: int, thinking: int) -> Json:
        details = {"completion_tokens_details": {"reasoning_tokens": thinking}}
        counts = {"prompt_tokens": 10, "completion_tokens": output}
        return {**counts, "total_tokens": 10 + output + thinking, **details}

    first = [OPENING, *texts(BROWN), chunk({}, reason, usage=used(1000, 50)), "[DONE]"]
    rest = [OPENING, *texts(FOX), chunk({}, "stop", usage=used(5, 3)), "[DONE]"]
    driven = served(sse(first), sse(rest), stream_options={"include_usage": True})
    usage = [event["usage"] for event in driven.told if event.get("usage")][-1]
    assert (usage["completion_tokens"], usage["total_tokens"]) == (1005, 1068)


@pytest.mark.parametrize(("output", "passes"), [(50, True), (1000, False)])
def test_a_call_without_arguments_is_whole_unless_the_limit_was_met(
    output: int, passes: bool
) -> None:
    tool = {"name": "Write", "parameters": {"type": "object", "required": ["path"]}}
    first, again = (
        sse([OPENING, *call([""]), *closing("tool_calls", output)]),
        sse([OPENING, *call(["{}"]), *closing("tool_calls", 1200)]),
    )
    counted = {"include_usage": True}
    driven = served(
        first, again, tools=[{"type": "function", "function": tool}], stream_options=counted
    )
    assert (b"".join(driven.pieces) == first, len(driven.requests)) == (passes, 2 - passes)
    ended = responded(
        "c:Write", usage={"input_tokens": 9, "output_tokens": output, "total_tokens": 9 + output}
    )
    driven = respond(
        named(ended), named(responded("c:Write|{}")), tools=[{"type": "function", **tool}]
    )
    assert (b"".join(driven.pieces) == named(ended), len(driven.requests)) == (passes, 2 - passes)


# --- what an answer says beside its text ---------------------------------------------------


def test_what_azure_finds_in_a_rest_is_told() -> None:
    def found(severity: str, delta: Json, reason: str | None = None) -> Json:
        told = chunk(delta, reason)
        told["choices"][0]["content_filter_results"] = {"hate": {"severity": severity}}
        return told

    first = [OPENING, found("safe", {"content": BROWN}), *closing("length")]
    rest = [OPENING, found("low", {"content": FOX}), found("low", {}, "stop"), "[DONE]"]
    streamed = served(sse(first), sse(rest))
    told = [c.get("content_filter_results") for e in streamed.told for c in e["choices"]]
    assert {"hate": {"severity": "low"}} in told
    body: Json = {**found("safe", {"content": BROWN}), "object": "chat.completion"}
    choice = {**body["choices"][0], "finish_reason": "length"}
    choice["message"] = {"role": "assistant", "content": choice.pop("delta")["content"]}
    whole = served(json.dumps({**body, "choices": [choice]}).encode(), sse(rest), stream=False)
    said = json.loads(b"".join(whole.pieces))["choices"][0]
    assert said["content_filter_results"] == {"hate": {"severity": "low"}}


@pytest.mark.parametrize("content", [None, ""])
def test_an_empty_content_stays_as_it_came(content: str | None) -> None:
    opening = {"role": "assistant", "content": content, "refusal": None}
    half, whole = call(["{"]), call(["{}"])
    first = sse([chunk(opening), *half, *closing("length")])
    again = sse([chunk(opening), *whole, *closing("tool_calls")])
    driven = served(first, again)
    assert [e["choices"][0]["delta"] for e in driven.told if "role" in str(e)] == [opening]
    message = {
        **opening,
        "annotations": [],
        "tool_calls": half[0]["choices"][0]["delta"]["tool_calls"],
    }
    choice = {"index": 0, "message": message, "finish_reason": "length"}
    body = {**chunk({}), "object": "chat.completion", "choices": [choice]}
    driven = served(json.dumps(body).encode(), again, stream=False)
    said = json.loads(b"".join(driven.pieces))["choices"][0]["message"]
    assert {key: said[key] for key in (*opening, "annotations")} == {**opening, "annotations": []}


def test_what_only_the_end_of_a_response_knows_is_told_by_its_end() -> None:
    filters: Json = {"content_filters": [{"blocked": False, **SAFE}]}
    begun: Json = {"content_filters": None, "service_tier": "auto"}
    cut_one = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    first = responded("m:The_|quick_", begun, **cut_one, **filters)
    driven = respond(named(first), named(responded("m:fox.", begun, **filters)))
    final = driven.told[-1]["response"]
    assert (final["service_tier"], final["content_filters"]) == (
        "default",
        filters["content_filters"],
    )
    assert final["output"][0]["content"][0]["text"] == "The quick fox."


PROGRESS = {
    "image": "image_generation_call:in_progress|generating|partial_image",
    "code": "code_interpreter_call:in_progress|code.delta=print()|interpreting",
    "mcp": "mcp_call:in_progress|arguments.delta={}",
    "search": "web_search_call:in_progress|searching",
}


@pytest.mark.parametrize("progress", PROGRESS.values(), ids=PROGRESS)
def test_progress_of_what_the_provider_runs_flows_and_a_call_waits(progress: str) -> None:
    events = responded(f"th:Hm {progress} c:read|{{}}")
    frames = [named([event]) for event in events]
    driven = drive(
        lambda _: (200, STREAM, frames, None),
        {"model": "gpt-5.4", "max_output_tokens": 1000, "stream": True, "input": "Go."},
        path="/v1/responses",
    )
    place = {e["output_index"]: n for n, e in enumerate(events) if e["type"].endswith("item.added")}
    flows = [bool(piece) for piece in driven.pieces[: len(events)]]
    assert not any(flows[place[0] : place[1]])  # thinking can be taken back
    assert all(flows[place[1] : place[2]])
    assert not any(flows[place[2] : -1])
    assert b"".join(driven.pieces) == b"".join(frames)


def test_what_broke_off_while_the_provider_ran_it_failed_and_runs_again() -> None:
    begun = responded("web_search_call:in_progress|searching m:It_|is.")
    driven = respond(named(begun[:4]), named(begun))
    output = driven.told[-1]["response"]["output"]
    told = [(item["type"], item["status"]) for item in output]
    searched = "web_search_call"
    assert told == [(searched, "failed"), (searched, "completed"), ("message", "completed")]
    assert len({item["id"] for item in output}) == 3


# --- what is kept, and where it goes ---------------------------------------------------


@pytest.mark.parametrize("like", ["openai", "unknown"])
@pytest.mark.parametrize("store", [True, False, None])
def test_our_prompt_is_in_no_stored_completion(like: str, store: bool | None) -> None:
    first, rest = (
        sse([OPENING, *texts(BROWN), *closing("length")]),
        sse([OPENING, *texts(FOX), *closing("stop")]),
    )
    kept: Json = {"store": store, "metadata": {"a": "b"} if store else None}
    _, sent = served(first, rest, like=like, **kept).requests
    assert sent.get("store") is (False if store or like == "openai" else None)
    assert "metadata" not in sent
    begun: Json = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    answers = named(responded("m:The_|quick_", **begun)), named(responded("m:fox."))
    _, sent = respond(*answers, store=store, metadata={"a": "b"}).requests
    assert sent["store"] is False
    assert "metadata" not in sent


@pytest.mark.parametrize("model", ["../../admin", "a/../../b", "..", "./m"])
def test_no_name_of_a_model_leads_to_another_path(model: str) -> None:
    vendor = built_in()["openrouter"]
    assert vendor.models_url("/api/v1/chat/completions", model) is None
    assert vendor.models_url("/api/v1/chat/completions", "a/b..c") == "/api/v1/model/a/b..c"
