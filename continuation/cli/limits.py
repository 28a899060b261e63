"""`continuation limits`: shows the limits of a model, each with its source."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from continuation.cli.config import add_policies, in_force
from continuation.cli.exits import Commands, Exit, needs
from continuation.cli.screen import print_json, screen
from continuation.config import BUILT_IN, Config
from continuation.limits import DEFAULT_CEILING, ModelLimits, pick, table

_DESCRIPTION = """\
Show a model's ceiling (the largest output limit that it accepts), context window, prefill and
thinking, each with its source: the configuration, the learned file (learned_file), the table or the
default. Without MODEL, show the table. This command sends no request; a turn asks the provider's
models endpoint after a truncation."""


def add_to(commands: Commands) -> None:
    parser = commands.add_parser(
        "limits", help="show a model's ceiling and its source", description=_DESCRIPTION
    )
    parser.epilog = "example: continuation limits claude-sonnet-5"
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help="show this model (default: the table)"
    )
    add_policies(parser)
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the limits of one model, or the table."""
    for flag in ("config", "set"):
        needs(getattr(arguments, flag), f"--{flag}", arguments.model, "MODEL")
    out = screen(sys.stdout)
    if arguments.model is not None:
        rows = _rows(in_force(arguments.config, arguments.set), arguments.model)
        print_json([{"of": of, "value": _plain(text), "from": source} for of, text, source in rows])
        out.table(("of", ">value", "from"), rows)
        return Exit.WHOLE
    models = sorted(table(), key=lambda row: row.match)
    print_json([{"model": row.match, **asdict(row.limits)} for row in models])
    head = ("model", ">ceiling", ">window", "prefill", "thinking")
    out.table(head, [(row.match, *_values(row.limits)) for row in models])
    return Exit.WHOLE


def _plain(value: str) -> int | str:
    number = value.replace(",", "")
    return int(number) if number.isdecimal() else value


def _values(limits: ModelLimits) -> tuple[str, str, str, str]:
    window = "unknown" if limits.window is None else f"{limits.window:,}"
    return f"{limits.ceiling:,}", window, "yes" if limits.prefill else "no", limits.thinking


def _rows(config: Config, model: str) -> list[tuple[str, str, str]]:
    """Return rows of (limit, value, source).

    The configuration overrides learned facts, and these override the table.
    """
    row = pick(table(), model)
    limits, source = ModelLimits(DEFAULT_CEILING), "default: no row in the table"
    if row is not None:
        limits = row.limits
        source = f"table: {row.match} ({limits.source}, {limits.date})"
    ceiling, window, prefill, thinking = _values(limits)
    settings, learned = config.explain(model), _learned(config, model)

    most = settings["model_max_output_tokens"]
    ceilings = [(f"{f['ceiling']:,}", f"learned at {at}") for at, f in learned if "ceiling" in f]
    if most.value:
        ceilings = [(f"{most.value:,}", most.source)]
    prefills = [("no", f"learned at {at}") for at, f in learned if f.get("no_prefill")]
    if not settings["prefill"].value and settings["prefill"].source != BUILT_IN:
        prefills = [("no", settings["prefill"].source)]
    return [
        *(("ceiling", *entry) for entry in ceilings or [(ceiling, source)]),
        ("window", window, source),
        *(("prefill", *entry) for entry in prefills or [(prefill, source)]),
        ("thinking", thinking, source),
        *(
            (f"longest answer{kind}", f"{facts[name]:,}", f"learned at {at}")
            for name, kind in (("needed", ""), ("needed_with_tools", ", with tools"))
            for at, facts in learned
            if name in facts
        ),
        *(
            (f"longest silence, {phase}", f"{facts[name]:,} s", f"learned at {at}")
            for phase in ("text", "thinking", "call")
            for at, facts in learned
            if (name := f"gap_{phase}") in facts
        ),
    ]


def _learned(config: Config, model: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the facts about a model in the learned file, each with its upstream."""
    from continuation.limits.learned_file import read

    name = config.policy_for(model).learned_file
    if not name:
        return []
    try:
        learned = read(Path(name)).lessons
    except (OSError, ValueError):  # a turn does not use such a file either
        return []
    return [(upstream, facts) for (upstream, _, of), facts in learned.items() if of == model]
