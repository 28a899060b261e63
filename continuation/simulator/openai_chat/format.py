"""OpenAI's Chat Completions API and its many dialects, as the simulated provider speaks them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import unquote

from continuation.limits import DEFAULT_CEILING, ModelLimits
from continuation.simulator.common import conversation_key, merged
from continuation.simulator.format import GRPC_STATUSES, Format
from continuation.simulator.model import Ask, Said
from continuation.simulator.openai_chat.checks import CHECKS, no_model
from continuation.simulator.openai_chat.events import CREATED, DONE, Writer
from continuation.simulator.openai_chat.request import Context, model_name, text_of
from continuation.simulator.openai_chat.vendors import find_vendor
from continuation.simulator.scenario import Reply, Scenario
from continuation.simulator.wire import Answer, Event, Json, Recorded, Refusal, Route
from continuation.wire.json_values import as_list

_NO_KEY = (
    "You didn't provide an API key. You need to provide your API key in an Authorization header "
    "using Bearer auth (i.e. Authorization: Bearer YOUR_KEY), or as the password field (with blank "
    "username) if you're accessing the API from your browser and are prompted for a username and "
    "password. You can obtain an API key from https://platform.openai.com/account/api-keys."
)
_NO_JSON = (
    "We could not parse the JSON body of your request. (HINT: This likely means you aren't using "
    "your HTTP library correctly. The OpenAI API expects a JSON payload, but what was sent was not "
    "valid JSON. If you have trouble figuring out how to fix this, please contact us through our "
    "help center at help.openai.com.)"
)


class ChatFormat(Format[Context]):
    """Serves `…/chat/completions` and `…/models` under any prefix, as the scenario's vendor."""

    checks = CHECKS
    kinds: ClassVar[Mapping[int, str]] = {
        401: "invalid_request_error",
        403: "invalid_request_error",
        429: "rate_limit_exceeded",
        503: "service_unavailable_error",
    }
    fault_texts: ClassVar[Mapping[str, str]] = {
        "rate_limit_exceeded": "Rate limit reached. Please try again later.",
        "": "The server had an error while processing your request. Sorry about that!",
    }
    no_key = Refusal(_NO_KEY, 401, "invalid_request_error")
    no_json = Refusal(_NO_JSON)
    unlisted = ModelLimits(ceiling=DEFAULT_CEILING, thinking="manual")

    def route(self, method: str, path: str) -> Route | None:
        if path.endswith("/chat/completions"):
            return "model" if method == "POST" else "other"
        return "other" if method == "GET" and _model_path(path) is not None else None

    def context(self, request: Recorded) -> Context:
        return Context(request, *self.limits(model_name(request), request.scenario))

    def ask(self, request: Recorded) -> Ask:
        context = self.context(request)
        stop = context.body.get("stop")
        messages = context.messages
        head = [text_of(m.get("content")) for m in messages if m.get("role") in _INSTRUCTIONS]
        asked = [text_of(m.get("content")) for m in messages if m.get("role") == "user"]
        return Ask(
            _turns(context),
            context.limit,
            context.room(context.prompt),
            [stop] if isinstance(stop, str) else [str(word) for word in as_list(stop)],
            context.thinks,
            bool(context.vendor.reasoning),
            conversation_key(head, *asked[:1]),
            "completion_tokens",
        )

    def write(self, context: Context, reply: Reply) -> Json | Iterable[Event]:
        name, called = self.new_id("chatcmpl", "-"), context.vendor.call_id
        writer = Writer(context, reply, name, lambda: called.format(next(self._numbers)))
        return writer.chunks() if context.streamed else writer.completion()

    # -- errors

    def error_body(self, refusal: Refusal, scenario: Scenario) -> Any:
        """Write a refusal in the vendor's shape."""
        vendor = find_vendor(scenario.vendor, scenario.quirks)
        code: Any = refusal.code or vendor.error_code
        known: Json = {
            "message": refusal.text,
            "type": refusal.kind or vendor.error_type,
            "param": refusal.param,
            "code": refusal.status if "status" in (code, *vendor.error_fields) else code,
            "status": GRPC_STATUSES.get(refusal.status, "UNKNOWN"),
        }
        error = {**{name: known[name] for name in vendor.error_fields}, **refusal.more}
        match vendor.error_shape:
            case "flat":
                return {"object": "error", **error}
            case "string":
                return {"code": error["code"], "error": error["message"]}
            case "list":
                return [{"error": error}]
            case _:
                return {"error": error}

    def error_events(self, refusal: Refusal, scenario: Scenario, number: int) -> Sequence[Event]:
        done = [DONE] if scenario.vendor == "vllm" else []
        return [*super().error_events(refusal, scenario, number), *done]

    # -- models

    def other(self, request: Recorded) -> Answer:
        """Tell of one model or of all; some vendors tell a model's window or its ceiling."""
        name, scenario = _model_path(request.path), request.scenario
        if name is None or not scenario.models_endpoint:
            text = f"Invalid URL ({request.method} {request.path})"
            return self.refused(Refusal(text, 404 if name is not None else 405), request)
        limits, known = self.limits(name, scenario)
        if name and not known:
            return self.refused(no_model(name), request)
        vendor, described = find_vendor(scenario.vendor, scenario.quirks), list[Json]()
        for each, facts in ({name: limits} if name else self.models).items():
            model: Json = {"id": each, "object": "model", "created": CREATED}
            model["owned_by"] = vendor.name
            for path, fact in vendor.listed.items():
                *holders, member = path.split(".")
                place = model
                for holder in holders:
                    place = place.setdefault(holder, {})
                place[member] = getattr(facts, fact)
            described.append(model)
        return self.json(200, described[0] if name else {"object": "list", "data": described})


_INSTRUCTIONS = ("system", "developer")


def _turns(context: Context) -> list[Said]:
    """Return the turns as the model sees them; one role in a row is one turn.

    A finished turn that nothing follows is answered afresh: in the manner `exact`, which goes on as
    if it had been asked to, the model does not look at it at all.
    """
    said: list[Said] = []
    for message in context.messages:
        text, role = text_of(message.get("content")), message.get("role")
        if role in ("tool", "function"):
            said.append(Said("user", "", results=True))
        elif role in ("user", "assistant"):  # system and developer: no turn
            said.append(Said("user" if role == "user" else "assistant", text))
    if context.ending == "finished":
        if context.scenario.manner == "exact" and len(said) > 1:
            del said[-1]
        if said[-1].role == "assistant":
            said.append(Said("user", ""))
    elif context.ending == "user":
        said.append(Said("user", said.pop().text))
    return merged(said) or [Said("user", "")]


def _model_path(path: str) -> str | None:
    """Return the model a path asks about, "" for all; None: it is none of ours (Gemini's own)."""
    before, found, name = path.partition("/models")
    if not found or before.endswith("/v1beta") or ":" in name or name[:1] not in ("", "/"):
        return None
    return unquote(name.strip("/"))
