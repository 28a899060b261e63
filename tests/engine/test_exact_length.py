"""An answer exactly as long as one limit or several is whole, though its stop reason denies it."""

from __future__ import annotations

from typing import Any

import pytest
from support.sdks import chat
from support.sdks.formats import FORMATS, MAKES, request
from support.sdks.turn import BOTH, How, cut, end, play

from continuation import Policy
from continuation.simulator import Scenario, Simulator
from continuation.types import Outcome

LIMIT = 300
AT_CEILING = Policy(backoff_seconds=0.0, models_endpoint=False, model_max_output_tokens=LIMIT)
PREFILLED: dict[str, tuple[str, dict[str, Any], str]] = {
    "llama.cpp": ("openai-chat", {}, "llamacpp"),
    "vLLM": ("openai-chat", {}, "vllm"),
    "Claude": ("anthropic-messages", {"model": "claude-haiku-4-5"}, ""),
    "Gemini": ("gemini", {"model": "gemini-3.1-pro"}, ""),
}
"""Servers that continue a last message of the model's."""
LINE = "A sailor counts the days that are left until the ship is home again, and then he "


def text_of(limits: int, ending: str) -> str:
    """Return a text of so many limits, four characters each token, with the given ending."""
    size = 4 * LIMIT * limits - len(ending)
    numbered = "".join(f"{number}: {LINE}" for number in range(limits * 20))
    return numbered[:size] + ending


@pytest.mark.parametrize("server", PREFILLED)
@pytest.mark.parametrize("how", BOTH)
@pytest.mark.parametrize("limits", [1, 2, 3])
@pytest.mark.parametrize("ending", ["x", ".", "\n}"])
def test_a_server_that_continues_a_prefill_ends_at_once(
    server: str, how: How, limits: int, ending: str
) -> None:
    dialect, more, vendor = PREFILLED[server]
    config: Any = chat.playing(AT_CEILING, like=vendor) if vendor else AT_CEILING
    scenario = Scenario(vendor=vendor) if vendor else Scenario()
    text = text_of(limits, ending)
    with Simulator(text, scenario) as sim:
        ran = play(MAKES[dialect](), how, sim, request(dialect, LIMIT, more), config)
    assert ran.text == text
    assert ran.told.outcome is Outcome.HEALED
    assert not ran.says_cut


@pytest.mark.parametrize("dialect", FORMATS)
@pytest.mark.parametrize("how", BOTH)
def test_a_model_that_only_repeats_the_words_it_was_asked_for_has_nothing_to_add(
    dialect: str, how: How
) -> None:
    text = text_of(1, "x")
    with Simulator() as sim:
        sim.script([cut(text), end(text[-500:])])
        ran = play(MAKES[dialect](), how, sim, request(dialect, LIMIT, {}), AT_CEILING)
        assert len(sim.posts) == 2
    assert ran.text == text
    assert ran.told.outcome is Outcome.HEALED
    assert not ran.says_cut


@pytest.mark.parametrize("dialect", FORMATS)
@pytest.mark.parametrize("how", BOTH)
def test_a_model_that_says_nothing_when_asked_once_is_reported(dialect: str, how: How) -> None:
    """It may be whole, but an answer without content is also how servers fail."""
    with Simulator() as sim:
        sim.script([cut(text_of(1, "x")), end()])
        ran = play(MAKES[dialect](), how, sim, request(dialect, LIMIT, {}), AT_CEILING)
    assert ran.text == text_of(1, "x")
    assert ran.told.outcome is Outcome.PARTIAL


ENDINGS = {
    "a comma": "One, two, ",
    "a colon": "These are the steps:\n",
    "a row of a table": "\n\n| a | b |\n|---|---|\n| 1 ",
    "an open code block": "\n\n```python\nprint(1)\n",
    "a bracket": "It is here (",
}


@pytest.mark.parametrize("dialect", FORMATS)
@pytest.mark.parametrize("how", BOTH)
@pytest.mark.parametrize("text", ENDINGS.values(), ids=list(ENDINGS))
def test_a_normal_stop_reason_is_wrong_where_no_text_ends_at_the_limit(
    dialect: str, how: How, text: str
) -> None:
    """llama.cpp's Responses call every answer complete (`tests/real`)."""
    if dialect == "openai-chat" and how != "sync":
        pytest.skip("a stream of Chat counts its tokens only on demand")
    with Simulator() as sim:
        sim.script([end(text_of(1, text)), end("Rest.")])
        ran = play(MAKES[dialect](), how, sim, request(dialect, LIMIT, {}), AT_CEILING)
        assert len(sim.posts) == 2
    assert ran.told.outcome is Outcome.HEALED
    assert ran.text.endswith("Rest.")


@pytest.mark.parametrize("dialect", FORMATS)
def test_a_text_that_may_end_at_its_limit_is_complete(dialect: str) -> None:
    with Simulator() as sim:
        sim.script([end(text_of(1, " It is done."))])
        ran = play(MAKES[dialect](), "sync", sim, request(dialect, LIMIT, {}), AT_CEILING)
        assert len(sim.posts) == 1
    assert ran.told.outcome is Outcome.COMPLETE


@pytest.mark.parametrize("how", BOTH)
def test_a_server_that_calls_every_answer_complete_is_not_believed_at_the_limit(how: How) -> None:
    config = chat.playing(AT_CEILING, like="llamacpp")
    with Simulator() as sim:
        sim.script([end(text_of(1, " It is done.")), end(" Rest.")])
        asked = request("openai-responses", LIMIT, {})
        ran = play(MAKES["openai-responses"](), how, sim, asked, config)
        assert len(sim.posts) == 2
    assert ran.text.endswith("It is done. Rest.")
    assert ran.told.outcome is Outcome.HEALED


@pytest.mark.parametrize("second", [1, 2, 3, 4, 6])
def test_a_prefill_that_drops_early_is_followed_by_another(second: int) -> None:
    """What it had brought may still be held by the seam: that is no refusal to continue."""
    config: Any = chat.playing(AT_CEILING, like="vllm")
    text = text_of(1, " It is done.")
    scenario = Scenario(vendor="vllm", deltas=4, drop={1: 6, 2: second})
    with Simulator(text, scenario) as sim:
        ran = play(
            MAKES["openai-chat"](), "sync-stream", sim, request("openai-chat", 900, {}), config
        )
        last = [post.body["messages"][-1]["role"] for post in sim.posts[1:] if post.body]
    assert last == ["assistant", "assistant"]
    assert ran.text == text
    assert ran.told.outcome is Outcome.HEALED
