"""Half a function call is never run, whoever runs calls; and a signature is never touched."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st
from support.drive_gemini import (
    BEFORE,
    ECHO,
    SIGNATURE,
    Chunk,
    ask,
    call,
    chunk,
    parts,
    reasons,
    said,
    sse,
    text,
    unary,
)
from support.sdks.gemini import CEILING, DOORS, HALF, LONG, NEW, OLD, Door, connect, limits, run
from support.sdks.turn import BOTH, FAST, HOWS, STREAMS, How, cut, end

import continuation
from continuation import Policy
from continuation.providers.gemini.parts import joined, plain
from continuation.simulator import Raw, Reply, Scenario, Simulator, Thinking, ToolUse
from continuation.types import Outcome

WRITE = {"path": "a.txt", "content": "hello world, this is the whole file"}
WHOLE = ToolUse("Write", WRITE)


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(scenario=Scenario(strict_signatures=True)) as running:
        yield running


# --- automatic function calling ---------------------------------------------------------------


class Recorder:
    """A tool of the caller's that notes how it was run."""

    def __init__(self) -> None:
        self.runs: list[dict[str, str]] = []

    def tool(self, how: How) -> Any:
        def Write(path: str, content: str = "") -> str:  # noqa: N802 - the model's name for it
            """Write a file."""
            self.runs.append({"path": path, "content": content})
            return "written"

        async def later(path: str, content: str = "") -> str:
            """Write a file."""
            return str(Write(path, content))

        later.__name__ = "Write"
        return later if how.startswith("async") else Write


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("how", BOTH)
def test_a_call_that_was_cut_is_run_once_and_whole(sim: Simulator, how: How, door: Door) -> None:
    recorder = Recorder()
    sim.script([cut(HALF), end(WHOLE), end("Done.")])
    ran = run(sim, how, door=door, tools=[recorder.tool(how)])
    assert recorder.runs == [WRITE]
    assert ran.text == "Done."
    assert [post.status for post in sim.posts] == [200] * 3


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("how", STREAMS)
@pytest.mark.parametrize("policy", [FAST, Policy(truncated_tool_call="drop")])
def test_a_call_that_stays_cut_is_never_run(
    sim: Simulator, how: How, door: Door, policy: Policy
) -> None:
    recorder = Recorder()
    sim.script([cut("I write. ", HALF)])
    ran = run(sim, how, door=door, policy=policy, limit=CEILING, tools=[recorder.tool(how)])
    assert recorder.runs == []
    assert ran.calls == []
    assert ran.told.outcome is Outcome.TRUNCATED
    assert len(sim.posts) == 1


@pytest.mark.parametrize("how", BOTH)
@pytest.mark.parametrize("limit", [1000, CEILING])
@pytest.mark.parametrize("stop", ["max_tokens", "end_turn"])
def test_a_call_with_all_that_its_tool_declares_was_not_cut_whatever_the_label(
    sim: Simulator, how: How, limit: int, stop: str
) -> None:
    """It is run, neither touched nor paid again."""
    recorder = Recorder()
    written = Reply([WHOLE], stop, usage={"candidatesTokenCount": limit})
    sim.script([written, end("Done.")])
    run(sim, how, door="chats", limit=limit, tools=[recorder.tool(how)])
    assert recorder.runs == [WRITE]
    assert [post.status for post in sim.posts].count(200) == 2
    assert set(limits(sim)) == {limit}


@pytest.mark.parametrize("how", BOTH)
@pytest.mark.parametrize("stop", ["max_tokens", "end_turn"])
def test_a_call_that_lacks_what_its_tool_requires_at_the_limit_is_asked_for_again(
    sim: Simulator, how: How, stop: str
) -> None:
    runs: list[dict[str, str]] = []

    def Write(path: str, content: str) -> str:  # noqa: N802 - the model's name for it
        """Write a file."""
        runs.append({"path": path, "content": content})
        return "written"

    async def later(path: str, content: str) -> str:
        """Write a file."""
        return Write(path, content)

    later.__name__ = "Write"
    half = ToolUse("Write", {"path": "a.txt"})
    usage = {"candidatesTokenCount": 1000}
    sim.script([Reply([half], stop, usage=usage), end(WHOLE), end("Done.")])
    tool = later if how.startswith("async") else Write
    run(sim, how, door="chats", limit=1000, tools=[tool])
    assert runs == [WRITE]
    assert limits(sim)[:2] == [1000, CEILING]


@pytest.mark.parametrize("how", BOTH)
def test_a_call_that_goes_on_lacking_what_its_tool_requires_is_never_run(
    sim: Simulator, how: How
) -> None:
    schema = {"type": "object", "properties": {}, "required": ["path", "content"]}
    declared = types.FunctionDeclaration(name="Write", parameters_json_schema=schema)
    sim.script([cut(WHOLE, ToolUse("Write", {"path": "a.txt"}))])
    tools = [types.Tool(function_declarations=[declared])]
    ran = run(sim, how, limit=CEILING, tools=tools)
    assert [call.args for call in ran.calls] == [WRITE]
    assert ran.told.outcome is Outcome.TRUNCATED


PATH_ONLY = ToolUse("Write", {"path": "a.txt"})
"""What the server makes of a call that was cut in the long argument, which its tool has as well."""
LIVE = Policy(backoff_seconds=0.0, stream_tool_calls="live")


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("said", [[PATH_ONLY], ["I write. ", PATH_ONLY]], ids=["call", "text"])
@pytest.mark.parametrize("policy", [FAST, LIVE], ids=["held", "live"])
def test_a_call_without_an_optional_argument_at_the_limit_is_asked_for_again(
    sim: Simulator, how: How, door: Door, said: list[Any], policy: Policy
) -> None:
    recorder = Recorder()
    sim.script([cut(*said), end("I write. ", WHOLE), end("Done.")])
    ran = run(sim, how, door=door, policy=policy, limit=1000, tools=[recorder.tool(how)])
    assert recorder.runs == [WRITE]
    assert limits(sim)[:2] == [1000, CEILING]
    assert ran.text.endswith("Done.")


STAYS_CUT: dict[str, Any] = {
    "explain": FAST,
    "drop": Policy(truncated_tool_call="drop"),
    "retry_smaller": Policy(truncated_tool_call="retry_smaller", backoff_seconds=0.0),
    "complete": Policy(truncated_tool_call="complete", complete_seams="any", backoff_seconds=0.0),
    "live": LIVE,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("policy", STAYS_CUT)
def test_a_call_that_stays_without_an_optional_argument_at_the_limit_is_never_run(
    sim: Simulator, how: How, door: Door, policy: str
) -> None:
    recorder = Recorder()
    sim.script([cut("I write. ", PATH_ONLY)] * 3)
    tools = [recorder.tool(how)]
    ran = run(sim, how, door=door, policy=STAYS_CUT[policy], limit=CEILING, tools=tools)
    assert recorder.runs == []
    assert ran.calls == []
    assert ran.told.outcome is Outcome.TRUNCATED


@pytest.mark.parametrize("how", BOTH)
def test_of_parallel_calls_only_the_last_may_be_cut(sim: Simulator, how: How) -> None:
    recorder = Recorder()
    sim.script([cut(PATH_ONLY, PATH_ONLY), end("Done.")])
    run(sim, how, door="chats", limit=CEILING, tools=[recorder.tool(how)])
    assert recorder.runs == [{"path": "a.txt", "content": ""}]


@pytest.mark.parametrize("how", HOWS)
def test_a_call_of_an_answer_that_ended_by_itself_is_run_as_it_is(sim: Simulator, how: How) -> None:
    recorder = Recorder()
    sim.script([end(PATH_ONLY), end("Done.")])
    run(sim, how, door="chats", limit=1000, tools=[recorder.tool(how)])
    assert recorder.runs == [{"path": "a.txt", "content": ""}]
    assert set(limits(sim)) == {1000}


@pytest.mark.parametrize("how", STREAMS)
def test_whole_calls_before_a_cut_one_are_run(sim: Simulator, how: How) -> None:
    recorder = Recorder()
    sim.script([cut(WHOLE, HALF), end("Done.")])
    run(sim, how, door="chats", limit=CEILING, tools=[recorder.tool(how)])
    assert recorder.runs == [WRITE]
    assert [post.status for post in sim.posts] == [200, 200]


# --- arguments that come in pieces (Vertex) ---------------------------------------------------

PIECES = types.ToolConfig(
    function_calling_config=types.FunctionCallingConfig(stream_function_call_arguments=True)
)
TOOLS = [
    types.Tool(
        function_declarations=[
            types.FunctionDeclaration(name="Write", parameters_json_schema={"type": "object"})
        ]
    )
]


def named(**more: Any) -> Chunk:
    return {"functionCall": {"name": "Write", **more}, "thoughtSignature": SIGNATURE}


def piece(value: str, *, ends: bool = False) -> Chunk:
    argument = {"jsonPath": "$.path", "stringValue": value}
    return {"functionCall": {"partialArgs": [argument], "willContinue": not ends}}


OPEN = [chunk(named(willContinue=True)), chunk(piece("a."))]
CLOSED = [*OPEN, chunk(piece("txt")), chunk({"functionCall": {}})]
STOP = chunk(text(""), reason="STOP")


def test_pieces_that_end_pass_as_they_came() -> None:
    raw = sse([*CLOSED, STOP])
    assert b"".join(ask([[raw]]).pieces) == raw


@pytest.mark.parametrize("reason", ["STOP", "MAX_TOKENS", None])
def test_pieces_that_end_open_are_no_call(reason: str | None) -> None:
    end = [chunk(text(""), reason=reason)] if reason else []
    whole = [sse([*CLOSED, STOP])]
    driven = ask([sse([*OPEN, *end]), whole])
    assert b"".join(driven.pieces) == sse_of(driven, [*CLOSED])
    refused = ValueError("no")
    driven = ask([sse([chunk(text("I write. ")), *OPEN, *end]), *[refused] * 4])
    assert not any("functionCall" in part for part in parts(driven))


PATH = {"properties": {"path": {"type": "string"}}}
FILE = {"properties": {**PATH["properties"], "content": {"type": "string"}}}


@pytest.mark.parametrize("schema", [PATH, FILE, None], ids=["all", "one missing", "undeclared"])
def test_pieces_that_end_at_the_limit_are_a_call_if_its_declaration_has_no_more(
    schema: Any,
) -> None:
    declared = [{"name": "Write", "parametersJsonSchema": schema}] if schema else []
    tools = [{"functionDeclarations": declared}]
    cut_off = sse([*CLOSED, chunk(text(""), reason="MAX_TOKENS")])
    driven = ask([cut_off, sse([chunk(call(path="a.txt", content="b")), STOP])], tools=tools)
    assert len(driven.requests) == (1 if schema is PATH else 2)
    refused = ValueError("no")
    driven = ask([cut_off, *[refused] * 4], tools=tools)
    shown = any("functionCall" in part for part in parts(driven))
    assert shown is (schema is PATH)


def sse_of(driven: Any, chunks: list[Chunk]) -> bytes:
    """Return what was written, if its parts are those of the chunks, in order."""
    wanted = [p for c in chunks for p in c["candidates"][0]["content"]["parts"]]
    assert parts(driven) == wanted
    assert reasons(driven) == ["STOP"]
    return b"".join(driven.pieces)


@pytest.mark.parametrize("how", ["sync-stream", "async-stream"])
def test_pieces_through_the_sdk_on_vertex(sim: Simulator, how: How) -> None:
    sim.script([cut(HALF), end(WHOLE)])
    ran = run(sim, how, vertex=True, tools=TOOLS, tool_config=PIECES)
    assert ran.reasons == ["STOP"]
    assert ran.calls[-1].will_continue is None
    assert "".join(
        a.string_value or "" for c in ran.calls for a in c.partial_args or []
    ) == "".join(WRITE.values())


def test_a_unary_call_asks_for_whole_arguments(sim: Simulator) -> None:
    sim.script([cut(HALF), end(WHOLE)])
    ran = run(sim, "sync", vertex=True, tools=TOOLS, tool_config=PIECES)
    assert [found.args for found in ran.calls] == [WRITE]


def test_half_a_call_is_kept_only_by_wish() -> None:
    keep = Policy(
        backoff_seconds=0.0, models_endpoint=False, truncated_tool_call="keep", escalate=False
    )
    driven = ask([sse([*OPEN, chunk(text(""), reason="MAX_TOKENS")])], policy=keep)
    assert parts(driven)[:2] == [OPEN[n]["candidates"][0]["content"]["parts"][0] for n in (0, 1)]


# --- signatures -------------------------------------------------------------------------------

PARTS = st.lists(
    st.one_of(
        st.builds(text, st.text(max_size=5)),
        st.builds(text, st.text(max_size=5), thought=st.just(value=True)),
        st.builds(text, st.text(max_size=5), thoughtSignature=st.sampled_from(["YQ==", "Yg=="])),
        st.builds(text, st.text(max_size=5), partMetadata=st.just({"a": 1})),
        st.builds(call, path=st.text(max_size=5)),
        st.just({"thoughtSignature": "YQ=="}),
        st.just({"executableCode": {"code": "1"}}),
    ),
    max_size=8,
)


@given(PARTS)
def test_signed_parts_stay_as_they_are_and_plain_ones_are_joined(given: list[Chunk]) -> None:
    found = joined(given)
    assert [p for p in found if not plain(p)] == [p for p in given if not plain(p)]
    assert all(p["text"] for p in found if plain(p))
    for kind in (None, True):
        assert _said(given, kind) == _said(found, kind)
    pairs = itertools.pairwise(found)
    assert not any(plain(a) and plain(b) and a.get("thought") == b.get("thought") for a, b in pairs)


def _said(parts: list[Chunk], thought: bool | None) -> str:
    return "".join(p["text"] for p in parts if "text" in p and p.get("thought") is thought)


SIGNED = text("x jumps. ", thoughtSignature=SIGNATURE)


@pytest.mark.parametrize("streamed", [False, True])
def test_signed_text_of_a_recovery_goes_out_as_it_is(streamed: bool) -> None:
    before = text("The quick brown fo")
    rest = sse([chunk(SIGNED), chunk(text("And rests."), reason="STOP")])
    most: Any = {"generationConfig": {"maxOutputTokens": CEILING}}
    cut = chunk(before, reason="MAX_TOKENS", said=70_000)
    driven = ask([sse([cut]), rest], **most) if streamed else unary(cut, rest, **most)
    assert said(driven) == "The quick brown fox jumps. And rests."
    assert SIGNED in parts(driven)


def test_a_signed_head_that_has_to_be_trimmed_loses_its_signature() -> None:
    before = "The quick brown fox jumps over the lazy dog and then it re"
    first = [chunk(text(before)), chunk(text(""), reason="MAX_TOKENS", said=70_000)]
    echo = text("over the lazy dog and then it rests.", thoughtSignature=SIGNATURE)
    driven = ask([sse(first), sse([chunk(echo, reason="STOP")])])
    assert said(driven) == "The quick brown fox jumps over the lazy dog and then it rests."
    assert not any("thoughtSignature" in part for part in parts(driven))


def test_text_is_gone_on_from_behind_a_signature() -> None:
    signature = text("", thoughtSignature=SIGNATURE)
    first = [chunk(text(BEFORE)), chunk(signature, reason="MAX_TOKENS")]
    driven = ask([sse(first), sse([chunk(text(ECHO + "x jumps."), reason="STOP")])])
    assert said(driven) == BEFORE + "x jumps."
    _, sent, asked = driven.requests[1]["contents"]
    assert sent == {"role": "model", "parts": [text(BEFORE), signature]}
    assert f"{ECHO}</anchor>" in asked["parts"][0]["text"]


TURNS: dict[str, list[Reply]] = {
    "recovered": [cut("One fine day, "), end("all was well.")],
    "recovered into a call": [
        cut(Thinking("Hm"), "One fine day, "),
        end(Thinking("So"), "I write.", WHOLE, WHOLE),
    ],
    "escalated behind text": [
        cut("I write. ", HALF),
        end("Write:", WHOLE),
    ],
    "cut call explained": [
        cut("I write. ", HALF),
        Reply(status=400),
    ],
    "whole call, then a cut one": [
        cut(WHOLE, HALF),
        Reply(status=400),
    ],
    "failed recovery": [cut("One fine day, "), Reply(status=400)],
    "recovery dropped": [
        cut("One fine day, "),
        end(Thinking("Hm"), "all was ", drop=1, deltas=4),
        end("all was well."),
    ],
    "code ran": [
        cut(
            "I run. ",
            Raw({"executableCode": {"language": "PYTHON", "code": "1"}}),
            Raw({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}),
            "It says ",
        ),
        end("one."),
    ],
}


@pytest.mark.parametrize("how", ["sync", "sync-stream"])
@pytest.mark.parametrize("model", [NEW, OLD, LONG])
@pytest.mark.parametrize("name", TURNS)
def test_the_next_request_is_accepted(sim: Simulator, name: str, model: str, how: How) -> None:
    sim.script(TURNS[name])
    with connect(sim) as bare:
        client = continuation.wrap(bare, config=FAST)
        thoughts = {"include_thoughts": True}
        config: Any = {"max_output_tokens": 2000, "tools": TOOLS, "thinking_config": thoughts}
        chat = client.chats.create(model=model, config=config)
        chunks = [chat.send_message("Go.")] if how == "sync" else [*chat.send_message_stream("Go.")]
        calls = [found for told in chunks for found in told.function_calls or []]
        answers = [
            types.Part.from_function_response(name=found.name or "", response={"result": "ok"})
            for found in calls
        ]
        sim.script([end("Next.")])
        told = len(sim.posts)
        assert chat.send_message([*answers] if answers else "And then?").text == "Next."
        assert [post.status for post in sim.posts[told:]] == [200]


@pytest.mark.usefixtures("loops_left_behind")
@pytest.mark.filterwarnings("ignore:unclosed", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_recorder_runs_on_two_event_loops(sim: Simulator) -> None:
    with connect(sim) as bare:
        client = continuation.wrap(bare, config=Policy(remember_limit=False))
        for _ in range(2):
            recorder = Recorder()
            sim.script(
                [
                    cut(ToolUse("Write", WRITE, cut=9)),
                    end(WHOLE),
                    end("Done."),
                ]
            )
            config: Any = {"max_output_tokens": 1000, "tools": [recorder.tool("async")]}
            asking = client.aio.models.generate_content
            answer = asyncio.run(_one(asking(model=NEW, contents="Go.", config=config)))
            assert (answer.text, recorder.runs) == ("Done.", [WRITE])
    assert limits(sim)[0] == 1000


async def _one(asking: Any) -> Any:
    return await asking
