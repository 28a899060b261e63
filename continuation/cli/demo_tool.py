"""The second demonstration: a streamed `Write` call that is cut after visible text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import jiter

import continuation
from continuation.cli.demo_stage import (
    SMALLEST,
    Client,
    Show,
    Stage,
    Watch,
    long_enough,
    prove,
    tell_attempts,
)
from continuation.cli.words import number
from continuation.limits import find
from continuation.simulator import Scenario, tokens

if TYPE_CHECKING:
    from anthropic.types import ToolParam

    from continuation.cli.screen import Advance, Screen

_SPARE = 256
"""Tokens for the text before the call."""
_TOOL: ToolParam = {
    "name": "Write",
    "description": "Write a file.",
    "input_schema": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
        "required": ["path", "content"],
    },
}


@dataclass(frozen=True)
class _Written:
    """What arrived: the visible text, the raw arguments, and the call as the SDK gives it."""

    text: str
    arguments: str
    calls: list[dict[str, Any]]
    stop: str | None


def _stage(path: Path, content: bytes, model: str, limit: int | None, manner: str) -> Stage:
    """Choose limits so that the first attempt is cut half-way and the ceiling is enough."""
    arguments = json.dumps({"path": path.name, "content": content.decode()}, ensure_ascii=False)
    whole = tokens(arguments) + _SPARE
    long_enough(path, tokens(arguments))
    known = find(model)
    high_enough = known is not None and known.ceiling > whole
    scenario = Scenario(manner=manner, call=True, ceiling=None if high_enough else whole)
    return Stage(path, content, model, limit or max(SMALLEST, whole // 2), len(arguments), scenario)


def _unwrapped(client: Client, stage: Stage, out: Screen) -> None:
    written = _received(client, stage, lambda _: None)
    arrived, whole = len(_content(written.arguments)), len(stage.text)
    out.line(f"   the model said {written.text!r} and called Write", "dim")
    if arrived < whole:
        share = f"{number(arrived)} of {number(whole)} characters of the file"
        out.line(f"   the call holds {share}, stop_reason {written.stop!r}", "red")
        out.line(f"   {_as_the_sdk_sees_it(written)}", "red")
    else:
        out.line(f"   a limit of {stage.limit} does not cut it, stop_reason {written.stop!r}")


def _as_the_sdk_sees_it(written: _Written) -> str:
    keys = ", ".join(written.calls[0]) if written.calls else ""
    return f"and looks complete: in the SDK's message its input has the keys: {keys or 'none'}"


def _wrapped(client: Client, stage: Stage, out: Screen) -> bool:
    watch = Watch(out)
    wrapped = continuation.wrap(client, on_event=watch.hear)
    with out.progress(stage.length) as advance:
        written = _received(wrapped, stage, advance)
    out.line(f"   the caller saw {written.text!r} once, and one call, stop_reason {written.stop!r}")
    equal = prove("the call", stage.content, _only_content(written), out)
    if watch.report is not None:
        tell_attempts(watch.report, out)
    return equal and written.stop == "tool_use"


def _received(client: Client, stage: Stage, advance: Advance) -> _Written:
    text: list[str] = []
    arguments: list[str] = []
    size = 0
    with client.messages.stream(**stage.request, tools=[_TOOL]) as stream:
        for event in stream:
            if event.type == "text":
                text.append(event.text)
            elif event.type == "input_json":
                arguments.append(event.partial_json)
                size += len(event.partial_json)
                advance(size)
        message = stream.get_final_message()
    calls = [cast("dict[str, Any]", b.input) for b in message.content if b.type == "tool_use"]
    return _Written("".join(text), "".join(arguments), calls, message.stop_reason)


def _content(arguments: str) -> str:
    """Read as much of the file as there is in arguments that may be cut."""
    if not arguments:
        return ""
    parsed = jiter.from_json(arguments.encode(), partial_mode="trailing-strings")
    return str(parsed.get("content", ""))


def _only_content(written: _Written) -> bytes:
    """Return the content of the one call there must be."""
    contents = [call.get("content") for call in written.calls]
    return contents[0].encode() if len(contents) == 1 and isinstance(contents[0], str) else b""


SHOW = Show(_stage, _unwrapped, _wrapped, paced=False)
