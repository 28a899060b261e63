"""What a wire format must be able to do for the engine: translate, never decide.

One module in `providers/` per wire format implements `Dialect`. Everything is sans-IO: bytes in,
bytes out. Built-in dialects are named in `registry.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from continuation.policy import Policy
from continuation.seams.seam import Verdict
from continuation.types import (
    AttemptResult,
    ClassifiedError,
    Head,
    Json,
    Mode,
    Outgoing,
    ReplayBuffer,
    Request,
    Resume,
    StopWord,
    Usage,
    Way,
)

Feed = Callable[[bytes], bytes]
"""Takes the next bytes of an attempt's body, returns what may be shown now; raises `Enough`."""


class MessageBuilder(Protocol):
    """One model turn as the caller gets it: attempts go in, one answer comes out.

    `first`, `begin` and the feeds they return read; `result_by_labels` and `end` say what an
    attempt came to; `prepare_recovery`, `revert` and `fork` prepare for another one; `release` and
    `finish` end the turn. It never asks the engine anything, and decides nothing.
    """

    def first(self, head: Head, replay: ReplayBuffer) -> Feed:
        """Return what reads the caller's own attempt; the shell appends its bytes to `replay`."""
        ...

    def result_by_labels(self, error: BaseException | None = None) -> AttemptResult | None:
        """The bytes of the caller's own attempt have ended, or failed with `error`.

        Say how it ended, if its labels alone tell; `None`: it has to be read, which `end` does.
        """
        ...

    def begin(self, resume: Resume, head: Head) -> Feed:
        """Return what reads a later attempt; `resume` says how its answer joins the turn."""
        ...

    def end(self, error: BaseException | None = None) -> AttemptResult:
        """The attempt's bytes have ended, or failed with `error`: read what is left, say how."""
        ...

    def take(self) -> bytes:
        """Return the bytes that the end of an attempt made ready for the caller, once."""
        ...

    def prepare_recovery(self) -> None:
        """The turn will be gone on from here: after this, `open_text` is what a recovery joins."""
        ...

    def revert(self) -> None:
        """Forget the attempt read last; what the one before holds may still be shown."""
        ...

    def fork(self) -> MessageBuilder:
        """Return a builder whose answer begins anew; this one stays as it is.

        Only while nothing was shown, and only one of the two may go on to show anything.
        """
        ...

    def release(self, *, whole: bool, cut_call: str | None) -> None:
        """Show what is still held and fit to be seen, before the turn ends.

        `whole`: the last attempt ended as it should. `cut_call`: the policy for a call that stays
        cut; `None`: it is left out without a word.
        """
        ...

    def finish(self, stop: StopWord, usage: Usage) -> bytes:
        """End the turn, once: return the bytes not shown yet, with the terminal event."""
        ...

    def parses(self) -> bool:
        """Whether the visible text, what is held of it included, is whole JSON."""
        ...

    @property
    def open_text(self) -> str:
        """The visible text that a recovery would go on from, what is held of it included."""
        ...

    @property
    def content(self) -> list[Json]:
        """The turn's content so far, as one assistant message of the format would carry it."""
        ...

    @property
    def pairs(self) -> list[tuple[list[Json], str | None]]:
        """Each attempt's content, and the prompt that asked for it."""
        ...

    @property
    def text(self) -> str:
        """All visible text of the turn."""
        ...

    @property
    def token(self) -> str | None:
        """The provider's continuation token, if the last attempt ended with one."""
        ...

    def lasting(self, key: str) -> object:
        """Return what the end of an attempt said that holds for the whole turn."""
        ...

    @property
    def stop(self) -> str | None:
        """The stop reason the caller got, once finished."""
        ...

    @property
    def half_call(self) -> bool:
        """Whether the caller's stream has a call, shown live by policy, that is not whole."""
        ...

    @property
    def cut_name(self) -> str:
        """Name of the last call of the attempt (`""`: it has none)."""
        ...

    @property
    def cut_length(self) -> int:
        """Characters of that call's arguments that arrived."""
        ...

    def seams(self) -> list[tuple[int, Verdict]]:
        """The seam of the last attempt, if it had one: characters before it, and the verdict."""
        ...


class ProviderRequest(Protocol):
    """One request of the caller's, read once. Attributes are in the engine's words."""

    @property
    def model(self) -> str: ...
    @property
    def limit(self) -> int | None: ...
    @property
    def unbounded(self) -> bool:
        """Without a limit in the request the server allows the model's whole ceiling."""
        ...

    @property
    def ceiling(self) -> int | None:
        """The model's ceiling on this server, where that is known to differ from the model's."""
        ...

    @property
    def unary_ceiling(self) -> int | None:
        """Largest limit that is safe on a call that is not streamed; `None`: no such bound."""
        ...

    @property
    def hop_ceiling(self) -> int | None:
        """Largest output of one request, whatever its limit; `None`: its limit is the bound."""
        ...

    @property
    def streamed(self) -> bool: ...
    @property
    def structured(self) -> bool: ...
    @property
    def liftable(self) -> bool:
        """Whether the constraint on structured output can be lifted for a recovery."""
        ...

    def untouched(self, policy: Policy) -> str | None:
        """Why this request is not ours to heal, if it is not."""
        ...

    @property
    def body(self) -> Json:
        """The request's body, decoded."""
        ...

    def repaired(self, body: Mapping[str, object], more: str | None) -> ProviderRequest:
        """Return the same request with another body; `more` is said for the user at its end."""
        ...

    def outgoing(self, headers: Mapping[str, str]) -> Outgoing:
        """Return the request as it is, with further headers."""
        ...

    def prefills(self, model_takes_it: bool) -> bool:
        """Whether this request can be gone on with by prefill.

        `model_takes_it`: what the table of models says, for formats in which it is the model's
        matter and not the server's.
        """
        ...

    def first(self, limit: int) -> Outgoing:
        """Return the caller's request with another limit, streamed or not as the caller asked."""
        ...

    def again(self, limit: int | None) -> Outgoing:
        """Return the same request with another limit, streamed."""
        ...

    def resume(self, answer: MessageBuilder, way: Way, prompt: str, limit: int | None) -> Outgoing:
        """Return the request that asks the model to go on from `answer`."""
        ...

    def prefilled(self, answer: MessageBuilder) -> str:
        """Return the text that `resume` by prefill ends with."""
        ...

    def answer(self, policy: Policy) -> MessageBuilder: ...

    def with_less_thinking(self) -> ProviderRequest | None:
        """Return the same call with less thinking; `None` where it cannot be asked for."""
        ...

    def hop(self, answer: MessageBuilder, limit: int | None) -> Outgoing:
        """Return the request that goes on from `answer` by the provider's own token."""
        ...

    def refused(self, head: Head, body: bytes) -> ClassifiedError:
        """Classify an error answer; the next request is built with what it teaches of the form."""
        ...

    def lookup(self) -> Outgoing | None:
        """Return the request that asks the provider's models endpoint for this model."""
        ...

    def looked_up(self, body: bytes) -> int | None:
        """Read the ceiling in the models endpoint's answer."""
        ...

    def rewritten(
        self, policy: Policy, head: Head | None = None, body: bytes = b""
    ) -> ProviderRequest | None:
        """Return the call as its server must be asked, where that differs from what it holds.

        With `head` and `body`: after this refusal. `None`: as it is, or there is no help.
        """
        ...


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


__all__ = [
    "Dialect",
    "Feed",
    "MessageBuilder",
    "Mode",
    "ProviderRequest",
    "Usage",
]
