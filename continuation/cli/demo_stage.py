"""What both demonstrations share: the stage they are set on, who watches, and the proof."""

from __future__ import annotations

import hashlib
import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import continuation
from continuation.cli.exits import CommandError, Exit, reason
from continuation.cli.formats import Ask, Format
from continuation.cli.words import ATTEMPT_HEAD, attempt_rows, costs, describe, number, refused
from continuation.reports.report import (
    Escalating,
    Event,
    Finished,
    Recovering,
    Report,
    Retrying,
    Truncated,
)

if TYPE_CHECKING:
    from continuation.cli.screen import Screen
    from continuation.simulator import Scenario

Client: TypeAlias = Any
"""A client of whichever SDK the format is spoken by."""

SMALLEST = 256
"""Requests with a smaller limit are left alone by the default policy."""
_LONG_MODULES = ("_pydecimal", "pydoc_data.topics")
_PROMPT = "Write the file."


@dataclass(frozen=True)
class Cast:
    """Who plays, as the user wants it."""

    format: Format
    model: str
    limit: int | None
    manner: str


@dataclass(frozen=True)
class Stage:
    """A file for the model to recite, and the limits at which it will be cut."""

    path: Path
    content: bytes
    cast: Cast
    limit: int
    """Output limit of the first attempt, in tokens."""
    length: int
    """Characters of the whole answer."""
    scenario: Scenario

    @property
    def text(self) -> str:
        return self.content.decode()

    @property
    def stop_name(self) -> str:
        return self.cast.format.stop_name

    def ask(self, *, tool: bool = False) -> Ask:
        """Return what the model is asked."""
        return Ask(self.cast.model, _PROMPT, self.limit, tool=tool)


@dataclass(frozen=True)
class Show:
    """One demonstration; `wrapped` says whether equality was proven."""

    stage: Callable[[Path, bytes, Cast], Stage]
    unwrapped: Callable[[Client, Stage, Screen], None]
    wrapped: Callable[[Client, Stage, Screen], bool]
    paced: bool = True
    """Its text flows; a call is held until it is whole, and slowing that down shows nothing."""


def default_file() -> Path:
    """Return a long text file that comes with Python (3.11 to 3.14: about 230 kB)."""
    for name in _LONG_MODULES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None and Path(spec.origin).is_file():
            return Path(spec.origin)
    message = "this Python has no sources of its standard library: choose a text with --file PATH"
    raise CommandError(message, Exit.USAGE)


def long_enough(path: Path, tokens: int) -> None:
    """Raise `ValueError` for an answer that a limit of `SMALLEST` tokens would not cut."""
    if tokens <= SMALLEST:
        message = (
            f"--file {path}: {tokens} tokens are too few to be cut "
            f"(smaller limits than {SMALLEST} are left alone); choose a longer file"
        )
        raise ValueError(message)


def wrapped(client: Client, watch: Watch) -> Client:
    """Wrap a client; raises `CommandError`, above all for the file that the environment names."""
    try:
        return continuation.wrap(client, on_event=watch.hear)
    except (OSError, ValueError, TypeError) as error:
        raise CommandError(reason(error), Exit.USAGE) from error


@dataclass
class Watch:
    """Tells each event as it happens, and counts what has arrived."""

    out: Screen
    received: int = 0
    report: Report | None = None
    _began: float = field(default_factory=time.monotonic)
    _asked: Recovering | Escalating | None = None

    def hear(self, event: Event) -> None:
        """Take an event of the turn."""
        if isinstance(event, Finished):
            self.report = event.report
        if isinstance(event, Recovering | Escalating):
            self._asked = event
        elif isinstance(event, Retrying):
            self._asked = None  # that one tells itself why it was sent again
        elif isinstance(event, Truncated) and self._asked and event.attempt > self._asked.attempt:
            self._tell(refused(self._asked, event))
        where = f"; seam at character {number(self.received)}" if _continues(event) else ""
        self._tell(f"{describe(event)}{where}")

    def _tell(self, what: str) -> None:
        self.out.line(f"   {time.monotonic() - self._began:5.2f} s  {what}")


def _continues(event: Event) -> bool:
    return isinstance(event, Recovering) and not event.replaces


def prove(what: str, expected: bytes, got: bytes, out: Screen) -> bool:
    """Compare, and show both digests."""
    out.line()
    out.line("3. the proof", "bold")
    for name, data in (("the file", expected), (what, got)):
        digest = hashlib.sha256(data).hexdigest()
        out.line(f"   {name:<10} {len(data):>11,} bytes  sha256 {digest}")
    if expected == got:
        out.line("   identical", "bold green")
        return True
    out.line(f"   NOT identical: they differ from byte {_same(expected, got):,} on", "bold red")
    return False


def _same(one: bytes, other: bytes) -> int:
    """Return how many bytes two texts begin with in common."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def tell_attempts(report: Report, out: Screen) -> None:
    """Show the attempts, and what they cost."""
    out.line()
    out.table(ATTEMPT_HEAD, attempt_rows(report))
    turn, billed = costs(report)
    out.line(f"   as one turn: {turn}")
    out.line(f"   billed:      {billed}")
