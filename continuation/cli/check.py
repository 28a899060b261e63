"""`continuation check`: what is wrong with saved sessions, and where."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from continuation.cli.sessions import EXITS, FORMS, add_paths, look, tell

if TYPE_CHECKING:
    from continuation.cli.exits import Commands

_DESCRIPTION = f"""\
Tell what is wrong with saved sessions and where, the error a provider would answer, and what
`continuation repair` would do about it. Nothing is written.

{FORMS}"""


def add_to(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "check", help="tell what a provider rejects in a saved session", description=_DESCRIPTION
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXITS.format(one="repairable")
    add_paths(parser)
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Check each path."""
    from continuation.sessions import check

    return tell(look(arguments.paths, check), as_json=arguments.json)
