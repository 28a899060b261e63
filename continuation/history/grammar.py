"""What one provider accepts as a history: its words, its rules, and how they are read and written.

A grammar is data and small functions for one wire format. The pairing of calls and results, the
order of passes, the asking and noting of changes are written once, in `pairing` and `passes`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from continuation.history.tree import (
    MADE_HERE,
    Context,
    Fault,
    Kind,
    Message,
    Part,
    as_map,
    text_of,
)
from continuation.history.types import Body, Change, Dialect, RepairPolicy, Violation

__all__ = ["Grammar", "History", "Rule", "Weld", "Work"]


Weld: TypeAlias = Callable[[str, str], str]
"""Makes one text of two that an old recovery prompt had parted."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule's error text, with `{n}`, `{m}`, `{id}`, … to fill in, and its repair."""

    text: str
    repair: str


@dataclass(slots=True)
class History:
    """A history that was read: what the checks look at."""

    grammar: Grammar
    body: Body
    messages: list[Message]
    context: Context

    def violation(
        self, code: str, at: Message | Part | str, fault: Fault | None = None
    ) -> Violation:
        """The violation of the rule `code` at a message, a part or a path."""
        rule = self.grammar.rules[code]
        part = at if isinstance(at, Part) else Part(Kind.OTHER, None)
        words = {
            "n": at.index if not isinstance(at, str) else 0,
            "m": part.slot,
            "id": (fault.id if fault else "") or part.id,
            "name": part.name,
            "detail": fault.detail if fault else "",
            "call": fault.call if fault else 0,
        }
        return Violation(code, self.path(at), rule.text.format_map(words), rule.repair)

    def path(self, at: Message | Part | str) -> str:
        """Where something is, in the body's own words."""
        if isinstance(at, str):
            return at
        if at.index == MADE_HERE:
            return self.grammar.field
        return f"{self.grammar.field}[{at.index}]{at.place if isinstance(at, Part) else ''}"


@dataclass(slots=True)
class Work(History):
    """A history under repair: what the passes change."""

    policy: RepairPolicy
    changes: list[Change] = field(default_factory=list[Change])
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    """Fields of the body itself to set, or to delete if None."""
    headers: dict[str, str] = field(default_factory=dict[str, str])

    def may(self, what: str, at: Message | Part | str, why: str) -> bool:
        """Ask the policy for a change and note it; the caller makes it if the answer is yes."""
        change = Change(what, self.path(at), why)
        allowed = self.policy.allow is None or self.policy.allow(change)
        if allowed:
            self.changes.append(change)
        return allowed


class Grammar(ABC):
    """The rules of one wire format; subclasses give the words, this class the shape."""

    dialect: ClassVar[Dialect]
    field: ClassVar[str]
    """Name of the body's list of messages."""
    rules: ClassVar[Mapping[str, Rule]]
    adjacent: ClassVar[bool] = True
    """Results must directly follow their calls."""
    one_message: ClassVar[bool] = True
    """All results of a message's calls stand in one message, at its head."""
    ordered: ClassVar[bool] = False
    """Results stand in the order of their calls."""
    calls_last: ClassVar[bool] = False
    """Nothing may follow the calls of a message."""
    keyed: ClassVar[bool] = True
    """Calls and results must carry ids."""

    @abstractmethod
    def read(self, body: Body, context: Context) -> list[Message]:
        """Take the body's messages apart and note what is wrong with each part alone."""

    @abstractmethod
    def write(self, message: Message) -> Any:
        """The JSON of one touched message."""

    def written(self, message: Message, native: list[Any]) -> list[tuple[Any, int]]:
        """The elements of the body's list that a message becomes, with the index each came from."""
        if message.touched or message.index == MADE_HERE:
            return [(self.write(message), message.index)]
        return [(native[message.index], message.index)]

    @abstractmethod
    def glance(self, body: Body, context: Context) -> bool:
        """Whether the body is plainly clean; False only means: look closer."""

    @abstractmethod
    def check(self, history: History) -> Iterator[Violation]:
        """Find what breaks this dialect's own rules, beside faults of parts and pairing."""

    def mend(self, work: Work, message: Message, part: Part, fault: Fault) -> Iterable[Part]:
        """What a part with this fault becomes, after the policy agreed; nothing drops it."""
        del work, message, part, fault
        return ()

    def reshape(self, work: Work, message: Message, fault: Fault) -> Iterable[Message]:
        """What a message with this fault becomes, after the policy agreed; nothing drops it."""
        del work, message, fault
        return ()

    def prepare(self, work: Work) -> None:
        """Passes of this dialect before calls and results are paired."""
        del work

    def finish(self, work: Work) -> None:
        """Passes of this dialect once calls and results are paired."""
        del work

    @abstractmethod
    def answer(self, call: Part, text: str) -> Part:
        """A synthetic result of the call."""

    @abstractmethod
    def say(self, role: str, text: str) -> Message:
        """A message of ours."""

    @abstractmethod
    def with_id(self, part: Part, new: str) -> Part:
        """The call or result under another id."""

    def result_text(self, result: Part) -> str:
        """The text of a result."""
        return text_of(as_map(result.native).get("content"))

    def continued(self, part: Part) -> Part:
        """A part of a recovery's answer once it stands in the turn it went on with."""
        return part

    def results(self, parts: list[Part]) -> list[Message]:
        """Messages that hold these results, in this order."""
        return [Message("user", parts, touched=True)]

    def joined(self, first: Part, second: Part, weld: Weld) -> Part | None:
        """Two texts as one, or None if they must stay apart."""
        del first, second, weld
        return None

    def vacuous(self, message: Message, *, last: bool) -> str | None:
        """The code of the rule that forbids a message which says nothing; None if it may stay."""
        del last
        return "message_empty" if not message.parts and not message.faults else None

    def folds(self, first: Message, second: Message, context: Context) -> bool:
        """Whether two neighbouring messages must become one."""
        del first, second, context
        return False

    def folded(self, first: Message, second: Message) -> Message:
        """Two messages of one speaker as one."""
        keeper = first if first.native is not None else second
        parts = first.parts + second.parts
        return Message(first.role, parts, keeper.native, keeper.index, touched=True)

    def unique_ids(self, context: Context) -> bool:
        """Whether a call id may be used once only in the whole history."""
        del context
        return True

    def id_fault(self, call: str, context: Context) -> str | None:
        """The code of the rule that this call id breaks by itself."""
        del call, context
        return None

    def mint(self, old: str, context: Context) -> str:
        """A valid id to replace an invalid one; the same for the same `old`."""
        del context
        return old

    def answerable(self, call: Part) -> bool:
        """Whether a result of the call can be made up; if not, the call is dropped."""
        del call
        return True

    def orphan(self, messages: list[Message], at: int) -> str:
        """The code of the rule that a result of no call breaks in the message at position `at`."""
        del messages, at
        return "tool_result_orphan"

    def same_call(self, first: Part, second: Part) -> bool:
        """Whether two calls of one message are one call written twice."""
        return bool(first.native == second.native)

    def arguments(self, call: Part) -> Any:
        """The call's arguments as on the wire."""
        raise NotImplementedError

    def anchored(self, history: History) -> bool:
        """Whether results may answer calls that the server keeps."""
        del history
        return False
