"""What the SDKs and this library themselves leave in histories."""

from __future__ import annotations

from typing import Any

import pytest
from support.notation import DIALECTS, Json, read, write

from continuation.history import repair, validate
from continuation.prompts import Cause, recovery_prompt

AN, OC, OR, GE = DIALECTS


def _mended(dialect: str, body: Json) -> Json:
    return dict(repair(body, dialect).body)


# -- what the SDKs themselves send ---------------------------------------------------------------


def test_contents_of_one_role_in_a_row_stay_as_a_stream_of_the_sdk_left_them() -> None:
    """google-genai's chats keep one content per chunk of a stream."""
    body = write(GE, "U:x A[t:1] A[t:2] A[t:3] U:y U:z")
    assert validate(body, GE) == []
    assert repair(body, GE).body is body


def test_calls_that_a_stream_brought_in_two_contents_become_one_call_turn() -> None:
    body = write(GE, "U:x A[c:a] A[c:b] R:a R:b U:y")
    assert read(GE, _mended(GE, body)) == "U:x A[c:a,c:b] R:a R:b U:y"


def test_an_empty_last_word_of_the_assistant_is_no_fault() -> None:
    """Anthropic excepts it in so many words: "except for the optional final assistant message"."""
    body = {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": ""}]}
    assert validate(body, AN) == []
    assert repair(body, AN).body is body
    assert len(_mended(AN, {"messages": [*body["messages"], body["messages"][0]]})["messages"]) == 1


# -- recovery pairs ------------------------------------------------------------------------------

HALF = "The quick brown fox jumps over the lazy dog and then it runs into the deep dark forest,"
REST = " where it meets a badger."


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("asked", [True, False])
def test_an_echo_at_the_seam_of_an_old_recovery_goes(dialect: str, asked: bool) -> None:
    echo = "and then it runs into the deep dark forest,"
    prompt = recovery_prompt(HALF, echo if asked else None, Cause.LENGTH)
    said = _pair(dialect, prompt, echo + REST)
    assert read(dialect, _mended(dialect, said)) == f"U:x A[t:{HALF}{REST}] U:y"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_a_recovery_said_anew_is_all_kept(dialect: str) -> None:
    said = _pair(dialect, recovery_prompt(HALF, None, Cause.DROP), "Sure, going on:" + REST)
    assert read(dialect, _mended(dialect, said)) == f"U:x A[t:{HALF}Sure, going on:{REST}] U:y"


def _pair(dialect: str, prompt: str, rest: str) -> dict[str, Any]:
    """A history in which an old recovery prompt parts one answer."""
    body = write(dialect, "U:x A[t:first] U:prompt A[t:rest] U:y")
    words = {"first": HALF, "prompt": prompt, "rest": rest}
    replaced: dict[str, Any] = _with_words(body, words)
    return replaced


def _with_words(value: Any, words: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _with_words(each, words) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_words(each, words) for each in value]
    return words.get(value, value) if isinstance(value, str) else value
