"""Each scenario, in each format: what a bare client receives, and what the report then says."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx2
import pytest
from support.sdks.formats import FORMATS, MAKES, request
from support.sdks.turn import BOTH, How, Turn, play, streamed

from continuation import Policy
from continuation.cli import simulate as command
from continuation.simulator import Scenario
from continuation.testing import ANSWER, SCENARIOS, Rehearsal, simulate
from continuation.types import Outcome

LIMIT = 4_000
READ_TIMEOUT = 0.5
"""Seconds of silence that end a stalled answer in these tests."""
ENDED = ("end_turn", "stop", "completed", "STOP")
CUT = ("max_tokens", "length", "max_output_tokens", "MAX_TOKENS")
ERROR = "error"
WHOLE, PART, EMPTY = "whole", "part", "empty"
STOPS: Mapping[str, tuple[str, Sequence[str]]] = {
    "whole": (WHOLE, ENDED),
    "cut-text": (PART, CUT),
    "always-cut": (PART, CUT),
    "mislabelled": (PART, ENDED),
    "overloaded": (PART, CUT),
    "empty": (EMPTY, ENDED),
    "refused": (PART, ("refusal", "content_filter", "content_filter", "SAFETY")),
    "aborted": (PART, (ERROR, "network_error", "failed", "MALFORMED_FUNCTION_CALL")),
    "paused": (PART, ("pause_turn", *ENDED[1:])),
    "window": (PART, ("model_context_window_exceeded", *CUT[1:])),
    "unknown-stop": (PART, ("steered",) * 4),
    "promise": (PART, ENDED),
    "repeats": (PART, CUT),
    "prompt-too-long": (ERROR, (ERROR,) * 4),
}
"""The text that a bare client receives, and the stop reason in each of `FORMATS`. It is the same in
a body and in a stream."""
FAULTS = {
    "drop": (ERROR, ERROR),
    "dead": (ERROR, ERROR),
    "stalled": (ERROR, ERROR),
    "torn": (WHOLE, ERROR),
    "torn-body": (ERROR, WHOLE),
}
"""The same for the scenarios in which a body and a stream differ."""
CALLS = {"cut-call", "call-stays-cut"}
ELSEWHERE = {"kill", "thinking-eats-all"}
"""Need a process to kill, or a model that thinks; `test_testing.py` plays them."""


def asked(dialect: str, name: str) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if name == "stalled":
        milliseconds = {"timeout": round(READ_TIMEOUT * 1000)}
        more = {"http_options": milliseconds} if dialect == "gemini" else {"timeout": READ_TIMEOUT}
    return request(dialect, LIMIT, more)


def stop_of(ran: Any, dialect: str) -> str:
    """Return the stop reason that a client of a format reads."""
    answer: Any = ran.answer
    match dialect:
        case "anthropic-messages":
            return str(answer.stop_reason)
        case "openai-chat":
            return str(ran.finish)
        case "openai-responses":
            details = answer.incomplete_details
            return str(details.reason if details else answer.status)
        case _:
            return str(ran.reasons[-1])


def received(ran: Turn, dialect: str) -> tuple[str, str]:
    if ran.error is not None:
        return ERROR, ERROR
    text = {ANSWER: WHOLE, "": EMPTY}.get(ran.text, PART)
    return text, stop_of(ran, dialect)


def expected(name: str, dialect: str, how: How) -> tuple[str, str]:
    """Return the text and the stop reason that a bare client of a format receives."""
    text, stops = STOPS.get(name) or (FAULTS[name][streamed(how)], ENDED)
    stop = ERROR if text == ERROR else stops[FORMATS.index(dialect)]
    if name == "paused" and stop in ENDED:
        text = WHOLE
    return (ERROR if stop == ERROR else text), stop


pytestmark = pytest.mark.filterwarnings("ignore:steered is not a valid:UserWarning")
"""google-genai warns of a stop reason that it does not know."""
every = pytest.mark.parametrize("dialect", FORMATS)
anyhow = pytest.mark.parametrize("how", BOTH)


@anyhow
@every
@pytest.mark.parametrize("name", [*STOPS, *FAULTS])
def test_a_bare_client_receives(name: str, dialect: str, how: How) -> None:
    with simulate(name) as simulator:
        ran = play(MAKES[dialect](), how, simulator, asked(dialect, name), None)
    assert received(ran, dialect) == expected(name, dialect, how)


def test_every_scenario_is_played() -> None:
    assert {*STOPS, *FAULTS, *CALLS, *ELSEWHERE} == set(SCENARIOS)


@anyhow
@every
@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_bare_client_receives_a_part_of_a_call(name: str, dialect: str, how: How) -> None:
    with simulate(name) as simulator:
        ran = play(MAKES[dialect](), how, simulator, asked(dialect, name), None)
    assert (ran.error, ran.says_cut) == (None, True)


HEALED = (Outcome.HEALED, "end", WHOLE)
COMPLETE = (Outcome.COMPLETE, "end", WHOLE)
FAILED = (Outcome.FAILED, None, ERROR)
REPORTS: Mapping[str, Any] = {
    "whole": COMPLETE,
    "cut-text": HEALED,
    "always-cut": (Outcome.TRUNCATED, "length", PART),
    # Without `stream_options`, a stream of Chat has no token counts: nothing shows the truncation.
    "mislabelled": {
        "body": HEALED,
        "stream": HEALED,
        "openai-chat stream": (Outcome.COMPLETE, "end", PART),
    },
    "overloaded": HEALED,
    "empty": HEALED,
    "refused": (Outcome.INCOMPLETE, "refused", PART),
    "unknown-stop": (Outcome.INCOMPLETE, "other", PART),
    "promise": (Outcome.COMPLETE, "end", PART),
    "prompt-too-long": FAILED,
    "drop": {"body": FAILED, "stream": HEALED},
    "dead": {"body": FAILED, "stream": (Outcome.PARTIAL, "dropped", ERROR)},
    "stalled": {
        "body": FAILED,
        "stream": HEALED,
        # The asynchronous google-genai bounds the whole answer, so no time is left to resume it.
        "gemini stream": (Outcome.PARTIAL, "dropped", ERROR),
    },
    "torn": {"body": COMPLETE, "stream": HEALED},
    "torn-body": {"body": HEALED, "stream": COMPLETE},
    "aborted": {
        "body": HEALED,
        "stream": HEALED,
        "anthropic-messages body": FAILED,
        "gemini stream": (Outcome.INCOMPLETE, "aborted", PART),
    },
    "paused": {"body": COMPLETE, "stream": COMPLETE, "anthropic-messages": HEALED},
}
"""Outcome, ending and text of a wrapped client; of a body or stream, of a format, or of both."""


@anyhow
@every
@pytest.mark.parametrize("name", REPORTS)
def test_a_report_says(name: str, dialect: str, how: How) -> None:
    form, wanted = "stream" if streamed(how) else "body", REPORTS[name]
    if isinstance(wanted, dict):
        places = (f"{dialect} {form}", dialect, form)
        wanted = next(wanted[place] for place in places if place in wanted)
    with simulate(name) as simulator:
        ran = play(MAKES[dialect](), how, simulator, asked(dialect, name))
    text = received(ran, dialect)[0]
    assert (ran.told.outcome, ran.told.ending, text) == wanted


# --- the context window ---------------------------------------------------------------------------


@anyhow
@every
def test_behind_a_full_window_nothing_fits(dialect: str, how: How) -> None:
    """Only Anthropic has a stop reason for it; elsewhere the recovery is refused."""
    with simulate("window") as simulator:
        ran = play(MAKES[dialect](), how, simulator, asked(dialect, "window"))
        statuses = [post.status for post in simulator.posts]
    assert (ran.error, ran.text) == (None, ANSWER[: len(ran.text)])
    if dialect == "anthropic-messages":
        assert (ran.told.outcome, ran.told.ending) == (Outcome.TRUNCATED, "window")
        assert statuses == [200]
    else:
        assert ran.told.outcome in {Outcome.PARTIAL, Outcome.TRUNCATED}
        assert set(statuses[1:]) == {400}


TOO_LONG = {
    "anthropic-messages": "prompt is too long",
    "openai-chat": "maximum context length",
    "openai-responses": "exceeds the context window",
    "gemini": "exceeds the maximum number of tokens",
}


@every
def test_a_prompt_that_is_too_long_is_refused_in_the_formats_words(dialect: str) -> None:
    with simulate("prompt-too-long") as simulator:
        ran = play(MAKES[dialect](), "sync", simulator, asked(dialect, ""), None)
    assert TOO_LONG[dialect] in str(ran.error)


def test_so_is_the_prompt_of_a_reasoning_model_and_of_a_vendor_without_a_text() -> None:
    with simulate("prompt-too-long") as simulator:
        reasoning = {"model": "gpt-5", "messages": [{"role": "user", "content": "Go."}]}
        url, keys = f"{simulator.url}/v1/chat/completions", {"authorization": "Bearer any"}
        for settings, words in (("", "Input tokens exceed"), ("vendor=groq", "context")):
            headers = {**keys, "x-simulate": settings}
            answer = httpx2.post(url, json=reasoning, headers=headers)
            assert (answer.status_code, words in answer.text) == (400, True), answer.text


# --- promises and repetitions ---------------------------------------------------------------------


@anyhow
@every
def test_a_promise_is_kept_if_it_is_asked_for(dialect: str, how: How) -> None:
    policy = Policy(backoff_seconds=0.0, unkept_promise="ask")
    with simulate("promise") as simulator:
        ran = play(MAKES[dialect](), how, simulator, asked(dialect, "promise"), policy)
    ((name, arguments),) = ran.tool_calls
    assert (name, arguments["content"]) == ("Write", ANSWER)
    assert ran.text == "I will write the file now:"
    assert ran.told.outcome is Outcome.HEALED


@anyhow
@every
def test_a_runaway_repetition_is_never_complete(dialect: str, how: How) -> None:
    with simulate("repeats") as simulator:
        ran = play(MAKES[dialect](), how, simulator, asked(dialect, "repeats"))
    assert len(set(ran.text.splitlines()[:-1])) == 1
    assert ran.told.outcome not in {Outcome.COMPLETE, Outcome.HEALED}


@anyhow
@every
def test_policy_ends_a_runaway_repetition_early(dialect: str, how: How) -> None:
    policy = Policy(stop_repetition=True)
    with simulate("repeats") as simulator:
        ran = play(MAKES[dialect](), how, simulator, asked(dialect, "repeats"), policy)
        assert len(simulator.posts) == 2
    assert ran.text.count("\n") <= 3
    assert ran.told.reason == "the model only repeated the same text"


@anyhow
def test_vllm_has_a_stop_reason_for_repetitions(how: How) -> None:
    with simulate("repeats") as simulator:
        simulator.scenario = Scenario(vendor="vllm")
        ran: Any = play(MAKES["openai-chat"](), how, simulator, asked("openai-chat", ""), None)
    assert ran.finish == "repetition"


# --- the command ----------------------------------------------------------------------------------


def playable() -> Iterator[tuple[str, str]]:
    yield from itertools.product([*STOPS, "torn", "drop"], ("anthropic-messages", "gemini"))


@pytest.mark.parametrize(("name", "dialect"), [*playable()])
def test_the_command_plays_a_scenario_by_name(name: str, dialect: str) -> None:
    with command._simulator(name, None, 0) as simulator:
        assert isinstance(simulator, Rehearsal)
        ran = play(MAKES[dialect](), "sync-stream", simulator, asked(dialect, name), None)
    assert received(ran, dialect) == expected(name, dialect, "sync-stream")
