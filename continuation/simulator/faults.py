"""What goes wrong on the provider's side: a scenario's faults, put onto the reply they strike."""

from __future__ import annotations

import threading
from dataclasses import replace

from continuation.simulator.scenario import Reply, Scenario


class Attempts:
    """Counts the model calls of each conversation, from 1."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def next(self, key: str) -> int:
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + 1
            return self._counts[key]

    def forget(self) -> None:
        with self._lock:
            self._counts.clear()


def refusal(scenario: Scenario, attempt: int) -> Reply | None:
    """Give the HTTP error this attempt is to meet, if any."""
    status = scenario.status.get(attempt)
    return None if status is None else Reply(status=status, headers=_retry_headers(scenario))


def struck(reply: Reply, scenario: Scenario, attempt: int) -> Reply:
    """Put the faults that strike within this attempt's answer onto it."""
    return replace(
        reply, drop=scenario.drop.get(attempt), error_after=scenario.error_event.get(attempt)
    )


def _retry_headers(scenario: Scenario) -> dict[str, str]:
    asked = {"retry-after": scenario.retry_after, "retry-after-ms": scenario.retry_after_ms}
    return {name: f"{value:g}" for name, value in asked.items() if value is not None}
