"""Views of a Chat request body that its rules, its answers and the model share."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from continuation.limits import ModelLimits
from continuation.simulator.anthropic.body import Json, items, mapping, objects
from continuation.simulator.model import tokens
from continuation.simulator.openai_chat.vendors import Vendor
from continuation.simulator.scenario import Scenario

_DEPLOYMENT = re.compile(r"/openai/deployments/([^/]+)/")


def messages(body: Json) -> list[Json]:
    return objects(body.get("messages"))


def model_name(body: Json, path: str) -> str:
    """Return the model a request names, in its body or as a deployment in its path."""
    deployment = _DEPLOYMENT.search(path)
    return str(body.get("model") or (deployment[1] if deployment else ""))


def text_of(content: Any) -> str:
    """Return the text of a message's content, a string or parts."""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in objects(content))


def prompt_text(body: Json) -> str:
    """Return what of a request is read by the model, tools and messages, as JSON."""
    return json.dumps([body.get("tools"), body.get("messages")], ensure_ascii=False)


@dataclass(frozen=True)
class Context:
    """A request whose form is right, and whom it asks."""

    body: Json
    path: str
    vendor: Vendor
    model: ModelLimits
    scenario: Scenario

    @property
    def name(self) -> str:
        return model_name(self.body, self.path)

    @cached_property
    def messages(self) -> list[Json]:
        return messages(self.body)

    @cached_property
    def prompt(self) -> int:
        """Tokens of the prompt."""
        return tokens(prompt_text(self.body))

    @property
    def streamed(self) -> bool:
        return self.body.get("stream") is True

    # -- thinking

    @cached_property
    def thinks(self) -> bool:
        """The model may think: it can, and the request does not switch it off."""
        return self.model.thinking != "none" and not any(_switched(self.body, on=False))

    @property
    def reasons(self) -> bool:
        """The model is at it: it always does, the request says so, or the scenario does."""
        asked = self.scenario.thinking != "none" or any(_switched(self.body, on=True))
        return self.model.thinking == "always" or (self.thinks and asked)

    @property
    def restricted(self) -> bool:
        """OpenAI's reasoning models take fewer parameters than its others."""
        return self.vendor.openai and self.model.thinking in ("adaptive", "always")

    # -- the limit

    @property
    def limit_name(self) -> str:
        """The parameter that sets the limit, or would."""
        given = (name for name in self.vendor.limits if self.body.get(name) is not None)
        return next(given, self.vendor.limits[-1])

    @property
    def asked(self) -> int | None:
        """The limit asked for, in tokens."""
        value = self.body.get(self.limit_name)
        return value if isinstance(value, int) else None

    @property
    def limit(self) -> int:
        """The limit that holds, in tokens; a server that refuses none has clamped it."""
        wanted = self.asked or self.vendor.default_limit or self.model.ceiling
        return min(wanted, self.model.ceiling)


def _switched(body: Json, *, on: bool) -> Iterator[bool]:
    """Yield, for each way in which vendors switch thinking, whether the body does so."""
    yield mapping(body.get("thinking")).get("type") == ("enabled" if on else "disabled")
    for holder in (body, mapping(body.get("chat_template_kwargs"))):
        yield holder.get("enable_thinking") is on
        yield holder.get("thinking") is on
    yield mapping(body.get("reasoning")).get("enabled") is on
    efforts = (body.get("reasoning_effort"), mapping(body.get("reasoning")).get("effort"))
    yield any((effort != "none") is on for effort in efforts if isinstance(effort, str))


def stop_words(body: Json) -> list[str]:
    """Return the stop sequences, of which one may stand without a list."""
    given = body.get("stop")
    return [given] if isinstance(given, str) else [str(word) for word in items(given)]
