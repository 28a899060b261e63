"""Every choice a user can make, as one frozen object with the defaults we would choose."""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args, get_type_hints

CutCall: TypeAlias = Literal["explain", "drop", "keep", "guide"]
ToolStream: TypeAlias = Literal["hold", "live"]
ThinkingStream: TypeAlias = Literal["hold", "live"]
OnFailure: TypeAlias = Literal["stop", "truth"]
UsagePolicy: TypeAlias = Literal["turn", "billed"]
FirstLimit: TypeAlias = Literal["caller", "ceiling"]


def _number(default: float, low: float, high: float, doc: str) -> Any:
    return field(default=default, metadata={"low": low, "high": high, "doc": doc})


def _choice(default: object, doc: str) -> Any:
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How far to go for a whole answer.

    Raises `ValueError` naming field, value and range when a value is out of range, and
    `TypeError` when it is of the wrong type.
    """

    escalate: bool = _choice(True, "Ask again at the model's ceiling when nothing was shown yet.")
    max_recoveries: int = _number(3, 0, 10, "Recovery turns in one model turn.")
    max_drop_recoveries: int = _number(3, 0, 10, "Dropped streams resumed in one model turn.")
    max_attempts: int = _number(12, 1, 50, "Upstream calls in one model turn, whatever they are.")
    max_retries: int = _number(2, 0, 10, "Retries of a later attempt after 429, 5xx or no connect.")
    max_turn_seconds: float = _number(3600.0, 1, 86_400, "No attempt begins after this long.")
    max_turn_output_tokens: int = _number(
        2_000_000, 1, 100_000_000, "No attempt begins once the turn has been billed this many."
    )
    min_limit: int = _number(
        256, 0, 1_000_000, "Requests with a smaller limit are budgets: theirs."
    )
    ceiling: int = _number(0, 0, 10_000_000, "The model's largest output limit; 0: look it up.")
    first_limit: FirstLimit = _choice(
        "caller", "Limit of the first attempt: the caller's own, or the ceiling at once."
    )
    remember_limit: bool = _choice(
        True, "After an escalation, later turns with that model begin at the raised limit."
    )
    tool_stream: ToolStream = _choice(
        "hold", "Hold a function call's events until it is whole, or pass them live."
    )
    thinking_stream: ThinkingStream = _choice(
        "hold", "Hold thinking until text follows it, so that a cut one can be taken back."
    )
    cut_call: CutCall = _choice("explain", "What stands in place of a call that stays cut.")
    on_failure: OnFailure = _choice(
        "stop", "How a turn ends whose recovery failed: a synthetic STOP, or the provider's word."
    )
    usage: UsagePolicy = _choice("turn", "Usage as one uncut turn, or all that was billed.")
    prefill: bool = _choice(True, "Go on by prefill where the model takes it.")
    distrust_labels: bool = _choice(
        True, "Look for a cut behind a stop reason that denies it (tokens, arguments, ending)."
    )
    models_endpoint: bool = _choice(True, "Ask the provider for a model's ceiling after a cut.")
    recovery_prompt: str = _choice("", "Wording of the recovery prompt; empty: ours.")
    seam_hold: int = _number(600, 0, 100_000, "Characters of a recovery's head held for the seam.")
    backoff_seconds: float = _number(0.5, 0, 60, "First wait before a retry; doubles each time.")
    max_wait_seconds: float = _number(60.0, 0, 3600, "Longest wait a `retry-after` is granted.")

    def __post_init__(self) -> None:
        hints = _hints()
        for item in fields(self):
            _check(item.name, getattr(self, item.name), hints[item.name], item.metadata)


def load(source: Policy | str | Path | None) -> Policy:
    """Return the policy that `source` names: itself, a TOML file's `[defaults]`, or the defaults.

    Raises `ValueError` or `TypeError` naming file, key, value and the nearest valid key;
    `OSError` when the file cannot be read.
    """
    if source is None:
        return Policy()
    if isinstance(source, Policy):
        return source
    if not isinstance(source, (str, Path)):  # pyright: ignore[reportUnnecessaryIsInstance]
        message = f"config must be a Policy or a path to a TOML file, not {type(source).__name__}"
        raise TypeError(message)
    return _from_toml(Path(source))


def _from_toml(path: Path) -> Policy:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        message = f"{path}: not valid TOML: {error}"
        raise ValueError(message) from error
    for key in table:
        if key not in {"defaults", "models", "vendors"}:
            message = f"{path}: unknown table [{key}]; known: [defaults]"
            raise ValueError(message)
    defaults: dict[str, Any] = table.get("defaults", {})
    try:
        return changed(Policy(), defaults)
    except (ValueError, TypeError) as error:
        message = f"{path}: [defaults] {error}"
        raise type(error)(message) from error


def changed(policy: Policy, values: dict[str, Any]) -> Policy:
    """Return `policy` with `values` set; an unknown key is a `ValueError` naming the nearest."""
    known = [item.name for item in fields(Policy)]
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
            message = f"unknown key {key!r}{hint}"
            raise ValueError(message)
    return replace(policy, **values)


_HINTS: dict[str, Any] = {}


def _hints() -> dict[str, Any]:
    if not _HINTS:
        _HINTS.update(get_type_hints(Policy))
    return _HINTS


def _check(name: str, value: object, hint: Any, metadata: Any) -> None:
    if choices := get_args(hint):
        if value not in choices:
            message = f"{name} = {value!r}: choose one of {', '.join(map(repr, choices))}"
            raise ValueError(message)
        return
    accepted = (int, float) if hint is float else hint
    if not isinstance(value, accepted) or (isinstance(value, bool) and hint is not bool):
        message = f"{name} = {value!r}: must be {hint.__name__}, not {type(value).__name__}"
        raise TypeError(message)
    if "low" in metadata and not metadata["low"] <= value <= metadata["high"]:
        message = f"{name} = {value!r}: must be from {metadata['low']} to {metadata['high']}"
        raise ValueError(message)
