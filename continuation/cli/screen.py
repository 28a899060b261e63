"""Writes lines and tables: coloured and live on a terminal, as plain text elsewhere."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import textwrap
from collections.abc import Generator, Sequence
from typing import Any, Literal, Protocol, TextIO


class ShowLine(Protocol):
    """Replaces the text of a live line. `done`: the number of steps of its bar that are done."""

    def __call__(self, line: str, done: int = 0) -> object: ...


_COLUMNS, _NARROW = 60, 6
"""In characters: the longest line of a table, and the narrowest column that is folded."""
_mode: Literal["lines", "json", "quiet"] = "lines"


@contextlib.contextmanager
def output_mode(mode: Literal["lines", "json", "quiet"]) -> Generator[None]:
    """Set whether this process's commands write lines, JSON, or nothing."""
    global _mode
    before, _mode = _mode, mode
    try:
        yield
    finally:
        _mode = before


def print_json(value: Any) -> None:
    """Write a value as a line of JSON, if the command was called with `--json`."""
    if wants_json():
        Screen(sys.stdout).line(json.dumps(value))


def wants_json() -> bool:
    """Whether standard output must be JSON."""
    return _mode == "json"


class Screen:
    """Writes plain lines to a stream (`None`: writes nothing). Write errors are ignored."""

    live = False
    """Whether it is a terminal with live lines."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def line(self, text: str = "", style: str = "") -> None:
        if self._stream is None:
            return
        with contextlib.suppress(OSError):
            self._stream.write(text + "\n")
            self._stream.flush()

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Write a table in at most 60 columns.

        If a column's head begins with `>`, the column is aligned right. The others are folded, the
        widest first. Words are broken only if that is not enough, because a search does not find a
        broken word.
        """
        names = [name.removeprefix(">") for name in head]
        columns = [*zip(names, *rows, strict=True)]
        widths = [max(map(len, column)) for column in columns]
        words = [
            max(len(word) for cell in each for word in cell.split() or [""]) for each in columns
        ]
        while sum(widths) + 2 * len(widths) > _COLUMNS:
            left = [at for at, name in enumerate(head) if not name.startswith(">")]
            # The first column has the name of the row, so the others are folded before it.
            later = {at for at in left if at and widths[at] > 2 * _NARROW}
            widest = max(left, key=lambda at: (widths[at] > words[at], at in later, widths[at]))
            if widths[widest] <= _NARROW:
                break
            widths[widest] -= 1
        for row in (names, *rows):
            folded = [_fold(cell, width) for cell, width in zip(row, widths, strict=True)]
            for number in range(max(map(len, folded))):
                cells = [lines[number] if number < len(lines) else "" for lines in folded]
                placed = (
                    cell.rjust(width) if name.startswith(">") else cell.ljust(width)
                    for cell, width, name in zip(cells, widths, head, strict=True)
                )
                self.line(("  " + "  ".join(placed)).rstrip(), "bold" if row is names else "")

    @contextlib.contextmanager
    def progress(self, total: int | None = None) -> Generator[ShowLine, None, None]:
        """Show a live line; yield a function that sets its text.

        `total`: the number of steps of its progress bar; None: it has no bar.
        """
        yield lambda line, done=0: None


def _fold(cell: str, width: int) -> list[str]:
    folded = textwrap.wrap(
        cell, max(width, 1), drop_whitespace=len(cell.split("  ")) == 1, break_on_hyphens=False
    )
    return folded or [""]


def screen(stream: TextIO) -> Screen:
    """Return the screen for a stream. A coloured one needs a terminal and the package `rich`."""
    if _mode != "lines":
        return Screen(None)
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if is_terminal(stream) and not plain:
        with contextlib.suppress(ImportError):
            return _Fancy(stream)
    return Screen(stream)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is open, and a terminal."""
    return stream is not None and not stream.closed and stream.isatty()


class _Fancy(Screen):
    """A screen with colours and live lines, which uses `rich`."""

    live = True

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)

    def line(self, text: str = "", style: str = "") -> None:
        self._console.print(text, style=style or None, soft_wrap=True)

    @contextlib.contextmanager
    def progress(self, total: int | None = None) -> Generator[ShowLine, None, None]:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        columns = SpinnerColumn(), TextColumn("{task.description}", markup=False)
        bar = [] if total is None else [BarColumn(20)]
        with Progress(*columns, *bar, console=self._console) as progress:
            task = progress.add_task("", total=total)
            yield lambda line, done=0: progress.update(task, description=line, completed=done)


def soften(*streams: TextIO | None) -> None:
    """Make streams write `?` for a character that they cannot encode, instead of raising."""
    for stream in streams:
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="replace")


def silence(*streams: TextIO | None) -> None:
    """Flush streams. Replace a closed pipe by the null device, else Python reports it at exit."""
    for stream in streams:
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # type: ignore[union-attr]
