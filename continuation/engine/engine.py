"""What the turns of one client share: policy, what was learned, who listens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from continuation.config import Config, load
from continuation.config.overrides import current
from continuation.dialect import Dialect
from continuation.engine.turn import Turn
from continuation.limits import Learned
from continuation.policy import Policy, changed, file_of
from continuation.reports.report import OnEvent, Recorder
from continuation.reports.tracing import begin as trace
from continuation.types import Request


class Engine:
    """Begins turns."""

    def __init__(
        self,
        dialects: tuple[Dialect, ...],
        config: Config | Policy,
        on_event: OnEvent | None,
        now: Callable[[], float],
    ) -> None:
        self.config = load(config)
        self.learned = Learned()
        if kept := self.config.policy_for("").learned_file:
            from continuation.limits.learned_file import Memory  # hardly anybody wants it

            Memory(file_of(kept), self.learned).attach()
        self._dialects = dialects
        self._on_event = on_event
        self._now = now

    def claims(self, method: str, path: str) -> Dialect | None:
        """Return the dialect that knows this request, if one does."""
        return next((d for d in self._dialects if d.claims(method, path)), None)

    def begin(
        self,
        dialect: Dialect,
        request: Request,
        timeout: float | None,
        asked: Mapping[str, Any] | None = None,
    ) -> Turn:
        """Begin a turn. `timeout` is the caller's read timeout in seconds, if any.

        `asked`: policies for this call only; `None`: what `override` says here.
        """
        said = current() if asked is None else asked
        recorder = Recorder(dialect.name, self._on_event, self._now)
        turn = Turn(
            dialect, lambda model: self._policy(model, said), self.learned, recorder, self._now
        )
        if vendor := self.config.vendor(request.host + request.path):
            request = replace(request, server=vendor.settings)
        turn.read(request, timeout)
        if spans := trace(turn.policy.tracing, request.headers):
            recorder.then = spans.finish
        return turn

    def _policy(self, model: str, said: Mapping[str, Any]) -> Policy:
        policy = self.config.policy_for(model)
        return changed(policy, said) if said else policy
