"""`continuation demo`: a real file as the answer of a simulated model that is cut several times."""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import continuation
from continuation.cli import demo_text, demo_tool
from continuation.cli.demo_stage import Cast, Client, Show, Stage, default_file
from continuation.cli.exits import CommandError, Exit, positive, reason
from continuation.cli.formats import choose, names, offered
from continuation.cli.refusals import explain
from continuation.cli.screen import Screen, screen
from continuation.simulator import Scenario, Simulator

if TYPE_CHECKING:
    from continuation.cli.exits import Commands

_DESCRIPTION = """\
Start a simulated provider on this machine whose model recites a real file and is cut off on the
way. Call it with the real SDK, unwrapped and wrapped, and prove that the wrapped answer equals the
file, byte for byte. Needs no key; nothing leaves the machine."""
DEFAULT_DIALECT = "anthropic"
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
    parser.add_argument(
        "--model", help=f"default: {', '.join(dict.fromkeys(one.model for one in offered()))}"
    )
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
        "(default: %(default)s); not every cut can be mended in every manner",
    )
    parser.add_argument(
        "--tool", action="store_true", help="show a streamed Write call that is cut after text"
    )
    parser.add_argument(
        "--dialect",
        choices=names(),
        help=f"wire format, and so SDK (default: by the model's name, else {DEFAULT_DIALECT})",
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the demo; whole only if equality was proven."""
    cast = _cast(arguments)
    sdk = cast.format.sdk
    errors = cast.format.errors
    show = demo_tool.SHOW if arguments.tool else demo_text.SHOW
    out = screen(sys.stdout)
    stage = _stage(arguments, show, cast)
    with _simulator(stage) as simulator, warnings.catch_warnings():
        # A simulated model does not retire.
        warnings.simplefilter("ignore", DeprecationWarning)
        _introduce(stage, simulator, out)
        try:
            with sdk.simulated(simulator.url) as client:
                equal = _play(show, client, stage, simulator, out)
        except errors as error:
            message = explain(error, simulator.url, sdk.keys[0])
            raise CommandError(message, Exit.PROVIDER) from error
    return Exit.WHOLE if equal else Exit.NOT_WHOLE


def _cast(arguments: argparse.Namespace) -> Cast:
    """Choose format and model: each by the other where only one is named."""
    fallback = arguments.dialect or DEFAULT_DIALECT
    found = choose(arguments.dialect, arguments.model or "") or choose(fallback, "")
    assert found is not None  # argparse lets pass what is offered, and the default always is
    return Cast(found, arguments.model or found.model, arguments.max_tokens, arguments.manner)


def _play(show: Show, client: Client, stage: Stage, simulator: Simulator, out: Screen) -> bool:
    made = stage.cast.format.sdk.label
    out.line(f"1. {made}{stage.cast.format.method}, as it is", "bold")
    show.unwrapped(client, stage, out)
    out.line()
    out.line(f"2. continuation.wrap({made}): the same call, streamed", "bold")
    if out.live and show.paced:
        simulator.scenario = _paced(stage)
    return show.wrapped(client, stage, out)


def _stage(arguments: argparse.Namespace, show: Show, cast: Cast) -> Stage:
    path: Path = arguments.file or default_file()
    try:
        content = path.read_bytes()
        return show.stage(path, content, cast)
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


def _introduce(stage: Stage, simulator: Simulator, out: Screen) -> None:
    sdk = stage.cast.format.sdk
    versions = f"continuation {continuation.__version__}, {sdk.name} {sdk.version}"
    out.line(f"{versions}; {stage.cast.model} simulated at {simulator.url}, no key needed")
    out.line(f"the model's answer is {stage.path}: {len(stage.content):,} bytes")
    out.line()


def _paced(stage: Stage) -> Scenario:
    """Slow the model down so that eyes can follow."""
    size = max(1, stage.length // _STEPS)
    return stage.scenario.but(f"deltas={size}, slow={_PACE * size / stage.length}")
