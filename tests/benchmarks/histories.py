"""What looking at a history costs: one that is clean or broken, and the text of an error."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

from measure import Figure, is_quick, report

from continuation.history import classify, repair

Body = dict[str, Any]
DIALECTS = ("anthropic", "openai-chat", "openai-responses", "gemini")
FIELDS = dict(zip(DIALECTS, ("messages", "messages", "input", "contents"), strict=True))
MESSAGES, MANY = 10_000, 200


def best(work: Callable[[], object], rounds: int) -> float:
    """The shortest of several runs, in seconds of this process; the others were disturbed."""
    times: list[float] = []
    for _ in range(rounds):
        gc.collect()
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def _message(dialect: str, number: int) -> Any:
    if dialect == "gemini":
        role = ("user", "model")[number % 2]
        return {"role": role, "parts": [{"text": f"message {number}"}]}
    return {"role": ("user", "assistant")[number % 2], "content": f"message {number}"}


def chatter(dialect: str) -> Body:
    """Short plain messages: the least that JSON can cost."""
    return {FIELDS[dialect]: [_message(dialect, n) for n in range(MESSAGES - 1)]}


def agent(dialect: str, messages: int = MESSAGES) -> Body:
    """An agent at work: a sentence and a call, a result of some 400 characters."""
    steps = (MAKERS[dialect](f"call_{n:06d}") for n in range(messages // 2))
    return {FIELDS[dialect]: [_message(dialect, 0), *chain.from_iterable(steps)]}


_SAYS = "Let me look at the file and see what is in it. "
_ARGS = {"path": "/home/somebody/project/src/module.py", "limit": 100}
_OUT = "a line of text in a file\n" * 16


def _anthropic(call: str) -> list[Any]:
    use = {"type": "tool_use", "id": call, "name": "read", "input": _ARGS}
    text = {"type": "text", "text": _SAYS}
    out = {"type": "tool_result", "tool_use_id": call, "content": [{"type": "text", "text": _OUT}]}
    return [{"role": "assistant", "content": [text, use]}, {"role": "user", "content": [out]}]


def _chat(call: str) -> list[Any]:
    function = {"name": "read", "arguments": json.dumps(_ARGS)}
    made = {"id": call, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": _SAYS, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": call, "content": _OUT},
    ]


def _responses(call: str) -> list[Any]:
    made = {"call_id": call, "name": "read", "arguments": json.dumps(_ARGS)}
    return [
        {"type": "function_call", "id": f"fc_{call}", **made},
        {"type": "function_call_output", "call_id": call, "output": _OUT},
    ]


def _gemini(call: str) -> list[Any]:
    use = {"functionCall": {"id": call, "name": "read", "args": _ARGS}}
    response = {"id": call, "name": "read", "response": {"output": _OUT}}
    return [
        {"role": "model", "parts": [{"text": _SAYS}, use]},
        {"role": "user", "parts": [{"functionResponse": response}]},
    ]


MAKERS = dict(zip(DIALECTS, (_anthropic, _chat, _responses, _gemini), strict=True))


def _with_thinking(dialect: str) -> Body:
    """The agent, thinking before each call, in a request as its SDK would send it."""
    body = agent(dialect)
    if dialect == "anthropic":
        thought = {"type": "thinking", "thinking": "Hm. " * 20, "signature": "EqQB" + "a" * 200}
        for message in body["messages"][1::2]:
            message["content"].insert(0, thought)
        fields = {"model": "claude-opus-5", "max_tokens": 9, "thinking": {"type": "adaptive"}}
        tools = {"tools": [{"name": "read", "input_schema": {"type": "object"}}]}
        return {**body, **fields, **tools, "system": [{"type": "text", "text": "Be brief."}]}
    if dialect == "openai-chat":
        for message in body["messages"][1::2]:
            message["reasoning_content"] = "Hm. " * 20
        return {**body, "model": "deepseek-reasoner"}
    if dialect == "openai-responses":
        sealed = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA" + "a" * 200}
        items = [
            each
            for n, item in enumerate(body["input"])
            for each in ([{**sealed, "id": f"rs_{n}"}] if n % 2 else []) + [item]
        ]
        return {"input": items, "model": "gpt-5.4", "store": False}
    for content in body["contents"][1::2]:
        content["parts"].insert(0, {"text": "Hm. " * 20, "thought": True})
        content["parts"][-1]["thoughtSignature"] = "Zm9v" * 50
    return {**body, "model": "gemini-3.1-pro"}


def _mistral(dialect: str) -> Body:
    """A vendor with rules of its own, without any calls."""
    return {**chatter(dialect), "model": "mistral-large-latest"}


KINDS: dict[str, Callable[[str], Body]] = {
    "chatter": chatter,
    "agent": agent,
    "thinking": _with_thinking,
}


def broken(dialect: str, messages: int) -> Body:
    """Every tenth message lost, and a block of results far behind its calls."""
    body = agent(dialect, messages)
    field = next(iter(body))
    kept = [message for n, message in enumerate(body[field]) if n % 10 != 2]
    half = len(kept) // 2
    return {field: kept[: half - 100] + kept[half:] + kept[half - 100 : half]}


def clean(rounds: int) -> Iterator[Figure]:
    for dialect in DIALECTS:
        kinds = KINDS | ({"mistral": _mistral} if dialect == "openai-chat" else {})
        for name, make in kinds.items():
            text = json.dumps(make(dialect))
            body = json.loads(text)
            assert repair(body, dialect).body is body
            read = best(partial(json.loads, text), rounds)
            mend = best(partial(repair, body, dialect), rounds)
            told = best(partial(repair, body), rounds)
            note = (
                f"{len(text) / 1e6:.1f} MB, loads {read * 1e3:.1f} ms, repair {mend * 1e3:.1f} ms"
            )
            note += f"; dialect told: {told / read:.2f}"
            yield Figure(f"clean, {dialect}, {name}: repair / loads", mend / read, "x", 1.2, note)


def broken_ones() -> Iterator[Figure]:
    for dialect in DIALECTS:
        costs: list[float] = []
        for size in (5_000, 10_000, 20_000):
            body = json.loads(json.dumps(broken(dialect, size)))
            gc.disable()  # its share grows with all that is alive, which is not what is measured
            costs.append(best(partial(repair, body, dialect), 3) / size * 1e6)
            gc.enable()
        note = ", ".join(f"{cost:.1f}" for cost in costs) + " µs a message at 5,000, 10,000, 20,000"
        yield Figure(f"broken, {dialect}: cost a message", costs[-1] / costs[0], "x", 2, note)


def classified(rounds: int) -> Iterator[Figure]:
    texts = {
        "first row": "Invalid `signature` in `thinking` block. The block is bound to a different"
        " conversation.",
        "last row": "messages.70.tool_calls.0.function.arguments: arguments must be a valid JSON"
        " object string",
        "no row": "A tool said that thinking must not be empty in this role; items follow. " * 12,
        "a body": json.dumps({"error": {"message": "messages: `tool_use` ids must be unique"}}),
    }
    for name, text in texts.items():
        cost = best(partial(_many_times, text), rounds) / MANY * 1e6
        yield Figure(f"classify, {name}", cost, "µs", 50, f"{len(text)} characters")


def _many_times(text: str) -> None:
    for _ in range(MANY):
        classify(400, text)


def main() -> int:
    rounds = 3 if is_quick(str(__doc__)) else 9
    figures = [*clean(rounds), *broken_ones(), *classified(rounds)]
    return report("looking at histories of 10,000 messages", figures)


if __name__ == "__main__":
    sys.exit(main())
