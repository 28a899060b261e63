"""Every key of the policy changes something: without the key, its test here fails."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

import anthropic
import draw_keys
import pytest
from support.drive import STREAM, Answered, call_block, closing, drive, opening, sse, text_block
from support.messages_server import events, thought
from support.sdks.messages import OLD, ask, limits, run
from support.sdks.turn import FAST, How, body_of
from support.spending import repeat, spend

import continuation
from continuation import Policy
from continuation.config import load, parse
from continuation.engine.commands import StreamBody
from continuation.engine.turn import Engine
from continuation.policy import ALIASES, CLIENT_KEYS, KEYS, CallKeys, PolicyKeys, check, possible
from continuation.registry import dialects
from continuation.simulator import Reply, Simulator, Text, Thinking, ToolUse
from continuation.types import Head, Request

WRITE = {"path": "a.txt", "content": "hello world, this is the whole file"}


def cut(*blocks: Any, **more: Any) -> Reply:
    return Reply(blocks=blocks or [Text("One, ")], stop="max_tokens", **more)


def end(*blocks: Any, **more: Any) -> Reply:
    return Reply(blocks=blocks or [Text("two.")], **more)


LONG = json.dumps({"path": "a.txt", "text": " ".join(f"{n} is {n * 7}," for n in range(200))})
BUSY = Reply(status=529, error=("overloaded_error", "busy"))
REFUSED = Reply(status=400, error=("invalid_request_error", "no"))

Look = Callable[[Policy], object]


def turn(
    replies: list[Reply], see: Callable[[Any, Simulator], object], how: How = "sync", **request: Any
) -> Look:
    """Look at one turn against the simulator."""

    def look(policy: Policy) -> object:
        with Simulator() as sim:
            sim.script(replies)
            return see(run(sim, how, policy=policy, **request), sim)

    return look


def completing(*keys: str) -> Look:
    """Look whether a call that was cut at the ceiling is completed, with these keys at work."""
    look = turn(
        [cut(ToolUse("Write", LONG, cut=900)), end(Text(LONG[900:-2]))],
        lambda ran, _: ran.said.stop_reason,
        "sync-stream",
        max_tokens=128_000,
    )
    at_work: dict[str, Any] = {"truncated_tool_call": "complete", "complete_seams": "any"}
    return lambda policy: look(replace(policy, **{key: at_work[key] for key in keys}))


def sent(_: Any, sim: Simulator) -> list[int]:
    return limits(sim)


def posts(_: Any, sim: Simulator) -> int:
    return len(sim.posts)


def asked(_: Any, sim: Simulator) -> list[str]:
    return [request.method for request in sim.requests]


def last_message(_: Any, sim: Simulator) -> Any:
    return body_of(sim.posts[-1])["messages"][-1]


def twice(policy: Policy) -> object:
    """Look at the limits of two turns on one client."""
    with (
        Simulator() as sim,
        anthropic.Anthropic(base_url=sim.url, api_key="k", max_retries=0) as bare,
    ):
        client = continuation.wrap(bare, config=policy)
        sim.script([cut(), end(), end()])
        client.messages.create(**ask(), timeout=600)
        with client.messages.stream(**ask()) as stream:
            stream.until_done()
        return limits(sim)


def listens(policy: Policy) -> object:
    """Look whether a stream's silence is bounded."""
    engine = Engine(dialects(), policy, None, float)
    dialect = engine.claims("POST", "/v1/messages")
    assert dialect is not None
    body = json.dumps(ask(stream=True)).encode()
    script = engine.begin(dialect, Request("host", "/v1/messages", {}, body), None).run()
    next(script)
    script.send(Head(200, {"content-type": "text/event-stream"}))
    command = script.send(None)
    assert isinstance(command, StreamBody)
    return command.silence is not None


def held(marker: bytes, events: list[dict[str, Any]]) -> Look:
    """Look whether something waits for the end of its stream."""

    def provider(_: dict[str, Any]) -> Answered:
        return 200, STREAM, [sse([event]) for event in events], None

    def look(policy: Policy) -> object:
        pieces = drive(provider, ask(stream=True), policy).pieces
        first = next(n for n, piece in enumerate(pieces) if marker in piece)
        return "held" if b"message_stop" in b"".join(pieces[: first + 1]) else "live"

    return look


def first_words(policy: Policy) -> object:
    """Look whether the words of a recovery that begins oddly are shown early."""
    before = "The quick brown fox jumps over the lazy dog and then some, "
    odd = "Continuing from where I left off, "
    words = [f"it is {n} now that we go on with it and so on " for n in range(80)]
    answers = iter(
        [
            [opening(), *text_block(0, [before]), *closing("max_tokens", 9)],
            [opening(), *text_block(0, [odd, *words]), *closing("end_turn", 9)],
        ]
    )

    def provider(_: dict[str, Any]) -> Answered:
        return 200, STREAM, [sse([event]) for event in next(answers)], None

    pieces = drive(provider, ask(stream=True), replace(policy, model_max_output_tokens=1000)).pieces
    return next(n for n, piece in enumerate(pieces) if b"it is 0" in piece or b"Cont" in piece) < 15


THINKS = [json.loads(event.partition("\nevent")[0]) for event in events(thought("Hm"))]
CALLS = [opening(), *call_block(0, ['{"path": ', '"a"}']), *closing("tool_use", 9)]

# key -> what to look at, what the default makes of it, another value, what that makes of it
CASES: dict[str, tuple[Look, object, object, object]] = {
    "enabled": (turn([cut(), end()], sent), [1000, 128_000], False, [1000]),
    "escalate": (
        turn([cut(), end()], lambda ran, _: [str(a.mode) for a in ran.told.attempts]),
        ["first", "replace"],
        False,
        ["first", "recovery"],
    ),
    "max_recoveries": (turn([cut(Text(f"{n}, ")) for n in range(9)], posts), 5, 1, 3),
    "max_drop_recoveries": (
        turn([end(Text(f"{n}, and so on"), drop=3) for n in range(9)], posts, "sync-stream"),
        4,
        1,
        2,
    ),
    "max_attempts": (turn([cut(Text(f"{n}, ")) for n in range(9)], posts), 5, 2, 2),
    "max_retries": (turn([cut(), *[BUSY] * 9], posts, "sync-stream"), 4, 1, 3),
    "max_turn_seconds": (
        lambda policy: (
            spend(repeat("cut"), replace(policy, model_max_output_tokens=4000), seconds=9).begun
        ),
        [0, 9, 18, 27],
        15,
        [0, 9],
    ),
    "max_turn_output_tokens": (
        turn([cut(usage={"output_tokens": 1000}), end()], sent),
        [1000, 128_000],
        3000,
        [1000, 2000],
    ),
    "leave_limits_below": (turn([cut(), end()], sent, max_tokens=300), [300, 128_000], 301, [300]),
    "model_max_output_tokens": (turn([cut(), end()], sent), [1000, 128_000], 5000, [1000, 5000]),
    "initial_limit": (turn([end()], sent, "sync-stream"), [1000], "ceiling", [128_000]),
    "clamp": (
        turn([end()], sent, "sync-stream", max_tokens=200_000),
        [200_000],
        True,
        [128_000],
    ),
    "remember_limit": (twice, [1000, 128_000, 128_000], False, [1000, 128_000, 1000]),
    "stream_tool_calls": (held(b"input_json_delta", CALLS), "held", "live", "live"),
    "stream_thinking": (held(b"thinking_delta", THINKS), "held", "live", "live"),
    "truncated_tool_call": (
        turn(
            [cut(Text("I write."), ToolUse("Write", WRITE, cut=20))] * 2,
            lambda ran, _: "was not run" in ran.text,
        ),
        True,
        "drop",
        False,
    ),
    "complete_tools": (
        completing("truncated_tool_call", "complete_seams"),
        "tool_use",
        ["Edit"],
        "max_tokens",
    ),
    "complete_seams": (completing("truncated_tool_call"), "max_tokens", "any", "tool_use"),
    "truncated_document": (
        turn(
            [cut(Text(LONG[:900])), end(Text(LONG[900:]))],
            lambda ran, _: ran.said.stop_reason,
            "sync-stream",
            max_tokens=128_000,
            output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}},
        ),
        "max_tokens",
        "complete",
        "end_turn",
    ),
    "less_thinking": (
        turn(
            [cut(Thinking("Hm."))] * 2 + [end()],
            lambda ran, sim: [body_of(post)["thinking"]["budget_tokens"] for post in sim.posts],
            model=OLD,
            max_tokens=8000,
            thinking={"type": "enabled", "budget_tokens": 6000},
        ),
        [6000, 6000],
        True,
        [6000, 6000, 1024],
    ),
    "forced_tool_choice": (
        turn(
            [cut(ToolUse("Write", WRITE, cut=20)), end(ToolUse("Write", WRITE), stop="tool_use")],
            lambda ran, sim: len(sim.posts),
            tools=[{"name": "Write", "input_schema": {"type": "object"}}],
            tool_choice={"type": "any"},
        ),
        1,
        "heal",
        2,
    ),
    "on_failure": (
        turn([cut(), *[REFUSED] * 2], lambda ran, _: ran.said.stop_reason),
        "end_turn",
        "truncated",
        "max_tokens",
    ),
    "on_dead": (
        turn(
            [end(Text("One, two, three."), drop=6, deltas=4), *[REFUSED] * 2],
            lambda ran, _: ran.error and type(ran.error).__name__,
            "sync-stream",
        ),
        "APIStatusError",
        "stop",
        None,
    ),
    "paused": (
        turn([end(stop="pause_turn"), end()], posts, model=OLD),
        2,
        "return",
        1,
    ),
    "unkept_promise": (
        turn(
            [end(Text("I edit the file:")), end(ToolUse("Write", WRITE), stop="tool_use")],
            posts,
            tools=[{"name": "Write", "input_schema": {"type": "object"}}],
        ),
        1,
        "ask",
        2,
    ),
    "resend_failed": (turn([end(Text("")), end()], posts), 2, False, 1),
    "refused": (
        turn([end()], lambda _, sim: body_of(sim.posts[0]).get("fallbacks")),
        None,
        "fallback",
        "default",
    ),
    "stop_repetition": (
        turn(
            [cut(Text("The sea is calm.\n" * 300)), end()],
            lambda ran, _: "The sea" in ran.text,
            max_tokens=9_000,
        ),
        False,
        True,
        True,
    ),
    "stall": (listens, True, "off", False),
    "stream_bodies": (
        turn([end()], lambda _, sim: body_of(sim.posts[0]).get("stream"), max_tokens=20_000),
        True,
        "never",
        None,
    ),
    "usage": (
        turn(
            [cut(usage={"output_tokens": 1000}), end(usage={"output_tokens": 7})],
            lambda ran, _: ran.said.usage.output_tokens,
        ),
        7,
        "billed",
        1007,
    ),
    "prefill": (
        turn(
            [cut(Text("One, ")), end()],
            lambda ran, sim: last_message(ran, sim)["role"],
            "sync-stream",
            model=OLD,
        ),
        "assistant",
        False,
        "user",
    ),
    "verify_stop_reason": (
        turn([end(Text("Half a wor"), usage={"output_tokens": 1000}), end()], posts),
        2,
        False,
        1,
    ),
    "models_endpoint": (
        turn([cut(), end()], asked),
        ["POST", "GET", "POST"],
        False,
        ["POST", "POST"],
    ),
    "recovery_prompt": (
        turn(
            [cut(Text("The quick brown fo")), end(Text("x."))],
            lambda ran, sim: "Weiter" in str(last_message(ran, sim)),
            "sync-stream",
        ),
        False,
        "Weiter, bitte: {anchor}",
        True,
    ),
    "seam_buffer_chars": (first_words, False, 20, True),
    "backoff_seconds": (
        lambda policy: spend(repeat("cut", "529"), policy).waits[0] > 2,
        False,
        4.0,
        True,
    ),
    "max_wait_seconds": (
        lambda policy: spend(repeat("cut", "429 later"), policy).waits[:1],
        [50],
        10,
        [],
    ),
}
TOOLS = [{"name": "Bash", "input_schema": {"type": "object"}}]
OPEN_CALL: list[Any] = [
    {"role": "user", "content": "Run it."},
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}],
    },
]
CASES |= {
    "unanswered_tool_calls": (
        turn(
            [end()],
            lambda _, sim: "tool_use" in str(body_of(sim.posts[-1])["messages"]),
            messages=[*OPEN_CALL, {"role": "user", "content": "Are you there?"}],
            tools=TOOLS,
        ),
        True,
        "purge",
        False,
    ),
    "resume_text": (
        lambda policy: turn(
            [end()],
            lambda ran, sim: "Weiter" in str(last_message(ran, sim)),
            messages=OPEN_CALL,
            tools=TOOLS,
        )(replace(policy, auto_resume=True)),
        False,
        "Weiter.",
        True,
    ),
}
PLAIN = {"backoff_seconds", "max_wait_seconds"}


@pytest.mark.parametrize("key", KEYS)
def test_every_key_changes_what_it_says(key: str) -> None:
    if key in ELSEWHERE:
        assert f"{key}=" in Path(__file__).parent.joinpath(ELSEWHERE[key]).read_text(
            encoding="utf-8"
        )
        return
    look, by_default, value, then = CASES[key]
    base = Policy() if key in PLAIN else FAST
    assert look(base) == by_default
    assert look(replace(base, **check({key: value}))) == then


ELSEWHERE = {
    "learned_file": "limits/test_learned.py",
    "tracing": "reports/test_tracing.py",
    "repair": "engine/test_history_repair.py",
    "auto_resume": "engine/test_history_repair.py",
    "log_repairs": "engine/test_history_repair.py",
    "chain_store": "providers/openai_responses/test_chain.py",
    "store_seconds": "providers/openai_responses/test_chain.py",
}
"""Keys whose tests stand in a file of their own."""


def test_thinking_and_streams_can_be_asked_for_live() -> None:
    # The other side of "held": text is never held.
    assert held(b"text_delta", [opening(), *text_block(0, ["Hi"]), *closing("end_turn", 9)])(
        Policy()
    ) == ("live")


# --- the object ---------------------------------------------------------------------------------


HINTS = get_type_hints(Policy, include_extras=True)
RANGES = {key: hint.__metadata__[0] for key, hint in HINTS.items() if get_origin(hint) is Annotated}


@pytest.mark.parametrize("key", KEYS)
def test_every_key_is_documented_with_what_it_may_be(key: str) -> None:
    assert draw_keys.docstrings()[key].endswith(".")
    assert possible(key)
    default = Policy.__dataclass_fields__[key].default
    assert (key in RANGES) == (type(default) in (int, float))


@pytest.mark.parametrize("key", RANGES)
def test_the_ends_of_a_range_belong_to_it_and_nothing_beyond(key: str) -> None:
    low, high = RANGES[key]
    assert possible(key).endswith(f", from {low} to {high}")
    for value in (low, high):
        assert getattr(Policy(**{key: value}), key) == value
    for value in (low - 1, high + 1):
        with pytest.raises(ValueError, match=f"{key} = {value}: must be from {low} to {high}"):
            Policy(**{key: value})


@pytest.mark.parametrize(
    ("taken", "ours"), [(PolicyKeys, {*KEYS}), (CallKeys, {*KEYS} - CLIENT_KEYS)]
)
def test_keyword_arguments_are_typed_like_the_fields(taken: type, ours: set[str]) -> None:
    typed = get_type_hints(taken)
    assert typed.keys() == ours | ALIASES.keys()
    plain = get_type_hints(Policy)
    assert {key: typed[key] for key in ours} == {key: plain[key] for key in ours}
    assert {typed[key] for key in ALIASES} == {bool}


@pytest.mark.parametrize(
    ("values", "kind", "said"),
    [
        ({"escalate": 1}, TypeError, "escalate = 1: must be bool, not int"),
        (
            {"max_retries": 1.5},
            TypeError,
            "max_retries = 1.5: must be int, from 0 to 10, not float",
        ),
        (
            {"model_max_output_tokens": True},
            TypeError,
            "model_max_output_tokens = True: must be int",
        ),
        ({"usage": ["turn"]}, ValueError, "usage = ['turn']: choose one of 'turn', 'billed'"),
        ({"recovery_prompt": "{"}, ValueError, "write other braces twice"),
        ({"recovery_prompt": "{text}"}, ValueError, "write other braces twice"),
        ({"recovery_prompt": "x" * 500 + "{"}, ValueError, "x...: "),
    ],
)
def test_a_wrong_value_is_told_with_key_value_and_remedy(
    values: dict[str, Any], kind: type[Exception], said: str
) -> None:
    for make in (lambda: Policy(**values), lambda: check(values)):
        with pytest.raises(kind) as caught:
            make()
        assert said in str(caught.value)


# old key, old value -> what each way of saying it answers
OLD_NAMES: list[tuple[str, object, str]] = [
    ("min_limit", 9, "'min_limit' is 'leave_limits_below' now"),
    ("ceiling", 9, "'ceiling' is 'model_max_output_tokens' now"),
    ("first_limit", "ceiling", "'first_limit' is 'initial_limit' now"),
    ("on_failure", "truth", "'truth' is 'truncated' now"),
    ("distrust_labels", False, "'distrust_labels' is 'verify_stop_reason' now"),
    ("seam_hold", 9, "'seam_hold' is 'seam_buffer_chars' now"),
    ("quiet", True, "'quiet' is 'log_repairs' now (inverted"),
    ("open_calls", "purge", "'open_calls' is 'unanswered_tool_calls' now"),
    ("cut_call", "drop", "'cut_call' is 'truncated_tool_call' now"),
    ("cut_call", "guide", "'truncated_tool_call' now, and 'guide' is 'retry_smaller'"),
    ("truncated_tool_call", "guide", "'guide' is 'retry_smaller' now"),
    ("forced_calls", "heal", "'forced_calls' is 'forced_tool_choice' now"),
    ("tool_stream", "live", "'tool_stream' is 'stream_tool_calls' now"),
    ("thinking_stream", "live", "'thinking_stream' is 'stream_thinking' now"),
]


@pytest.mark.parametrize(("key", "value", "said"), OLD_NAMES)
def test_an_old_name_is_answered_with_the_new_one(
    tmp_path: Path, key: str, value: object, said: str
) -> None:
    path = tmp_path / "c.toml"
    ways: list[Callable[[], object]] = [
        lambda: Policy(**{key: value}),  # type: ignore[arg-type]
        lambda: check({key: value}),
        lambda: continuation.override(**{key: value}).__enter__(),  # type: ignore[arg-type]
        lambda: parse(f"{key}={value if isinstance(value, str) else json.dumps(value)}"),
        lambda: path.write_text(f"[defaults]\n{key} = {json.dumps(value)}\n") and load(path),
        lambda: path.write_text(f'[models."m*"]\n{key} = {json.dumps(value)}\n') and load(path),
    ]
    for way in ways:
        with pytest.raises((ValueError, TypeError)) as caught:
            way()
        assert f"{key} = " in str(caught.value)
        assert said in str(caught.value)
    if key not in KEYS:
        path.write_text(f"{key} = {json.dumps(value)}\n")
        with pytest.raises(ValueError, match="now"):
            load(path)


def test_a_policy_names_the_nearest_field() -> None:
    with pytest.raises(TypeError, match="did you mean 'max_recoveries'"):
        Policy(max_recoverys=3)  # type: ignore[call-arg]


def test_a_policy_shows_what_differs_and_no_password() -> None:
    told = repr(Policy(max_recoveries=1, chain_store="postgresql://me:secret@db/chains"))
    assert "max_recoveries=1" in told
    assert "chain_store='postgresql://...@db/chains'" in told
    assert "secret" not in told


def test_a_policy_survives_copies() -> None:
    made = Policy(max_recoveries=1, log_repairs=False)
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == replace(made) == made


def test_the_page_on_tuning_has_every_key_with_default_and_range() -> None:
    page = draw_keys.PAGE.read_text(encoding="utf-8")
    assert draw_keys.with_table(page) == page
    assert all(f"\n| `{key}` | " in page for key in KEYS)
