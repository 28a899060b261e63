"""Spans through the OpenTelemetry API: one per turn, its attempts in it, nothing counted twice."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import anthropic
import pytest
from opentelemetry import context as otel_context
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, TraceFlags
from support.sdks.messages import ask, run
from support.sdks.turn import FAST, HOWS, How

import continuation
from continuation import Policy
from continuation.reports import tracing
from continuation.simulator import Reply, Scenario, Simulator, Text

WORDS, SECRET = "Bernstein", "sk-ant-very-secret"
CUT = Reply([Text(f"{WORDS}, ")], stop="max_tokens", usage={"output_tokens": 1000})
REST = Reply([Text("two.")], usage={"output_tokens": 7})


class Span(trace.NonRecordingSpan):
    """A span that remembers what it was told."""

    def __init__(self, number: int, name: str, scope: str, options: Mapping[str, Any]) -> None:
        super().__init__(SpanContext(7, number, is_remote=False, trace_flags=TraceFlags(1)))
        self.name, self.scope = name, scope
        self.parent = trace.get_current_span(options.get("context"))
        self.kind = options.get("kind", SpanKind.INTERNAL)
        self.attributes: dict[str, Any] = dict(options.get("attributes") or {})
        self.started = options.get("start_time")
        self.ended: int | None = None
        self.status: Any = None

    def is_recording(self) -> bool:
        return True

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        self.attributes.update(attributes)

    def set_status(self, status: Any, description: str | None = None) -> None:
        self.status = getattr(status, "status_code", status)

    def end(self, end_time: int | None = None) -> None:
        self.ended = end_time or -1


class Provider(trace.TracerProvider):
    """Keeps every span, in the order they were started."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.scopes: set[tuple[str, str | None]] = set()

    def get_tracer(
        self,
        instrumenting_module_name: str,
        instrumenting_library_version: str | None = None,
        *_: Any,
        **__: Any,
    ) -> trace.Tracer:
        self.scopes.add((instrumenting_module_name, instrumenting_library_version))
        return Tracer(self, instrumenting_module_name)

    def of(self, scope: str) -> list[Span]:
        return [span for span in self.spans if span.scope == scope]


class Tracer(trace.NoOpTracer):
    def __init__(self, provider: Provider, scope: str) -> None:
        self._provider, self._scope = provider, scope

    def start_span(self, name: str, *_: Any, **options: Any) -> Span:
        span = Span(len(self._provider.spans) + 1, name, self._scope, options)
        self._provider.spans.append(span)
        return span


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Provider:
    made = Provider()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: made)
    return made


def turn(sim: Simulator, policy: Policy = FAST, **options: Any) -> None:
    """Run one turn on an SDK client that does not trace by itself, unless `options` say so."""
    given = {"api_key": SECRET, "max_retries": 0, "open_telemetry": False, **options}
    with anthropic.Anthropic(base_url=sim.url, **given) as bare:
        client = continuation.wrap(bare, config=policy)
        client.messages.create(**ask(messages=[{"role": "user", "content": WORDS}]), timeout=600)


# --- what is told ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
def test_a_turn_is_one_span_and_its_attempts_are_its_children(
    sim: Simulator, provider: Provider, how: How, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_OPEN_TELEMETRY", "false")
    sim.script([CUT, REST])
    ran = run(sim, how)
    first, *attempts = provider.of("continuation")
    assert first.name == "continuation claude-opus-5"
    assert (first.kind, first.parent.get_span_context().is_valid) == (SpanKind.INTERNAL, False)
    assert [(a.name, a.kind, a.parent.get_span_context().span_id) for a in attempts] == [
        ("chat claude-opus-5", SpanKind.CLIENT, first.get_span_context().span_id)
    ] * 2
    assert first.attributes["continuation.outcome"] == "healed"
    assert first.attributes["continuation.attempts"] == 2
    assert [a.attributes["continuation.discarded"] for a in attempts] == [
        attempt.discarded for attempt in ran.told.attempts
    ]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/messages", "anthropic"),
        ("/v1/chat/completions", "openai"),
        ("/v1/responses", "openai"),
        ("/v1beta/models/gemini-3.6-flash:generateContent", "gcp.gemini"),
    ],
)
def test_each_format_has_the_conventions_name_of_its_provider(
    path: str, name: str, provider: Provider
) -> None:
    with Simulator(scenario=Scenario(any_model=True)) as sim, continuation.http_client() as client:
        asked = {"model": "m", "max_tokens": 1000, "messages": [{"role": "user", "content": "Go."}]}
        contents = [{"role": "user", "parts": [{"text": "Go."}]}]
        body = {"contents": contents} if "gemini" in path else {"input": "Go.", **asked}
        client.post(f"{sim.url}{path}", json=body, headers={"x-api-key": "k"})
    assert {s.attributes["gen_ai.provider.name"] for s in provider.of("continuation")} == {name}


def test_names_and_counts_are_those_of_the_genai_conventions(
    sim: Simulator, provider: Provider
) -> None:
    sim.script([CUT, REST])
    turn(sim)
    first, cut, rest = provider.of("continuation")
    assert first.attributes["gen_ai.provider.name"] == "anthropic"
    assert first.attributes["gen_ai.request.model"] == "claude-opus-5"
    assert first.attributes["gen_ai.response.finish_reasons"] == ("end_turn",)
    assert "gen_ai.operation.name" not in first.attributes
    assert not any(name.startswith("gen_ai.usage") for name in first.attributes)
    assert cut.attributes["gen_ai.operation.name"] == "chat"
    assert cut.attributes["gen_ai.request.max_tokens"] == 1000
    assert cut.attributes["gen_ai.response.finish_reasons"] == ("max_tokens",)
    used = [span.attributes["gen_ai.usage.output_tokens"] for span in (cut, rest)]
    assert used == [1000, 7]
    assert first.attributes["continuation.billed.output_tokens"] == sum(used)
    assert first.attributes["continuation.discarded.output_tokens"] == 1000
    values = [v for span in (first, cut, rest) for v in span.attributes.values()]
    assert {type(v) for v in values} <= {str, int, bool, float, tuple}, "what the API takes"
    assert provider.scopes == {("continuation", continuation.__version__)}
    marks = [first.started, cut.started, cut.ended, rest.started, rest.ended, first.ended]
    known = [mark for mark in marks if mark is not None]
    assert len(known) == 6
    assert known == sorted(known), "times lie within each other, and everything is ended"


def test_an_error_is_told_by_its_kind(sim: Simulator, provider: Provider) -> None:
    sim.script([Reply(status=401, error=("authentication_error", f"bad {SECRET}"))])
    with pytest.raises(anthropic.AuthenticationError):
        turn(sim)
    spans = provider.of("continuation")
    assert [span.status for span in spans] == [StatusCode.ERROR] * 2
    assert [span.attributes["error.type"] for span in spans] == ["401", "401"]


def test_no_span_holds_text_or_a_key(sim: Simulator, provider: Provider) -> None:
    sim.script([CUT, Reply(status=400, error=("invalid_request_error", f"{WORDS} {SECRET}")), REST])
    turn(sim)
    told = repr([(span.name, span.attributes) for span in provider.of("continuation")])
    assert WORDS not in told
    assert SECRET not in told


# --- next to others -------------------------------------------------------------------------


def test_under_a_span_of_the_program_it_is_a_child(sim: Simulator, provider: Provider) -> None:
    outer = Span(99, "job", "app", {})
    sim.script([REST])
    with trace.use_span(outer):
        turn(sim)
    first, attempt = provider.of("continuation")
    assert first.parent is outer
    assert attempt.attributes["gen_ai.operation.name"] == "chat"


@pytest.mark.parametrize("propagation", [True, False])
def test_beside_the_sdks_own_span_nothing_is_counted_twice(
    sim: Simulator, provider: Provider, propagation: bool
) -> None:
    sim.script([CUT, REST])
    options = {"tracer_provider": provider, "propagation": propagation}
    turn(sim, open_telemetry=options)
    (call,) = provider.of("com.anthropic.sdk.python")
    first, *attempts = provider.of("continuation")
    assert first.parent.get_span_context() == call.get_span_context()
    counted = [s for s in provider.spans if "gen_ai.usage.output_tokens" in s.attributes]
    assert counted == [call]
    operations = [s for s in provider.spans if "gen_ai.operation.name" in s.attributes]
    assert operations == [call]
    used = [a.attributes["continuation.usage.output_tokens"] for a in attempts]
    assert used == [1000, 7]
    assert [a.kind for a in attempts] == [SpanKind.INTERNAL] * 2


def test_the_sdks_span_is_known_by_the_trace_context_it_sent() -> None:
    span = Span(255, "call", "sdk", {})
    sent = {"traceparent": f"00-{7:032x}-{255:016x}-01"}
    assert tracing._is_call(span, sent)
    assert not tracing._is_call(span, {"traceparent": f"00-{7:032x}-{1:016x}-01"})
    assert not tracing._is_call(span, {"traceparent": "nonsense"})


# --- when -----------------------------------------------------------------------------------


def test_without_a_provider_there_are_no_spans(
    sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = trace.ProxyTracerProvider()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: proxy)
    asked: list[str] = []
    monkeypatch.setattr(proxy, "get_tracer", lambda name, *_: asked.append(name))
    sim.script([REST])
    turn(sim)
    assert asked == []


def test_policy_may_switch_it_off_or_insist(sim: Simulator, provider: Provider) -> None:
    sim.script([REST, REST, REST])
    turn(sim, Policy(tracing="off"))
    assert provider.spans == []
    with continuation.override(tracing="off"):
        turn(sim)
    assert provider.spans == []
    with continuation.override(enabled=False):
        turn(sim, Policy(tracing="on"))
    first, _ = provider.of("continuation")
    assert first.attributes["continuation.reason"] == "switched off by policy"


def test_to_insist_is_to_take_even_the_providers_stand_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", trace.ProxyTracerProvider)
    assert tracing.begin({}, always=False) is None
    assert tracing.begin({}, always=True) is not None


def test_a_provider_that_fails_costs_no_answer(
    sim: Simulator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        message = "no such provider"
        raise RuntimeError(message)

    monkeypatch.setattr(trace, "get_tracer_provider", broken)
    monkeypatch.setattr(tracing, "_logged", set())
    sim.script([REST, REST])
    with caplog.at_level(logging.WARNING, "continuation"):
        turn(sim)
        turn(sim)
    assert caplog.text.count('spans unavailable: reason="RuntimeError: no such provider"') == 1


def test_a_tracer_that_fails_costs_no_answer(
    sim: Simulator, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(Tracer, "start_span", broken)
    sim.script([CUT, REST])
    turn(sim)
    report = continuation.last_report()
    assert report is not None
    assert report.outcome == "healed"


def test_a_stream_read_elsewhere_is_a_child_of_where_it_was_asked_for(
    sim: Simulator, provider: Provider
) -> None:
    outer = Span(99, "job", "app", {})
    sim.script([REST])
    with anthropic.Anthropic(base_url=sim.url, api_key="k", open_telemetry=False) as bare:
        client = continuation.wrap(bare)
        with trace.use_span(outer):
            stream = client.messages.create(**ask(stream=True))
        assert trace.get_current_span(otel_context.get_current()) is not outer
        list(stream)
    assert provider.of("continuation")[0].parent is outer


def test_without_the_api_nothing_is_imported_and_insisting_is_a_warning() -> None:
    code = (
        "import sys\n"
        "import continuation\n"
        "from continuation.ledger import Ledger\n"
        "from continuation.reports.report import Recorder\n"
        "recorder = Recorder('d', None, Ledger(float))\n"
        "recorder.trace('auto', {})\n"
        "assert not any(name.startswith('opentelemetry') for name in sys.modules)\n"
        "sys.modules['opentelemetry'] = None\n"
        "recorder.trace('on', {})\n"
        "recorder.finish('complete')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert 'spans unavailable: reason="ModuleNotFoundError' in done.stderr


# --- tokens -----------------------------------------------------------------------------------


@pytest.mark.parametrize("nested", [False, True])
def test_the_conventions_metric_of_tokens_has_what_was_billed(
    sim: Simulator, monkeypatch: pytest.MonkeyPatch, *, nested: bool
) -> None:
    """A program with metrics alone; below an SDK's span, which counts itself, there is none."""
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: meters)
    outer = Span(99, "chat", "sdk", {"attributes": {"gen_ai.system": "x"} if nested else {}})
    with trace.use_span(outer), continuation.watch() as reports:
        for _ in range(2):
            sim.script([CUT, REST])
            turn(sim)
    data = reader.get_metrics_data()
    found = [] if data is None else [*data.resource_metrics[0].scope_metrics[0].metrics]
    if nested:
        assert found == []
        return
    (metric,) = found
    assert (metric.name, metric.unit) == ("gen_ai.client.token.usage", "{token}")
    points: dict[str, Any] = {
        str((point.attributes or {})["gen_ai.token.type"]): point
        for point in metric.data.data_points
    }
    assert {kind: (point.count, point.sum) for kind, point in points.items()} == {
        "input": (2, sum(one.billed.prompt or 0 for one in reports)),
        "output": (2, 2 * 1007),  # 1000 of them were discarded
    }
    assert points["output"].explicit_bounds == tuple(4**n for n in range(14))
    named = dict(points["output"].attributes)
    assert named.pop("server.address") in sim.url
    assert named == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-opus-5",
        "gen_ai.token.type": "output",
    }
