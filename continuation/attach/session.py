"""One turn on its way through a shell: all that a shell does but the moving of bytes."""

from __future__ import annotations

import contextlib
import datetime
import logging
import time
from typing import Any, cast

import httpx2

from continuation.dialect import Feed
from continuation.engine.commands import (
    Attach,
    Command,
    Emit,
    PassRest,
    Raise,
    Reply,
    Send,
    StreamBody,
)
from continuation.engine.turn import Turn
from continuation.types import AttemptResult, Enough, Head, Outcome, Outgoing

logger = logging.getLogger("continuation")

_BODY_BOUND = (
    "content-length",
    "transfer-encoding",
    "content-digest",
    "digest",
    "content-md5",
    "idempotency-key",
)
"""Headers that speak of one body; with another one they would be wrong, the last one a lie."""

CLOSED = "Cannot send a request, as the client has been closed."
"""What httpx2 says in that case."""


class Session:
    """One turn on its way through a shell: everything but the I/O.

    A shell asks for the next command (`_next`), performs it, and notes what came of it in
    `_reply`; the bytes of a response go through a `_taker`. Neither of the two lets a bug of ours
    out: `_salvage` says what is safe to send instead.
    """

    def __init__(self, turn: Turn, request: httpx2.Request, jar: httpx2.Cookies) -> None:
        self.elapsed: datetime.timedelta | None = None
        self._turn = turn
        self._script = turn.run()
        self._reply: Reply = None
        # What the engine has asked for already, when an answer ended within its body.
        self._asked: Command | None = None
        self._request = request
        # As they are now: auth and hooks put theirs in anew, on each attempt.
        self._headers, self._jar = _unsent(request, jar)
        self._started = time.perf_counter()
        self._live: httpx2.Response | None = None
        self._own = True
        self._error: Exception | None = None
        self._closed = False
        self._broken = False
        self._attached = False
        self._relayed = False
        self._over = False
        # How what the caller has would be closed validly.
        self._closing: bytes | None = None
        # Closed before the answer was over, while somebody read on; and by its client.
        self._left = self._abandoned = False

    # --- the engine's side ---------------------------------------------------------------------

    def _next(self) -> Command | None:
        """Take the next command; `None` when there is nothing more to do."""
        if self._closed or self._broken:
            self._left = self._closed
            return None
        reply, self._reply = self._reply, None
        asked, self._asked = self._asked, None
        try:
            command = asked or self._script.send(reply)
        except StopIteration:
            return None
        except Exception as bug:
            return self._salvage(bug)
        if isinstance(command, Raise):
            self._stop()
            raise command.error
        if isinstance(command, Emit):
            self._note()
        return command

    def _note(self) -> None:
        """Note how the answer would end from here on, now that the caller gets what is shown."""
        replay = self._turn.replay
        # The report is written before the last bytes go out; after them there is nothing to say.
        ended = self._turn.recorder.finished is not None
        self._closing = b"" if ended else replay.closing

    def _taker(self, relay: StreamBody) -> Feed:
        """Return what gives the engine the next bytes, and says which may be shown now.

        It runs once for each chunk of every answer, hence over locals.
        """
        feed, replay = relay.feed, self._turn.replay
        raw = relay.replay.raw if relay.replay is not None else None
        self._relayed, self._over = True, False

        def take(chunk: bytes) -> bytes:
            nonlocal feed, raw
            shown = b""
            try:
                try:
                    if raw is not None:
                        raw += chunk
                        if (flows := replay.flows) is not None and flows(chunk):
                            replay.sent = len(raw)
                            return chunk
                    shown = feed(chunk)
                except Enough as enough:
                    shown = enough.show
                    self._over = enough.result is None or not self._may_pass(enough.result)
                    if not self._over:
                        replay.flows, shown = _anything, replay.rest(shown)
            except Exception as bug:
                # The caller's own attempt goes on as it comes; of a later one we know no more.
                self._over = raw is None
                feed, raw = _as_it_came, None
                return shown + self._break(bug)
            if shown and raw is None:
                self._closing = replay.closing
            return shown

        return take

    def _may_pass(self, result: AttemptResult) -> bool:
        """Tell the engine how an answer ended whose body is still open; whether the rest passes."""
        try:
            command = self._script.send(result)
        except StopIteration:  # closed meanwhile
            return False
        if isinstance(command, PassRest):
            return True
        self._asked = command
        return False

    def _fail(self, error: Exception) -> None:
        """Note that a response broke off; what a close brought about goes to who reads on."""
        if self._closed:
            if isinstance(error, httpx2.ReadError):
                raise error
            message = "the stream was closed"
            raise httpx2.ReadError(message) from error
        self._reply = error

    def abandon(self) -> None:
        """The client is about to be closed, and this stream with it."""
        self._abandoned = True

    def _complete(self) -> None:
        """Raise where the answer ends because its client was closed, as a connection would.

        It would pass for a whole one. Who closes the stream itself knows that it is not.
        """
        if self._left and self._abandoned:
            message = "the client was closed"
            raise httpx2.ReadError(message, request=self._request)

    # --- when our own code fails ---------------------------------------------------------------

    def _salvage(self, bug: Exception) -> Command:
        """Our own code failed between two commands: say what is safe to do instead."""
        rest = self._break(bug)
        if self._attached and not self._relayed:
            return StreamBody(_as_it_came)
        return Emit(rest)

    def _break(self, bug: Exception) -> bytes:
        """Leave the engine; return the bytes that end the caller's answer."""
        logger.error("internal error, the answer ends as it stands", exc_info=bug)
        self._broken = True
        outcome = Outcome.PARTIAL if self._attached else Outcome.UNTOUCHED
        self._report(outcome, f"internal error: {type(bug).__name__}")
        return self._rest()

    def _rest(self) -> bytes:
        """Return what closes the answer validly where it stands, or else the provider's bytes."""
        replay = self._turn.replay
        closing = self._closing
        if closing is None and replay.sent:
            closing = replay.closing
        return bytes(replay.raw[replay.sent :]) if closing is None else closing

    def _report(self, outcome: Outcome, reason: str) -> None:
        try:
            self._turn.recorder.finish(outcome, reason)
        except Exception:
            logger.exception("the report could not be written")

    # --- requests and responses ----------------------------------------------------------------

    def _prepare(self, send: Send) -> httpx2.Request:
        """Build the request for an attempt: the caller's own, or one like it."""
        self._live = self._error = None
        outgoing, original = send.outgoing, self._request
        self._own = outgoing is None
        if outgoing is None:
            return original
        return httpx2.Request(
            outgoing.method,
            _url(original.url, outgoing),
            headers=_merged(self._headers, outgoing),
            cookies=self._jar,
            content=outgoing.body or None,
            extensions=_within(original.extensions, send.seconds),
        )

    def _refused(self, send: Send) -> httpx2.Response | None:
        """Answer a request that must not be sent, as its server would have."""
        refusal = send.outgoing.refusal if send.outgoing is not None else None
        if refusal is None:
            return None
        self._own, self._error = False, None
        head = {"content-type": "application/json"}
        made = httpx2.Response(400, headers=head, content=refusal, request=self._request)
        made.elapsed = datetime.timedelta()
        return made

    def _opened(self, command: Command | None, stream: object) -> httpx2.Response | None:
        """Return the response for the caller; `None`: their request is to be sent as it is."""
        live = self._live
        if self._closed:
            return None
        if isinstance(command, Attach) and live is not None:
            self._live = _twin(live)
            _adopt(live, stream)
            self._attached = True
            return live
        self._stop()
        if self._broken and self._own and self._error is not None:
            raise self._error
        if self._broken and live is not None and not (self._own or live.is_success):
            return None
        return live

    def _as_it_is(self) -> httpx2.Request:
        """Return the caller's request, to be sent without us; not after a close."""
        if self._closed:
            raise RuntimeError(CLOSED)
        return self._request

    def _finish(self) -> None:
        """The caller has closed the stream, or has read it to its end."""
        self._closed = True
        if self.elapsed is None:
            self.elapsed = datetime.timedelta(seconds=time.perf_counter() - self._started)
        if self._turn.recorder.finished is None:
            self._report(Outcome.PARTIAL, "closed by the caller")
        self._stop()

    def _stop(self) -> None:
        """Let go of the engine; it may be at work just now, in another thread."""
        with contextlib.suppress(Exception):
            self._script.close()


def _as_it_came(chunk: bytes) -> bytes:
    return chunk


def _anything(chunk: bytes) -> bool:
    return True


def _unsent(
    request: httpx2.Request, jar: httpx2.Cookies
) -> tuple[httpx2.Headers, httpx2.Cookies | None]:
    """Return the caller's headers, and the jar if it is where their cookies came from."""
    headers = httpx2.Headers(request.headers)
    baked = httpx2.Request(request.method, request.url, cookies=jar).headers.get("cookie")
    if headers.get("cookie") != baked:
        return headers, None
    headers.pop("cookie", None)
    return headers, jar


def _merged(headers: httpx2.Headers, outgoing: Outgoing) -> httpx2.Headers:
    merged = httpx2.Headers(headers)
    merged.update(outgoing.headers)
    dropped = [name for name, value in outgoing.headers.items() if not value]
    if outgoing.method == "GET":
        dropped.append("content-type")
    for name in (*_BODY_BOUND, *dropped):
        merged.pop(name, None)
    return merged


def _url(url: httpx2.URL, outgoing: Outgoing) -> httpx2.URL:
    """Map path and query as they stand on the wire: decoded ones would not come back the same."""
    if outgoing.path is None and not outgoing.query:
        return url
    path, _, query = url.raw_path.decode("ascii").partition("?")
    path = path if outgoing.path is None else outgoing.path(path)
    kept = [p for p in query.split("&") if p and p.partition("=")[0] not in outgoing.query]
    kept += [f"{name}={value}" for name, value in outgoing.query.items() if value]
    return url.copy_with(raw_path="?".join([path, "&".join(kept)] if kept else [path]).encode())


def _within(extensions: Any, seconds: float | None) -> dict[str, Any]:
    """Copy the caller's extensions; its timeouts shrink to the time that is left."""
    copy = dict(extensions)
    if seconds is not None:
        given = copy.get("timeout", {})
        known = {name: given.get(name) for name in ("connect", "read", "write", "pool")}
        copy["timeout"] = {n: seconds if t is None else min(t, seconds) for n, t in known.items()}
    return copy


def head_of(response: httpx2.Response) -> Head:
    """Return what the engine knows of a response before its body."""
    return Head(response.status_code, {k.lower(): v for k, v in response.headers.items()})


def _twin(response: httpx2.Response) -> httpx2.Response:
    """Return a response to read the provider's bytes from, in place of `response`."""
    twin = httpx2.Response(
        response.status_code,
        headers=response.headers,
        stream=response.stream,
        request=response.request,
        extensions=response.extensions,
    )
    if response.is_closed:  # a response hook has read it: its content is what there is
        twin.headers.pop("content-encoding", None)
        twin.stream = httpx2.ByteStream(response.content)
    return twin


def _adopt(response: httpx2.Response, stream: object) -> None:
    """Put our stream into a response, and undo what a hook that read it has left."""
    for name in ("_content", "_text", "_decoder"):
        response.__dict__.pop(name, None)
    response.is_closed = response.is_stream_consumed = False
    for name in ("content-encoding", "content-length"):
        response.headers.pop(name, None)
    response.stream = cast("httpx2.SyncByteStream", stream)
