"""Random histories, the damage done to them, and a validator that shares nothing with ours.

The generator draws a line of `notation` token by token, spoils it, and writes it out; some of what
is written is spoilt once more, in ways that a line cannot say. The validator knows each format by
its documents alone: it is short, slow and blunt, and it never repairs.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from continuation.history import RepairPolicy, repair
from support.notation import DIALECTS, Json, write

FIELDS = dict(zip(DIALECTS, ("messages", "messages", "input", "contents"), strict=True))
_DEAD = RepairPolicy(live=False)


@dataclass
class Tally:
    """The outcome for a number of histories; each failure has its seed, to make it again."""

    histories: int = 0
    valid: int = 0
    """How many of them have no fault for the other validator as they are."""
    invalid: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    lost: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    changed: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    @property
    def failures(self) -> int:
        return len(self.invalid) + len(self.lost) + len(self.changed)


def tally(dialect: str, count: int, seed: int = 0) -> Tally:
    """Make, damage and repair `count` histories of a format."""
    told = Tally()
    for number in range(seed, seed + count):
        line, body = made(dialect, number)
        told.histories += 1
        wrong = next(faults(dialect, body), "")
        done = repair(body, dialect, policy=_DEAD)
        if not wrong:
            told.valid += 1
            if done.body is not body:
                told.changed.append((number, done.changes[0].why))
        elif left := next(faults(dialect, dict(done.body)), ""):
            told.invalid.append((number, left))
        elif repair(done.body, dialect, policy=_DEAD).body is not done.body:
            told.invalid.append((number, "repaired twice"))
        if missing := _kept(line, body) - set(re.findall(r"[uarz]\d+x", json.dumps(done.body))):
            told.lost.append((number, min(missing)))
    return told


def made(dialect: str, seed: int) -> tuple[list[str], Json]:
    """Return the history of a seed: its tokens, and the body made of them."""
    rng = random.Random(f"{dialect} {seed}")
    tokens, calls = ["U:u0x"], 0
    for turn in range(rng.randint(0, 4)):
        for _ in range(rng.randint(0, 2)):
            now = [f"k{calls + n}" for n in range(rng.randint(1, 3))]
            calls += len(now)
            parts = [f"t:a{calls}x"] * (rng.random() < 0.4) + [f"c:{call}" for call in now]
            tokens.append(f"A[{','.join(parts)}]")
            tokens += [f"R:{call}=r{call[1:]}x" for call in now]
        tokens += [f"A[t:z{turn}x]", f"U:u{turn + 1}x"]
    for _ in range(rng.choice((0, 0, 1, 1, 1, 2, 3))):
        at, to = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        match rng.randrange(6):
            case 0 if len(tokens) > 1:
                del tokens[at]
            case 1:
                tokens.insert(to, tokens[at])
            case 2:
                tokens[at], tokens[to] = tokens[to], tokens[at]
            case 3:
                tokens[at] = re.sub(r"\bk\d+", f"k{rng.randrange(calls + 1)}", tokens[at], count=1)
            case 4:
                del tokens[at + 1 :]
            case _:
                tokens[at] = re.sub(r",c:k\d+", "", tokens[at], count=1)
    body = write(dialect, " ".join(tokens))
    if rng.random() < 0.2:
        rng.choice(_SPOILS[dialect])(rng, body[FIELDS[dialect]])
    return tokens, body


# -- what a line cannot say ----------------------------------------------------------------------


def _junk(rng: random.Random, messages: list[Any]) -> None:
    messages.insert(rng.randrange(len(messages) + 1), rng.choice((5, None, {}, [])))


def _empty(rng: random.Random, messages: list[Any]) -> None:
    said = [m for m in messages if "content" in m and "tool_call_id" not in m]
    if said:
        rng.choice(said).setdefault("x", 1)
        messages.append({"role": "assistant", "content": rng.choice((None, [], "", " "))})


def _cut(rng: random.Random, messages: list[Any]) -> None:
    for each in messages:
        for call in each.get("tool_calls", [each]):
            holder = call.get("function", call)
            if "arguments" in holder:
                holder["arguments"] = '{"n": '
                return


def _blank_parts(rng: random.Random, messages: list[Any]) -> None:
    rng.choice(messages)["parts"] = rng.choice(([], [{"text": ""}], [{"thoughtSignature": "Zm9v"}]))


_Spoil = Callable[[random.Random, list[Any]], None]
_SPOILS: dict[str, tuple[_Spoil, ...]] = {
    "anthropic": (_junk, _empty),
    "openai-chat": (_junk, _empty, _cut),
    "openai-responses": (_junk, _cut),
    "gemini": (_junk, _blank_parts),
}


def _kept(tokens: list[str], body: Json) -> set[str]:
    """Texts that no repair may lose: what people said, and each result that surely has its call."""
    flat = json.dumps(body)
    line = " ".join(tokens)
    kept = set(re.findall(r"[uaz]\d+x", line))
    ids = Counter(re.findall(r"c:(k\d+)", line))
    results = Counter(re.findall(r"R:(k\d+)", line))
    for call, text in re.findall(r"R:(k\d+)=(r\d+x)", line):
        once = ids[call] == results[call] == 1 and flat.count(f'"{call}"') == 2
        if once and re.search(rf"c:{call}\b.* R:{call}=", line):
            kept.add(text)
    return {text for text in kept if text in flat}


# -- the other validator -------------------------------------------------------------------------


def faults(dialect: str, body: Json) -> Iterator[str]:
    """What a provider would refuse, in no promised order."""
    messages = body[FIELDS[dialect]]
    if not messages:
        yield "empty"
    elif not all(isinstance(message, dict) and message for message in messages):
        yield "no message"
    else:
        yield from _VALIDATORS[dialect](messages)


def _anthropic(messages: list[Json]) -> Iterator[str]:
    if messages[0]["role"] != "user":
        yield "first role"
    open_calls: list[str] = []
    used: set[str] = set()
    for n, message in enumerate(messages):
        content, role = message["content"], message["role"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        last = n == len(messages) - 1 and role == "assistant"
        if not isinstance(blocks, list) or not (blocks or last):
            yield "content"
            continue
        kinds = [block["type"] for block in blocks]
        texts = [block["text"] for block in blocks if block["type"] == "text"]
        if not (last and content == "") and not all(text.strip() for text in texts):
            yield "blank text"
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(results) != sorted(open_calls) or kinds[: len(results)].count("text"):
            yield "results"
        open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if open_calls and (role != "assistant" or "text" in kinds[kinds.index("tool_use") :]):
            yield "calls"
        if used & set(open_calls) or len(set(open_calls)) < len(open_calls):
            yield "call id twice"
        used |= set(open_calls)
        if last and texts and texts[-1] != texts[-1].rstrip():
            yield "trailing"
    if open_calls:
        yield "open call"


def _chat(messages: list[Json]) -> Iterator[str]:
    open_calls: list[str] = []
    for message in [*messages, {"role": "user", "content": "end"}]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                yield "result without call"
                return
            open_calls.remove(message["tool_call_id"])
            continue
        if open_calls:
            yield "open call"
        calls = message.get("tool_calls", [])
        open_calls = [call["id"] for call in calls]
        if len(set(open_calls)) < len(open_calls):
            yield "call id twice"
        if any(not _object(call["function"]["arguments"]) for call in calls):
            yield "arguments"
        content = message["content"]
        if not calls and not (isinstance(content, (str, list)) and str(content).strip(" []")):
            yield "content"


def _responses(items: list[Json]) -> Iterator[str]:
    asked: set[str] = set()
    waiting: set[str] = set()
    for item in items:
        kind = item.get("type", "message")
        if kind == "function_call":
            if item["call_id"] in asked:
                yield "call id twice"
            if not _object(item["arguments"]):
                yield "arguments"
            asked.add(item["call_id"])
            waiting.add(item["call_id"])
        elif kind == "function_call_output":
            if item["call_id"] not in waiting:
                yield "result without call"
            waiting.discard(item["call_id"])
        elif not item["content"]:
            yield "content"
    if waiting:
        yield "open call"


def _gemini(contents: list[Json]) -> Iterator[str]:
    if contents[0]["role"] != "user":
        yield "first role"
    before: list[str] = []
    role = ""
    for content in contents:
        parts = content["parts"]
        if not parts or not all(p.get("text", "say").strip() and set(p) & _DATA for p in parts):
            yield "parts"
            continue
        calls = [part["functionCall"]["id"] for part in parts if "functionCall" in part]
        results = [p["functionResponse"]["id"] for p in parts if "functionResponse" in p]
        if (calls and content["role"] != "model") or (results and content["role"] != "user"):
            yield "side"
        if results != before or any("text" in part for part in parts[: len(results)]):
            yield "results"
        if before and content["role"] == role:
            yield "calls go on"
        before, role = calls, content["role"]
    if before:
        yield "open call"


_DATA = {"text", "functionCall", "functionResponse"}


def _object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False


_VALIDATORS = dict(zip(DIALECTS, (_anthropic, _chat, _responses, _gemini), strict=True))
