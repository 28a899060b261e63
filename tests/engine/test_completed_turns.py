"""Calls and documents larger than a ceiling, through each SDK: whole, or as they always were."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import anthropic
import openai
import pytest
from anthropic import beta_async_tool, beta_tool
from google.genai import types
from pydantic import BaseModel
from support.sdks import gemini, responses
from support.sdks.formats import FORMATS, MAKES, request
from support.sdks.turn import FAST, HOWS, How, Turn, play, streamed

import continuation
from continuation.simulator import Raw, Reply, Scenario, Simulator, Text, ToolUse
from continuation.simulator.model import Ask, Reciter
from continuation.types import Outcome

CALLS = replace(FAST, truncated_tool_call="complete")
DOCUMENTS = replace(FAST, truncated_document="complete")
LIMIT = 4_000
"""The ceiling, and what is asked for."""
CONTENT = "".join(f'{n}: say("\\\\{n}", "é😀")\n' for n in range(14))
FIRST = ToolUse("Read", {"path": "b.py"})
Kind = Literal["call", "document", "patch"]


class Obedient(Reciter):
    """A model that makes a call, or writes a document, that is cut; and goes on as it is told."""

    def __init__(self, value: Mapping[str, Any], at: int, kind: Kind) -> None:
        self.value, self.at, self.kind = value, at, kind
        super().__init__(json.dumps(value))

    def reply(self, ask: Ask, scenario: Scenario) -> Reply:
        prompt = ask.turns[-1].text
        if asked := re.search(r" The call (?:still lacks|may have) ([^.]*)\.", prompt):
            names = re.findall(r"`(\w+)`", asked[1])
            return Reply([ToolUse("Edit", {n: self.value[n] for n in names if n in self.value})])
        if ask.turns[-1].results:
            return Reply([Text("Done.")])
        if prompt == "Go.":
            text = self.answer[: self.at]
            made: dict[Kind, list[Any]] = {
                "call": [Text("I edit."), FIRST, ToolUse("Edit", self.answer, cut=self.at)],
                "patch": [Text("I edit."), Raw({**PATCH, "input": CONTENT[: self.at]})],
                "document": [Text(text)] if text else [],
            }
            return Reply(made[self.kind], stop="max_tokens")
        quoted = re.findall(r"<(anchor|arrived)((?:-\d+)?)>(.*?)</\1\2>", prompt, re.DOTALL)
        told = {name: text for name, _, text in quoted}
        rest = self.answer[self.at :]
        if self.kind != "document":
            texts = [text for text in _texts(self.value) if text.startswith(told["arrived"])]
            rest = texts[0][len(told["arrived"]) :]
        sign = re.search(r"<end-[0-9a-f]{8}>", prompt) if self.kind != "document" else None
        end = sign[0] if sign is not None else ""
        return Reply([Text(told.get("anchor", "") + rest + end)])


def _texts(value: Any) -> Iterator[str]:
    """Yield all strings in a value, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def simulator(value: Mapping[str, Any], at: int, kind: Kind) -> Simulator:
    return Simulator(Obedient(value, at, kind), Scenario(ceiling=LIMIT, strict_signatures=True))


# --- calls --------------------------------------------------------------------------------------

NESTED = {
    "path": "a.py",
    "edits": [{"old": "a" * 30, "new": "b"}],
    "to": {"mode": "w", "content": CONTENT},
    "n": -12.5e3,
}
SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "edits": {"type": "array", "items": {"$ref": "#/$defs/edit"}},
        "to": {
            "type": "object",
            "properties": {"mode": {"enum": ["w", "a"]}, "content": {"type": "string"}},
            "additionalProperties": False,
        },
        "n": {"type": "number"},
    },
    "required": ["path", "to", "n"],
    "additionalProperties": False,
    "$defs": {"edit": {"type": "object", "required": ["old", "new"]}},
}


def tools(dialect: str, *, forced: bool) -> dict[str, Any]:
    """Return what declares the tool Edit, or forces a call, in the words of a format's SDK."""
    choice: dict[str, Any] = {"tool_choice": "required"} if forced else {}
    match dialect:
        case "anthropic-messages":
            choice = {"tool_choice": {"type": "any"}} if forced else {}
            return {"tools": [{"name": "Edit", "input_schema": SCHEMA}], **choice}
        case "openai-chat":
            function = {"name": "Edit", "parameters": SCHEMA}
            return {"tools": [{"type": "function", "function": function}], **choice}
        case "openai-responses":
            return {"tools": [{"type": "function", "name": "Edit", "parameters": SCHEMA}], **choice}
        case _:
            told = types.FunctionDeclaration(name="Edit", parameters_json_schema=SCHEMA)
            calling = types.FunctionCallingConfig(
                stream_function_call_arguments=True,
                mode=types.FunctionCallingConfigMode.ANY if forced else None,
            )
            return {
                "tools": [types.Tool(function_declarations=[told])],
                "tool_config": types.ToolConfig(function_calling_config=calling),
            }


def edit(ran: Turn, dialect: str) -> Any:
    """Return the arguments of the call Edit as a program would put them together; None: no call."""
    if dialect != "gemini":
        made = dict(ran.tool_calls)
        assert made["Read"] == FIRST.arguments
        return made.get("Edit")
    assert isinstance(ran, gemini.Ran)
    whole: dict[str, Any] = {}
    opened = closed = False
    for call in ran.calls:
        opened = opened or call.name == "Edit"
        closed = opened and not (call.will_continue or call.name)
        for piece in (call.partial_args or []) if opened else []:
            node: Any = whole
            *steps, last = re.findall(r"\w+", piece.json_path or "")
            for step, more in zip(steps, [*steps[1:], last], strict=bool(steps)):
                node = _at(node, step, [] if more.isdigit() else {})
            value = piece.model_dump(exclude_none=True, exclude={"json_path", "will_continue"})
            (value,) = value.values()
            if isinstance(value, str):
                value = _at(node, last, "") + value
            _at(node, last, value)
            node[int(last) if isinstance(node, list) else last] = value
    assert opened == closed, "half a call"
    return whole if opened else None


def _at(node: Any, step: str, empty: Any) -> Any:
    if isinstance(node, dict):
        return node.setdefault(step, empty)
    node.extend([empty] * (int(step) + 1 - len(node)))
    return node[int(step)]


RAW_CALL = json.dumps(NESTED)


def in_the_text(dialect: str) -> range:
    """Return where a cut falls inside the content, behind enough of it to quote."""
    if dialect == "gemini":  # whose cuts are counted in characters of values
        before = sum(map(len, _texts(NESTED))) - len(CONTENT)
        return range(before + 90, before + len(CONTENT) - 1)
    start = RAW_CALL.index('"content"')
    return range(start + 120, RAW_CALL.index('"}', start))


def ask(dialect: str, how: How, at: int, *, forced: bool = False, sure: bool = True) -> bool | None:
    """Cut the call there; return whether it is whole, `None` where it need not be; never half.

    `forced`: it is structured output, as frameworks ask for it. `sure`: it has to be whole where
    that can be. Where the words before the cut do not show how the rest is written, it stays cut.
    """
    with simulator(NESTED, at, "call") as sim:
        make = gemini.Ran(vertex=True) if dialect == "gemini" else MAKES[dialect]()
        asked = request(dialect, LIMIT, tools(dialect, forced=forced))
        ran = play(make, how, sim, asked, DOCUMENTS if forced else CALLS)
        assert ran.error is None
        made, whole = edit(ran, dialect), None
        assert made in (None, NESTED)
        lesser = dialect != "gemini" and at > RAW_CALL.index('"n"')
        if lesser or (at in in_the_text(dialect) and (dialect != "gemini" or streamed(how))):
            assert made == NESTED or not sure, (dialect, how, at)
            whole = made == NESTED
            assert (ran.told.outcome is Outcome.HEALED) is whole
            assert (ran.told.calls[-1].how in ("completed", "asked again")) is whole
        if (
            at % 5 == 0 and dialect != "gemini"
        ):  # there it is for the program to put the pieces together
            again = play(type(make)(), how, sim, ran.following(asked), FAST)
            assert again.error is None
        return whole


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("dialect", FORMATS)
def test_the_second_call_is_cut_inside_its_text(dialect: str, how: How) -> None:
    ask(dialect, how, in_the_text(dialect)[37], forced=how.startswith("async"))


@pytest.mark.parametrize("dialect", FORMATS)
def test_a_live_call_flows_on_in_its_block_and_ends_as_cut_if_it_fails(dialect: str) -> None:
    live = replace(CALLS, stream_tool_calls="live", model_max_output_tokens=LIMIT)
    wrong = {
        **NESTED,
        "to": {"mode": "novel", "content": CONTENT},
    }  # which the schema tells at last
    for value, outcome in ((NESTED, Outcome.HEALED), (wrong, Outcome.TRUNCATED)):
        with simulator(value, in_the_text(dialect)[37], "call") as sim:
            make = gemini.Ran(vertex=True) if dialect == "gemini" else MAKES[dialect]()
            asked = request(dialect, LIMIT, tools(dialect, forced=False))
            ran = play(make, "sync-stream", sim, asked, live)
        assert ran.error is None
        assert ran.told.outcome is outcome
        assert ran.told.calls[-1].reason == (
            None if value is NESTED else "to.mode: the tool's schema says 'enum'"
        )
        if value is NESTED:
            assert edit(ran, dialect) == NESTED
        else:
            assert ran.says_cut


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("dialect", FORMATS)
def test_the_second_call_is_cut_anywhere(dialect: str, how: How) -> None:
    """Every character is cut in one of the ways; with `CUT_EVERYWHERE=1` in all of them."""
    ways = 1 if os.environ.get("CUT_EVERYWHERE") else len(HOWS) * len(FORMATS)
    first = FORMATS.index(dialect) * len(HOWS) + HOWS.index(how)
    came = [ask(dialect, how, at, sure=False) for at in range(first % ways, len(RAW_CALL), ways)]
    assert came.count(True) >= 0.75 * (came.count(True) + came.count(False)), came


# --- free-form input, and who runs calls ----------------------------------------------------------

PATCH = {"type": "custom_tool_call", "call_id": "call_c", "name": "patch", "status": "incomplete"}


@pytest.mark.parametrize("how", HOWS)
def test_a_patch_goes_on_as_plain_text(how: How) -> None:
    with simulator({"input": CONTENT}, 150, "patch") as sim:
        custom = [{"type": "custom", "name": "patch"}]
        ran = play(responses.Ran(), how, sim, request(FORMATS[2], LIMIT, {"tools": custom}), CALLS)
        (item,) = ran.said.output[1:]
        assert (item.input, item.to_dict().get("status")) == (CONTENT, "completed")
        assert ran.told.calls[-1].how == "completed"


@pytest.mark.parametrize("how", HOWS)
def test_a_tool_runner_runs_exactly_the_completed_call(how: How) -> None:
    written: list[tuple[str, str]] = []

    def write(path: str, content: str) -> str:
        """Write a file."""
        written.append((path, content))
        return "written"

    async def write_later(path: str, content: str) -> str:
        """Write a file."""
        await asyncio.sleep(0)
        return write(path, content)

    async def read_later(path: str) -> str:
        return path

    def asked(*tools: Any) -> dict[str, Any]:
        go = [{"role": "user", "content": "Go."}]
        told = {"model": "claude-opus-5", "max_tokens": LIMIT, "messages": go}
        return {**told, "tools": tools, "stream": streamed(how), "thread": False}

    async def later(url: str) -> Any:
        async with anthropic.AsyncAnthropic(base_url=url, api_key="key", timeout=600) as bare:
            client = continuation.wrap(bare, config=CALLS)
            tools = asked(
                beta_async_tool(write_later, name="Edit"),
                beta_async_tool(read_later, name="Read", description="r"),
            )
            runner: Any = client.beta.messages.tool_runner(**tools)
            return await runner.until_done()

    value = {"path": "a.py", "content": CONTENT}
    with Simulator(Obedient(value, 180, "call"), Scenario(ceiling=LIMIT)) as sim:
        if how.startswith("async"):
            done = asyncio.run(later(sim.url))
        else:
            bare = anthropic.Anthropic(base_url=sim.url, api_key="key", timeout=600)
            tools = asked(
                beta_tool(write, name="Edit"),
                beta_tool(lambda path: path, name="Read", description="r"),
            )
            client: Any = continuation.wrap(bare, config=CALLS)
            done = client.beta.messages.tool_runner(**tools).until_done()
        assert done.stop_reason == "end_turn"
    assert written == [("a.py", CONTENT)]


@pytest.mark.parametrize("ceiling", [300, 20_000])
@pytest.mark.parametrize("how", HOWS)
def test_automatic_function_calling_runs_a_cut_call_once_it_is_whole(
    how: How, ceiling: int
) -> None:
    """Google's comes whole or not at all, so one larger than the ceiling is never run."""
    written: list[tuple[str, str]] = []
    text = CONTENT * 9

    def Write(path: str, content: str) -> str:  # noqa: N802 - the simulated model's own name for it
        """Write a file."""
        written.append((path, content))
        return "ok"

    async def later(client: Any, asked: dict[str, Any]) -> str:
        async with client.aio as aio:
            if not streamed(how):
                return (await aio.models.generate_content(**asked)).text or ""
            stream = await aio.models.generate_content_stream(**asked)
            return "".join([chunk.text or "" async for chunk in stream])

    with (
        Simulator(text, Scenario(call=True, ceiling=ceiling)) as sim,
        gemini.connect(sim.url) as bare,
    ):
        client = continuation.wrap(bare, config=replace(CALLS, model_max_output_tokens=ceiling))
        config = {"max_output_tokens": 300, "tools": [Write]}
        asked: dict[str, Any] = {"model": gemini.NEW, "contents": "Go.", "config": config}
        if how.startswith("async"):
            said = asyncio.run(later(client, asked))
        elif streamed(how):
            chunks = client.models.generate_content_stream(**asked)
            said = "".join(chunk.text or "" for chunk in chunks)
        else:
            said = client.models.generate_content(**asked).text or ""
    whole = ceiling > LIMIT
    assert written == ([("answer.txt", text)] if whole else [])
    assert ("The file is written." in said) is whole


class Edit(BaseModel):
    """What a call of Edit is parsed into."""

    path: str
    content: str


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("chat", [True, False])
def test_the_helpers_of_openai_parse_the_completed_call(chat: bool, how: How) -> None:
    def ask(client: Any) -> tuple[Any, dict[str, Any]]:
        """Return where to ask, and what."""
        tool: Any = openai.pydantic_function_tool(Edit)
        if not chat:
            tool = {**tool["function"], "type": "function"}
            return client.responses, {"model": "gpt-5.4", "input": "Go.", "tools": [tool]}
        go = [{"role": "user", "content": "Go."}]
        return client.chat.completions, {"model": "gpt-5.4", "messages": go, "tools": [tool]}

    async def later(url: str) -> Any:
        async with openai.AsyncOpenAI(base_url=url, api_key="k") as bare:
            made, asked = ask(continuation.wrap(bare, config=CALLS))
            if not streamed(how):
                return await made.parse(**asked)
            async with made.stream(**asked) as opened:
                last = opened.get_final_completion if chat else opened.get_final_response
                return await last()

    value = Edit(path="a.py", content=CONTENT)
    model = Obedient(value.model_dump(), 180, "call")
    with Simulator(model, Scenario(ceiling=LIMIT)) as sim:
        url = f"{sim.url}/v1"
        if how.startswith("async"):
            answer = asyncio.run(later(url))
        else:
            bare = openai.OpenAI(base_url=url, api_key="k")
            made, asked = ask(continuation.wrap(bare, config=CALLS))
            with made.stream(**asked) if streamed(how) else _Once(made.parse(**asked)) as opened:
                last = opened.get_final_completion if chat else opened.get_final_response
                answer = last()
    if chat:
        assert answer.choices[0].message.tool_calls[-1].function.parsed_arguments == value
    else:
        assert answer.output[-1].parsed_arguments in (value, value.model_dump())


class _Once:
    """An answer that came at once, with the manners of a stream."""

    def __init__(self, answer: Any) -> None:
        self.get_final_completion = self.get_final_response = self.get_final_message = lambda: (
            answer
        )

    def __enter__(self) -> _Once:
        return self

    def __exit__(self, *_: object) -> None:
        return


# --- documents ------------------------------------------------------------------------------------


class Item(BaseModel):
    """A part of the document."""

    name: str
    tags: list[str]


class Report(BaseModel):
    """The document."""

    title: str
    items: list[Item]
    total: float


REPORT = Report(
    title='The "log" of é😀\n',
    items=[Item(name=f"item {n} of many", tags=["a\\b", f"{n}"]) for n in range(4)],
    total=-1234.5678,
)


def parsed(dialect: str, url: str, *, stream: bool, policy: Any = DOCUMENTS) -> Any:
    """Return what the SDK's helper makes of the answer, and why it ended."""
    go: Any = [{"role": "user", "content": "Go."}]
    match dialect:
        case "anthropic-messages":
            bare: Any = anthropic.Anthropic(base_url=url, api_key="key", timeout=600)
            made = continuation.wrap(bare, config=policy).messages
            asked: Any = {"model": "claude-opus-5", "max_tokens": LIMIT, "messages": go}
            asked["output_format"] = Report
            with made.stream(**asked) if stream else _Once(made.parse(**asked)) as opened:
                message = opened.get_final_message()
            return message.parsed_output
        case "openai-chat":
            bare = openai.OpenAI(base_url=f"{url}/v1", api_key="k")
            made = continuation.wrap(bare, config=policy).chat.completions
            asked = {"model": "gpt-5.4", "messages": go, "response_format": Report}
            asked["max_completion_tokens"] = LIMIT
            with made.stream(**asked) if stream else _Once(made.parse(**asked)) as opened:
                return opened.get_final_completion().choices[0].message.parsed
        case "openai-responses":
            bare = openai.OpenAI(base_url=f"{url}/v1", api_key="k")
            made = continuation.wrap(bare, config=policy).responses
            asked = {"model": "gpt-5.4", "input": "Go.", "text_format": Report}
            asked["max_output_tokens"] = LIMIT
            with made.stream(**asked) if stream else _Once(made.parse(**asked)) as opened:
                return opened.get_final_response().output_parsed
        case _:
            with gemini.connect(url) as bare:
                made = continuation.wrap(bare, config=policy).models
                config: Any = {"max_output_tokens": LIMIT, "response_schema": Report}
                config["response_mime_type"] = "application/json"
                asked = {"model": gemini.NEW, "contents": "Go.", "config": config}
                if not stream:
                    return made.generate_content(**asked).parsed
                text = "".join(each.text or "" for each in made.generate_content_stream(**asked))
                return Report.model_validate_json(text)


def cut_at(dialect: str, places: Iterable[int], *, stream: bool) -> None:
    model = Obedient(REPORT.model_dump(), 0, "document")
    with Simulator(model, Scenario(ceiling=LIMIT)) as sim:
        for model.at in places:
            sim.reset()
            assert parsed(dialect, sim.url, stream=stream) == REPORT, model.at


RAW = json.dumps(REPORT.model_dump())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", FORMATS)
def test_a_cut_document_is_parsed_whole(dialect: str, stream: bool) -> None:
    cut_at(
        dialect, [RAW.index("item 2") + 3, RAW.index("}, {", 150) + 2, len(RAW) - 4], stream=stream
    )


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", FORMATS)
def test_a_document_is_cut_anywhere(dialect: str, stream: bool) -> None:
    first = FORMATS.index(dialect) * 2 + stream
    cut_at(dialect, range(1 + first, len(RAW), 8), stream=stream)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", FORMATS)
def test_a_document_that_the_schema_does_not_take_stays_cut(dialect: str, stream: bool) -> None:
    """What the SDK then says is its own affair; that nothing whole is claimed is ours."""
    value = {**REPORT.model_dump(), "total": "much"}
    with Simulator(Obedient(value, 90, "document"), Scenario(ceiling=LIMIT)) as sim:
        with contextlib.suppress(ValueError, openai.LengthFinishReasonError):
            assert parsed(dialect, sim.url, stream=stream) is None
        report = continuation.last_report()
    assert report is not None
    assert report.outcome is Outcome.TRUNCATED
