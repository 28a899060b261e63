"""`continuation run --batch` and `continuation finish`: a line for each request and each answer.

Both are the same run: lines come in, some of them are requests on their way, and what came of one
is a line of the file that `--out` names. That file says what is done. Started again, the command
leaves those lines out, and takes off the beginning of a line that a kill has left at its end.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import json
import os
import stat
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import continuation
from continuation.bulk.lines import Names, answer_in, asked_in, id_of, text_of, told, with_answer
from continuation.bulk.workers import Batch, Item
from continuation.cli.config import add_policies, in_force
from continuation.cli.exits import CommandError, Commands, Exit, free, positive, reason
from continuation.cli.formats import FormatDriver, Prompt, choose, names
from continuation.cli.refusals import explain
from continuation.cli.screen import Show, screen, tell
from continuation.reports.account import number, plural
from continuation.types import Json

WHOLE_OUTCOMES = ("complete", "healed", "untouched")
MODEST = 8192
"""The limit to fall back on where the model's ceiling is refused, in tokens."""
_DESCRIPTION = """\
Go on with the answers that a batch API of Anthropic, OpenAI or Gemini brought back cut. RESULTS is
its file of results, --requests the file of requests it was made of. What is there of an answer is
not paid again. The lines keep their format; those that are not cut come through as they are."""
_EVERY = 10.0
"""Seconds between two lines that say how far it is, where none can move."""
_SLOWEST = 3


def add_to(commands: Commands) -> None:
    parser = commands.add_parser(
        "finish", help="go on with what a batch API brought back cut", description=_DESCRIPTION
    )
    parser.add_argument("results", type=Path, metavar="RESULTS", help="its results, as JSON lines")
    parser.add_argument("--requests", type=Path, required=True, metavar="FILE", help="its requests")
    parser.add_argument("--model", metavar="M", help="of requests that do not name one (Gemini)")
    add_lines(parser)
    add_policies(parser)
    parser.add_argument("--base-url", metavar="U", help="another server that speaks the same API")
    parser.add_argument("--dialect", choices=names(), help="wire format (default: by the lines)")
    parser.set_defaults(command=finish)


def add_lines(parser: argparse.ArgumentParser) -> None:
    """Add what says where lines go, and how many requests are under way at once."""
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write there, as it comes; of many answers, behind those that it has",
    )
    parser.add_argument("--force", action="store_true", help="replace what --out names")
    parser.add_argument("--concurrency", type=positive, default=8, metavar="N", help="default: 8")
    parser.set_defaults(journal=None)


def batch(arguments: argparse.Namespace) -> int:
    """Run a file of requests."""
    return _run(arguments, _Asked)


def finish(arguments: argparse.Namespace) -> int:
    """Go on with a file of results."""
    return _run(arguments, _Finished)


def _run(arguments: argparse.Namespace, read: type[_Asked | _Finished]) -> int:
    if arguments.out is None:
        raise CommandError("--out FILE is missing: where the answers go", Exit.USAGE)
    lines = read(arguments)
    sdk = lines.speaks.sdk
    config = in_force(arguments.config, arguments.set)
    if lines.to_ceiling:
        config = config.but("no --max-tokens", initial_limit="ceiling")
    with contextlib.ExitStack() as closing:
        out = closing.enter_context(
            _Output(arguments.out, force=arguments.force, id_of=lines.id_of)
        )
        client = closing.enter_context(contextlib.closing(sdk.connect(arguments.base_url)))
        try:
            wrapped = continuation.wrap(client, config=config)
            many = Batch(wrapped, lines.items(out), arguments.concurrency, arguments.journal)
        except TypeError as error:
            raise CommandError(str(error), Exit.MISSING) from error
        except (OSError, ValueError, continuation.JournalError) as error:
            raise CommandError(f"--journal {reason(error)}", Exit.USAGE) from error
        server = arguments.base_url or os.environ.get(sdk.base_url) or sdk.server
        host = urlsplit(server).hostname or server
        tally = _Tally(lines, out)
        with lines.notes.progress(lines.count) as show:
            came: Any = many.results()
            results = closing.enter_context(contextlib.closing(came))
            why = _collect(results, tally, show, lambda error: explain(error, host, sdk.keys[0]))
    return tally.end(why)


def _collect(
    results: Iterator[continuation.BatchResult],
    tally: _Tally,
    show: Show,
    say: Callable[[Exception], str],
) -> tuple[str, Exit]:
    """Take the results in; return what ended it before its end, if something did."""
    try:
        for result in results:
            tally.add(result, say)
            tally.show(show)
            if tally.hopeless(result.error):
                return "no other will do better", Exit.PROVIDER
    except KeyboardInterrupt:
        return "interrupted", Exit.INTERRUPTED
    except OSError as error:
        return f"cannot go on: {reason(error)}", Exit.NOT_WHOLE
    return "", Exit.WHOLE


# --- lines in ------------------------------------------------------------------------------------


class _Lines(ABC):
    """A file of lines; some are requests to be made, and each answer is a line as well."""

    to_ceiling = False
    """The requests are ours: they ask for all that the model can write."""

    def __init__(self, arguments: argparse.Namespace, path: Path) -> None:
        self.path, self.notes = path, screen(sys.stderr)
        self.bad = 0
        """Lines that are none, or have no answer that could be gone on with."""
        self._model: str | None = arguments.model
        self.count = _count(path)
        first = next((line for _, _, line in self._read(path, quiet=True)), None)
        speaks = self._format(arguments.dialect, first or {})
        if speaks is None:
            message = f"{path}: what it asks for does not tell the wire format; add --dialect"
            raise CommandError(f"{message} ({', '.join(names())})", Exit.USAGE)
        self.speaks: FormatDriver = speaks

    def _format(self, named: str | None, line: Json) -> FormatDriver | None:
        """Say which format a line is of: by its form, or else by the model it names."""
        _, asked = asked_in(line)
        shapes = {
            "anthropic": "params" in line,
            "gemini": "contents" in asked,
            "openai-chat": "body" in line and "messages" in asked,
            "openai-responses": "body" in line,
        }
        shaped = next((name for name, fits in shapes.items() if fits), None)
        return choose(named or shaped, str(asked.get("model") or self._model or ""))

    def tell_bad(self, place: int, why: str) -> None:
        """Tell of a line that is none."""
        self.bad += 1
        self.notes.line(f"continuation: {self.path}, line {place}: {why}", "yellow")

    def _read(self, path: Path, *, quiet: bool = False) -> Iterator[tuple[int, bytes, Json]]:
        """Yield number, bytes and value of lines that are JSON objects; tell of the others."""
        with path.open("rb") as file:
            for place, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    told = json.loads(line)
                    if not isinstance(told, dict):
                        raise TypeError
                except (ValueError, TypeError):  # what it says may quote the line
                    if not quiet:
                        self.tell_bad(place, "no JSON object")
                    continue
                yield place, line, told

    @abstractmethod
    def items(self, out: _Output) -> Iterator[Item]:
        """Yield the requests that are to be made; their index is the number of the line."""

    @abstractmethod
    def id_of(self, line: Json) -> str:
        """Return the id of a line of the output; `""`: it is none of ours."""

    @abstractmethod
    def line(self, result: continuation.BatchResult) -> bytes:
        """Return the line for an answer."""


class _Asked(_Lines):
    """Requests, in any form."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        super().__init__(arguments, arguments.batch)
        self._limit, self._system = arguments.max_tokens, arguments.system
        self.to_ceiling = self.to_ceiling and not self._limit
        self._plain = set[int]()
        """Lines under way that are a mere prompt."""

    def _format(self, named: str | None, line: Json) -> FormatDriver | None:
        found = super()._format(named, line)
        self.to_ceiling = "prompt" in line
        return found

    def items(self, out: _Output) -> Iterator[Item]:
        unnamed, seen = Names(), set[str]()
        for place, _, line in self._read(self.path):
            try:
                called, request = self._request(place, line)
            except ValueError as error:
                self.tell_bad(place, str(error))
                continue
            called = called or unnamed.of(request)
            if called in seen:
                self.tell_bad(place, f"the id {called!r} is that of a line before")
            elif called not in out.done:
                seen.add(called)
                yield Item(place, called, request)

    def _request(self, place: int, line: Json) -> tuple[str, Json]:
        """Return the id and the request of a line. Raises `ValueError` saying what it lacks."""
        model = str(line.get("model") or self._model or "")
        if "prompt" in line:
            text, system = line["prompt"], line.get("system") or self._system
            if not isinstance(text, str) or not text.strip():
                raise ValueError("its prompt is empty, or no text")
            if not model:
                raise ValueError("it names no model; add --model")
            self._plain.add(place)
            ask = Prompt(model, text, self._limit or MODEST, str(system) if system else None)
            return id_of(line), self.speaks.body(ask)
        called, request = asked_in(line)
        if not {"messages", "input", "contents", "prompt"} & request.keys():
            raise ValueError("no prompt, and no request that we know")
        if not request.get("model"):
            if not model:
                raise ValueError("it names no model; add --model")
            request["model"] = model
        return called, request

    def id_of(self, line: Json) -> str:
        return id_of(line) if "outcome" in line else ""

    def line(self, result: continuation.BatchResult) -> bytes:
        report, body = result.report, told(result.answer)
        line: Json = {"id": result.id, "line": result.index}
        if report is not None:
            line |= {"outcome": report.outcome, "stop": report.stop, "reason": report.reason}
            line |= {"usage": asdict(report.billed), "cost": report.cost}
            line["seconds"] = round(report.seconds, 3)
        if result.index in self._plain:
            self._plain.discard(result.index)
            line["text"] = text_of(body)
        else:
            line["answer"] = body
        return _written(line)


class _Finished(_Lines):
    """Results of a batch API; each answer that is cut is gone on with."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        count = _count(arguments.results)
        super().__init__(arguments, arguments.requests)
        self.count = count
        self._requests, self.path = self.path, arguments.results
        self._places = dict[str, int]()
        """Where in the file of requests each one begins."""
        self._lines = dict[int, tuple[Json, bytes]]()
        """Results under way."""
        at = 0
        with self._requests.open("rb") as asked:
            for line in asked:
                with contextlib.suppress(ValueError, AttributeError):
                    self._places[id_of(json.loads(line))] = at
                at += len(line)

    def items(self, out: _Output) -> Iterator[Item]:
        with self._requests.open("rb") as asked:
            for place, raw, line in self._read(self.path):
                called = id_of(line)
                if called in out.done:
                    continue
                if (answer := answer_in(line)) is None or called not in self._places:
                    why = "no answer" if answer is None else f"no request in {self._requests}"
                    self.tell_bad(place, f"{called!r} has {why}; left as it is")
                    out.write(raw)
                    continue
                asked.seek(self._places[called])
                _, request = asked_in(json.loads(asked.readline()))
                self._lines[place] = line, raw
                yield Item(place, called, {"model": self._model, **request}, answer)

    def id_of(self, line: Json) -> str:
        return id_of(line) if {"result", "response", "error"} & line.keys() else ""

    def line(self, result: continuation.BatchResult) -> bytes:
        line, raw = self._lines.pop(result.index)
        as_it_was = result.report is None or len(result.report.attempts) < 2
        return raw if as_it_was else _written(with_answer(line, told(result.answer)))


def _count(path: Path) -> int:
    """Count the lines of a file that are not empty."""
    try:
        with path.open("rb") as file:
            return sum(1 for line in file if line.strip())
    except OSError as error:
        raise CommandError(reason(error), Exit.USAGE) from error


def _written(line: Json) -> bytes:
    return json.dumps(line, ensure_ascii=False).encode(errors="replace") + b"\n"


# --- lines out -----------------------------------------------------------------------------------


class _Output:
    """The file of answers, yours alone: gone on behind, line by line."""

    def __init__(self, path: Path, *, force: bool, id_of: Callable[[Json], str]) -> None:
        self.done = set[str]()
        """The ids of the lines that it has."""
        self._lock = threading.Lock()
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            message = f"--out {reason(error)}; choose a path that can be written"
            raise CommandError(message, Exit.USAGE) from error
        self._file = os.fdopen(file, "r+b", buffering=0)
        try:
            if stat.S_ISREG(os.fstat(file).st_mode):
                self._file.truncate(0 if force else self._own(path, id_of))
        except CommandError:
            self._file.close()
            raise

    def _own(self, path: Path, id_of: Callable[[Json], str]) -> int:
        """Return how many bytes of it are whole lines. Raises `CommandError` if it is not ours."""
        size = 0
        with path.open("rb") as file:
            for line in file:
                called = ""
                with contextlib.suppress(ValueError, AttributeError):
                    called = id_of(json.loads(line))
                if not called or not line.endswith(b"\n"):
                    if line.endswith(b"\n") or not (self.done or line.startswith(b'{"')):
                        free(path, force=False)
                    break  # a kill has left it
                self.done.add(called)
                size += len(line)
        return size

    def write(self, line: bytes) -> None:
        """Put a line behind the others. Raises `OSError`."""
        with self._lock:
            self._file.write(line if line.endswith(b"\n") else line + b"\n")

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


# --- what it came to -----------------------------------------------------------------------------


class _Tally:
    """Counts what came, and says so: while it comes, and in the end."""

    def __init__(self, lines: _Lines, out: _Output) -> None:
        self._lines, self._out = lines, out
        self._outcomes = Counter[str]()
        self._before, self._failed = len(out.done), 0
        self._input = self._output = 0
        self._cost: float | None = None
        self._slowest: list[tuple[float, int, str]] = []
        self._began = self._last = time.monotonic()

    def add(self, result: continuation.BatchResult, say: Callable[[Exception], str]) -> None:
        """Take a result in, and write its line. Raises `OSError`."""
        report = result.report
        if report is not None:
            self._input += report.billed.prompt or 0
            self._output += report.billed.output or 0
            if (cost := report.cost) is not None:
                self._cost = (self._cost or 0.0) + cost
            slow = report.seconds, result.index, result.id
            keep = heapq.heappush if len(self._slowest) < _SLOWEST else heapq.heappushpop
            keep(self._slowest, slow)
        if result.error is not None:
            self._failed += 1
            told = f"{result.id!r} failed: {say(result.error)}"
            self._lines.notes.line(f"continuation: line {result.index}: {told}", "red")
            return
        self._outcomes[str(report.outcome) if report else "untouched"] += 1
        self._out.write(self._lines.line(result))

    def hopeless(self, error: Exception | None) -> bool:
        """Whether an error says that no request of this key will be taken."""
        status = getattr(error, "status_code", getattr(error, "code", None))
        return status in {401, 403} and not self._outcomes

    @property
    def _done(self) -> int:
        return self._outcomes.total() + self._failed + self._lines.bad + self._before

    def show(self, show: Show) -> None:
        """Say how far it is: on a line that moves, or on a line now and then."""
        now = time.monotonic()
        if not self._lines.notes.live and now < self._last + _EVERY:
            return
        self._last, came = now, self._outcomes.total() + self._failed
        rate, left = came / max(now - self._began, 0.001), max(self._lines.count - self._done, 0)
        told = [f"{self._done:,} of {self._lines.count:,}", f"{rate:,.1f} a second"]
        if self._cost is not None:
            told.append(f"about ${self._cost:.2f}")
        minutes, seconds = divmod(int(left / max(rate, 0.001)), 60)
        told.append(f"{minutes}:{seconds:02} left")
        show(", ".join(told), self._done)
        if not self._lines.notes.live:
            self._lines.notes.line(f"continuation: {', '.join(told)}")

    def end(self, why: tuple[str, Exit]) -> int:
        """Sum it up; return the exit status."""
        said, status = why
        lines, note = self._lines, self._lines.notes.line
        seconds = time.monotonic() - self._began
        outcomes = dict(self._outcomes.most_common())
        counts = [f"{count:,} {outcome}" for outcome, count in outcomes.items()]
        for count, what in ((self._failed, "failed"), (lines.bad, "bad"), (self._before, "before")):
            counts += [f"{count:,} {what}"] if count else []
        note(f"continuation: {plural(self._done, 'line')}: {', '.join(counts) or 'nothing to do'}")
        cost = "" if self._cost is None else f", ${self._cost:.4f}"
        tokens = f"{number(self._input)} tokens in, {number(self._output)} out"
        note(f"continuation: billed: {tokens}{cost}; {seconds:.1f} s")
        slowest = sorted(self._slowest, reverse=True)
        if slowest:
            told = (f"{called} (line {place}) {took:.1f} s" for took, place, called in slowest)
            note(f"continuation: slowest: {', '.join(told)}")
        if said:
            note(f"continuation: {said}; the same command goes on from here", "red")
        whole = not outcomes.keys() - WHOLE_OUTCOMES
        flags = (Exit.PROVIDER, self._failed), (Exit.USAGE, lines.bad), (Exit.NOT_WHOLE, not whole)
        status = max(status, *(flag for flag, count in flags if count), Exit.WHOLE)
        tell(
            {"exit": status, "error": said or None, "outcomes": outcomes, "failed": self._failed}
            | {"bad": lines.bad, "before": self._before, "seconds": round(seconds, 3)}
            | {"input": self._input, "output": self._output, "cost": self._cost}
            | {"slowest": [{"id": i, "line": n, "seconds": round(s, 3)} for s, n, i in slowest]}
        )
        return status
