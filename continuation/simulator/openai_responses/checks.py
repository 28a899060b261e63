"""What the Responses API refuses, where it has to do with limits, models, chains or history.

What makes a history invalid is told by `continuation.history.validate`, so that a repair is tested
against the very rules it is made for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from continuation.history import validate
from continuation.simulator.common import by_rank, numbers_in
from continuation.simulator.format import Check
from continuation.simulator.openai_responses.request import Context, input_tokens, is_reference
from continuation.simulator.openai_responses.store import reasoning_error
from continuation.simulator.wire import Json, Refusal
from continuation.wire.json_values import as_int, mapping

SMALLEST = 16
"""The smallest output limit, in tokens."""


def not_found(what: str, name: str) -> Refusal:
    """Return the refusal of a response or conversation that is not kept."""
    return Refusal(f"{what} with id '{name}' not found.", 404)


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
    for old in ("max_tokens", "max_completion_tokens"):  # as Chat Completions has it
        if old in body:
            text = (
                f"Unsupported parameter: '{old}'. In the Responses API, this parameter has moved to"
                " 'max_output_tokens'. Try again with the new parameter."
            )
            yield Refusal(text, code="unsupported_parameter", param=old)


def settings(context: Context) -> Iterator[Refusal]:
    """Compare the limit, the model and the reasoning with what there is."""
    body, most = context.body, context.model.ceiling
    asked, place = body.get("max_output_tokens"), "max_output_tokens"
    if asked is not None and (as_int(asked) or 0) < SMALLEST:
        text = (
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >="
            f" {SMALLEST}, but got {asked} instead."
        )
        yield Refusal(text, code="integer_below_min_value", param=place)
    if not context.served:
        text = f"The requested model '{context.name}' does not exist."
        yield Refusal(text, code="model_not_found", param="model")
    if asked is not None and asked > most:  # worded after Chat Completions, for want of a quote
        text = (
            f"max_output_tokens is too large: {asked}. This model supports at most {most} output"
            f" tokens, whereas you provided {asked}."
        )
        yield Refusal(text, code="invalid_value", param=place)
    effort = mapping(body.get("reasoning")).get("effort")
    if context.model.thinking == "none" and effort not in (None, "none"):
        yield _unsupported("reasoning.effort")


def _unsupported(name: str) -> Refusal:
    text = f"Unsupported parameter: '{name}' is not supported with this model."
    return Refusal(text, code="unsupported_parameter", param=name)


def kept(context: Context) -> Iterator[Refusal]:
    """Want what the request only names: a response or a conversation, not both, and items."""
    name, conversation, shelf = context.anchor, context.conversation, context.shelf
    if name is not None and not context.scenario.chain:
        yield _unsupported("previous_response_id")
    if name is not None and conversation is not None:
        names = "'previous_response_id' or 'conversation'"
        text = (
            f"Mutually exclusive parameters: {names}. Ensure you are only providing one of:"
            f" {names}."
        )
        yield Refusal(text, code="mutually_exclusive_parameters")
    if name is not None and name not in shelf.responses:
        text = f"Previous response with id '{name}' not found."
        yield Refusal(text, code="previous_response_not_found", param="previous_response_id")
    if conversation is not None and conversation not in shelf.conversations:
        yield not_found("Conversation", conversation)
    for item in map(mapping, context.brought):
        bare = item.get("type") == "reasoning" and not item.get("encrypted_content")
        name = item.get("id") if bare or is_reference(item) else None
        if name is not None and shelf.item(str(name)) is None:
            text = (
                f"Item with id '{name}' not found. Items are not persisted when `store` is set to"
                " false. Try again with `store` set to true, or remove this item from your input."
            )
            yield Refusal(text, 404, param="input")


def reasoning_kept(context: Context) -> Iterator[Refusal]:
    """Want the item of a kept response that its reasoning led to behind that very reasoning."""
    for n, item in context.input.new:
        name = str(item.get("id"))
        wanted = context.shelf.reasoning_of(name)
        before = mapping(context.input.items[n - 1]) if n else {}
        if wanted is not None and before.get("id") != wanted:
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

    What the server itself holds is valid, except for a call whose output the request owes; what is
    told counts only the items that the request brings itself.
    """
    held = context.input.held

    def own(text: str) -> str:
        return re.sub(r"input\[(\d+)\]", lambda found: f"input[{int(found[1]) - held}]", text)

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
        code, text, path = violation.code, own(violation.message), own(violation.path)
        place = next(iter(numbers_in(violation.path)), 0)
        if place < held and code != "tool_result_missing":
            continue
        if code in _INVALID_VALUES:
            yield Refusal(text, code="invalid_value", param=path)
        yield Refusal(text, 404 if code == "item_not_stored" else 400, param="input")


def encrypted_and_window(context: Context) -> Iterator[Refusal]:
    """Check the encrypted content that a request brings, and whether all of it has room."""
    strict, most = context.scenario.strict_signatures, context.model.window
    for _, item in context.input.new:
        text = reasoning_error(item, context.credential, strict=strict)
        if text is not None:
            yield Refusal(text, code="invalid_encrypted_content", param="input")
    if most is not None and input_tokens(context) > most:
        text = (
            "Your input exceeds the context window of this model. Please adjust your input and try"
            " again."
        )
        yield Refusal(text, code="context_length_exceeded", param="input")


COUNT_CHECKS: tuple[Check[Context], ...] = (kept, reasoning_kept, history, encrypted_and_window)
"""What is refused of a request that only counts its input."""
CHECKS: tuple[Check[Context], ...] = (required, settings, *COUNT_CHECKS)
