"""One refused signature, then ten signed tool loops: all later thinking stays on the wire.

Signatures are the simulator's, which checks each of them. Through the library and the gateway.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx2
import pytest
from support.gateways import serving
from support.sdks.turn import FAST, body_of

import continuation
from continuation.simulator import Reply, Scenario, Simulator, Text, Thinking, ToolUse

LOOPS = 10
FAULTY = "c2lnbmVkIGJ5IG5vYm9keQ=="


class Agent:
    """An agent's loop in one wire format; it keeps the history as it was answered."""

    path = url = ""
    key: Mapping[str, str] = MappingProxyType({})

    def __init__(self, http: httpx2.Client, base: str) -> None:
        self.http, self.base = http, base
        self.body: dict[str, Any] = {}
        self.add_user("Go.")

    @property
    def turns(self) -> list[Any]:
        raise NotImplementedError

    def add_user(self, text: str) -> None:
        raise NotImplementedError

    def take(self, answer: Any) -> None:
        """Add an answer to the history, and the results of its calls."""
        raise NotImplementedError

    def damage(self) -> None:
        """Damage the first signature of the history."""
        found = list(seals(self.turns))
        owner, key = found[0]
        owner[key] = FAULTY

    def ask(self) -> None:
        answer = self.http.post(self.base + self.path, json=self.body, headers=self.key, timeout=60)
        assert answer.status_code == 200, answer.text
        self.take(answer.json())


class Claude(Agent):
    path, key = "/v1/messages", {"x-api-key": "key"}
    url = "anthropic"
    model = "claude-opus-5"
    thinking: Mapping[str, Any] = MappingProxyType({"type": "adaptive"})

    def __init__(self, http: httpx2.Client, base: str) -> None:
        super().__init__(http, base)
        tool = {"name": "tool", "input_schema": {"type": "object"}}
        self.body |= {"model": self.model, "thinking": dict(self.thinking), "tools": [tool]}
        self.body["max_tokens"] = 4000

    @property
    def turns(self) -> list[Any]:
        turns: list[Any] = self.body.setdefault("messages", [])
        return turns

    def add_user(self, text: str) -> None:
        self.turns.append({"role": "user", "content": text})

    def take(self, answer: Any) -> None:
        self.turns.append({"role": "assistant", "content": answer["content"]})
        calls = [block for block in answer["content"] if block["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": c["id"], "content": "ok"} for c in calls]
        if results:
            self.turns.append({"role": "user", "content": results})


class Manual(Claude):
    model = "claude-sonnet-4-5"
    thinking: Mapping[str, Any] = MappingProxyType({"type": "enabled", "budget_tokens": 1024})


class Responses(Agent):
    path, key, url = "/v1/responses", {"authorization": "Bearer key"}, "openai"

    def __init__(self, http: httpx2.Client, base: str) -> None:
        super().__init__(http, base)
        tool = {"type": "function", "name": "tool", "parameters": {"type": "object"}}
        self.body |= {"model": "gpt-5.4", "store": False, "tools": [tool]}
        self.body["include"] = ["reasoning.encrypted_content"]

    @property
    def turns(self) -> list[Any]:
        turns: list[Any] = self.body.setdefault("input", [])
        return turns

    def add_user(self, text: str) -> None:
        self.turns.append({"type": "message", "role": "user", "content": text})

    def take(self, answer: Any) -> None:
        self.turns.extend(answer["output"])
        for call in [item for item in answer["output"] if item["type"] == "function_call"]:
            output = {"type": "function_call_output", "call_id": call["call_id"], "output": "ok"}
            self.body["input"].append(output)


class Gemini(Agent):
    path, key = "/v1beta/models/gemini-3.1-pro:generateContent", {"x-goog-api-key": "key"}
    url = "gemini"

    def __init__(self, http: httpx2.Client, base: str) -> None:
        super().__init__(http, base)
        declared = {"name": "tool", "parameters": {"type": "OBJECT"}}
        self.body |= {"tools": [{"functionDeclarations": [declared]}]}

    @property
    def turns(self) -> list[Any]:
        turns: list[Any] = self.body.setdefault("contents", [])
        return turns

    def add_user(self, text: str) -> None:
        self.turns.append({"role": "user", "parts": [{"text": text}]})

    def take(self, answer: Any) -> None:
        said = answer["candidates"][0]["content"]
        self.turns.append(said)
        calls = [part["functionCall"] for part in said["parts"] if "functionCall" in part]
        made = [{"functionResponse": {"name": c["name"], "response": {"ok": 1}}} for c in calls]
        if made:
            self.turns.append({"role": "user", "parts": made})


def seals(value: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each object that holds a signature, and its key."""
    if isinstance(value, list):
        for each in value:
            yield from seals(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key in {"signature", "encrypted_content", "thoughtSignature"}:
                yield value, key
            else:
                yield from seals(each)


def signatures(value: Any) -> list[str]:
    found = [owner[key] for owner, key in seals(value)]
    return [each for each in found if each != "skip_thought_signature_validator"]


@contextlib.contextmanager
def agent(door: str, kind: type[Agent], sim: Simulator, folder: Path) -> Iterator[Agent]:
    if door == "library":
        with continuation.http_client(config=FAST) as http:
            yield kind(http, sim.url)
    else:
        more = "[defaults]\nbackoff_seconds = 0.0\n"
        with serving(folder, sim.url, more) as gateway, httpx2.Client() as http:
            yield kind(http, f"{gateway.url}/{kind.url}")


AGENTS = [Claude, Manual, Responses, Gemini]


def loops(running: Agent, sim: Simulator, first: int = 0) -> list[int]:
    """Run ten tool loops; return the statuses of all requests in them."""
    before = len(sim.posts)
    for number in range(first, first + LOOPS):
        call = ToolUse("tool", "{}", id=f"call_{number}")
        sim.script([Reply([Thinking(f"Thought {number}."), call], stop="tool_use")])
        running.ask()
    return [post.status for post in sim.posts[before:]]


@pytest.mark.parametrize("door", ["library", "gateway"])
@pytest.mark.parametrize("kind", AGENTS)
def test_all_later_thinking_stays_on_the_wire(door: str, kind: type[Agent], tmp_path: Path) -> None:
    with (
        Simulator(scenario=Scenario(strict_signatures=True)) as sim,
        agent(door, kind, sim, tmp_path) as running,
    ):
        call = ToolUse("tool", "{}", id="call_x")
        sim.script([Reply([Thinking("Hm."), call], stop="tool_use"), Reply([Text("Done.")])])
        running.ask()
        running.damage()
        before = len(sim.posts)
        running.ask()
        assert [post.status for post in sim.posts[before:]] == [400, 200], "refused once"
        running.add_user("On.")
        assert loops(running, sim) == [200] * LOOPS, "no refusal"
        wanted = [each for each in signatures(running.turns) if each != FAULTY]
        last = body_of(sim.posts[-1])
        shown = signatures(last)
        assert shown == wanted[: len(shown)]
        assert len(shown) >= LOOPS - 1
        if "thinking" in running.body:
            assert last["thinking"] == running.body["thinking"]


@pytest.mark.parametrize("door", ["library", "gateway"])
@pytest.mark.parametrize("kind", [Claude, Manual])
def test_an_error_about_the_order_of_blocks_does_not_turn_thinking_off(
    kind: type[Claude], door: str, tmp_path: Path
) -> None:
    words = (
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found"
        " `tool_use`. When `thinking` is enabled, a final `assistant` message must start with a"
        " thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks)."
    )
    refusal = Reply(status=400, error=("invalid_request_error", words))
    with Simulator() as sim, agent(door, kind, sim, tmp_path) as running:
        running.take(
            {"content": [{"type": "tool_use", "id": "call_x", "name": "tool", "input": {}}]}
        )
        # The simulated server refuses it by itself where thinking is manual.
        sim.script([*([refusal] if kind is Claude else []), Reply([Text("Done.")])])
        running.ask()
        assert [post.status for post in sim.posts] == [400, 200]
        running.add_user("On.")
        assert loops(running, sim) == [200] * LOOPS
        assert body_of(sim.posts[-1])["thinking"] == kind.thinking
        assert len(signatures(body_of(sim.posts[-1]))) == LOOPS - 1


@pytest.mark.parametrize("kind", AGENTS)
@pytest.mark.parametrize("how", ["compacted", "edited", "forked"])
def test_a_history_that_the_client_changes_is_sent_as_it_changed_it(
    kind: type[Agent], how: str, tmp_path: Path
) -> None:
    """What is remembered is known by its content: elsewhere nothing is repaired."""
    with (
        Simulator(scenario=Scenario(strict_signatures=True)) as sim,
        agent("library", kind, sim, tmp_path) as running,
    ):
        call = ToolUse("tool", "{}", id="call_x")
        sim.script([Reply([Thinking("Hm."), call], stop="tool_use"), Reply([Text("Done.")])])
        running.ask()
        whole = copy.deepcopy(running.turns)
        running.damage()
        running.ask()
        running.add_user("On.")
        kept = list(running.turns)
        running.turns.clear()
        if how == "compacted":
            running.add_user("So far: all was done.")
        elif how == "edited":
            running.turns.extend(whole)  # the damage was undone
            running.turns.extend(kept[len(whole) :])
        else:
            running.turns.extend(whole)
        before = len(signatures(running.turns))
        assert loops(running, sim) == [200] * LOOPS
        assert len(signatures(body_of(sim.posts[-1]))) >= before + LOOPS - 1
