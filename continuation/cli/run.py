"""`continuation run`: sends one prompt to a real provider, and writes the complete answer."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import stat
import sys
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import continuation
from continuation.cli.batch import add_lines, batch
from continuation.cli.batch.files import MODEST
from continuation.cli.batch.tally import WHOLE_OUTCOMES
from continuation.cli.config import add_policies, in_force
from continuation.cli.exits import (
    CommandError,
    Commands,
    Exit,
    check_out,
    check_url,
    free,
    needs,
    positive,
    reason,
)
from continuation.cli.formats import Sdk, choose, errors_of, names
from continuation.cli.interrupts import caught
from continuation.cli.kept import Kept, opened
from continuation.cli.live import Live
from continuation.cli.refusals import explain
from continuation.cli.screen import is_terminal, print_json, screen, wants_json
from continuation.cli.standard_input import with_input
from continuation.cli.words import describe
from continuation.config import Config
from continuation.providers.sdk import OnDelta, Prompt, SdkDriver
from continuation.reports.account import costs, plural, summary
from continuation.reports.report import (
    Escalating,
    Event,
    Finished,
    Recovering,
    Report,
    Retrying,
    Truncated,
)

_DESCRIPTION = """\
Send one prompt and write the complete answer to standard output or to a file. Events and a summary
go to standard error. The key comes from ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY; a
server on this machine or in a private network needs none. Text from a pipe goes before PROMPT, with
a blank line between them; without PROMPT, it is the prompt. With --journal, the same command
resumes after a kill, and repeats a complete answer without a request."""
_NOT_EVENTS = (ValueError, AssertionError)
"""What SDKs raise if a body is not a stream, or if its events have another format."""


def add_to(commands: Commands) -> None:
    parser = commands.add_parser(
        "run", help="write a complete answer, or many with --batch", description=_DESCRIPTION
    )
    parser.epilog = "example: continuation run 'Write a guide' --model gpt-5.5 --out guide.md"
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "prompt",
        nargs="?",
        metavar="PROMPT",
        help='send PROMPT (default, and for "-": standard input)',
    )
    what.add_argument(
        "--batch",
        type=Path,
        metavar="FILE",
        help="send the requests in FILE instead, one JSON object per line",
    )
    parser.add_argument(
        "--model", metavar="M", help="call this model: claude-..., gpt-..., gemini-..."
    )
    parser.add_argument(
        "--max-tokens",
        type=positive,
        metavar="N",
        help="set the first attempt's output limit (default: the model's ceiling)",
    )
    add_lines(
        parser, "write the answer to FILE as it arrives; with --batch, append the results to FILE"
    )
    parser.add_argument(
        "--journal",
        metavar="FILE",
        help="record answers in FILE or at a postgresql:// URL, so that the same command resumes",
    )
    parser.add_argument("--system", metavar="S", help="send this system prompt")
    add_policies(parser)
    parser.add_argument(
        "--base-url", metavar="U", help="send requests to this URL (default: the provider's server)"
    )
    parser.add_argument(
        "--dialect",
        choices=names(),
        help="choose the wire format and its SDK (default: from the model's name)",
    )
    parser.set_defaults(command=run, wrong=parser.error)


def run(arguments: argparse.Namespace) -> int:
    """Run one prompt. Raises `CommandError` for a mistake in the arguments, before it is sent."""
    if arguments.batch is not None:
        return batch(arguments)
    _check(arguments)
    model: str = arguments.model or arguments.wrong("--model M is missing; name a model")
    driver = choose(arguments.dialect, model)
    if driver is None:
        message = (
            f"--model {model}: the wire format of this model is unknown; add --dialect "
            f"({', '.join(names())}), and --base-url URL for a server other than the vendor's own"
        )
        raise CommandError(message, Exit.USAGE)
    url: str | None = arguments.base_url
    # Without --max-tokens, the limit that is sent may be above a small model's ceiling.
    usual = {} if arguments.max_tokens else {"initial_limit": "ceiling", "clamp": True}
    config = in_force(arguments.config, arguments.set, usual=usual)
    text = with_input(arguments.prompt)
    ask = Prompt(model, text, arguments.max_tokens or MODEST, arguments.system)
    server = url or os.environ.get(driver.sdk.base_url) or driver.sdk.server
    host = urlsplit(server).hostname or server
    out: Path | None = arguments.out
    with (
        contextlib.closing(Sdk(driver.sdk).connect(url)) as client,
        contextlib.ExitStack() as closing,
    ):
        kept: Kept | None = None
        if arguments.journal is not None:
            journal = opened(arguments.journal, driver.name, server, ask, config.policy_for(model))
            kept = closing.enter_context(journal)
        sink = closing.enter_context(contextlib.closing(_Sink(out, kept, force=arguments.force)))
        turn = _Turn(driver, host, sink, kept, to_terminal=out is None)
        return turn.run(client, config, ask)


def _check(arguments: argparse.Namespace) -> None:
    """Check the arguments for one prompt. Raises `CommandError`."""
    if arguments.concurrency is not None:
        message = "--concurrency: works only with --batch; leave it out"
        raise CommandError(message, Exit.USAGE)
    needs(arguments.force, "--force", arguments.out, "--out FILE")
    check_url(arguments.base_url)
    check_out(arguments.out, {"--journal": arguments.journal})


# -- where the answer goes -----------------------------------------------------------------------


class _SinkError(Exception):
    """Raised if the answer could not be written. The text has the reason."""


class _Sink:
    """Writes an answer's text as UTF-8, and flushes after every delta. `name` is for messages.

    A file is created at once, so that a wrong path fails before the request costs anything. Its old
    content is kept until the first text arrives. If a journal has kept text of the same command,
    the file may already have some of it. That is compared with what arrives, and only the rest is
    written.
    """

    def __init__(self, path: Path | None, kept: Kept | None, *, force: bool) -> None:
        self.written = 0
        """Characters written so far."""
        self.text: str | None = None
        """After `close`, the complete text if the output is JSON; otherwise None."""
        self._stream: IO[bytes]
        self._last = ""
        self._path, self._kept = path, kept
        self._there: IO[bytes] | None = None
        """The file of an earlier process, read up to where it was compared; `None`: none left."""
        if path is None and wants_json():
            self.name, self._stream = "the JSON", io.BytesIO()
            self._regular = self._new = False
            return
        if path is None:
            if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison] - closed by `>&-`
                message = "standard output is closed; choose a file with --out FILE"
                raise CommandError(message, Exit.USAGE)
            self.name, self._stream = "standard output", sys.stdout.buffer
            self._regular = self._new = False
            return
        self.name, self._new = str(path), not path.exists()
        resumed = kept is not None and kept.has_text and not force
        if not resumed:
            free(path, force=force)
        try:
            self._stream = path.open("ab")
            if resumed and path.is_file():
                self._there = path.open("rb")
        except OSError as error:
            message = f"--out {reason(error)}; choose a path that can be written"
            raise CommandError(message, Exit.USAGE) from error
        self._regular = stat.S_ISREG(os.fstat(self._stream.fileno()).st_mode)

    def write(self, text: str) -> None:
        """Write a text and flush. Raises `_SinkError`."""
        if not text:
            return
        data = text.encode(errors="replace")
        try:
            if self._there is not None:
                data = self._missing(data)
            elif self._regular and not self.written:
                if self._kept is not None:  # the file must not have text that is not kept
                    self._kept.save()
                self._stream.truncate(0)
            # Count first, because Ctrl-C may arrive between the write and the next statement.
            self.written += len(text)
            self._stream.write(data)
            self._stream.flush()
        except OSError as error:
            self.written -= len(text)
            raise _SinkError(f"{self.name}: {error.strerror or error}") from error
        self._last = text[-1]

    def _missing(self, data: bytes) -> bytes:
        """Return the part of kept text that the file lacks.

        Raises `_SinkError` if the file has another text.
        """
        assert self._there is not None
        found = self._there.read(len(data))
        if not data.startswith(found):
            message = "its text differs from the journal's; choose another file, or add --force"
            raise _SinkError(f"{self.name}: {message}")
        if len(found) < len(data):
            self._there.close()
            self._there = None
        return data[len(found) :]

    def begin_new(self) -> None:
        """Note that all kept text was written, and that new text follows."""
        if self._there is not None:
            # The earlier process may have written more than the journal has kept.
            self._stream.truncate(self._there.tell())
            self._there.close()
            self._there = None

    def close(self) -> None:
        """Close a file. On a terminal, end the last line."""
        if self._there is not None:
            self._there.close()
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._stream.close()
            if self._new and self._regular and not self.written:
                self._path.unlink(missing_ok=True)
        elif isinstance(self._stream, io.BytesIO):
            self.text = self._stream.getvalue().decode()
        elif self.written and self._last != "\n" and is_terminal(sys.stdout):
            with contextlib.suppress(OSError):
                self._stream.write(b"\n")
                self._stream.flush()
            self._last = "\n"


# -- the turn ------------------------------------------------------------------------------------


class _Turn:
    """Runs one prompt. Its text goes to the sink, and all notes go to standard error."""

    def __init__(
        self,
        driver: SdkDriver,
        host: str,
        sink: _Sink,
        kept: Kept | None,
        *,
        to_terminal: bool,
    ) -> None:
        self._format = driver
        self._host = host
        self._sink, self._kept = sink, kept
        self._resumed = kept is not None and kept.has_text
        self._notes = screen(sys.stderr)
        # On one terminal, notes would stand between the words of the answer.
        self._apart = not (to_terminal and is_terminal(sys.stdout) and is_terminal(sys.stderr))
        self._pending: list[str] = []
        self._report: Report | None = None
        self._stop: str | None = None
        self._live: Live | None = None

    def run(self, client: Any, config: Config, ask: Prompt) -> Exit:
        try:
            wrapped = continuation.wrap(
                client, config=config, on_event=self._on_event, journal=self._kept
            )
        except TypeError as error:
            raise CommandError(str(error), Exit.MISSING) from error
        failures = errors_of(self._format) + _NOT_EVENTS
        # The terminal shows progress if the answer itself is not written to it.
        progress = self._notes.progress() if self._apart else contextlib.nullcontext()
        why, status = "", Exit.WHOLE
        if self._kept is not None and self._resumed:
            self._note(self._kept.describe())
        try:
            with progress as show:
                self._live = Live(show, ask.model, ask.text) if show else None

                def on_text(piece: str) -> None:
                    self._sink.write(piece)
                    if self._live is not None:
                        self._live.arrived(self._sink.written)

                self._stop = self._format.stream(wrapped, ask, OnDelta(on_text)).stop
                if self._live is not None:
                    self._live.end()
            if self._stop is None and not self._sink.written:
                raise ValueError("the answer has no event")
        except KeyboardInterrupt:
            caught()
            why, status = "interrupted", Exit.INTERRUPTED
        except _SinkError as error:
            why, status = f"the answer cannot be written to {error}", Exit.NOT_WHOLE
        except failures as error:
            why, status = explain(error, self._host, self._format.sdk.keys[0]), Exit.PROVIDER
        self._sink.close()
        return self._ended(why, status)

    def _ended(self, why: str, status: Exit) -> Exit:
        """Write how the turn ended; return the status. `why`: what ended it early, or `""`."""
        for note in self._pending:
            self._note(note)
        if why:
            count = plural(self._sink.written, "character")
            name, some = self._sink.name, self._sink.written
            arrived = f"kept {count} in {name}" if some else "no text had arrived"
            again = "; the same command resumes" if self._kept is not None else ""
            self._note(f"{why}; {arrived}{again}", "red")
        else:
            status = self._sum_up()
        report, error, text = self._report and self._report.as_dict(), why or None, self._sink.text
        out = {"out": self._sink.name} if text is None else {"text": text}
        print_json({"exit": status, "stop": self._stop, "error": error, **out, "report": report})
        return status

    def _on_event(self, event: Event) -> None:
        if self._live is not None:
            self._live.on_event(event)
        if isinstance(event, Truncated | Escalating | Recovering):
            self._sink.begin_new()
        if isinstance(event, Truncated) and event.attempt == 1 and self._resumed:
            return  # this was not an attempt, but the text that was kept
        if isinstance(event, Finished):
            self._report = event.report
        elif self._apart or isinstance(event, Retrying):
            self._note(describe(event))
        else:
            self._pending.append(describe(event))

    def _note(self, text: str, style: str = "dim") -> None:
        self._notes.line(f"continuation: {text}", style)

    def _sum_up(self) -> Exit:
        report = self._report
        outcome = str(report.outcome) if report else "untouched"
        whole = outcome in WHOLE_OUTCOMES and self._stop in self._format.ends
        message = summary(report) if report else outcome
        if report is not None and (helps := report.remedy):
            message += f": {helps}"
        self._note(message, "green" if whole else "yellow")
        if report is not None and report.billed.output is not None:
            turn, billed = costs(report)
            self._note(f"delivered: {turn}; billed: {billed}; {report.seconds:.1f} s")
        if not whole and outcome in WHOLE_OUTCOMES:
            self._note(f"the answer is incomplete: {self._format.stop_name} {self._stop}", "yellow")
        return Exit.WHOLE if whole else Exit.NOT_WHOLE
