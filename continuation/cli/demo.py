"""`continuation demo`: a simulated model recites a real file and is truncated several times."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import jiter

import continuation
from continuation.cli.exits import CommandError, Commands, Exit, positive, reason
from continuation.cli.formats import Sdk, choose, errors_of, names, offered
from continuation.cli.live import Live
from continuation.cli.refusals import explain
from continuation.cli.screen import print_json, screen
from continuation.cli.words import describe, limited
from continuation.limits import find
from continuation.policy import PolicyKeys
from continuation.providers.sdk import End, OnDelta, Prompt
from continuation.reports.account import costs, made, number
from continuation.reports.report import (
    Escalating,
    Event,
    Finished,
    Recovering,
    Report,
    Retrying,
    Truncated,
)
from continuation.simulator import Scenario, Simulator, tokens

_DESCRIPTION = """\
Show a truncated answer being completed. The command starts a simulated provider on this machine,
whose model recites a file and is truncated several times. It calls the provider with the real SDK,
unwrapped and wrapped, and proves that the wrapped answer equals the file, byte for byte. It needs
no key, and nothing leaves the machine."""
_MANNER = "anchor"
_LONG_MODULES = ("_pydecimal", "pydoc_data.topics")
_SMALLEST = 256
"""The default policy passes requests with a smaller limit through unchanged."""
_RECOVERIES = 3
_REPEATED = 128
"""The most tokens in which a recovery may repeat text."""
_BEFORE_THE_CALL = 256
"""Tokens for the text before a call."""
_PACE = 2.0
"""Seconds in which the wrapped client's text arrives on a terminal, so that one can watch it."""
_STEPS = 1200
"""The approximate number of events in which that text arrives."""
_PROMPT = "Write the file."
_AROUND = 7
"""The number of characters that are quoted before and after a seam."""


def add_to(commands: Commands) -> None:
    parser = commands.add_parser(
        "demo", help="show a truncated answer being completed", description=_DESCRIPTION
    )
    parser.epilog = "example: continuation demo --tool --dialect openai-responses"
    parser.add_argument(
        "--file",
        type=Path,
        metavar="PATH",
        help="let the model recite this UTF-8 file (default: _pydecimal.py of Python, >200 kB)",
    )
    models = ", ".join(dict.fromkeys(one.model for one in offered()))
    parser.add_argument(
        "--model",
        help=f"simulate this model (default: {models})",
    )
    parser.add_argument(
        "--max-tokens",
        type=positive,
        metavar="N",
        help="set the first attempt's output limit (default: a part of the file)",
    )
    parser.add_argument(
        "--manner",
        help="choose how the model continues: exact, anchor, echo:40, preamble, fence, ... "
        f"(default: {_MANNER}); some manners cannot be completed at some positions",
    )
    parser.add_argument(
        "--tool",
        action="store_true",
        help="let the model write a text and then a tool call, whose arguments are truncated",
    )
    parser.add_argument(
        "--huge",
        action="store_true",
        help="show a Write call three times as long as the ceiling (not with --dialect gemini)",
    )
    parser.add_argument(
        "--kill",
        action="store_true",
        help="kill an agent during an answer, start it again, and let it resume from its journal",
    )
    parser.add_argument(
        "--dialect",
        choices=names(),
        help=f"choose the wire format (default: from the model, else {names()[0]})",
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the demo. Return `Exit.WHOLE` only if the answer equals the file."""
    if arguments.tool and not arguments.huge and arguments.manner:
        message = "--manner: has no effect with --tool, where the request is resent; leave it out"
        raise CommandError(message, Exit.USAGE)
    if arguments.kill:
        from continuation.cli.demo_kill import run as run_kill

        return run_kill(arguments)
    demo = Demo(arguments)
    driver = demo.format
    made = f"{driver.sdk.module}.{driver.sdk.client}(){driver.method}"
    out = demo.out
    simulator = demo.provider(demo.scenario)
    with simulator, warnings.catch_warnings():
        # SDKs warn that old models are deprecated, which does not matter for simulated ones.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            with Sdk(driver.sdk).simulated(simulator.url) as client:
                out.line(f"1. {made}, unwrapped", "bold")
                demo.unwrapped(client)
                out.line()
                out.line(f"2. continuation.wrap({made}): the same call, streamed", "bold")
                if out.live:
                    simulator.scenario = demo.paced()
                equal = demo.wrapped(client)
        except errors_of(driver) as error:
            message = explain(error, simulator.url, driver.sdk.keys[0])
            raise CommandError(message, Exit.PROVIDER) from error
    print_json(demo.document)
    return Exit.WHOLE if equal else Exit.NOT_WHOLE


def default_file() -> Path:
    """Return a long text file of Python's standard library (3.11 to 3.14: about 230 kB).

    Raises `CommandError` if this Python has none.
    """
    for name in _LONG_MODULES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None and Path(spec.origin).is_file():
            return Path(spec.origin)
    message = "this Python has no sources of its standard library; choose a text with --file PATH"
    raise CommandError(message, Exit.USAGE)


# -- the two demonstrations ----------------------------------------------------------------------


class Demo:
    """A file that the model recites, and the limits at which the answer is truncated.

    The answer is a long text that is truncated several times. With `--tool` it is a text and a
    streamed `Write` call, and it is truncated inside the call. Raises `CommandError` for a file
    that is unreadable or too short.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        fallback = arguments.dialect or names()[0]
        driver = choose(arguments.dialect, arguments.model or "") or choose(fallback, "")
        assert driver is not None  # argparse accepts only offered names; the default is one
        self.format = driver
        self.model: str = arguments.model or driver.model
        self.path: Path = arguments.file or default_file()
        self.huge: bool = arguments.huge
        self.tool: bool = arguments.tool or self.huge
        self.out = screen(sys.stdout)
        self.document: dict[str, Any] = {"file": str(self.path)}
        """What `--json` writes."""
        # For the wrapped call: characters so far, the last event that announced an attempt, the
        # report, the live line.
        self._received = 0
        self._announced: Recovering | Escalating | None = None
        self._report: Report | None = None
        self._live: Live | None = None
        try:
            self.content = self.path.read_bytes()
            manner = arguments.manner or _MANNER
            self._plan(self.content.decode(), arguments.max_tokens, manner)
        except (OSError, ValueError) as error:
            message = str(error)
            if isinstance(error, UnicodeDecodeError):
                where = f"{error.reason} at byte {error.start}"
                message = f"--file {self.path}: not UTF-8 text ({where})"
            elif isinstance(error, OSError):
                message = f"--file {reason(error)}"
            raise CommandError(message, Exit.USAGE) from error

    def _plan(self, text: str, limit: int | None, manner: str) -> None:
        """Choose the first limit and the ceiling. `limit` and `manner` are the user's choice.

        Raises `ValueError` for a text that is too short, and for an invalid combination.
        """
        answer = text
        if self.tool:
            answer = json.dumps({"path": self.path.name, "content": text}, ensure_ascii=False)
        self.length, whole = len(answer), tokens(answer)
        if whole <= _SMALLEST:
            message = (
                f"--file {self.path}: {whole} tokens are too few to be truncated "
                f"(limits below {_SMALLEST} are passed through unchanged); choose a longer file"
            )
            raise ValueError(message)
        ceiling: int | None
        if self.huge and not self.format.sends_truncated_calls:
            title = self.format.title
            message = f"--huge: {title} does not send truncated calls; choose another --dialect"
            raise ValueError(message)
        if self.huge:
            ceiling = self.limit = limit or max(_SMALLEST, whole // 3)
        elif self.tool:
            # The first attempt is truncated in the middle, and the ceiling is enough for the rest.
            whole += _BEFORE_THE_CALL
            self.limit = limit or max(_SMALLEST, whole // 2)
            limits = find(self.model)
            ceiling = None if limits is not None and limits.ceiling > whole else whole
        else:
            # The answer needs exactly one attempt and three recoveries. The first limit is a fifth
            # of the answer, and the ceiling is slightly more than a third of the rest.
            self.limit = limit or max(_SMALLEST, whole // 5)
            rest = max(0, whole - self.limit)
            ceiling = max(self.limit, rest // _RECOVERIES + rest // 300 + _REPEATED)
        self.scenario = Scenario(manner=manner, call=self.tool, ceiling=ceiling)

    def provider(self, scenario: Scenario) -> Simulator:
        """Return the simulated provider, and write what it simulates. Raises `CommandError`."""
        sdk = f"{self.format.sdk.name} {Sdk(self.format.sdk).version}"  # raises if it is missing
        try:
            simulator = Simulator(self.path, scenario)
        except OSError as error:
            message = f"the simulator cannot start: {reason(error)}"
            raise CommandError(message, Exit.USAGE) from error
        versions = f"continuation {continuation.__version__}, {sdk}"
        self.out.line(f"{versions}; {self.model} simulated at {simulator.url}, no key needed")
        self.out.line(f"the model's answer is {self.path}: {len(self.content):,} bytes")
        self.out.line()
        return simulator

    def paced(self) -> Scenario:
        """Return a slower scenario, so that one can watch the text.

        It is not slower for a call, because that is buffered and arrives in one piece.
        """
        if self.tool:
            return self.scenario
        size = max(1, self.length // _STEPS)
        return self.scenario.but(f"deltas={size}, slow={_PACE * size / self.length}")

    def unwrapped(self, client: Any) -> None:
        """Show the answer of the unwrapped client."""
        text: list[str] = []
        pieces: list[str] = []
        end = self._ask(client, OnDelta(text.append, pieces.append))
        arrived, whole = sum(map(len, text)), self.length
        if self.tool:
            more = (
                "and called Write" if pieces else "and nothing else"
            )  # Gemini sends a call completely, or not at all
            self.out.line(f"   the model said {''.join(text)!r} {more}", "dim")
            # The part of the file that is in the arguments, which may be truncated.
            arguments = "".join(pieces).encode() or b"{}"
            read = jiter.from_json(arguments, partial_mode="trailing-strings")
            arrived, whole = len(str(read.get("content", ""))), len(self.content.decode())
        self.document["bare"] = {"characters": arrived, "of": whole, "stop": end.stop}
        share, stopped = f"{number(arrived)} of {number(whole)} characters", self._stopped(end)
        uncut = f"a limit of {self.limit} does not truncate it"
        if not self.tool:
            lost = arrived < whole
            what = "the rest is lost" if lost else uncut
            self.out.line(f"   {share}, {stopped}: {what}", "red" if lost else "")
        elif arrived >= whole:
            self.out.line(f"   {uncut}, {stopped}")
        else:
            holds = f"the call holds {share} of the file" if pieces else "the call did not arrive"
            self.out.line(f"   {holds}, {stopped}", "red")
            half = "and the SDK's answer has no call"
            if end.calls and isinstance(end.calls[0], str):
                half = "and its arguments in the SDK's answer are not valid JSON"
            elif end.calls:
                keys = ", ".join(end.calls[0]) or "none"
                half = f"and looks complete: its input in the SDK's message has the keys {keys}"
            self.out.line(f"   {half}", "red")

    def wrapped(self, client: Any) -> bool:
        """Show the answer of the wrapped client; return whether it equals the file."""
        try:
            policies: PolicyKeys = {}
            if self.huge:
                policies["truncated_tool_call"] = "complete"
            wrapped = continuation.wrap(client, on_event=self._on_event, **policies)
        except (OSError, ValueError, TypeError) as error:  # CONTINUATION_CONFIG's file is invalid
            raise CommandError(reason(error), Exit.USAGE) from error
        self._began = time.monotonic()
        pieces: list[str] = []
        with self.out.progress() as show:
            self._live, arrived = Live(show, self.model, _PROMPT, self.length), 0

            def count(piece: str) -> None:
                nonlocal arrived
                arrived += len(piece)
                if self._live is not None:
                    self._live.arrived(arrived)

            def on_text(piece: str) -> None:
                pieces.append(piece)
                if not self.tool:
                    self._received += len(piece)
                    count(piece)

            end = self._ask(wrapped, OnDelta(on_text, count) if self.tool else OnDelta(on_text))
            self._live.end()
        text = "".join(pieces)
        if not self.tool:
            equal = self.prove("the answer", text.encode(errors="replace"))
        else:
            self.out.line(
                f"   the caller received {text!r} once, and one call, {self._stopped(end)}"
            )
            equal = self.prove("the call", _only_content(end)) and end.stop == self.format.called
        self._sum_up(text)
        return equal

    def _ask(self, client: Any, on_delta: OnDelta) -> End:
        prompt = Prompt(self.model, _PROMPT, self.limit, tool=self.tool)
        return self.format.stream(client, prompt, on_delta)

    def _stopped(self, end: End) -> str:
        return f"{self.format.stop_name} {end.stop!r}"

    def prove(self, what: str, got: bytes) -> bool:
        """Show the digests of the file and of `got`; return whether they are equal.

        `what`: a name for `got`.
        """
        self.out.line()
        self.out.line("3. the proof", "bold")
        for name, data in (("the file", self.content), (what, got)):
            digest = hashlib.sha256(data).hexdigest()
            self.document[name] = {"bytes": len(data), "sha256": digest}
            self.out.line(f"   {name:<10} {len(data):>11,} bytes  sha256 {digest}")
        self.document["identical"] = got == self.content
        if got == self.content:
            self.out.line("   identical", "bold green")
            return True
        pairs = enumerate(zip(self.content, got, strict=False))
        same = next((at for at, (a, b) in pairs if a != b), min(len(self.content), len(got)))
        self.out.line(f"   NOT identical: the first difference is at byte {same:,}", "bold red")
        return False

    # -- what happened on the way -------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        announced, text = self._announced, describe(event)
        if self._live is not None:
            self._live.on_event(event)
        match event:
            case Finished():
                self._report = event.report
            case Recovering() | Escalating():
                self._announced = event
                if isinstance(event, Recovering) and not event.replaces and not self.huge:
                    text += f"; seam at character {number(self._received)}"
            case Retrying():
                self._announced = None  # this event states why the request is resent
            case Truncated() if announced and event.attempt > announced.attempt:
                # This attempt is later than the announced one, and no event states why.
                self._note(
                    f"attempt {announced.attempt} was refused; "
                    f"attempt {event.attempt} has {limited(event)}"
                )
            case _:
                pass
        self._note(text)

    def _note(self, text: str) -> None:
        self.out.line(f"   {time.monotonic() - self._began:5.2f} s  {text}")

    def _sum_up(self, text: str) -> None:
        """Show the attempts, their cost, and their seams in `text`. A call has no seams."""
        if self._report is None:
            return
        self.document["report"] = self._report.as_dict()
        attempts = [
            (
                str(attempt.number),
                str(attempt.mode),
                number(attempt.limit),
                number(attempt.usage.prompt if attempt.usage else None),
                made(attempt.usage),
                f"{attempt.seconds:.2f}",
                (attempt.stop or attempt.error or "-") + ", discarded" * attempt.discarded,
            )
            for attempt in self._report.attempts
        ]
        self.out.line()
        self.out.table((">#", "mode", ">limit", ">in", ">out", ">s", "stop reason"), attempts)
        turn, billed = costs(self._report)
        self.out.line(f"   delivered: {turn}")
        self.out.line(f"   billed:    {billed}")
        if self.tool or not text or not self._report.seams:
            return
        rows: list[list[str]] = []
        for seam in self._report.seams:
            # `repr` is used because control characters of the text must not reach the terminal.
            offset = seam.at - seam.taken_back
            before = repr(text[max(0, offset - _AROUND) : offset])[1:-1]
            after = repr(text[offset : offset + _AROUND])[1:-1]
            counts = map(number, (seam.dropped, seam.taken_back, seam.inserted))
            start = [str(seam.attempt), number(seam.at), seam.kind]
            rows.append([*start, *counts, f"{before}|{after}"])
        head = (">#", ">at", "found", ">dropped", ">back", ">added")
        self.out.line()
        self.out.table((*head, "text around it"), rows)


def _only_content(end: End) -> bytes:
    """Return the file in the call; empty unless there is exactly one call with valid JSON."""
    try:
        parsed = [json.loads(call) if isinstance(call, str) else call for call in end.calls]
    except ValueError:
        return b""
    content: object = parsed[0].get("content") if len(parsed) == 1 else None
    return content.encode() if isinstance(content, str) else b""
