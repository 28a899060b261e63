"""The error texts of the two OpenAI dialects, by rule, with those of compatible servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from continuation.history.grammar import Rule

_CHAT_NO_RESULT: Final = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
    " 'tool_call_id'. The following tool_call_ids did not have response messages: {detail}"
)
_CHAT_NO_CALL: Final = (
    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with"
    " 'tool_calls'."
)

CHAT_RULES: Final[Mapping[str, Rule]] = {
    "tool_result_missing": Rule(_CHAT_NO_RESULT, "synthesize_result"),
    "tool_result_displaced": Rule(_CHAT_NO_RESULT, "move_result"),
    "tool_result_orphan": Rule(_CHAT_NO_CALL, "drop_result"),
    "tool_result_duplicate": Rule(
        "Duplicate value for 'tool_call_id' of {id} in message[{n}]", "drop_result"
    ),
    "tool_result_id_missing": Rule(  # Moonshot; the double space is theirs
        "Invalid request: tool_call_id {id} is not found", "rename_result"
    ),
    "tool_use_id_invalid": Rule(  # Moonshot refuses empty ids, Mistral all but nine letters
        "Invalid request: tool_call_id {id} is not found", "rename_call"
    ),
    "tool_use_duplicate_id": Rule(
        "Duplicate value for 'tool_call_id' of {id} in message[{n}]", "rename_call"
    ),
    "tool_input_invalid": Rule(
        "messages.{n}.tool_calls.{m}.function.arguments: arguments must be a valid JSON object"
        " string",
        "fix_arguments",
    ),
    "tool_calls_empty": Rule("[] is too short - 'messages.{n}.tool_calls'", "convert_message"),
    "message_invalid": Rule(
        "Invalid type for 'messages[{n}]': expected an object", "convert_message"
    ),
    "message_foreign": Rule(
        "Invalid value for 'messages[{n}].content': a block of another dialect", "convert_message"
    ),
    "role_invalid": Rule(
        "Invalid value for 'messages[{n}].role'. Supported values are: 'system', 'assistant',"
        " 'user', 'function', 'tool', and 'developer'.",
        "convert_message",
    ),
    "message_empty": Rule(
        "Invalid assistant message: content or tool_calls must be set", "drop_message"
    ),
    "content_empty_with_calls": Rule(  # DeepSeek
        "Invalid assistant message: content must not be an empty string", "drop_text"
    ),
    "reasoning_missing": Rule(  # DeepSeek; Moonshot says the same in other words
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "fill_reasoning",
    ),
    "reasoning_refused": Rule(  # Cerebras
        "property 'messages.{n}.assistant.reasoning_content' is unsupported", "drop_thinking"
    ),
    "last_not_user": Rule(  # Mistral, code 3230; deepseek-reasoner likewise
        "Expected last role User or Tool (or Assistant with prefix True) for serving but got"
        " assistant",
        "add_last_user",
    ),
    "roles_not_alternating": Rule("", "merge_messages"),
}

_RESPONSES_REASONING: Final = "Item '{id}' was provided without its required 'reasoning' item."

RESPONSES_RULES: Final[Mapping[str, Rule]] = {
    "tool_result_missing": Rule(
        "No tool output found for function call {detail}.", "synthesize_result"
    ),
    "tool_result_orphan": Rule(
        "No tool call found for function call output with call_id {id}.", "drop_result"
    ),
    "tool_result_duplicate": Rule("Duplicate 'call_id': {id}", "drop_result"),
    "tool_result_id_missing": Rule(
        "No tool call found for function call output with call_id {id}.", "rename_result"
    ),
    "tool_use_id_invalid": Rule("Missing required parameter: 'input[{n}].call_id'.", "rename_call"),
    "tool_use_duplicate_id": Rule("Duplicate 'call_id': {id}", "rename_call"),
    "tool_input_invalid": Rule(
        "Invalid 'input[{n}].arguments': expected a JSON object string", "fix_arguments"
    ),
    "call_incomplete": Rule(
        "Invalid 'input[{n}].arguments': expected a JSON object string", "drop_call"
    ),
    "message_invalid": Rule("Invalid type for 'input[{n}]': expected an object", "convert_message"),
    "message_empty": Rule("Invalid 'input[{n}].content': empty", "drop_message"),
    "role_invalid": Rule(
        "Invalid value for 'input[{n}].role'. Supported values are: 'assistant', 'system',"
        " 'developer', and 'user'.",
        "convert_message",
    ),
    "content_type_invalid": Rule(  # of the assistant
        "Invalid value: '{detail}'. Supported values are: 'output_text' and 'refusal'.",
        "convert_block",
    ),
    "input_type_invalid": Rule(
        "Invalid value: '{detail}'. Supported values are: 'input_text', 'input_image', and"
        " 'input_file'.",
        "convert_block",
    ),
    "reasoning_dangling": Rule(
        "Item '{id}' of type 'reasoning' was provided without its required following item.",
        "drop_thinking",
    ),
    "reasoning_missing": Rule(_RESPONSES_REASONING, "strip_id"),
    "item_not_stored": Rule(
        "Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try"
        " again with `store` set to true, or remove this item from your input.",
        "drop_thinking",
    ),
    "item_duplicate": Rule("Duplicate item found with id {id}.", "drop_message"),
    "item_id_reused": Rule("Duplicate item found with id {id}.", "strip_id"),
    "item_id_invalid": Rule(
        "Invalid 'input[{n}].id': '{id}'. Expected an ID that begins with '{detail}'.", "strip_id"
    ),
    "encrypted_content_invalid": Rule(
        "The encrypted content for item {id} could not be verified.", "drop_thinking"
    ),
    "roles_not_alternating": Rule("", "merge_messages"),
}
