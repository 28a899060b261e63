"""A coding agent with one tool: a truncated `write_file` call is completed before it is executed.

python examples/coding_agent.py "Write a snake game to snake.py"    # ANTHROPIC_API_KEY
"""

import sys
from pathlib import Path
from typing import Any

import anthropic

import continuation

FIELDS = {"path": {"type": "string"}, "content": {"type": "string"}}
TOOLS: Any = [{"name": "write_file", "input_schema": {"type": "object", "properties": FIELDS}}]


def write_file(call: Any) -> dict[str, Any]:
    done: dict[str, Any] = {"type": "tool_result", "tool_use_id": call.id}
    try:
        Path(Path(call.input["path"]).name).write_text(call.input["content"], encoding="utf-8")
    except Exception as error:  # as a result, so that the model can try something else
        return {**done, "content": f"{type(error).__name__}: {error}", "is_error": True}
    return {**done, "content": f"{len(call.input['content'])} characters written"}


if __name__ == "__main__":
    client = continuation.wrap(anthropic.Anthropic(), truncated_tool_call="complete")
    asked: dict[str, Any] = {"model": "claude-sonnet-5", "max_tokens": 1024, "tools": TOOLS}
    messages: list[Any] = [{"role": "user", "content": sys.argv[1]}]
    while True:
        reply = client.messages.create(**asked, messages=messages)
        print(*(block.text for block in reply.content if block.type == "text"))
        if reply.stop_reason not in ("tool_use", "pause_turn"):  # paused: just send it again
            break
        messages.append({"role": "assistant", "content": reply.content})
        if calls := [block for block in reply.content if block.type == "tool_use"]:
            messages.append({"role": "user", "content": [write_file(call) for call in calls]})
    if reply.stop_reason != "end_turn":  # truncated or refused: not finished
        sys.exit(f"not finished: {reply.stop_reason}")
