"""LiteLLM in front of the gateway: keys and budgets are its, whole answers are ours.

    python tests/gateway/litellm_first.py ENVIRONMENT

ENVIRONMENT is where `litellm[proxy]` was installed; `.ci/gateway` does both. Through LiteLLM, the
gateway and the simulator an answer that is cut comes out whole, and a cut call as well.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import httpx2
from support.gateways import CALL, MESSAGES, serving
from support.sdks.turn import cut, end

from continuation.simulator import Reply, Simulator, ToolCall

MODELS = {
    "chat": ("openai/gpt-5.4", "openai/v1"),
    "messages": ("anthropic/claude-opus-5", "anthropic"),
}
KEY = "sk-of-litellm"


def config(url: str) -> str:
    """Return LiteLLM's file: each model goes to the gateway."""
    models = [
        {
            "model_name": name,
            "litellm_params": {"model": m, "api_base": f"{url}/{p}", "api_key": "k"},
        }
        for name, (m, p) in MODELS.items()
    ]
    return json.dumps({"model_list": models, "general_settings": {"master_key": KEY}})


def ask(url: str, model: str, *, stream: bool, call: bool) -> str:
    """Ask as an application does, in OpenAI's format; return the text, or the call's arguments."""
    tool = {"name": "Write", "parameters": {"type": "object", "properties": {}}}
    body: dict[str, Any] = {"model": model, "messages": MESSAGES["messages"], "max_tokens": 300}
    body |= {"stream": stream} | (
        {"tools": [{"type": "function", "function": tool}]} if call else {}
    )
    headers = {"authorization": f"Bearer {KEY}"}
    answer = httpx2.post(f"{url}/chat/completions", json=body, headers=headers, timeout=60)
    answer.raise_for_status()
    lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
    pieces = [json.loads(line) for line in lines] if stream else [answer.json()]
    said = ""
    for choice in (choice for piece in pieces for choice in piece["choices"]):
        message = choice["delta" if stream else "message"]
        said += "" if call else message.get("content") or ""
        for each in message.get("tool_calls") or []:
            said += each["function"].get("arguments") or ""
    return said


def main(environment: Path) -> int:
    """Try each model, streamed and not, with a text and with a call."""
    wrong = 0
    with tempfile.TemporaryDirectory() as here, Simulator() as sim, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        more = "[defaults]\nremember_limit = false\n"
        with serving(Path(here), sim.url, more) as served:
            file = Path(here, "litellm.yaml")
            file.write_text(config(served.url))
            running = subprocess.Popen(
                [environment / "bin" / "litellm", "--config", file, "--port", str(port)],
                cwd=here,
                env={
                    "PATH": os.environ["PATH"],
                    "HOME": here,
                    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                },
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                url = f"http://127.0.0.1:{port}"
                ends = time.monotonic() + 120
                while running.poll() is None and time.monotonic() < ends:
                    try:
                        httpx2.get(f"{url}/health/liveliness").raise_for_status()
                        break
                    except httpx2.HTTPError:
                        time.sleep(0.5)
                for name in MODELS:
                    for stream in (False, True):
                        for call in (False, True):
                            sim.reset()
                            sim.script(replies(stream=stream, call=call))
                            said = ask(url, name, stream=stream, call=call)
                            wanted = CALL.arguments if call else "One, two, three."
                            well = (json.loads(said) if call and said else said) == wanted
                            wrong += not well
                            told = "ok    " if well else "FAILED"
                            way = f"{'stream' if stream else 'body'}, {'call' if call else 'text'}"
                            print(told, name, way, "" if well else repr(said), flush=True)  # noqa: T201
            finally:
                running.terminate()
                running.wait(30)
    return wrong


def replies(*, stream: bool, call: bool) -> list[Reply]:
    """What the provider says: half of it, and then the rest, or all."""
    if call:
        return [cut(ToolCall("Write", CALL.arguments, cut=40)), end(CALL, stop="tool_use")]
    return [cut("One, two, "), end("three." if stream else "One, two, three.")]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])) != 0)
