"""The types of history repair: violations, open calls, the result, and the policy."""

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
"""What to do with a tool call without a result: make one, drop the call, or start a new session."""


class DecisionError(ValueError):
    """Raised if the policy's `ask` returned something that is not a decision."""


class HistoryFormat(StrEnum):
    """The wire formats whose histories can be validated and repaired."""

    ANTHROPIC = "anthropic"
    OPENAI_CHAT = "openai-chat"
    OPENAI_RESPONSES = "openai-responses"
    GEMINI = "gemini"


class Facts(Protocol):
    """The properties of a model on which history rules depend; `limits.ModelLimits` has them."""

    @property
    def prefill(self) -> bool:
        """Whether the model accepts a trailing assistant message."""
        ...

    @property
    def thinking(self) -> str:
        """One of "none", "manual", "adaptive" (may be turned off) and "always" (may not)."""
        ...

    @property
    def binding(self) -> bool:
        """Whether a thinking block is invalid once a message before it has changed."""
        ...


@dataclass(frozen=True, slots=True)
class Violation:
    """One place where a history breaks a rule of its provider."""

    code: str
    """The stable name of the rule, such as "tool_result_missing"."""
    path: str
    """The place in the body, such as "messages[3].content[1]"."""
    message: str
    """The provider's error text for this violation."""
    repair: str
    """The name of the repair that fixes it."""


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A tool call without a result."""

    id: str
    """The call's id; "" if it has none."""
    name: str
    """The tool's name."""
    arguments: Any
    """The arguments as sent: an object (Anthropic, Gemini) or a JSON string (OpenAI)."""
    path: str
    """The place in the body, such as "messages[3].content[1]"."""
    trailing: bool
    """Whether only results of the same message's calls follow it. Then it may still be running."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """A repaired body, the changes made to it, and what is still wrong."""

    body: Body
    """The repaired body, or the object that was given if nothing was wrong."""
    changes: tuple[Change, ...] = ()
    """The changes, in the order in which they were made."""
    left: tuple[Violation, ...] = ()
    """Violations that remain, because the policy refused their repair."""
    origins: tuple[int, ...] | None = None
    """For each message of `body` its index in the given body, or -1 if it is new.

    None: nothing was changed.
    """
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Request headers that must be sent with the repaired body."""


class NewSessionWanted(Exception):  # noqa: N818 - a decision of the caller's, not a failure
    """Raised if the policy's `ask` decides to start a new session without this history.

    `calls`: the open calls.
    """

    def __init__(self, calls: tuple[OpenCall, ...]) -> None:
        super().__init__(f"a new session was chosen over closing {len(calls)} open tool calls")
        self.calls = calls


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPolicy:
    """How a history is repaired. The defaults drop nothing valid and add as little as possible."""

    unanswered_tool_calls: Literal["synthesize", "purge", "ask"] = "synthesize"
    """A call without a result: add an error result, drop it and what depends on it, or call `ask`.
    """
    ask: Callable[[tuple[OpenCall, ...]], str | Mapping[str, str]] | None = None
    """Called with the open calls; returns one decision for all, or a mapping of call ids to
    decisions. Any other text becomes the text of a synthetic result, such as "cancelled by the
    user"."""
    live: bool = True
    """Leave a trailing open call, which may still be running. False: it is not running any more."""
    reason: Reason | Callable[[OpenCall], Reason] = Reason.STARTED_UNKNOWN
    """Why an open call has no result, if the history does not show it."""
    wordings: Mapping[Reason, str] = field(default_factory=lambda: WORDINGS)
    """The text of a synthetic result, by reason; `{name}` stands for the tool's name."""
    late_results: Literal["replace", "append", "drop"] = "replace"
    """A real result after a synthetic one. "replace" puts it in the place of the synthetic one.
    The others keep the synthetic one, which may have been sent: "append" adds the real one as text,
    "drop" drops it."""
    duplicate_ids: Literal["rename", "drop"] = "rename"
    """A call id used twice: rename the later call and its results, or drop the later call."""
    strict: bool = False
    """Also apply the rules that only some servers of a dialect enforce."""
    coalesce: bool = True
    """Join assistant messages that an earlier recovery prompt has split."""
    is_recovery: Callable[[str], bool] = looks_like_recovery
    """Returns whether a user's text is a recovery prompt."""
    thinking: Literal["keep", "strip", "off"] = "keep"
    """Thinking that looks valid: keep it; remove it (after the provider refused some); or remove it
    and turn thinking off for the request."""
    binding: Literal["strip", "drop_block", "keep"] = "strip"
    """Bound thinking after a changed message: remove it, let the server drop it, or keep it."""
    reasoning: Literal["auto", "fill", "strip"] = "auto"
    """`reasoning_content` in Chat: by the vendor's rules, always with calls, or never."""
    alternate: bool = False
    """Chat: the server refuses two messages of one role in a row, as some chat templates do."""
    system_messages: Literal["keep", "user"] = "keep"
    """Anthropic, Chat: system messages among the others. "user": the server accepts none, so they
    become user messages."""
    prefill: bool | None = None
    """False: the history must end with the user, even if the model accepts prefill. True: it may
    end with the assistant, like a complete history that is not about to be sent."""
    vendor: str | None = None
    """Chat: the server's vendor ("deepseek", "moonshot", …), if the model's name does not show
    it."""
    head_text: str = HEAD
    """User text added before a history that begins with the assistant."""
    continue_text: str = CONTINUE
    """User text added after a history that must end with the user."""
    loop_text: str = LOOP_CLOSED
    """Assistant text that ends a tool loop whose thinking is lost."""
    reasoning_text: str = REASONING
    """Text in place of lost `reasoning_content`."""
    allow: Callable[[Change], bool] | None = None
    """Called before each change. False refuses the change, and its violation stays in `left`."""

    def __post_init__(self) -> None:
        if self.unanswered_tool_calls == "ask" and self.ask is None:
            msg = 'unanswered_tool_calls="ask" needs ask=: a callable that gets the open calls'
            raise ValueError(msg)
        for name, choices in _CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise ValueError(f"{name}={value!r}: use one of {', '.join(choices)}")


_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    name: get_args(hint)
    for name, hint in get_type_hints(RepairPolicy).items()
    if get_origin(hint) is Literal
}
"""The possible values of each field with a `Literal` type."""
