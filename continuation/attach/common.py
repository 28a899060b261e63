"""What all SDKs need to attach to a client: healing HTTP clients, and checks of versions."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping
from functools import cached_property
from time import monotonic, time
from typing import Any, TypeVar

import httpx2

from continuation.attach.healing_clients import AsyncHealingClient, HealingClient
from continuation.attach.journaled import Keeper
from continuation.config import Source, load
from continuation.config.learned import open_learned
from continuation.engine.turn import Engine
from continuation.policy import ALIASES, KEYS, PolicyKeys, known_key, shown
from continuation.registry import dialects
from continuation.reports.report import OnEvent

ClientT = TypeVar("ClientT")


class Unsupported(Exception):  # noqa: N818 - its text is the reason, in words for the caller
    """Raised for a client that cannot be wrapped without a change in its behaviour."""

    no_client = False
    """Whether the object is not a client, but another object of an SDK."""


class NoClient(Unsupported):
    """Raised for an object of an SDK that is not a client."""

    no_client = True


class Healing:
    """Makes the `HealingClient`s of one call of `wrap`; they share one engine."""

    def __init__(
        self,
        config: Source,
        on_event: OnEvent | None,
        keys: PolicyKeys,
        journal: Keeper | None = None,
    ) -> None:
        if on_event is not None and not callable(on_event):  # else each event would log an error
            raise TypeError(
                f"on_event = {shown('on_event', on_event)}: must be callable with one event, "
                "as print is"
            )
        if any(map(inspect.iscoroutinefunction, (on_event, getattr(on_event, "__call__", None)))):  # noqa: B004
            raise TypeError(
                f"on_event = {shown('on_event', on_event)}: must be a plain function, because a "
                "turn does not wait for it; use asyncio.Queue().put_nowait to pass events to a task"
            )
        if journal is not None and not callable(getattr(journal, "begin", None)):
            raise TypeError(
                f"journal = {shown('journal', journal)}: must be a continuation.Journal, such as "
                'continuation.Journal("agent.db", session="one")'
            )
        self._config = config
        self._on_event = on_event
        self._keys = keys
        self._journal = journal

    @cached_property
    def engine(self) -> Engine:
        """The engine, made at its first use: a client that is refused or wrapped needs none.

        Raises what `config.load` raises, and an error for an invalid key.
        """
        config = load(self._config)
        if self._keys:
            for key, value in self._keys.items():
                known_key(key, value, (*KEYS, *ALIASES), also=("config", "on_event", "journal"))
            config = config.but("the keywords given in the program", **self._keys)
        learned = open_learned(config)
        engine = Engine(dialects(), config, self._on_event, monotonic, time, learned)
        engine.journal = self._journal
        return engine

    def is_healing(self, client: object) -> bool:
        """Whether a client is a `HealingClient` already, and this call of `wrap` sets nothing."""
        given = self._config, self._on_event, self._journal
        nothing_new = given == (None, None, None) and not self._keys
        return nothing_new and isinstance(client, (HealingClient, AsyncHealingClient))

    def client(self, client: Any, *, owned: bool = False) -> HealingClient | AsyncHealingClient:
        """Return a `HealingClient` for an HTTP client of httpx2.

        If `client` is a `HealingClient` already, the result stands for the same client as it does.
        `owned`: closing the result closes `client` too. Raises `Unsupported` if `client` is not one
        of httpx2's.
        """
        if isinstance(client, (HealingClient, AsyncHealingClient)):
            client = client.origin
        if isinstance(client, httpx2.Client):
            return HealingClient(client, self.engine, owned=owned)
        if isinstance(client, httpx2.AsyncClient):
            return AsyncHealingClient(client, self.engine, owned=owned)
        raise Unsupported(f"it sends through {name_of(client)}, not through an httpx2 client")


# --- classes and versions of clients ------------------------------------------------------------


def check_client(
    client: object, package: str, oldest: int, served: set[str], refused: Mapping[str, str]
) -> None:
    """Raise `Unsupported` if a client's class is not supported, or its SDK is too old.

    `oldest`: the first supported major version. `served`: the names of the supported classes.
    `refused`: names of classes that are not supported, with the reasons. Leave out a leading
    `Async` of class names.
    """
    version = str(getattr(sys.modules.get(package), "__version__", ""))
    major = re.match(r"\d+", version)
    if major is None or int(major[0]) < oldest:
        raise Unsupported(f"{package} {version or 'without a version'} is too old")
    names = {name.removeprefix("Async") for name in classes(client, package)}
    for name, why in refused.items():
        if name in names:
            raise Unsupported(why)
    if not names & served:
        raise NoClient("it is not a client")


def name_of(thing: object) -> str:
    """Return the full name of a class, or of an object's class."""
    kind = thing if isinstance(thing, type) else type(thing)
    return f"{kind.__module__}.{kind.__qualname__}"


def classes(client: object, package: str) -> set[str]:
    """Return the names of a package's classes of which a client is an instance."""
    return {kind.__name__ for kind in type(client).__mro__ if within(kind.__module__, package)}


def within(module: str, package: str) -> bool:
    """Whether a module is the package, or is in it."""
    return module == package or module.startswith(f"{package}.")


def owner_of(client: object, method: str) -> str:
    """Return the module of the class that defines a client's method, or `""` if none does."""
    bases = type(client).__mro__
    return next((base.__module__ for base in bases if method in vars(base)), "")
