"""A wire format that nobody speaks: how little a fifth format has to say of itself.

    POST /v9/tell {"mind": "m-1", "turns": [{"who": "user", "say": "Go."}], "most": 9, "flow": true}

    {"say": "One "}                                     text, a piece at a time
    {"run": "write", "with": "{}"}                      a call begins; `with` alone goes on in it
    {"why": "done", "spent": {"in": 3, "out": 5}}       the end: done, run, or most (the limit)

Without `flow` the answer is one object: {"say", "runs": [{"run", "with"}], "why", "spent"}.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from continuation.answer.message_builder import MessageBuilder
from continuation.policy import Policy
from continuation.providers.contract import (
    Dialect,
    ParsedCall,
    Reader,
    Shape,
    WireCodec,
    Writer,
)
from continuation.providers.request import BaseRequest, read_body
from continuation.types import Json, Request, Stop, Usage
from continuation.wire import blocks, sse
from continuation.wire.blocks import TEXT, TOOL_CALL, Block
from continuation.wire.json_values import as_int, as_json, as_list, as_text, dumps, loads

PATH = "/v9/tell"
STOPS = {"most": Stop.LENGTH}


class MadeUpReader(Reader):
    """Reads one attempt: text and calls, each a block of its own."""

    def __init__(self) -> None:
        self._block, self._kind = -1, ""

    def events(self, frame: sse.Frame) -> Sequence[Json]:
        return list(self.tell(as_json(loads(frame.data))))

    def tell(self, line: Json) -> Iterator[Json]:
        """Read one line."""
        if self._block < 0 and not self._kind:
            self._kind = "begun"
            yield blocks.opening({})
        if "run" in line:
            yield from self._begin({"type": TOOL_CALL, "name": line["run"]})
        if "say" in line:
            yield from self._begin({"type": TEXT, "text": ""}) if self._kind != TEXT else ()
            yield blocks.delta(self._block, "text_delta", text=line["say"])
        if line.get("with"):
            yield blocks.delta(self._block, "input_json_delta", partial_json=line["with"])
        if "why" in line:
            yield from self._end()
            yield blocks.closing(as_text(line["why"]), as_json(line.get("spent")))
            yield blocks.ENDED

    def _begin(self, block: Json) -> Iterator[Json]:
        yield from self._end()
        self._block, self._kind = self._block + 1, as_text(block["type"])
        yield blocks.start(self._block, block)

    def _end(self) -> Iterator[Json]:
        if self._block >= 0:
            yield blocks.stop(self._block)


class MadeUpWriter(Writer):
    """Writes lines, or one object."""

    def start(self, index: int, block: Block) -> bytes:
        return _line({"run": block.start["name"]}) if block.kind == TOOL_CALL else b""

    def delta(self, index: int, block: Block, delta: Json) -> bytes:
        return _line(
            {"say": delta["text"]} if block.kind == TEXT else {"with": delta["partial_json"]}
        )

    def end(self, blocks: Sequence[Block], delta: Json, usage: Json) -> bytes:
        return _line({"why": delta.get("stop_reason"), "spent": usage})

    def body(self, message: Json, blocks: Sequence[Block], delta: Json, usage: Json) -> Json:
        text = "".join(block.text for block in blocks)
        calls = [block for block in blocks if block.kind == TOOL_CALL]
        runs = [{"run": call.start["name"], "with": call.arguments} for call in calls]
        return {"say": text, "runs": runs, "why": delta.get("stop_reason"), "spent": usage}


def _line(said: Json) -> bytes:
    return sse.encode("", dumps(said))


class MadeUpCodec(WireCodec):
    """How its answers are read and written, and in which words they end."""

    ended, called, truncated = "done", "run", "most"
    stops = STOPS

    def reader(self) -> MadeUpReader:
        return MadeUpReader()

    def writer(self) -> MadeUpWriter:
        return MadeUpWriter()

    def to_events(self, body: Json) -> Iterator[Json]:
        reader = MadeUpReader()
        for line in ({"say": body.get("say", "")}, *as_list(body.get("runs"))):
            yield from reader.tell(line)
        yield from reader.tell({"why": body.get("why"), "spent": body.get("spent")})

    def read_usage(self, usage: Json) -> Usage | None:
        return Usage(as_int(usage["in"]), output=as_int(usage["out"])) if usage else None

    def write_usage(self, native: Json, usage: Usage | None) -> Json:
        return {"in": usage.prompt, "out": usage.output} if usage else native

    def wire(self, block: Block) -> Json:
        return {"say": block.text}


class MadeUpRequest(BaseRequest):
    """One request: its words, and how a message is added to it."""

    messages_key, model_key, limit_key, stream_key = "turns", "mind", "most", "flow"

    def _add_user(self, messages: list[Any], text: str) -> None:
        messages.append({"who": "user", "say": text})

    def _add_model(self, messages: list[Any], content: list[Json]) -> None:
        messages.append({"who": "mind", "say": "".join(as_text(part["say"]) for part in content)})

    def codec(self) -> MadeUpCodec:
        return MadeUpCodec()

    def answer(self, policy: Policy) -> MessageBuilder:
        return MessageBuilder(MadeUpCodec(), policy)


class MadeUpShape(Shape):
    """How its conversations, tool results and batch lines are written."""

    messages, answer, stop, truncated, stops = "turns", "runs", "why", "most", STOPS
    identity, lengths = ("mind",), frozenset({"most", "flow"})
    envelope = frozenset({"why", "spent"})
    method, batch_request, batch_answer = "tell", "asks", ("tells",)

    def answer_messages(self, body: Json) -> list[Json]:
        return [{"who": "mind", "say": body.get("say", ""), "runs": body.get("runs", [])}]

    def join_answer(self, messages: Sequence[Json], envelope: Json) -> Json:
        return {**envelope, "say": messages[0]["say"], "runs": messages[0]["runs"]}

    def text(self, body: Json) -> str:
        return as_text(body.get("say"))

    def parse_call(self, call: Json) -> ParsedCall:
        return ParsedCall(as_text(call.get("run")), as_text(call.get("run")), call.get("with"))

    def result(self, call: ParsedCall, value: Any, *, failed: bool) -> Json:
        return {"who": "user", "say": value, "ran": call.name}

    def answered_calls(self, message: Json) -> set[str]:
        return {as_text(message.get("ran"))} - {""}

    def is_client(self, client: Any, request: Mapping[str, Any]) -> bool:
        return hasattr(client, "tell")


class MadeUp(Dialect):
    """The dialect object that the entry point names."""

    name = "made-up"
    default_ceiling, default_timeout = 64, None
    shape = MadeUpShape()

    def claims(self, method: str, path: str) -> bool:
        return method == "POST" and path == PATH

    def call(self, request: Request) -> MadeUpRequest:
        return MadeUpRequest(request, read_body(request))


DIALECT = MadeUp()
