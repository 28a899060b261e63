"""The public names and their signatures: who changes one of these lines changes a promise."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
from pathlib import Path

import pytest

import continuation

CLIENT = (
    "*, config: 'Source' = None, on_event: 'OnEvent | None' = None, journal: 'Keeper | None' = None"
)
FUNCTIONS = {
    "async_http_client": (
        f"(client: 'httpx2.AsyncClient | None' = None, {CLIENT}, **keys: 'Unpack[PolicyKeys]')"
        " -> 'httpx2.AsyncClient'"
    ),
    "finish": "(client: 'object', request: 'Mapping[str, Any]', answer: 'object') -> 'Any'",
    "http_client": (
        f"(client: 'httpx2.Client | None' = None, {CLIENT}, **keys: 'Unpack[PolicyKeys]')"
        " -> 'httpx2.Client'"
    ),
    "last_report": "() -> 'Report | None'",
    "override": "(**keys: 'Unpack[CallKeys]') -> 'Generator[None]'",
    "repair": (
        "(body: 'Body', dialect: 'str | None' = None, *, policy: 'RepairPolicy | None' = None, "
        "model: 'str | None' = None, facts: 'Facts | None' = None) -> 'Repaired'"
    ),
    "report": "(thing: 'object') -> 'Report | None'",
    "run_batch": (
        "(client: 'object', requests: 'Iterable[Mapping[str, Any]]', *, concurrency: 'int' = 8, "
        "journal: 'str | os.PathLike[str] | Journal | None' = None) -> 'Any'"
    ),
    "validate": (
        "(body: 'Body', dialect: 'str | None' = None, *, model: 'str | None' = None, "
        "facts: 'Facts | None' = None, strict: 'bool' = False, live: 'bool' = True, "
        "vendor: 'str | None' = None) -> 'list[Violation]'"
    ),
    "watch": "() -> 'Generator[list[Report]]'",
    "wrap": f"(client: 'ClientT', {CLIENT}, **keys: 'Unpack[PolicyKeys]') -> 'ClientT'",
}
CLASSES = {
    "Attempt": "number mode limit stop usage request_id seconds error discarded estimated answered "
    "begun answer_id saved shown kept",
    "BatchResult": "index id answer report error",
    "Escalating": "attempt limit replaces",
    "Finished": "report",
    "NotDurable": "error reason",
    "Policy": "enabled escalate max_recoveries max_drop_recoveries max_attempts max_retries "
    "max_turn_seconds max_turn_output_tokens leave_limits_below model_max_output_tokens "
    "initial_limit clamp remember_limit stream_tool_calls stream_thinking truncated_tool_call "
    "complete_tools complete_seams truncated_document "
    "less_thinking forced_tool_choice on_failure on_dead paused refused resend_failed "
    "stop_repetition stall stream_bodies unkept_promise usage prefill "
    "verify_stop_reason models_endpoint "
    "recovery_prompt seam_buffer_chars backoff_seconds max_wait_seconds learned_file tracing "
    "repair unanswered_tool_calls auto_resume resume_text chain_store "
    "store_seconds log_repairs",
    "Recovering": "attempt limit way replaces",
    "RepairPolicy": "unanswered_tool_calls ask live reason wordings late_results "
    "duplicate_ids strict coalesce is_recovery thinking binding reasoning alternate "
    "system_messages prefill vendor head_text continue_text loop_text reasoning_text allow",
    "Repaired": "body changes left origins headers",
    "Repairing": "attempt code changes",
    "Report": "outcome reason dialect model stop synthetic attempts seams error seconds rows "
    "learned repairs calls host characters chain ending remedy",
    "Resume": "kind characters resumable attempts not_started unknown abandoned unsent",
    "Retrying": "attempt error seconds replaces",
    "Truncated": "attempt reason limit output_tokens estimated",
    "Usage": "input cached cache_write output thinking tools estimated",
    "Violation": "code path message repair",
}
JOURNAL = {"Fenced", "Journal", "JournalError", "LeaseHeld", "OutcomeUnknown"}
OTHERS = {*JOURNAL, "Event", "TruncatedAnswerError", "Outcome", "__version__"}


def test_the_public_names_are_these_and_all_are_there() -> None:
    assert set(continuation.__all__) == {*FUNCTIONS, *CLASSES, *OTHERS}
    assert continuation.__all__ == sorted(continuation.__all__)
    assert all(hasattr(continuation, name) for name in continuation.__all__)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_called_as_ever(name: str) -> None:
    assert str(inspect.signature(getattr(continuation, name))) == FUNCTIONS[name]


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_has_its_fields(name: str) -> None:
    made = getattr(continuation, name)
    assert " ".join(item.name for item in dataclasses.fields(made)) == CLASSES[name]
    assert [*inspect.signature(made).parameters] == CLASSES[name].split()


def test_outcomes_are_these_words() -> None:
    words = "complete healed partial truncated stalled incomplete untouched failed"
    assert {str(outcome) for outcome in continuation.Outcome} == set(words.split())


@pytest.mark.parametrize("name", ["report", "override", "repair", "validate", "watch", "wrap"])
def test_no_module_has_the_name_of_a_function(name: str) -> None:
    assert inspect.isfunction(getattr(continuation, name))
    assert importlib.util.find_spec(f"continuation.{name}") is None


def test_every_public_function_has_its_place_in_the_typing_test() -> None:
    read = Path(__file__).with_name("api.py").read_text(encoding="utf-8")
    assert [name for name in FUNCTIONS if f"continuation.{name}(" not in read] == []
