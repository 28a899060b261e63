"""`continuation run --batch` and `continuation finish`: a line for each request and each answer.

Both commands read lines, send requests for some of them, and write each answer as a line to the
file that `--out` names. That file records what is done. A command that is started again skips the
ids in the file. If a kill has left an incomplete line at its end, that line is removed first.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import continuation
from continuation.bulk.workers import Batch
from continuation.cli.batch.files import RequestLines, ResultLines
from continuation.cli.batch.output import Output
from continuation.cli.batch.tally import Tally
from continuation.cli.config import add_policies, in_force
from continuation.cli.exits import (
    CommandError,
    Commands,
    Exit,
    check_out,
    check_url,
    positive,
    reason,
)
from continuation.cli.formats import Sdk, names
from continuation.cli.refusals import explain
from continuation.cli.screen import ShowLine

_DESCRIPTION = """\
Complete the truncated results of a batch API of Anthropic, OpenAI or Gemini. RESULTS is the file of
results, and --requests names the file of requests. The text that a result already has is not
generated again. Lines keep their format, and lines that are not truncated are copied unchanged."""

_WORKERS = 8


def add_to(commands: Commands) -> None:
    parser = commands.add_parser(
        "finish", help="complete truncated results of a batch API", description=_DESCRIPTION
    )
    parser.epilog = (
        "example: continuation finish results.jsonl --requests requests.jsonl --out done.jsonl"
    )
    parser.add_argument(
        "results",
        type=Path,
        metavar="RESULTS",
        help="read the batch's results from this file, as JSON lines",
    )
    parser.add_argument(
        "--requests",
        type=Path,
        required=True,
        metavar="FILE",
        help="read the batch's requests from FILE",
    )
    parser.add_argument(
        "--model", metavar="M", help="set the model of requests that name none (Gemini)"
    )
    add_lines(parser, "append the completed results to FILE, one per line")
    add_policies(parser)
    parser.add_argument(
        "--base-url", metavar="U", help="send requests to this URL (default: the provider's server)"
    )
    parser.add_argument(
        "--dialect", choices=names(), help="choose the wire format (default: from the lines)"
    )
    parser.set_defaults(command=finish)


def add_lines(parser: argparse.ArgumentParser, out: str) -> None:
    """Add the options for concurrent requests and the output file; `out`: its help text."""
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help=out,
    )
    parser.add_argument("--force", action="store_true", help="replace the file that --out names")
    parser.add_argument(
        "--concurrency",
        type=positive,
        metavar="N",
        help=f"send at most N requests at once (default: {_WORKERS})",
    )
    parser.set_defaults(journal=None)


def batch(arguments: argparse.Namespace) -> int:
    """Run a file of requests."""
    return _run(arguments, RequestLines)


def finish(arguments: argparse.Namespace) -> int:
    """Continue the truncated answers of a file of results."""
    return _run(arguments, ResultLines)


def _run(arguments: argparse.Namespace, read: type[RequestLines | ResultLines]) -> int:
    _check(arguments)
    lines = read(arguments)
    sdk = lines.driver.sdk
    config = in_force(arguments.config, arguments.set)
    with contextlib.ExitStack() as closing:
        client = closing.enter_context(contextlib.closing(Sdk(sdk).connect(arguments.base_url)))
        out = closing.enter_context(
            Output(arguments.out, force=arguments.force, id_of=lines.id_of, begins=lines.begins)
        )
        try:
            wrapped = continuation.wrap(client, config=config)
            workers = arguments.concurrency or _WORKERS
            many = Batch(wrapped, lines.items(out), workers, arguments.journal)
        except TypeError as error:
            raise CommandError(str(error), Exit.MISSING) from error
        except (OSError, ValueError, continuation.JournalError) as error:
            message = f"--journal {reason(error).removeprefix('journal ')}"
            raise CommandError(message, Exit.USAGE) from error
        server = arguments.base_url or os.environ.get(sdk.base_url) or sdk.server
        host = urlsplit(server).hostname or server
        tally = Tally(lines, out)
        with lines.notes.progress(lines.count) as show:
            came: Any = many.results()
            results = closing.enter_context(contextlib.closing(came))
            with _stop_on_interrupt(many.stop) as interrupted:
                why = _collect(
                    results, tally, show, lambda error: explain(error, host, sdk.keys[0])
                )
        if interrupted:
            why = "interrupted", Exit.INTERRUPTED
    return tally.end(why)


def _check(arguments: argparse.Namespace) -> None:
    """Check the arguments before a file is opened. Raises `CommandError`."""
    out: Path | None = arguments.out
    if out is None:
        raise CommandError("--out FILE is missing; name the file for the answers", Exit.USAGE)
    check_url(arguments.base_url)
    read = {
        "--batch": getattr(arguments, "batch", None),
        "RESULTS": getattr(arguments, "results", None),
        "--requests": getattr(arguments, "requests", None),
        "--journal": arguments.journal,
    }
    check_out(out, read)


@contextlib.contextmanager
def _stop_on_interrupt(stop: Callable[[], None]) -> Generator[list[int]]:
    """Make the first Ctrl-C call `stop`, so that answers are kept. A second Ctrl-C interrupts.

    Yields a list that is empty until the first Ctrl-C.
    """
    signals, before = list[int](), signal.getsignal(signal.SIGINT)

    def first(number: int, _: object) -> None:
        signal.signal(signal.SIGINT, before)
        signals.append(number)
        stop()

    if before is not signal.default_int_handler or (
        threading.current_thread() is not threading.main_thread()
    ):
        yield signals
        return
    signal.signal(signal.SIGINT, first)
    try:
        yield signals
    finally:
        signal.signal(signal.SIGINT, before)


def _collect(
    results: Iterator[continuation.BatchResult],
    tally: Tally,
    show: ShowLine,
    describe: Callable[[Exception], str],
) -> tuple[str, Exit]:
    """Add the results to the tally; return why it ended early (`""`: it did not) and the status."""
    try:
        for result in results:
            tally.add(result, describe)
            tally.show(show)
            if why := tally.reason_to_stop(result):
                return why, Exit.PROVIDER
    except KeyboardInterrupt:
        return "interrupted", Exit.INTERRUPTED
    except OSError as error:
        return f"stopped: {reason(error)}", Exit.NOT_WHOLE
    return "", Exit.WHOLE
