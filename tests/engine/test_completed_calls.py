"""Calls that were cut at the ceiling and are made whole: never half, never guessed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.drive import Driven, call_block, closing, drive, opening, sse, streams, text_block
from support.examples import examples
from support.sdks.formats import FORMATS, MAKES, request
from support.sdks.turn import FAST, HOWS, How, play

from continuation import Policy
from continuation.answer.open_string import escaped, open_string
from continuation.simulator import Scenario, Simulator
from continuation.types import Outcome

COMPLETE = Policy(truncated_tool_call="complete", backoff_seconds=0, models_endpoint=False)
FILE = "".join(f'line {n}: print("value\\t{n * 7}")\n' for n in range(90))
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
    "required": ["path", "content"],
}
ASKED: Mapping[str, Any] = {
    "model": "claude-opus-5",
    "max_tokens": 128_000,
    "stream": True,
    "messages": [{"role": "user", "content": "Write it."}],
    "tools": [{"name": "Write", "input_schema": SCHEMA}],
}


# --- through the SDKs ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("dialect", [name for name in FORMATS if name != "gemini"])
def test_a_call_larger_than_the_ceiling_arrives_whole(dialect: str, how: How) -> None:
    policy = Policy(truncated_tool_call="complete", backoff_seconds=0)
    with Simulator(FILE, Scenario(manner="anchor", call=True, ceiling=400)) as sim:
        ran = play(MAKES[dialect](), how, sim, request(dialect, 300, {}), policy)
        assert ran.tool_calls == [("Write", {"path": "answer.txt", "content": FILE})]
        assert ran.told.outcome is Outcome.HEALED
        assert [(call.name, call.how) for call in ran.told.calls] == [("Write", "completed")]
        assert {seam.argument for seam in ran.told.seams} == {"Write.content"}
        forbidden = [post.body.get("tool_choice") for post in sim.posts[2:] if post.body]
        assert forbidden[-1] in ("none", {"type": "none"})
        again = play(MAKES[dialect](), how, sim, ran.following(request(dialect, 300, {})), FAST)
        assert again.error is None


# --- one model after another --------------------------------------------------------------------


def called(arguments: str, stop: str = "max_tokens") -> bytes:
    pieces = [arguments[at : at + 90] for at in range(0, len(arguments), 90)]
    return sse([opening(), *call_block(0, pieces), *closing(stop, 900)])


def said(text: str, stop: str = "end_turn") -> bytes:
    return sse([opening(), *text_block(0, [text]), *closing(stop, 500)])


def complete(
    at: int,
    *answers: Callable[[dict[str, Any]], Any] | bytes,
    policy: Policy = COMPLETE,
    raw: str | None = None,
    **changes: Any,
) -> Driven:
    """Cut the call after so many characters of its arguments; then come the answers."""
    raw = json.dumps({"path": "a.py", "content": FILE}) if raw is None else raw
    left = iter(answers)

    def answer(body: dict[str, Any]) -> Any:
        told = next(left, said("I cannot do that.", "refusal"))
        return told(body) if callable(told) else told

    provider = streams(called(raw[:at]), *[answer] * 9)
    return drive(provider, {**ASKED, **changes}, policy)


def bit_by_bit(text: str) -> list[bytes]:
    pieces = [text[at : at + 50] for at in range(0, len(text), 50)]
    return [sse([e]) for e in (opening(), *text_block(0, pieces), *closing("end_turn", 500))]


def rest(
    manner: Callable[[str, str], str],
    tell: Callable[[str], Any] = said,
    *,
    ends: bool = True,
    file: str = FILE,
) -> Callable[[dict[str, Any]], Any]:
    """Answer as a model that goes on, in a manner: it is told the anchor and what follows it.

    `ends`: it writes the sign of the end, as it is asked to.
    """

    def answer(body: dict[str, Any]) -> Any:
        prompt = body["messages"][-1]["content"][-1]["text"]
        if "still lacks" in prompt:
            return said("No.")
        anchor = prompt.rpartition("<anchor>")[2].partition("</anchor>")[0]
        before = prompt.partition("\n<arrived>")[2].rpartition("</arrived>")[0]
        assert file.startswith(before)
        assert body["tool_choice"] == {"type": "none"}
        (sign,) = re.findall(r"<end-\w+>", prompt.replace(before, "")) if ends else [""]
        return tell(manner(anchor, file[len(before) :] + sign))

    return answer


def calls_of(driven: Driven) -> list[Any]:
    assert driven.error is None
    return [block.input for block in driven.message.content if block.type == "tool_use"]


def ending(end: str, more: str) -> str:
    """Put words at the end of a text; the sign of its end stands behind them."""
    text, sign, _ = more.partition("<end-")
    return f"{text}{end}{sign}{more.removeprefix(text + sign)}"


def anew(more: str, file: str = FILE) -> str:
    """Return the whole file and the sign of its end."""
    return file + more[more.index("<end-") :]


MANNERS: Mapping[str, Callable[[str, str], str]] = {
    "obeys": lambda anchor, more: anchor + more,
    "escapes": lambda anchor, more: escaped(anchor + more),
    "quotes and escapes": lambda anchor, more: f'"{escaped(anchor + more)}"',
    # What arrived last was not quoted: whoever says it all the same goes on where it stopped.
    "goes on at once": lambda anchor, more: more,
    "echoes half a line": lambda anchor, more: anchor[-9:] + more,
    "echoes a blank": lambda anchor, more: anchor[-1:] + more,
    "begins anew": lambda anchor, more: anew(more),
    "talks first": lambda anchor, more: f"Here is the rest of the file:\n\n{more}",
    "breaks the line": lambda anchor, more: f"{anchor}\n{more}",
    "repeats it twice": lambda anchor, more: f"{anchor}\n{anchor}{more}",
    "repeats it, and begins anew": lambda anchor, more: anchor + anew(more),
    "keeps the tags": lambda anchor, more: f"<anchor>{anchor}</anchor>\n{more}",
}
DOUBTFUL: Mapping[str, Callable[[str, str], str]] = {
    "leaves a line out": lambda anchor, more: more.partition("\n")[2],
    "goes on in other words": lambda anchor, more: f"as I said, {more}",
    "ends before what had arrived": lambda anchor, more: anchor + more[:9],
    "answers with another file": lambda anchor, more: "import os\n\nprint(os.getcwd())\n" * 9,
    "says that it is done": lambda anchor, more: "The file is complete.",
    "says nothing": lambda anchor, more: " ",
    "leaves blanks out": lambda anchor, more: anchor + more.replace(": ", ":"),
    "puts words between": lambda anchor, more: f"{anchor}\n\nIt goes on so:\n\n{more}",
    "ends the object": lambda anchor, more: anchor + ending('"}', more),
    "ends a tag": lambda anchor, more: anchor + ending("</content>", more),
    "ends a fence": lambda anchor, more: anchor + ending("```", more),
    "says that it is done, behind it": lambda anchor, more: anchor + ending("\nDone!", more),
    "mistakes the sign": lambda anchor, more: anchor + ending("<end-12345>", more[:-14]),
}


@pytest.mark.parametrize("manner", MANNERS)
def test_a_rest_that_proves_itself_is_delivered(manner: str) -> None:
    driven = complete(1500, rest(MANNERS[manner]))
    assert calls_of(driven) == [{"path": "a.py", "content": FILE}]
    assert driven.message.stop_reason == "tool_use"
    assert driven.report.outcome is Outcome.HEALED


SIGNED: Mapping[str, Callable[[str, str], str]] = {
    "obeys": lambda anchor, more: anchor + more,
    "quotes and escapes": lambda anchor, more: f'"{escaped(anchor + more)}"',
    "in a fence": lambda anchor, more: f"```python\n{anchor}{more}\n```",
    "words before it": lambda anchor, more: f"Here is the rest of the file:\n\n{anchor}{more}",
    "words and a fence": lambda anchor, more: f"Here is the rest:\n\n```\n{anchor}{more}\n```",
    "words behind it": lambda anchor, more: f"{anchor}{more}\n\nLet me know if that is all.",
    "escapes what was not quoted": lambda anchor, more: anchor + escaped(more),
    "signs twice": lambda anchor, more: f"{anchor}{more}\nI ended it with {more[-14:]}",
    "signs in ticks": lambda anchor, more: f"{anchor}{ending('`', more)}`",
    "in a fence of its own": lambda anchor, more: f"```\n{anchor}\n```\n{more}",
    "in a fence, at once": lambda anchor, more: f"```\n{more}\n```",
    "goes on at once": lambda anchor, more: more,
    "begins anew": lambda anchor, more: FILE[: FILE.index(anchor)] + anchor + more,
}


@pytest.mark.parametrize("manner", SIGNED)
def test_what_stands_around_a_text_that_says_where_it_ends_is_none_of_it(manner: str) -> None:
    driven = complete(1500, rest(SIGNED[manner], ends=True))
    assert calls_of(driven) == [{"path": "a.py", "content": FILE}]


@pytest.mark.parametrize(
    ("manner", "whole"),
    [(manner, manner == "quotes and escapes") for manner in SIGNED if manner != "signs twice"],
)
def test_where_a_text_ends_nobody_knows_without_a_sign(manner: str, whole: bool) -> None:
    """Only the quote that ends a JSON string tells as well."""
    driven = complete(1500, rest(SIGNED[manner], ends=False))
    assert bool(calls_of(driven)) is whole


def test_a_sign_that_broke_off_is_no_text() -> None:
    def half(body: dict[str, Any]) -> Any:
        def most(anchor: str, more: str) -> str:
            return anchor + more[:-3]

        return rest(most, ends=True)(body).replace(b'"end_turn"', b'"max_tokens"')

    driven = complete(1500, half, rest(MANNERS["obeys"], ends=True))
    assert calls_of(driven) == [{"path": "a.py", "content": FILE}]


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("manner", DOUBTFUL)
def test_a_rest_that_proves_nothing_is_not(manner: str, ends: bool) -> None:
    driven = complete(1500, rest(DOUBTFUL[manner], ends=ends))
    assert calls_of(driven) == []
    assert "was cut off" in driven.shown
    (call,) = driven.report.calls
    assert (call.how, call.characters) == ("complete", 1500)
    assert call.reason


@pytest.mark.parametrize("manner", ["obeys", "goes on at once"])
def test_a_file_of_one_line_tells_by_its_nearest_sign_how_its_rest_came(manner: str) -> None:
    text = "".join(f"v{n}=f({n * 7});" + 's="\\n";' * (n % 16 == 0) for n in range(300))
    raw = json.dumps({"path": "a.js", "content": text})
    for at in range(1000, 2000, 61):
        driven = complete(at, rest(MANNERS[manner], file=text), raw=raw)
        assert calls_of(driven) == [{"path": "a.js", "content": text}], at


def test_the_first_line_of_a_file_that_is_begun_anew_is_no_word_to_the_reader() -> None:
    text = "These are the lines of a file:\n\n" + FILE
    again = rest(lambda anchor, more: anew(more, text), file=text)
    raw = json.dumps({"path": "a.py", "content": text})
    for at in range(200, 400, 20):
        assert calls_of(complete(at, again, raw=raw)) == [{"path": "a.py", "content": text}], at


def test_line_ends_of_another_kind_are_no_text_of_the_file() -> None:
    text = "\r\n".join(" ".join(str(n * m) for m in range(777, 999)) for n in range(17, 26))
    plainly = rest(lambda anchor, more: anchor + more.replace("\r\n", "\n"), file=text)
    driven = complete(3200, plainly, raw=json.dumps({"path": "a", "content": text}))
    assert calls_of(driven) == []
    assert driven.report.calls[0].reason == "its parts do not join exactly (anchor)"


@pytest.mark.parametrize("manner", MANNERS)
def test_a_live_call_goes_on_as_the_text_comes_where_the_anchor_says_how(manner: str) -> None:
    live = replace(COMPLETE, stream_tool_calls="live")
    driven = complete(1500, rest(MANNERS[manner], bit_by_bit), policy=live)
    assert calls_of(driven) == [{"path": "a.py", "content": FILE}]
    flowed = sum(b"partial_json" in piece for piece in driven.pieces)
    assert flowed > 20 if manner == "obeys" else flowed == 2


@pytest.mark.parametrize("manner", SIGNED)
def test_a_live_call_is_shown_so_far_behind_that_its_last_words_can_be_said_anew(
    manner: str,
) -> None:
    live = replace(COMPLETE, stream_tool_calls="live")
    driven = complete(1500, rest(SIGNED[manner], bit_by_bit, ends=True), policy=live)
    assert calls_of(driven) == [{"path": "a.py", "content": FILE}]
    assert "<end-" not in driven.shown


@pytest.mark.parametrize("completes", [False, True])
def test_only_a_live_call_that_may_be_completed_is_shown_behind(completes: bool) -> None:
    live = Policy(
        stream_tool_calls="live", truncated_tool_call="complete" if completes else "explain"
    )
    raw = json.dumps({"path": "a.py", "content": FILE})
    ping = b'event: ping\ndata: {"type": "ping"}\n\n'
    told = [e + b"\n\n" + ping for e in called(raw, "tool_use").split(b"\n\n")[:-1]]
    driven = drive(streams(told), dict(ASKED), live)
    assert calls_of(driven) == [json.loads(raw)]
    assert driven.report.outcome is Outcome.COMPLETE
    lengths = [len(piece) for piece in driven.pieces if b"partial_json" in piece]
    assert len(lengths) > 20
    assert (max(lengths) > 600) is completes


def test_any_seam_will_do_where_policy_says_so() -> None:
    trusting = Policy(
        truncated_tool_call="complete",
        complete_seams="any",
        backoff_seconds=0,
        models_endpoint=False,
    )
    driven = complete(1500, rest(SIGNED["in a fence"], ends=False), policy=trusting)
    assert calls_of(driven) == [{"path": "a.py", "content": FILE}]


def test_cut_again_it_is_gone_on_with_again() -> None:
    def some(anchor: str, more: str) -> str:
        return anchor + more[:700]

    def half(body: dict[str, Any]) -> Any:
        return rest(some)(body).replace(b'"end_turn"', b'"max_tokens"')

    driven = complete(800, half, half, rest(MANNERS["obeys"]))
    assert calls_of(driven) == [{"path": "a.py", "content": FILE}]
    driven = complete(800, half, half, half, half)
    assert calls_of(driven) == [], "three recoveries, and no more"
    assert len(driven.requests) == 4


@pytest.mark.parametrize(
    ("tools", "whole"),
    [(["Write"], True), (["Edit"], False), (["!Write"], False), (["!Edit"], True)],
)
def test_a_user_says_which_calls_to_trust(tools: Sequence[str], whole: bool) -> None:
    policy = Policy(
        truncated_tool_call="complete",
        complete_tools=tuple(tools),
        backoff_seconds=0,
        models_endpoint=False,
    )
    driven = complete(1500, rest(MANNERS["obeys"]), policy=policy)
    assert bool(calls_of(driven)) is whole
    assert len(driven.requests) == 1 + whole


def test_what_the_call_lacks_behind_the_text_is_asked_for() -> None:
    def members(body: dict[str, Any]) -> bytes:
        (tool,) = body["tools"]
        assert body["tool_choice"] == {"type": "tool", "name": "Write"}
        assert tool["input_schema"]["required"] == ["path"]
        return called('{"path": "a.py"}', "tool_use")

    raw = json.dumps({"content": FILE, "path": "a.py"})
    driven = complete(1500, rest(MANNERS["obeys"]), members, raw=raw)
    assert calls_of(driven) == [{"content": FILE, "path": "a.py"}]
    driven = complete(1500, rest(MANNERS["obeys"]), said("No."), raw=raw)
    assert calls_of(driven) == []


LONG = " ".join(f"of paragraph {n} there are many words" for n in range(60))
PAGE = "\n\n".join(f'{LONG} {n}\n"{n}" is a C:\\new\\table' for n in range(3))
"""Paragraphs of 2,000 characters without anything that JSON escapes."""
ESCAPED: Mapping[str, Callable[[str, str], str]] = {
    "in a fence": lambda anchor, more: f"```\n{escaped(anchor + more)}\n```",
    "behind words": lambda anchor, more: f"Here is the rest:\n\n{escaped(anchor + more)}",
    "behind the anchor": lambda anchor, more: anchor + escaped(more),
    "at once": lambda anchor, more: f"Voilà :\n{escaped(more)}",
}


@pytest.mark.parametrize("manner", ESCAPED)
@pytest.mark.parametrize("live", [False, True])
def test_where_nothing_shows_how_a_rest_was_written_no_escapes_land_in_the_file(
    manner: str, live: bool
) -> None:
    policy = replace(COMPLETE, stream_tool_calls="live" if live else "hold")
    raw = json.dumps({"path": "a.py", "content": PAGE})
    driven = complete(1900, rest(ESCAPED[manner], file=PAGE), raw=raw, policy=policy)
    assert calls_of(driven) == [] or driven.message.stop_reason == "max_tokens"
    assert driven.report.calls[-1].reason is not None


TEXT = {"type": "string"}
OPTIONAL = {**SCHEMA, "properties": {"path": TEXT, "content": TEXT, "mode": TEXT}}


@pytest.mark.parametrize(
    ("answer", "more"),
    [
        (called('{"mode": "append"}', "tool_use"), {"mode": "append"}),
        (called("{}", "tool_use"), {}),
        (called("", "tool_use"), {}),
        (called('{"mode": "app', "tool_use"), None),
        (called('{"other": 1}', "tool_use"), None),
        (called('{"mode": "app'), None),
        (said("None follow."), None),
    ],
)
def test_an_optional_argument_that_did_not_arrive_is_asked_for(answer: bytes, more: Any) -> None:
    def optional(body: dict[str, Any]) -> bytes:
        (tool,) = body["tools"]
        assert body["tool_choice"] == {"type": "tool", "name": "Write"}
        assert [*tool["input_schema"]["properties"]] == ["mode"]
        assert tool["input_schema"]["required"] == []
        return answer

    tools = [{"name": "Write", "input_schema": OPTIONAL}]
    driven = complete(1500, rest(MANNERS["obeys"]), optional, tools=tools)
    whole = {"path": "a.py", "content": FILE}
    assert calls_of(driven) == ([{**whole, **more}] if more is not None else [])
    if more is None:
        assert driven.report.calls[-1].reason == "it still lacks an answer about mode"


def test_a_member_that_is_whole_is_not_the_last_one_for_sure() -> None:
    tools = [{"name": "Write", "input_schema": OPTIONAL}]
    raw = json.dumps({"path": "a.py", "content": FILE, "mode": "append"})
    at = raw.index(', "mode"')
    driven = complete(at, called('{"mode": "append"}', "tool_use"), raw=raw, tools=tools)
    assert calls_of(driven) == [json.loads(raw)]


@pytest.mark.parametrize("end", ['"}', '"}\n', '", "mode": "w"}', '\n"}'])
@pytest.mark.parametrize("signed", [False, True])
def test_the_end_of_the_call_is_no_text(end: str, signed: bool) -> None:
    driven = complete(1500, rest(lambda anchor, more: anchor + ending(end, more), ends=signed))
    assert calls_of(driven) == []


@pytest.mark.parametrize("cut", range(6))
def test_an_escaped_backslash_begins_no_escape(cut: int) -> None:
    text = json.dumps({"icon": "\U0001f600"}) * 30
    raw = json.dumps({"path": "a.py", "content": text})
    at = raw.rindex("ud83d") + cut
    place = open_string(raw[:at])
    assert place is not None
    assert text.startswith(place.text)


FILES: Mapping[str, Any] = {
    "files": [
        {"path": "b.py", "content": "b", "mode": "w"},
        {"content": FILE, "mode": "a", "path": "a.py"},
        {"path": "c.py", "content": "c", "mode": "w"},
    ],
    "to": {"where": {"text": FILE, "host": "h"}, "port": 1},
}
FILES_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "files": {"type": "array", "items": {"$ref": "#/$defs/file"}, "minItems": 1},
        "to": {"anyOf": [{"$ref": "#/$defs/to"}, {"type": "null"}]},
    },
    "required": ["files", "to"],
    "additionalProperties": False,
    "$defs": {
        "file": {
            "type": "object",
            "properties": {name: {"type": "string"} for name in ("path", "content", "mode")},
            "required": ["path", "content", "mode"],
            "additionalProperties": False,
        },
        "to": {
            "properties": {"where": {"$ref": "#/$defs/where"}, "port": {"type": "integer"}},
            "required": ["where", "port"],
        },
        "where": {"properties": {"host": {"enum": ["h"]}}, "required": ["text", "host"]},
    },
}


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize(
    ("within", "more"),
    [
        (
            "files",
            {
                "files": FILES["files"][2:],
                "files.1.path": "a.py",
                "files.1.mode": "a",
                "to": FILES["to"],
            },
        ),
        ("to", {"to.where.host": "h", "to.port": 1}),
    ],
)
def test_what_is_lacking_at_any_depth_is_asked_for(
    within: str, more: dict[str, Any], live: bool
) -> None:
    def members(body: dict[str, Any]) -> bytes:
        (tool,) = body["tools"]
        schema = tool["input_schema"]
        assert set(schema["required"]) == set(schema["properties"]) == set(more)
        if within == "files":
            assert schema["properties"]["files"]["items"] == {"$ref": "#/$defs/file"}
        return called(json.dumps(more), "tool_use")

    tools = [{"name": "Write", "input_schema": FILES_SCHEMA}]
    raw = json.dumps(FILES)
    at = raw.index('"text"' if within == "to" else '"content": "line') + 1700
    policy = replace(COMPLETE, stream_tool_calls="live" if live else "hold")
    driven = complete(at, rest(MANNERS["obeys"]), members, raw=raw, tools=tools, policy=policy)
    assert calls_of(driven) == [FILES]
    assert driven.report.calls[-1].how == "completed"


@pytest.mark.parametrize(
    "answer",
    [
        {"files": FILES["files"][:1], "files.1.path": "a.py", "files.1.mode": "a", "to": None},
        {"files": None, "files.1.path": "a.py", "files.1.mode": "a", "to": None},
        {"files": [], "files.1.path": "a.py", "to": None},
        {"files": [], "files.1.path": "a.py", "files.1.mode": 1, "to": None},
    ],
)
def test_a_list_goes_on_only_as_the_model_says(answer: dict[str, Any]) -> None:
    raw = json.dumps(FILES)
    at = raw.index('"content": "line') + 1700
    told = called(json.dumps(answer), "tool_use")
    tools = [{"name": "Write", "input_schema": FILES_SCHEMA}]
    driven = complete(at, rest(MANNERS["obeys"]), told, raw=raw, tools=tools)
    assert calls_of(driven) == []
    assert driven.report.calls[-1].reason


def test_a_call_that_the_schema_does_not_take_is_not_delivered() -> None:
    for more in ({"maxLength": 2000}, {"$ref": "https://example.com/text"}, {"type": "novel"}):
        properties = {"path": {"type": "string"}, "content": more}
        schema = {**SCHEMA, "properties": properties}
        tools = [{"name": "Write", "input_schema": schema}]
        driven = complete(1500, rest(MANNERS["obeys"]), tools=tools)
        assert calls_of(driven) == []
    closed = {**SCHEMA, "additionalProperties": False, "novel": 1}
    tools = [{"name": "Write", "input_schema": closed}]
    driven = complete(1500, rest(MANNERS["obeys"]), tools=tools)
    assert calls_of(driven) == [{"path": "a.py", "content": FILE}]


@pytest.mark.parametrize("tool", [{"name": "Write"}, ASKED["tools"][0]])
def test_arguments_that_are_no_json_are_not_delivered(tool: dict[str, Any]) -> None:
    raw = '{"path": "a\n.py", "content": ' + json.dumps(FILE) + "}"
    driven = complete(1500, rest(MANNERS["obeys"]), raw=raw, tools=[tool])
    assert calls_of(driven) == []
    assert driven.report.outcome is Outcome.TRUNCATED
    assert "internal" not in str(driven.report.reason)


@pytest.mark.parametrize("step", [pytest.param(19, marks=pytest.mark.slow), 397])
def test_cut_anywhere_it_is_whole_or_as_it_always_was(step: int) -> None:
    document = {"edits": [{"old": "a"}], "to": {"path": "a.py", "content": FILE, "n": 1}}
    for given_ in ({"path": "a.py", "content": FILE}, document):
        raw = json.dumps(given_)
        for at in range(0, len(raw), step):
            driven = complete(at, rest(MANNERS["obeys"]), raw=raw, tools=[{"name": "Write"}])
            for call in calls_of(driven):
                text = call.get("content") or call["to"]["content"]
                assert text == FILE


# --- cut outside of a text ------------------------------------------------------------------------

EDITS: Mapping[str, Any] = {
    "path": "a.py",
    "content": FILE,
    "edits": [{"old": "a", "new": "b"}],
    "to": {"mode": "w", "n": 1},
    "dry": True,
    "lines": -12.5e3,
}
LONGER = json.dumps(EDITS)
FORMS: dict[str, Any] = dict.fromkeys(EDITS, True)
EDIT: Mapping[str, Any] = {
    "type": "object",
    "properties": {**FORMS, "lines": {"$ref": "#/$defs/count"}, "mode": {"enum": ["w", "a"]}},
    "required": ["path", "content", "lines"],
    "additionalProperties": False,
    "$defs": {"count": {"type": "number"}},
}
ASKED_EDIT: Mapping[str, Any] = {"name": "Write", "input_schema": EDIT}


def members(body: dict[str, Any]) -> bytes:
    """Answer as a model that calls with what it is asked for, as it had it in mind."""
    (tool,) = body["tools"]
    assert body["tool_choice"] == {"type": "tool", "name": "Write"}
    kept = body["messages"][-1]["content"][-1]["text"].partition("\n<arrived>")[2]
    asked = tool["input_schema"]
    whole = json.loads(kept.partition("</arrived>")[0])
    assert [*asked["required"]] == [*asked["properties"]][: len(asked["required"])]
    assert asked["properties"].keys() == EDIT["properties"].keys() - whole.keys()
    given = {name: EDITS[name] for name in asked["properties"] if name in EDITS}
    return called(json.dumps(given), "tool_use")


@pytest.mark.parametrize(
    ("behind", "asked"),
    [
        ('"edits": [{"old": "', {"edits", "lines"}),
        ('"edits": [{"old": "a", "new": "b"}', {"edits", "lines"}),
        ('"edits": [{"old": "a", "new": "b"}]', {"lines"}),
        ('"edits": [{"old": "a", "new": "b"}], ', {"lines"}),
        ('"to": {"mode": ', {"to", "lines"}),
        ('"dr', {"dry", "lines"}),
        ('"dry": tr', {"dry", "lines"}),
        ('"dry": true', {"lines"}),
        ('"lines": -1', {"lines"}),
        ('"lines"', {"lines"}),
    ],
)
def test_cut_outside_a_text_only_what_is_not_whole_is_asked_for_again(
    behind: str, asked: set[str]
) -> None:
    at = LONGER.index(behind) + len(behind)
    driven = complete(at, members, raw=LONGER, tools=[{**ASKED_EDIT}])
    schema = driven.requests[1]["tools"][0]["input_schema"]
    assert set(schema["required"]) == asked
    (call,) = calls_of(driven)
    assert {**EDITS, **call} == EDITS
    assert call.keys() >= (asked & EDITS.keys()) | {"path", "content"}
    assert [call.how for call in driven.report.calls] == ["asked again"]


@pytest.mark.parametrize(
    ("raw", "tools"),
    [
        # It is most of the answer: as a call of its own it would be cut again.
        (json.dumps({"path": "a.py", "edits": FILE.splitlines()})[:-30], None),
        # Nobody knows what was to follow.
        (LONGER[: LONGER.index('"to"')], [{"name": "Write"}]),
        (LONGER[: LONGER.index('"to"')] + '"nov', None),
    ],
)
def test_what_cannot_be_asked_for_again_ends_the_call_as_ever(raw: str, tools: Any) -> None:
    driven = complete(len(raw), members, raw=raw, tools=tools or [{**ASKED_EDIT}])
    assert calls_of(driven) == []
    assert len(driven.requests) == 1
    assert driven.report.calls[0].reason


def test_a_live_call_is_asked_for_again_only_behind_what_was_shown() -> None:
    live = replace(COMPLETE, stream_tool_calls="live")
    edits = [{"old": f"{n}", "new": "b"} for n in range(50)]
    longer = json.dumps({**EDITS, "edits": edits})
    for raw, behind, whole in (
        (LONGER, '"dry": true,', True),
        (LONGER, '"lines": -1', True),
        (longer, '"old": "3', True),
        (longer, '"old": "40', False),
    ):
        at = raw.index(behind) + len(behind)
        driven = complete(at, members, raw=raw, tools=[{**ASKED_EDIT}], policy=live)
        assert len(driven.requests) == 1 + whole
        assert (calls_of(driven) == [EDITS]) is whole


# --- the open string ----------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)


@given(
    value=st.dictionaries(st.text(max_size=5), JSON, min_size=1),
    ascii_=st.booleans(),
    part=st.floats(0, 1),
)
@settings(max_examples=examples(60), deadline=None)
def test_an_open_string_gone_on_with_is_the_value_it_was_cut_from(
    value: dict[str, Any], ascii_: bool, part: float
) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_)
    at = int(len(raw) * part)
    if (place := open_string(raw[:at])) is not None:
        assert place.head + place.half == raw[:at]
        found: Any = value
        for key in place.keys:
            found = found[key]
        assert isinstance(found, str)
        assert found.startswith(place.text)
        done: Any = json.loads(place.with_text(found, {}))
        for key in place.keys:
            done = done[key]
        assert done == found
