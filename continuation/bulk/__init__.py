"""Makes many requests at once, and completes every answer: `run_batch`.

`lane.py` has what the requests share, above all the rate limit. `workers.py` makes the calls.
`lines.py` reads and writes lines of JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

    from continuation.attach.doors import AsyncClient, SyncClient
    from continuation.journal import Journal
    from continuation.reports.report import Report

__all__ = ["BatchResult", "run_batch"]


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of one request of a batch."""

    index: int
    """The position of the request, from 0."""
    id: str
    """The request's own id, or a digest of the request if it has none."""
    answer: Any
    """The answer as the SDK's own method returns it; `None` if there was an error."""
    report: Report | None
    """The report of its turn; `None` if the request was not sent."""
    error: Exception | None
    """The exception as the SDK raises it; `None` if there is an answer."""


@overload
def run_batch(
    client: SyncClient,
    requests: Iterable[Mapping[str, Any]],
    *,
    concurrency: int = 8,
    journal: str | os.PathLike[str] | Journal | None = None,
) -> Iterator[BatchResult]: ...
@overload
def run_batch(
    client: AsyncClient,
    requests: Iterable[Mapping[str, Any]],
    *,
    concurrency: int = 8,
    journal: str | os.PathLike[str] | Journal | None = None,
) -> AsyncIterator[BatchResult]: ...
def run_batch(
    client: object,
    requests: Iterable[Mapping[str, Any]],
    *,
    concurrency: int = 8,
    journal: str | os.PathLike[str] | Journal | None = None,
) -> Any:
    """Yield the completed answers to many requests, in the order in which they are ready.

    `client`: an SDK's client, wrapped (its policies apply) or not. A google-genai client is wrapped
    in place. An asynchronous client gives an asynchronous iterator (of asyncio). `requests`: each
    is the keywords of the SDK's method, its JSON body, or a line of a batch API (`custom_id` and
    `params` or `body`; `key` and `request`). The first two may have an `id`. Requests are taken
    when they are needed, so `requests` can be a generator. Only a digest of each is kept.

    `concurrency`: how many requests are open at once. `journal`: a path, a URL, or a `Journal` with
    its own options. If you call this again with the same journal, the batch continues where it
    stopped. Each request has a session there. Its name is the request's `id`, or a digest of the
    request. A complete answer is returned again without a request, and a half-written one is
    continued.

    If a server refuses a request for its rate (429, 503, 529), all requests wait: as long as
    `retry-after` says, or longer each time. The SDK retries other errors as usual. If the error
    stays, it is in the result, and the other requests continue. Answers are requested as streams
    and then assembled, so that an answer is continued after a dropped connection. With
    `"stream": False` that is not so.

    If you leave the iterator, the open requests are stopped. Raises `TypeError` for a client that
    cannot be wrapped, `ValueError` with a field and its possible values, and what a `Journal`
    raises.
    """
    from continuation.bulk.workers import Batch

    return Batch(client, requests, concurrency, journal).results()
