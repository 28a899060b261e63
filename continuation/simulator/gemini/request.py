"""Parses a generateContent request: its path, model, turns, and the progress of its answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from continuation.limits import ModelLimits
from continuation.simulator.common import compact, digest, merged, seal
from continuation.simulator.format import Context
from continuation.simulator.gemini.hops import Progress
from continuation.simulator.model import PromptTurn, tokens
from continuation.simulator.wire import Json, Recorded
from continuation.wire.json_values import as_int, mapping, objects

_PATH = re.compile(
    r"/(?P<version>v1|v1beta|v1beta1)/"
    r"(?P<vertex>(?:projects/[^/]+/locations/[^/]+/)?publishers/google/)?"
    r"models/(?P<model>[^/:]+)(?::(?P<verb>\w+))?$"
)
_GENERATION = re.compile(r"gemini-(\d+)(?:\.\d+)?")
_WORD = re.compile(r"(?<=[a-z])([A-Z])")


@dataclass(frozen=True)
class Target:
    """The parts of a path. `verb` is empty if the path is for the model's description."""

    version: str
    vertex: bool
    model: str
    verb: str


def target(path: str) -> Target | None:
    """Parse a path of the Gemini API or of Vertex, with any prefix; None if it is neither."""
    match = _PATH.search(path)
    if match is None:
        return None
    vertex = match["vertex"] is not None
    return Target(match["version"], vertex, unquote(match["model"]), match["verb"] or "")


def get(fields: Json, name: str) -> Any:
    """Return a field by its camelCase name. In the request its name may be in snake_case."""
    return fields.get(name, fields.get(_WORD.sub(r"_\1", name).lower()))


def contents(body: Json) -> list[Json]:
    return objects(body.get("contents"))


def parts(content: Json) -> list[Json]:
    return objects(content.get("parts"))


def text_of(part: Json) -> str:
    """Return a part's visible text, or `""` for a thought or a part without text."""
    text = part.get("text")
    return text if isinstance(text, str) and not part.get("thought") else ""


def call_of(part: Json) -> Json:
    return mapping(get(part, "functionCall"))


SIGNED_BY = {False: b"SIMG", True: b"SIMV"}
"""The first bytes of signatures of Vertex (`True`) and the Gemini API. Each refuses the other's."""


def sign(part: Json, *, vertex: bool) -> str:
    """Return a part's signature: a digest of its content, with the mark of the service."""
    return seal(SIGNED_BY[vertex], part_digest(part))


def part_digest(part: Json) -> bytes:
    """Return a digest of a part's signed fields: its text, or its call's name and arguments."""
    call = call_of(part)
    return digest([text_of(part), call.get("name"), call.get("args") or {}])


def turns(body: Json) -> list[PromptTurn]:
    """Return the conversation as turns. Adjacent contents of one role are one turn."""
    prompt_turns: list[PromptTurn] = []
    for content in contents(body):
        listed = parts(content)
        results = any(get(part, "functionResponse") is not None for part in listed)
        role = "assistant" if content.get("role") == "model" else "user"
        prompt_turns.append(PromptTurn(role, "".join(map(text_of, listed)), results))
    return merged(prompt_turns)


# -- with its model

_PROMPT = ("systemInstruction", "tools", "toolConfig", "cachedContent", "contents")
UNARY_MOST = 32_768
"""The largest limit, and output, in tokens of a body from a model that answers in hops."""
HOP_MOST = 65_536
"""The tokens of a stream before it stops with CONTINUATION."""
_UNSET = 8_192
"""The limit in tokens if a request sets none: the lowest of the different reported values."""
_MOST_CANDIDATES = 8


class GeminiContext(Context):
    """A request, the target of its path, and the continuation tokens issued so far."""

    def __init__(
        self,
        request: Recorded,
        model: ModelLimits,
        known: bool,
        parsed: Target,
        issued: dict[str, tuple[bytes, Progress]],
    ) -> None:
        super().__init__(request, model, known)
        self.target, self._issued = parsed, issued
        self.vertex, self.name = parsed.vertex, parsed.model
        self.streamed = parsed.verb == "streamGenerateContent"
        match = _GENERATION.match(self.name)
        #: 3 for gemini-3.5-flash and the `-latest` names; 0 for a model that is not Gemini.
        self.generation = int(match[1]) if match else 3 * self.name.endswith("-latest")
        # The input tokens are estimated from the prompt as JSON, four characters each.
        prompt = [get(self.body, name) for name in _PROMPT]
        self.input_tokens = sum(tokens(compact(value)) for value in prompt if value is not None)

        # Whether an answer may need several requests. On Vertex only v1beta1 supports that.
        old = self.vertex and parsed.version == "v1"
        self.hops = self.scenario.tokens and self.generation >= 4 and not old
        #: The most output tokens of one request; None: only the limit bounds it.
        self.hop_room: int | None = None
        if self.hops:
            self.hop_room = self.scenario.hop or (HOP_MOST if self.streamed else UNARY_MOST)
        #: A digest of the model and the complete prompt, to which a continuation token is bound.
        self.conversation = digest([self.name, *prompt])
        self.token: Any = get(self.body, "continuationToken")
        #: The conversation and the progress of the answer that the token continues; None: this
        #: simulator did not issue the token. It may be in either alphabet of Base64.
        self.continued: tuple[bytes, Progress] | None = None
        if isinstance(self.token, str):
            self.continued = issued.get(self.token.translate(str.maketrans("-_", "+/")))

        self.config = mapping(get(self.body, "generationConfig"))
        self.requested: Any = get(self.config, "maxOutputTokens")
        #: The largest limit in tokens. It is lower if the prompt needs much of a shared window.
        self.ceiling = model.ceiling
        if model.window is not None and model.window_shared:
            self.ceiling = max(1, min(model.ceiling, model.window - self.input_tokens))
        count = as_int(get(self.config, "candidateCount")) or 1
        self.candidates = min(max(1, count), _MOST_CANDIDATES)
        thinking = mapping(get(self.config, "thinkingConfig"))
        budget = get(thinking, "thinkingBudget")
        off = budget == 0 or (budget is None and model.thinking == "manual")
        self.thinks = model.thinking == "always" or (model.thinking != "none" and not off)
        self.shows_thinking = bool(get(thinking, "includeThoughts"))
        # Vertex streams the arguments of calls in pieces if the request says so.
        calling = mapping(get(mapping(get(self.body, "toolConfig")), "functionCallingConfig"))
        cut = bool(get(calling, "streamFunctionCallArguments"))
        self.streams_arguments = self.streamed and cut

    @property
    def limit(self) -> int:
        """The output limit of the complete answer in tokens, at most the ceiling."""
        unset = HOP_MOST if self.generation >= 4 else _UNSET
        return min(unset if self.requested is None else int(self.requested), self.ceiling)

    def issue(self, progress: Progress) -> str:
        """Return the token of a position in the answer. One position always has the same token."""
        state = [progress.thought, progress.output, progress.begun, progress.text]
        token = seal(b"SIMT", digest([self.conversation.hex(), state]))
        self._issued[token] = self.conversation, progress
        return token
