"""When a chain of Responses may be rebuilt (W rows), and vectors 76 to 83."""

from __future__ import annotations

from typing import Any

import pytest
from support.chains_helpers import items, request
from support.notation import Json, read, write

from continuation.chains.replay import (
    ChainLost,
    ReplayLimits,
    anchor_reason,
    carried,
    infer_anchor,
    realign,
    replay,
    replayable,
)


def _said(given: list[Any]) -> str:
    return read("openai-responses", {"input": given})


def test_w01_without_an_anchor_the_input_is_all_there_is() -> None:
    body = write("openai-responses", "U:y")
    assert _said(replayable(body, items("U:x"))) == "U:y"


def test_w01_vector_82_input_that_repeats_the_history_is_not_doubled() -> None:
    history = items("U:x A[c:a]")
    body = request("U:x A[c:a] R:a")
    body["input"][0] = dict(reversed(body["input"][0].items()))
    assert _said(replayable(body, history)) == "U:x A[c:a] R:a"


def test_w01_big_numbers_are_compared_exactly() -> None:
    history = [{"role": "user", "content": "x", "n": 2**60}]
    body = {
        "previous_response_id": "r",
        "input": [{"role": "user", "content": "x", "n": 2**60 + 1}],
    }
    assert len(replayable(body, history)) == 2


def test_w02_vector_81_old_calls_without_output_are_left_out_with_their_reasoning() -> None:
    history = items("U:x A[th+,c:z] U:y A[c:a]")
    assert _said(replayable(request("R:a"), history)) == "U:x U:y A[c:a] R:a"


def test_w02_a_call_that_the_request_brings_along_is_not_there_twice() -> None:
    made = replayable(request("A[c:a] R:a"), items("U:x A[th+,c:a]"))
    assert _said(made) == "U:x A[c:a] R:a"
    made = replayable(request("A[c:a] R:a"), items("U:x A[c:a] R:a"))
    assert _said(made) == "U:x A[c:a] R:a A[c:a] R:a", "answered before: another one"


def test_vector_79_an_output_whose_call_we_hold_is_replayed_with_it() -> None:
    made = replay(request("R:a"), items("U:x A[c:a]"))
    assert _said(made["input"]) == "U:x A[c:a] R:a"


def test_w04_a_call_that_the_server_runs_needs_no_output() -> None:
    ran = {"type": "tool_search_call", "id": "tsc_1", "execution": "server"}
    found = {"type": "tool_search_output", "id": "tso_1", "execution": "server", "tools": []}
    history = [*items("U:x"), *items("A[th+]"), ran, found, *items("A[t:z]")]
    assert replayable(request("U:y"), history)[:-1] == history
    assert replay(request("U:y"), history)["input"][:-1] == history


@pytest.mark.parametrize("kind", ["web_search_call", "message", "reasoning"])
def test_reasoning_stays_before_whatever_the_model_made_of_it(kind: str) -> None:
    led = {"type": kind, "role": "assistant", "content": "z", "encrypted_content": "gAAA"}
    history = [*items("U:x A[th+]"), led, *items("A[t:z]")]
    assert replayable(request("U:y"), history)[:-1] == history
    assert _said(replayable(request("U:y"), items("U:x A[th+] U:z A[th+]"))) == "U:x U:z U:y"


def test_a_chain_is_rebased_on_an_earlier_response() -> None:
    made = replay(request("R:a", top_p=1), items("U:x A[c:a]"), base="resp_0")
    assert _said(made["input"]) == "U:x A[c:a] R:a"
    assert (made["previous_response_id"], made["top_p"]) == ("resp_0", 1)
    assert "previous_response_id" not in replay(request("R:a"), items("U:x A[c:a]"), base=None)
    with pytest.raises(ChainLost, match="too large"):
        replay(request("U:y"), items("U:x"), base="resp_0", limits=ReplayLimits(items=1))


def test_w14_items_are_carried_without_ids_that_stand_for_something_else() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    search = {"type": "web_search_call", "id": "ws_1"}
    message = {**items("A[t:z]")[0], "id": "msg_1"}
    bare = {key: value for key, value in search.items() if key != "id"}
    assert carried([thought, search, message], stored=True)[:2] == [thought, search]
    assert carried([thought, search, message], stored=False) == [bare, *items("A[t:z]")]
    assert carried([search, thought, message], stored=True) == [search, *items("A[t:z]")]
    sealed = {**thought, "encrypted_content": "gAAA"}
    assert [item.get("id") for item in carried([sealed, message], stored=True)] == [None, None]
    assert carried([message, sealed], stored=True) == items("A[t:z]")


def test_w06_the_anchor_is_inferred_for_bare_outputs_only() -> None:
    bare = write("openai-responses", "R:a", store=False)
    assert infer_anchor(bare, "resp_9")["previous_response_id"] == "resp_9"
    for other in (
        write("openai-responses", "R:a"),
        write("openai-responses", "A[c:a] R:a", store=False),
        write("openai-responses", "U:x", store=False),
        request("R:a", store=False),
    ):
        assert infer_anchor(other, "resp_9") is other
    assert infer_anchor(bare, None) is bare


def test_w07_a_stale_anchor_is_realigned() -> None:
    body = request("R:a")
    assert realign(body, "resp_1") is body
    assert realign(body, "resp_2")["previous_response_id"] == "resp_2"
    plain = write("openai-responses", "U:x")
    assert realign(plain, "resp_2") is plain


@pytest.mark.parametrize(
    ("body", "before", "last", "reason"),
    [
        (request("R:a"), request("U:x"), "resp_1", "has_output"),
        (write("openai-responses", "U:x"), request("U:x"), "resp_1", "no_anchor"),
        (request("U:x"), request("U:x"), None, "no_last_response"),
        (request("U:x"), request("U:x"), "resp_2", "anchor_mismatch"),
        (request("U:x"), None, "resp_1", "no_previous_request"),
        (request("U:x", top_p=1), request("U:x"), "resp_1", "other_fields_changed"),
        (request("U:y"), request("U:x"), "resp_1", "incremental"),
    ],
)
def test_w08_why_an_anchor_stays(body: Json, before: Json | None, last: str, reason: str) -> None:
    assert anchor_reason(body, before, last) == reason
