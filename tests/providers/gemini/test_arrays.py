"""A stream as one JSON array (`streamGenerateContent` without `alt=sse`) flows like any other."""

from __future__ import annotations

import itertools
import json
import threading
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, cast

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.drive import JSON, Driven, combs, split
from support.drive_gemini import (
    ASK,
    ECHO,
    FAST,
    NEW,
    OPENED,
    SIGNATURE,
    Chunk,
    ask,
    call,
    chunk,
    parts,
    reasons,
    report,
    responses,
    said,
    sse,
    text,
)
from support.examples import pieces
from support.servers import Handler, Local

import continuation
from continuation.providers.gemini.message_builder import Elements
from continuation.providers.gemini.writer import GeminiWriter
from continuation.types import Outcome
from continuation.wire.blocks import Block

BEFORE = 'A captain wrote "his" log {by] lamp\\light, and then the quick brown fo'
FLOWING = [chunk(text(BEFORE)), chunk(text("x 文字 [,]"))]
WHOLE = [*FLOWING, chunk(text(" end."), reason="STOP")]
CUT = [chunk(text(BEFORE)), chunk(reason="MAX_TOKENS", said=1000)]
CUT_BODY = chunk(text(BEFORE), reason="MAX_TOKENS", said=1000)
REST = sse([chunk(text(ECHO)), chunk(text("x jumps."), reason="STOP")])
RESET = ConnectionError("reset")
AGAIN = sse([chunk(text(" Rest."), reason="STOP")])


def array(chunks: list[Chunk]) -> bytes:
    """Encode chunks as Google does: indented, a comma and a line break between them."""
    return b"[" + b",\r\n".join(json.dumps(c, indent=2).encode() for c in chunks) + b"\r\n]"


def asked(pieces: list[bytes], *later: bytes, broken: Exception | None = None) -> Driven:
    return ask([(200, JSON, pieces, broken), *later], broken=broken)


# --- bytes --------------------------------------------------------------------------------------


@pieces
def test_an_array_passes_or_is_gone_on_from_wherever_its_bytes_are_split(size: int) -> None:
    raw = array(WHOLE)
    for some in combs(raw, size):
        driven = asked(some)
        assert b"".join(driven.pieces) == raw
        assert report(driven).outcome is Outcome.COMPLETE
    for some in combs(array(CUT), size):
        driven = asked(some, REST)
        assert isinstance(json.loads(b"".join(driven.pieces)), list)
        assert (said(driven), reasons(driven)) == (BEFORE + "x jumps.", ["STOP"])


def test_each_element_flows_as_soon_as_its_last_brace_has_come() -> None:
    raw = array(WHOLE)
    driven = asked([raw[n : n + 1] for n in range(len(raw))])
    shown = [len(piece) for piece in driven.pieces if piece]
    assert shown[0] == raw.index(b",\r\n", raw.index(b'{\n  "candidates'))
    assert len(shown) == len(WHOLE)


@pytest.mark.parametrize("step", [7, pytest.param(2, marks=pytest.mark.slow)])
def test_an_array_may_break_off_at_any_byte(step: int) -> None:
    raw = array(WHOLE)
    seen = Counter[str]()
    for at in (*range(raw.index(b",\r\n"), len(raw), step), len(raw) - 1):
        driven = asked([raw[:at]], AGAIN, broken=ConnectionError("reset"))
        assert driven.error is None
        assert reasons(driven) == ["STOP"]
        seen[said(driven)] += 1
    assert list(seen) == [
        BEFORE + " Rest.",
        BEFORE + "x 文字 [,] Rest.",
        BEFORE + "x 文字 [,] end.",
    ]


def test_an_array_that_drops_for_good_ends_with_an_error_and_is_json() -> None:
    raw = array(FLOWING).removesuffix(b"\r\n]")
    driven = ask([(200, JSON, [raw], RESET), *[(400, JSON, [b"{}"], None)] * 4], broken=RESET)
    *chunks, error = json.loads(b"".join(driven.pieces))
    texts = [c["candidates"][0]["content"]["parts"][0]["text"] for c in chunks]
    assert "".join(texts) == BEFORE + "x 文字 [,]"
    assert "could not be resumed" in error["error"]["message"]


def test_what_breaks_behind_the_last_element_leaves_whole_json() -> None:
    raw = array(WHOLE).removesuffix(b"\r\n]")
    driven = asked([raw], broken=ConnectionError("reset"))
    assert (said(driven), reasons(driven)) == (BEFORE + "x 文字 [,] end.", ["STOP"])
    assert len(driven.requests) == 1


def test_an_array_that_breaks_off_before_its_first_element_is_an_error() -> None:
    error = ConnectionError("reset")
    driven = asked([array(WHOLE)[:40]], broken=error)
    assert driven.error is error


@pytest.mark.parametrize("error", [False, True])
def test_an_array_that_ends_in_an_error_or_without_a_reason_is_a_dropped_stream(
    error: bool,
) -> None:
    told: Chunk = {"error": {"code": 503, "message": "no", "status": "UNAVAILABLE"}}
    driven = asked([array([*FLOWING, told] if error else FLOWING)], AGAIN)
    assert (said(driven), reasons(driven)) == (BEFORE + "x 文字 [,] Rest.", ["STOP"])
    assert b"UNAVAILABLE" not in b"".join(driven.pieces)


@pytest.mark.parametrize("raw", [b"[]", b"[\r\n]", b"[null]", b"null", b'{"candidates": []}', b""])
def test_what_holds_no_response_passes_as_it_came(raw: bytes) -> None:
    assert b"".join(asked([raw]).pieces) == raw


def test_what_was_not_shown_is_replaced() -> None:
    thought = [chunk(text("Hm", thought=True)), chunk(reason="MAX_TOKENS", said=1000)]
    driven = asked([array(thought)], sse([chunk(text("All "), text("of it."), reason="STOP")]))
    assert (said(driven), reasons(driven)) == ("All of it.", ["STOP"])
    assert [part for part in parts(driven) if part.get("thought")] == []


def test_a_call_waits_and_is_asked_for_again() -> None:
    half = [chunk(text("I write. ")), chunk(OPENED, reason="MAX_TOKENS", said=1000)]
    whole = chunk(text("I write. "), call(path="a.txt"), reason="STOP")
    driven = asked([array(half)], sse([whole]))
    assert said(driven) == "I write. "
    assert [part for part in parts(driven) if "functionCall" in part] == [call(path="a.txt")]


def test_what_stood_beside_a_shown_element_is_not_told_twice() -> None:
    cited = {"citationSources": [{"startIndex": 0, "endIndex": 9}]}
    first = [chunk(text(BEFORE), citationMetadata=cited), *CUT[1:]]
    driven = asked([array(first)], REST)
    told = [c for r in responses(driven) for c in r["candidates"] if "citationMetadata" in c]
    assert len(told) == 1


# --- the parts of it ----------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)
RESPONSES = st.lists(st.dictionaries(st.text(), VALUES), max_size=5)


@given(RESPONSES, st.booleans(), st.lists(st.integers(0, 400), max_size=6))
def test_elements_are_found_in_any_json_and_at_any_split(
    values: list[dict[str, Any]], indented: bool, cuts: list[int]
) -> None:
    raw = json.dumps(values, indent=2 if indented else None, ensure_ascii=indented).encode()
    replay = bytearray()
    elements = Elements(replay)
    found = list[Any]()
    for piece in split(raw, cuts):
        replay += piece
        found += [json.loads(frame.data) for frame in elements.more()]
    assert found == values
    assert elements.closed


@pytest.mark.parametrize("shown", [0, 2])
def test_the_array_can_be_closed_where_it_stands_at_any_moment(shown: int) -> None:
    """What the shell sends should code of ours fail: it stays JSON."""
    writer = GeminiWriter(lambda: True)
    end: Chunk = {"stop_reason": "STOP"}
    signed = Block({"type": "text", "part": text("x", thoughtSignature=SIGNATURE)})
    writer.resume({"responseId": "r"}, [], shown)
    out = b"[{},\r\n{}" if shown else b""
    closing = writer.closing([], end)
    assert isinstance(json.loads(out + closing), list)
    for block in (Block({"type": "text", "text": ""}), signed):
        out += writer.start(0, block)
        closing = writer.closing([], end)  # kept until the next block begins
        for piece in ("", "Hi.", " So."):
            out += writer.delta(0, block, {"type": "text_delta", "text": piece}) if piece else b""
            assert isinstance(json.loads(out + closing), list)
    assert isinstance(json.loads(out + writer.end([], end, {})), list)


# --- over a socket ------------------------------------------------------------------------------


class Google(Local):
    """Answers with the array, its next element only when the last one was read; then with SSE."""

    def __init__(self) -> None:
        super().__init__(_Google)
        self.read = threading.Semaphore(1)
        self.first: list[Chunk] = []
        self.packed = False
        self.deaf = False
        """It knows of no `alt=sse`."""

    def asked_for(self, verb: str = "streamGenerateContent") -> str:
        return f"{self.url}/v1beta/models/{NEW}:{verb}"


class _Google(Handler):
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        google = cast("Google", self.owner)
        self.sent()
        if ":generateContent" in self.path:
            self._say("application/json", json.dumps(CUT_BODY).encode())
        elif "alt=sse" in self.path and not google.deaf:
            self._say("text/event-stream", REST)
        elif google.packed:
            whole = zlib.compress(array(google.first), wbits=31)
            self._say("application/json", whole, {"content-encoding": "gzip"})
        else:
            self._say("application/json; charset=UTF-8", b"", {"transfer-encoding": "chunked"})
            raw = array(google.first)
            ends = [n for n in range(len(raw)) if raw.startswith(b",\r\n", n)]
            for piece in split(raw, ends):
                google.read.acquire(timeout=60)
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")

    do_POST = _answer  # noqa: N815 - the base's name

    def _say(self, kind: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        length = {"content-length": str(len(body))} if body else {}
        self.send_response_only(200)
        for name, value in {"content-type": kind, **length, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def google() -> Iterator[Google]:
    with Google() as server:
        yield server


@pytest.mark.parametrize("first", [WHOLE, CUT])
def test_over_a_socket_each_element_is_there_before_the_next_is_sent(
    google: Google, first: list[Chunk]
) -> None:
    google.first = first
    with (
        continuation.http_client(config=FAST) as client,
        client.stream("POST", google.asked_for(), json=ASK) as answer,
    ):
        pieces = answer.iter_raw()
        begun = next(pieces)
        assert json.loads(begun + b"]") == first[:1]
        for _ in first:
            google.read.release()
        whole = json.loads(begun + b"".join(pieces))
    told = [part["text"] for r in whole for part in r["candidates"][0]["content"]["parts"]]
    expected = BEFORE + ("x 文字 [,] end." if first is WHOLE else "x jumps.")
    assert "".join(told) == expected


def test_a_packed_array_of_known_length_is_healed_as_well(google: Google) -> None:
    google.first, google.packed = CUT, True
    with continuation.http_client(config=FAST) as client:
        answer: httpx2.Response = client.post(google.asked_for(), json=ASK)
    told = [r["candidates"][0]["content"]["parts"] for r in answer.json()]
    assert "".join(part["text"] for part in itertools.chain(*told)) == BEFORE + "x jumps."


def test_a_later_attempt_as_an_array_does_not_make_the_callers_body_one(
    google: Google,
) -> None:
    google.first, google.deaf = [chunk(text("All ")), chunk(text("of it."), reason="STOP")], True
    google.read = threading.Semaphore(9)
    with continuation.http_client(config=FAST) as client:
        answer = client.post(google.asked_for("generateContent"), json=ASK)
    assert answer.json()["candidates"][0]["content"]["parts"] == [{"text": "All of it."}]
