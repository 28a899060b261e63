"""Where a gateway stands: in another application, before an upstream with TLS, behind a proxy."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support import gateways
from support.gateways import Raw, ask, request, serving, toml

from continuation.gateway import app

CA = Path(gateways.__file__).with_name("tls.pem")
"""A key, and the certificate for 127.0.0.1 that it has signed itself."""


@pytest.mark.parametrize(
    ("outer", "path"),
    [("", "/llm"), ("/outer", "/outer/llm"), ("/outer", "/llm"), ("/a b", "/a%20b/llm")],
)
def test_it_can_be_mounted_under_a_prefix(tmp_path: Path, outer: str, path: str) -> None:
    """As Starlette and FastAPI do it, behind a proxy that cuts the outer prefix off or does not."""
    with Raw() as upstream:
        config = tmp_path / "c.toml"
        config.write_text(toml(upstream.url))
        gateway = app(config)

        async def outside(scope: Any, receive: Any, send: Any) -> None:
            more = {"app_root_path": outer, "root_path": f"{outer}/llm"}
            await gateway({**scope, **more}, receive, send)

        async def ask_it(url: str) -> httpx2.Response:
            transport = httpx2.ASGITransport(outside)
            try:
                async with httpx2.AsyncClient(transport=transport) as client:
                    return await client.get(url)
            finally:
                await gateway.aclose()

        assert asyncio.run(ask_it(f"http://localhost{path}/openai/v1/a%2Fb?x=1")).text == "ok"
        assert upstream.seen[-1].startswith(b"GET /v1/a%2Fb?x=1 HTTP/1.1")


@pytest.fixture
def secure() -> Any:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CA)
    with Raw(tls=context) as upstream:
        yield upstream


@pytest.mark.parametrize("known", [True, False], ids=["CA known", "CA unknown"])
def test_certificates_are_checked(
    tmp_path: Path, secure: Raw, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    if known:
        monkeypatch.setenv("SSL_CERT_FILE", str(CA))
    with serving(tmp_path, secure.url) as served:
        told = ask(served.url, request("GET /anthropic/v1/x HTTP/1.1"))
    assert told.startswith(b"HTTP/1.1 200" if known else b"HTTP/1.1 502")
    assert known or b'"type": "api_error"' in told
    assert len(secure.seen) == known


def through(line: socket.socket, place: str) -> None:
    """Be a tunnel, until either side ends."""
    host, port = place.split(":")
    with socket.create_connection((host, int(port))) as other:
        line.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

        def copy() -> None:
            while data := other.recv(1 << 16):
                line.sendall(data)

        threading.Thread(target=copy, daemon=True).start()
        while data := line.recv(1 << 16):
            other.sendall(data)


def test_https_goes_through_the_proxy_of_the_environment(
    tmp_path: Path, secure: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = secure.url.removeprefix("https://")
    with Raw(lambda line: through(line, place)) as proxy:
        monkeypatch.setenv("SSL_CERT_FILE", str(CA))
        monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("//", "//me:secret@"))
        with serving(tmp_path, secure.url) as served:
            told = ask(served.url, request("GET /openai/v1/x HTTP/1.1"))
    assert told.startswith(b"HTTP/1.1 200")
    (asked,) = proxy.seen
    assert asked.startswith(f"CONNECT {place} HTTP/1.1".encode())
    assert b"\r\nProxy-Authorization: Basic bWU6c2VjcmV0\r\n" in asked
    assert b"me:secret" not in secure.seen[0]


def test_http_goes_through_the_proxy_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Raw() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with serving(tmp_path, "http://nowhere.invalid") as served:
            told = ask(served.url, request("GET /openai/v1/x HTTP/1.1"))
    assert told.startswith(b"HTTP/1.1 200")
    assert proxy.seen[0].startswith(b"GET http://nowhere.invalid/v1/x HTTP/1.1")
