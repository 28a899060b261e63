"""Runs one turn of generateContent through the SDK of Google."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from google import genai
from google.genai import types
from google.oauth2.credentials import Credentials

from continuation import Policy
from continuation.simulator import Raw, Simulator
from support.drive_gemini import OPENED
from support.sdks.turn import FAST, How, Turn, body_of, play

Door = Literal["models", "chats"]
DOORS: tuple[Door, ...] = ("models", "chats")

NEW = "gemini-3.6-flash"
"""Takes no prefill and gives no tokens; ceiling 65,536."""
OLD = "gemini-3.1-pro"
"""Takes a prefill; ceiling 65,536."""
LONG = "gemini-4-argon"
"""Answers in hops and gives tokens; 1,048,576 tokens shared with the prompt."""
CEILING = 65_536
ASKED = "Go."
HALF = Raw(OPENED)


@dataclass
class Ran(Turn):
    """A turn of generateContent, by one of the two ways that the SDK has."""

    door: Door = "models"
    vertex: bool = False
    chat: Any = None

    def connect(self, url: str, *, asynchronous: bool) -> genai.Client:
        return connect(url, vertex=self.vertex, retries=self.retries)

    def create(self, client: Any, request: dict[str, Any]) -> Any:
        if self.door == "chats":
            return self._chat(client, request).send_message(request["contents"])
        return client.models.generate_content(**request)

    def stream(self, client: Any, request: dict[str, Any]) -> Any:
        if self.door == "chats":
            return self._chat(client, request).send_message_stream(request["contents"])
        return client.models.generate_content_stream(**request)

    def ended(self, stream: Any) -> None:
        """Return nothing: this SDK does not put the chunks of a stream together."""

    def _chat(self, client: Any, request: dict[str, Any]) -> Any:
        self.chat = client.chats.create(model=request["model"], config=request["config"])
        return self.chat

    @property
    def chunks(self) -> list[types.GenerateContentResponse]:
        """The chunks of a stream, or the one response."""
        return self.pieces if self.answer is None else [self.answer]

    @property
    def history(self) -> list[types.Content]:
        """What a chat would send next time."""
        return [] if self.chat is None else self.chat.get_history(curated=True)

    @property
    def parts(self) -> list[types.Part]:
        assert self.error is None, self.error
        contents = (c.candidates[0].content for c in self.chunks if c.candidates)
        return [part for content in contents if content for part in content.parts or []]

    @property
    def text(self) -> str:
        return "".join(part.text or "" for part in self.parts if not part.thought)

    @property
    def calls(self) -> list[types.FunctionCall]:
        return [part.function_call for part in self.parts if part.function_call]

    @property
    def says_cut(self) -> bool:
        assert len(self.reasons) == 1, "an answer ends once"
        return self.reasons != ["STOP"]

    @property
    def tool_calls(self) -> list[tuple[str, Any]]:
        return [(call.name or "", call.args) for call in self.calls]

    def following(self, request: dict[str, Any]) -> dict[str, Any]:
        results = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=call.id, name=call.name, response={"output": "ok"}
                )
            )
            for call in self.calls
        ]
        parts = [part for part in self.parts if part.model_dump(exclude_none=True)]
        before = request["contents"]
        if isinstance(before, str):
            before = [types.Content(role="user", parts=[types.Part(text=before)])]
        said = [types.Content(role="model", parts=parts)] if parts else []
        more = types.Content(role="user", parts=results or [types.Part(text="And then?")])
        return {**request, "contents": [*before, *said, more]}

    @property
    def reasons(self) -> list[str]:
        """All finish reasons that were sent."""
        candidates = (c.candidates[0] for c in self.chunks if c.candidates)
        return [c.finish_reason.value for c in candidates if c.finish_reason]

    @property
    def usage(self) -> types.GenerateContentResponseUsageMetadata:
        usage = [chunk.usage_metadata for chunk in self.chunks if chunk.usage_metadata][-1]
        assert usage is not None
        return usage


def connect(sim: Simulator | str, *, vertex: bool = False, retries: int = 0) -> genai.Client:
    again = types.HttpRetryOptions(attempts=retries + 1, initial_delay=0) if retries else None
    url = sim if isinstance(sim, str) else sim.url
    options = types.HttpOptions(base_url=url, retry_options=again)
    if not vertex:
        return genai.Client(api_key="key", http_options=options)
    token = Credentials("token")  # type: ignore[no-untyped-call]
    return genai.Client(
        vertexai=True, project="p", location="l", credentials=token, http_options=options
    )


def run(
    sim: Simulator,
    how: How,
    *,
    door: Door = "models",
    policy: Policy = FAST,
    model: str = NEW,
    limit: int | None = 1000,
    contents: Any = ASKED,
    vertex: bool = False,
    **config: Any,
) -> Ran:
    """Run one turn against the simulator."""
    settings = {"max_output_tokens": limit, **config}
    request = {"model": model, "contents": contents, "config": settings}
    return play(Ran(door=door, vertex=vertex), how, sim, request, policy)


def limits(sim: Simulator) -> list[int | None]:
    """Return the limits of the model calls, in order."""
    configs = (body_of(post).get("generationConfig", {}) for post in sim.posts)
    return [config.get("maxOutputTokens") for config in configs]


def speakers(ran: Ran) -> list[str]:
    """Return the role of each content in a chat's history."""
    return [content.role or "" for content in ran.history]
