"""A caller of the gateway cannot stop the others, or spend more than its operator allows."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import select
import socket
import threading
import zlib
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.gateways import (
    KEYS,
    MESSAGES,
    URLS,
    Raw,
    Served,
    ask,
    request,
    request_body,
    serving,
    until,
    whole,
)
from support.sdks.formats import FORMATS, MAKES
from support.sdks.formats import request as ask_for
from support.sdks.turn import cut, end, quietly

import continuation
from continuation.attach.shell import Shell
from continuation.config import parse
from continuation.gateway import caller as _caller
from continuation.gateway import metrics as _metrics
from continuation.gateway import server as _server
from continuation.gateway import turn as _turn
from continuation.gateway import turns as _turns
from continuation.gateway import verbatim as _verbatim
from continuation.gateway.metrics import Metrics
from continuation.gateway.turns import Turns
from continuation.policy import CLIENT_KEYS, Policy, lifted
from continuation.policy import KEYS as POLICY_KEYS
from continuation.providers import request as _request
from continuation.reports.report import CallReport, Finished, Report
from continuation.simulator import Reply, Simulator, Text
from continuation.types import Outcome

PLACE = f"/anthropic{URLS['anthropic-messages']}"


def status(raw: bytes) -> int:
    return int(raw.split(b" ", 2)[1])


def message(raw: bytes) -> str:
    return str(json.loads(raw.partition(b"\r\n\r\n")[2])["error"]["message"])


def post(path: str, body: bytes, *headers: str) -> bytes:
    """Return a request with a JSON body as it goes over the wire."""
    length = f"content-length: {len(body)}"
    kind = "content-type: application/json\r\nx-api-key: k"
    return request(f"POST {path} HTTP/1.1", kind, length, *headers, body=body)


# --- what a caller may set ------------------------------------------------------------------------

OPERATED = """
[defaults]
enabled = {enabled}
max_recoveries = 1
max_turn_output_tokens = 50_000
usage = "billed"
[models."gpt-*"]
max_attempts = 2
[gateway]
overrides = "{overrides}"
"""


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("max_recoveries=2", "max_recoveries"),
        ("max_turn_output_tokens=50001", "max_turn_output_tokens"),
        ("max_turn_seconds=86400", "max_turn_seconds"),
        ("max_attempts=50", "max_attempts"),
        ("max_retries=10", "max_retries"),
        ("max_wait_seconds=3600", "max_wait_seconds"),
        ("seam_buffer_chars=100000", "seam_buffer_chars"),
        ("initial_limit=ceiling", "initial_limit"),
        ("less_thinking=true", "less_thinking"),
        ("leave_limits_below=0", "leave_limits_below"),
        ("backoff_seconds=0", "backoff_seconds"),
        ("repair=before_send", "repair"),
        ("usage=turn", "usage"),
        ("tracing=off", "tracing"),
        ("quiet_mode=true", "log_repairs"),
        ("prefill=true, max_drop_recoveries=10", "max_drop_recoveries"),
    ],
)
def test_a_header_that_lifts_a_limit_is_refused(
    header: str, key: str, sim: Simulator, tmp_path: Path
) -> None:
    text = OPERATED.format(enabled="true", overrides="lower")
    with serving(tmp_path, sim.url, text) as served:
        raw = ask(
            served.url, post(PLACE, json.dumps(MESSAGES).encode(), f"x-continuation: {header}")
        )
        assert status(raw) == 400
        assert f"x-continuation: {key} = " in message(raw)
        assert 'set overrides = "any" under [gateway]' in message(raw)
    assert sim.posts == []


@pytest.mark.parametrize(
    ("header", "overrides", "enabled"),
    [
        ("off", "lower", "true"),
        ("on", "lower", "true"),
        ("max_recoveries=0, max_attempts=1, max_turn_seconds=5", "lower", "true"),
        ("leave_limits_below=1000, escalate=false, usage=billed", "lower", "true"),
        ("prefill=false, on_failure=truncated", "lower", "true"),
        ("max_recoveries=9, on_failure=truncated", "any", "false"),
        ("on", "any", "false"),
    ],
)
def test_a_header_that_lifts_nothing_holds(
    header: str, overrides: str, enabled: str, sim: Simulator, tmp_path: Path
) -> None:
    with serving(
        tmp_path, sim.url, OPERATED.format(enabled=enabled, overrides=overrides)
    ) as served:
        sim.script([end("Whole.")])
        raw = ask(
            served.url, post(PLACE, json.dumps(MESSAGES).encode(), f"x-continuation: {header}")
        )
        assert status(raw) == 200


@pytest.mark.parametrize(
    ("path", "body", "header"),
    [
        (PLACE, MESSAGES, "on"),
        (PLACE, MESSAGES, "enabled=true"),
        ("/openai/v1/responses", {"model": "gpt-5.4", "input": "go"}, "max_attempts=3"),
        ("/gemini/v1beta/models/gpt-9:generateContent", {"contents": []}, "max_attempts=3"),
    ],
)
def test_the_limits_are_those_of_the_model(
    path: str, body: dict[str, Any], header: str, sim: Simulator, tmp_path: Path
) -> None:
    text = OPERATED.format(enabled="false", overrides="lower")
    with serving(tmp_path, sim.url, text) as served:
        raw = ask(served.url, post(path, json.dumps(body).encode(), f"x-continuation: {header}"))
        assert status(raw) == 400
    assert sim.posts == []


FREE = {
    *("clamp", "stream_tool_calls", "stream_thinking", "complete_tools", "complete_seams"),
    *("on_failure", "on_dead", "prefill", "recovery_prompt", "unanswered_tool_calls"),
    *("auto_resume", "resume_text", "stream_bodies"),
}
"""Keys that say how an answer is treated: a caller may set them as it likes."""
MOST = {
    **dict.fromkeys(("enabled", "escalate", "remember_limit", "verify_stop_reason"), "true"),
    **dict.fromkeys(("models_endpoint", "less_thinking", "resend_failed"), "true"),
    "stop_repetition": "true",
    "paused": "resume",
    "refused": "fallback",
    "stall": "learned",
    "unkept_promise": "ask",
    "max_recoveries": "10",
    "max_drop_recoveries": "10",
    "max_attempts": "50",
    "max_retries": "10",
    "max_turn_seconds": "86400",
    "max_turn_output_tokens": "100000000",
    "leave_limits_below": "0",
    "model_max_output_tokens": "0",
    "initial_limit": "ceiling",
    "truncated_tool_call": "complete",
    "truncated_document": "complete",
    "forced_tool_choice": "heal",
    "usage": "turn",
    "seam_buffer_chars": "100000",
    "backoff_seconds": "0",
    "max_wait_seconds": "3600",
    "tracing": "on",
    "repair": "before_send",
    "log_repairs": "false",
}
"""For each other key the value that allows most."""
LEAST: dict[str, Any] = {
    **dict.fromkeys(("enabled", "escalate", "remember_limit", "verify_stop_reason"), False),
    **dict.fromkeys(("models_endpoint", "less_thinking", "resend_failed"), False),
    "stop_repetition": False,
    "paused": "return",
    "refused": "report",
    "stall": "off",
    "unkept_promise": "off",
    **dict.fromkeys(("max_recoveries", "max_drop_recoveries", "max_retries"), 0),
    **dict.fromkeys(("max_attempts", "max_turn_seconds", "max_turn_output_tokens"), 1),
    "leave_limits_below": 1_000_000,
    "model_max_output_tokens": 1,
    "usage": "billed",
    "seam_buffer_chars": 1,
    "backoff_seconds": 60.0,
    "max_wait_seconds": 0.0,
    "repair": "off",
    "tracing": "off",
}
"""For each of them the value that allows least, if that is not the default."""


@pytest.mark.parametrize("key", sorted({*POLICY_KEYS} - CLIENT_KEYS))
def test_every_key_either_lifts_no_limit_or_is_checked(key: str) -> None:
    """A new key must be put into one of the two tables here."""
    assert (key in FREE) != (key in MOST)
    if key in MOST:
        asked = parse(f"{key}={MOST[key]}")
        least = Policy(**LEAST)
        assert lifted(least, asked) == key
        assert lifted(Policy(**asked), {key: getattr(least, key)}) in {"", "tracing"}


# --- how much a request may hold ------------------------------------------------------------------

BODIES: dict[str, tuple[str, bytes]] = {
    "anthropic": (PLACE, b'{"model":"m","max_tokens":9,"stream":%s,"messages":[%s]}'),
    "openai-chat": ("/openai/v1/chat/completions", b'{"model":"m","stream":%s,"messages":[%s]}'),
    "openai-responses": ("/openai/v1/responses", b'{"model":"m","stream":%s,"input":[%s]}'),
    "gemini": (
        "/gemini/v1beta/models/m:streamGenerateContent?alt=sse",
        b'{"stream":%s,"contents":[%s]}',
    ),
}


@pytest.mark.parametrize("form", BODIES)
def test_a_body_of_too_many_values_is_relayed_as_it_came(
    form: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, shape = BODIES[form]
    body = shape % (b"true", b",".join([b"0"] * 2_000))
    with (
        Raw() as upstream,
        serving(tmp_path, upstream.url, "[gateway]\nmax_json_values = 1000\n") as served,
    ):
        raw = ask(served.url, post(path, body))
        assert raw.startswith(b"HTTP/1.1 200")
        assert raw.endswith(b"\r\n\r\nok")
        (seen,) = upstream.seen
        assert seen.endswith(body), "the bytes are the caller's own"
        assert served.gateway.room.held == 0
    assert "it has more than 1000 JSON values (max_json_values)" in caplog.text


def test_a_large_body_is_counted_and_parsed_in_another_thread(
    sim: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop that serves all others does neither, nor does it write the request anew."""
    seen = dict[str, set[str]]()

    def noting(name: str, module: Any) -> None:
        real = getattr(module, name)

        def noted(*arguments: Any) -> Any:
            if len(arguments[0]) > 1 << 20:
                seen.setdefault(name, set()).add(threading.current_thread().name)
            return real(*arguments)

        monkeypatch.setattr(module, name, noted)

    noting("count_values", _turn)
    noting("loads", _request)
    noting("keep_bytes", _verbatim)
    said = {"role": "user", "content": "word " * 300_000}
    body = {**MESSAGES, "messages": [said]}
    with serving(tmp_path, sim.url, "[defaults]\nremember_limit = false\n") as served:
        sim.script([cut("One, "), end("One, two.")])
        assert status(ask(served.url, post(PLACE, json.dumps(body).encode()))) == 200
    assert len(sim.posts) == 2
    assert {*seen} == {"count_values", "loads", "keep_bytes"}
    for name, threads in seen.items():
        assert all(thread.startswith("gateway-large") for thread in threads), name


def test_all_bodies_together_are_bounded(sim: Simulator, tmp_path: Path) -> None:
    """Bodies that are half there count too; what has left counts no more."""
    with serving(tmp_path, sim.url, "[gateway]\nmax_held_bytes = 1_048_576\n") as served:
        body = json.dumps({**MESSAGES, "x": "y" * 200_000}).encode()
        large = json.dumps({**MESSAGES, "x": "y" * 900_000}).encode()
        with half_sent(served, large, left=1):
            until(lambda: served.gateway.room.held > 900_000)
            raw = ask(served.url, post(PLACE, body))
            assert status(raw) == 503
            assert "max_held_bytes" in message(raw)
            assert b"\r\nretry-after: 1\r\n" in raw
        until(lambda: served.gateway.room.held == 0)
        sim.script([end("Whole.")])
        assert status(ask(served.url, post(PLACE, body))) == 200
        values = json.dumps({**MESSAGES, "x": [0] * 20_000}).encode()
        assert status(ask(served.url, post(PLACE, values))) == 503, "decoded, they take 1.3 MB"
        assert served.gateway.room.held == 0


def half_sent(served: Served, body: bytes, *, left: int) -> socket.socket:
    """Send a request without the last bytes of its body."""
    line = connected(served)
    line.sendall(post(PLACE, body)[:-left])
    return line


def connected(served: Served) -> socket.socket:
    host, _, port = served.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=20)


# --- who waits ------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (_caller, _server):
        monkeypatch.setattr(module, "GRACE", 0.05)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("path", [PLACE, "/anthropic/v1/files"])
def test_half_sent_bodies_take_no_place_and_are_few(
    path: str, sim: Simulator, tmp_path: Path
) -> None:
    text = "[gateway]\nmax_streams = 1\nmax_waiting = 3\n"
    with serving(tmp_path, sim.url, text) as served, contextlib.ExitStack() as lines:
        body = json.dumps(MESSAGES).encode()
        head = post(path, body)[:-1]
        for _ in range(3):
            lines.enter_context(connected(served)).sendall(head)
        until(lambda: served.gateway.room.waiting == {"127.0.0.1": 3})
        assert served.gateway.streams == 0
        raw = ask(served.url, head)
        assert status(raw) == 503
        assert "max_waiting" in message(raw)
        for _ in range(5):  # whole requests are served all the while
            sim.script([end("Whole.")])
            assert status(ask(served.url, post(PLACE, body))) == 200
        lines.close()
        until(lambda: not served.gateway.room.waiting)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "first", [b"", b"POST / HTTP/1.1\r\nhost: ", request("GET /livez HTTP/1.1")]
)
def test_connections_without_a_request_are_few(
    first: bytes, sim: Simulator, tmp_path: Path
) -> None:
    with serving(tmp_path, sim.url, "[gateway]\nmax_waiting = 3\n") as served:
        with contextlib.ExitStack() as lines:
            opened = [lines.enter_context(connected(served)) for _ in range(6)]
            for line in opened:
                line.sendall(first)
                if first.endswith(b"\r\n\r\n"):
                    whole(line)
            closed = 0
            while closed < 3:
                ready, _, _ = select.select(opened, [], [], 20)
                assert ready
                for line in ready:
                    answer = line.recv(1 << 16)
                    assert answer.startswith(b"HTTP/1.1 503") == first.startswith(b"POST")
                    opened.remove(line)
                    closed += 1
            assert status(ask(served.url, request("GET /livez HTTP/1.1"))) == 200
            assert served.gateway.room.waiting == {"127.0.0.1": 3}
        until(lambda: not served.gateway.room.waiting)


def test_a_body_that_drips_has_a_deadline(sim: Simulator, tmp_path: Path) -> None:
    body = json.dumps(MESSAGES).encode()
    with (
        serving(tmp_path, sim.url, "[gateway]\nbody_seconds = 0.3\n") as served,
        half_sent(served, body, left=100) as line,
    ):
        answer = b""
        while not answer:
            with contextlib.suppress(OSError):
                line.sendall(b" ")
            if select.select([line], [], [], 0.01)[0]:
                answer = line.recv(1 << 16)
    assert answer.startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("size", [0, 3_000_000])
@pytest.mark.parametrize("refused", ["401", "403", "404", "503"])
def test_a_connection_is_closed_and_the_answer_arrives(
    size: int, refused: str, sim: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also to who is still sending its body, which is read and dropped."""
    monkeypatch.setenv("LIMITS_TEST_TOKEN", "secret")
    token = "x-continuation-token: " + ("wrong" if refused == "401" else "secret")
    origin = "origin: http://evil.example" if refused == "403" else "x-a: b"
    path = "/nowhere/x" if refused == "404" else PLACE
    with serving(tmp_path, sim.url, '[gateway]\ntoken_env = "LIMITS_TEST_TOKEN"\n') as served:
        if refused == "503":
            served.gateway.room.streams = 2_000
        with connected(served) as line:
            line.sendall(post(path, b"x" * size, token, origin))
            answer = b""
            while piece := line.recv(1 << 16):
                answer += piece
                if refused == "404" and not size:  # nothing is wrong with its caller
                    break
        served.gateway.room.streams = 0
    assert status(answer) == int(refused)
    assert (b"\r\nconnection: close\r\n" in answer) == (refused != "404" or bool(size))
    assert json.loads(answer.partition(b"\r\n\r\n")[2])


# --- answers without an end -----------------------------------------------------------------------

STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n"
BODY = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
MARK = b"has more than "


def endless(head: bytes, begin: bytes, piece: bytes, *, packed: bool = False) -> Any:
    """Return an answer that begins in some way, and then goes on as long as it is read."""

    def answer(line: socket.socket) -> None:
        packer = zlib.compressobj(wbits=31)
        pack = packer.compress if packed else bytes
        line.sendall(head + (b"content-encoding: gzip\r\n\r\n" if packed else b"\r\n"))
        line.sendall(pack(begin))
        while True:
            line.sendall(pack(piece))

    return answer


def opening(form: str) -> bytes:
    """Return the first events of an answer, with some text in them."""
    with Simulator() as sim:
        sim.script([Reply([Text("Some of it. ")])])
        path = STREAMED[form]
        body = {**request_body(form), "stream": True}
        raw = httpx2.post(sim.url + path, json=body, headers=KEYS).content
    blank = b"\r\n\r\n" if form == "gemini" else b"\n\n"
    events = raw.split(blank)
    some = next(n for n, event in enumerate(events) if b"Some" in event)
    return blank.join(events[: some + 1]) + blank


STREAMED = {**URLS, "gemini": "/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse"}
SHAPES = {
    "an event": (STREAM, b"data: ", b"x" * 20_000, False),
    "an event of lines": (STREAM, b"", b"data: {\n" * 2_000, False),
    "a stream": (STREAM, b"", b": nothing\n\n" * 2_000, False),
    "a packed event": (STREAM, b"data: ", b"x" * 2_000_000, True),
    "a body": (BODY, b'{"x": "', b"x" * 20_000, False),
    "a packed body": (BODY, b'{"x": "', b"x" * 2_000_000, True),
}
SMALL = """
[gateway]
max_event_bytes = 100_000
max_body_bytes = 300_000
[defaults]
backoff_seconds = 0
"""


@pytest.mark.parametrize("begun", [False, True], ids=["at once", "after text"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", FORMATS)
def test_an_answer_without_an_end_is_ended_by_an_error(
    form: str, shape: str, begun: bool, tmp_path: Path
) -> None:
    head, begin, piece, packed = SHAPES[shape]
    streamed = head is STREAM
    if begun:
        if not streamed:
            pytest.skip("a body shows no text before its end")
        begin = opening(form) + begin
    path = STREAMED[form] if streamed else URLS[form]
    body = json.dumps({**request_body(form), "stream": streamed}).encode()
    with Raw(endless(head, begin, piece, packed=packed)) as upstream:
        with serving(tmp_path, upstream.url, SMALL) as served:
            place = served.of(form).removeprefix(served.url)
            with connected(served) as line:
                line.sendall(post(place + path, body, "authorization: k", "connection: close"))
                raw = b""
                while chunk := line.recv(1 << 16):
                    raw += chunk
            assert MARK in raw
            if not streamed:
                assert status(raw) == 502
                assert MARK.decode() in message(raw)
            elif form != "gemini":
                assert raw.rstrip().endswith((b"}", b"0"))
            (turn,) = served.gateway.turns.ids
            report = served.gateway.turns.find(turn)
            assert report is not None
            assert report["outcome"] == "failed"
            assert MARK.decode() in report["reason"]
            if begun and not packed:  # else all of it came in one piece
                assert b"Some" in raw
        assert len(upstream.seen) == 1, "it would be as long the next time"


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if "body" not in shape])
@pytest.mark.parametrize("form", FORMATS)
def test_an_sdk_raises_for_an_answer_without_an_end(form: str, shape: str, tmp_path: Path) -> None:
    if (form, shape) == ("gemini", "a stream"):
        pytest.skip("its SDK raises for comments")
    head, begin, piece, packed = SHAPES[shape]
    ran = MAKES[form]()
    begin = opening(form) + begin
    with (
        Raw(endless(head, begin, piece, packed=packed)) as upstream,
        serving(tmp_path, upstream.url, SMALL) as served,
        quietly(),
    ):
        bare = ran.connect(served.of(form), asynchronous=False)
        with pytest.raises(Exception, match=MARK.decode()):
            read_to_the_end(ran, bare, form)


def read_to_the_end(ran: Any, client: Any, form: str) -> None:
    with contextlib.ExitStack() as up:
        opened = ran.stream(client, ask_for(form, 16_000, {}))
        source = up.enter_context(opened) if hasattr(opened, "__enter__") else opened
        for piece in source:
            ran.pieces.append(piece)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_library_ends_it_too(
    shape: str, asynchronous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Shell, "max_event_bytes", 100_000)
    monkeypatch.setattr(Shell, "max_body_bytes", 300_000)
    head, begin, piece, packed = SHAPES[shape]
    body = {**request_body("openai-chat"), "stream": head is STREAM}
    with Raw(endless(head, begin, piece, packed=packed)) as upstream:
        url = upstream.url + URLS["openai-chat"]
        with pytest.raises(httpx2.DecodingError, match=MARK.decode()):
            asyncio.run(asked(url, body)) if asynchronous else asked_in_turn(url, body)
        assert len(upstream.seen) == 1


def asked_in_turn(url: str, body: dict[str, Any]) -> None:
    with continuation.http_client() as client:
        client.post(url, json=body)


async def asked(url: str, body: dict[str, Any]) -> None:
    async with continuation.async_http_client() as client:
        await client.post(url, json=body)


@pytest.mark.parametrize("packed", [False, True])
def test_an_error_without_an_end_is_not_read(packed: bool, tmp_path: Path) -> None:
    head = BODY.replace(b"200 OK", b"400 Bad Request")
    answer = endless(head, b'{"error": "', b"x" * 200_000, packed=packed)
    with Raw(answer) as upstream, serving(tmp_path, upstream.url, SMALL) as served:
        raw = ask(served.url, post(PLACE, json.dumps(MESSAGES).encode()))
        assert status(raw) == 502
        assert MARK.decode() in message(raw)


def test_a_compressed_request_is_not_unpacked(tmp_path: Path) -> None:
    """It is relayed as it came, however large it would become."""
    body = gzip.compress(b"0," * 5_000_000)
    with Raw() as upstream, serving(tmp_path, upstream.url) as served:
        raw = ask(served.url, post(PLACE, body, "content-encoding: gzip"))
        assert raw.endswith(b"\r\n\r\nok")
        assert upstream.seen[0].endswith(body)


# --- names --------------------------------------------------------------------------------------


NAMED = {
    "anthropic-messages": (PLACE, "model"),
    "openai-chat": ("/openai/v1/chat/completions", "model"),
    "openai-responses": ("/openai/v1/responses", "model"),
}


@pytest.mark.parametrize("form", NAMED)
def test_a_model_with_a_name_of_a_megabyte_fills_nothing(
    form: str, sim: Simulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, key = NAMED[form]
    caplog.set_level("INFO", "continuation.turns")
    with serving(tmp_path, sim.url, "[defaults]\nbackoff_seconds = 0.0\n") as served:
        for number in range(3):
            name = f"gpt-{number}" + "-latest" * 150_000
            sim.script([cut("One, "), end("One, two.")])
            body = json.dumps({**request_body(form), key: name}).encode()
            assert status(ask(served.url, post(path, body, "authorization: Bearer k"))) == 200
            assert len(json.loads(sim.posts[-1].raw)[key]) == len(name), "the model's own name"
        raw = json.dumps([*map(served.gateway.turns.find, served.gateway.turns.ids)])
        state = httpx2.get(f"{served.url}/continuation/live").text
        metrics = httpx2.get(f"{served.url}/metrics").text
        for text in (raw, state, metrics, caplog.text):
            assert "gpt-0-latest" in text or text is metrics
            assert len(text) < 100_000
        held = [*served.gateway.engine.learned.facts()]
        assert all(len(repr(each)) < 500 for each in held)


def test_reports_take_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_turns, "MOST_BYTES", 3_000)
    turns = Turns(Metrics(lambda: 0))
    name = ""
    for number in range(100):
        name, note = turns.begin("openai")
        calls = (CallReport(os.urandom(100).hex(), "as it came", 1),)
        note(Finished(report_of(calls=calls, model=f"m{number}")))
    kept = [turns.find(each) for each in turns.ids]
    assert 3 < len(kept) < 30
    assert turns.find(name) == kept[-1]


def test_combinations_of_labels_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_metrics, "MOST_SERIES", 10)
    metrics = Metrics(lambda: 0)
    for number in range(50):
        metrics.count(Finished(report_of(model=f"m{number % 10}", reason=f"why {'x' * number}")))
    lines = [
        line for line in metrics.text().split(b"\n") if line.startswith(b"continuation_turns_total")
    ]
    assert len(lines) == 11
    assert sum(float(line.rpartition(b" ")[2]) for line in lines) == 50


def report_of(**more: Any) -> Report:
    fields: dict[str, Any] = {
        "outcome": Outcome.TRUNCATED,
        "reason": None,
        "dialect": "openai-chat",
        "model": "m",
        "stop": None,
        "synthetic": False,
        "attempts": (),
        "seams": (),
        "error": None,
        "seconds": 1.0,
    }
    return Report(**{**fields, **more})


def test_what_a_provider_names_is_cut_in_reports_too(sim: Simulator, tmp_path: Path) -> None:
    said = b'{"id":"%b","choices":[{"index":0,"finish_reason":"%b","message":{"content":"x"}}]}'
    long = b"x" * 100_000
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-request-id: %b\r\n"
    answer += b"content-length: %d\r\n\r\n%b"
    body = said % (long, long)
    answer %= (b"r" * 5_000, len(body), body)
    asked = json.dumps(request_body("openai-chat")).encode()
    with Raw(answer) as upstream, serving(tmp_path, upstream.url) as served:
        assert status(ask(served.url, post("/openai/v1/chat/completions", asked))) == 200
        (turn,) = served.gateway.turns.ids
        assert len(json.dumps(served.gateway.turns.find(turn))) < 3_000
