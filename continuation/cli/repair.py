"""`continuation repair`: a repaired copy of a saved session, beside the original."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from continuation.cli.exits import CommandError, Exit
from continuation.cli.sessions import EXITS, FORMS, add_paths, look, tell

if TYPE_CHECKING:
    from continuation.cli.exits import Commands

_DESCRIPTION = f"""\
Write a copy of a saved session that its provider accepts again, as NAME.repaired.EXT beside the
original. A clean session is left alone. A file is never overwritten, and appears whole or not at
all. Lines that needed no repair stay as they are, byte for byte.

{FORMS}"""


def add_to(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "repair", help="make a saved session acceptable again", description=_DESCRIPTION
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXITS.format(one="repaired (what was wrong is told)")
    add_paths(parser)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--out", type=Path, metavar="PATH", help="where the copy goes")
    where.add_argument(
        "--in-place",
        action="store_true",
        help="repair the original itself; it is kept as NAME.orig.EXT",
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Repair each path."""
    _check_out(arguments.out, arguments.paths)
    from continuation.sessions import mend

    how = partial(mend, target=arguments.out, in_place=arguments.in_place)
    return tell(look(arguments.paths, how), as_json=arguments.json)


def _check_out(out: Path | None, paths: list[Path]) -> None:
    if out is None:
        return
    if len(paths) > 1:
        message = f"--out {out}: is for one PATH, and there are {len(paths)}; repair one at a time"
        raise CommandError(message, Exit.USAGE)
    if not out.absolute().parent.is_dir():
        message = f"--out {out}: there is no folder {out.parent}; make it first"
        raise CommandError(message, Exit.USAGE)
