"""Lines of batch files: which answers state that they were truncated, in whose words."""

from __future__ import annotations

from typing import Any

import pytest

from continuation.bulk.lines import is_cut

TRUNCATED: list[dict[str, Any]] = [
    {"stop_reason": "max_tokens"},
    {"stop_reason": "model_context_window_exceeded"},
    {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
    {"choices": [{"finish_reason": "stop"}, {"finish_reason": "length"}]},
    {"choices": [{"finish_reason": "MAX_TOKENS"}]},  # of a gateway before Gemini
    {"candidates": [{"finishReason": "MAX_TOKENS"}]},
]
WHOLE: list[dict[str, Any]] = [
    {"stop_reason": "end_turn"},
    {"status": "completed"},
    {"choices": [{"finish_reason": "tool_calls"}]},
    {"candidates": [{"finishReason": "STOP"}, {}]},
    {},
]


@pytest.mark.parametrize("answer", TRUNCATED)
def test_an_answer_that_states_its_truncation_is_cut(answer: dict[str, Any]) -> None:
    assert is_cut(answer)


@pytest.mark.parametrize("answer", WHOLE)
def test_any_other_answer_is_not(answer: dict[str, Any]) -> None:
    assert not is_cut(answer)
