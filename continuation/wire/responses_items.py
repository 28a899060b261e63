"""The items of OpenAI's Responses format that are calls, and what answers each.

One table for everybody who reads such items: the answers a provider streams, the histories callers
send, the chains a server keeps.

Sources: API reference "Responses", the item types of openai 3.5x; `mcp_tool_call` and `tool_call`
are what other servers of this format write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from continuation.wire.json_values import as_map


class CallKind(NamedTuple):
    """What is known of one kind of call."""

    output: str
    """Kind of the item that answers it."""
    text: str = ""
    """The field that holds its arguments as text, for kinds that stream them."""
    paired: bool = True
    """A history in which it stands without its answer is refused."""


CALLS: Final[Mapping[str, CallKind]] = {
    "function_call": CallKind("function_call_output", text="arguments"),
    "custom_tool_call": CallKind("custom_tool_call_output", text="input"),
    "local_shell_call": CallKind("local_shell_call_output"),
    "shell_call": CallKind("shell_call_output"),
    "apply_patch_call": CallKind("apply_patch_call_output"),
    "tool_search_call": CallKind("tool_search_output"),
    "computer_call": CallKind("computer_call_output"),
    "mcp_tool_call": CallKind("mcp_tool_call_output"),
    "tool_call": CallKind("function_call_output"),
    # A question, not a call: nothing is run on it, and a history may leave it open.
    "mcp_approval_request": CallKind("mcp_approval_response", paired=False),
}
"""Items that the client has to run or approve, unless `is_call` says that the server does."""

PAIRED_CALLS: Final = {kind: call.output for kind, call in CALLS.items() if call.paired}
"""Kinds of calls that a history may not leave open, and the kind of the answer."""

OUTPUTS: Final = frozenset(PAIRED_CALLS.values())
"""Kinds of items that answer a call."""


def is_call(item: Mapping[str, object]) -> bool:
    """Whether the client has to run or approve an item; a tool search may be the server's own."""
    return item.get("type") in CALLS and item.get("execution") != "server"


def kind_of(item: object) -> str:
    """The item's type; a message may leave it out."""
    given = as_map(item)
    kind = given.get("type")
    return kind if isinstance(kind, str) else "message" if "role" in given else ""
