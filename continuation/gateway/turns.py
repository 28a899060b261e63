"""The reports of the last turns, and a line in the log for each."""

from __future__ import annotations

import json
import logging
import zlib
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from functools import partial
from time import time
from typing import Any, NamedTuple
from uuid import uuid4

from continuation.gateway.metrics import Metrics
from continuation.reports.report import Event, Finished, OnEvent, Recorder, Report
from continuation.types import Outcome

logger = logging.getLogger("continuation.turns")

MOST = 10_000
"""How many turns are kept. Then the oldest is removed."""
MOST_BYTES = 64 << 20
"""The most bytes of these turns' compressed reports."""


SHOWN = 20
"""How many ended turns, and how many failures, the page shows."""
_MOST_CHARACTERS = 400
"""The most characters of a provider's message."""
GOOD = frozenset({Outcome.COMPLETE, Outcome.HEALED, Outcome.UNTOUCHED})


class Ended(NamedTuple):
    """A turn that has ended."""

    at: float
    """Its end, in seconds since 1970."""
    name: str
    upstream: str
    report: Report


def _plain(value: Any) -> dict[str, Any]:
    """Return the fields of a report, or of an object in it, without copying their values."""
    return {item: getattr(value, item) for item in value.__slots__}


class Turns:
    """The compressed reports of the last turns. They have no text and no keys."""

    def __init__(self, metrics: Metrics) -> None:
        """Begin. `metrics` also counts each turn."""
        self.live: dict[str, tuple[str, Recorder]] = {}
        """The running turns, by id: upstream, and what is known so far."""
        self.texts: dict[str, Callable[[], str]] = {}
        """By id, a function that returns the end of a turn's text, if that may be shown."""
        self.ended: deque[Ended] = deque(maxlen=SHOWN)
        """The last turns that ended."""
        self.failures: OrderedDict[tuple[object, ...], tuple[int, Ended]] = OrderedDict()
        """The last turns with an outcome not in `GOOD`. Of equal ones: their number, the last."""
        self.messages: dict[str, str] = {}
        """By id, the beginning of a provider's message about a refused request, if it is shown."""
        self._minutes: deque[tuple[int, Counter[str]]] = deque(maxlen=60)
        self._reports: OrderedDict[str, bytes | None] = OrderedDict()
        self._size = 0
        self._metrics = metrics

    @property
    def ids(self) -> list[str]:
        """The ids of the turns, the oldest first."""
        return [*self._reports]

    def begin(self, upstream: str) -> tuple[str, OnEvent]:
        """Begin a turn; return its id, and the listener for its events."""
        name = uuid4().hex
        self._reports[name] = None
        if len(self._reports) > MOST:
            self._drop_oldest()
        return name, partial(self._note, name, upstream)

    def _drop_oldest(self) -> None:
        _, packed = self._reports.popitem(last=False)
        self._size -= len(packed or b"")

    def forget(self, name: str) -> bool:
        """Drop a turn without a report, because it did not begin; return whether it has one."""
        if self._reports.get(name) is None:
            self._reports.pop(name, None)
            return False
        return True

    def _note(self, name: str, upstream: str, event: Event) -> None:
        self._metrics.count(event)
        if not isinstance(event, Finished):
            return
        report = event.report
        usages = {"turn": report.turn, "billed": report.billed, "discarded": report.discarded}
        fields = {"turn_id": name, "upstream": upstream, **_plain(report), **usages}
        line = json.dumps(fields, separators=(",", ":"), default=_plain)
        if name in self._reports:
            packed = self._reports[name] = zlib.compress(line.encode(), 1)
            self._size += len(packed)
            while self._size > MOST_BYTES:
                self._drop_oldest()
        logger.info(line)
        self._look_back(Ended(time(), name, upstream, report))

    def _look_back(self, turn: Ended) -> None:
        """Keep what the page shows about an ended turn."""
        self.live.pop(turn.name, None)
        self.texts.pop(turn.name, None)
        self.ended.append(turn)
        report, minute = turn.report, int(turn.at // 60)
        if report.outcome not in GOOD:
            self._fail(turn)
        if not self._minutes or self._minutes[-1][0] != minute:
            self._minutes.append((minute, Counter()))
        counts = self._minutes[-1][1]
        counts[report.outcome] += 1
        for kind, usage in (("delivered", report.turn), ("billed", report.billed)):
            counts[f"{kind} in"] += usage.prompt or 0
            counts[f"{kind} out"] += usage.output or 0
            counts[f"{kind} estimated"] += usage.estimated

    def _fail(self, turn: Ended) -> None:
        report = turn.report
        alike = turn.upstream, report.model, report.outcome, report.reason, report.error
        count, _ = self.failures.pop(alike, (0, turn))
        self.failures[alike] = count + 1, turn
        if len(self.failures) > SHOWN:
            self.failures.popitem(last=False)

    def keep_message(self, name: str, message: str) -> None:
        """Keep the beginning of a provider's message about a refused request, while it is shown."""
        shown = {turn.name for _, turn in self.failures.values()}
        kept = self.messages.items()
        self.messages = {each: text for each, text in kept if each in shown}
        self.messages[name] = message[:_MOST_CHARACTERS]

    @property
    def hour(self) -> Counter[str]:
        """How many turns of each outcome ended in the last hour, and their tokens."""
        since = int(time() // 60) - 60
        return sum((counts for at, counts in self._minutes if at > since), Counter[str]())

    def find(self, name: str) -> dict[str, Any] | None:
        """Return a turn's report; `outcome` is `None` while it runs. `None`: the id is unknown."""
        if name not in self._reports:
            return None
        packed = self._reports[name]
        if packed is None:
            return {"turn_id": name, "outcome": None}
        record: dict[str, Any] = json.loads(zlib.decompress(packed))
        return record
