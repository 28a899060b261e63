"""What is raced: streams and calls through the SDK and without it, plain or ours, sync or async."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from itertools import islice
from typing import Any, Protocol

import answers
import httpx2
from upstream import raw
from wires import Wire

import continuation

SLICE = 500
"""Events per step of a stream's lane."""
CALLS = 6
"""Calls, one per step, of a lane of calls."""


class Lanes(Protocol):
    """One lane per method; `ours`: with the wrapped client."""

    label: str
    outcomes: set[str]
    """How the turns of our client ended: a turn that was not looked at would cost nothing."""

    def stream(self, name: str, *, ours: bool) -> Iterator[object]:
        """Read one stream through the SDK: `create(stream=True)`."""
        ...

    def call(self, name: str, history: str, *, ours: bool) -> Iterator[object]:
        """Make calls through the SDK: `create()`."""
        ...

    def relay(self, name: str, *, ours: bool) -> Iterator[object]:
        """Read one stream without the SDK, looking at nothing."""
        ...


def _ask(name: str, history: str = "Go.") -> dict[str, Any]:
    """Return the body of a request, and the header that names its answer."""
    return {
        "model": answers.MODEL,
        "max_tokens": answers.LIMIT,
        "messages": [{"role": "user", "content": history}],
        "extra_headers": {"x-answer": name},
    }


def _plainly(client: httpx2.Client | httpx2.AsyncClient, url: str, name: str) -> httpx2.Request:
    """Return the same request as the SDK would send it."""
    ask = _ask(name)
    headers = ask.pop("extra_headers")
    return client.build_request("POST", url, headers=headers, json={**ask, "stream": True})


class _Events(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    def __init__(self, events: list[bytes]) -> None:
        self._events = events

    def __iter__(self) -> Iterator[bytes]:
        yield from self._events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for event in self._events:
            yield event


class Direct(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """No sockets: hands the events of the named stream over in this process.

    What is left of the noise is small enough to see a tenth of a microsecond.
    """

    def __init__(self, dialect: str) -> None:
        self._dialect = dialect
        self._streams: dict[str, list[bytes]] = {}

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        name = request.headers["x-answer"]
        events = self._streams.get(name) or self._streams.setdefault(name, self._raw(name))
        kind = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=kind, stream=_Events(events))

    def _raw(self, name: str) -> list[bytes]:
        return raw(name, self._dialect)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return self.handle_request(request)


class _Noting:
    def __init__(self) -> None:
        self.outcomes: set[str] = set()

    def _note(self, event: continuation.Event) -> None:
        if isinstance(event, continuation.Finished):
            self.outcomes.add(event.report.outcome)


class SyncLanes(_Noting):
    def __init__(self, url: str, wire: Wire, transport: Direct | None = None) -> None:
        super().__init__()
        self.label = "no sockets, " if transport else ""
        self._url = url + wire.path
        http = httpx2.Client(transport=transport)
        own = http if transport else None  # else the SDK's default
        at = url + wire.base
        # Two of them: where an SDK's client cannot be copied, the one that is wrapped is changed.
        sdk, other = (
            wire.client(base_url=at, api_key="k", max_retries=0, http_client=own) for _ in range(2)
        )
        healing = continuation.wrap(other, on_event=self._note)
        self._create = {False: wire.create(sdk), True: wire.create(healing)}
        self._http = {False: http, True: continuation.http_client(http, on_event=self._note)}

    def stream(self, name: str, *, ours: bool) -> Iterator[object]:
        yield from _sliced(iter(self._create[ours](**_ask(name), stream=True)))

    def call(self, name: str, history: str, *, ours: bool) -> Iterator[object]:
        for _ in range(CALLS):
            yield self._create[ours](**_ask(name, history))

    def relay(self, name: str, *, ours: bool) -> Iterator[object]:
        client = self._http[ours]
        response = client.send(_plainly(client, self._url, name), stream=True)
        yield from _sliced(response.iter_raw())


def _sliced(events: Iterator[object]) -> Iterator[int]:
    while count := sum(1 for _ in islice(events, SLICE)):
        yield count


class AsyncLanes(_Noting):
    """The same on an event loop, which runs for one step at a time."""

    def __init__(
        self, url: str, wire: Wire, runner: asyncio.Runner, transport: Direct | None = None
    ) -> None:
        super().__init__()
        self.label = "no sockets, async " if transport else "async "
        self._url = url + wire.path
        self._runner = runner
        http = httpx2.AsyncClient(transport=transport)
        own = http if transport else None
        at = url + wire.base
        # Two of them: where an SDK's client cannot be copied, the one that is wrapped is changed.
        sdk, other = (
            wire.async_client(base_url=at, api_key="k", max_retries=0, http_client=own)
            for _ in range(2)
        )
        healing = continuation.wrap(other, on_event=self._note)
        self._create = {
            ours: wire.create(wire.asynchronous(client))
            for ours, client in ((False, sdk), (True, healing))
        }
        self._http = {False: http, True: continuation.async_http_client(http, on_event=self._note)}

    def stream(self, name: str, *, ours: bool) -> Iterator[object]:
        opening: Any = self._create[ours](**_ask(name), stream=True)
        yield from self._sliced(aiter(self._run(opening)))

    def call(self, name: str, history: str, *, ours: bool) -> Iterator[object]:
        for _ in range(CALLS):
            yield self._run(self._create[ours](**_ask(name, history)))

    def relay(self, name: str, *, ours: bool) -> Iterator[object]:
        client = self._http[ours]
        response = self._run(client.send(_plainly(client, self._url, name), stream=True))
        yield from self._sliced(response.aiter_raw())

    def _sliced(self, events: AsyncIterator[object]) -> Iterator[int]:
        while count := self._run(_some(events)):
            yield count

    def _run(self, step: Awaitable[Any]) -> Any:
        async def go() -> Any:
            return await step

        return self._runner.run(go())


async def _some(events: AsyncIterator[object]) -> int:
    count = 0
    async for _ in events:
        count += 1
        if count == SLICE:
            break
    return count
