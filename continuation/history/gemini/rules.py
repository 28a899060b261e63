"""The error texts of `generateContent`, by rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from continuation.history.wordings import HALVES

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

RULES: Final[Mapping[str, str]] = {
    "tool_result_missing": _COUNTS,
    "tool_result_displaced": _COUNTS,
    "tool_results_split": _COUNTS,
    "tool_result_not_first": _COUNTS,
    "tool_results_out_of_order": _COUNTS,
    "tool_result_duplicate": _COUNTS,
    "tool_result_orphan": _RESPONSE_TURN,
    "tool_result_surplus": _COUNTS,
    "tool_use_in_user": _CALL_TURN,
    "tool_result_in_assistant": _RESPONSE_TURN,
    "first_not_user": _CALL_TURN,
    "roles_not_alternating": (
        "Please ensure that multiturn requests alternate between user and model."
    ),
    "message_empty": _NO_PARTS,
    "text_empty": (
        "Unable to submit request because it has an empty text parameter. Add a value to the"
        " parameter and try again."
    ),
    "block_invalid": "Invalid value at 'contents[{n}].parts[{m}]': a part must have data",
    "text_surrogate": HALVES,
    "history_empty": "* GenerateContentRequest.contents: contents is not specified",
    "message_invalid": "Invalid value at 'contents[{n}]'",
    "role_invalid": "Please use a valid role: user, model.",
    "thought_signature_missing": (
        "Function call is missing a thought_signature in functionCall parts. This is required for"
        " tools to work correctly, and missing thought_signature may lead to degraded model"
        " performance. Additional data, function call `{name}`, position {m}."
    ),
    "thought_signature_invalid": (
        "Invalid value at 'contents[{n}].parts[{m}].thought_signature' (TYPE_BYTES), Base64"
        " decoding failed"
    ),
    "prefill_unsupported": (
        "Requests ending with a model turn are not supported unless the last part is a function"
        " response."
    ),
}
