"""How each wire format writes a conversation: its turns, the answers among them, tool results.

Turns are compared by their content. An SDK sends an answer back with fields of its own, and a
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

TURN_FIELDS: Final = {
    "anthropic": "messages",
    "openai-chat": "messages",
    "openai-responses": "input",
    "gemini": "contents",
}
"""The field of a request that holds its turns, by format."""
_IDENTITY: Final = (
    "model",
    "system",
    "instructions",
    "systemInstruction",
    "tools",
    "previous_response_id",
    "conversation",
)
"""Other fields that must be equal for two requests to be the same."""
_LENGTHS: Final = frozenset(
    {"max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens"}
    | {"stream", "stream_options"}
)
"""Fields that may change when a request is repeated."""
_IGNORED: Final = frozenset(
    {"cache_control", "index", "parsed", "parsed_arguments", "annotations", "logprobs", "status"}
    | {"caller", "audio", "refusal", "usageMetadata"}
)
"""Fields that are no content, or that SDKs add: not compared."""
_EMPTY: Final[tuple[object, ...]] = (None, [], {})


def request_turns(form: str, body: Json) -> list[Json]:
    """Return the turns of a request."""
    value = body.get(TURN_FIELDS[form])
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    return objects(value)


def answer_turns(form: str, body: Json) -> list[Json]:
    """Return an answer's body as the turns that a later request carries."""
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
_ENVELOPE: Final = frozenset(
    {"id", "object", "type", "role", "model", "created", "created_at", "status", "stop_reason"}
    | {"stop_sequence"}
    | {"usage", "usageMetadata", "modelVersion", "responseId", "incomplete_details"}
    | {"completed_at", "service_tier", "system_fingerprint"}
)
"""Fields kept of an answer's body besides its content; not instructions that it repeats."""


def split_answer(form: str, body: Json) -> tuple[list[Json], Json]:
    """Return an answer's turns, and the fields of its body that are no content."""
    envelope = {key: value for key, value in body.items() if key in _ENVELOPE}
    if form in _STOPS:
        key, stop = _STOPS[form]
        envelope[stop] = _first(body.get(key)).get(stop)
    return answer_turns(form, body), envelope


def is_single_answer(form: str, data: bytes) -> bool:
    """Whether a body holds one answer with content, which `join_answer` can rebuild."""
    try:
        body = as_json(loads(data))
    except ValueError:
        return False
    key, _ = _STOPS.get(form, ("", ""))
    choices = objects(body.get(key)) if key else [body]
    logprobs = any(choice.get("logprobs") for choice in choices)
    return len(choices) == 1 and not logprobs and bool(answer_turns(form, body))


def join_answer(form: str, turns: Sequence[Json], envelope: Json) -> Json:
    """Return the body that `split_answer` took apart."""
    if form == "anthropic":
        return {**envelope, "content": turns[0]["content"]}
    if form == "openai-responses":
        return {**envelope, "output": [*turns]}
    key, stop = _STOPS[form]
    content = {"message" if form == "openai-chat" else "content": turns[0]}
    rest = {name: value for name, value in envelope.items() if name != stop}
    return {**rest, key: [{"index": 0, **content, stop: envelope.get(stop)}]}


def _first(value: object) -> Json:
    items = objects(value)
    return items[0] if items else {}


def digest(turn: object) -> str:
    """Return a digest, equal for turns with the same content, of 32 hex digits."""
    return hashlib.sha256(dumps(_normalized(turn))).hexdigest()[:32]


def request_digest(
    form: str, model: str, body: Json, digests: Iterable[str], *, exactly: bool = False
) -> str:
    """Return a digest that is equal for requests that ask the same; `digests`: of its turns.

    `exactly`: all other options count too, except limits and streaming.
    """
    identity = {key: body[key] for key in _IDENTITY if body.get(key) not in _EMPTY}
    if not exactly:
        return digest([form, model, identity, *digests])
    excluded = {*_LENGTHS, *_IDENTITY, TURN_FIELDS[form]}
    options = {key: value for key, value in body.items() if key not in excluded}
    if settings := as_json(body.get("generationConfig")):
        options["generationConfig"] = {k: v for k, v in settings.items() if k not in _LENGTHS}
    return digest([form, model, identity, options, *digests])


def _normalized(value: object, key: str = "") -> object:
    if is_map(value):
        fields = {name: _normalized(each, name) for name, each in sorted(value.items())}
        return {k: v for k, v in fields.items() if v not in _EMPTY and k not in _IGNORED}
    if is_list(value):
        return _joined([_normalized(each) for each in value])
    if key == "thoughtSignature" and isinstance(value, str):  # base64, in either alphabet
        return value.replace("-", "+").replace("_", "/")
    if key == "content" and isinstance(value, str):
        return [{"text": value, "type": "text"}]
    return value


def _joined(parts: list[Any]) -> list[Any]:
    """Join adjacent texts of Gemini, whose SDK keeps each chunk of a stream as a part."""
    joined, plain = list[Any](), False
    for part in parts:
        before, plain = plain, is_map(part) and set(part) == {"text"}
        if plain and before:
            joined[-1] = {"text": joined[-1]["text"] + part["text"]}
        else:
            joined.append(part)
    return joined


# --- tools ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A tool call, in one form for all wire formats."""

    id: str
    """As in the answer; where Gemini gives none, one that the journal makes, beginning with `#`."""
    name: str
    arguments: Any
    """Parsed, if they are JSON; otherwise the text as it came."""
    custom: bool = False
    """Whether it is a custom call of the Responses API: its input is any text."""

    @property
    def input(self) -> Any:
        """The arguments, by Anthropic's name."""
        return self.arguments

    @property
    def args(self) -> Any:
        """The arguments, by Google's name."""
        return self.arguments


def tool_call(call: object) -> ParsedCall:
    """Return a call that is given as an SDK's object, as an answer's JSON, or by `Resume`.

    Raises `TypeError` for anything else.
    """
    if isinstance(call, ParsedCall):
        return call
    source: Any = call
    if hasattr(source, "arguments") and hasattr(source, "path"):  # an `OpenCall` of the history
        source = {"id": source.id, "name": source.name, "arguments": source.arguments}
    dump = getattr(source, "model_dump", None)
    data = as_json(dump() if callable(dump) else source)
    function = as_json(data.get("function")) or as_json(data.get("functionCall")) or data
    name = as_text(function.get("name"))
    call_id = as_text(data.get("call_id")) or as_text(data.get("id")) or as_text(function.get("id"))
    arguments: Any = None
    for key in ("input", "arguments", "args"):
        arguments = function.get(key) if arguments is None else arguments
    if not name:
        kind = type(call).__name__
        message = f"call: a tool call as the SDK gave it, or its JSON; not {kind}"
        raise TypeError(message)
    custom = data.get("type") == "custom_tool_call"
    if isinstance(arguments, str) and not custom and (decoded := parsed(arguments)) is not None:
        arguments = decoded
    return ParsedCall(call_id, name, arguments, custom)


def count_alike(turn: Json, call: ParsedCall) -> int:
    """Count the calls of a Gemini turn without an id that have this one's name and arguments."""
    calls = [tool_call(part) for part in objects(turn.get("parts")) if part.get("functionCall")]
    wanted = digest([call.name, call.arguments])
    return sum(not each.id and digest([each.name, each.arguments]) == wanted for each in calls)


def result(form: str, call: Json, value: Any, *, failed: bool) -> Json:
    """Return the turn that gives one call its result; `call`: id, name and whether it is custom."""
    name, call_id = as_text(call.get("name")), as_text(call.get("id"))
    if form == "gemini":
        word = "error" if failed else "output"
        output: object = value if is_map(value) and not failed else {word: value}
        response: Json = {"name": name, "response": output}
        if not call_id.startswith("#"):
            response["id"] = call_id
        return {"role": "user", "parts": [{"functionResponse": response}]}
    text = value if isinstance(value, str) else dumps(value).decode()
    if form == "anthropic":
        content = value if _is_blocks(value) else text
        part: Json = {"type": "tool_result", "tool_use_id": call_id, "content": content}
        if failed:
            part["is_error"] = True
        return {"role": "user", "content": [part]}
    if form == "openai-responses":
        kind = "custom_tool_call_output" if call.get("custom") else "function_call_output"
        return {"type": kind, "call_id": call_id, "output": text}
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _is_blocks(value: object) -> bool:
    return is_list(value) and all("type" in as_json(each) for each in value)


def group_results(form: str, results: Sequence[Json]) -> list[Json]:
    """Return results of one answer's calls as the format requires: in one turn, or in many."""
    key = {"anthropic": "content", "gemini": "parts"}.get(form)
    if key is None or len(results) < 2:
        return list(results)
    return [{"role": "user", key: [part for turn in results for part in as_list(turn.get(key))]}]


def call_ids(form: str, turn: Json) -> set[str]:
    """Return the ids of the calls that a turn gives results for; `#` for calls without one."""
    if form == "openai-responses":
        is_output = as_text(turn.get("type")).endswith("_output")
        return {as_text(turn.get("call_id"))} if is_output else set()
    if form == "openai-chat":
        return {as_text(turn.get("tool_call_id"))} if turn.get("role") == "tool" else set()
    if form == "gemini":
        responses = [as_json(part.get("functionResponse")) for part in objects(turn.get("parts"))]
        return {as_text(each.get("id")) or "#" for each in responses if each}
    parts = objects(turn.get("content"))
    return {as_text(part.get("tool_use_id")) for part in parts if part.get("type") == "tool_result"}
