"""What the Responses API refuses: by form, by model, by what it keeps, and by history.

A rule takes the context of a request and yields refusals; it may rely on the rules before it. The
texts are the provider's own, as quoted in public bug reports, but for those marked as ours. What
makes a history invalid is told by `continuation.history.validate`, so that a repair is tested
against the very rules it is made for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from continuation.history import Violation, validate
from continuation.limits import ModelLimits
from continuation.simulator.openai_responses import reasoning
from continuation.simulator.openai_responses.items import (
    Input,
    brought,
    conversation_id,
    is_reference,
)
from continuation.simulator.openai_responses.store import Shelf
from continuation.simulator.openai_responses.usage import input_tokens
from continuation.simulator.scenario import Scenario
from continuation.simulator.wire import Json
from continuation.wire.json_values import as_map

SMALLEST = 16
"""The smallest output limit, in tokens."""
LONGEST = 10_485_760
"""The longest input text, in characters."""
_DOCS = "https://platform.openai.com/docs/api-reference/responses/create"
_MOVED = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
}
_ITEM_LOST = (
    "Item with id '{}' not found. Items are not persisted when `store` is set to false. Try again"
    " with `store` set to true, or remove this item from your input."
)


@dataclass(frozen=True)
class Refusal:
    """An error: its text, HTTP status, and what its `code` and `param` say."""

    message: str
    code: str | None = None
    param: str | None = None
    status: int = 400


@dataclass(frozen=True)
class Context:
    """A request with what its model can do and what is kept for its credential."""

    body: Json
    model: ModelLimits
    known: bool
    scenario: Scenario
    shelf: Shelf
    credential: str

    @cached_property
    def input(self) -> Input:
        return self.shelf.read(self.body)

    @property
    def anchor(self) -> str | None:
        return self.body.get("previous_response_id")


Rule = Callable[[Context], Iterator[Refusal]]


def first_refusal(context: Context) -> Refusal | None:
    """Return what a request that asks the model is refused for, if anything."""
    return _first(context, (*FORM, *MODEL, *KEPT, *HISTORY))


def count_refusal(context: Context) -> Refusal | None:
    """Return what a request that only counts its input is refused for, if anything."""
    return _first(context, (*FORM[:1], *KEPT, *HISTORY))


def _first(context: Context, rules: tuple[Rule, ...]) -> Refusal | None:
    return next(chain.from_iterable(rule(context) for rule in rules), None)


def not_found(what: str, name: str) -> Refusal:
    """Return the refusal of a response or conversation that is not kept."""
    return Refusal(f"{what} with id '{name}' not found.", status=404)


# -- form


def moved(context: Context) -> Iterator[Refusal]:
    """Refuse what only Chat Completions takes."""
    for old, new in _MOVED.items():
        if old in context.body:
            yield Refusal(
                f"Unsupported parameter: '{old}'. In the Responses API, this parameter has moved to"
                f" '{new}'. Try again with the new parameter. See the API documentation for more"
                f" information: {_DOCS}.",
                "unsupported_parameter",
                old,
            )


def required(context: Context) -> Iterator[Refusal]:
    body, code = context.body, "missing_required_parameter"
    if not body.get("model"):
        yield Refusal("Missing required parameter: 'model'.", code, "model")
    if not any(body.get(k) for k in ("input", "previous_response_id", "prompt", "conversation")):
        yield Refusal(
            'One of "input" or "previous_response_id" or "prompt" or "conversation_id" must be'
            " provided.",
            code,
            "input",
        )


def types(context: Context) -> Iterator[Refusal]:
    limit, given = context.body.get("max_output_tokens"), context.body.get("input")
    if not isinstance(context.body["model"], str):
        yield _wrong_type("model", "a string", context.body["model"])
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool)):
        yield _wrong_type("max_output_tokens", "an integer", limit)
    if given is not None and not isinstance(given, str | list):
        yield _wrong_type("input", "one of an array of input items or a string", given)
    if isinstance(given, str) and len(given) > LONGEST:
        yield Refusal(
            f"Invalid 'input': string too long. Expected a string with maximum length {LONGEST},"
            f" but got a string with length {len(given)} instead.",
            "string_above_max_length",
            "input",
        )


def _wrong_type(name: str, wanted: str, value: object) -> Refusal:
    got = _JSON_TYPES.get(type(value), "null")
    text = f"Invalid type for '{name}': expected {wanted}, but got {got} instead."
    return Refusal(text, "invalid_type", name)


_JSON_TYPES: dict[type, str] = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a decimal number",
    list: "an array",
    dict: "an object",
}


def smallest_limit(context: Context) -> Iterator[Refusal]:
    limit = context.body.get("max_output_tokens")
    if limit is not None and limit < SMALLEST:
        yield Refusal(
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >="
            f" {SMALLEST}, but got {limit} instead.",
            "integer_below_min_value",
            "max_output_tokens",
        )


def background(context: Context) -> Iterator[Refusal]:
    """Refuse an answer in the background that nobody could fetch (text ours)."""
    if context.body.get("background") and context.body.get("store") is False:
        yield Refusal("Background mode requires `store` to be true.", "invalid_value", "background")


# -- model


def model_known(context: Context) -> Iterator[Refusal]:
    name = context.body["model"]
    if not context.known and not context.scenario.any_model:
        yield Refusal(f"The requested model '{name}' does not exist.", "model_not_found", "model")


def ceiling(context: Context) -> Iterator[Refusal]:
    """Refuse a limit above the model's; worded after Chat Completions, for want of a quote."""
    asked, most = context.body.get("max_output_tokens"), context.model.ceiling
    if asked is not None and asked > most:
        yield Refusal(
            f"max_output_tokens is too large: {asked}. This model supports at most {most} output"
            f" tokens, whereas you provided {asked}.",
            "invalid_value",
            "max_output_tokens",
        )


def reasoning_supported(context: Context) -> Iterator[Refusal]:
    asked = as_map(context.body.get("reasoning")).get("effort")
    if context.model.thinking == "none" and asked not in (None, "none"):
        yield _unsupported("reasoning.effort")


def _unsupported(name: str) -> Refusal:
    text = f"Unsupported parameter: '{name}' is not supported with this model."
    return Refusal(text, "unsupported_parameter", name)


# -- what is kept


def chain_supported(context: Context) -> Iterator[Refusal]:
    if context.anchor is not None and not context.scenario.chain:
        yield _unsupported("previous_response_id")


def one_memory(context: Context) -> Iterator[Refusal]:
    if context.anchor is not None and conversation_id(context.body) is not None:
        names = "'previous_response_id' or 'conversation'"
        yield Refusal(
            f"Mutually exclusive parameters: {names}. Ensure you are only providing one of:"
            f" {names}.",
            "mutually_exclusive_parameters",
        )


def anchor_kept(context: Context) -> Iterator[Refusal]:
    name, conversation = context.anchor, conversation_id(context.body)
    if name is not None and name not in context.shelf.responses:
        yield Refusal(
            f"Previous response with id '{name}' not found.",
            "previous_response_not_found",
            "previous_response_id",
        )
    if conversation is not None and conversation not in context.shelf.conversations:
        yield not_found("Conversation", conversation)


def items_kept(context: Context) -> Iterator[Refusal]:
    """Refuse items that are only names, of what is not kept."""
    for item in map(as_map, brought(context.body)):
        bare = item.get("type") == "reasoning" and not item.get("encrypted_content")
        name = item.get("id") if bare or is_reference(item) else None
        if name is not None and context.shelf.item(str(name)) is None:
            yield Refusal(_ITEM_LOST.format(name), None, "input", 404)


# -- history


def reasoning_kept(context: Context) -> Iterator[Refusal]:
    """Want the item of a kept response that its reasoning led to behind that very reasoning."""
    items = context.input.items
    for n, item in context.input.new:
        name = str(item.get("id"))
        wanted = context.shelf.reasoning_of(name)
        if wanted is not None and (n == 0 or as_map(items[n - 1]).get("id") != wanted):
            yield Refusal(
                f"Item '{name}' of type '{item.get('type', 'message')}' was provided without its"
                f" required 'reasoning' item: '{wanted}'.",
                None,
                "input",
            )


def history(context: Context) -> Iterator[Refusal]:
    """Refuse what breaks the rules of a conversation; it is to be answered, so no call is live.

    What the server itself holds is valid, except for a call whose output the request owes.
    """
    held = context.input.held
    body: Json = {"model": context.body.get("model"), "input": _answerable(context)}
    if context.body.get("store") is False:
        body["store"] = False
    found = validate(body, "openai-responses", live=False)
    for violation in sorted(found, key=_rank):
        if _place(violation) >= held or violation.code == "tool_result_missing":
            yield _refusal(violation, held)


def _answerable(context: Context) -> list[object]:
    """Return the input; what the server holds needs no encrypted content to be read again."""
    items, held = context.input.items, context.input.held
    known = ({**item, "encrypted_content": "held"} for item in items[:held] if _is_reasoning(item))
    return [next(known) if n < held and _is_reasoning(i) else i for n, i in enumerate(items)]


def _is_reasoning(item: object) -> bool:
    return as_map(item).get("type") == "reasoning"


_ORDER = (
    "message_invalid",
    "role_invalid",
    "content_type_invalid",
    "input_type_invalid",
    "message_empty",
    "item_id_invalid",
    "item_not_stored",
    "item_duplicate",
    "item_id_reused",
    "tool_use_id_invalid",
    "tool_input_invalid",
    "call_incomplete",
    "reasoning_dangling",
    "tool_use_duplicate_id",
    "tool_result_orphan",
    "tool_result_id_missing",
    "tool_result_duplicate",
    "tool_result_missing",
)
_INVALID_VALUES = ("role_invalid", "content_type_invalid", "input_type_invalid", "item_id_invalid")


def _rank(violation: Violation) -> tuple[int, int]:
    """Of several faults, the provider names the one it looks for first, then the foremost."""
    code = violation.code
    rank = _ORDER.index(code) if code in _ORDER else len(_ORDER)
    return rank, _place(violation)


def _place(violation: Violation) -> int:
    """Return the place of a violation among the items."""
    found = re.search(r"\d+", violation.path)
    return int(found[0]) if found else 0


def _refusal(violation: Violation, held: int) -> Refusal:
    """Write a violation as an error; the request counts only the items it brings itself."""

    def own(found: re.Match[str]) -> str:
        return f"input[{int(found[1]) - held}]"

    message = re.sub(r"input\[(\d+)\]", own, violation.message)
    status = 404 if violation.code == "item_not_stored" else 400
    if violation.code in _INVALID_VALUES:
        path = re.sub(r"input\[(\d+)\]", own, violation.path)
        return Refusal(message, "invalid_value", path)
    return Refusal(message, None, "input", status)


def encrypted(context: Context) -> Iterator[Refusal]:
    """Check the encrypted content that a request brings."""
    for _, item in context.input.new:
        strict = context.scenario.strict_signatures
        text = reasoning.error(item, context.credential, strict=strict)
        if text is not None:
            yield Refusal(text, "invalid_encrypted_content", "input")


def window(context: Context) -> Iterator[Refusal]:
    most = context.model.window
    if most is not None and input_tokens(context.body, context.input.items) > most:
        yield Refusal(
            "Your input exceeds the context window of this model. Please adjust your input and try"
            " again.",
            "context_length_exceeded",
            "input",
        )


FORM: tuple[Rule, ...] = (moved, required, types, smallest_limit, background)
MODEL: tuple[Rule, ...] = (model_known, ceiling, reasoning_supported)
KEPT: tuple[Rule, ...] = (chain_supported, one_memory, anchor_kept, items_kept)
HISTORY: tuple[Rule, ...] = (reasoning_kept, history, encrypted, window)
