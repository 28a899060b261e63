"""The reports of the last turns, and a line in the log for each."""

from __future__ import annotations

import json
import logging
import zlib
from collections import OrderedDict
from functools import partial
from typing import Any
from uuid import uuid4

from continuation.gateway.metrics import Metrics
from continuation.reports.report import Event, Finished, OnEvent

logger = logging.getLogger("continuation.turns")

MOST = 10_000
"""So many turns are known; the oldest goes first."""


def _plain(value: Any) -> dict[str, Any]:
    """Return the fields of a report, or of what stands in one, without a copy of all below."""
    return {item: getattr(value, item) for item in value.__slots__}


class Turns:
    """What is known of the last turns, packed: never text, never keys."""

    def __init__(self, metrics: Metrics) -> None:
        """Begin; `metrics` hears of each turn as well."""
        self._kept: OrderedDict[str, bytes | None] = OrderedDict()
        self._metrics = metrics

    @property
    def known(self) -> list[str]:
        """The ids of the turns, the oldest first."""
        return [*self._kept]

    def begin(self, upstream: str) -> tuple[str, OnEvent]:
        """Begin a turn: its id, and what is to be told of its events."""
        name = uuid4().hex
        self._kept[name] = None
        if len(self._kept) > MOST:
            self._kept.popitem(last=False)
        return name, partial(self._note, name, upstream)

    def _note(self, name: str, upstream: str, event: Event) -> None:
        self._metrics.hear(event)
        if not isinstance(event, Finished):
            return
        report = event.report
        usages = {"turn": report.turn, "billed": report.billed, "discarded": report.discarded}
        told = {"turn_id": name, "upstream": upstream, **_plain(report), **usages}
        line = json.dumps(told, separators=(",", ":"), default=_plain)
        if name in self._kept:
            self._kept[name] = zlib.compress(line.encode(), 1)
        logger.info(line)

    def find(self, name: str) -> dict[str, Any] | None:
        """Return what is known of a turn; `None`: nothing."""
        if name not in self._kept:
            return None
        packed = self._kept[name]
        if packed is None:
            return {"turn_id": name, "outcome": None}
        found: dict[str, Any] = json.loads(zlib.decompress(packed))
        return found
