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


def main() -> None:
    client = continuation.wrap(anthropic.Anthropic(), truncated_tool_call="complete")
    asked: dict[str, Any] = {"model": "claude-sonnet-5", "max_tokens": 1024, "tools": TOOLS}
    messages: list[Any] = [{"role": "user", "content": sys.argv[1]}]
    while True:
        reply = client.messages.create(**asked, messages=messages)
        print(*(block.text for block in reply.content if block.type == "text"))
        calls = [block for block in reply.content if block.type == "tool_use"]
        if not calls:
            break
        done = [{"type": "tool_result", "tool_use_id": call.id, "content": write_file(**call.input)}
                for call in calls]  # fmt: skip
        messages += [{"role": "assistant", "content": reply.content},
                     {"role": "user", "content": done}]  # fmt: skip


if __name__ == "__main__":
    main()
