"""What is sent to Gemini, and what its answers to that teach."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from support.drive_gemini import FAST, NEW

import continuation
from continuation.providers.gemini.request import DIALECT, GenerateRequest
from continuation.simulator import Reply, Simulator, Text, Thinking
from continuation.types import ErrorKind, Head, Request, Way

PATH = f"/v1/models/{NEW}:generateContent"
VERTEX = "/v1beta1/projects/p/locations/l/publishers/google/models/gemini-2.5-pro:generateContent"


def read(path: str = PATH, **body: Any) -> GenerateRequest:
    return DIALECT.call(Request("host", path, {}, json.dumps(body).encode()))


def sent(outgoing: Any) -> dict[str, Any]:
    return dict(json.loads(outgoing.body))


@pytest.mark.parametrize(
    ("path", "ours"),
    [
        (PATH, True),
        (VERTEX, True),
        ("/v1beta/tunedModels/mine-1:streamGenerateContent", True),
        ("/v1/projects/p/locations/l/endpoints/77:generateContent", True),
        ("/v1/models/m:countTokens", False),
        ("/v1/models/m:batchGenerateContent", False),
        ("/v1/models/m:embedContent", False),
        ("/v1beta/interactions", False),
    ],
)
def test_only_generate_content_is_claimed(path: str, ours: bool) -> None:
    assert DIALECT.claims("POST", path) is ours
    assert not DIALECT.claims("GET", path)


def test_settings_are_taken_in_either_spelling() -> None:
    call = read(generation_config={"max_output_tokens": 500, "response_mime_type": "text/x.enum"})
    assert (call.limit, call.structured) == (500, True)
    assert sent(call.again(900))["generation_config"] == {
        "maxOutputTokens": 900,
        "response_mime_type": "text/x.enum",
    }
    assert "generationConfig" not in sent(call.again(900))


def test_a_forced_call_and_a_schema_are_structured_and_plain_text_is_not() -> None:
    forced = {"functionCallingConfig": {"mode": "ANY"}}
    assert read(toolConfig=forced).structured
    assert read(generationConfig={"responseJsonSchema": {"type": "object"}}).structured
    assert read(continuationToken="QQ==").structured
    assert not read(generationConfig={"responseMimeType": "text/plain"}).structured


def test_beside_cached_content_nothing_but_turns_is_added() -> None:
    body: Any = {"cachedContent": "cachedContents/1", "contents": [{"parts": [{"text": "Go."}]}]}
    call = read(**body)
    answer = call.answer(FAST)
    asked = sent(call.resume(answer, Way.PROMPT, "Go on.", 900))
    assert asked.keys() == {"cachedContent", "contents", "generationConfig"}
    assert asked["contents"] == [{"parts": [{"text": "Go."}, {"text": "Go on."}]}]


def test_a_later_attempt_of_any_call_is_streamed() -> None:
    outgoing = read(contents=[]).again(900)
    assert outgoing.path is not None
    assert outgoing.path(VERTEX) == VERTEX.replace(":g", ":streamG")
    assert outgoing.query == {"alt": "sse"}


@pytest.mark.parametrize("query", ["", "?key=k%2F1", "?alt=json&key=k"])
def test_the_callers_query_is_kept(query: str) -> None:
    body = {"contents": [{"parts": [{"text": "Go."}], "role": "user"}]}
    with Simulator() as sim, httpx2.Client() as plain:
        client = continuation.http_client(plain, config=FAST)
        sim.script([Reply([Thinking("Hm")], stop="max_tokens"), Reply([Text("Whole.")])])
        headers = {"x-goog-api-key": "k"}
        answer = client.post(sim.url + PATH + query, json=body, headers=headers)
        assert answer.json()["candidates"][0]["content"]["parts"][0]["text"] == "Whole."
        kept = [item for item in query[1:].split("&") if item.startswith("key")]
        assert sim.posts[1].query == "&".join([*kept, "alt=sse"])


RANGE = (
    "Unable to submit request because it has a maxOutputTokens value of 788977 but the supported "
    "range is from 1 (inclusive) to 65537 (exclusive). Update the value and try again."
)
FULL = "The input token count (1054016) exceeds the maximum number of tokens allowed (1048576)."


@pytest.mark.parametrize("array", [False, True])
@pytest.mark.parametrize(
    ("status", "message", "kind", "maximum"),
    [
        (400, RANGE, ErrorKind.CEILING, 65_536),
        (400, "Requests ending with a model turn are not supported.", ErrorKind.PREFILL, None),
        (400, "Last turn cannot be model", ErrorKind.PREFILL, None),
        (400, FULL, ErrorKind.FINAL, None),
        (429, "Resource has been exhausted (e.g. check quota).", ErrorKind.RETRYABLE, None),
        (503, "The model is overloaded.", ErrorKind.RETRYABLE, None),
    ],
)
def test_errors_are_understood(
    status: int, message: str, kind: ErrorKind, maximum: int | None, array: bool
) -> None:
    error: Any = {"error": {"code": status, "message": message, "status": "S"}}
    refused = read().refused(Head(status, {}), json.dumps([error] if array else error).encode())
    assert (refused.kind, refused.maximum, refused.error) == (kind, maximum, f"{status} S")
    assert read().refused(Head(502, {}), b"<html>").kind is ErrorKind.RETRYABLE


def test_in_a_shared_window_the_range_is_only_what_this_prompt_leaves() -> None:
    error = {"error": {"code": 400, "message": RANGE, "status": "INVALID_ARGUMENT"}}
    call = read("/v1/models/gemini-4-argon:generateContent")
    assert (
        call.refused(Head(400, {}), json.dumps(error).encode()).kind is ErrorKind.CONTEXT_OVERFLOW
    )


@pytest.mark.parametrize(
    ("model", "limit", "learned"),
    [(NEW, 65_536, 65_536), ("gemini-4-argon", 65_536, None), ("gemini-4-argon", 900_000, 900_000)],
)
def test_the_models_endpoint_teaches_a_ceiling_and_not_a_hop(
    model: str, limit: int, learned: int | None
) -> None:
    call = read(f"/v1/models/{model}:streamGenerateContent")
    lookup = call.lookup()
    assert lookup is not None
    assert lookup.path is not None
    assert lookup.path(f"/v1/models/{model}:streamGenerateContent") == f"/v1/models/{model}"
    assert call.looked_up(json.dumps({"outputTokenLimit": limit}).encode()) == learned
    assert call.looked_up(b"<html>") is None
    assert read(VERTEX).lookup() is None


@pytest.mark.parametrize(
    ("model", "given", "lowered"),
    [
        (NEW, {}, {"thinkingLevel": "low"}),
        (NEW, {"thinkingLevel": "HIGH"}, {"thinkingLevel": "low"}),
        (NEW, {"thinkingLevel": "MINIMAL"}, None),
        ("gemini-2.5-pro", {"thinkingBudget": 0}, None),
    ],
)
def test_thinking_can_be_lowered(
    model: str, given: dict[str, Any], lowered: dict[str, Any] | None
) -> None:
    path = f"/v1/models/{model}:generateContent"
    with_less_thinking = read(path, generationConfig={"thinkingConfig": given}).with_less_thinking()
    told = (
        None
        if with_less_thinking is None
        else sent(with_less_thinking.again(900))["generationConfig"]
    )
    wanted = {"thinkingConfig": lowered, "maxOutputTokens": 900}
    assert told == (None if lowered is None else wanted)


def test_other_modalities_and_several_answers_are_not_ours() -> None:
    assert read(generationConfig={"responseModalities": ["TEXT"]}).untouched(FAST) is None
    assert "IMAGE" in str(read(generationConfig={"responseModalities": ["IMAGE"]}).untouched(FAST))
    assert "several" in str(read(generationConfig={"candidateCount": 3}).untouched(FAST))
