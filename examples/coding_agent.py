"""A coding agent of one tool: a cut `write_file` call is healed, and never runs by half.

python examples/coding_agent.py "Write a snake game to snake.py"    # ANTHROPIC_API_KEY
"""

import sys
from pathlib import Path
from typing import Any

import anthropic

import continuation

FIELDS = {"path": {"type": "string"}, "content": {"type": "string"}}
TOOLS: Any = [{"name": "write_file", "input_schema": {"type": "object", "properties": FIELDS}}]


def write_file(path: str, content: str) -> str:
    Path(Path(path).name).write_text(content, encoding="utf-8")
    return f"{len(content)} characters written"


def use(call: Any) -> dict[str, Any]:
    """Run a call; what it raises is its result, so that the model can try something else."""
    try:
        content, failed = write_file(**call.input), False
    except Exception as error:
        content, failed = f"{type(error).__name__}: {error}", True
    return {
        "type": "tool_result", "tool_use_id": call.id, "content": content, "is_error": failed
    }  # fmt: skip


def main() -> None:
    client = continuation.wrap(anthropic.Anthropic(), truncated_tool_call="complete")
    asked: dict[str, Any] = {"model": "claude-sonnet-5", "max_tokens": 1024, "tools": TOOLS}
    messages: list[Any] = [{"role": "user", "content": sys.argv[1]}]
    while True:
        reply = client.messages.create(**asked, messages=messages)
        print(*(block.text for block in reply.content if block.type == "text"))
        if reply.stop_reason not in ("tool_use", "pause_turn"):
            break
        messages.append({"role": "assistant", "content": reply.content})
        if reply.stop_reason == "tool_use":  # after a pause the same messages are sent again
            done = [use(block) for block in reply.content if block.type == "tool_use"]
            messages.append({"role": "user", "content": done})
    if reply.stop_reason not in ("end_turn", "stop_sequence"):
        sys.exit(f"not finished: {reply.stop_reason}")


if __name__ == "__main__":
    main()
