"""Saved sessions in the form of each agent, made from lines of `notation`."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from support.notation import Json, write

GOLDEN = (
    "U:first A[th+,t:look,c:k1,c:k2] R:k1 R:k2 A[t:now,c:k3] R:k3 A[t:done] "
    "U:zweite—Frage A[c:k4] R:k4 A[t:fertig]"
)


def _stamp(n: int) -> str:
    return f"2026-11-21T10:00:{n:02d}.000Z"


def claude_code(line: str) -> list[Json]:
    """One line per block of an answer; results are side branches behind their calls' lines."""
    records: list[Json] = [{"type": "summary", "summary": "a title", "leafUuid": "x"}]
    parent: str | None = None
    lines_of_calls: dict[str, str] = {}

    def add(kind: str, message: Json, above: str | None) -> str:
        name = f"r{len(records)}"
        envelope = {"parentUuid": above, "isSidechain": False, "sessionId": "s", "cwd": "/w"}
        made = {**envelope, "type": kind, "message": message, "uuid": name}
        records.append({**made, "timestamp": _stamp(len(records))})
        return name

    for number, message in enumerate(write("anthropic", line)["messages"]):
        if message["role"] == "assistant":
            head = {"id": f"msg_{number}", "type": "message", "model": "claude-x"}
            for block in message["content"]:
                parent = add("assistant", {**head, **message, "content": [block]}, parent)
                if block["type"] == "tool_use":
                    lines_of_calls[block["id"]] = parent
        elif isinstance(message["content"], str):
            parent = add("user", message, parent)
        else:
            for block in message["content"]:
                above = lines_of_calls.get(block["tool_use_id"], parent)
                parent = add("user", {**message, "content": [block]}, above)
    return records


def qwen_code(line: str) -> list[Json]:
    records: list[Json] = []
    for content in write("gemini", line)["contents"]:
        kind = {"model": "assistant"}.get(content["role"], "user")
        if "functionResponse" in content["parts"][0]:
            kind = "tool_result"
        above = records[-1]["uuid"] if records else None
        envelope = {"uuid": f"q{len(records)}", "parentUuid": above, "sessionId": "s"}
        stamp = {"timestamp": _stamp(len(records))}
        records.append({**envelope, **stamp, "type": kind, "message": content})
    return records


def codex(line: str) -> list[Json]:
    meta = {"timestamp": _stamp(0), "type": "session_meta", "payload": {"id": "s", "cwd": "/w"}}
    records: list[Json] = [meta]
    for item in write("openai-responses", line)["input"]:
        stamp = _stamp(len(records))
        records.append({"timestamp": stamp, "type": "response_item", "payload": item})
        if item.get("role") == "user":
            note = {"type": "user_message", "message": "…"}
            records.append({"timestamp": stamp, "type": "event_msg", "payload": note})
    return records


def kimi_code(line: str) -> list[Json]:
    """Results are recorded before their step ends; that is how the agent writes them."""
    records: list[Json] = [{"type": "metadata", "protocol_version": "1.1", "created_at": 1}]
    open_step: list[Json] = []

    def event(**fields: Any) -> None:
        record = {"type": "context.append_loop_event", "event": fields}
        records.append({**record, "time": len(records)})

    def end_step() -> None:
        if open_step:
            event(type="step.end", **open_step.pop())

    for message in write("openai-chat", line)["messages"]:
        if message["role"] == "tool":
            call = message["tool_call_id"]
            result = {"output": message["content"]}
            event(type="tool.result", parentUuid=call, toolCallId=call, result=result)
            continue
        end_step()
        if message["role"] == "user":
            content = [{"type": "text", "text": message["content"]}]
            said = {"role": "user", "content": content, "toolCalls": []}
            records.append({"type": "context.append_message", "message": said})
            continue
        turn = {"turnId": "t", "step": len(records)}
        step = f"step{len(records)}"
        event(type="step.begin", uuid=step, **turn)
        open_step.append({"uuid": step, **turn})
        inner = {**turn, "stepUuid": step}
        if message["content"]:
            part = {"type": "text", "text": message["content"]}
            event(type="content.part", uuid=f"{step}p", part=part, **inner)
        for call in message.get("tool_calls", []):
            made: Json = {"toolCallId": call["id"], "name": "tool", "args": {"n": 1}}
            event(type="tool.call", uuid=f"{step}{call['id']}", **inner, **made)
    end_step()
    return records


def kimi_cli(line: str) -> list[Json]:
    records: list[Json] = [{"role": "_checkpoint", "id": 0}]
    records += write("openai-chat", line)["messages"]
    return [*records, {"role": "_usage", "token_count": 7}]


def gemini_cli(line: str) -> list[Json]:
    """The model's message is written again, with the same id, when its calls have results."""
    records: list[Json] = [{"sessionId": "s", "projectHash": "h", "startTime": _stamp(0)}]
    model: Json = {}
    for content in write("gemini", line)["contents"]:
        made: Json = {"id": f"g{len(records)}", "timestamp": _stamp(len(records)), "type": "user"}
        made["content"] = content["parts"]
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        if "functionResponse" in content["parts"][0]:
            results = {part["functionResponse"]["id"]: [part] for part in content["parts"]}
            told = [
                {**call, "result": results[call["id"]], "status": "success"}
                if call["id"] in results
                else call
                for call in model["toolCalls"]
            ]
            made = {**model, "toolCalls": told}
        elif content["role"] == "model":
            made |= {"type": "gemini", "thoughts": [], "model": "gemini-x"}
            model = {**made, "toolCalls": [{**c, "status": "executing"} for c in calls]}
            made = model if calls else made
        records += [made, {"$set": {"lastUpdated": _stamp(len(records))}}]
    return records


LOGS: dict[str, Callable[[str], list[Json]]] = {
    "claude-code": claude_code,
    "qwen-code": qwen_code,
    "codex": codex,
    "kimi-code": kimi_code,
    "gemini-cli": gemini_cli,
    "jsonl": kimi_cli,
}


def as_bytes(records: list[Json]) -> bytes:
    return b"".join(json.dumps(r, ensure_ascii=False).encode() + b"\n" for r in records)


def opencode(root: Path, line: str) -> Path:
    """opencode's storage folder, or, by a name that ends so, its database.

    A call without result is a part that still runs.
    """
    messages = list(_opencode(line))
    if root.suffix != ".db":
        for info, parts in messages:
            _put(root / "message" / info["sessionID"] / f"{info['id']}.json", info)
            for part in parts:
                _put(root / "part" / info["id"] / f"{part['id']}.json", part)
        return root
    with contextlib.closing(sqlite3.connect(root)) as database:
        database.executescript(_TABLES)
        database.execute("INSERT INTO session VALUES ('ses_1', 1)")
        for at, (info, parts) in enumerate(messages):
            name, session = info.pop("id"), info.pop("sessionID")
            row = (name, session, at, json.dumps(info))
            database.execute("INSERT INTO message VALUES (?, ?, ?, ?)", row)
            for part in parts:
                row = (f"{name}_{part.pop('id')}", name, session, json.dumps(part))
                database.execute("INSERT INTO part VALUES (?, ?, ?, ?)", row)
        database.commit()
    return root


_TABLES = """
PRAGMA journal_mode = WAL;
CREATE TABLE session (id text PRIMARY KEY, time_created integer NOT NULL);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
  data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY,
  message_id text NOT NULL REFERENCES message(id) ON DELETE CASCADE,
  session_id text NOT NULL, data text NOT NULL);
"""


def _opencode(line: str) -> Iterator[tuple[Json, list[Json]]]:
    written = write("openai-chat", line)["messages"]
    results = {m["tool_call_id"]: m["content"] for m in written if m["role"] == "tool"}
    for n, message in enumerate(written):
        if message["role"] == "tool":
            continue
        parts: list[Json] = []
        if message["content"]:
            parts.append({"type": "text", "text": message["content"]})
        for call in message.get("tool_calls", []):
            state: Json = {"status": "running", "input": {"n": 1}, "time": {"start": 5}}
            if call["id"] in results:
                state = {**state, "status": "completed", "output": results[call["id"]]}
            parts.append({"type": "tool", "callID": call["id"], "tool": "tool", "state": state})
        if message["role"] == "assistant":
            closed = all(call["id"] in results for call in message.get("tool_calls", []))
            parts = [{"type": "step-start"}, *parts, *([{"type": "step-finish"}] if closed else [])]
        named = [{"id": f"prt_{m:03d}", **part} for m, part in enumerate(parts)]
        yield {"id": f"msg_{n:03d}", "sessionID": "ses_1", "role": message["role"]}, named


def _put(path: Path, value: Json) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
