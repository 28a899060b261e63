"""What attaching is made of, whichever SDK a client is of."""

from __future__ import annotations

import re
import sys
from functools import cached_property
from time import monotonic
from typing import Any, TypeVar, cast

import httpx2

from continuation.attach.http import AsyncHealingClient, HealingClient
from continuation.config import Source, load
from continuation.config.vendors import checked
from continuation.engine.engine import Engine
from continuation.registry import dialects
from continuation.reports.report import OnEvent

ClientT = TypeVar("ClientT")


class Unsupported(Exception):  # noqa: N818 - its text is the reason, in words for the caller
    """A client cannot be served faithfully."""


class Healing:
    """Makes HTTP clients of ours, all with one engine: that of one call of `wrap`."""

    def __init__(self, config: Source, on_event: OnEvent | None) -> None:
        self._config = config
        self._on_event = on_event

    @cached_property
    def engine(self) -> Engine:
        """Made when first wanted: what is refused, or ours already, needs none."""
        return Engine(dialects(), checked(load(self._config)), self._on_event, monotonic)

    def settled(self, client: object) -> bool:
        """Whether a client is one of ours already and nothing new is asked of it."""
        ours = isinstance(client, (HealingClient, AsyncHealingClient))
        return ours and self._config is None and self._on_event is None

    def client(self, client: Any, *, owned: bool = False) -> HealingClient | AsyncHealingClient:
        """Return one of ours that stands for `client`, never for another one of ours.

        `owned`: closing it closes `client` too. Raises `Unsupported` for what is not of httpx2.
        """
        if isinstance(client, (HealingClient, AsyncHealingClient)):
            client = client.origin
        if isinstance(client, httpx2.Client):
            return HealingClient(client, self.engine, owned=owned)
        if isinstance(client, httpx2.AsyncClient):
            return AsyncHealingClient(client, self.engine, owned=owned)
        message = f"it sends through {name_of(client)}, not through an httpx2 client"
        raise Unsupported(message)


def name_of(thing: object) -> str:
    """Return the full name of a class, or of the class of a thing."""
    kind = thing if isinstance(thing, type) else type(thing)
    return f"{kind.__module__}.{kind.__qualname__}"


def classes(client: object, package: str) -> set[str]:
    """Return the names of the classes of a package that a client is an instance of."""
    bases = type(client).__mro__
    return {base.__name__ for base in bases if within(base.__module__, package)}


def within(module: str, package: str) -> bool:
    """Whether a module is the package, or is in it."""
    return module == package or module.startswith(f"{package}.")


def owner_of(client: object, method: str) -> str:
    """Return the module of the class that a client has a method from; `""`: it has none."""
    bases = type(client).__mro__
    return next((base.__module__ for base in bases if method in vars(base)), "")


def check_version(package: str, oldest: int) -> None:
    """Raise `Unsupported` unless the installed SDK is of this major version or a later one."""
    version = str(getattr(sys.modules.get(package), "__version__", ""))
    major = re.match(r"\d+", version)
    if major is None or int(major[0]) < oldest:
        message = f"{package} {version or 'of no version'} is too old"
        raise Unsupported(message)


def copied(client: ClientT, inner: HealingClient | AsyncHealingClient) -> ClientT:
    """Copy an SDK client with our HTTP client in it; `Unsupported` when that cannot be done."""
    options: dict[str, Any] = {}
    if getattr(client, "_strict_response_validation", False):  # which the SDKs' `copy` forgets
        options["_extra_kwargs"] = {"_strict_response_validation": True}
    try:
        wrapped = cast("Any", client).copy(http_client=inner, **options)
    except Exception as error:
        message = f"it cannot be copied ({error})"
        raise Unsupported(message) from error
    if getattr(wrapped, "_client", None) is not inner or type(wrapped) is not type(client):
        message = "its copy does not take another HTTP client"
        raise Unsupported(message)
    return wrapped
