"""The registry as a dialect uses it: a store, what goes into it, and one tenant's part of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from continuation.chains import rules
from continuation.chains.entries import Entry, Key
from continuation.chains.replay import ReplayLimits
from continuation.chains.rules import Content, Rewritten
from continuation.chains.stores import MemoryStore, Store


@dataclass(frozen=True, slots=True)
class Chains:
    """A registry. One for a client, or one for a gateway with many tenants."""

    store: Store = field(default_factory=MemoryStore)
    """Where entries are kept."""
    content: Content = "joined"
    """Which turns are kept with what they say."""
    limits: ReplayLimits = field(default_factory=ReplayLimits)
    """How much is kept of a turn, and sent again."""

    def of(self, upstream: str, credential: str | None) -> Tenant:
        """Return the part of the registry that belongs to one credential at one upstream."""
        return Tenant(self, upstream, credential or "")


@dataclass(frozen=True, slots=True)
class Tenant:
    """The chains of one credential at one upstream; no other's entries can be reached from here."""

    chains: Chains
    upstream: str
    """The server that knows these chains."""
    credential: str = field(repr=False)
    """Whose chains they are."""

    def rewrite(self, body: Mapping[str, Any]) -> Rewritten | None:
        """See `rules.rewrite`."""
        return rules.rewrite(body, self.find, limits=self.chains.limits)

    def after_not_found(
        self, body: Mapping[str, Any], *, sent: Rewritten | None = None, begun: bool = False
    ) -> Rewritten:
        """See `rules.after_not_found`."""
        limits = self.chains.limits
        return rules.after_not_found(body, self.find, sent=sent, begun=begun, limits=limits)

    def keep(
        self, first: Mapping[str, Any], output: list[Any], *, given: str, held: str | None
    ) -> bool:
        """Keep what `rules.entries_for` says; call it before the terminal bytes leave.

        Returns False if something should have been kept and could not be.
        """
        chains = self.chains
        entries = rules.entries_for(
            first, output, given=given, held=held, content=chains.content, limits=chains.limits
        )
        if not entries:
            return True
        return chains.store.put({self._key(name): entry for name, entry in entries.items()})

    def find(self, name: str) -> Entry | None:
        """Return what is known of a response, None if nothing is."""
        return self.chains.store.get(self._key(name))

    def _key(self, name: str) -> Key:
        return Key(self.upstream, self.credential, name)
