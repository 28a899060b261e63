"""Each peer of `peers.py`, used as its own documentation says; runs where that peer is installed.

    python tests/benchmarks/peer_adapters.py PEER    # tasks in, results out, as lines of JSON

No peer knows what it is tried with: it gets a URL, a wire format, and what to ask for. `peers.py`
says which setting each one has, and where that is written.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pydantic import BaseModel

MODELS = {
    "messages": "claude-sonnet-5",
    "chat": "gpt-5.4",
    "responses": "gpt-5.4",
    "gemini": "gemini-2.5-flash",
}
BACKUPS = {**MODELS, "messages": "claude-sonnet-4-5", "gemini": "gemini-2.5-pro"}
BACKUPS |= {"chat": "gpt-5.5", "responses": "gpt-5.5"}
"""Whom a peer may fall back on."""

PROMPTS = {"text": "Recite it.", "call": "Write the file.", "document": "The document, please."}
THANKS = "Thank you. Once more, in one line."
ROUNDS = 8
"""Requests after which a loop of ours gives up, whoever's client it asks."""
KEY, SAVED = "sk-of-nobody", "saved-all-of-it"
"""What everyone is asked with; what the tool returns, by which the model sees that it ran."""


def module(name: str) -> Any:
    """Import what is there in this peer's environment alone."""
    return importlib.import_module(name)


class Document(BaseModel):
    """What structured output is asked for as."""

    title: str
    lines: list[str]


class Write(BaseModel):
    """Write a file."""

    path: str
    content: str


@dataclass
class Task:
    """What to ask whom for; `ceiling`: the most the model writes, as its provider documents it."""

    url: str
    form: str
    kind: str
    stream: bool
    limit: int
    ceiling: int


@dataclass
class Call:
    """A call as the peer hands it over: its arguments are JSON text, or read already."""

    id: str
    name: str
    arguments: Any


Done: TypeAlias = tuple[Call, str, bool]
"""A call that was run, what came of it, whether that is an error."""


@dataclass
class Said:
    """An answer as the peer hands it over; `cut`: it says that it was cut."""

    text: str = ""
    cut: bool = False
    calls: list[Call] = field(default_factory=list)
    document: Any = None
    turn: list[Any] = field(default_factory=list)
    """What its user appends to the conversation."""


class Tool:
    """The tool, and what it was run with."""

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []

    def write(self, path: str, content: str) -> str:
        """Write a file."""
        self.runs.append({"path": path, "content": content})
        return SAVED

    def call(self, call: Call) -> tuple[str, bool]:
        """Run a call; what goes wrong in it is told to the model, as every vendor's guide says."""
        try:
            given = call.arguments
            return self.write(**(json.loads(given) if isinstance(given, str) else given)), False
        except (TypeError, ValueError) as error:
            return f"{type(error).__name__}: {error}", True


# --- the SDKs: one class per format, asked the same way ------------------------------------------


class Messages:
    """anthropic."""

    schema = Write.model_json_schema()

    def __init__(self, url: str, wrap: Callable[[Any], Any]) -> None:
        anthropic = module("anthropic")
        self.client = wrap(anthropic.Anthropic(base_url=url, api_key=KEY))

    def ask(self, turns: list[Any], task: Task, limit: int) -> Said:
        asked = {"model": MODELS["messages"], "max_tokens": limit, "messages": turns}
        if task.kind == "call":
            tool = {"name": "Write", "description": "Write a file.", "input_schema": self.schema}
            asked["tools"] = [tool]
        if task.kind == "document":
            asked["output_format"] = Document
        if task.stream:
            with self.client.messages.stream(**asked) as stream:
                message = stream.get_final_message()
        elif task.kind == "document":
            message = self.client.messages.parse(**asked)
        else:
            message = self.client.messages.create(**asked)
        # The guide's loop runs what comes with this stop reason.
        runs = message.stop_reason == "tool_use"
        calls = [Call(b.id, b.name, b.input) for b in message.content if b.type == "tool_use"]
        return Said(
            "".join(block.text for block in message.content if block.type == "text"),
            message.stop_reason in (None, "max_tokens", "model_context_window_exceeded"),
            calls if runs else [],
            getattr(message, "parsed_output", None),
            [{"role": "assistant", "content": message.content}],
        )

    def user(self, said: Any) -> list[Any]:
        return [{"role": "user", "content": said}]

    def results(self, done: list[Done]) -> list[Any]:
        kind = "tool_result"
        return self.user(
            [
                {"type": kind, "tool_use_id": call.id, "content": said, "is_error": wrong}
                for call, said, wrong in done
            ]
        )


class Chat(Messages):
    """openai, Chat Completions."""

    def __init__(self, url: str, wrap: Callable[[Any], Any]) -> None:
        self.openai = module("openai")
        self.client = wrap(self.openai.OpenAI(base_url=f"{url}/v1", api_key=KEY))

    def ask(self, turns: list[Any], task: Task, limit: int) -> Said:
        asked = {"model": MODELS["chat"], "max_completion_tokens": limit, "messages": turns}
        if task.kind == "call":
            asked["tools"] = [self.openai.pydantic_function_tool(Write)]
        if task.kind == "document":
            asked["response_format"] = Document
        completions = self.client.chat.completions
        if task.stream and task.kind != "document":
            return chunks_said(completions.create(**asked, stream=True))
        if task.stream:
            with completions.stream(**asked) as stream:
                completion = stream.get_final_completion()
        else:
            ask = completions.parse if task.kind == "document" else completions.create
            completion = ask(**asked)
        (choice,) = completion.choices
        calls = choice.message.tool_calls or []
        return chat_said(
            choice.message.content or "",
            choice.finish_reason,
            [Call(call.id, call.function.name, call.function.arguments) for call in calls],
            getattr(choice.message, "parsed", None),
        )

    def results(self, done: list[Done]) -> list[Any]:
        return [{"role": "tool", "tool_call_id": c.id, "content": said} for c, said, _ in done]


def chunks_said(chunks: Any) -> Said:
    """Add chunks up, as the guides to streaming and to function calling do."""
    text, stop, calls = "", None, dict[int, Call]()
    for choice in (choice for chunk in chunks for choice in chunk.choices):
        text, stop = text + (choice.delta.content or ""), choice.finish_reason or stop
        for piece in choice.delta.tool_calls or []:
            call = calls.setdefault(piece.index, Call(piece.id, piece.function.name, ""))
            call.arguments += piece.function.arguments or ""
    return chat_said(text, stop, list(calls.values()))


def chat_said(text: str, stop: str | None, calls: list[Call], document: Any = None) -> Said:
    """Return what was said, and the message that says it in the next request."""
    turn: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        functions = [{"name": call.name, "arguments": call.arguments} for call in calls]
        turn["tool_calls"] = [
            {"id": call.id, "type": "function", "function": function}
            for call, function in zip(calls, functions, strict=True)
        ]
    return Said(text, stop in (None, "length"), calls, document, [turn])


class Responses(Messages):
    """openai, Responses."""

    def __init__(self, url: str, wrap: Callable[[Any], Any]) -> None:
        openai = module("openai")
        self.client = wrap(openai.OpenAI(base_url=f"{url}/v1", api_key=KEY))

    def ask(self, turns: list[Any], task: Task, limit: int) -> Said:
        asked = {"model": MODELS["responses"], "max_output_tokens": limit, "input": turns}
        if task.kind == "call":
            schema = {**Write.model_json_schema(), "additionalProperties": False}
            tool = {"type": "function", "name": "Write", "strict": True, "parameters": schema}
            asked["tools"] = [tool]
        if task.kind == "document":
            asked["text_format"] = Document
        if task.stream and task.kind != "document":
            events = self.client.responses.create(**asked, stream=True)
            ends = ("response.completed", "response.incomplete", "response.failed")
            (response,) = [event.response for event in events if event.type in ends]
        elif task.stream:
            with self.client.responses.stream(**asked) as stream:
                response = stream.get_final_response()
        elif task.kind == "document":
            response = self.client.responses.parse(**asked)
        else:
            response = self.client.responses.create(**asked)
        called = [item for item in response.output if item.type == "function_call"]
        return Said(
            response.output_text,
            response.status != "completed",
            [Call(item.call_id, item.name, item.arguments) for item in called],
            getattr(response, "output_parsed", None),
            list(response.output),
        )

    def results(self, done: list[Done]) -> list[Any]:
        kind = "function_call_output"
        return [{"type": kind, "call_id": call.id, "output": said} for call, said, _ in done]


class Gemini:
    """google-genai."""

    def __init__(self, url: str, wrap: Callable[[Any], Any]) -> None:
        genai = module("google.genai")
        self.types = module("google.genai.types")
        retries = self.types.HttpRetryOptions(attempts=3)
        options = self.types.HttpOptions(  # the version that LiteLLM's proxy serves as well
            base_url=url, api_version="v1beta", retry_options=retries
        )
        self.client = wrap(genai.Client(api_key=KEY, http_options=options))

    def ask(self, turns: list[Any], task: Task, limit: int) -> Said:
        types, asked = self.types, dict[str, Any](max_output_tokens=limit)
        if task.kind == "call":
            declared = types.FunctionDeclaration(
                name="Write",
                description="Write a file.",
                parameters_json_schema=Write.model_json_schema(),
            )
            asked["tools"] = [types.Tool(function_declarations=[declared])]
        if task.kind == "document":
            asked |= {"response_mime_type": "application/json", "response_schema": Document}
        config = types.GenerateContentConfig(**asked)
        request = {"model": MODELS["gemini"], "contents": turns, "config": config}
        models, document = self.client.models, None
        if task.stream:
            chunks = list(models.generate_content_stream(**request))
        else:
            chunks = [models.generate_content(**request)]
            document = chunks[0].parsed if task.kind == "document" else None
        candidates = [one for chunk in chunks for one in chunk.candidates or []]
        contents = [one.content for one in candidates if one.content]
        parts = [part for content in contents for part in content.parts or []]
        stops = [one.finish_reason for one in candidates if one.finish_reason]
        calls = [part.function_call for part in parts if part.function_call]
        text = "".join(part.text for part in parts if part.text and not part.thought)
        if task.stream and task.kind == "document":
            document = Document.model_validate_json(text)
        return Said(
            text,
            not stops or stops[-1] == types.FinishReason.MAX_TOKENS,
            [Call(call.id, call.name, call.args or {}) for call in calls],
            document,
            [types.Content(role="model", parts=parts)],
        )

    def user(self, text: str) -> list[Any]:
        return [self.types.UserContent(parts=[self.types.Part(text=text)])]

    def results(self, done: list[Done]) -> list[Any]:
        parts = [
            self.types.Part(
                function_response=self.types.FunctionResponse(
                    id=call.id, name=call.name, response={"error" if wrong else "output": said}
                )
            )
            for call, said, wrong in done
        ]
        return [self.types.UserContent(parts=parts)]


FORMATS: dict[str, Any] = {
    "messages": Messages,
    "chat": Chat,
    "responses": Responses,
    "gemini": Gemini,
}


class Sdk:
    """The loop of the vendors' guides around their clients: run the calls, send the results."""

    def __init__(self, task: Task, wrap: Callable[[Any], Any] = lambda client: client) -> None:
        self.task, self.tool, self.turns = task, Tool(), list[Any]()
        self.chat = self.make(task, wrap)

    def make(self, task: Task, wrap: Callable[[Any], Any]) -> Any:
        return FORMATS[task.form](task.url, wrap)

    def answer(self) -> Said:
        self.turns += self.chat.user(PROMPTS[self.task.kind])
        for _ in range(ROUNDS):
            said = self.ask()
            self.turns += said.turn
            if not said.calls:
                return said
            done = [(call, *self.tool.call(call)) for call in said.calls]
            self.turns += self.chat.results(done)
        raise RuntimeError(f"no answer after {ROUNDS} requests")

    def ask(self) -> Said:
        said: Said = self.chat.ask(self.turns, self.task, self.task.limit)
        return said

    def follow(self) -> None:
        self.turns += self.chat.user(THANKS)
        self.chat.ask(self.turns, self.task, self.task.limit)


class Naive(Sdk):
    """The same, and what is cut is gone on with, as one writes it who has read the stop reasons.

    Text is appended and the model asked to continue; whatever cannot be appended, a call, a
    document, thinking alone, an error, is asked for again with four times the limit.
    """

    def ask(self) -> Said:
        text, limit, tries = "", self.task.limit, 0
        for _ in range(ROUNDS):
            try:
                said: Said = self.chat.ask(self.turns, self.task, limit)
            except Exception:
                if (tries := tries + 1) > 2:
                    raise
                limit = min(limit * 4, self.task.ceiling)
                continue
            text += said.text
            if not said.cut:
                said.text = text
                return said
            if self.task.kind == "text" and said.text:
                self.turns += [*said.turn, *self.chat.user("Please continue.")]
            elif (tries := tries + 1) > 2:
                return said
            else:
                text, limit = "", min(limit * 4, self.task.ceiling)
        return said


class Ours(Sdk):
    """The vendors' loop around a client that was wrapped."""

    def make(self, task: Task, wrap: Callable[[Any], Any]) -> Any:
        return super().make(task, module("continuation").wrap)


class OursTuned(Sdk):
    """The same, with every policy that heals more, and an error where nothing heals."""

    def make(self, task: Task, wrap: Callable[[Any], Any]) -> Any:
        continuation = module("continuation")
        policy = continuation.Policy(
            truncated_tool_call="complete",
            complete_seams="any",
            truncated_document="complete",
            less_thinking=True,
            on_failure="raise",
        )
        return super().make(task, lambda client: continuation.wrap(client, config=policy))


# --- LiteLLM -------------------------------------------------------------------------------------


def router_settings(url: str) -> dict[str, Any]:
    """Say which model is where, and what is done when one fails: for the library and the proxy."""
    models, fallbacks = list[Any](), list[Any]()
    for form, prefix, path in (
        ("messages", "anthropic/", ""),
        ("chat", "openai/", "/v1"),
        ("responses", "openai/responses/", "/v1"),
        ("gemini", "gemini/", "/v1beta"),
    ):
        for name in (MODELS[form], BACKUPS[form]):
            place = {"model": prefix + name, "api_base": url + path, "api_key": KEY}
            alias = f"responses-{name}" if form == "responses" else name
            models.append({"model_name": alias, "litellm_params": place})
        first, second = (entry["model_name"] for entry in models[-2:])
        fallbacks.append({first: [second]})
    more = {"num_retries": 2, "enable_mid_stream_fallback_continuation": True}
    return {"model_list": models, "fallbacks": fallbacks, **more}


class LiteLLMChat(Chat):
    """LiteLLM's router: every format in the shape of Chat."""

    def __init__(self, task: Task) -> None:
        self.litellm, self.loop = module("litellm"), asyncio.new_event_loop()
        self.litellm.suppress_debug_info = True
        self.openai = module("openai")
        self.router = self.litellm.Router(**router_settings(task.url))
        name = MODELS[task.form]
        self.model = f"responses-{name}" if task.form == "responses" else name

    def ask(self, turns: list[Any], task: Task, limit: int) -> Said:
        said: Said = self.loop.run_until_complete(self._ask(turns, task, limit))
        return said

    async def _ask(self, turns: list[Any], task: Task, limit: int) -> Said:
        asked = {"model": self.model, "max_tokens": limit, "messages": turns}
        if task.kind == "call":
            asked["tools"] = [self.openai.pydantic_function_tool(Write)]
        if task.kind == "document":
            asked["response_format"] = Document
        answer = await self.router.acompletion(**asked, stream=task.stream)
        if task.stream:
            said = chunks_said([chunk async for chunk in answer])
        else:
            (choice,) = answer.choices
            calls = choice.message.tool_calls or []
            said = chat_said(
                choice.message.content or "",
                choice.finish_reason,
                [Call(call.id, call.function.name, call.function.arguments) for call in calls],
            )
        if task.kind == "document":
            said.document = Document.model_validate_json(said.text)
        return said


class LiteLLM(Sdk):
    """The same loop around LiteLLM's router."""

    def make(self, task: Task, wrap: Callable[[Any], Any]) -> Any:
        return LiteLLMChat(task)


# --- pydantic-ai ---------------------------------------------------------------------------------


class PydanticAI:
    """An agent, with a second model to fall back on."""

    def __init__(self, task: Task) -> None:
        self.task, self.tool, self.history = task, Tool(), list[Any]()
        self.loop = asyncio.new_event_loop()
        pydantic_ai = module("pydantic_ai")
        capabilities = module("pydantic_ai.capabilities")
        backup = capabilities.ModelFallback(self.model(BACKUPS[task.form]))
        output = pydantic_ai.NativeOutput(Document) if task.kind == "document" else str
        self.agent = pydantic_ai.Agent(
            self.model(MODELS[task.form]),
            model_settings={"max_tokens": task.limit},
            output_type=output,
            tools=[pydantic_ai.Tool(self.tool.write, name="Write")] if task.kind == "call" else [],
            retries=2,
            capabilities=[backup],
        )

    def model(self, name: str) -> Any:
        vendor, model = {
            "messages": ("anthropic", "AnthropicModel"),
            "chat": ("openai", "OpenAIChatModel"),
            "responses": ("openai", "OpenAIResponsesModel"),
            "gemini": ("google", "GoogleModel"),
        }[self.task.form]
        providers = module(f"pydantic_ai.providers.{vendor}")
        make = {"anthropic": "Anthropic", "openai": "OpenAI", "google": "Google"}[vendor]
        url = self.task.url + ("/v1" if vendor == "openai" else "")
        provider = getattr(providers, f"{make}Provider")(api_key=KEY, base_url=url)
        models = module(f"pydantic_ai.models.{vendor}")
        return getattr(models, model)(name, provider=provider)

    def run(self, prompt: str) -> Any:
        async def drain(_: Any, events: Any) -> None:
            async for _event in events:
                pass

        more = {"event_stream_handler": drain} if self.task.stream else {}
        asked = self.agent.run(prompt, message_history=self.history, **more)
        return self.loop.run_until_complete(asked)

    def answer(self) -> Said:
        result = self.run(PROMPTS[self.task.kind])
        self.history = result.all_messages()
        said = Said(cut=result.response.finish_reason == "length")
        if self.task.kind == "document":
            said.document = result.output
        else:
            said.text = result.output
        return said

    def follow(self) -> None:
        self.run(THANKS)


# --- LangChain -----------------------------------------------------------------------------------


class LangChain:
    """An agent, with the middleware that tries a failed model call again."""

    def __init__(self, task: Task) -> None:
        self.task, self.tool, self.history = task, Tool(), list[Any]()
        agents = module("langchain.agents")
        middleware = module("langchain.agents.middleware")
        tools = module("langchain_core.tools")
        structured = module("langchain.agents.structured_output")
        write = tools.StructuredTool.from_function(
            self.tool.write, name="Write", description="Write a file."
        )
        shape = structured.ProviderStrategy(Document) if task.kind == "document" else None
        self.agent = agents.create_agent(
            self.model(),
            tools=[write] if task.kind == "call" else [],
            response_format=shape,
            middleware=[
                middleware.ModelRetryMiddleware(max_retries=2, on_failure="error"),
                middleware.ModelCallLimitMiddleware(run_limit=ROUNDS, exit_behavior="error"),
            ],
        )

    def model(self) -> Any:
        form, url = self.task.form, self.task.url
        asked = {"model": MODELS[form], "max_tokens": self.task.limit, "api_key": KEY}
        if form == "messages":
            return module("langchain_anthropic").ChatAnthropic(**asked, base_url=url)
        if form == "gemini":
            make = module("langchain_google_genai").ChatGoogleGenerativeAI
            return make(**asked, base_url=url)
        asked |= {"base_url": f"{url}/v1", "use_responses_api": form == "responses"}
        return module("langchain_openai").ChatOpenAI(**asked)

    def run(self, prompt: str) -> Any:
        asked = {"messages": [*self.history, {"role": "user", "content": prompt}]}
        if not self.task.stream:
            return self.agent.invoke(asked)
        states = self.agent.stream(asked, stream_mode=["messages", "values"])
        return [state for mode, state in states if mode == "values"][-1]

    def answer(self) -> Said:
        state = self.run(PROMPTS[self.task.kind])
        self.history = state["messages"]
        last = self.history[-1]
        told = last.response_metadata
        stop = told.get("stop_reason") or told.get("finish_reason") or told.get("status")
        cut = stop in ("max_tokens", "length", "incomplete", "MAX_TOKENS")
        return Said(last.text, cut, document=state.get("structured_response"))

    def follow(self) -> None:
        self.run(THANKS)


# --- instructor ----------------------------------------------------------------------------------


class Instructor:
    """A response model, asked for again by the decorator that its page on retrying begins with."""

    kinds = ("document",)

    def __init__(self, task: Task) -> None:
        self.task, self.tool = task, Tool()
        instructor = module("instructor")
        vendor, patch, mode = {
            "messages": ("anthropic", "from_anthropic", "TOOLS"),
            "chat": ("openai", "from_openai", "TOOLS"),
            "responses": ("openai", "from_openai", "RESPONSES_TOOLS"),
            "gemini": ("gemini", "from_genai", "GENAI_STRUCTURED_OUTPUTS"),
        }[task.form]
        plain = FORMATS["chat" if vendor == "openai" else task.form]
        client = plain(task.url, lambda client: client).client
        self.client = getattr(instructor, patch)(client, mode=getattr(instructor.Mode, mode))

    def ask(self) -> Any:
        asked: dict[str, Any] = {
            "model": MODELS[self.task.form],
            "messages": [{"role": "user", "content": PROMPTS["document"]}],
            "response_model": Document,
            "max_retries": 2,
        }
        if self.task.form == "gemini":
            types = module("google.genai.types")
            asked["config"] = types.GenerateContentConfig(max_output_tokens=self.task.limit)
        else:
            names = {"chat": "max_completion_tokens", "responses": "max_output_tokens"}
            asked[names.get(self.task.form, "max_tokens")] = self.task.limit
        if not self.task.stream:
            return self.client.create(**asked)
        return list(self.client.create_partial(**asked))[-1]

    def answer(self) -> Said:
        tenacity = module("tenacity")
        wait = tenacity.wait_exponential(multiplier=0.1)
        again = tenacity.retry(stop=tenacity.stop_after_attempt(3), wait=wait, reraise=True)
        return Said(document=again(self.ask)())

    follow = None  # its user has a model, and no conversation


PEERS: dict[str, Any] = {
    "sdk": Sdk,
    "naive": Naive,
    "litellm": LiteLLM,
    "proxy": Sdk,
    "pydantic-ai": PydanticAI,
    "instructor": Instructor,
    "langchain": LangChain,
    "ours": Ours,
    "ours-tuned": OursTuned,
}


def tried(action: Callable[[], Any]) -> tuple[Any, str]:
    """Return what comes of it, and its error in words."""
    try:
        return action(), ""
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"[:300]


def results(peer: str, lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Do one task after the other: the answer, then the next request if it is asked for."""
    asker: Any = None
    for line in lines:
        wanted = json.loads(line)
        if wanted == "follow":
            yield {"error": tried(asker.follow)[1]}
            continue
        asker = PEERS[peer](Task(**wanted))
        began = time.perf_counter()
        said, error = tried(asker.answer)
        seconds = time.perf_counter() - began
        said = said or Said()
        document = said.document
        yield {
            "text": said.text,
            "document": document.model_dump() if isinstance(document, BaseModel) else document,
            "cut": said.cut,
            "runs": asker.tool.runs,
            "error": error,
            "seconds": seconds,
            "follows": not error and asker.follow is not None,
        }


def main() -> None:
    """Answer on what was standard output; what libraries print there goes to standard error."""
    os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", LANGSMITH_TRACING="false")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for result in results(sys.argv[1], iter(sys.stdin.readline, "")):
        print(json.dumps(result), file=out, flush=True)


if __name__ == "__main__":
    main()
