"""Streams as they were recorded of the Messages API, uncut and cut at every event."""

from __future__ import annotations

import pytest
from support.recorded import Json, Wire, cuts, passes, steps
from support.recorded_messages import PING, RESULT, RUNNING, WIRE, message_of, stream

DIRECT = '~{"caller":{"type":"direct"}}'
SEARCHED = {"server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0}}
BOX = {"container": {"id": "container_1", "expires_at": "2026-12-20T05:33:35Z"}}
STEPS = {
    "iterations": [
        {"type": "compaction", "input_tokens": 9, "output_tokens": 5},
        {"type": "message", "input_tokens": 3, "output_tokens": 9},
    ]
}
EDITED: Json = {"context_management": {"applied_edits": []}}
OPENED = {"content": [{"type": "text", "text": "First, "}]}
CALLED = {"id": "toolu_9", "type": "tool_use", "name": "read", "input": {"a": 1}}
RAN = {
    "type": "code_execution_tool_result",
    "tool_use_id": "srvtoolu_9",
    "content": RESULT,
}

STREAMS = {
    "text": stream("t:!|One_fine_|day_|it_rained."),
    "a text after thinking": stream("th:!|Let_me_see.|So. t:It_|rained.", **EDITED),
    "two pings inside a call": stream('t:I_|read. c:read||!|{"a":|!|1} ! !', stop="tool_use"),
    "a call without arguments": stream("t:I_|!|read. ! c:read|!|", stop="tool_use"),
    "a call alone": stream('c:read||!|{"a":|1}', stop="tool_use"),
    "cited": stream(
        's:search||{"q":|1} r:search t:I_|found:_ t***:that_it_|rained t:_and_ t*:then|_'
        "stopped t:.",
        usage=SEARCHED,
    ),
    "an advisor": stream("s:advise|! r:advise t:One_|!|fine_|day.", usage=SEARCHED),
    "code": stream(
        't:I_|!|run. s:edit||{"a":|1} ! r:edit t:It_|runs: s:bash|{} r:bash t:two|_lines.',
        delta=BOX,
        usage=SEARCHED,
    ),
    "an MCP server": stream(
        's~{"server_name":"e"}:echo||{"a":1} r~{"is_error":false}:echo t:It_|says_hi.'
    ),
    "found tools": stream(
        f"t:I_|!|look. s{DIRECT}:find|{{}} r:find t:Found|_one. c{DIRECT}:read|{{}}",
        stop="tool_use",
    ),
    "a call beside one of the provider's": stream(
        f't:!|Both. c{DIRECT}:read||{{"a":1}} s{DIRECT}:find||{{}}',
        stop="tool_use",
    ),
    "compacted": stream("k:Earlier_on. t:One_|!|fine_|day.", usage=STEPS, **EDITED),
    "fallen back": stream("f t:One_|fine_|day."),
    "fallen back behind thinking": stream("th:Hm. f th:So. t:One_|fine_|day."),
    "a result in the opening": stream("t:It_|!|rained.", start={"content": [RAN]}),
    "a text in the opening": stream("t:it_|!|rained.", start=OPENED),
    "all in the opening": [
        *stream("", start={"content": [RAN, CALLED], "stop_reason": "tool_use", **BOX})[::2]
    ],
    "a second opening": [
        stream("t:One.")[0],
        *stream("t:One_|fine_|day."),
    ],
}


def wire(name: str) -> Wire:
    return RUNNING if "result in the opening" in name else WIRE


@pytest.mark.parametrize("name", STREAMS)
def test_a_recorded_stream_passes_byte_for_byte(name: str) -> None:
    passes(wire(name), STREAMS[name])


@steps
@pytest.mark.parametrize("name", STREAMS)
def test_a_recorded_stream_cut_at_every_event_is_healed(name: str, step: int) -> None:
    for cut in cuts(wire(name), STREAMS[name], step):
        told, served = cut.driven.told, [event for events in cut.served for event in events]
        assert told.count(PING) <= served.count(PING)
        last = [event for events in cut.kept for event in events[-2:-1]]
        ends = [event for event in last if event["type"] == "message_delta"]
        if len(cut.served) > 1 and ends:
            message = message_of(told)
            assert message.get("context_management") == ends[-1].get("context_management")
            assert message.get("container") == ends[-1]["delta"].get("container")
            assert searches(message) == sum(map(searches, ends))
            assert steps_of(message) == [step for end in ends for step in steps_of(end)]


def searches(said: Json) -> int:
    return int(said["usage"].get("server_tool_use", {}).get("web_search_requests", 0))


def steps_of(said: Json) -> list[Json]:
    return said["usage"].get("iterations") or []
