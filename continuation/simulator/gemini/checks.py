"""What Gemini refuses, in the words of the Gemini API and of Vertex.

Texts are the provider's own, as quoted in public bug reports or known from its answers; those said
to be ours follow its manner. What makes a history invalid is told by `continuation.history`, so
that a repair is tested against the very rules it is made for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from continuation.history import Violation, validate
from continuation.limits import ModelLimits
from continuation.simulator.anthropic.body import Json, items, mapping, objects
from continuation.simulator.gemini import signatures
from continuation.simulator.gemini.body import (
    Target,
    config,
    contents,
    conversation,
    generation,
    get,
    input_tokens,
    parts,
    snake,
)
from continuation.simulator.gemini.hops import Progress, Tokens

UNARY_MOST = 32_768
"""Tokens a request without stream may ask for, and bring, of a model that answers in hops."""
HOP_MOST = 65_536
"""Tokens a stream brings before it stops with CONTINUATION."""
_UNSET = 8_192
"""The limit where a request sets none: vendors disagree, so the lowest that is told of."""
_FIELDS = (
    "model",
    "contents",
    "systemInstruction",
    "tools",
    "toolConfig",
    "safetySettings",
    "generationConfig",
    "cachedContent",
    "labels",
    "serviceTier",
    "store",
    "continuationToken",
    "modelArmorConfig",
    "outputConfig",
)
_CACHED = (
    "CachedContent can not be used with GenerateContent request setting system_instruction, tools "
    "or tool_config."
)
_CACHED_VERTEX = (
    "Tool config, tools and system instruction should not be set in the request when using cached "
    "content."
)
PREFILL = "Requests ending with a model turn are not supported."


@dataclass(frozen=True)
class Context:
    """A request, what its model can do, and how strict the provider is."""

    body: Json
    target: Target
    model: ModelLimits
    issued: Tokens
    strict_signatures: bool = False
    tokens: bool = True
    hop: int | None = None

    @property
    def vertex(self) -> bool:
        return self.target.vertex

    @property
    def generation(self) -> int:
        return generation(self.target.model)

    @property
    def hops(self) -> bool:
        """The answer may take several requests; Vertex knows that in v1beta1 only."""
        old = self.vertex and self.target.version == "v1"
        return self.tokens and self.generation >= 4 and not old

    @property
    def hop_room(self) -> int | None:
        """Tokens one request brings, or None where the limit alone decides."""
        most = HOP_MOST if self.target.streams else UNARY_MOST
        return (self.hop or most) if self.hops else None

    @cached_property
    def input_tokens(self) -> int:
        return input_tokens(self.body)

    @cached_property
    def conversation(self) -> bytes:
        return conversation(self.target, self.body)

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
        count = get(config(self.body), "candidateCount")
        return count if isinstance(count, int) and count > 0 else 1

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
    def calling(self) -> Json:
        return mapping(get(mapping(get(self.body, "toolConfig")), "functionCallingConfig"))

    @property
    def streams_arguments(self) -> bool:
        return self.target.streams and bool(get(self.calling, "streamFunctionCallArguments"))


Check = Callable[[Context], Iterator[str]]


def first_refusal(context: Context) -> str | None:
    """Return the text of the first check that the request fails."""
    return next(chain.from_iterable(check(context) for check in CHECKS), None)


def first_count_refusal(context: Context) -> str | None:
    """Return what is wrong with a request to count the tokens of its contents."""
    return next(chain.from_iterable(check(context) for check in (content_forms, history)), None)


# -- form


def known_fields(context: Context) -> Iterator[str]:
    names = {*_FIELDS, *map(snake, _FIELDS)}
    for name in context.body:
        if name not in names:
            yield _unknown(name)
    if context.token is not None and context.vertex and context.target.version == "v1":
        yield _unknown("continuationToken")
    if not context.vertex and get(context.calling, "streamFunctionCallArguments") is not None:
        yield _unknown(
            "stream_function_call_arguments", " at 'tool_config.function_calling_config'"
        )


def content_forms(context: Context) -> Iterator[str]:
    """Want contents with parts (the text on their form is ours)."""
    given = context.body.get("contents")
    listed = items(given)
    if given is not None and (not isinstance(given, list) or len(objects(given)) != len(listed)):
        yield "Invalid value at 'contents': each must be a Content"
    elif not given:
        yield (
            "Unable to submit request because at least one contents field is required."
            if context.vertex
            else "* GenerateContentRequest.contents: contents is not specified"
        )
    for n, content in enumerate(() if context.vertex else contents(context.body)):
        if not parts(content):
            yield (
                f"* GenerateContentRequest.contents[{n}].parts: contents.parts must not be empty."
            )


def limit_form(context: Context) -> Iterator[str]:
    asked = context.asked
    if asked is not None and (not isinstance(asked, int) or isinstance(asked, bool)):
        yield f"Invalid value at 'generation_config.max_output_tokens' (TYPE_INT32), \"{asked}\""


# -- settings


def limit_range(context: Context) -> Iterator[str]:
    """Vertex refuses a limit above the ceiling; the Gemini API lowers it without a word."""
    asked, most = context.asked, context.ceiling
    if asked is None:
        return
    if context.vertex and not 1 <= asked <= most:
        yield (
            f"Unable to submit request because it has a maxOutputTokens value of {asked} but the "
            f"supported range is from 1 (inclusive) to {most + 1} (exclusive). Update the value "
            "and try again."
        )
    elif asked < 1:
        yield (
            "* GenerateContentRequest.generation_config.max_output_tokens: max_output_tokens must "
            "be positive."
        )


def unary_limit(context: Context) -> Iterator[str]:
    """Refuse a long answer in one piece, of a model that would give it in hops (text ours)."""
    asked = context.asked or 0
    if context.hops and not context.target.streams and context.token is None and asked > UNARY_MOST:
        yield (
            f"max_output_tokens must be at most {UNARY_MOST} for a non-streaming request without "
            f"a continuation_token, but is {asked}."
        )


def candidate_count(context: Context) -> Iterator[str]:
    if context.candidates > 1 and context.generation >= 3:
        yield "Multiple candidates is not enabled for this model"


def schema_mime(context: Context) -> Iterator[str]:
    """Want JSON where there is a schema (text ours)."""
    asked = config(context.body)
    has_schema = any(get(asked, name) for name in ("responseSchema", "responseJsonSchema"))
    if has_schema and get(asked, "responseMimeType") not in ("application/json", "text/x.enum"):
        yield (
            "* GenerateContentRequest.generation_config.response_schema: only allowed with "
            "response_mime_type 'application/json' or 'text/x.enum'."
        )


def cached_content(context: Context) -> Iterator[str]:
    names = ("systemInstruction", "tools", "toolConfig")
    if get(context.body, "cachedContent") and any(get(context.body, name) for name in names):
        yield _CACHED_VERTEX if context.vertex else _CACHED


def continuation_token(context: Context) -> Iterator[str]:
    """Refuse a token that is none, or another request's (texts ours)."""
    token = context.token
    if token is None:
        return
    if not isinstance(token, str) or signatures.decoded(token) is None:
        yield "Invalid value at 'continuation_token' (TYPE_BYTES), Base64 decoding failed"
    elif not context.hops:
        yield "continuation_token is not supported for this model."
    elif (found := context.issued.find(token)) is None:
        yield "Invalid continuation_token."
    elif found[0] != context.conversation:
        yield "The continuation_token belongs to another request: contents must not be changed."


# -- history

_ORDER = (
    "message_invalid",
    "role_invalid",
    "block_invalid",
    "message_empty",
    "text_empty",
    "thought_signature_invalid",
    "prefill_unsupported",
    "first_not_user",
    "tool_use_in_user",
    "tool_result_in_assistant",
    "tool_result_orphan",
    "tool_result_surplus",
    "tool_result_missing",
    "tool_result_displaced",
    "tool_results_split",
    "tool_result_not_first",
    "tool_result_duplicate",
    "tool_results_out_of_order",
    "thought_signature_missing",
)
_VERTEX_ONLY = ("message_empty", "text_empty")
"""The Gemini API takes an empty text, and tells of missing parts in words of its own."""
_TOLERATED = ("roles_not_alternating",)
"""Both take contents of one role in a row: the SDK's own chats send them after a stream."""


def history(context: Context) -> Iterator[str]:
    """Yield what is wrong with the conversation; it is about to be answered, so no call is live."""
    found = validate(
        context.body, "gemini", model=context.target.model, facts=context.model, live=False
    )
    for violation in sorted(found, key=_rank):
        if violation.code == "prefill_unsupported":
            yield PREFILL
        elif violation.code not in (_TOLERATED if context.vertex else (*_TOLERATED, *_VERTEX_ONLY)):
            yield violation.message


def _rank(violation: Violation) -> tuple[int, list[int]]:
    code = violation.code
    rank = _ORDER.index(code) if code in _ORDER else len(_ORDER)
    return rank, [int(number) for number in re.findall(r"\d+", violation.path)]


def thought_signatures(context: Context) -> Iterator[str]:
    if context.generation >= 3:
        yield from signatures.errors(
            context.body, vertex=context.vertex, strict=context.strict_signatures
        )


def window(context: Context) -> Iterator[str]:
    most, used = context.model.window, context.input_tokens
    if most is not None and used > most:
        yield (
            f"The input token count ({used}) exceeds the maximum number of tokens allowed ({most})."
        )


def _unknown(name: str, where: str = "") -> str:
    return f'Invalid JSON payload received. Unknown name "{name}"{where}: Cannot find field.'


CHECKS: tuple[Check, ...] = (
    known_fields,
    content_forms,
    limit_form,
    continuation_token,
    limit_range,
    unary_limit,
    candidate_count,
    schema_mime,
    cached_content,
    history,
    thought_signatures,
    window,
)
