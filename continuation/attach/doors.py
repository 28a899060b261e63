"""The public functions that attach to a client: `wrap`, `http_client`, `finish` and their twins.

Each function imports what it needs when it is called. So `import continuation` does not load the
HTTP layer, and takes little time.
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
    """Return a client like `client` that completes truncated answers.

    A client of `anthropic` or `openai` is copied. The copy has the same type and uses the same HTTP
    client, so it shares connections, proxies, auth, hooks and limits. `client` itself is not
    changed. Closing the copy closes the streams that it opened, and nothing of `client`. Methods
    that were patched on `client`, as some tracers do, are not copied: wrap first, then trace.

    A `google.genai.Client` cannot be copied, so it is changed in place and returned:

    - Two HTTP clients that complete answers replace those of its inner client, and send through
      them.
    - The client, its `aio` and the `models` of both become subclasses of the same names. So a
      streamed chat records each answer as one message of the model.
    - If aiohttp is installed, asynchronous requests no longer use it. They use the SDK's own HTTP
      client; a timeout still bounds a call from beginning to end.

    Closing works as before.

    A client that is wrapped already gets the new `config`, `on_event` and keys. Without any of them
    it is returned unchanged. WebSockets (realtime, live) do not use the HTTP client, so their
    answers are not completed.

    `config`: a `Policy`, the path of a TOML file (see `continuation.config`), or a `Config` from
    that module. The default is the file that CONTINUATION_CONFIG names; without that variable, the
    built-in defaults apply.
    `on_event`: a plain function. It is called with each event of a turn as it happens: `Truncated`,
    `Escalating`, `Recovering`, `Retrying`, `Repairing`, `Finished` with the report, and after it
    `NotDurable` if the journal could not be written.
    `journal`: a `Journal` that records the conversation, so that it outlives this process.
    `keys`: keys of `Policy`, as in `wrap(client, max_recoveries=2)`; they override the `config`.

    Raises `TypeError` for a client that is not supported (the message lists those that are), and
    for an `on_event` that cannot be called. Raises `ValueError` or `TypeError` for an invalid key
    or `config`; the message has the key, its value and the possible values. Raises `OSError` if the
    file of `config` cannot be read.
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
    """Return an HTTP client that completes truncated answers.

    It is for frameworks that take an HTTP client, not an SDK client. For google-genai, pass it as
    `httpx_client` in `HttpOptions`.

    It sends through `client`, and leaves `client` open when it is closed. Without `client` it makes
    an HTTP client with the SDKs' defaults, and closes that one. Requests in an unknown wire format
    pass through unchanged. A client that this function returned is wrapped again as in `wrap`.

    Raises `TypeError` if `client` is not an `httpx2.Client`, and what `wrap` raises for an invalid
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

    Its connections belong to the event loop in which they were opened. If several event loops use
    it one after another, give it a client with `httpx2.Limits(max_keepalive_connections=0)`.
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
    """Complete a truncated answer that came from elsewhere, such as a batch or a log.

    The answer becomes the first attempt of a turn, which continues it. So its text is not generated
    and paid for again. An answer that is not truncated is returned without a request. An answer
    without a stop reason counts as truncated. A truncated function call is requested again.

    `client`: an SDK's client, wrapped or not; if it is wrapped, its policies apply. A client of
    google-genai is wrapped in place by this call. With an asynchronous client, await the result.
    `request`: the request of the answer, as keywords of the SDK's method or as JSON. The method is
    called without streaming.
    `answer`: the SDK's object, or its JSON.

    Returns an object of the SDK's type. `last_report().saved` counts the tokens that were not paid
    for again.

    Raises `TypeError` if `answer` is not an answer, if it is not in this client's format, or if the
    client cannot be wrapped. Raises what the SDK raises for the request.
    """
    from continuation.attach.elsewhere import finished

    return finished(client, request, answer)
