"""The error texts of `generateContent`, by rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from continuation.history.grammar import Rule

_COUNTS: Final = (
    "Please ensure that the number of function response parts is equal to the number of function"
    " call parts of the function call turn."
)
_RESPONSE_TURN: Final = (
    "Please ensure that function response turn comes immediately after a function call turn."
)
_CALL_TURN: Final = (
    "Please ensure that function call turn comes immediately after a user turn or after a function"
    " response turn."
)
_NO_PARTS: Final = (
    "Unable to submit request because it must include at least one parts field, which describes the"
    " prompt input."
)

RULES: Final[Mapping[str, Rule]] = {
    "tool_result_missing": Rule(_COUNTS, "synthesize_result"),
    "tool_result_displaced": Rule(_COUNTS, "move_result"),
    "tool_results_split": Rule(_COUNTS, "move_result"),
    "tool_result_not_first": Rule(_COUNTS, "move_result"),
    "tool_results_out_of_order": Rule(_COUNTS, "move_result"),
    "tool_result_duplicate": Rule(_COUNTS, "drop_result"),
    "tool_result_orphan": Rule(_RESPONSE_TURN, "drop_result"),
    "tool_result_surplus": Rule(_COUNTS, "drop_result"),
    "tool_use_in_user": Rule(_CALL_TURN, "split_message"),
    "tool_result_in_assistant": Rule(_RESPONSE_TURN, "split_message"),
    "first_not_user": Rule(_CALL_TURN, "add_first_user"),
    "roles_not_alternating": Rule(
        "Please ensure that multiturn requests alternate between user and model.",
        "merge_messages",
    ),
    "message_empty": Rule(_NO_PARTS, "drop_message"),
    "text_empty": Rule(
        "Unable to submit request because it has an empty text parameter. Add a value to the"
        " parameter and try again.",
        "drop_text",
    ),
    "block_invalid": Rule(
        "Invalid value at 'contents[{n}].parts[{m}]': a part must have data", "convert_block"
    ),
    "message_invalid": Rule("Invalid value at 'contents[{n}]'", "convert_message"),
    "role_invalid": Rule("Please use a valid role: user, model.", "convert_message"),
    "thought_signature_missing": Rule(
        "Function call is missing a thought_signature in functionCall parts. This is required for"
        " tools to work correctly, and missing thought_signature may lead to degraded model"
        " performance. Additional data, function call `{name}`, position {m}.",
        "sign_call",
    ),
    "thought_signature_invalid": Rule(
        "Invalid value at 'contents[{n}].parts[{m}].thought_signature' (TYPE_BYTES), Base64"
        " decoding failed",
        "strip_signature",
    ),
    "prefill_unsupported": Rule(
        "Requests ending with a model turn are not supported unless the last part is a function"
        " response.",
        "add_last_user",
    ),
}
