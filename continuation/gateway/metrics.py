"""Metrics for Prometheus at `/metrics`, counted from the events of turns. No text, no keys.

A name from a caller or a provider is a label only if it is among the first hundred of its kind.
Otherwise new model names in each request would fill our memory, and that of Prometheus.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from continuation.reports.report import ChainStore, Event, Finished, Report

MOST_SERIES = 1_000
"""The most combinations of labels of turns. Later ones have the model and reason "other"."""
MOST = 100
"""How many names of each kind are labels. The label of all others is "other"."""
_MAX_LENGTH = 100
_NUMBER = re.compile(r"(?<!status )\b\d[\d,.]*")
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_OWN_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)


class LabelValues:
    """The values that one label may have: the first hundred."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def label(self, value: str | None) -> str:
        """Return the label for a value: itself, "other", or "" for `None`."""
        if not value or value in self._known:
            return value or ""
        if len(self._known) >= MOST or len(value) > _MAX_LENGTH:
            return "other"
        self._known.add(value)
        return value


class Metrics:
    """The metrics of one gateway, in its own registry."""

    content_type: ClassVar[bytes] = b"text/plain; version=0.0.4; charset=utf-8"

    def __init__(self, streams: Callable[[], float]) -> None:
        """Begin with nothing. `streams`: returns how many answers are running."""
        self._registry = registry = CollectorRegistry()
        self._series: set[tuple[str, ...]] = set()
        self._models, self._reasons, self._stops = LabelValues(), LabelValues(), LabelValues()

        def counter(name: str, help_: str, *labels: str) -> Counter:
            return Counter(f"continuation_{name}", help_, labels, registry=registry)

        def histogram(name: str, help_: str, label: str, buckets: tuple[float, ...]) -> Histogram:
            name = f"continuation_{name}_seconds"
            return Histogram(name, help_, [label], registry=registry, buckets=buckets)

        self._turns = counter("turns", "Finished turns", "dialect", "model", "outcome", "reason")
        self._endings = counter(
            "endings", "How the answers of finished turns ended", "ending", "outcome"
        )
        self._attempts = counter(
            "attempts", "Requests sent to upstreams for finished turns", "mode", "stop_reason"
        )
        self._tokens = counter("tokens", "Tokens of finished turns", "direction", "kind")
        self._seconds = histogram(
            "turn", "Seconds from the request to the end of the answer", "dialect", _SECONDS
        )
        self.first = histogram(
            "first_event",
            "Seconds from the request to the first event of the answer",
            "dialect",
            _SECONDS,
        )
        self._held = histogram(
            "held", "Seconds that the start of a later attempt was buffered", "dialect", _SECONDS
        )
        self.own = histogram(
            "own",
            "Seconds of a turn that the gateway itself needed",
            "dialect",
            _OWN_SECONDS,
        )
        self.gone = counter(
            "client_gone", "Callers that disconnected before the end of their answer", "phase"
        )
        self.pings = counter("pings", "Keep-alive events sent in silent streams")
        self._store = histogram(
            "store", "Seconds of each read or write of a chain store", "op", _OWN_SECONDS
        )
        self._store_errors = counter(
            "store_errors", "Reads and writes of a chain store that failed or timed out", "op"
        )
        under_way = Gauge("continuation_streams", "Streams that are running", registry=registry)
        under_way.set_function(streams)

    def count(self, event: Event) -> None:
        """Count an event of a turn."""
        if isinstance(event, Finished):
            self._ended(event.report)
        elif isinstance(event, ChainStore):
            self._store.labels(event.operation).observe(event.seconds)
            if event.error is not None:
                self._store_errors.labels(event.operation).inc()

    def _ended(self, report: Report) -> None:
        # Reasons are our own texts. The limits in some of them would make too many labels.
        reason = self._reasons.label(_NUMBER.sub("N", report.reason or ""))
        model = self._models.label(report.model)
        series = report.dialect, model, report.outcome, reason
        if series not in self._series and len(self._series) >= MOST_SERIES:
            series = report.dialect, "other", report.outcome, "other"
        self._series.add(series)
        self._turns.labels(*series).inc()
        self._endings.labels(report.ending or "unknown", report.outcome).inc()
        held = 0.0
        for attempt in report.attempts:
            stop = self._stops.label(attempt.stop or attempt.error)
            self._attempts.labels(attempt.mode, stop).inc()
            held += 0.0 if attempt.shown is None else max(0.0, attempt.shown - attempt.begun)
        for kind, usage in (("delivered", report.turn), ("billed", report.billed)):
            self._tokens.labels("input", kind).inc(usage.prompt or 0)
            self._tokens.labels("output", kind).inc(usage.output or 0)
        self._seconds.labels(report.dialect).observe(report.seconds)
        if len(report.attempts) > 1:
            self._held.labels(report.dialect).observe(held)

    def text(self) -> bytes:
        """Return all metrics in the text exposition format."""
        return generate_latest(self._registry)
