"""How a conversation stands in each wire format: its turns, an answer among them, a tool's result.

Turns are compared by what they say. An SDK sends an answer back with fields of its own, and a
caller may write a text as a string where the provider wrote a block.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from continuation.types import Json
from continuation.wire.json_values import (
    as_json,
    as_list,
    as_text,
    dumps,
    is_list,
    is_map,
    loads,
    objects,
    parsed,
)

TURNS: Final = {
    "anthropic": "messages",
    "openai-chat": "messages",
    "openai-responses": "input",
    "gemini": "contents",
}
"""Where a request has its turns, by format."""
_ASKED: Final = (
    "model",
    "system",
    "instructions",
    "systemInstruction",
    "tools",
    "previous_response_id",
    "conversation",
)
"""What else makes a request the same one."""
_LIMITS: Final = frozenset(
    {"max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens"}
    | {"stream", "stream_options"}
)
"""What of a request may be another one when it is asked again."""
_ASIDE: Final = frozenset(
    {"cache_control", "index", "parsed", "parsed_arguments", "annotations", "logprobs", "status"}
    | {"caller", "audio", "refusal", "usageMetadata"}
)
"""Fields that say nothing of what was said, or that SDKs add."""
_EMPTY: Final[tuple[object, ...]] = (None, [], {})


def turns(form: str, body: Json) -> list[Json]:
    """Return the turns of a request."""
    given = body.get(TURNS[form])
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return objects(given)


def answered(form: str, body: Json) -> list[Json]:
    """Return an answer's body as the turns that a later request has of it."""
    if form == "anthropic":
        return [{"role": "assistant", "content": body.get("content") or []}]
    if form == "openai-responses":
        return objects(body.get("output"))
    if form == "gemini":
        first = _first(body.get("candidates"))
        content = as_json(first.get("content"))
        return [{**content, "role": "model"}] if content.get("parts") else []
    message = as_json(_first(body.get("choices")).get("message"))
    return [{key: value for key, value in message.items() if value not in _EMPTY}]


_STOPS: Final = {
    "openai-chat": ("choices", "finish_reason"),
    "gemini": ("candidates", "finishReason"),
}
_AROUND: Final = frozenset(
    {"id", "object", "type", "role", "model", "created", "created_at", "status", "stop_reason"}
    | {"stop_sequence"}
    | {"usage", "usageMetadata", "modelVersion", "responseId", "incomplete_details"}
    | {"completed_at", "service_tier", "system_fingerprint"}
)
"""What a body says of its answer and is no content: not the instructions that some repeat."""


def parted(form: str, body: Json) -> tuple[list[Json], Json]:
    """Return an answer's turns, and what its body says besides, which is no content."""
    around = {key: value for key, value in body.items() if key in _AROUND}
    if form in _STOPS:
        key, stop = _STOPS[form]
        around[stop] = _first(body.get(key)).get(stop)
    return answered(form, body), around


def is_one(form: str, data: bytes) -> bool:
    """Whether a body is that of one answer, and can be put together again by `whole`."""
    try:
        body = as_json(loads(data))
    except ValueError:
        return False
    place, _ = _STOPS.get(form, ("", ""))
    choices = objects(body.get(place)) if place else [body]
    more = any(choice.get("logprobs") for choice in choices)
    return len(choices) == 1 and not more and bool(answered(form, body))


def whole(form: str, turns: Sequence[Json], around: Json) -> Json:
    """Return the body that `parted` took apart."""
    if form == "anthropic":
        return {**around, "content": turns[0]["content"]}
    if form == "openai-responses":
        return {**around, "output": [*turns]}
    key, stop = _STOPS[form]
    said = {"message" if form == "openai-chat" else "content": turns[0]}
    rest = {name: value for name, value in around.items() if name != stop}
    return {**rest, key: [{"index": 0, **said, stop: around.get(stop)}]}


def _first(value: object) -> Json:
    found = objects(value)
    return found[0] if found else {}


def digest(turn: object) -> str:
    """Return what is equal for turns that say the same."""
    return hashlib.sha256(dumps(_essence(turn))).hexdigest()[:32]


def asked(
    form: str, model: str, body: Json, digests: Iterable[str], *, exactly: bool = False
) -> str:
    """Return what is equal for requests that ask the same; `digests`: of its turns.

    `exactly`: how it is asked for counts as well, but not how long the answer may be.
    """
    known = {key: body[key] for key in _ASKED if body.get(key) not in _EMPTY}
    if not exactly:
        return digest([form, model, known, *digests])
    left = {*_LIMITS, *_ASKED, TURNS[form]}
    manner = {key: value for key, value in body.items() if key not in left}
    if settings := as_json(body.get("generationConfig")):
        manner["generationConfig"] = {k: v for k, v in settings.items() if k not in _LIMITS}
    return digest([form, model, known, manner, *digests])


def _essence(value: object, key: str = "") -> object:
    if is_map(value):
        kept = {name: _essence(each, name) for name, each in sorted(value.items())}
        return {k: v for k, v in kept.items() if v not in _EMPTY and k not in _ASIDE}
    if is_list(value):
        return _joined([_essence(each) for each in value])
    if key == "thoughtSignature" and isinstance(value, str):  # base64, in either alphabet
        return value.replace("-", "+").replace("_", "/")
    if key == "content" and isinstance(value, str):
        return [{"text": value, "type": "text"}]
    return value


def _joined(parts: list[Any]) -> list[Any]:
    """Join Gemini's texts: a stream's chunks are parts of their own to its SDK."""
    told, plain = list[Any](), False
    for part in parts:
        before, plain = plain, is_map(part) and set(part) == {"text"}
        if plain and before:
            told[-1] = {"text": told[-1]["text"] + part["text"]}
        else:
            told.append(part)
    return told


# --- tools ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool, whatever format it came in."""

    id: str
    """As in the answer. Gemini often gives none: then the journal makes one, with `#` before it."""
    name: str
    arguments: Any
    """As an object where they are one; else as they came."""
    custom: bool = False
    """Responses: its input is any text, and its result has a type of its own."""

    @property
    def input(self) -> Any:
        """The arguments, by Anthropic's name."""
        return self.arguments

    @property
    def args(self) -> Any:
        """The arguments, by Google's name."""
        return self.arguments


def tool_call(call: object) -> ToolCall:
    """Read a call as an SDK, an answer's JSON or `Resume` has it.

    Raises `TypeError` for anything else.
    """
    if isinstance(call, ToolCall):
        return call
    given: Any = call
    if hasattr(given, "arguments") and hasattr(given, "path"):  # an `OpenCall` of the history
        given = {"id": given.id, "name": given.name, "arguments": given.arguments}
    dump = getattr(given, "model_dump", None)
    told = as_json(dump() if callable(dump) else given)
    function = as_json(told.get("function")) or as_json(told.get("functionCall")) or told
    name = as_text(function.get("name"))
    called = as_text(told.get("call_id")) or as_text(told.get("id")) or as_text(function.get("id"))
    arguments: Any = None
    for key in ("input", "arguments", "args"):
        arguments = function.get(key) if arguments is None else arguments
    if not name:
        kind = type(call).__name__
        message = f"call: a tool call as the SDK gave it, or its JSON; not {kind}"
        raise TypeError(message)
    custom = told.get("type") == "custom_tool_call"
    if isinstance(arguments, str) and not custom and (read := parsed(arguments)) is not None:
        arguments = read
    return ToolCall(called, name, arguments, custom)


def alike(turn: Json, call: ToolCall) -> int:
    """Count the calls in Gemini's turn that have no id, and say what this one says."""
    made = [tool_call(part) for part in objects(turn.get("parts")) if part.get("functionCall")]
    said = digest([call.name, call.arguments])
    return sum(not each.id and digest([each.name, each.arguments]) == said for each in made)


def result(form: str, call: Json, value: Any, *, failed: bool) -> Json:
    """Return the turn that gives one call its result; `call`: id, name and whether it is custom."""
    name, called = as_text(call.get("name")), as_text(call.get("id"))
    if form == "gemini":
        word = "error" if failed else "output"
        said: object = value if is_map(value) and not failed else {word: value}
        response: Json = {"name": name, "response": said}
        if not called.startswith("#"):
            response["id"] = called
        return {"role": "user", "parts": [{"functionResponse": response}]}
    told = value if isinstance(value, str) else dumps(value).decode()
    if form == "anthropic":
        content = value if _is_blocks(value) else told
        part: Json = {"type": "tool_result", "tool_use_id": called, "content": content}
        if failed:
            part["is_error"] = True
        return {"role": "user", "content": [part]}
    if form == "openai-responses":
        kind = "custom_tool_call_output" if call.get("custom") else "function_call_output"
        return {"type": kind, "call_id": called, "output": told}
    return {"role": "tool", "tool_call_id": called, "content": told}


def _is_blocks(value: object) -> bool:
    return is_list(value) and all("type" in as_json(each) for each in value)


def beside(form: str, results: Sequence[Json]) -> list[Json]:
    """Return the results of one answer's calls as its format wants them: in one turn, or many."""
    key = {"anthropic": "content", "gemini": "parts"}.get(form)
    if key is None or len(results) < 2:
        return list(results)
    return [{"role": "user", key: [part for turn in results for part in as_list(turn.get(key))]}]


def call_ids(form: str, turn: Json) -> set[str]:
    """Return the ids of the calls that a turn gives results for; `#` for calls without one."""
    if form == "openai-responses":
        ended = as_text(turn.get("type")).endswith("_output")
        return {as_text(turn.get("call_id"))} if ended else set()
    if form == "openai-chat":
        return {as_text(turn.get("tool_call_id"))} if turn.get("role") == "tool" else set()
    if form == "gemini":
        given = [as_json(part.get("functionResponse")) for part in objects(turn.get("parts"))]
        return {as_text(each.get("id")) or "#" for each in given if each}
    parts = objects(turn.get("content"))
    return {as_text(part.get("tool_use_id")) for part in parts if part.get("type") == "tool_result"}
