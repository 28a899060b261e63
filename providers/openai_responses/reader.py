"""Reads a Responses stream as block events.

Each part of a message is a block, and each other item is one, too. Other events between the start
and the end of an item are kept unchanged in deltas (`event`), and written with the indices of the
caller's answer. The final forms of parts and items are kept as `part` and `item`. A block ends at
the first of its `*.done` events. Later ones are buffered until more follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from continuation.providers.contract import PlainReader
from continuation.providers.openai_common.errors import lasting
from continuation.providers.openai_responses.items import (
    LIVE,
    REASONING,
    TYPED,
    half,
    kind_of,
)
from continuation.types import Json
from continuation.wire import blocks as _blocks
from continuation.wire import sse as _sse
from continuation.wire.blocks import ENDED, REFUSAL, TEXT, TOOL_CALL
from continuation.wire.json_values import as_int, as_json, as_list, as_text
from continuation.wire.text_template import NUMBER, PADDING, PlainEvents

_FELL = frozenset({"incomplete", "failed"})
_PART_KINDS = {"output_text": TEXT, REFUSAL: REFUSAL}
_GROWING: Json = {"text": "", REFUSAL: "", "annotations": [], "logprobs": []}
_SPOKEN: Json = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
_BROKEN = frozenset({"", "server_error", "rate_limit_exceeded"})
"""Error codes of failures of the server, after which the same request may succeed."""


@dataclass(slots=True)
class _Item:
    """An item that has begun, with its block or the blocks of its parts."""

    native: Json
    place: int
    after: str
    """The id of the reasoning item directly before it; `""`: there is none."""
    block: int | None = None
    parts: dict[int, int] = field(default_factory=dict[int, int])
    streamed: set[int] = field(default_factory=set[int])
    """The blocks for which text or arguments have arrived."""

    @property
    def is_message(self) -> bool:
        return self.native.get("type") == "message"


class ResponsesReader(PlainReader):
    """Reads one attempt."""

    def __init__(self) -> None:
        self._count = 0
        self._open: int | None = None
        self._items: dict[int, _Item] = {}
        self._led = ""
        self._half = False
        self._plain = PlainEvents(_string, {"obfuscation": PADDING, "sequence_number": NUMBER})

    def events(self, frame: _sse.Frame) -> Sequence[Json]:
        if (event := self._plain.match(frame)) is not None:
            return (event,)
        events = list(self.tell(_sse.typed(frame)))
        self._plain.learn(frame, events)
        return events

    def tell(self, event: Json) -> Iterator[Json]:
        """Yield the block events of one decoded event."""
        kind = as_text(event.get("type"))
        if (tells := _TELLS.get(kind)) is not None:
            return tells(self, event)
        return self.on_other(event) if kind else iter(())

    # --- the answer ----------------------------------------------------------------------------

    def on_opening(self, event: Json) -> Iterator[Json]:
        if self._items:  # a second opening must not cause the delivery of buffered events
            yield event
            return
        number = as_int(event.get("sequence_number")) or 0
        yield _blocks.opening({"response": as_json(event.get("response")), "number": number})

    def on_ended(self, event: Json) -> Iterator[Json]:
        response = as_json(event.get("response"))
        output = [as_json(item) for item in as_list(response.get("output"))]
        if not self._items:
            for place, item in enumerate(output):
                yield from self.on_item_done({"output_index": place, "item": item})
        yield from self.close()
        error = as_json(response.get("error"))
        # The stop reason is the status, or the reason why the response is incomplete.
        kind = as_text(event.get("type")).rpartition(".")[2]
        reason = kind if kind == "incomplete" else as_text(response.get("status")) or kind
        if reason == "incomplete":
            details = as_json(response.get("incomplete_details"))
            reason = as_text(details.get("reason")) or reason
        if reason == "failed" and as_text(error.get("code")) in _BROKEN:
            yield from self.on_error(error)
            return
        cut = self._half or any(map(half, output))
        usage = as_json(response.get("usage"))
        yield _blocks.closing(reason, usage, response=response, half=cut or None)
        yield ENDED

    def on_error(self, event: Json) -> Iterator[Json]:
        error = as_json(event.get("error")) or event
        kind = as_text(error.get("code")) or "error"
        yield {"type": "error", "error": {"type": kind, "lasting": lasting(error)}}

    # --- items ---------------------------------------------------------------------------------

    def on_item_added(self, event: Json) -> Iterator[Json]:
        if native := as_json(event.get("item")):
            yield from self._begin(_place(event), native)

    def on_item_done(self, event: Json) -> Iterator[Json]:
        place, native = _place(event), as_json(event.get("item"))
        if place not in self._items:
            if not native:
                return
            yield from self._begin(place, native)
        item = self._items[place]
        if item.is_message:
            content = native.get("content")
            if isinstance(content, str):  # some servers send the text instead of parts
                content = [{**_SPOKEN, "text": content}] if content else []
            for number, part in enumerate(as_list(content)):
                if number not in item.parts:
                    yield from self._whole_part(item, number, as_json(part))
            last = max(item.parts.values(), default=None)
        else:
            last = item.block
            yield from self._arguments(item, native.get(TYPED.get(as_text(native.get("type")), "")))
        if last is not None:
            # Reasoning cannot be resent without its encrypted content, which is its signature.
            sealed = as_text(native.get("encrypted_content"))
            if sealed and native.get("status") != "incomplete":
                yield _blocks.delta(last, "signature_delta", signature=sealed, item=native)
            else:
                yield _blocks.delta(last, "item", item=native)
        broke = kind_of(native) in LIVE and as_text(native.get("status")) in _FELL
        for event in self.close():
            yield {**event, "cut": True} if broke else event  # a later attempt may run it again
        self._half = self._half or half(native)
        self._led = as_text(native.get("id")) if kind_of(native) == REASONING else ""

    def _begin(self, place: int, native: Json) -> Iterator[Json]:
        yield from self.close()
        item = self._items[place] = _Item(native, place, self._led)
        if item.is_message:
            return
        kind = kind_of(native)
        call = kind == TOOL_CALL
        name = as_text(native.get("name")) or as_text(native.get("type"))
        named = {"id": native.get("call_id"), "name": name} if call else {}
        item.block = self._count
        free = call and native.get("type") != "function_call"
        traits = {"free": free} if free or not call else {"args_verified": True}
        yield self._start(item, {"type": kind, **named}, **traits)

    def _start(self, item: _Item, block: Json, **traits: bool) -> Json:
        self._open, self._count = self._count, self._count + 1
        held = {"item": item.native, "output_index": item.place, "after": item.after}
        return _blocks.start(self._open, {**block, **held}, **traits)

    def close(self) -> Iterator[Json]:
        """Yield the end of the open block, if there is one."""
        if self._open is not None:
            yield _blocks.stop(self._open)
        self._open = None

    def _item_of(self, event: Json) -> _Item:
        """Return the item of an event. An item that was not announced counts as a message."""
        place = _place(event)
        if place not in self._items:
            native: Json = {"id": event.get("item_id"), "type": "message", "role": "assistant"}
            self._items[place] = _Item({**native, "content": []}, place, self._led)
        return self._items[place]

    # --- parts of a message --------------------------------------------------------------------

    def on_part_added(self, event: Json) -> Iterator[Json]:
        item = self._item_of(event)
        if not item.is_message:
            return self.on_other(event)
        return self._part(item, _number(event), as_json(event.get("part")))

    def on_part_done(self, event: Json) -> Iterator[Json]:
        item = self._item_of(event)
        block = item.parts.get(_number(event))
        if not item.is_message:
            yield from self.on_other(event)
        elif block is not None:
            yield _blocks.delta(block, "part", part=as_json(event.get("part")))
            yield from self.close()

    def on_text(self, event: Json) -> Iterator[Json]:
        """Yield a piece of text, or at the text's end the complete text if no piece has arrived."""
        item, number = self._item_of(event), _number(event)
        if number not in item.parts:  # the part was not announced
            yield from self._part(item, number, {**_SPOKEN})
        block = item.parts[number]
        if event.get("type") == "response.output_text.delta":
            item.streamed.add(block)
            yield _spoken(block, event.get("delta"), event)
            return
        if block not in item.streamed and event.get("text"):
            yield _spoken(block, event["text"], event)
        yield from self.close()

    def on_annotation(self, event: Json) -> Iterator[Json]:
        block = self._item_of(event).parts.get(_number(event))
        if block is not None:
            note = as_json(event.get("annotation"))
            yield _blocks.delta(block, "annotation", annotation=note)

    def _part(self, item: _Item, number: int, part: Json) -> Iterator[Json]:
        yield from self.close()
        kind = as_text(part.get("type"))
        kind = _PART_KINDS.get(kind, kind)
        text = {"text": ""} if kind == TEXT else {}
        phase = {"phase": item.native["phase"]} if item.native.get("phase") else {}
        item.parts[number] = self._count
        yield self._start(item, {"type": kind, **text, **phase, "part": part})

    def _whole_part(self, item: _Item, number: int, part: Json) -> Iterator[Json]:
        """Yield the events of a part that arrived in one piece."""
        begun = {**part, **{key: value for key, value in _GROWING.items() if key in part}}
        yield from self._part(item, number, begun)
        block = item.parts[number]
        if part.get("type") == "output_text":
            yield _spoken(block, part.get("text"), part)
            for annotation in as_list(part.get("annotations")):
                yield _blocks.delta(block, "annotation", annotation=as_json(annotation))
        elif text := as_text(part.get(REFUSAL)):
            event: Json = {"type": "response.refusal.delta", "delta": text}
            yield _blocks.delta(block, "native", event=event)
        yield _blocks.delta(block, "part", part=part)
        yield from self.close()

    # --- within an item ------------------------------------------------------------------------

    def on_arguments(self, event: Json) -> Iterator[Json]:
        item = self._item_of(event)
        if item.block is not None and event.get("delta"):
            item.streamed.add(item.block)
            piece = as_text(event["delta"])
            yield _blocks.delta(item.block, "input_json_delta", partial_json=piece)

    def on_arguments_done(self, event: Json) -> Iterator[Json]:
        item = self._item_of(event)
        yield from self._arguments(item, event.get("arguments", event.get("input")))
        yield from self.close()

    def _arguments(self, item: _Item, whole: object) -> Iterator[Json]:
        """Yield arguments that arrived in one piece, unless they were streamed before."""
        if item.block is not None and item.block not in item.streamed and (text := as_text(whole)):
            item.streamed.add(item.block)
            yield _blocks.delta(item.block, "input_json_delta", partial_json=text)

    def on_thought(self, event: Json) -> Iterator[Json]:
        block, thinking = self._item_of(event).block, as_text(event.get("delta"))
        if block is not None:
            yield _blocks.delta(block, "thinking_delta", thinking=thinking, event=event)

    def on_other(self, event: Json) -> Iterator[Json]:
        """Yield another event as a delta of its block, or unchanged if it has no block.

        An event with the name of a block event is dropped, because it would be read as one.
        """
        if event.get("type") in _blocks.NATIVE:
            return
        place = as_int(event.get("output_index"))
        item = self._items.get(place) if place is not None else None
        if item is None:
            yield event
            return
        block = item.block if item.block is not None else item.parts.get(_number(event))
        if block is not None:
            yield _blocks.delta(block, "native", event=event)


def _string(event: Json) -> object:
    """Return the text of a decoded delta event, or `None` for another event."""
    return event["delta"] if as_text(event["type"]).endswith(".delta") else None


def _place(event: Json) -> int:
    return as_int(event.get("output_index")) or 0


def _number(event: Json) -> int:
    return as_int(event.get("content_index")) or 0


def _spoken(block: int, text: object, source: Json) -> Json:
    probable = {"logprobs": source["logprobs"]} if source.get("logprobs") else {}
    return _blocks.delta(block, "text_delta", text=as_text(text), **probable)


_TELLS: dict[str, Callable[[ResponsesReader, Json], Iterator[Json]]] = {
    "response.created": ResponsesReader.on_opening,
    "response.queued": ResponsesReader.on_opening,
    "response.in_progress": ResponsesReader.on_opening,
    "response.output_item.added": ResponsesReader.on_item_added,
    "response.output_item.done": ResponsesReader.on_item_done,
    "response.content_part.added": ResponsesReader.on_part_added,
    "response.content_part.done": ResponsesReader.on_part_done,
    "response.output_text.delta": ResponsesReader.on_text,
    "response.output_text.done": ResponsesReader.on_text,
    "response.output_text.annotation.added": ResponsesReader.on_annotation,
    # Its text has been read as deltas. The writer makes a new event.
    "response.refusal.done": lambda reader, _: reader.close(),
    "response.function_call_arguments.delta": ResponsesReader.on_arguments,
    "response.function_call_arguments.done": ResponsesReader.on_arguments_done,
    "response.custom_tool_call_input.delta": ResponsesReader.on_arguments,
    "response.custom_tool_call_input.done": ResponsesReader.on_arguments_done,
    "response.reasoning_summary_text.delta": ResponsesReader.on_thought,
    "response.reasoning_text.delta": ResponsesReader.on_thought,
    "response.completed": ResponsesReader.on_ended,
    "response.incomplete": ResponsesReader.on_ended,
    "response.failed": ResponsesReader.on_ended,
    "response.cancelled": ResponsesReader.on_ended,
    "error": ResponsesReader.on_error,
}
