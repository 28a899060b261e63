"""When a chain of Responses may be rebuilt (W rows), and vectors 76 to 83."""

from __future__ import annotations

from typing import Any

import pytest
from support.notation import Json, read, write

from continuation.chains.replay import (
    ChainLost,
    ReplayLimits,
    anchor_reason,
    carried,
    infer_anchor,
    realign,
    references,
    replay,
    replayable,
    uncovered,
)
from continuation.history import validate


def _items(line: str) -> list[Any]:
    return list(write("openai-responses", line)["input"])


def _body(line: str, **fields: Any) -> Json:
    return write("openai-responses", line, previous_response_id="resp_1", **fields)


def _said(items: list[Any]) -> str:
    return read("openai-responses", {"input": items})


def test_w01_without_an_anchor_the_input_is_all_there_is() -> None:
    body = write("openai-responses", "U:y")
    assert _said(replayable(body, _items("U:x"))) == "U:y"


def test_w01_vector_82_input_that_repeats_the_history_is_not_doubled() -> None:
    history = _items("U:x A[c:a]")
    body = _body("U:x A[c:a] R:a")
    body["input"][0] = dict(reversed(body["input"][0].items()))
    assert _said(replayable(body, history)) == "U:x A[c:a] R:a"


def test_w01_otherwise_the_history_goes_before_the_input() -> None:
    assert _said(replayable(_body("R:a"), _items("U:x A[c:a]"))) == "U:x A[c:a] R:a"


def test_w01_big_numbers_are_compared_exactly() -> None:
    history = [{"role": "user", "content": "x", "n": 2**60}]
    body = {
        "previous_response_id": "r",
        "input": [{"role": "user", "content": "x", "n": 2**60 + 1}],
    }
    assert len(replayable(body, history)) == 2


def test_w02_vector_81_old_calls_without_output_are_left_out_with_their_reasoning() -> None:
    history = _items("U:x A[th+,c:z] U:y A[c:a]")
    assert _said(replayable(_body("R:a"), history)) == "U:x U:y A[c:a] R:a"


def test_w02_a_call_that_the_request_brings_along_is_not_there_twice() -> None:
    made = replayable(_body("A[c:a] R:a"), _items("U:x A[th+,c:a]"))
    assert _said(made) == "U:x A[c:a] R:a"
    made = replayable(_body("A[c:a] R:a"), _items("U:x A[c:a] R:a"))
    assert _said(made) == "U:x A[c:a] R:a A[c:a] R:a", "answered before: another one"


def test_w03_vector_80_an_output_that_names_no_call_ends_the_chain() -> None:
    body = _body("R:a")
    body["input"][0]["call_id"] = ""
    with pytest.raises(ChainLost) as raised:
        replay(body, _items("U:x A[c:a]"))
    assert raised.value.calls == ("",)


def test_vector_77_a_complete_history_is_replayed_without_the_anchor() -> None:
    made = replay(_body("U:y"), _items("U:x A[c:a] R:a A[t:z]"))
    assert "previous_response_id" not in made
    assert _said(made["input"]) == "U:x A[c:a] R:a A[t:z] U:y"
    assert validate(made, "openai-responses", live=False) == []


def test_vector_78_an_output_whose_call_only_the_lost_response_knew_fails_closed() -> None:
    with pytest.raises(ChainLost, match="these outputs: a; send the whole conversation"):
        replay(_body("U:y"), _items("U:x R:a"))


def test_vector_79_an_output_whose_call_we_hold_is_replayed_with_it() -> None:
    made = replay(_body("R:a"), _items("U:x A[c:a]"))
    assert _said(made["input"]) == "U:x A[c:a] R:a"


def test_an_unknown_history_fails_closed() -> None:
    with pytest.raises(ChainLost, match="nothing is known"):
        replay(_body("U:y"), None)


def test_w04_every_kind_of_output_is_looked_at() -> None:
    kinds = ["function_call_output", "custom_tool_call_output", "mcp_tool_call_output"]
    kinds.append("tool_search_output")
    items: list[Any] = [{"type": kind, "call_id": kind} for kind in kinds]
    assert uncovered(items) == tuple(kinds)
    items.append({"type": "tool_search_output", "execution": "server"})
    assert uncovered(items) == tuple(kinds)


def test_w05_a_reference_is_no_call() -> None:
    items = [{"type": "item_reference", "id": "fc_1"}, *_items("R:a")]
    assert uncovered(items) == ("a",)
    assert references([*items, {"id": "rs_1"}, {"role": "user"}]) == ("fc_1", "rs_1")


def test_w04_a_call_that_the_server_runs_needs_no_output() -> None:
    ran = {"type": "tool_search_call", "id": "tsc_1", "execution": "server"}
    found = {"type": "tool_search_output", "id": "tso_1", "execution": "server", "tools": []}
    history = [*_items("U:x"), *_items("A[th+]"), ran, found, *_items("A[t:z]")]
    assert replayable(_body("U:y"), history)[:-1] == history
    assert replay(_body("U:y"), history)["input"][:-1] == history


@pytest.mark.parametrize("kind", ["web_search_call", "message", "reasoning"])
def test_reasoning_stays_before_whatever_the_model_made_of_it(kind: str) -> None:
    led = {"type": kind, "role": "assistant", "content": "z", "encrypted_content": "gAAA"}
    history = [*_items("U:x A[th+]"), led, *_items("A[t:z]")]
    assert replayable(_body("U:y"), history)[:-1] == history
    assert _said(replayable(_body("U:y"), _items("U:x A[th+] U:z A[th+]"))) == "U:x U:z U:y"


def test_a_chain_is_rebased_on_an_earlier_response() -> None:
    made = replay(_body("R:a", top_p=1), _items("U:x A[c:a]"), base="resp_0")
    assert _said(made["input"]) == "U:x A[c:a] R:a"
    assert (made["previous_response_id"], made["top_p"]) == ("resp_0", 1)
    assert "previous_response_id" not in replay(_body("R:a"), _items("U:x A[c:a]"), base=None)
    with pytest.raises(ChainLost, match="too large"):
        replay(_body("U:y"), _items("U:x"), base="resp_0", limits=ReplayLimits(items=1))


def test_w14_items_are_carried_without_ids_that_stand_for_something_else() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    search = {"type": "web_search_call", "id": "ws_1"}
    message = {**_items("A[t:z]")[0], "id": "msg_1"}
    bare = {key: value for key, value in search.items() if key != "id"}
    assert carried([thought, search, message], stored=True)[:2] == [thought, search]
    assert carried([thought, search, message], stored=False) == [bare, *_items("A[t:z]")]
    assert carried([search, thought, message], stored=True) == [search, *_items("A[t:z]")]
    sealed = {**thought, "encrypted_content": "gAAA"}
    assert [item.get("id") for item in carried([sealed, message], stored=True)] == [None, None]
    assert carried([message, sealed], stored=True) == _items("A[t:z]")


def test_w06_the_anchor_is_inferred_for_bare_outputs_only() -> None:
    bare = write("openai-responses", "R:a", store=False)
    assert infer_anchor(bare, "resp_9")["previous_response_id"] == "resp_9"
    for other in (
        write("openai-responses", "R:a"),
        write("openai-responses", "A[c:a] R:a", store=False),
        write("openai-responses", "U:x", store=False),
        _body("R:a", store=False),
    ):
        assert infer_anchor(other, "resp_9") is other
    assert infer_anchor(bare, None) is bare


def test_w07_a_stale_anchor_is_realigned() -> None:
    body = _body("R:a")
    assert realign(body, "resp_1") is body
    assert realign(body, "resp_2")["previous_response_id"] == "resp_2"
    plain = write("openai-responses", "U:x")
    assert realign(plain, "resp_2") is plain


@pytest.mark.parametrize(
    ("body", "before", "last", "reason"),
    [
        (_body("R:a"), _body("U:x"), "resp_1", "has_output"),
        (write("openai-responses", "U:x"), _body("U:x"), "resp_1", "no_anchor"),
        (_body("U:x"), _body("U:x"), None, "no_last_response"),
        (_body("U:x"), _body("U:x"), "resp_2", "anchor_mismatch"),
        (_body("U:x"), None, "resp_1", "no_previous_request"),
        (_body("U:x", top_p=1), _body("U:x"), "resp_1", "other_fields_changed"),
        (_body("U:y"), _body("U:x"), "resp_1", "incremental"),
    ],
)
def test_w08_why_an_anchor_stays(body: Json, before: Json | None, last: str, reason: str) -> None:
    assert anchor_reason(body, before, last) == reason


def test_w10_a_history_too_large_to_send_again_fails_closed() -> None:
    with pytest.raises(ChainLost, match="3 items is too large"):
        replay(_body("U:y"), _items("U:x A[t:z]"), limits=ReplayLimits(items=2))
    with pytest.raises(ChainLost, match="too large"):
        replay(_body("U:y"), _items("U:x"), limits=ReplayLimits(size=20))


@pytest.mark.parametrize(
    ("given", "count"),
    [("words", 1), ("", 0), (None, 0), ({"role": "user", "content": "x"}, 1), ([], 0)],
)
def test_w13_input_may_be_a_string_an_object_an_array_or_null(given: Any, count: int) -> None:
    assert len(replayable({"input": given}, None)) == count


def test_w13_other_input_is_an_error_not_silence() -> None:
    with pytest.raises(ValueError, match="input: a int; give a string, an object or an array"):
        replayable({"input": 5}, None)


def test_w14_ids_that_do_not_begin_as_they_must_are_dropped_and_call_ids_kept() -> None:
    from continuation.history import repair

    body = write("openai-responses", "U:x A[c:a] R:a")
    body["input"][1]["id"] = "call_a"
    body["input"][2]["id"] = "anything"
    made = repair(body).body["input"]
    assert "id" not in made[1]
    assert made[1]["call_id"] == "a"
    assert made[2]["id"] == "anything"
