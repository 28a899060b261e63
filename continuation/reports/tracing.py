"""Makes OpenTelemetry spans from a turn's report: one for the turn, and one for each attempt.

It also records the metric `gen_ai.client.token.usage` of the GenAI conventions. That counts the
billed tokens, including those of discarded attempts, because the conventions say that billable
tokens must be reported if they differ from used ones
(opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics).

This module uses only the OpenTelemetry API. With `tracing = "auto"` it runs only if the program has
imported that API and set a provider. Names are those of the GenAI conventions. An SDK that traces
itself already has a span for the call, with operation and usage. Our spans under such a span have
neither, so that a sum over spans counts each token once. They have `continuation.usage.*` instead.
No span has message text or a key.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from continuation.logs import line
from continuation.registry import shapes
from continuation.types import Outcome, Usage

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, MeterProvider
    from opentelemetry.trace import Tracer

    from continuation.ledger import Attempt
    from continuation.reports.report import Report

logger = logging.getLogger("continuation")

SCOPE = "continuation"
"""The instrumentation scope of our spans."""
_TOKEN_BUCKETS = [4**power for power in range(14)]
"""The bucket boundaries that the conventions recommend for tokens."""


class TurnSpans:
    """The spans of one turn. `finish` makes all of them.

    Their parent is the span that was current when this object was made.
    """

    def __init__(self, tracer: Tracer, headers: Mapping[str, str]) -> None:
        from opentelemetry import context, trace

        self._tracer = tracer
        self._began = time.time_ns()
        self._context = context.get_current()
        self._nested = _is_call(trace.get_current_span(), headers)

    def finish(self, report: Report) -> None:
        """Make the spans of the turn and its attempts, and count its tokens."""
        from opentelemetry import trace

        stops = None if report.stop is None else (report.stop,)
        turn = self._tracer.start_span(
            f"continuation {report.model or ''}".strip(),
            context=self._context,
            attributes=_without_none(
                {
                    "gen_ai.provider.name": _provider(report.dialect),
                    "gen_ai.request.model": report.model,
                    "gen_ai.response.finish_reasons": stops,
                    "continuation.outcome": str(report.outcome),
                    "continuation.reason": report.reason,
                    "continuation.synthetic": report.synthetic,
                    "continuation.attempts": len(report.attempts),
                    "continuation.seams": len(report.seams),
                    "continuation.billed.input_tokens": report.billed.prompt,
                    "continuation.billed.output_tokens": report.billed.output,
                    "continuation.discarded.output_tokens": report.discarded.output,
                }
            ),
            start_time=self._began,
        )
        if report.outcome is Outcome.FAILED:
            _fail(turn, report.error or "error")
        within = trace.set_span_in_context(turn, self._context)
        for attempt in report.attempts:
            self._attempt(attempt, report, within)
        turn.end(end_time=self._at(report.seconds))
        if not self._nested:
            _count(report)

    def _attempt(self, attempt: Attempt, report: Report, within: Any) -> None:
        from opentelemetry.trace import SpanKind

        nested, usage = self._nested, attempt.usage or Usage()
        prefix = "continuation.usage" if nested else "gen_ai.usage"
        stops = None if attempt.stop is None else (attempt.stop,)
        span = self._tracer.start_span(
            f"{'attempt' if nested else 'chat'} {report.model or ''}".strip(),
            context=within,
            kind=SpanKind.INTERNAL if nested else SpanKind.CLIENT,
            attributes=_without_none(
                {
                    "gen_ai.operation.name": None if nested else "chat",
                    "gen_ai.provider.name": _provider(report.dialect),
                    "gen_ai.request.model": report.model,
                    "gen_ai.request.max_tokens": attempt.limit,
                    "gen_ai.response.finish_reasons": stops,
                    f"{prefix}.input_tokens": usage.prompt,
                    f"{prefix}.cache_read.input_tokens": usage.cached,
                    f"{prefix}.cache_write.input_tokens": usage.cache_write,
                    f"{prefix}.output_tokens": usage.output,
                    f"{prefix}.reasoning.output_tokens": usage.thinking,
                    "continuation.attempt": attempt.number,
                    "continuation.mode": str(attempt.mode),
                    "continuation.discarded": attempt.discarded,
                    "continuation.estimated": attempt.estimated or None,
                    "continuation.request_id": attempt.request_id,
                }
            ),
            start_time=self._at(attempt.begun),
        )
        if attempt.error is not None:
            _fail(span, attempt.error)
        span.end(end_time=self._at(attempt.begun + attempt.seconds))

    def _at(self, seconds: float) -> int:
        return self._began + int(seconds * 1_000_000_000)


def _provider(dialect: str) -> str:
    """Return the conventions' name of a dialect's provider, or else the dialect's name."""
    shape = shapes().get(dialect)
    return (shape and shape.telemetry) or dialect


@cache
def _token_usage(provider: MeterProvider) -> Histogram:
    return provider.get_meter(SCOPE).create_histogram(
        "gen_ai.client.token.usage",
        unit="{token}",
        description="Number of input and output tokens used.",
        explicit_bucket_boundaries_advisory=_TOKEN_BUCKETS,
    )


def _count(report: Report) -> None:
    """Record the billed tokens. Without a meter provider this does nothing."""
    from opentelemetry import metrics

    usage, billed = _token_usage(metrics.get_meter_provider()), report.billed
    for kind, count in (("input", billed.prompt), ("output", billed.output)):
        if count is not None:
            attributes = {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": _provider(report.dialect),
                "gen_ai.request.model": report.model,
                "gen_ai.token.type": kind,
                "server.address": report.host,
                "error.type": report.error if report.outcome is Outcome.FAILED else None,
            }
            usage.record(count, _without_none(attributes))


_logged: set[str] = set()
"""The reasons for missing spans that were logged. Each is logged once."""


def begin(headers: Mapping[str, str], *, always: bool) -> TurnSpans | None:
    """Begin to trace a turn; `None`: it is not traced. Never raises.

    `always`: trace even if no provider of spans or metrics is set. `headers`: the request's
    headers, with lower-case names.
    """
    try:
        from opentelemetry import metrics, trace

        from continuation import __version__

        provider, meters = trace.get_tracer_provider(), metrics.get_meter_provider()
        unset = isinstance(provider, trace.ProxyTracerProvider) and (
            type(meters).__name__ == "_ProxyMeterProvider"  # the API has no public name for it
        )
        if unset and not always:
            return None
        return TurnSpans(provider.get_tracer(SCOPE, __version__), headers)
    except Exception as error:  # an error of tracing must not break the answer
        reason = f"{type(error).__name__}: {error}"
        if reason not in _logged:
            _logged.add(reason)
            logger.warning("%s", line("spans unavailable", reason=reason))
        return None


def _is_call(span: Any, headers: Mapping[str, str]) -> bool:
    """Whether the current span describes this call, because the SDK traces itself."""
    attributes: Any = getattr(span, "attributes", None) or {}
    if any(str(name).startswith("gen_ai.") for name in attributes):
        return True
    sent = headers.get("traceparent", "").split("-")
    return len(sent) == 4 and sent[2] == f"{span.get_span_context().span_id:016x}"


def _fail(span: Any, error: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", error)
    span.set_status(Status(StatusCode.ERROR))


def _without_none(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
