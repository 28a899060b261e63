"""A real `llama-server` with a model that `.ci/real` trained, and SDKs that ask it."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai

from continuation.config import Config, Layer, VendorTable

VARIABLE = "CONTINUATION_LLAMA"
"""Names the folder where `.ci/real` keeps the server and the models."""
MODELS = ("recites", "tasks")


def missing() -> str:
    """Return why nothing can be run here; `""`: it can."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return f"{VARIABLE} is not set: run .ci/real"
    files = ("llama-server", *(f"{name}.gguf" for name in MODELS))
    absent = [name for name in files if not Path(folder, name).exists()]
    return f"{', '.join(absent)} not in {folder}: run .ci/real" if absent else ""


@contextmanager
def llama(model: str) -> Iterator[str]:
    """Run the server with a model; return its URL, without a path."""
    folder = Path(os.environ[VARIABLE])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command: list[str | Path] = [
        folder / "llama-server",
        "--model",
        folder / f"{model}.gguf",
        "--alias",
        model,
    ]
    command += ["--host", "127.0.0.1", "--port", str(port), "--threads", "1"]
    command += ["--parallel", "1", "--ctx-size", "2048"]
    url = f"http://127.0.0.1:{port}"
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(running, f"{url}/health")
        yield url
    finally:
        running.terminate()
        running.wait()


def _wait(running: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if running.poll() is not None:
            raise RuntimeError(f"llama-server ended with status {running.returncode}")
        try:
            if httpx2.get(url).status_code == 200:
                return
        except httpx2.TransportError:
            time.sleep(0.05)
    raise RuntimeError("llama-server does not answer")


MODEL = "tasks"
CEILING = 400
"""The largest limit of a later attempt: no answer needs more, and some find no end."""
POLICY: dict[str, Any] = {
    "leave_limits_below": 0,
    "escalate": False,
    "remember_limit": False,
    "model_max_output_tokens": CEILING,
    "models_endpoint": False,
    "backoff_seconds": 0.0,
}


@dataclass(frozen=True)
class Answer:
    """An answer as its caller received it."""

    text: str
    truncated: bool
    tokens: int


class Format(ABC):
    """One wire format of the server, through its vendor's SDK."""

    name: str
    prefills = ""
    """The model's name for prefill, where it matters; `""`: the format has no prefill."""

    @abstractmethod
    def client(self, url: str) -> Any: ...

    @abstractmethod
    def ask(self, client: Any, messages: list[Any], limit: int, **more: Any) -> Answer: ...


class Chat(Format):
    name = "Chat"
    prefills = "tasks"

    def client(self, url: str) -> Any:
        return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)

    def ask(self, client: Any, messages: list[Any], limit: int, **more: Any) -> Answer:
        sent: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_tokens": limit, **more}
        if not more.get("stream"):
            got = client.chat.completions.create(messages=messages, **sent)
            choice = got.choices[0]
            text, reason = choice.message.content or "", choice.finish_reason
            return Answer(text, reason == "length", got.usage.completion_tokens)
        sent["stream_options"] = {"include_usage": True}
        text, reason, tokens = "", "", 0
        for chunk in client.chat.completions.create(messages=messages, **sent):
            for choice in chunk.choices:
                text += choice.delta.content or ""
                reason = choice.finish_reason or reason
            tokens = chunk.usage.completion_tokens if chunk.usage else tokens
        return Answer(text, reason == "length", tokens)


class Messages(Format):
    name = "Messages"
    prefills = "claude-haiku-4-5"

    def client(self, url: str) -> Any:
        return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)

    def ask(self, client: Any, messages: list[Any], limit: int, **more: Any) -> Answer:
        sent: dict[str, Any] = {"model": MODEL, "max_tokens": limit, "messages": messages}
        sent |= {"extra_body": {"temperature": 0}, **more}  # newer models take no temperature
        if sent.pop("stream", False):
            with client.messages.stream(**sent) as stream:
                got = stream.get_final_message()
        else:
            got = client.messages.create(**sent)
        text = "".join(block.text for block in got.content if block.type == "text")
        return Answer(text, got.stop_reason == "max_tokens", got.usage.output_tokens)


class Responses(Format):
    name = "Responses"

    def client(self, url: str) -> Any:
        return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)

    def ask(self, client: Any, messages: list[Any], limit: int, **more: Any) -> Answer:
        sent: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_output_tokens": limit}
        got = client.responses.create(input=messages, **sent, **more)
        if more.get("stream"):
            for event in got:
                if event.type in {"response.completed", "response.incomplete"}:
                    got = event.response
        usage = got.usage.output_tokens if got.usage else 0
        return Answer(got.output_text, got.status == "incomplete", usage)


FORMATS = (Chat(), Messages(), Responses())


def config(url: str) -> Config:
    """Return the configuration: whose server this is, and where no attempt may go beyond."""
    host = url.removeprefix("http://")
    vendor = VendorTable("real", (host,), {"like": "llamacpp"})
    return Config((Layer("the benchmark", POLICY),), (vendor,))
