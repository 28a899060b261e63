"""What the tests of the shells share: the sync and the async client by the same methods."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, Literal

import anthropic
import httpx2
import pytest

import continuation
from continuation import Finished, Policy, Report
from continuation.simulator import Recorded, Simulator

Kind = Literal["sync", "async"]
KINDS: tuple[Kind, ...] = ("sync", "async")
both = pytest.mark.parametrize("kind", KINDS)

NEW = "claude-opus-5"
"""Takes no prefill; ceiling 128,000."""
LIMIT = 300
LONG = "".join(f"{n}: der lange Text, 文字 und 🙂, geht weiter und weiter.\n" for n in range(120))
"""Long enough to be cut at `LIMIT`; whole at the ceiling."""
PATIENCE = 60.0
"""Seconds to wait for what must happen; long, since a busy machine is slow."""
GO: list[dict[str, str]] = [{"role": "user", "content": "recite"}]


class Way:
    """One of the two kinds of client; at its end it closes every client made by it."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.reports: list[Report] = []
        self._made: list[Any] = []
        self._runner = asyncio.Runner() if kind == "async" else None

    def __enter__(self) -> Way:
        return self

    def __exit__(self, *error: object) -> None:
        for client in reversed(self._made):
            close = getattr(client, "aclose", None) or client.close
            self.do(close())
        if self._runner is not None:
            self._runner.close()

    def do(self, value: Any) -> Any:
        """Return a value, awaited if the kind is asynchronous."""
        if self._runner is None:
            return value

        async def wait() -> Any:
            return await value

        return self._runner.run(wait())

    def each(self, stream: Any) -> Iterator[Any]:
        """Iterate, one step of the event loop at a time."""
        if self._runner is None:
            yield from stream
            return
        events = stream.__aiter__()
        while True:
            try:
                event = self.do(anext(events))
            except StopAsyncIteration:
                return
            yield event

    @contextlib.contextmanager
    def within(self, manager: Any) -> Iterator[Any]:
        """Enter a context manager of either kind."""
        if self._runner is None:
            with manager as entered:
                yield entered
            return
        yield self.do(manager.__aenter__())
        self.do(manager.__aexit__(None, None, None))

    def pick(self, sync: Any, other: Any) -> Any:
        """Return the one of the two that is of this kind."""
        return sync if self.kind == "sync" else other

    # --- clients -------------------------------------------------------------------------------

    def bare(self, url: str, **options: Any) -> Any:
        """Make an SDK client."""
        make = self.pick(anthropic.Anthropic, anthropic.AsyncAnthropic)
        client = make(**{"base_url": url, "api_key": "key", "max_retries": 0, **options})
        self._made.append(client)
        return client

    def http(self, **options: Any) -> Any:
        """Make an HTTP client."""
        client = self.pick(httpx2.Client, httpx2.AsyncClient)(**options)
        self._made.append(client)
        return client

    def wrap(self, client: Any, **options: Any) -> Any:
        """Wrap it; its reports are kept."""
        return continuation.wrap(client, on_event=self._told, **options)

    def healing(self, url: str, *, config: Policy | None = None, **options: Any) -> Any:
        """Make an SDK client and wrap it."""
        return self.wrap(self.bare(url, **options), config=config)

    def _told(self, event: continuation.Event) -> None:
        if isinstance(event, Finished):
            self.reports.append(event.report)


def ask(**changes: Any) -> dict[str, Any]:
    """Return the arguments of a request that is going to be cut."""
    return {"model": NEW, "max_tokens": LIMIT, "messages": GO, **changes}


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def told(events: list[Any]) -> str:
    """Return the text of raw stream events, joined."""
    deltas = [event.delta for event in events if event.type == "content_block_delta"]
    return "".join(delta.text for delta in deltas if delta.type == "text_delta")


def create(way: Way, client: Any, **changes: Any) -> str:
    """Ask without a stream; return the text."""
    return text_of(way.do(client.messages.create(**ask(**changes))))


def stream(way: Way, client: Any, **changes: Any) -> str:
    """Ask for raw events; return the text."""
    return told(list(way.each(way.do(client.messages.create(**ask(**changes), stream=True)))))


def asked(sim: Simulator) -> list[int]:
    """Return the limits of the model calls, in order."""
    return [body["max_tokens"] for body in (post.body for post in sim.posts) if body is not None]


def last(sim: Simulator) -> Recorded:
    return sim.posts[-1]


def gone(request: Recorded) -> bool:
    """Whether the client hung up on a request; waits for the server to notice."""
    assert request.done.wait(PATIENCE), "the server still serves it"
    return request.hung_up
