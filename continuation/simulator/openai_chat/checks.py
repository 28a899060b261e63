"""What a Chat server refuses, where it has to do with limits, models, prefill or the conversation.

What a vendor says is in its table; a limit or an end for which it has no words is not refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from continuation.history import validate
from continuation.limits import find
from continuation.simulator.common import by_rank, numbers_in
from continuation.simulator.format import Check
from continuation.simulator.openai_chat.request import Context
from continuation.simulator.wire import Refusal
from continuation.wire.json_values import as_int, is_list, mapping

LIMITS = ("max_tokens", "max_completion_tokens")


_FLAGS = (
    *("continue_final_message", "add_generation_prompt"),
    *("thinking", "enable_thinking", "chat_template_kwargs"),
)
"""How other servers are told to go on from a message, or to think."""


def form(context: Context) -> Iterator[Refusal]:
    """Want a model, messages and limits of one token or more; the texts are OpenAI's."""
    if not context.name:
        yield Refusal("you must provide a model parameter")
    given = context.body.get("messages")
    if given is None:
        text = "Missing required parameter: 'messages'."
        yield Refusal(text, code="missing_required_parameter", param="messages")
    elif not is_list(given) or len(context.messages) != len(given):
        text = "Invalid type for 'messages': expected an array of objects."
        yield Refusal(text, code="invalid_type", param="messages")
    elif not given:
        text = (
            "Invalid 'messages': empty array. Expected an array with minimum length 1, "
            "but got an empty array instead."
        )
        yield Refusal(text, code="empty_array", param="messages")
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


def model_and_flags(context: Context) -> Iterator[Refusal]:
    """OpenAI refuses the ways in which others are told to go on, and to think."""
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


def parameters(context: Context) -> Iterator[Refusal]:
    """Want the limit by its name of this vendor, and `stream_options` where it has them."""
    vendor, options = context.vendor, context.body.get("stream_options")
    given = [name for name in LIMITS if context.body.get(name) is not None]
    if vendor.refuses_other_limit:
        for name in given:
            if name not in vendor.limits:
                yield _not_taken(context, (name,), context.body[name])
    elif context.restricted and "max_tokens" in given:
        text = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead."
        )
        yield Refusal(text, code="unsupported_parameter", param="max_tokens")
    elif vendor.openai and len(given) == 2:
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


def _not_taken(context: Context, path: tuple[str, ...], value: Any) -> Refusal:
    """Refuse a parameter this host does not have; Mistral says so as its validator does."""
    if context.vendor.name != "mistral":
        return _unrecognized(path[0])
    text = "Extra inputs are not permitted"
    fault = {"type": "extra_forbidden", "loc": ["body", *path], "msg": text, "input": value}
    return Refusal(text, 422, more={"message": {"detail": [fault]}})


_PLAIN = Refusal("")


def _says(
    context: Context, what: str, as_: Refusal = _PLAIN, **values: object
) -> Iterator[Refusal]:
    """Refuse in the words that the vendor's table has for `what`; not at all if it has none."""
    text = context.vendor.errors.get(what)
    if text is not None:
        yield replace(as_, text=text.format(**values))


def ceiling(context: Context) -> Iterator[Refusal]:
    asked, most, name = context.asked or 0, context.model.ceiling, context.limit_name
    if asked > most:
        code = "invalid_value" if context.vendor.openai else None
        as_ = Refusal("", code=code, param=name)
        yield from _says(context, "ceiling", as_, name=name, asked=asked, most=most)
    unstreamed = context.vendor.stream_above
    if unstreamed is not None and asked > unstreamed and not context.streamed:
        yield Refusal(f"Requests with max_tokens > {unstreamed} must have stream=true")


def prefill(context: Context) -> Iterator[Refusal]:
    """Refuse an end that the vendor does not take, in the words its table has for it."""
    vendor, last = context.vendor, context.last
    if vendor.prefill == "continue_final_message":
        yield from _template_flags(context)
    if last.get("role") != "assistant":
        return
    if len(context.messages) > 1 and context.messages[-2].get("role") == "assistant":
        yield from _says(context, "prefill_twice")
    if last.get("tool_calls") and vendor.checked:
        return  # the rules of histories have more to say of it
    known = find(context.name)
    if "claude" in context.name and known is not None and not known.prefill:
        yield from _says(context, "prefill_model")
    if not context.marks_prefill:
        as_ = Refusal("", kind=vendor.order_type, code=vendor.order_code)
        yield from _says(context, "trailing", as_, model=context.name)
    elif vendor.prefill_path and f"{vendor.prefill_path}/" not in context.request.path:
        yield from _says(context, "prefill_path")
    elif context.reasons and not last.get("tool_calls"):
        yield from _says(context, "prefill_thinking")


def _template_flags(context: Context) -> Iterator[Refusal]:
    """Check the two flags that rule a template's end: one is set, the other taken back."""
    generates = context.body.get("add_generation_prompt")
    if context.marks_prefill and generates is True:
        yield from _says(context, "both_flags")
    elif context.marks_prefill and generates is None:
        yield from _says(context, "default_flag")
    elif (
        not context.marks_prefill
        and context.last.get("role") == "assistant"
        and "mistral" in context.name.lower()
    ):
        yield from _says(context, "trailing_mistral")


# Tool results first: a broken pair is what the others look for first.
_ORDER = """
    message_invalid role_invalid message_foreign tool_calls_empty tool_use_id_invalid
    tool_result_id_missing tool_use_duplicate_id tool_result_missing tool_result_displaced
    tool_result_orphan tool_result_duplicate
"""
_ELSEWHERE = ("last_not_user", "roles_not_alternating")
"""Looked at with the end of the request, or by nobody."""


def history(context: Context) -> Iterator[Refusal]:
    """Refuse what `validate` finds; it is about to be answered, so no call is live.

    OpenAI takes an empty content and no null, where nothing else stands in its place.
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
    found = validate(context.body, "openai-chat", live=False, vendor=vendor.name)
    for violation in by_rank(found, _ORDER):
        if violation.code not in (*_ELSEWHERE, *vendor.tolerates):
            number, *_ = [*numbers_in(violation.path), 0]
            message = messages[number] if number < len(messages) else {}
            place = f"messages.[{number}].role" if vendor.openai else None
            as_ = Refusal(violation.message, 400, vendor.order_type, vendor.order_code, place)
            named = {"n": number, "id": message.get("tool_call_id", "")}
            yield next(_says(context, violation.code, as_, **named), as_)


def window(context: Context) -> Iterator[Refusal]:
    """Compare prompt, and prompt with limit, to the window, as far as the vendor does."""
    vendor, size, prompt = context.vendor, context.model.window, context.prompt
    if size is None:
        return
    asked = context.asked or 0
    what, room, over = "total", size - asked, prompt + asked > size
    if context.restricted:  # reasoning models have an input limit, beside that of the output
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
        as_ = Refusal("", kind="exceed_context_size_error", more=more)
    else:
        as_ = Refusal("", code=vendor.window_code, param="messages" if vendor.openai else None)
    sizes = {"window": size, "prompt": prompt, "asked": asked, "room": room}
    chars = len(context.prompt_text)
    yield from _says(context, what, as_, **sizes, total=prompt + asked, chars=chars)


CHECKS: tuple[Check[Context], ...] = (
    *(form, model_and_flags, parameters, ceiling),
    *(prefill, history, window),
)
