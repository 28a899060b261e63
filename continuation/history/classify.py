"""Which error texts mean that the history is at fault, and what to do about each.

One table for all providers, in order: the first row that fits wins. Thinking comes before pairing,
because Anthropic's text on thinking order names both `tool_use` and `tool_result`. Rows are plain
substrings of the lower-cased text without its quotation marks, so that escaped, back-ticked and
curly spellings are one, and an error costs microseconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from continuation.history.types import RepairPolicy
from continuation.wire.json_values import as_map

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
        return policy


#: Another matter, with remedies of its own: too long, too many, too large, too fast.
_NOT_OURS: Final = (
    "prompt is too long",
    "context length",
    "context_length",
    "context window",
    "maximum context",
    "input is too long",
    "too many requests",
    "rate limit",
    "rate_limit",
    "request too large",
    "request_too_large",
    "could not process image",
    "image exceeds",
    "image dimensions",
    "invalid image",
    "unsupported image",
    "image_url",
    "tool debug summary",
)

_Row: TypeAlias = tuple[str, Family, tuple[str, ...]]

#: Groups of rows behind words of which every one of their texts has at least one.
_ROWS: Final[tuple[tuple[tuple[str, ...], tuple[_Row, ...]], ...]] = (
    (  # thinking, before anything that speaks of tools
        ("thinking", "thought"),
        (
            ("thinking_bound", "thinking", ("bound to a different conversation",)),
            ("thinking_modified", "thinking", ("thinking", "cannot be modified")),
            ("thinking_foreign", "thinking", ("invalid signature in thinking",)),
            ("thinking_foreign", "thinking", ("thinking.signature", "field required")),
            ("thinking_foreign", "thinking", ("invalid data in redacted",)),
            ("thinking_last", "thinking", ("final block in an assistant message cannot be",)),
            ("thinking_blank", "thinking", ("each thinking block must contain thinking",)),
            ("thinking_missing", "thinking", ("must start with a thinking block",)),
            ("thinking_missing", "thinking", ("expected thinking", "but found")),
            ("thinking_missing", "thinking", ("expected thinking", "found text")),
            ("thinking_missing", "thinking", ("expected thinking", "found tool_use")),
            ("thinking_not_first", "thinking", ("first block must be thinking",)),
            ("thinking_not_first", "thinking", ("first block", "thinking")),
            ("thinking_when_off", "thinking", ("thinking is disabled", "cannot contain")),
            ("thinking_mode_unsupported", "thinking", ("thinking.type.", "not supported")),
            ("thinking_mode_unsupported", "thinking", ("adaptive thinking is not supported",)),
            ("thinking_unsupported", "thinking", ("thinking", "not supported on this model")),
            ("thought_signature_missing", "thinking", ("missing a thought_signature",)),
            ("thought_signature_missing", "thinking", ("missing thought_signature",)),
            ("thought_signature_invalid", "thinking", ("thought signature", "not valid")),
            ("thought_signature_invalid", "thinking", ("thought_signature", "not valid")),
            ("thought_signature_invalid", "thinking", ("corrupted thought",)),
            ("thought_signature_invalid", "thinking", ("invalid thought",)),
            ("thought_signature_invalid", "thinking", ("thought_signature", "base64")),
            ("thought_signature_invalid", "thinking", ("thoughtsignature", "base64")),
        ),
    ),
    (  # the Responses dialect's items
        ("reasoning", "item", "encrypt", "previous", "no tool", "passed back", "begins"),
        (
            ("reasoning_missing", "thinking", ("reasoning_content", "missing")),
            ("reasoning_missing", "thinking", ("reasoning_content", "passed back")),
            ("reasoning_missing", "thinking", ("content[].thinking", "passed back")),
            ("reasoning_refused", "thinking", ("reasoning_content", "unsupported")),
            ("reasoning_refused", "thinking", ("reasoning_content", "not permitted")),
            ("reasoning_dangling", "reasoning", ("without its required following item",)),
            ("reasoning_missing", "reasoning", ("without its required reasoning item",)),
            ("item_not_stored", "reasoning", ("items are not persisted when",)),
            ("item_duplicate", "reasoning", ("duplicate item found",)),
            ("item_id_invalid", "reasoning", ("expected an id that begins with",)),
            ("encrypted_content_invalid", "reasoning", ("invalid_encrypted_content",)),
            ("encrypted_content_invalid", "reasoning", ("encrypted content", "verif")),
            ("encrypted_content_invalid", "reasoning", ("encrypted content", "decrypt")),
            ("anchor_lost", "anchor", ("previous_response_not_found",)),
            ("anchor_lost", "anchor", ("previous response with id",)),
            ("tool_result_orphan", "pairing", ("no tool call found for", "output")),
            ("tool_result_missing", "pairing", ("no tool output found for",)),
        ),
    ),
    (  # calls and results
        ("tool", "result", "ids must be", "call_id", "function"),
        (
            ("tool_result_duplicate", "pairing", ("single result",)),
            ("tool_result_duplicate", "pairing", ("multiple tool_result",)),
            ("tool_result_duplicate", "pairing", ("duplicate value for tool_call_id",)),
            ("tool_use_duplicate_id", "pairing", ("ids must be unique",)),
            ("tool_use_duplicate_id", "pairing", ("duplicate call_id",)),
            ("tool_result_orphan", "pairing", ("unexpected tool_use_id",)),
            ("tool_result_orphan", "pairing", ("role tool must be a response",)),
            ("tool_result_orphan", "pairing", ("tool_call_id", " is not found")),
            ("tool_result_orphan", "pairing", ("exceeds the number of tooluse",)),
            ("tool_result_orphan", "pairing", ("function response turn comes",)),
            ("tool_result_missing", "pairing", ("without tool_result blocks",)),
            ("tool_result_missing", "pairing", ("must be followed by tool messages",)),
            ("tool_result_missing", "pairing", ("did not have response messages",)),
            ("tool_result_missing", "pairing", ("insufficient tool messages",)),
            ("tool_result_missing", "pairing", ("expected toolresult blocks",)),
            ("tool_result_missing", "pairing", ("number of function response parts",)),
            ("tool_result_missing", "pairing", ("not the same number of function calls",)),
            ("server_result_missing", "pairing", ("without a corresponding", "_tool_result")),
            ("tools_undeclared", "pairing", ("must define tools",)),
            ("tools_undeclared", "pairing", ("toolconfig field must be defined",)),
        ),
    ),
    (  # roles
        ("role", "turn", "user", "pref", "successive"),
        (
            ("prefill_unsupported", "order", ("last part is a function response",)),
            ("prefill_unsupported", "order", ("last turn cannot be model",)),
            ("roles_not_alternating", "order", ("roles must alternate",)),
            ("roles_not_alternating", "order", ("roles in a row",)),
            ("roles_not_alternating", "order", ("role in a row",)),
            ("roles_not_alternating", "order", ("alternate between user and",)),
            ("roles_not_alternating", "order", ("does not support successive user or assistant",)),
            ("first_not_user", "order", ("function call turn comes immediately",)),
            ("first_not_user", "order", ("first message must use",)),
            ("first_not_user", "order", ("must start with a user message",)),
            ("role_invalid", "order", ("valid role", "user, model")),
            ("role_invalid", "order", ("valid role:user",)),
            ("prefill_unsupported", "order", ("assistant message prefill",)),
            ("prefill_unsupported", "order", ("prefilling assistant messages",)),
            ("last_not_user", "order", ("expected last role",)),
            ("last_not_user", "order", ("prefix mode on",)),
        ),
    ),
    (  # texts and fields
        ("empty", "blank", "must", "parts", "short", "whitespace", "valid", "pattern", "supported"),
        (
            ("message_empty", "content", ("must have non-empty content",)),
            ("text_empty", "content", ("must be non-empty",)),
            ("text_blank", "content", ("must contain non-whitespace",)),
            ("text_blank", "content", ("text field in the contentblock", "is blank")),
            ("text_empty", "content", ("empty text parameter",)),
            ("message_empty", "content", ("assistant", "must not be empty")),
            ("message_empty", "content", ("contents.parts must not be empty",)),
            ("message_empty", "content", ("at least one parts field",)),
            ("message_empty", "content", ("content or tool_calls must be set",)),
            ("content_empty_with_calls", "content", ("content must not be an empty string",)),
            ("tool_calls_empty", "content", ("too short", "tool_calls")),
            ("trailing_whitespace", "content", ("trailing whitespace",)),
            ("tool_use_id_invalid", "content", ("should match pattern ^[a-za-z0-9_-]",)),
            ("tool_input_invalid", "content", ("input should be a valid dictionary",)),
            ("tool_input_invalid", "content", ("valid json object string",)),
            ("content_type_invalid", "content", ("supported values are: output_text and refusal",)),
            ("input_type_invalid", "content", ("supported values are: input_text, input_image",)),
        ),
    ),
)

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
    plain = _unquoted(text.lower())
    row = next(_rows_that_fit(plain), None)
    if row is None or any(sign in plain for sign in _NOT_OURS):
        return None
    return _located(row[0], row[1], text)


def _unquoted(text: str) -> str:
    for mark in _QUOTES:
        if mark in text:
            text = text.replace(mark, "")
    return text


def _rows_that_fit(plain: str) -> Iterator[_Row]:
    for words, rows in _ROWS:
        if any(word in plain for word in words):
            for row in rows:
                signs = row[2]
                if signs[0] in plain and (len(signs) == 1 or signs[1] in plain):
                    yield row


def _located(code: str, family: Family, text: str) -> HistoryError:
    where = _WHERE.search(text)
    index, part = where.groups() if where else (None, None)
    return HistoryError(
        code,
        family,
        int(index) if index else None,
        int(part) if part else None,
        tuple(dict.fromkeys(_IDS.findall(text))),
    )


def message_of(body: str | bytes | Mapping[str, Any]) -> str:
    """The text of an error answer, wherever a provider or gateway put it; else the whole answer."""
    if isinstance(body, bytes):
        body = body.decode("utf-8", "replace")
    if isinstance(body, str):
        body = _decoded(body)
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


def _decoded(text: str) -> str | Mapping[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return as_map(value) or text
