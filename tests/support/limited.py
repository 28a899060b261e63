"""A simulated provider with a rate limit: so many requests a second, and so many at once."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from continuation.simulator import Reply, Scenario, Simulator
from continuation.simulator.model import Ask


@dataclass
class Bucket:
    """A token bucket: `rate` tokens a second, at most `burst`; a request takes one or waits."""

    rate: float
    burst: int
    hint: str = "retry-after-ms"
    """The header that states how long to wait; `""` for none."""
    refused: int = 0
    _left: float = field(init=False)
    _at: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._left = self.burst

    def take(self) -> float:
        """Take a token and return 0.0, or return the seconds until there is one."""
        with self._lock:
            now = time.monotonic()
            self._left = min(self.burst, self._left + (now - self._at) * self.rate)
            self._at = now
            if self._left >= 1:
                self._left -= 1
                return 0.0
            self.refused += 1
            return (1 - self._left) / self.rate


class Limited(Simulator):
    """Refuses with 429 what comes faster than its bucket allows."""

    def __init__(self, answer: str, bucket: Bucket, scenario: Scenario | None = None) -> None:
        super().__init__(answer, scenario)
        self.bucket = bucket

    def _reply(self, ask: Ask, scenario: Scenario, attempt: int) -> Reply:
        if not (seconds := self.bucket.take()):
            return super()._reply(ask, scenario, attempt)
        told: dict[str, Any] = {
            "retry-after-ms": f"{seconds * 1000:.0f}",
            "retry-after": f"{math.ceil(seconds)}",
        }
        hint = {name: value for name, value in told.items() if name == self.bucket.hint}
        return Reply(status=429, headers=hint)
