"""Makes many requests at once, and every answer whole: `run_batch`.

`lane.py` holds what the requests share, above all the rate limit; `workers.py` makes the calls;
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
    """The request's own id, or without one a digest of the request."""
    answer: Any
    """The answer as the SDK's own method returns it; `None` if there was an error."""
    report: Report | None
    """The report of its turn; `None` if the request was not sent."""
    error: Exception | None
    """The exception it failed with, as the SDK raises it; `None` if there is an answer."""


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
    """Yield the answers to many requests, each made whole, in the order in which they are ready.

    `client`: an SDK's client, wrapped (its policies apply) or not; a google-genai client is wrapped
    in place. An asynchronous client gives an asynchronous iterator (of asyncio). `requests`: each
    is the keywords of the SDK's method, its JSON body, or a line of a batch API (`custom_id` and
    `params` or `body`; `key` and `request`). The first two may have an `id`. Requests are taken as
    they are needed, so a generator will do, and only a digest of each is kept.

    `concurrency`: how many requests are open at once. `journal`: a path, a URL, or a `Journal` with
    options of its own; called again with the same journal, the batch continues where it stopped.
    Each request has a session there, named by its `id`, or without one by a digest of the request:
    a whole answer is returned again without a request, and a half-written one is continued.

    If a request is refused for its rate (429, 503, 529), all requests wait: as long as
    `retry-after` states, or ever longer. The SDK tries other errors again as usual; one that stays
    is in the result, and the other requests continue. Answers are requested as streams and put
    together, so that one whose connection drops is continued; not so with `"stream": False`.

    Leaving the iterator breaks off the open requests. Raises `TypeError` for a client that cannot
    be wrapped, `ValueError` naming a field and its possible values, and what a `Journal` raises.
    """
    from continuation.bulk.workers import Batch

    return Batch(client, requests, concurrency, journal).results()
