"""What both shells do for one turn, except I/O."""

from __future__ import annotations

import contextlib
import datetime
import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, cast

import httpx2

from continuation.attach.journaled import FOREIGN_ANSWER, GATHERED, ReplayedAnswer
from continuation.attach.preparing import KEY, Preparation
from continuation.attach.steps import Steps
from continuation.attach.watchdog import WATCHDOG
from continuation.engine.commands import (
    Attach,
    Command,
    Consult,
    Emit,
    PassRest,
    Raise,
    Read,
    Reply,
    Send,
    StreamBody,
    Wait,
    Work,
)
from continuation.engine.silence import SHORTEST, Silence
from continuation.engine.turn import Engine, Turn
from continuation.providers.contract import Feed
from continuation.types import AttemptResult, Enough, Head, Outcome, Outgoing, Request

logger = logging.getLogger("continuation")

_BODY_BOUND = (
    *("content-length", "transfer-encoding", "content-digest", "digest", "content-md5"),
    "idempotency-key",
)
"""Headers that describe one body or identify one request. A later attempt must not have them."""

AT_ONCE = 32_768
"""Below this size in bytes `Work` takes milliseconds, and no thread is used."""
CLOSED = "Cannot send a request, as the client has been closed."
"""The message of httpx2's own error."""


class TooLargeError(httpx2.DecodingError):
    """Raised if an answer, or one event of it, has more bytes than a shell reads.

    `lasting`: if the same request were resent, its answer would be too large again.
    """

    lasting = True


class SilentStreamError(TimeoutError):
    """Raised if a stream was silent for much longer than is usual for the model."""


_BLANKS = (b"\n\n", b"\r\n\r\n", b"\r\r")


def _too_large(what: str, most: float) -> TooLargeError:
    return TooLargeError(f"{what} has more than {most:,.0f} bytes, the maximum")


class Shell:
    """One turn in a shell: everything except the I/O.

    A shell gets the next command from `_next`, drives the steps that execute it (`_performing`),
    and stores the result in `_reply`. The bytes of a response pass through a `_taker`. `_next` and
    the taker do not raise if our own code fails. Then the answer ends with the text that arrived
    (`_break`).
    """

    # These differ between the shells. In asynchronous code the first five return awaitables.
    _drop: Callable[[], Any]
    """Closes the live response."""
    _read_whole: Callable[[httpx2.Response], Any]
    """Reads the body of a response as its `read` does. Raises `TooLargeError`."""
    _sleep: Callable[[float], Any]
    _ask: Callable[[Consult, float], Any]
    """Executes a store's command; returns a `TimeoutError` if it takes more than these seconds."""
    _aside: Callable[[Callable[[], Any]], Any]
    """Calls a slow function: in a thread, if the event loop would wait."""
    _interruptible: Callable[[], AbstractContextManager[object]]
    """Returns a context that closing the stream interrupts."""
    _in_time: Callable[[httpx2.Response | None], AbstractContextManager[object]]
    """Returns a context that bounds the time of an attempt; a response may be read in it."""

    max_event_bytes: float = 32 << 20
    """The most bytes of one event of a stream."""
    max_body_bytes: float = 256 << 20
    """The most bytes of an answer's decoded body, or of all events of a stream."""

    def __init__(
        self,
        turn: Turn,
        request: httpx2.Request,
        jar: httpx2.Cookies,
        send: Callable[[httpx2.Request], Any],
    ) -> None:
        self.elapsed: datetime.timedelta | None = None
        self.abandoned = False
        """Whether the client closes this stream; a caller who still reads it gets an error."""
        self.gathered = False
        """Whether the caller gets a body that is made of the first attempt's events."""
        given = FOREIGN_ANSWER.get()
        self.played: ReplayedAnswer | None = None if given is None else given.take(turn)
        """The existing part of the answer, which replaces the first attempt."""
        self._send = send
        self._turn = turn
        self._script = turn.run()
        self._reply: Reply = None
        # The engine's next command, if `_may_pass` got it before the end of the body.
        self._asked: Command | None = None
        self._request = request
        # The headers of later attempts. Auth, hooks, the SDK's preparation and the cookie jar (if
        # the caller's cookies came from it) add theirs to each attempt, so those are left out.
        self._prepared: Preparation | None = request.extensions.get(KEY)
        before = request if self._prepared is None else self._prepared
        self._headers = httpx2.Headers(before.headers)
        self._jar: httpx2.Cookies | None = None
        from_jar = None
        if jar:
            made = httpx2.Request(request.method, request.url, cookies=jar)
            from_jar = made.headers.get("cookie")
        cookie = self._headers.get("cookie")
        if cookie == from_jar:
            self._jar = jar
            if cookie is not None:
                del self._headers["cookie"]
        self._started = time.perf_counter()
        self._live: httpx2.Response | None = None
        # When the attempt under way is aborted, a time of `time.monotonic`; `None`: never.
        self._until: float | None = None
        self._own = True
        self._error: Exception | None = None
        self._wake = threading.Event()
        """Set by `close`, to end a wait of the synchronous shell."""
        self._closed = False
        self._broken = False
        self._attached = False
        self._relayed = False
        self._over = False
        self.listens = True
        """Whether the shell ends a stream that is silent for too long."""
        self._silence: Silence | None = None
        """The silences of the stream under way; `None`: they are not bounded."""
        self._since: float | None = None
        """When the wait for the next chunk began, as `time.monotonic`; `None`: no wait."""
        self._silenced: SilentStreamError | None = None
        self._events = bytearray()
        """The events of an answer that the caller gets as a body."""
        self._bug: Exception | None = None
        """An error in our own code while it read the events from which a body is made."""
        # Bytes that would end validly what was delivered; `None`: none are known.
        self._closing: bytes | None = None

    # --- commands ------------------------------------------------------------------------------

    def opening(self) -> Steps:
        """Send the caller's request; return its response.

        This stream is in the response, unless the turn leaves the answer unchanged.
        """
        while isinstance(command := self._next(), (Send, Read, Wait, Work)):
            self._reply = yield from self._performing(command)
        if (response := self._opened(command)) is not None:
            if self._broken and self._waits_for_body(response):
                events = yield partial(self._read_whole, response)
                body = self._rebuilt(response, events)
                response.headers["content-type"] = "application/json"
                response.__dict__["_content"] = body or events  # as `response.read` does
            return response
        yield self._drop
        if self._closed:
            raise RuntimeError(CLOSED)
        return (yield partial(self._send, self._request))

    def _waits_for_body(self, response: httpx2.Response) -> bool:
        """Whether a stream arrived for a caller who wants a body."""
        asked = self._turn.asked
        streams = "event-stream" in response.headers.get("content-type", "")
        return streams and asked is not None and not asked[1].streamed

    def _performing(self, command: Command) -> Steps:
        """Execute a command that delivers nothing; return the reply to it."""
        with self._interruptible():
            try:
                if isinstance(command, Send):
                    made = self._prepare(command)
                    with self._in_time(None):
                        if isinstance(made, httpx2.Request):
                            if self._prepared and not self._own:
                                yield partial(self._prepared.again, made)
                            made = yield partial(self._send, made)
                    self._live = live = cast("httpx2.Response", made)
                    return Head(live.status_code, dict(live.headers.items()))
                if isinstance(command, Read) and self._live is not None:
                    with self._in_time(self._live):
                        return (yield partial(self._read_whole, self._live))
                if isinstance(command, Wait):
                    yield partial(self._sleep, command.seconds)
                elif isinstance(command, Consult) and command.seconds is not None:
                    return (yield partial(self._ask, command, command.seconds))
                elif isinstance(command, Work) and command.size < AT_ONCE:
                    command.do()
                elif isinstance(command, Work):
                    yield partial(self._aside, command.do)
            except Exception as error:
                self._error = error
        return self._error

    # --- the engine's side ---------------------------------------------------------------------

    def _next(self) -> Command | None:
        """Return the engine's next command, or `None` if there is none.

        Raises the error of a `Raise`, and `httpx2.ReadError` if the client was closed.
        """
        if self._bug is not None and not self._broken:
            return Emit(self._break(self._bug))
        if self._closed or self._broken:
            # If the client was closed while the caller reads, the stream fails as a closed
            # connection does: an end would mean that the answer is complete. If the caller closed
            # the stream, they know that the answer is incomplete.
            if self._closed and self.abandoned and self._attached:
                raise httpx2.ReadError("the client was closed", request=self._request)
            return None
        reply, self._reply = self._reply, None
        asked, self._asked = self._asked, None
        try:
            command = asked or self._script.send(reply)
        except StopIteration:
            return None
        except Exception as bug:
            unread = self._attached and not self._relayed
            if unread and self.gathered:
                self._bug = bug
                return StreamBody(_as_it_came, gathers=True)
            rest = self._break(bug)
            return StreamBody(_as_it_came) if unread else Emit(rest)
        if isinstance(command, Raise):
            self._stop()
            raise command.error
        if isinstance(command, Emit):
            # The bytes that would end the answer after those of this command. If the report is
            # finished, these are the last bytes, and nothing has to follow.
            ended = self._turn.recorder.finished is not None
            self._closing = b"" if ended else self._turn.replay.closing
        return command

    def _taker(self, relay: StreamBody) -> Feed:
        """Return a function that passes a chunk to the engine and returns the bytes to deliver.

        It runs for each chunk of every answer, so it uses local variables.
        """
        replay = self._turn.replay
        feed = self._saving(relay.feed) if relay.gathers else relay.feed
        raw = relay.replay.raw if relay.replay is not None else None
        self._relayed, self._over = True, False
        size, most, check = 0, self.max_body_bytes, self._size_check()
        silence, clock = relay.silence, time.monotonic

        def take(chunk: bytes) -> bytes:
            nonlocal feed, raw, size
            shown = b""
            since, self._since = self._since, None
            if since is not None and silence is not None and clock() - since > SHORTEST:
                silence.note(clock() - since)
            try:
                try:
                    size += len(chunk)
                    if raw is not None:
                        raw += chunk
                        if (flows := replay.flows) is not None and size <= most and flows(chunk):
                            replay.sent = len(raw)
                            return chunk
                    check(chunk, size)
                    shown = feed(chunk)
                except Enough as enough:
                    shown = enough.show
                    self._over = enough.result is None or not self._may_pass(enough.result)
                    if not self._over:
                        replay.flows, shown = _anything, replay.rest(shown)
            except TooLargeError as error:
                return self._overflowed(error, first=raw is not None)
            except Exception as bug:
                # The rest of the first attempt passes through unchanged; a later attempt ends here.
                self._over = raw is None
                feed, raw = _as_it_came, None
                return shown + self._break(bug)
            if shown and raw is None:
                self._closing = replay.closing
            return shown

        return take

    def _saving(self, feed: Feed) -> Feed:
        """Return a feed that also stores the bytes, and does not raise if our own code fails.

        Without the engine, the body can only be made from all of the bytes.
        """

        def take(chunk: bytes) -> bytes:
            self._events += chunk
            if self._bug is not None:
                return b""
            try:
                return feed(chunk)
            except Enough:
                raise
            except Exception as bug:
                self._bug = bug
                return b""

        return take

    @contextlib.contextmanager
    def _listening(self, relay: StreamBody) -> Generator[None]:
        """End the live response if it is silent for too long within this context."""
        live, self._silenced = self._live, None
        if relay.silence is None or live is None or not self.listens or _line(live) is None:
            yield
            return
        self._silence, self._since = relay.silence, time.monotonic()
        WATCHDOG.add(self)
        try:
            yield
        finally:
            WATCHDOG.remove(self)
            self._silence = self._since = None

    def check_silence(self) -> None:
        """End the live response if it has been silent for too long. Another thread calls this."""
        since, silence, live = self._since, self._silence, self._live
        if since is None or silence is None or live is None:
            return
        seconds = time.monotonic() - since
        if seconds > silence.allowed and self._since is since:
            self._silenced = SilentStreamError(f"the stream was silent for {seconds:.0f} s")
            self._over, self._reply = True, self._silenced
            wake(live)

    def _size_check(self) -> Callable[[bytes, int], None]:
        """Return a function that raises `TooLargeError` if an answer or an event is too large.

        It takes a chunk, and the number of the answer's bytes up to the end of the chunk. It need
        not be called for a chunk that is one complete event.
        """
        kind = "" if self._live is None else self._live.headers.get("content-type", "")
        most, event, last = self.max_body_bytes, 0, b""
        most_of_event = self.max_event_bytes if "event-stream" in kind.lower() else math.inf

        def check(chunk: bytes, size: int) -> None:
            nonlocal event, last
            if size > most:
                raise _too_large("the answer", most)
            if most_of_event < math.inf:
                seen, last = last + chunk, chunk[-3:]
                event = 0 if any(map(seen.__contains__, _BLANKS)) else event + len(chunk)
                if event > most_of_event:
                    raise _too_large("one event of the answer", most_of_event)

        return check

    def _overflowed(self, error: TooLargeError, *, first: bool) -> bytes:
        """Raise the error of an answer that is too large, or ignore what follows its end.

        If the first attempt's answer is complete already, return `b""`: nothing more is read. If it
        is not, the turn fails. The engine gets the error of a later attempt, and decides.
        """
        if first and self._turn.recorder.finished is not None:
            self._over = True
            return b""
        if first:
            self._broken = True
            self._report(Outcome.FAILED, str(error))
            self._stop()
        raise error

    def _add(self, chunk: bytes, body: bytearray) -> None:
        """Add a chunk to a body. Raises `TooLargeError` if the body becomes too large."""
        body += chunk
        if len(body) > self.max_body_bytes:
            raise _too_large("the answer", self.max_body_bytes)

    def _may_pass(self, result: AttemptResult) -> bool:
        """Send the engine an attempt's result; return whether the rest may pass unread."""
        try:
            command = self._script.send(result)
        except StopIteration:  # the turn was closed meanwhile
            return False
        if isinstance(command, PassRest):
            return True
        self._asked = command
        return False

    def _fail(self, error: Exception) -> None:
        """Reply with a dropped connection. If `close` caused it, raise `httpx2.ReadError`."""
        if isinstance(error, TooLargeError) and self._broken:
            raise error
        if self._closed:
            if isinstance(error, httpx2.ReadError):
                raise error
            raise httpx2.ReadError("the stream was closed") from error
        self._reply = self._silenced or error

    def _break(self, bug: Exception) -> bytes:
        """Stop the engine after an error in our own code; return the bytes that end the answer.

        They end validly what was delivered. If no such bytes are known, return the provider's bytes
        that were not delivered.
        """
        logger.error("internal error: the answer ends with the text that arrived", exc_info=bug)
        self._broken = True
        outcome = Outcome.PARTIAL if self._attached else Outcome.UNTOUCHED
        self._report(outcome, f"internal error: {type(bug).__name__}")
        replay, closing = self._turn.replay, self._closing
        if closing is None and self.gathered and self._live is not None:
            return self._rebuilt(self._live, bytes(self._events))
        if closing is None and replay.sent:
            closing = replay.closing
        return bytes(replay.raw[replay.sent :]) if closing is None else closing

    def _rebuilt(self, live: httpx2.Response, events: bytes) -> bytes:
        try:
            return self._turn.rebuilt(Head(live.status_code, dict(live.headers.items())), events)
        except Exception:
            logger.exception("internal error: the body could not be made of the stream's events")
            return b""

    def _report(self, outcome: Outcome, reason: str) -> None:
        try:
            self._turn.recorder.finish(outcome, reason)
        except Exception:
            logger.exception("internal error: the report could not be written")

    # --- requests and responses ----------------------------------------------------------------

    def _prepare(self, send: Send) -> httpx2.Request | httpx2.Response:
        """Return the request for an attempt: the caller's own, or one made from it.

        If no request must be sent, return a response: the saved answer, or the refusal.
        """
        self._live = self._error = self._until = None
        if send.bounded and send.seconds is not None:
            self._until = time.monotonic() + send.seconds
        outgoing, original = send.outgoing, self._request
        self._own = outgoing is None
        if self.played is not None:
            played, self.played = self.played, None
            made = played.response(original)
            made.elapsed = datetime.timedelta()
            return made
        if outgoing is None:
            return original
        if outgoing.refusal is not None:
            head = {"content-type": "application/json"}
            made = httpx2.Response(
                outgoing.status, headers=head, content=outgoing.refusal, request=original
            )
            made.elapsed = datetime.timedelta()
            return made

        headers = httpx2.Headers(self._headers)
        headers.update(outgoing.headers)
        for name in (*_BODY_BOUND, *(["content-type"] if outgoing.method == "GET" else [])):
            headers.pop(name, None)
        for name, value in outgoing.headers.items():
            if not value:
                headers.pop(name, None)

        # No timeout is longer than the time left for the attempt.
        extensions = dict(original.extensions)
        if send.seconds is not None:
            given, timeouts = extensions.get("timeout", {}), dict[str, float]()
            for name in ("connect", "read", "write", "pool"):
                limit = given.get(name)
                timeouts[name] = send.seconds if limit is None else min(limit, send.seconds)
            extensions["timeout"] = timeouts

        return httpx2.Request(
            outgoing.method,
            _url(original.url, outgoing),
            headers=headers,
            cookies=self._jar,
            content=outgoing.body or None,
            extensions=extensions,
        )

    @property
    def _left(self) -> float | None:
        """Seconds until the attempt under way is aborted; `None`: its time is not bounded."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    def _opened(self, command: Command | None) -> httpx2.Response | None:
        """Return the response for the caller. `None`: their request must be sent unchanged."""
        live = self._live
        if self._closed:
            return None
        if not isinstance(command, Attach) or live is None:
            self._stop()
            if self._broken and self._own and self._error is not None:
                raise self._error
            if self._broken and live is not None and not (self._own or live.is_success):
                return None
            return live
        # The caller gets this response with our stream in it. A copy has the provider's stream.
        self._attached = True
        self._live = twin = httpx2.Response(
            live.status_code,
            headers=live.headers,
            stream=live.stream,
            request=live.request,
            extensions=live.extensions,
        )
        if live.is_closed:  # a response hook has read it, so its stream is consumed
            twin.headers.pop("content-encoding", None)
            twin.stream = httpx2.ByteStream(live.content)
        for name in ("_content", "_text", "_decoder"):  # attributes that a hook's `read` has set
            live.__dict__.pop(name, None)
        live.is_closed = live.is_stream_consumed = False
        for name in ("content-encoding", "content-length"):
            if name in live.headers:
                del live.headers[name]
        self.gathered = command.gathered
        if command.gathered:
            live.headers["content-type"] = "application/json"
        live.stream = cast("httpx2.SyncByteStream", self)
        return live

    def _finish(self) -> None:
        """End the turn: the caller has closed the stream, or has read it to its end."""
        self._closed = True
        if self.elapsed is None:
            self.elapsed = datetime.timedelta(seconds=time.perf_counter() - self._started)
        if self._turn.recorder.finished is None:
            self._turn.recorder.left = True
            self._report(Outcome.PARTIAL, "closed by the caller")
        self._stop()

    def _stop(self) -> None:
        """Close the engine's generator. That fails while it runs in another thread."""
        with contextlib.suppress(Exception):
            self._script.close()


def begin(command: Consult, done: Callable[[], object]) -> None:
    """Run a store's command in a daemon thread, which may hang. The thread then calls `done`."""

    def ask() -> None:
        command.do()
        with contextlib.suppress(RuntimeError):  # the event loop is closed: nothing waits for it
            done()

    threading.Thread(target=ask, name="continuation-store", daemon=True).start()


def _line(response: httpx2.Response) -> Any:
    """Return the socket of a response; `None`: it is shared (HTTP/2), or there is none."""
    if not response.http_version.startswith("HTTP/1"):
        return None
    stream = response.extensions.get("network_stream")
    return None if stream is None else stream.get_extra_info("socket")


def wake(response: httpx2.Response) -> None:
    """Shut a response's socket down, to wake a thread that reads it. Closing it would not."""
    with contextlib.suppress(Exception):
        line = _line(response)
        try:
            line.shutdown(socket.SHUT_RDWR)
        except TypeError:  # uvloop's sockets have no `shutdown`
            with socket.socket(fileno=os.dup(line.fileno())) as same:
                same.shutdown(socket.SHUT_RDWR)


def _as_it_came(chunk: bytes) -> bytes:
    return chunk


def _anything(chunk: bytes) -> bool:
    return True


def as_stream(request: httpx2.Request, engine: Engine) -> httpx2.Request:
    """Change a request for a body into one for a stream, if its format allows that."""
    dialect = engine.claims(request.method, request.url.path)
    whole = isinstance(request.stream, httpx2.ByteStream)
    if dialect is None or not whole or "content-encoding" in request.headers:
        return request
    host, headers = request.url.netloc.decode("ascii"), dict(request.headers.items())
    asked = Request(host, request.url.path, headers, request.content)
    if (outgoing := engine.begin(dialect, asked, None).streamed()) is None:
        return request
    kept = {name: value for name, value in headers.items() if name not in _BODY_BOUND}
    return httpx2.Request(
        request.method,
        _url(request.url, outgoing),
        headers={**kept, **outgoing.headers},
        content=outgoing.body,
        extensions={**request.extensions, GATHERED: True},
    )


def _url(url: httpx2.URL, outgoing: Outgoing) -> httpx2.URL:
    """Return a request's URL with its new path and query.

    They are changed in encoded form, because decoding may lose bytes.
    """
    if outgoing.path is None and not outgoing.query:
        return url
    path, _, query = url.raw_path.decode("ascii").partition("?")
    path = path if outgoing.path is None else outgoing.path(path)
    kept = [p for p in query.split("&") if p and p.partition("=")[0] not in outgoing.query]
    kept += [f"{name}={value}" for name, value in outgoing.query.items() if value]
    return url.copy_with(raw_path="?".join([path, "&".join(kept)] if kept else [path]).encode())
