"""Error answers of OpenAI-compatible servers: what they mean, and which limit would fit."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.openai_error_texts import CEILINGS, FINALS, PREFILLS, ROOMS, SPENT, TPM

from continuation.providers.openai_common import errors
from continuation.providers.openai_common.errors import (
    refused,
    refuses,
    wrong_parameter,
)
from continuation.types import ErrorKind


def nested(message: str) -> bytes:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return json.dumps({"error": error}, ensure_ascii=False).encode()


SHAPES: dict[str, Callable[[str], bytes]] = {
    "nested": nested,
    "flat": lambda m: json.dumps(
        {"object": "error", "message": m, "type": "BadRequestError", "code": 400}
    ).encode(),
    "string": lambda m: json.dumps(
        {"code": "Client specified an invalid argument", "error": m}
    ).encode(),
    "list": lambda m: json.dumps([{"error": {"code": 400, "message": m}}], indent=2).encode(),
    "raw": lambda m: json.dumps(
        {
            "error": {
                "message": "Provider returned error",
                "code": 400,
                "metadata": {"raw": nested(m).decode(), "provider_name": "X"},
            },
            "user_id": "user_1",
        }
    ).encode(),
    "raw text": lambda m: json.dumps(
        {"error": {"message": "Provider returned error", "metadata": {"raw": f"ERROR: {m}"}}}
    ).encode(),
    "detail": lambda m: json.dumps({"detail": m}, ensure_ascii=False).encode(),
    "message in a message": lambda m: json.dumps(
        {"error": {"message": "litellm.BadRequestError: X - " + nested(m).decode(), "code": "400"}}
    ).encode(),
    "not JSON": lambda m: m.encode(),
    "a page": lambda m: f"<html><body>\n<h1>400</h1>\n{m}\n</body></html>".encode(),
}


def found(
    message: str, status: int = 400, asked: int | None = None
) -> tuple[ErrorKind, int | None]:
    answer = refused(status, nested(message), asked)
    return answer.kind, answer.maximum


MEANT: dict[str, tuple[str, ErrorKind, int | None]] = {
    **{f"ceiling: {name}": (m, ErrorKind.CEILING, most) for name, (m, most) in CEILINGS.items()},
    **{f"room: {name}": (m, ErrorKind.CONTEXT_OVERFLOW, left) for name, (m, left) in ROOMS.items()},
    **{f"final: {name}": (message, ErrorKind.FINAL, None) for name, message in FINALS.items()},
    **{
        f"prefill: {name}": (message, ErrorKind.PREFILL, None) for name, message in PREFILLS.items()
    },
}
"""Ceilings, the room left in a request, what a smaller limit is no help for, refused prefills."""


@pytest.mark.parametrize("name", MEANT)
def test_a_refusal_is_understood_in_every_shape_of_body(name: str) -> None:
    message, *meant = MEANT[name]
    assert found(message) == tuple(meant)
    for shape, write in SHAPES.items():
        answer = refused(400, write(message))
        assert [answer.kind, answer.maximum] == meant, shape


@pytest.mark.parametrize(
    ("statuses", "kind"),
    [
        ([401, 402, 403, 404, 405, 418], ErrorKind.FINAL),
        ([408, 409, 425, 429, 500, 502, 503, 504, 529], ErrorKind.RETRYABLE),
    ],
)
def test_of_other_statuses_only_the_servers_own_trouble_is_worth_another_try(
    statuses: list[int], kind: ErrorKind
) -> None:
    for status, message in itertools.product(statuses, (CEILINGS["openai"][0], PREFILLS["claude"])):
        assert found(message, status) == (kind, None), status
    assert found(ROOMS["openrouter, credit"][0], 402) == (ErrorKind.CONTEXT_OVERFLOW, 4717)
    for status in (400, 413, 422):
        assert found(CEILINGS["openai"][0], status) == (ErrorKind.CEILING, 16384)


def test_every_row_of_the_table_has_an_example() -> None:
    messages = [*(message for message, *_ in MEANT.values()), TPM, SPENT, "insufficient_quota"]
    _, every = errors.rows()
    first = {
        next((row for row in every if errors.compiled(row.text).search(plain)), None)
        for message in messages
        for plain in [re.sub("[`'\"]", "", message)]
    }
    assert [row.name for row in every if row not in first] == []


# --- limits that only the sender can tell -------------------------------------------------------


def test_a_sum_is_undone_with_the_limit_that_was_asked_for() -> None:
    message = ROOMS["moonshot"][0]
    assert found(message, asked=131072) == (ErrorKind.CONTEXT_OVERFLOW, 131072 - (265359 - 262144))
    assert found(message, asked=2000) == (ErrorKind.FINAL, None)


@pytest.mark.parametrize("name", ["groq, no numbers", "together, no prompt", "together, sum"])
def test_half_is_tried_where_no_prompt_is_told(name: str) -> None:
    assert found(ROOMS[name][0], asked=8192) == (ErrorKind.CONTEXT_OVERFLOW, 4096)


def test_a_request_larger_than_the_quota_is_told_from_a_busy_minute() -> None:
    assert found(TPM, 429, asked=30000) == (ErrorKind.RETRYABLE, 20000)
    assert found(TPM, 429) == (ErrorKind.RETRYABLE, None)
    assert found(TPM, 429, asked=5000) == (ErrorKind.FINAL, None)
    busy = (
        "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested"
    )
    assert found(f"{busy} 5000. Please try again in 8s.", 429, asked=4000) == (
        ErrorKind.RETRYABLE,
        None,
    )


def test_groq_says_so_with_another_status() -> None:
    message = (
        "Request too large for model `llama-3.3-70b` in organization `org_1` service tier"
        " `on_demand` on tokens per minute (TPM): Limit 6000, Requested 9000, please reduce your"
        " message size and try again."
    )
    assert found(message, 413, asked=4000) == (ErrorKind.RETRYABLE, 1000)


def test_waiting_brings_no_credit() -> None:
    error = {"message": "You exceeded your current quota.", "code": "insufficient_quota"}
    answer = refused(429, json.dumps({"error": error}).encode())
    assert (answer.kind, answer.error) == (ErrorKind.FINAL, "429 insufficient_quota")


# --- whose words a message is -------------------------------------------------------------------


def least(field: str, most: int) -> dict[str, Any]:
    return {"loc": ["body", field], "msg": f"Input should be less than or equal to {most}"}


@pytest.mark.parametrize(
    ("detail", "meant"),
    [
        # A validator names the field beside the message.
        ([least("max_tokens", 8192)], (ErrorKind.CEILING, 8192)),
        # One message is not read into the next.
        (
            [{"loc": ["body", "max_tokens"], "msg": "bad"}, least("top_p", 1)],
            (ErrorKind.FINAL, None),
        ),
        # The caller's own words are not the server's.
        (
            [{"loc": ["messages", 0], "msg": "Invalid", "input": CEILINGS["openai"][0]}],
            (ErrorKind.FINAL, None),
        ),
        ([{"loc": ["body"], "msg": "max_tokens " * 300}] * 3000, (ErrorKind.FINAL, None)),
    ],
    ids=["field", "two messages", "the caller's words", "huge"],
)
def test_of_a_validators_details_each_is_read_by_itself(
    detail: list[Any], meant: tuple[ErrorKind, int | None]
) -> None:
    answer = refused(422, json.dumps({"detail": detail}).encode())
    assert (answer.kind, answer.maximum) == meant


@pytest.mark.parametrize(
    ("body", "label"),
    [
        ({"error": {"type": "invalid_request_error", "code": None}}, "400 invalid_request_error"),
        ({"error": {"type": "x", "code": "unsupported_parameter"}}, "400 unsupported_parameter"),
        ({"object": "error", "type": "BadRequestError", "code": 400}, "400 BadRequestError"),
        ([{"error": {"code": 400, "status": "INVALID_ARGUMENT"}}], "400 INVALID_ARGUMENT"),
        ({"code": "Client specified an invalid argument", "error": "secret words"}, "400"),
        ({"error": {"message": "secret", "code": "two words"}}, "400"),
        ({"type": "error", "error": {"type": "two words"}}, "400 error"),
        ([], "400"),
        ("secret", "400"),
        (None, "400"),
    ],
)
def test_a_label_is_the_servers_word_and_never_its_message(body: object, label: str) -> None:
    assert refused(400, json.dumps(body).encode()).error == label


# --- what else an error can ask for -------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (FINALS["wrong name"], "max_completion_tokens"),
        ("Unrecognized request argument supplied: max_completion_tokens", "max_tokens"),
        ("Unknown parameter: 'max_completion_tokens'.", "max_tokens"),
        ("max_completion_tokens: Extra inputs are not permitted", "max_tokens"),
        ("Please use 'max_completion_tokens' instead of 'max_tokens'.", "max_completion_tokens"),
        ("Unsupported parameter: 'max_tokens' and 'max_completion_tokens' together", None),
        ("Unsupported value: 'max_tokens' does not support 0 with this model.", None),
        ("Unrecognized request argument supplied: stream_options", None),
        (CEILINGS["openai"][0], None),
    ],
)
def test_the_other_name_of_the_limit(message: str, name: str | None) -> None:
    assert wrong_parameter(400, nested(message)) == name
    assert wrong_parameter(500, nested(message)) is None


def test_a_validator_refuses_a_name_by_its_place() -> None:
    loc = ["body", "max_completion_tokens"]
    detail = [{"type": "extra_forbidden", "loc": loc, "msg": "Extra inputs are not permitted"}]
    assert wrong_parameter(422, json.dumps({"detail": detail}).encode()) == "max_tokens"


@pytest.mark.parametrize(
    "message",
    [
        "Unrecognized request argument supplied: stream_options",
        "Unknown parameter: 'stream_options.include_usage'.",
        "body.stream_options: Extra inputs are not permitted",
        "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
    ],
)
def test_some_servers_refuse_to_be_asked_for_usage(message: str) -> None:
    assert refuses("stream_options", 400, nested(message))
    assert not refuses("stream_options", 429, nested(message))
    assert not refuses("stream_options", 400, nested(FINALS["wrong name"]))


def test_a_truncation_can_come_as_an_error() -> None:
    assert found(SPENT) == (ErrorKind.LIMIT_CONSUMED, None)
    assert found(SPENT, status=500) == (ErrorKind.RETRYABLE, None)


# --- whatever comes -----------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["error", "message", "raw", "loc"]), inner)
    ),
    max_leaves=10,
)
KNOWN = [*(message for message, *_ in MEANT.values()), TPM]


@st.composite
def disturbed(draw: st.DrawFn) -> bytes:
    """Return a known message with other numbers in it, signs and absurd sizes included."""
    number = st.integers(-5, 10**14).map(str) | st.sampled_from(["0", "1,000", "1.5", "1,00", ""])
    message = re.sub(r"\d+", lambda _: draw(number), draw(st.sampled_from(KNOWN)))
    return draw(st.sampled_from(list(SHAPES.values())))(message)


@given(
    body=st.binary() | JSON.map(lambda value: json.dumps(value).encode()) | disturbed(),
    status=st.sampled_from([0, 200, 400, 404, 413, 422, 429, 500]),
    asked=st.none() | st.integers(-1, 10**9),
)
def test_it_never_raises_and_a_maximum_is_positive(
    body: bytes, status: int, asked: int | None
) -> None:
    answer = refused(status, body, asked)
    assert answer.maximum is None or answer.maximum > 0
    assert answer.maximum is None or answer.kind in {
        ErrorKind.CEILING,
        ErrorKind.CONTEXT_OVERFLOW,
        ErrorKind.RETRYABLE,
    }
    assert wrong_parameter(status, body) in {None, "max_tokens", "max_completion_tokens"}
    assert refuses("stream_options", status, body) in {True, False}


def test_a_body_nested_without_end_is_no_trouble() -> None:
    for body in (b"[" * 100_000, b'{"error":' * 50_000, b'[{"error":' * 2_000 + b"1"):
        assert refused(400, body).kind is ErrorKind.FINAL


def test_a_huge_body_is_read_quickly() -> None:
    for piece in ("max_tokens ", "maximum context length is 1 tokens ", "request too large ", "1,"):
        assert refused(400, nested(piece * 100_000)).maximum is None
