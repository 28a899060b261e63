"""A response as the events of a stream, numbered without a gap and without `[DONE]` at the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from continuation.simulator.openai_responses.output import Envelope, begun, token_logprobs
from continuation.simulator.wire import Event, Json

DELTA = 24
"""Characters per delta where the reply does not say."""


def events(response: Json, envelope: Envelope, size: int) -> Iterator[Event]:
    """Write the stream that ends in `response`; `size` is the characters per delta."""
    for number, payload in enumerate(_payloads(response, envelope, size)):
        kind = str(payload.pop("type"))
        yield Event(kind, text({"type": kind, "sequence_number": number, **payload}))


def error_event(kind: str, message: str, number: int) -> Event:
    """Write an error in the middle of a stream."""
    told = {"type": "error", "code": kind, "message": message, "param": None}
    return Event("error", text({**told, "sequence_number": number}))


def _payloads(response: Json, envelope: Envelope, size: int) -> Iterator[Json]:
    if envelope.body.get("background"):
        queued = begun(envelope, "queued")
        yield {"type": "response.created", "response": queued}
        yield {"type": "response.queued", "response": queued}
    else:
        yield {"type": "response.created", "response": begun(envelope)}
    yield {"type": "response.in_progress", "response": begun(envelope)}
    for index, item in enumerate(response["output"]):
        yield from _item_events(index, item, _Deltas(size, logprobs=envelope.logprobs))
    yield {"type": f"response.{response['status']}", "response": response}


class _Deltas:
    """Cuts texts into deltas."""

    def __init__(self, size: int, *, logprobs: bool) -> None:
        self._size = size
        self._logprobs = logprobs

    def __call__(self, kind: str, at: Json, whole: str) -> Iterator[Json]:
        for start in range(0, len(whole), self._size):
            yield {"type": kind, **at, "delta": whole[start : start + self._size]}

    def of_text(self, at: Json, whole: str) -> Iterator[Json]:
        for payload in self("response.output_text.delta", at, whole):
            yield {**payload, "logprobs": self.logprobs(payload["delta"])}

    def logprobs(self, piece: str) -> list[Json]:
        return token_logprobs(piece) if self._logprobs else []


_Between = Callable[[Json, Json, _Deltas], Iterator[Json]]


def _item_events(index: int, item: Json, deltas: _Deltas) -> Iterator[Json]:
    at = {"item_id": item["id"], "output_index": index}
    yield {"type": "response.output_item.added", "output_index": index, "item": _at_start(item)}
    yield from _BETWEEN.get(str(item.get("type")), _nothing)(item, at, deltas)
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _at_start(item: Json) -> Json:
    """Return an item as it is announced; its encrypted content is not whole yet."""
    started = {**item, **{name: type(item[name])() for name in _GROWING if name in item}}
    if "status" in item:
        started["status"] = "in_progress"
    if "encrypted_content" in item:
        started["encrypted_content"] = item["encrypted_content"][
            : len(item["encrypted_content"]) // 2
        ]
    return started


_GROWING = ("content", "summary", "arguments", "input")


def _nothing(item: Json, at: Json, deltas: _Deltas) -> Iterator[Json]:
    del item, at, deltas
    return iter(())


def _message(item: Json, at: Json, deltas: _Deltas) -> Iterator[Json]:
    for number, part in enumerate(item["content"]):
        here = {**at, "content_index": number}
        empty = {**part, **{name: type(part[name])() for name in _PART_GROWING if name in part}}
        yield {"type": "response.content_part.added", **here, "part": empty}
        yield from (_refusal if part["type"] == "refusal" else _output_text)(part, here, deltas)
        yield {"type": "response.content_part.done", **here, "part": part}


_PART_GROWING = ("text", "refusal", "annotations", "logprobs")


def _output_text(part: Json, at: Json, deltas: _Deltas) -> Iterator[Json]:
    yield from deltas.of_text(at, part["text"])
    for number, annotation in enumerate(part.get("annotations") or []):
        kind = "response.output_text.annotation.added"
        yield {"type": kind, **at, "annotation_index": number, "annotation": annotation}
    said = {"text": part["text"], "logprobs": deltas.logprobs(part["text"])}
    yield {"type": "response.output_text.done", **at, **said}


def _refusal(part: Json, at: Json, deltas: _Deltas) -> Iterator[Json]:
    yield from deltas("response.refusal.delta", at, part["refusal"])
    yield {"type": "response.refusal.done", **at, "refusal": part["refusal"]}


def _reasoning(item: Json, at: Json, deltas: _Deltas) -> Iterator[Json]:
    for number, part in enumerate(item["summary"]):
        here = {**at, "summary_index": number}
        kind = "response.reasoning_summary"
        ended = {"status": "incomplete"} if item.get("status") == "incomplete" else {}
        yield {"type": f"{kind}_part.added", **here, "part": {**part, "text": ""}}
        yield from deltas(f"{kind}_text.delta", here, part["text"])
        yield {"type": f"{kind}_text.done", **here, "text": part["text"]}
        yield {"type": f"{kind}_part.done", **here, "part": part, **ended}


def _function_call(item: Json, at: Json, deltas: _Deltas) -> Iterator[Json]:
    kind, arguments = "response.function_call_arguments", item["arguments"]
    yield from deltas(f"{kind}.delta", at, arguments)
    yield {"type": f"{kind}.done", **at, "arguments": arguments}


def _custom_tool_call(item: Json, at: Json, deltas: _Deltas) -> Iterator[Json]:
    kind, given = "response.custom_tool_call_input", item["input"]
    yield from deltas(f"{kind}.delta", at, given)
    yield {"type": f"{kind}.done", **at, "input": given}


def _web_search(item: Json, at: Json, deltas: _Deltas) -> Iterator[Json]:
    del item, deltas
    for step in ("in_progress", "searching", "completed"):
        yield {"type": f"response.web_search_call.{step}", **at}


_BETWEEN: dict[str, _Between] = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _function_call,
    "custom_tool_call": _custom_tool_call,
    "web_search_call": _web_search,
}

text: Callable[[Any], str] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
