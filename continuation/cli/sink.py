"""Where an answer goes, piece by piece: standard output, or a file that is whole at any moment."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from continuation.cli.exits import CommandError, Exit, reason
from continuation.cli.screen import is_terminal


class SinkError(Exception):
    """The answer could not be written; the text says why."""


class Sink:
    """Takes an answer's text as UTF-8 and flushes every piece. `name` is for the user."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self.name = name
        self.written = 0
        """Characters written so far."""
        self._stream = stream
        self._last = ""

    def write(self, text: str) -> None:
        """Write and flush; raises `SinkError`."""
        if not text:
            return
        try:
            self._begin()
            # Counted first: Ctrl-C may come between the write and the next statement.
            self.written += len(text)
            self._stream.write(text.encode(errors="replace"))
            self._stream.flush()
        except OSError as error:
            self.written -= len(text)
            message = f"{self.name}: {error.strerror or error}"
            raise SinkError(message) from error
        self._last = text[-1]

    def _begin(self) -> None:
        """Called before each piece."""

    def end(self) -> None:
        """Leave a terminal's cursor on a line of its own."""
        if self.written and self._last != "\n" and is_terminal(sys.stdout):
            with contextlib.suppress(OSError):
                self._stream.write(b"\n")
                self._stream.flush()
            self._last = "\n"

    def __enter__(self) -> Sink:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()


class _File(Sink):
    """A file: made at once, so that a wrong path costs nothing; emptied when text has come."""

    def __init__(self, path: Path) -> None:
        self._new = not path.exists()
        self._path = path
        stream = path.open("ab")
        self._regular = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
        super().__init__(stream, str(path))

    def _begin(self) -> None:
        if self._regular and not self.written:
            self._stream.truncate(0)

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.close()
        if self._new and self._regular and not self.written:
            self._path.unlink(missing_ok=True)


def open_sink(path: Path | None) -> Sink:
    """Open the place for an answer. An existing file stays as it is until the first text comes."""
    if path is None:
        return Sink(_standard_output(), "standard output")
    try:
        return _File(path)
    except OSError as error:
        message = f"--out {reason(error)}; choose a path that can be written"
        raise CommandError(message, Exit.USAGE) from error


def _standard_output() -> BinaryIO:
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison] - closed by `>&-`
        message = "standard output is closed; choose a file with --out FILE"
        raise CommandError(message, Exit.USAGE)
    return sys.stdout.buffer
