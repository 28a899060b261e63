"""The simulator as Gemini API and as Vertex, seen through the official SDK."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from google import genai
from google.genai import errors, types
from support.sdks.gemini import connect
from support.simulator_helpers import ANSWER

from continuation.limits import ModelLimits
from continuation.simulator import Raw, Reply, Scenario, Simulator, Text, Thinking, ToolUse

MODEL = "gemini-3.6-flash"
OLD = "gemini-2.5-flash"
LONG = "gemini-4-argon"
TOOLS = [
    types.Tool(
        function_declarations=[
            types.FunctionDeclaration(name="Write", parameters_json_schema={"type": "object"})
        ]
    )
]


@pytest.fixture
def client(sim: Simulator) -> Iterator[genai.Client]:
    with connect(sim) as made:
        yield made


def ask(client: genai.Client, limit: int | None = 100, model: str = MODEL, **config: Any) -> Any:
    contents = config.pop("contents", "recite")
    wanted: Any = {"max_output_tokens": limit, **config}
    return client.models.generate_content(model=model, contents=contents, config=wanted)


def stream(client: genai.Client, limit: int = 100, model: str = MODEL, **config: Any) -> list[Any]:
    contents = config.pop("contents", "recite")
    wanted: Any = {"max_output_tokens": limit, **config}
    return [*client.models.generate_content_stream(model=model, contents=contents, config=wanted)]


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": [{"text": p} if isinstance(p, str) else p for p in parts]}


def model(*parts: Any) -> dict[str, Any]:
    return {**user(*parts), "role": "model"}


def post(
    sim: Simulator, body: Any, path: str = f"/v1/models/{MODEL}:generateContent", **headers: str
) -> httpx2.Response:
    """Ask without the SDK, to see the bytes and to send what it would not."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx2.post(sim.url + path, content=content, headers={"x-goog-api-key": "k", **headers})


def refusal(answer: httpx2.Response, status: int = 400, name: str = "INVALID_ARGUMENT") -> str:
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["status"]) == (status, status, name)
    return str(error["message"])


GO = user("recite")
FC = {"functionCall": {"name": "Write", "args": {"a": 1}}, "thoughtSignature": "c2ln"}
FR = {"functionResponse": {"name": "Write", "response": {"result": "ok"}}}
VERTEX = "/v1beta1/projects/p/locations/l/publishers/google/models"


# -- answers


def test_a_whole_answer_is_signed_in_its_last_part(client: genai.Client) -> None:
    answer = ask(client, 5000)
    [candidate] = answer.candidates
    assert answer.text == ANSWER
    assert candidate.finish_reason == types.FinishReason.STOP
    assert candidate.content.parts[-1].thought_signature
    assert candidate.index == 0
    assert answer.model_version == MODEL
    assert answer.response_id
    usage = answer.usage_metadata
    assert usage.total_token_count == usage.prompt_token_count + usage.candidates_token_count
    [cut] = ask(client, 100).candidates
    assert (cut.finish_reason, cut.continuation_token) == (types.FinishReason.MAX_TOKENS, None)
    assert cut.content.parts[-1].thought_signature is None


def test_models_before_the_third_generation_sign_nothing(client: genai.Client) -> None:
    answer = ask(client, 5000, OLD)
    assert answer.candidates[0].content.parts[-1].thought_signature is None


@pytest.mark.parametrize("limit", [100, 5000])
def test_a_stream_tells_its_end_in_the_last_chunk_only(client: genai.Client, limit: int) -> None:
    chunks = stream(client, limit)
    assert "".join(chunk.text or "" for chunk in chunks) == ANSWER[: 4 * limit]
    *earlier, last = [chunk.candidates[0] for chunk in chunks]
    assert not any(candidate.finish_reason for candidate in earlier)
    cut = limit == 100
    assert last.finish_reason.value == ("MAX_TOKENS" if cut else "STOP")
    assert last.content.parts[0].text == ""
    assert (last.content.parts[0].thought_signature is None) == cut
    counts = [chunk.usage_metadata.candidates_token_count for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == min(limit, -(-len(ANSWER) // 4))


def test_the_bytes_of_a_stream_are_googles(sim: Simulator) -> None:
    answer = post(
        sim, {"contents": [GO]}, f"/v1beta/models/{MODEL}:streamGenerateContent?alt=sse&key=k"
    )
    assert answer.headers["content-type"] == "text/event-stream"
    events = answer.text.split("\r\n\r\n")
    assert events[-1] == ""
    assert all(event.startswith('data: {"candidates":[') for event in events[:-1])
    assert sim.requests[0].query == "alt=sse&key=k"


def test_a_stream_without_alt_sse_is_a_json_array(sim: Simulator) -> None:
    path = f"/some/prefix/v1beta/models/{MODEL}:streamGenerateContent"
    answer = post(sim, {"contents": [GO]}, path)
    chunks = answer.json()
    parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
    assert "".join(part["text"] for part in parts) == ANSWER
    assert sim.requests[0].sent == len(chunks) + 1
    sim.script([Reply(), Reply([Text("a")], error_after=1)])
    assert len(post(sim, {"contents": [GO]}, path).json()) == 1
    assert post(sim, {"contents": [GO]}, path).json()[1]["error"]["status"] == "UNAVAILABLE"
    [error] = post(sim, {"contents": []}, path).json()
    assert error["error"]["code"] == 400


def test_thinking_is_shown_only_to_who_asks_and_eats_the_limit(
    sim: Simulator, client: genai.Client
) -> None:
    sim.scenario = Scenario(thinking=60)
    hidden = ask(client, 100)
    shown = ask(client, 100, thinking_config={"include_thoughts": True})
    streamed = stream(client, 100, thinking_config={"include_thoughts": True})
    assert len(hidden.candidates[0].content.parts) == 1
    assert shown.candidates[0].content.parts[0].thought
    assert hidden.text == shown.text == ANSWER[:160]
    usage = shown.usage_metadata
    assert (usage.thoughts_token_count, usage.candidates_token_count) == (60, 40)
    assert usage.total_token_count == usage.prompt_token_count + 100
    thoughts = [chunk.candidates[0].content.parts[0].thought for chunk in streamed]
    assert thoughts == sorted(thoughts, key=lambda thought: not thought)


def test_thinking_can_be_switched_off_where_the_model_allows_it(
    sim: Simulator, client: genai.Client
) -> None:
    sim.scenario = Scenario(thinking=60)
    off = ask(client, 100, OLD, thinking_config={"thinking_budget": 0})
    never_off = ask(client, 100, MODEL, thinking_config={"thinking_budget": 0})
    unasked = ask(client, 100, "gemini-2.5-flash-lite")
    assert off.usage_metadata.thoughts_token_count is None
    assert never_off.usage_metadata.thoughts_token_count == 60
    assert unasked.usage_metadata.thoughts_token_count is None


def test_the_stop_reasons_of_a_script_are_translated_and_strange_ones_pass(
    sim: Simulator, client: genai.Client
) -> None:
    told = {
        "end_turn": "STOP",
        "stop_sequence": "STOP",
        "tool_use": "STOP",
        "refusal": "SAFETY",
        "max_tokens": "MAX_TOKENS",
        "MALFORMED_FUNCTION_CALL": "MALFORMED_FUNCTION_CALL",
        "CONTINUATION": "CONTINUATION",
        "": None,
    }
    for stop, name in told.items():
        sim.script([Reply([Text("hm")], stop)])
        reason = ask(client).candidates[0].finish_reason
        assert (reason and reason.value) == name
    sim.script([Reply([Text("hm")], "BRAND_NEW")])
    with pytest.warns(UserWarning, match="BRAND_NEW"):
        assert ask(client).candidates[0].finish_reason.value == "BRAND_NEW"


def test_a_reply_lays_what_it_likes_over_candidate_and_usage(
    sim: Simulator, client: genai.Client
) -> None:
    part = {"executableCode": {"code": "1", "language": "PYTHON"}}
    sim.script(
        [
            Reply(
                [Thinking("hm", "c2ln"), Raw(part), Text("x")],
                extra={"avgLogprobs": -0.5},
                usage={"promptTokenCount": 7, "candidatesTokenCount": None},
            ),
            Reply(raw_body={"promptFeedback": {"blockReason": "SAFETY"}}),
            Reply([Thinking("hm", None), Text("x")]),
        ]
    )
    answer = ask(client)
    assert answer.candidates[0].avg_logprobs == -0.5
    assert answer.candidates[0].content.parts[0].executable_code.code == "1"
    assert answer.candidates[0].content.parts[1].thought_signature == b"sig"
    assert answer.usage_metadata.prompt_token_count == 7
    assert answer.usage_metadata.candidates_token_count is None
    assert ask(client).prompt_feedback.block_reason.value == "SAFETY"
    assert ask(client).candidates[0].content.parts[0].thought_signature is None


def test_an_older_model_gives_as_many_candidates_as_asked_for(client: genai.Client) -> None:
    answer = ask(client, 10, OLD, candidate_count=2)
    assert [candidate.index for candidate in answer.candidates] == [0, 1]
    assert answer.usage_metadata.candidates_token_count == 20


def test_a_stop_sequence_ends_the_answer(client: genai.Client) -> None:
    assert ask(client, 500, stop_sequences=["Line 2"]).text == ANSWER[: ANSWER.index("Line 2")]


# -- the eight shapes of a truncated answer


@pytest.mark.parametrize(
    ("shape", "candidates"),
    [
        (None, [{"content": {"role": "model"}}]),
        (1, []),
        (2, [{}]),
        (3, [{"content": {"role": "model"}}]),
        (4, [{"content": {"parts": [{"text": ""}], "role": "model"}}]),
        (7, [{"content": {"role": "model"}}]),
    ],
)
@pytest.mark.parametrize("verb", ["generateContent", "streamGenerateContent"])
def test_an_answer_that_only_thought_is_empty_in_many_shapes(
    sim: Simulator, shape: int | None, candidates: list[Any], verb: str
) -> None:
    sim.scenario = Scenario(thinking="all", empty_shape=shape)
    body = {"contents": [GO], "generationConfig": {"maxOutputTokens": 100}}
    answer = post(sim, body, f"/v1/models/{MODEL}:{verb}").json()
    whole = answer if verb == "generateContent" else answer[-1]
    for candidate in candidates:
        candidate |= {"finishReason": "MAX_TOKENS", "index": 0}
    assert whole.get("candidates", []) == candidates
    assert whole["usageMetadata"]["thoughtsTokenCount"] == 100
    assert "candidatesTokenCount" not in whole["usageMetadata"]


def test_an_empty_answer_may_hold_a_thought_a_signature_or_have_a_second_candidate(
    sim: Simulator,
) -> None:
    sim.scenario = Scenario(thinking="all")
    body = {"contents": [GO], "generationConfig": {"maxOutputTokens": 100}}
    path = f"/v1/models/{MODEL}:generateContent"

    def shaped(shape: int) -> Any:
        return post(sim, body, path, **{"x-simulate": f"empty_shape={shape}"}).json()["candidates"]

    assert shaped(5)[0]["content"]["parts"][0]["thought"] is True
    assert shaped(6)[0]["content"]["parts"][0]["thoughtSignature"]
    cut, other = shaped(8)
    assert (cut["finishReason"], other["finishReason"]) == ("MAX_TOKENS", "STOP")
    assert (cut["content"], other["index"]) == ({"role": "model"}, 1)


def test_the_last_chunk_of_a_cut_stream_takes_the_shape(
    sim: Simulator, client: genai.Client
) -> None:
    sim.scenario = Scenario(empty_shape=2)
    chunks = stream(client, 20)
    assert chunks[0].text
    assert chunks[-1].candidates[0].content is None
    assert chunks[-1].candidates[0].finish_reason == types.FinishReason.MAX_TOKENS


# -- calls


@pytest.mark.parametrize("how", [ask, stream])
def test_a_call_that_was_cut_does_not_come(sim: Simulator, client: genai.Client, how: Any) -> None:
    sim.scenario = Scenario(call=True)
    answered = how(client, 100, tools=TOOLS)
    listed = answered if how is stream else [answered]
    parts = [part for answer in listed for part in answer.candidates[0].content.parts or []]
    assert not any(part.function_call for part in parts)
    assert listed[-1].candidates[0].finish_reason.value == "MAX_TOKENS"


def test_only_the_first_of_parallel_calls_is_signed(sim: Simulator, client: genai.Client) -> None:
    sim.script([Reply([ToolUse("a", {}), ToolUse("b", '{"x": 1}', id="i")], "tool_use")] * 2)
    parts = ask(client, tools=TOOLS).candidates[0].content.parts
    chunks = stream(client, tools=TOOLS)
    assert [bool(part.thought_signature) for part in parts] == [True, False]
    assert parts[1].function_call.id == "i"
    signed = [bool(chunk.candidates[0].content.parts[0].thought_signature) for chunk in chunks]
    assert signed == [True, False, False]


def test_automatic_function_calling_runs_through(sim: Simulator, client: genai.Client) -> None:
    seen: list[str] = []

    def Write(path: str, content: str) -> str:  # noqa: N802 - the simulated model's own name for it
        """Write a file."""
        seen.append(path + content)
        return "ok"

    sim.scenario = Scenario(call=True, strict_signatures=True)
    chat = client.chats.create(model=MODEL, config={"max_output_tokens": 5000, "tools": [Write]})
    assert chat.send_message("write").text == "The file is written."
    assert seen == [f"answer.txt{ANSWER}"]
    assert len(sim.posts) == 2


def on_newest_vertex(sim: Simulator, limit: int) -> list[Any]:
    sim.scenario = Scenario(call=True, thinking="none")
    calling = {"function_calling_config": {"stream_function_call_arguments": True}}
    with connect(sim, vertex=True) as client:
        chunks = stream(client, limit, tools=TOOLS, tool_config=calling)
    parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts or []]
    return [part for part in parts if part.function_call]


def test_vertex_streams_arguments_in_pieces(sim: Simulator) -> None:
    first, *middle, last = on_newest_vertex(sim, 5000)
    assert (first.function_call.name, first.function_call.will_continue) == ("Write", True)
    assert first.thought_signature
    assert last.function_call == types.FunctionCall()
    pieces = [part.function_call.partial_args[0] for part in middle]
    assert (pieces[0].json_path, pieces[0].string_value) == ("$.path", "answer.txt")
    assert "".join(piece.string_value for piece in pieces[1:]) == ANSWER
    assert [piece.will_continue for piece in pieces[-2:]] == [True, None]
    assert all(part.function_call.will_continue for part in middle)


def test_a_call_cut_among_its_pieces_has_no_end(sim: Simulator) -> None:
    parts = on_newest_vertex(sim, 100)
    assert parts[-1].function_call.will_continue
    assert parts[-1].function_call.partial_args[0].will_continue


def test_values_of_every_kind_are_streamed_by_their_path(sim: Simulator) -> None:
    given = {"a": [1, {"b": True}], "c": None, "d": ""}
    sim.script(
        [Reply([ToolUse("f", json.dumps(given))]), Reply([ToolUse("f", '{"a": 1, "b', cut=9)])]
    )
    calling = {"functionCallingConfig": {"streamFunctionCallArguments": True}}
    body = {"contents": [GO], "toolConfig": calling}

    def arguments() -> list[Any]:
        chunks = post(sim, body, f"{VERTEX}/{MODEL}:streamGenerateContent").json()
        parts = [chunk["candidates"][0]["content"].get("parts", [{}])[0] for chunk in chunks]
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        return [call["partialArgs"][0] for call in calls if "partialArgs" in call]

    assert arguments() == [
        {"jsonPath": "$.a[0]", "numberValue": 1},
        {"jsonPath": "$.a[1].b", "boolValue": True},
        {"jsonPath": "$.c", "nullValue": "NULL_VALUE"},
        {"jsonPath": "$.d", "stringValue": ""},
    ]
    assert arguments() == [{"jsonPath": "$.a", "numberValue": 1}]


# -- continuation tokens


@pytest.mark.parametrize("thinking", ["none", 130])
@pytest.mark.parametrize("call", [True, False])
def test_the_sdk_goes_on_by_itself_from_hop_to_hop(
    sim: Simulator, client: genai.Client, thinking: str | int, call: bool
) -> None:
    sim.scenario = Scenario(hop=50, thinking=thinking, call=call)
    answer = ask(client, 5000, LONG, tools=TOOLS)
    hops = len(sim.posts)
    chunks = stream(client, 5000, LONG, tools=TOOLS)
    assert hops == len(sim.posts) / 2 > 10
    parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts or []]
    if call:
        [given] = answer.function_calls
        [streamed] = [part.function_call for part in parts if part.function_call]
        assert given.args["content"] == streamed.args["content"] == ANSWER
    else:
        assert answer.text == ANSWER == "".join(part.text or "" for part in parts)
    assert answer.candidates[0].finish_reason == types.FinishReason.STOP
    usage = answer.usage_metadata
    assert (usage.thoughts_token_count or 0) == (0 if thinking == "none" else thinking)
    assert usage.candidates_token_count == chunks[-1].usage_metadata.candidates_token_count


def test_each_hop_tells_continuation_and_reads_what_was_said_before(
    sim: Simulator, client: genai.Client
) -> None:
    sim.scenario = Scenario(hop=50)
    first = ask(client, 5000, LONG, automatic_continuation=False)
    token = first.candidates[0].continuation_token
    second = ask(client, 5000, LONG, automatic_continuation=False, continuation_token=token)
    assert first.candidates[0].finish_reason.value == "CONTINUATION"
    assert second.text == ANSWER[200:400]
    prompts = [answer.usage_metadata.prompt_token_count for answer in (first, second)]
    assert prompts[1] == prompts[0] + 50
    assert sim.requests[1].body
    assert sim.requests[1].body["continuationToken"]


def test_the_limit_bounds_all_hops_together(sim: Simulator, client: genai.Client) -> None:
    sim.scenario = Scenario(hop=50)
    answer = ask(client, 120, LONG)
    assert answer.text == ANSWER[:480]
    assert answer.candidates[0].finish_reason == types.FinishReason.MAX_TOKENS
    assert len(sim.posts) == 3


@pytest.mark.parametrize("vertex", [True, False])
def test_a_used_up_limit_goes_on_once_it_is_raised(sim: Simulator, vertex: bool) -> None:
    with connect(sim, vertex=True) if vertex else connect(sim) as client:
        cut = ask(client, 100, LONG)
        token = cut.candidates[0].continuation_token
        same = ask(client, 100, LONG, continuation_token=token)
        more = ask(client, 5000, LONG, continuation_token=token)
        streamed = stream(client, 5000, LONG, continuation_token=token)
    assert cut.candidates[0].finish_reason == types.FinishReason.MAX_TOKENS
    assert same.text is None
    assert same.candidates[0].finish_reason == types.FinishReason.MAX_TOKENS
    assert same.candidates[0].continuation_token == token
    assert cut.text + more.text == ANSWER
    assert "".join(chunk.text or "" for chunk in streamed) == more.text
    assert more.candidates[0].continuation_token is None


@pytest.mark.parametrize("thinking", ["all:300", 150])
def test_thinking_that_spent_the_limit_goes_on_too(
    sim: Simulator, client: genai.Client, thinking: str | int
) -> None:
    sim.scenario = Scenario(thinking=thinking)
    empty = ask(client, 100, LONG)
    token = empty.candidates[0].continuation_token
    cut = ask(client, 400, LONG, continuation_token=token)
    rest = ask(client, 5000, LONG, continuation_token=cut.candidates[0].continuation_token)
    assert empty.text is None
    assert cut.text + rest.text == ANSWER
    spent = [answer.usage_metadata for answer in (empty, cut)]
    counts = [(usage.thoughts_token_count or 0, usage.candidates_token_count) for usage in spent]
    again = 0 if thinking == "all:300" else 50
    assert counts == [(100, None), (again, 300 - again)]


def test_a_call_cut_at_the_limit_comes_whole_once_it_is_raised(
    sim: Simulator, client: genai.Client
) -> None:
    sim.scenario = Scenario(call=True)
    cut = ask(client, 100, LONG, tools=TOOLS)
    token = cut.candidates[0].continuation_token
    whole = ask(client, 5000, LONG, tools=TOOLS, continuation_token=token)
    assert cut.function_calls is None
    assert whole.function_calls[0].args == {"path": "answer.txt", "content": ANSWER}


def test_a_stream_dropped_behind_a_checkpoint_goes_on_from_it(
    sim: Simulator, client: genai.Client
) -> None:
    sim.scenario = Scenario(checkpoint=2, drop={1: 2})
    chunks = stream(client, 5000, LONG)
    assert "".join(chunk.text or "" for chunk in chunks) == ANSWER
    assert len(sim.posts) == 2


def test_a_scripted_hop_is_brought_as_it_is(sim: Simulator, client: genai.Client) -> None:
    sim.script([Reply([Text("A ")], "CONTINUATION"), Reply([Thinking("hm"), Text("B")])])
    assert ask(client, 500, LONG).text == "A B"


def test_tokens_can_be_switched_off(sim: Simulator, client: genai.Client) -> None:
    sim.scenario = Scenario(tokens=False, hop=10)
    answer = ask(client, 100, LONG)
    assert answer.text == ANSWER[:400]
    assert answer.candidates[0].continuation_token is None


def test_a_token_is_refused_where_it_does_not_belong(sim: Simulator) -> None:
    def body(token: str, words: str = "recite") -> dict[str, Any]:
        limit = {"maxOutputTokens": 100}
        return {"contents": [user(words)], "generationConfig": limit, "continuationToken": token}

    path = f"/v1/models/{LONG}:generateContent"
    fresh = {"contents": [GO], "generationConfig": {"maxOutputTokens": 100}}
    token = post(sim, fresh, path).json()["candidates"][0]["continuationToken"]
    refused = {
        "Invalid continuation_token.": post(sim, body("c2ln"), path),
        "The continuation_token belongs to another request: contents must not be changed.": post(
            sim, body(token, "recite!"), path
        ),
        "continuation_token is not supported for this model.": post(sim, body(token)),
        "Invalid value at 'continuation_token' (TYPE_BYTES), Base64 decoding failed": post(
            sim, body("?"), path
        ),
        'Invalid JSON payload received. Unknown name "continuationToken": Cannot find field.': post(
            sim, body(token), f"{VERTEX.replace('v1beta1', 'v1')}/{LONG}:generateContent"
        ),
    }
    for why, answer in refused.items():
        assert refusal(answer) == why
    assert post(sim, body(token), path).status_code == 200
    sim.reset()
    assert refusal(post(sim, body(token), path)) == "Invalid continuation_token."


# -- refusals

COUNTS = (
    "Please ensure that the number of function response parts is equal to the number of function "
    "call parts of the function call turn."
)
UNSIGNED = (
    "Function call is missing a thought_signature in functionCall parts. This is required for "
    "tools to work correctly, and missing thought_signature may lead to degraded model "
    "performance. Additional data, function call `Write`, position 0."
)
BARE = {"functionCall": FC["functionCall"]}


@pytest.mark.parametrize(
    ("contents", "why"),
    [
        ([], "* GenerateContentRequest.contents: contents is not specified"),
        (
            [GO, model(), GO],
            "* GenerateContentRequest.contents[1].parts: contents.parts must not be empty.",
        ),
        ([GO, model("hm")], "Requests ending with a model turn are not supported."),
        ([GO, model(FC)], COUNTS),
        (
            [GO, user(FR)],
            "Please ensure that function response turn comes immediately after a function call "
            "turn.",
        ),
        (
            [model(FC), user(FR)],
            "Please ensure that function call turn comes immediately after a user turn or after a "
            "function response turn.",
        ),
        ([GO, model(BARE), user(FR)], UNSIGNED),
    ],
)
def test_a_bad_history_is_refused(sim: Simulator, contents: Any, why: str) -> None:
    assert refusal(post(sim, {"contents": contents})) == why


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ("x", "Invalid value at 'generation_config.max_output_tokens' (TYPE_INT32), \"x\""),
        (
            0,
            "* GenerateContentRequest.generation_config.max_output_tokens: max_output_tokens must "
            "be positive.",
        ),
    ],
)
def test_a_bad_limit_is_refused(sim: Simulator, limit: Any, why: str) -> None:
    body = {"contents": [GO], "generationConfig": {"maxOutputTokens": limit}}
    assert refusal(post(sim, body)) == why


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            {"contents": [GO, model(), GO]},
            "Unable to submit request because it must include at least one parts field, which "
            "describes the prompt input.",
        ),
        (
            {"contents": [user("a", "")]},
            "Unable to submit request because it has an empty text parameter. Add a value to the "
            "parameter and try again.",
        ),
        *(
            (
                {"contents": [GO], "generationConfig": {"maxOutputTokens": n}},
                f"Unable to submit request because it has a maxOutputTokens value of {n} but the "
                "supported range is from 1 (inclusive) to 65537 (exclusive). Update the value and "
                "try again.",
            )
            for n in (0, 65_537, 788_977)
        ),
        ({"contents": [GO], "generationConfig": {"maxOutputTokens": 65_536}}, None),
    ],
)
def test_vertex_refuses_in_words_of_its_own(
    sim: Simulator, body: dict[str, Any], why: str | None
) -> None:
    answer = post(sim, body, f"{VERTEX}/{MODEL}:generateContent")
    assert (answer.status_code if why is None else refusal(answer)) == (why or 200)


def test_the_gemini_api_lowers_a_limit_that_is_too_large(
    sim: Simulator, client: genai.Client
) -> None:
    sim.scenario = Scenario(ceiling=50)
    assert ask(client, 788_977).text == ANSWER[:200]


def test_a_limit_that_was_not_set_is_a_low_one() -> None:
    with Simulator("x" * 50_000) as sim, connect(sim) as client:
        assert len(ask(client, None).text) == 4 * 8_192


def test_a_long_answer_in_one_piece_is_refused_of_a_model_that_answers_in_hops(
    client: genai.Client,
) -> None:
    with pytest.raises(errors.ClientError, match="must be at most 32768 for a non-streaming"):
        ask(client, 32_769, LONG)
    assert stream(client, 1_000_000, LONG)[-1].candidates[0].finish_reason.value == "STOP"
    cut = ask(client, 100, LONG)
    token = cut.candidates[0].continuation_token
    assert ask(client, 900_000, LONG, continuation_token=token).text == ANSWER[400:]


def test_a_shared_window_leaves_the_answer_what_the_prompt_does_not_take(sim: Simulator) -> None:
    with (
        connect(sim, vertex=True) as client,
        pytest.raises(errors.ClientError, match=r"to 10485\d\d \("),
    ):
        stream(client, 1_048_576, LONG)


def test_a_prompt_beyond_the_window_is_refused() -> None:
    small = {"mine": ModelLimits(ceiling=100, window=50)}
    with Simulator("x", models=small) as sim:
        answer = post(sim, {"contents": [user("y" * 300)]}, "/v1/models/mine:generateContent")
    assert "exceeds the maximum number of tokens allowed (50)." in refusal(answer)


def test_an_older_model_takes_a_trailing_model_turn_as_the_head_of_its_answer(
    client: genai.Client,
) -> None:
    answer = ask(client, 5000, OLD, contents=[GO, model(ANSWER[:99])])
    assert answer.text == ANSWER[99:]


# -- signatures


def test_a_changed_part_corrupts_its_signature(client: genai.Client) -> None:
    part = ask(client, 5000).candidates[0].content.parts[0]
    whole = part.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert ask(client, contents=[GO, model(whole), GO])
    for change in ({**whole, "text": whole["text"] + "x"}, {**whole, "text": "y"}):
        with pytest.raises(errors.ClientError, match=r"Corrupted thought signature\."):
            ask(client, contents=[GO, model(change), GO])
    assert ask(client, model=OLD, contents=[GO, model({**whole, "text": "y"}), GO])


def test_each_service_refuses_the_signatures_of_the_other(sim: Simulator) -> None:
    sim.script([Reply([ToolUse("Write", {"a": 1})], "tool_use")] * 2)
    with connect(sim) as client, connect(sim, vertex=True) as vertex:
        ours = ask(client, tools=TOOLS).candidates[0].content
        theirs = ask(vertex, tools=TOOLS).candidates[0].content
        assert ask(client, contents=[GO, ours, user(FR)], tools=TOOLS).text
        with pytest.raises(errors.ClientError, match=r"Invalid thought signature\."):
            ask(client, contents=[GO, theirs, user(FR)], tools=TOOLS)
        with pytest.raises(errors.ClientError, match="Thought signature is not valid"):
            ask(vertex, contents=[GO, ours, user(FR)], tools=TOOLS)


def test_a_foreign_signature_is_refused_by_the_strict_and_the_stand_in_by_nobody(
    sim: Simulator,
) -> None:
    body = {"contents": [GO, model(FC), user(FR)]}
    stand_in = {**FC, "thoughtSignature": "skip_thought_signature_validator"}
    assert post(sim, body).status_code == 200
    sim.scenario = Scenario(strict_signatures=True)
    assert refusal(post(sim, body)) == "Invalid thought signature."
    assert post(sim, {"contents": [GO, model(stand_in), user(FR)]}).status_code == 200


# -- keys, models, faults


def test_a_key_may_be_a_token_or_stand_in_the_query(sim: Simulator) -> None:
    path = f"/v1beta/models/{MODEL}:generateContent"
    for headers, query in (({"authorization": "Bearer t"}, ""), ({}, "?key=k")):
        keyed = {"x-goog-api-key": "", **headers}
        assert post(sim, {"contents": [GO]}, path + query, **keyed).status_code == 200


def test_the_gemini_api_tells_about_its_models_and_vertex_does_not(sim: Simulator) -> None:
    with connect(sim) as client, connect(sim, vertex=True) as vertex:
        told = client.models.get(model=MODEL)
        assert (told.input_token_limit, told.output_token_limit) == (1_048_576, 65_536)
        older = client.models.get(model="gemini-2.5-flash")
        assert older.output_token_limit == 65_536, "one more than Vertex takes"
        told = vertex.models.get(model=MODEL)
        assert (told.input_token_limit, told.output_token_limit) == (None, None)
        sim.scenario = Scenario(models_endpoint=False)
        with pytest.raises(errors.ClientError, match="404"):
            client.models.get(model=MODEL)


def test_a_model_may_be_missing(sim: Simulator) -> None:
    sim.scenario = Scenario(any_model=False)
    gone = post(sim, {"contents": [GO]}, f"{VERTEX}/mine:generateContent")
    assert "models/mine is not found" in refusal(gone, 404, "NOT_FOUND")


def test_an_error_status_has_googles_shape(sim: Simulator) -> None:
    sim.scenario = Scenario(status={1: 429, 2: 503, 3: 529}, retry_after=2)
    answers = [post(sim, {"contents": [GO]}) for _ in range(3)]
    assert "exhausted" in refusal(answers[0], 429, "RESOURCE_EXHAUSTED")
    assert answers[0].headers["retry-after"] == "2"
    assert "overloaded" in refusal(answers[1], 503, "UNAVAILABLE")
    assert refusal(answers[2], 529, "UNAVAILABLE")
    sim.script([Reply([Text("a")], error_after=1), Reply(error=("api_error", "no"), status=500)])
    assert refusal(post(sim, {"contents": [GO]}), 503, "UNAVAILABLE")
    assert refusal(post(sim, {"contents": [GO]}), 500, "INTERNAL") == "no"
