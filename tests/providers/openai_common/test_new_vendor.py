"""A new vendor is one table: the dialect heals it, the simulator plays it, histories go by it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import httpx2
import pytest
from support.chat_helpers import ANSWER, CALLED, GO, HEADERS, refused, said
from support.sdks.chat import limits, plays, run
from support.sdks.turn import How, body_of

from continuation import Policy
from continuation.history import validate
from continuation.providers.openai_common import vendors as dialect
from continuation.providers.openai_common.vendors import Profile
from continuation.simulator import Scenario, Simulator
from continuation.simulator.openai_chat import vendors as server
from continuation.simulator.openai_chat.vendors import SimulatedVendor
from continuation.types import Outcome
from continuation.wire import vendors as shipped

ACME = """
[acme]
urls = ["api.acme.test"]
prefill = "partial"
prefill_unless = ["response_format"]
prefill_models = ["acme-*"]
limit_only = true
terminal = "required"
reasoning = ["musings"]

[acme.server]
refuses_other_limit = true
default_limit = 400
error_shape = "flat"
error_fields = ["message", "code"]
error_code = "acme_7"

[acme.server.errors]
ceiling = "max_tokens must be less than or equal to {most}, not {asked}"
trailing = "acme goes on from partial messages only"
tool_result_missing = "acme misses an answer behind message {n}"

[acme.history]
models = ["acme-*"]
checked = true
"""
hows = pytest.mark.parametrize("how", ["sync", "sync-stream", "async-stream"])


def forget() -> None:
    shipped.tables.cache_clear()
    shipped.vendor_of_model.cache_clear()
    dialect.built_in.cache_clear()
    dialect._FOUND.clear()
    server.vendors.cache_clear()


@pytest.fixture
def sim(monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulator]:
    text = shipped.source() + ACME
    monkeypatch.setattr(shipped, "source", lambda: text)
    forget()
    with Simulator(ANSWER) as running:
        yield running
    monkeypatch.undo()
    forget()


@hows
def test_its_ceiling_is_learned_and_its_answer_made_whole(sim: Simulator, how: How) -> None:
    plays(sim, "acme", ceiling=900, models_endpoint=False, thinking=20)
    ran = run(sim, how, like="acme", model="acme-1", max_tokens=300)
    assert (ran.text, ran.finish) == (ANSWER, "stop")
    assert ran.told.outcome is Outcome.HEALED
    assert [post.status for post in sim.posts] == [200, 400, 200]
    assert limits(sim)[::2] == [300, 900]
    assert ran.message.model_extra["musings"]


@hows
def test_it_is_asked_to_go_on_in_its_own_form(sim: Simulator, how: How) -> None:
    plays(sim, "acme")
    policy = Policy(model_max_output_tokens=300, backoff_seconds=0)
    ran = run(sim, how, like="acme", policy=policy, model="acme-1", max_tokens=300)
    assert (ran.text, ran.finish) == (ANSWER, "stop")
    last = body_of(sim.posts[-1])["messages"][-1]
    assert (last["role"], last["partial"]) == ("assistant", True)


def test_it_is_found_by_its_url(sim: Simulator) -> None:
    assert dialect.profile("https://api.acme.test/v1/chat/completions").name == "acme"


def test_its_server_refuses_in_its_own_words(sim: Simulator) -> None:
    told = refused(sim, "acme", model="acme-1", messages=[GO, said("half")])
    assert told == {
        "object": "error",
        "message": "acme goes on from partial messages only",
        "code": "acme_7",
    }
    told = refused(sim, "acme", model="acme-1", max_completion_tokens=5)
    assert told["message"] == "Unrecognized request argument supplied: max_completion_tokens"
    told = refused(sim, "acme", model="acme-1", messages=[GO, CALLED, GO])
    assert told["message"] == "acme misses an answer behind message 1"


def test_its_default_limit_holds_and_no_other_server_changes(sim: Simulator) -> None:
    body = {"model": "acme-1", "messages": [GO]}
    url = f"{sim.url}/v1/chat/completions"
    for vendor, spent in (("acme", 400), ("moonshot", 729)):
        sim.scenario = Scenario(vendor=vendor)
        usage = httpx2.post(url, json=body, headers=HEADERS).json()["usage"]
        assert usage["completion_tokens"] == min(spent, -(-len(ANSWER) // 4))


def test_the_rules_of_its_histories_are_told_from_the_models_name(sim: Simulator) -> None:
    assert shipped.vendor_of_model("Acme-1") == "acme"
    assert validate({"model": "acme-1", "messages": [GO]}, "openai-chat") == []


def test_a_key_that_its_server_does_not_have_is_named(
    sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shipped.source().replace("default_limit = 400", "default_limt = 400")
    monkeypatch.setattr(shipped, "source", lambda: text)
    forget()
    with pytest.raises(ValueError, match=r"\[acme.server\] has an unknown key: default_limt"):
        Scenario(vendor="acme")


# --- the tables we ship -------------------------------------------------------------------------


def test_dialect_and_simulator_have_the_same_defaults_for_the_keys_they_share() -> None:
    theirs = {each.name: each.default for each in fields(Profile)}
    ours = {each.name: each.default for each in fields(SimulatedVendor)}
    shared = ours.keys() & theirs.keys() - {"name"}
    assert len(shared) == 8
    assert {key: ours[key] for key in shared} == {key: theirs[key] for key in shared}


@pytest.mark.parametrize("name", [*server.vendors()])
def test_what_a_server_does_without_a_limit_is_what_the_dialect_goes_by(name: str) -> None:
    """Where the dialect takes no limit for the ceiling, there must be no smaller default."""
    one = server.vendors()[name]
    assert not (dialect.built_in()[name].default_limit_is_ceiling and one.default_limit)
    assert one.trailing_answer in ("", "finished", "continued", "user")
    assert one.error_shape in ("nested", "flat", "list", "string")
    assert one.unfinished in ("never", "overflow", "cut")
    values = {
        each.name: (getattr(one, each.name), each.default) for each in fields(SimulatedVendor)
    }
    flags = [value for value, default in values.values() if isinstance(default, bool)]
    assert all(isinstance(value, bool) for value in flags)
