"""A stream that is silent for far longer than its model usually is counts as dropped."""

from __future__ import annotations

import itertools
import json
import math
import signal
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.gateways import serving
from support.sdks.formats import FORMATS, MAKES, request
from support.sdks.turn import FAST, STREAMS, How, Turn, play_all

from continuation.attach import shell
from continuation.attach.watchdog import Watchdog
from continuation.config import load
from continuation.config.learned import open_learned
from continuation.engine import silence
from continuation.engine.silence import LEAST, SHORTEST, TIMES, Silence
from continuation.limits import Learned
from continuation.simulator import Reply, Simulator, Text
from continuation.types import Outcome

LINES = " ".join(f"Line {number} is here." for number in range(20))
KEY = ("host", "digest", "model")


# --- through the SDKs -----------------------------------------------------------------------------


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a quarter of a second of silence be too long where something was learned."""
    monkeypatch.setattr(silence, "TIMES", 0)
    monkeypatch.setattr(silence, "LEAST", dict.fromkeys(LEAST, 0.25))
    monkeypatch.setattr(shell, "WATCHDOG", Watchdog(0.05))


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("tools", [False, True], ids=["plain", "tools"])
@pytest.mark.parametrize("how", STREAMS)
@pytest.mark.parametrize("dialect", FORMATS)
def test_a_silent_stream_is_resumed(dialect: str, how: How, tools: bool) -> None:
    asked = request(dialect, 4_000, {} if tools else {"tools": []})
    with Simulator(LINES) as simulator:
        whole = Reply([Text(LINES)], deltas=24)
        simulator.script([whole, replace(whole, stall=10)])
        first, second = play_all([MAKES[dialect](), MAKES[dialect]()], how, simulator, [asked] * 2)
        assert len(simulator.posts) == 3
    assert first.told.outcome is Outcome.COMPLETE
    assert (second.text, second.told.outcome) == (LINES, Outcome.HEALED)
    assert [a.error for a in second.told.attempts] == ["SilentStreamError", None]


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("how", STREAMS)
@pytest.mark.parametrize(
    ("blocks", "stall", "learns"),
    [([Text(LINES)], 10, False), ([Text(LINES)], 1, True)],
    ids=["nothing was learned", "nothing of the answer has arrived"],
)
def test_the_callers_own_timeout_decides(
    how: How, blocks: Sequence[Any], stall: int, *, learns: bool
) -> None:
    """The stream stays silent for four times as long as the shortest bound; then it goes on."""
    gate = threading.Event()
    slow = Reply(blocks, deltas=24, gate=gate, gate_at=stall)
    whole = [Reply([Text(LINES)])] if learns else []
    timer = threading.Timer(1.0, gate.set)
    with Simulator(LINES) as simulator:
        simulator.script([*whole, slow])
        runs = [MAKES["openai-chat"]() for _ in [*whole, slow]]
        timer.start()
        asked = [request("openai-chat", 4_000, {})] * len(runs)
        ran = play_all(runs, how, simulator, asked)[-1]
        assert len(simulator.posts) == len(runs)
    assert (ran.text, ran.told.outcome) == (LINES, Outcome.COMPLETE)


def through_gateway(folder: Path, more: str) -> tuple[Turn, int]:
    """Play two turns through a gateway, the second of which falls silent for a second."""
    gate = threading.Event()
    whole = Reply([Text(LINES)], deltas=24)
    asked = request("anthropic-messages", 4_000, {})
    runs = [MAKES["anthropic-messages"]() for _ in range(2)]
    timer = threading.Timer(1.0, gate.set)
    with Simulator(LINES) as simulator, serving(folder, simulator.url, more) as served:
        simulator.script([whole, replace(whole, gate=gate, gate_at=10)])
        timer.start()
        play_all(runs, "sync-stream", served.of("anthropic-messages"), [asked] * 2, None)
        return runs[1], len(simulator.posts)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(("more", "posts"), [("", 3), ("\n[gateway]\nidle_seconds = 500", 2)])
def test_in_a_gateway_the_operators_bound_decides(tmp_path: Path, more: str, posts: int) -> None:
    ran, sent = through_gateway(tmp_path, more)
    assert (ran.text, sent) == (LINES, posts)


# --- what is learned ------------------------------------------------------------------------------


def listen(learned: Learned, *phases: str, tools: bool = False) -> Silence:
    return Silence(learned, KEY, lambda: phases, tools=tools)


def test_nothing_is_bounded_before_something_was_learned() -> None:
    for phase in ("text", "thinking", "call", ""):
        assert listen(Learned(), phase).allowed == math.inf
    assert listen(Learned()).allowed == math.inf


@pytest.mark.parametrize("phase", LEAST)
def test_a_phase_is_learned_by_itself(phase: str) -> None:
    learned = Learned()
    heard = listen(learned, phase)
    heard.note(50.5)
    heard.learn()
    assert listen(learned, phase).allowed == TIMES * 51
    for other in {*LEAST} - {phase}:
        assert listen(learned, other).allowed == math.inf
    assert listen(learned, phase, "").allowed == math.inf


def test_a_text_that_a_call_may_follow_is_a_call() -> None:
    learned = Learned()
    listen(learned, "text", tools=True).learn()
    assert listen(learned, "text").allowed == math.inf
    assert listen(learned, "text", tools=True).allowed == LEAST["call"]
    assert listen(learned, "call").allowed == LEAST["call"]


def test_short_silences_are_not_told_apart() -> None:
    assert min(LEAST.values()) >= SHORTEST * TIMES
    learned = Learned()
    changes = list[object]()
    learned.on_change = lambda: changes.append(None)
    for seconds in (0.1, 5, 2, SHORTEST):
        heard = listen(learned, "text")
        heard.note(seconds)
        heard.learn()
    assert (len(changes), listen(learned, "text").allowed) == (1, LEAST["text"])


def test_it_is_kept_with_the_limits(tmp_path: Path) -> None:
    config = load(replace(FAST, learned_file=str(tmp_path / "learned.json")))
    heard = listen(open_learned(config), "text")
    heard.note(20)
    heard.learn()
    assert listen(open_learned(config), "text").allowed == TIMES * 20
    stored = json.loads((tmp_path / "learned.json").read_bytes())["lessons"]
    assert [each["gap_text"] for each in stored] == [20]


def test_it_is_no_lesson_about_limits() -> None:
    learned = Learned()
    listen(learned, "text", "thinking", "call").learn()
    assert not learned.get(KEY).limits
    learned.learn(KEY, needed=5_000)
    assert learned.get(KEY).limits


@settings(max_examples=examples(200))
@given(st.lists(st.lists(st.floats(0, 59), min_size=1), min_size=1), st.booleans())
def test_no_text_with_usual_silences_is_dropped(answers: list[list[float]], tools: bool) -> None:
    learned = Learned()
    for gaps in answers:
        heard = listen(learned, "text", tools=tools)
        for gap in gaps:
            assert gap < heard.allowed
            heard.note(gap)
        heard.learn()


@settings(max_examples=examples(200))
@given(st.lists(st.floats(0, 2_000), min_size=1), st.sampled_from(sorted(LEAST)))
def test_no_silence_up_to_the_longest_one_is_dropped(gaps: list[float], phase: str) -> None:
    learned = Learned()
    heard = listen(learned, phase)
    for gap in gaps:
        heard.note(gap)
    heard.learn()
    again = listen(learned, phase)
    assert all(gap * TIMES <= again.allowed for gap in gaps)


# --- the watchdog ---------------------------------------------------------------------------------


def test_the_watchdog_looks_while_there_are_streams() -> None:
    watchdog, looks = Watchdog(0.01), itertools.count()
    looked, failed = threading.Event(), threading.Event()

    class Stream:
        def check_silence(self) -> None:
            if next(looks) > 2:
                looked.set()

    class Bad:
        def check_silence(self) -> None:
            failed.set()
            raise ValueError

    stream, bad = Stream(), Bad()
    watchdog.add(stream)
    watchdog.add(bad)
    assert looked.wait(10)
    assert failed.wait(10)
    thread = watchdog._thread
    assert thread is not None
    watchdog.remove(stream)
    watchdog.remove(bad)
    thread.join(10)
    assert not thread.is_alive()
    watchdog.add(stream)
    assert watchdog._thread is not thread


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="it is read from /proc")
def test_the_watchdog_takes_no_signal_from_the_main_thread() -> None:
    """A signal that it took would not end a read there: Ctrl-C would wait for the server."""
    watchdog, stream = Watchdog(0.01), Looked()
    watchdog.add(stream)
    stream.looked.wait(10)
    [thread] = [each for each in threading.enumerate() if each.ident == stream.thread]
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text(encoding="utf-8")
    [blocked] = [line.split()[1] for line in status.splitlines() if line.startswith("SigBlk")]
    watchdog.remove(stream)
    assert int(blocked, 16) >> (signal.SIGINT - 1) & 1


class Looked:
    """A stream that notes the thread that looks at it."""

    def __init__(self) -> None:
        self.looked, self.thread = threading.Event(), 0

    def check_silence(self) -> None:
        self.thread = threading.get_ident()
        self.looked.set()
