"""The registry that keeps a Responses chain valid after a turn was healed.

    chains = Chains(SqliteStore("chains.db"))
    tenant = chains.of("api.openai.com", credential)
    sent = tenant.rewrite(body)  # None: send the body as it is
    tenant.keep(first, output, given="resp_1", held=None)  # before the terminal bytes leave

Design: design/chains.md.
"""

from continuation.chains.entries import Alias, Entry, Find, KeptTurn, Key, Lost
from continuation.chains.replay import ChainLost, ReplayLimits
from continuation.chains.rules import (
    Content,
    Rewritten,
    after_not_found,
    entries_for,
    refusal,
    rewrite,
)
from continuation.chains.sqlite import SqliteStore
from continuation.chains.stores import MemoryStore, Store
from continuation.chains.tenant import Chains, Tenant

__all__ = [
    "Alias",
    "ChainLost",
    "Chains",
    "Content",
    "Entry",
    "Find",
    "KeptTurn",
    "Key",
    "Lost",
    "MemoryStore",
    "ReplayLimits",
    "Rewritten",
    "SqliteStore",
    "Store",
    "Tenant",
    "after_not_found",
    "entries_for",
    "refusal",
    "rewrite",
]
