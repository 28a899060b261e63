"""The rules for the contents of a Gemini request, as Google's API and Vertex enforce them.

They are written only from Google's pages and error texts. They share nothing with the code that
repairs histories, so that a wrong rule there is not confirmed here. Sources: Google's pages on
function calling and on thought signatures, and the error texts that public issues quote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from continuation.limits import ModelLimits
from continuation.simulator.common import REASONING_KEYS, HistoryFault, Rulebook, is_reasoning
from continuation.simulator.gemini.request import get
from continuation.simulator.wire import Json
from continuation.wire.json_values import as_list, is_map, mapping

_CALL_TURN = (
    "Please ensure that function call turn comes immediately after a user turn or after a function"
    " response turn."
)
_RESPONSE_TURN = (
    "Please ensure that function response turn comes immediately after a function call turn."
)
RULES = Rulebook(
    {
        "message_invalid": "Invalid value at 'contents[{n}]'",
        "role_invalid": "Please use a valid role: user, model.",
        "block_invalid": "Invalid value at 'contents[{n}].parts[{m}]': a part must have data",
        "message_empty": "Unable to submit request because it must include at least one parts"
        " field, which describes the prompt input.",
        "text_empty": "Unable to submit request because it has an empty text parameter. Add a value"
        " to the parameter and try again.",
        "tool_name_invalid": "* GenerateContentRequest.contents[{n}].parts[{m}].function_call.name:"
        " Name cannot be empty",
        "thought_signature_invalid": "Invalid value at"
        " 'contents[{n}].parts[{m}].thought_signature' (TYPE_BYTES), Base64 decoding failed",
        "prefill_unsupported": "Requests ending with a model turn are not supported.",
        "first_not_user": _CALL_TURN,
        "tool_use_in_user": _CALL_TURN,
        "tool_result_in_assistant": _RESPONSE_TURN,
        "tool_result_orphan": _RESPONSE_TURN,
        "tool_results_unequal": "Please ensure that the number of function response parts is equal"
        " to the number of function call parts of the function call turn.",
        "thought_signature_missing": "Function call is missing a thought_signature in functionCall"
        " parts. This is required for tools to work correctly, and missing thought_signature may"
        " lead to degraded model performance. Additional data, function call `{name}`, position"
        " {m}.",
        "history_empty": "* GenerateContentRequest.contents: contents is not specified",
    }
)
_fault = RULES.fault

_SIGNATURE = re.compile(r"[A-Za-z0-9+/=_-]+\Z")
_SIGNS_CALLS = re.compile(r"gemini-(?:[3-9]|\d\d)")
_NO_DATA = frozenset({"thought", "thoughtSignature", "thought_signature"})


class _PlacedPart(NamedTuple):
    m: int
    fields: Json

    @property
    def call(self) -> Json:
        return mapping(get(self.fields, "functionCall"))

    @property
    def response(self) -> Json:
        return {} if self.call else mapping(get(self.fields, "functionResponse"))

    @property
    def signature(self) -> str:
        value = get(self.fields, "thoughtSignature")
        return value if isinstance(value, str) else ""


class _Content(NamedTuple):
    n: int
    role: str
    parts: list[_PlacedPart]

    @property
    def calls(self) -> list[_PlacedPart]:
        return [part for part in self.parts if part.call]

    @property
    def responses(self) -> list[_PlacedPart]:
        return [part for part in self.parts if part.response]


def faults(body: Json, name: str, model: ModelLimits) -> list[HistoryFault]:
    """Return the rules that contents break. They must end so that the model can answer."""
    natives = as_list(body.get("contents"))
    contents = [_content(n, native) for n, native in enumerate(natives)]
    found = [] if natives else [_fault("history_empty")]
    for native, content in zip(natives, contents, strict=True):
        found += _form(content.n, native)
        for part in content.parts:
            found += _part(content.n, part)
        found += _sides(content)
        if is_map(native) and not any(map(_says, content.parts)):
            found.append(_fault("message_empty", content.n))
    if contents and contents[0].role == "model":
        found.append(_fault("first_not_user", 0))
    if contents and contents[-1].role == "model" and not contents[-1].calls and not model.prefill:
        found.append(_fault("prefill_unsupported", contents[-1].n))
    found += _pairs(contents)
    if _SIGNS_CALLS.search(name.lower()):
        found += _unsigned(contents)
    return RULES.ranked(found)


def _content(n: int, native: Any) -> _Content:
    fields = mapping(native)
    parts = fields.get("parts")
    listed = [parts] if is_map(parts) else as_list(parts)  # a single part need not be in a list
    role = "model" if fields.get("role") == "model" else "user"
    return _Content(n, role, [_PlacedPart(m, mapping(part)) for m, part in enumerate(listed)])


def _form(n: int, native: Any) -> Iterator[HistoryFault]:
    fields = mapping(native)
    if not is_map(native):
        yield _fault("message_invalid", n)
        return
    foreign = ("content" in fields and "parts" not in fields) or REASONING_KEYS & fields.keys()
    if foreign or (fields.get("role") or "user") not in ("user", "model"):
        yield _fault("role_invalid", n)


def _part(n: int, part: _PlacedPart) -> Iterator[HistoryFault]:
    m, fields, text = part.m, part.fields, part.fields.get("text")
    if "type" in fields and is_reasoning(fields):  # it has another format
        yield _fault("block_invalid", n, m)
        return
    if part.signature and not _SIGNATURE.match(part.signature):
        yield _fault("thought_signature_invalid", n, m)
    if part.call or part.response:
        if not (part.call or part.response).get("name"):
            yield _fault("tool_name_invalid", n, m)
    elif isinstance(text, str):
        if not text and not part.signature:
            yield _fault("text_empty", n, m)
    elif not fields.keys() - _NO_DATA:
        yield _fault("block_invalid", n, m)


def _says(part: _PlacedPart) -> bool:
    """Whether a part is content. A blank text and an unsigned thought are not."""
    text = part.fields.get("text")
    if part.signature or part.call or part.response or not isinstance(text, str):
        return True
    return bool(text.strip()) and not part.fields.get("thought")


def _sides(content: _Content) -> Iterator[HistoryFault]:
    if content.role == "user":
        yield from (_fault("tool_use_in_user", content.n, part.m) for part in content.calls)
    else:
        results = content.responses
        yield from (_fault("tool_result_in_assistant", content.n, part.m) for part in results)


def _pairs(contents: list[_Content]) -> Iterator[HistoryFault]:
    """Check that the next content begins with one response to each call, in their order."""
    calls = list[_PlacedPart]()
    for content in [*contents, _Content(len(contents), "user", [])]:
        head = list[_PlacedPart]()
        for part in content.parts:
            if not part.response:
                break
            head.append(part)
        responses = content.responses if content.role == "user" else []
        if responses and not calls:
            yield _fault("tool_result_orphan", content.n, responses[0].m)
        elif calls and not (
            len(calls) == len(responses) == len(head) and all(map(_answers, head, calls))
        ):
            yield _fault("tool_results_unequal", content.n)
        calls = content.calls if content.role == "model" else []


def _answers(response: _PlacedPart, call: _PlacedPart) -> bool:
    """Whether a response names a call: by its id if both have one, or else by the function."""
    named, wanted = response.response, call.call
    key = "id" if named.get("id") and wanted.get("id") else "name"
    return bool(named.get(key) == wanted.get(key))


def _unsigned(contents: list[_Content]) -> Iterator[HistoryFault]:
    """Check that the first call of each step of the current turn is signed (from Gemini 3 on).

    The turn begins after the user's last content without a function response.
    """
    for content in reversed(contents):
        if content.role == "user" and not content.responses:
            return
        if content.role == "model" and content.calls and not content.calls[0].signature:
            call = content.calls[0]
            name = call.call.get("name", "")
            yield _fault("thought_signature_missing", content.n, call.m, name=name)
