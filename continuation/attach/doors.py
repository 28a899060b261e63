"""The public functions that attach to a client: `wrap`, `http_client`, `finish` and their twins.

What they need, the HTTP layer above all, is imported when one of them is called, so that `import
continuation` costs next to nothing.
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
    """Return a client like `client` whose truncated answers are made whole.

    A client of `anthropic` or `openai` is copied: the result is of the same type and shares the
    HTTP client, and so connections, proxies, auth, hooks and limits; `client` itself is not
    changed. Closing the result closes the streams it opened and nothing of `client`. Methods that
    were patched on `client` itself, as some tracers do, are not copied: wrap first, then trace.

    A `google.genai.Client` cannot be copied. It is changed in place and returned: its inner
    client's two HTTP clients are replaced by healing ones that stand for them; it, its `aio` and
    their `models` become subclasses of the same names, so that a streamed chat records each answer
    as one model turn; and, where aiohttp is installed, its asynchronous requests no longer go
    through aiohttp but through the SDK's own HTTP client, where a timeout still bounds a call from
    beginning to end. Closing works as before.

    Wrapping a wrapped client gives it the new `config`, `on_event` and keys, or returns it as it is
    when there are none. WebSockets (realtime, live) do not use the HTTP client and are not healed.

    `config`: a `Policy`, the path of a TOML file (see `continuation.config`), or a `Config` from
    that module; without one the file that CONTINUATION_CONFIG names, or else the defaults.
    `on_event`: a plain function, called with each event of a turn as it happens: `Truncated`,
    `Escalating`, `Recovering`, `Retrying`, `Repairing`, `Finished` with the report, and after it
    `NotDurable` if the journal could not be written.
    `journal`: a `Journal` that records the conversation, so that it outlives this process.
    `keys`: keys of `Policy`, as in `wrap(client, max_recoveries=2)`; they override the `config`.

    Raises `TypeError` for a client that is not supported, naming those that are, and for an
    `on_event` that cannot be called; `ValueError` or `TypeError` for an invalid key or `config`,
    naming key, value and what is possible; `OSError` when its file cannot be read.
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

    It sends through `client` and leaves it open when closed; without one it makes its own, with the
    SDKs' defaults, and closes that. Requests in no known wire format pass through unchanged. A
    healing client is wrapped again as `wrap` does it.

    For google-genai pass it as `httpx_client` in `HttpOptions`.

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

    Its connections belong to the event loop in which they were opened; if several loops use it, one
    after another, give it a client with `httpx2.Limits(max_keepalive_connections=0)`.
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
    """Return the whole of a truncated answer that another call gave, such as a batch or a log.

    The text it has is not paid for again: the answer becomes the first attempt of a turn, which
    continues from there. An answer that is not truncated is returned without a request. One without
    a stop reason is taken for truncated. Half a function call is requested again.

    `client`: an SDK's client, wrapped (its policies hold) or not; one of google-genai is wrapped by
    this. With an asynchronous one the result must be awaited. `request`: the request of the answer,
    as keywords of the SDK's method or as JSON; it is sent without streaming. `answer`: the SDK's
    object or its JSON; the result is of the SDK's own type. `last_report().saved` is what was not
    paid for again.

    Raises `TypeError` if `answer` is not an answer, or not one of this client's, and if the client
    cannot be wrapped; and what the SDK raises for the request.
    """
    from continuation.attach.elsewhere import finished

    return finished(client, request, answer)
