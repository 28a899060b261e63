"""Every row of the decision table, in every wire format, in each of the four ways to ask.

A scene is a scripted provider in which a row decides, and what must hold of the turn then. A row's
scenes and the reasons why it has none add up to rows x formats x ways: a test counts them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from support.sdks import chat, gemini, messages
from support.sdks.formats import FORMATS, LIMITS, MAKES, SCHEMA, request
from support.sdks.turn import FAST, HOWS, How, cut, end, play

from continuation import Policy, TruncatedAnswerError
from continuation.engine.table import ROWS, Action
from continuation.prompts import looks_like_recovery_prompt
from continuation.simulator import Block, Raw, Reply, Scenario, Simulator, Text, Thinking, ToolUse
from continuation.types import Outcome

STREAMS = frozenset(how for how in HOWS if how.endswith("stream"))
BODIES = frozenset(HOWS) - STREAMS
ANYHOW = frozenset(HOWS)

# --- how each SDK is asked ----------------------------------------------------------------------

CEILINGS = dict(zip(FORMATS, (128_000, chat.CEILING, 128_000, gemini.CEILING), strict=True))
LIMIT = 1000
STRUCTURED: Mapping[str, Mapping[str, Any]] = {
    "anthropic-messages": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    "openai-chat": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    },
    "openai-responses": {
        "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}
    },
    "gemini": {"response_mime_type": "application/json"},
}
FORCED: Mapping[str, Any] = {
    "anthropic-messages": {"type": "tool", "name": "Write"},
    "openai-chat": "required",
    "openai-responses": "required",
}


# --- scenes -------------------------------------------------------------------------------------

WRITE = {"path": "a.txt", "content": "hello world, this is the whole file"}
WHOLE, HALF = ToolUse("Write", WRITE), ToolUse("Write", WRITE, cut=20)
CALLED = [("Write", WRITE)]
FOX = Text("The quick brown fo")
SIGNED = Thinking("I think.")
EATEN = Thinking("Hm " * 50, signature=None)
LINES = "".join(f"{n}. A line of an answer, with a number in it, {n * 7}.\n" for n in range(40))
LONGER = "".join(f"{n}. A line of an answer, with a number in it, {n * 7}.\n" for n in range(140))
LONG_CALL = json.dumps({"path": "a.txt", "content": LONGER.replace("\n", " ")})
HALF_LONG = cut(FOX, ToolUse("Write", LONG_CALL, cut=900))
NOTE = "[The call to `Write` was cut"
"""How the note begins that stands for a call which stayed cut."""


def calling(*blocks: Block, **more: Any) -> Reply:
    return Reply(blocks, stop="tool_use", **more)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A provider in which a row decides, and what must hold of the turn."""

    row: str
    script: Sequence[Reply] = ()
    answer: str | None = None
    """What the model recites when there is no script."""
    provider: Scenario = field(default_factory=Scenario)
    policy: Policy = FAST
    at_ceiling: bool = False
    """Whether the caller asks for all that the model can write."""
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What else the request says, in the words of the format's SDK."""
    formats: Sequence[str] = FORMATS
    ways: frozenset[How] = ANYHOW

    outcome: Outcome
    text: str = ""
    exactly: bool = True
    """Whether `text` is all of the text; otherwise it only begins so."""
    calls: Sequence[tuple[str, Any]] = ()
    cut: bool | None = None
    """Whether the answer says that it was cut; what the outcome says, unless it is told here."""
    reason: str = ""
    """What the report's reason says, among others."""
    prompts: int = 0
    """How many of our own prompts the last request holds."""
    posts: int = 1
    raises: bool = False
    """Whether later requests ask for all that the model can write, not for as much as the first."""
    fails: bool = False
    """Whether the caller gets an error, as without us."""


def prompts(said: Any) -> int:
    """How many of our own prompts a part of a request holds."""
    if isinstance(said, str):
        return int(looks_like_recovery_prompt(said))
    members = said.values() if isinstance(said, dict) else said if isinstance(said, list) else ()
    return sum(prompts(member) for member in members)


def by_format(each: Mapping[str, Any], scene: Callable[[Any], dict[str, Any]]) -> list[Scene]:
    """Return scenes that differ by format."""
    return [Scene(formats=[dialect], **scene(value)) for dialect, value in each.items()]


def by_half(scene: Scene) -> list[Scene]:
    """Return a scene with half a call; Gemini has none but where a stream brings its arguments."""
    script = [
        replace(reply, blocks=[gemini.HALF if block is HALF else block for block in reply.blocks])
        for reply in scene.script
    ]
    streamed = replace(scene, script=script, formats=["gemini"], ways=scene.ways & STREAMS)
    return [replace(scene, formats=FORMATS[:3]), streamed]


SEVERAL_CALLS = (FOX, WHOLE, replace(WHOLE, id="call_b"))
CALLING = calling(*SEVERAL_CALLS, deltas=6)
BETWEEN = {"anthropic-messages": 20, "openai-chat": 16, "openai-responses": 22, "gemini": 4}
"""Events after which the first of those calls is there, and the second one is not."""
IN_A_CALL = {
    "anthropic-messages": replace(CALLING, drop=9),
    "openai-chat": replace(CALLING, drop=7),
    "openai-responses": replace(CALLING, drop=12),
    "gemini": calling(FOX, gemini.HALF, drop=2),
}
ONLY_CALLS = {
    **dict.fromkeys(FORMATS[:3], calling(*SEVERAL_CALLS[1:], deltas=6, drop=4)),
    "gemini": calling(gemini.HALF, drop=1),
}
THINKS: Mapping[str, Mapping[str, Any]] = {
    "anthropic-messages": {"thinking": {"type": "adaptive"}},
    "openai-chat": {},
    "openai-responses": {},
    "gemini": {"thinking_config": {"include_thoughts": True}},
}
UNKNOWN: Mapping[str, Mapping[str, Any]] = {
    "anthropic-messages": {"type": "hologram", "a": 1},
    "openai-responses": {"type": "hologram", "id": "h"},
    "gemini": {"hologram": {}},
}
HOPS: dict[str, Any] = {"formats": ["gemini"], "more": {"model": gemini.LONG}}

BLOCKS: Mapping[str, Block] = {
    "whole": WHOLE, "half": HALF, "thought": SIGNED, "eaten": EATEN, "fox": FOX,
    "search": Raw({"type": "server_tool_use", "id": "srv_1", "name": "find", "input": {}}),
    "found": Raw({"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}),
    "rest": Text("x jumps."), "again": Text(f"{FOX.text}x."), "who": Text("Who"),
    "once": Text("One fine day, "), "was": Text("all was"), "pieces": Text("In pieces."),
    "same": Text("The same line again.\n" * 30), "jumps": Text("The fox jumps."),
    "file": Text("Now I edit the file:"),
    "loop": Text("The quick brown fox jumps.\n" * 200),
    "loops": Text("It is late, and all is quiet here.\n" * 400),
}  # fmt: skip
TEXTS: Mapping[str, str] = {
    **{name: block.text for name, block in BLOCKS.items() if isinstance(block, Text)},
    "healed": f"{FOX.text}x jumps.", "noted": f"{FOX.text}\n\n{NOTE}", "begun": LINES[:40],
    "same twice": "The same line again.\n" * 60, "once was": "One fine day, all was",
    "looped": "The quick brown fox jumps.\n",
    "late": "The quick brown fox jumps.\nIt is late, and all is quiet here.\n",
    "in order": "The quick brown fox jumps.\nWho",
    "in pieces": f"{FOX.text}In pieces.", "lines": LINES, "longer": LONGER,
}  # fmt: skip
ASKED: Mapping[str, dict[str, Any]] = {
    "streams": {"ways": STREAMS}, "bodies": {"ways": BODIES}, "top": {"at_ceiling": True},
    "hops": HOPS, "chat": {"formats": FORMATS[1:2]},
    "messages": {"formats": FORMATS[:1]}, "gemini": {"formats": FORMATS[3:]},
    "responses": {"formats": FORMATS[2:3]},
    "two": {"formats": FORMATS[:2]}, "others": {"formats": FORMATS[2:]},
    "prefilled": {"formats": FORMATS[:1], "more": {"model": messages.OLD}},
}  # fmt: skip


def reply(said: str) -> Reply:
    """Read a reply: a status, or how it ends, its blocks, and more."""
    how, *words = said.split()
    if how.isdigit():
        return Reply(status=int(how))
    blocks = [BLOCKS[word] for word in words if "=" not in word]
    more: Any = {name: int(n) for name, _, n in (w.partition("=") for w in words) if n}
    stop = {"cut": "max_tokens", "end": "end_turn", "calling": "tool_use"}.get(how, how)
    return Reply(blocks, stop=stop, **more)


def how_asked(words: str) -> dict[str, Any]:
    """Read how a scene is asked, of what provider, under what policy."""
    told, policy, provider = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    for word in words.split():
        name, _, value = word.partition("=")
        number = int(value) if value.isdigit() else value == "true" or value
        if name in {"drop", "deltas", "checkpoint", "hop", "vendor"}:
            provider[name] = {1: number} if name == "drop" else number
        elif value:
            policy[name] = number
        else:
            told |= ASKED[word]
    return told | {"policy": replace(FAST, **policy), "provider": Scenario(**provider)}


def scenes(table: str) -> list[Scene]:
    """Read scenes: row; replies, or what is recited; how it is asked; what comes of it; why.

    A text behind `~` only begins so. An indented line goes on with the one before.
    """
    found: list[Scene] = []
    for line in table.strip().replace("\n  ", " ").splitlines():
        row, script, asked, got, *why = (cell.strip() for cell in line.split("|"))
        outcome, text, *more = (word.strip() for word in got.split(","))
        told: dict[str, Any] = {"row": row, "reason": "".join(why), **how_asked(asked)}
        told |= {"outcome": Outcome(outcome), "exactly": not text.startswith("~")}
        told["text"] = TEXTS[text.lstrip("~")] if text else ""
        if script in TEXTS:
            told["answer"] = TEXTS[script]
        else:
            told["script"] = [reply(each) for each in script.split(";")]
        for word in more:
            name, _, value = word.partition("=")
            told[name] = CALLED if name == "calls" else int(value) if value else True
        found += by_half(Scene(**told)) if " half" in script else [Scene(**told)]
    return found


SCENES: list[Scene] = [
    *scenes("""
a recovery failed, and a budget is used up | cut thought fox; 400 | top max_attempts=2
  | partial, fox, posts=2, prompts=1 | max_attempts spent
a recovery failed for good | cut thought fox; 400; 400; 400 | top
  | partial, fox, posts=2, prompts=1 | recovery failed
a recovery was refused | cut thought fox; refusal | top two
  | partial, fox, posts=2, prompts=1 | the model refused to continue
a recovery was refused | cut thought fox; refusal | top others
  | partial, fox, cut, posts=2, prompts=1 | the model refused to continue
a recovery was aborted | cut thought fox; MALFORMED_RESPONSE | top gemini
  | partial, fox, posts=2, prompts=1 | the provider aborted: MALFORMED_RESPONSE
the text repeats itself | cut loop; end who | stop_repetition=true
  | healed, in order, posts=2, prompts=1, raises
the text repeats itself, and is not continued | cut loop; cut loops | stop_repetition=true
  | partial, late, posts=2, prompts=1, raises | the model only repeated the same text
a recovery only repeated earlier text | cut same; cut same | top
  | stalled, same twice, cut, posts=2, prompts=1
a recovery had nothing to add | cut jumps; end | top | healed, jumps, posts=2, prompts=1
a recovery proved that the text is complete | cut fox; end; end
  | prefilled model_max_output_tokens=1000
  | healed, fox, posts=3, prompts=1
a recovery proved that the text is complete | cut fox; end; end | top chat vendor=vllm
  | healed, fox, posts=3, prompts=1
a prefill was not continued | cut fox; end; end rest | prefilled model_max_output_tokens=1000
  | healed, healed, posts=3, prompts=1
a prefill was not continued | cut fox; end; end rest | top chat vendor=vllm
  | healed, healed, posts=3, prompts=1
a recovery was empty | cut fox; end | top | partial, fox, posts=2, prompts=1
refused or filtered | refusal fox | two | incomplete, fox | refused by the provider
refused or filtered | refusal fox | others | incomplete, fox, cut | refused by the provider
the generation failed, nothing delivered | MALFORMED_FUNCTION_CALL; end fox | gemini
  | healed, fox, posts=2
the generation failed | OTHER; OTHER; OTHER | gemini
  | incomplete, , posts=3, cut | the provider aborted: OTHER
the provider stopped a repetition | repetition fox | chat
  | incomplete, fox | stopped a repetition: repetition
ended with an unknown stop reason | steered fox | two | incomplete, fox | 'steered'
ended with an unknown stop reason | steered fox | responses | incomplete, fox, cut | 'steered'
an empty answer, nothing delivered | end; end fox | | healed, fox, posts=2
an empty answer | end; end | | incomplete, , posts=2 | the answer is empty
a call is announced, and none was made | end thought file; calling whole | unkept_promise=ask
  | healed, file, calls, posts=2, raises
ended normally after a later attempt | cut thought fox; end rest | top
  | healed, healed, posts=2, prompts=1
ended normally | calling thought fox whole | | complete, fox, calls
dropped before the first event | end fox drop=0 | | failed, , fails
a budget is used up, a call is truncated | cut fox half | max_turn_output_tokens=1
  | partial, ~noted, cut
a budget is used up, the stream dropped
  | lines | streams drop=8 max_turn_output_tokens=1 on_dead=stop
  | partial, ~begun
a budget is used up | cut thought fox | max_turn_output_tokens=1 | partial, fox, cut
dropped after a continuation token | lines | hops streams deltas=40 checkpoint=3 drop=6
  | healed, lines, posts=2
dropped, visible text, no call | lines | streams drop=8 | healed, lines, posts=2, raises, prompts=1
dropped, no resumption left | lines | streams drop=8 max_drop_recoveries=0 on_dead=stop
  | partial, ~begun
the provider paused, and the caller continues | pause_turn fox | messages paused=return
  | incomplete, fox | pause_turn
the provider paused, and the caller continues | CONTINUATION fox | gemini
  | incomplete, fox, cut | CONTINUATION
a step of the provider ended with a token | pause_turn fox search; end found rest | messages
  | healed, healed, posts=2, raises
a step of the provider ended with a token | longer | hops hop=400 | healed, longer, posts=5
a step of the provider ended without a new token | pause_turn fox; 400 | prefilled
  | partial, fox, posts=2, raises
a step of the provider ended without a new token | cut once; CONTINUATION was; 400 | hops
  | partial, once was, cut, posts=3
truncated, with a token of the provider | longer | hops | healed, longer, posts=2
truncated below the ceiling, nothing delivered | cut eaten; calling thought fox whole | streams
  | healed, fox, calls, posts=2, raises
truncated below the ceiling, nothing delivered | cut who; calling thought fox whole | bodies
  | healed, fox, calls, posts=2, raises
truncated below the ceiling, text delivered, then a call
  | cut thought fox half; calling thought again whole | streams
  | healed, again, calls, posts=2, raises
truncated below the ceiling, text delivered | cut thought fox; calling rest whole | streams
  | healed, healed, calls, posts=2, raises, prompts=1
truncated at the ceiling, a call, to be made smaller | cut fox half; calling pieces whole
  | top truncated_tool_call=retry_smaller | healed, in pieces, calls, posts=2
truncated at the ceiling, a call | cut thought fox half | top | truncated, ~noted
truncated at the ceiling, no visible text | cut eaten | top | truncated, | thinking
truncated at the ceiling, visible text | cut thought fox; calling rest whole | top
  | healed, healed, calls, posts=2, prompts=1
truncated, all recoveries used | cut thought fox | top max_recoveries=0 | truncated, fox
"""),
    *(
        Scene(
            row="the context window is full" + (", a call is truncated" if call else ""),
            script=[end(FOX, *call, stop="model_context_window_exceeded", **more)],
            provider=provider,
            formats=[dialect],
            outcome=Outcome.TRUNCATED,
            text=f"{FOX.text}\n\n{NOTE}" if call else FOX.text,
            exactly=not call,
            reason="context window full",
        )
        for call in ((), (HALF,))
        for dialect, provider, more in (
            ("anthropic-messages", Scenario(), {}),
            (
                "openai-chat",
                Scenario(vendor="zhipu"),
                {"extra": {"finish_reason": "model_context_window_exceeded"}},
            ),
        )
    ),
    *by_format(
        THINKS,
        lambda more: {
            "row": "dropped, no text yet, no resend left",
            "script": [end(Thinking("Hm " * 10), FOX, deltas=6, drop=1)] * 4,
            "more": more,
            "ways": STREAMS,
            "outcome": Outcome.FAILED,
            "posts": 4,
            "fails": True,
        },
    ),
    *by_format(
        BETWEEN,
        lambda drop: {
            "row": "dropped after complete calls",
            "script": [replace(CALLING, drop=drop)],
            "ways": STREAMS,
            "outcome": Outcome.PARTIAL,
            "text": FOX.text,
            "calls": CALLED,
        },
    ),
    *by_format(
        ONLY_CALLS,
        lambda broken: {
            "row": "dropped, nothing delivered, no text to continue",
            "script": [broken, calling(WHOLE)],
            "ways": STREAMS,
            "outcome": Outcome.HEALED,
            "calls": CALLED,
            "posts": 2,
        },
    ),
    *by_format(
        IN_A_CALL,
        lambda broken: {
            "row": "dropped, text delivered, then a call",
            "script": [broken, calling(FOX, WHOLE)],
            "ways": STREAMS,
            "outcome": Outcome.HEALED,
            "text": FOX.text,
            "calls": CALLED,
            "posts": 2,
        },
    ),
    *by_format(
        IN_A_CALL,
        lambda broken: {
            "row": "dropped, a call stays truncated",
            "script": [broken],
            "policy": replace(FAST, max_drop_recoveries=0, on_dead="stop"),
            "ways": STREAMS,
            "outcome": Outcome.PARTIAL,
            "cut": True,
            "text": f"{FOX.text}\n\n{NOTE}",
            "exactly": False,
        },
    ),
    *(
        Scene(
            row="truncated after complete calls",
            script=[cut(FOX, WHOLE)],
            formats=formats,
            ways=ways,
            outcome=Outcome.TRUNCATED,
            text=FOX.text,
            calls=CALLED,
        )
        for formats, ways in ((FORMATS[:3], STREAMS), (FORMATS[3:], ANYHOW))
    ),
    *(
        Scene(
            row=f"truncated at the ceiling, a {row}, to be completed",
            # Its last words are not told to the model, which repeats some and goes on.
            script=[HALF_LONG] * (posts - 1) + [end(Text(LONG_CALL[700:-2]))],
            # Sent as a stream, a body's call would be as raw as a stream's.
            policy=replace(
                FAST,
                truncated_tool_call="complete",
                complete_seams="any",
                stream_bodies="never",
            ),
            formats=formats,
            ways=ways,
            at_ceiling=True,
            outcome=Outcome.HEALED,
            text=FOX.text,
            calls=[("Write", json.loads(LONG_CALL))],
            posts=posts,
        )
        for row, formats, ways, posts in (
            ("parsed call", FORMATS[:1], BODIES, 3),
            ("call", FORMATS[:1], BODIES, 3),
            ("call", FORMATS[:1], STREAMS, 2),
            ("call", FORMATS[1:3], ANYHOW, 2),
        )
    ),
    *by_format(
        UNKNOWN,
        lambda block: {
            "row": "truncated at the ceiling, the turn cannot be continued",
            "script": [cut(FOX, Raw(block))],
            "at_ceiling": True,
            "outcome": Outcome.TRUNCATED,
            "text": FOX.text,
        },
    ),
    *by_format(
        THINKS,
        lambda more: {
            "row": "truncated at the ceiling, no visible text, less thinking allowed",
            "script": [cut(EATEN), end(FOX)],
            "policy": replace(FAST, less_thinking=True),
            "at_ceiling": True,
            "more": more,
            "outcome": Outcome.HEALED,
            "text": FOX.text,
            "posts": 2,
        },
    ),
    *(
        Scene(
            row="truncated at the ceiling, structured output",
            script=[cut(Text('{"path": "a'))],
            at_ceiling=True,
            more=more,
            policy=replace(FAST, forced_tool_choice="heal"),
            formats=[dialect],
            ways=ways,
            outcome=Outcome.TRUNCATED,
            text='{"path": "a',
        )
        for dialect in FORMATS
        for more, ways in (
            (STRUCTURED[dialect], ANYHOW if dialect == "gemini" else STREAMS),
            # Of a body nothing was shown: only what cannot be lifted stands in the way.
            ({"tool_choice": FORCED.get(dialect)}, BODIES if dialect in FORCED else frozenset()),
        )
    ),
]

# --- cells without a scene ----------------------------------------------------------------------

Cell = tuple[str, str, How]
WHOLE_OR_ERROR = "a JSON body is whole, or its break is the caller's error: nothing is in hand"
NOTHING_SHOWN = "of a JSON body nothing is shown before its end: it is asked for again as a whole"
ONLY_CHAINED = "Responses that are stored, without a store (openai_responses/test_chain.py)"
ONLY_PAUSES = "only Anthropic and Gemini pause an answer"
ONLY_ABORTS = "only Gemini has stop reasons for a generation that failed; others send an error"
ONLY_GEMINI = "only Gemini gives tokens and answers in hops"
NO_HALF_CALLS = "a call of Gemini's comes whole or not at all, but where its arguments are streamed"
NO_PREFILL = "its servers take none (Gemini's older models do: providers/gemini)"
NO_SUCH_STOP = "the format has no stop reason of its own for a full context window"


def _without(
    row: str, why: str, formats: Sequence[str] = FORMATS, ways: frozenset[How] = ANYHOW
) -> dict[Cell, str]:
    return dict.fromkeys(((row, dialect, how) for dialect in formats for how in ways), why)


REASONS: Mapping[Cell, str] = {
    **_without("a prefill was not continued", NO_PREFILL, FORMATS[2:]),
    **_without("a recovery proved that the text is complete", NO_PREFILL, FORMATS[2:]),
    **_without("the chain store failed", ONLY_CHAINED),
    **_without("the chain store failed, and the stream dropped", ONLY_CHAINED),
    **_without("dropped, no text yet, no resend left", WHOLE_OR_ERROR, ways=BODIES),
    **_without("a budget is used up, the stream dropped", WHOLE_OR_ERROR, ways=BODIES),
    **_without("dropped after a continuation token", ONLY_GEMINI, FORMATS[:3]),
    **_without("dropped after a continuation token", WHOLE_OR_ERROR, ["gemini"], BODIES),
    **_without("dropped after complete calls", WHOLE_OR_ERROR, ways=BODIES),
    **_without("dropped, nothing delivered, no text to continue", WHOLE_OR_ERROR, ways=BODIES),
    **_without("dropped, text delivered, then a call", WHOLE_OR_ERROR, ways=BODIES),
    **_without("dropped, visible text, no call", WHOLE_OR_ERROR, ways=BODIES),
    **_without("dropped, a call stays truncated", WHOLE_OR_ERROR, ways=BODIES),
    **_without("dropped, no resumption left", WHOLE_OR_ERROR, ways=BODIES),
    **{
        cell: why
        for row in (
            "the provider paused, and the caller continues",
            "a step of the provider ended with a token",
            "a step of the provider ended without a new token",
        )
        for cell, why in _without(row, ONLY_PAUSES, FORMATS[1:3]).items()
    },
    **{
        cell: why
        for row in (
            "a recovery was aborted",
            "the generation failed",
            "the generation failed, nothing delivered",
        )
        for cell, why in _without(row, ONLY_ABORTS, FORMATS[:3]).items()
    },
    **_without("truncated, with a token of the provider", ONLY_GEMINI, FORMATS[:3]),
    **_without(
        "truncated, text from an earlier process",
        "of an answer from elsewhere, in all formats and both shells (tests/attach/test_finish.py)",
    ),
    **_without(
        "truncated after complete calls",
        "in a body nothing follows the last call, and the server may have repaired its arguments",
        FORMATS[:3],
        BODIES,
    ),
    **_without(
        "truncated at the ceiling, a call, to be completed",
        "its calls come whole, but where their arguments are streamed (test_completed_turns.py)",
        ["gemini"],
    ),
    **_without(
        "truncated at the ceiling, a parsed call, to be completed",
        "arguments are as raw in a body as in a stream, or come whole",
        FORMATS[1:],
    ),
    **_without(
        "truncated at the ceiling, a parsed call, to be completed",
        "a stream shows them as they arrive",
        FORMATS[:1],
        STREAMS,
    ),
    **{
        cell: why
        for row in (
            "a budget is used up, a call is truncated",
            "truncated at the ceiling, a call, to be made smaller",
            "truncated at the ceiling, a call",
        )
        for cell, why in _without(row, NO_HALF_CALLS, ["gemini"], BODIES).items()
    },
    **_without(
        "the provider stopped a repetition",
        "it has no word for that",
        [each for each in FORMATS if each != "openai-chat"],
    ),
    **_without(
        "ended with an unknown stop reason",
        "its SDK warns of an unknown reason (test_endings.py)",
        FORMATS[3:],
    ),
    **_without("the context window is full", NO_SUCH_STOP, FORMATS[2:]),
    **_without("the context window is full, a call is truncated", NO_SUCH_STOP, FORMATS[2:]),
    **_without(
        "truncated below the ceiling, text delivered, then a call", NOTHING_SHOWN, ways=BODIES
    ),
    **_without("truncated below the ceiling, text delivered", NOTHING_SHOWN, ways=BODIES),
    **_without(
        "truncated at the ceiling, the turn cannot be continued",
        "a message of Chat has no blocks, and so none of an unknown type",
        ["openai-chat"],
    ),
}

CASES = [
    pytest.param(scene, dialect, how, id=f"{scene.row}-{dialect}-{how}")
    for scene in SCENES
    for dialect in FORMATS
    if dialect in scene.formats
    for how in HOWS
    if how in scene.ways
]


def test_scenes_and_reasons_are_rows_times_formats_times_ways() -> None:
    played = [(s.row, d, h) for s in SCENES for d in s.formats for h in s.ways]
    assert len(played) == len(set(played)), "a cell is played twice"
    assert set(played) & set(REASONS) == set(), "a cell is played, and has a reason not to be"
    told = [row.name for row in ROWS if row.action is not Action.LOOK]  # that is in no report
    every = set(itertools.product(told, FORMATS, HOWS))
    assert set(played) | set(REASONS) == every


@pytest.mark.parametrize(("scene", "dialect", "how"), CASES)
def test_the_row_decides_and_the_caller_gets_what_it_says(
    scene: Scene, dialect: str, how: How
) -> None:
    asked = request(dialect, CEILINGS[dialect] if scene.at_ceiling else LIMIT, scene.more)
    config: Any = scene.policy
    if dialect == "openai-chat":
        config = chat.playing(scene.policy, like=scene.provider.vendor)
    with Simulator(scene.answer, scene.provider) as simulator:
        simulator.script(scene.script)
        ran = play(MAKES[dialect](), how, simulator, asked, config)
        assert scene.row in ran.told.rows
        assert ran.told.outcome is scene.outcome
        assert scene.reason in str(ran.told.reason)
        assert len(simulator.posts) == scene.posts
        assert prompts(simulator.posts[-1].body) == scene.prompts
        if not scene.more.get("model"):  # a limit of Gemini 4 depends on the prompt as well
            first, *later = LIMITS[dialect](simulator)
            assert later == [CEILINGS[dialect] if scene.raises else first] * (scene.posts - 1)
        if scene.fails:
            assert ran.error is not None
            return
        assert ran.text == scene.text if scene.exactly else ran.text.startswith(scene.text)
        assert ran.tool_calls == list(scene.calls)
        says_cut = scene.outcome is Outcome.TRUNCATED if scene.cut is None else scene.cut
        assert ran.says_cut is says_cut
        if how.startswith("async"):
            return  # what the sync way got is the same: the request after it is tried once
        simulator.reset()
        simulator.script([end(Text("Next."))])
        after = play(
            MAKES[dialect](), "sync", simulator, ran.following(asked), Policy(enabled=False)
        )
        assert after.text == "Next."
        assert [post.status for post in simulator.posts] == [200]


REPETITIVE = {
    "equal lines": "All work and no play makes Jack a dull boy.\n" * 300,
    "zeros": "0,0,0,0,0,0,0,0,0,0\n" * 700,
    "nulls": "[" + ",".join(["null"] * 3000) + "]",
    "padding": "=" * 15000,
}


@pytest.mark.parametrize("name", REPETITIVE)
@pytest.mark.parametrize("dialect", FORMATS)
@pytest.mark.parametrize("how", ["sync", "async-stream"])
def test_an_answer_that_is_meant_to_repeat_itself_is_whole(
    name: str, dialect: str, how: How
) -> None:
    answer = f"Here it is:\n{REPETITIVE[name]}\nThat is all."
    with Simulator(answer, Scenario(deltas=240)) as simulator:
        ran = play(MAKES[dialect](), how, simulator, request(dialect, LIMIT, {}), FAST)
    assert ran.text == answer
    assert (ran.told.outcome, ran.says_cut) == (Outcome.HEALED, False)


@pytest.mark.parametrize("dialect", FORMATS)
@pytest.mark.parametrize("how", HOWS)
def test_an_error_for_an_answer_that_is_not_whole_is_no_reason_to_ask_again(
    dialect: str, how: How
) -> None:
    posts = list[int]()
    for on_failure in ("truncated", "raise"):
        with Simulator() as simulator:
            simulator.script([cut(FOX), *[Reply(status=400)] * 8])
            ran = MAKES[dialect]()
            ran.retries = 2
            policy = replace(FAST, on_failure=on_failure)
            play(ran, how, simulator, request(dialect, CEILINGS[dialect], {}), policy)
            posts.append(len(simulator.posts))
    assert posts[0] == posts[1]
    error = ran.error
    assert isinstance(error, TruncatedAnswerError)
    assert error.text == FOX.text
    assert error.report is ran.report
    assert error.report.outcome is Outcome.PARTIAL
    if how.endswith("stream"):
        assert error.body is None
    else:
        assert error.body is not None
        assert FOX.text in error.body.decode()


def test_half_a_document_is_raised_as_well() -> None:
    with Simulator() as simulator:
        simulator.script([cut(Text('{"path": "a')), end(Text('b", }'))])
        asked = request("anthropic-messages", 128_000, STRUCTURED["anthropic-messages"])
        ran = play(
            MAKES["anthropic-messages"](),
            "sync",
            simulator,
            asked,
            replace(FAST, on_failure="raise"),
        )
    assert isinstance(ran.error, TruncatedAnswerError)
    assert ran.told.outcome is Outcome.TRUNCATED
