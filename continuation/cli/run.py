"""`continuation run`: one prompt to a real provider, and the whole answer."""

from __future__ import annotations

import argparse
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2

import continuation
from continuation.cli.config import in_force
from continuation.cli.exits import CommandError, Exit, need_anthropic, positive
from continuation.cli.refusals import explain, hide_keys
from continuation.cli.screen import is_terminal, screen
from continuation.cli.sink import Sink, SinkError, open_sink
from continuation.cli.words import costs, describe, plural, summary
from continuation.config import Config
from continuation.limits import spellings
from continuation.report import Event, Finished, Report, Retrying

if TYPE_CHECKING:
    from types import ModuleType

    import anthropic

    from continuation.cli.exits import Commands
    from continuation.cli.screen import Advance, Screen

_DESCRIPTION = """\
Send one prompt with the key in ANTHROPIC_API_KEY and stream the whole answer to standard output, or
to a file. What happens on the way, and a summary, go to standard error."""
_MODEST = 8192
"""The limit to fall back on where the model's ceiling is refused, in tokens."""
_WHOLE_OUTCOMES = ("complete", "healed", "untouched")
_WHOLE_STOPS = ("end_turn", "stop_sequence")


def add_to(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "run", help="get a whole answer from a real model", description=_DESCRIPTION
    )
    parser.add_argument("prompt", metavar="PROMPT", help='the prompt; "-" reads standard input')
    parser.add_argument("--model", required=True, metavar="M", help="claude-...")
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
        choices=["anthropic"],
        help="wire format (default: by the model's name)",
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Run one prompt. All that can be wrong with the arguments is found before it is sent."""
    _check_dialect(arguments)
    body = _body(arguments)
    config = _config(arguments)
    sdk = need_anthropic()
    with _client(sdk, arguments.base_url) as client, open_sink(arguments.out) as sink:
        turn = _Turn(sdk, client, sink, to_terminal=arguments.out is None)
        return turn.run(config, body)


# -- the arguments -------------------------------------------------------------------------------


def _check_dialect(arguments: argparse.Namespace) -> None:
    names = spellings(arguments.model)
    if arguments.dialect is None and not any(name.startswith("claude") for name in names):
        message = (
            f"--model {arguments.model}: only claude-... models can be called so far (the "
            "OpenAI and Gemini dialects are not there yet); for a server that speaks the Anthropic "
            "Messages API under another model name, add --dialect anthropic --base-url URL"
        )
        raise CommandError(message, Exit.USAGE)
    url = arguments.base_url
    if url is not None and not url.startswith(("http://", "https://")):
        message = f"--base-url {url}: must begin with http:// or https://"
        raise CommandError(message, Exit.USAGE)


def _body(arguments: argparse.Namespace) -> dict[str, Any]:
    body = {
        "model": arguments.model,
        "max_tokens": arguments.max_tokens or _MODEST,
        "messages": [{"role": "user", "content": _prompt(arguments.prompt)}],
    }
    return body if arguments.system is None else {**body, "system": arguments.system}


def _prompt(argument: str) -> str:
    text = _standard_input() if argument == "-" else argument
    if not text.strip():
        message = "PROMPT is empty"
        raise CommandError(message, Exit.USAGE)
    return text


def _standard_input() -> str:
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] - closed by `<&-`
        return ""
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        message = f"standard input: not UTF-8 text ({error.reason} at byte {error.start})"
        raise CommandError(message, Exit.USAGE) from error


def _config(arguments: argparse.Namespace) -> Config:
    config = in_force(arguments.config)
    if arguments.max_tokens:
        return config
    return config.but("no --max-tokens", first_limit="ceiling")


def _client(sdk: ModuleType, base_url: str | None) -> anthropic.Anthropic:
    try:
        client: anthropic.Anthropic = sdk.Anthropic(base_url=base_url)
    except sdk.AnthropicError as error:  # it looked for credentials, and found broken ones
        message = f"no key: set ANTHROPIC_API_KEY ({hide_keys(str(error))})"
        raise CommandError(message, Exit.MISSING) from error
    except (httpx2.InvalidURL, ValueError) as error:
        message = f"the client cannot be made: {hide_keys(str(error))}"
        raise CommandError(message, Exit.USAGE) from error
    key = client.api_key or client.auth_token
    if key is None and client.credentials is None:
        client.close()
        message = "no key: set ANTHROPIC_API_KEY"
        raise CommandError(message, Exit.MISSING)
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
        client.close()
        message = "ANTHROPIC_API_KEY holds a character that no key has; copy it again"
        raise CommandError(message, Exit.MISSING)
    return client


# -- the turn ------------------------------------------------------------------------------------


class _Turn:
    """One prompt on its way: text to the sink, everything else to standard error."""

    def __init__(
        self, sdk: ModuleType, client: anthropic.Anthropic, sink: Sink, *, to_terminal: bool
    ) -> None:
        self._sdk = sdk
        self._client = client
        self._sink = sink
        self._notes: Screen = screen(sys.stderr)
        # Notes between the words of an answer on the same terminal would look like a seam.
        self._apart = not (to_terminal and is_terminal(sys.stdout) and is_terminal(sys.stderr))
        self._kept: list[str] = []
        self._report: Report | None = None
        self._stop: str | None = None

    def run(self, config: Config, body: dict[str, Any]) -> Exit:
        try:
            wrapped = continuation.wrap(self._client, config=config, on_event=self._hear)
        except TypeError as error:
            raise CommandError(str(error), Exit.MISSING) from error
        try:
            self._stream(wrapped, body)
        except KeyboardInterrupt:
            return self._end("interrupted", Exit.INTERRUPTED)
        except SinkError as error:
            return self._end(f"cannot write to {error}", Exit.NOT_WHOLE)
        except (self._sdk.AnthropicError, httpx2.HTTPError, httpx2.StreamError) as error:
            return self._end(explain(error, self._host), Exit.PROVIDER)
        except (ValueError, AssertionError) as error:  # not events, or not the events it should be
            return self._end(explain(error, self._host), Exit.PROVIDER)
        return self._sum_up()

    @property
    def _host(self) -> str:
        return str(self._client.base_url.host)

    def _stream(self, client: anthropic.Anthropic, body: dict[str, Any]) -> None:
        with self._progress() as advance, client.messages.stream(**body) as stream:
            for text in stream.text_stream:
                self._sink.write(text)
                advance(self._sink.written)
            self._stop = stream.get_final_message().stop_reason

    def _progress(self) -> AbstractContextManager[Advance]:
        """Count characters on the terminal, if the answer itself is not on it."""
        return self._notes.progress(None) if self._apart else nullcontext(lambda _: None)

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
        whole = outcome in _WHOLE_OUTCOMES and self._stop in _WHOLE_STOPS
        self._note(summary(report) if report else outcome, "green" if whole else "yellow")
        if report is not None and report.billed.output is not None:
            turn, billed = costs(report)
            self._note(f"as one turn: {turn}; billed: {billed}; {report.seconds:.1f} s")
        if not whole and outcome in _WHOLE_OUTCOMES:
            self._note(f"the answer is not whole: stop reason {self._stop}", "yellow")
        return Exit.WHOLE if whole else Exit.NOT_WHOLE
