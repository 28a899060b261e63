"""`continuation config`: checks the file, and shows the policies that apply to a model."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from continuation.cli.exits import CommandError, Commands, Exit, reason
from continuation.cli.screen import print_json, screen
from continuation.config import ENVIRONMENT, FILE_NAME, Config, examine, load
from continuation.config.gateway import built_in
from continuation.policy import check, read_value, without_password
from continuation.reports.account import plural

_DESCRIPTION = f"""\
Check the configuration file, or show the value of each key for a model. The file is the one that
the command line names, else the one in ${ENVIRONMENT}, else {FILE_NAME} in the working directory.
(`continuation.wrap` does not read the working directory: it may be an unfamiliar repository.)"""


def add_to(commands: Commands) -> None:
    parser = commands.add_parser(
        "config", help="check the configuration, show each value", description=_DESCRIPTION
    )
    parser.epilog = "example: continuation config show claude-sonnet-5"
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    mistakes = actions.add_parser(
        "check",
        help="find every mistake in the file",
        description="Find every mistake in the configuration file, with a remedy for each.",
    )
    mistakes.epilog = "example: continuation config check continuation.toml"
    mistakes.add_argument(
        "file",
        nargs="?",
        type=Path,
        metavar="FILE",
        help="check FILE (default: the file that commands use, see `continuation config -h`)",
    )
    mistakes.set_defaults(command=_check)
    show = actions.add_parser(
        "show",
        help="show each value for a model, and its source",
        description="Show the value of each key for a model, and where the value comes from.",
    )
    show.epilog = "example: continuation config show claude-sonnet-5 --set max_recoveries=1"
    show.add_argument(
        "model", metavar="MODEL", help="show the values for MODEL, spelled as in requests"
    )
    add_policies(show)
    show.set_defaults(command=_show)


def add_policies(parser: argparse.ArgumentParser) -> None:
    """Add the options for policies: a file, and keys that override it."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="use this configuration file (default: see `continuation config -h`)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key of the configuration file; can be repeated",
    )


# --- which file ---------------------------------------------------------------------------------


def find_config(named: str | Path | None) -> tuple[Path | None, str]:
    """Return the file to use, or None, and in words how it was chosen."""
    if named is not None:
        return Path(named), "named on the command line"
    if from_environment := os.environ.get(ENVIRONMENT):
        return Path(from_environment), f"named by {ENVIRONMENT}"
    here = Path(FILE_NAME)
    return (here, "in the working directory") if here.is_file() else (None, "no file")


def in_force(
    named: str | Path | None,
    settings: Sequence[str] = (),
    *,
    usual: Mapping[str, Any] | None = None,
) -> Config:
    """Return the configuration to use. If `--config` did not name its file, note that on stderr.

    `settings`: each KEY=VALUE of `--set`. `usual`: settings of the command itself, which override
    the file and which `--set` overrides. Raises `CommandError` for a mistake.
    """
    path, who = find_config(named)
    try:
        values: dict[str, Any] = {}
        for setting in settings:
            key, sign, value = setting.partition("=")
            if not sign:
                raise CommandError(f"--set {setting}: there is no =; write KEY=VALUE", Exit.USAGE)
            values[key.strip()] = read_value(key.strip(), value.strip())
        values = check(values)
    except (ValueError, TypeError) as error:
        raise CommandError(f"--set {error}", Exit.USAGE) from error
    try:
        config = load(path) if path is not None else Config()
    except (OSError, ValueError) as error:
        message = f"--config {reason(error)}" if named is not None else unreadable(error, who)
        raise CommandError(message, Exit.USAGE) from error
    if path is not None and named is None:
        screen(sys.stderr).line(f"continuation: policies from {path} ({who})", "dim")
    config = config.but("the command", **usual) if usual else config
    return config.but("--set", **values) if values else config


def unreadable(error: Exception, who: str) -> str:
    """Describe an error of reading a file. `who`: how the file was chosen; for an `OSError`."""
    return f"{reason(error)} ({who})" if isinstance(error, OSError) else reason(error)


def describe_config(path: Path, who: str, config: Config) -> str:
    """Describe a file without mistakes: its numbers of keys, vendors and upstreams."""
    keys = sum(len(layer.values) for layer in config.layers)
    counts = [plural(keys, "key"), plural(len(config.vendors), "vendor")]
    provided = built_in().values()
    if of_its_own := sum(each not in provided for each in config.gateway.upstreams.values()):
        counts.append(plural(of_its_own, "upstream"))
    return f"{path} ({who}): {', '.join(counts)}"


def gateway_settings(config: Config) -> dict[str, object]:
    """Return the keys of `[gateway]` with the values that apply, for a person to read."""
    found = dict[str, object]()
    for item in fields(config.gateway):
        value = getattr(config.gateway, item.name)
        if item.name != "upstreams":
            value = int(value) if isinstance(value, float) and value.is_integer() else value
            found[item.name] = without_password(value) if isinstance(value, str) else value
    return found


# --- the commands -------------------------------------------------------------------------------


def _check(arguments: argparse.Namespace) -> int:
    path, who = find_config(arguments.file)
    if path is None:
        message = f"there is no {FILE_NAME} here, and {ENVIRONMENT} is not set; name a FILE"
        raise CommandError(message, Exit.USAGE)
    try:
        config, mistakes = examine(path)
    except OSError as error:
        raise CommandError(unreadable(error, who), Exit.USAGE) from error
    out = screen(sys.stdout)
    doubts = [text for text, _ in config.doubts]
    mistaken = [str(each) for each in mistakes]
    gateway = gateway_settings(config)
    print_json(
        {
            "file": str(path),
            "named": who,
            "mistakes": mistaken,
            "doubts": doubts,
            "gateway": gateway,
        }
    )
    for each in mistakes:
        out.line(str(each), "red")
    for text in doubts:
        out.line(f"note: {text}", "yellow")
    if mistakes:
        return Exit.NOT_WHOLE
    out.line(f"{describe_config(path, who, config)}, no mistakes", "green")
    if "[gateway]" in path.read_text(encoding="utf-8-sig"):
        for key, value in gateway.items():
            own = value != gateway_settings(Config())[key]
            out.line(f"[gateway] {key} = {json.dumps(value)}{'' if own else ' (default)'}", "dim")
    return Exit.WHOLE


def _show(arguments: argparse.Namespace) -> int:
    rows: list[tuple[str, str, str]] = []
    settings = in_force(arguments.config, arguments.set).explain(arguments.model)
    document = dict[str, object]()
    for key, setting in settings.items():
        shown = without_password(setting.value) if isinstance(setting.value, str) else setting.value
        document[key] = {"value": shown, "from": setting.source}
        value = str(shown)  # as it is written in the file
        if isinstance(shown, bool):
            value = value.lower()
        elif isinstance(shown, str):
            value = f'"{shown}"'
        rows.append((key, value, setting.source))
    print_json(document)
    screen(sys.stdout).table(("key", "value", "from"), rows)
    return Exit.WHOLE
