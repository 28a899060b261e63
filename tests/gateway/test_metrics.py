"""`/metrics`, read with Prometheus' own parser: what turns came to, nothing of what was said."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.gateways import KEYS, MESSAGES, URLS, Served, begin, request_body, serving, until
from support.sdks.turn import cut, end

from continuation import Report
from continuation.gateway.metrics import LabelValues
from continuation.simulator import Reply, Simulator, Text

PLACE = f"/anthropic{URLS['anthropic-messages']}"
Sample = Callable[..., float]


@pytest.fixture
def fresh(provider: Simulator, tmp_path: Path) -> Iterator[Served]:
    """A gateway that has counted nothing yet."""
    more = "[gateway]\nping_seconds = 0.02\n[defaults]\nbackoff_seconds = 0.01\n"
    more += "remember_limit = false\nleave_limits_below = 9\n"
    with serving(tmp_path, provider.url, more) as found:
        yield found
    provider.reset()


def read(served: Served, headers: dict[str, str] | None = None) -> Sample:
    """Return what looks a sample up by its name and its labels; 0 for one that is not there."""
    answer = httpx2.get(f"{served.url}/metrics", headers=headers or {}).raise_for_status()
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {
        (sample.name.removeprefix("continuation_"), frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    return lambda name, **labels: found.get((name, frozenset(labels.items())), 0.0)


def ask(served: Served, **more: object) -> httpx2.Response:
    return httpx2.post(served.url + PLACE, json={**MESSAGES, **more}, headers=KEYS)


def test_turns_attempts_and_tokens_are_counted(fresh: Served, provider: Simulator) -> None:
    provider.script([cut("One, "), end("One, two.")])
    ask(fresh)
    provider.script([end("All.")])
    ask(fresh)
    provider.script([end("All.")])
    ask(fresh, max_tokens=5)
    value = read(fresh)
    told = [
        json.loads(httpx2.get(f"{fresh.url}/continuation/turns/{name}").content)
        for name in fresh.gateway.turns.ids
    ]
    read_again = [Report.from_dict(one).outcome for one in told]
    assert read_again == ["healed", "complete", "untouched"]
    labels = {"dialect": "anthropic", "model": "claude-opus-5"}
    assert value("turns_total", **labels, outcome="healed", reason="") == 1
    assert value("turns_total", **labels, outcome="complete", reason="") == 1
    # The limit that a reason names would make a label of each limit.
    small = "limit N is below leave_limits_below N"
    assert value("turns_total", **labels, outcome="untouched", reason=small) == 1
    assert value("attempts_total", mode="first", stop_reason="max_tokens") == 1
    assert value("attempts_total", mode="replace", stop_reason="end_turn") == 1
    for kind, usage in (("delivered", "turn"), ("billed", "billed")):
        outs = [one[usage]["output"] or 0 for one in told]
        assert value("tokens_total", direction="output", kind=kind) == sum(outs) > 0
    billed = value("tokens_total", direction="output", kind="billed")
    assert billed > value("tokens_total", direction="output", kind="delivered")
    assert value("turn_seconds_count", dialect="anthropic") == 3
    assert value("turn_seconds_sum", dialect="anthropic") == pytest.approx(
        sum(one["seconds"] for one in told)
    )


def test_endings_are_counted(fresh: Served, provider: Simulator) -> None:
    replies = [end("All."), Reply([Text("No.")], stop="refusal"), Reply(status=400)]
    for reply in (*replies, replies[1]):
        provider.script([reply])
        ask(fresh)
    value = read(fresh)
    assert value("endings_total", ending="end", outcome="complete") == 1
    assert value("endings_total", ending="refused", outcome="incomplete") == 2
    assert value("endings_total", ending="unknown", outcome="failed") == 1


def test_what_a_turn_waits_for_is_none_of_our_own_time(fresh: Served, provider: Simulator) -> None:
    """A slow stream, a refusal with a wait behind it, and a rest that is held for its seam."""
    text = "The quick brown fox jumps over the lazy dog, and then it does so once more. " * 9
    refused = Reply(status=529, error=("overloaded_error", "busy"))
    asked = {**MESSAGES, "stream": True}
    headers = {**KEYS, "x-continuation": "backoff_seconds=0.4"}
    names = ("turn", "own", "first_event", "held")
    before = [0.0] * len(names)
    for count in (1, 2):  # in the first of a process much is imported
        rest = end(f"It ends. {'Something else is said. ' * 40}", slow=0.02, deltas=60)
        provider.script([cut(text, slow=0.02, deltas=30), refused, rest])
        with httpx2.stream("POST", fresh.url + PLACE, json=asked, headers=headers) as answer:
            answer.read()
        until(lambda: read(fresh)("own_seconds_count", dialect="anthropic") == count)  # noqa: B023
        value = read(fresh)
        sums = [value(f"{name}_seconds_sum", dialect="anthropic") for name in names]
        took, own, first, held = (now - then for now, then in zip(sums, before, strict=True))
        before = sums
    assert value("attempts_total", mode="recovery", stop_reason="end_turn") == 2
    assert took > 0.4
    assert 0 < own < took / 2
    assert 0 < first < took / 2
    assert 0 < held < took / 2
    assert value("pings_total") > 5


def test_a_chain_store_is_timed_and_its_failures_are_counted(
    provider: Simulator, tmp_path: Path
) -> None:
    """The first one does its work; the second is a folder."""
    for number, store in enumerate((tmp_path / "chains.db", tmp_path)):
        more = f'[defaults]\nchain_store = "{store}"\n'
        with serving(tmp_path, provider.url, more) as served:
            provider.script([cut("One, "), end("One, two.")])
            url = served.of("openai-responses") + URLS["openai-responses"]
            asked = {**request_body("openai-responses"), "max_output_tokens": 300, "stream": True}
            httpx2.post(url, json=asked, headers=KEYS).raise_for_status()
            value = read(served)
        provider.reset()
        assert value("store_seconds_count", op="write") >= 1
        assert (value("store_errors_total", op="write") > 0) == bool(number)


PHASES = {"request": None, "waiting": end("One.", stall=0), "answer": end("One.", stall=4)}


@pytest.mark.parametrize("phase", PHASES)
def test_a_caller_that_leaves_is_counted_by_how_far_it_was(
    fresh: Served, provider: Simulator, phase: str
) -> None:
    reply = PHASES[phase]
    if reply is not None:
        provider.script([reply])
    with begin(fresh, {**MESSAGES, "stream": True}, whole=reply is not None) as line:
        # Half a request is no stream yet, and takes the place of none.
        until(lambda: read(fresh)("streams") == (reply is not None) and fresh.gateway.room.held)
        if reply is not None:
            until(lambda: provider.posts and provider.posts[0].sent == reply.stall)
        if phase == "answer":
            assert line.recv(1)
    until(lambda: read(fresh)("client_gone_total", phase=phase) == 1)
    assert read(fresh)("streams") == 0


def test_what_others_name_is_a_label_a_hundred_times() -> None:
    names = LabelValues()
    told = [names.label(f"made-up-{number}") for number in range(102)]
    assert told == [*(f"made-up-{number}" for number in range(100)), "other", "other"]
    assert [names.label(name) for name in ("made-up-7", None, "one more")] == [
        *("made-up-7", "", "other")
    ]
    assert LabelValues().label("x" * 5_000) == "other"


def test_no_label_holds_what_was_said_or_a_key(fresh: Served, provider: Simulator) -> None:
    provider.script([cut("Bernstein, "), Reply(status=400, error=("bad", "Bernstein sk-secret"))])
    said = {"messages": [{"role": "user", "content": "Bernstein"}]}
    httpx2.post(fresh.url + PLACE, json={**MESSAGES, **said}, headers={"x-api-key": "sk-secret"})
    text = httpx2.get(f"{fresh.url}/metrics").text
    assert "continuation_turns_total" in text
    assert "Bernstein" not in text
    assert "secret" not in text
