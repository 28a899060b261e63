"""Sending one attempt until it is answered: retries, lessons, and the record of each call."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import TypeAlias

from continuation.dialect import ProviderRequest
from continuation.engine.backoff import capped, pause
from continuation.engine.budget import Budget
from continuation.engine.commands import Command, Read, Reply, Script, Send, Wait
from continuation.policy import Policy
from continuation.reports.recent import request_id_in
from continuation.reports.report import Attempt, Recorder, Retrying
from continuation.types import (
    AttemptResult,
    ClassifiedError,
    ErrorKind,
    Head,
    Mode,
    Outgoing,
    StreamError,
    Way,
)

LESSONS = 2
"""How often one attempt may be repeated because its limit or its form was refused."""

_LOOKUP_SECONDS = 5.0

Build: TypeAlias = Callable[[int | None, Way], Outgoing]
"""Makes an attempt's request for a limit and a way; called again after a lesson."""

Classify: TypeAlias = Callable[[Head, bytes], ClassifiedError]
"""Says what an error answer means; the next request is built with what it teaches."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An attempt that the provider answers: with which limit, and asked in which way."""

    head: Head
    limit: int | None
    way: Way


def _limited(reply: Reply, mode: Mode) -> bool:
    """A rate limit that met an escalation: the raised limit may be its cause."""
    again = mode in {Mode.REPLACE, Mode.APPEND_TAIL}
    return again and isinstance(reply, Head) and reply.status == 429


class Attempts:
    """The upstream calls of one turn."""

    def __init__(
        self,
        policy: Policy,
        budget: Budget,
        recorder: Recorder,
        now: Callable[[], float],
    ) -> None:
        self._policy = policy
        self._budget = budget
        self._recorder = recorder
        self._now = now
        self._mark = now()
        self._mode = Mode.FIRST
        self._limit: int | None = None
        self._head: Head | None = None

    def begin(self, mode: Mode, limit: int | None) -> None:
        """An upstream call begins."""
        self._budget.sent += 1
        self._mark, self._mode, self._limit, self._head = self._now(), mode, limit, None
        self._recorder.live = self._described()

    def send(
        self, outgoing: Outgoing | None, mode: Mode, limit: int | None
    ) -> Generator[Command, Reply, Reply]:
        """Send one call; note its head."""
        self.begin(mode, limit)
        reply = yield Send(outgoing, seconds=self._budget.left)
        self._head = reply if isinstance(reply, Head) else None
        self._recorder.live = self._described()
        return reply

    def record(self, ending: AttemptResult | None = None, error: str | None = None) -> None:
        """The upstream call is over."""
        if ending is not None and ending.error is not None:
            told = isinstance(ending.error, StreamError)
            error = str(ending.error) if told else type(ending.error).__name__
        self._recorder.error = error or self._recorder.error
        self._recorder.live = None
        self._recorder.attempts.append(self._described(ending, error))

    def _described(self, ending: AttemptResult | None = None, error: str | None = None) -> Attempt:
        """Describe the call as far as it has come."""
        headers = self._head.headers if self._head is not None else dict[str, str]()
        now = self._now()
        return Attempt(
            number=self._budget.sent,
            mode=self._mode,
            limit=self._limit,
            stop=ending.raw if ending else None,
            usage=ending.usage if ending else None,
            estimated=ending.estimated if ending else False,
            request_id=request_id_in(headers),
            answer_id=(ending.id or None) if ending else None,
            seconds=now - self._mark,
            error=error,
            answered=self._head is not None and self._head.ok,
            begun=self._mark - self._recorder.started,
        )

    def discard(self, start: int, end: int | None = None) -> None:
        """Mark recorded calls whose answer is not in the turn."""
        attempts = self._recorder.attempts
        for i in range(len(attempts))[start:end]:
            attempts[i] = replace(attempts[i], discarded=True)

    def open(
        self, build: Build, classify: Classify, limit: int | None, mode: Mode, way: Way
    ) -> Generator[Command, Reply, Opened | None]:
        """Send a later attempt, its retries and lessons included; `None`: it failed for good."""
        tries, lessons = 0, LESSONS
        while True:
            reply = yield from self.send(build(limit, way), mode, limit)
            if isinstance(reply, Head) and reply.ok:
                return Opened(reply, limit, way)
            refused = yield from _refused(reply, classify)
            self.record(error=refused.error)
            if self._budget.spent(self._recorder.draft()):
                return None
            if lessons and (quota := self._budget.quota(refused, limit)) is not None:
                lessons -= 1  # no wait would make room for more
                limit = quota
            elif refused.kind is ErrorKind.RETRYABLE and tries < self._policy.max_retries:
                tries += 1
                if not (yield from self._wait(reply, refused, tries)):
                    return None
            elif _limited(reply, mode) and (smaller := self._budget.step_down(limit)):
                limit = smaller
            elif lessons and self._budget.learn(refused, limit):
                lessons -= 1
                way = Way.PROMPT if refused.kind is ErrorKind.PREFILL else way
                limit = refused.maximum or limit
            else:
                return None

    def ask_ceiling(self, call: ProviderRequest) -> Script:
        """Ask the provider for the model's ceiling, once per model and only after a cut."""
        wanted = self._policy.models_endpoint and self._policy.escalate
        outgoing = call.lookup() if wanted and not self._budget.ceiling_known else None
        if outgoing is None or self._budget.spent(self._recorder.draft()):
            return
        if not self._budget.ask_once():
            return
        reply = yield Send(outgoing, seconds=min(_LOOKUP_SECONDS, self._budget.patience))
        if isinstance(reply, Head):
            body = yield Read()
            ceiling = call.looked_up(body) if reply.ok and isinstance(body, bytes) else None
            if ceiling is not None:
                self._budget.learn_ceiling(ceiling)

    def rest(self, tries: int) -> Script:
        """Wait before a request is sent again whose answer ended in an error of the server's."""
        seconds = pause(None, max(0, tries - 1), self._policy, random.random())
        if seconds:
            yield Wait(max(0.0, min(capped(seconds), self._budget.patience)))

    def _wait(
        self, reply: Reply, refused: ClassifiedError, tries: int
    ) -> Generator[Command, Reply, bool]:
        seconds = pause(reply, tries - 1, self._policy, random.random(), refused.wait)
        if seconds is None or (seconds := capped(seconds)) >= self._budget.patience:
            return False
        self._recorder.tell(Retrying(self._budget.sent, refused.error, seconds))
        yield Wait(seconds)
        return True


def _refused(reply: Reply, classify: Classify) -> Generator[Command, Reply, ClassifiedError]:
    if not isinstance(reply, Head):
        return ClassifiedError(ErrorKind.RETRYABLE, type(reply).__name__)
    body = yield Read()
    return classify(reply, body if isinstance(body, bytes) else b"")
