"""`wrap`: a client of the same type whose answers come back whole.

The doors alone: what they need, the HTTP layer above all, is imported when one is opened, so that
`import continuation` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping
    from typing import Unpack

    import httpx2

    from continuation.attach.journaled import Keeper
    from continuation.config import Source
    from continuation.policy import PolicyKeys
    from continuation.reports.report import OnEvent

ClientT = TypeVar("ClientT")
AnswerT = TypeVar("AnswerT")


class SyncClient(Protocol):
    """Any SDK's synchronous client."""

    def __enter__(self) -> Any: ...


class AsyncClient(Protocol):
    """Any SDK's asynchronous client."""

    async def __aenter__(self) -> Any: ...


def wrap(
    client: ClientT,
    *,
    config: Source = None,
    on_event: OnEvent | None = None,
    journal: Keeper | None = None,
    **keys: Unpack[PolicyKeys],
) -> ClientT:
    """Return a client like `client` whose cut answers are made whole.

    A client of `anthropic` or `openai` is copied: the result is of the same type and shares the
    HTTP client, and so connections, proxies, auth, hooks and limits; `client` itself is not
    changed. Closing the result closes the streams it opened and nothing of `client`. What was
    patched onto `client` itself, as some tracers do, is not copied: wrap first, then trace.

    A `google.genai.Client` cannot be copied. It is changed in place and returned: its inner
    client's two HTTP clients are replaced by ours that stand for them; it, its `aio` and their
    `models` become subclasses of the same names, so that a streamed chat remembers each answer as
    one model turn; and, where aiohttp is installed, its asynchronous requests no longer go through
    aiohttp but through the SDK's own HTTP client, where a timeout still bounds a call from
    beginning to end. Closing works as before.

    Wrapping a wrapped client gives it the new `config`, `on_event` and keys, or returns it as it is
    when there are none. WebSockets (realtime, live) do not use the HTTP client and pass by.

    `config`: a `Policy`, the path of a TOML file (see `continuation.config`), or a `Config` from
    that module; without one the file that CONTINUATION_CONFIG names, or else the defaults.
    `on_event`: a plain function, called with each event of a turn as it happens: `Truncated`,
    `Escalating`, `Recovering`, `Retrying`, `Repairing`, `Finished` with the report, and
    `NotDurable` behind it if the journal could not be written.
    `journal`: a `Journal` that keeps the conversation, so that it outlives this process.
    `keys`: keys of `Policy`, as in `wrap(client, max_recoveries=2)`; they go before the `config`.

    Raises `TypeError` for a client that is not supported, naming those that are, and for an
    `on_event` that cannot be called; `ValueError` or `TypeError` for a key or a `config` that
    cannot be, naming key, value and what is possible; `OSError` when its file cannot be read.
    """
    from continuation.attach.clients import wrapped
    from continuation.attach.common import Healing

    return wrapped(client, Healing(config, on_event, keys, journal))


def http_client(
    client: httpx2.Client | None = None,
    *,
    config: Source = None,
    on_event: OnEvent | None = None,
    journal: Keeper | None = None,
    **keys: Unpack[PolicyKeys],
) -> httpx2.Client:
    """Return an HTTP client for frameworks that take one rather than an SDK client.

    It stands for `client` and leaves it open when closed; without one it makes its own, with the
    SDKs' defaults, and closes that. Requests that no dialect knows pass through untouched. A
    client of ours is wrapped as `wrap` wraps one.

    For google-genai it is the `httpx_client` of its `HttpOptions`.

    Raises `TypeError` when `client` is not an `httpx2.Client`, and what `wrap` raises for a bad
    `config`, `on_event` or key.
    """
    import httpx2

    from continuation.attach.clients import standing_for
    from continuation.attach.common import Healing

    return standing_for(client, httpx2.Client, Healing(config, on_event, keys, journal))


def async_http_client(
    client: httpx2.AsyncClient | None = None,
    *,
    config: Source = None,
    on_event: OnEvent | None = None,
    journal: Keeper | None = None,
    **keys: Unpack[PolicyKeys],
) -> httpx2.AsyncClient:
    """Return the asynchronous twin of `http_client`.

    Its connections belong to the event loop in which they were opened; for one loop after another
    give it a client with `httpx2.Limits(max_keepalive_connections=0)`.
    """
    import httpx2

    from continuation.attach.clients import standing_for
    from continuation.attach.common import Healing

    return standing_for(client, httpx2.AsyncClient, Healing(config, on_event, keys, journal))


@overload
def finish(client: SyncClient, request: Mapping[str, Any], answer: Mapping[str, Any]) -> Any: ...
@overload
def finish(client: SyncClient, request: Mapping[str, Any], answer: AnswerT) -> AnswerT: ...
@overload
def finish(
    client: AsyncClient, request: Mapping[str, Any], answer: Mapping[str, Any]
) -> Coroutine[Any, Any, Any]: ...
@overload
def finish(
    client: AsyncClient, request: Mapping[str, Any], answer: AnswerT
) -> Coroutine[Any, Any, AnswerT]: ...
def finish(client: object, request: Mapping[str, Any], answer: object) -> Any:
    """Return an answer whole that came cut from elsewhere, such as a batch or a log.

    What is there of it is not paid again: it is the first attempt of a turn like any other, which
    goes on from there. An answer that is not cut comes back without a request. One without a stop
    reason broke off, and is gone on with. Half a function call is asked for again.

    `client`: an SDK's, wrapped (its policies hold) or not; one of google-genai is wrapped by this.
    Of an asynchronous one the result is to be awaited. `request`: what the answer was asked for
    with, as keywords of the SDK's method, or its JSON; it is sent without a stream. `answer`: the
    SDK's object or its JSON; the result is of the SDK's own type. `last_report().saved` says what
    was not paid again.

    Raises `TypeError` for an answer that is none, or is not one of this client's, and for a client
    that cannot be wrapped; and what the SDK raises for the request.
    """
    from continuation.attach.elsewhere import finished

    return finished(client, request, answer)
