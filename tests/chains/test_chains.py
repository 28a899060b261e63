"""The registry that keeps a Responses chain valid: rules, stores, and a server that is strict."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from support.chains_helpers import items, request, said, turn
from support.notation import Json

from continuation.chains import replay
from continuation.chains.replay import ChainLost
from continuation.chains.rules import Tenant, after_not_found, entries_for, refusal, rewrite
from continuation.chains.stores import Alias, Entry, KeptTurn, Lost, MemoryStore
from continuation.history import validate


def sent(body: Json, **entries: Entry) -> Json:
    """The body as it is sent, given what is known of the responses."""
    made = rewrite(body, lambda name: entries.get(name))
    return body if made is None else made.body


def replayed(body: Json, **entries: Entry) -> Json:
    return after_not_found(body, lambda name: entries.get(name)).body


# -- what a later request says -------------------------------------------------------------------


def test_without_an_entry_the_request_is_not_touched() -> None:
    assert rewrite(request("U:y"), {"resp_0": turn("U:x")}.get) is None
    assert rewrite(request("U:y", anchor=None), {"resp_1": turn("U:x")}.get) is None
    assert rewrite({"model": "m", "previous_response_id": 5}, {"5": turn("U:x")}.get) is None


def test_an_escalated_turn_is_named_as_the_server_knows_it() -> None:
    body = request("U:y", store=True, instructions="be brief")
    made = rewrite(body, {"resp_1": Alias("resp_2")}.get)
    assert made is not None
    assert made.why == "alias"
    assert made.body == {**body, "previous_response_id": "resp_2"}
    assert made.body["input"] is body["input"]


def test_a_joined_turn_is_sent_from_where_it_began() -> None:
    body = request("U:y", temperature=1)
    made = sent(body, resp_1=turn("U:x A[t:whole]", "resp_0"))
    assert said(made) == "U:x A[t:whole] U:y"
    assert made["previous_response_id"] == "resp_0"
    assert {k: v for k, v in made.items() if k not in ("input", "previous_response_id")} == {
        "model": "gpt-5.5",
        "temperature": 1,
    }


def test_a_joined_first_turn_is_sent_without_an_anchor() -> None:
    made = sent(request("U:y"), resp_1=turn("U:x A[t:whole]"))
    assert said(made) == "U:x A[t:whole] U:y"
    assert "previous_response_id" not in made
    assert validate(made, "openai-responses", live=False) == []


def test_instructions_are_those_of_the_request_and_never_of_an_earlier_one() -> None:
    first = request("U:x", anchor=None, instructions="first")
    known = entries_for(first, items("A[t:whole]"), given="resp_1", held=None)
    assert "instructions" not in sent(request("U:y"), **known)
    assert sent(request("U:y", instructions="second"), **known)["instructions"] == "second"


def test_turns_kept_as_the_caller_named_them_are_followed_to_their_beginning() -> None:
    known: dict[str, Entry] = {
        "resp_1": turn("U:a A[t:b]"),
        "resp_2": turn("U:c A[t:d]", "resp_1"),
        "resp_3": Alias("resp_2"),
    }
    made = sent(request("U:e", anchor="resp_3"), **known)
    assert said(made) == "U:a A[t:b] U:c A[t:d] U:e"


def test_a_chain_that_leads_back_to_itself_ends() -> None:
    with pytest.raises(ChainLost, match="more than"):
        sent(request("U:y"), resp_1=Alias("resp_2"), resp_2=Alias("resp_1"))


def test_a_joined_turn_that_is_not_kept_fails_closed() -> None:
    with pytest.raises(
        ChainLost, match=r"turn resp_1 .* too large .*; send the whole conversation"
    ):
        sent(request("U:y"), resp_1=Lost("its 9 items are too large to be recorded"))


def test_a_request_that_names_a_conversation_too_is_for_the_server_to_refuse() -> None:
    body = request("U:y", conversation="conv_1")
    assert rewrite(body, {"resp_1": turn("U:x")}.get) is None


def test_nothing_is_changed_in_place() -> None:
    body, known = request("U:y A[c:a] R:a"), {"resp_1": turn("U:x A[th+,t:whole]", "resp_0")}
    before = copy.deepcopy((body, known))
    assert rewrite(body, known.get) is not None
    with pytest.raises(ChainLost):
        after_not_found(body, known.get)
    assert (body, known) == before


def test_a_server_that_stores_nothing_is_not_asked_to_look_up_reasoning() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    kept = KeptTurn(None, [*items("U:x"), thought, search, *items("A[t:whole]")])
    assert validate(sent(request("U:y", store=False), resp_1=kept), "openai-responses") == []
    assert sent(request("U:y"), resp_1=kept)["input"][1] == thought


# -- what is kept --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "kept"),
    [
        ("resp_1", {}),  # it was not healed: the server has it as it is
        ("resp_2", {"resp_1": Alias("resp_2")}),
        (None, {"resp_1": turn("U:x A[t:done]", "resp_0")}),
    ],
)
def test_of_a_turn_only_what_the_server_does_not_have_is_kept(
    held: str | None, kept: dict[str, Entry]
) -> None:
    done = items("A[t:done]")
    assert entries_for(request("U:x", "resp_0"), done, given="resp_1", held=held) == kept


@pytest.mark.parametrize("held", [None, "resp_1", "resp_2"])
def test_a_response_that_is_not_stored_cannot_be_gone_on_from(held: str | None) -> None:
    made = entries_for(request("U:x", store=False), items("A[t:a]"), given="resp_1", held=held)
    assert made == {}


def test_with_content_off_a_joined_turn_is_remembered_only_as_such() -> None:
    made = entries_for(
        request("U:secret"), items("A[t:secret]"), given="resp_1", held=None, content=False
    )
    assert "secret" not in str(made)
    with pytest.raises(ChainLost, match=r'not recorded \(chain_store = "off"\)'):
        sent(request("U:y"), **made)


def test_a_joined_turn_of_a_conversation_fails_closed_later() -> None:
    first = request("U:x", None, conversation="conv_1")
    made = entries_for(first, items("A[t:a]"), given="resp_1", held=None)
    assert isinstance(made["resp_1"], Lost)
    assert entries_for(first, [], given="resp_1", held="resp_1") == {}


def test_a_joined_turn_beyond_the_limits_fails_closed_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay, "MOST_ITEMS", 1)
    made = entries_for(request("U:x"), items("A[t:a]"), given="resp_1", held=None)
    with pytest.raises(ChainLost, match="its 2 items are too large"):
        sent(request("U:y"), **made)


def test_what_was_promised_and_not_kept_fails_closed_until_it_is_taken_back() -> None:
    tenant = Tenant(MemoryStore(), "api", "key")
    first, asked = request("U:x", None), request("U:y")
    assert tenant.promise("resp_1")
    with pytest.raises(ChainLost, match="its content was not recorded"):
        rewrite(asked, tenant.find)
    assert tenant.keep(first, items("A[t:a]"), given="resp_1", held="resp_1")  # the server's own
    assert rewrite(asked, tenant.find) is None
    assert tenant.promise("resp_1")
    assert tenant.forget("resp_1")
    assert rewrite(asked, tenant.find) is None


def test_all_of_a_chain_is_recalled_at_once_and_whose_it_is() -> None:
    store = MemoryStore()
    mine, unseen = Tenant(store, "api", "key"), Tenant(store, "api", "key\nunseen", "key")
    mine.keep(request("U:x", None), items("A[t:a]"), given="resp_1", held=None)
    mine.keep(request("U:y", "resp_1"), items("A[t:b]"), given="resp_2", held="resp_3")
    unseen.keep(request("U:z", "resp_1"), items("A[t:c]"), given="resp_4", held=None)
    assert mine.recall("resp_9") == ({}, False)
    assert mine.recall("resp_2") == ({"resp_2": Alias("resp_3")}, True)
    known, owned = unseen.recall("resp_4")
    assert (set(known), owned) == ({"resp_4", "resp_1"}, True)
    assert unseen.recall("resp_2")[1] is False


def test_merged_items_carry_no_id_that_stands_for_something_else_on_the_server() -> None:
    output = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        {"type": "reasoning", "id": "rs_2", "summary": []},
        {**items("A[t:whole]")[0], "id": "msg_1", "status": "completed", "phase": "final_answer"},
        {**items("A[c:a]")[0], "id": "fc_1"},
    ]
    made = entries_for(request("U:x", None), output, given="resp_1", held=None)["resp_1"]
    assert isinstance(made, KeptTurn)
    assert [item.get("id") for item in made.items] == [None] * 4
    assert [item["type"] for item in made.items][1:] == ["reasoning", "message", "function_call"]
    assert made.items[2]["phase"] == "final_answer"
    assert made.items[3]["call_id"] == "a"


def test_a_search_stays_with_its_reasoning_as_the_server_has_them() -> None:
    found = [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    ]
    output = [*found, *items("A[t:whole]")]
    made = entries_for(request("U:x", None), output, given="resp_1", held=None)["resp_1"]
    assert isinstance(made, KeptTurn)
    assert made.items[1:3] == found


def test_what_was_cut_or_says_nothing_is_not_kept() -> None:
    cut = {"type": "function_call", "call_id": "a", "name": "f", "arguments": '{"x', "id": "fc_1"}
    empty = {"type": "message", "role": "assistant", "content": []}
    thought = items("A[th+]")
    output = [*items("A[t:whole]"), empty, *thought, {**cut, "status": "incomplete"}, *thought]
    made = entries_for(request("U:x", None), output, given="resp_1", held=None)
    assert said(sent(request("U:y"), **made)) == "U:x A[t:whole] U:y"


# -- the rules by name; those of a WebSocket are in design/chains.md -----------------------------


def test_w01_the_history_goes_before_the_input_and_is_never_doubled() -> None:
    kept = turn("U:x A[t:whole]")
    assert said(sent(request("U:y"), resp_1=kept)) == "U:x A[t:whole] U:y"
    assert said(sent(request("U:x A[t:whole] U:y"), resp_1=kept)) == "U:x A[t:whole] U:y"
    empty = {"model": "m", "previous_response_id": "resp_1"}
    assert said(sent(empty, resp_1=kept)) == "U:x A[t:whole]"


def test_w02_a_call_that_nobody_answered_is_left_out_with_its_reasoning() -> None:
    kept = turn("U:x A[t:whole,th+,c:a,c:b]")
    assert said(sent(request("U:y"), resp_1=kept)) == "U:x A[t:whole] U:y"
    assert said(sent(request("R:b U:y"), resp_1=kept)) == "U:x A[t:whole,th,c:b] R:b U:y"


def test_w03_an_output_that_names_no_call_keeps_the_anchor_from_being_dropped() -> None:
    body = request("R:a")
    body["input"][0]["call_id"] = ""
    for way in (sent, replayed):
        with pytest.raises(ChainLost, match=r"outputs: \(none\)"):
            way(body, resp_1=turn("U:x A[c:a]"))


@pytest.mark.parametrize(
    "kind",
    [
        "function_call_output",
        "custom_tool_call_output",
        "mcp_tool_call_output",
        "tool_search_output",
        "shell_call_output",
        "apply_patch_call_output",
        "computer_call_output",
    ],
)
def test_w04_every_kind_of_output_must_find_its_call(kind: str) -> None:
    body = {"previous_response_id": "resp_1", "input": [{"type": kind, "call_id": "lost"}]}
    for way in (sent, replayed):
        with pytest.raises(ChainLost, match="outputs: lost"):
            way(body, resp_1=turn("U:x A[c:a]"))


def test_w04_an_output_in_the_history_must_find_its_call_too() -> None:
    with pytest.raises(ChainLost, match="outputs: a;"):
        replayed(request("U:y"), resp_1=turn("R:a A[t:x]"))


def test_w04_a_local_shell_answers_by_the_id_of_the_item() -> None:
    shell = {"type": "local_shell_call", "id": "lsh_1", "call_id": "call_1", "action": {}}
    answer = {"type": "local_shell_call_output", "id": "lsh_1", "output": "ok"}
    body = {"previous_response_id": "resp_1", "input": [answer]}
    made = sent(body, resp_1=KeptTurn(None, [*items("U:x"), shell]))
    assert made["input"][1:] == [shell, answer]


def test_w05_a_reference_is_no_call_and_cannot_be_looked_up_by_a_server_that_forgot() -> None:
    named = {"type": "item_reference", "id": "fc_1"}
    body = {"previous_response_id": "resp_1", "input": [named, *items("R:a")]}
    with pytest.raises(ChainLost, match="outputs: a"):
        sent(body, resp_1=turn("U:x"))
    for reference in (named, {"id": "fc_1"}):
        kept = KeptTurn(None, [reference, *items("A[t:b]")])
        with pytest.raises(ChainLost, match="items fc_1"):
            replayed(request("U:y"), resp_1=kept)


def test_w09_a_lost_chain_is_sent_in_full_once() -> None:
    kept = turn("U:x A[t:a]")
    known, body = {"resp_1": kept}, request("U:y")
    made = after_not_found(body, known.get)
    assert "previous_response_id" not in made.body
    assert said(made.body) == "U:x A[t:a] U:y"
    assert validate(made.body, "openai-responses", live=False) == []
    with pytest.raises(ChainLost, match="sent in full"):
        after_not_found(body, known.get, sent=made)
    with pytest.raises(ChainLost, match="sent in full"):
        after_not_found(made.body, known.get)


def test_w09_a_joined_turn_whose_items_the_server_forgot_is_sent_without_them() -> None:
    found = [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    ]
    known = {"resp_1": KeptTurn(None, [*items("U:x"), *found, *items("A[t:a]")])}
    made = rewrite(request("U:y"), known.get)
    assert made is not None
    assert made.body["input"][1:3] == found
    again = after_not_found(request("U:y"), known.get, sent=made)
    assert [item["type"] for item in again.body["input"]][1:3] == ["web_search_call", "message"]


def test_w09_a_lost_chain_that_we_do_not_know_to_its_beginning_fails_closed() -> None:
    for known in ({}, {"resp_1": turn("U:x A[t:a]", "resp_0")}):
        with pytest.raises(
            ChainLost, match="earlier part of the conversation is unknown; send the"
        ):
            replayed(request("U:y"), **known)


def test_w09_the_error_says_what_is_missing_and_how_to_go_on() -> None:
    with pytest.raises(ChainLost) as raised:
        sent(request("R:lost"), resp_1=turn("U:x A[c:a]"))
    error = refusal(raised.value)["error"]
    assert "lost" in error["message"]
    assert "without `previous_response_id`" in error["message"]
    assert (error["code"], error["param"]) == (
        "previous_response_not_found",
        "previous_response_id",
    )
    assert raised.value.calls == ("lost",)


def test_w09_a_call_is_never_put_in_again_while_its_anchor_stays() -> None:
    body = request("R:a")
    assert sent(body, resp_1=Alias("resp_2"))["input"] == body["input"]
    moved = sent(body, resp_1=turn("R:z A[t:b,c:a]", "resp_0"))
    assert said(moved) == "R:z A[t:b,c:a] R:a"


@pytest.mark.parametrize(("bound", "most"), [("MOST_ITEMS", 2), ("MOST_BYTES", 20)])
def test_w10_a_history_too_large_to_send_again_fails_closed(
    monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    monkeypatch.setattr(replay, bound, most)
    for base in (None, "resp_0"):
        known: dict[str, Entry] = {"resp_1": turn("U:x A[t:a]", base)}
        with pytest.raises(ChainLost, match="3 items is too large"):
            rewrite(request("U:y"), known.get)


@pytest.mark.parametrize(
    ("given", "count"),
    [("words", 3), ("", 2), (None, 2), ({"role": "user", "content": "x"}, 3), ([], 2)],
)
def test_w13_input_may_be_a_string_an_object_an_array_or_null(given: Any, count: int) -> None:
    body = {"previous_response_id": "resp_1", "input": given}
    assert len(sent(body, resp_1=turn("U:x A[t:a]"))["input"]) == count


def test_w13_other_input_is_an_error_not_silence() -> None:
    with pytest.raises(ValueError, match="input: a int; give a string, an object or an array"):
        sent({"previous_response_id": "resp_1", "input": 5}, resp_1=turn("U:x"))


def test_w14_ids_that_do_not_begin_as_they_must_are_dropped_and_call_ids_kept() -> None:
    output = [{**items("A[c:a]")[0], "id": "call_a"}]
    made = entries_for(request("U:x", None), output, given="resp_1", held=None)
    body = sent(
        {"previous_response_id": "resp_1", "input": [{**items("R:a")[0], "id": "o"}]}, **made
    )
    assert validate(body, "openai-responses", live=False) == []
    assert body["input"][1]["call_id"] == "a"
    assert body["input"][2]["id"] == "o"


# -- the door ------------------------------------------------------------------------------------


def test_what_a_tenant_keeps_is_what_a_later_request_goes_on_from() -> None:
    tenant = Tenant(MemoryStore(), "api", "")
    assert tenant.keep(request("U:x", None), items("A[t:a]"), given="resp_1", held=None)
    assert tenant.find("resp_1") == turn("U:x A[t:a]")
    made, again = (ask(request("U:y"), tenant.find) for ask in (rewrite, after_not_found))
    assert made is not None
    assert again is not None
    assert said(made.body) == said(again.body) == "U:x A[t:a] U:y"
    tenant.store.close()
    assert tenant.keep(request("U:x", None), [], given="resp_1", held=None) is False
