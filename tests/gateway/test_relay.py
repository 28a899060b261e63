"""What no dialect knows passes as it came, in both directions."""

from __future__ import annotations

import gzip
import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.gateways import OK, Raw, ask, request, serving, whole


@pytest.fixture(scope="module")
def upstream() -> Iterator[Raw]:
    with Raw() as raw:
        yield raw


@pytest.fixture(scope="module")
def url(upstream: Raw, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("gateway"), upstream.url) as served:
        yield served.url


def parsed(raw: bytes) -> tuple[str, list[str], bytes]:
    head, _, body = raw.partition(b"\r\n\r\n")
    line, *headers = head.decode("latin-1").split("\r\n")
    return line, headers, body


ZIPPED = gzip.compress(b"what nobody here looks into" * 40)
CHUNKED = b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"


@pytest.mark.parametrize("method", ["GET", "DELETE", "PATCH", "OPTIONS", "PROPFIND"])
@pytest.mark.parametrize(
    "target",
    [
        "/v1/models",
        "/v1/files/a%2Fb%20c?x=1&x=%7B%22y%22%7D&&z",
        "//twice//slashed/",
        "/v1/x;params=1:colon@at,'(!*)|^`{}",
    ],
)
def test_method_and_path_are_the_callers(url: str, upstream: Raw, method: str, target: str) -> None:
    assert parsed(ask(url, request(f"{method} /openai{target} HTTP/1.1")))[2] == b"ok"
    assert parsed(upstream.seen[-1])[0] == f"{method} {target} HTTP/1.1"


def test_headers_keep_order_and_repetitions_and_lose_what_is_of_one_connection(
    url: str, upstream: Raw
) -> None:
    kept = ["x-b: 1", "authorization: Bearer k", "x-a: 2", "x-b: 3", "cookie: a=b", "te-x: y"]
    lost = ["connection: x-gone, keep-alive", "x-gone: 1", "te: trailers", "x-continuation: off"]
    lost += ["proxy-authorization: Basic x", "x-continuation-token: t", "keep-alive: 5"]
    ask(url, request("GET /openai/v1/x HTTP/1.1", *kept[:3], *lost, *kept[3:]))
    _, headers, _ = parsed(upstream.seen[-1])
    assert headers == [f"host: {upstream.url.removeprefix('http://')}", *kept]


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (["content-length: 7", "content-type: text/x-odd"], b'{"a":\n1'),
        ([f"content-length: {len(ZIPPED)}", "content-encoding: gzip"], ZIPPED),
        (["content-length: 3000000"], b"\0\1\2" * 1_000_000),
    ],
    ids=["odd", "gzip", "large"],
)
def test_a_body_passes_as_it_is(url: str, upstream: Raw, headers: list[str], body: bytes) -> None:
    ask(url, request("POST /openai/v1/upload HTTP/1.1", *headers, body=body))
    _, seen, got = parsed(upstream.seen[-1])
    assert got == body
    assert [h.lower() for h in seen[1:]] == headers


def test_a_chunked_body_stays_chunked(url: str, upstream: Raw) -> None:
    chunked = "transfer-encoding: chunked"
    ask(url, request("POST /openai/v1/upload HTTP/1.1", chunked, body=CHUNKED))
    _, headers, got = parsed(upstream.seen[-1])
    assert headers[-1].lower() == chunked
    assert b"".join(got.split(b"\r\n")[1::2]) == b"hello world"


def test_who_waits_for_100_continue_is_told_to_go_on(url: str, upstream: Raw) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as line:
        head = ("expect: 100-continue", "content-length: 5")
        line.sendall(request("POST /openai/v1/upload HTTP/1.1", *head))
        assert line.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        line.sendall(b"hello")
        assert line.recv(1000).endswith(b"ok")
    _, headers, got = parsed(upstream.seen[-1])
    assert got == b"hello"
    assert not any("expect" in header for header in headers)


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (
            b"HTTP/1.1 429 Slow\r\nRequest-Id: r\r\nretry-after: 7\r\nset-cookie: a=b\r\n"
            b"Set-Cookie: c=d\r\nanthropic-ratelimit-x: 0\r\nserver: s\r\ncontent-length: 4\r\n"
            b"keep-alive: 5\r\n\r\nlate",
            "HTTP/1.1 429 Too Many Requests\r\nrequest-id: r\r\nretry-after: 7\r\n"
            "set-cookie: a=b\r\nset-cookie: c=d\r\nanthropic-ratelimit-x: 0\r\nserver: s\r\n"
            "content-length: 4\r\n\r\nlate",
        ),
        (
            b"HTTP/1.1 307 T\r\nlocation: http://127.0.0.1:1/x\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/x\r\n"
            "content-length: 0\r\n\r\n",
        ),
        (
            b"HTTP/1.1 304 N\r\netag: x\r\ncontent-length: 9\r\n\r\n",
            "HTTP/1.1 304 Not Modified\r\netag: x\r\n\r\n",
        ),
        (b"HTTP/1.1 204 N\r\nx-y: z\r\n\r\n", "HTTP/1.1 204 No Content\r\nx-y: z\r\n\r\n"),
    ],
    ids=["headers", "redirect", "unchanged", "empty"],
)
def test_an_answer_passes_with_all_its_headers(tmp_path: Path, answer: bytes, shown: str) -> None:
    with Raw(answer) as upstream, serving(tmp_path, upstream.url) as served:
        assert ask(served.url, request("GET /openai/v1/x HTTP/1.1")).decode() == shown
        assert len(upstream.seen) == 1, "a redirect was followed"


@pytest.mark.parametrize("path", ["/openai/v1/x", "/livez"])
def test_http_1_0_gets_no_chunks_but_the_end_of_the_connection(tmp_path: Path, path: str) -> None:
    """Who reads until the end would take the lengths of chunks for text."""
    answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + CHUNKED
    with Raw(answer) as upstream, serving(tmp_path, upstream.url) as served:
        port = int(served.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
            line.sendall(request(f"GET {path} HTTP/1.0"))
            _, headers, body = parsed(line.makefile("rb").read())
    assert headers[-1] == "connection: close"
    assert not any("transfer-encoding" in header for header in headers)
    assert body == (b'{"ok":true}' if path == "/livez" else b"hello world")


def test_a_compressed_answer_stays_compressed(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(ZIPPED)
    with Raw(head + ZIPPED) as upstream, serving(tmp_path, upstream.url) as served:
        assert parsed(ask(served.url, request("GET /openai/v1/x HTTP/1.1")))[2] == ZIPPED


@pytest.mark.slow
def test_fifty_megabytes_pass_both_ways(tmp_path: Path) -> None:
    body = bytes(range(256)) * 204_800
    length = f"content-length: {len(body)}"
    answer = f"HTTP/1.1 200 OK\r\n{length}\r\n\r\n".encode() + body
    with Raw(answer) as upstream, serving(tmp_path, upstream.url) as served:
        raw = ask(served.url, request("POST /openai/v1/files HTTP/1.1", length, body=body))
        assert parsed(raw)[2] == body
        assert parsed(upstream.seen[0])[2] == body


# --- what no server should be able to read in two ways ---------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        request(
            "POST /openai/v1/x HTTP/1.1", "content-length: 5", "content-length: 4", body=b"hello"
        ),
        request(
            "POST /openai/v1/x HTTP/1.1",
            "content-length: 5",
            "transfer-encoding: chunked",
            body=b"0\r\n\r\nGET /gemini/ HTTP/1.1\r\n\r\n",
        ),
        b"GET /openai/v1/x HTTP/1.1\rhost: 127.0.0.1\r\n\r\n",
        b"GET /openai/v1/x HTTP/1.1\r\nhost: 127.0.0.1\r\nx-a: 1\rx-b: 2\r\n\r\n",
        request("GET /openai/v1/x HTTP/1.1", "x-a : 1"),
        request("POST /openai/v1/x HTTP/1.1", "transfer-encoding: xchunked", body=CHUNKED),
        request("POST /openai/v1/x HTTP/1.1", "transfer-encoding: gzip, chunked", body=CHUNKED),
        request("GET /openai/v1/x HTTP/1.1", "host: localhost"),
        request("GET /openai/v1/x HTTP/1.1", "origin: http://evil", "origin: http://127.0.0.1"),
        request(f"GET /openai/{'x' * 70_000} HTTP/1.1"),
        request("GET /openai/../gemini/x HTTP/1.1"),
        request("GET /openai/%2e%2e/gemini/x HTTP/1.1"),
        request("GET /openai/..%2Fx HTTP/1.1"),
        request("GET /openai/a%5c..%5cx HTTP/1.1"),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(url: str, upstream: Raw, raw: bytes) -> None:
    before = len(upstream.seen)
    line, _, told = parsed(ask(url, raw))
    assert line.startswith("HTTP/1.1 400 ")
    assert json.loads(told)["error"]["type"] == "invalid_request_error"
    assert len(upstream.seen) == before


def test_trailers_are_no_headers(url: str, upstream: Raw) -> None:
    body = CHUNKED[:-2] + b"authorization: Bearer other\r\n\r\n"
    ask(url, request("POST /openai/v1/x HTTP/1.1", "transfer-encoding: chunked", body=body))
    assert b"other" not in upstream.seen[-1]


@pytest.mark.parametrize(
    "line",
    [
        "GET http://evil.example/openai/v1/x HTTP/1.1",
        "GET http://169.254.169.254/gemini/v1/x HTTP/1.1",
    ],
)
def test_an_absolute_target_goes_nowhere_else(url: str, upstream: Raw, line: str) -> None:
    ask(url, request(line))
    assert parsed(upstream.seen[-1])[0] == "GET /v1/x HTTP/1.1"


@pytest.mark.parametrize("path", ["/%6fpenai/v1/x", "/openai%2Fv1/x", "/OPENAI/x", "//x", "/x"])
def test_only_an_upstreams_own_name_leads_to_it(url: str, upstream: Raw, path: str) -> None:
    before = len(upstream.seen)
    assert ask(url, request(f"GET {path} HTTP/1.1")).startswith(b"HTTP/1.1 404 ")
    assert len(upstream.seen) == before


def test_the_raw_upstream_is_what_these_tests_take_it_for(upstream: Raw) -> None:
    assert ask(upstream.url, request("GET /x HTTP/1.1")) == OK


# --- what all servers read alike ------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/openai/x", "/anthropic/v1/messages"])
def test_bytes_of_headers_pass_as_they_are(path: str, tmp_path: Path) -> None:
    """Latin-1 is legal there, and so is white space around a value."""
    sent = b"x-a: caf\xe9 \xff\r\nx-api-key: k\xe9y\r\nx-b: \xc3\xa9"
    told = b"HTTP/1.1 200 OK\r\nx-r:  caf\xe9\t\r\nx-s: \xc3\xa9\r\ncontent-length: 2\r\n\r\nok"
    body = b'{"model":"m","max_tokens":9,"messages":[]}'
    head = b"POST %b HTTP/1.1\r\nhost: \t 127.0.0.1 \r\ncontent-length:  %d \t\r\n%b\r\n\r\n"
    with Raw(told) as upstream, serving(tmp_path, upstream.url) as served:
        raw = ask(served.url, head % (path.encode(), len(body), sent) + body)
        assert raw.startswith(b"HTTP/1.1 200 ")
        assert b"\r\nx-r: caf\xe9\r\nx-s: \xc3\xa9\r\n" in raw
        (seen,) = upstream.seen
        for line in sent.split(b"\r\n"):
            assert b"\r\n%b\r\n" % line in seen
        assert seen.endswith(body)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("GET  /openai/x HTTP/1.1", 400),
        ("GET /openai/x  HTTP/1.1", 400),
        ("GET   /openai/x   HTTP/1.1", 400),
        ("GET /openai/x HTTP/1.1 ", 400),
        ("GET\t/openai/x HTTP/1.1", 400),
        ("GET /openai/a b HTTP/1.1", 400),
        ("TRACE /openai/x HTTP/1.1", 405),
        ("TRACE / HTTP/1.1", 405),
        ("TRACE /livez HTTP/1.1", 405),
        ("CONNECT /openai/x HTTP/1.1", 405),
        ("CONNECT 127.0.0.1:1 HTTP/1.1", 400),
        ("OPTIONS /openai/x HTTP/1.1", 200),
        ("PATCH /openai/x HTTP/1.1", 200),
        ("GET http://127.0.0.1/openai/x HTTP/1.1", 200),
    ],
)
@pytest.mark.parametrize("way", ["first", "second", "in pieces", "at once"])
def test_a_request_line_is_one_method_path_and_version(
    line: str, wanted: int, way: str, tmp_path: Path
) -> None:
    if way == "in pieces" and not re.fullmatch(r"\w+ +\S+ +HTTP/1.1 *", line):
        pytest.skip("it is refused after the first piece")
    before, raw = request("GET /livez HTTP/1.1"), request(line, "connection: close")
    with Raw() as upstream, serving(tmp_path, upstream.url) as served:
        host, _, port = served.url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=20) as client:
            if way == "second":
                client.sendall(before)
                assert whole(client).startswith(b"HTTP/1.1 200")
            for piece in raw.partition(b"HTTP/") if way == "in pieces" else [raw]:
                client.sendall(before + piece if way == "at once" else piece)
                time.sleep(0.01 * (way == "in pieces"))
            answer = b""
            while piece := client.recv(1 << 16):
                answer += piece
        assert b"HTTP/1.1 %d " % wanted in answer
        assert len(upstream.seen) == (wanted == 200)
