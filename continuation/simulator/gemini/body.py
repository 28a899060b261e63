"""Views of a generateContent request, its path and its model, that everything Gemini's shares."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from continuation.simulator.anthropic.body import Json, mapping, objects
from continuation.simulator.cost import compact
from continuation.simulator.model import Said, tokens

_PATH = re.compile(
    r"/(?P<version>v1|v1beta|v1beta1)/"
    r"(?P<vertex>(?:projects/[^/]+/locations/[^/]+/)?publishers/google/)?"
    r"models/(?P<model>[^/:]+)(?::(?P<verb>\w+))?$"
)
_GENERATION = re.compile(r"gemini-(\d+)(?:\.\d+)?")
_ALIAS = re.compile(r"gemini-(?:flash|flash-lite|pro)-latest$")
_GOOGLE = re.compile(r"gem|learnlm")
_WORD = re.compile(r"(?<=[a-z])([A-Z])")


@dataclass(frozen=True)
class Target:
    """What a path asks of which model; `verb` is empty where it asks about the model itself."""

    version: str
    vertex: bool
    model: str
    verb: str

    @property
    def streams(self) -> bool:
        return self.verb == "streamGenerateContent"

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


def is_google(name: str) -> bool:
    """Tell by its name whose a model is, where the path is the same for several providers."""
    return _GOOGLE.match(name) is not None


def is_alias(name: str) -> bool:
    return _ALIAS.match(name) is not None


def generation(name: str) -> int:
    """Return the model's generation, as 3 for gemini-3.5-flash; 0 for what is no Gemini."""
    found = _GENERATION.match(name)
    return int(found[1]) if found else 3 * is_alias(name)


def get(given: Json, name: str) -> Any:
    """Return a field by its camelCase name; the wire takes snake_case as well."""
    return given.get(name, given.get(snake(name)))


def snake(name: str) -> str:
    return _WORD.sub(r"_\1", name).lower()


def config(body: Json) -> Json:
    return mapping(get(body, "generationConfig"))


def contents(body: Json) -> list[Json]:
    return objects(body.get("contents"))


def parts(content: Json) -> list[Json]:
    return objects(content.get("parts"))


def placed_parts(body: Json) -> Iterator[tuple[int, int, Json]]:
    """Yield every part with the numbers of its content and of itself."""
    for n, content in enumerate(contents(body)):
        yield from ((n, m, part) for m, part in enumerate(parts(content)))


def text_of(part: Json) -> str:
    """Return a part's visible text; thoughts are none."""
    text = part.get("text")
    return text if isinstance(text, str) and not part.get("thought") else ""


def call_of(part: Json) -> Json:
    return mapping(get(part, "functionCall"))


def signature_of(part: Json) -> str | None:
    signature = get(part, "thoughtSignature")
    return signature if isinstance(signature, str) and signature else None


def turns(body: Json) -> list[Said]:
    """Return the conversation as the model reads it; contents of one role in a row are one turn."""
    found: list[Said] = []
    for content in contents(body):
        said = _said(content)
        if found and found[-1].role == said.role:
            before = found.pop()
            said = Said(said.role, before.text + said.text, before.results or said.results)
        found.append(said)
    return found


def _said(content: Json) -> Said:
    listed = parts(content)
    results = any(get(part, "functionResponse") is not None for part in listed)
    text = "".join(map(text_of, listed))
    return Said("assistant" if content.get("role") == "model" else "user", text, results)


_CONVERSATION = ("systemInstruction", "tools", "toolConfig", "cachedContent", "contents")


def conversation(target: Target, body: Json) -> bytes:
    """Digest what a continuation token is bound to: the model and the whole prompt."""
    return digest([target.model, *(get(body, name) for name in _CONVERSATION)])


def input_tokens(body: Json) -> int:
    """Estimate the input: the four-character tokens of the prompt as JSON."""
    listed = (get(body, name) for name in _CONVERSATION)
    return sum(tokens(compact(value)) for value in listed if value is not None)


def digest(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).digest()[:18]
