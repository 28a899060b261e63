"""A model that is known to need more gets it at once: of similar turns, one is cut at its limit."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from support.cli_helpers import MODEL
from support.drive import Answered, body, drive
from support.gateways import serving, until
from support.sdks import chat, messages
from support.sdks.formats import FORMATS, LIMITS, MAKES, THINKS, request
from support.sdks.messages import ask, limits
from support.sdks.turn import FAST, HOWS, How, Turn, body_of, cut, end, play_all, quietly

import continuation
from continuation import Policy
from continuation.cli import main
from continuation.limits import Learned
from continuation.simulator import Reply, Scenario, Simulator
from continuation.types import Outcome

TURNS = 10
LIMIT = 1_000
TEXT = "".join(f"{n}. A line of an answer that may be cut.\n" for n in range(300))
LONG = "".join(f"{n}. A line of an answer that may be cut.\n" for n in range(2_400))
"""More tokens than are safe in a body (21,333)."""
LARGE: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "model": "gpt-5",
        "max_tokens": openai.omit,
        "max_completion_tokens": LIMIT,
    },
    "gemini": {"model": "gemini-4-pro"},
}
"""What asks a model whose ceiling is above what is safe in a body."""

every_format = pytest.mark.parametrize("dialect", FORMATS)
every_way = pytest.mark.parametrize("how", HOWS)


def turns(
    dialect: str,
    how: How,
    sim: Simulator | str,
    count: int = TURNS,
    config: Policy | None = FAST,
    **more: Any,
) -> list[Turn]:
    asked = request(dialect, LIMIT, more)
    runs = [MAKES[dialect]() for _ in range(count)]
    return play_all(runs, how, sim, [asked] * count, config)


def cuts(sim: Simulator, dialect: str) -> int:
    """Return how many calls were sent with the caller's own limit, which cut each answer."""
    return list(LIMITS[dialect](sim)).count(LIMIT)


# --- ten similar turns --------------------------------------------------------------------------


@every_format
@every_way
@pytest.mark.parametrize("answer", [TEXT, LONG], ids=["short", "long"])
def test_of_ten_similar_turns_one_is_cut(dialect: str, how: How, answer: str) -> None:
    more = LARGE.get(dialect, {}) if answer is LONG else {}
    with Simulator(answer, Scenario(deltas=400)) as sim:
        runs = turns(dialect, how, sim, **more)
        assert {ran.text == answer for ran in runs} == {True}
        assert [str(ran.told.outcome) for ran in runs] == ["healed", *["complete"] * (TURNS - 1)]
        assert cuts(sim, dialect) == 1
        assert len(sim.posts) == TURNS + 1


@every_format
@every_way
def test_of_ten_turns_with_the_same_call_one_is_cut(dialect: str, how: How) -> None:
    with Simulator(TEXT, Scenario(deltas=400, call=True)) as sim:
        runs = turns(dialect, how, sim)
        written = [arguments["content"] for ran in runs for _, arguments in ran.tool_calls]
        assert written == [TEXT] * TURNS
        assert cuts(sim, dialect) == 1


@every_format
@pytest.mark.parametrize("how", ["sync", "sync-stream"])
def test_behind_a_gateway_too(dialect: str, how: How, tmp_path: Path) -> None:
    with Simulator(TEXT, Scenario(deltas=400)) as sim, serving(tmp_path, sim.url) as served:
        runs = turns(dialect, how, served.of(dialect), config=None)
        assert {ran.text == TEXT for ran in runs} == {True}
        assert cuts(sim, dialect) == 1


@every_format
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_in_a_batch_only_those_that_began_before(
    dialect: str, asynchronous: bool, concurrency: int
) -> None:
    with Simulator(TEXT, Scenario(deltas=400)) as sim, quietly():
        bare = MAKES[dialect]().connect(sim.url, asynchronous=asynchronous)
        client: Any = continuation.wrap(bare, config=FAST)
        asked = [request(dialect, LIMIT, {})] * TURNS

        async def collect() -> list[Any]:
            mine: Any = getattr(client, "aio", client)
            async with getattr(bare, "aio", bare):
                batch = continuation.run_batch(mine, asked, concurrency=concurrency)
                return [result async for result in batch]

        if asynchronous:
            results = asyncio.run(collect())
        else:
            with contextlib.closing(bare):
                results = list(continuation.run_batch(client, asked, concurrency=concurrency))
        assert [result.error for result in results if result.error] == []
        assert 1 <= cuts(sim, dialect) <= concurrency


def test_a_batch_of_the_command_line_is_cut_no_more_often_than_it_has_workers(
    tmp_path: Path,
) -> None:
    given, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = (json.dumps({"id": f"p{n}", "prompt": f"Write {n}."}) for n in range(40))
    given.write_text("".join(f"{line}\n" for line in lines))
    with Simulator(TEXT, Scenario(deltas=400)) as sim:
        line = ["run", "--batch", str(given), "--out", str(out), "--base-url", sim.url]
        line += ["--model", MODEL, "--max-tokens", str(LIMIT), "--concurrency", "4"]
        assert main(line) == 0
        assert limits(sim).count(LIMIT) <= 4


@every_format
@every_way
def test_what_is_in_the_learned_file_holds_for_another_client(
    dialect: str, how: How, tmp_path: Path
) -> None:
    config = Policy(learned_file=str(tmp_path / "learned.json"), backoff_seconds=0)
    with Simulator(TEXT, Scenario(deltas=400)) as sim:
        turns(dialect, how, sim, 1, config=config)
        sim.requests.clear()
        turns(dialect, how, sim, 2, config=config)
        assert cuts(sim, dialect) == 0
        assert len(sim.posts) == 2


PROCESS = """
import sys, anthropic, continuation
client = continuation.wrap(anthropic.Anthropic(base_url=sys.argv[1], api_key="k"),
    learned_file=sys.argv[2])
ask = {"model": "claude-opus-5", "max_tokens": 1000}
client.messages.create(**ask, messages=[{"role": "user", "content": "Go."}])
"""


def test_a_second_process_begins_there(tmp_path: Path) -> None:
    with Simulator(TEXT, Scenario(deltas=400)) as sim:
        for _ in range(2):
            command = [sys.executable, "-c", PROCESS, sim.url, str(tmp_path / "learned.json")]
            subprocess.run(command, check=True)
        assert limits(sim) == [LIMIT, 128_000, 128_000]


def test_a_turn_that_begins_while_the_first_is_healed_knows_it_already() -> None:
    """What is known is known with the head of the larger answer, not with its end."""
    gate = threading.Event()
    with Simulator(TEXT) as sim, anthropic.Anthropic(base_url=sim.url, api_key="k") as bare:
        sim.script([cut("One, "), end("One, two.", gate=gate, gate_at=1), end("One.")])
        client = continuation.wrap(bare, config=FAST)
        first = threading.Thread(target=lambda: client.messages.create(**ask()))
        first.start()
        inner: Any = client._client
        known = inner.engine.learned.facts
        until(lambda: any("needed" in facts for facts in known().values()))
        with client.messages.stream(**ask()) as stream:
            stream.until_done()
        gate.set()
        first.join()
        assert limits(sim) == [1000, 128_000, 128_000]


@pytest.mark.parametrize("how", ["sync", "async-stream"])
def test_a_request_without_a_limit_begins_there_too(how: How) -> None:
    """The default limit of Gemini's models is a small part of what they may write."""
    with Simulator(LONG, Scenario(deltas=400)) as sim:
        asked = request("gemini", LIMIT, {})
        del asked["config"]["max_output_tokens"]
        runs = play_all([MAKES["gemini"]() for _ in range(4)], how, sim, [asked] * 4)
        assert {ran.text == LONG for ran in runs} == {True}
        outcomes = [str(ran.told.outcome) for ran in runs]
        assert outcomes == ["healed", "complete", "complete", "complete"]


# --- never dearer than to forget ----------------------------------------------------------------


def test_a_request_below_the_smallest_limit_stays_as_it_is(sim: Simulator) -> None:
    sim.script([cut("One, "), end("One, two."), cut("On")])
    with anthropic.Anthropic(base_url=sim.url, api_key="k") as bare:
        client = continuation.wrap(bare, config=FAST)
        client.messages.create(**ask())
        probe = client.messages.create(**ask(max_tokens=5))
    assert probe.stop_reason == "max_tokens"
    assert limits(sim) == [1000, 128_000, 5]


def test_a_larger_limit_than_any_answer_needed_stays_as_it_is(sim: Simulator) -> None:
    sim.script([cut("One, "), end("One, two.", usage={"output_tokens": 4_000}), end("One.")])
    with anthropic.Anthropic(base_url=sim.url, api_key="k") as bare:
        client = continuation.wrap(bare, config=FAST)
        client.messages.create(**ask())
        client.messages.create(**ask(max_tokens=8_000))
        raw = sim.posts[-1].raw
    assert limits(sim) == [1000, 128_000, 8_000]
    assert b"stream" not in raw


@pytest.mark.parametrize("off", [{"remember_limit": False}, {"escalate": False}], ids=str)
def test_what_is_switched_off_raises_nothing(sim: Simulator, off: dict[str, Any]) -> None:
    sim.script([cut("One, "), end("One, two."), end("One.")])
    with anthropic.Anthropic(base_url=sim.url, api_key="k") as bare:
        client = continuation.wrap(bare, config=FAST)
        client.messages.create(**ask())
        with continuation.override(**off):
            client.messages.create(**ask())
    assert limits(sim) == [1000, 128_000, 1000]


BUSY = Reply(status=429, error=("rate_limit_error", "slow down"))


@pytest.mark.parametrize(
    ("answers", "sent"),
    [
        # The raise is refused, and the caller's own limit is not: it is forgotten.
        ([BUSY, end("One."), end("One.")], [128_000, 1000, 1000]),
        # Both are refused, so the limit is not the reason: it is kept.
        ([BUSY, BUSY, end("One.")], [128_000, 1000, 128_000]),
    ],
    ids=["by the limit", "by the rate"],
)
def test_a_429_that_the_raise_caused_makes_it_forgotten(
    sim: Simulator, answers: list[Reply], sent: list[int]
) -> None:
    sim.script([cut("One, "), end("One, two."), *answers])
    with anthropic.Anthropic(base_url=sim.url, api_key="k", max_retries=0) as bare:
        client = continuation.wrap(bare, config=FAST)
        for _ in range(3):
            with contextlib.suppress(anthropic.RateLimitError):
                client.messages.create(**ask())
    assert limits(sim) == [1000, 128_000, *sent]


def test_a_credit_that_affords_less_makes_it_forgotten(sim: Simulator) -> None:
    text = "This request requires more credits, or fewer max_tokens. You requested up to 16384 "
    text += "tokens, but can only afford 2000."
    poor = Reply(status=402, error=("insufficient_credits", text))
    sim.script([cut("One, "), end("One, two."), poor, end("One."), end("One.")])
    runs = [chat.Ran() for _ in range(3)]
    play_all(runs, "sync", sim, [chat.ask()] * 3, chat.playing(FAST, "openrouter"))
    sent = chat.limits(sim)
    assert sent == [1000, 16_384, 16_384, 1000, 1000]
    assert [ran.error for ran in runs] == [None] * 3


def test_who_may_not_stream_gets_the_caller_s_own_request(sim: Simulator) -> None:
    denied = Reply(status=403, error=("permission_error", "not allowed to stream"))
    sim.script([cut("One, "), end("One, two."), denied, end("One.")])
    with anthropic.Anthropic(base_url=sim.url, api_key="k", max_retries=0) as bare:
        client = continuation.wrap(bare, config=FAST)
        client.messages.create(**ask())
        assert client.messages.create(**ask()).content[0].text == "One."
    assert limits(sim) == [1000, 128_000, 128_000, 1000]


def test_a_repaired_history_begins_at_the_raised_limit_too() -> None:
    """An agent's session is repaired in each turn, and each turn is as long as the others."""
    history = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "toolu_1", "name": "Write", "input": {}}]},
        {"role": "user", "content": "And then?"},
    ]  # fmt: skip
    with Simulator(TEXT, Scenario(deltas=400)) as strict:
        runs = [MAKES["anthropic-messages"]() for _ in range(4)]
        asked = [ask(messages=history)] * 4
        play_all(runs, "sync-stream", strict, asked)
        assert {ran.text == TEXT for ran in runs} == {True}
        assert limits(strict).count(1000) <= 2, "the refused one, and the one that was cut"


# --- a body made of a stream --------------------------------------------------------------------


@every_format
@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("scene", [{}, {"call": True}, {"thinking": 200}], ids=str)
def test_a_body_made_of_a_stream_is_the_body(dialect: str, how: How, scene: Any) -> None:
    more = {**(THINKS[dialect] if "thinking" in scene else {}), **LARGE.get(dialect, {})}
    with Simulator(TEXT, Scenario(deltas=400, **scene)) as sim:
        thinks = {"thinking": {"type": "enabled", "budget_tokens": 1_024}}
        more = {**more, **(thinks if "thinking" in more else {})}
        asked = request(dialect, 1_100, more)
        plain, first, made = MAKES[dialect](), MAKES[dialect](), MAKES[dialect]()
        play_all([plain], how, sim, [request(dialect, 20_000, _room(more))], config=None)
        play_all([first, made], how, sim, [asked] * 2)
        assert made.told.outcome is Outcome.COMPLETE
        assert "stream" in str(sim.posts[-1].path) or body_of(sim.posts[-1])["stream"]
        assert (made.text, made.tool_calls) == (plain.text, plain.tool_calls)
        assert _essence(made.answer) == _essence(plain.answer)


def _room(more: Mapping[str, Any]) -> dict[str, Any]:
    return (
        {**more, "max_completion_tokens": 20_000} if "max_completion_tokens" in more else {**more}
    )


DIFFER = {"id", "created", "created_at", "completed_at", "call_id", "signature", "response_id",
          "sdk_http_response", "max_output_tokens", "encrypted_content", "annotations",
          "thought_signature"}  # fmt: skip
"""Made anew for each answer, or not in a stream of that format."""


def _essence(answer: Any) -> Any:
    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            kept = {key: plain(each) for key, each in value.items() if key not in DIFFER}
            return {key: each for key, each in kept.items() if each not in (None, {}, [])}
        if isinstance(value, list):
            # Gemini streams a signature in a part of its own, with an empty text.
            return [each for each in map(plain, value) if each != {"text": ""}]
        return value

    return plain(answer.model_dump(mode="json", exclude_none=True))


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_stream_for_a_body_that_breaks_is_gone_on_with(sim: Simulator, how: How) -> None:
    broken = end("One, two, ", drop=4)
    sim.script([cut("One, "), end("One, two."), broken, end("three.")])
    runs = play_all([MAKES["anthropic-messages"]() for _ in range(2)], how, sim, [ask()] * 2)
    assert runs[1].text == "One, two, three."
    assert runs[1].told.outcome is Outcome.HEALED


@pytest.mark.parametrize("how", ["sync", "async"])
def test_the_callers_timeout_bounds_a_stream_for_a_body(sim: Simulator, how: How) -> None:
    slow = end("One, two, three, four, five. " * 40, deltas=20, slow=0.05)
    sim.script([cut("One, "), end("One, two."), slow])
    runs = [Impatient(), Impatient()]
    began = time.monotonic()
    play_all(runs, how, sim, [ask()] * 2)
    assert time.monotonic() - began < 3
    assert runs[1].told.reason == "the caller's timeout is spent"
    assert runs[1].text.startswith("One, two, three")


class Impatient(messages.Ran):
    def create(self, client: Any, request: dict[str, Any]) -> Any:
        return client.messages.create(**request, timeout=0.8)


def test_an_error_in_a_stream_for_a_body_is_an_error_to_the_caller(sim: Simulator) -> None:
    overloaded = end("One.", error_after=0, error=("overloaded_error", "busy"))
    sim.script([cut("One, "), end("One, two."), *[overloaded] * 9])
    with anthropic.Anthropic(base_url=sim.url, api_key="k", max_retries=0) as bare:
        client = continuation.wrap(bare, config=FAST)
        client.messages.create(**ask())
        with pytest.raises(anthropic.APIError):
            client.messages.create(**ask())


def test_without_a_raise_a_body_passes_byte_for_byte(sim: Simulator) -> None:
    raw = b'{ "id":"msg_1",  "type":"message","role":"assistant","model":"m","novel":[1, 2],\n'
    raw += b'"content":[{"type":"text","text":"One."}],"stop_reason":"end_turn",'
    raw += b'"usage":{"input_tokens":1,"output_tokens":1}}'
    sim.script([cut("One, "), end("One, two."), Reply(raw_body=raw)])
    with anthropic.Anthropic(base_url=sim.url, api_key="k") as bare:
        client = continuation.wrap(bare, config=FAST)
        client.messages.create(**ask())
        answer = client.messages.with_raw_response.create(**ask(max_tokens=4_000))
    assert answer.http_response.content == raw


# --- near the window ----------------------------------------------------------------------------

WORDS = "word " * 1_000


@pytest.mark.parametrize(
    ("thousands", "raised"),
    [(10, 16_384), (85, None), (100, None)],
    ids=["far from it", "near it", "in it"],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_raised_limit_leaves_room_for_the_prompt(
    thousands: int,
    raised: int | None,
    stream: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """gpt-4o shares 128,000 tokens between prompt and answer, and refuses what is above."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))  # no vocabulary
    learned, seen = Learned(), list[int]()

    def provider(sent: dict[str, Any]) -> Answered:
        prompt = len(json.dumps(sent["messages"])) // 5
        seen.append(sent["max_tokens"])
        if prompt + sent["max_tokens"] > 128_000:
            return 400, {"content-type": "application/json"}, [b"{}"], None
        message = {"role": "assistant", "content": "One."}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": prompt, "completion_tokens": 3}
        return body({"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage})

    asked = chat.ask(messages=[{"role": "user", "content": WORDS * thousands}], stream=stream)
    key = ("host", learned.digest(None), "gpt-4o")
    learned.learn(key, needed=9_000)
    drive(provider, asked, FAST, path="/v1/chat/completions", learned=learned)
    assert len(seen) == 1, "nothing is refused"
    assert raised is None or seen == [raised]
    assert thousands * 1_000 + seen[0] <= 128_000
