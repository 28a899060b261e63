"""`continuation simulate`: the simulated provider as a server, until Ctrl-C."""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path

from continuation.cli.demo import default_file
from continuation.cli.exits import CommandError, Commands, Exit, port, reason
from continuation.cli.formats import FORMATS, SDKS
from continuation.cli.screen import Screen, screen, tell
from continuation.simulator import Recorded, Reply, Scenario, Simulator
from continuation.simulator.common import spent
from continuation.simulator.wire import Answer

_DESCRIPTION = """\
Serve the APIs of Anthropic, OpenAI (Chat Completions and Responses) and Gemini on this machine: a
model that recites a file and is cut off at its output limit, and providers that refuse what the
real ones refuse."""
_LOOPBACK = ("127.0.0.1", "localhost")


def add_to(commands: Commands) -> None:
    parser = commands.add_parser(
        "simulate", help="serve a simulated provider", description=_DESCRIPTION
    )
    parser.add_argument(
        "--port", type=port, required=True, metavar="N", help="0 takes any that is free"
    )
    parser.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    parser.add_argument(
        "--file",
        type=Path,
        metavar="PATH",
        help="what the model recites: a UTF-8 file (default: that of `continuation demo`)",
    )
    parser.add_argument(
        "--scenario",
        default="",
        metavar='"KEY=VALUE, ..."',
        help='e.g. "manner=echo:40, ceiling=4000, status=2:529, vendor=vllm" (see Scenario)',
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C, which is the way to end it and so no error."""
    out = screen(sys.stdout)
    path: Path = arguments.file or default_file()
    if arguments.host not in _LOOPBACK:
        message = f"--host {arguments.host}: the simulator listens on {_LOOPBACK[0]} only"
        raise CommandError(message, Exit.USAGE)
    try:
        scenario = Scenario().but(arguments.scenario)
        simulator = _Logged(out, path, scenario, arguments.port)
    except OSError as error:
        message = (
            f"--port {arguments.port}: {reason(error)}; choose another, or 0 for any that is free"
        )
        if error.filename is not None:
            message = f"--file {reason(error)}"
        raise CommandError(message, Exit.USAGE) from error
    except ValueError as error:
        raise CommandError(str(error), Exit.USAGE) from error
    with simulator:
        url = simulator.url
        titles = ", ".join(one.title for one in FORMATS)
        tell({"url": url})
        out.line(f"simulating {titles} at {url}; Ctrl-C stops it", "bold")
        out.line(f"  answer   {path}")
        for sdk in SDKS:
            out.line(f"  Python   {sdk.sample(url)}")
            out.line(f"  shell    export {sdk.base_url}={url}{sdk.path} {sdk.keys[0]}=any")
        out.line("  change one request with a header, x-simulate: manner=echo:40, drop=1:20")
        try:
            # Waits in steps: on Windows a wait without an end does not hear Ctrl-C.
            while not threading.Event().wait(0.5):
                pass
        except KeyboardInterrupt:
            out.line("stopped")
    return Exit.WHOLE


class _Logged(Simulator):
    """A simulator that tells each request as it is answered, and keeps none of them."""

    def __init__(self, out: Screen, path: Path, scenario: Scenario, port: int) -> None:
        super().__init__(path, scenario, port=port)
        self._out = out
        self._telling = threading.Lock()

    def respond(self, request: Recorded) -> tuple[Answer, Reply]:
        answer, reply = super().respond(request)
        self.requests.clear()
        told = [request.method, request.path, str(answer.status)]
        if request.asks_model and answer.status == 200:  # no content, only how much there is of it
            told += [f"out {spent(reply):,}", reply.stop]
        if reply.drop is not None:
            told.append("dropped")
        if reply.kill is not None:
            told.append("to be killed")
        with self._telling:
            tell(dict(zip(("method", "path", "status", "out", "stop"), told, strict=False)))
            self._out.line("  ".join(told))
        return answer, reply
