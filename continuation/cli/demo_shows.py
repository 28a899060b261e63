"""The two demonstrations: a long text joined without a seam to be seen, and a cut `Write` call."""

from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING, Any

import jiter

import continuation
from continuation.cli.exits import CommandError, Exit, reason
from continuation.cli.formats import Call, Ear, End, FormatDriver, Prompt
from continuation.cli.words import (
    ATTEMPT_HEAD,
    SEAM_HEAD,
    attempt_rows,
    costs,
    describe,
    number,
    refused,
    seam_rows,
)
from continuation.limits import find
from continuation.reports.report import (
    Escalating,
    Event,
    Finished,
    Recovering,
    Report,
    Retrying,
    Truncated,
)
from continuation.simulator import Scenario, tokens

if TYPE_CHECKING:
    from pathlib import Path

    from continuation.cli.screen import Screen

_SMALLEST = 256
"""Requests with a smaller limit are left alone by the default policy."""
_RECOVERIES = 3
_SAID_AGAIN = 128
"""Tokens of a recovery that may be words already said."""
_BEFORE_THE_CALL = 256
"""Tokens for the text before a call."""
_PACE = 2.0
"""Seconds a wrapped text takes on a terminal, so that it can be watched."""
_STEPS = 1200
"""Events it then comes in, about."""


class Show:
    """A file for the model to recite, and the limits at which it will be cut.

    `limit`: output limit of the first attempt, in tokens. `length`: characters of the whole answer.
    Raises `ValueError` for an answer that no limit we heal would cut.
    """

    tool = False
    limit: int
    length: int
    scenario: Scenario

    def __init__(
        self,
        path: Path,
        content: bytes,
        speaks: FormatDriver,
        model: str,
        limit: int | None,
        manner: str,
    ) -> None:
        self.path = path
        self.content = content
        self.format = speaks
        self.model = model
        self._plan(content.decode(), limit, manner)

    def _plan(self, text: str, limit: int | None, manner: str) -> None:
        """Choose `limit`, `length` and `scenario`; `limit` and `manner` are what the user wants."""
        raise NotImplementedError

    def _check(self, whole: int) -> None:
        if whole <= _SMALLEST:
            message = (
                f"--file {self.path}: {whole} tokens are too few to be cut "
                f"(smaller limits than {_SMALLEST} are left alone); choose a longer file"
            )
            raise ValueError(message)

    def paced(self) -> Scenario:
        """Return the scenario for eyes that want to follow."""
        return self.scenario

    def unwrapped(self, client: Any, out: Screen) -> None:
        """Show what becomes of the answer without us."""
        raise NotImplementedError

    def wrapped(self, client: Any, out: Screen) -> bool:
        """Show the wrapped call; return whether equality was proven."""
        raise NotImplementedError

    def _ask(self, client: Any, ear: Ear) -> End:
        asked = Prompt(self.model, "Write the file.", self.limit, tool=self.tool)
        return self.format.stream(client, asked, ear)

    def _stopped(self, end: End) -> str:
        return f"{self.format.stop_name} {end.stop!r}"

    def _prove(self, what: str, got: bytes, out: Screen) -> bool:
        """Compare what came with the file, and show both digests."""
        out.line()
        out.line("3. the proof", "bold")
        for name, data in (("the file", self.content), (what, got)):
            digest = hashlib.sha256(data).hexdigest()
            out.line(f"   {name:<10} {len(data):>11,} bytes  sha256 {digest}")
        if got == self.content:
            out.line("   identical", "bold green")
            return True
        pairs = enumerate(zip(self.content, got, strict=False))
        same = next((at for at, (a, b) in pairs if a != b), min(len(self.content), len(got)))
        out.line(f"   NOT identical: they differ from byte {same:,} on", "bold red")
        return False


class TextShow(Show):
    """A long text, cut several times."""

    def _plan(self, text: str, limit: int | None, manner: str) -> None:
        """Let one attempt and three recoveries be enough, and needed.

        The first attempt gets a fifth of the answer, the ceiling is a third of the rest and more.
        """
        whole = tokens(text)
        self._check(whole)
        self.limit = limit or max(_SMALLEST, whole // 5)
        self.length = len(text)
        rest = max(0, whole - self.limit)
        ceiling = max(self.limit, rest // _RECOVERIES + rest // 300 + _SAID_AGAIN)
        self.scenario = Scenario(manner=manner, ceiling=ceiling)

    def paced(self) -> Scenario:
        size = max(1, self.length // _STEPS)
        return self.scenario.but(f"deltas={size}, slow={_PACE * size / self.length}")

    def unwrapped(self, client: Any, out: Screen) -> None:
        pieces: list[str] = []
        end = self._ask(client, Ear(pieces.append))
        arrived = sum(map(len, pieces))
        share = f"{number(arrived)} of {number(self.length)} characters, {self._stopped(end)}"
        if arrived < self.length:
            out.line(f"   {share}: the rest is lost", "red")
        else:
            out.line(f"   {share}: a limit of {self.limit} does not cut it")

    def wrapped(self, client: Any, out: Screen) -> bool:
        watch = Watch(out)
        pieces: list[str] = []
        with out.progress(self.length) as advance:

            def hear(piece: str) -> None:
                pieces.append(piece)
                watch.received += len(piece)
                advance(watch.received)

            self._ask(watch.wrap(client), Ear(hear))
        text = "".join(pieces)
        equal = self._prove("the answer", text.encode(errors="replace"), out)
        watch.sum_up(text)
        return equal


class ToolShow(Show):
    """A streamed `Write` call that is cut after visible text.

    A call is held until it is whole, so there is no pace to watch.
    """

    tool = True

    def _plan(self, text: str, limit: int | None, manner: str) -> None:
        """Let the first attempt be cut half-way, and the ceiling be enough."""
        arguments = json.dumps({"path": self.path.name, "content": text}, ensure_ascii=False)
        self._check(tokens(arguments))
        whole = tokens(arguments) + _BEFORE_THE_CALL
        known = find(self.model)
        high_enough = known is not None and known.ceiling > whole
        self.limit = limit or max(_SMALLEST, whole // 2)
        self.length = len(arguments)
        ceiling = None if high_enough else whole
        self.scenario = Scenario(manner=manner, call=True, ceiling=ceiling)

    def unwrapped(self, client: Any, out: Screen) -> None:
        text: list[str] = []
        arguments: list[str] = []
        end = self._ask(client, Ear(text.append, arguments.append))
        arrived, whole = len(_content("".join(arguments))), len(self.content.decode())
        out.line(f"   the model said {''.join(text)!r} and called Write", "dim")
        if arrived >= whole:
            out.line(f"   a limit of {self.limit} does not cut it, {self._stopped(end)}")
            return
        share = f"{number(arrived)} of {number(whole)} characters of the file"
        out.line(f"   the call holds {share}, {self._stopped(end)}", "red")
        out.line(f"   {_as_the_sdk_sees_it(end)}", "red")

    def wrapped(self, client: Any, out: Screen) -> bool:
        watch = Watch(out)
        text: list[str] = []
        size = 0
        with out.progress(self.length) as advance:

            def hear(piece: str) -> None:
                nonlocal size
                size += len(piece)
                advance(size)

            end = self._ask(watch.wrap(client), Ear(text.append, hear))
        saw = f"{''.join(text)!r} once, and one call"
        out.line(f"   the caller saw {saw}, {self._stopped(end)}")
        equal = self._prove("the call", _only_content(end), out)
        watch.sum_up()
        return equal and end.stop == self.format.called


def _as_the_sdk_sees_it(end: End) -> str:
    if not end.calls:
        return "and the SDK's answer has no call at all"
    if isinstance(call := end.calls[0], str):
        return "and in the SDK's answer its arguments are text that is no JSON"
    keys = ", ".join(call)
    return f"and looks complete: in the SDK's message its input has the keys: {keys or 'none'}"


def _content(arguments: str) -> str:
    """Read as much of the file as there is in arguments that may be cut."""
    if not arguments:
        return ""
    parsed = jiter.from_json(arguments.encode(), partial_mode="trailing-strings")
    return str(parsed.get("content", ""))


def _only_content(end: End) -> bytes:
    """Return the content of the one call there must be; half a call is none, as for a program."""
    contents = [_parsed(call).get("content") for call in end.calls]
    return contents[0].encode() if len(contents) == 1 and isinstance(contents[0], str) else b""


def _parsed(call: Call) -> Any:
    try:
        return json.loads(call) if isinstance(call, str) else call
    except ValueError:
        return {}


class Watch:
    """Tells each event as it happens, and at the end what the turn took."""

    def __init__(self, out: Screen) -> None:
        self.received = 0
        """Characters that have arrived."""
        self._out = out
        self._report: Report | None = None
        self._began = time.monotonic()
        self._asked: Recovering | Escalating | None = None

    def wrap(self, client: Any) -> Any:
        """Wrap a client; raises `CommandError`, above all for the file the environment names."""
        try:
            return continuation.wrap(client, on_event=self.hear)
        except (OSError, ValueError, TypeError) as error:
            raise CommandError(reason(error), Exit.USAGE) from error

    def hear(self, event: Event) -> None:
        """Take an event of the turn."""
        where = ""
        if isinstance(event, Finished):
            self._report = event.report
        if isinstance(event, Recovering | Escalating):
            self._asked = event
            if isinstance(event, Recovering) and not event.replaces:
                where = f"; seam at character {number(self.received)}"
        elif isinstance(event, Retrying):
            self._asked = None  # that one tells itself why it was sent again
        elif isinstance(event, Truncated) and self._asked and event.attempt > self._asked.attempt:
            self._tell(refused(self._asked, event))
        self._tell(f"{describe(event)}{where}")

    def _tell(self, what: str) -> None:
        self._out.line(f"   {time.monotonic() - self._began:5.2f} s  {what}")

    def sum_up(self, text: str = "") -> None:
        """Show the attempts, what they cost, and their seams in `text`."""
        if self._report is None:
            return
        self._out.line()
        self._out.table(ATTEMPT_HEAD, attempt_rows(self._report))
        turn, billed = costs(self._report)
        self._out.line(f"   as one turn: {turn}")
        self._out.line(f"   billed:      {billed}")
        if text and self._report.seams:
            self._out.line()
            self._out.table(SEAM_HEAD, seam_rows(self._report, text))
