"""What looking at a history costs: run it, and compare with the figures asked for.

    python tests/benchmarks/histories.py

clean: repair of 10,000 clean messages, at most 1.2 times `json.loads` of the same body
broken: repair of a broken history grows with its size, no faster
classify: at most 50 microseconds for an error text
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from continuation.history import classify, repair

Body = dict[str, Any]
MESSAGES = 10_000


def best(work: Callable[[], object], rounds: int = 9) -> float:
    """The shortest of several runs, in seconds of this process; the others were disturbed."""
    times: list[float] = []
    for _ in range(rounds):
        gc.collect()
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def chatter(dialect: str) -> Body:
    """Short plain messages: the least that JSON can cost."""
    said = [
        {"role": ("user", "assistant")[n % 2], "content": f"message {n}"}
        for n in range(MESSAGES - 1)
    ]
    if dialect == "gemini":
        roles = {"user": "user", "assistant": "model"}
        return {
            "contents": [
                {"role": roles[m["role"]], "parts": [{"text": m["content"]}]} for m in said
            ]
        }
    return {"input" if dialect == "openai-responses" else "messages": said}


def agent(dialect: str, messages: int = MESSAGES) -> Body:
    """An agent at work: a sentence and a call, a result of some 400 characters."""
    makers = {
        "anthropic": _anthropic,
        "openai-chat": _chat,
        "openai-responses": _responses,
        "gemini": _gemini,
    }
    field = {"openai-responses": "input", "gemini": "contents"}.get(dialect, "messages")
    made: list[Any] = [{"role": "user", "parts": [{"text": "go"}]}]
    if dialect != "gemini":
        made = [{"role": "user", "content": "go"}]
    for n in range(messages // 2):
        made += makers[dialect](f"call_{n:06d}")
    return {field: made}


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


def clean_costs() -> bool:
    good = True
    for dialect in ("anthropic", "openai-chat", "openai-responses", "gemini"):
        kinds = KINDS | ({"mistral": _mistral} if dialect == "openai-chat" else {})
        for name, make in kinds.items():
            text = json.dumps(body := make(dialect))
            body = json.loads(text)
            assert repair(body, dialect).body is body
            read = best(lambda text=text: json.loads(text))  # type: ignore[misc]
            mend = best(lambda body=body, dialect=dialect: repair(body, dialect))  # type: ignore[misc]
            told = best(lambda body=body: repair(body))  # type: ignore[misc]
            good = good and mend <= 1.2 * read
            print(
                f"clean   {dialect:17} {name:8} {len(text) / 1e6:5.1f} MB"
                f"  loads {read * 1e3:6.1f} ms  repair {mend * 1e3:6.1f} ms = {mend / read:4.2f}x"
                f"  (dialect told: {told / read:4.2f}x)"
            )
    return good


def broken_costs() -> bool:
    good = True
    for dialect in ("anthropic", "openai-chat", "openai-responses", "gemini"):
        costs: list[float] = []
        for size in (5_000, 10_000, 20_000):
            body = json.loads(json.dumps(broken(dialect, size)))
            gc.disable()  # its share grows with all that is alive, which is not what is measured
            cost = best(lambda body=body, dialect=dialect: repair(body, dialect), 3)  # type: ignore[misc]
            gc.enable()
            costs.append(cost / size * 1e6)
        good = good and costs[-1] < 2 * costs[0]
        shown = ", ".join(f"{cost:5.1f}" for cost in costs)
        print(f"broken  {dialect:17} microseconds a message at 5,000, 10,000, 20,000: {shown}")
    return good


def classify_costs() -> bool:
    texts = {
        "first row": "Invalid `signature` in `thinking` block. The block is bound to a different"
        " conversation.",
        "last row": "messages.70.tool_calls.0.function.arguments: arguments must be a valid JSON"
        " object string",
        "no row": "A tool said that thinking must not be empty in this role; items follow. " * 12,
        "a body": json.dumps({"error": {"message": "messages: `tool_use` ids must be unique"}}),
    }
    good = True
    for name, text in texts.items():
        cost = best(lambda text=text: [classify(400, text) for _ in range(200)]) / 200 * 1e6  # type: ignore[misc]
        good = good and cost <= 50
        print(f"classify {name:10} {len(text):5} characters {cost:6.1f} microseconds")
    return good


if __name__ == "__main__":
    results = [clean_costs(), broken_costs(), classify_costs()]
    sys.exit(0 if all(results) else 1)
