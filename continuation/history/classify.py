"""Which error texts mean that the history is at fault, and what to do about each.

One table for all providers, in order: the first row that fits wins. Thinking comes before pairing,
because Anthropic's text on thinking order names both `tool_use` and `tool_result`. Rows are plain
substrings of the lower-cased text without its quotation marks, so that escaped, back-ticked and
curly spellings are one, and an error costs microseconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from continuation.history.types import RepairPolicy
from continuation.wire.json_values import as_map, parsed

Family: TypeAlias = Literal["thinking", "reasoning", "pairing", "order", "content", "anchor"]


@dataclass(frozen=True, slots=True)
class HistoryError:
    """A provider's complaint about a history."""

    code: str
    """The violation's code, as `validate` names it."""
    family: Family
    """What it is about; "anchor" for a `previous_response_id` that is lost."""
    index: int | None = None
    """Index of the message, if the text names one; in the provider's count, not the caller's."""
    part: int | None = None
    """Index of the block or part in that message, if the text names one."""
    ids: tuple[str, ...] = ()
    """Call and item ids that the text names."""

    def policy(self, base: RepairPolicy | None = None) -> RepairPolicy:
        """The policy to repair with after this error: the request was sent and refused.

        So no call in it is alive, and rules that only some servers enforce are enforced here.
        """
        return replace(base if base is not None else RepairPolicy(), strict=True, live=False)

    def forced(self, base: RepairPolicy | None = None) -> RepairPolicy:
        """The policy where the history shows no fault of this kind, but the provider saw one."""
        policy = self.policy(base)
        if self.code in ("thinking_missing", "thinking_not_first"):
            return replace(policy, thinking="off")
        if self.code in ("reasoning_missing", "reasoning_refused") and self.family == "thinking":
            return replace(
                policy, reasoning="fill" if self.code == "reasoning_missing" else "strip"
            )
        if self.family in ("thinking", "reasoning"):
            return replace(policy, thinking="strip")
        if self.code in ("prefill_unsupported", "last_not_user"):
            return replace(policy, prefill=False)
        if self.code == "roles_not_alternating":
            return replace(policy, alternate=True)
        if self.code in ("user_after_tool", "tool_use_id_invalid") and policy.vendor is None:
            return replace(policy, vendor="mistral")  # whose rules other servers keep as well
        return policy


#: Another matter, with remedies of its own: too long, too many, too large, too fast.
_NOT_OURS: Final = (
    *("prompt is too long", "context length", "context_length", "context window"),
    *("maximum context", "input is too long", "too many requests", "rate limit", "rate_limit"),
    *("request too large", "request_too_large", "could not process image", "image exceeds"),
    *("image dimensions", "invalid image", "unsupported image", "image_url", "tool debug summary"),
)

_ITEM_WORDS: Final = "reasoning|item|encrypt|previous|no tool|passed back|begins"

#: Groups of rows: a family, words of which every text of the group has at least one, and its rows.
#: A row is a code and the signs of it; a sign with an ellipsis is two, both of which must be there.
_TABLE: Final[tuple[tuple[Family, str, tuple[tuple[str, str], ...]], ...]] = (
    (
        "thinking",  # before anything that speaks of tools
        "thinking|thought",
        (
            ("thinking_bound", "bound to a different conversation"),
            ("thinking_modified", "thinking…cannot be modified"),
            ("thinking_foreign", "invalid signature in thinking|thinking.signature…field required"),
            ("thinking_foreign", "invalid data in redacted"),
            ("thinking_last", "final block in an assistant message cannot be"),
            ("thinking_blank", "each thinking block must contain thinking"),
            ("thinking_missing", "must start with a thinking block|expected thinking…but found"),
            ("thinking_missing", "expected thinking…found text|expected thinking…found tool_use"),
            ("thinking_not_first", "first block must be thinking|first block…thinking"),
            ("thinking_when_off", "thinking is disabled…cannot contain"),
            ("thinking_mode_unsupported", "thinking.type.…not supported"),
            ("thinking_mode_unsupported", "adaptive thinking is not supported"),
            ("thinking_unsupported", "thinking…not supported on this model"),
            ("thought_signature_missing", "missing a thought_signature|missing thought_signature"),
            (
                "thought_signature_invalid",
                "thought signature…not valid|thought_signature…not valid",
            ),
            ("thought_signature_invalid", "corrupted thought|invalid thought"),
            ("thought_signature_invalid", "thought_signature…base64|thoughtsignature…base64"),
        ),
    ),
    (
        "thinking",  # `reasoning_content` in Chat
        _ITEM_WORDS,
        (
            ("reasoning_missing", "reasoning_content…missing|reasoning_content…passed back"),
            ("reasoning_missing", "content[].thinking…passed back"),
            ("reasoning_refused", "reasoning_content…unsupported|reasoning_content…not permitted"),
        ),
    ),
    (
        "reasoning",  # the Responses dialect's items
        _ITEM_WORDS,
        (
            ("reasoning_dangling", "without its required following item"),
            ("reasoning_missing", "without its required reasoning item"),
            ("item_not_stored", "items are not persisted when"),
            ("item_duplicate", "duplicate item found"),
            ("item_id_invalid", "expected an id that begins with"),
            ("encrypted_content_invalid", "invalid_encrypted_content"),
            ("encrypted_content_invalid", "encrypted content…verif|encrypted content…decrypt"),
        ),
    ),
    (
        "anchor",
        _ITEM_WORDS,
        (("anchor_lost", "previous_response_not_found|previous response with id"),),
    ),
    (
        "pairing",
        _ITEM_WORDS,
        (
            ("tool_result_orphan", "no tool call found for…output"),
            ("tool_result_missing", "no tool output found for"),
        ),
    ),
    (
        "pairing",
        "tool|result|ids must be|call_id|function",
        (
            ("user_after_tool", "unexpected role user after role tool"),
            ("tool_result_orphan", "unexpected role tool after"),
            ("tool_use_in_user", "tool_use blocks can only be in assistant"),
            ("tool_result_in_assistant", "tool_result blocks can only be in user"),
            ("tool_use_id_too_long", "id: string too long|id: string should have at most"),
            ("tool_use_id_invalid", "tool call id…must be a-z|tool call id has to be defined"),
            ("tool_use_id_invalid", "tool call ids should be alphanumeric"),
            ("tool_result_duplicate", "single result|multiple tool_result"),
            ("tool_result_duplicate", "duplicate value for tool_call_id"),
            ("tool_use_duplicate_id", "ids must be unique|duplicate call_id"),
            ("tool_result_orphan", "unexpected tool_use_id|role tool must be a response"),
            ("tool_result_orphan", "tool_call_id… is not found|exceeds the number of tooluse"),
            ("tool_result_orphan", "tool_result block…previous message does not contain"),
            ("tool_result_orphan", "not found in tool_calls of previous message"),
            ("tool_result_orphan", "function response turn comes|function response turns come"),
            ("tool_result_missing", "did not find…tool_result block"),
            ("tool_result_missing", "without tool_result blocks|must be followed by tool messages"),
            ("tool_result_missing", "did not have response messages|insufficient tool messages"),
            ("tool_result_missing", "expected toolresult blocks|number of function response parts"),
            ("tool_result_missing", "not the same number of function calls"),
            ("server_result_missing", "without a corresponding…_tool_result"),
            ("tools_undeclared", "must define tools|toolconfig field must be defined"),
        ),
    ),
    (
        "order",
        "role|turn|user|pref|successive",
        (
            ("prefill_unsupported", "last part is a function response|last turn cannot be model"),
            ("roles_not_alternating", "roles must alternate|roles in a row|role in a row"),
            ("roles_not_alternating", "alternate between user and"),
            ("roles_not_alternating", "does not support successive user or assistant"),
            ("roles_not_alternating", "unexpected role user after|unexpected role assistant after"),
            ("first_not_user", "function call turn comes immediately|first message must use"),
            ("first_not_user", "function call turns come immediately"),
            ("first_not_user", "must start with a user message"),
            ("role_invalid", "valid role…user, model|valid role:user|unexpected role"),
            ("role_invalid", "role: input should be user or assistant|roles are supported"),
            ("last_not_user", "ends with a user role|end with a user role"),
            ("prefill_unsupported", "assistant message prefill|prefilling assistant messages"),
            ("last_not_user", "expected last role|prefix mode on"),
        ),
    ),
    (
        "content",
        "empty|blank|must|parts|short|whitespace|valid|pattern|supported|surrogate|null|required"
        "|not specified",
        (
            ("text_surrogate", "surrogate"),
            ("tool_calls_empty", "tool_calls: empty array"),
            ("history_empty", "at least one message is required|messages: empty array"),
            ("history_empty", "input: empty array|contents is not specified"),
            ("message_empty", "must have non-empty content"),
            ("text_empty", "must be non-empty"),
            ("text_blank", "must contain non-whitespace"),
            ("text_blank", "text field in the contentblock…is blank"),
            ("text_empty", "empty text parameter"),
            ("message_empty", "assistant…must not be empty|contents.parts must not be empty"),
            ("message_empty", "at least one parts field|content or tool_calls must be set"),
            ("content_empty_with_calls", "content must not be an empty string"),
            ("message_empty", "content field in the message object…is empty"),
            ("message_empty", "must have either content or tool_calls"),
            ("tool_calls_empty", "too short…tool_calls"),
            ("history_empty", "too short - messages"),
            ("trailing_whitespace", "trailing whitespace"),
            ("tool_use_id_invalid", "should match pattern ^[a-za-z0-9_-]"),
            ("tool_input_invalid", "input should be a valid dictionary|valid json object string"),
            ("tool_input_invalid", "tool_use.input: field required"),
            ("block_invalid", "required oneof field data"),
            ("content_invalid", "content: input should be a valid|content: field required"),
            ("content_invalid", "got null"),
            ("content_type_invalid", "supported values are: output_text and refusal"),
            ("input_type_invalid", "supported values are: input_text, input_image"),
        ),
    ),
)

_Row: TypeAlias = tuple[str, Family, str, str]
_ROWS: Final[list[tuple[Sequence[str], list[_Row]]]] = [
    (
        words.split("|"),
        [
            (code, family, first, second)
            for code, signs in rows
            for first, _, second in (sign.partition("…") for sign in signs.split("|"))
        ],
    )
    for family, words, rows in _TABLE
]
"""The table as it is read: every row has two signs, of which the second may be empty."""

_STATUSES: Final = frozenset({400, 404, 422})
_LONGEST: Final = 1_200
_QUOTES: Final = "`'\"\\\u201c\u201d\u2018\u2019"
_WHERE: Final = re.compile(
    r"(?:messages|contents|input)[.\[](\d+)\]?(?:[.\[]*(?:content|parts)[.\[](\d+))?"
)
_IDS: Final = re.compile(
    r"\b(?:toolu|srvtoolu|call|fc|rs|msg|ws|ctc|resp|chatcmpl-tool)_[A-Za-z0-9_-]+"
)


def classify(status: int, message: str | bytes | Mapping[str, Any]) -> HistoryError | None:
    """Tell whether an error answer blames the history, and for what; None if it does not.

    `message` is the error's text, or the body of the answer, decoded or not. Give only what the
    provider said: a text that quotes a tool's output would be taken at its word.
    """
    if status not in _STATUSES:
        return None
    text = message if isinstance(message, str) and message[:1] != "{" else message_of(message)
    text = text[:_LONGEST]
    plain = text.lower()
    for mark in _QUOTES:
        plain = plain.replace(mark, "")
    fitting = (
        row
        for words, rows in _ROWS
        if any(word in plain for word in words)
        for row in rows
        if row[2] in plain and row[3] in plain
    )
    row = next(fitting, None)
    if row is None or any(sign in plain for sign in _NOT_OURS):
        return None
    where = _WHERE.search(text)
    index, part = (int(n) if n else None for n in where.groups()) if where else (None, None)
    return HistoryError(row[0], row[1], index, part, tuple(dict.fromkeys(_IDS.findall(text))))


def message_of(body: str | bytes | Mapping[str, Any]) -> str:
    """The text of an error answer, wherever a provider or gateway put it; else the whole answer."""
    if isinstance(body, bytes):
        body = body.decode("utf-8", "replace")
    if isinstance(body, str):
        body = as_map(parsed(body)) or body
    if isinstance(body, str):
        return body
    for path in (("error",), ("data", "error"), ("data",), ()):
        found = body
        for key in path:
            found = as_map(found.get(key))
        if isinstance(text := found.get("message"), str):
            code = found.get("code")
            return f"{code}: {text}" if isinstance(code, str) else text
    return json.dumps(body, default=str)
