"""The SDKs and the formats that the commands can call, as the formats' drivers describe them."""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
from collections.abc import Generator
from dataclasses import dataclass
from ipaddress import ip_address
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import httpx2

from continuation.cli.exits import CommandError, Exit
from continuation.cli.refusals import hide_keys
from continuation.limits import spellings
from continuation.providers.sdk import AnswerFailedError, SdkDriver, SdkFacts
from continuation.registry import dialects


@dataclass(frozen=True)
class Sdk:
    """An SDK. It is imported when it is needed."""

    facts: SdkFacts

    def load(self) -> ModuleType:
        """Import the SDK. If it is missing, raise `CommandError` with a line that installs it."""
        try:
            return importlib.import_module(self.facts.module)
        except ImportError as error:
            message = (
                f"this command needs the {self.facts.name} SDK: "
                f"python -m pip install 'continuation-engine[{self.facts.extra}]'"
            )
            raise CommandError(message, Exit.MISSING) from error

    @property
    def installed(self) -> bool:
        """Whether it can be imported."""
        try:
            self.load()
        except CommandError:
            return False
        return True

    @property
    def version(self) -> str:
        return str(self.load().__version__)

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What a call can raise: the SDK's errors, and the HTTP client's that it does not catch."""
        own = map(pkgutil.resolve_name, self.facts.own_errors)
        return *own, httpx2.HTTPError, httpx2.StreamError

    def sample(self, url: str) -> str:
        """Return Python that makes a client of the simulator at `url`."""
        return self.facts.shown(self.facts, url)

    @contextlib.contextmanager
    def simulated(self, url: str) -> Generator[Any]:
        """Make a client of the simulator that ignores the environment's proxies and keys."""
        with httpx2.Client(trust_env=False) as http:
            options = self.facts.simulated_options(http)
            with self._make(url + self.facts.path, options) as client:
                yield client

    def connect(self, base_url: str | None) -> Any:
        """Make a client from the environment variables.

        Raises `CommandError` if there is no key. A local server needs none.
        """
        facts = self.facts
        for name in facts.keys:
            key = os.environ.get(name, "")
            if not (key.isascii() and key.isprintable() and " " not in key):
                message = f"{name} holds a character that no key has; copy it again"
                raise CommandError(message, Exit.MISSING)
        self.load()
        needless = is_local(base_url or os.environ.get(facts.base_url) or facts.server)
        keyless = needless and not any(map(os.environ.get, facts.keys))
        try:
            client = self._make(base_url, {"api_key": "none"} if keyless else {})
        except httpx2.InvalidURL as error:
            raise self._not_made(error) from error
        except self.errors as error:  # the SDK found no credentials, or invalid ones
            raise self._no_key(error) from error
        except ValueError as error:
            made_without_key = facts.credentials or any(map(os.environ.get, facts.keys))
            raise (self._not_made if made_without_key else self._no_key)(error) from error
        if facts.credentials and not any(getattr(client, each, None) for each in facts.credentials):
            client.close()
            raise self._no_key()
        return client

    def _make(self, base_url: str | None, options: dict[str, Any]) -> Any:
        return self.facts.make(self.load(), self.facts.client, base_url, options)

    def _not_made(self, error: Exception) -> CommandError:
        return CommandError(f"the client cannot be made: {hide_keys(str(error))}", Exit.USAGE)

    def _no_key(self, error: Exception | None = None) -> CommandError:
        detail = f" ({hide_keys(str(error))})" if error else ""
        return CommandError(f"no key: set {self.facts.keys[0]}{detail}", Exit.MISSING)


def is_local(url: str) -> bool:
    """Whether a server is on this machine or in a private network."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_private
    except ValueError:  # a host name
        return host == "localhost" or host.endswith((".localhost", ".local", ".internal"))


def errors_of(driver: SdkDriver) -> tuple[type[Exception], ...]:
    """Return the exceptions that a driver's `stream` can raise."""
    return *Sdk(driver.sdk).errors, AnswerFailedError


def offered() -> tuple[SdkDriver, ...]:
    """Return the drivers of the formats that the commands can call."""
    drivers = [driver for each in dialects() if (driver := each.driver()) is not None]
    return tuple(sorted(drivers, key=lambda driver: driver.rank))


def sdks() -> tuple[SdkFacts, ...]:
    """Return the SDKs of these formats."""
    return tuple({one.sdk.name: one.sdk for one in offered()}.values())


def names() -> list[str]:
    """Return the possible values of `--dialect`."""
    return [one.name for one in offered()]


def choose(name: str | None, model: str) -> SdkDriver | None:
    """Return the named format, or if `name` is None the first one for the model, or None."""
    for one in offered():
        fits = any(spelling.startswith(one.prefixes) for spelling in spellings(model))
        if one.name == name if name else fits:
            return one
    return None
