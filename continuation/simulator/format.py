"""How any wire format handles a request: it refuses it, or lets the model answer it.

A format is a subclass of `Format`. It says what a path means, what is refused, what errors look
like, and how a reply of the model is written. Its refusals are a list of checks of its `Context`. A
check yields texts or `Refusal`s. The first one that any check yields is the error, so later checks
may assume that earlier ones yielded nothing. A text is the provider's own, as public bug reports
quote it, unless the check's docstring says that it is ours.

The simulator has its own rules of histories (`rules.py` of each format). They share nothing with
`continuation.history`, so that a wrong rule there is not confirmed here.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count, islice
from typing import Any, ClassVar, Generic, TypeVar

from continuation.limits import DEFAULT_CEILING, ModelLimits, find
from continuation.simulator.common import compact
from continuation.simulator.model import Ask
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
"""Google's names of HTTP statuses, which it uses in its own format and in OpenAI's."""
_NO_JSON = "The request's body is no JSON object."


class Context:
    """A parsed request, its model's limits, and the scenario that applies to it.

    `known`: whether the model is in the table or was given to the simulator. `served`: whether the
    provider has it. `body` is empty if the request's body is not a JSON object.
    """

    def __init__(self, request: Recorded, model: ModelLimits, known: bool) -> None:
        self.request, self.model, self.known = request, model, known
        self.scenario = request.scenario
        self.served = known or self.scenario.any_model
        self.body: Json = request.body or {}
        self.name = str(self.body.get("model") or "")
        self.streamed = bool(self.body.get("stream"))

    def room(self, prompt: int) -> int | None:
        """Return the tokens that a prompt leaves in the context window; None: unknown."""
        return None if self.model.window is None else max(0, self.model.window - prompt)


ContextT = TypeVar("ContextT", bound=Context)
Check = Callable[[ContextT], Iterator["Refusal | str"]]


class Format(ABC, Generic[ContextT]):
    """One provider's wire format.

    The server first calls `route`, which says whether the format has this path and whether it calls
    the model. Then it calls `unknown_caller`. Then it calls either `other`, or `refuse`, `ask` and,
    after the model has replied, `answer`. `models`: limits of models, which override the table of
    this package.
    """

    checks: ClassVar[Sequence[Check[Any]]] = ()
    kinds: ClassVar[Mapping[int, str]] = {}
    """An HTTP status -> the kind of error. For others it is `server_kind` from 500 on, or
    `client_kind`."""
    client_kind: ClassVar[str] = "invalid_request_error"
    server_kind: ClassVar[str] = "server_error"
    fault_kind: ClassVar[str] = "server_error"
    """The kind of an error in the middle of a stream, if the reply has none."""
    fault_texts: ClassVar[Mapping[str, str]]
    """The kind of an error -> its text, if the reply has none. The key "" is for other kinds."""
    words: ClassVar[Mapping[str, str]] = {}
    """Anthropic's error types, which replies may use in any format -> this format's error types."""
    error_event: ClassVar[str | None] = None
    """The name of the event for an error in the middle of a stream; None: it has no name."""
    id_header: ClassVar[str] = "x-request-id"
    json_type: ClassVar[str] = "application/json"
    key_headers: ClassVar[Sequence[str]] = ("authorization", "api-key")
    no_key: ClassVar[Refusal]
    unlisted: ClassVar[ModelLimits] = ModelLimits(ceiling=DEFAULT_CEILING, thinking="adaptive")
    """The limits of a model that is not in the table."""

    def __init__(self, models: Mapping[str, ModelLimits]) -> None:
        self.models = models
        self._numbers = count(1)

    # -- what a format defines

    @abstractmethod
    def route(self, method: str, path: str) -> Route | None:
        """Return "model" if a path calls the model, else "other"; None: no path of this format."""

    @abstractmethod
    def context(self, request: Recorded) -> ContextT:
        """Parse a request. Any content is accepted, even if it is invalid."""

    @abstractmethod
    def ask(self, context: ContextT) -> Ask:
        """Return an accepted request in the form for the simulated model."""

    @abstractmethod
    def write(self, context: ContextT, reply: Reply) -> Json | Iterable[Event]:
        """Return the model's reply as events if the request is for a stream, or else as a body."""

    @abstractmethod
    def error_body(self, refusal: Refusal, scenario: Scenario) -> Any:
        """Return the JSON of an error in the provider's form."""

    @abstractmethod
    def other(self, request: Recorded) -> Answer:
        """Return the answer to a request that does not call the model. It has a key."""

    def error_events(self, refusal: Refusal, scenario: Scenario, number: int) -> Sequence[Event]:
        """Return an error in the middle of a stream, as events that replace event `number`."""
        return [Event(self.error_event, compact(self.error_body(refusal, scenario)))]

    def forget(self) -> None:
        """Drop all state of earlier requests."""

    # -- refusals

    def refuse(self, context: ContextT) -> Answer | None:
        """Return the provider's error for this request; None: the request is accepted."""
        request = context.request
        refusal = next(chain.from_iterable(check(context) for check in self.checks), None)
        refusal = _NO_JSON if request.body is None else refusal
        if refusal is None:
            return None
        return self.refused(Refusal(refusal) if isinstance(refusal, str) else refusal, request)

    def unknown_caller(self, request: Recorded) -> Refusal | None:
        """Return the refusal of a request without a key; None: it has a key, right or wrong."""
        has_key = any(request.headers.get(name) for name in self.key_headers)
        return None if has_key else self.no_key

    def refused(
        self, refusal: Refusal, request: Recorded, headers: Mapping[str, str] | None = None
    ) -> Answer:
        body = self.error_body(refusal, request.scenario)
        return self.json(refusal.status, body, headers)

    def kind_of(self, refusal: Refusal) -> str:
        """Return a refusal's kind, or the kind for its status."""
        usual = self.server_kind if refusal.status >= 500 else self.client_kind
        return refusal.kind or self.kinds.get(refusal.status, usual)

    def limits(self, name: str, scenario: Scenario) -> tuple[ModelLimits, bool]:
        """Return a model's limits in a scenario, and whether the model is known."""
        listed = self.models.get(name) or find(name)
        model = listed or self.unlisted
        lower = model if scenario.ceiling is None else replace(model, ceiling=scenario.ceiling)
        return lower, listed is not None

    # -- answers

    def answer(self, context: ContextT, reply: Reply) -> Answer:
        """Return the model's reply as an HTTP answer: as events if the request is for a stream."""
        if (raw := reply.raw_body) is not None:
            if not isinstance(raw, bytes):
                raw = (raw if isinstance(raw, str) else json.dumps(raw)).encode()
            return Answer(reply.status, self._headers(self.json_type, reply.headers), raw)
        if reply.overflow:
            return self._overflow(context)
        if reply.status != 200 or (reply.error_after is not None and not context.streamed):
            return self.refused(self._fault(reply), context.request, reply.headers)
        written = self.write(context, reply)
        if isinstance(written, dict):
            return self.json(200, written, reply.headers)
        sent = list(islice(written, reply.error_after))
        if reply.error_after is not None:
            sent += self.error_events(self._fault(reply), context.scenario, len(sent))
        return self.stream(context, sent, reply.headers)

    def _overflow(self, context: ContextT) -> Answer:
        """Refuse a request as one that is larger than its model's context window."""
        # OpenAI subtracts the ceiling of a reasoning model before it compares the prompt.
        for window in (1, context.model.ceiling + 1):
            context.model = replace(context.model, window=window)
            if (refused := self.refuse(context)) is not None:
                return refused
        return self.refused(Refusal("The request exceeds the context window."), context.request)

    def _fault(self, reply: Reply) -> Refusal:
        """Return the error of a reply. A status of 200 is replaced by that of the error's kind."""
        kind, text = reply.error or (None, "")
        kind, status = self.words.get(kind or "", kind), reply.status
        if status == 200:
            kind = kind or self.fault_kind
            status = next((code for code, name in self.kinds.items() if name == kind), 500)
        kind = kind or self.kind_of(Refusal("", status))
        return Refusal(
            text or self.fault_texts.get(kind, self.fault_texts.get("", kind)), status, kind
        )

    def stream(
        self, context: ContextT, events: Sequence[Event], headers: Mapping[str, str]
    ) -> Answer:
        del context  # it is for formats in which the framing depends on the request
        head = self._headers("text/event-stream; charset=utf-8", headers)
        return Answer(200, {"cache-control": "no-cache", **head}, events=events)

    def json(self, status: int, value: Any, headers: Mapping[str, str] | None = None) -> Answer:
        head = self._headers(self.json_type, headers or {})
        return Answer(status, head, compact(value).encode())

    def _headers(self, content_type: str, headers: Mapping[str, str]) -> Mapping[str, str]:
        named = {self.id_header: self.new_id("req")} if self.id_header else {}
        return {"content-type": content_type, **named, **headers}

    def new_id(self, prefix: str, joint: str = "_") -> str:
        """Return an id that this format has not returned before."""
        return f"{prefix}{joint}sim{next(self._numbers):021d}"
