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
import signal
import stat
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import continuation
from continuation.bulk.lines import (
    Names,
    answer_in,
    asked_in,
    failure_in,
    id_of,
    is_cut,
    text_of,
    told,
    with_answer,
)
from continuation.bulk.workers import Batch, Item
from continuation.cli.config import add_policies, in_force
from continuation.cli.exits import CommandError, Commands, Exit, free, positive, reason
from continuation.cli.formats import FormatDriver, Prompt, choose, names
from continuation.cli.refusals import explain, wrong
from continuation.cli.screen import Show, screen, tell
from continuation.policy import is_url
from continuation.reports.account import number, plural
from continuation.types import Json

WHOLE_OUTCOMES = ("complete", "healed", "untouched")
MODEST = 8192
"""The limit to fall back on where the model's ceiling is refused, in tokens."""
_DESCRIPTION = """\
Go on with the answers that a batch API of Anthropic, OpenAI or Gemini brought back cut. RESULTS is
its file of results, --requests the file of requests it was made of. What is there of an answer is
not paid again. The lines keep their format; those that are not cut come through as they are."""
_OLD = "completions"
_OTHERS = _OLD, "embeddings", "moderations", "generations", "edits", "videos"
"""How the path ends of what else OpenAI's batches ask for."""
_ENOUGH = 20
"""Errors one behind the other that all others will have: no key that is taken, no connection."""
_NOT_SENT = TypeError, ValueError
"""What an SDK raises for a request that it cannot send."""
_EVERY = 10.0
"""Seconds between two lines that say how far it is, where none can move."""
_SLOWEST, _NAMED = 3, 5
"""How many requests are named: of the slowest, and of those without a result."""


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
    _check(arguments)
    lines = read(arguments)
    sdk = lines.speaks.sdk
    config = in_force(arguments.config, arguments.set)
    with contextlib.ExitStack() as closing:
        client = closing.enter_context(contextlib.closing(sdk.connect(arguments.base_url)))
        out = closing.enter_context(
            _Output(arguments.out, force=arguments.force, ours=lines.id_of, begins=lines.begins)
        )
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
            with _gently(many.stop) as interrupted:
                why = _collect(
                    results, tally, show, lambda error: explain(error, host, sdk.keys[0])
                )
        if interrupted:
            why = "interrupted", Exit.INTERRUPTED
    return tally.end(why)


def _check(arguments: argparse.Namespace) -> None:
    """Find what is wrong with the arguments before a file is opened. Raises `CommandError`."""
    out: Path | None = arguments.out
    if out is None:
        raise CommandError("--out FILE is missing: where the answers go", Exit.USAGE)
    url: str | None = arguments.base_url
    if url is not None and not url.startswith(("http://", "https://")):
        raise CommandError(f"--base-url {url}: must begin with http:// or https://", Exit.USAGE)
    journal: str | None = arguments.journal
    read = {
        "--batch": getattr(arguments, "batch", None),
        "RESULTS": getattr(arguments, "results", None),
        "--requests": getattr(arguments, "requests", None),
        "--journal": None if journal is None or is_url(journal) else Path(journal),
    }
    for name, path in read.items():
        if path is not None and _same(path, out):
            message = f"--out {out}: is the file of {name}, which it would spoil; choose another"
            raise CommandError(message, Exit.USAGE)


@contextlib.contextmanager
def _gently(stop: Callable[[], None]) -> Generator[list[int]]:
    """Let the first Ctrl-C call `stop`, so that what has come is kept; a second one ends it all.

    Yields a list with something in it once that has happened.
    """
    told, before = list[int](), signal.getsignal(signal.SIGINT)

    def first(number: int, _: object) -> None:
        signal.signal(signal.SIGINT, before)
        told.append(number)
        stop()

    if before is not signal.default_int_handler or (
        threading.current_thread() is not threading.main_thread()
    ):
        yield told
        return
    signal.signal(signal.SIGINT, first)
    try:
        yield told
    finally:
        signal.signal(signal.SIGINT, before)


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
            if why := tally.hopeless(result):
                return why, Exit.PROVIDER
    except KeyboardInterrupt:
        return "interrupted", Exit.INTERRUPTED
    except OSError as error:
        return f"cannot go on: {reason(error)}", Exit.NOT_WHOLE
    return "", Exit.WHOLE


# --- lines in ------------------------------------------------------------------------------------


class _Lines(ABC):
    """A file of lines; some are requests to be made, and each answer is a line as well."""

    begins = b'{"'
    """What every line of the output begins with."""

    def __init__(self, arguments: argparse.Namespace, path: Path) -> None:
        self.path, self.notes = path, screen(sys.stderr)
        self.bad = 0
        """Lines that are none, or have no answer that could be gone on with."""
        self.before = 0
        """Lines that the output has."""
        self.missing = 0
        """Requests of which there is no result."""
        self._model: str | None = arguments.model
        self.count = _count(path)
        first = next((line for _, _, line in self._read(path, quiet=True)), None)
        speaks = self._format(arguments.dialect, first or {})
        if speaks is None and first is None:
            raise CommandError(f"{path}: holds no line that is a JSON object", Exit.USAGE)
        if speaks is None:
            message = f"{path}: what it asks for does not tell the wire format; add --dialect"
            raise CommandError(f"{message} ({', '.join(names())})", Exit.USAGE)
        self.speaks: FormatDriver = speaks

    def _format(self, named: str | None, line: Json) -> FormatDriver | None:
        """Say which format a line is of: by its form, or else by the model it names."""
        _, asked = asked_in(line)
        return choose(named or _shape(line), str(asked.get("model") or self._model or ""))

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
                if (told := _object(line)) is not None:
                    yield place, line, told
                elif not quiet:
                    self.tell_bad(place, "no JSON object in UTF-8")

    @abstractmethod
    def items(self, out: _Output) -> Iterator[Item]:
        """Yield the requests that are to be made; their index is the number of the line."""

    @abstractmethod
    def id_of(self, line: Json) -> str:
        """Return the id of a line of the output; `""`: it is none of ours."""

    @abstractmethod
    def line(self, result: continuation.BatchResult) -> bytes:
        """Return the line for an answer."""

    @abstractmethod
    def drop(self, place: int) -> None:
        """Let go of a line whose request failed."""


def _shape(line: Json) -> str | None:
    """Say which format a line is of by its form; `None`: that does not tell."""
    _, asked = asked_in(line)
    shapes = {
        "anthropic": "params" in line,
        "gemini": "contents" in asked,
        "openai-chat": "body" in line and "messages" in asked,
        "openai-responses": "body" in line,
    }
    return next((name for name, fits in shapes.items() if fits), None)


class _Asked(_Lines):
    """Requests, in any form."""

    begins = b'{"id": "'

    def __init__(self, arguments: argparse.Namespace) -> None:
        super().__init__(arguments, arguments.batch)
        self._limit, self._system = arguments.max_tokens, arguments.system
        self._named: str | None = arguments.dialect
        self._plain = set[int]()
        """Lines under way that are a mere prompt."""

    def items(self, out: _Output) -> Iterator[Item]:
        unnamed, seen = Names(), set[str]()
        for place, _, line in self._read(self.path):
            try:
                called, request = self._request(line)
            except ValueError as error:
                self.tell_bad(place, str(error))
                continue
            called = called or unnamed.of(request)
            if called in seen:
                self.tell_bad(place, f"the id {called!r} is that of a line before")
                continue
            seen.add(called)
            if called in out.done:
                self.before += 1
                continue
            policies = dict[str, Any]()
            if _is_prompt(line):
                self._plain.add(place)
                if not self._limit:  # it asks for all that the model can write
                    policies["initial_limit"] = "ceiling"
            yield Item(place, called, request, policies=policies)

    def _request(self, line: Json) -> tuple[str, Json]:
        """Return the id and the request of a line. Raises `ValueError` saying what it lacks."""
        model = line.get("model") or self._model or ""
        if not isinstance(model, str):
            raise ValueError("its model is no text")
        if _is_prompt(line):
            text, system = line["prompt"], line.get("system") or self._system
            if not isinstance(text, str) or not text.strip():
                raise ValueError("its prompt is empty, or no text")
            if not (system is None or isinstance(system, str)):
                raise ValueError("its system is no text")
            if not model:
                raise ValueError("it names no model; add --model")
            return id_of(line), self.speaks.body(Prompt(model, text, self._limit or MODEST, system))
        called, request = asked_in(line)
        self._fits(line, request)
        if not request.get("model"):
            if not model:
                raise ValueError("it names no model; add --model")
            request["model"] = model
        return called, request

    def _fits(self, line: Json, request: Json) -> None:
        """Raise `ValueError` for a line that holds another kind of request."""
        if not {"messages", "input", "contents", "prompt"} & request.keys():
            raise ValueError("no prompt, and no request that we know")
        url = str(line.get("url", ""))
        if url.endswith(_OTHERS) and not url.endswith(f"chat/{_OLD}"):
            raise ValueError(f"url = {url!r}: only Chat Completions and Responses are asked")
        named = None if self._named else _shape(line)
        shape = choose(named, "") if named else None
        if shape is not None and shape.sdk is not self.speaks.sdk:
            told = f"a request of {shape.title}, and the first is one of {self.speaks.title}"
            raise ValueError(f"{told}; put it into a file of its own")

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
            self.drop(result.index)
            line["text"] = text_of(body)
        else:
            line["answer"] = body
        return _written(line)

    def drop(self, place: int) -> None:
        self._plain.discard(place)


def _is_prompt(line: Json) -> bool:
    """Whether a line is ours: of Responses, a stored prompt is an object."""
    return "prompt" in line and not isinstance(line["prompt"], dict)


class _Finished(_Lines):
    """Results of a batch API; each answer that is cut is gone on with."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        count = _count(arguments.results)
        super().__init__(arguments, arguments.requests)
        self.count = count
        self._requests, self.path = self.path, arguments.results
        self._places = dict[str, int]()
        """Where in the file of requests each one begins..."""
        self._twice = set[str]()
        """...but those of which there are two."""
        self._lines = dict[int, tuple[Json, bytes]]()
        """Results under way."""
        at = 0
        with self._requests.open("rb") as asked:
            for line in asked:
                if called := id_of(_object(line) or {}):
                    if called in self._places:
                        self._twice.add(called)
                    self._places[called] = at
                at += len(line)

    def items(self, out: _Output) -> Iterator[Item]:
        seen = set[str]()
        with self._requests.open("rb") as asked:
            for place, raw, line in self._read(self.path):
                called = id_of(line)
                if called in seen:
                    self.tell_bad(place, f"the id {called!r} is that of a line before; left out")
                    continue
                if called in out.done:
                    self.before += 1
                elif why := self._hopeless(called, line):
                    self.tell_bad(place, f"{why}; left as it is")
                    out.write(raw)
                elif (answer := answer_in(line)) is not None:
                    asked.seek(self._places[called])
                    _, request = asked_in(json.loads(asked.readline()))
                    if model := request.get("model") or self._model:
                        self._lines[place] = line, raw
                        yield Item(place, called, {**request, "model": model}, answer)
                    else:
                        self.tell_bad(
                            place, f"the request of {called!r} names no model; add --model"
                        )
                        continue  # it is there for the next run
                if called:
                    seen.add(called)
        if left := sorted(self._places.keys() - seen):
            self.missing = len(left)
            names = ", ".join(map(repr, left[:_NAMED])) + ", ..." * (len(left) > _NAMED)
            told = f"{plural(len(left), 'request')} without a result: {names}"
            self.notes.line(f"continuation: {self.path}: {told}", "yellow")

    def _hopeless(self, called: str, line: Json) -> str:
        """Say why a result cannot be gone on with; `""`: it can be."""
        if answer_in(line) is None:
            failed = failure_in(line)
            return f"{called!r} has no answer" + (f", but {failed}" if failed else "")
        if not called:
            return "it has no id"
        if called in self._twice:
            return f"{called!r} has two requests in {self._requests}"
        return "" if called in self._places else f"{called!r} has no request in {self._requests}"

    def id_of(self, line: Json) -> str:
        return id_of(line) if {"result", "response", "error"} & line.keys() else ""

    def line(self, result: continuation.BatchResult) -> bytes:
        line, raw = self._lines.pop(result.index)
        as_it_was = result.report is None or len(result.report.attempts) < 2
        return raw if as_it_was else _written(with_answer(line, told(result.answer)))

    def drop(self, place: int) -> None:
        self._lines.pop(place, None)


def _count(path: Path) -> int:
    """Count the lines of a file that are not empty. Raises `CommandError`."""
    try:
        if not (path.is_file() or path.is_dir()) and (path.exists() or path == Path("-")):
            message = f"{path}: is read more than once; write the lines to a file first"
            raise CommandError(message, Exit.USAGE)
        with path.open("rb") as file:
            return sum(1 for line in file if line.strip())
    except OSError as error:
        raise CommandError(reason(error), Exit.USAGE) from error


def _object(line: bytes) -> Json | None:
    """Read a line; `None`: it is no JSON object."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):  # what it says may quote the line
        return None
    return cast("Json", told) if isinstance(told, dict) else None


def _written(line: Json) -> bytes:
    """Write a line; what UTF-8 cannot carry (half an emoji) is escaped."""
    try:
        return json.dumps(line, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(line).encode() + b"\n"


def _same(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file, be it there or not."""
    with contextlib.suppress(OSError):
        return one.samefile(other)
    return one.resolve() == other.resolve()


# --- lines out -----------------------------------------------------------------------------------


class _Output:
    """The file of answers, yours alone: gone on behind, line by line, by one run at a time.

    What is in the way of that is only taken off when the first line comes.
    """

    def __init__(
        self,
        path: Path,
        *,
        force: bool,
        ours: Callable[[Json], str],
        begins: bytes,
    ) -> None:
        """Open it. `ours`: the id of a line; `begins`: what every line of ours begins with.

        Raises `CommandError` for a file that cannot be written, or is somebody else's.
        """
        self.done = set[str]()
        """The ids of the lines that it has."""
        self._ours, self._begins = ours, begins
        self._lock = threading.Lock()
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            message = f"--out {reason(error)}; choose a path that can be written"
            raise CommandError(message, Exit.USAGE) from error
        self._file = os.fdopen(file, "r+b", buffering=0)
        self._size: int | None = None
        """How many bytes of it are to stay; `None`: it is no file that keeps them."""
        self._begun, self._before = False, b""
        try:
            if stat.S_ISREG(os.fstat(file).st_mode):
                _lock(file, path)
                self._size = 0 if force else self._own(path)
        except CommandError:
            self._file.close()
            raise

    def _own(self, path: Path) -> int:
        """Return how many bytes of it are whole lines. Raises `CommandError` if it is not ours."""
        size = 0
        with path.open("rb") as file:
            for line in file:
                ended = line.endswith(b"\n")
                told = _object(line)
                if told is None and line.strip() and not ended:
                    begun = line.startswith(self._begins) or self._begins.startswith(line)
                    if self.done or begun:
                        break  # a kill has left it
                if line.strip():
                    if not (called := self._ours(told or {})):
                        free(path, force=False)
                    self.done.add(called)
                size += len(line)
                self._before = b"" if ended else b"\n"
        return size

    def write(self, line: bytes) -> None:
        """Put a line behind the others, all of it or nothing. Raises `OSError`."""
        with self._lock:
            if not self._begun:
                self._cut()
                line, self._begun = self._before + line, True
            line = line if line.endswith(b"\n") else line + b"\n"
            left = memoryview(line)
            try:
                while left:  # a disk that is nearly full takes some of it
                    left = left[self._file.write(left) :]
            except OSError:
                with contextlib.suppress(OSError):
                    self._cut()
                raise
            if self._size is not None:
                self._size += len(line)

    def _cut(self) -> None:
        if self._size is not None:
            self._file.truncate(self._size)

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _lock(file: int, path: Path) -> None:
    """Let no other run write to a file as long as it is open, where the system can do so.

    Raises `CommandError` where one does: each would pay for what the other has.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        message = f"--out {path}: another run writes to it; wait for that, or choose another"
        raise CommandError(message, Exit.USAGE) from error
    except OSError:  # a file system that has no locks
        return


# --- what it came to -----------------------------------------------------------------------------


class _Tally:
    """Counts what came, and says so: while it comes, and in the end."""

    def __init__(self, lines: _Lines, out: _Output) -> None:
        self._lines, self._out = lines, out
        self._outcomes = Counter[str]()
        self._failed = self._cut = self._in_a_row = 0
        """Results that are an error; answers that are not whole; errors that all others will have,
        one behind the other."""
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
        at = f"line {result.index}: {result.id!r}"
        if result.error is not None:
            self._lines.drop(result.index)
        if result.error is not None and report is None and isinstance(result.error, _NOT_SENT):
            why = f"{result.id!r} cannot be sent: {wrong(result.error)}; change the request"
            self._lines.tell_bad(result.index, why)
            return
        if result.error is not None:
            self._failed += 1
            self._lines.notes.line(f"continuation: {at} failed: {say(result.error)}", "red")
            return
        outcome = str(report.outcome) if report else "untouched"
        self._out.write(self._lines.line(result))
        self._outcomes[outcome] += 1
        if outcome not in WHOLE_OUTCOMES or is_cut(told(result.answer)):
            self._cut += 1
            why = f": {report.reason}" if report and report.reason else ""
            self._lines.notes.line(f"continuation: {at} is not whole: {outcome}{why}", "yellow")

    def hopeless(self, result: continuation.BatchResult) -> str:
        """Say why no other request will do better; `""`: one may."""
        error = result.error
        status = getattr(error, "status_code", getattr(error, "code", None))
        refused, sent = status in {401, 403}, result.report is not None
        if not refused and (error is None or status is not None or not sent):
            self._in_a_row = 0
            return ""
        self._in_a_row += 1
        enough = refused and not self._outcomes
        return "no other will do better" if enough or self._in_a_row >= _ENOUGH else ""

    @property
    def _done(self) -> int:
        return self._outcomes.total() + self._failed + self._lines.bad + self._lines.before

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
        nothing = "none is done" if said else "nothing to do"
        counts = [f"{count:,} {outcome}" for outcome, count in outcomes.items()]
        for count, what in ((self._failed, "failed"), (lines.bad, "bad"), (lines.before, "before")):
            counts += [f"{count:,} {what}"] if count else []
        note(f"continuation: {plural(self._done, 'line')}: {', '.join(counts) or nothing}")
        cost = "" if self._cost is None else f", ${self._cost:.4f}"
        tokens = f"{number(self._input)} tokens in, {number(self._output)} out"
        note(f"continuation: billed: {tokens}{cost}; {seconds:.1f} s")
        slowest = sorted(self._slowest, reverse=True)
        if slowest:
            told = (f"{called} (line {place}) {took:.1f} s" for took, place, called in slowest)
            note(f"continuation: slowest: {', '.join(told)}")
        if said:
            note(f"continuation: {said}; the same command goes on from here", "red")
        flags = (Exit.PROVIDER, self._failed), (Exit.USAGE, lines.bad), (Exit.NOT_WHOLE, self._cut)
        status = max(status, *(flag for flag, count in flags if count), Exit.WHOLE)
        tell(
            {"exit": status, "error": said or None, "outcomes": outcomes, "failed": self._failed}
            | {"not_whole": self._cut, "no_result": lines.missing}
            | {"bad": lines.bad, "before": lines.before, "seconds": round(seconds, 3)}
            | {"input": self._input, "output": self._output, "cost": self._cost}
            | {"slowest": [{"id": i, "line": n, "seconds": round(s, 3)} for s, n, i in slowest]}
        )
        return status
