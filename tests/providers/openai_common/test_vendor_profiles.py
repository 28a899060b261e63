"""Each vendor's profile against the simulator playing that vendor, through the real SDK."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from support.chat_helpers import ANSWER
from support.sdks.chat import CEILING, TOOL, Ran, dumps, limits, named, playing, plays, run, written
from support.sdks.chat import WRITE as WRITTEN
from support.sdks.turn import How, body_of, cut, end

import continuation
from continuation import Policy
from continuation.prompts import looks_like_recovery_prompt
from continuation.providers.openai_common.vendors import built_in
from continuation.simulator import Reply, Simulator, Text, Thinking
from continuation.types import Outcome

LONG = "".join(f"{n}: der lange Text, 文字 und 🙂, geht weiter.\n" for n in range(500))
"""More than any vendor's default limit."""
WHOLE_ARGUMENTS = dumps(WRITTEN)


@dataclass(frozen=True)
class Case:
    """A vendor, a model of its, and how a recovery asks there."""

    model: str
    form: dict[str, Any] | None
    """What marks the prefill; `None`: a user turn asks."""
    limit: str = "max_tokens"
    reasoning: str | None = "reasoning_content"
    ceiling: bool = True
    """An error names the ceiling."""
    default: bool = False
    """Its default limit is small."""


_BARE: dict[str, Any] = {}
_CONTINUE = {"continue_final_message": True, "add_generation_prompt": False}
OPEN = "Qwen/Qwen2.5-7B-Instruct"
CASES = {
    "openai": Case("gpt-4o", None, "max_completion_tokens", None),
    "azure": Case("gpt-4o", None, "max_completion_tokens", None),
    "deepseek": Case("deepseek-chat", {"prefix": True}, default=True),
    "moonshot": Case("kimi-k2-0905-preview", {"partial": True}, ceiling=False, default=True),
    "dashscope": Case("qwen-plus", {"partial": True}),
    "zhipu": Case("glm-4.6", None, default=True),
    "mistral": Case("mistral-large-latest", {"prefix": True}, reasoning=None, ceiling=False),
    "groq": Case("llama-3.3-70b-versatile", _BARE, reasoning="reasoning"),
    "xai": Case("grok-3", None, ceiling=False),
    "openrouter": Case("anthropic/claude-3.5-haiku", _BARE, reasoning="reasoning", ceiling=False),
    "together": Case(
        "meta-llama/Llama-3.3-70B-Instruct", None, reasoning="reasoning", ceiling=False
    ),
    "fireworks": Case("accounts/fireworks/models/llama-v3p3", _BARE, ceiling=False, default=True),
    "vllm": Case(OPEN, _CONTINUE, reasoning="reasoning", ceiling=False),
    "sglang": Case(OPEN, _CONTINUE),
    "llamacpp": Case("qwen2.5", _CONTINUE, ceiling=False),
    "ollama": Case("qwen2.5:7b", None, reasoning="reasoning", ceiling=False),
    "lmstudio": Case("qwen2.5-7b-instruct", None, ceiling=False),
    "gemini": Case("gemini-2.5-flash", None, reasoning=None, ceiling=False),
}
each = pytest.mark.parametrize("vendor", CASES)
hows = pytest.mark.parametrize("how", [pytest.param("sync", marks=pytest.mark.slow), "sync-stream"])
AT_THE_CEILING = Policy(model_max_output_tokens=300, backoff_seconds=0)


def test_every_profile_has_a_case() -> None:
    assert set(CASES) == set(built_in()) - {"unknown"}


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(answer=ANSWER) as running:
        yield running


def play(sim: Simulator, vendor: str, how: How, **changes: Any) -> Ran:
    return run(sim, how, like=vendor, **{"model": CASES[vendor].model, **changes})


@contextlib.contextmanager
def remembering(sim: Simulator, vendor: str, policy: Policy) -> Iterator[Callable[[], str]]:
    """Give a way to ask through one client, again and again."""
    request: Any = {"model": CASES[vendor].model, "max_tokens": 300}
    request["messages"] = [{"role": "user", "content": "Go."}]
    with openai.OpenAI(base_url=f"{sim.url}/v1", api_key="k", max_retries=0) as bare:
        client = continuation.wrap(bare, config=playing(policy, vendor))
        create: Any = client.chat.completions.create
        yield lambda: str(create(**request).choices[0].message.content)


def asked_by(sim: Simulator) -> tuple[str, dict[str, Any]]:
    """Return who speaks last in the last request, and what marks a prefill in it."""
    body = body_of(sim.posts[-1])
    last = body["messages"][-1]
    flags = {k: last[k] for k in ("prefix", "partial") if k in last}
    return last["role"], flags | {k: body[k] for k in _CONTINUE if k in body}


# --- the answer comes back whole ----------------------------------------------------------------


@each
@pytest.mark.parametrize(
    "how", ["sync", "sync-stream", pytest.param("async-stream", marks=pytest.mark.slow)]
)
def test_a_cut_answer_is_made_whole(sim: Simulator, vendor: str, how: How) -> None:
    plays(sim, vendor, deltas=96)
    ran = play(sim, vendor, how, max_tokens=300)
    assert (ran.text, ran.finish) == (ANSWER, "stop")
    assert ran.told.outcome is Outcome.HEALED
    assert all(named(post).keys() == {"max_tokens"} for post in sim.posts)


@each
@hows
@pytest.mark.parametrize("manner", ["exact", "echo:30"])
def test_a_recovery_asks_in_the_vendors_own_form(
    sim: Simulator, vendor: str, how: How, manner: str
) -> None:
    plays(sim, vendor, manner=manner, deltas=96)
    ran = play(sim, vendor, how, policy=AT_THE_CEILING, max_tokens=300)
    assert (ran.text, ran.finish) == (ANSWER, "stop")
    form = CASES[vendor].form
    assert asked_by(sim) == (("user", {}) if form is None else ("assistant", form))
    assert [post.status for post in sim.posts] == [200] * 3


@pytest.mark.parametrize("vendor", [name for name in CASES if name != "mistral"])
def test_a_repeated_prefill_is_taken_off(sim: Simulator, vendor: str) -> None:
    """Mistral repeats it anyway."""
    plays(sim, vendor, manner="prefill-echo", deltas=96)
    ran = play(sim, vendor, "sync-stream", max_tokens=300)
    assert (ran.text, ran.finish) == (ANSWER, "stop")


@pytest.mark.parametrize("how", ["sync", "sync-stream", "async", "async-stream"])
@pytest.mark.parametrize("begun", [[], [{"role": "assistant", "content": "Once. "}]])
def test_llamacpp_does_not_repeat_a_short_prefill(
    sim: Simulator, how: How, begun: list[Any]
) -> None:
    """The server repeats a prefill; one of five characters is too short to be recognized."""
    plays(sim, "llamacpp")
    sim.script([cut("The h"), end("arbour opens.")])
    messages = [{"role": "user", "content": "Go."}, *begun]
    ran = play(sim, "llamacpp", how, policy=AT_THE_CEILING, max_tokens=300, messages=messages)
    shown = "".join(message["content"] for message in begun)
    assert ran.text == f"{shown}The harbour opens."
    assert body_of(sim.posts[-1])["messages"][-1]["content"] == f"{shown}The h"


@each
@hows
def test_without_a_limit_the_vendors_own_parameter_is_set(
    sim: Simulator, vendor: str, how: How
) -> None:
    """Where no limit means the model's ceiling, none is set before a recovery."""
    case = CASES[vendor]
    plays(sim, vendor)
    sim.script([cut("The quick brown fo"), end("x jumps.")])
    ran = play(sim, vendor, how, max_tokens=None)
    assert ran.text in {"The quick brown fox jumps.", "x jumps."}
    assert ran.finish == "stop"
    assert not named(sim.posts[0])
    assert named(sim.posts[1]).keys() == {case.limit}


@pytest.mark.parametrize("vendor", [name for name, case in CASES.items() if case.default])
@hows
def test_a_small_default_limit_is_raised(vendor: str, how: How) -> None:
    with Simulator(answer=LONG) as sim:
        plays(sim, vendor, deltas=400)
        ran = play(sim, vendor, how, max_tokens=None)
        assert (ran.text, ran.finish) == (LONG, "stop")
        assert limits(sim)[0] is None


# --- what a vendor refuses is learned -----------------------------------------------------------


@pytest.mark.parametrize("vendor", [name for name, case in CASES.items() if case.ceiling])
@hows
def test_the_ceiling_is_learned_from_the_vendors_error(
    sim: Simulator, vendor: str, how: How
) -> None:
    plays(sim, vendor, ceiling=2000, models_endpoint=False)
    ran = play(sim, vendor, how, max_tokens=300)
    assert ran.text == ANSWER
    assert [post.status for post in sim.posts] == [200, 400, 200]
    assert limits(sim)[::2] == [300, 2000]


@hows
def test_groq_is_asked_for_the_ceiling(sim: Simulator, how: How) -> None:
    plays(sim, "groq", ceiling=2000)
    assert play(sim, "groq", how, max_tokens=300).text == ANSWER
    assert limits(sim) == [300, 2000]
    assert [r.path for r in sim.requests if r.method == "GET"] == [
        f"/v1/models/{CASES['groq'].model}"
    ]


@hows
@pytest.mark.parametrize("given", ["max_tokens", "max_completion_tokens", None])
def test_the_callers_own_parameter_is_raised(sim: Simulator, how: How, given: str | None) -> None:
    plays(sim, "openai")
    sim.script([cut("The quick brown fo"), end("x jumps.")])
    limit = {given: CEILING} if given else {}
    play(sim, "openai", how, **{"max_tokens": None, **limit})
    assert all(
        named(post) in ({}, {given or "max_completion_tokens": CEILING}) for post in sim.posts
    )


@hows
def test_the_parameter_is_swapped_once_and_that_is_remembered(sim: Simulator, how: How) -> None:
    plays(sim, "azure", quirks="max-tokens-only")
    turns = [cut("One, two, "), end("three.")]
    sim.script(turns)
    ran = play(sim, "azure", how, max_tokens=None)
    assert ran.text.endswith("three.")
    names = [list(named(post)) for post in sim.posts]
    assert names == [[], ["max_completion_tokens"], ["max_tokens"]]
    sim.script(turns)
    play(sim, "azure", how, max_tokens=None)
    assert [list(named(post)) for post in sim.posts[3:]] == [[], ["max_tokens"]]


def test_what_is_remembered_holds_for_that_model_alone(sim: Simulator) -> None:
    plays(sim, "azure", quirks="max-tokens-only")
    for model in ("gpt-4o", "gpt-4.1"):
        sim.script([cut("One, two, "), end("three.")])
        play(sim, "azure", "sync", max_tokens=None, model=model)
    assert [list(named(post)) for post in sim.posts[3:]] == [
        [],
        ["max_completion_tokens"],
        ["max_tokens"],
    ]


def test_a_wrong_parameter_of_the_callers_is_the_callers_error(sim: Simulator) -> None:
    plays(sim, "openai")
    ran = play(sim, "openai", "sync", model="gpt-5", max_tokens=300)
    assert isinstance(ran.error, openai.BadRequestError)
    assert "max_completion_tokens" in str(ran.error)
    assert len(sim.posts) == 1


@hows
@pytest.mark.parametrize("vendor", ["openai", "vllm"])
def test_stream_options_are_left_out_once_they_were_refused(
    sim: Simulator, vendor: str, how: How
) -> None:
    plays(sim, vendor, quirks="no-stream-options")
    for _ in range(2):
        sim.script([cut("One, two, "), end("three.")])
        play(sim, vendor, how, max_tokens=300)
    asks = ["stream_options" in body_of(post) for post in sim.posts]
    assert asks == [False, True, False, False, False]


@hows
def test_a_strangers_refusal_may_be_about_stream_options(sim: Simulator, how: How) -> None:
    sim.script([cut("One, two, "), Reply(status=422, error=("x", "what is that?")), end("three.")])
    ran = run(sim, how, like="unknown", max_tokens=300)
    assert ran.text.endswith("three.")
    assert ["stream_options" in body_of(post) for post in sim.posts] == [False, True, False]


def test_fireworks_is_not_asked_for_much_without_a_stream(sim: Simulator) -> None:
    plays(sim, "fireworks")
    with remembering(sim, "fireworks", Policy(initial_limit="ceiling")) as ask:
        assert ask() == ANSWER
    assert (limits(sim), sim.posts[0].status) == ([4096], 200)


# --- prefill ------------------------------------------------------------------------------------


@pytest.mark.parametrize("vendor", ["deepseek", "moonshot", "groq", "mistral", "vllm"])
def test_a_refused_prefill_becomes_a_prompt_once_and_for_all(sim: Simulator, vendor: str) -> None:
    text = "This model does not support assistant message prefill."
    refusal = Reply(status=400, error=("x", text))
    plays(sim, vendor)
    with remembering(sim, vendor, AT_THE_CEILING) as ask:
        for refused in ([refusal], []):
            sim.script([cut("One, two, "), *refused, end("three.")])
            assert ask() == "One, two, three."
    roles = [body_of(post)["messages"][-1]["role"] for post in sim.posts]
    assert roles == ["user", "assistant", "user", "user", "user"]
    assert looks_like_recovery_prompt(body_of(sim.posts[-1])["messages"][-1]["content"])
    assert sim.posts[2].path == "/v1/chat/completions"


@pytest.mark.parametrize(
    ("vendor", "asked"),
    [
        ("dashscope", {"extra_body": {"enable_thinking": True}}),
        ("llamacpp", {"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}}),
        ("groq", {"reasoning_effort": "high"}),
        ("vllm", {"tool_choice": "none", "tools": [TOOL]}),
    ],
)
def test_what_stands_in_the_way_of_a_prefill_is_heeded(
    sim: Simulator, vendor: str, asked: dict[str, Any]
) -> None:
    plays(sim, vendor)
    sim.script([cut("One, two, "), end("three.")])
    ran = play(sim, vendor, "sync", policy=AT_THE_CEILING, max_tokens=300, **asked)
    assert ran.text == "One, two, three."
    assert asked_by(sim)[0] == "user"


@pytest.mark.parametrize("model", ["gpt-4o", "openai/gpt-4o", "qwen/qwen3-max"])
def test_openrouter_is_trusted_with_named_families_only(sim: Simulator, model: str) -> None:
    plays(sim, "openrouter")
    sim.script([cut("One, two, "), end("three.")])
    run(sim, "sync", like="openrouter", policy=AT_THE_CEILING, max_tokens=300, model=model)
    assert asked_by(sim)[0] == "user"


# --- thinking -----------------------------------------------------------------------------------


@pytest.mark.parametrize("vendor", [name for name, case in CASES.items() if case.reasoning])
@hows
def test_thinking_stays_in_the_vendors_own_field(sim: Simulator, vendor: str, how: How) -> None:
    plays(sim, vendor)
    again = end(Thinking("More."), "three.")
    sim.script([cut(Thinking("I think."), "One, two, "), again])
    ran = play(sim, vendor, how, policy=AT_THE_CEILING, max_tokens=300)
    assert ran.text == "One, two, three."
    assert ran.message.model_extra[CASES[vendor].reasoning] == "I think."


@each
@hows
def test_thinking_that_ate_the_limit_is_escalated(sim: Simulator, vendor: str, how: How) -> None:
    plays(sim, vendor)
    sim.script([cut(Thinking("Hm " * 50)), end(Thinking("Hm."), "All of it.")])
    ran = play(sim, vendor, how, max_tokens=300)
    assert (ran.text, ran.finish) == ("All of it.", "stop")


@pytest.mark.parametrize("vendor", ["deepseek", "moonshot"])
@hows
def test_thinking_goes_back_where_it_must(sim: Simulator, vendor: str, how: How) -> None:
    plays(sim, vendor)
    sim.script([cut(Thinking("I think."), "One, two, "), end("three.")])
    play(sim, vendor, how, policy=AT_THE_CEILING, max_tokens=300)
    said = [m for m in body_of(sim.posts[-1])["messages"] if m["role"] == "assistant"]
    assert said[-1]["reasoning_content"] == "I think."


# --- calls --------------------------------------------------------------------------------------


@each
@hows
def test_a_cut_call_comes_back_whole(sim: Simulator, vendor: str, how: How) -> None:
    plays(sim, vendor)
    sim.script([cut("I write. ", written(30)), end("I write. ", written(), stop="tool_use")])
    ran = play(sim, vendor, how, max_tokens=300)
    assert ran.calls == [WHOLE_ARGUMENTS]
    assert (ran.text, ran.finish) == ("I write. ", "tool_calls")


@pytest.mark.parametrize("quirk", ["cut-call-stop", "cut-call-tool-calls"])
@pytest.mark.parametrize("vendor", ["vllm", "ollama", "unknown"])
def test_a_cut_call_in_a_body_is_seen_behind_its_label(
    sim: Simulator, vendor: str, quirk: str
) -> None:
    plays(sim, vendor if vendor in CASES else "openai", quirks=quirk)
    sim.script([cut(written(30)), end(written(), stop="tool_use")])
    ran = run(sim, "sync", like=vendor, model=OPEN, max_tokens=300)
    assert ran.calls == [WHOLE_ARGUMENTS]
    assert len(sim.posts) == 2


# --- how streams end ----------------------------------------------------------------------------


@each
@pytest.mark.parametrize("lacks", ["no-finish+no-done", "no-finish"])
def test_a_stream_without_a_reason_is_a_drop_where_vendors_tell_one(
    sim: Simulator, vendor: str, lacks: str
) -> None:
    plays(sim, vendor, quirks=lacks)
    sim.script([cut("The quick brown fo"), end("x jumps.")])
    ran = play(sim, vendor, "sync-stream", max_tokens=300)
    if built_in()[vendor].terminal == "required":
        assert (ran.text, ran.told.outcome) == ("The quick brown fox jumps.", Outcome.HEALED)
    else:
        assert (ran.text, len(sim.posts)) == ("The quick brown fo", 1)
        assert lacks == "no-finish" or ran.told.outcome is Outcome.COMPLETE


@each
def test_a_reason_without_done_is_an_end(sim: Simulator, vendor: str) -> None:
    plays(sim, vendor, quirks="no-done")
    sim.script([end("All of it.")])
    ran = play(sim, vendor, "sync-stream", max_tokens=300)
    assert (ran.text, ran.told.outcome, len(sim.posts)) == ("All of it.", Outcome.COMPLETE, 1)


@pytest.mark.parametrize("vendor", ["openai", "azure", "deepseek", "mistral", "openrouter", "vllm"])
def test_a_drop_at_every_event_is_made_good(sim: Simulator, vendor: str) -> None:
    plays(sim, vendor)
    reply = [Thinking("I think."), Text("The quick brown fox jumps over it.")]
    begins = 2 if vendor == "azure" else 1  # before that nothing was in hand
    for drop in range(begins, 14):
        sim.reset()
        sim.script([end(*reply, deltas=6, drop=drop), Reply([Text("It is done.")])])
        ran = play(sim, vendor, "sync-stream", max_tokens=300)
        assert ran.error is None, (drop, ran.error)
        assert ran.finish == "stop"
        assert ran.streamed == ran.text
        whole = ran.text == "The quick brown fox jumps over it."
        assert whole or ran.text.endswith("It is done."), drop
