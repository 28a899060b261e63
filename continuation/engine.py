"""What the turns of one client share: policy, what was learned, who listens."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from continuation.dialect import Dialect
from continuation.limits import Learned
from continuation.policy import Policy
from continuation.report import OnEvent, Recorder
from continuation.turn import Turn


class Engine:
    """Begins turns."""

    def __init__(
        self,
        dialects: tuple[Dialect, ...],
        policy: Policy,
        on_event: OnEvent | None,
        now: Callable[[], float],
    ) -> None:
        self.policy = policy
        self.learned = Learned()
        self._dialects = dialects
        self._on_event = on_event
        self._now = now

    def claims(self, method: str, path: str) -> Dialect | None:
        """Return the dialect that knows this request, if one does."""
        return next((d for d in self._dialects if d.claims(method, path)), None)

    def begin(
        self,
        dialect: Dialect,
        host: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        timeout: float | None,
    ) -> Turn:
        """Begin a turn. `timeout` is the caller's read timeout in seconds, if any."""
        recorder = Recorder(dialect.name, self._on_event, self._now)
        turn = Turn(dialect, self.policy, self.learned, recorder, self._now)
        turn.read(host, path, headers, body, timeout)
        return turn
