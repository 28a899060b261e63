"""`continuation demo`: a real file as the answer of a simulated model that is cut several times."""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2

import continuation
from continuation.cli import demo_text, demo_tool
from continuation.cli.demo_stage import DEFAULT_MODEL, Client, Show, Stage, default_file
from continuation.cli.exits import CommandError, Exit, need_anthropic, positive, reason
from continuation.cli.refusals import explain
from continuation.cli.screen import Screen, screen
from continuation.simulator import Scenario, Simulator

if TYPE_CHECKING:
    from types import ModuleType

    from continuation.cli.exits import Commands

_DESCRIPTION = """\
Start a simulated provider on this machine whose model recites a real file and is cut off on the
way. Call it with the real SDK, unwrapped and wrapped, and prove that the wrapped answer equals the
file, byte for byte. Needs no key; nothing leaves the machine."""
_PACE = 2.0
"""Seconds the wrapped answer takes on a terminal, so that it can be watched."""
_STEPS = 1200
"""Events it then comes in, about."""


def add_to(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "demo", help="watch a cut answer come back whole", description=_DESCRIPTION
    )
    parser.add_argument(
        "--file",
        type=Path,
        metavar="PATH",
        help="the answer: a UTF-8 file (default: _pydecimal.py of the standard library, >200 kB)",
    )
    parser.add_argument("--model", default=DEFAULT_MODEL, help="default: %(default)s")
    parser.add_argument(
        "--max-tokens",
        type=positive,
        metavar="N",
        help="limit of the first attempt (default: a part of the file; a token is 4 characters)",
    )
    parser.add_argument(
        "--manner",
        default="anchor",
        help="how the model goes on: exact, anchor, echo:40, preamble, fence, ... "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--tool", action="store_true", help="show a streamed Write call that is cut after text"
    )
    parser.add_argument("--dialect", choices=["anthropic"], default="anthropic")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the demo; whole only if equality was proven."""
    anthropic = need_anthropic()
    show = demo_tool.SHOW if arguments.tool else demo_text.SHOW
    out = screen(sys.stdout)
    stage = _stage(arguments, show, out)
    with _simulator(stage) as simulator, warnings.catch_warnings():
        # A simulated model does not retire.
        warnings.simplefilter("ignore", DeprecationWarning)
        _introduce(anthropic, stage, simulator, out)
        try:
            with _client(anthropic, simulator) as client:
                equal = _play(show, client, stage, simulator, out)
        except anthropic.AnthropicError as error:
            raise CommandError(explain(error, simulator.url), Exit.PROVIDER) from error
    return Exit.WHOLE if equal else Exit.NOT_WHOLE


def _play(show: Show, client: Client, stage: Stage, simulator: Simulator, out: Screen) -> bool:
    out.line("1. anthropic.Anthropic(), as it is", "bold")
    show.unwrapped(client, stage, out)
    out.line()
    out.line("2. continuation.wrap(anthropic.Anthropic()): the same call, streamed", "bold")
    if out.live and show.paced:
        simulator.scenario = _paced(stage)
    return show.wrapped(client, stage, out)


def _stage(arguments: argparse.Namespace, show: Show, out: Screen) -> Stage:
    path: Path = arguments.file or default_file()
    try:
        content = path.read_bytes()
        return show.stage(path, content, arguments.model, arguments.max_tokens, arguments.manner)
    except UnicodeDecodeError as error:
        message = f"--file {path}: not UTF-8 text ({error.reason} at byte {error.start})"
        raise CommandError(message, Exit.USAGE) from error
    except OSError as error:
        message = f"--file {reason(error)}"
        raise CommandError(message, Exit.USAGE) from error
    except ValueError as error:
        raise CommandError(str(error), Exit.USAGE) from error


def _simulator(stage: Stage) -> Simulator:
    try:
        return Simulator(stage.path, stage.scenario)
    except OSError as error:
        message = f"cannot start the simulator: {reason(error)}"
        raise CommandError(message, Exit.USAGE) from error


def _client(anthropic: ModuleType, simulator: Simulator) -> Client:
    """Make the client; neither a proxy nor a key of the environment has a part in this."""
    http = httpx2.Client(trust_env=False)
    client: Client = anthropic.Anthropic(
        base_url=simulator.url, api_key="simulated", max_retries=0, http_client=http
    )
    return client


def _introduce(anthropic: ModuleType, stage: Stage, simulator: Simulator, out: Screen) -> None:
    versions = f"continuation {continuation.__version__}, anthropic {anthropic.__version__}"
    out.line(f"{versions}; {stage.model} simulated at {simulator.url}, no key needed")
    out.line(f"the model's answer is {stage.path}: {len(stage.content):,} bytes")
    out.line()


def _paced(stage: Stage) -> Scenario:
    """Slow the model down so that eyes can follow."""
    size = max(1, stage.length // _STEPS)
    return stage.scenario.but(f"deltas={size}, slow={_PACE * size / stage.length}")
