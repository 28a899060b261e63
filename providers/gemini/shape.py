"""How generateContent writes conversations, tool results, batch lines and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from continuation.providers.contract import ParsedCall, Shape
from continuation.providers.gemini.codec import GeminiCodec
from continuation.providers.gemini.parts import joined
from continuation.types import Json
from continuation.wire.json_values import as_json, as_list, as_text, dumps, is_list, is_map, objects

_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
"""The HTTP status -> the name of the error in Google's APIs (google.rpc.Code)."""
_CONFIG = "generationConfig"


class GeminiShape(Shape):
    """The shape of generateContent."""

    messages, answer, stop, truncated = "contents", "candidates", "finishReason", "MAX_TOKENS"
    stops = GeminiCodec.stops
    identity = ("model", "systemInstruction", "tools")
    lengths = frozenset({"maxOutputTokens"})
    ignored = frozenset({"index", "usageMetadata"})
    envelope = frozenset({"usageMetadata", "modelVersion", "responseId"})
    method = "models.generate_content"
    batch_request, batch_answer = "request", ("response",)
    upstream, server = "gemini", "https://generativelanguage.googleapis.com"
    key_header, telemetry = b"x-goog-api-key", "gcp.gemini"

    def resembles(self, body: Mapping[str, Any]) -> int:
        """Return more than any other format, because no other has `contents`."""
        return 6 * super().resembles(body)

    def options(self, body: Json) -> Json:
        options = super().options(body)
        if settings := as_json(body.get(_CONFIG)):
            counted = {key: value for key, value in settings.items() if key not in self.lengths}
            options[_CONFIG] = counted
        return options

    def choices(self, body: Json) -> list[Json]:
        return objects(body.get("candidates"))

    def answer_messages(self, body: Json) -> list[Json]:
        content = self._content(body)
        return [{**content, "role": "model"}] if content.get("parts") else []

    def split_answer(self, body: Json) -> tuple[list[Json], Json]:
        messages, envelope = super().split_answer(body)
        stop = next((choice.get("finishReason") for choice in self.choices(body)), None)
        return messages, {**envelope, "finishReason": stop}

    def join_answer(self, messages: Sequence[Json], envelope: Json) -> Json:
        rest = {key: value for key, value in envelope.items() if key != "finishReason"}
        stop = envelope.get("finishReason")
        return {**rest, "candidates": [{"index": 0, "content": messages[0], "finishReason": stop}]}

    def text(self, body: Json) -> str:
        parts = objects(self._content(body).get("parts"))
        return "".join(as_text(part.get("text")) for part in parts if not part.get("thought"))

    def normalized(self, value: object, key: str) -> object:
        """Write signatures in the standard alphabet of base64, and join adjacent texts.

        The SDK stores each chunk of a stream as a part.
        """
        if key == "thoughtSignature" and isinstance(value, str):
            return value.replace("-", "+").replace("_", "/")
        return _texts_joined(value) if is_list(value) else value

    def function_of(self, call: Json) -> Json:
        return as_json(call.get("functionCall")) or call

    def result(self, call: ParsedCall, value: Any, *, failed: bool) -> Json:
        word = "error" if failed else "output"
        output: object = value if is_map(value) and not failed else {word: value}
        response: Json = {"name": call.name, "response": output}
        if not call.id.startswith("#"):
            response["id"] = call.id
        return {"role": "user", "parts": [{"functionResponse": response}]}

    def group_results(self, results: Sequence[Json]) -> list[Json]:
        """Put all results into one message, as the API requires."""
        if len(results) < 2:
            return list(results)
        parts = [part for message in results for part in as_list(message.get("parts"))]
        return [{"role": "user", "parts": parts}]

    def answered_calls(self, message: Json) -> set[str]:
        responses = [
            as_json(part.get("functionResponse")) for part in objects(message.get("parts"))
        ]
        return {as_text(each.get("id")) or "#" for each in responses if each}

    def calls_without_id(self, message: Json) -> list[ParsedCall]:
        parts = [part for part in objects(message.get("parts")) if part.get("functionCall")]
        return [call for call in map(self.parse_call, parts) if not call.id]

    def is_client(self, client: Any, request: Mapping[str, Any]) -> bool:
        return hasattr(getattr(client, "models", None), "generate_content")

    def sdk_arguments(self, client: Any, request: dict[str, Any]) -> dict[str, Any]:
        """Move the fields of a request's JSON into `config`, where the SDK expects them."""
        if "config" in request:
            return request
        rest = dict(request)
        settings = {**rest.pop(_CONFIG, {}), **rest.pop("generation_config", {})}
        others = {key: rest.pop(key) for key in rest.keys() - {"model", "contents"}}
        return {**rest, "config": {**others, **settings}}

    def joined_message(self, chunks: Sequence[Any]) -> Any:
        """Join adjacent unsigned texts, and keep other parts as the same objects.

        No seam is decided here: the attempts were joined before the SDK made the chunks.
        """
        parts = [part for content in chunks for part in content.parts or ()]
        dumped = [
            (part, part.model_dump(exclude_none=True)) for part in parts if part != type(part)()
        ]
        # `joined` returns a part that it did not merge as the same object, so that its SDK part can
        # be found and reused.
        given = {id(wire): part for part, wire in dumped}
        merged = [
            given.get(id(wire)) or type(parts[0])(**wire)
            for wire in joined(wire for _, wire in dumped)
        ]
        return chunks[0].model_copy(update={"parts": merged})

    def is_batch_line(self, line: Json, request: Json) -> bool:
        return self.messages in request

    def error(self, status: int, message: str) -> Json:
        other = "INTERNAL" if status >= 500 else "FAILED_PRECONDITION"
        name = _STATUSES.get(status, other)
        return {"error": {"code": status, "message": message, "status": name}}

    def error_event(self, error: Json) -> bytes:
        return b"data: %b\r\n\r\n" % dumps(error)

    def _content(self, body: Json) -> Json:
        return next((as_json(choice.get("content")) for choice in self.choices(body)), {})


def _texts_joined(parts: list[Any]) -> list[Any]:
    found, plain = list[Any](), False
    for part in parts:
        before, plain = plain, is_map(part) and set(part) == {"text"}
        if plain and before:
            found[-1] = {"text": found[-1]["text"] + part["text"]}
        else:
            found.append(part)
    return found
