"""A caller who may use the gateway cannot stop the others, or spend more than its operator allows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.gateways import KEYS, MESSAGES, URLS, Raw, Served, ask, request, serving
from support.sdks.turn import end

from continuation.config import parse
from continuation.policy import CLIENT_KEYS, KEYS as POLICY_KEYS, Policy, lifted
from continuation.simulator import Simulator

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
        raw = ask(served.url, post(PLACE, json.dumps(MESSAGES).encode(), f"x-continuation: {header}"))
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
    with serving(tmp_path, sim.url, OPERATED.format(enabled=enabled, overrides=overrides)) as served:
        sim.script([end("Whole.")])
        raw = ask(served.url, post(PLACE, json.dumps(MESSAGES).encode(), f"x-continuation: {header}"))
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
    *("on_failure", "prefill", "recovery_prompt", "unanswered_tool_calls"),
    *("auto_resume", "resume_text"),
}
"""Keys that say how an answer is treated: a caller may set them as it likes."""
MOST = {
    **dict.fromkeys(("enabled", "escalate", "remember_limit", "verify_stop_reason"), "true"),
    **dict.fromkeys(("models_endpoint", "less_thinking"), "true"),
    **{"max_recoveries": "10", "max_drop_recoveries": "10", "max_attempts": "50"},
    **{"max_retries": "10", "max_turn_seconds": "86400", "max_turn_output_tokens": "100000000"},
    **{"leave_limits_below": "0", "model_max_output_tokens": "0", "initial_limit": "ceiling"},
    **{"truncated_tool_call": "complete", "truncated_document": "complete"},
    **{"forced_tool_choice": "heal", "usage": "turn", "seam_buffer_chars": "100000"},
    **{"backoff_seconds": "0", "max_wait_seconds": "3600", "tracing": "on"},
    **{"repair": "before_send", "log_repairs": "false"},
}
"""For each other key the value that allows most."""
LEAST = Policy(
    **dict.fromkeys(("enabled", "escalate", "remember_limit", "verify_stop_reason"), False),
    **dict.fromkeys(("models_endpoint", "less_thinking"), False),
    **dict.fromkeys(("max_recoveries", "max_drop_recoveries", "max_retries"), 0),
    **dict.fromkeys(("max_attempts", "max_turn_seconds", "max_turn_output_tokens"), 1),
    leave_limits_below=1_000_000,
    model_max_output_tokens=1,
    usage="billed",
    seam_buffer_chars=1,
    backoff_seconds=60.0,
    max_wait_seconds=0.0,
    repair="off",
    tracing="off",
)


@pytest.mark.parametrize("key", sorted({*POLICY_KEYS} - CLIENT_KEYS))
def test_every_key_either_lifts_no_limit_or_is_checked(key: str) -> None:
    """A new key must be put into one of the two tables here."""
    assert (key in FREE) != (key in MOST)
    if key in MOST:
        asked = parse(f"{key}={MOST[key]}")
        assert lifted(LEAST, asked) == key
        assert lifted(Policy(**asked), {key: getattr(LEAST, key)}) in {"", "tracing"}
