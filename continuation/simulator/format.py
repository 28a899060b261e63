"""The way of a request through any wire format: refused, asked of the model, or answered.

A format is a subclass of `Format`: what a path asks for, what is refused and how errors look, and
how a reply of the model is written. It says what it refuses as a list of checks over its `Context`.
A check yields texts, or whole refusals, and may rely on the checks before it; the first that a
request fails gives the error. A text that is yielded is the provider's own, as public bug reports
quote it, unless a check says that it is ours.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from typing import Any, ClassVar, Generic, TypeVar

from continuation.limits import DEFAULT_CEILING, ModelLimits, find
from continuation.simulator.model import Ask
from continuation.simulator.replies import compact
from continuation.simulator.scenario import Reply, Scenario
from continuation.simulator.wire import Answer, Event, Json, Recorded, Refusal, Route

GRPC_STATUSES: Mapping[int, str] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
"""How Google names HTTP statuses, in its own format and in OpenAI's."""


@dataclass(frozen=True)
class Context:
    """A request, the model it asks and how strict its provider is.

    `known`: the model is in the table, or the simulator was given it.
    """

    request: Recorded
    model: ModelLimits
    known: bool

    @property
    def body(self) -> Json:
        """The request's body; empty where it is no JSON object."""
        return self.request.body or {}

    @property
    def scenario(self) -> Scenario:
        """What holds for this request."""
        return self.request.scenario

    @property
    def streamed(self) -> bool:
        """Whether the answer is to come as events."""
        return bool(self.body.get("stream"))

    def room(self, prompt: int) -> int | None:
        """Tokens that a prompt leaves in the model's window; None if it has no known size."""
        return None if self.model.window is None else max(0, self.model.window - prompt)


ContextT = TypeVar("ContextT", bound=Context)
Check = Callable[[ContextT], Iterator["Refusal | str"]]


def first_refusal(context: ContextT, checks: Iterable[Check[ContextT]]) -> Refusal | None:
    """Return what the first check that a request fails says."""
    found = next(chain.from_iterable(check(context) for check in checks), None)
    return Refusal(found) if isinstance(found, str) else found


class Format(ABC, Generic[ContextT]):
    """One provider's wire format: everything the server does not know.

    The server asks in this order: `route` (is the request ours, and does it ask the model?), then
    either `look_up`, or `refuse`, `ask` and, once the model has spoken, `answer`. `models` says
    what a model can do before the shipped table is asked.
    """

    checks: ClassVar[Sequence[Check[Any]]] = ()
    kinds: ClassVar[Mapping[int, str]] = {}
    """HTTP status -> kind of error; another's is `server_kind` from 500 on, else `client_kind`."""
    client_kind: ClassVar[str] = "invalid_request_error"
    server_kind: ClassVar[str] = "server_error"
    fault_kind: ClassVar[str] = "server_error"
    """The kind of an error in the middle of a stream, where the reply does not say."""
    fault_texts: ClassVar[Mapping[str, str]]
    """What an error of a kind says where the reply does not; "" stands for any other kind."""
    id_header: ClassVar[str] = "x-request-id"
    json_type: ClassVar[str] = "application/json"
    key_headers: ClassVar[Sequence[str]] = ("authorization", "api-key")
    no_key: ClassVar[Refusal]
    no_json: ClassVar[Refusal]
    unlisted: ClassVar[ModelLimits] = ModelLimits(ceiling=DEFAULT_CEILING, thinking="adaptive")
    """What a model can do that nobody knows."""

    def __init__(self, models: Mapping[str, ModelLimits]) -> None:
        self.models = models
        self._numbers = count(1)

    # -- what a format says

    @abstractmethod
    def route(self, method: str, path: str) -> Route | None:
        """Say whether a path asks the model, asks something else, or is none of ours."""

    @abstractmethod
    def context(self, request: Recorded) -> ContextT:
        """Read a request, whatever it holds."""

    @abstractmethod
    def ask(self, request: Recorded) -> Ask:
        """Put a request the provider accepts into the model's terms."""

    @abstractmethod
    def write(self, context: ContextT, reply: Reply) -> Json | Iterable[Event]:
        """Write the model's reply, as events if the request asked for a stream, or as one body."""

    @abstractmethod
    def error_body(self, refusal: Refusal, scenario: Scenario) -> Any:
        """Write an error the provider's way."""

    @abstractmethod
    def error_events(self, refusal: Refusal, scenario: Scenario, number: int) -> Sequence[Event]:
        """Write an error that comes in the middle of a stream, in place of event `number`."""

    @abstractmethod
    def other(self, request: Recorded) -> Answer:
        """Answer a known caller's request that does not ask the model."""

    def forget(self) -> None:
        """Forget what earlier requests left behind."""

    # -- refusals

    def refuse(
        self, request: Recorded, checks: Sequence[Check[ContextT]] | None = None
    ) -> Answer | None:
        """Refuse what the provider would refuse; None lets the request through."""
        refusal = (
            self.unknown_caller(request)
            or (self.no_json if request.body is None else None)
            or first_refusal(self.context(request), self.checks if checks is None else checks)
        )
        return None if refusal is None else self.refused(refusal, request)

    def look_up(self, request: Recorded) -> Answer:
        """Answer a request that does not ask the model, if its caller is known."""
        refusal = self.unknown_caller(request)
        return self.other(request) if refusal is None else self.refused(refusal, request)

    def unknown_caller(self, request: Recorded) -> Refusal | None:
        """Refuse a request without a key."""
        known = any(request.headers.get(name) for name in self.key_headers)
        return None if known else self.no_key

    def refused(
        self, refusal: Refusal, request: Recorded, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Write a refusal as an answer."""
        body = self.error_body(refusal, request.scenario)
        return self.json(refusal.status, body, headers)

    def kind_of(self, refusal: Refusal) -> str:
        """Return a refusal's kind, or the one its status stands for."""
        usual = self.server_kind if refusal.status >= 500 else self.client_kind
        return refusal.kind or self.kinds.get(refusal.status, usual)

    def status_of(self, kind: str) -> int:
        """Return the status that stands for a kind of error."""
        return next((status for status, name in self.kinds.items() if name == kind), 500)

    # -- models

    def limits(self, name: str, scenario: Scenario) -> tuple[ModelLimits, bool]:
        """Return what a model can do in a scenario, and whether it is known at all."""
        known = self.known(name)
        model = known or self.unlisted
        lower = model if scenario.ceiling is None else replace(model, ceiling=scenario.ceiling)
        return lower, known is not None

    def known(self, name: str) -> ModelLimits | None:
        """Return what is known of a model."""
        return self.models.get(name) or find(name)

    # -- answers

    def answer(self, request: Recorded, reply: Reply) -> Answer:
        """Write the model's reply, as events or as one body, whichever the request asked for."""
        if reply.raw_body is not None:
            return self._raw(reply)
        context = self.context(request)
        if reply.status != 200 or (reply.error_after is not None and not context.streamed):
            return self._failure(request, reply)
        written = self.write(context, reply)
        if isinstance(written, dict):
            return self.json(200, written, reply.headers)
        return self.stream(context, self._struck(context, written, reply), reply.headers)

    def stream(
        self, context: ContextT, events: Sequence[Event], headers: Mapping[str, str]
    ) -> Answer:
        """Return events as an answer."""
        del context  # a format may frame by what was asked
        head = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        return Answer(200, {**head, **self._own_header(), **headers}, events=events)

    def json(self, status: int, value: Any, headers: Mapping[str, str] | None = None) -> Answer:
        """Return a value as an answer."""
        head = {"content-type": self.json_type, **self._own_header(), **(headers or {})}
        return Answer(status, head, compact(value).encode())

    def new_id(self, prefix: str, joint: str = "_") -> str:
        """Return an id that was never given before."""
        return f"{prefix}{joint}sim{next(self._numbers):021d}"

    def _struck(self, context: ContextT, written: Iterable[Event], reply: Reply) -> Sequence[Event]:
        """Put the script's own events, or the error event it asks for, into a stream."""
        if reply.raw_events is not None:
            written = (
                Event(name, data if isinstance(data, str) else compact(data))
                for name, data in reply.raw_events
            )
        sent = list(islice(written, reply.error_after))
        if reply.error_after is None:
            return sent
        kind, text = reply.error or (self.fault_kind, self._fault_text(self.fault_kind))
        refusal = Refusal(text, self.status_of(kind), kind)
        return [*sent, *self.error_events(refusal, context.scenario, len(sent))]

    def _failure(self, request: Recorded, reply: Reply) -> Answer:
        """Write an error status; one meant for a stream's middle has the status of its kind."""
        kind, text = reply.error or (None, None)
        status = reply.status
        if status == 200:
            status = self.status_of(kind or self.fault_kind)
        kind = kind or self.kind_of(Refusal("", status))
        refusal = Refusal(text or self._fault_text(kind), status, kind)
        return self.refused(refusal, request, reply.headers)

    def _fault_text(self, kind: str) -> str:
        return self.fault_texts.get(kind, self.fault_texts.get("", kind))

    def _raw(self, reply: Reply) -> Answer:
        raw = reply.raw_body
        if not isinstance(raw, bytes):
            raw = (raw if isinstance(raw, str) else json.dumps(raw)).encode()
        head = {"content-type": self.json_type, **self._own_header(), **reply.headers}
        return Answer(reply.status, head, raw)

    def _own_header(self) -> dict[str, str]:
        return {self.id_header: self.new_id("req")} if self.id_header else {}
