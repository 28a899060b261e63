"""The error texts of the Messages API, by rule; texts that only some servers use are marked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from continuation.history.wordings import HALVES

_AT: Final = "messages.{n}.content.{m}"
_NO_RESULT: Final = (
    "messages.{call}: `tool_use` ids were found without `tool_result` blocks immediately after: "
    "{detail}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
    "message."
)
_NO_CALL: Final = (
    "messages.{n}.content.{m}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each "
    "`tool_result` block must have a corresponding `tool_use` block in the previous message."
)
_SIGNATURE: Final = _AT + ": Invalid `signature` in `thinking` block"

RULES: Final[Mapping[str, str]] = {
    # pairing
    "tool_result_missing": _NO_RESULT,
    "tool_result_displaced": _NO_RESULT,
    "tool_results_split": _NO_RESULT,
    "tool_result_not_first": _NO_RESULT,
    "tool_use_not_last": _NO_RESULT,
    "tool_result_orphan": _NO_CALL,
    "tool_result_duplicate": (
        "messages.{n}.content.{m}: each tool_use must have a single result. Found multiple"
        " `tool_result` blocks with id: {id}"
    ),
    "tool_result_id_missing": _NO_CALL,
    "tool_use_duplicate_id": "messages: `tool_use` ids must be unique",
    "tool_use_id_invalid": _AT + ".tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
    "tool_use_id_too_long": _AT + ".tool_use.id: String should have at most 64 characters",
    "tool_input_invalid": _AT + ".tool_use.input: Input should be a valid dictionary",
    "tool_use_in_user": "messages.{n}: `tool_use` blocks can only be in `assistant` messages",
    "tool_result_in_assistant": "messages.{n}: `tool_result` blocks can only be in `user` messages",
    "server_result_missing": (
        "messages.{n}.content.{m}: `{name}` tool use with id `{id}` was found without a"
        " corresponding `{name}_tool_result` block"
    ),
    "server_result_orphan": _AT + ": unexpected `tool_use_id` found in tool result blocks: {id}",
    "tools_undeclared": (
        "Requests which include `tool_use` or `tool_result` blocks must define tools."
    ),
    # shape, roles and texts
    "text_surrogate": HALVES,
    "history_empty": "messages: at least one message is required",
    "message_invalid": "messages.{n}: Input should be a valid dictionary",
    "content_invalid": "messages.{n}.content: Input should be a valid list",
    "role_invalid": "messages.{n}.role: Input should be 'user' or 'assistant'",
    "block_invalid": "messages.{n}.content.{m}: Input tag does not match any of the expected tags",
    "first_not_user": 'messages: first message must use the "user" role',
    "roles_not_alternating": (  # older servers, Bedrock; the API itself joins neighbours
        'messages: roles must alternate between "user" and "assistant", but found multiple of one'
        " role in a row"
    ),
    "text_empty": "messages: text content blocks must be non-empty",
    "text_blank": "messages: text content blocks must contain non-whitespace text",
    "result_text_empty": "messages: text content blocks must be non-empty",
    "system_text_empty": "system: text content blocks must be non-empty",
    "message_empty": (
        "messages.{n}: all messages must have non-empty content except for the optional final"
        " assistant message"
    ),
    "trailing_whitespace": "messages: final assistant content cannot end with trailing whitespace",
    "prefill_unsupported": (
        "This model does not support assistant message prefill. The conversation must end with a"
        " user message."
    ),
    # thinking
    "thinking_missing": (
        "messages.{n}.content.0.type: Expected `thinking` or `redacted_thinking`, but found"
        " `{detail}`. When `thinking` is enabled, a final `assistant` message must start with a"
        " thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We"
        " recommend you include thinking blocks from previous turns. To avoid this requirement,"
        " disable `thinking`."
    ),
    "thinking_not_first": (
        "messages.{n}.content.0.type: If an assistant message contains any thinking blocks, the"
        " first block must be `thinking` or `redacted_thinking`. Found `{detail}`."
    ),
    "thinking_modified": (
        "messages.{n}.content.{m}: `thinking` or `redacted_thinking` blocks in the latest assistant"
        " message cannot be modified. These blocks must remain as they were in the original"
        " response."
    ),
    "thinking_unsigned": _SIGNATURE,
    "thinking_foreign": _SIGNATURE,
    "thinking_redacted_invalid": _AT + ": Invalid `data` in `redacted_thinking` block",
    "thinking_blank": _AT + ".thinking: each thinking block must contain thinking",
    "thinking_last": "messages.{n}: The final block in an assistant message cannot be `thinking`.",
    "thinking_bound": (
        _SIGNATURE + ". The block is bound to a different conversation. Remove the block, or set"
        ' `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
    ),
    "thinking_in_user": "messages.{n}: `thinking` blocks can only be in `assistant` messages",
    "thinking_when_off": (  # Bedrock and others; the API itself is tolerant
        "messages.{n}: When thinking is disabled, an `assistant` message in the final position"
        " cannot contain `thinking`. To use thinking blocks, enable `thinking` in your request."
    ),
    "thinking_unsupported": "messages.{n}.content.{m}: thinking is not supported on this model",
    "thinking_mode_unsupported": '"thinking.type.{detail}" is not supported for this model',
}
