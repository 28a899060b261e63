"""The SDKs, and a table of the wire formats: how each is called by its SDK."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import httpx2

from continuation.cli.exits import CommandError, Exit
from continuation.cli.refusals import hide_keys
from continuation.limits import spellings
from continuation.registry import BUILT_IN

# -- the SDKs ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sdk:
    """An SDK whose client takes `base_url`, `api_key` and `http_client`."""

    module: str
    name: str
    """Its name for users."""
    extra: str
    """The extra of this package that installs it."""
    client: str
    """The class of its client."""
    keys: tuple[str, ...]
    """Environment variables that hold a key; the first one is the one to set."""
    base_url: str
    """Environment variable that names another server."""
    own_errors: tuple[str, ...]
    """The bases of its errors, as `module:name`."""
    server: str
    """The server that it calls by default."""
    path: str = ""
    """The path of its base URL."""

    def load(self) -> ModuleType:
        """Import the SDK; if it is missing, raise `CommandError` with the line that installs it."""
        try:
            return importlib.import_module(self.module)
        except ImportError as error:
            message = (
                f"this command needs the {self.name} SDK: "
                f"python -m pip install 'continuation-engine[{self.extra}]'"
            )
            raise CommandError(message, Exit.MISSING) from error

    @property
    def installed(self) -> bool:
        """Whether it can be imported."""
        try:
            self.load()
        except CommandError:
            return False
        return True

    @property
    def version(self) -> str:
        return str(self.load().__version__)

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What a call can raise: its own errors, and those of the HTTP client it lets through."""
        return *map(pkgutil.resolve_name, self.own_errors), httpx2.HTTPError, httpx2.StreamError

    def sample(self, url: str) -> str:
        """Return Python that makes a client of the simulator at `url`."""
        return f'{self.module}.{self.client}(base_url="{url}{self.path}", api_key="any")'

    @contextlib.contextmanager
    def simulated(self, url: str) -> Generator[Any]:
        """Make a client of the simulator; proxies and keys of the environment are ignored."""
        with httpx2.Client(trust_env=False) as http, self._make(url + self.path, http) as client:
            yield client

    def connect(self, base_url: str | None) -> Any:
        """Make a client from the environment variables.

        Raises `CommandError` without a key, unless the server is local: that needs none.
        """
        for name in self.keys:
            key = os.environ.get(name, "")
            if not (key.isascii() and key.isprintable() and " " not in key):
                message = f"{name} holds a character that no key has; copy it again"
                raise CommandError(message, Exit.MISSING)
        self.load()
        needless = is_local(base_url or os.environ.get(self.base_url) or self.server)
        placeholder = "none" if needless and not any(map(os.environ.get, self.keys)) else None
        try:
            client = self._make(base_url, key=placeholder)
        except (httpx2.InvalidURL, ValueError) as error:
            message = f"the client cannot be made: {hide_keys(str(error))}"
            raise CommandError(message, Exit.USAGE) from error
        except self.errors as error:  # it found no credentials, or broken ones
            raise self._no_key(error) from error
        # Anthropic's client is made even without a key, and fails when it is called.
        fields = ("api_key", "auth_token", "credentials")
        if self is ANTHROPIC and not any(getattr(client, field, None) for field in fields):
            client.close()
            raise self._no_key()
        return client

    def _make(
        self, base_url: str | None, http: httpx2.Client | None = None, key: str | None = None
    ) -> Any:
        """Make a client from the environment variables, or with `http` one of the simulator."""
        simulated = {"api_key": "simulated", "max_retries": 0, "http_client": http}
        make = getattr(self.load(), self.client)
        return make(base_url=base_url, **(simulated if http else {"api_key": key} if key else {}))

    def _no_key(self, error: Exception | None = None) -> CommandError:
        detail = f" ({hide_keys(str(error))})" if error else ""
        return CommandError(f"no key: set {self.keys[0]}{detail}", Exit.MISSING)


class _GoogleSdk(Sdk):
    """The SDK whose client takes its options in `http_options`."""

    def sample(self, url: str) -> str:
        options = f'api_key="any", http_options={{"base_url": "{url}"}}'
        return f"{self.module}.{self.client}({options})"

    def _make(
        self, base_url: str | None, http: httpx2.Client | None = None, key: str | None = None
    ) -> Any:
        options: dict[str, Any] = {"base_url": base_url} if base_url else {}
        make = self.load().Client
        if http is not None:
            options["httpx_client"] = http
            return make(api_key="simulated", vertexai=False, http_options=options)
        try:
            return make(api_key=key, http_options=options or None)
        except ValueError as error:  # there is no key
            raise self._no_key(error) from error


def is_local(url: str) -> bool:
    """Whether a server is on this machine or in a private network."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_private
    except ValueError:  # a host name
        return host == "localhost" or host.endswith((".localhost", ".local", ".internal"))


ANTHROPIC = Sdk(
    "anthropic",
    "anthropic",
    extra="anthropic",
    client="Anthropic",
    keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    base_url="ANTHROPIC_BASE_URL",
    own_errors=("anthropic:AnthropicError",),
    server="https://api.anthropic.com",
)
OPENAI = Sdk(
    "openai",
    "openai",
    extra="openai",
    client="OpenAI",
    keys=("OPENAI_API_KEY",),
    base_url="OPENAI_BASE_URL",
    own_errors=("openai:OpenAIError",),
    server="https://api.openai.com",
    path="/v1",
)
GOOGLE = _GoogleSdk(
    "google.genai",
    "google-genai",
    extra="google",
    client="Client",
    keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    base_url="GOOGLE_GEMINI_BASE_URL",
    own_errors=("google.genai.errors:APIError", "google.auth.exceptions:GoogleAuthError"),
    server="https://generativelanguage.googleapis.com",
)
SDKS: tuple[Sdk, ...] = (ANTHROPIC, OPENAI, GOOGLE)

# -- what all formats share ----------------------------------------------------------------------

_TOOL = {"name": "Write", "description": "Write a file."}
_FIELDS = {"path": {"type": "string"}, "content": {"type": "string"}}
_SCHEMA = {"type": "object", "properties": _FIELDS, "required": [*_FIELDS]}


@dataclass(frozen=True)
class Prompt:
    """What a model is asked, independent of the format."""

    model: str
    text: str
    limit: int
    """Output limit, in tokens."""
    system: str | None = None
    tool: bool = False
    """Whether it may call `Write`."""


@dataclass(frozen=True)
class OnDelta:
    """Callbacks for the deltas of an answer: visible text, and raw arguments of calls."""

    text: Callable[[str], None]
    arguments: Callable[[str], None] = lambda _: None


CallArguments: TypeAlias = Mapping[str, Any] | str
"""The arguments of a call: a mapping, or raw JSON text where the SDK does not read it."""


class End(NamedTuple):
    """The stop reason of an answer, in the format's own word, and the arguments of its calls."""

    stop: str | None
    calls: Sequence[CallArguments] = ()


class AnswerFailedError(Exception):
    """The stream held an error that the SDK does not raise; `body` is that error."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__()
        self.body = {"type": "error", **body}


@dataclass(frozen=True)
class FormatDriver:
    """One wire format as its SDK speaks it."""

    name: str
    """The name of its dialect."""
    title: str
    sdk: Sdk
    model: str
    """The model to call when none is named."""
    prefixes: tuple[str, ...]
    """Beginnings of the names of models that are called in this format."""
    stop_name: str
    """What the format calls its stop reason."""
    ends: tuple[str, ...]
    """The stop reasons of a whole answer."""
    called: str
    """The stop reason of an answer that calls a tool."""
    body: Callable[[Prompt], dict[str, Any]]
    """Returns the arguments of the SDK's method for a prompt."""
    stream: Callable[[Any, Prompt, OnDelta], End]
    """Sends a prompt by a client of the SDK, passes on each delta, returns how it ended."""
    method: str = ""
    """The attribute of the client that speaks it, as shown to users."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What `stream` can raise."""
        return *self.sdk.errors, AnswerFailedError


def offered() -> tuple[FormatDriver, ...]:
    """Return the formats that have a dialect."""
    return tuple(one for one in FORMATS if one.name in BUILT_IN)


def names() -> list[str]:
    """Return the possible values of `--dialect`."""
    return [one.name for one in offered()]


def choose(name: str | None, model: str) -> FormatDriver | None:
    """Return the named format, or if `name` is None the model's first one; None without any."""
    for one in offered():
        fits = any(spelling.startswith(one.prefixes) for spelling in spellings(model))
        if one.name == name if name else fits:
            return one
    return None


# -- Anthropic -----------------------------------------------------------------------------------


def _message(prompt: Prompt) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": prompt.model,
        "max_tokens": prompt.limit,
        "messages": [{"role": "user", "content": prompt.text}],
    }
    if prompt.system is not None:
        body["system"] = prompt.system
    if prompt.tool:
        body["tools"] = [{**_TOOL, "input_schema": _SCHEMA}]
    return body


def _messages(client: Any, prompt: Prompt, on_delta: OnDelta) -> End:
    with client.messages.stream(**_message(prompt)) as stream:
        for event in stream:
            if event.type == "text":
                on_delta.text(event.text)
            elif event.type == "input_json":
                on_delta.arguments(event.partial_json)
        message = stream.get_final_message()
    calls = [block.input for block in message.content if block.type == "tool_use"]
    return End(message.stop_reason, calls)


# -- OpenAI --------------------------------------------------------------------------------------

_FUNCTION = {**_TOOL, "parameters": _SCHEMA}
_OPENAI_MODELS = ("gpt-", "chatgpt-", "o1", "o3", "o4", "codex-")


def _completion(prompt: Prompt) -> dict[str, Any]:
    system = [] if prompt.system is None else [{"role": "system", "content": prompt.system}]
    # Other servers know only the older name, `max_tokens`, which OpenAI refuses.
    newer = any(name.startswith(_OPENAI_MODELS) for name in spellings(prompt.model))
    body: dict[str, Any] = {
        "model": prompt.model,
        "max_completion_tokens" if newer else "max_tokens": prompt.limit,
        "messages": [*system, {"role": "user", "content": prompt.text}],
    }
    if prompt.tool:
        body["tools"] = [{"type": "function", "function": _FUNCTION}]
    return body


def _chat(client: Any, prompt: Prompt, on_delta: OnDelta) -> End:
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    stop, calls = None, dict[int, str]()
    with client.chat.completions.create(**_completion(prompt), **streamed) as stream:
        for choice in (choice for chunk in stream for choice in chunk.choices or ()):
            stop = choice.finish_reason or stop
            if choice.delta.content:
                on_delta.text(choice.delta.content)
            for call in choice.delta.tool_calls or ():
                piece = (call.function and call.function.arguments) or ""
                calls[call.index] = calls.get(call.index, "") + piece
                on_delta.arguments(piece)
    return End(stop, [*calls.values()])


def _response(prompt: Prompt) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": prompt.model,
        "max_output_tokens": prompt.limit,
        "input": prompt.text,
    }
    if prompt.system is not None:
        body["instructions"] = prompt.system
    if prompt.tool:
        body["tools"] = [{"type": "function", "strict": False, **_FUNCTION}]
    return body


def _responses(client: Any, prompt: Prompt, on_delta: OnDelta) -> End:
    stop, calls = None, list[str]()
    with client.responses.create(**_response(prompt), stream=True) as stream:
        for event in stream:
            match event.type:
                case "response.output_text.delta":
                    on_delta.text(event.delta)
                case "response.function_call_arguments.delta":
                    on_delta.arguments(event.delta)
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


def _content(prompt: Prompt) -> dict[str, Any]:
    config: dict[str, Any] = {"max_output_tokens": prompt.limit}
    if prompt.system is not None:
        config["system_instruction"] = prompt.system
    if prompt.tool:
        declared = [{**_TOOL, "parameters_json_schema": _SCHEMA}]
        config["tools"] = [{"function_declarations": declared}]
    return {"model": prompt.model, "contents": prompt.text, "config": config}


def _gemini(client: Any, prompt: Prompt, on_delta: OnDelta) -> End:
    stop: str | None = None
    calls: list[Mapping[str, Any]] = []
    with contextlib.closing(client.models.generate_content_stream(**_content(prompt))) as chunks:
        for candidate in (candidate for chunk in chunks for candidate in chunk.candidates or ()):
            stop = candidate.finish_reason.value if candidate.finish_reason else stop
            for part in (candidate.content and candidate.content.parts) or ():
                if part.text and not part.thought:
                    on_delta.text(part.text)
                if part.function_call:
                    calls.append(part.function_call.args or {})
                    on_delta.arguments(json.dumps(calls[-1], ensure_ascii=False))
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
        body=_message,
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
        body=_response,
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
        body=_completion,
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
        body=_content,
        stream=_gemini,
    ),
)
