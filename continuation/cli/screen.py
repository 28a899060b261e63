"""Where lines and tables go: coloured and live on a terminal, plain text everywhere else."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Sequence
from typing import TextIO

Advance = Callable[[int], None]
"""Called with the number of characters so far."""


class Screen:
    """What a command writes to: one plain line after the other.

    Nobody who stops listening can break anything.
    """

    live = False
    """Somebody may be looking: it is a terminal."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def line(self, text: str = "", style: str = "") -> None:
        if self._stream is None:
            return
        with contextlib.suppress(OSError):
            self._stream.write(text + "\n")
            self._stream.flush()

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Write a table; its cells stand right in columns whose head begins with `>`."""
        names = [name.removeprefix(">") for name in head]
        widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
        for row in (names, *rows):
            cells = (
                cell.rjust(width) if name.startswith(">") else cell.ljust(width)
                for cell, width, name in zip(row, widths, head, strict=True)
            )
            self.line(("  " + "  ".join(cells)).rstrip())

    @contextlib.contextmanager
    def progress(self, total: int | None) -> Generator[Advance, None, None]:
        """Show how many characters have arrived, of `total` if it is known."""
        yield lambda _: None


def screen(stream: TextIO) -> Screen:
    """Return the screen for a stream; without rich, an extra of ours, all of them are plain."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if is_terminal(stream) and not plain:
        with contextlib.suppress(ImportError):
            return _Fancy(stream)
    return Screen(stream)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is open, and a terminal."""
    return stream is not None and not stream.closed and stream.isatty()


class _Fancy(Screen):
    """Colours, and a line that moves, by rich."""

    live = True

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)

    def line(self, text: str = "", style: str = "") -> None:
        self._console.print(text, style=style or None, soft_wrap=True)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(header_style="bold")
        for name in head:
            table.add_column(
                name.removeprefix(">"),
                justify="right" if name.startswith(">") else "left",
                overflow="fold",
            )
        for row in rows:
            table.add_row(*map(Text, row))
        self._console.print(table)

    @contextlib.contextmanager
    def progress(self, total: int | None) -> Generator[Advance, None, None]:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        told = "{task.completed:,}" + (" of {task.total:,}" if total else "") + " characters"
        bar = [BarColumn()] if total else []
        columns = (SpinnerColumn(), *bar, TextColumn(told))
        with Progress(*columns, console=self._console, transient=total is None) as progress:
            task = progress.add_task("", total=total)
            yield lambda count: progress.update(task, completed=count)


def soften(*streams: TextIO | None) -> None:
    """Let a character that a stream cannot show become `?` instead of an error."""
    for stream in streams:
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="replace")


def silence(*streams: TextIO | None) -> None:
    """Flush; where nobody listens any more, keep the interpreter from saying so at its exit."""
    for stream in streams:
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # type: ignore[union-attr]
