"""When a chain of Responses may be rebuilt (W rows), and vectors 76 to 83."""

from __future__ import annotations

from typing import Any

import pytest
from support.chains_helpers import items, request
from support.notation import read, write

from continuation.chains import replay as module
from continuation.chains.replay import ChainLost, carried, replay, replayable


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


def test_a_chain_is_rebased_on_an_earlier_response(monkeypatch: pytest.MonkeyPatch) -> None:
    made = replay(request("R:a", top_p=1), items("U:x A[c:a]"), base="resp_0")
    assert _said(made["input"]) == "U:x A[c:a] R:a"
    assert (made["previous_response_id"], made["top_p"]) == ("resp_0", 1)
    assert "previous_response_id" not in replay(request("R:a"), items("U:x A[c:a]"), base=None)
    monkeypatch.setattr(module, "MOST_ITEMS", 1)
    with pytest.raises(ChainLost, match="too large"):
        replay(request("U:y"), items("U:x"), base="resp_0")


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
