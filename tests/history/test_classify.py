from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest

from continuation.history import classify
from continuation.history.classify import message_of
from continuation.history.rules import REPAIRS, texts
from continuation.history.types import HistoryFormat
from continuation.providers.openai_responses.history import ResponsesGrammar

TEXTS = """
thinking_bound drop_thinking
    messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a
        different conversation. Remove the block, or set
        `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".
thinking_modified drop_thinking
    messages.5.content.1: `thinking` or `redacted_thinking` blocks in the latest assistant
        message cannot be modified. These blocks must remain as they were
thinking_foreign drop_thinking
    messages.1.content.0: Invalid `signature` in `thinking` block
    messages.1.content.0.thinking.signature: Field required
    Invalid `data` in `redacted_thinking` block
thinking_last drop_thinking
    The final block in an assistant message cannot be `thinking`.
thinking_missing thinking_off
    messages.3.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`.
        When `thinking` is enabled, a final `assistant` message must start with a thinking block
        (preceeding the lastmost set of `tool_use` and `tool_result` blocks). To avoid this
        requirement, disable `thinking`.
    messages.3.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`
    Expected thinking but found tool_use
thinking_not_first drop_thinking
    If an assistant message contains any thinking blocks, the first block must be `thinking` or
        `redacted_thinking`. Found `text`.
thinking_when_off drop_thinking
    When thinking is disabled, an `assistant` message in the final position cannot contain
        `thinking`. To use thinking blocks, enable `thinking` in your request.
thought_signature_missing sign_call
    Unable to submit request because function call `edit_image` in the 2. content block is
        missing a `thought_signature`.
    Function call is missing a thought_signature in functionCall parts. This is required
thought_signature_invalid strip_signature
    Unable to submit request because Thought signature is not valid
    Corrupted thought signature.
    Invalid value at 'contents[1].parts[0].thought_signature' (TYPE_BYTES), Base64 decoding
        failed
    Invalid thought signature.
reasoning_missing fill_reasoning
    The `reasoning_content` in the thinking mode must be passed back to the API.
    thinking is enabled but reasoning_content is missing in assistant tool call message at index
        3
    The content[].thinking in the thinking mode must be passed back to the API.
reasoning_missing strip_id
    Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item:
        'rs_1'.
reasoning_refused drop_thinking
    property 'messages.2.assistant.reasoning_content' is unsupported
reasoning_dangling drop_thinking
    Item 'rs_1' of type 'reasoning' was provided without its required following item.
item_not_stored drop_thinking
    Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.
item_duplicate drop_message
    Duplicate item found with id msg_1. Remove duplicate items
item_id_invalid strip_id
    Invalid 'input[3].id': 'x'. Expected an ID that begins with 'fc'.
encrypted_content_invalid drop_thinking
    The encrypted content gAAA could not be verified.
    invalid_encrypted_content: The encrypted content could not be decrypted
anchor_lost -
    Previous response with id 'resp_1' not found.
tool_result_orphan drop_result
    No tool call found for function call output with call_id call_1.
    messages.2.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1. Each
        `tool_result` block must have a corresponding `tool_use` block in the previous message.
    Invalid parameter: messages with role 'tool' must be a response to a preceeding message with
        'tool_calls'.
    Messages with role "tool" must be a response to a preceding message with “tool_calls”
    Invalid request: tool_call_id  is not found
    The number of toolResult blocks at messages.2.content exceeds the number of toolUse blocks
        of previous turn.
    Please ensure that function response turn comes immediately after a function call turn.
    messages.2.content.0: `tool_result` block(s) provided when previous message does not contain any
        `tool_use` blocks
    Invalid parameter: 'tool_call_id' of 'call_1' not found in 'tool_calls' of previous message.
    Please ensure that function response turns come immediately after a function call turn.
    Unexpected role 'tool' after role 'user'
    No tool call found for custom tool call output with call_id call_1.
    No tool call found for tool search output with call_id call_1.
tool_result_missing synthesize_result
    No tool output found for function call call_1.
    messages.1: `tool_use` ids were found without `tool_result` blocks immediately after:
        toolu_1. Each `tool_use` block must have a corresponding `tool_result` block
    An assistant message with 'tool_calls' must be followed by tool messages responding to each
        'tool_call_id'. The following tool_call_ids did not have response messages: call_1
    (insufficient tool messages following tool_calls message)
    Expected toolResult blocks at messages.2.content for the following Ids: tooluse_1
    Please ensure that the number of function response parts is equal to the number of function
        call parts of the function call turn.
    Not the same number of function calls and responses
    messages.6: Did not find 1 `tool_result` block(s) at the beginning of this message. Messages
        following `tool_use` blocks must begin with a matching number of `tool_result` blocks.
    messages.9: Did not find 2 `tool_result` block(s) at the beginning of this message.
tool_result_duplicate drop_result
    messages.2: each tool_use must have a single result. Found multiple `tool_result` blocks
        with id: toolu_1
    Duplicate value for 'tool_call_id' of call_1 in message[2]
tool_use_duplicate_id rename_call
    messages: `tool_use` ids must be unique
    Duplicate 'call_id': call_1
server_result_missing drop_call
    `web_search` tool use with id `srvtoolu_1` was found without a corresponding
        `web_search_tool_result` block
tools_undeclared declare_tools
    Requests which include `tool_use` or `tool_result` blocks must define tools.
    The toolConfig field must be defined when using toolUse
roles_not_alternating merge_messages
    messages: roles must alternate between "user" and "assistant", but found multiple "user"
        roles in a row
    A conversation must alternate between user and assistant roles. Make sure
    Conversation roles must alternate user/assistant/user/assistant/...
    After the optional system message, conversation roles must alternate user/assistant
    deepseek-reasoner does not support successive user or assistant messages
    Please ensure that multiturn requests alternate between user and model
first_not_user add_first_user
    A conversation must start with a user message. Try again
    Please ensure that function call turn comes immediately after a user turn or after a
        function response turn.
    messages: first message must use the "user" role
    Please ensure that function call turns come immediately after a user turn or after a function
        response turn
role_invalid convert_message
    Please use a valid role: user, model.
    messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter
    messages.5.role: Input should be 'user' or 'assistant'
    Invalid value: 'tool'. Supported values are: 'assistant', 'system', 'developer', and 'user'.
    Invalid value: 'model'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool',
        and 'developer'.
    role 'system' is not supported on this model
    Chat template error: System message must be at the beginning.
    messages[1].role must be either 'user' or 'assistant', but got 'system'
    Failed to deserialize the JSON body into the target type: messages[1].role: unknown variant
        `system`, expected `user` or `assistant` at line 1 column 1932
system_misplaced place_system
    messages.67: role 'system' must precede an 'assistant' message or end the array
    messages.2: role 'system' must follow a 'user' message or an 'assistant' message ending in a
        server tool result; the directive-only form (content: [] with output_config) is accepted
        at any position
    messages.0: use the top-level 'system' parameter for the initial system prompt; the
        directive-only form (content: [] with output_config) is accepted at any position
text_empty drop_text
    messages.1.content.0.text: cache_control cannot be set for empty text blocks
    messages: text content blocks must be non-empty
text_blank drop_text
    messages: text content blocks must contain non-whitespace text
    The text field in the ContentBlock object at messages.1.content.0 is blank. Add text
message_empty drop_message
    messages.2: all messages must have non-empty content except for the optional final assistant
        message
    the message at position 3 with role 'assistant' must not be empty
    GenerateContentRequest.contents[23].parts: contents.parts must not be empty.
    Unable to submit request because it must include at least one parts field
    Invalid assistant message: content or tool_calls must be set
    Assistant message must have either content or tool_calls, but not none.
    The content field in the Message object at messages.1 is empty.
    messages.0: user messages must have non-empty content
    messages.1: system content must contain at least one block
trailing_whitespace trim_text
    messages: final assistant content cannot end with trailing whitespace
prefill_unsupported add_last_user
    This model does not support assistant message prefill. The conversation must end with a user
        message.
    Requests ending with a model turn are not supported unless the last part is a function
        response.
last_not_user add_last_user
    Expected last role User or Tool (or Assistant with prefix True) for serving but got
        assistant
    Please ensure that multiturn requests ends with a user role or a function response
    The last message of deepseek-reasoner must be a user message, or an assistant message with
        prefix mode on
error_result_not_text move_content
    messages.2.content.0.tool_result: all content must be type `text` if `is_error` is true
    all content must be type 'text' if 'is_error' is true
tool_name_invalid rename_tool
    messages.1.content.1.tool_use.name: String should have at most 200 characters
    messages.5.content.1.tool_use.name: String should have at least 1 character
    Invalid 'messages[9].tool_calls[0].function.name': string does not match pattern. Expected a
        string that matches the pattern '^[a-zA-Z0-9_-]+$'.
    Invalid 'input[226].name': empty string. Expected a string with minimum length 1
    * GenerateContentRequest.contents[3].parts[0].function_response.name: Name cannot be empty.
    Value 'browser.tabs.open' at 'messages.3.member.content.1.member.toolUse.name' failed to satisfy
        constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_-]+
tool_use_id_invalid rename_call
    messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+'
    Tool call id was call_abc but must be a-z, A-Z, 0-9, with a length of 9.
    Tool call IDs should be alphanumeric strings with length 9!
    Missing required parameter: 'input[1].call_id'.
tool_input_invalid fix_arguments
    messages.1.content.0.tool_use.input: Input should be a valid dictionary
    messages.70.tool_calls.0.function.arguments: arguments must be a valid JSON object string
    messages.3.content.1.tool_use.input: Field required
text_surrogate replace_halves
    The request body is not valid JSON: no low surrogate in string: line 1 column 158059 (char
        158058)
    invalid request body: lone leading surrogate in hex escape at line 1 column 90
user_after_tool add_assistant
    Unexpected role 'user' after role 'tool'
history_empty add_first_user
    messages: at least one message is required
    * GenerateContentRequest.contents: contents is not specified
    Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty
        array instead.
    [] is too short - 'messages'
tool_calls_empty convert_message
    [] is too short - 'messages.1.tool_calls'
    Invalid 'messages[1].tool_calls': empty array. Expected an array with minimum length 1
content_invalid convert_message
    Invalid value for 'content': expected a string, got null.
    messages.1.content: Input should be a valid list
    messages.3.content: Field required
tool_use_id_too_long rename_call
    Invalid 'messages[3].tool_calls[0].id': string too long. Expected a string with maximum length
        40, but got a string with length 46 instead.
    messages.1.content.0.tool_use.id: String should have at most 64 characters
block_invalid convert_block
    messages.12.content.1: Input tag 'image_url' found using 'type' does not match any of the
        expected tags: 'document', 'image', 'text'
    contents[2].parts[0].data: required oneof field 'data' must have one initialized field
content_type_invalid convert_block
    Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.
input_type_invalid convert_block
    Invalid value: 'output_text'. Supported values are: 'input_text', 'input_image', and
        'input_file'.
    Invalid value: 'image_url'. Supported values are: 'input_text', 'input_image', 'output_text',
        'refusal', 'input_file', 'computer_screenshot', and 'summary_text'.
content_empty_with_calls drop_text
    Invalid assistant message: content must not be an empty string
message_foreign convert_message
    Invalid value: 'tool_use'. Supported values are: 'text', 'image_url', 'input_audio', 'refusal',
        'audio', and 'file'.
    Invalid value: 'image'. Supported values are: 'text', 'image_url', 'input_audio' and 'file'.
field_foreign -
    messages.1.refusal: Extra inputs are not permitted
    messages.3.annotations: Extra inputs are not permitted
    Invalid type for 'messages[2].content': expected one of a string or array of objects, but got an
        object instead.
    Invalid type for 'messages[1].tool_calls[0].function.arguments': expected a string, but got an
        object instead.
    Invalid JSON payload received. Unknown name "content" at 'contents[1]': Cannot find field.
thinking_blank drop_thinking
    messages.1.content.0.thinking: each thinking block must contain thinking
thinking_mode_unsupported thinking_off
    "thinking.type.enabled" is not supported for this model.
    "thinking.type.disabled" is not supported for this model.
    adaptive thinking is not supported on this model
tool_use_in_user split_message
    messages.4: `tool_use` blocks can only be in `assistant` messages
tool_result_in_assistant split_message
    messages.4: `tool_result` blocks can only be in `user` messages
"""
"""A code and its repair, and below them what providers say; what goes on is indented further."""
FIXTURES = [
    (re.sub(r"\n +", " ", text), *head.split())
    for head, *texts in (
        re.split(r"\n    (?! )", block) for block in re.split(r"\n(?! )", TEXTS)[1:-1]
    )
    for text in texts
]

STRANGERS = [
    "Prompt is too long",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "This model's maximum context length is 128000 tokens",
    "context length exceeded",
    "Rate limit reached for requests",
    "Tool Debug Summary: expected=1 found=0 tool_use tool_result",
    "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens",
    "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum",
    "The model `gpt-9` does not exist",
    "Item not found",
    "",
    "thinking",
    "credit balance is too low",
]


@pytest.mark.parametrize(("text", "code", "mend"), FIXTURES, ids=range(len(FIXTURES)))
def test_a_providers_text_is_classified_wherever_a_gateway_puts_it(
    text: str, code: str, mend: str
) -> None:
    body: dict[str, Any] = {"type": "error", "error": {"type": "x", "message": text}}
    inside = {"data": {"error": {"message": text}}}, {"detail": json.dumps(body)}
    given: list[Any] = [text, body, json.dumps(body).encode(), *inside]
    for status, each in itertools.product((400, 422), given):
        error = classify(status, each)
        assert error is not None
        assert error.code == code
    assert mend in {REPAIRS.get(code, "-"), ResponsesGrammar.repairs.get(code)}


@pytest.mark.parametrize("text", STRANGERS)
def test_other_errors_are_not_ours(text: str) -> None:
    assert classify(400, text) is None


@pytest.mark.parametrize("status", [200, 401, 403, 413, 429, 500, 529])
def test_only_refusals_of_the_request_are_looked_at(status: int) -> None:
    assert classify(status, FIXTURES[0][0]) is None


_TEXTS = {rule: text for each in HistoryFormat for rule, text in texts(each).items()}


@pytest.mark.parametrize(("code", "text"), sorted(_TEXTS.items()), ids=sorted(_TEXTS))
def test_the_words_of_every_rule_are_recognised_unless_no_provider_has_them(
    code: str, text: str
) -> None:
    invented = {"message_invalid", "block_invalid", "message_foreign", "tool_use_id_too_long"}
    invented |= {"tool_use_in_user", "tool_result_in_assistant", "thinking_in_user"}
    invented |= {"call_incomplete", "server_result_orphan", "role_invalid", "message_empty"}
    invented |= {"tool_use_id_invalid", "tool_input_invalid"}
    text = text.format(n=1, m=0, call=1, id="toolu_1", name="web_search", detail="text")
    assert classify(400, text) is not None or code in invented


def test_index_part_and_ids_are_read_from_the_text() -> None:
    error = classify(
        400,
        "messages.7.content.2: unexpected `tool_use_id` found in `tool_result` blocks: toolu_01A",
    )
    assert error is not None
    assert (error.index, error.part, error.ids) == (7, 2, ("toolu_01A",))


def test_the_code_of_an_error_counts_too() -> None:
    error = classify(
        404, {"error": {"code": "previous_response_not_found", "message": "it is gone"}}
    )
    assert error is not None
    assert error.code == "anchor_lost"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"error": {"message": "a"}}, "a"),
        ({"message": "b"}, "b"),
        ({"data": {"message": "c"}}, "c"),
        ("not json", "not json"),
        ({"x": 1}, '{"x": 1}'),
    ],
)
def test_the_message_of_a_body(body: Any, text: str) -> None:
    assert message_of(body) == text
