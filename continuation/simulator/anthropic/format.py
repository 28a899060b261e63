"""Anthropic's Messages API, as the simulated provider speaks it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from continuation.limits import ModelLimits
from continuation.simulator.anthropic.checks import CHECKS, COUNT_CHECKS
from continuation.simulator.anthropic.events import Writer
from continuation.simulator.anthropic.request import Context, input_tokens, input_usage
from continuation.simulator.anthropic.signatures import Signer
from continuation.simulator.common import conversation_key
from continuation.simulator.format import Format
from continuation.simulator.model import Ask, Said
from continuation.simulator.scenario import Reply, Scenario
from continuation.simulator.wire import Answer, Event, Json, Recorded, Refusal, Route
from continuation.wire.json_values import as_list, mapping


class AnthropicFormat(Format[Context]):
    """Serves `/v1/messages` and what belongs to it, under any prefix of the path."""

    checks = CHECKS
    kinds: ClassVar[Mapping[int, str]] = {
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        500: "api_error",
        504: "timeout_error",
        529: "overloaded_error",
    }
    server_kind = "api_error"
    fault_kind = "overloaded_error"
    fault_texts: ClassVar[Mapping[str, str]] = {
        "rate_limit_error": "This request would exceed your account's rate limit. "
        "Please try again later.",
        "overloaded_error": "Overloaded",
        "api_error": "Internal server error",
    }
    error_event = "error"
    id_header = "request-id"
    key_headers = ("x-api-key", "authorization")
    no_key = Refusal("x-api-key header is required", 401)
    no_json = Refusal("The request body is not valid JSON")

    def __init__(self, models: Mapping[str, ModelLimits]) -> None:
        super().__init__(models)
        self._cache: set[bytes] = set()

    def forget(self) -> None:
        self._cache.clear()

    def route(self, method: str, path: str) -> Route | None:
        if method == "POST" and path.endswith("/v1/messages"):
            return "model"
        return "other" if "/v1/messages/" in path or "/v1/models" in path else None

    def context(self, request: Recorded) -> Context:
        name = str((request.body or {}).get("model") or "")
        return Context(request, *self.limits(name, request.scenario))

    def ask(self, request: Recorded) -> Ask:
        context = self.context(request)
        body = context.body
        said: list[Said] = []
        for turn in context.turns:
            results = bool(turn.of("tool_result"))
            said.append(
                Said("assistant" if turn.role == "assistant" else "user", turn.text, results)
            )
        said = said or [Said("user", "")]
        return Ask(
            said,
            int(context.asked),
            context.room(input_tokens(body)),
            [str(word) for word in as_list(body.get("stop_sequences"))],
            context.thinks,
            mapping(body.get("thinking")).get("display") != "omitted",
            conversation_key(body.get("system"), said[0].text),
        )

    def write(self, context: Context, reply: Reply) -> Json | Iterable[Event]:
        usage, sign = input_usage(context.body, self._cache), Signer(context.body).sign
        writer = Writer(reply, self.new_id("msg"), context.name, usage, sign, self.new_id)
        return writer.events() if context.streamed else writer.message()

    # -- errors

    def refused(
        self, refusal: Refusal, request: Recorded, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Write a refusal; its body names the request as the header does."""
        request_id = self.new_id("req")
        body = {**self.error_body(refusal, request.scenario), "request_id": request_id}
        return self.json(refusal.status, body, {self.id_header: request_id, **(headers or {})})

    def error_body(self, refusal: Refusal, scenario: Scenario) -> Any:
        error = {"type": self.kind_of(refusal), "message": refusal.text}
        return {"type": "error", "error": error}

    # -- other endpoints

    def other(self, request: Recorded) -> Answer:
        what, *rest = request.path.rpartition("/v1/")[2].split("/")
        if what == "models" and request.method == "GET" and request.scenario.models_endpoint:
            return self._describe("/".join(rest), request)
        if rest == ["count_tokens"] and request.method == "POST":
            body = request.body  # which needs no limit for that
            if body is not None:
                request = replace(request, body={"max_tokens": 1, **body})
            counted = {"input_tokens": input_tokens(body or {})}
            return self.refuse(request, COUNT_CHECKS) or self.json(200, counted)
        return self.refused(Refusal("Not Found", 404), request)

    def _describe(self, name: str, request: Recorded) -> Answer:
        """Describe a model, or list those the simulator was given."""
        limits, known = self.limits(name, request.scenario)
        if name and not known:
            return self.refused(Refusal(f"model: {name}", 404), request)
        described = [
            {
                "id": each,
                "type": "model",
                "display_name": each,
                "created_at": "1970-01-01T00:00:00Z",
                "lifecycle": "active",
                "max_tokens": facts.ceiling,
                "max_input_tokens": facts.window,
            }
            for each, facts in ({name: limits} if name else self.models).items()
        ]
        if name:
            return self.json(200, described[0])
        names: list[str | None] = [*self.models] or [None]
        page = {"data": described, "has_more": False, "first_id": names[0], "last_id": names[-1]}
        return self.json(200, page)
