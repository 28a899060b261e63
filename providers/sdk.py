"""How commands call a model in a format, through the format's SDK.

A format's folder has a `DRIVER` in `sdk.py`. `Dialect.driver` imports it if a command needs it.
This module imports no SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import httpx2

TOOL = {"name": "Write", "description": "Write a file."}
_FIELDS = {"path": {"type": "string"}, "content": {"type": "string"}}
SCHEMA = {"type": "object", "properties": _FIELDS, "required": [*_FIELDS]}
"""The schema of the tool's arguments."""


@dataclass(frozen=True)
class Prompt:
    """A request to a model, independent of the format."""

    model: str
    text: str
    limit: int
    """The output limit in tokens."""
    system: str | None = None
    tool: bool = False
    """Whether it may call `Write`."""


@dataclass(frozen=True)
class OnDelta:
    """Callbacks for the deltas of an answer: for visible text, and for raw arguments of calls."""

    text: Callable[[str], None]
    arguments: Callable[[str], None] = lambda _: None


CallArguments: TypeAlias = Mapping[str, Any] | str
"""The arguments of a call: a mapping, or raw JSON text if the SDK does not parse it."""


class End(NamedTuple):
    """The stop reason of an answer in the format's word, and the arguments of its calls."""

    stop: str | None
    calls: Sequence[CallArguments] = ()


class AnswerFailedError(Exception):
    """Raised if a stream has an error that the SDK does not raise; `body` is that error."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__()
        self.body = {"type": "error", **body}


def make_client(
    module: ModuleType, name: str, base_url: str | None, options: Mapping[str, Any]
) -> Any:
    """Make a client of an SDK; `options` are keywords of the client's class."""
    return getattr(module, name)(base_url=base_url, **options)


def sample_client(sdk: SdkFacts, url: str) -> str:
    """Return Python code that makes a client for the simulator at `url`."""
    return f'{sdk.module}.{sdk.client}(base_url="{url}{sdk.path}", api_key="any")'


def simulated_options(http: httpx2.Client) -> dict[str, Any]:
    """Return the options of a client for the simulator that sends through `http`."""
    return {"api_key": "simulated", "max_retries": 0, "http_client": http}


@dataclass(frozen=True)
class SdkFacts:
    """An SDK: how it is installed, and how its client is made."""

    module: str
    name: str
    """Its name for users."""
    extra: str
    """The extra of this package that installs it."""
    client: str
    """The class of its client."""
    keys: tuple[str, ...]
    """The environment variables that may contain a key. Messages tell the user to set the first."""
    base_url: str
    """The environment variable with the URL of another server."""
    own_errors: tuple[str, ...]
    """The base classes of its errors, as `module:name`."""
    server: str
    """The URL of the server that it calls by default."""
    path: str = ""
    """The path of its base URL."""
    credentials: tuple[str, ...] = ()
    """Attributes of the client, one of which is set if it found a key; `()`: the client cannot be
    made without a key."""
    make: Callable[[ModuleType, str, str | None, Mapping[str, Any]], Any] = make_client
    """Makes a client from a module, the name of a class, a base URL and options."""
    simulated_options: Callable[[httpx2.Client], dict[str, Any]] = simulated_options
    """Returns the options of a client for the simulator."""
    shown: Callable[[SdkFacts, str], str] = sample_client
    """Returns Python code that makes a client for the simulator."""


@dataclass(frozen=True)
class SdkDriver:
    """How commands call a model in one wire format, through its SDK."""

    name: str
    """The name of its dialect."""
    title: str
    sdk: SdkFacts
    model: str
    """The model that is called by default."""
    prefixes: tuple[str, ...]
    """The beginnings of the names of models that are called in this format."""
    stop_name: str
    """The format's name for its stop reason."""
    ends: tuple[str, ...]
    """The stop reasons of a complete answer."""
    called: str
    """The stop reason of an answer that calls a tool."""
    body: Callable[[Prompt], dict[str, Any]]
    """Returns the arguments of the SDK's method for a prompt."""
    stream: Callable[[Any, Prompt, OnDelta], End]
    """Sends a prompt by a client of the SDK, calls `OnDelta` for each delta, returns the end."""
    method: str = ""
    """The attribute of the client that has the format's methods, for messages to users."""
    sends_truncated_calls: bool = True
    """Whether a truncated call arrives, with the arguments up to the truncation."""
    agent: str = ""
    """A program that `demo --kill` kills: an agent with a journal and a tool; `""`: there is none.

    Its arguments are the server's URL, the journal, the model, the limit, and two files that it
    writes: the answer, and the ids of the calls that it ran. Each line of its output is a JSON
    object.
    """
    rank: int = 0
    """The format's place in lists. If two formats can call a model, the first is used."""
