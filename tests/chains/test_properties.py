"""Any course of a conversation over `previous_response_id`: what is sent next is always accepted.

The server here keeps responses as the provider does, and is strict: calls and outputs pair over the
whole chain, items are known once, an item of its own comes with its reasoning. The agent only knows
the ids and the output it was given.
"""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from support.chains_helpers import items, said
from support.examples import examples
from support.notation import Json

from continuation.chains.replay import ChainLost
from continuation.chains.rules import Tenant, after_not_found, rewrite
from continuation.chains.sqlite import SqliteStore
from continuation.chains.stores import MemoryStore, Store
from continuation.history import validate

RECOVERY = "Go on where you stopped."


class NotFoundError(Exception):
    """The server has lost a response or an item that a request names."""


@dataclass
class Server:
    """Keeps what each response read and said; accepts only what a strict provider would."""

    context: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    numbers: Any = field(default_factory=itertools.count)

    def answer(self, body: Json, output: list[Any]) -> tuple[str, list[Any]]:
        """Return the new response's id, and the output as it is kept: with ids."""
        read = self.read(body)
        made = [{**item, "id": f"{_PREFIX[item['type']]}_{next(self.numbers)}"} for item in output]
        name = f"resp_{next(self.numbers)}"
        self.context[name] = [*read, *made]
        return name, made

    def read(self, body: Json) -> list[Any]:
        """Return all that the model reads; fails if the request would be refused."""
        anchor = body.get("previous_response_id")
        if anchor is not None and anchor not in self.context:
            raise NotFoundError
        held = self.context[anchor] if anchor is not None else []
        read = [*held, *body["input"]]
        # What the server holds it can read, whether or not it is encrypted.
        assert validate({"input": read}, "openai-responses", live=False) == []
        self._want_reasoning(body["input"])
        return read

    def _want_reasoning(self, brought: list[Any]) -> None:
        known = {
            item["id"]: item for kept in self.context.values() for item in kept if "id" in item
        }
        wanted = {
            after["id"]: before["id"]
            for kept in self.context.values()
            for before, after in itertools.pairwise(kept)
            if before["type"] == "reasoning" and "id" in before and "id" in after
        }
        for before, item in itertools.pairwise([{}, *brought]):
            name = item.get("id")
            if (
                item["type"] == "reasoning"
                and "encrypted_content" not in item
                and name not in known
            ):
                raise NotFoundError
            assert name not in wanted or before.get("id") == wanted[name]


_PREFIX = {"message": "msg", "function_call": "fc", "reasoning": "rs", "web_search_call": "ws"}


@dataclass
class Branch:
    """What the agent knows of a response: its id, what was said until then, calls to answer."""

    id: str | None = None
    line: str = ""
    open: tuple[str, ...] = ()
    joined: bool = False


WAYS = st.sampled_from(["whole", "escalated", "joined", "joined"])
PARTS = st.lists(st.sampled_from(["th", "ths", "search"]), max_size=2)


class Conversation(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.server = Server()
        self.branches = [Branch()]
        self.names = itertools.count()
        self.store: Store | None = None

    @initialize(sqlite=st.booleans())
    def begin(self, sqlite: bool) -> None:
        self.sqlite = sqlite
        self.open()

    def open(self) -> None:
        path = Path(self.folder.name) / "chains.db"
        self.store = SqliteStore(path) if self.sqlite else MemoryStore()
        self.tenant = Tenant(self.store, "api", "key")

    def teardown(self) -> None:
        if self.store is not None:
            self.store.close()
        self.folder.cleanup()

    @precondition(lambda self: self.sqlite)
    @rule()
    def restart(self) -> None:
        assert self.store is not None
        self.store.close()
        self.open()

    @rule(data=st.data(), way=WAYS, parts=PARTS, calls=st.integers(0, 2), answered=st.booleans())
    def go_on(
        self, data: st.DataObject, way: str, parts: list[str], calls: int, answered: bool
    ) -> None:
        branch = data.draw(st.sampled_from(self.branches))
        # Only of a joined turn may calls stay open: of others the server itself would refuse it.
        outputs = branch.open if answered or not branch.joined else ()
        asked = " ".join([*(f"R:{call}" for call in outputs), f"U:u{next(self.names)}"])
        body: Json = {"model": "m", "input": items(asked)}
        if branch.id is not None:
            body["previous_response_id"] = branch.id
        before = _without(branch.line, set(branch.open) - set(outputs))
        sent = self.send(body, f"{before} {asked}".strip())
        if sent is None:
            return
        text = f"t{next(self.names)}"
        made = tuple(f"c{next(self.names)}" for _ in range(calls))
        name = self.heal(sent, way, parts, text, made)
        answer = f"A[{','.join([f't:{text}', *(f'c:{call}' for call in made)])}]"
        line = f"{before} {asked} {answer}".strip()
        self.branches.append(Branch(name, line, made, joined=way == "joined"))

    def send(self, body: Json, expected: str) -> Json | None:
        """Return what is accepted; None if the chain is over, which must be told before sending."""
        made = rewrite(body, self.tenant.find)
        sent = body if made is None else made.body
        try:
            read = self.server.read(sent)
        except NotFoundError:
            try:
                sent = after_not_found(body, self.tenant.find, sent=made).body
            except ChainLost:
                return None
            read = self.server.read(sent)
        assert _seen(read) == expected
        return sent

    def heal(
        self, sent: Json, way: str, parts: list[str], text: str, calls: tuple[str, ...]
    ) -> str:
        """Run a turn as the engine would; return the id that the agent gets."""
        thoughts = [item for part in parts for item in _part(part)]
        called = [item for call in calls for item in items(f"A[c:{call}]")]
        whole = [*thoughts, *items(f"A[t:{text}]"), *called]
        if way == "whole":
            first, output = self.server.answer(sent, whole)
            assert self.tenant.keep(sent, output, given=first, held=first)
            return first
        half = [*thoughts, *items(f"A[t:{text[:1]}]")]
        first, kept = self.server.answer(sent, half)
        if way == "escalated":
            held, output = self.server.answer(sent, whole)
            assert self.tenant.keep(sent, output, given=first, held=held)
            return first
        again = {"input": items(f"U:{RECOVERY.replace(' ', '-')}"), "previous_response_id": first}
        _, rest = self.server.answer(again, [*items(f"A[t:{text[1:]}]"), *called])
        joined = {**kept[-1], "content": items(f"A[t:{text}]")[0]["content"]}
        output = [*kept[:-1], joined, *rest[1:]]
        assert self.tenant.keep(sent, output, given=first, held=None)
        return first


class Forgetful(Conversation):
    """The same, with a server that loses responses: what is not known fails closed."""

    @precondition(lambda self: self.server.context)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        del self.server.context[data.draw(st.sampled_from(sorted(self.server.context)))]


def _part(kind: str) -> list[Any]:
    if kind == "th":
        return [{"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}]
    thought = {"type": "reasoning", "summary": []}
    return [thought] if kind == "ths" else [thought, {"type": "web_search_call", "status": "done"}]


def _seen(read: list[Any]) -> str:
    kept = [item for item in read if item["type"] not in ("reasoning", "web_search_call")]
    return said({"input": kept})


def _without(line: str, calls: set[str]) -> str:
    for call in calls:
        line = line.replace(f",c:{call}", "")
    return line


_FEW = settings(
    max_examples=examples(30),
    stateful_step_count=15,
    suppress_health_check=[HealthCheck.too_slow],
)
TestConversation = Conversation.TestCase
TestForgetful = Forgetful.TestCase
TestConversation.settings = _FEW
TestForgetful.settings = _FEW
