"""The wire formats as their SDKs speak them: one table, and one way to ask for all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from continuation.cli.sdks import ANTHROPIC, GOOGLE, OPENAI, Sdk
from continuation.limits import spellings
from continuation.registry import BUILT_IN

TOOL = "Write"
_ABOUT = "Write a file."
_TEXT = {"type": "string"}
_SCHEMA = {
    "type": "object",
    "properties": {"path": _TEXT, "content": _TEXT},
    "required": ["path", "content"],
}


@dataclass(frozen=True)
class Prompt:
    """What a model is asked, in the words of no format."""

    model: str
    text: str
    limit: int
    """Output limit, in tokens."""
    system: str | None = None
    tool: bool = False
    """It may call `Write`."""


@dataclass(frozen=True)
class Ear:
    """Hears an answer piece by piece, as it comes: visible text, and raw arguments of calls."""

    text: Callable[[str], None]
    arguments: Callable[[str], None] = lambda _: None


Call: TypeAlias = Mapping[str, Any] | str
"""The arguments of a call: a mapping, or raw JSON text where the SDK does not read it."""


class End(NamedTuple):
    """How an answer ended, in the format's own word, and its calls as the SDK gives them."""

    stop: str | None
    calls: Sequence[Call] = ()


class AnswerFailedError(Exception):
    """The stream told an error in a way that the SDK does not raise; `body` is what it told."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__()
        self.body = {"type": "error", **body}


@dataclass(frozen=True)
class FormatDriver:
    """One wire format as its SDK speaks it."""

    name: str
    """Of its dialect."""
    title: str
    sdk: Sdk
    model: str
    """The model to call when none is named."""
    prefixes: tuple[str, ...]
    """How the names of models begin that are called in it."""
    stop_name: str
    """What it calls the word for the end."""
    ends: tuple[str, ...]
    """The words for the end of a whole answer."""
    called: str
    """The word for the end of an answer that calls a tool."""
    stream: Callable[[Any, Prompt, Ear], End]
    """Ask with a client of the SDK, let the answer be heard, and say how it ended."""
    method: str = ""
    """What of the client speaks it, for the user."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What `stream` can raise."""
        return *self.sdk.errors, AnswerFailedError

    def covers(self, model: str) -> bool:
        return any(name.startswith(self.prefixes) for name in spellings(model))


def offered() -> tuple[FormatDriver, ...]:
    """Return the formats there is a dialect for."""
    return tuple(one for one in FORMATS if one.name in BUILT_IN)


def names() -> list[str]:
    """Return what `--dialect` may say."""
    return [one.name for one in offered()]


def choose(name: str | None, model: str) -> FormatDriver | None:
    """Return the format that is named, or else the first that a model is called in, if any."""
    fits = (one for one in offered() if (one.name == name if name else one.covers(model)))
    return next(fits, None)


# -- Anthropic -----------------------------------------------------------------------------------


def _messages(client: Any, ask: Prompt, ear: Ear) -> End:
    body: dict[str, Any] = {
        "model": ask.model,
        "max_tokens": ask.limit,
        "messages": [{"role": "user", "content": ask.text}],
    }
    if ask.system is not None:
        body["system"] = ask.system
    if ask.tool:
        body["tools"] = [{"name": TOOL, "description": _ABOUT, "input_schema": _SCHEMA}]
    with client.messages.stream(**body) as stream:
        for event in stream:
            if event.type == "text":
                ear.text(event.text)
            elif event.type == "input_json":
                ear.arguments(event.partial_json)
        message = stream.get_final_message()
    calls = [block.input for block in message.content if block.type == "tool_use"]
    return End(message.stop_reason, calls)


# -- OpenAI --------------------------------------------------------------------------------------

_FUNCTION = {"name": TOOL, "description": _ABOUT, "parameters": _SCHEMA}
_OPENAI_MODELS = ("gpt-", "chatgpt-", "o1", "o3", "o4", "codex-")


def _chat(client: Any, ask: Prompt, ear: Ear) -> End:
    system = [] if ask.system is None else [{"role": "system", "content": ask.system}]
    # The older name is the only one that other servers know, and the one that OpenAI refuses.
    newer = any(name.startswith(_OPENAI_MODELS) for name in spellings(ask.model))
    body: dict[str, Any] = {
        "model": ask.model,
        "max_completion_tokens" if newer else "max_tokens": ask.limit,
        "messages": [*system, {"role": "user", "content": ask.text}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if ask.tool:
        body["tools"] = [{"type": "function", "function": _FUNCTION}]
    stop, calls = None, dict[int, str]()
    with client.chat.completions.create(**body) as stream:
        for choice in (choice for chunk in stream for choice in chunk.choices or ()):
            stop = choice.finish_reason or stop
            if choice.delta.content:
                ear.text(choice.delta.content)
            for call in choice.delta.tool_calls or ():
                piece = (call.function and call.function.arguments) or ""
                calls[call.index] = calls.get(call.index, "") + piece
                ear.arguments(piece)
    return End(stop, [*calls.values()])


def _responses(client: Any, ask: Prompt, ear: Ear) -> End:
    body: dict[str, Any] = {
        "model": ask.model,
        "max_output_tokens": ask.limit,
        "input": ask.text,
        "stream": True,
    }
    if ask.system is not None:
        body["instructions"] = ask.system
    if ask.tool:
        body["tools"] = [{"type": "function", "strict": False, **_FUNCTION}]
    stop, calls = None, list[str]()
    with client.responses.create(**body) as stream:
        for event in stream:
            match event.type:
                case "response.output_text.delta":
                    ear.text(event.delta)
                case "response.function_call_arguments.delta":
                    ear.arguments(event.delta)
                case "response.completed" | "response.incomplete":
                    final = event.response
                    why = final.incomplete_details and final.incomplete_details.reason
                    stop = f"{final.status}: {why}" if why else final.status
                    calls = [one.arguments for one in final.output if one.type == "function_call"]
                case "response.failed":
                    error = event.response.error
                    raise AnswerFailedError(error.to_dict() if error else {})
                case "error":
                    raise AnswerFailedError(event.to_dict())
                case _:
                    pass
    return End(stop, calls)


# -- Google --------------------------------------------------------------------------------------


def _gemini(client: Any, ask: Prompt, ear: Ear) -> End:
    config: dict[str, Any] = {"max_output_tokens": ask.limit}
    if ask.system is not None:
        config["system_instruction"] = ask.system
    if ask.tool:
        declared = {"name": TOOL, "description": _ABOUT, "parameters_json_schema": _SCHEMA}
        config["tools"] = [{"function_declarations": [declared]}]
    asked = {"model": ask.model, "contents": ask.text, "config": config}
    stop: str | None = None
    calls: list[Mapping[str, Any]] = []
    with closing(client.models.generate_content_stream(**asked)) as chunks:
        for candidate in (candidate for chunk in chunks for candidate in chunk.candidates or ()):
            stop = candidate.finish_reason.value if candidate.finish_reason else stop
            for part in (candidate.content and candidate.content.parts) or ():
                if part.text and not part.thought:
                    ear.text(part.text)
                if part.function_call:
                    calls.append(part.function_call.args or {})
                    ear.arguments(json.dumps(calls[-1], ensure_ascii=False))
    return End(stop, calls)


FORMATS = (
    FormatDriver(
        "anthropic",
        title="Anthropic Messages",
        sdk=ANTHROPIC,
        model="claude-opus-5",
        prefixes=("claude",),
        stop_name="stop_reason",
        ends=("end_turn", "stop_sequence"),
        called="tool_use",
        stream=_messages,
    ),
    # Before Chat: OpenAI serves all of its models by Responses, and not all of them by Chat.
    FormatDriver(
        "openai-responses",
        title="OpenAI Responses",
        sdk=OPENAI,
        method=".responses",
        model="gpt-5.5",
        prefixes=_OPENAI_MODELS,
        stop_name="status",
        ends=("completed",),
        called="completed",
        stream=_responses,
    ),
    FormatDriver(
        "openai-chat",
        title="OpenAI Chat Completions",
        sdk=OPENAI,
        method=".chat.completions",
        model="gpt-5.5",
        prefixes=_OPENAI_MODELS,
        stop_name="finish_reason",
        ends=("stop",),
        called="tool_calls",
        stream=_chat,
    ),
    FormatDriver(
        "gemini",
        title="Gemini",
        sdk=GOOGLE,
        method=".models",
        model="gemini-3.1-pro",
        prefixes=("gemini", "gemma"),
        stop_name="finish_reason",
        ends=("STOP",),
        called="STOP",
        stream=_gemini,
    ),
)
