"""The vendors that the simulator can simulate, from `continuation/wire/vendors.toml`.

The head of that file explains each key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from types import MappingProxyType
from typing import Any

from continuation.wire.json_values import as_json, is_list
from continuation.wire.vendors import HISTORY, SERVER, tables


@dataclass(frozen=True)
class SimulatedVendor:
    """The behaviour of one vendor's server. The fields are the keys of its table."""

    name: str
    # Keys that the dialect also reads.
    prefill: str = "none"
    prefill_path: str = ""
    prefill_echoes: bool = False
    limit: str = "max_tokens"
    limit_only: bool = False
    stream_above: int | None = None
    reasoning: tuple[str, ...] = ("reasoning_content", "reasoning")
    ceiling_field: str = ""
    # The server's behaviour, and the texts of its refusals.
    trailing_answer: str = ""
    default_limit: int | None = None
    refuses_other_limit: bool = False
    refuses_stream_options: bool = False
    openai: bool = False
    usage_unasked: bool = False
    sends_done: bool = True
    unfinished: str = "never"
    window_stop: str = "length"
    truncated_tool_call: str | None = None
    whole_calls: bool = False
    call_id: str = "call_sim{:021d}"
    withholds: bool = False
    window_fields: tuple[str, ...] = ()
    understates_prompt: bool = False
    error_shape: str = "nested"
    error_fields: tuple[str, ...] = ("message", "type", "param", "code")
    error_type: str = "invalid_request_error"
    error_code: str | None = None
    window_code: str | None = None
    order_type: str | None = None
    order_code: str | None = None
    errors: Mapping[str, str] = field(default_factory=dict[str, str])
    # The rules for histories.
    checked: bool = False
    streams: bool = True
    tolerates: tuple[str, ...] = ()

    @property
    def limits(self) -> tuple[str, ...]:
        """The names of the limit that the server reads. The first one in a request counts."""
        both = ("max_completion_tokens", "max_tokens")
        return (self.limit,) if self.limit_only else both


@cache
def vendors() -> Mapping[str, SimulatedVendor]:
    """Return the vendors that can be simulated, by name. Raises ValueError for an unknown key."""
    own = {each.name for each in fields(SimulatedVendor)} - {"name", "tolerates"}
    vendors_by_name: dict[str, SimulatedVendor] = {}
    for name, table in tables().items():
        if name == "unknown":
            continue
        server, history = as_json(table.get(SERVER)), as_json(table.get(HISTORY))
        if strange := server.keys() - own:
            raise ValueError(
                f"vendors.toml: [{name}.{SERVER}] has an unknown key: {', '.join(sorted(strange))}"
            )
        dialect = {key: value for key, value in table.items() if key in own}
        demands = {key: value for key, value in history.items() if key != "models"}
        values: dict[str, Any] = {**dialect, **server, **demands}
        # Arrays of TOML are lists. They become tuples, so that nothing can change them.
        frozen: dict[str, Any] = {k: tuple(v) if is_list(v) else v for k, v in values.items()}
        vendors_by_name[name] = SimulatedVendor(name, **frozen)
    return MappingProxyType(vendors_by_name)


#: Changes that a scenario may apply to any vendor. Real hosts have them at some time.
QUIRKS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "max-tokens-only": {"limit": "max_tokens", "limit_only": True, "refuses_other_limit": True},
        "no-stream-options": {"refuses_stream_options": True},
        "no-stream": {"streams": False},
        "no-done": {"sends_done": False},
        "no-finish": {"unfinished": "cut"},
        "withhold": {"withholds": True},
        "cut-call-stop": {"truncated_tool_call": "stop"},
        "cut-call-tool-calls": {"truncated_tool_call": "tool_calls"},
    }
)


def find_vendor(name: str, quirks: str = "") -> SimulatedVendor:
    """Return a vendor with quirks. Several quirks are joined by `+`.

    Raises ValueError for an unknown vendor or quirk; its text has the known ones.
    """
    if name not in vendors():
        raise ValueError(f"vendor: {name!r} is none of {', '.join(vendors())}")
    changes: dict[str, Any] = {}
    for quirk in filter(None, quirks.split("+")):
        if quirk not in QUIRKS:
            msg = f"quirks: {quirk!r} is none of {', '.join(QUIRKS)}; join several by '+'"
            raise ValueError(msg)
        changes.update(QUIRKS[quirk])
    return replace(vendors()[name], **changes)
