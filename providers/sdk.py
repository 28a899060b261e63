"""How a format is spoken through its SDK, for commands that call a model.

A format's folder has a `DRIVER` in `sdk.py`; `Dialect.driver` imports it when a command needs it.
No SDK is imported here.
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
    """What a model is asked, independent of the format."""

    model: str
    text: str
    limit: int
    """Output limit, in tokens."""
    system: str | None = None
    tool: bool = False
    """Whether it may call `Write`."""


@dataclass(frozen=True)
class OnDelta:
    """Callbacks for the deltas of an answer: visible text, and raw arguments of calls."""

    text: Callable[[str], None]
    arguments: Callable[[str], None] = lambda _: None


CallArguments: TypeAlias = Mapping[str, Any] | str
"""The arguments of a call: a mapping, or raw JSON text where the SDK does not read it."""


class End(NamedTuple):
    """The stop reason of an answer, in the format's own word, and the arguments of its calls."""

    stop: str | None
    calls: Sequence[CallArguments] = ()


class AnswerFailedError(Exception):
    """The stream held an error that the SDK does not raise; `body` is that error."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__()
        self.body = {"type": "error", **body}


def make_client(
    module: ModuleType, name: str, base_url: str | None, options: Mapping[str, Any]
) -> Any:
    """Make a client of an SDK whose options are those of its class."""
    return getattr(module, name)(base_url=base_url, **options)


def sample_client(sdk: SdkFacts, url: str) -> str:
    """Return Python that makes a client of the simulator at `url`."""
    return f'{sdk.module}.{sdk.client}(base_url="{url}{sdk.path}", api_key="any")'


def simulated_options(http: httpx2.Client) -> dict[str, Any]:
    """Return the options of a client of the simulator that sends through `http`."""
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
    """Environment variables that hold a key; the first one is the one to set."""
    base_url: str
    """Environment variable that names another server."""
    own_errors: tuple[str, ...]
    """The bases of its errors, as `module:name`."""
    server: str
    """The server that it calls by default."""
    path: str = ""
    """The path of its base URL."""
    credentials: tuple[str, ...] = ()
    """Attributes of the client, one of which is set if it found a key; `()`: without a key, making
    the client fails."""
    make: Callable[[ModuleType, str, str | None, Mapping[str, Any]], Any] = make_client
    """Makes a client of a module and a class, with a base URL and options."""
    simulated_options: Callable[[httpx2.Client], dict[str, Any]] = simulated_options
    """Returns the options of a client of the simulator."""
    shown: Callable[[SdkFacts, str], str] = sample_client
    """Returns Python that makes a client of the simulator."""


@dataclass(frozen=True)
class SdkDriver:
    """One wire format as its SDK speaks it."""

    name: str
    """The name of its dialect."""
    title: str
    sdk: SdkFacts
    model: str
    """The model to call when none is named."""
    prefixes: tuple[str, ...]
    """Beginnings of the names of models that are called in this format."""
    stop_name: str
    """What the format calls its stop reason."""
    ends: tuple[str, ...]
    """The stop reasons of a complete answer."""
    called: str
    """The stop reason of an answer that calls a tool."""
    body: Callable[[Prompt], dict[str, Any]]
    """Returns the arguments of the SDK's method for a prompt."""
    stream: Callable[[Any, Prompt, OnDelta], End]
    """Sends a prompt by a client of the SDK, passes on each delta, returns how it ended."""
    method: str = ""
    """The attribute of the client that speaks it, as shown to users."""
    sends_truncated_calls: bool = True
    """Whether a call that is truncated arrives with the arguments up to there."""
    agent: str = ""
    """A program that `demo --kill` kills: an agent with a journal and a tool; `""`: there is none.

    Its arguments: the server's URL, the journal, the model, the limit, and two files to write, the
    answer and the ids of the calls that it ran. Each line that it prints is a JSON object.
    """
    rank: int = 0
    """The format's place in lists. Of two that can call a model, the first is used."""
