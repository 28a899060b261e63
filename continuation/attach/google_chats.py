"""Changes the classes of a few objects in a google-genai client.

The HTTP client cannot do two things:

- A streamed chat of the SDK records one content for each chunk. If one chunk has no content, it
  records nothing, not even the user's message. Ours records one content for the complete answer,
  and the user's message in any case.
- A call that requests the bare HTTP response must get the provider's bytes unchanged.

Each object becomes an instance of a subclass of its own class, made here at run time. So
`isinstance` still works, an object keeps what was patched on it, and objects of other clients do
not change.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false, reportUnknownArgumentType=false
from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import AbstractContextManager, aclosing, closing, nullcontext
from typing import Any

from continuation.config import override
from continuation.providers.contract import Shape
from continuation.registry import shapes
from continuation.reports.report import last_report, report
from continuation.types import Outcome

_OURS = frozenset({Outcome.HEALED, Outcome.PARTIAL, Outcome.TRUNCATED, Outcome.STALLED})
"""Outcomes of turns that have an answer, of which an attempt was incomplete."""
_mixed: dict[tuple[type, type], type] = {}
"""The subclasses made so far. A key is our class and the SDK's class."""


def heal_chats(client: Any) -> None:
    """Change the classes of a client, its `aio` and the `models` of both to our subclasses."""
    for owner, models in ((client, _Models), (getattr(client, "aio", None), _AsyncModels)):
        held = getattr(owner, "_models", None)
        if held is not None:
            _become(held, models)
            _become(owner, _Client)


def _become(thing: Any, ours: type[Any]) -> Any:
    if not isinstance(thing, ours):
        theirs = type(thing)
        if (ours, theirs) not in _mixed:
            same = ("__module__", "__qualname__", "__doc__")
            named = {name: getattr(theirs, name) for name in same}
            _mixed[ours, theirs] = type(theirs.__name__, (ours, theirs), named)
        thing.__class__ = _mixed[ours, theirs]
    return thing


# --- chats --------------------------------------------------------------------------------------


class _Client:
    """Mixed into `Client` and `AsyncClient`: their `chats` returns a new object at each access."""

    @property
    def chats(self) -> Any:
        chats = _become(super().chats, _Chats)  # type: ignore[misc]
        chats.shape = next(shape for shape in shapes().values() if shape.is_client(self, {}))
        return chats


class _Chats:
    shape: Shape

    def create(self, **asked: Any) -> Any:
        chat = super().create(**asked)  # type: ignore[misc]
        awaited = inspect.iscoroutinefunction(chat.send_message)
        ours = _become(chat, _AsyncChat if awaited else _Chat)
        ours.shape = self.shape
        return ours


class _Memory:
    """Records an answer in a chat's history; a streamed answer becomes one message.

    An answer of an incomplete turn is valid if it has parts. For other answers the SDK decides what
    is valid. If an answer of an incomplete turn has no parts, only the user's message is recorded,
    because Vertex refuses an empty message of the model.
    """

    shape: Shape
    _latest: Any = None
    """The latest chunk of the open stream. `None` after the stream has ended or was abandoned."""

    def record_history(self, user_input: Any, model_output: Sequence[Any], is_valid: bool) -> None:
        latest, self._latest = self._latest, None
        try:
            found = report(latest) if latest is not None else last_report()
        except TypeError:  # the chunk carries no report id
            found = last_report()
        cut = found is not None and found.outcome in _OURS
        joined = self.shape.joined_message(model_output) if model_output else None
        if joined is not None and joined.parts and latest is not None:
            model_output, is_valid = [joined], is_valid or cut
        empty = cut and not (joined is not None and joined.parts)
        super().record_history(user_input, model_output, is_valid and not empty)  # type: ignore[misc]
        if empty:
            self._curated_history.append(user_input)  # type: ignore[attr-defined]


class _Chat(_Memory):
    def send_message_stream(self, *asked: Any, **more: Any) -> Generator[Any]:
        with closing(super().send_message_stream(*asked, **more)) as chunks:  # type: ignore[misc]
            try:
                for self._latest in chunks:
                    yield self._latest
            finally:
                self._latest = None


class _AsyncChat(_Memory):
    async def send_message_stream(self, *asked: Any, **more: Any) -> AsyncGenerator[Any]:
        chunks = await super().send_message_stream(*asked, **more)  # type: ignore[misc]

        async def noted() -> AsyncGenerator[Any]:
            async with aclosing(chunks):
                try:
                    async for self._latest in chunks:
                        yield self._latest
                finally:
                    self._latest = None

        return noted()


# --- bare responses -----------------------------------------------------------------------------


def _policy_for(config: Any) -> AbstractContextManager[None]:
    """Return a context that turns `continuation` off if the call requests the bare response."""
    bare = getattr(config, "should_return_http_response", None)
    return override(enabled=False) if bare else nullcontext()


class _Models:
    def _generate_content(self, *, config: Any = None, **asked: Any) -> Any:
        with _policy_for(config):
            return super()._generate_content(config=config, **asked)  # type: ignore[misc]


class _AsyncModels:
    async def _generate_content(self, *, config: Any = None, **asked: Any) -> Any:
        with _policy_for(config):
            return await super()._generate_content(config=config, **asked)  # type: ignore[misc]
