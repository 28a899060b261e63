"""The error texts of the two OpenAI dialects, by rule, with those of compatible servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from continuation.history.wordings import HALVES

_CHAT_NO_RESULT: Final = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
    " 'tool_call_id'. The following tool_call_ids did not have response messages: {detail}"
)
_CHAT_NO_CALL: Final = (
    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with"
    " 'tool_calls'."
)

CHAT_RULES: Final[Mapping[str, str]] = {
    "tool_result_missing": _CHAT_NO_RESULT,
    "tool_result_displaced": _CHAT_NO_RESULT,
    "tool_result_orphan": _CHAT_NO_CALL,
    "tool_result_duplicate": "Duplicate value for 'tool_call_id' of {id} in message[{n}]",
    # Moonshot; the double space is theirs
    "tool_result_id_missing": "Invalid request: tool_call_id {id} is not found",
    # Moonshot refuses empty ids, Mistral all but nine letters
    "tool_use_id_invalid": "Invalid request: tool_call_id {id} is not found",
    "tool_use_duplicate_id": "Duplicate value for 'tool_call_id' of {id} in message[{n}]",
    "tool_use_id_too_long": (
        "Invalid 'messages[{n}].tool_calls[{m}].id': string too long. Expected a string with"
        " maximum length 40."
    ),
    "content_invalid": "Invalid value for 'content': expected a string, got null.",
    "user_after_tool": "Unexpected role 'user' after role 'tool'",  # Mistral
    "roles_not_alternating": (  # chat templates, deepseek-reasoner
        "Conversation roles must alternate user/assistant/user/assistant/..."
    ),
    "tool_input_invalid": (
        "messages.{n}.tool_calls.{m}.function.arguments: arguments must be a valid JSON object"
        " string"
    ),
    "tool_calls_empty": "[] is too short - 'messages.{n}.tool_calls'",
    "text_surrogate": HALVES,
    "history_empty": (
        "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty"
        " array instead."
    ),
    "message_invalid": "Invalid type for 'messages[{n}]': expected an object",
    "message_foreign": "Invalid value for 'messages[{n}].content': a block of another dialect",
    "role_invalid": (
        "Invalid value for 'messages[{n}].role'. Supported values are: 'system', 'assistant',"
        " 'user', 'function', 'tool', and 'developer'."
    ),
    "message_empty": "Invalid assistant message: content or tool_calls must be set",
    # DeepSeek
    "content_empty_with_calls": "Invalid assistant message: content must not be an empty string",
    "reasoning_missing": (  # DeepSeek; Moonshot says the same in other words
        "The `reasoning_content` in the thinking mode must be passed back to the API."
    ),
    # Cerebras
    "reasoning_refused": "property 'messages.{n}.assistant.reasoning_content' is unsupported",
    "last_not_user": (  # Mistral, code 3230; deepseek-reasoner likewise
        "Expected last role User or Tool (or Assistant with prefix True) for serving but got"
        " assistant"
    ),
}

_RESPONSES_REASONING: Final = "Item '{id}' was provided without its required 'reasoning' item."

RESPONSES_RULES: Final[Mapping[str, str]] = {
    "tool_result_missing": "No tool output found for function call {detail}.",
    "tool_result_orphan": "No tool call found for function call output with call_id {id}.",
    "output_type_invalid": "No tool call found for {detail} output with call_id {id}.",
    "tool_result_duplicate": "Duplicate 'call_id': {id}",
    "tool_result_id_missing": "No tool call found for function call output with call_id {id}.",
    "tool_use_id_invalid": "Missing required parameter: 'input[{n}].call_id'.",
    "tool_use_duplicate_id": "Duplicate 'call_id': {id}",
    "tool_use_id_too_long": (
        "Invalid 'input[{n}].call_id': string too long. Expected a string with maximum length 64."
    ),
    "tool_input_invalid": "Invalid 'input[{n}].arguments': expected a JSON object string",
    "call_incomplete": "Invalid 'input[{n}].arguments': expected a JSON object string",
    "text_surrogate": HALVES,
    "history_empty": (
        "Invalid 'input': empty array. Expected an array with minimum length 1, but got an empty"
        " array instead."
    ),
    "message_invalid": "Invalid type for 'input[{n}]': expected an object",
    "message_empty": "Invalid 'input[{n}].content': empty",
    "role_invalid": (
        "Invalid value for 'input[{n}].role'. Supported values are: 'assistant', 'system',"
        " 'developer', and 'user'."
    ),
    "content_type_invalid": (  # of the assistant
        "Invalid value: '{detail}'. Supported values are: 'output_text' and 'refusal'."
    ),
    "input_type_invalid": (
        "Invalid value: '{detail}'. Supported values are: 'input_text', 'input_image', and"
        " 'input_file'."
    ),
    "reasoning_dangling": (
        "Item '{id}' of type 'reasoning' was provided without its required following item."
    ),
    "reasoning_missing": _RESPONSES_REASONING,
    "item_not_stored": (
        "Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try"
        " again with `store` set to true, or remove this item from your input."
    ),
    "item_duplicate": "Duplicate item found with id {id}.",
    "item_id_reused": "Duplicate item found with id {id}.",
    "item_id_invalid": (
        "Invalid 'input[{n}].id': '{id}'. Expected an ID that begins with '{detail}'."
    ),
    "encrypted_content_invalid": "The encrypted content for item {id} could not be verified.",
}
