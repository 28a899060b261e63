"""What a Chat server refuses by vendor, model, history or size."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

from continuation.history import Violation, validate
from continuation.simulator.anthropic.body import Json, mapping
from continuation.simulator.openai_chat import prefill, texts
from continuation.simulator.openai_chat.body import Context, prompt_text
from continuation.simulator.openai_chat.errors import Refusal
from continuation.simulator.openai_chat.shape import LIMITS, says_json

Check = Callable[[Context], Iterator[Refusal]]

_OPENAI_PARAMETERS = (
    "messages model audio frequency_penalty function_call functions logit_bias logprobs "
    "max_completion_tokens max_tokens metadata modalities moderation n parallel_tool_calls "
    "prediction presence_penalty prompt_cache_key prompt_cache_options prompt_cache_retention "
    "reasoning_effort response_format safety_identifier seed service_tier stop store stream "
    "stream_options temperature tool_choice tools top_logprobs top_p user verbosity "
    "web_search_options"
)


def first_refusal(context: Context) -> Refusal | None:
    """Return the first check the request fails."""
    return next(chain.from_iterable(check(context) for check in CHECKS), None)


# -- parameters


def unknown_parameters(context: Context) -> Iterator[Refusal]:
    """OpenAI takes no parameter it does not know, nor the members others want on a message."""
    if not context.vendor.openai:
        return
    known = _OPENAI_PARAMETERS.split()
    for name in context.body:
        if name not in known:
            yield _unrecognized(name)
    for number, message in enumerate(context.messages):
        for name in ("prefix", "partial"):
            if name in message:
                text = f"Additional properties are not allowed ('{name}' was unexpected) - "
                yield Refusal(f"{text}'messages.{number}'")


def limit_parameter(context: Context) -> Iterator[Refusal]:
    given = [name for name in LIMITS if context.body.get(name) is not None]
    if context.vendor.refuses_others:
        for name in given:
            if name not in context.vendor.limits:
                yield _not_taken(context, (name,), context.body[name])
    elif context.restricted and "max_tokens" in given:
        yield _unsupported("max_tokens", " Use 'max_completion_tokens' instead.")
    elif context.vendor.openai and len(given) == 2:
        yield Refusal(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
            code="invalid_parameter_combination",
        )


def reasoning_parameters(context: Context) -> Iterator[Refusal]:
    if not context.restricted:
        return
    if context.body.get("stop") is not None:
        yield _unsupported("stop")
    for name in ("temperature", "top_p"):
        value = context.body.get(name)
        if value is not None and value != 1:
            text = (
                f"Unsupported value: '{name}' does not support {json.dumps(value)} with this "
                "model. Only the default (1) value is supported."
            )
            yield Refusal(text, code="unsupported_value", param=name)


def stream_options(context: Context) -> Iterator[Refusal]:
    options = context.body.get("stream_options")
    if options is None:
        return
    if not context.vendor.takes_stream_options:
        path = ("stream_options", *list(mapping(options))[:1])
        yield _not_taken(context, path, mapping(options).get(path[-1], options))
    elif context.vendor.openai and not context.streamed:
        text = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        yield Refusal(text, param="stream_options")


def json_mode(context: Context) -> Iterator[Refusal]:
    kind = mapping(context.body.get("response_format")).get("type")
    if context.vendor.openai and kind == "json_object" and not says_json(context.body):
        text = (
            "'messages' must contain the word 'json' in some form, to use 'response_format' of "
            "type 'json_object'."
        )
        yield Refusal(text, param="messages")


def _unsupported(name: str, remedy: str = "") -> Refusal:
    text = f"Unsupported parameter: '{name}' is not supported with this model.{remedy}"
    return Refusal(text, code="unsupported_parameter", param=name)


def _unrecognized(name: str) -> Refusal:
    return Refusal(f"Unrecognized request argument supplied: {name}")


def _not_taken(context: Context, path: tuple[str, ...], value: Any) -> Refusal:
    """Refuse a parameter this host does not have; Mistral says so as its validator does."""
    if context.vendor.name != "mistral":
        return _unrecognized(path[0])
    text = "Extra inputs are not permitted"
    fault = {"type": "extra_forbidden", "loc": ["body", *path], "msg": text, "input": value}
    return Refusal(text, 422, message={"detail": [fault]})


# -- sizes


def ceiling(context: Context) -> Iterator[Refusal]:
    asked, most = context.asked, context.model.ceiling
    if asked is not None and asked > most and context.vendor.ceiling is not None:
        name = context.limit_name
        text = context.vendor.ceiling.format(name=name, asked=asked, most=most)
        code = "invalid_value" if context.vendor.openai else None
        yield Refusal(text, code=code, param=name)


def long_body(context: Context) -> Iterator[Refusal]:
    most = context.vendor.stream_above
    if most is not None and (context.asked or 0) > most and not context.streamed:
        yield Refusal(f"Requests with max_tokens > {most} must have stream=true")


def window(context: Context) -> Iterator[Refusal]:
    """Compare prompt, and prompt with limit, to the window, as far as the vendor does."""
    size = context.model.window
    if size is None:
        return
    if context.restricted:
        yield from _input_window(context, size - context.model.ceiling)
        return
    prompt, asked = context.prompt, context.asked or 0
    if prompt > size and context.vendor.prompt is not None:
        yield _too_long(context, context.vendor.prompt, size - asked)
    elif prompt + asked > size and context.vendor.total is not None:
        yield _too_long(context, context.vendor.total, size - asked)


def _input_window(context: Context, room: int) -> Iterator[Refusal]:
    """OpenAI's reasoning models have an input limit of their own, beside that of the output."""
    if context.prompt > room > 0:
        yield _too_long(context, texts.OPENAI_REASONING_PROMPT, room)


def _too_long(context: Context, text: str, room: int) -> Refusal:
    vendor, asked = context.vendor, context.asked or 0
    prompt = min(context.prompt, room + 1) if vendor.stops_counting else context.prompt
    told = text.format(
        window=context.model.window,
        prompt=prompt,
        asked=asked,
        total=prompt + asked,
        room=room,
        chars=len(prompt_text(context.body)),
    )
    if vendor.name == "llamacpp":
        more = {"n_prompt_tokens": prompt, "n_ctx": context.model.window}
        return Refusal(told, kind="exceed_context_size_error", more=more)
    param = "messages" if vendor.openai else None
    return Refusal(told, code=vendor.window_code, param=param)


# -- history

_ORDER = (  # tool results first: a broken pair is what the others look for first
    "message_invalid",
    "role_invalid",
    "message_foreign",
    "tool_calls_empty",
    "tool_use_id_invalid",
    "tool_result_id_missing",
    "tool_use_duplicate_id",
    "tool_result_missing",
    "tool_result_displaced",
    "tool_result_orphan",
    "tool_result_duplicate",
)
_ELSEWHERE = frozenset({"last_not_user", "roles_not_alternating"})
"""Looked at with the end of the request, or by nobody."""
_TOLERATED: Mapping[str, frozenset[str]] = {
    "openai": frozenset({"message_empty"}),
    "azure": frozenset({"message_empty"}),
}
_WORDINGS: Mapping[tuple[str, str], str] = {
    ("moonshot", "reasoning_missing"): "thinking is enabled but reasoning_content is missing in "
    "assistant tool call message at index {n}",
    ("moonshot", "message_empty"): "Invalid request: the message at position {n} with role "
    "'assistant' must not be empty",
    ("moonshot", "tool_result_orphan"): "Invalid request: tool_call_id {id} is not found",
    ("mistral", "tool_result_missing"): texts.MISTRAL_COUNT,
    ("mistral", "tool_result_orphan"): texts.MISTRAL_COUNT,
}


def history(context: Context) -> Iterator[Refusal]:
    """Refuse what `validate` finds; it is about to be answered, so no call is live."""
    if not context.vendor.checks_history:
        return
    vendor = context.vendor.name
    found = validate(context.body, "openai-chat", live=False, vendor=vendor)
    skipped = _ELSEWHERE | _TOLERATED.get(vendor, frozenset())
    for violation in sorted(found, key=_rank):
        if violation.code not in skipped:
            yield _broken(context, violation)


def _broken(context: Context, violation: Violation) -> Refusal:
    vendor, (number, *_) = context.vendor.name, [*_numbers(violation.path), 0]
    wording = _WORDINGS.get((vendor, violation.code))
    message = context.messages[number] if number < len(context.messages) else {}
    text = _worded(wording, number, message) if wording else violation.message
    if vendor == "mistral":
        return Refusal(text, kind="invalid_request_message_order", code="3230")
    return Refusal(text, param=f"messages.[{number}].role" if context.vendor.openai else None)


def _worded(wording: str, number: int, message: Json) -> str:
    return wording.format(n=number, id=message.get("tool_call_id", ""))


def _rank(violation: Violation) -> tuple[int, list[int]]:
    """Of several faults, the one that is looked for first is named, then the foremost."""
    code = violation.code
    rank = _ORDER.index(code) if code in _ORDER else len(_ORDER)
    return rank, _numbers(violation.path)


def _numbers(path: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path)]


CHECKS: tuple[Check, ...] = (
    unknown_parameters,
    limit_parameter,
    reasoning_parameters,
    stream_options,
    ceiling,
    long_body,
    json_mode,
    prefill.refusals,
    history,
    window,
)
