"""A generateContent request: its path, its model, what it says and how far its answer is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from continuation.simulator.common import compact, digest, merged, seal
from continuation.simulator.format import Context as AnyContext
from continuation.simulator.gemini.hops import Progress, Tokens
from continuation.simulator.model import Said, tokens
from continuation.simulator.wire import Json
from continuation.wire.json_values import as_int, mapping, objects

_PATH = re.compile(
    r"/(?P<version>v1|v1beta|v1beta1)/"
    r"(?P<vertex>(?:projects/[^/]+/locations/[^/]+/)?publishers/google/)?"
    r"models/(?P<model>[^/:]+)(?::(?P<verb>\w+))?$"
)
_GENERATION = re.compile(r"gemini-(\d+)(?:\.\d+)?")
_ALIAS = re.compile(r"gemini-(?:flash|flash-lite|pro)-latest$")
_WORD = re.compile(r"(?<=[a-z])([A-Z])")


@dataclass(frozen=True)
class Target:
    """What a path asks of which model; `verb` is empty where it asks about the model itself."""

    version: str
    vertex: bool
    model: str
    verb: str

    @property
    def resource(self) -> str:
        return f"models/{self.model}"


def target(path: str) -> Target | None:
    """Read a path of the Gemini API or of Vertex, under any prefix; None if it is neither."""
    found = _PATH.search(path)
    if found is None:
        return None
    vertex = found["vertex"] is not None
    return Target(found["version"], vertex, unquote(found["model"]), found["verb"] or "")


def is_alias(name: str) -> bool:
    return _ALIAS.match(name) is not None


def get(given: Json, name: str) -> Any:
    """Return a field by its camelCase name; the wire takes snake_case as well."""
    return given.get(name, given.get(_WORD.sub(r"_\1", name).lower()))


def config(body: Json) -> Json:
    return mapping(get(body, "generationConfig"))


def contents(body: Json) -> list[Json]:
    return objects(body.get("contents"))


def parts(content: Json) -> list[Json]:
    return objects(content.get("parts"))


def text_of(part: Json) -> str:
    """Return a part's visible text; thoughts are none."""
    text = part.get("text")
    return text if isinstance(text, str) and not part.get("thought") else ""


def call_of(part: Json) -> Json:
    return mapping(get(part, "functionCall"))


SIGNED_BY = {False: b"SIMG", True: b"SIMV"}
"""How signatures begin of the Gemini API (`False`) and of Vertex, which refuse each other's."""


def sign(part: Json, *, vertex: bool) -> str:
    """Return the signature of a part, which tells a changed part and the service that made it."""
    return seal(SIGNED_BY[vertex], part_digest(part))


def part_digest(part: Json) -> bytes:
    """Digest what of a part is signed: its text, or name and arguments of its call."""
    call = call_of(part)
    return digest([text_of(part), call.get("name"), call.get("args") or {}])


def turns(body: Json) -> list[Said]:
    """Return the conversation as the model reads it; contents of one role in a row are one turn."""
    said: list[Said] = []
    for content in contents(body):
        listed = parts(content)
        results = any(get(part, "functionResponse") is not None for part in listed)
        text = "".join(map(text_of, listed))
        said.append(Said("assistant" if content.get("role") == "model" else "user", text, results))
    return merged(said)


# -- with its model

_PROMPT = ("systemInstruction", "tools", "toolConfig", "cachedContent", "contents")
UNARY_MOST = 32_768
"""Tokens a request without stream may ask for, and bring, of a model that answers in hops."""
HOP_MOST = 65_536
"""Tokens a stream brings before it stops with CONTINUATION."""
_UNSET = 8_192
"""The limit where a request sets none: vendors disagree, so the lowest that is told of."""
_MOST_CANDIDATES = 8


@dataclass(frozen=True)
class Context(AnyContext):
    """A request, where it was sent, and the continuation tokens that were given out before."""

    target: Target
    issued: Tokens

    @property
    def streamed(self) -> bool:
        return self.target.verb == "streamGenerateContent"

    @property
    def vertex(self) -> bool:
        return self.target.vertex

    @property
    def name(self) -> str:
        return self.target.model

    @property
    def generation(self) -> int:
        """The model's generation, as 3 for gemini-3.5-flash; 0 for what is no Gemini."""
        found = _GENERATION.match(self.name)
        return int(found[1]) if found else 3 * is_alias(self.name)

    @property
    def hops(self) -> bool:
        """The answer may take several requests; Vertex knows that in v1beta1 only."""
        old = self.vertex and self.target.version == "v1"
        return self.scenario.tokens and self.generation >= 4 and not old

    @property
    def hop_room(self) -> int | None:
        """Tokens one request brings, or None where the limit alone decides."""
        most = HOP_MOST if self.streamed else UNARY_MOST
        return (self.scenario.hop or most) if self.hops else None

    @cached_property
    def input_tokens(self) -> int:
        """Estimate the input: the four-character tokens of the prompt as JSON."""
        listed = (get(self.body, name) for name in _PROMPT)
        return sum(tokens(compact(value)) for value in listed if value is not None)

    @cached_property
    def conversation(self) -> bytes:
        """Digest what a continuation token is bound to: the model and the whole prompt."""
        return digest([self.name, *(get(self.body, name) for name in _PROMPT)])

    @property
    def ceiling(self) -> int:
        """The largest limit; of a window that is shared, the prompt takes its part."""
        model = self.model
        if model.window is None or not model.window_shared:
            return model.ceiling
        return max(1, min(model.ceiling, model.window - self.input_tokens))

    @property
    def asked(self) -> Any:
        return get(config(self.body), "maxOutputTokens")

    @property
    def limit(self) -> int:
        """The output limit of the whole answer; the Gemini API lowers one that is too large."""
        unset = HOP_MOST if self.generation >= 4 else _UNSET
        return min(unset if self.asked is None else int(self.asked), self.ceiling)

    @property
    def token(self) -> Any:
        return get(self.body, "continuationToken")

    @cached_property
    def progress(self) -> Progress | None:
        """How far the answer is that the request goes on with, if it goes on with one."""
        found = self.issued.find(self.token) if isinstance(self.token, str) else None
        return None if found is None else found[1]

    @property
    def candidates(self) -> int:
        count = as_int(get(config(self.body), "candidateCount")) or 1
        return min(max(1, count), _MOST_CANDIDATES)

    @property
    def thinking(self) -> Json:
        return mapping(get(config(self.body), "thinkingConfig"))

    @property
    def thinks(self) -> bool:
        """Whether the model thinks; where it may be switched off, a budget of 0 does so."""
        budget = get(self.thinking, "thinkingBudget")
        off = budget == 0 or (budget is None and self.model.thinking == "manual")
        return self.model.thinking == "always" or (self.model.thinking != "none" and not off)

    @property
    def shows_thinking(self) -> bool:
        return bool(get(self.thinking, "includeThoughts"))

    @property
    def streams_arguments(self) -> bool:
        """Vertex cuts the arguments of calls into pieces where that is asked for."""
        calling = mapping(get(mapping(get(self.body, "toolConfig")), "functionCallingConfig"))
        return self.streamed and bool(get(calling, "streamFunctionCallArguments"))
