"""Every choice a user can make, as one frozen object with the defaults we would choose."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    TypeAlias,
    get_args,
    get_origin,
    get_type_hints,
)

if TYPE_CHECKING:
    from continuation.history import Decision, OpenCall

    Ask: TypeAlias = Callable[[tuple[OpenCall, ...]], Decision | Mapping[str, Decision]]
else:
    Ask = Callable[..., Any]

CutCall: TypeAlias = Literal["explain", "drop", "keep", "retry_smaller"]
ToolStream: TypeAlias = Literal["hold", "live"]
ThinkingStream: TypeAlias = Literal["hold", "live"]
ForcedCalls: TypeAlias = Literal["pass", "heal"]
OnFailure: TypeAlias = Literal["stop", "truncated"]
UsagePolicy: TypeAlias = Literal["turn", "billed"]
FirstLimit: TypeAlias = Literal["caller", "ceiling"]
Tracing: TypeAlias = Literal["auto", "on", "off"]
Repair: TypeAlias = Literal["on_error", "before_send", "off"]
OpenCalls: TypeAlias = Literal["synthesize", "purge"] | Ask


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

    enabled: bool = _choice(True, "Heal at all; false: every answer passes untouched.")
    escalate: bool = _choice(True, "Ask again at the model's ceiling when nothing was shown yet.")
    max_recoveries: int = _number(3, 0, 10, "Recovery turns in one model turn.")
    max_drop_recoveries: int = _number(3, 0, 10, "Dropped streams resumed in one model turn.")
    max_attempts: int = _number(
        12,
        1,
        50,
        "Upstream calls in one model turn, whatever they are; a provider's own hops: 32 on top.",
    )
    max_retries: int = _number(2, 0, 10, "Retries of a later attempt after 429, 5xx or no connect.")
    max_turn_seconds: float = _number(3600.0, 1, 86_400, "No attempt begins after this long.")
    max_turn_output_tokens: int = _number(
        2_000_000, 1, 100_000_000, "Output tokens billed in one turn; later limits shrink to fit."
    )
    leave_limits_below: int = _number(
        256, 0, 1_000_000, "Requests with a smaller limit are budgets: theirs."
    )
    ceiling: int = _number(0, 0, 10_000_000, "The model's largest output limit; 0: look it up.")
    initial_limit: FirstLimit = _choice(
        "caller", "Limit of the first attempt: the caller's own, or the ceiling at once."
    )
    remember_limit: bool = _choice(
        True, "After an escalation, later turns with that model begin at the raised limit."
    )
    stream_tool_calls: ToolStream = _choice(
        "hold", "Hold a function call's events until it is whole, or pass them live."
    )
    stream_thinking: ThinkingStream = _choice(
        "hold", "Hold thinking until text follows it, so that a cut one can be taken back."
    )
    truncated_tool_call: CutCall = _choice(
        "explain", "What stands in place of a call that stays cut."
    )
    less_thinking: bool = _choice(
        False, "Ask once more with less thinking when it used up the ceiling without a word."
    )
    forced_tool_choice: ForcedCalls = _choice(
        "pass", "Anthropic requests that force a call: never touched, or asked again when cut."
    )
    on_failure: OnFailure = _choice(
        "stop", "How a turn ends whose recovery failed: a synthetic STOP, or the provider's word."
    )
    usage: UsagePolicy = _choice("turn", "Usage as one uncut turn, or all that was billed.")
    prefill: bool = _choice(True, "Go on by prefill where the model takes it.")
    verify_stop_reason: bool = _choice(
        True, "Look for a cut behind a stop reason that denies it (tokens, arguments, ending)."
    )
    models_endpoint: bool = _choice(True, "Ask the provider for a model's ceiling after a cut.")
    recovery_prompt: str = _choice(
        "", "Wording of the recovery prompt ({anchor}: what to repeat); empty: ours."
    )
    seam_buffer_chars: int = _number(
        600, 1, 100_000, "Characters of a recovery's head held for the seam."
    )
    backoff_seconds: float = _number(0.5, 0, 60, "First wait before a retry; doubles each time.")
    max_wait_seconds: float = _number(60.0, 0, 3600, "Longest wait a `retry-after` is granted.")
    learned_file: str = _choice("", "File that keeps what was learned of limits; empty: none.")
    tracing: Tracing = _choice(
        "auto", "OpenTelemetry spans: when a tracer provider is set, always, or never."
    )

    repair: Repair = _choice(
        "on_error", "Repair a history the provider rejects: after its error, before sending, never."
    )
    unanswered_tool_calls: OpenCalls = _choice(
        "synthesize", "A call without result: answered by an honest error, or dropped; or ask."
    )
    auto_resume: bool = _choice(
        False, "After a repair that closed the last call, say `resume_text` for the user, once."
    )
    resume_text: str = _choice("Please go on.", "What `auto_resume` says.")
    chain_store: str = _choice(
        "memory",
        "Where healed turns that a server chains are kept: memory, off, or an SQLite file.",
    )
    quiet: bool = _choice(False, "No log warning when a history was repaired; events still tell.")

    def __post_init__(self) -> None:
        hints = _hints()
        for item in fields(self):
            _check(item.name, getattr(self, item.name), hints[item.name], item.metadata)


CLIENT_KEYS = frozenset({"learned_file", "chain_store"})
"""Keys that hold for a whole client, and so for neither one model nor one call."""

NO_FILES = frozenset({"", "memory", "off"})
"""What a key that names a file may say instead."""

KEYS = tuple(item.name for item in fields(Policy))
"""Every key, in the order of the documentation."""


def changed(policy: Policy, values: Mapping[str, Any]) -> Policy:
    """Return `policy` with `values` set; raises what `check` raises."""
    values = unaliased(values)
    check(values)
    return replace(policy, **values)


def check(values: Mapping[str, Any]) -> None:
    """Check keys and values, whatever the rest of a policy says.

    Raises `ValueError` naming key, value and the nearest key, the choices or the range, and
    `TypeError` naming key, value and type.
    """
    values = unaliased(values)
    for key, value in values.items():
        known_key(key, value, KEYS)
    Policy(**values)


def unaliased(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` under our own keys; other tools say `session_recovery` and `quiet_mode`.

    Both are flags; raises `TypeError` naming key and value for anything else.
    """
    plain: dict[str, Any] = {}
    for key, value in values.items():
        if key not in _ALIASES:
            plain[key] = value
            continue
        if not isinstance(value, bool):
            message = f"{key} = {shown(key, value)}: must be true or false"
            raise TypeError(message)
        plain[_ALIASES[key][0]] = _ALIASES[key][1][value]
    return plain


def known_key(key: str, value: object, known: Iterable[str]) -> None:
    """Raise `ValueError` for a key that is not among the known ones, naming the nearest."""
    if key not in (known := tuple(known)):
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
        message = f"{key} = {shown(key, value)}: unknown key {key!r}; {hint}"
        raise ValueError(message)


def file_of(name: str) -> Path:
    """Return the path that a setting names; `~` is left as it stands where nobody has a home."""
    return Path(os.path.expanduser(name))  # noqa: PTH111 - `Path.expanduser` raises there


def shown(key: str, value: object) -> str:
    """Return a value for an error message: never a secret, never a page of text."""
    if re.search(r"key|token$|secret|passw|credential|auth", key, re.IGNORECASE):
        return "..."
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def read_value(key: str, text: str) -> Any:
    """Read a value for `key` from text, as a header has it; raises `ValueError` naming both."""
    known_key(key, text, (*KEYS, *_ALIASES))
    hint = bool if key in _ALIASES else _hints()[key]
    try:
        if hint is bool:
            return _FLAGS[text.lower()]
        return hint(text) if hint in (int, float) else text
    except (KeyError, ValueError):
        kind = "true or false" if hint is bool else f"of type {hint.__name__}"
        message = f"{key} = {shown(key, text)}: must be {kind}{_between(_METADATA.get(key, {}))}"
        raise ValueError(message) from None


_ALIASES: dict[str, tuple[str, tuple[Any, Any]]] = {
    "session_recovery": ("repair", ("off", "on_error")),
    "quiet_mode": ("quiet", (False, True)),
}
"""Another name -> the key it stands for, and that key's values for false and true."""
_LONGEST = 60
_FLAGS = {"true": True, "false": False}
_METADATA = {item.name: item.metadata for item in fields(Policy)}
_HINTS: dict[str, Any] = {}


def _hints() -> dict[str, Any]:
    if not _HINTS:
        _HINTS.update(get_type_hints(Policy))
    return _HINTS


def _between(metadata: Mapping[str, Any]) -> str:
    return f", from {metadata['low']} to {metadata['high']}" if "low" in metadata else ""


def possible(key: str) -> str:
    """Say what a key may be: its choices, or its type and range."""
    hint = _hints()[key]
    if choices := _choices(hint):
        either = ", or a callable" if _may_ask(hint) else ""
        return f"{', '.join(map(repr, choices))}{either}"
    return f"{hint.__name__}{_between(_METADATA[key])}"


def _choices(hint: Any) -> tuple[Any, ...]:
    """Return the words that may be chosen from; none where any value of a type will do."""
    return get_args(get_args(hint)[0] if _may_ask(hint) else hint)


def _may_ask(hint: Any) -> bool:
    """Whether a callable that decides may stand in place of the words."""
    return any(get_origin(each) is Callable for each in get_args(hint))


def _check(name: str, value: object, hint: Any, metadata: Mapping[str, Any]) -> None:
    told = f"{name} = {shown(name, value)}"
    if callable(value) and _may_ask(hint):
        return
    if choices := _choices(hint):
        if value not in choices:
            message = f"{told}: choose one of {possible(name)}"
            raise ValueError(message)
        return
    accepted = (int, float) if hint is float else hint
    if not isinstance(value, accepted) or (isinstance(value, bool) and hint is not bool):
        kind = type(value).__name__
        message = f"{told}: must be {hint.__name__}{_between(metadata)}, not {kind}"
        raise TypeError(message)
    if name == "recovery_prompt":
        _check_wording(str(value), told)
    if name == "chain_store" and not value:
        message = f"{told}: must be 'memory', 'off' or the path of an SQLite file"
        raise ValueError(message)
    if "low" in metadata and not metadata["low"] <= value <= metadata["high"]:
        message = f"{told}: must be from {metadata['low']} to {metadata['high']}"
        raise ValueError(message)


def _check_wording(text: str, told: str) -> None:
    try:
        text.format(anchor="", state="")
    except (ValueError, LookupError, AttributeError) as error:
        message = f"{told}: {{anchor}} and {{state}} are filled in; write other braces twice"
        raise ValueError(message) from error
