"""Parses a Chat request: its messages, its settings, and how the vendor interprets its end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Literal

from continuation.limits import ModelLimits
from continuation.simulator.format import Context
from continuation.simulator.model import tokens
from continuation.simulator.openai_chat.vendors import find_vendor
from continuation.simulator.wire import Json, Recorded
from continuation.wire.json_values import as_int, mapping, objects

Ending = Literal["open", "prefill", "finished", "user"]
"""`open`: the last message is the user's. `user`: the server treats it as the user's."""
_DEPLOYMENT = re.compile(r"/openai/deployments/([^/]+)/")


def model_name(request: Recorded) -> str:
    """Return the model of a request, from its body or the deployment in its path, or `""`."""
    deployment = _DEPLOYMENT.search(request.path)
    return str((request.body or {}).get("model") or (deployment[1] if deployment else ""))


class ChatContext(Context):
    """A Chat request, its vendor, and whether the model thinks.

    `thinks`: whether the model may think: it can, and the request does not turn thinking off.
    `reasons`: whether it thinks: always, or because the request or the scenario says so.
    `restricted`: whether it is a reasoning model of OpenAI, which has another parameter for the
    limit, and a limit for the input.
    """

    def __init__(self, request: Recorded, model: ModelLimits, known: bool) -> None:
        super().__init__(request, model, known)
        body, self.name = self.body, model_name(request)
        self.vendor = vendor = find_vendor(self.scenario.vendor, self.scenario.quirks)
        self.streamed = body.get("stream") is True
        self.messages = objects(body.get("messages"))
        self.last = self.messages[-1] if self.messages else {}
        #: The prompt as JSON: tools and messages.
        self.prompt_text = json.dumps([body.get("tools"), body.get("messages")], ensure_ascii=False)
        self.prompt = tokens(self.prompt_text)

        self.thinks = model.thinking != "none" and not any(_switched(body, on=False))
        wanted = self.scenario.thinking != "none" or any(_switched(body, on=True))
        self.reasons = model.thinking == "always" or (self.thinks and wanted)
        self.restricted = vendor.openai and model.thinking in ("adaptive", "always")

        names = (name for name in vendor.limits if body.get(name) is not None)
        #: The name of the limit in the request, or the name by which it would be set.
        self.limit_name = next(names, vendor.limits[-1])
        self.requested = as_int(body.get(self.limit_name))
        # A server that refuses no limit lowers it to the ceiling.
        self.limit = min(self.requested or vendor.default_limit or model.ceiling, model.ceiling)

    @property
    def marks_prefill(self) -> bool:
        """Whether a trailing assistant message is marked as a prefill, or needs no mark."""
        vendor = self.vendor
        if vendor.prefill in ("prefix", "partial"):
            return self.last.get(vendor.prefill) is True
        if vendor.prefill == "continue_final_message":
            return self.body.get("continue_final_message") is True
        return vendor.prefill == "bare" or vendor.trailing_answer == "continued"

    @property
    def ending(self) -> Ending:
        """How the model interprets the end of a request that was not refused."""
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
    """Yield for each vendor's parameter whether the body turns thinking on (or off)."""
    yield mapping(body.get("thinking")).get("type") == ("enabled" if on else "disabled")
    for holder in (body, mapping(body.get("chat_template_kwargs"))):
        yield holder.get("enable_thinking") is on
        yield holder.get("thinking") is on
    yield mapping(body.get("reasoning")).get("enabled") is on
    efforts = (body.get("reasoning_effort"), mapping(body.get("reasoning")).get("effort"))
    yield any((effort != "none") is on for effort in efforts if isinstance(effort, str))
