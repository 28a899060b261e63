"""Four wire formats in small: how a provider writes texts and calls, how a caller reads calls.

It uses nothing of the engine, so that it can judge the engine.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

from support import drive_chat, drive_gemini, drive_responses
from support.drive import Driven, call_block, closing, opening, sse, text_block
from support.drive import body as body_of

Json = dict[str, Any]
LIMIT = 8000
FORMATS = ("anthropic-messages", "openai-chat", "openai-responses", "gemini")


def _split(rng: random.Random, text: str) -> list[str]:
    size = rng.choice((25, 90, 400, 10**6))
    return [text[at : at + size] for at in range(0, len(text), size)] or [""]


def leaves(value: Any, path: str = "$") -> Iterator[tuple[str, Any]]:
    """Yield the path and value of each leaf, as Gemini writes them."""
    kind = type(value)
    if kind is dict:
        for name, inner in value.items():
            step = f".{name}" if name.isidentifier() else f"['{name}']"
            yield from leaves(inner, path + step)
    elif kind is list:
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{index}]")
    else:
        yield path, value


class Wire:
    """One wire format: how a provider writes it, and how a caller reads it."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name, self.rng = name, rng

    def request(self, schema: Json | None, *, stream: bool) -> Json:
        match self.name:
            case "anthropic-messages":
                go = [{"role": "user", "content": "Write it."}]
                asked: Json = {"model": "claude-opus-5", "max_tokens": LIMIT, "messages": go}
                return {
                    **asked,
                    "stream": True,
                    "tools": [{"name": "Write", "input_schema": schema}],
                }
            case "openai-chat":
                function = {"name": "Write", "parameters": schema}
                tools = [{"type": "function", "function": function}]
                return drive_chat.asking(LIMIT, tools=tools, stream=stream)
            case "openai-responses":
                tool: Json = {"type": "function", "name": "Write", "parameters": schema}
                patch: Json = {"type": "custom", "name": "patch"}
                calls = [patch if schema is None else tool]
                asked = {**drive_responses.REQUEST, "max_output_tokens": LIMIT, "tools": calls}
                return {**asked, "stream": stream}
            case _:
                declared = {"name": "Write", "parametersJsonSchema": schema}
                calling = {"functionCallingConfig": {"streamFunctionCallArguments": True}}
                settings = {"generationConfig": {"maxOutputTokens": LIMIT}, "toolConfig": calling}
                declares = [{"functionDeclarations": [declared]}]
                return {**drive_gemini.ASK, **settings, "tools": declares}

    def route(self) -> Json:
        """Return where the request goes."""
        match self.name:
            case "anthropic-messages":
                return {}
            case "openai-chat":
                return {"path": "/v1/chat/completions", "server": {"like": "openai"}}
            case "openai-responses":
                return {"path": "/v1/responses"}
            case _:
                return {"path": f"/v1/models/{drive_gemini.NEW}:streamGenerateContent"}

    def prompt(self, body: Json) -> str:
        """Return the last thing that the user says."""
        match self.name:
            case "anthropic-messages":
                said = body["messages"][-1]["content"]
            case "openai-chat":
                said = body["messages"][-1]["content"]
            case "openai-responses":
                said = body["input"][-1]["content"]
            case _:
                said = body["contents"][-1]["parts"]
        return said if isinstance(said, str) else str(said[-1]["text"])

    def forced(self, body: Json) -> Json | None:
        """Return the schema of the one call that the model has to make; `None`: it need not."""
        choice = body.get("tool_choice") or body.get("toolConfig", {}).get("functionCallingConfig")
        if not isinstance(choice, dict) or not (
            {"name", "function", "allowedFunctionNames"} & choice.keys()
        ):
            return None
        (tool,) = body["tools"]
        tool = tool.get("functionDeclarations", [tool])[0]
        tool = tool.get("function", tool)
        names = ("input_schema", "parameters", "parametersJsonSchema")
        schema: Json = next(tool[name] for name in names if name in tool)
        return schema

    def text(self, said: str, body: Json, *, cut: bool) -> Any:
        """Answer with a text."""
        match self.name:
            case "anthropic-messages":
                ended = closing("max_tokens" if cut else "end_turn", 900)
                return sse([opening(), *text_block(0, _split(self.rng, said)), *ended])
            case "openai-chat":
                return self._chat(body, drive_chat.texts(*_split(self.rng, said)), cut, "stop")
            case "openai-responses":
                return self._respond(body, [drive_responses.said(said)], cut)
            case _:
                parts: list[Json] = [{"text": piece} for piece in _split(self.rng, said)]
                return self._generate(parts, cut)

    def call(self, arguments: Json | str, body: Json, at: int | None = None) -> Any:
        """Answer with a call; `at`: how much of its arguments arrives before the limit."""
        cut = at is not None
        if self.name == "gemini":
            assert isinstance(arguments, dict)
            whole = [{"functionCall": {"name": "Write", "args": arguments}}]
            pieces = at is not None or [] not in arguments.values()  # pieces have no empty list
            return self._generate(list(self._pieces(arguments, at)) if pieces else whole, cut)
        written = arguments if isinstance(arguments, str) else json.dumps(arguments)
        told = _split(self.rng, written[:at])
        match self.name:
            case "anthropic-messages":
                ended = closing("max_tokens" if cut else "tool_use", 900)
                return sse([opening(), *call_block(0, told), *ended])
            case "openai-chat":
                return self._chat(body, drive_chat.call(told), cut, "tool_calls")
            case _:
                return self._respond(body, [drive_responses.written(written[:at])], cut)

    def patch(self, text: str, body: Json, at: int) -> Any:
        return self._respond(body, [drive_responses.patched(text[:at])], cut=True)

    def _pieces(self, arguments: Json, at: int | None) -> Iterator[Json]:
        """Yield the parts of a call whose arguments are streamed; `at`: characters of values."""
        yield {"functionCall": {"name": "Write", "willContinue": True}}
        left = 10**9 if at is None else at
        for path, value in leaves(arguments):
            written = value if isinstance(value, str) else json.dumps(value)
            if left <= 0:
                return
            if isinstance(value, str):
                arrived = value[:left]
                pieces = _split(self.rng, arrived)
                for piece in pieces:
                    more = piece is not pieces[-1] or len(arrived) < len(value)
                    told = {"jsonPath": path, "stringValue": piece, "willContinue": more}
                    yield {"functionCall": {"partialArgs": [told], "willContinue": True}}
            elif len(written) <= left:
                kind = "boolValue" if isinstance(value, bool) else "numberValue"
                told = {"jsonPath": path, kind: value}
                yield {"functionCall": {"partialArgs": [told], "willContinue": True}}
            left -= len(written)
        if at is None:
            yield {"functionCall": {}}

    def _chat(self, body: Json, chunks: list[Json], cut: bool, ended: str) -> Any:
        finish = "length" if cut else ended
        if body.get("stream"):
            chunks = [drive_chat.OPENING, *chunks]
            return drive_chat.sse([*chunks, *drive_chat.closing(finish)])
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
        message: Json = {"role": "assistant", "content": None}
        if texts := [d["content"] for d in deltas if "content" in d]:
            message["content"] = "".join(texts)
        else:
            told = [d["tool_calls"][0] for d in deltas]
            written = "".join(piece["function"]["arguments"] for piece in told)
            function = {"name": "Write", "arguments": written}
            message["tool_calls"] = [{"id": "c", "type": "function", "function": function}]
        choice = {"index": 0, "message": message, "finish_reason": finish}
        usage = {"prompt_tokens": 9, "completion_tokens": 900, "total_tokens": 909}
        head = {"id": "c1", "object": "chat.completion", "created": 7, "model": "m"}
        return body_of({**head, "choices": [choice], "usage": usage})

    def _respond(self, body: Json, items: list[Json], cut: bool) -> Any:
        reason = drive_responses.LIMIT if cut else None
        if cut:
            items = [{**item, "status": "incomplete"} for item in items]
        if not body.get("stream"):
            return body_of(drive_responses.response("1", items, reason))
        (item,) = items
        events = drive_responses.answer("1", items, reason)
        key = next((k for k in ("arguments", "input") if k in item), None)
        kept = list[Json]()  # a few large deltas are quicker to read than many small ones
        for event in events:
            joins = kept and kept[-1]["type"] == event["type"] and "delta" in event
            if joins and len(kept[-1]["delta"]) < 60:
                kept[-1] = {**kept[-1], "delta": kept[-1]["delta"] + event["delta"]}
            elif not (cut and key and event["type"].endswith((f"{key}.done", "_input.done"))):
                kept.append(event)
        return sse([{**event, "sequence_number": n} for n, event in enumerate(kept)])

    def _generate(self, parts: list[Json], cut: bool) -> Any:
        reason = "MAX_TOKENS" if cut else "STOP"
        chunks = [drive_gemini.chunk(part) for part in parts]
        return drive_gemini.sse([*chunks, drive_gemini.chunk(reason=reason)])

    # -- how a caller reads it

    def delivered(self, driven: Driven, *, stream: bool) -> list[Any]:
        """Return the arguments of each call that a program would run."""
        match self.name:
            case "gemini":
                return list(_called(drive_gemini.parts(driven)))
            case "anthropic-messages":
                return _of_messages(driven.told)
            case "openai-chat":
                return _of_chat(driven.told if stream else [_body(driven)])
            case _:
                return _of_responses(driven.told[-1]["response"] if stream else _body(driven))


def _body(driven: Driven) -> Json:
    body: Json = json.loads(b"".join(driven.pieces))
    return body


def _of_messages(told: list[Json]) -> list[Any]:
    made, stop = dict[int, str](), None
    for event in told:
        if event["type"] == "content_block_start":
            if event["content_block"]["type"] == "tool_use":
                made[event["index"]] = ""
        elif event["type"] == "content_block_delta":
            if "partial_json" in event["delta"]:
                made[event["index"]] += event["delta"]["partial_json"]
        elif event["type"] == "message_delta":
            stop = event["delta"].get("stop_reason") or stop
    return _read(list(made.values()), stop == "tool_use")


def _of_chat(told: list[Json]) -> list[Any]:
    """Return the calls of chunks, or of a whole completion."""
    made, stop = dict[int, str](), None
    for choice in (one for chunk in told for one in chunk["choices"]):
        stop = choice.get("finish_reason") or stop
        said = choice["message"] if "message" in choice else choice["delta"]
        for number, piece in enumerate(said.get("tool_calls") or []):
            index = piece.get("index", number)
            made[index] = made.get(index, "") + (piece["function"].get("arguments") or "")
    return _read(list(made.values()), stop == "tool_calls")


def _of_responses(response: Json) -> list[Any]:
    calls = [item for item in response["output"] if item["type"].endswith("_call")]
    calls = [call for call in calls if call.get("status") != "incomplete"]
    made = [call["input"] if "input" in call else _value(call["arguments"]) for call in calls]
    return made if response["status"] == "completed" else []


class Broken:
    """Arguments that are not JSON, in an answer that says that its calls are whole."""


def _read(calls: Sequence[str], whole: bool) -> list[Any]:
    """Return what a program would run; nothing, if the answer says that it was truncated."""
    return [_value(call) for call in calls] if whole else []


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return Broken()


def _called(parts: list[Json]) -> Iterator[Any]:
    """Yield the arguments of each whole call, put together of its parts."""
    whole: Any = None
    for call in (part["functionCall"] for part in parts if "functionCall" in part):
        if "name" in call:
            whole = call.get("args") or {}
        for piece in call.get("partialArgs", []):
            steps = re.findall(r"[\w-]+", piece["jsonPath"])
            node: Any = whole
            for step, after in zip(steps, [*steps[1:], None], strict=True):
                key: Any = int(step) if step.isdigit() else step
                if step.isdigit():
                    node += [None] * (key == len(node))
                else:
                    node.setdefault(key, None)
                there: Any = node[key]
                if after is not None:
                    node[key] = ([] if after.isdigit() else {}) if there is None else there
                    node = node[key]
                    continue
                value = next(v for k, v in piece.items() if k.endswith("Value"))
                node[key] = there + value if isinstance(there, str) else value
        if not call.get("willContinue"):
            yield whole
            whole = None
