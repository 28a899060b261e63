"""LiteLLM in front of the gateway, and behind it: keys and budgets are its, whole answers are ours.

    python tests/gateway/with_litellm.py ENVIRONMENT

ENVIRONMENT is where `litellm[proxy]` was installed; `.ci/gateway` does both. Either way an answer
that the simulator cuts comes out whole, and a cut call as well.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import httpx2
from support.gateways import CALL, MESSAGES, serving
from support.sdks.turn import cut, end

from continuation.simulator import Reply, Simulator, ToolUse

MODELS = {"chat": ("openai", "gpt-5.4", "/v1"), "messages": ("anthropic", "claude-opus-5", "")}
KEY = "sk-of-litellm"


@contextmanager
def litellm(environment: Path, here: Path, url: str, *, prefix: bool) -> Iterator[str]:
    """Run LiteLLM; each model goes to `url`, or to a gateway there, by its `prefix`."""
    models = [
        {
            "model_name": model,
            "litellm_params": {
                "model": f"{provider}/{model}",
                "api_base": f"{url}/{provider if prefix else ''}".rstrip("/") + path,
                "api_key": "k",
            },
        }
        for provider, model, path in MODELS.values()
    ]
    file = here / "litellm.yaml"
    file.write_text(json.dumps({"model_list": models, "general_settings": {"master_key": KEY}}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {"PATH": os.environ["PATH"], "HOME": str(here)}
    settings |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    running = subprocess.Popen(
        [environment / "bin" / "litellm", "--config", file, "--port", str(port)],
        cwd=here,
        env=settings,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        ends = time.monotonic() + 120
        while running.poll() is None and time.monotonic() < ends:
            try:
                httpx2.get(f"http://127.0.0.1:{port}/health/liveliness").raise_for_status()
                break
            except httpx2.HTTPError:
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait(30)


def chat(url: str, model: str, *, stream: bool, call: bool) -> str:
    """Ask as an application does, in OpenAI's format; return the text, or the call's arguments."""
    tool = {"name": "Write", "parameters": {"type": "object", "properties": {}}}
    body: dict[str, Any] = {"model": model, "messages": MESSAGES["messages"], "max_tokens": 300}
    body |= {"stream": stream} | (
        {"tools": [{"type": "function", "function": tool}]} if call else {}
    )
    pieces = post(f"{url}/chat/completions", body)
    said = ""
    for choice in (choice for piece in pieces for choice in piece["choices"]):
        message = choice["delta" if stream else "message"]
        said += "" if call else message.get("content") or ""
        for each in message.get("tool_calls") or []:
            said += each["function"].get("arguments") or ""
    return said


def messages(url: str, model: str, *, stream: bool, call: bool) -> str:
    """Ask in Anthropic's format."""
    tool = {"name": "Write", "input_schema": {"type": "object"}}
    body: dict[str, Any] = {"model": model, "messages": MESSAGES["messages"], "max_tokens": 300}
    body |= {"stream": stream} | ({"tools": [tool]} if call else {})
    pieces = post(f"{url}/v1/messages", body)
    if not stream:
        found = [block for block in pieces[0]["content"] if ("input" in block) is call]
        return "".join(json.dumps(each["input"]) if call else each["text"] for each in found)
    deltas = [piece["delta"] for piece in pieces if piece["type"] == "content_block_delta"]
    return "".join(each.get("partial_json" if call else "text", "") for each in deltas)


def post(url: str, body: dict[str, Any]) -> list[Any]:
    answer = httpx2.post(url, json=body, headers={"authorization": f"Bearer {KEY}"}, timeout=60)
    answer.raise_for_status()
    lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines] if body["stream"] else [answer.json()]


def main(environment: Path) -> int:
    """Try each model, streamed and not, with a text and with a call."""
    wrong, more = 0, "[defaults]\nremember_limit = false\n"
    with tempfile.TemporaryDirectory() as name, Simulator() as sim:
        here = Path(name)
        with (
            serving(here, sim.url, more) as served,
            litellm(environment, here, served.url, prefix=True) as it,
        ):
            for _, model, _ in MODELS.values():
                wrong += tried("in front", sim, partial(chat, it, model))
        with (
            litellm(environment, here, sim.url, prefix=False) as it,
            serving(here, it, more) as served,
        ):
            wrong += tried("behind", sim, partial(chat, f"{served.url}/openai/v1", "gpt-5.4"))
            ask = partial(messages, f"{served.url}/anthropic", "claude-opus-5")
            wrong += tried("behind", sim, ask)
    return wrong


def tried(where: str, sim: Simulator, ask: partial[str]) -> int:
    """Return how often what came was not whole."""
    wrong = 0
    for stream, call in product((False, True), repeat=2):
        sim.reset()
        sim.script(replies(stream=stream, call=call))
        said = ask(stream=stream, call=call)
        wanted: Any = CALL.arguments if call else "One, two, three."
        well = (json.loads(said) if call and said else said) == wanted
        wrong += not well
        way = f"{'stream' if stream else 'body'}, {'call' if call else 'text'}"
        told = "ok    " if well else "FAILED"
        print(told, "LiteLLM", where, ask.args[1], way, "" if well else repr(said), flush=True)  # noqa: T201
    return wrong


def replies(*, stream: bool, call: bool) -> list[Reply]:
    """What the provider says: half of it, and then the rest, or all."""
    if call:
        return [cut(ToolUse("Write", CALL.arguments, cut=40)), end(CALL, stop="tool_use")]
    return [cut("One, two, "), end("three." if stream else "One, two, three.")]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])) != 0)
