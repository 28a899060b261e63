"""The input files of a batch: requests in any form, or a batch API's results to complete.

`bulk/lines.py` reads a line. The classes here decide what is done with it.
"""

from __future__ import annotations

import argparse
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import continuation
from continuation.bulk.lines import (
    RequestIds,
    answer_in,
    answer_json,
    failure_in,
    format_of,
    has_turns,
    id_of,
    is_prompt,
    lines_of,
    object_in,
    request_in,
    text_of,
    with_answer,
)
from continuation.bulk.workers import Item
from continuation.cli.batch.output import Output
from continuation.cli.exits import CommandError, Exit, reason
from continuation.cli.formats import choose, names
from continuation.cli.screen import screen
from continuation.providers.sdk import Prompt, SdkDriver
from continuation.reports.account import plural
from continuation.types import Json

MODEST = 8192
"""The output limit in tokens for a prompt without one. `initial_limit` raises it to the ceiling."""
_OLD = "completions"
_OTHER_APIS = _OLD, "embeddings", "moderations", "generations", "edits", "videos"
"""The endings of the paths of other APIs that OpenAI's batches call."""
_NAMED = 5
"""The most requests without a result that are named."""


class Lines(ABC):
    """A file of lines, some of which need a request. Each answer is a line of the output."""

    begins = b'{"'
    """The first bytes of every line of the output."""

    def __init__(self, arguments: argparse.Namespace, path: Path) -> None:
        self.path, self.notes = path, screen(sys.stderr)
        self.bad = 0
        """The number of lines that cannot be read, or have no answer that can be continued."""
        self.before = 0
        """The number of lines that are skipped because the output has them already."""
        self.missing = 0
        """The number of requests that have no result."""
        self._model: str | None = arguments.model
        self.count = _count(path)
        first = next((line for _, _, line in self._read(path, quiet=True)), None)
        driver = self._format(arguments.dialect, first or {})
        if driver is None and first is None:
            raise CommandError(
                f"{path}: no line is a JSON object; write one request per line", Exit.USAGE
            )
        if driver is None:
            message = f"{path}: the wire format of its requests is unknown; add --dialect"
            raise CommandError(f"{message} ({', '.join(names())})", Exit.USAGE)
        self.driver: SdkDriver = driver

    def _format(self, named: str | None, line: Json) -> SdkDriver | None:
        """Return the named format, or else the line's, by its form or by its model; or None."""
        _, request = request_in(line)
        return choose(named or format_of(line), str(request.get("model") or self._model or ""))

    def report_bad(self, number: int, why: str) -> None:
        """Report a line that cannot be used."""
        self.bad += 1
        self.notes.line(f"continuation: {self.path}, line {number}: {why}", "yellow")

    def _read(self, path: Path, *, quiet: bool = False) -> Iterator[tuple[int, bytes, Json]]:
        """Yield number, bytes and value of each line that is a JSON object; report the others."""
        for line in lines_of(path):
            if line.value is not None:
                yield line.number, line.raw, line.value
            elif not quiet:
                self.report_bad(line.number, "not a JSON object in UTF-8")

    @abstractmethod
    def items(self, out: Output) -> Iterator[Item]:
        """Yield the requests to send. The index of each is its line number."""

    @abstractmethod
    def id_of(self, line: Json) -> str:
        """Return the id of a line of the output, or `""` if this command did not write the line."""

    @abstractmethod
    def line(self, result: continuation.BatchResult) -> bytes:
        """Return the line for an answer."""

    @abstractmethod
    def drop(self, number: int) -> None:
        """Forget a line whose request failed."""


class RequestLines(Lines):
    """Requests, in any form."""

    begins = b'{"id": "'

    def __init__(self, arguments: argparse.Namespace) -> None:
        super().__init__(arguments, arguments.batch)
        self._limit, self._system = arguments.max_tokens, arguments.system
        self._named: str | None = arguments.dialect
        self._plain = set[int]()
        """The numbers of the lines under way that are only a prompt."""
        self._check_used()

    def _check_used(self) -> None:
        """Raise `CommandError` for an argument that has no effect, because no line needs it."""
        unused = {"--model": self._model, "--max-tokens": self._limit, "--system": self._system}
        unused = {name: given for name, given in unused.items() if given}
        for _, _, line in self._read(self.path, quiet=True):
            if not unused:
                return
            if is_prompt(line):
                unused.pop("--max-tokens", None)
                if not line.get("system"):
                    unused.pop("--system", None)
            if not (line.get("model") or request_in(line)[1].get("model")):
                unused.pop("--model", None)
        for name in unused:
            lacks = "names no model" if name == "--model" else "is only a prompt"
            message = f"{name}: has no effect, because no line of {self.path} {lacks}; leave it out"
            raise CommandError(message, Exit.USAGE)

    def items(self, out: Output) -> Iterator[Item]:
        unnamed, seen = RequestIds(), set[str]()
        for number, _, line in self._read(self.path):
            try:
                request_id, request = self._request(line)
            except ValueError as error:
                self.report_bad(number, str(error))
                continue
            request_id = request_id or unnamed.of(request)
            if request_id in seen:
                self.report_bad(
                    number, f"an earlier line has the id {request_id!r}; choose another"
                )
                continue
            seen.add(request_id)
            if request_id in out.done:
                self.before += 1
                continue
            policies = dict[str, Any]()
            if is_prompt(line):
                self._plain.add(number)
                if not self._limit:  # without a limit it gets the ceiling
                    policies = {"initial_limit": "ceiling", "clamp": True}
            yield Item(number, request_id, request, policies=policies)

    def _request(self, line: Json) -> tuple[str, Json]:
        """Return the id and the request of a line. Raises `ValueError` if a part is missing."""
        model = line.get("model") or self._model or ""
        if not isinstance(model, str):
            raise ValueError("model must be a string")
        if is_prompt(line):
            text, system = line["prompt"], line.get("system") or self._system
            if not isinstance(text, str) or not text.strip():
                raise ValueError("prompt must be a string that is not empty")
            if not (system is None or isinstance(system, str)):
                raise ValueError("system must be a string")
            if not model:
                raise ValueError("it names no model; add --model M")
            return id_of(line), self.driver.body(Prompt(model, text, self._limit or MODEST, system))
        request_id, request = request_in(line)
        self._fits(line, request)
        if not request.get("model"):
            if not model:
                raise ValueError("it names no model; add --model M")
            request["model"] = model
        return request_id, request

    def _fits(self, line: Json, request: Json) -> None:
        """Raise `ValueError` for a line with another kind of request."""
        if not has_turns(request):
            raise ValueError("it has no prompt, messages, input or contents; add one")
        url = str(line.get("url", ""))
        if url.endswith(_OTHER_APIS) and not url.endswith(f"chat/{_OLD}"):
            raise ValueError(f"url = {url!r}: only Chat Completions and Responses are supported")
        named = None if self._named else format_of(line)
        shape = choose(named, "") if named else None
        if shape is not None and shape.sdk is not self.driver.sdk:
            message = (
                f"it is a request of {shape.title}, but the first is one of {self.driver.title}"
            )
            raise ValueError(f"{message}; put it in a separate file")

    def id_of(self, line: Json) -> str:
        return id_of(line) if "outcome" in line else ""

    def line(self, result: continuation.BatchResult) -> bytes:
        report, body = result.report, answer_json(result.answer)
        line: Json = {"id": result.id, "line": result.index}
        if report is not None:
            line |= {"outcome": report.outcome, "stop": report.stop, "reason": report.reason}
            line |= {"ending": report.ending, "remedy": report.remedy}
            line |= {"usage": asdict(report.billed), "cost": report.cost}
            line["seconds"] = round(report.seconds, 3)
        if result.index in self._plain:
            self.drop(result.index)
            line["text"] = text_of(body)
        else:
            line["answer"] = body
        return _written(line)

    def drop(self, number: int) -> None:
        self._plain.discard(number)


class ResultLines(Lines):
    """Results of a batch API. Each truncated answer is continued."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        count = _count(arguments.results)
        super().__init__(arguments, arguments.requests)
        self.count = count
        self._requests, self.path = self.path, arguments.results
        self._offsets = dict[str, int]()
        """The id of each request -> its offset in the file, in bytes."""
        self._twice = set[str]()
        """The ids that several requests have."""
        self._lines = dict[int, tuple[Json, bytes]]()
        """The line number of each result under way -> its value and its bytes."""
        for line in lines_of(self._requests):
            if line_id := id_of(line.value or {}):
                if line_id in self._offsets:
                    self._twice.add(line_id)
                self._offsets[line_id] = line.offset

    def items(self, out: Output) -> Iterator[Item]:
        seen = set[str]()
        with self._requests.open("rb") as file:
            for index, raw, line in self._read(self.path):
                line_id = id_of(line)
                if line_id in seen:
                    self.report_bad(index, f"an earlier line has the id {line_id!r}; omitted")
                    continue
                if line_id in out.done:
                    self.before += 1
                elif why := self._obstacle(line_id, line):
                    self.report_bad(index, f"{why}; copied unchanged")
                    out.write(raw)
                elif (answer := answer_in(line)) is not None:
                    file.seek(self._offsets[line_id])
                    _, request = request_in(object_in(file.readline()) or {})
                    if model := request.get("model") or self._model:
                        self._lines[index] = line, raw
                        yield Item(index, line_id, {**request, "model": model}, answer)
                    else:
                        self.report_bad(
                            index, f"the request of {line_id!r} names no model; add --model"
                        )
                        continue  # the line is not written, so the next run tries it
                if line_id:
                    seen.add(line_id)
        if left := sorted(self._offsets.keys() - seen):
            self.missing = len(left)
            names = ", ".join(map(repr, left[:_NAMED])) + ", ..." * (len(left) > _NAMED)
            message = f"{plural(len(left), 'request')} without a result: {names}"
            self.notes.line(f"continuation: {self.path}: {message}", "yellow")

    def _obstacle(self, line_id: str, line: Json) -> str:
        """Return why a result's answer cannot be continued, or `""` if it can."""
        if answer_in(line) is None:
            failed = failure_in(line)
            return f"{line_id!r} has no answer" + (f", but {failed}" if failed else "")
        if not line_id:
            return "it has no id, so its request is unknown"
        if line_id in self._twice:
            return f"{line_id!r} has two requests in {self._requests}"
        return "" if line_id in self._offsets else f"{line_id!r} has no request in {self._requests}"

    def id_of(self, line: Json) -> str:
        return id_of(line) if {"result", "response", "error"} & line.keys() else ""

    def line(self, result: continuation.BatchResult) -> bytes:
        line, raw = self._lines.pop(result.index)
        as_it_was = result.report is None or len(result.report.attempts) < 2
        return raw if as_it_was else _written(with_answer(line, answer_json(result.answer)))

    def drop(self, number: int) -> None:
        self._lines.pop(number, None)


def _count(path: Path) -> int:
    """Count the lines of a file that are not empty. Raises `CommandError`."""
    try:
        if not (path.is_file() or path.is_dir()) and (path.exists() or path == Path("-")):
            message = f"{path}: not a regular file; write the lines to a file first"
            raise CommandError(message, Exit.USAGE)
        with path.open("rb") as file:
            return sum(1 for line in file if line.strip())
    except OSError as error:
        raise CommandError(reason(error), Exit.USAGE) from error


def _written(line: Json) -> bytes:
    """Return a line as bytes. A lone surrogate, which UTF-8 cannot encode, is escaped."""
    try:
        return json.dumps(line, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(line).encode() + b"\n"
