"""The first demonstration: a long text, cut several times, joined without a seam to be seen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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
from continuation.cli.words import SEAM_HEAD, number, seam_rows
from continuation.simulator import Scenario, tokens

if TYPE_CHECKING:
    from continuation.cli.screen import Screen
    from continuation.reports.report import Report

_RECOVERIES = 3
_SPARE = 128
"""Tokens of a recovery that may be words already said."""


def _stage(path: Path, content: bytes, cast: Cast) -> Stage:
    """Choose limits so that one attempt and three recoveries are enough, and needed.

    The first attempt gets a fifth of the answer, the ceiling is a third of the rest and some more.
    """
    text = content.decode()
    whole = tokens(text)
    long_enough(path, whole)
    first = cast.limit or max(SMALLEST, whole // 5)
    rest = max(0, whole - first)
    ceiling = max(first, rest // _RECOVERIES + rest // 300 + _SPARE)
    scenario = Scenario(manner=cast.manner, ceiling=ceiling)
    return Stage(path, content, cast, first, len(text), scenario)


def _unwrapped(client: Client, stage: Stage, out: Screen) -> None:
    pieces: list[str] = []
    stop = stage.cast.format.stream(client, stage.ask(), Ear(pieces.append)).stop
    text = "".join(pieces)
    share = f"{number(len(text))} of {number(stage.length)} characters"
    if len(text) < stage.length:
        out.line(f"   {share}, {stage.stop_name} {stop!r}: the rest is lost", "red")
    else:
        out.line(
            f"   {share}, {stage.stop_name} {stop!r}: a limit of {stage.limit} does not cut it"
        )


def _wrapped(client: Client, stage: Stage, out: Screen) -> bool:
    watch = Watch(out)
    text = _received(wrapped(client, watch), stage, watch)
    equal = prove("the answer", stage.content, text.encode(errors="replace"), out)
    if watch.report is not None:
        tell_attempts(watch.report, out)
        _tell_seams(watch.report, text, out)
    return equal


def _received(client: Client, stage: Stage, watch: Watch) -> str:
    pieces: list[str] = []
    with watch.out.progress(stage.length) as advance:

        def hear(piece: str) -> None:
            pieces.append(piece)
            watch.received += len(piece)
            advance(watch.received)

        stage.cast.format.stream(client, stage.ask(), Ear(hear))
    return "".join(pieces)


def _tell_seams(report: Report, text: str, out: Screen) -> None:
    if report.seams:
        out.line()
        out.table(SEAM_HEAD, seam_rows(report, text))


SHOW = Show(_stage, _unwrapped, _wrapped)
