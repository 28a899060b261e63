"""`continuation demo`: a real file as the answer of a simulated model that is cut several times."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import continuation
from continuation.cli.demo_shows import Show, TextShow, ToolShow
from continuation.cli.exits import CommandError, Exit, positive, reason
from continuation.cli.formats import choose, names, offered
from continuation.cli.refusals import explain
from continuation.cli.screen import screen
from continuation.simulator import Simulator

if TYPE_CHECKING:
    from continuation.cli.exits import Commands

_DESCRIPTION = """\
Start a simulated provider on this machine whose model recites a real file and is cut off on the
way. Call it with the real SDK, unwrapped and wrapped, and prove that the wrapped answer equals the
file, byte for byte. Needs no key; nothing leaves the machine."""
_DEFAULT_DIALECT = "anthropic"
_LONG_MODULES = ("_pydecimal", "pydoc_data.topics")


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
        help=f"wire format, and so SDK (default: by the model's name, else {_DEFAULT_DIALECT})",
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the demo; whole only if equality was proven."""
    show = _show(arguments)
    sdk = show.format.sdk
    made = sdk.label + show.format.method
    out = screen(sys.stdout)
    with _simulator(show) as simulator, warnings.catch_warnings():
        # A simulated model does not retire.
        warnings.simplefilter("ignore", DeprecationWarning)
        versions = f"continuation {continuation.__version__}, {sdk.name} {sdk.version}"
        out.line(f"{versions}; {show.model} simulated at {simulator.url}, no key needed")
        out.line(f"the model's answer is {show.path}: {len(show.content):,} bytes")
        out.line()
        try:
            with sdk.simulated(simulator.url) as client:
                out.line(f"1. {made}, as it is", "bold")
                show.unwrapped(client, out)
                out.line()
                out.line(f"2. continuation.wrap({made}): the same call, streamed", "bold")
                if out.live:
                    simulator.scenario = show.paced()
                equal = show.wrapped(client, out)
        except show.format.errors as error:
            message = explain(error, simulator.url, sdk.keys[0])
            raise CommandError(message, Exit.PROVIDER) from error
    return Exit.WHOLE if equal else Exit.NOT_WHOLE


def _show(arguments: argparse.Namespace) -> Show:
    """Choose format and model, each by the other where only one is named, and read the file."""
    fallback = arguments.dialect or _DEFAULT_DIALECT
    found = choose(arguments.dialect, arguments.model or "") or choose(fallback, "")
    assert found is not None  # argparse lets pass what is offered, and the default always is
    path: Path = arguments.file or default_file()
    make = ToolShow if arguments.tool else TextShow
    try:
        content = path.read_bytes()
        content.decode()
        model = arguments.model or found.model
        return make(path, content, found, model, arguments.max_tokens, arguments.manner)
    except UnicodeDecodeError as error:
        message = f"--file {path}: not UTF-8 text ({error.reason} at byte {error.start})"
        raise CommandError(message, Exit.USAGE) from error
    except OSError as error:
        message = f"--file {reason(error)}"
        raise CommandError(message, Exit.USAGE) from error
    except ValueError as error:
        raise CommandError(str(error), Exit.USAGE) from error


def default_file() -> Path:
    """Return a long text file that comes with Python (3.11 to 3.14: about 230 kB)."""
    for name in _LONG_MODULES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None and Path(spec.origin).is_file():
            return Path(spec.origin)
    message = "this Python has no sources of its standard library: choose a text with --file PATH"
    raise CommandError(message, Exit.USAGE)


def _simulator(show: Show) -> Simulator:
    try:
        return Simulator(show.path, show.scenario)
    except OSError as error:
        message = f"cannot start the simulator: {reason(error)}"
        raise CommandError(message, Exit.USAGE) from error
