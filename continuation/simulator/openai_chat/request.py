"""A Chat request: what it says, what it asks of the model, how the vendor takes its end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from continuation.simulator.format import Context as AnyContext
from continuation.simulator.model import tokens
from continuation.simulator.openai_chat.vendors import SimulatedVendor, find_vendor
from continuation.simulator.wire import Json, Recorded
from continuation.wire.json_values import as_int, mapping, objects

Ending = Literal["open", "prefill", "finished", "user"]
"""`open`: the user spoke last. `user`: the server takes the last message for the user's."""
_DEPLOYMENT = re.compile(r"/openai/deployments/([^/]+)/")


def model_name(request: Recorded) -> str:
    """Return the model a request names, in its body or as a deployment in its path."""
    deployment = _DEPLOYMENT.search(request.path)
    return str((request.body or {}).get("model") or (deployment[1] if deployment else ""))


def text_of(content: Any) -> str:
    """Return the text of a message's content, a string or parts."""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in objects(content))


@dataclass(frozen=True)
class Context(AnyContext):
    """A Chat request, and whom it asks."""

    @property
    def name(self) -> str:
        return model_name(self.request)

    @cached_property
    def vendor(self) -> SimulatedVendor:
        return find_vendor(self.scenario.vendor, self.scenario.quirks)

    @cached_property
    def messages(self) -> list[Json]:
        return objects(self.body.get("messages"))

    @property
    def last(self) -> Json:
        return self.messages[-1] if self.messages else {}

    @cached_property
    def prompt_text(self) -> str:
        """What of a request is read by the model, tools and messages, as JSON."""
        read = [self.body.get("tools"), self.body.get("messages")]
        return json.dumps(read, ensure_ascii=False)

    @property
    def prompt(self) -> int:
        """Tokens of the prompt."""
        return tokens(self.prompt_text)

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
        """OpenAI's reasoning models take another limit, and have an input limit of their own."""
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
        return as_int(self.body.get(self.limit_name))

    @property
    def limit(self) -> int:
        """The limit that holds, in tokens; a server that refuses none has clamped it."""
        wanted = self.asked or self.vendor.default_limit or self.model.ceiling
        return min(wanted, self.model.ceiling)

    # -- the end

    @property
    def marks_prefill(self) -> bool:
        """Whether a trailing assistant message is marked as a prefill, or needs no mark for it."""
        vendor = self.vendor
        if vendor.prefill in ("prefix", "partial"):
            return self.last.get(vendor.prefill) is True
        if vendor.prefill == "continue_final_message":
            return self.body.get("continue_final_message") is True
        return vendor.prefill == "bare" or vendor.trailing_answer == "continued"

    @property
    def ending(self) -> Ending:
        """How the model will understand the end of a request that was not refused."""
        if self.last.get("role") != "assistant":
            return "open"
        if self.last.get("tool_calls"):
            return "finished"
        bare = self.vendor.prefill in ("bare", "none")
        passed_on = self.vendor.name == "openrouter" and self.name.startswith("openai/")
        if self.marks_prefill and not (bare and (self.reasons or passed_on)):
            return "prefill"
        return "user" if self.vendor.trailing_answer == "user" else "finished"


def _switched(body: Json, *, on: bool) -> Iterator[bool]:
    """Yield, for each way in which vendors switch thinking, whether the body does so."""
    yield mapping(body.get("thinking")).get("type") == ("enabled" if on else "disabled")
    for holder in (body, mapping(body.get("chat_template_kwargs"))):
        yield holder.get("enable_thinking") is on
        yield holder.get("thinking") is on
    yield mapping(body.get("reasoning")).get("enabled") is on
    efforts = (body.get("reasoning_effort"), mapping(body.get("reasoning")).get("effort"))
    yield any((effort != "none") is on for effort in efforts if isinstance(effort, str))
