"""`continuation simulate`: runs the simulated provider as a server until Ctrl-C."""

from __future__ import annotations

import argparse
import inspect
import sys
import textwrap
import threading
from pathlib import Path

from continuation.cli.demo import default_file
from continuation.cli.exits import CommandError, Commands, Exit, port, reason
from continuation.cli.formats import Sdk, offered, sdks
from continuation.cli.screen import Screen, print_json, screen
from continuation.simulator import Recorded, Reply, Scenario, Simulator
from continuation.simulator.common import spent
from continuation.simulator.wire import Answer
from continuation.testing import ANSWER, SCENARIOS, Rehearsal

_DESCRIPTION = """\
Run a simulated provider as a server on this machine, with the APIs of Anthropic, OpenAI (Chat
Completions and Responses) and Gemini. Its model recites a file and is truncated at the output
limit, and it rejects what the real providers reject. It counts the attempts of each conversation,
which it recognizes by the instructions and the first message;
`curl -X POST http://127.0.0.1:N/reset` resets the counts."""
_RESET = "/reset"
_NO_VICTIM = (
    "--scenario: only a Python program can name the process to kill; use"
    ' `continuation.testing.simulate("kill")` and set `victim`, or play "drop" or "dead" here'
)
_LOOPBACK = ("127.0.0.1", "localhost")


def add_to(commands: Commands) -> None:
    parser = commands.add_parser(
        "simulate", help="run the simulated provider as a server", description=_DESCRIPTION
    )
    parser.add_argument(
        "--port",
        type=port,
        default=8080,
        metavar="N",
        help="listen on port N (default: %(default)s; 0: any free port)",
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="listen at this address (default: %(default)s)"
    )
    parser.add_argument(
        "--file",
        type=Path,
        metavar="PATH",
        help="let the model recite this UTF-8 file (default: that of `continuation demo`)",
    )
    parser.add_argument(
        "--scenario",
        default="",
        metavar='"KEY=VALUE, ..."',
        help='play a scenario, such as "cut-call" or "manner=echo:40, ceiling=4000, vendor=vllm"',
    )
    parser.set_defaults(command=run)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    named = "\n".join(f"  {name:18}{about}" for name, about in SCENARIOS.items())
    settings = inspect.getdoc(Scenario) or ""
    parser.epilog = f"""\
example:
  continuation simulate --port 8080 --scenario "cut-text, vendor=vllm"

named scenarios; settings can follow the name:
{named}

settings of --scenario and of the request header x-simulate; for single attempts as in
drop=1:20+2:40:
{textwrap.indent(settings, "  ")}"""


def run(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C, then return success."""
    out = screen(sys.stdout)
    path: Path | None = arguments.file
    if arguments.host not in _LOOPBACK:
        message = (
            f"--host {arguments.host}: the simulator listens only on {_LOOPBACK[0]}; "
            "leave out --host"
        )
        raise CommandError(message, Exit.USAGE)
    try:
        simulator = _simulator(arguments.scenario, path, arguments.port)
    except OSError as error:
        message = (
            f"--port {arguments.port}: {reason(error)}; choose another, or 0 for any free port"
        )
        if error.filename is not None:
            message = f"--file {reason(error)}"
        raise CommandError(message, Exit.USAGE) from error
    except ValueError as error:
        raise CommandError(str(error), Exit.USAGE) from error
    simulator.out = out
    with simulator:
        url = simulator.url
        titles = ", ".join(one.title for one in offered())
        print_json({"url": url})
        out.line(f"simulating {titles} at {url}; press Ctrl-C to stop", "bold")
        recited = "some lines" if isinstance(simulator, Rehearsal) else default_file()
        out.line(f"  answer   {path or recited}")
        for sdk in sdks():
            out.line(f"  Python   {Sdk(sdk).sample(url)}")
            out.line(f"  shell    export {sdk.base_url}={url}{sdk.path} {sdk.keys[0]}=any")
        out.line(f"to reset the attempt counts: curl -X POST {url}{_RESET}")
        out.line("  to change one request, send the header x-simulate: manner=echo:40, drop=1:20")
        try:
            # The wait has a timeout, because on Windows Ctrl-C does not interrupt one without.
            while not threading.Event().wait(0.5):
                pass
        except KeyboardInterrupt:
            out.line("stopped")
    return Exit.WHOLE


def _simulator(scenario: str, path: Path | None, port: int) -> _Logged:
    """Make the simulator that `--scenario` describes by a name, by settings, or by both.

    Raises `ValueError` for a mistake in it, and `OSError`.
    """
    first, _, settings = scenario.partition(",")
    name = first.strip()
    if name and "=" not in name and name not in SCENARIOS:
        names = ", ".join(SCENARIOS)
        raise ValueError(f"--scenario {name!r}: write key=value, or one of {names}")
    # A mistake is refused before anything listens.
    own = Scenario().but(settings if name in SCENARIOS else scenario)
    if name == "kill" or own.kill:
        raise ValueError(_NO_VICTIM)
    if name not in SCENARIOS:
        return _Logged(path or default_file(), own, port=port)
    simulator = _Rehearsed(name, answer=path or ANSWER, port=port)
    simulator.scenario = simulator.scenario.but(settings)
    return simulator


class _Logged(Simulator):
    """A simulator that logs each request when it is answered, and does not store requests."""

    out = Screen(None)
    _log_lock = threading.Lock()

    def respond(self, request: Recorded) -> tuple[Answer, Reply]:
        if (request.method, request.path) == ("POST", _RESET):
            self.reset()
            self._log([request.method, request.path, "200"])
            return Answer(200, {"content-type": "application/json"}, b"{}"), Reply()
        answer, reply = super().respond(request)
        self.requests.clear()
        cells = [request.method, request.path, str(answer.status)]
        if request.asks_model and answer.status == 200:  # log the number of tokens, no content
            cells += [f"out {spent(reply):,}", reply.stop]
        if reply.drop is not None:
            cells.append("dropped")
        self._log(cells)
        return answer, reply

    def _log(self, cells: list[str]) -> None:
        with self._log_lock:
            print_json(dict(zip(("method", "path", "status", "out", "stop"), cells, strict=False)))
            self.out.line("  ".join(cells))


class _Rehearsed(_Logged, Rehearsal):
    """A logging simulator that plays a named scenario."""
