"""What a dialect knows goes through the engine: any bare SDK gets whole answers by a base URL."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from threading import Event
from typing import Any

import httpx2
import pytest
from support.gateways import CALL, KEYS, MESSAGES, URLS, Served, request_body, told
from support.sdks.formats import FORMATS, MAKES, request
from support.sdks.turn import cut, end, play

from continuation.simulator import Reply, Simulator, ToolUse
from continuation.types import Outcome

formats = pytest.mark.parametrize("dialect", FORMATS)


def post(served: Served, dialect: str, body: Any, **headers: str) -> httpx2.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx2.post(
        served.of(dialect) + URLS[dialect],
        content=content,
        headers={**KEYS, "content-type": "application/json", **headers},
    )


@formats
@pytest.mark.parametrize("how", ["sync", "sync-stream"])
@pytest.mark.parametrize(
    "first",
    [cut("One, two, "), cut(ToolUse("Write", CALL.arguments, cut=20))],
    ids=["text", "call"],
)
def test_a_bare_sdk_gets_a_whole_answer(
    served: Served, sim: Simulator, dialect: str, how: Any, first: Reply
) -> None:
    called = isinstance(first.blocks[0], ToolUse)
    # Of a stream the text has been shown, and is gone on with.
    text = end("three." if how == "sync-stream" else "One, two, three.")
    sim.script([first, end(CALL, stop="tool_use") if called else text])
    ran = play(MAKES[dialect](), how, served.of(dialect), request(dialect, 300, {}), None)
    assert ran.tool_calls == ([("Write", CALL.arguments)] if called else [])
    assert ran.text == ("" if called else "One, two, three.")
    assert not ran.says_cut
    assert len(sim.posts) == 2


def test_the_first_request_is_the_callers_to_the_byte_and_a_later_one_keeps_its_bytes(
    served: Served, sim: Simulator
) -> None:
    raw = (
        b'{ "model":"claude-opus-5",  "max_tokens" : 300,\n "metadata": {"user_id":"\\u00e9"},\n'
        b'  "messages":[ {"content":"go", "role":"user"} ] }\n'
    )
    sim.script([cut("One, "), end("One, two.")])
    answer = post(served, "anthropic-messages", raw, authorization="Bearer oauth", cookie="a=b")
    assert answer.json()["content"][0]["text"] == "One, two."
    first, second = sim.posts
    assert first.raw == raw
    assert second.raw.startswith(raw[:-2].replace(b"300", b"128000", 1).rstrip(b" }\n"))
    for sent in sim.posts:
        kept = {k: sent.headers.get(k) for k in ("authorization", "cookie", "x-api-key")}
        assert kept == {"authorization": "Bearer oauth", "cookie": "a=b", "x-api-key": "k"}
        assert "x-continuation" not in " ".join(sent.headers)


def test_an_answer_keeps_its_headers_and_its_turn_can_be_looked_up(
    served: Served, sim: Simulator, caplog: pytest.LogCaptureFixture
) -> None:
    more = {"request-id": "r-1", "anthropic-ratelimit-x": "7", "retry-after": "3"}
    sim.script([cut("One, ", headers=more), end("One, two.")])
    with caplog.at_level(logging.INFO, logger="continuation.turns"):
        answer = post(served, "anthropic-messages", MESSAGES)
    assert {name: answer.headers[name] for name in more} == more
    report = told(served, answer.headers)
    assert report["outcome"] == Outcome.HEALED
    assert [attempt["limit"] for attempt in report["attempts"]] == [300, 128_000]
    (line,) = [r.getMessage() for r in caplog.records if r.name == "continuation.turns"]
    assert json.loads(line) == report
    assert "One" not in line


@formats
@pytest.mark.parametrize("said", ["All.", CALL])
def test_an_answer_that_is_whole_keeps_its_length(
    served: Served, sim: Simulator, dialect: str, said: str | ToolUse
) -> None:
    sim.script([end(said)])
    answer = post(served, dialect, request_body(dialect))
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert told(served, answer.headers)["outcome"] == Outcome.COMPLETE


@formats
def test_a_providers_error_is_passed_on_as_it_is(
    served: Served, sim: Simulator, dialect: str
) -> None:
    body = {"error": {"message": "Not today: 32000 > 8192", "odd": [1]}}
    sim.script([Reply(status=529, raw_body=body, headers={"retry-after": "9"})])
    answer = post(served, dialect, request_body(dialect))
    assert (answer.status_code, answer.headers["retry-after"]) == (529, "9")
    assert answer.headers["x-continuation-turn"]


@pytest.mark.parametrize(
    ("body", "headers"),
    [(b"{not json", {}), (b"[1]", {}), (b"a=b", {"content-type": "text/plain"})],
)
def test_what_cannot_be_read_is_the_providers_to_refuse(
    served: Served, sim: Simulator, body: bytes, headers: dict[str, str]
) -> None:
    answer = post(served, "anthropic-messages", body, **headers)
    assert sim.requests[-1].raw == body
    assert answer.status_code == 400
    assert answer.json()["type"] == "error"


@formats
def test_a_dead_upstream_is_told_in_the_callers_format(
    served: Served, sim: Simulator, dialect: str
) -> None:
    sim.script([Reply(drop=-1)])
    answer = post(served, dialect, request_body(dialect))
    assert answer.status_code == 502
    assert "could not be reached" in answer.json()["error"]["message"]
    assert told(served, answer.headers)["outcome"] == Outcome.FAILED


def test_policies_come_by_header_as_well(served: Served, sim: Simulator) -> None:
    sim.script([cut("One, ")])
    answer = post(served, "anthropic-messages", MESSAGES, **{"x-continuation": "off"})
    assert answer.json()["stop_reason"] == "max_tokens"


# --- clamp ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "asked", "sent"),
    [
        ("claude-opus-5", 200_000, [128_000]),  # known: nothing is refused
        ("claude-strange", 70_000, [70_000, 64_000]),  # learned from the refusal
        ("claude-opus-5", 64_000, [64_000]),
    ],
)
def test_a_limit_above_the_ceiling_is_lowered(
    served: Served, sim: Simulator, model: str, asked: int, sent: list[int]
) -> None:
    for _ in range(2):
        sim.script([end("Fine.")])
        body = {**MESSAGES, "model": model, "max_tokens": asked}
        answer = post(served, "anthropic-messages", body, **{"x-api-key": f"{model}{asked}"})
        assert answer.status_code == 200, answer.text
    limits = [(post.body or {})["max_tokens"] for post in sim.posts]
    assert limits == [*sent, sent[-1]]


def test_a_thinking_budget_is_lowered_with_its_limit(served: Served, sim: Simulator) -> None:
    sim.script([end("Fine.")])
    thinking = {"type": "enabled", "budget_tokens": 72_000}
    body = {**MESSAGES, "model": "claude-sonnet-4-5", "max_tokens": 80_000, "thinking": thinking}
    assert post(served, "anthropic-messages", body).status_code == 200
    sent = sim.posts[-1].body or {}
    assert (sent["max_tokens"], sent["thinking"]["budget_tokens"]) == (64_000, 57_600)


# --- calls of any kind ----------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["custom", "function"])
@pytest.mark.parametrize(
    ("stop", "silent"),
    [("max_tokens", 9), ("max_tokens", 17), ("max_tokens", 18), ("tool_use", 20), ("tool_use", 21)],
)
def test_no_byte_of_a_call_comes_before_it_is_known_to_be_whole(
    served: Served, sim: Simulator, tool: str, stop: str, silent: int
) -> None:
    """Codex runs a call, and half a freeform one, as soon as its item is done.

    `silent`: events until the provider pauses, of 19 with the call cut, or of 22.
    """
    patch = ToolUse("apply_patch", json.dumps({"patch": "+line\n" * 30}))
    first = replace(patch, cut=150) if stop == "max_tokens" else patch
    gate = Event()
    sim.script([end("So.", first, stop=stop, gate=gate, gate_at=silent)])
    sim.script([end("So.", patch, stop="tool_use")])
    tools = [{"type": tool, "name": "apply_patch"}]
    body = {**request_body("openai-responses"), "stream": True, "tools": tools}
    body["max_output_tokens"] = 300
    url = served.of("openai-responses") + URLS["openai-responses"]
    with httpx2.stream("POST", url, json=body, headers=KEYS) as answer:
        pieces = answer.iter_bytes()
        shown = b""
        while b"event: keepalive" not in shown:  # then all is here that there is
            shown += next(pieces)
        assert sim.posts[0].sent == silent
        assert b"call_id" not in shown
        gate.set()
        shown += b"".join(pieces)
    told = [json.loads(line[6:]) for line in shown.decode().split("\n") if line[:6] == "data: "]
    items = [event["item"] for event in told if event["type"] == "response.output_item.done"]
    (call,) = [item for item in items if "call" in item["type"]]
    assert call["input" if tool == "custom" else "arguments"] == patch.arguments
