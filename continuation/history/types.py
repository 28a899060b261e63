"""The words of history repair: violations, changes, open calls and the policy that decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args, get_origin, get_type_hints

from continuation.history.wordings import (
    CONTINUE,
    HEAD,
    LOOP_CLOSED,
    REASONING,
    WORDINGS,
    Reason,
    looks_like_recovery,
)
from continuation.types import Change

Body: TypeAlias = Mapping[str, Any]
"""A request body, or the part of it that holds the conversation, as decoded JSON."""

Decision: TypeAlias = Literal["synthesize", "purge", "new_session"]
"""What becomes of a tool call that has no result."""


class HistoryFormat(StrEnum):
    """The wire formats whose histories we know."""

    ANTHROPIC = "anthropic"
    OPENAI_CHAT = "openai-chat"
    OPENAI_RESPONSES = "openai-responses"
    GEMINI = "gemini"


class Facts(Protocol):
    """What history rules ask of a model; `continuation.limits.ModelLimits` has these."""

    @property
    def prefill(self) -> bool:
        """Whether a trailing assistant message is accepted."""
        ...

    @property
    def thinking(self) -> str:
        """One of "none", "manual", "adaptive" (can be off) and "always" (cannot)."""
        ...

    @property
    def binding(self) -> bool:
        """Whether thinking blocks are bound to the messages before them."""
        ...


@dataclass(frozen=True, slots=True)
class Violation:
    """One place where a history breaks a rule of its provider."""

    code: str
    """Stable name of the rule, such as "tool_result_missing"."""
    path: str
    """Where, in the body's own words: "messages[3].content[1]"."""
    message: str
    """The provider's error text that it would cause."""
    repair: str
    """Name of the repair that fixes it."""


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A tool call without a result."""

    id: str
    """As in the history; "" where there is none."""
    name: str
    """Of the tool."""
    arguments: Any
    """As on the wire: an object (Anthropic, Gemini) or a JSON string (OpenAI)."""
    path: str
    """Where, in the body's own words."""
    trailing: bool
    """Nothing but results of the same turn follows it: it may still be running."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """A repaired body and what was done to it."""

    body: Body
    """The very object that was given when nothing was wrong."""
    changes: tuple[Change, ...] = ()
    """In the order they were made."""
    left: tuple[Violation, ...] = ()
    """What is still wrong, because the policy refused the change that would repair it."""
    origins: tuple[int, ...] | None = None
    """For each message of `body` its index in the body given, -1 if made here; None: unchanged."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Request headers that the repaired body needs beside it."""


class NewSessionWanted(Exception):  # noqa: N818 - a decision of the caller's, not a failure
    """The policy's `ask` decided to leave this history as it is and start a new session."""

    def __init__(self, calls: tuple[OpenCall, ...]) -> None:
        super().__init__(f"a new session was chosen over closing {len(calls)} open tool calls")
        self.calls = calls


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPolicy:
    """How a history is repaired; the defaults lose nothing and invent as little as possible."""

    unanswered_tool_calls: Literal["synthesize", "purge", "ask"] = "synthesize"
    """Answer a call without result by an honest error, drop it and what is tied to it, or ask."""
    ask: Callable[[tuple[OpenCall, ...]], Decision | Mapping[str, Decision]] | None = None
    """Shown the open calls; returns one decision for all, or one per call id."""
    live: bool = True
    """A trailing open call may still be running: leave it. False: whoever ran it is dead."""
    reason: Reason | Callable[[OpenCall], Reason] = Reason.STARTED_UNKNOWN
    """Why an open call has no result, where the history itself does not show it."""
    wordings: Mapping[Reason, str] = field(default_factory=lambda: WORDINGS)
    """Text of a synthetic result by reason; `{name}` stands for the tool."""
    late_results: Literal["replace", "append", "drop"] = "replace"
    """A real result after a synthetic one: replace it; or it was sent: append as text, or drop."""
    duplicate_ids: Literal["rename", "drop"] = "rename"
    """A call id used again: rename the later pair, or drop the later call (the first one wins)."""
    strict: bool = False
    """Also keep the rules that only some servers of a dialect enforce."""
    coalesce: bool = True
    """Join an assistant turn that an old recovery prompt had split."""
    is_recovery: Callable[[str], bool] = looks_like_recovery
    """Recognises a recovery prompt by its text."""
    thinking: Literal["keep", "strip", "off"] = "keep"
    """Thinking that looks valid: keep; strip (the provider refused one); strip and turn it off."""
    binding: Literal["strip", "drop_block", "keep"] = "strip"
    """Bound thinking behind a change: strip it, ask the server to drop it, or leave it."""
    reasoning: Literal["auto", "fill", "strip"] = "auto"
    """`reasoning_content` in Chat: as the vendor's rules say, always on calls, or never."""
    alternate: bool = False
    """Chat: the server takes no two messages of one role in a row, as chat templates may not."""
    system_messages: Literal["keep", "user"] = "keep"
    """Anthropic, Chat: system messages among the others. "user": the server takes none; they become
    the user's."""
    prefill: bool | None = None
    """False: the history must end with the user, whatever is known of the model. True: nobody is
    about to ask, so that one which ends with the assistant is complete."""
    vendor: str | None = None
    """Chat: whose server it is ("deepseek", "moonshot", …) where the model's name does not say."""
    head_text: str = HEAD
    """User text put before a history that begins with the assistant."""
    continue_text: str = CONTINUE
    """User text put after a history that must end with the user."""
    loop_text: str = LOOP_CLOSED
    """Assistant text that closes a tool loop whose thinking is lost."""
    reasoning_text: str = REASONING
    """Stands for lost `reasoning_content`."""
    allow: Callable[[Change], bool] | None = None
    """Asked before each change; False refuses it, and what it would repair stays in `left`."""

    def __post_init__(self) -> None:
        if self.unanswered_tool_calls == "ask" and self.ask is None:
            msg = 'unanswered_tool_calls="ask" needs ask=: a callable that is shown the open calls'
            raise ValueError(msg)
        for name, choices in _CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise ValueError(f"{name}={value!r}: use one of {', '.join(choices)}")


_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    name: get_args(hint)
    for name, hint in get_type_hints(RepairPolicy).items()
    if get_origin(hint) is Literal
}
"""What may be chosen, by field: those with a `Literal` type."""
