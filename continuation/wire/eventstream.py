"""AWS event streams, sans-IO: how Bedrock frames the events that others send as SSE.

A message consists of its length, the length of its headers and the CRC of both; then the headers,
the payload, and the CRC of everything before. An event's payload is an object with the event in
Base64 (`bytes`), and padding. An error is a message of type `exception`. Both are returned as
`Frame`s.

Sources: "Amazon Event Stream Encoding" (AWS Transcribe developer guide; Smithy specification),
Bedrock's InvokeModelWithResponseStream, and the service model `bedrock-runtime` in botocore.
"""

from __future__ import annotations

import struct
from binascii import a2b_base64, b2a_base64, crc32
from functools import lru_cache

from continuation.wire import sse
from continuation.wire.json_values import as_json, as_text, dumps, loads
from continuation.wire.sse import Frame

_PRELUDE = struct.Struct(">III")
_LEAST = _PRELUDE.size + 4
_MOST = 32 << 20
"""The most bytes of a message; AWS sends at most 24 MB."""
_MOST_HEADS = 128 << 10
"""The most bytes of a message's headers, by the specification."""
_STRING = 7
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Header types -> sizes of their values in bytes. A string or blob has its size before it."""
_BYTES = b'{"bytes":"'
_BREAKS = bytes.maketrans(b"\r\n", b"  ")
_LASTING = frozenset({"validationException"})
"""Errors that do not go away with a retry."""


def frames(raw: bytes | bytearray, start: int = 0, *, final: bool = False) -> list[Frame]:
    """Return the complete messages of `raw` from offset `start` on, as frames.

    Invalid bytes become one error frame up to the end, because nothing after them can be read.
    """
    found: list[Frame] = []
    while len(raw) - start >= _LEAST:
        size, heads, check = _PRELUDE.unpack_from(raw, start)
        end = start + size
        fits = heads <= _MOST_HEADS and _LEAST + heads <= size <= _MOST
        if crc32(raw[start : start + 8]) != check or not fits:
            return [*found, _error("InvalidPrelude", "", len(raw))]
        if end > len(raw):
            break
        body = memoryview(raw)[start : end - 4]
        whole = crc32(body) == int.from_bytes(raw[end - 4 : end])
        head, payload = bytes(body[12 : 12 + heads]), bytes(body[12 + heads :])
        body.release()  # a `bytearray` cannot grow while a view of it exists
        if not whole:
            return [*found, _error("ChecksumMismatch", "", len(raw))]
        found.append(_frame(head, payload, end))
        start = end
    return found


def _frame(head: bytes, payload: bytes, end: int) -> Frame:
    kind, name, message = _headers(head)
    try:
        if kind not in {"", "event"}:
            error = as_json(loads(payload)) if payload else {}
            return _error(name, as_text(error.get("message")) or message, end)
        close = payload.find(b'"', len(_BYTES)) if payload.startswith(_BYTES) else -1
        if close > 0:
            return Frame("", a2b_base64(payload[len(_BYTES) : close]).translate(_BREAKS), end)
        event = as_text(as_json(loads(payload)).get("bytes")) if payload else ""
        return Frame("", a2b_base64(event).translate(_BREAKS), end)
    except ValueError:
        return Frame("", b"", end) if kind in {"", "event"} else _error(name, message, end)


def _error(kind: str, text: str, end: int) -> Frame:
    error = {"type": kind, "message": text, **({"lasting": True} if kind in _LASTING else {})}
    return Frame("error", dumps({"type": "error", "error": error}), end)


@lru_cache(maxsize=64)
def _headers(raw: bytes) -> tuple[str, str, str]:
    """Return a message's type, an error's type and its text; `""` for each that is missing."""
    found, at = dict[str, str](), 0
    while at < len(raw):
        at, name = _text(raw, at + 1, raw[at])
        kind = raw[at]
        at += 1
        if (size := _SIZES.get(kind)) is None:
            at, value = _text(raw, at + 2, int.from_bytes(raw[at : at + 2]))
            found[name] = value
        else:
            at += size
    error = found.get(":exception-type") or found.get(":error-code", "")
    return found.get(":message-type", ""), error, found.get(":error-message", "")


def _text(raw: bytes, at: int, size: int) -> tuple[int, str]:
    return at + size, raw[at : at + size].decode("utf-8", "replace")


class Alike:
    """Recognizes complete messages with an event that begins with certain bytes, undecoded."""

    def __init__(self, beginning: bytes) -> None:
        """Set `beginning`, the first bytes of the event's JSON; `b""`: no message matches."""
        whole = beginning[: len(beginning) // 3 * 3]  # its Base64 does not depend on later bytes
        self._mark = _BYTES + b2a_base64(whole, newline=False) if whole else b"\0"

    def end(self, raw: bytes | bytearray, start: int) -> int:
        """Return the offset after the last matching message of a row that begins at `start`."""
        while len(raw) - start >= _LEAST:
            size, heads, _ = _PRELUDE.unpack_from(raw, start)
            end = start + size
            if (
                end > len(raw)
                or size < _LEAST
                or not raw.startswith(self._mark, start + 12 + heads)
            ):
                break
            start = end
        return start

    def flows(self, chunk: bytes) -> bool:
        """Whether a chunk consists only of matching messages."""
        if len(chunk) >= _LEAST:  # usually it is a single message
            size, heads, _ = _PRELUDE.unpack_from(chunk)
            if size == len(chunk):
                return chunk.startswith(self._mark, 12 + heads)
        return self.end(chunk, 0) == len(chunk)

    def last(self, raw: bytes | bytearray) -> bytes:
        """Return the JSON of the last matching message; `b""`: there is none, or it is invalid."""
        start = raw.rfind(self._mark) + len(_BYTES)
        try:
            data = a2b_base64(raw[start : raw.find(b'"', start)])
        except ValueError:
            return b""
        return data if start >= len(_BYTES) else b""


def encode(name: str, data: bytes) -> bytes:
    """Return one event as a message. An event named `error` becomes an `exception`."""
    if name != "error":
        return _message("event", "chunk", _BYTES + b2a_base64(data, newline=False) + b'"}')
    error = as_json(as_json(loads(data)).get("error"))
    payload = dumps({"message": as_text(error.get("message"))})
    return _message("exception", as_text(error.get("type")), payload)


def reframed(events: bytes) -> bytes:
    """Return server-sent events as messages, without comments."""
    return b"".join([encode(f.name, f.data) for f in sse.frames(events) if not f.empty])


class Unframed:
    """Converts the bytes of messages into server-sent events as they arrive."""

    def __init__(self) -> None:
        self._raw = bytearray()

    def __call__(self, chunk: bytes) -> bytes:
        """Return the events that this chunk completes."""
        self._raw += chunk
        found = frames(self._raw)
        if found:
            del self._raw[: found[-1].end]
        return b"".join([sse.encode(f.name, f.data) for f in found if f.data])


@lru_cache(maxsize=16)
def _head(kind: str, name: str) -> bytes:
    headers = {
        f":{kind}-type": name,
        ":content-type": "application/json",
        ":message-type": kind,
    }
    return b"".join(
        struct.pack(">B", len(key)) + key.encode() + struct.pack(">BH", _STRING, len(value)) + value
        for key, value in ((key, text.encode()) for key, text in headers.items())
    )


def _message(kind: str, name: str, payload: bytes) -> bytes:
    head = _head(kind, name)
    lengths = struct.pack(">II", _LEAST + len(head) + len(payload), len(head))
    message = lengths + struct.pack(">I", crc32(lengths)) + head + payload
    return message + struct.pack(">I", crc32(message))
