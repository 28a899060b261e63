"""Histories in a line of text, written out in each dialect and read back.

    U:hello            the user says hello
    A[t:hm,c:a,th+]    the assistant says hm, makes the call a, thinks (signed)
    R:a=text           the result of call a (default text: "ok a")
    R*:a               a synthetic result of call a

`th+` is signed thinking, `th-` unsigned, `th0+` signed but empty. `read` gives the same line back:
who said what, in order, whatever messages it is spread over; what a repair made up has a star.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from continuation.history.wordings import looks_synthetic

Json = dict[str, Any]
DIALECTS = ("anthropic", "openai-chat", "openai-responses", "gemini")
SYNTHETIC = "[no result] test"


@dataclass(frozen=True)
class Facts:
    """What is known of a model, beside its name."""

    prefill: bool = False
    thinking: str = "adaptive"
    binding: bool = False


_TOKEN = re.compile(r"(?P<who>U|A|R\*?)(?::(?P<text>[^\s\[]+)|\[(?P<parts>[^\]]*)\])")


def write(dialect: str, line: str, **fields: Any) -> Json:
    """Return the body for a line, with further fields beside the conversation."""
    messages: list[Json] = []
    for token in _TOKEN.finditer(line):
        _WRITERS[dialect](messages, token["who"], token["text"] or "", _parts(token["parts"]))
    field = {"gemini": "contents", "openai-responses": "input"}.get(dialect, "messages")
    return {**fields, field: messages}


def read(dialect: str, body: Json) -> str:
    """Return the line of a body; consecutive parts of the assistant are one A[…]."""
    tokens: list[str] = []
    said: list[str] = []
    for kind, value in _READERS[dialect](body):
        if kind == "A":
            said.append(value)
            continue
        _flush(tokens, said)
        if kind == "|":  # an assistant message ended
            continue
        tokens.append(f"{kind}:{value}")
    _flush(tokens, said)
    return " ".join(tokens)


def _flush(tokens: list[str], said: list[str]) -> None:
    if said:
        tokens.append(f"A[{','.join(said)}]")
        said.clear()


def _parts(text: str | None) -> list[tuple[str, str]]:
    pieces = [piece for piece in (text or "").split(",") if piece]
    return [(head, tail) for head, _, tail in (piece.partition(":") for piece in pieces)]


def _result(who: str, text: str) -> tuple[str, str]:
    call, _, said = text.partition("=")
    return call, SYNTHETIC if who == "R*" else said or f"ok {call}"


def _mark(call: str, text: str) -> tuple[str, str]:
    if looks_synthetic(text):
        return "R*", call
    return "R", call if text == f"ok {call}" else f"{call}={text}"


# -- anthropic -----------------------------------------------------------------------------------


def anthropic_block(kind: str, text: str) -> Json:
    match kind:
        case "t":
            return {"type": "text", "text": text}
        case "c":
            return {"type": "tool_use", "id": text, "name": "tool", "input": {"n": 1}}
        case "s":
            return {"type": "server_tool_use", "id": text, "name": "web_search", "input": {}}
        case "sr":
            return {"type": "web_search_tool_result", "tool_use_id": text, "content": []}
        case "th+":
            return {"type": "thinking", "thinking": "hm", "signature": "Zm9v"}
        case "th0+":
            return {"type": "thinking", "thinking": "", "signature": "Zm9v"}
        case _:
            return {"type": "thinking", "thinking": "hm", "signature": ""}


def _write_anthropic(
    messages: list[Json], who: str, text: str, parts: list[tuple[str, str]]
) -> None:
    if who == "U":
        messages.append({"role": "user", "content": text})
    elif who == "A":
        blocks = [anthropic_block(*part) for part in parts]
        messages.append({"role": "assistant", "content": blocks})
    else:
        call, said = _result(who, text)
        block = {"type": "tool_result", "tool_use_id": call, "content": said}
        last = messages[-1] if messages else {}
        if last.get("role") == "user" and isinstance(last["content"], list):
            last["content"].append(block)
        else:
            messages.append({"role": "user", "content": [block]})


def _read_anthropic(body: Json) -> Iterator[tuple[str, str]]:
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            yield _anthropic_token(message["role"], block)
        yield "|", ""


def _anthropic_token(role: str, block: Json) -> tuple[str, str]:
    match block["type"]:
        case "tool_result":
            return _mark(block["tool_use_id"], block.get("content", ""))
        case "tool_use":
            return "A", f"c:{block['id']}"
        case "thinking":
            filled = "" if block["thinking"] else "0"
            return "A", f"th{filled}{'+' if block['signature'] else '-'}"
        case "text":
            return ("A", f"t:{block['text']}") if role == "assistant" else ("U", block["text"])
        case other:
            return "A", str(other)


# -- chat ----------------------------------------------------------------------------------------


def chat_call(call: str, arguments: str = '{"n": 1}') -> Json:
    function = {"name": "tool", "arguments": arguments}
    return {"id": call, "type": "function", "function": function}


def _write_chat(messages: list[Json], who: str, text: str, parts: list[tuple[str, str]]) -> None:
    if who == "U":
        messages.append({"role": "user", "content": text})
    elif who == "A":
        said = "".join(text for kind, text in parts if kind == "t")
        message: Json = {"role": "assistant", "content": said or None}
        if any(kind.startswith("th") for kind, _ in parts):
            message["reasoning_content"] = "hm"
        if calls := [chat_call(text) for kind, text in parts if kind == "c"]:
            message["tool_calls"] = calls
        messages.append(message)
    else:
        call, said = _result(who, text)
        messages.append({"role": "tool", "tool_call_id": call, "content": said})


def _read_chat(body: Json) -> Iterator[tuple[str, str]]:
    for message in body["messages"]:
        if message["role"] == "tool":
            yield _mark(message["tool_call_id"], message["content"])
        elif message["role"] == "user":
            yield "U", message["content"]
        else:
            if message.get("reasoning_content"):
                yield "A", "th"
            if message["content"]:
                yield "A", f"t:{message['content']}"
            for call in message.get("tool_calls", []):
                yield "A", f"c:{call['id']}"
        yield "|", ""


# -- responses -----------------------------------------------------------------------------------


def response_item(kind: str, text: str, number: int) -> Json:
    match kind:
        case "t":
            content = [{"type": "output_text", "text": text}]
            return {"type": "message", "role": "assistant", "content": content}
        case "c":
            made = {"name": "tool", "arguments": json.dumps({"n": 1})}
            return {"type": "function_call", "call_id": text, **made}
        case _:
            sealed = {"summary": [], "encrypted_content": "gAAAA"}
            return {"type": "reasoning", "id": f"rs_{number}", **sealed}


def _write_responses(
    messages: list[Json], who: str, text: str, parts: list[tuple[str, str]]
) -> None:
    if who == "U":
        content = [{"type": "input_text", "text": text}]
        messages.append({"type": "message", "role": "user", "content": content})
    elif who == "A":
        for kind, said in parts:
            messages.append(response_item(kind, said, len(messages)))
    else:
        call, said = _result(who, text)
        messages.append({"type": "function_call_output", "call_id": call, "output": said})


def _read_responses(body: Json) -> Iterator[tuple[str, str]]:
    for item in body["input"]:
        match item["type"]:
            case "function_call_output":
                yield _mark(item["call_id"], item["output"])
            case "function_call":
                yield "A", f"c:{item['call_id']}"
            case "reasoning":
                yield "A", "th"
            case _:
                text = "".join(block["text"] for block in item["content"])
                yield ("A", f"t:{text}") if item["role"] == "assistant" else ("U", text)


# -- gemini --------------------------------------------------------------------------------------


def gemini_part(kind: str, text: str) -> Json:
    match kind:
        case "t":
            return {"text": text}
        case "c":
            return {"functionCall": {"id": text, "name": "tool", "args": {"n": 1}}}
        case "th+":
            return {"text": "hm", "thought": True, "thoughtSignature": "Zm9v"}
        case _:
            return {"text": "hm", "thought": True}


def _write_gemini(messages: list[Json], who: str, text: str, parts: list[tuple[str, str]]) -> None:
    if who == "U":
        messages.append({"role": "user", "parts": [{"text": text}]})
    elif who == "A":
        messages.append({"role": "model", "parts": [gemini_part(*part) for part in parts]})
    else:
        call, said = _result(who, text)
        response = {"id": call, "name": "tool", "response": {"output": said}}
        part = {"functionResponse": response}
        last: Json = messages[-1] if messages else {"role": "", "parts": [{}]}
        if last["role"] == "user" and "functionResponse" in last["parts"][-1]:
            last["parts"].append(part)
        else:
            messages.append({"role": "user", "parts": [part]})


def _read_gemini(body: Json) -> Iterator[tuple[str, str]]:
    for content in body["contents"]:
        for part in content["parts"]:
            yield _gemini_token(content["role"], part)
        yield "|", ""


def _gemini_token(role: str, part: Json) -> tuple[str, str]:
    if "functionResponse" in part:
        response = part["functionResponse"]["response"]
        said = response.get("output") or response.get("error")
        return _mark(part["functionResponse"]["id"], said)
    if "functionCall" in part:
        return "A", f"c:{part['functionCall']['id']}"
    if part.get("thought"):
        return "A", "th+" if "thoughtSignature" in part else "th-"
    return ("A", f"t:{part['text']}") if role == "model" else ("U", part["text"])


_Writer = Callable[[list[Json], str, str, list[tuple[str, str]]], None]
_WRITERS: dict[str, _Writer] = {
    "anthropic": _write_anthropic,
    "openai-chat": _write_chat,
    "openai-responses": _write_responses,
    "gemini": _write_gemini,
}
_READERS: dict[str, Callable[[Json], Iterator[tuple[str, str]]]] = {
    "anthropic": _read_anthropic,
    "openai-chat": _read_chat,
    "openai-responses": _read_responses,
    "gemini": _read_gemini,
}
