"""What is raced: streams and calls through the SDK and without it, plain or ours, sync or async."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import Any

import answers
import httpx2
from upstream import raw
from wires import WIRES, Wire

import continuation

SLICE = 500
"""Events per step of a stream's lane."""
CALLS = 6
"""Calls, one per step, of a lane of calls."""


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
    ask["anthropic_version"] = "2026-10-21"  # what Bedrock's path knows it by
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
        kind = {"content-type": WIRES[self._dialect].kind}
        return httpx2.Response(200, headers=kind, stream=_Events(events))

    def _raw(self, name: str) -> list[bytes]:
        return raw(name, self._dialect)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return self.handle_request(request)


class Lanes:
    """One lane per method; `ours`: with the wrapped client. With a runner all is asynchronous.

    An event loop runs for one step at a time.
    """

    def __init__(
        self,
        url: str,
        wire: Wire,
        runner: asyncio.Runner | None = None,
        transport: Direct | None = None,
    ) -> None:
        self.label = ("no sockets, " if transport else "") + ("async " if runner else "")
        self.outcomes: set[str] = set()
        """How the turns of our client ended: one that was not looked at would cost nothing."""
        self._url, self._runner = url + wire.path, runner
        make, http_client, make_http = (
            (wire.async_client, continuation.async_http_client, httpx2.AsyncClient)
            if runner
            else (wire.client, continuation.http_client, httpx2.Client)
        )
        http: Any = make_http(transport=transport)
        own = http if transport else None  # else the SDK's default
        # Two of them: where an SDK's client cannot be copied, the one that is wrapped is changed.
        sdk, other = (
            make(base_url=url + wire.base, api_key="k", max_retries=0, http_client=own)
            for _ in range(2)
        )
        side = wire.asynchronous if runner else _itself
        healing = continuation.wrap(other, on_event=self._note)
        self._create = {False: wire.create(side(sdk)), True: wire.create(side(healing))}
        self._http = {False: http, True: http_client(http, on_event=self._note)}

    def _note(self, event: continuation.Event) -> None:
        if isinstance(event, continuation.Finished):
            self.outcomes.add(event.report.outcome)

    def stream(self, name: str, *, ours: bool) -> Iterator[object]:
        """Read one stream through the SDK: `create(stream=True)`."""
        yield from self._sliced(self._do(self._create[ours](**_ask(name), stream=True)))

    def call(self, name: str, history: str, *, ours: bool) -> Iterator[object]:
        """Make calls through the SDK: `create()`."""
        for _ in range(CALLS):
            yield self._do(self._create[ours](**_ask(name, history)))

    def relay(self, name: str, *, ours: bool) -> Iterator[object]:
        """Read one stream without the SDK, looking at nothing."""
        client = self._http[ours]
        response = self._do(client.send(_plainly(client, self._url, name), stream=True))
        yield from self._sliced(response.aiter_raw() if self._runner else response.iter_raw())

    def _sliced(self, events: Any) -> Iterator[int]:
        if self._runner is None:
            going = iter(events)
            while count := sum(1 for _ in islice(going, SLICE)):
                yield count
        else:
            told = aiter(events)
            while count := self._do(_some(told)):
                yield count

    def _do(self, step: Any) -> Any:
        if self._runner is None:
            return step

        async def go() -> Any:
            return await step

        return self._runner.run(go())


def _itself(client: Any) -> Any:
    return client


async def _some(events: AsyncIterator[object]) -> int:
    count = 0
    async for _ in events:
        count += 1
        if count == SLICE:
            break
    return count
