"""A silent answer is kept alive, in a shape that every client takes at every place."""

from __future__ import annotations

import time

import httpx2
import pytest
from support.gateways import CALL, KEYS, MESSAGES, URLS, Served, request_body, told
from support.sdks.formats import FORMATS, MAKES, request
from support.sdks.turn import How, cut, end, play

from continuation.simulator import Simulator

PULSES = {
    "anthropic-messages": b"event: ping\n",
    "openai-chat": b'"delta":{},"finish_reason":null',
    "openai-responses": b"event: keepalive\n",
    "gemini": b'"parts":[{"text":""}]',
}
GAP = 0.05
"""Seconds before each event; the gateway waits 0.02."""


@pytest.mark.slow
@pytest.mark.parametrize("dialect", FORMATS)
@pytest.mark.parametrize("how", ["sync-stream", "async-stream"])
def test_an_sdk_takes_a_pulse_in_every_gap(
    served: Served, sim: Simulator, dialect: str, how: How
) -> None:
    slow = {"slow": GAP, "deltas": 90}
    sim.script([cut("One, two, ", **slow), end("three.", CALL, stop="tool_use", **slow)])
    asked = request(dialect, 300, {})
    ran = play(MAKES[dialect](), how, served.of(dialect), asked, None)
    assert (ran.text, ran.tool_calls) == ("One, two, three.", [("Write", CALL.arguments)])


@pytest.mark.slow
@pytest.mark.parametrize("dialect", FORMATS)
def test_there_is_a_pulse_in_every_gap(served: Served, sim: Simulator, dialect: str) -> None:
    sim.script([end("One.", CALL, stop="tool_use", slow=GAP, deltas=90)])
    url = served.of(dialect) + URLS[dialect].replace(":generate", ":streamGenerate")
    asked = {**request_body(dialect), **({} if dialect == "gemini" else {"stream": True})}
    params = {"alt": "sse"} if dialect == "gemini" else {}
    answer = httpx2.post(url, json=asked, headers=KEYS, params=params, timeout=60)
    assert answer.status_code == 200, answer.text
    gaps = sim.posts[0].sent
    own = answer.content.count(b": \n") if dialect.startswith("openai") else 0
    assert answer.content.count(PULSES[dialect]) + own >= gaps
    assert not answer.content.rstrip().endswith(PULSES[dialect])


def test_a_body_that_is_being_healed_is_kept_alive_by_white_space(
    served: Served, sim: Simulator
) -> None:
    sim.script([cut("One, "), end("One, two.", delay=0.2)])
    url = served.of("anthropic-messages") + URLS["anthropic-messages"]
    answer = httpx2.post(url, json=MESSAGES, headers=KEYS)
    assert answer.content.startswith(b"  ")
    assert answer.json()["content"][0]["text"] == "One, two."
    assert "content-length" not in answer.headers


def test_nothing_is_said_before_the_upstream_has_answered(served: Served, sim: Simulator) -> None:
    sim.script([end("One.", delay=0.2)])
    url = served.of("anthropic-messages") + URLS["anthropic-messages"]
    began = time.monotonic()
    with httpx2.stream("POST", url, json={**MESSAGES, "stream": True}, headers=KEYS) as answer:
        assert time.monotonic() - began >= 0.2
        answer.read()
    assert told(served, answer.headers)["outcome"] == "complete"
