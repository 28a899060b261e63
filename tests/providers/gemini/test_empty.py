"""The eight shapes of a cut answer that shows nothing: each is found, and healed or told.

Today's SDK forgets what the user asked when such an answer comes in a chat.
"""

from __future__ import annotations

from typing import Any

import pytest
from google.genai import types
from support.sdks.gemini import CEILING, DOORS, LONG, NEW, Door, Ran, connect, limits, run, speakers
from support.sdks.turn import BOTH, HOWS, How, body_of, end, play

import continuation
from continuation.simulator import Scenario, Simulator
from continuation.types import Outcome

STORY = (
    "Once upon a time there was a king who had three sons and a horse. "
    "One of the sons rode out to look for the sea, and he came back as an old man."
)
SHAPES = range(1, 9)
SIGNED = 6
"""An empty text with a signature, which the provider takes back."""


@pytest.mark.parametrize("how", BOTH)
@pytest.mark.parametrize("shape", SHAPES)
def test_an_answer_that_thinking_ate_is_escalated_and_remembered(shape: int, how: How) -> None:
    with Simulator(answer=STORY, scenario=Scenario(thinking="all:2000", empty_shape=shape)) as sim:
        ran = run(sim, how, door="chats")
        assert (ran.text, ran.reasons) == (STORY, ["STOP"])
        assert ran.told.outcome is Outcome.HEALED
        assert limits(sim) == [1000, CEILING]
        assert speakers(ran) == ["user", "model"]
        assert [c.parts[0].text for c in ran.history if c.role == "user" and c.parts] == ["Go."]


@pytest.mark.parametrize("how", ["sync", "async-stream"])
@pytest.mark.parametrize("shape", SHAPES)
def test_at_the_ceiling_it_ends_and_says_why(shape: int, how: How) -> None:
    with Simulator(answer=STORY, scenario=Scenario(thinking="all", empty_shape=shape)) as sim:
        ran = run(sim, how, door="chats", limit=CEILING)
        assert (ran.text, ran.reasons) == ("", ["MAX_TOKENS"])
        assert ran.told.reason == "thinking used the whole limit: no visible text"
        assert len(sim.posts) == 1
        assert bool(ran.parts) is (shape == SIGNED), "Vertex refuses a turn with an empty text"
        answer = ["model"] if shape == SIGNED else []
        assert speakers(ran) == ["user", *answer], "what was asked is not forgotten"


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("vertex", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_chat_continues_after_thinking_used_up_the_limit_twice(
    shape: int, how: How, vertex: bool
) -> None:
    scenario = Scenario(thinking="all", empty_shape=shape, strict_signatures=True)
    with Simulator(answer=STORY, scenario=scenario) as sim:
        ran = run(sim, how, door="chats", vertex=vertex)
        assert limits(sim) == [1000, CEILING]
        assert bool(ran.parts) is (shape == SIGNED)
        sim.script([end("And so on.")])
        more = types.Content(role="user", parts=[types.Part(text="And then?")])
        following: Any = {"model": NEW, "contents": [*ran.history, more], "config": {}}
        assert play(Ran(vertex=vertex), "sync", sim, following, None).text == "And so on."
        contents = body_of(sim.posts[-1])["contents"]
        assert [part["text"] for c in contents for part in c["parts"] if part["text"]] == [
            "Go.",
            "And then?",
        ]


@pytest.mark.parametrize("how", ["sync", "async-stream"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_model_with_tokens_goes_on_thinking_with_them(shape: int, how: How) -> None:
    with Simulator(answer=STORY, scenario=Scenario(thinking="all:2000", empty_shape=shape)) as sim:
        ran = run(sim, how, door="chats", model=LONG)
        assert (ran.text, ran.reasons) == (STORY, ["STOP"])
        assert speakers(ran) == ["user", "model"]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_stream_that_showed_text_ends_in_any_shape(shape: int, door: Door) -> None:
    story = STORY * 10
    with Simulator(answer=story, scenario=Scenario(empty_shape=shape)) as sim:
        ran = run(sim, "sync-stream", door=door, limit=300)
        assert (ran.text, ran.reasons) == (story, ["STOP"])
        assert limits(sim) == [300, CEILING]
        assert door == "models" or speakers(ran) == ["user", "model"]


def test_a_chat_goes_on_after_a_healed_turn() -> None:
    scenario = Scenario(thinking="all:2000", empty_shape=2, strict_signatures=True)
    for vertex in (False, True):
        with Simulator(answer=STORY, scenario=scenario) as sim, connect(sim, vertex=vertex) as bare:
            client = continuation.wrap(bare)
            chat = client.chats.create(model=NEW, config={"max_output_tokens": 1000})
            assert chat.send_message("Go.").text == STORY
            assert [*chat.send_message_stream("And then?")]
            assert chat.send_message("And then?").candidates
            assert len(chat.get_history(curated=True)) >= 6
            assert [post.status for post in sim.posts] == [200] * len(sim.posts)
