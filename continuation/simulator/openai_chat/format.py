"""The simulated Chat Completions API of OpenAI and other vendors, and what they refuse.

A vendor's texts are in its table. If it has no text for a limit or a prefill, it accepts that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import unquote

from continuation.limits import DEFAULT_CEILING, ModelLimits, find
from continuation.simulator.common import conversation_key, merged, text_of
from continuation.simulator.format import GRPC_STATUSES, Format
from continuation.simulator.model import Ask, PromptTurn
from continuation.simulator.openai_chat.events import CREATED, DONE, ChatReplyWriter
from continuation.simulator.openai_chat.request import ChatContext, model_name
from continuation.simulator.openai_chat.rules import faults
from continuation.simulator.openai_chat.vendors import find_vendor
from continuation.simulator.scenario import Reply, Scenario
from continuation.simulator.wire import Answer, Event, Json, Recorded, Refusal, Route
from continuation.wire.json_values import as_int, as_list, mapping

_NO_KEY = "You didn't provide an API key. You need to provide it in an Authorization header."

# -- what is refused

LIMITS = ("max_tokens", "max_completion_tokens")


_FLAGS = (
    *("continue_final_message", "add_generation_prompt"),
    *("thinking", "enable_thinking", "chat_template_kwargs"),
)
"""Parameters of other servers, for continuing a message and for thinking."""


def form(context: ChatContext) -> Iterator[Refusal]:
    """Refuse a limit below one token. The text is OpenAI's."""
    for name in LIMITS:
        value = context.body.get(name)
        if value is not None and (as_int(value) or 0) < 1:
            text = (
                f"Invalid '{name}': integer below minimum value. "
                f"Expected a value >= 1, but got {value} instead."
            )
            yield Refusal(text, code="integer_below_min_value", param=name)


def no_model(name: str) -> Refusal:
    text = f"The model `{name}` does not exist or you do not have access to it."
    return Refusal(text, 404, "invalid_request_error", "model_not_found")


def model_and_flags(context: ChatContext) -> Iterator[Refusal]:
    """Refuse an unknown model. OpenAI also refuses other servers' parameters (`_FLAGS`)."""
    if not context.served:
        yield no_model(context.name)
    if context.vendor.openai:
        for name in _FLAGS:
            if name in context.body:
                yield _unrecognized(name)
        for number, message in enumerate(context.messages):
            for name in ("prefix", "partial"):
                if name in message:
                    text = f"Additional properties are not allowed ('{name}' was unexpected) - "
                    yield Refusal(f"{text}'messages.{number}'")


def unverified() -> Refusal:
    """Return OpenAI's refusal to stream to an organization that is not verified."""
    text = "Your organization must be verified to stream this model."
    return Refusal(text, code="unsupported_value", param="stream")


def parameters(context: ChatContext) -> Iterator[Refusal]:
    """Refuse a limit under a name that the vendor refuses, and `stream_options` if it does so."""
    vendor, options = context.vendor, context.body.get("stream_options")
    if context.streamed and not vendor.streams:
        yield unverified()
    names = [name for name in LIMITS if context.body.get(name) is not None]
    if vendor.refuses_other_limit:
        for name in names:
            if name not in vendor.limits:
                yield _not_taken(context, (name,), context.body[name])
    elif context.restricted and "max_tokens" in names:
        text = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead."
        )
        yield Refusal(text, code="unsupported_parameter", param="max_tokens")
    elif vendor.openai and len(names) == 2:
        yield Refusal(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
            code="invalid_parameter_combination",
        )
    if options is not None and vendor.refuses_stream_options:
        path = ("stream_options", *list(mapping(options))[:1])
        yield _not_taken(context, path, mapping(options).get(path[-1], options))
    elif options is not None and vendor.openai and not context.streamed:
        text = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        yield Refusal(text, param="stream_options")


def _unrecognized(name: str) -> Refusal:
    return Refusal(f"Unrecognized request argument supplied: {name}")


def _not_taken(context: ChatContext, path: tuple[str, ...], value: Any) -> Refusal:
    """Return the refusal of an unknown parameter. Mistral's has the form of a validator's error."""
    if context.vendor.name != "mistral":
        return _unrecognized(path[0])
    text = "Extra inputs are not permitted"
    fault = {"type": "extra_forbidden", "loc": ["body", *path], "msg": text, "input": value}
    return Refusal(text, 422, more={"message": {"detail": [fault]}})


_PLAIN = Refusal("")


def _worded(
    context: ChatContext, what: str, base: Refusal = _PLAIN, **values: object
) -> Iterator[Refusal]:
    """Yield a refusal with the text for `what` in the vendor's table; no text: yield none."""
    text = context.vendor.errors.get(what)
    if text is not None:
        yield replace(base, text=text.format(**values))


def ceiling(context: ChatContext) -> Iterator[Refusal]:
    requested, most, name = context.requested or 0, context.model.ceiling, context.limit_name
    if requested > most:
        code = "invalid_value" if context.vendor.openai else None
        base = Refusal("", code=code, param=name)
        yield from _worded(context, "ceiling", base, name=name, asked=requested, most=most)
    unstreamed = context.vendor.stream_above
    if unstreamed is not None and requested > unstreamed and not context.streamed:
        yield Refusal(f"Requests with max_tokens > {unstreamed} must have stream=true")


def prefill(context: ChatContext) -> Iterator[Refusal]:
    """Refuse a trailing assistant message as the vendor does, with the texts of its table."""
    vendor, last = context.vendor, context.last
    if vendor.prefill == "continue_final_message":
        yield from _template_flags(context)
    if last.get("role") != "assistant":
        return
    if len(context.messages) > 1 and context.messages[-2].get("role") == "assistant":
        yield from _worded(context, "prefill_twice")
    if last.get("tool_calls") and vendor.checked:
        return  # the check of the history refuses it
    limits, content = find(context.name), str(last.get("content"))
    if "claude" in context.name and limits is not None and not limits.prefill:
        yield from _worded(context, "prefill_model")
    if "claude" in context.name and content != content.rstrip():
        yield from _worded(context, "prefill_space")
    if not context.marks_prefill:
        base = Refusal("", kind=vendor.order_type, code=vendor.order_code)
        yield from _worded(context, "trailing", base, model=context.name)
    elif vendor.prefill_path and f"{vendor.prefill_path}/" not in context.request.path:
        yield from _worded(context, "prefill_path")
    elif context.reasons and not last.get("tool_calls"):
        yield from _worded(context, "prefill_thinking")


def _template_flags(context: ChatContext) -> Iterator[Refusal]:
    """Refuse wrong combinations of `continue_final_message` and `add_generation_prompt`."""
    generates = context.body.get("add_generation_prompt")
    if context.marks_prefill and generates is True:
        yield from _worded(context, "both_flags")
    elif context.marks_prefill and generates is None:
        yield from _worded(context, "default_flag")
    elif (
        not context.marks_prefill
        and context.last.get("role") == "assistant"
        and "mistral" in context.name.lower()
    ):
        yield from _worded(context, "trailing_mistral")


def history(context: ChatContext) -> Iterator[Refusal]:
    """Refuse an invalid history. A call without a result is invalid, because the model must answer.

    OpenAI accepts an empty `content`. It accepts null only if another field (`others`) replaces it.
    """
    vendor, messages = context.vendor, context.messages
    others = ("tool_calls", "function_call", "refusal", "audio")
    for number, message in enumerate(messages):
        silent = message.get("content") is None and not any(message.get(each) for each in others)
        if vendor.openai and silent:
            text = "Invalid value for 'content': expected a string, got null."
            yield Refusal(text, param=f"messages.[{number}].content")
    if not vendor.checked:
        return
    for fault in faults(context.body, vendor.name):
        if fault.code not in vendor.tolerates:
            number, *_ = [*fault.where, 0]
            message = messages[number] if number < len(messages) else {}
            param = f"messages.[{number}].role" if vendor.openai else None
            base = Refusal(fault.text, 400, vendor.order_type, vendor.order_code, param)
            named = {"n": number, "id": message.get("tool_call_id", "")}
            yield next(_worded(context, fault.code, base, **named), base)


def window(context: ChatContext) -> Iterator[Refusal]:
    """Refuse a prompt, or a prompt plus limit, above the context window, if the vendor does so."""
    vendor, size, prompt = context.vendor, context.model.window, context.prompt
    if size is None:
        return
    requested = context.requested or 0
    what, room, over = "total", size - requested, prompt + requested > size
    if context.restricted:  # reasoning models also have a limit for the input
        what, room = "input", size - context.model.ceiling
        over = prompt > room > 0
    elif prompt > size and "prompt" in vendor.errors:
        what = "prompt"
    if not over:
        return
    if vendor.understates_prompt:
        prompt = min(prompt, room + 1)
    if vendor.name == "llamacpp":
        more = {"n_prompt_tokens": prompt, "n_ctx": size}
        base = Refusal("", kind="exceed_context_size_error", more=more)
    else:
        base = Refusal("", code=vendor.window_code, param="messages" if vendor.openai else None)
    sizes = {"window": size, "prompt": prompt, "asked": requested, "room": room}
    chars = len(context.prompt_text)
    yield from _worded(context, what, base, **sizes, total=prompt + requested, chars=chars)


class ChatFormat(Format[ChatContext]):
    """Serves `…/chat/completions` and `…/models` with any prefix, like the scenario's vendor."""

    checks = (form, model_and_flags, parameters, ceiling, prefill, history, window)
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
    unlisted = ModelLimits(ceiling=DEFAULT_CEILING, thinking="manual")

    def route(self, method: str, path: str) -> Route | None:
        if path.endswith("/chat/completions"):
            return "model" if method == "POST" else "other"
        return "other" if method == "GET" and _model_path(path) is not None else None

    def context(self, request: Recorded) -> ChatContext:
        return ChatContext(request, *self.limits(model_name(request), request.scenario))

    def ask(self, context: ChatContext) -> Ask:
        stop = context.body.get("stop")
        messages = context.messages
        head = [text_of(m.get("content")) for m in messages if m.get("role") in _INSTRUCTIONS]
        questions = [text_of(m.get("content")) for m in messages if m.get("role") == "user"]
        # Zhipu's word for a generation that failed. vLLM's word is from its issue 31690.
        endings = {"aborted": "network_error"}
        if context.vendor.name == "vllm":
            endings["repeats"] = "repetition"
        return Ask(
            _turns(context),
            context.limit,
            context.room(context.prompt),
            [stop] if isinstance(stop, str) else [str(word) for word in as_list(stop)],
            context.thinks,
            bool(context.vendor.reasoning),
            conversation_key(head, *questions[:1]),
            "completion_tokens",
            endings,
        )

    def write(self, context: ChatContext, reply: Reply) -> Json | Iterable[Event]:
        name, called = self.new_id("chatcmpl", "-"), context.vendor.call_id
        writer = ChatReplyWriter(context, reply, name, lambda: called.format(next(self._numbers)))
        return writer.chunks() if context.streamed else writer.completion()

    def error_body(self, refusal: Refusal, scenario: Scenario) -> Any:
        vendor = find_vendor(scenario.vendor, scenario.quirks)
        code: Any = refusal.code or vendor.error_code
        fields: Json = {
            "message": refusal.text,
            "type": refusal.kind or vendor.error_type,
            "param": refusal.param,
            "code": refusal.status if "status" in (code, *vendor.error_fields) else code,
            "status": GRPC_STATUSES.get(refusal.status, "UNKNOWN"),
        }
        error = {**{name: fields[name] for name in vendor.error_fields}, **refusal.more}
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

    def other(self, request: Recorded) -> Answer:
        """Describe one model. Some vendors report its window or its ceiling."""
        name, scenario = _model_path(request.path), request.scenario
        if not name or not scenario.models_endpoint:
            text = f"Invalid URL ({request.method} {request.path})"
            return self.refused(Refusal(text, 404 if name is not None else 405), request)
        limits, known = self.limits(name, scenario)
        if not known:
            return self.refused(no_model(name), request)
        vendor = find_vendor(scenario.vendor, scenario.quirks)
        model: Json = {"id": name, "object": "model", "created": CREATED, "owned_by": vendor.name}
        sizes = dict.fromkeys(vendor.window_fields, limits.window)
        if vendor.ceiling_field:
            sizes[vendor.ceiling_field.removeprefix("data.")] = limits.ceiling
        for path, size in sizes.items():
            *holders, member = path.split(".")
            target = model
            for holder in holders:
                target = target.setdefault(holder, {})
            target[member] = size
        return self.json(200, model)


_INSTRUCTIONS = ("system", "developer")


def _turns(context: ChatContext) -> list[PromptTurn]:
    """Return the turns as the model reads them. Adjacent messages of one role are one turn.

    If the last turn is a finished assistant turn, the model begins again. In the manner `exact`
    that turn is dropped, because the model would continue it.
    """
    turns: list[PromptTurn] = []
    for message in context.messages:
        text, role = text_of(message.get("content")), message.get("role")
        if role in ("tool", "function"):
            turns.append(PromptTurn("user", "", results=True))
        elif role in ("user", "assistant"):  # system and developer messages are not turns
            turns.append(PromptTurn(str(role), text))
    if context.ending == "finished":
        if context.scenario.manner == "exact" and len(turns) > 1:
            del turns[-1]
        if turns[-1].role == "assistant":
            turns.append(PromptTurn("user", ""))
    elif context.ending == "user":
        turns.append(PromptTurn("user", turns.pop().text))
    return merged(turns) or [PromptTurn("user", "")]


def _model_path(path: str) -> str | None:
    """Return the model that a path describes, or "" for all; None: another path, or Gemini's."""
    before, separator, name = path.partition("/models")
    if not separator or before.endswith("/v1beta") or ":" in name or name[:1] not in ("", "/"):
        return None
    return unquote(name.strip("/"))
