"""A request that a dialect claims. Its answer passes through the engine, with keep-alives."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import anyio
import httpx2

from continuation.attach.http import AsyncHealedStream
from continuation.attach.journaled import AsyncJournaledStream, TurnLog, first_attempt
from continuation.attach.shell import TooLargeError, as_stream
from continuation.attach.steps import awaited
from continuation.config import HEADER, check_names, parse
from continuation.config.gateway import IDLE_SECONDS
from continuation.engine.turn import Turn
from continuation.gateway import verbatim
from continuation.gateway.access import CREDENTIALS
from continuation.gateway.alive import Pulse
from continuation.gateway.caller import Caller, Headers, end_to_end
from continuation.gateway.errors import GatewayError, error_body, error_event
from continuation.gateway.relay import failed, hand_over
from continuation.gateway.resumed import digest
from continuation.policy import lifted, shown
from continuation.providers.contract import Dialect, ProviderRequest
from continuation.reports.report import ChainStore, Event, Retrying
from continuation.types import Outcome, Request
from continuation.wire.errors import message_of
from continuation.wire.json_values import count_values

if TYPE_CHECKING:
    from continuation.gateway.asgi import Gateway
    from continuation.gateway.room import Lease
    from continuation.gateway.text_tail import TextTail

logger = logging.getLogger("continuation")

TURN_HEADER = b"x-continuation-turn"
_ENCODING = (b"accept-encoding", b"identity")
_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")


class _TimedStream(httpx2.AsyncByteStream):
    """An upstream's bytes. The time spent waiting for them is added to the turn's `waited`."""

    def __init__(self, turn: GatewayTurn, stream: httpx2.AsyncByteStream) -> None:
        self._turn, self._stream = turn, stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        since = perf_counter()
        async for chunk in self._stream:
            self._turn.waited += perf_counter() - since
            yield chunk
            since = perf_counter()
        self._turn.waited += perf_counter() - since

    async def aclose(self) -> None:
        await self._stream.aclose()


class GatewayTurn:
    """One turn: the caller on one side, the upstream's attempts on the other."""

    def __init__(
        self,
        gateway: Gateway,
        caller: Caller,
        dialect: Dialect,
        transport: httpx2.AsyncBaseTransport,
    ) -> None:
        self._gateway = gateway
        self._caller = caller
        self._dialect = dialect
        self._transport = transport
        self._begin: Callable[[httpx2.Request], Turn]
        self._name = self._upstream = ""
        self._turn: Turn
        self._request: httpx2.Request
        self._length: bytes | None = None
        """The `content-length` of the last answer."""
        self._head: tuple[int, Headers] | None = None
        """Status and headers of the answer, while they wait for the first byte of a JSON body."""
        self._streamed = False
        self._gathers = False
        """Whether a stream is delivered as a body."""
        self._opening = b""
        """The first event with data that was sent to the caller; empty until then."""
        self._tail = b""
        """The last bytes of the body that were sent to the caller."""
        self._text_tail: TextTail | None = None
        self.waited = 0.0
        """Seconds spent waiting for the upstream, between attempts, and for a store."""

    async def run(
        self,
        upstream: str,
        method: str,
        url: httpx2.URL,
        path: str,
        headers: Headers,
        settings: Mapping[str, object],
    ) -> None:
        """Read the caller's request, and answer it. `settings`: those of the upstream's vendor."""
        with self._gateway.room.lease() as lease:
            raw = await self._caller.body(lease)
            with self._gateway.room.stream():
                await self._answered(upstream, method, url, path, headers, settings, raw, lease)

    async def _answered(
        self,
        upstream: str,
        method: str,
        url: httpx2.URL,
        path: str,
        headers: Headers,
        settings: Mapping[str, object],
        raw: bytes,
        lease: Lease,
    ) -> None:
        """Answer a request after its body has arrived."""
        gateway, override = self._gateway, self._override()
        most = int(gateway.table.max_json_values)
        values = await gateway.aside(len(raw), lambda: count_values(raw, most))
        if values <= most:
            lease.take_parsed(len(raw), values)
        else:
            logger.warning(
                "request relayed unchanged: upstream=%s bytes=%d "
                'reason="it has more than %d JSON values (max_json_values)"',
                upstream,
                len(raw),
                most,
            )
        name, note = gateway.turns.begin(upstream)

        def listen(event: Event) -> None:
            if isinstance(event, Retrying | ChainStore):
                self.waited += event.seconds
            note(event)

        began = perf_counter()
        turn_header = (TURN_HEADER, name.encode())
        try:
            # To complete an answer, we must be able to read it, so allow no unknown encoding.
            headers = [_ENCODING if h[0] == _ENCODING[0] else h for h in headers]
            if _ENCODING not in headers:
                headers.append(_ENCODING)
            self._request = httpx2.Request(
                method,
                url,
                headers=headers,
                content=raw,
                extensions={"timeout": gateway.timeouts},
            )

            def begin(made: httpx2.Request) -> Turn:
                host, sent = url.netloc.decode("ascii"), dict(made.headers.items())
                place = unquote(made.url.raw_path.decode("ascii").partition("?")[0])
                asked = Request(host, place, sent, made.content, settings, max_values=most)
                return gateway.engine.begin(self._dialect, asked, None, override, listen)

            self._begin, self._name, self._upstream = begin, name, upstream
            self._turn = await gateway.aside(len(raw), partial(begin, self._request))
            self._check_limits(override)
            gateway.turns.live[name] = upstream, self._turn.recorder
            if gateway.show_content and self._turn.asked is not None:
                from continuation.gateway.text_tail import TextTail

                self._text_tail = TextTail(self._turn.asked[1].codec())
                gateway.turns.texts[name] = self._text_tail.text
            await self._caller.attend(self._heal(turn_header))
            own = max(0.0, perf_counter() - began - self.waited - self._caller.seconds)
            gateway.metrics.own.labels(self._dialect.name).observe(own)
        except GatewayError as error:
            known = gateway.turns.forget(name)
            if not self._caller.started:
                await self._caller.answer(
                    error.status,
                    error_body(self._dialect.name, error),
                    *error.headers,
                    *([turn_header] if known else []),
                )

    def _override(self) -> Mapping[str, Any]:
        """Return the policies in the request's `x-continuation` header. Raises `GatewayError`."""
        header = self._caller.named.get(HEADER.encode())
        try:
            check_names(self._caller.headers)
            if header is None:
                return {}
            override = parse(header.decode("latin-1"))
        except ValueError as error:
            raise GatewayError(400, str(error)) from error
        if override.get("on_failure") == "raise":
            raise GatewayError(400, f'{HEADER}: on_failure = "raise": choose "stop" or "truncated"')
        return override

    def _check_limits(self, override: Mapping[str, Any]) -> None:
        """Raise a `GatewayError` for a header that lifts a limit of the configuration."""
        if self._gateway.table.overrides == "any":
            return
        own = self._gateway.config.policy_for(self._turn.recorder.model or "")
        if key := lifted(own, override):
            value, mine = override[key], getattr(own, key)
            message = (
                f"{HEADER}: {key} = {shown(key, value)} lifts a limit of this gateway, "
                f'{shown(key, mine)}: leave it out, or set overrides = "any" under [gateway]'
            )
            raise GatewayError(400, message)

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        """Send an attempt. A later one keeps the caller's bytes wherever the JSON is equal."""
        if request is not self._request and request.method == "POST":
            before, after = self._request.content, request.content
            keep = partial(verbatim.keep_bytes, before, after)
            content = await self._gateway.aside(len(before), keep)
            headers = [item for item in request.headers.raw if item[0].lower() != b"content-length"]
            request = httpx2.Request(
                request.method,
                request.url,
                headers=headers,
                content=content,
                extensions=request.extensions,
            )
        since = perf_counter()
        try:
            response = await self._transport.handle_async_request(request)
        finally:
            self.waited += perf_counter() - since
        response.stream = _TimedStream(self, cast("httpx2.AsyncByteStream", response.stream))
        self._length = None
        if response.headers.get("content-encoding", "identity") == "identity":
            self._length = response.headers.get("content-length", "").encode() or None
        return response

    async def _heal(self, turn_header: tuple[bytes, bytes]) -> None:
        gateway, table = self._gateway, self._gateway.table
        asked = self._turn.asked
        if not table.journal or asked is None:
            await self._heal_recorded(turn_header, None)
            return
        size = len(self._request.content)
        key = await gateway.aside(size, partial(self._digest, asked[1]))
        turn, request = self._turn, self._request
        if not asked[1].streamed and await gateway.resumed.has(table, key):
            # After a broken stream, the client requests a body. Make it from that stream.
            self._request = await gateway.aside(size, partial(as_stream, request, gateway.engine))
            self._turn = await gateway.aside(size, partial(self._begin, self._request))
            self._gathers = True
        async with gateway.resumed.recording(table, self._turn, self._request.url, key) as log:
            if log is None and self._gathers:
                self._turn, self._request, self._gathers = turn, request, False
            self._gateway.turns.live[self._name] = self._upstream, self._turn.recorder
            await self._heal_recorded(turn_header, log)

    def _digest(self, request: ProviderRequest) -> str:
        """Return a digest of caller and request, so that no other caller gets this answer.

        It depends neither on the order of keys, nor on whether the answer is streamed.
        """
        headers = self._caller.headers
        credentials = sorted(b"%b: %b" % item for item in headers if item[0] in CREDENTIALS)
        url, (path, body) = self._request.url, request.wanted
        query = b"&".join(each for each in url.query.split(b"&") if not each.startswith(b"alt="))
        text = json.dumps(body, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        where = url.netloc, path.encode(), query
        return digest(*where, text.encode("utf-8", "surrogatepass"), *credentials)

    async def _heal_recorded(self, turn_header: tuple[bytes, bytes], log: TurnLog | None) -> None:
        healed = AsyncHealedStream(self._turn, self._request, httpx2.Cookies(), self._send)
        healed.played = first_attempt(log)
        # An operator who set a bound of their own chose how long a silence may be.
        healed.listens = self._gateway.table.idle_seconds == IDLE_SECONDS
        healed.max_event_bytes = self._gateway.table.max_event_bytes
        healed.max_body_bytes = self._gateway.table.max_body_bytes
        stream: httpx2.AsyncByteStream = healed
        try:
            try:
                response = await awaited(healed.opening())
            except Exception as error:
                raise failed(error) from error
            if response.stream is not healed:
                if log is not None:
                    log.drop()
                if self._gateway.show_content and response.is_closed and response.is_error:
                    self._gateway.turns.keep_message(self._name, message_of(response.content))
                await hand_over(self._caller, response, [turn_header])
                return
            if log is not None:
                stream = AsyncJournaledStream(healed, self._turn, log)
            if healed.gathered:
                self._length = None
            if self._gathers:
                response.headers["content-type"] = "application/json"
            content_type = response.headers.get("content-type", "").lower()
            self._streamed = "text/event-stream" in content_type
            self._head = response.status_code, [*end_to_end(response.headers.raw), turn_header]
            if self._streamed:
                await self._start([])
            pulse = Pulse(self._gateway.table.ping_seconds, self._beat)
            try:
                await self._answer(self._gathered(stream, log) if self._gathers else stream, pulse)
            finally:
                pulse.stop()
        finally:
            await stream.aclose()

    async def _gathered(
        self, stream: httpx2.AsyncByteStream, log: TurnLog | None
    ) -> AsyncIterator[bytes]:
        """Yield a stream's answer as a JSON body. Raises if the answer has no end."""
        async for _ in stream:
            pass
        body = None if log is None else await anyio.to_thread.run_sync(log.answer)
        if body is None:
            raise httpx2.RemoteProtocolError("the answer has no end")
        yield body

    async def _answer(self, stream: AsyncIterable[bytes], pulse: Pulse) -> None:
        """Send the bytes of the engine as they arrive."""
        caller = self._caller
        try:
            async for chunk in stream:
                if not chunk:  # not known yet whether the answer is delivered unchanged
                    continue
                if pulse.beating is not None:
                    await pulse.beating
                pulse.busy = True
                if self._head is not None:
                    await self._start(self._whole_length())
                elif not self._opening:
                    self._opening = _first_event(chunk)
                self._sent(chunk)
                await caller.write(chunk)
                pulse.sent()
        except Exception as error:
            await self._break_off(error)
            return
        if pulse.beating is not None:
            await pulse.beating
        if self._head is not None:
            await self._start([])
        await caller.end()

    async def _break_off(self, error: Exception) -> None:
        """Break off as the upstream did. With an end, the answer would look complete."""
        if not self._caller.started:
            raise failed(error) from error
        if isinstance(error, TooLargeError) and self._streamed and self._between_events:
            await self._caller.end(error_event(self._dialect.name, failed(error)))

    def _sent(self, chunk: bytes) -> None:
        if not self._tail:
            seconds = self._turn.recorder.ledger.seconds
            self._gateway.metrics.first.labels(self._dialect.name).observe(seconds)
        self._tail = chunk[-4:]
        if self._text_tail is not None and self._streamed:
            self._text_tail.give(chunk)

    @property
    def _between_events(self) -> bool:
        return not self._tail or self._tail.endswith(_ENDS)

    async def _beat(self) -> None:
        """Send the format's keep-alive where an event may begin, or a space before a JSON value."""
        if self._turn.recorder.finished is not None:
            return
        if not self._streamed:
            if not self._tail:
                if self._head is not None:
                    await self._start([])
                self._gateway.metrics.pings.inc()
                await self._caller.write(b" ", beat=True)
        elif self._between_events:
            self._gateway.metrics.pings.inc()
            await self._caller.write(self._dialect.keep_alive(self._opening), beat=True)

    async def _start(self, more: Headers) -> None:
        assert self._head is not None
        (status, headers), self._head = self._head, None
        await self._caller.start(status, [*headers, *more])

    def _whole_length(self) -> Headers:
        """Return `content-length` for an answer that is passed on unchanged, else `[]`."""
        report = self._turn.recorder.finished
        whole = report is not None and report.outcome is Outcome.COMPLETE
        return [(b"content-length", self._length)] if whole and self._length else []


def _first_event(chunk: bytes) -> bytes:
    """Return the first event with data, or b"". The engine's chunks end where events end."""
    data = chunk.find(b"data:")
    if data < 0:
        return b""
    ends = [at for end in _ENDS if (at := chunk.find(end, data)) >= 0]
    return chunk[: min(ends) + 4] if ends else b""
