"""The official SDKs: what each is called, how it is installed, how its clients are made."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Generator
from dataclasses import dataclass
from operator import attrgetter
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import httpx2

from continuation.cli.exits import CommandError, Exit
from continuation.cli.refusals import hide_keys


@dataclass(frozen=True)
class Sdk:
    """An SDK whose client takes `base_url`, `api_key` and `http_client`."""

    module: str
    name: str
    """What people call it."""
    extra: str
    """The extra of ours that installs it."""
    client: str
    """The class of its client."""
    keys: tuple[str, ...]
    """Environment variables that hold a key; the first one is the one to set."""
    base_url: str
    """Environment variable that names another server."""
    error: str
    """The base of its errors."""
    server: str
    """Where it sends to when nothing is said."""
    path: str = ""
    """What its base URL has behind the host."""

    @property
    def label(self) -> str:
        """How its client is made, for the user."""
        return f"{self.module}.{self.client}()"

    def load(self) -> ModuleType:
        """Import it; without it the command ends with the line that installs it."""
        try:
            return importlib.import_module(self.module)
        except ImportError as error:
            message = (
                f"this command needs the {self.name} SDK: "
                f"python -m pip install 'continuation-engine[{self.extra}]'"
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
        """What a call can raise: its own errors, and those of the HTTP client it lets through."""
        return attrgetter(self.error)(self.load()), httpx2.HTTPError, httpx2.StreamError

    def sample(self, url: str) -> str:
        """Return Python that makes a client of the simulator at `url`."""
        return f'{self.module}.{self.client}(base_url="{url}{self.path}", api_key="any")'

    def exports(self, url: str) -> str:
        """Return the shell's line that sends every client to the simulator at `url`."""
        return f"export {self.base_url}={url}{self.path} {self.keys[0]}=any"

    @contextlib.contextmanager
    def simulated(self, url: str) -> Generator[Any]:
        """Make a client of the simulator; no proxy and no key of the environment has a part."""
        with httpx2.Client(trust_env=False) as http, self._make(url + self.path, http) as client:
            yield client

    def connect(self, base_url: str | None) -> Any:
        """Make a client by what the environment says; raises `CommandError` without a key."""
        for name in self.keys:
            key = os.environ.get(name, "")
            if not (key.isascii() and key.isprintable() and " " not in key):
                message = f"{name} holds a character that no key has; copy it again"
                raise CommandError(message, Exit.MISSING)
        try:
            client = self._make(base_url)
        except (httpx2.InvalidURL, ValueError) as error:
            message = f"the client cannot be made: {hide_keys(str(error))}"
            raise CommandError(message, Exit.USAGE) from error
        except self.errors as error:  # it looked for credentials, and found none or broken ones
            raise self._no_key(error) from error
        if not self._has_key(client):
            client.close()
            raise self._no_key()
        return client

    def host(self, base_url: str | None) -> str:
        """Return the host that `connect` with this base URL leads to."""
        named = base_url or os.environ.get(self.base_url) or self.server
        return urlsplit(named).hostname or named

    def _make(self, base_url: str | None, http: httpx2.Client | None = None) -> Any:
        """Make a client by what the environment says, or one of the simulator, with `http`."""
        simulated = {"api_key": "simulated", "max_retries": 0, "http_client": http}
        make = getattr(self.load(), self.client)
        return make(base_url=base_url, **(simulated if http else {}))

    def _has_key(self, client: Any) -> bool:
        return any(getattr(client, name, None) for name in ("api_key", "auth_token", "credentials"))

    def _no_key(self, error: Exception | None = None) -> CommandError:
        detail = f" ({hide_keys(str(error))})" if error else ""
        return CommandError(f"no key: set {self.keys[0]}{detail}", Exit.MISSING)


class _GoogleSdk(Sdk):
    """The SDK whose client takes its options in `http_options`."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        from google.auth.exceptions import GoogleAuthError  # it comes with the SDK

        return *super().errors, GoogleAuthError

    def sample(self, url: str) -> str:
        options = f'api_key="any", http_options={{"base_url": "{url}"}}'
        return f"{self.module}.{self.client}({options})"

    def _make(self, base_url: str | None, http: httpx2.Client | None = None) -> Any:
        options: dict[str, Any] = {"base_url": base_url} if base_url else {}
        make = self.load().Client
        if http is not None:
            options["httpx_client"] = http
            return make(api_key="simulated", vertexai=False, http_options=options)
        try:
            return make(http_options=options or None)
        except ValueError as error:  # so it says that there is no key
            raise self._no_key(error) from error

    def _has_key(self, client: Any) -> bool:
        return True  # or it could not have been made


ANTHROPIC = Sdk(
    "anthropic",
    "anthropic",
    "anthropic",
    "Anthropic",
    ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "ANTHROPIC_BASE_URL",
    "AnthropicError",
    "https://api.anthropic.com",
)
OPENAI = Sdk(
    "openai",
    "openai",
    "openai",
    "OpenAI",
    ("OPENAI_API_KEY",),
    "OPENAI_BASE_URL",
    "OpenAIError",
    "https://api.openai.com",
    "/v1",
)
GOOGLE = _GoogleSdk(
    "google.genai",
    "google-genai",
    "google",
    "Client",
    ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "GOOGLE_GEMINI_BASE_URL",
    "errors.APIError",
    "https://generativelanguage.googleapis.com",
)
SDKS: tuple[Sdk, ...] = (ANTHROPIC, OPENAI, GOOGLE)
