"""Every choice a user can make, as one frozen object with its default."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, wraps
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeAlias,
    TypedDict,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

if TYPE_CHECKING:
    from continuation.history import OpenCall

    Ask: TypeAlias = Callable[[tuple[OpenCall, ...]], str | Mapping[str, str]]
else:
    Ask = Callable[..., Any]

TruncatedToolCall: TypeAlias = Literal["explain", "drop", "keep", "retry_smaller", "complete"]
HoldOrLive: TypeAlias = Literal["hold", "live"]
ForcedToolChoice: TypeAlias = Literal["pass", "heal"]
TruncatedDocument: TypeAlias = Literal["return", "complete"]
CompleteSeams: TypeAlias = Literal["sure", "any"]
OnFailure: TypeAlias = Literal["stop", "truncated", "raise"]
OnDead: TypeAlias = Literal["error", "stop", "truncated"]
Paused: TypeAlias = Literal["resume", "return"]
Refused: TypeAlias = Literal["report", "fallback"]
Stall: TypeAlias = Literal["learned", "off"]
StreamBodies: TypeAlias = Literal["auto", "never"]
UnkeptPromise: TypeAlias = Literal["off", "ask"]
UsagePolicy: TypeAlias = Literal["turn", "billed"]
InitialLimit: TypeAlias = Literal["caller", "ceiling"]
Tracing: TypeAlias = Literal["auto", "on", "off"]
Repair: TypeAlias = Literal["on_error", "before_send", "off"]
UnansweredToolCalls: TypeAlias = Literal["synthesize", "purge"] | Ask


class Between(NamedTuple):
    """A range of numbers; both ends are allowed."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"from {self.low} to {self.high}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How incomplete answers are completed, and how much that may cost.

    Raises `ValueError` naming field, value and range when a value is out of range, and
    `TypeError` when it is of the wrong type or there is no such field.
    """

    enabled: bool = True
    """Complete incomplete answers; false: every answer passes through untouched."""
    escalate: bool = True
    """Resend a truncated request at the model's ceiling if nothing was delivered yet."""
    max_recoveries: Annotated[int, Between(0, 10)] = 3
    """Largest number of recoveries (requests for the rest of a text) in one turn."""
    max_drop_recoveries: Annotated[int, Between(0, 10)] = 3
    """Largest number of dropped streams that are resumed in one turn."""
    max_attempts: Annotated[int, Between(1, 50)] = 12
    """Largest number of requests sent in one turn, with retries; 32 more for provider hops."""
    max_retries: Annotated[int, Between(0, 10)] = 2
    """Largest number of retries of each later attempt after 429, 5xx or a failed connection."""
    max_turn_seconds: Annotated[float, Between(1, 86_400)] = 3600.0
    """Seconds after which a turn starts no later attempt and aborts a running one."""
    max_turn_output_tokens: Annotated[int, Between(1, 100_000_000)] = 2_000_000
    """Most output tokens billed in one turn; the limits of later attempts shrink to fit."""
    leave_limits_below: Annotated[int, Between(0, 1_000_000)] = 256
    """Requests with a smaller output limit pass through untouched: the limit is a budget."""
    model_max_output_tokens: Annotated[int, Between(0, 10_000_000)] = 0
    """The model's ceiling, in tokens; 0: look it up."""
    initial_limit: InitialLimit = "caller"
    """Output limit of the first attempt: the caller's own, or the ceiling."""
    clamp: bool = False
    """Lower a limit above the model's known ceiling before sending, so it is not refused."""
    remember_limit: bool = True
    """Start a model's later turns at the ceiling after a truncated answer (needs `escalate`)."""
    stream_tool_calls: HoldOrLive = "hold"
    """Buffer the events of a tool call until it is complete, or deliver them live."""
    stream_thinking: HoldOrLive = "hold"
    """Buffer thinking until text follows it, or deliver it live."""
    truncated_tool_call: TruncatedToolCall = "explain"
    """A call that stays truncated: add a note, remove, keep, request a smaller one, or complete."""
    complete_tools: Sequence[str] = ()
    """Tools whose truncated calls may be completed (`"!name"`: all but that one); empty: all."""
    complete_seams: CompleteSeams = "sure"
    """Seams and ends accepted inside an argument: proven by known words, or any that was found."""
    truncated_document: TruncatedDocument = "return"
    """Structured output truncated after part was delivered: return as it is, or complete."""
    less_thinking: bool = False
    """Send once more with less thinking if thinking used the whole ceiling before any text."""
    forced_tool_choice: ForcedToolChoice = "pass"
    """Anthropic requests that force a tool call: leave untouched, or resend if truncated."""
    on_failure: OnFailure = "stop"
    """End of the answer after a failed recovery: normal stop, "output limit", or an exception."""
    on_dead: OnDead = "error"
    """End of a dropped stream that cannot be resumed: an error event, or as with `on_failure`."""
    paused: Paused = "resume"
    """An answer that Anthropic pauses (`pause_turn`): continue it, or return it as it is."""
    refused: Refused = "report"
    """A request that Claude refuses: report it, or let Anthropic send it to another model."""
    resend_failed: bool = True
    """Resend if an answer is empty or its generation failed, and nothing was delivered yet."""
    stop_repetition: bool = False
    """End an attempt that repeats the same text over and over; ask once for what follows it."""
    stall: Stall = "learned"
    """A stream silent for far longer than the model ever was: drop and resume it, or wait."""
    stream_bodies: StreamBodies = "auto"
    """Whether a request is sent as a stream if its body is expected to be long: proxies give up."""
    unkept_promise: UnkeptPromise = "off"
    """A complete text that announces a tool call and makes none: leave it, or ask once for it."""
    usage: UsagePolicy = "turn"
    """Usage in the answer: that of one complete turn, or everything that was billed."""
    prefill: bool = True
    """Continue by prefilling the assistant message, if the model accepts that."""
    verify_stop_reason: bool = True
    """Check token count, arguments and ending for truncation despite a normal stop reason."""
    models_endpoint: bool = True
    """Look up a model's ceiling at the provider's models endpoint after a truncated answer."""
    recovery_prompt: str = ""
    """Text of the recovery prompt ({anchor}: the text to repeat); empty: the built-in one."""
    seam_buffer_chars: Annotated[int, Between(1, 100_000)] = 600
    """Characters buffered at the beginning of a recovery to find the seam."""
    backoff_seconds: Annotated[float, Between(0, 60)] = 0.5
    """Seconds before the first retry; doubled for each further one."""
    max_wait_seconds: Annotated[float, Between(0, 3_600)] = 60.0
    """Longest `retry-after` to wait for, in seconds; a longer one means no retry."""
    learned_file: str = ""
    """File or URL that stores what was learned about limits; empty: none."""
    tracing: Tracing = "auto"
    """OpenTelemetry spans and token counts: if a provider is configured, always, or never."""
    repair: Repair = "on_error"
    """Repair a history that the provider rejects: after its error, before sending, or never."""
    unanswered_tool_calls: UnansweredToolCalls = "synthesize"
    """A tool call without a result: add an error result, remove the call, or use a callable."""
    auto_resume: bool = False
    """After a repair that answered the last call, add `resume_text` as a user message, once."""
    resume_text: str = "Please go on."
    """The user message that `auto_resume` adds."""
    chain_store: str = "memory"
    """Where completed turns of chained responses are stored: memory, off, SQLite file, or URL."""
    store_seconds: Annotated[float, Between(0.01, 60)] = 0.25
    """Seconds that a turn waits for each access to the chain store."""
    log_repairs: bool = True
    """Log a warning when a history was repaired; events report it in any case."""

    def __repr__(self) -> str:
        named = ((each.name, repr(getattr(self, each.name))) for each in fields(self))
        return f"Policy({', '.join(f'{key}={without_password(value)}' for key, value in named)})"


def _checking(init: Callable[..., None]) -> Callable[..., None]:
    """Return an `__init__` that checks its keys and values, with the messages of `check`."""

    @wraps(init)
    def checked(self: Policy, **values: Any) -> None:
        try:
            for key in values:
                if key not in KEYS:
                    known_key(key, values[key], KEYS)
        except ValueError as error:
            raise TypeError(str(error)) from None
        for key, value in values.items():
            _check(key, value)
            if _shapes()[key].kind is tuple:  # files have lists
                values[key] = tuple(value)
        init(self, **values)

    return checked


Policy.__init__ = _checking(Policy.__init__)  # type: ignore[method-assign]


class CallKeys(TypedDict, total=False):
    """The keys of `Policy` that may be set for a single call, as keyword arguments."""

    enabled: bool
    escalate: bool
    max_recoveries: int
    max_drop_recoveries: int
    max_attempts: int
    max_retries: int
    max_turn_seconds: float
    max_turn_output_tokens: int
    leave_limits_below: int
    model_max_output_tokens: int
    initial_limit: InitialLimit
    clamp: bool
    remember_limit: bool
    stream_tool_calls: HoldOrLive
    stream_thinking: HoldOrLive
    truncated_tool_call: TruncatedToolCall
    complete_tools: Sequence[str]
    complete_seams: CompleteSeams
    truncated_document: TruncatedDocument
    less_thinking: bool
    forced_tool_choice: ForcedToolChoice
    on_failure: OnFailure
    on_dead: OnDead
    paused: Paused
    refused: Refused
    resend_failed: bool
    stop_repetition: bool
    stall: Stall
    stream_bodies: StreamBodies
    unkept_promise: UnkeptPromise
    usage: UsagePolicy
    prefill: bool
    verify_stop_reason: bool
    models_endpoint: bool
    recovery_prompt: str
    seam_buffer_chars: int
    backoff_seconds: float
    max_wait_seconds: float
    tracing: Tracing
    repair: Repair
    unanswered_tool_calls: UnansweredToolCalls
    auto_resume: bool
    resume_text: str
    log_repairs: bool
    session_recovery: bool
    quiet_mode: bool


class PolicyKeys(CallKeys, total=False):
    """All keys of `Policy`, as keyword arguments."""

    learned_file: str
    chain_store: str
    store_seconds: float


KEYS: Final = tuple(item.name for item in fields(Policy))
"""Every key, in the order of the documentation."""

CLIENT_KEYS: Final = frozenset({"learned_file", "chain_store", "store_seconds"})
"""Keys that are set for a whole client, never for one model or one call."""

_STORE_WORDS: Final = ("memory", "off")
NO_FILES: Final = frozenset({"", *_STORE_WORDS})
"""Values of a key for a file that name no file."""

ALIASES: Final[Mapping[str, tuple[str, Any, Any]]] = {
    "session_recovery": ("repair", "off", "on_error"),
    "quiet_mode": ("log_repairs", True, False),
}
"""A flag of other tools -> the key it stands for, and that key's values for false and true."""

RENAMED: Final[Mapping[str, str]] = {
    "min_limit": "leave_limits_below",
    "ceiling": "model_max_output_tokens",
    "first_limit": "initial_limit",
    "distrust_labels": "verify_stop_reason",
    "seam_hold": "seam_buffer_chars",
    "quiet": "log_repairs",
    "open_calls": "unanswered_tool_calls",
    "cut_call": "truncated_tool_call",
    "forced_calls": "forced_tool_choice",
    "tool_stream": "stream_tool_calls",
    "thinking_stream": "stream_thinking",
}
"""A key's former name -> its name today; the error for the former one states it."""

_OF_CLIENTS = frozenset({"api_key", "base_uri", "base_url", "http_client", "timeout"})
_OF_REQUESTS = frozenset({"max_tokens", "max_output_tokens", "max_completion_tokens"})
_BOUND = "max_turn_output_tokens"

_RENAMED_WORDS: Final[Mapping[tuple[str, object], str]] = {
    ("on_failure", "truth"): "truncated",
    ("truncated_tool_call", "guide"): "retry_smaller",
}


# --- checking -----------------------------------------------------------------------------------


def check(values: Mapping[str, Any]) -> dict[str, Any]:
    """Check each key and its value; return them, with the keys of `ALIASES` under our own names.

    The aliases must be true or false. Raises `ValueError` naming key, value and the nearest key,
    the choices or the range, and `TypeError` naming key, value and type.
    """
    plain: dict[str, Any] = {}
    for key, value in values.items():
        ours, *words = ALIASES.get(key, (key,))
        if words:
            if not isinstance(value, bool):
                raise TypeError(f"{key} = {shown(key, value)}: must be true or false")
            plain[ours] = words[value]
        else:
            plain[ours] = value
    for key, value in plain.items():
        known_key(key, value, KEYS)
        _check(key, value)
    return plain


def known_key(key: str, value: object, known: Iterable[str], also: Iterable[str] = ()) -> None:
    """Raise `ValueError` for a key that is not among the known ones.

    The message states the key's new name if it was renamed, else the nearest known key, or the
    nearest of `also`: names that are not keys, but may be meant.
    """
    if key in (known := tuple(known)):
        return
    setting = f"{key} = {shown(key, value)}"
    old = {before: now for before, now in RENAMED.items() if now in known}
    if key in old:
        word = _RENAMED_WORDS.get((old[key], value)) if isinstance(value, str) else None
        more = f", and {value!r} is {word!r}" if word else ""
        more = " (inverted: true logs)" if key == "quiet" else more
        raise ValueError(f"{setting}: {key!r} is {old[key]!r} now{more}")
    if key in _OF_CLIENTS and _BOUND in known:
        message = "is a setting of the client; set it where the client is made"
        raise ValueError(f"{setting}: {message}")
    near = nearest(key, (*known, *also, *old))
    if key in _OF_REQUESTS and _BOUND in known:
        message = f"set a request's limit in the request; {_BOUND!r} limits a whole turn"
        raise ValueError(f"{setting}: {message}")
    hint = f"did you mean {old.get(near, near)!r}?" if near else f"known: {', '.join(known)}"
    raise ValueError(f"{setting}: unknown key {key!r}; {hint}")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most like `name`; `""`: none is like it."""
    known, words = [*known], {*name.split("_")}
    alike = [each for each in known if {*each.split("_")} <= words or words <= {*each.split("_")}]
    for names, cutoff in ((known, 0.75), (alike, 0.0), (known, 0.5)):
        if found := difflib.get_close_matches(name, names, n=1, cutoff=cutoff):
            return found[0]
    return ""


def possible(key: str) -> str:
    """Return the values that a key allows, as text: its choices, or its type and range."""
    shape = _shapes()[key]
    if shape.choices:
        return ", ".join(map(repr, shape.choices)) + (", or a callable" if shape.callable else "")
    if shape.kind is tuple:
        return "a list of names"
    return shape.kind.__name__ + (f", {shape.between}" if shape.between else "")


def read_value(key: str, text: str) -> Any:
    """Return the value of `key` that a header's text means; raises `ValueError` naming both."""
    known_key(key, text, (*KEYS, *ALIASES))
    kind: Any = bool if key in ALIASES else _shapes()[key].kind
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if kind is tuple:
            return tuple(text.split())
        return kind(text) if kind in (int, float) else text
    except (KeyError, ValueError):
        needed = "true or false" if kind is bool else f"of type {possible(key)}"
        raise ValueError(f"{key} = {shown(key, text)}: must be {needed}") from None


class _Shape(NamedTuple):
    """The values that a key allows, from the annotation of its field."""

    kind: type[Any] = str
    choices: tuple[str, ...] = ()
    callable: bool = False
    """Whether a callable is allowed as well as one of the choices."""
    between: Between | None = None

    def takes(self, value: Any) -> bool:
        """Whether a value is of the key's type; choices and range are not checked."""
        if self.kind is tuple:
            listed = isinstance(value, (tuple, list))
            return listed and all(isinstance(one, str) for one in cast("Sequence[object]", value))
        if isinstance(value, bool):
            return self.kind is bool
        return isinstance(value, (int, float) if self.kind is float else self.kind)


@cache
def _shapes() -> dict[str, _Shape]:
    found: dict[str, _Shape] = {}
    for key, hint in get_type_hints(Policy, include_extras=True).items():
        first, *rest = get_args(hint) or (hint,)
        if get_origin(hint) is Annotated:
            found[key] = _Shape(first, between=rest[0])
        elif get_origin(hint) is Literal:
            found[key] = _Shape(choices=get_args(hint))
        elif get_origin(hint) is Sequence:
            found[key] = _Shape(tuple)
        elif rest:  # the choices, or a callable
            found[key] = _Shape(choices=get_args(first), callable=True)
        else:
            found[key] = _Shape(first)
    return found


def _check(key: str, value: Any) -> None:
    """Check the value of a known key; raises as `check` does."""
    shape, wrong = _shapes()[key], ""
    if shape.choices:
        if value not in shape.choices and not (shape.callable and callable(value)):
            word = _RENAMED_WORDS.get((key, value)) if isinstance(value, str) else None
            wrong = f"{value!r} is {word!r} now" if word else f"choose one of {possible(key)}"
    elif not shape.takes(value):
        listed = shape.kind is tuple and type(value) in (tuple, list)
        wanted = "each a string" if listed else f"not {type(value).__name__}"
        needed = f"must be {possible(key)}, {wanted}"
        raise TypeError(f"{key} = {shown(key, value)}: {needed}")
    elif shape.between and not shape.between.low <= value <= shape.between.high:
        wrong = f"must be {shape.between}"
    elif key in {"chain_store", "learned_file"}:
        words = _STORE_WORDS if key == "chain_store" else ("",)
        wrong = store_error(value, words)
    elif key in _TEXTS and len(value) > MOST_CHARACTERS:
        wrong = f"has {len(value):,} characters; write at most {MOST_CHARACTERS:,}"
    elif key == "recovery_prompt":
        wrong = template_error(value)
    if wrong:
        raise ValueError(f"{key} = {shown(key, value)}: {wrong}")


# --- the wording of prompts ---------------------------------------------------------------------

_TEXTS = frozenset({"recovery_prompt", "resume_text"})
MOST_CHARACTERS: Final = 10_000
"""Longest text that a key of `_TEXTS` may have."""
_BRACES = re.compile(r"\{\{|\}\}|\{(anchor|state)\}|[{}]")


def template_error(text: str) -> str:
    """Return what is wrong with the wording of a recovery prompt; `""`: nothing.

    It is no format string: a width in one could ask for gigabytes, and an attribute for secrets.
    """
    for match in _BRACES.finditer(text):
        if len(match[0]) == 1:
            near = text[match.start() : match.start() + 20]
            return (
                f"{near!r}: only {{anchor}} and {{state}} are replaced, without a format or a "
                "conversion; write other braces twice"
            )
    return ""


def fill(text: str, **values: str) -> str:
    """Return the wording of a recovery prompt with `anchor` and `state` filled in."""
    return _BRACES.sub(lambda match: values[match[1]] if match[1] else match[0][0], text)


# --- what a caller may ask of somebody else's gateway -------------------------------------------

_UNKNOWN: Final = float("inf")
_COSTS: Final[Mapping[str, Callable[[Any], float]]] = {
    **dict.fromkeys(
        (
            *("enabled", "escalate", "remember_limit", "verify_stop_reason", "models_endpoint"),
            *("less_thinking", "max_recoveries", "max_drop_recoveries", "max_attempts"),
            *("max_retries", "max_turn_seconds", "max_turn_output_tokens", "max_wait_seconds"),
            *("resend_failed", "seam_buffer_chars", "stop_repetition"),
        ),
        float,
    ),
    # A larger value means less work, or less haste.
    **dict.fromkeys(("leave_limits_below", "backoff_seconds", "log_repairs"), lambda n: -float(n)),
    "model_max_output_tokens": lambda n: n or _UNKNOWN,
    "initial_limit": ("caller", "ceiling").index,
    "forced_tool_choice": ("pass", "heal").index,
    "truncated_document": ("return", "complete").index,
    "truncated_tool_call": lambda word: word in {"retry_smaller", "complete"},
    "paused": ("return", "resume").index,
    "refused": ("report", "fallback").index,
    "stall": ("off", "learned").index,
    "unkept_promise": ("off", "ask").index,
    "repair": ("off", "on_error", "before_send").index,
    "usage": ("billed", "turn").index,
}
"""Each key that bounds what a turn may cost -> how much one of its values allows."""


def lifted(own: Policy, asked: Mapping[str, Any]) -> str:
    """Return the first key of `asked` that lifts a limit of the policy `own`; `""`: none does.

    A limit is what bounds requests, tokens, time and memory, and what decides that something is
    counted or logged. The other keys say how an answer is treated.
    """
    for key, value in asked.items():
        mine = getattr(own, key)
        if key == "tracing" and value != mine:
            return key
        if key in _COSTS and _COSTS[key](value) > _COSTS[key](mine):
            return key
    return ""


# --- what files and messages need ---------------------------------------------------------------


def is_url(name: str) -> bool:
    """Whether a setting that may name a file names a server instead."""
    return "://" in name


def without_password(text: str) -> str:
    """Return a text with `...` in place of the user and password of a URL in it."""
    # A password that is not escaped may hold anything; the quotes of a `repr` stay.
    return re.sub(r"(?s)(?<=://).*(?=@)|(?<=password=)[^&]*(?<![\"'])", "...", text)


def store_error(named: str, words: Sequence[str] = ()) -> str:
    """Return what is wrong with the path or URL of a store, or with one of `words`; `""`: nothing.

    A name without a slash and without a dot is not taken for a file's: it may be a word misspelled.
    """
    if named in words:
        return ""
    if named == ":memory:" or named.startswith("file:"):
        return "is lost when the process ends; name a file, such as agent.db"
    if not is_url(named):
        if re.match(r"[A-Za-z][A-Za-z+-]+:|postgres(ql)?/", named):
            return "is not a URL; write postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        if not named or not re.search(r"[./\\]", named):
            near = nearest(named.lower(), words) if named else ""
            choices = [*map(repr, filter(None, words)), "a postgresql:// URL"]
            hint = f"did you mean {near!r}? It " if near else ""
            path = "or the path of a file, with a folder or a suffix: ./NAME, NAME.db"
            return f"{hint}must be {', '.join(choices)} {path}"
        return ""
    if not named.startswith(("postgresql://", "postgres://")):
        return "only servers at postgresql:// are supported"
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        return "needs psycopg: pip install 'continuation-engine[postgres]'"
    try:
        settings = conninfo_to_dict(named)
    except ProgrammingError:
        settings = {"port": "none"}
    # An unescaped @, : or / in a password makes a part of it the host, port or database.
    path = named.partition("://")[2].partition("?")[0].partition("/")[2]
    moved = "@" in str(settings.get("host")) or "@" in path
    if moved or set(str(settings.get("port", ""))) - set("0123456789,"):
        form = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        escapes = "@ as %40, : as %3A, / as %2F"
        return f"is not a PostgreSQL URL; write {form}; in names and passwords write {escapes}"
    return ""


def file_of(name: str) -> Path:
    """Return the path that a setting names; `~` stays where there is no home directory."""
    return Path(os.path.expanduser(name))  # noqa: PTH111 - `Path.expanduser` raises there


def shown(key: str, value: object) -> str:
    """Return a value for an error message: secrets as `...`, the rest cut after 60 characters."""
    if re.search(r"key|token$|secret|passw|credential|auth", key, re.IGNORECASE):
        return "..."
    text = without_password(repr(value))
    return text if len(text) <= 60 else f"{text[:60]}..."
