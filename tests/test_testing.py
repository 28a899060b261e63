"""What users rehearse with: every scenario by name, and no waiting."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from support.sdks.messages import NEW, ask

import continuation
from continuation import Policy, Retrying
from continuation.testing import ANSWER, SCENARIOS, Rehearsal, set_testing, simulate, simulator
from continuation.types import Outcome

__all__ = ["simulator"]

WRITE: Any = [{"name": "Write", "input_schema": {"type": "object"}}]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    set_testing(False)


def turn(rehearsal: Rehearsal, **changes: Any) -> Any:
    with anthropic.Anthropic(base_url=rehearsal.url, api_key="any", max_retries=0) as bare:
        client = continuation.wrap(bare)
        with client.messages.stream(**ask(max_tokens=4096, **changes)) as stream:
            return stream.get_final_message()


def bare_turn(rehearsal: Rehearsal, **changes: Any) -> Any:
    with anthropic.Anthropic(base_url=rehearsal.url, api_key="any", max_retries=0) as bare:
        return bare.messages.create(**ask(max_tokens=4096, **changes))


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def outcome() -> str:
    report = continuation.last_report()
    assert report is not None
    return report.outcome


# --- the scenarios --------------------------------------------------------------------------

HEALED = ["cut-text", "thinking-eats-all", "drop", "mislabelled", "overloaded", "torn", "empty"]


@pytest.mark.parametrize("name", HEALED)
def test_a_scenario_with_text_is_healed(simulator: Rehearsal, name: str) -> None:
    simulator.play(name)
    assert text_of(turn(simulator)) == simulator.answer == ANSWER
    assert outcome() is Outcome.HEALED
    assert len(simulator.posts) > 1


def test_a_dead_provider_is_an_error(simulator: Rehearsal) -> None:
    simulator.play("dead")
    with pytest.raises(anthropic.APIStatusError, match="could not be resumed"):
        turn(simulator)
    assert outcome() is Outcome.PARTIAL


def test_a_refusal_stays_one(simulator: Rehearsal) -> None:
    simulator.play("refused")
    assert turn(simulator).stop_reason == "refusal"
    assert outcome() is Outcome.INCOMPLETE
    assert len(simulator.posts) == 1


@pytest.mark.parametrize("simulator", ["always-cut"], indirect=True)
def test_the_fixture_takes_a_scenario_and_plays_another(simulator: Rehearsal) -> None:
    assert turn(simulator).stop_reason == "max_tokens"
    assert outcome() is Outcome.TRUNCATED
    assert len(simulator.posts) == 4
    simulator.play("whole")
    assert text_of(turn(simulator)) == ANSWER
    assert outcome() is Outcome.COMPLETE


def test_a_cut_call_is_healed(simulator: Rehearsal) -> None:
    simulator.play("cut-call")
    message = turn(simulator, tools=WRITE)
    (call,) = [block for block in message.content if block.type == "tool_use"]
    assert (call.name, call.input["content"]) == ("Write", ANSWER)
    assert outcome() is Outcome.HEALED


def test_a_call_that_stays_cut_is_explained(simulator: Rehearsal) -> None:
    simulator.play("call-stays-cut")
    message = turn(simulator, tools=WRITE)
    assert [block.type for block in message.content] == ["text", "text"]
    assert "was not run" in text_of(message)


@pytest.mark.parametrize("name", ["cut-text", "cut-call", "call-stays-cut", "always-cut"])
def test_without_wrap_the_first_answer_is_cut(simulator: Rehearsal, name: str) -> None:
    simulator.play(name)
    assert bare_turn(simulator, tools=WRITE).stop_reason == "max_tokens"


def test_without_wrap_a_mislabelled_answer_is_half_a_word(simulator: Rehearsal) -> None:
    simulator.play("mislabelled")
    message = bare_turn(simulator)
    said = text_of(message)
    assert (message.stop_reason, message.usage.output_tokens) == ("end_turn", 4096)
    assert said[-1].isalnum()
    assert ANSWER[len(said)].isalnum()


def test_the_call_is_the_users_own_tool() -> None:
    tools = [{"name": "save", "input_schema": {"type": "object"}}]
    with simulate("cut-call", tool="save", arguments={"note": "x" * 100}) as rehearsal:
        message = turn(rehearsal, tools=tools)
    assert [(b.name, b.input) for b in message.content if b.type == "tool_use"] == [
        ("save", {"note": "x" * 100})
    ]


def test_an_agents_loop_goes_on_after_the_call(simulator: Rehearsal) -> None:
    simulator.play("cut-call")
    with anthropic.Anthropic(base_url=simulator.url, api_key="any") as bare:
        client = continuation.wrap(bare)
        asked: Any = {"role": "user", "content": "Write it."}
        said = client.messages.create(model=NEW, max_tokens=4096, tools=WRITE, messages=[asked])
        result: Any = {
            "type": "tool_result",
            "tool_use_id": next(b.id for b in said.content if b.type == "tool_use"),
            "content": "ok",
        }
        turns: Any = [
            asked,
            {"role": "assistant", "content": said.content},
            {"role": "user", "content": [result]},
        ]
        end = client.messages.create(model=NEW, max_tokens=4096, tools=WRITE, messages=turns)
    assert end.stop_reason == "end_turn"


def test_an_answer_of_the_users_own() -> None:
    with simulate(answer="Der Text, der zählt. " * 90) as rehearsal:
        assert text_of(turn(rehearsal)) == "Der Text, der zählt. " * 90
    assert outcome() is Outcome.HEALED


AGENT = """
import sys, warnings
import anthropic, continuation
warnings.simplefilter("ignore")
journal = continuation.Journal(sys.argv[2], session="s")
bare = anthropic.Anthropic(base_url=sys.argv[1], api_key="k", max_retries=0)
client = continuation.wrap(bare, journal=journal)
asked = [{"role": "user", "content": "Write it."}]
with client.messages.stream(model="claude-opus-5", max_tokens=32000, messages=asked) as stream:
    print(stream.get_final_text(), end="")
"""


@pytest.mark.slow
@pytest.mark.parametrize("by", ["process", "pid", "function"])
def test_an_agent_in_a_process_of_its_own_is_killed_and_goes_on(
    by: str, simulator: Rehearsal, tmp_path: Path
) -> None:
    """The guide's test."""
    simulator.play("kill")
    database = str(tmp_path / "agent.db")

    def run_agent() -> tuple[int, str]:
        command = [sys.executable, "-c", AGENT, simulator.url, database]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
            victims: Any = {"process": agent, "pid": agent.pid, "function": agent.kill}
            simulator.victim = victims[by]
            said, _ = agent.communicate()
        return agent.returncode, said

    assert run_agent()[0] == -9
    with continuation.Journal(database, session="s") as journal:
        saved = journal.resume()
    assert run_agent() == (0, simulator.answer)
    assert len(simulator.posts) == 2
    # On a busy machine the kill comes before the first save. Then the request is only repeated.
    sent = [m for m in simulator.posts[1].body["messages"] if m["role"] == "assistant"]  # type: ignore[index]
    assert len(sent) == bool(saved.characters)


def test_every_scenario_is_documented() -> None:
    page = (Path(__file__).parents[1] / "design/guide/rehearse.md").read_text(encoding="utf-8")
    assert [name for name in SCENARIOS if f"`{name}`" not in page] == []
    assert all(about.endswith(".") for about in SCENARIOS.values())


def test_an_unknown_scenario_is_told_what_there_is(simulator: Rehearsal) -> None:
    with pytest.raises(ValueError, match="'cut-txt': choose one of whole, cut-text"):
        simulator.play("cut-txt")
    with pytest.raises(ValueError, match="choose one of"):
        Rehearsal("nothing")


# --- waiting --------------------------------------------------------------------------------


def waits(**options: Any) -> list[float]:
    """Return the waits of a turn whose second attempt is asked to wait."""
    told: list[Any] = []
    rehearsal = Rehearsal("overloaded")
    with rehearsal, anthropic.Anthropic(base_url=rehearsal.url, api_key="k") as bare:
        policy = Policy(backoff_seconds=0.2, **options)
        client = continuation.wrap(bare, config=policy, on_event=told.append)
        client.messages.create(**ask(max_tokens=4096))
    return [event.seconds for event in told if isinstance(event, Retrying)]


def test_waits_are_capped_while_testing_and_only_then() -> None:
    assert waits()[0] >= 0.1
    with set_testing():
        began = time.monotonic()
        assert waits(max_retries=1) == [0.0]
        with set_testing(longest_wait=0.01):
            assert waits() == [0.01]
        assert waits() == [0.0]
        assert time.monotonic() - began < 5
    assert waits()[0] >= 0.1
    set_testing()  # for a whole suite
    assert waits() == [0.0]
    set_testing(False)
    assert waits()[0] >= 0.1
    with pytest.raises(ValueError, match="longest_wait = -1"):
        set_testing(longest_wait=-1)


# --- in a suite of its own --------------------------------------------------------------------

SUITE = """
import anthropic, continuation

def test_my_agent_survives_a_cut_call(simulator):
    simulator.play("cut-call")
    client = continuation.wrap(anthropic.Anthropic(base_url=simulator.url, api_key="any"))
    tools = [{"name": "Write", "input_schema": {"type": "object"}}]
    asked = [{"role": "user", "content": "Write it."}]
    said = client.messages.create(
        model="claude-opus-5", max_tokens=4096, tools=tools, messages=asked
    )
    assert said.stop_reason == "tool_use"
    assert len(simulator.posts) == 2
"""


# By its module: the entry point, which would register it a second time, is the wheel's matter.
PLUGIN = ["-p", "no:continuation", "-p", "continuation.pytest_plugin"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "plugins"),
    [
        ("from continuation.testing import simulator", ["-p", "no:continuation"]),
        ("import sys; assert 'continuation.simulator' not in sys.modules", PLUGIN),
    ],
)
def test_the_fixture_is_imported_or_there_by_the_plugin(
    tmp_path: Path, line: str, plugins: list[str]
) -> None:
    (tmp_path / "test_mine.py").write_text(f"{line}\n{SUITE}", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugins]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout, done.stdout


# --- imports --------------------------------------------------------------------------------


def test_neither_the_package_nor_its_helpers_import_pytest() -> None:
    code = (
        "import sys; sys.modules['pytest'] = None\n"
        "import continuation, continuation.testing\n"
        "continuation.testing.simulate\n"
        "assert not hasattr(continuation.testing, 'nothing')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
