"""Classifies error texts: decides whether a history is the cause, and which rule it breaks.

All providers share one table, the last in `rules.toml`. It has plain substrings and no regular
expressions, so that an error takes microseconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from continuation.history.rules import TABLE
from continuation.history.types import RepairPolicy
from continuation.wire.json_values import as_map, parsed

Family: TypeAlias = Literal["thinking", "reasoning", "pairing", "order", "content", "anchor"]


@dataclass(frozen=True, slots=True)
class HistoryError:
    """A provider's error about a history."""

    code: str
    """The violation's code, as in `Violation.code`."""
    family: Family
    """The kind of error. "anchor": the server does not have the `previous_response_id`."""
    index: int | None = None
    """Index of the message as the provider counts it, if the text names one; else None."""
    part: int | None = None
    """Index of the block or part in that message, if the text names one; else None."""
    ids: tuple[str, ...] = ()
    """The ids of calls and items in the text."""
    tag: str = ""
    """The type of a block, or for Gemini the field of a part, that the text calls unknown."""

    def policy(self, base: RepairPolicy | None = None) -> RepairPolicy:
        """Return the policy for a repair after this error, based on `base` or the defaults.

        The request was sent, so no call in it is still running. Strict rules apply.
        """
        return replace(base if base is not None else RepairPolicy(), strict=True, live=False)

    def forced(self, base: RepairPolicy | None = None) -> RepairPolicy:
        """Return the policy for a fault that the history does not show."""
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
        if self.code in ("role_invalid", "system_misplaced"):
            return replace(policy, system_messages="user")
        if self.code == "roles_not_alternating":
            return replace(policy, alternate=True)
        if self.code in ("user_after_tool", "tool_use_id_invalid") and policy.vendor is None:
            return replace(policy, vendor="mistral")  # other servers have the same rules
        return policy


#: Substrings of errors about sizes, rates and images, not about the form of a history.
_OTHER_CAUSES: Final = (
    *("prompt is too long", "context length", "context_length", "context window"),
    *("maximum context", "input is too long", "too many requests", "rate limit", "rate_limit"),
    *("request too large", "request_too_large", "could not process image", "image exceeds"),
    *("image dimensions", "invalid image", "unsupported image", "tool debug summary"),
)

_Row: TypeAlias = tuple[str, Family, str, str]
_ROWS: Final[list[tuple[Sequence[str], list[_Row]]]] = [
    (
        group["words"].split("|"),
        [
            (code, group["family"], first, second)
            for code, signs in group["rows"]
            for first, _, second in (sign.partition("…") for sign in signs.split("|"))
        ],
    )
    for group in TABLE["errors"]
]
"""The table. A group has words, one of which must occur, and its rows.

A row has a code, a family and two substrings, of which the second may be empty. Both must occur.
"""

_STATUSES: Final = frozenset({400, 404, 422})
_LONGEST: Final = 1_200
_QUOTES: Final = "`'\"\\\u201c\u201d\u2018\u2019"
_WHERE: Final = re.compile(
    r"(?:messages|contents|input)[.\[](\d+)\]?(?:[.\[]*(?:content|parts)[.\[](\d+))?"
)
_ABOUT_TYPES: Final = frozenset(
    {"block_invalid", "content_type_invalid", "input_type_invalid", "message_foreign"}
)
"""Codes of rules about the types of blocks."""
_TAG: Final = re.compile(
    rf"(?:Input tag|Invalid value:|Unknown name)\s*[{_QUOTES}]([\w.-]{{1,64}})[{_QUOTES}]"
)
_IDS: Final = re.compile(
    r"\b(?:toolu|srvtoolu|call|fc|rs|msg|ws|ctc|resp|chatcmpl-tool)_[A-Za-z0-9_-]+"
)


def classify(status: int, message: str | bytes | Mapping[str, Any]) -> HistoryError | None:
    """Return the rule of histories that an error response is about, or None.

    `status`: the HTTP status. `message`: the error's text, or the response's body, decoded or not.
    It must have only the provider's text, because a quoted tool output would be matched too.
    """
    if status not in _STATUSES:
        return None
    text = message if isinstance(message, str) and message[:1] != "{" else message_of(message)
    text = text[:_LONGEST]
    plain = text.lower()
    for mark in _QUOTES:
        plain = plain.replace(mark, "")
    row = _fitting(plain)
    if row is None or any(sign in plain for sign in _OTHER_CAUSES):
        return None
    match = _WHERE.search(text)
    index, part = (int(n) if n else None for n in match.groups()) if match else (None, None)
    tag = _TAG.search(text) if row[0] in _ABOUT_TYPES else None
    ids = tuple(dict.fromkeys(_IDS.findall(text)))
    return HistoryError(row[0], row[1], index, part, ids, tag[1] if tag else "")


def _fitting(plain: str) -> _Row | None:
    """Return the first row that matches. Loops take half the time of generators."""
    for words, rows in _ROWS:
        for word in words:
            if word in plain:
                break
        else:
            continue
        for row in rows:
            if row[2] in plain and row[3] in plain:
                return row
    return None


def message_of(body: str | bytes | Mapping[str, Any]) -> str:
    """Return the error text of a response body in any provider's form, or else the body as JSON."""
    if isinstance(body, bytes):
        body = body.decode("utf-8", "replace")
    if isinstance(body, str):
        body = as_map(parsed(body)) or body
    if isinstance(body, str):
        return body
    for path in (("error",), ("data", "error"), ("data",), ()):
        node = body
        for key in path:
            node = as_map(node.get(key))
        if isinstance(text := node.get("message"), str):
            code = node.get("code")
            return f"{code}: {text}" if isinstance(code, str) else text
    return json.dumps(body, default=str)
