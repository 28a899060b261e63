"""AWS event streams: read as botocore reads them, written so that it takes them, at any split."""

from __future__ import annotations

import json
import struct
from binascii import b2a_base64, crc32
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from anthropic.lib.bedrock._stream_decoder import AWSEventStreamDecoder
from support.drive import Attempt, Driven, accumulate_message, check_stream, drive, opening, streams

from continuation import Policy
from continuation.wire import sse
from continuation.wire.eventstream import Unframed, encode, frames

INVOKE = "/model/us.anthropic.claude-opus-5-v1:0/invoke-with-response-stream"
ASK: dict[str, Any] = {
    "anthropic_version": "2026-10-21",
    "max_tokens": 1000,
    "messages": [{"role": "user", "content": "Go."}],
}
HEAD = {"content-type": "application/vnd.amazon.eventstream"}
OTHERS = b"".join(
    struct.pack(">B", len(name)) + name + value
    for name, value in {
        b"yes": b"\0", b"no": b"\1", b"byte": b"\2\7", b"short": b"\3\0\7", b"int": b"\4\0\0\0\7",
        b"long": b"\5" + bytes(8), b"blob": b"\6\0\3abc", b"date": b"\x08" + bytes(8),
        b"uuid": b"\x09" + bytes(16),
    }.items()
)  # fmt: skip
"""Headers of every type that there is."""


def message(payload: bytes, *, more: bytes = b"", **headers: str) -> bytes:
    """Write a message by the specification, with nothing of ours."""
    head = more
    for name, value in headers.items():
        key = f":{name.replace('_', '-')}".encode()
        head += (
            struct.pack(">B", len(key)) + key + struct.pack(">BH", 7, len(value)) + value.encode()
        )
    lengths = struct.pack(">II", 16 + len(head) + len(payload), len(head))
    prelude = lengths + struct.pack(">I", crc32(lengths))
    whole = prelude + head + payload
    return whole + struct.pack(">I", crc32(whole))


def chunk(event: Any, **padding: Any) -> bytes:
    """Write an event as Bedrock does, its padding behind it."""
    payload = {"bytes": b2a_base64(json.dumps(event).encode(), newline=False).decode(), **padding}
    told: Any = {"event_type": "chunk", "content_type": "application/json", "message_type": "event"}
    return message(json.dumps(payload, separators=(",", ":")).encode(), **told)


def failure(kind: str, text: str) -> bytes:
    told: Any = {"exception_type": kind, "content_type": "application/json"}
    return message(json.dumps({"message": text}).encode(), **told, message_type="exception")


def by_sdk(raw: bytes) -> list[dict[str, Any]]:
    """Return what the SDK, which checks each CRC, makes of a stream."""
    return [json.loads(event.data) for event in AWSEventStreamDecoder().iter_bytes(iter([raw]))]


def answer(text: Sequence[str], stop: str = "end_turn", output: int = 9) -> list[dict[str, Any]]:
    block = {"type": "text", "text": ""}
    deltas: Iterator[dict[str, Any]] = (
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
        for piece in text
    )
    usage = {"output_tokens": output}
    return [
        opening(),
        {"type": "content_block_start", "index": 0, "content_block": block},
        *deltas,
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": usage,
        },
        {"type": "message_stop", "amazon-bedrock-invocationMetrics": {"outputTokenCount": output}},
    ]


WORDS = ["Es war ", "einmal 文", " 🙂 ein ", '"Satz".']
UNCUT = b"".join(chunk(event, p="abcdefgh"[: n % 8]) for n, event in enumerate(answer(WORDS)))
CUT = [
    b"".join(chunk(event) for event in answer(WORDS[:2], "max_tokens", 1000)),
    b"".join(chunk(event) for event in answer(WORDS[2:])),
]


def bedrock(*attempts: Attempt, **keys: Any) -> Driven:
    told: list[Attempt] = [
        (200, HEAD, [one] if isinstance(one, bytes) else one, None)
        if isinstance(one, (bytes, list))
        else one
        for one in attempts
    ]
    policy = Policy(escalate=False, **keys)
    return drive(streams(*told), ASK, policy, path=INVOKE)


def halves(raw: bytes, at: int) -> list[bytes]:
    return [raw[:at], raw[at:]]


# --- reading ------------------------------------------------------------------------------------


def test_what_a_server_writes_is_read_as_the_sdk_reads_it_at_every_split() -> None:
    events = by_sdk(UNCUT)
    assert [json.loads(frame.data) for frame in frames(UNCUT)] == events
    expected = Unframed()(UNCUT)
    assert [json.loads(frame.data) for frame in sse.frames(expected)] == events
    for at in range(len(UNCUT)):
        unframed = Unframed()
        assert b"".join(map(unframed, halves(UNCUT, at))) == expected


def test_every_type_of_header_is_passed_over_and_unknown_events_are_no_events() -> None:
    told: Any = {"event_type": "chunk", "message_type": "event"}
    known = message(b'{"p":"ab", "bytes":"e30="}', more=OTHERS, **told)
    other = message(b'{"a":1}', event_type="initial-response", message_type="event")
    odd = message(b"no json", event_type="chunk", message_type="event")
    assert [frame.data for frame in frames(known + other + odd + message(b""))] == [
        b"{}",
        *[b""] * 3,
    ]


def test_a_message_that_was_damaged_is_an_error_wherever_the_damage_is() -> None:
    """Never another event than was sent, and no waiting for bytes that a wrong length promises."""
    first, second = chunk({"type": "ping"}), chunk({"type": "pong"})
    for at in range(len(second)):
        damaged = bytearray(first + second)
        damaged[len(first) + at] ^= 0x41
        good, bad = frames(damaged)
        assert json.loads(good.data) == {"type": "ping"}
        assert bad.name == "error"
        assert bad.end == len(damaged)


# --- writing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", answer(WORDS))
def test_the_sdk_takes_what_we_write(event: dict[str, Any]) -> None:
    assert by_sdk(encode("", json.dumps(event).encode())) == [event]


@pytest.mark.parametrize("kind", ["modelStreamErrorException", "throttlingException"])
def test_an_exception_in_a_stream_is_an_error_for_us_and_stays_one_for_the_sdk(kind: str) -> None:
    (frame,) = frames(failure(kind, "No."))
    error = {"type": "error", "error": {"type": kind, "message": "No."}}
    assert (frame.name, json.loads(frame.data)) == ("error", error)
    assert by_sdk(encode(frame.name, frame.data)) == [error] == by_sdk(failure(kind, "No."))
    unmodelled = message(
        b"", error_code="InternalFailure", error_message="Oh.", message_type="error"
    )
    assert json.loads(frames(unmodelled)[0].data)["error"] == {
        "type": "InternalFailure",
        "message": "Oh.",
    }


# --- turns --------------------------------------------------------------------------------------


SIZES = pytest.mark.parametrize("size", [1, 7, 100, 10_000])


def in_pieces(raw: bytes, size: int) -> list[bytes]:
    return [raw[at : at + size] for at in range(0, len(raw), size)]


def passed(pieces: list[bytes]) -> None:
    driven = bedrock(pieces)
    assert b"".join(driven.pieces) == UNCUT
    assert driven.report.outcome == "complete"


@SIZES
def test_an_uncut_stream_passes_byte_for_byte(size: int) -> None:
    passed(in_pieces(UNCUT, size))


def healed(driven: Driven) -> None:
    events = by_sdk(b"".join(driven.pieces))
    check_stream(events)
    message = accumulate_message(events)
    assert message.content[0].to_dict()["text"] == "".join(WORDS)
    assert message.stop_reason == "end_turn"
    assert driven.report.outcome == "healed"


@SIZES
def test_a_cut_stream_is_healed_in_pieces_of_any_size(size: int) -> None:
    healed(bedrock(*[in_pieces(raw, size) for raw in CUT]))


@pytest.mark.slow
def test_streams_are_passed_and_healed_at_every_split() -> None:
    """Each byte is a place to split at for the framing alone (above); a turn sees every fifth."""
    for at in range(0, len(UNCUT), 5):
        passed(halves(UNCUT, at))
    told = {}
    for at in range(0, max(map(len, CUT)), 5):
        driven = bedrock(*[halves(raw, at) for raw in CUT])
        told[b"".join(driven.pieces)] = driven
    for driven in told.values():
        healed(driven)


@pytest.mark.parametrize(
    "broken",
    [
        CUT[0][: -len(chunk(answer(WORDS)[-1])) - 200],
        CUT[0][:-400] + failure("modelStreamErrorException", "secret words"),
        CUT[0][:700] + b"\0" * 40,
    ],
    ids=["dropped", "an exception", "damaged"],
)
def test_a_stream_that_breaks_off_is_healed(broken: bytes) -> None:
    whole = b"".join(chunk(event) for event in answer(WORDS))
    driven = bedrock(broken, whole)
    healed(driven)
    assert "secret words" not in str(driven.report) + str(driven.events)


def test_what_a_later_attempt_sends_fits_the_paths_of_bedrock() -> None:
    driven = bedrock(*CUT)
    for body in driven.requests:
        assert body.keys() == ASK.keys()


def test_a_model_of_another_vendor_is_left_alone() -> None:
    driven = drive(
        streams((200, HEAD, [UNCUT], None)), {"max_tokens": 9, "messages": []}, path=INVOKE
    )
    assert driven.report.reason == "it asks a model of another format"
    assert b"".join(driven.pieces) == UNCUT
