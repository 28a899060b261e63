"""What the Responses API refuses, where it has to do with limits, models, chains or history.

What makes a history invalid is told by `continuation.history.validate`, so that a repair is tested
against the very rules it is made for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from continuation.history import Violation, validate
from continuation.simulator.format import Check
from continuation.simulator.openai_responses.request import Context, input_tokens, is_reference
from continuation.simulator.openai_responses.store import reasoning_error
from continuation.simulator.requests import by_rank, numbers_in
from continuation.simulator.wire import Json, Refusal
from continuation.wire.json_values import as_int, mapping

SMALLEST = 16
"""The smallest output limit, in tokens."""


def not_found(what: str, name: str) -> Refusal:
    """Return the refusal of a response or conversation that is not kept."""
    return Refusal(f"{what} with id '{name}' not found.", 404)


# -- limits and models


def required(context: Context) -> Iterator[Refusal]:
    body, code = context.body, "missing_required_parameter"
    if not isinstance(body.get("model"), str):
        yield Refusal("Missing required parameter: 'model'.", code=code, param="model")
    if not any(body.get(k) for k in ("input", "previous_response_id", "prompt", "conversation")):
        text = (
            'One of "input" or "previous_response_id" or "prompt" or "conversation_id" must be'
            " provided."
        )
        yield Refusal(text, code=code, param="input")


def limit_name(context: Context) -> Iterator[Refusal]:
    """Refuse the names that Chat Completions has for the limit."""
    for old in ("max_tokens", "max_completion_tokens"):
        if old in context.body:
            text = (
                f"Unsupported parameter: '{old}'. In the Responses API, this parameter has moved to"
                " 'max_output_tokens'. Try again with the new parameter."
            )
            yield Refusal(text, code="unsupported_parameter", param=old)


def smallest_limit(context: Context) -> Iterator[Refusal]:
    limit = context.body.get("max_output_tokens")
    if limit is not None and (as_int(limit) or 0) < SMALLEST:
        text = (
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >="
            f" {SMALLEST}, but got {limit} instead."
        )
        yield Refusal(text, code="integer_below_min_value", param="max_output_tokens")


def model_known(context: Context) -> Iterator[Refusal]:
    if not context.known and not context.scenario.any_model:
        text = f"The requested model '{context.body['model']}' does not exist."
        yield Refusal(text, code="model_not_found", param="model")


def ceiling(context: Context) -> Iterator[Refusal]:
    """Refuse a limit above the model's; worded after Chat Completions, for want of a quote."""
    asked, most = context.body.get("max_output_tokens"), context.model.ceiling
    if asked is not None and asked > most:
        text = (
            f"max_output_tokens is too large: {asked}. This model supports at most {most} output"
            f" tokens, whereas you provided {asked}."
        )
        yield Refusal(text, code="invalid_value", param="max_output_tokens")


def reasoning_supported(context: Context) -> Iterator[Refusal]:
    asked = mapping(context.body.get("reasoning")).get("effort")
    if context.model.thinking == "none" and asked not in (None, "none"):
        yield _unsupported("reasoning.effort")


def _unsupported(name: str) -> Refusal:
    text = f"Unsupported parameter: '{name}' is not supported with this model."
    return Refusal(text, code="unsupported_parameter", param=name)


# -- what is kept


def chain_supported(context: Context) -> Iterator[Refusal]:
    if context.anchor is not None and not context.scenario.chain:
        yield _unsupported("previous_response_id")


def one_memory(context: Context) -> Iterator[Refusal]:
    if context.anchor is not None and context.conversation is not None:
        names = "'previous_response_id' or 'conversation'"
        text = (
            f"Mutually exclusive parameters: {names}. Ensure you are only providing one of:"
            f" {names}."
        )
        yield Refusal(text, code="mutually_exclusive_parameters")


def anchor_kept(context: Context) -> Iterator[Refusal]:
    name, conversation = context.anchor, context.conversation
    if name is not None and name not in context.shelf.responses:
        text = f"Previous response with id '{name}' not found."
        yield Refusal(text, code="previous_response_not_found", param="previous_response_id")
    if conversation is not None and conversation not in context.shelf.conversations:
        yield not_found("Conversation", conversation)


def items_kept(context: Context) -> Iterator[Refusal]:
    """Refuse items that are only names, of what is not kept."""
    for item in map(mapping, context.brought):
        bare = item.get("type") == "reasoning" and not item.get("encrypted_content")
        name = item.get("id") if bare or is_reference(item) else None
        if name is not None and context.shelf.item(str(name)) is None:
            text = (
                f"Item with id '{name}' not found. Items are not persisted when `store` is set to"
                " false. Try again with `store` set to true, or remove this item from your input."
            )
            yield Refusal(text, 404, param="input")


# -- history


def reasoning_kept(context: Context) -> Iterator[Refusal]:
    """Want the item of a kept response that its reasoning led to behind that very reasoning."""
    for n, item in context.input.new:
        name = str(item.get("id"))
        wanted = context.shelf.reasoning_of(name)
        if wanted is None or (n and mapping(context.input.items[n - 1]).get("id") == wanted):
            continue
        text = (
            f"Item '{name}' of type '{item.get('type', 'message')}' was provided without its"
            f" required 'reasoning' item: '{wanted}'."
        )
        yield Refusal(text, param="input")


_ORDER = """
    message_invalid role_invalid content_type_invalid input_type_invalid message_empty
    item_id_invalid item_not_stored item_duplicate item_id_reused tool_use_id_invalid
    tool_input_invalid call_incomplete reasoning_dangling tool_use_duplicate_id
    tool_result_orphan tool_result_id_missing tool_result_duplicate tool_result_missing
"""
_INVALID_VALUES = ("role_invalid", "content_type_invalid", "input_type_invalid", "item_id_invalid")


def history(context: Context) -> Iterator[Refusal]:
    """Refuse what breaks the rules of a conversation; it is to be answered, so no call is live.

    What the server itself holds is valid, except for a call whose output the request owes.
    """
    held = context.input.held
    answerable = [
        # What the server holds needs no encrypted content to be read again.
        {**item, "encrypted_content": "held"}
        if n < held and mapping(item).get("type") == "reasoning"
        else item
        for n, item in enumerate(context.input.items)
    ]
    body: Json = {"model": context.body.get("model"), "input": answerable}
    if context.body.get("store") is False:
        body["store"] = False
    for violation in by_rank(validate(body, "openai-responses", live=False), _ORDER):
        place = next(iter(numbers_in(violation.path)), 0)
        if place >= held or violation.code == "tool_result_missing":
            yield _broken(violation, held)


def _broken(violation: Violation, held: int) -> Refusal:
    """Write a violation as an error; the request counts only the items it brings itself."""

    def own(text: str) -> str:
        return re.sub(r"input\[(\d+)\]", lambda found: f"input[{int(found[1]) - held}]", text)

    status = 404 if violation.code == "item_not_stored" else 400
    if violation.code in _INVALID_VALUES:
        path = own(violation.path)
        return Refusal(own(violation.message), code="invalid_value", param=path)
    return Refusal(own(violation.message), status, param="input")


def encrypted(context: Context) -> Iterator[Refusal]:
    """Check the encrypted content that a request brings."""
    for _, item in context.input.new:
        strict = context.scenario.strict_signatures
        text = reasoning_error(item, context.credential, strict=strict)
        if text is not None:
            yield Refusal(text, code="invalid_encrypted_content", param="input")


def window(context: Context) -> Iterator[Refusal]:
    most = context.model.window
    if most is not None and input_tokens(context) > most:
        text = (
            "Your input exceeds the context window of this model. Please adjust your input and try"
            " again."
        )
        yield Refusal(text, code="context_length_exceeded", param="input")


_INPUT: tuple[Check[Context], ...] = (
    chain_supported,
    one_memory,
    anchor_kept,
    items_kept,
    reasoning_kept,
    history,
    encrypted,
    window,
)
CHECKS: tuple[Check[Context], ...] = (
    required,
    limit_name,
    smallest_limit,
    model_known,
    ceiling,
    reasoning_supported,
    *_INPUT,
)
COUNT_CHECKS = _INPUT
"""What is refused of a request that only counts its input."""
