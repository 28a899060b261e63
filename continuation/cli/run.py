"""`continuation run`: one prompt to a real provider, and the whole answer."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import continuation
from continuation.cli.config import in_force
from continuation.cli.exits import CommandError, Exit, positive
from continuation.cli.formats import Ear, FormatDriver, Prompt, choose, names
from continuation.cli.refusals import explain
from continuation.cli.screen import is_terminal, screen
from continuation.cli.sink import Sink, SinkError, open_sink
from continuation.cli.words import costs, describe, plural, summary
from continuation.config import Config
from continuation.reports.report import Event, Finished, Report, Retrying

if TYPE_CHECKING:
    from continuation.cli.exits import Commands
    from continuation.cli.screen import Screen

_DESCRIPTION = """\
Send one prompt with the key in ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY and stream the
whole answer to standard output, or to a file. What happens on the way, and a summary, go to
standard error."""
_MODEST = 8192
"""The limit to fall back on where the model's ceiling is refused, in tokens."""
_WHOLE_OUTCOMES = ("complete", "healed", "untouched")
_NOT_EVENTS = (ValueError, AssertionError)
"""What is raised over a stream that is none, or not of the events it should be of."""


def add_to(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "run", help="get a whole answer from a real model", description=_DESCRIPTION
    )
    parser.add_argument("prompt", metavar="PROMPT", help='the prompt; "-" reads standard input')
    parser.add_argument(
        "--model", required=True, metavar="M", help="claude-..., gpt-..., gemini-..."
    )
    parser.add_argument(
        "--max-tokens",
        type=positive,
        metavar="N",
        help="limit of the first attempt (default: the most the model can write)",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write the answer there, as it comes"
    )
    parser.add_argument("--system", metavar="S", help="system prompt")
    parser.add_argument(
        "--config", metavar="FILE", help="policies (default: the file `continuation config` uses)"
    )
    parser.add_argument("--base-url", metavar="U", help="another server that speaks the same API")
    parser.add_argument(
        "--dialect",
        choices=names(),
        help="wire format, and so SDK (default: by the model's name)",
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Run one prompt. All that can be wrong with the arguments is found before it is sent."""
    speaks = choose(arguments.dialect, arguments.model)
    if speaks is None:
        message = (
            f"--model {arguments.model}: this name does not tell the wire format; add --dialect "
            f"({', '.join(names())}), and --base-url URL for a server other than the vendor's own"
        )
        raise CommandError(message, Exit.USAGE)
    url: str | None = arguments.base_url
    if url is not None and not url.startswith(("http://", "https://")):
        message = f"--base-url {url}: must begin with http:// or https://"
        raise CommandError(message, Exit.USAGE)
    prompt = _standard_input() if arguments.prompt == "-" else arguments.prompt
    if not prompt.strip():
        message = "PROMPT is empty"
        raise CommandError(message, Exit.USAGE)
    ask = Prompt(arguments.model, prompt, arguments.max_tokens or _MODEST, arguments.system)
    config = in_force(arguments.config)
    if not arguments.max_tokens:
        config = config.but("no --max-tokens", initial_limit="ceiling")
    with closing(speaks.sdk.connect(url)) as client, open_sink(arguments.out) as sink:
        turn = _Turn(speaks, speaks.sdk.host(url), sink, to_terminal=arguments.out is None)
        return turn.run(client, config, ask)


def _standard_input() -> str:
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] - closed by `<&-`
        return ""
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        message = f"standard input: not UTF-8 text ({error.reason} at byte {error.start})"
        raise CommandError(message, Exit.USAGE) from error


# -- the turn ------------------------------------------------------------------------------------


class _Turn:
    """One prompt on its way: text to the sink, everything else to standard error."""

    def __init__(self, speaks: FormatDriver, host: str, sink: Sink, *, to_terminal: bool) -> None:
        self._format = speaks
        self._host = host
        self._sink = sink
        self._notes: Screen = screen(sys.stderr)
        # Notes between the words of an answer on the same terminal would look like a seam.
        self._apart = not (to_terminal and is_terminal(sys.stdout) and is_terminal(sys.stderr))
        self._kept: list[str] = []
        self._report: Report | None = None
        self._stop: str | None = None

    def run(self, client: Any, config: Config, ask: Prompt) -> Exit:
        try:
            wrapped = continuation.wrap(client, config=config, on_event=self._hear)
        except TypeError as error:
            raise CommandError(str(error), Exit.MISSING) from error
        failures = self._format.errors + _NOT_EVENTS
        # Characters are counted on the terminal if the answer itself is not on it.
        progress = self._notes.progress(None) if self._apart else nullcontext()
        try:
            with progress as advance:

                def hear(piece: str) -> None:
                    self._sink.write(piece)
                    if advance is not None:
                        advance(self._sink.written)

                self._stop = self._format.stream(wrapped, ask, Ear(hear)).stop
            if self._stop is None and not self._sink.written:
                message = "no event of an answer"
                raise ValueError(message)
        except KeyboardInterrupt:
            return self._end("interrupted", Exit.INTERRUPTED)
        except SinkError as error:
            return self._end(f"cannot write to {error}", Exit.NOT_WHOLE)
        except failures as error:
            why = explain(error, self._host, self._format.sdk.keys[0])
            return self._end(why, Exit.PROVIDER)
        return self._sum_up()

    def _hear(self, event: Event) -> None:
        if isinstance(event, Finished):
            self._report = event.report
        elif self._apart or isinstance(event, Retrying):
            self._note(describe(event))
        else:
            self._kept.append(describe(event))

    def _note(self, text: str, style: str = "dim") -> None:
        self._notes.line(f"continuation: {text}", style)

    def _end(self, why: str, status: Exit) -> Exit:
        """Say how it ended before its end, and what was kept."""
        self._settle()
        count = plural(self._sink.written, "character")
        kept = f"kept {count} in {self._sink.name}" if self._sink.written else "nothing had arrived"
        self._note(f"{why}; {kept}", "red")
        return status

    def _settle(self) -> None:
        self._sink.end()
        for text in self._kept:
            self._note(text)
        self._kept.clear()

    def _sum_up(self) -> Exit:
        self._settle()
        report = self._report
        outcome = str(report.outcome) if report else "untouched"
        whole = outcome in _WHOLE_OUTCOMES and self._stop in self._format.ends
        self._note(summary(report) if report else outcome, "green" if whole else "yellow")
        if report is not None and report.billed.output is not None:
            turn, billed = costs(report)
            self._note(f"as one turn: {turn}; billed: {billed}; {report.seconds:.1f} s")
        if not whole and outcome in _WHOLE_OUTCOMES:
            self._note(f"the answer is not whole: {self._format.stop_name} {self._stop}", "yellow")
        return Exit.WHOLE if whole else Exit.NOT_WHOLE
