"""Gemini `generateContent`: what AI Studio and Vertex accept as `contents`.

Sources: Google's page on thought signatures, and the error texts quoted in public issues. Keys are
read in camelCase, as on the wire, and in snake_case, as the Python SDK dumps them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from continuation.history.fast_validate import glance_gemini
from continuation.history.grammar import Grammar, History, Rule, Weld, Work
from continuation.history.passes import fold
from continuation.history.tree import (
    Context,
    Fault,
    Kind,
    Message,
    Part,
    Role,
    as_list,
    as_map,
    blank,
    is_map,
    word,
)
from continuation.history.types import Body, Dialect, Violation
from continuation.history.wordings import looks_synthetic

__all__ = ["GeminiGrammar"]

_COUNTS: Final = (
    "Please ensure that the number of function response parts is equal to the number of function"
    " call parts of the function call turn."
)
_RESPONSE_TURN: Final = (
    "Please ensure that function response turn comes immediately after a function call turn."
)
_NO_PARTS: Final = (
    "Unable to submit request because it must include at least one parts field, which describes the"
    " prompt input."
)

_RULES: Final[Mapping[str, Rule]] = {
    "tool_result_missing": Rule(_COUNTS, "synthesize_result"),
    "tool_result_displaced": Rule(_COUNTS, "move_result"),
    "tool_results_split": Rule(_COUNTS, "move_result"),
    "tool_result_not_first": Rule(_COUNTS, "move_result"),
    "tool_results_out_of_order": Rule(_COUNTS, "move_result"),
    "tool_result_duplicate": Rule(_COUNTS, "drop_result"),
    "tool_result_orphan": Rule(_RESPONSE_TURN, "drop_result"),
    "tool_result_surplus": Rule(_COUNTS, "drop_result"),
    "tool_use_in_user": Rule(
        "Please ensure that function call turn comes immediately after a user turn or after a"
        " function response turn.",
        "split_message",
    ),
    "tool_result_in_assistant": Rule(_RESPONSE_TURN, "split_message"),
    "first_not_user": Rule(
        "Please ensure that function call turn comes immediately after a user turn or after a"
        " function response turn.",
        "add_first_user",
    ),
    "roles_not_alternating": Rule(
        "Please ensure that multiturn requests alternate between user and model.",
        "merge_messages",
    ),
    "message_empty": Rule(_NO_PARTS, "drop_message"),
    "text_empty": Rule(
        "Unable to submit request because it has an empty text parameter. Add a value to the"
        " parameter and try again.",
        "drop_text",
    ),
    "block_invalid": Rule(
        "Invalid value at 'contents[{n}].parts[{m}]': a part must have data", "convert_block"
    ),
    "message_invalid": Rule("Invalid value at 'contents[{n}]'", "convert_message"),
    "role_invalid": Rule("Please use a valid role: user, model.", "convert_message"),
    "thought_signature_missing": Rule(
        "Function call is missing a thought_signature in functionCall parts. This is required for"
        " tools to work correctly, and missing thought_signature may lead to degraded model"
        " performance. Additional data, function call `{name}`, position {m}.",
        "sign_call",
    ),
    "thought_signature_invalid": Rule(
        "Invalid value at 'contents[{n}].parts[{m}].thought_signature' (TYPE_BYTES), Base64"
        " decoding failed",
        "strip_signature",
    ),
    "prefill_unsupported": Rule(
        "Requests ending with a model turn are not supported unless the last part is a function"
        " response.",
        "add_last_user",
    ),
}

_ROLES: Final[Mapping[str, Role]] = {"user": "user", "model": "assistant"}
_SIGNATURE: Final = re.compile(r"[A-Za-z0-9+/=_-]+\Z")
_STAND_IN: Final = "skip_thought_signature_validator"
"""Documented by Google for calls whose signature is lost."""
_SIGNS_CALLS: Final = re.compile(r"gemini-(?:[3-9]|\d\d)")


class GeminiGrammar(Grammar):
    """The grammar of `contents`."""

    dialect: ClassVar[Dialect] = Dialect.GEMINI
    field: ClassVar[str] = "contents"
    rules: ClassVar[Mapping[str, Rule]] = _RULES
    ordered: ClassVar[bool] = True
    keyed: ClassVar[bool] = False

    def read(self, body: Body, context: Context) -> list[Message]:
        del context
        return [_message(n, native) for n, native in enumerate(as_list(body.get("contents")))]

    def write(self, message: Message) -> dict[str, Any]:
        role = "model" if message.role == "assistant" else "user"
        parts = [part.native for part in message.parts]
        return {**as_map(message.native), "role": role, "parts": parts}

    def glance(self, body: Body, context: Context) -> bool:
        return glance_gemini(body, context)

    def check(self, history: History) -> Iterator[Violation]:
        if not history.messages:
            return
        if _begins_wrong(history):
            yield history.violation("first_not_user", history.messages[0])
        for part in _unsigned_calls(history):
            yield history.violation("thought_signature_missing", part)
        if _ends_wrong(history):
            yield history.violation("prefill_unsupported", history.messages[-1])

    def vacuous(self, message: Message, *, last: bool) -> str | None:
        del last
        says = any(not _mute(part) for part in message.parts)
        return None if says or message.faults else "message_empty"

    def folds(self, first: Message, second: Message, context: Context) -> bool:
        """Neighbours are taken as they are: the SDK's own chats have one content per chunk.

        But responses must follow the turn of their calls at once, and what a repair made is ours.
        """
        if first.role != second.role:
            return False
        ours = first.touched or second.touched or second.index - first.index != 1
        calls = first.role == "assistant" and first.has(Kind.CALL)
        return context.strict or ours or calls

    def orphan(self, messages: list[Message], at: int) -> str:
        """Beside the responses of a call turn it is one too many, elsewhere out of turn."""
        beside = at > 0 and messages[at - 1].role == "assistant" and messages[at - 1].has(Kind.CALL)
        return "tool_result_surplus" if beside else "tool_result_orphan"

    # -- repair ----------------------------------------------------------------------------------

    def reshape(self, work: Work, message: Message, fault: Fault) -> Iterable[Message]:
        del work, fault
        native = message.native
        if isinstance(native, str):
            native = {"parts": [{"text": native}]}
        given = as_map(native)
        if not given:
            return []
        role = "model" if given.get("role") in ("assistant", "ai") else "user"
        read = _message(message.index, {**given, "role": role})
        read.touched = True
        return [read]

    def mend(self, work: Work, message: Message, part: Part, fault: Fault) -> Iterable[Part]:
        del work, message
        if fault.code == "block_invalid" and isinstance(part.native, str) and part.native:
            return [
                Part(Kind.TEXT, {"text": part.native}, part.index, part.place, text=part.native)
            ]
        if fault.code == "thought_signature_invalid":
            bare = _unsigned(as_map(part.native))
            return [_part(part.index, part.slot, bare)] if bare else []
        if fault.code in ("tool_use_in_user", "tool_result_in_assistant"):
            return [replace(part, faults=())]
        return ()

    def prepare(self, work: Work) -> None:
        if work.policy.thinking != "keep":
            _strip_signatures(work)
        work.messages = [each for message in work.messages for each in _by_side(message)]
        fold(work)

    def finish(self, work: Work) -> None:
        if not work.messages:
            return
        if _begins_wrong(work) and work.may("add_first_user", work.messages[0], "first_not_user"):
            work.messages.insert(0, self.say("user", work.policy.head_text))
        _sign(work)
        if _ends_wrong(work) and work.may(
            "add_last_user", work.messages[-1], "prefill_unsupported"
        ):
            work.messages.append(self.say("user", work.policy.continue_text))

    def answer(self, call: Part, text: str) -> Part:
        response: dict[str, Any] = {"name": call.name, "response": {"error": text}}
        if call.id:
            response["id"] = call.id
        native = {"functionResponse": response}
        return Part(Kind.RESULT, native, id=call.id, name=call.name, stand_in=True)

    def say(self, role: str, text: str) -> Message:
        return Message(_ROLES[role], [Part(Kind.TEXT, {"text": text}, text=text)], touched=True)

    def with_id(self, part: Part, new: str) -> Part:
        """Ids are optional here, so none is ever replaced."""
        del new
        return part

    def joined(self, first: Part, second: Part, weld: Weld) -> Part | None:
        """Signed texts stay as they are, each in a part of its own."""
        if set(first.native) != {"text"} or set(second.native) != {"text"}:
            return None
        text = weld(first.text, second.text)
        return replace(first, native={"text": text}, text=text)

    def result_text(self, result: Part) -> str:
        return _response_text(as_map(_get(result.native, *_RESPONSE_KEYS)).get("response"))

    def arguments(self, call: Part) -> Any:
        return as_map(_get(call.native, *_CALL_KEYS)).get("args")


# -- reading -------------------------------------------------------------------------------------

_CALL_KEYS: Final = ("functionCall", "function_call")
_RESPONSE_KEYS: Final = ("functionResponse", "function_response")
_SIGNATURE_KEYS: Final = ("thoughtSignature", "thought_signature")


def _get(given: Mapping[str, Any], *keys: str) -> Any:
    return next((given[key] for key in keys if given.get(key) is not None), None)


def _message(index: int, native: Any) -> Message:
    given = as_map(native)
    role = word(given.get("role") or "user")
    message = Message(_ROLES.get(role, "user"), [], native, index)
    if not is_map(native):
        message.faults = (Fault("message_invalid"),)
    elif role not in _ROLES:
        message.faults = (Fault("role_invalid"),)
    message.parts = [_part(index, n, part) for n, part in enumerate(as_list(given.get("parts")))]
    for part in message.parts:
        part.faults += _side_fault(message.role, part)
    return message


def _side_fault(role: Role, part: Part) -> tuple[Fault, ...]:
    if role == "user" and part.kind is Kind.CALL:
        return (Fault("tool_use_in_user"),)
    if role == "assistant" and part.kind is Kind.RESULT:
        return (Fault("tool_result_in_assistant"),)
    return ()


def _part(index: int, n: int, native: Any) -> Part:
    given = as_map(native)
    part = Part(Kind.OTHER, native, index, f".parts[{n}]")
    if not given:
        part.faults = (Fault("block_invalid"),)
        return part
    signature = _get(given, *_SIGNATURE_KEYS)
    part.signed = isinstance(signature, str) and bool(signature)
    if part.signed and not _SIGNATURE.match(str(signature)):
        part.faults = (Fault("thought_signature_invalid"),)
    _classify(part, given)
    return part


def _classify(part: Part, given: Mapping[str, Any]) -> None:
    call, response = as_map(_get(given, *_CALL_KEYS)), as_map(_get(given, *_RESPONSE_KEYS))
    text = given.get("text")
    if call or response:
        part.kind = Kind.CALL if call else Kind.RESULT
        part.id, part.name = (word((call or response).get(key)) for key in ("id", "name"))
        part.stand_in = looks_synthetic(_response_text(response.get("response")))
    elif isinstance(text, str):
        part.kind = Kind.THINKING if given.get("thought") else Kind.TEXT
        part.text, part.blank = text, blank(text) and not part.signed
        if not text and not part.signed:
            part.faults += (Fault("text_empty"),)
    elif not given.keys() - {*_SIGNATURE_KEYS, "thought"}:
        part.faults += (Fault("block_invalid"),)


def _response_text(response: object) -> str:
    given = as_map(response)
    values = (given.get(key) for key in ("error", "output", "result", "content"))
    return next((value for value in values if isinstance(value, str)), "")


def _mute(part: Part) -> bool:
    """Whether a part says nothing by itself: white space, or a thought that nobody signed."""
    return part.blank or (part.kind is Kind.THINKING and not part.signed)


# -- first and last ------------------------------------------------------------------------------


def _begins_wrong(history: History) -> bool:
    first = history.messages[0]
    return first.role == "assistant" and (history.context.strict or first.has(Kind.CALL))


def _ends_wrong(history: History) -> bool:
    last = history.messages[-1]
    speaks = last.role == "assistant" and not last.has(Kind.CALL)
    return history.context.prefill is False and speaks


def _by_side(message: Message) -> list[Message]:
    """Give calls to the model and responses to the user where one content mixes them."""
    wrong = Kind.CALL if message.role == "user" else Kind.RESULT
    if not any(part.kind is wrong and not part.faults for part in message.parts):
        return [message]
    other: Role = "assistant" if message.role == "user" else "user"
    split: list[Message] = []
    for part in message.parts:
        role = other if part.kind is wrong and not part.faults else message.role
        if not split or split[-1].role != role:
            split.append(Message(role, [], None, message.index, touched=True))
        split[-1].parts.append(part)
    return split


# -- signatures ----------------------------------------------------------------------------------


def _unsigned_calls(history: History) -> list[Part]:
    """First calls of the current turn's steps that lack the signature which Gemini 3 demands.

    The turn begins behind the last message of the user that brings no function response: one that
    brings a response *and* text still belongs to the loop before it.
    """
    if not _SIGNS_CALLS.search(history.context.model.lower()):
        return []
    unsigned: list[Part] = []
    for message in reversed(history.messages):
        if message.role == "user" and not message.has(Kind.RESULT):
            break
        calls = message.of(Kind.CALL) if message.role == "assistant" else []
        if calls and not calls[0].signed:
            unsigned.insert(0, calls[0])
    return unsigned


def _sign(work: Work) -> None:
    unsigned = {id(part) for part in _unsigned_calls(work)}
    for message in work.messages if unsigned else ():
        for n, part in enumerate(message.parts):
            if id(part) in unsigned and work.may("sign_call", part, "thought_signature_missing"):
                native = {**part.native, "thoughtSignature": _STAND_IN}
                signed = replace(part, native=native, signed=True)
                message.keep([*message.parts[:n], signed, *message.parts[n + 1 :]])


def _unsigned(native: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in native.items() if key not in _SIGNATURE_KEYS}


def _strip_signatures(work: Work) -> None:
    for message in work.messages:
        for n, part in enumerate(message.parts):
            if part.signed and work.may("strip_signature", part, "thought_signature_invalid"):
                bare = replace(part, native=_unsigned(part.native), signed=False)
                message.keep([*message.parts[:n], bare, *message.parts[n + 1 :]])
