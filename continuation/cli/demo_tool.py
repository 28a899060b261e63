"""The second demonstration: a streamed `Write` call that is cut after visible text."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jiter

from continuation.cli.demo_stage import (
    SMALLEST,
    Cast,
    Client,
    Show,
    Stage,
    Watch,
    long_enough,
    prove,
    tell_attempts,
    wrapped,
)
from continuation.cli.formats import Ear
from continuation.cli.words import number
from continuation.limits import find
from continuation.simulator import Scenario, tokens

if TYPE_CHECKING:
    from continuation.cli.screen import Advance, Screen

_SPARE = 256
"""Tokens for the text before the call."""


@dataclass(frozen=True)
class _Written:
    """What arrived: the visible text, the raw arguments, and the call as the SDK gives it."""

    text: str
    arguments: str
    calls: Sequence[Mapping[str, Any] | str]
    stop: str | None


def _stage(path: Path, content: bytes, cast: Cast) -> Stage:
    """Choose limits so that the first attempt is cut half-way and the ceiling is enough."""
    arguments = json.dumps({"path": path.name, "content": content.decode()}, ensure_ascii=False)
    whole = tokens(arguments) + _SPARE
    long_enough(path, tokens(arguments))
    known = find(cast.model)
    high_enough = known is not None and known.ceiling > whole
    scenario = Scenario(manner=cast.manner, call=True, ceiling=None if high_enough else whole)
    first = cast.limit or max(SMALLEST, whole // 2)
    return Stage(path, content, cast, first, len(arguments), scenario)


def _unwrapped(client: Client, stage: Stage, out: Screen) -> None:
    written = _received(client, stage, lambda _: None)
    arrived, whole = len(_content(written.arguments)), len(stage.text)
    out.line(f"   the model said {written.text!r} and called Write", "dim")
    if arrived < whole:
        share = f"{number(arrived)} of {number(whole)} characters of the file"
        out.line(f"   the call holds {share}, {stage.stop_name} {written.stop!r}", "red")
        out.line(f"   {_as_the_sdk_sees_it(written)}", "red")
    else:
        out.line(f"   a limit of {stage.limit} does not cut it, {stage.stop_name} {written.stop!r}")


def _as_the_sdk_sees_it(written: _Written) -> str:
    if not written.calls:
        return "and the SDK's answer has no call at all"
    if isinstance(call := written.calls[0], str):
        return "and in the SDK's answer its arguments are text that is no JSON"
    keys = ", ".join(call)
    return f"and looks complete: in the SDK's message its input has the keys: {keys or 'none'}"


def _wrapped(client: Client, stage: Stage, out: Screen) -> bool:
    watch = Watch(out)
    with out.progress(stage.length) as advance:
        written = _received(wrapped(client, watch), stage, advance)
    out.line(
        f"   the caller saw {written.text!r} once, and one call, {stage.stop_name} {written.stop!r}"
    )
    equal = prove("the call", stage.content, _only_content(written), out)
    if watch.report is not None:
        tell_attempts(watch.report, out)
    return equal and written.stop == stage.cast.format.called


def _received(client: Client, stage: Stage, advance: Advance) -> _Written:
    text: list[str] = []
    arguments: list[str] = []
    size = 0

    def hear(piece: str) -> None:
        nonlocal size
        arguments.append(piece)
        size += len(piece)
        advance(size)

    end = stage.cast.format.stream(client, stage.ask(tool=True), Ear(text.append, hear))
    return _Written("".join(text), "".join(arguments), end.calls, end.stop)


def _content(arguments: str) -> str:
    """Read as much of the file as there is in arguments that may be cut."""
    if not arguments:
        return ""
    parsed = jiter.from_json(arguments.encode(), partial_mode="trailing-strings")
    return str(parsed.get("content", ""))


def _only_content(written: _Written) -> bytes:
    """Return the content of the one call there must be."""
    contents = [_parsed(call).get("content") for call in written.calls]
    return contents[0].encode() if len(contents) == 1 and isinstance(contents[0], str) else b""


def _parsed(call: Mapping[str, Any] | str) -> Mapping[str, Any]:
    """Read a call as a program would: half a call is none."""
    with contextlib.suppress(ValueError):
        return json.loads(call) if isinstance(call, str) else call
    return {}


SHOW = Show(_stage, _unwrapped, _wrapped, paced=False)
