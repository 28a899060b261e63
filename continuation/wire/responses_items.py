"""The items of OpenAI's Responses format that are calls, those that answer them, and the anchor.

All code that reads such items uses this table: for the answers that a provider streams, the
histories that callers send, and the chains that a server keeps.

Sources: API reference "Responses", the item types of openai 3.5x; `mcp_tool_call` and `tool_call`
are written by other servers of this format.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from continuation.wire.json_values import as_map

ANCHOR: Final = "previous_response_id"
"""The field of a request that names the response it continues from."""


class CallKind(NamedTuple):
    """The properties of one kind of call."""

    output: str
    """Type of the item that answers it."""
    text: str = ""
    """The field that holds its arguments as text, for kinds that stream them; `""` for others."""
    paired: bool = True
    """Whether the provider refuses a history that has the call without its answer."""


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
    # A question, not a call: nobody runs it, and a history may contain it without an answer.
    "mcp_approval_request": CallKind("mcp_approval_response", paired=False),
}
"""Items that the client has to run or approve, by type; see `is_call` for the exception."""

PAIRED_CALLS: Final = {kind: call.output for kind, call in CALLS.items() if call.paired}
"""Types of calls that need an answer in a history -> the type of the answer."""

OUTPUTS: Final = frozenset(PAIRED_CALLS.values())
"""Types of items that answer a call."""


def is_call(item: Mapping[str, object]) -> bool:
    """Whether the client has to run or approve an item. The server runs some tool searches."""
    return kind_of(item) in CALLS and item.get("execution") != "server"


def kind_of(item: object) -> str:
    """Return an item's type, "message" if it has a role but no type, `""` for anything else."""
    given = as_map(item)
    kind = given.get("type")
    return kind if isinstance(kind, str) else "message" if "role" in given else ""
