"""The rules of the histories that a provider accepts, and how histories are read and written.

A grammar is the data and small functions for one wire format, in the format's folder. `pairing`
(which pairs calls with results) and `passes` (the passes of a repair) are for all formats.
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
"""The tool names that every server accepts."""

JoinTexts: TypeAlias = Callable[[str, str], str]
"""A function that joins two texts which an earlier recovery prompt has split."""


@dataclass(frozen=True, slots=True)
class HistoryContext:
    """The properties of the model and the server, and the policy's settings; None: unknown."""

    model: str = ""
    prefill: bool | None = None
    """Whether a history may end with an assistant message."""
    thinking: str | None = None
    """One of "none", "manual", "adaptive" and "always", as in `types.Facts`."""
    binding: bool = False
    """Whether a thinking block is invalid once a message before it has changed."""
    strict: bool = False
    """Whether to apply the rules that only some servers enforce."""
    live: bool = True
    """Whether a trailing call without a result may still be running."""
    vendor: str = ""
    """The vendor of a Chat server; `""`: unknown, or another dialect."""
    alternate: bool = False
    """Whether Chat messages of one role must not follow each other, as in `RepairPolicy`."""
    reasoning: str = "auto"
    """What happens with `reasoning_content`, as in `RepairPolicy`."""
    system_messages: str = "keep"
    """What happens with system messages among the others, as in `RepairPolicy`."""


@dataclass(slots=True)
class History:
    """A history that was read from a body, for the checks."""

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
        """Note the tool names that the provider refuses. It accepts those the request declares."""
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
        """Return all parts of these kinds, in order."""
        return [part for message in self.messages for part in message.of(*kinds)]

    def pairing(self) -> Pairing:
        """Return the paired calls and results. After a change they are paired again."""
        if self._paired is None:
            needed = self.grammar.id_keys is not None
            self._paired = Pairing(self.messages, ids_needed=needed)
        return self._paired

    def torn(self) -> dict[Part, Part]:
        """Return each part with lone surrogates -> its repair. Strict JSON parsers refuse them."""
        if self._torn is None:  # computed once, for the check and for the repair
            self._torn = {
                part: replace(part, native=native, text=unbroken(part.text))
                for message in self.messages
                for part in message.parts
                if "\\ud" in repr(part.native)  # a quick check: `repr` escapes lone surrogates
                and (native := unbroken(part.native)) is not part.native
            }
        return self._torn

    def violation(self, broken: Fault | str, at: Message | Part | str) -> Violation:
        """Return the violation of a rule at a message, a part or a path.

        `broken`: the rule's code, or a fault.
        """
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
        """Return the path of a message or part in the body, such as "messages[3].content[1]"."""
        if isinstance(at, str):
            return at
        if at.index == MADE_HERE:
            return self.grammar.field
        return f"{self.grammar.field}[{at.index}]{at.path if isinstance(at, Part) else ''}"


@dataclass(slots=True)
class HistoryRepair(History):
    """A history under repair: the passes change its messages and note the changes."""

    policy: RepairPolicy = field(kw_only=True)
    changes: list[Change] = field(default_factory=list[Change])
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    """Fields of the body to set; a field with the value None is deleted."""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    """Request headers that the repaired body needs."""

    def may(self, what: str, at: Message | Part | str, why: str) -> bool:
        """Whether the policy allows a change. If so, note it; the caller must then make it."""
        change = Change(what, self.path(at), why)
        allowed = self.policy.allow is None or self.policy.allow(change)
        if allowed:
            self.changes.append(change)
            self._paired = None
        return allowed

    def may_repair(self, at: Message | Part) -> Fault | None:
        """Return the first fault of a message or part if the policy allows its repair, or None."""
        fault = at.faults[0] if at.faults else None
        allowed = fault and self.may(self.grammar.repairs[fault.code], at, fault.code)
        return fault if allowed else None

    def drop(self, what: str, codes: Mapping[Part, str]) -> list[Message]:
        """Drop the parts for which the policy allows it.

        `what`: the name of the change. `codes`: the parts, each with the code of the broken rule.
        Returns the messages that lost a part.
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
        """Replace the parts for which the policy allows it. `new`: each part -> its replacement."""
        for message in self.messages if new else ():
            parts = [
                new[part] if part in new and self.may(what, part, why) else part
                for part in message.parts
            ]
            if parts != message.parts:
                message.keep(parts)

    def begin_with_user(self, why: str = "first_not_user") -> None:
        """Add a user message before the first message, if the policy allows."""
        if self.may(
            "add_first_user", self.messages[0] if self.messages else self.grammar.field, why
        ):
            self.messages.insert(0, self.grammar.text_message("user", self.policy.head_text))

    def end_with_user(self, why: str) -> None:
        """Add a user message after the last message, if the policy allows."""
        if self.may("add_last_user", self.messages[-1], why):
            self.messages.append(self.grammar.text_message("user", self.policy.continue_text))


class Grammar(ABC):
    """The rules of one wire format. Each format has a subclass."""

    dialect: ClassVar[HistoryFormat]
    field: ClassVar[str]
    """The key of the body's list of messages."""
    content: ClassVar[str] = "content"
    """The key of a message's list of parts."""
    beside_kind: ClassVar[frozenset[str]] = frozenset()
    """For parts in which a field's name is the part's kind: the other fields that may be present.

    Empty: the field `type` has the kind.
    """
    not_text: ClassVar[frozenset[str]] = frozenset()
    """The keys of files, images and other values in a result that must not be shortened."""
    own_models: ClassVar[str] = ""
    """A word in the names of the provider's own models, for which rules depend on the model."""
    has_vendors: ClassVar[bool] = False
    """Whether other vendors serve the format, with other rules."""
    may_lack_thinking: ClassVar[bool] = False
    """Whether some vendors of the format require earlier thinking, which a repair cannot make."""
    rules: ClassVar[Mapping[str, str]]
    """The provider's error text for each rule, with `{n}`, `{m}`, `{id}`, … to fill in."""
    repairs: ClassVar[Mapping[str, str]] = REPAIRS
    """The name of the repair, by the code of the rule."""
    adjacent: ClassVar[bool] = True
    """Whether results must directly follow their calls."""
    one_message: ClassVar[bool] = True
    """Whether one message must begin with all results of a message's calls.

    If not, each result is a message.
    """
    ordered: ClassVar[bool] = False
    """Whether results must be in the order of their calls."""
    calls_last: ClassVar[bool] = False
    """Whether calls must be the last parts of a message."""
    id_keys: ClassVar[tuple[str, str] | None] = None
    """The keys of the call's id in a call and in a result; None: ids are optional."""

    named: ClassVar[tuple[Kind, ...]] = (Kind.CALL,)
    """The kinds of parts that need a tool's name."""
    longest_name: ClassVar[int] = 0
    """The most characters of a tool's name; 0: unknown."""
    name_empty: ClassVar[str] = (
        "empty string. Expected a string with minimum length 1, but got an empty string instead."
    )
    """The provider's words for a missing tool name; `""`: it accepts that."""
    name_unfit: ClassVar[str] = (
        "string does not match pattern. Expected a string that matches the pattern"
        " '^[a-zA-Z0-9_-]+$'."
    )
    """A strict server's words for a tool name with other characters; `""`: it accepts all."""

    unique_ids: ClassVar[bool] = True
    """Whether call ids must be unique in the history. If not, they must be so with `strict`."""

    # -- the fast check --------------------------------------------------------------------------

    def fast_validate(self, body: Body, context: HistoryContext) -> bool:
        """Whether a fast check finds the body valid. False: it needs the full check.

        Nearly every history is valid, and a repair runs before each request. It must not take more
        time than decoding the body. So one loop recognizes common shapes without parsing them. The
        full check handles all other shapes, valid or not. A test with random histories ensures that
        the full check finds no violation in a history that is valid here.
        """
        messages = as_list(body.get(self.field))
        if context.strict or not messages:
            return False
        try:
            return self.common_shapes_valid(messages, body, context)
        except (LookupError, TypeError, AttributeError, ValueError):  # an unexpected shape
            return False

    @abstractmethod
    def common_shapes_valid(self, messages: list[Any], body: Body, context: HistoryContext) -> bool:
        """Whether all messages have common, valid shapes. It may raise if they do not."""

    # -- reading and writing ---------------------------------------------------------------------

    def read(self, body: Body, context: HistoryContext) -> list[Message]:
        """Read the body's messages into parts, each with the faults that it shows by itself."""
        natives = as_list(body.get(self.field))
        return [self.read_message(n, native) for n, native in enumerate(natives)]

    @abstractmethod
    def read_message(self, index: int, native: Any) -> Message:
        """Read one message into parts."""

    def written(self, message: Message, native: list[Any]) -> list[tuple[Any, int]]:
        """Return the elements of the body's list for a message, each with its earlier index."""
        if message.touched or message.index == MADE_HERE:
            return [(self.write(message), message.index)]
        return [(native[message.index], message.index)]

    def write(self, message: Message) -> Any:
        """Return the JSON of a changed message. Not used if a dialect overrides `written`."""
        raise NotImplementedError

    @abstractmethod
    def text_message(self, role: str, text: str) -> Message:
        """Return a new message with this text."""

    @abstractmethod
    def synthetic_result(self, call: Part, text: str) -> Any:
        """Return the JSON of a new result for a call that has none."""

    def result_messages(self, parts: list[Part]) -> list[Message]:
        """Return new messages with these results, in this order."""
        if self.one_message:
            return [Message("user", parts, touched=True)]
        return [Message("tool", [part], part.native, part.index, touched=True) for part in parts]

    @abstractmethod
    def arguments(self, call: Part) -> Any:
        """Return the call's arguments as sent: an object or JSON text."""

    def result_text(self, result: Part) -> str:
        """Return the text of a result; `""`: it has none."""
        return text_of(as_map(result.native).get("content"))

    # -- rules -----------------------------------------------------------------------------------

    @abstractmethod
    def check(self, history: History) -> Iterator[Violation]:
        """Yield violations of this dialect's own rules, except those of parts and pairing."""

    def empty_fault(self, message: Message, *, last: bool) -> str | None:
        """Return the code of the rule that an empty message breaks. None: the message is valid.

        `last`: whether it is the history's last message.
        """
        return "message_empty" if not message.parts and not message.faults else None

    def must_merge(self, first: Message, second: Message, context: HistoryContext) -> bool:
        """Whether two adjacent messages must be merged."""
        return False

    def merged(self, run: list[Message]) -> Message:
        """Return messages of one role as one message."""
        keeper = next((message for message in run if message.native is not None), run[-1])
        parts = [part for message in run for part in message.parts]
        return Message(run[0].role, parts, keeper.native, keeper.index, touched=True)

    def id_fault(self, call: str, context: HistoryContext) -> str | None:
        """Return the code of the rule that this call id breaks by itself; None: it is valid."""
        return None

    def new_id(self, old: str, context: HistoryContext) -> str:
        """Return a valid id that replaces an invalid one, always the same for the same `old`."""
        return old

    def same_call(self, first: Part, second: Part) -> bool:
        """Whether two calls of one message are duplicates of each other."""
        return bool(first.native == second.native)

    def orphan_code(self, messages: list[Message], at: int) -> str:
        """Return the code of the rule that a result without a call breaks.

        `at`: the position of the result's message in `messages`.
        """
        return "tool_result_orphan"

    def calls_on_server(self, history: History) -> bool:
        """Whether results may belong to calls that the server has stored."""
        return False

    # -- repair ----------------------------------------------------------------------------------

    def convert(self, message: Message, fault: Fault) -> Iterable[Message]:
        """Return the messages that replace a message with this fault; empty: it is dropped."""
        messages = [self.read_message(message.index, n) for n in self.converted(message.native)]
        for each in messages:
            each.touched = True
        return messages

    @abstractmethod
    def converted(self, native: Any) -> list[Any]:
        """Convert a message in another format to messages in this dialect; `[]`: drop it."""

    def renamed(self, part: Part, name: str) -> Part:
        """Return a call or a result with another tool name."""
        native = {**part.native, "name": name}
        return replace(part, native=native, name=name, faults=part.faults[1:])

    def repaired_part(self, message: Message, part: Part, fault: Fault) -> Iterable[Part]:
        """Return the parts that replace a part with this fault; empty: it is dropped."""
        return ()

    @abstractmethod
    def prepare(self, repair: HistoryRepair) -> None:
        """Run this dialect's own passes before calls and results are paired."""

    @abstractmethod
    def finish(self, repair: HistoryRepair) -> None:
        """Run this dialect's own passes after calls and results are paired."""

    def can_answer(self, call: Part) -> bool:
        """Whether a result can be made for the call. If not, the call is dropped."""
        return True

    def joined_text(self, first: Part, second: Part, join: JoinTexts) -> Part | None:
        """Return two texts as one part, joined by `join`. None: they must stay separate."""
        return None

    def after_join(self, part: Part) -> Part:
        """Return a part of a recovery's answer in the form for the message that it continues."""
        return part
