"""What one provider accepts as a history: its words, its rules, and how they are read and written.

A grammar is data and small functions for one wire format, in a folder of its own. The pairing of
calls and results, the order of passes, the asking and noting of changes are written once, in
`pairing` and `passes`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, TypeAlias

from continuation.history.pairing import Pairing
from continuation.history.rules import REPAIRS
from continuation.history.tree import MADE_HERE, Fault, Kind, Message, Part, text_of, unbroken
from continuation.history.types import Body, HistoryFormat, RepairPolicy, Violation
from continuation.types import Change
from continuation.wire.json_values import as_list, as_map, as_text

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
"""What every server takes for the name of a tool."""

JoinTexts: TypeAlias = Callable[[str, str], str]
"""Makes one text of two that an old recovery prompt had split."""


@dataclass(frozen=True, slots=True)
class HistoryContext:
    """What is known of model, server and policy besides the history; None: nothing."""

    model: str = ""
    prefill: bool | None = None
    """Whether the assistant may have the last word."""
    thinking: str | None = None
    """One of "none", "manual", "adaptive" and "always", as in `types.Facts`."""
    binding: bool = False
    """Whether thinking is bound to the messages before it."""
    strict: bool = False
    """Whether the rules that only some servers enforce count."""
    live: bool = True
    """Whether a trailing call without result may still be running."""
    vendor: str = ""
    """Whose server of a dialect it is, where that makes a difference."""
    alternate: bool = False
    """Whether no two messages of one role may follow each other; the policy's word, for Chat."""
    reasoning: str = "auto"
    """The policy's word on `reasoning_content`, as in `RepairPolicy`."""
    system_messages: str = "keep"
    """The policy's word on system messages among the others, as in `RepairPolicy`."""


@dataclass(slots=True)
class History:
    """A history that was read: what the checks look at."""

    grammar: Grammar
    body: Body
    context: HistoryContext
    messages: list[Message] = field(init=False)
    _torn: dict[Part, Part] | None = None
    _paired: Pairing | None = None

    def __post_init__(self) -> None:
        self.messages = self.grammar.read(self.body, self.context)
        self._note_names()

    def _note_names(self) -> None:
        """Note tools' names that are refused; what a request declares is none of them."""
        grammar, declared = self.grammar, set[str]()
        for tool in map(as_map, as_list(self.body.get("tools"))):
            declared.add(as_text(tool.get("name") or as_map(tool.get("function")).get("name")))
        for part in self.parts(*grammar.named):
            if not part.name:
                detail = grammar.name_empty
            elif grammar.longest_name and len(part.name) > grammar.longest_name:
                detail = f"have at most {grammar.longest_name} characters"
            elif self.context.strict and not _NAME.match(part.name) and part.name not in declared:
                detail = grammar.name_unfit
            else:
                continue
            part.faults += (Fault("tool_name_invalid", detail),) if detail else ()

    def parts(self, *kinds: Kind) -> list[Part]:
        """All parts of these kinds, in order."""
        return [part for message in self.messages for part in message.of(*kinds)]

    def pairing(self) -> Pairing:
        """Its calls and results, paired anew only if a change was noted since."""
        if self._paired is None:
            needed = self.grammar.id_keys is not None
            self._paired = Pairing(self.messages, ids_needed=needed)
        return self._paired

    def torn(self) -> dict[Part, Part]:
        """Parts with halves of characters, which strict readers of JSON refuse, and them whole."""
        if self._torn is None:  # looked at once: by the check, and then by the repair
            self._torn = {
                part: replace(part, native=native, text=unbroken(part.text))
                for message in self.messages
                for part in message.parts
                if "\\ud" in repr(part.native)  # how half a character is shown: hardly ever
                and (native := unbroken(part.native)) is not part.native
            }
        return self._torn

    def violation(self, broken: Fault | str, at: Message | Part | str) -> Violation:
        """The violation of a rule, given as code or fault, at a message, a part or a path."""
        fault = Fault(broken) if isinstance(broken, str) else broken
        part = at if isinstance(at, Part) else Part(Kind.OTHER, None)
        rule = self.grammar.rules[fault.code]
        text = rule.format(
            n=at.index if not isinstance(at, str) else 0,
            m=part.slot if "{m}" in rule else 0,
            id=fault.id or part.id,
            name=part.name,
            detail=fault.detail,
            call=fault.call,
        )
        return Violation(fault.code, self.path(at), text, self.grammar.repairs[fault.code])

    def path(self, at: Message | Part | str) -> str:
        """Where something is, in the body's own words."""
        if isinstance(at, str):
            return at
        if at.index == MADE_HERE:
            return self.grammar.field
        return f"{self.grammar.field}[{at.index}]{at.path if isinstance(at, Part) else ''}"


@dataclass(slots=True)
class HistoryRepair(History):
    """A history under repair: what the passes change."""

    policy: RepairPolicy = field(kw_only=True)
    changes: list[Change] = field(default_factory=list[Change])
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    """Fields of the body itself to set, or to delete if None."""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    """Request headers that the repaired body needs."""

    def may(self, what: str, at: Message | Part | str, why: str) -> bool:
        """Ask the policy for a change and note it; the caller makes it if the answer is yes."""
        change = Change(what, self.path(at), why)
        allowed = self.policy.allow is None or self.policy.allow(change)
        if allowed:
            self.changes.append(change)
            self._paired = None
        return allowed

    def may_repair(self, at: Message | Part) -> Fault | None:
        """The first fault of a message or part if the policy allows its repair."""
        fault = at.faults[0] if at.faults else None
        allowed = fault and self.may(self.grammar.repairs[fault.code], at, fault.code)
        return fault if allowed else None

    def drop(self, what: str, codes: Mapping[Part, str]) -> list[Message]:
        """Drop these parts, each for its rule, as far as the policy allows.

        Returns the messages that lost one.
        """
        changed: list[Message] = []
        for message in self.messages if codes else ():
            remaining = [
                part
                for part in message.parts
                if part not in codes or not self.may(what, part, codes[part])
            ]
            if len(remaining) < len(message.parts):
                message.keep(remaining)
                changed.append(message)
        return changed

    def replace(self, what: str, why: str, new: Mapping[Part, Part]) -> None:
        """Put other parts in place of these, as far as the policy allows."""
        for message in self.messages if new else ():
            parts = [
                new[part] if part in new and self.may(what, part, why) else part
                for part in message.parts
            ]
            if parts != message.parts:
                message.keep(parts)

    def begin_with_user(self, why: str = "first_not_user") -> None:
        """Put a message of the user before the first one."""
        if self.may(
            "add_first_user", self.messages[0] if self.messages else self.grammar.field, why
        ):
            self.messages.insert(0, self.grammar.text_message("user", self.policy.head_text))

    def end_with_user(self, why: str) -> None:
        """Put a message of the user behind the last one."""
        if self.may("add_last_user", self.messages[-1], why):
            self.messages.append(self.grammar.text_message("user", self.policy.continue_text))


class Grammar(ABC):
    """The rules of one wire format; subclasses give the words, this class the shape."""

    dialect: ClassVar[HistoryFormat]
    field: ClassVar[str]
    """Name of the body's list of messages."""
    rules: ClassVar[Mapping[str, str]]
    """The provider's error text for each rule, with `{n}`, `{m}`, `{id}`, … to fill in."""
    repairs: ClassVar[Mapping[str, str]] = REPAIRS
    adjacent: ClassVar[bool] = True
    """Results must directly follow their calls."""
    one_message: ClassVar[bool] = True
    """All results of a message's calls stand in one message, at its head; else each in its own."""
    ordered: ClassVar[bool] = False
    """Results stand in the order of their calls."""
    calls_last: ClassVar[bool] = False
    """Nothing may follow the calls of a message."""
    id_keys: ClassVar[tuple[str, str] | None] = None
    """Where a call and a result carry the call's id, where they must."""

    named: ClassVar[tuple[Kind, ...]] = (Kind.CALL,)
    """Parts that need the name of a tool."""
    longest_name: ClassVar[int] = 0
    """So many letters it may have; 0: not known."""
    name_empty: ClassVar[str] = (
        "empty string. Expected a string with minimum length 1, but got an empty string instead."
    )
    """What is said of one that is missing."""
    name_unfit: ClassVar[str] = (
        "string does not match pattern. Expected a string that matches the pattern"
        " '^[a-zA-Z0-9_-]+$'."
    )
    """What strict servers say of one with other characters than these; "" where all are taken."""

    unique_ids: ClassVar[bool] = True
    """A call id may be used once only in the whole history; else only strictly so."""

    # -- the quick look --------------------------------------------------------------------------

    def fast_validate(self, body: Body, context: HistoryContext) -> bool:
        """Whether the body is valid at a glance; False only means: look closer.

        Nearly every history is valid, and a repair that runs before each request must not cost
        more than reading the body did. So common shapes are recognised in one tight loop, without
        being taken apart; whatever else it meets, valid or not, is left to the full check. That
        nothing is called valid here which the full check faults is a property of the tests.
        """
        messages = as_list(body.get(self.field))
        if context.strict or not messages:
            return False
        try:
            return self.common_shapes_valid(messages, body, context)
        except (LookupError, TypeError, AttributeError, ValueError):  # another shape than expected
            return False

    @abstractmethod
    def common_shapes_valid(self, messages: list[Any], body: Body, context: HistoryContext) -> bool:
        """Whether common shapes, all valid, are all there is; may raise where they are not."""

    # -- reading and writing ---------------------------------------------------------------------

    def read(self, body: Body, context: HistoryContext) -> list[Message]:
        """Take the body's messages apart and note what is wrong with each part alone."""
        natives = as_list(body.get(self.field))
        return [self.read_message(n, native) for n, native in enumerate(natives)]

    @abstractmethod
    def read_message(self, index: int, native: Any) -> Message:
        """Take one message apart."""

    def written(self, message: Message, native: list[Any]) -> list[tuple[Any, int]]:
        """The elements of the body's list that a message becomes, with the index each came from."""
        if message.touched or message.index == MADE_HERE:
            return [(self.write(message), message.index)]
        return [(native[message.index], message.index)]

    def write(self, message: Message) -> Any:
        """The JSON of one touched message; not used where `written` is a dialect's own."""
        raise NotImplementedError

    @abstractmethod
    def text_message(self, role: str, text: str) -> Message:
        """A message with this text, made by a repair."""

    @abstractmethod
    def synthetic_result(self, call: Part, text: str) -> Any:
        """The JSON of a result made by a repair, for a call that has none."""

    def result_messages(self, parts: list[Part]) -> list[Message]:
        """Messages that hold these results, in this order."""
        if self.one_message:
            return [Message("user", parts, touched=True)]
        return [Message("tool", [part], part.native, part.index, touched=True) for part in parts]

    @abstractmethod
    def arguments(self, call: Part) -> Any:
        """The call's arguments as on the wire."""

    def result_text(self, result: Part) -> str:
        """The text of a result."""
        return text_of(as_map(result.native).get("content"))

    # -- rules -----------------------------------------------------------------------------------

    @abstractmethod
    def check(self, history: History) -> Iterator[Violation]:
        """Find what breaks this dialect's own rules, beside faults of parts and pairing."""

    def empty_fault(self, message: Message, *, last: bool) -> str | None:
        """The code of the rule that forbids a message which says nothing; None if it may stay."""
        return "message_empty" if not message.parts and not message.faults else None

    def must_merge(self, first: Message, second: Message, context: HistoryContext) -> bool:
        """Whether two neighbouring messages must become one."""
        return False

    def merged(self, run: list[Message]) -> Message:
        """Messages of one speaker as one."""
        keeper = next((message for message in run if message.native is not None), run[-1])
        parts = [part for message in run for part in message.parts]
        return Message(run[0].role, parts, keeper.native, keeper.index, touched=True)

    def id_fault(self, call: str, context: HistoryContext) -> str | None:
        """The code of the rule that this call id breaks by itself."""
        return None

    def new_id(self, old: str, context: HistoryContext) -> str:
        """A valid id to replace an invalid one; the same for the same `old`."""
        return old

    def same_call(self, first: Part, second: Part) -> bool:
        """Whether two calls of one message are one call written twice."""
        return bool(first.native == second.native)

    def orphan_code(self, messages: list[Message], at: int) -> str:
        """The code of the rule that a result of no call breaks in the message at position `at`."""
        return "tool_result_orphan"

    def calls_on_server(self, history: History) -> bool:
        """Whether results may answer calls that the server keeps."""
        return False

    # -- repair ----------------------------------------------------------------------------------

    def convert(self, message: Message, fault: Fault) -> Iterable[Message]:
        """What a message with this fault becomes, after the policy agreed; nothing drops it."""
        messages = [self.read_message(message.index, n) for n in self.converted(message.native)]
        for each in messages:
            each.touched = True
        return messages

    @abstractmethod
    def converted(self, native: Any) -> list[Any]:
        """A message that is not in this dialect's form as messages that are; [] drops it."""

    def renamed(self, part: Part, name: str) -> Part:
        """A call, or a result, of a tool of this name."""
        native = {**part.native, "name": name}
        return replace(part, native=native, name=name, faults=part.faults[1:])

    def repaired_part(self, message: Message, part: Part, fault: Fault) -> Iterable[Part]:
        """What a part with this fault becomes, after the policy agreed; nothing drops it."""
        return ()

    @abstractmethod
    def prepare(self, repair: HistoryRepair) -> None:
        """Passes of this dialect before calls and results are paired."""

    @abstractmethod
    def finish(self, repair: HistoryRepair) -> None:
        """Passes of this dialect once calls and results are paired."""

    def can_answer(self, call: Part) -> bool:
        """Whether a result of the call can be made up; if not, the call is dropped."""
        return True

    def joined_text(self, first: Part, second: Part, join: JoinTexts) -> Part | None:
        """Two texts as one, or None if they must stay apart."""
        return None

    def after_join(self, part: Part) -> Part:
        """A part of a recovery's answer once it stands in the turn it went on with."""
        return part
