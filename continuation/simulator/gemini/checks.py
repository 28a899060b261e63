"""What Gemini refuses, where it has to do with limits, models, tokens or the conversation.

The words are those of the Gemini API and of Vertex, as quoted in public bug reports or known from
their answers; those said to be ours follow their manner. What makes a history invalid is told by
`continuation.history.validate`, so that a repair is tested against the very rules it is made for.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from continuation.history import validate
from continuation.simulator.common import by_rank, decoded, unseal
from continuation.simulator.format import Check
from continuation.simulator.gemini.request import (
    SIGNED_BY,
    UNARY_MOST,
    Context,
    Target,
    contents,
    get,
    is_alias,
    part_digest,
    parts,
)
from continuation.simulator.wire import Refusal
from continuation.wire.json_values import as_int, is_list, objects

PREFILL = "Requests ending with a model turn are not supported."


def not_found(target: Target) -> Refusal:
    if target.vertex:
        text = (
            f"Publisher Model `publishers/google/{target.resource}` was not found or your project "
            "does not have access to it. Please ensure you are using a valid model version."
        )
    else:
        text = (
            f"{target.resource} is not found for API version {target.version}, or is not supported "
            f"for {target.verb or 'generateContent'}. Call ListModels to see the list of available "
            "models and their supported methods."
        )
    return Refusal(text, 404)


def model_known(context: Context) -> Iterator[Refusal]:
    """Refuse a model that is not here; the `-latest` names are known to v1beta only."""
    target = context.target
    if not context.served or (is_alias(target.model) and target.version == "v1"):
        yield not_found(target)


def form(context: Context) -> Iterator[str]:
    """Want contents with parts (the text on their form is ours), and a limit that is a number."""
    given = context.body.get("contents")
    if given is not None and (not is_list(given) or len(objects(given)) != len(given)):
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
    if (asked := context.asked) is not None and as_int(asked) is None:
        yield f"Invalid value at 'generation_config.max_output_tokens' (TYPE_INT32), \"{asked}\""


def continuation_token(context: Context) -> Iterator[str]:
    """Refuse a token that is none, or another request's (texts ours)."""
    token = context.token
    if token is None:
        return
    if context.vertex and context.target.version == "v1":
        yield (
            'Invalid JSON payload received. Unknown name "continuationToken": Cannot find field.'
        )
    elif not isinstance(token, str) or decoded(token) is None:
        yield "Invalid value at 'continuation_token' (TYPE_BYTES), Base64 decoding failed"
    elif not context.hops:
        yield "continuation_token is not supported for this model."
    elif (found := context.issued.find(token)) is None:
        yield "Invalid continuation_token."
    elif found[0] != context.conversation:
        yield "The continuation_token belongs to another request: contents must not be changed."


def limit(context: Context) -> Iterator[str]:
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
    if asked < 1:
        yield (
            "* GenerateContentRequest.generation_config.max_output_tokens: max_output_tokens must "
            "be positive."
        )
    # A long answer in one piece, of a model that would give it in hops, is refused (text ours).
    if context.hops and not context.streamed and context.token is None and asked > UNARY_MOST:
        yield (
            f"max_output_tokens must be at most {UNARY_MOST} for a non-streaming request without "
            f"a continuation_token, but is {asked}."
        )


_ORDER = """
    message_invalid role_invalid block_invalid message_empty text_empty
    thought_signature_invalid prefill_unsupported first_not_user tool_use_in_user
    tool_result_in_assistant tool_result_orphan tool_result_surplus tool_result_missing
    tool_result_displaced tool_results_split tool_result_not_first tool_result_duplicate
    tool_results_out_of_order thought_signature_missing
"""
_VERTEX_ONLY = ("message_empty", "text_empty")
"""The Gemini API takes an empty text, and tells of missing parts in words of its own."""
_TOLERATED = ("roles_not_alternating",)
"""Both take contents of one role in a row: the SDK's own chats send them after a stream."""


def history(context: Context) -> Iterator[str]:
    """Yield what is wrong with the conversation; it is about to be answered, so no call is live."""
    tolerated = _TOLERATED if context.vertex else (*_TOLERATED, *_VERTEX_ONLY)
    found = validate(context.body, "gemini", model=context.name, facts=context.model, live=False)
    for violation in by_rank(found, _ORDER):
        if violation.code == "prefill_unsupported":
            yield PREFILL
        elif violation.code not in tolerated:
            yield violation.message


STAND_IN = "skip_thought_signature_validator"
"""Documented by Google for parts whose signature is lost."""


def thought_signatures(context: Context) -> Iterator[str]:
    """Check thought signatures, which models before Gemini 3 neither make nor look at.

    Those made elsewhere are refused by the strict only; what is no Base64 at all is told by the
    rules of the history. Source: Google's page on thought signatures, and public issues.
    """
    vertex = context.vertex
    listed = contents(context.body) if context.generation >= 3 else []
    for part in chain.from_iterable(map(parts, listed)):
        signature = get(part, "thoughtSignature")
        if not isinstance(signature, str) or signature in ("", STAND_IN):
            continue
        ours, theirs = (unseal(SIGNED_BY[made], signature, 1) for made in (vertex, not vertex))
        signed = ours or theirs
        if signed is not None and signed[0] != part_digest(part):
            yield "Corrupted thought signature."
        elif ours is None and (theirs is not None or context.scenario.strict_signatures):
            here = "Unable to submit request because Thought signature is not valid."
            yield here if vertex else "Invalid thought signature."


def window(context: Context) -> Iterator[str]:
    most, used = context.model.window, context.input_tokens
    if most is not None and used > most:
        yield (
            f"The input token count ({used}) exceeds the maximum number of tokens allowed ({most})."
        )


CHECKS: tuple[Check[Context], ...] = (
    *(model_known, form, continuation_token, limit),
    *(history, thought_signatures, window),
)
COUNT_CHECKS: tuple[Check[Context], ...] = (form, history)
"""What is refused of a request that only counts its tokens."""
