"""What a wire format must be able to do for the engine: translate, never decide.

One module in `providers/` per wire format implements `Dialect`. Everything is sans-IO: bytes in,
bytes out. Built-in dialects are named in `registry.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from continuation.policy import Policy
from continuation.seams.seam import Verdict
from continuation.types import (
    AttemptResult,
    ClassifiedError,
    Head,
    Json,
    Outgoing,
    ReplayBuffer,
    Request,
    Resume,
    StopWord,
    Usage,
    Way,
)

if TYPE_CHECKING:
    from continuation.answer.call_completion import CallCompletion

Feed = Callable[[bytes], bytes]
"""Takes the next bytes of an attempt's body, returns what may be shown now; raises `Enough`."""


class MessageBuilder(Protocol):
    """One model turn as the caller gets it: attempts go in, one answer comes out.

    `first`, `begin` and the feeds they return read; `result_by_labels` and `end` say what an
    attempt came to; `prepare_recovery`, `revert` and `fork` prepare for another one; `release` and
    `finish` end the turn. It never asks the engine anything, and decides nothing. Each method is
    documented where it is: `continuation.answer.message_builder`.
    """

    def first(self, head: Head, replay: ReplayBuffer) -> Feed: ...
    def result_by_labels(self, error: BaseException | None = None) -> AttemptResult | None: ...
    def begin(self, resume: Resume, head: Head) -> Feed: ...
    def end(self, error: BaseException | None = None) -> AttemptResult: ...
    def take(self) -> bytes: ...
    def prepare_recovery(self) -> None: ...
    def revert(self) -> None: ...
    def fork(self) -> MessageBuilder: ...
    def release(self, *, whole: bool, cut_call: str | None) -> None: ...
    def finish(self, stop: StopWord, usage: Usage) -> bytes: ...
    def parses(self, schema: Json | None = None) -> bool: ...
    def completion(self, begun: CallCompletion | None) -> CallCompletion: ...
    def seams(self) -> list[tuple[int, Verdict]]: ...

    @property
    def open_text(self) -> str: ...
    @property
    def content(self) -> list[Json]: ...
    @property
    def pairs(self) -> list[tuple[list[Json], str | None]]: ...
    @property
    def text(self) -> str: ...
    @property
    def token(self) -> str | None: ...
    @property
    def lasting(self) -> Json: ...
    @property
    def stop(self) -> str | None: ...
    @property
    def half_call(self) -> bool: ...
    @property
    def cut_call(self) -> tuple[str, int]: ...
    @property
    def calls(self) -> list[tuple[str, int]]: ...


class ProviderRequest(Protocol):
    """One request of the caller's, read once. Attributes are in the engine's words.

    Nearly all of it, and its documentation, is `BaseRequest` in `continuation.wire.request`, which
    every format of ours derives from; a format of somebody else's may do without.
    """

    model: str
    limit: int | None
    unbounded: bool
    ceiling: int | None
    unary_ceiling: int | None
    hop_ceiling: int | None
    streamed: bool
    structured: bool
    liftable: bool
    doubt: Outgoing | None

    @property
    def body(self) -> Json: ...
    @property
    def streams(self) -> bool: ...
    @property
    def document(self) -> Json | None: ...

    def untouched(self, policy: Policy) -> str | None: ...
    def repaired(self, body: Mapping[str, object], more: str | None) -> ProviderRequest: ...
    def prefills(self, model_takes_it: bool) -> bool: ...
    def prefilled(self, answer: MessageBuilder) -> str: ...
    def outgoing(self, headers: Mapping[str, str]) -> Outgoing: ...
    def first(self, limit: int) -> Outgoing: ...
    def again(self, limit: int | None) -> Outgoing: ...
    def resume(
        self, answer: MessageBuilder, way: Way, prompt: str, limit: int | None
    ) -> Outgoing: ...
    def hop(self, answer: MessageBuilder, limit: int | None) -> Outgoing: ...
    def answer(self, policy: Policy) -> MessageBuilder: ...
    def with_less_thinking(self) -> ProviderRequest | None: ...
    def refused(self, head: Head, body: bytes) -> ClassifiedError: ...
    def schema(self, tool: str) -> Json | None: ...
    def ask_members(
        self, answer: MessageBuilder, tool: str, schema: Json, prompt: str, limit: int | None
    ) -> Outgoing: ...
    def lookup(self) -> Outgoing | None: ...
    def looked_up(self, body: bytes) -> int | None: ...
    def rewritten(
        self, policy: Policy, head: Head | None = None, body: bytes = b""
    ) -> ProviderRequest | None: ...


class Dialect(Protocol):
    """One wire format."""

    name: str
    history: str | None
    """Name of its history's rules in `continuation.history`; `None`: there are none."""
    default_ceiling: int
    default_timeout: float | None
    """The SDK's own default read timeout, seconds: what a caller did not choose."""

    def claims(self, method: str, path: str) -> bool:
        """Whether a request belongs to this format; cheap, called for every request."""
        ...

    def call(self, request: Request) -> ProviderRequest:
        """Read a request. Raises `Untouched` when it is not one we can read."""
        ...

    def keep_alive(self, opening: bytes) -> bytes:
        """Return an event that says nothing, for a stream in which nothing happens.

        `opening`: the first event that the caller has had; empty: it has had none. Every client
        has to take it at every place between two events (design/decisions/0081-keep-alive.md).
        """
        ...
