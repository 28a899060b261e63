"""The error texts of the Messages API, by rule; texts that only some servers use are marked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from continuation.history.grammar import Rule

_NO_RESULT: Final = (
    "messages.{call}: `tool_use` ids were found without `tool_result` blocks immediately after: "
    "{detail}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
    "message."
)
_NO_CALL: Final = (
    "messages.{n}.content.{m}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each "
    "`tool_result` block must have a corresponding `tool_use` block in the previous message."
)
_SIGNATURE: Final = "messages.{n}.content.{m}: Invalid `signature` in `thinking` block"
_EXPECTED_THINKING: Final = (
    "messages.{n}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{detail}`."
    " When `thinking` is enabled, a final `assistant` message must start with a thinking block"
    " (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We recommend you"
    " include thinking blocks from previous turns. To avoid this requirement, disable `thinking`."
)
_PREFILL: Final = (
    "This model does not support assistant message prefill. The conversation must end with a user"
    " message."
)

RULES: Final[Mapping[str, Rule]] = {
    # pairing
    "tool_result_missing": Rule(_NO_RESULT, "synthesize_result"),
    "tool_result_displaced": Rule(_NO_RESULT, "move_result"),
    "tool_results_split": Rule(_NO_RESULT, "move_result"),
    "tool_result_not_first": Rule(_NO_RESULT, "move_result"),
    "tool_use_not_last": Rule(_NO_RESULT, "move_text"),
    "tool_result_orphan": Rule(_NO_CALL, "drop_result"),
    "tool_result_duplicate": Rule(
        "messages.{n}.content.{m}: each tool_use must have a single result. Found multiple"
        " `tool_result` blocks with id: {id}",
        "drop_result",
    ),
    "tool_result_id_missing": Rule(_NO_CALL, "rename_result"),
    "tool_use_duplicate_id": Rule("messages: `tool_use` ids must be unique", "rename_call"),
    "tool_use_id_invalid": Rule(
        "messages.{n}.content.{m}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        "rename_call",
    ),
    "tool_use_id_too_long": Rule(
        "messages.{n}.content.{m}.tool_use.id: String should have at most 64 characters",
        "rename_call",
    ),
    "tool_input_invalid": Rule(
        "messages.{n}.content.{m}.tool_use.input: Input should be a valid dictionary",
        "fix_arguments",
    ),
    "tool_use_in_user": Rule(
        "messages.{n}: `tool_use` blocks can only be in `assistant` messages", "split_message"
    ),
    "tool_result_in_assistant": Rule(
        "messages.{n}: `tool_result` blocks can only be in `user` messages", "split_message"
    ),
    "server_result_missing": Rule(
        "messages.{n}.content.{m}: `{name}` tool use with id `{id}` was found without a"
        " corresponding `{name}_tool_result` block",
        "drop_call",
    ),
    "server_result_orphan": Rule(
        "messages.{n}.content.{m}: unexpected `tool_use_id` found in tool result blocks: {id}",
        "drop_call",
    ),
    "tools_undeclared": Rule(
        "Requests which include `tool_use` or `tool_result` blocks must define tools.",
        "declare_tools",
    ),
    # shape, roles and texts
    "message_invalid": Rule("messages.{n}: Input should be a valid dictionary", "convert_message"),
    "role_invalid": Rule(
        "messages.{n}.role: Input should be 'user' or 'assistant'", "convert_message"
    ),
    "block_invalid": Rule(
        "messages.{n}.content.{m}: Input tag does not match any of the expected tags",
        "convert_block",
    ),
    "first_not_user": Rule('messages: first message must use the "user" role', "add_first_user"),
    "roles_not_alternating": Rule(  # older servers, Bedrock; the API itself joins neighbours
        'messages: roles must alternate between "user" and "assistant", but found multiple of one'
        " role in a row",
        "merge_messages",
    ),
    "text_empty": Rule("messages: text content blocks must be non-empty", "drop_text"),
    "text_blank": Rule(
        "messages: text content blocks must contain non-whitespace text", "drop_text"
    ),
    "result_text_empty": Rule("messages: text content blocks must be non-empty", "drop_text"),
    "system_text_empty": Rule("system: text content blocks must be non-empty", "drop_text"),
    "message_empty": Rule(
        "messages.{n}: all messages must have non-empty content except for the optional final"
        " assistant message",
        "drop_message",
    ),
    "trailing_whitespace": Rule(
        "messages: final assistant content cannot end with trailing whitespace", "trim_text"
    ),
    "prefill_unsupported": Rule(_PREFILL, "add_last_user"),
    # thinking
    "thinking_missing": Rule(_EXPECTED_THINKING, "thinking_off"),
    "thinking_not_first": Rule(
        "messages.{n}.content.0.type: If an assistant message contains any thinking blocks, the"
        " first block must be `thinking` or `redacted_thinking`. Found `{detail}`.",
        "drop_thinking",
    ),
    "thinking_modified": Rule(
        "messages.{n}.content.{m}: `thinking` or `redacted_thinking` blocks in the latest assistant"
        " message cannot be modified. These blocks must remain as they were in the original"
        " response.",
        "drop_thinking",
    ),
    "thinking_unsigned": Rule(_SIGNATURE, "drop_thinking"),
    "thinking_foreign": Rule(_SIGNATURE, "drop_thinking"),
    "thinking_redacted_invalid": Rule(
        "messages.{n}.content.{m}: Invalid `data` in `redacted_thinking` block", "drop_thinking"
    ),
    "thinking_blank": Rule(
        "messages.{n}.content.{m}.thinking: each thinking block must contain thinking",
        "drop_thinking",
    ),
    "thinking_last": Rule(
        "messages.{n}: The final block in an assistant message cannot be `thinking`.",
        "drop_thinking",
    ),
    "thinking_bound": Rule(
        _SIGNATURE + ". The block is bound to a different conversation. Remove the block, or set"
        ' `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".',
        "drop_thinking",
    ),
    "thinking_in_user": Rule(
        "messages.{n}: `thinking` blocks can only be in `assistant` messages", "drop_thinking"
    ),
    "thinking_when_off": Rule(  # Bedrock and others; the API itself is tolerant
        "messages.{n}: When thinking is disabled, an `assistant` message in the final position"
        " cannot contain `thinking`. To use thinking blocks, enable `thinking` in your request.",
        "drop_thinking",
    ),
    "thinking_unsupported": Rule(
        "messages.{n}.content.{m}: thinking is not supported on this model", "drop_thinking"
    ),
    "thinking_mode_unsupported": Rule(
        '"thinking.type.{detail}" is not supported for this model', "thinking_off"
    ),
}
