"""`continuation limits`: what a model may write and take, and who says so."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from continuation.cli.config import in_force
from continuation.cli.screen import screen
from continuation.config import BUILT_IN, Config
from continuation.limits import DEFAULT_CEILING, ModelLimits, pick, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from continuation.cli.exits import Commands

_DESCRIPTION = """\
Tell a model's ceiling (its largest output limit), context window, prefill and thinking, each with
its source: the configuration, what was learned (learned_file), the table, or the default. Without
a MODEL: the table. A provider is never asked; a turn asks its models endpoint after a cut."""
_HEAD = ("of", ">value", "from")
_TABLE_HEAD = ("model", ">ceiling", ">window", "prefill", "thinking", "source", "date")


def add_to(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "limits", help="tell what a model may write, and who says so", description=_DESCRIPTION
    )
    parser.add_argument("model", nargs="?", metavar="MODEL", help="as requests spell it")
    parser.add_argument(
        "--config", metavar="FILE", help="default: the file `continuation config` uses"
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Tell one model, or the table."""
    out = screen(sys.stdout)
    if arguments.model is None:
        rows = [(row.match, row.limits) for row in sorted(table(), key=lambda row: row.match)]
        told = [(of, *_values(found), found.source, found.date or "-") for of, found in rows]
        out.table(_TABLE_HEAD, told)
    else:
        out.table(_HEAD, [*_rows(in_force(arguments.config), arguments.model)])
    return 0


def _values(found: ModelLimits) -> tuple[str, str, str, str]:
    window = "unknown" if found.window is None else f"{found.window:,}"
    return f"{found.ceiling:,}", window, "yes" if found.prefill else "no", found.thinking


def _rows(config: Config, model: str) -> Iterator[tuple[str, str, str]]:
    row = pick(table(), model)
    found = row.limits if row else ModelLimits(DEFAULT_CEILING)
    source = (
        f"table: {row.match} ({found.source}, {found.date})"
        if row
        else "default: no row in the table"
    )
    said = config.explain(model)
    learned = [*_learned(config, model)]
    ceiling, window, prefill, thinking = _values(found)
    if said["model_max_output_tokens"].value:
        yield (
            "ceiling",
            f"{said['model_max_output_tokens'].value:,}",
            said["model_max_output_tokens"].source,
        )
    else:
        heard = [(f"{f['ceiling']:,}", f"learned at {at}") for at, f in learned if "ceiling" in f]
        for value, place in heard or [(ceiling, source)]:
            yield "ceiling", value, place
    yield "window", window, source
    if not said["prefill"].value and said["prefill"].source != BUILT_IN:
        yield "prefill", "no", said["prefill"].source
    else:
        refused = [f"learned at {at}" for at, f in learned if f.get("no_prefill")]
        for place in refused or [source]:
            yield "prefill", "no" if refused else prefill, place
    yield "thinking", thinking, source
    for at, facts in learned:
        if "raised" in facts:
            yield "first limit", f"{facts['raised']:,}", f"learned at {at}"


def _learned(config: Config, model: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what the file of learned facts says of a model, upstream by upstream."""
    from continuation.limits.learned_file import read

    name = config.policy_for(model).learned_file
    if not name:
        return
    try:
        kept = read(Path(name))
    except (OSError, ValueError):  # a turn would go without it as well, and say so
        return
    for (upstream, _, of), facts in kept.lessons.items():
        if of == model:
            yield upstream, facts
