"""`continuation doctor`: checks the installation and configuration, and completes answers."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeAlias

import httpx2

import continuation
from continuation.cli.config import describe_config, find_config, unreadable
from continuation.cli.exits import Commands, Exit
from continuation.cli.formats import Sdk, offered
from continuation.cli.screen import print_json, screen
from continuation.config import Config, examine
from continuation.policy import is_url
from continuation.providers.sdk import End, OnDelta, Prompt, SdkDriver
from continuation.reports.account import plural

_DESCRIPTION = """\
Show what is installed, which clients can be wrapped, which configuration is used and where a
journal is stored. Then complete five simulated answers in each wire format, and one through each
cloud client. The command needs no key and no network. FAIL marks a problem (exit status 1);
"note" does not."""
_STYLES = {"ok": "green", "note": "yellow", "FAIL": "bold red"}
_NEEDED = ("httpx2", "jiter", "tiktoken")
_OPTIONAL = ("anthropic", "openai", "google-genai", "rich", "opentelemetry-api")
_KEY = {"api_key": "doctor"}
_CLIENTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("anthropic", "Anthropic", _KEY),
    ("anthropic", "AsyncAnthropic", _KEY),
    ("openai", "OpenAI", _KEY),
    ("openai", "AsyncOpenAI", _KEY),
    ("google.genai", "Client", {"vertexai": False, **_KEY}),
)
_KEYS = {"DOCTOR": "no secret"}
_AWS = {"aws_region": "us-east-1"}
_SIGNS = {"aws_access_key": "DOCTOR", "aws_secret_key": _KEYS["DOCTOR"], **_AWS}
_TOKEN, _GOOGLE, _ENTRA = lambda: "doctor", "a Google token", "an Entra ID token"
_CLOUDS: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("anthropic", "AnthropicBedrock", "anthropic", "SigV4, in AWS event streams", _SIGNS),
    ("anthropic", "AnthropicBedrockMantle", "anthropic", "SigV4", _SIGNS),
    ("anthropic", "AnthropicAWS", "anthropic", "SigV4", {**_SIGNS, "workspace_id": "w"}),
    ("anthropic", "AnthropicGoogleCloud", "anthropic", _GOOGLE, {"token_provider": _TOKEN}),
    (
        "anthropic",
        "AnthropicVertex",
        "anthropic",
        _GOOGLE,
        {"access_token": "t", "project_id": "p", "region": "r"},
    ),
    ("anthropic", "AnthropicFoundry", "anthropic", _ENTRA, {"azure_ad_token_provider": _TOKEN}),
    (
        "openai",
        "AzureOpenAI",
        "openai-chat",
        _ENTRA,
        {"azure_ad_token_provider": _TOKEN, "api_version": "v"},
    ),
    (
        "openai",
        "BedrockOpenAI",
        "openai-chat",
        "SigV4",
        {"aws_access_key_id": "DOCTOR", "aws_secret_access_key": _KEYS["DOCTOR"], **_AWS},
    ),
)
"""The module and class of each client, its wire format, its credentials, and its arguments."""


Finding: TypeAlias = tuple[str, str, str]
"""A mark of `_STYLES`, what was examined, and what was found."""


def add_to(commands: Commands) -> None:
    parser = commands.add_parser(
        "doctor", help="check the installation and each wire format", description=_DESCRIPTION
    )
    parser.epilog = "example: continuation doctor --journal agent.db"
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="check this configuration file (default: see `continuation config -h`)",
    )
    parser.add_argument(
        "--journal",
        metavar="JOURNAL",
        help="check that this journal can be used, a file or a URL (default: agent.db)",
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Examine everything, and write each finding at once."""
    out = screen(sys.stdout)
    failed, findings = 0, list[dict[str, str]]()
    for mark, about, what in _examination(arguments.config, arguments.journal):
        findings.append({"mark": mark, "about": about, "what": what})
        out.line(f"{mark:<4}  {about:<18}  {what}", _STYLES[mark])
        failed += mark == "FAIL"
    print_json({"problems": failed, "findings": findings})
    out.line(f"{plural(failed, 'problem')} found" if failed else "no problem found")
    return Exit.NOT_WHOLE if failed else Exit.WHOLE


def _examination(named: str | None, journal: str | None) -> Iterator[Finding]:
    """Yield the findings. `named`: a configuration file; `journal`: a file or URL."""
    yield "ok", "python", f"{platform.python_version()} ({sys.platform})"
    yield "ok", "continuation", continuation.__version__
    for name in _NEEDED:
        installed = _version(name)
        yield (
            "ok" if installed else "FAIL",
            name,
            installed or "missing; install continuation-engine again",
        )
    for name in _OPTIONAL:
        yield "ok", name, _version(name) or "not installed"
    yield from _clients()
    config = Config()
    path, who = find_config(named)
    try:
        if path is None:
            yield "ok", "configuration", "no file; the built-in defaults apply"
        else:
            config, mistakes = examine(path)
            for mistake in mistakes:
                yield "FAIL", "configuration", str(mistake)
            if not mistakes:
                yield "ok", "configuration", describe_config(path, who, config)
    except OSError as error:
        yield "FAIL", "configuration", unreadable(error, who)
    yield from _surroundings()
    yield from _journal(journal)
    # A format can be tested if its SDK is installed.
    available = [one for one in offered() if Sdk(one.sdk).installed]
    if not available:
        names = ", ".join(dict.fromkeys(one.sdk.name for one in offered()))
        yield "note", "self-test", f"not run, because no SDK is installed; install one of {names}"
    for one in available:
        yield from _self_test(one, config)
    yield from _clouds(available, config)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _clients() -> Iterator[Finding]:
    for module, name, options in _CLIENTS:
        try:
            sdk = importlib.import_module(module)
        except ImportError:
            continue
        try:
            continuation.wrap(getattr(sdk, name)(**options), config=Config())
        except Exception as error:
            yield "note", "wrap", f"{module}.{name}: {_describe_error(error)}"
        else:
            yield "ok", "wrap", f"{module}.{name} can be wrapped"
    yield "ok", "wrap", "frameworks: continuation.http_client() and async_http_client()"


def _describe_error(error: Exception) -> str:
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first.partition('; supported')[0]}"


def _surroundings() -> Iterator[Finding]:
    from continuation.limits.tokens import vocabulary

    if name := vocabulary():
        yield "ok", "vocabulary", f"{name} is on disk, so tokens are counted"
    else:
        yield "note", "vocabulary", "tiktoken has none on disk, so tokens are estimated"
    what = "starts when a tracer provider is set"
    if _version("opentelemetry-api") is None:
        what = "off; OpenTelemetry is not installed"
    elif provider := os.environ.get("OTEL_PYTHON_TRACER_PROVIDER"):
        what = f"tracer provider {provider!r}"
    yield "ok", "tracing", what


def _journal(named: str | None) -> Iterator[Finding]:
    if is_url(named or ""):
        yield _server(named or "")
        return
    import sqlite3  # some builds of Python have none

    from continuation.journal.store import kind_of
    from continuation.stores.sqlite import NETWORKS, file_system

    try:
        kind_of("agent.db" if named is None else named)
    except ValueError as error:
        yield "FAIL", "journal", str(error)
        return
    fixed = sqlite3.sqlite_version_info >= (3, 51, 3)
    race = (
        ""
        if fixed
        else "; before 3.51.3, processes that share a journal can damage it in rare cases"
    )
    yield "ok" if fixed else "note", "sqlite", f"{sqlite3.sqlite_version}{race}"
    path = Path(named or "agent.db")
    kind = file_system(path)
    what = f"{path} on {kind or 'an unknown file system'}"
    if kind in NETWORKS:
        what += ": locks do not work on a network file system; use a local disk"
    wrong = "FAIL" if named else "note"
    yield wrong if kind in NETWORKS else "ok", "journal", what


def _server(url: str) -> Finding:
    """Examine a journal in PostgreSQL, without creating a table."""
    from continuation.journal import JournalError
    from continuation.journal.store import kind_of

    try:
        kind_of(url)
        from continuation.journal.postgres import examined

        database, version, loses = examined(url)
    except (JournalError, ValueError) as error:
        return "FAIL", "journal", str(error)
    if loses:
        what = f"with {loses}, a power loss can lose acknowledged records"
        return "note", "journal", f"{database}, PostgreSQL {version}: {what}"
    return "ok", "journal", f"{database}, PostgreSQL {version}"


# --- the self-test ------------------------------------------------------------------------------

_TESTS = ("cut-text", "cut-call", "thinking-eats-all", "drop", "mislabelled")


def _self_test(one: SdkDriver, config: Config) -> Iterator[Finding]:
    """Complete truncated answers. Yield one finding for all completed ones, one per failure."""
    from continuation.testing import simulate

    faults: dict[str, str | None] = {}
    for name in _TESTS:
        try:
            with simulate(name) as rehearsal, Sdk(one.sdk).simulated(rehearsal.url) as bare:
                faults[name] = _heal(one, bare, rehearsal.answer, config)
        except Exception as error:  # any error is reported, and the other tests still run
            faults[name] = _describe_error(error)
    if healed := [name for name, wrong in faults.items() if wrong is None]:
        yield "ok", "self-test", f"{one.name}: {', '.join(healed)}: completed"
    for name, wrong in faults.items():
        if wrong is not None:
            yield "FAIL", "self-test", f"{one.name}: {name}: {wrong}"


def _clouds(available: list[SdkDriver], config: Config) -> Iterator[Finding]:
    """Complete one answer through each cloud's client. The simulator checks its signatures."""
    from continuation.testing import simulate

    drivers = {one.name: one for one in available}
    for module, name, wire_format, how, options in _CLOUDS:
        if (one := drivers.get(wire_format)) is None:
            continue
        try:
            with simulate("cut-text") as rehearsal, httpx2.Client(trust_env=False) as http:
                rehearsal.keys = dict(_KEYS)
                where = "azure_endpoint" if name == "AzureOpenAI" else "base_url"
                arguments = {where: rehearsal.url, "http_client": http, "max_retries": 0, **options}
                bare = getattr(importlib.import_module(module), name)(**arguments)
                wrong = _heal(one, bare, rehearsal.answer, config)
        except ImportError as error:
            helps = f"install the extra of {module} that it signs with, such as bedrock for AWS"
            yield "note", "cloud", f"{module}.{name}: {error}; {helps}"
            continue
        except Exception as error:
            yield "note", "cloud", f"{module}.{name}: {_describe_error(error)}"
            continue
        what = f"{module}.{name} (signs with {how}): {wrong or 'completed'}"
        yield "FAIL" if wrong else "ok", "cloud", what


def _heal(one: SdkDriver, bare: Any, answer: str, config: Config) -> str | None:
    """Request an answer that is truncated; return what is wrong with the result, or None."""
    text: list[str] = []
    with continuation.watch() as turns:
        client = continuation.wrap(bare, config=config.but("the self-test", **_DEFAULTS))
        end = one.stream(client, Prompt(one.model, "Go on.", 4096, tool=True), OnDelta(text.append))
    if [turn.outcome for turn in turns] != ["healed"]:
        return ", ".join(f"{turn.outcome} ({turn.reason})" for turn in turns) or "no report came"
    if _answer_text("".join(text), end) != answer:
        return "the text differs from the simulated answer"
    return None


def _answer_text(text: str, end: End) -> str:
    """Return the content in an answer's call, or the answer's text if it has no call."""
    if not end.calls:
        return text
    call = end.calls[0]
    return str((json.loads(call) if isinstance(call, str) else call)["content"])


# The self-test sets these policies to their defaults, because a file may turn them off.
_NAMES = (
    "enabled escalate max_recoveries max_drop_recoveries max_attempts max_turn_output_tokens "
    "leave_limits_below model_max_output_tokens initial_limit verify_stop_reason stream_tool_calls "
    "stream_thinking"
)
_DEFAULTS: dict[str, Any] = {name: getattr(continuation.Policy(), name) for name in _NAMES.split()}
