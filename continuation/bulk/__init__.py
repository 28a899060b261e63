"""Many requests at once, each answer whole: `run_batch` is the door.

`lane.py` is what they share, the rate limit above all; `workers.py` makes the calls; `lines.py`
reads and writes them as lines of JSON.
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
    """What one request of a batch came to."""

    index: int
    """Its place among the requests, from 0."""
    id: str
    """The caller's, or a digest of what it asks."""
    answer: Any
    """As the SDK's own method returns it; `None`: there was an error."""
    report: Report | None
    """What became of its turn; `None`: it was not sent."""
    error: Exception | None
    """What it failed with, as the SDK raises it."""


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

    `client`: an SDK's, wrapped (its policies hold) or not; one of google-genai is wrapped by this.
    Of an asynchronous one the result is an asynchronous iterator, of asyncio. `requests`: each is
    the keywords of the SDK's method or its JSON, or a line of a batch API (`custom_id` and `params`
    or `body`; `key` and `request`); with an `id`, if it has none of these and is to have one. They
    are taken as they are needed, so a generator will do, and nothing of them is kept but a digest.

    A request that is refused for its rate (429, 503, 529) waits, and all others wait with it: as
    long as `retry-after` says, or ever longer. What fails otherwise is the SDK's to try again; then
    it is the result's `error`, and the others go on. Answers come as streams and are put together,
    so that one that breaks off is gone on with; a request with `"stream": False` is not.

    `concurrency`: how many requests are under way at once. `journal`: a path, a URL, or a `Journal`
    with options of its own; called again with the same journal the batch goes on where it stopped.
    Each request has a session there, by its `id`: an answer that was whole is given again, without
    a request, and a half-written one is gone on with. Requests without an `id` are known by what
    they ask.

    Leaving the iterator ends what is under way. Raises `TypeError` for a client that cannot be
    wrapped, `ValueError` naming a field and what is possible, and what a `Journal` raises.
    """
    from continuation.bulk.workers import Batch

    return Batch(client, requests, concurrency, journal).results()
