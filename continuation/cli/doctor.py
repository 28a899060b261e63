"""`continuation doctor`: what is installed, what can be wrapped, what holds, and does it heal."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import httpx2

import continuation
from continuation.cli.config import place
from continuation.cli.exits import Exit, reason
from continuation.cli.screen import screen
from continuation.cli.words import plural
from continuation.config import Config, examine

if TYPE_CHECKING:
    from continuation.cli.exits import Commands
    from continuation.testing import Rehearsal

_DESCRIPTION = """\
Tell what is installed, which clients can be wrapped, which configuration is in force, and heal a
few cut answers of a simulated provider. Needs no key and no network. Exit status 1: something is
wrong; "note" is not wrong."""
Mark: TypeAlias = Literal["ok", "note", "FAIL"]
_STYLES: dict[Mark, str] = {"ok": "green", "note": "yellow", "FAIL": "bold red"}
_NEEDED = ("httpx2", "jiter", "tiktoken", "rich")
_OPTIONAL = ("anthropic", "openai", "google-genai", "opentelemetry-api")
_CLIENTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("anthropic", "Anthropic", {"api_key": "doctor"}),
    ("anthropic", "AsyncAnthropic", {"api_key": "doctor"}),
    ("openai", "OpenAI", {"api_key": "doctor"}),
    ("openai", "AsyncOpenAI", {"api_key": "doctor"}),
    ("google.genai", "Client", {"api_key": "doctor"}),
)


class Finding(NamedTuple):
    """One thing that was looked at."""

    mark: Mark
    about: str
    what: str


def add_to(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "doctor", help="check the installation and heal a cut answer", description=_DESCRIPTION
    )
    parser.add_argument("--config", metavar="FILE", help="look at this configuration file")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Look at everything; say what was found as it is found."""
    out = screen(sys.stdout)
    failed = 0
    for mark, about, what in examination(arguments.config):
        out.line(f"{mark:<4}  {about:<18}  {what}", _STYLES[mark])
        failed += mark == "FAIL"
    out.line(f"{plural(failed, 'problem')} found" if failed else "all is well")
    return Exit.NOT_WHOLE if failed else Exit.WHOLE


def examination(named: str | None) -> Iterator[Finding]:
    """Look at one thing after the other. `named`: a configuration file, if one was named."""
    yield from _versions()
    yield from _clients()
    config, found = _configuration(named)
    yield from found
    yield _vocabulary()
    yield _tracing()
    yield from _self_test(config)


def _versions() -> Iterator[Finding]:
    yield Finding("ok", "python", f"{platform.python_version()} ({sys.platform})")
    yield Finding("ok", "continuation", continuation.__version__)
    for name in _NEEDED:
        found = _version(name)
        yield Finding("ok" if found else "FAIL", name, found or "missing: install it again")
    for name in _OPTIONAL:
        yield Finding("ok", name, _version(name) or "not installed")


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
        yield _client(f"{module}.{name}", partial(getattr(sdk, name), **options))
    yield Finding("ok", "wrap", "frameworks: continuation.http_client() and async_http_client()")


def _client(name: str, make: Callable[[], Any]) -> Finding:
    try:
        continuation.wrap(make(), config=Config())
    except Exception as error:
        return Finding("note", "wrap", f"{name}: {_short(error)}")
    return Finding("ok", "wrap", f"{name} can be wrapped")


def _short(error: Exception) -> str:
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first.partition('; supported')[0]}"


def _configuration(named: str | None) -> tuple[Config, list[Finding]]:
    path, who = place(named)
    if path is None:
        return Config(), [Finding("ok", "configuration", "no file; the built-in defaults hold")]
    try:
        config, mistakes = examine(path)
    except OSError as error:
        return Config(), [Finding("FAIL", "configuration", reason(error))]
    keys = sum(len(layer.values) for layer in config.layers)
    told = f"{path} ({who}): {plural(keys, 'key')}, {plural(len(config.vendors), 'vendor')}"
    findings = [Finding("FAIL", "configuration", str(mistake)) for mistake in mistakes]
    return config, findings or [Finding("ok", "configuration", told)]


def _vocabulary() -> Finding:
    from continuation.tokens import vocabulary

    if name := vocabulary():
        return Finding("ok", "vocabulary", f"{name} is on disk: tokens are counted")
    return Finding("note", "vocabulary", "tiktoken has none on disk: tokens are estimated")


def _tracing() -> Finding:
    named = os.environ.get("OTEL_PYTHON_TRACER_PROVIDER")
    if _version("opentelemetry-api") is None:
        return Finding("ok", "tracing", "no OpenTelemetry: no spans")
    what = f"tracer provider {named!r}" if named else "on as soon as a tracer provider is set"
    return Finding("ok", "tracing", what)


# --- the self-test ------------------------------------------------------------------------------

_TESTS = ("cut-text", "cut-call", "thinking-eats-all", "drop", "mislabelled")


def _self_test(config: Config) -> Iterator[Finding]:
    from continuation.testing import simulate

    for name in _TESTS:
        try:
            with simulate(name) as rehearsal:
                told = _heal(rehearsal, config)
        except Exception as error:  # whatever it is: the user is to see it, and the other tests
            told = _short(error)
        yield Finding("ok" if told is None else "FAIL", "self-test", f"{name}: {told or 'healed'}")


def _heal(rehearsal: Rehearsal, config: Config) -> str | None:
    """Ask for an answer that is going to be cut; say what is wrong with what came, if anything."""
    body = {
        "model": "claude-opus-5",
        "max_tokens": 4096,
        "stream": True,
        "messages": [{"role": "user", "content": "Go on."}],
        "tools": [{"name": "Write", "input_schema": {"type": "object"}}],
    }
    headers = {"x-api-key": "doctor", "anthropic-version": "2023-06-01"}
    # Its own policies where the file's would stand in the way: a file may switch healing off.
    plain = config.but("the self-test", **_PLAIN)
    with httpx2.Client(trust_env=False) as bare, continuation.watch() as turns:
        client = continuation.http_client(bare, config=plain)
        response = client.post(f"{rehearsal.url}/v1/messages", json=body, headers=headers)
    if not response.is_success:
        return f"status {response.status_code}"
    if [turn.outcome for turn in turns] != ["healed"]:
        return ", ".join(f"{turn.outcome} ({turn.reason})" for turn in turns) or "no turn was seen"
    if _said(response.text) != rehearsal.answer:
        return "what came is not what was said"
    return None


def _said(stream: str) -> str:
    """Return the text of a streamed answer, or what its call was to write."""
    lines = (line[5:] for line in stream.splitlines() if line.startswith("data:"))
    deltas = [json.loads(line).get("delta", {}) for line in lines]
    arguments = "".join(delta.get("partial_json", "") for delta in deltas)
    if arguments:
        return str(json.loads(arguments)["content"])
    return "".join(delta.get("text", "") for delta in deltas)


_PLAIN: dict[str, Any] = {
    "enabled": True,
    "escalate": True,
    "max_recoveries": 3,
    "max_drop_recoveries": 3,
    "max_attempts": 12,
    "max_turn_output_tokens": 2_000_000,
    "min_limit": 256,
    "ceiling": 0,
    "first_limit": "caller",
    "distrust_labels": True,
    "tool_stream": "hold",
    "thinking_stream": "hold",
}
