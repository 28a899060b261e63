"""`continuation simulate`: the simulated provider as a server, until Ctrl-C."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from continuation.cli.demo_stage import default_file
from continuation.cli.exits import CommandError, Exit, reason
from continuation.cli.screen import screen
from continuation.cli.words import number
from continuation.simulator import Recorded, Reply, Scenario, Simulator
from continuation.simulator.wire import Answer

if TYPE_CHECKING:
    from continuation.cli.exits import Commands
    from continuation.cli.screen import Screen

_DESCRIPTION = """\
Serve the Anthropic Messages API on this machine: a model that recites a file and is cut off at
max_tokens, and a provider that refuses what the real one refuses."""
_LOOPBACK = ("127.0.0.1", "localhost")


def add_to(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "simulate", help="serve a simulated provider", description=_DESCRIPTION
    )
    parser.add_argument(
        "--port", type=_port, required=True, metavar="N", help="0 takes any that is free"
    )
    parser.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    parser.add_argument(
        "--file", type=Path, metavar="PATH", help="what the model recites: a UTF-8 file"
    )
    parser.add_argument(
        "--scenario",
        default="",
        metavar='"KEY=VALUE, ..."',
        help='e.g. "manner=echo:40, ceiling=4000, status=2:529" (see Scenario)',
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C, which is the way to end it and so no error."""
    out = screen(sys.stdout)
    path: Path = arguments.file or default_file()
    with _simulator(arguments, path, out) as simulator:
        _introduce(simulator, path, out)
        try:
            # Waits in steps: on Windows a wait without an end does not hear Ctrl-C.
            while not threading.Event().wait(0.5):
                pass
        except KeyboardInterrupt:
            out.line("stopped")
    return Exit.WHOLE


def _port(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) > 65535:
        message = f"{text!r} is not a port from 0 to 65535"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def _simulator(arguments: argparse.Namespace, path: Path, out: Screen) -> _Logged:
    if arguments.host not in _LOOPBACK:
        message = f"--host {arguments.host}: the simulator listens on {_LOOPBACK[0]} only"
        raise CommandError(message, Exit.USAGE)
    try:
        return _Logged(out, path, Scenario().but(arguments.scenario), arguments.port)
    except OSError as error:
        about = f"--port {arguments.port}" if error.filename is None else "--file"
        message = f"{about} {reason(error)}"
        raise CommandError(message, Exit.USAGE) from error
    except ValueError as error:
        raise CommandError(str(error), Exit.USAGE) from error


def _introduce(simulator: Simulator, path: Path, out: Screen) -> None:
    url = simulator.url
    out.line(f"simulating the Anthropic Messages API at {url}; Ctrl-C stops it", "bold")
    out.line(f"  answer   {path}")
    out.line(f'  Python   anthropic.Anthropic(base_url="{url}", api_key="any")')
    out.line(f"  shell    export ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY=any")
    out.line("  change one request with a header, x-simulate: manner=echo:40, drop=1:20")


class _Logged(Simulator):
    """A simulator that tells each request as it is answered, and keeps none of them."""

    def __init__(self, out: Screen, path: Path, scenario: Scenario, port: int) -> None:
        super().__init__(path, scenario, port=port)
        self._out = out
        self._telling = threading.Lock()

    def respond(self, request: Recorded) -> tuple[Answer, Reply]:
        answer, reply = super().respond(request)
        self.requests.clear()
        with self._telling:
            self._out.line(_told(request, answer, reply))
        return answer, reply


def _told(request: Recorded, answer: Answer, reply: Reply) -> str:
    """Say what was asked and answered, in one line without any content."""
    parts = [request.method, request.path, str(answer.status)]
    found = dict(pair for value in _documents(answer) for pair in _facts(value))
    for name, label in (("input_tokens", "in"), ("output_tokens", "out")):
        if isinstance(count := found.get(name), int):
            parts.append(f"{label} {number(count)}")
    parts += [str(found[name]) for name in ("stop_reason", "error") if name in found]
    if reply.drop is not None:
        parts.append("dropped")
    return "  ".join(parts)


def _documents(answer: Answer) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON of an answer that may say tokens: a body, or its first and last events."""
    events = [] if answer.events is None else [*answer.events[:1], *answer.events[-3:]]
    for raw in (answer.body.decode(errors="replace"), *(event.data for event in events)):
        with contextlib.suppress(ValueError):
            yield _mapping(json.loads(raw))


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _facts(value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield counts, stop reason and error type from wherever Anthropic's shapes have them."""
    for name in ("message", "usage", "delta"):
        if inner := _mapping(value.get(name)):
            yield from _facts(inner)
    for name in ("input_tokens", "output_tokens", "stop_reason"):
        if value.get(name) is not None:
            yield name, value[name]
    if kind := _mapping(value.get("error")).get("type"):
        yield "error", kind
